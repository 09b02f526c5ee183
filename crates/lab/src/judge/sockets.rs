//! What must hold of sockets without a room, and when it first did not.

use super::expected::Check;
use super::threshold::Threshold;
use crate::base::short;
use crate::observe::sockets::{ANSWERED_PCT, CONNECT_MS, LOST, PONG_MS};
use crate::record::{Second, SocketsSummary};

/// The checks of a run with sockets: all came up, all stayed, and who pinged was answered. A threshold on `lost` or `answered_pct`
/// says what is allowed instead. Empty without sockets.
pub(super) fn checks(groups: &[SocketsSummary], thresholds: &[Threshold]) -> Vec<Check> {
    if groups.is_empty() {
        return Vec::new();
    }
    let says = |metric| thresholds.iter().any(|threshold| threshold.metric == metric);
    let sum = |of: fn(&SocketsSummary) -> u64| groups.iter().map(of).sum::<u64>();
    let connected = sum(|group| group.connected.into());
    let failed = sum(|group| group.failed.values().sum());
    let why = groups.iter().flat_map(|group| group.failed.keys()).next();
    let closed = sum(|group| group.closed.values().sum());
    let code = groups.iter().flat_map(|group| group.closed.keys()).next();
    let unanswered = sum(|group| group.unanswered.into());
    let of = |name: &str, ok, detail| Check { name: name.into(), ok, detail };
    let because = |why: Option<&String>| why.map(|why| format!(": {why}")).unwrap_or_default();
    let up = format!(
        "{connected} of {} sockets came up{}",
        connected + failed,
        because(why.filter(|_| failed > 0))
    );
    let stayed = match closed {
        0 => "no socket ended early".to_owned(),
        closed => format!("{closed} of {connected} sockets ended early{}", because(code)),
    };
    let answered = match unanswered {
        0 => "every socket that pinged was answered".to_owned(),
        count => format!("{count} of {connected} sockets pinged and were never answered"),
    };
    let mut checks = Vec::new();
    if !says(LOST) {
        checks.push(of("all sockets came up", failed == 0 && connected > 0, up));
        checks.push(of("all sockets stayed", closed == 0, stayed));
    }
    if !says(ANSWERED_PCT) {
        checks.push(of("all sockets were answered", unanswered == 0, answered));
    }
    checks
}

/// When a threshold on sockets first did not hold in a second of a group, and why. It may hold in each second by itself: then it is
/// the end. None without sockets.
pub(super) fn broke(groups: &[SocketsSummary], threshold: &Threshold) -> Option<(u64, String)> {
    let ends = groups.iter().filter_map(|group| group.seconds.last());
    let end_s = ends.map(|second| second.t_s).reduce(f64::max)?;
    let first = first_second(groups, threshold);
    let whole = || format!("{threshold} does not hold over the whole run");
    Some(first.unwrap_or_else(|| ((1e3 * end_s) as u64, whole())))
}

/// Whether a threshold on sockets does not hold in some second.
pub(super) fn breaks_in_a_second(groups: &[SocketsSummary], threshold: &Threshold) -> bool {
    first_second(groups, threshold).is_some()
}

fn first_second(groups: &[SocketsSummary], threshold: &Threshold) -> Option<(u64, String)> {
    let from_s = threshold.from.as_secs_f64();
    let broken = |group: &SocketsSummary| {
        let seconds = group.seconds.iter().filter(|second| second.t_s > from_s);
        seconds.filter_map(|second| in_second(second, threshold)).min_by_key(|(t_ms, _)| *t_ms)
    };
    groups.iter().filter_map(broken).min_by_key(|(t_ms, _)| *t_ms)
}

/// Whether a threshold does not hold in a second: since when, and why.
fn in_second(second: &Second, threshold: &Threshold) -> Option<(u64, String)> {
    let end_ms = 1e3 * second.t_s;
    // What took long began before its second did.
    let (value, since_ms) = match threshold.metric {
        PONG_MS => second.p99_ms.map(|ms| (ms, end_ms - ms))?,
        CONNECT_MS => second.connect_p95_ms.map(|ms| (ms, end_ms - ms))?,
        LOST => (second.lost as f64, end_ms),
        ANSWERED_PCT if second.offered > 0 => {
            let pct = 100.0 * second.answered as f64 / second.offered as f64;
            (pct.min(100.0), end_ms)
        }
        _ => return None,
    };
    let why = || format!("{threshold} does not hold: it was {}", short(value));
    (!threshold.condition.allows(value)).then(|| (since_ms.max(0.0) as u64, why()))
}

/// When sockets first were not as [`checks`] want them, and how.
pub(super) fn first_lost(groups: &[SocketsSummary]) -> Option<(u64, String)> {
    let lost = |group: &SocketsSummary| {
        let second = group.seconds.iter().find(|second| second.lost > 0)?;
        let why = group.failed.keys().chain(group.closed.keys()).next()?;
        Some(((1e3 * second.t_s) as u64, format!("{} sockets were lost: {why}", second.lost)))
    };
    let silent = |group: &SocketsSummary| {
        let second = group.seconds.iter().find(|second| second.offered > 0 && second.answered == 0);
        let t_ms = (1e3 * second.filter(|_| group.unanswered > 0)?.t_s) as u64;
        Some((t_ms, format!("{} sockets were never answered", group.unanswered)))
    };
    let all = groups.iter().filter_map(lost).chain(groups.iter().filter_map(silent));
    all.min_by_key(|(t_ms, _)| *t_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::threshold::Condition;
    use std::time::Duration;

    fn threshold(metric: &'static str, condition: &str) -> Threshold {
        let condition = Condition::parse(condition).expect("a condition");
        Threshold { metric, condition, from: Duration::ZERO, abort: None }
    }

    /// A server that stopped from 6 to 9 s, and answered all at 10 s.
    fn stopped() -> SocketsSummary {
        let second = |t: u32| Second {
            t_s: t.into(),
            live: 10,
            offered: 100,
            answered: match t {
                7..=9 => 0,
                10 => 400,
                _ => 100,
            },
            p50_ms: None,
            p99_ms: match t {
                7..=9 => None,
                10 => Some(3_900.0),
                _ => Some(2.0),
            },
            lost: 0,
            connect_p95_ms: (t == 1).then_some(3.0),
        };
        let seconds = (1..=15).map(second).collect();
        SocketsSummary { connections: 10, connected: 10, seconds, ..SocketsSummary::default() }
    }

    #[test]
    fn a_threshold_breaks_in_the_second_in_which_it_breaks() {
        let groups = [stopped()];
        let at = |metric, condition: &str| {
            broke(&groups, &threshold(metric, condition)).map(|(t_ms, _)| t_ms)
        };
        assert_eq!(at(PONG_MS, "p99 <= 100"), Some(6_100));
        assert_eq!(at(ANSWERED_PCT, "user_p5 >= 99"), Some(7_000));
        assert_eq!(at(CONNECT_MS, "p95 <= 2"), Some(997));
        assert_eq!(at(LOST, "max == 0"), Some(15_000), "in no second by itself");
    }

    #[test]
    fn sockets_that_do_not_come_up_stay_or_get_answers_fail() {
        let names = |groups: &[SocketsSummary], thresholds: &[Threshold]| {
            let failed = checks(groups, thresholds).into_iter().filter(|check| !check.ok);
            failed.map(|check| check.detail).collect::<Vec<_>>()
        };
        assert_eq!(names(&[], &[]), Vec::<String>::new());
        assert_eq!(names(&[stopped()], &[]), Vec::<String>::new());
        let refused = SocketsSummary {
            connections: 100,
            failed: [("no upgrade: HTTP/1.1 404".to_owned(), 100)].into(),
            ..SocketsSummary::default()
        };
        let want = "0 of 100 sockets came up: no upgrade: HTTP/1.1 404";
        assert_eq!(names(std::slice::from_ref(&refused), &[]), [want]);
        let ended =
            SocketsSummary { closed: [("1006".to_owned(), 2)].into(), unanswered: 3, ..stopped() };
        let want =
            ["2 of 10 sockets ended early: 1006", "3 of 10 sockets pinged and were never answered"];
        assert_eq!(names(std::slice::from_ref(&ended), &[]), want);
        let (t_ms, why) = first_lost(std::slice::from_ref(&ended)).expect("broke");
        assert_eq!((t_ms, why.as_str()), (7_000, "3 sockets were never answered"));
        // Whoever says what may be lost is not overruled.
        let own = [threshold(LOST, "max < 5"), threshold(ANSWERED_PCT, "user_p5 >= 10")];
        assert_eq!(names(&[ended], &own), Vec::<String>::new());
        assert!(checks(&[SocketsSummary::default()], &[]).iter().any(|check| !check.ok));
    }
}
