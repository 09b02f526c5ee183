//! The study's largest rooms at other servers.

use super::figures::from_session;
use super::room;
use crate::observe::metrics::Reduced;
use crate::record::{About, Row, Table};
use crate::study::columns::{
    GENERATOR_CPU, LOSS, MEAN_RATE, MOUTH_TO_EAR, PEOPLE, SERVER_CPU_OF_SET, US_PER_PACKET_CAME,
};
use crate::study::others::{Others, Rooms};
use crate::study::session::{Session, Sessions};

/// How often each room is made at each server.
const ROUNDS: u32 = 3;

fn table() -> Table {
    Table::new(
        "others",
        "The same rooms at other servers",
        "moim and each of the others in turn, started anew each time on the same CPUs, with the same people: everybody sends \
         1080p and speech and gets everybody's. The figures are medians of the runs. A packet that came is one of media, counted \
         by who got it.",
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
pub(super) async fn run(sessions: &mut Sessions, others: &Others, about: &mut About) -> Vec<Row> {
    let (sizes, rounds, seconds): (&[u32], _, _) =
        if sessions.quick { (&[4], 1, 8) } else { (&[10, 30], ROUNDS, 25) };
    let table = table();
    let columns = table.clone();
    let text = |people| room::scenario("", seconds, people, "video: light-1080p");
    let figures = |row, session: &Session| figures(row, &columns, session);
    let rooms = Rooms { sizes, rounds, text: &text, figures: &figures };
    others.run(sessions, about, table, &rooms).await
}

fn figures(row: Row, table: &Table, session: &Session) -> Row {
    let metric = |name: &str, pick: fn(&Reduced) -> f64| session.metric(name).map(pick);
    let row = row
        .measured("mouth_to_ear_ms", metric("mouth_to_ear_ms", |metric| metric.p95))
        .measured("first_frame_ms", metric("join_to_first_frame_ms", |metric| metric.p50));
    from_session(row, table, session)
}
