//! The study's largest rooms at other servers.

use super::figures::from_session;
use super::room;
use crate::record::{About, Cell, Row, Table};
use crate::study::columns::{
    GENERATOR_CPU, LOSS, MEAN_RATE, MOUTH_TO_EAR, PEOPLE, SERVER_CPU_OF_SET, US_PER_PACKET_CAME,
};
use crate::study::others::{self, Others, Plan};
use crate::study::session::{Session, Sessions};

/// How often each room is made at each server.
const ROUNDS: u32 = 3;

fn table() -> Table {
    Table::new(
        "others",
        "The same rooms at other servers",
        "moim and each of the others in turn, started anew each time on the same CPUs, with the same people: everybody sends \
         1080p and speech and gets everybody's. The figures are medians of the runs. A packet that came is counted by who got \
         it, so that all servers are measured alike.",
        &[
            PEOPLE,
            SERVER_CPU_OF_SET,
            US_PER_PACKET_CAME,
            ("busiest_thread_pct", "busiest server thread %", 1),
            ("rss_mib", "server memory MiB", 0),
            ("jitter_ms", "jitter ms (95 % of people)", 2),
            LOSS,
            ("rtt_ms", "RTT ms (95 % of people)", 2),
            MOUTH_TO_EAR,
            ("first_frame_ms", "first frame ms, median", 0),
            ("frames_per_second", "frames/s (5 % of people)", 1),
            MEAN_RATE,
            GENERATOR_CPU,
            ("bottleneck", "bottleneck", 0),
        ],
    )
}

/// The rooms at moim and beside it, where somebody is asked to stand there.
pub(super) async fn run(sessions: &mut Sessions, about: &mut About) -> Vec<Row> {
    let Some(others) = Others::meet(sessions).await else { return Vec::new() };
    let (sizes, rounds, seconds): (&[u32], _, _) =
        if sessions.quick { (&[4], 1, 8) } else { (&[10, 30], ROUNDS, 25) };
    let table = table();
    let mut rows = Vec::new();
    for people in sizes {
        let name = format!("{people} people");
        let text = room::scenario("", seconds, *people, "video: 1080p");
        let plan = Plan { name: name.clone(), text, rounds, spread: "us_per_packet_came" };
        let figures = |row, session: &Session| figures(row, &table, session);
        rows.extend(others.run(sessions, &table, &plan, figures).await);
        let column = ("us_per_packet_came", "µs of the server's CPU a packet", 1);
        about.shown.extend(others::in_words(&rows, &name, column));
    }
    about.tables.push(table);
    rows
}

fn figures(row: Row, table: &Table, session: &Session) -> Row {
    let first_frame = session.metric("join_to_first_frame_ms").map(|metric| metric.p50);
    let row = row
        .cell(
            "us_per_packet_came",
            Cell::or(others::us_per_packet(session), "the server's CPU could not be read"),
        )
        .measured("mouth_to_ear_ms", session.metric("mouth_to_ear_ms").map(|metric| metric.p95))
        .measured("first_frame_ms", first_frame);
    from_session(row, table, session)
}
