//! Many clients that ping now and then, and real browsers among them, on as many servers as the file limit asks for.

use super::figures::{load_average, scenario};
use crate::base::{files, mean};
use crate::record::{About, Cell, Latency, Plot, Row, SocketsSummary, Table};
use crate::study::columns::{ANSWERED, LATENCY_P99, LOAD_AVERAGE, percent};
use crate::study::labs;
use crate::study::session::{Session, Sessions, limits};
use std::collections::BTreeMap;

/// Clients that arrive a second, as in the study.
const ARRIVAL_PER_S: f64 = 160.0;
/// Files that a process needs besides those of its connections.
const OTHER_FILES: u64 = 1000;

/// Who comes, and how they ping.
pub(super) struct Crowd {
    connections: u32,
    ping_every_s: f64,
    hold_s: f64,
    /// Servers at least.
    servers: u32,
}

pub(super) const FULL: Crowd =
    Crowd { connections: 42_000, ping_every_s: 6.0, hold_s: 60.0, servers: 1 };
pub(super) const QUICK: Crowd =
    Crowd { connections: 320, ping_every_s: 2.0, hold_s: 6.0, servers: 2 };

/// The table.
pub(super) fn table() -> Table {
    let columns = [
        ("connections", "connections", 0),
        ("servers", "server processes", 0),
        ("arrival_per_s", "arrivals/s", 0),
        ("ping_every_s", "ping every s", 1),
        ("live", "live at the end", 0),
        ("closed", "closed early", 0),
        ANSWERED,
        LATENCY_P99,
        ("connect_p99_ms", "connect p99 ms", 1),
        ("busiest_arriving_pct", "busiest thread % while they arrive", 0),
        ("busiest_after_pct", "busiest thread % after", 0),
        ("cpu_arriving_pct", "servers' CPU % while they arrive", 0),
        ("cpu_after_pct", "servers' CPU % after", 0),
        ("server_rss_mib", "server MiB", 0),
        ("kib_per_connection", "KiB a connection", 1),
        LOAD_AVERAGE,
        ("by_hand_pings", "pings by hand", 0),
        ("by_hand_answered", "answered by hand", 0),
        ("by_hand_p99_ms", "by hand p99 ms", 1),
        ("by_hand_lost", "browser's socket lost", 0),
    ];
    let hint = "Clients arrive steadily, ping now and then and stay; on each server a page in a real browser stays \
                connected all the time and pings once a second. A process may open only so many files, and an address has only so many ports, so there are \
                several servers, each with a lab of its own, at the same time and on the same CPUs. Latencies of all \
                together are those of the worst server; the busiest thread is that of one server, the servers' CPU \
                is of all of them, in percent of one CPU.";
    Table::new("concurrency", "Concurrency", hint, &columns)
}

/// One address has so many ports for connections to one server (Linux' usual range).
const PORTS: u64 = 28_000;

/// How many servers so many connections need.
fn servers(crowd: &Crowd, files: Option<u64>) -> u32 {
    let each = files.map_or(PORTS, |files| files.saturating_sub(OTHER_FILES).clamp(100, PORTS));
    (u64::from(crowd.connections).div_ceil(each) as u32).max(crowd.servers)
}

/// How many of them come to each server.
fn shares(connections: u32, servers: u32) -> Vec<u32> {
    (0..servers).map(|n| connections / servers + u32::from(n < connections % servers)).collect()
}

pub(super) async fn run(
    sessions: &mut Sessions,
    crowd: &Crowd,
    table: &Table,
    rows: &mut Vec<Row>,
    about: &mut About,
) {
    let files = files::raise_limit();
    let shares = shares(crowd.connections, servers(crowd, files));
    let arrival_s = f64::from(crowd.connections) / ARRIVAL_PER_S;
    let row = whole_row(crowd, shares.len());
    let (target, chromium) = (sessions.serve(1), u32::from(sessions.has_chromium()));
    let scenarios: Vec<(String, String)> = (1..)
        .zip(&shares)
        .map(|(number, share)| {
            let (seconds, rate) = (arrival_s + crowd.hold_s + 4.0, 1.0 / crowd.ping_every_s);
            let arrival_per_s = f64::from(*share) / arrival_s;
            let text = scenario(&target, seconds, *share, arrival_per_s, rate, chromium);
            (format!("concurrency-{number}"), text)
        })
        .collect();
    let done = match labs::run_at_once(sessions, &scenarios).await {
        Ok(done) => done,
        Err(reason) => return rows.push(row.rest(table, &reason)),
    };
    let groups: Vec<&SocketsSummary> = done.iter().filter_map(Session::sockets).collect();
    if groups.len() < done.len() {
        return rows.push(row.rest(table, "a session has no sockets in it"));
    }
    let mut all = figures(row, &done, (arrival_s, crowd.hold_s));
    if let Some(last) = done.last() {
        all = all.cell("load_average", load_average(last));
    }
    rows.push(all.rest(table, "there was no browser in these sessions"));
    for (number, one) in (1..).zip(&done) {
        let row = Row::new("concurrency", format!("server {number} of {}", done.len()))
            .cell("ping_every_s", Cell::number(crowd.ping_every_s))
            .cell("load_average", Cell::none("a load average is of the whole machine"));
        let row = figures(row, std::slice::from_ref(one), (arrival_s, crowd.hold_s));
        rows.push(row.rest(table, "there was no browser in this session"));
    }
    plots(&groups, about);
    let live: u32 = groups.iter().map(|group| group.live).sum();
    let limit = files.map_or("no limit".into(), |files| format!("{files} files"));
    about.shown.push(format!(
        "{live} of {} clients were live at the end, on {} server processes (a process may open {limit} here).",
        crowd.connections,
        done.len(),
    ));
}

fn whole_row(crowd: &Crowd, servers: usize) -> Row {
    let connections = crowd.connections;
    let words = format!("{connections} clients, {ARRIVAL_PER_S} a second, on {servers} servers");
    Row::new("concurrency", words)
        .cell("ping_every_s", Cell::number(crowd.ping_every_s))
        .reference([
            ("connections", 42_000.0),
            ("arrival_per_s", ARRIVAL_PER_S),
            ("ping_every_s", 6.0),
            ("busiest_arriving_pct", 60.0),
            ("busiest_after_pct", 45.0),
            ("load_average", 2.0),
        ])
        .note("the study's load average is “under 2” of 8 cores, its memory “negligible”")
}

/// What sessions came to that ran at the same time.
fn figures(row: Row, done: &[Session], (arrival_s, hold_s): (f64, f64)) -> Row {
    let groups: Vec<&SocketsSummary> = done.iter().filter_map(Session::sockets).collect();
    let sum =
        |pick: fn(&SocketsSummary) -> f64| groups.iter().map(|group| pick(group)).sum::<f64>();
    let offered = sum(|group| group.whole.offered as f64);
    let answered = sum(|group| group.whole.answered as f64);
    // Windows are 3 s long; those in which the last ones come count as the arrival's, and at the end nobody pings.
    let edge = arrival_s + 3.0;
    let (arriving, after) = ((0.0, edge), (edge, arrival_s + hold_s));
    let busiest = |(from_s, to_s): (f64, f64)| {
        most(done.iter().map(|session| session.busiest_server_thread(from_s, to_s)))
    };
    let rss: Option<f64> = groups.iter().map(|group| group.server_rss_mib).sum();
    let live = sum(|group| group.live.into());
    let kib: Option<f64> = groups
        .iter()
        .map(|group| group.kib_per_connection.map(|kib| kib * f64::from(group.live)))
        .sum();
    let mut row = row
        .cell("connections", Cell::number(sum(|group| group.connections.into())))
        .cell("servers", Cell::number(done.len() as f64))
        .cell("arrival_per_s", Cell::number(sum(|group| group.arrival_per_second)))
        .cell("live", Cell::number(live))
        .cell("closed", Cell::number(sum(|group| group.closed.values().sum::<u64>() as f64)))
        .measured("answered_pct", (offered > 0.0).then(|| 100.0 * answered / offered))
        .measured("latency_p99_ms", worst_p99(groups.iter().map(|group| group.whole.latency)))
        .measured("connect_p99_ms", worst_p99(groups.iter().map(|group| group.connect)))
        .measured("busiest_arriving_pct", percent(busiest(arriving)))
        .measured("busiest_after_pct", percent(busiest(after)))
        .measured("cpu_arriving_pct", percent(cores(done, arriving)))
        .measured("cpu_after_pct", percent(cores(done, after)))
        .measured("server_rss_mib", rss)
        .measured("kib_per_connection", kib.filter(|_| live > 0.0).map(|kib| kib / live));
    let seen: Vec<_> = groups.iter().filter_map(|group| group.by_hand.as_ref()).collect();
    if !seen.is_empty() {
        let count = |pick: fn(&crate::record::ByHand) -> u64| {
            Cell::number(seen.iter().map(|one| pick(one)).sum::<u64>() as f64)
        };
        row = row
            .cell("by_hand_pings", count(|one| one.pings))
            .cell("by_hand_answered", count(|one| one.answered))
            .measured("by_hand_p99_ms", worst_p99(seen.iter().map(|one| one.latency)))
            .cell("by_hand_lost", count(|one| one.lost));
    }
    for (why, count) in groups.iter().flat_map(|group| &group.failed) {
        row = row.note(format!("{count} did not come up: {why}"));
    }
    row = done.iter().fold(row, limits);
    row.notes.dedup();
    row
}

fn most(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().reduce(f64::max)
}

fn worst_p99(latencies: impl Iterator<Item = Option<Latency>>) -> Option<f64> {
    most(latencies.map(|latency| latency.map(|latency| latency.p99_ms)))
}

/// CPU of all servers together, in cores, over the windows that end in `[from_s, to_s)`; none if one does not tell.
fn cores(done: &[Session], (from_s, to_s): (f64, f64)) -> Option<f64> {
    let of = |session: &Session| {
        let within = session
            .machine
            .iter()
            .filter(|record| (from_s..to_s).contains(&(record.t_ms as f64 / 1000.0)));
        mean(within.filter_map(|record| record.server.as_ref()?.cpu_cores))
    };
    done.iter().map(of).sum()
}

/// All servers together, second by second: live, and the worst median and p99.
fn plots(groups: &[&SocketsSummary], about: &mut About) {
    let mut seconds = BTreeMap::<u64, (usize, f64, Option<f64>, Option<f64>)>::new();
    for second in groups.iter().flat_map(|group| &group.seconds) {
        let (told, live, p50, p99) = seconds.entry(second.t_s.round() as u64).or_default();
        *told += 1;
        *live += f64::from(second.live);
        *p50 = most([*p50, second.p50_ms].into_iter());
        *p99 = most([*p99, second.p99_ms].into_iter());
    }
    // Where one server tells nothing the sum would dip.
    seconds.retain(|_, (told, ..)| *told == groups.len());
    let live = seconds.iter().map(|(t_s, of)| (*t_s as f64, vec![Some(of.1)]));
    let latency = seconds.iter().map(|(t_s, of)| (*t_s as f64, vec![of.2, of.3]));
    about.plots.push(Plot::new(
        ("Clients over time", "live", "seconds"),
        &["live"],
        live.collect(),
    ));
    about.plots.push(Plot::new(
        ("Latency over time, while they come and stay", "ms, of the worst server", "seconds"),
        &["median", "p99"],
        latency.collect(),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Second;

    #[test]
    fn the_file_limit_says_how_many_servers_there_are() {
        assert_eq!(servers(&FULL, Some(20_000)), 3);
        // One address has too few ports for all of them to one server.
        assert_eq!(servers(&FULL, Some(1_048_576)), 2);
        assert_eq!(servers(&FULL, None), 2);
        assert_eq!(servers(&QUICK, Some(20_000)), 2);
        assert_eq!(shares(42_000, 3), [14_000; 3]);
        assert_eq!(shares(320, 3), [107, 107, 106]);
    }

    #[test]
    fn plots_add_up_servers_and_leave_out_what_one_does_not_tell() {
        let second = |t_s, live, p99_ms| Second {
            lost: 0,
            connect_p95_ms: None,
            t_s,
            live,
            offered: 1,
            answered: 1,
            p50_ms: Some(1.0),
            p99_ms,
        };
        let group = |seconds| SocketsSummary { seconds, ..SocketsSummary::default() };
        let one =
            group(vec![second(1.0, 5, Some(2.0)), second(2.01, 9, None), second(3.0, 9, None)]);
        let two = group(vec![second(0.99, 6, Some(7.0)), second(2.0, 9, Some(3.0))]);
        let mut about = About::default();
        plots(&[&one, &two], &mut about);
        assert_eq!(about.plots[0].x, [1.0, 2.0]);
        assert_eq!(about.plots[0].lines[0].values, [Some(11.0), Some(18.0)]);
        assert_eq!(about.plots[1].lines[1].values, [Some(7.0), Some(3.0)]);
    }
}
