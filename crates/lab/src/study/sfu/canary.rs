//! A real browser in each of the study's sessions: whether what bots read is what people would see.

use super::figures::{metrics_of, samples_of};
use crate::observe::metrics::Reduced;
use crate::record::{Cell, PersonKind, Row, Table};
use crate::study::columns::LOSS;
use crate::study::session::Session;

/// The browsers' table.
pub(super) fn table() -> Table {
    Table::new(
        "canaries",
        "A real browser in each session",
        "Beside the bots a page in Chromium is in each room: it hears everybody, shows one picture, and sends sound but no \
         picture of its own. It shares the generator's CPUs. Late is half the round trip plus the jitter buffer of sound.",
        &[
            LOSS,
            ("jitter_ms", "jitter ms", 2),
            ("rtt_ms", "RTT ms", 1),
            ("buffer_ms", "jitter buffer ms", 0),
            ("late_ms", "late ms, estimated", 0),
            ("frames_per_second", "frames/s", 1),
            ("frame_height", "picture's height", 0),
            ("freezes", "freezes", 0),
            ("frozen_pct", "frozen %", 2),
            ("first_frame_ms", "first frame ms", 0),
            ("browser_cores", "browser CPU cores", 2),
        ],
    )
}

/// What the browser of a session saw.
pub(super) fn row(name: &str, session: &Session) -> Row {
    let metrics = metrics_of(session, PersonKind::Chromium);
    let of = |name: &str, pick: fn(&Reduced) -> f64| metrics.get(name)?.as_ref().map(pick);
    // One person: each percentile over people is this one's own figure.
    let own = |name: &str| of(name, |metric| metric.user_p95);
    let rows = samples_of(session, PersonKind::Chromium).flat_map(|record| &record.sample.received);
    let freezes = rows.filter_map(|row| row.freezes).reduce(|a, b| a + b);
    let (rtt, buffer) = (own("rtt_ms"), own("jitter_buffer_ms"));
    Row::new("canaries", name)
        .measured("loss_pct", own("loss_pct"))
        .measured("jitter_ms", own("jitter_ms"))
        .measured("rtt_ms", rtt)
        .measured("buffer_ms", buffer)
        .measured("late_ms", rtt.zip(buffer).map(|(rtt, buffer)| rtt / 2.0 + buffer))
        .measured("frames_per_second", own("frames_per_second"))
        .measured("frame_height", own("frame_height"))
        .measured("freezes", freezes.map(|count| count as f64))
        .measured("frozen_pct", own("freeze_ratio").map(|share| 100.0 * share))
        .measured("first_frame_ms", own("join_to_first_frame_ms"))
        .cell(
            "browser_cores",
            Cell::or(
                session.summary.generator.threads.get("chromium").copied(),
                "the browser's CPU could not be read",
            ),
        )
}
