//! A session with one group of sockets: its scenario, and what is read of it.

use crate::record::{Cell, Row};
use crate::study::columns::{ANSWERED, GENERATOR_CPU, LATENCY_P99};
use crate::study::session::{Session, limits};

/// Clients of the throughput test, as in the study.
pub(super) const CLIENTS: u32 = 100;
/// What is batched on the way of a ping.
pub(super) const BATCHED: &str = "What is batched: a client wakes every 5 ms and writes all pings \
     that are due in one go (“pings a write”); moim reads what has come, and writes the answers to all \
     of it in one go.";
/// A load average covers so many seconds: of a shorter session it says more about what ran before.
const LOAD_AVERAGE_S: f64 = 60.0;

/// The columns of [`measured`].
pub(super) const COLUMNS: [(&str, &str, u8); 13] = [
    ("rate_per_client_per_s", "messages/s each", 0),
    ("pings_per_write", "pings a write", 1),
    ("offered_per_s", "offered/s", 0),
    ("made_pct", "sent %", 2),
    ("answered_per_s", "answered/s", 0),
    ("kept_up_pct", "answered meanwhile %", 2),
    ANSWERED,
    ("latency_p50_ms", "median ms", 2),
    LATENCY_P99,
    ("server_cpu_cores", "server CPU cores", 2),
    ("us_per_answer", "server µs an answer", 1),
    GENERATOR_CPU,
    ("counts_not_rising", "counts not rising", 0),
];

/// What came of pings after all clients had come.
pub(super) fn measured(row: Row, session: &Session, rate: f64) -> Row {
    let row = row.cell("rate_per_client_per_s", Cell::number(rate));
    let Some(sockets) = session.sockets() else { return row };
    let steady = sockets.steady.as_ref();
    let latency = steady.and_then(|phase| phase.latency);
    let kept_up = kept_up(session);
    let row = row
        .cell(
            "pings_per_write",
            Cell::number((rate * f64::from(sockets.batch_ms) / 1000.0).max(1.0)),
        )
        .measured("offered_per_s", steady.map(|phase| phase.offered as f64 / phase.seconds))
        .measured(
            "made_pct",
            steady.map(|phase| 100.0 * phase.made as f64 / phase.offered.max(1) as f64),
        )
        .measured("answered_per_s", kept_up.map(|(answered_per_s, _)| answered_per_s))
        .measured("kept_up_pct", kept_up.map(|(_, pct)| pct))
        .measured("answered_pct", steady.and_then(|phase| phase.answered_pct()))
        .measured("latency_p50_ms", latency.map(|latency| latency.p50_ms))
        .measured("latency_p99_ms", latency.map(|latency| latency.p99_ms))
        .measured("server_cpu_cores", session.server_cores())
        .measured("us_per_answer", us_per_answer(session))
        .cell("generator_cpu_cores", Cell::number(session.summary.generator.cpu_cores))
        .cell("counts_not_rising", Cell::number(sockets.counts_not_rising as f64));
    limits(row, session)
}

/// Answers a second while all clients pinged, and their share of what was offered meanwhile, in percent. Answers that
/// come after the last ping do not count: a backlog that is worked off then is one.
fn kept_up(session: &Session) -> Option<(f64, f64)> {
    let sockets = session.sockets()?;
    let steady = sockets.steady.as_ref()?;
    let end_s = sockets.whole.seconds;
    let from_s = end_s - steady.seconds;
    let seconds = sockets.seconds.iter().zip(sockets.seconds.iter().skip(1));
    let whole = seconds.filter(|(before, now)| before.t_s >= from_s && now.t_s <= end_s);
    let (length, offered, answered) =
        whole.fold((0.0, 0, 0), |(length, offered, answered), pair| {
            let (before, now) = pair;
            (length + now.t_s - before.t_s, offered + now.offered, answered + now.answered)
        });
    (length > 0.0 && offered > 0)
        .then(|| (answered as f64 / length, 100.0 * answered as f64 / offered as f64))
}

/// The load average at the end of a session that is long enough for one.
pub(super) fn load_average(session: &Session) -> Cell {
    match session.summary.duration_s {
        s if s < LOAD_AVERAGE_S => {
            Cell::none(format!("a load average covers a minute, and this session lasted {s:.0} s"))
        }
        _ => Cell::or(session.load_average, "the system tells none"),
    }
}

/// Server CPU of the whole run over all answers of the run.
fn us_per_answer(session: &Session) -> Option<f64> {
    let answered = session.sockets()?.whole.answered;
    let mut before_ms = 0;
    let mut cpu_us = 0.0;
    for record in &session.machine {
        let cores = record.server.as_ref()?.cpu_cores?;
        cpu_us += cores * (record.t_ms - before_ms) as f64 * 1000.0;
        before_ms = record.t_ms;
    }
    (answered > 0).then(|| cpu_us / answered as f64)
}

/// The scenario of a group of sockets; `target`: the lines that say what is tested.
pub(super) fn scenario(
    target: &str,
    seconds: f64,
    connections: u32,
    arrival_per_s: f64,
    rate: f64,
    chromium: u32,
) -> String {
    format!(
        "{target}duration: {seconds:.0}s\nsockets: [{{ connections: {connections}, arrival_per_second: \
         {arrival_per_s}, rate_per_second: {rate}, chromium: {chromium} }}]\n"
    )
}
