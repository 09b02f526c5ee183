//! Growth until answers fall behind: for moim, and on the same CPUs for the npm SocketCluster server.

use super::figures::{BATCHED, CLIENTS, COLUMNS, measured, scenario};
use crate::record::{About, Cell, Plot, Row, Table};
use crate::study::others::{Others, Server};
use crate::study::session::{Session, Sessions};
use std::collections::BTreeMap;

/// Below this share of answers (percent, while pings go on) a rate does not hold.
const HOLDS_PCT: f64 = 99.0;
/// Share of a core from which on a thread of the server has no time left.
const FULL_CORES: f64 = 0.9;
/// The edge is known well enough when what breaks is at most so many times what holds.
const NEAR: f64 = 1.06;

/// Which rates are tried, in pings a second of each client.
pub(super) struct Ladder {
    /// In rising order, until one does not hold.
    rates: &'static [f64],
    /// How long each is offered, in seconds.
    stage_s: f64,
    /// So many rates between the last that held and the first that did not.
    between: u32,
}

pub(super) const FULL: Ladder = Ladder {
    rates: &[
        100.0, 200.0, 300.0, 425.0, 850.0, 1700.0, 2400.0, 3400.0, 4800.0, 6800.0, 9600.0, 13600.0,
    ],
    stage_s: 20.0,
    between: 2,
};
pub(super) const QUICK: Ladder = Ladder { rates: &[100.0, 600.0], stage_s: 4.0, between: 1 };

/// The table of all rates.
pub(super) fn table() -> Table {
    let hint = format!(
        "{CLIENTS} clients at rates that grow until fewer than {HOLDS_PCT} % of the messages are answered \
         while they are sent (“answered meanwhile”), then rates in between. All servers run on the same CPUs, one \
         process each, started anew for each rate. {BATCHED} SocketCluster has its own settings, and by them no batching: \
         each answer is a write. A load average covers a minute and these rows last {:.0} s, so they have none.",
        FULL.stage_s
    );
    let columns: Vec<_> = COLUMNS.into_iter().chain([("limit", "limit", 0)]).collect();
    Table::new("knee", "Growth until answers fall behind", &hint, &columns)
}

/// The table of what each server held.
pub(super) fn table_of_limits() -> Table {
    let columns = [
        ("holds_per_s", "messages/s, most that held", 0),
        ("breaks_per_s", "messages/s, least that did not", 0),
        ("limit", "limit", 0),
        ("latency_p99_ms", "p99 ms where it held", 2),
        ("server_cpu_cores", "server CPU cores there", 2),
        ("us_per_answer", "server µs an answer there", 1),
    ];
    let hint = "Where the generator is the limit the server's own edge lies higher: what held is “at least”.";
    Table::new("limits", "The knee", hint, &columns)
}

/// What came of a rate.
#[derive(Clone, Copy)]
struct Point {
    answered_per_s: Option<f64>,
    p99_ms: Option<f64>,
    us_per_answer: Option<f64>,
}

/// What came of a contender.
#[derive(Default)]
struct Found {
    /// The highest rate that held, and its row.
    holds: Option<(f64, Row)>,
    /// The lowest rate that did not, and its limit.
    breaks: Option<(f64, &'static str)>,
    /// Why it ended otherwise.
    ended: Option<String>,
    /// By messages offered a second.
    points: BTreeMap<u64, Point>,
}

pub(super) async fn run(
    sessions: &mut Sessions,
    ladder: &Ladder,
    tables: [&Table; 2],
    rows: &mut Vec<Row>,
    about: &mut About,
) -> String {
    let others = Others::meet(sessions).await;
    let (mut limits, mut all) = (Vec::new(), Vec::new());
    for server in &others.servers {
        let found = climb(sessions, ladder, server, tables[0], rows).await;
        limits.push(limit_row(&server.name, &found, tables[1]));
        all.push((server.name.clone(), found));
    }
    if others.servers.len() == 1 {
        let cure =
            "`moim study sockets --beside socketcluster=scripts/socketcluster.mjs` measures it too";
        let none = || format!("no SocketCluster server was given; {cure}");
        let reason = others.failed.first().map_or_else(none, |(_, reason)| reason.clone());
        rows.push(Row::new("knee", "SocketCluster").rest(tables[0], &reason));
        limits.push(Row::new("limits", "SocketCluster").rest(tables[1], &reason));
        about.not_shown.push(format!("SocketCluster on the same CPUs: {reason}."));
    }
    rows.append(&mut limits);
    plots(&all, about);
    in_words(&all)
}

/// Offers a rate to a server that has just been started: nothing is left of what was offered before.
async fn offer(
    sessions: &mut Sessions,
    ladder: &Ladder,
    who: &Server,
    rate: f64,
) -> Result<Session, String> {
    let name = format!("{}-{rate}", who.word);
    let text = scenario("", ladder.stage_s + 4.0, CLIENTS, 100.0, rate, 0);
    sessions.run_at(who.beside.as_ref(), &name, &text).await
}

/// Raises the rate until it does not hold, then looks in between.
async fn climb(
    sessions: &mut Sessions,
    ladder: &Ladder,
    who: &Server,
    table: &Table,
    rows: &mut Vec<Row>,
) -> Found {
    let (mut found, first) = (Found::default(), rows.len());
    for rate in ladder.rates {
        try_rate(sessions, ladder, who, *rate, table, rows, &mut found).await;
        if found.breaks.is_some() || found.ended.is_some() {
            break;
        }
    }
    for _ in 0..ladder.between {
        let (Some((holds, _)), Some((breaks, _))) = (&found.holds, &found.breaks) else { break };
        if found.ended.is_some() || breaks / holds <= NEAR {
            break;
        }
        let rate = middle(*holds, *breaks);
        try_rate(sessions, ladder, who, rate, table, rows, &mut found).await;
    }
    let rate = |row: &Row| row.value("rate_per_client_per_s");
    rows[first..]
        .sort_by(|a, b| rate(a).unwrap_or(f64::MAX).total_cmp(&rate(b).unwrap_or(f64::MAX)));
    found
}

/// Between two rates, as many times above the one as below the other; a multiple of 5.
fn middle(holds: f64, breaks: f64) -> f64 {
    ((holds * breaks).sqrt() / 5.0).round() * 5.0
}

/// One rate. One that does not hold is tried twice: others on this machine can spoil one.
async fn try_rate(
    sessions: &mut Sessions,
    ladder: &Ladder,
    who: &Server,
    rate: f64,
    table: &Table,
    rows: &mut Vec<Row>,
    found: &mut Found,
) {
    let row = Row::new("knee", format!("{}, {rate} messages/s each", who.name));
    let mut ran = offer(sessions, ladder, who, rate).await;
    if !sessions.quick && ran.as_ref().is_ok_and(|session| !holds(session, rate)) {
        errln!("  and again: it did not hold");
        ran = offer(sessions, ladder, who, rate).await;
    }
    let session = match ran {
        Ok(session) => session,
        Err(reason) => {
            rows.push(row.rest(table, &reason));
            found.ended = Some(reason);
            return;
        }
    };
    let mut row = measured(row, &session, rate);
    let up = session.sockets().map_or(0, |sockets| sockets.connected);
    if up < CLIENTS {
        row = row.note(format!("{up} of {CLIENTS} clients came up: the others offered nothing"));
    }
    let value = |row: &Row, key: &str| row.value(key);
    let offered = (rate * f64::from(CLIENTS)) as u64;
    let answered_per_s = value(&row, "answered_per_s");
    let p99_ms = value(&row, "latency_p99_ms");
    let us_per_answer = value(&row, "us_per_answer");
    found.points.insert(offered, Point { answered_per_s, p99_ms, us_per_answer });
    if holds(&session, rate) {
        row = row.cell("limit", Cell::word("none"));
        found.holds = Some((rate, row.clone()));
    } else {
        let whose = whose_limit(&session);
        row = row.cell("limit", Cell::word(whose));
        found.breaks = Some((rate, whose));
    }
    rows.push(row.rest(table, "the session has no sockets in it"));
}

fn holds(session: &Session, rate: f64) -> bool {
    // Clients that never came up offered nothing.
    if session.sockets().is_none_or(|sockets| sockets.connected < CLIENTS) {
        return false;
    }
    let row = measured(Row::default(), session, rate);
    row.value("kept_up_pct").is_some_and(|pct| pct >= HOLDS_PCT)
}

/// Who had no time left where a rate did not hold.
fn whose_limit(session: &Session) -> &'static str {
    let server = session.busiest_server_thread(3.5, f64::INFINITY);
    let server = server.is_some_and(|cores| cores >= FULL_CORES);
    match (server, session.generator_was_saturated()) {
        (true, false) => "server",
        (false, true) => "generator",
        (true, true) => "server and generator",
        (false, false) => "unexplained",
    }
}

fn limit_row(name: &str, found: &Found, table: &Table) -> Row {
    let per_s = |rate: f64| Cell::number(rate * f64::from(CLIENTS));
    let mut row = Row::new("limits", name);
    if let Some((rate, held)) = &found.holds {
        row = row.cell("holds_per_s", per_s(*rate));
        for key in ["latency_p99_ms", "server_cpu_cores", "us_per_answer"] {
            row = row.cell(key, held.cells.get(key).cloned().unwrap_or_default());
        }
    }
    if let Some((rate, whose)) = &found.breaks {
        row = row.cell("breaks_per_s", per_s(*rate)).cell("limit", Cell::word(*whose));
    }
    let reason = match (&found.ended, &found.holds) {
        (Some(reason), _) => reason.as_str(),
        (None, None) => "no rate that was tried held",
        (None, Some(_)) => "every rate that was tried held: what held is a lower bound",
    };
    row.rest(table, reason)
}

fn plots(all: &[(String, Found)], about: &mut About) {
    let labels: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let offered = all.iter().flat_map(|(_, found)| found.points.keys().copied());
    let offered: std::collections::BTreeSet<u64> = offered.collect();
    let points = |pick: fn(&Point) -> Option<f64>| {
        let of =
            |x: &u64| all.iter().map(|(_, found)| found.points.get(x).and_then(pick)).collect();
        offered.iter().map(|x| (*x as f64, of(x))).collect()
    };
    about.plots.push(Plot::new(
        ("Answered over offered", "messages/s", "messages offered a second"),
        &labels,
        points(|point| point.answered_per_s),
    ));
    about.plots.push(Plot::new(
        ("p99 latency over rate", "ms", "messages offered a second"),
        &labels,
        points(|point| point.p99_ms),
    ));
}

/// Whether the server itself was the limit.
fn by_server(found: &Found) -> bool {
    found.breaks.is_some_and(|(_, whose)| whose == "server")
}

/// How many times the CPU of the first server an answer takes at the second, at the smallest and the largest load that both hold.
fn at_equal_load(all: &[(String, Found)]) -> Option<String> {
    let [(_, ours), (name, theirs)] = all else { return None };
    let kept_up = |offered: u64, point: &Point| {
        point.answered_per_s.is_some_and(|answered| answered >= 0.99 * offered as f64)
    };
    let at = |(offered, one): (&u64, &Point)| {
        let other = theirs.points.get(offered)?;
        let both = kept_up(*offered, one) && kept_up(*offered, other);
        Some((*offered, other.us_per_answer? / one.us_per_answer?)).filter(|_| both)
    };
    let common: Vec<(u64, f64)> = ours.points.iter().filter_map(at).collect();
    let ((least, first), (most, last)) = (common.first()?, common.last()?);
    let p99 = ours.holds.as_ref().and_then(|(_, row)| row.value("latency_p99_ms"));
    let p99 = p99.map(|ms| format!(", at a p99 of {ms:.0} ms")).unwrap_or_default();
    Some(format!(
        " At the same load {name} takes {first:.1} times the CPU of moim for an answer ({least} messages a second) to {last:.1} times \
         ({most}). The rest comes from answering many messages with one write{p99}."
    ))
}

/// What each held, and how they compare.
fn in_words(all: &[(String, Found)]) -> String {
    let held = |found: &Found| found.holds.as_ref().map(|(rate, _)| rate * f64::from(CLIENTS));
    let one = |(name, found): &(String, Found)| {
        let words = if by_server(found) { "" } else { "at least " };
        match held(found) {
            Some(per_s) => format!("{name} answered {words}{per_s:.0} messages a second"),
            None => format!("{name} held none of the rates"),
        }
    };
    let text = all.iter().map(one).collect::<Vec<_>>().join(", ");
    if let [(_, ours), (_, theirs)] = all
        && let (Some(ours), Some(theirs)) = (held(ours), held(theirs))
    {
        // Theirs must have broken for its own sake; ours may be a lower bound.
        if by_server(&all[1].1) {
            let words = if by_server(&all[0].1) { "" } else { "at least " };
            let times = ours / theirs;
            let equal = at_equal_load(all).unwrap_or_default();
            return format!(
                "{text}: {words}{times:.1} times as many by moim, on the same CPUs.{equal}"
            );
        }
    }
    text + " on these CPUs."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(holds: f64, breaks: Option<(f64, &'static str)>) -> Found {
        let row = Row::new("knee", "x").cell("latency_p99_ms", Cell::number(7.0));
        let us_per_answer = Some(if holds > 1000.0 { 5.0 } else { 12.5 });
        let point = Point { answered_per_s: Some(holds * 100.0), p99_ms: Some(7.0), us_per_answer };
        let points = BTreeMap::from([((holds * 100.0) as u64, point)]);
        Found { holds: Some((holds, row)), breaks, ended: None, points }
    }

    #[test]
    fn what_held_is_at_least_that_unless_the_server_broke() {
        let table = table_of_limits();
        let row = limit_row("moim", &found(3400.0, Some((4800.0, "generator"))), &table);
        assert_eq!(row.cells["holds_per_s"].value, Some(340_000.0));
        assert_eq!(row.cells["breaks_per_s"].value, Some(480_000.0));
        assert_eq!(row.cells["limit"].word.as_deref(), Some("generator"));
        assert_eq!(row.cells["latency_p99_ms"].value, Some(7.0));
        let row = limit_row("moim", &found(3400.0, None), &table);
        assert!(
            row.cells["breaks_per_s"].reason.as_ref().is_some_and(|r| r.contains("lower bound"))
        );
        let row = limit_row("moim", &Found::default(), &table);
        assert!(row.cells["holds_per_s"].reason.as_ref().is_some_and(|r| r.contains("no rate")));
        let both = [
            ("moim".to_owned(), found(3400.0, Some((4800.0, "generator")))),
            ("SocketCluster 20".to_owned(), found(340.0, Some((425.0, "server")))),
        ];
        assert_eq!(
            in_words(&both),
            "moim answered at least 340000 messages a second, SocketCluster 20 answered 34000 messages a second: \
             at least 10.0 times as many by moim, on the same CPUs."
        );
        assert!(in_words(&both[..1]).ends_with("340000 messages a second on these CPUs."));
        // Where both hold a load, what an answer costs stands beside what each holds.
        let mut same = both;
        let point =
            |us| Point { answered_per_s: Some(10_000.0), p99_ms: None, us_per_answer: Some(us) };
        same[0].1.points.insert(10_000, point(20.0));
        same[1].1.points.insert(10_000, point(40.0));
        let text = in_words(&same);
        let want = "At the same load SocketCluster 20 takes 2.0 times the CPU of moim for an answer (10000 messages a second) to 2.0 \
                    times (10000). The rest comes from answering many messages with one write, at a p99 of 7 ms.";
        assert!(text.ends_with(want), "{text}");
    }

    #[test]
    fn plots_keep_each_servers_points_apart() {
        let mut about = About::default();
        let all = [("a".to_owned(), found(100.0, None)), ("b".to_owned(), found(200.0, None))];
        plots(&all, &mut about);
        assert_eq!(about.plots[0].x, [10_000.0, 20_000.0]);
        assert_eq!(about.plots[0].lines[0].values, [Some(10_000.0), None]);
        assert_eq!(about.plots[0].lines[1].values, [None, Some(20_000.0)]);
        assert_eq!(middle(300.0, 425.0), 355.0);
    }
}
