//! Many clients that ping now and then, and a real browser among them.

use super::figures::load_average;
use super::scenario;
use crate::record::{About, Cell, Latency, Plot, Row, Second, Table};
use crate::study::columns::{ANSWERED, LATENCY_P99, LOAD_AVERAGE, percent};
use crate::study::session::{Sessions, limits};

/// Who comes, and how they ping.
pub(super) struct Crowd {
    connections: u32,
    ping_every_s: f64,
    hold_s: f64,
}

pub(super) const FULL: Crowd = Crowd { connections: 18_000, ping_every_s: 6.0, hold_s: 60.0 };
pub(super) const QUICK: Crowd = Crowd { connections: 320, ping_every_s: 2.0, hold_s: 6.0 };

/// The table.
pub(super) fn table() -> Table {
    let columns = [
        ("connections", "connections", 0),
        ("arrival_per_s", "arrivals/s", 0),
        ("ping_every_s", "ping every s", 1),
        ("live", "live at the end", 0),
        ("closed", "closed early", 0),
        ANSWERED,
        LATENCY_P99,
        ("connect_p99_ms", "connect p99 ms", 1),
        ("busiest_arriving_pct", "busiest thread % while they arrive", 0),
        ("busiest_after_pct", "busiest thread % after", 0),
        ("server_rss_mib", "server MiB", 0),
        ("kib_per_connection", "KiB a connection", 1),
        LOAD_AVERAGE,
        ("by_hand_pings", "pings by hand", 0),
        ("by_hand_answered", "answered by hand", 0),
        ("by_hand_p99_ms", "by hand p99 ms", 1),
        ("by_hand_lost", "browser's socket lost", 0),
    ];
    let hint = "Clients arrive steadily, ping now and then and stay; a real browser stays connected \
                all the time and pings once a second.";
    Table::new("concurrency", "Concurrency", hint, &columns)
}

pub(super) async fn run(
    sessions: &mut Sessions,
    crowd: &Crowd,
    table: &Table,
    rows: &mut Vec<Row>,
    about: &mut About,
) {
    let (connections, arrival_s) = (crowd.connections, f64::from(crowd.connections) / 160.0);
    let row = Row::new("concurrency", format!("{connections} clients, 160 a second"))
        .cell("connections", Cell::number(connections.into()))
        .cell("arrival_per_s", Cell::number(160.0))
        .cell("ping_every_s", Cell::number(crowd.ping_every_s))
        .reference([
            ("connections", 42_000.0),
            ("arrival_per_s", 160.0),
            ("ping_every_s", 6.0),
            ("busiest_arriving_pct", 60.0),
            ("busiest_after_pct", 45.0),
            ("load_average", 2.0),
        ])
        .note("the study's load average is “under 2” of 8 cores, its memory “negligible”");
    let chromium = u32::from(sessions.has_chromium());
    let seconds = arrival_s + crowd.hold_s + 4.0;
    let target = sessions.serve(1);
    let text = scenario(&target, seconds, connections, 160.0, 1.0 / crowd.ping_every_s, chromium);
    let session = match sessions.run("concurrency", &text).await {
        Ok(session) => session,
        Err(reason) => return rows.push(row.rest(table, &reason)),
    };
    let Some(sockets) = session.sockets() else {
        return rows.push(row.rest(table, "the session has no sockets in it"));
    };
    let closed: u64 = sockets.closed.values().sum();
    let end_s = session.summary.duration_s + 1.0;
    let p99 = |latency: Option<Latency>| latency.map(|latency| latency.p99_ms);
    let mut row = row
        .cell("live", Cell::number(sockets.live.into()))
        .cell("closed", Cell::number(closed as f64))
        .measured("answered_pct", sockets.whole.answered_pct())
        .measured("latency_p99_ms", p99(sockets.whole.latency))
        .measured("connect_p99_ms", p99(sockets.connect))
        .measured(
            "busiest_arriving_pct",
            percent(session.busiest_server_thread(0.0, arrival_s.max(3.5))),
        )
        .measured("busiest_after_pct", percent(session.busiest_server_thread(arrival_s, end_s)))
        .measured("server_rss_mib", sockets.server_rss_mib)
        .measured("kib_per_connection", sockets.kib_per_connection)
        .cell("load_average", load_average(&session));
    row = match &sockets.by_hand {
        Some(seen) => row
            .cell("by_hand_pings", Cell::number(seen.pings as f64))
            .cell("by_hand_answered", Cell::number(seen.answered as f64))
            .measured("by_hand_p99_ms", p99(seen.latency))
            .cell("by_hand_lost", Cell::number(seen.lost as f64)),
        None => row.rest(table, "there was no browser in this session"),
    };
    for (why, count) in &sockets.failed {
        row = row.note(format!("{count} did not come up: {why}"));
    }
    row = limits(row, &session);
    rows.push(row);
    let live = |second: &Second| (second.t_s, vec![Some(f64::from(second.live))]);
    about.plots.push(Plot::new(
        ("Clients over time", "live", "seconds"),
        &["live"],
        sockets.seconds.iter().map(live).collect(),
    ));
    let latency = |second: &Second| (second.t_s, vec![second.p50_ms, second.p99_ms]);
    about.plots.push(Plot::new(
        ("Latency over time, while they come and stay", "ms", "seconds"),
        &["median", "p99"],
        sockets.seconds.iter().map(latency).collect(),
    ));
    about.shown.push(format!(
        "{} of {connections} clients were live at the end, of one server process.",
        sockets.live
    ));
    about.not_shown.push(format!(
        "42 000 clients: one process may open 20 000 files here, so {connections} were shown and \
         nothing beyond is extrapolated."
    ));
}
