//! The study's last eight sessions, shortened: how much a figure varies from run to run.

use super::figures::from_session;
use super::room::scenario;
use crate::record::{Row, Table};
use crate::study::columns::{MEAN_RATE, SERVER_CPU_OF_SET};
use crate::study::repeated::{median, spread};
use crate::study::session::Sessions;

/// The study's sessions of 30 people.
const RUNS: u32 = 8;
/// How long each is here, in s.
const SECONDS: u32 = 15;

/// The repeats' table.
pub(super) fn table() -> Table {
    Table::new(
        "repeats",
        "Sessions 4 to 11, one by one",
        "The study ran 30 people at 1080p eight times and gave one row for all. Here are eight shorter runs, and how far apart \
         they are.",
        &[
            SERVER_CPU_OF_SET,
            ("busiest_thread_pct", "busiest server thread %", 1),
            ("jitter_ms", "jitter ms (95 % of people)", 2),
            ("delay_ms", "sound under way ms (95 % of people)", 2),
            ("loss_pct", "loss % (95 % of people)", 3),
            ("rtt_ms", "RTT ms (95 % of people)", 2),
            MEAN_RATE,
            ("consumers", "consumers", 0),
            ("rss_mib", "server memory MiB", 0),
        ],
    )
}

/// The runs, their median and their spread.
pub(super) async fn run(sessions: &mut Sessions, table: &Table) -> Vec<Row> {
    let (people, runs, seconds) = if sessions.quick { (5, 2, 8) } else { (30, RUNS, SECONDS) };
    let mut rows = Vec::new();
    for number in 1..=runs {
        let row = Row::new("repeats", format!("run {number} of {runs}, {seconds} s"));
        let text = scenario(&sessions.serve(1), seconds, people, "video: light-1080p");
        rows.push(match sessions.run(&format!("{people}-people-again-{number}"), &text).await {
            Err(reason) => row.rest(table, &reason),
            Ok(session) => from_session(row, table, &session),
        });
    }
    let ends = [median(table, "median", &rows), spread(table, "least to most", &rows)];
    rows.extend(ends);
    rows
}
