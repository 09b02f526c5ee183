//! The thresholds of `thresholds: default`: what people call good, by kind of room. docs/lab.md explains each.

use super::Scenario;
use crate::clients::bot::words::{AudioSource, VideoSource};
use crate::judge::threshold::{Condition, Threshold};
use std::time::Duration;
use wire::room::{AudioTopology, VideoTopology};

/// Wherever somebody hears somebody.
const SOUND: [(&str, &str); 3] =
    [("loss_pct", "user_p95 < 1"), ("gap_ms", "p99 <= 200"), ("mos_lq", "user_p5 >= 4")];
/// In mixed rooms, whose delay the lab measures by marks in speech (ITU-T G.114: 400 ms are the most to plan for).
const MIXED: [(&str, &str); 1] = [("mouth_to_ear_ms", "p95 <= 400")];
/// Wherever somebody sees somebody.
const PICTURES: [(&str, &str); 1] = [("freeze_ratio", "user_p95 < 0.01")];
/// Where people come.
const ROOMS: [(&str, &str); 1] = [("join_to_connected_ms", "p95 <= 2000")];
/// Of sockets.
const SOCKETS: [(&str, &str); 2] = [("connect_ms", "p95 <= 1000"), ("lost", "max == 0")];
/// Of sockets that ping.
const PINGS: [(&str, &str); 2] = [("answered_pct", "user_p5 >= 99"), ("pong_ms", "p99 <= 100")];

/// What must hold in this scenario, where it says `thresholds: default`.
pub(super) fn of(scenario: &Scenario) -> Vec<Threshold> {
    let (rooms, media) = (&scenario.rooms, scenario.media);
    let sounds = media.audio != AudioSource::None;
    let mixed = rooms.iter().any(|room| room.audio == AudioTopology::Mcu);
    let forwarded = rooms.iter().any(|room| room.audio != AudioTopology::Mcu);
    let pictures = media.video != VideoSource::None;
    let seen = pictures && rooms.iter().any(|room| room.video != VideoTopology::None);
    let pings = scenario.sockets.iter().any(|group| group.rate_per_second > 0.0);
    let sets: [(bool, &[(&'static str, &str)]); 6] = [
        (!rooms.is_empty(), &ROOMS),
        (sounds && (mixed || forwarded), &SOUND),
        (mixed && media.audio == AudioSource::Speech, &MIXED),
        (seen, &PICTURES),
        (!scenario.sockets.is_empty(), &SOCKETS),
        (pings, &PINGS),
    ];
    let wanted = sets.into_iter().filter(|(wanted, _)| *wanted).flat_map(|(_, set)| set);
    let threshold = |(metric, text): &(&'static str, &str)| Threshold {
        metric,
        condition: Condition::parse(text).expect("the conditions above are ours"),
        from: Duration::ZERO,
        abort: None,
    };
    wanted.map(threshold).collect()
}
