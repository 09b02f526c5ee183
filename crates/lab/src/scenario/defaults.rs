//! The thresholds of `thresholds: default`: what people call good, by kind of room. docs/lab.md explains each.

use super::rooms::{Role, RoomGroup};
use crate::clients::bot::words::{AudioSource, Media, VideoSource};
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

/// What must hold for these rooms, where the scenario says `thresholds: default`. `sockets`: there are some, and whether
/// any of them pings.
pub(super) fn of(rooms: &[RoomGroup], media: Media, sockets: Option<bool>) -> Vec<Threshold> {
    // Somebody sends it, and somebody else is there.
    let sent = |of: fn(&Role) -> bool| {
        move |room: &&RoomGroup| {
            room.bots + room.chromium > 1
                && (room.roles.is_empty() || room.chromium > 0 || room.roles.iter().any(of))
        }
    };
    let sounds = media.audio != AudioSource::None;
    let heard = || rooms.iter().filter(move |_| sounds).filter(sent(|role| role.audio));
    let mixed = heard().any(|room| room.audio == AudioTopology::Mcu);
    let seen = (rooms.iter().filter(|_| media.video != VideoSource::None))
        .filter(sent(|role| role.video))
        .any(|room| room.video != VideoTopology::None && room.senders != Some(0));
    let sets: [(bool, &[(&'static str, &str)]); 6] = [
        (!rooms.is_empty(), &ROOMS),
        (heard().next().is_some(), &SOUND),
        (mixed && media.audio == AudioSource::Speech, &MIXED),
        (seen, &PICTURES),
        (sockets.is_some(), &SOCKETS),
        (sockets == Some(true), &PINGS),
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

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    fn metrics(text: &str) -> Vec<&'static str> {
        let text = format!("name: x\nserve: {{}}\nduration: 20s\nthresholds: default\n{text}");
        let scenario = Scenario::parse(&text, "x").expect("valid");
        scenario.thresholds.iter().map(|threshold| threshold.metric).collect()
    }

    #[test]
    fn a_kind_of_room_has_its_set_and_what_nobody_sends_is_not_asked_for() {
        let sound = ["join_to_connected_ms", "loss_pct", "gap_ms", "mos_lq"];
        let of = metrics("rooms: [{ people: { bot: 3 } }]\n");
        assert_eq!(of, [&sound[..], &["freeze_ratio"]].concat());
        let room = "rooms: [{ audio: mcu, video: none, people: { bot: 3 } }]\n";
        let of = metrics(&format!("{room}media: {{ video: none }}\n"));
        assert_eq!(of, [&sound[..], &["mouth_to_ear_ms"]].concat());
        assert_eq!(metrics("rooms: [{ people: { bot: 1 } }]\n"), sound[..1]);
        let silent = "rooms: [{ people: { bot: 3 }, roles: [{ name: a, audio: false }] }]\n";
        assert_eq!(metrics(silent), ["join_to_connected_ms", "freeze_ratio"]);
        let pings = ["connect_ms", "lost", "answered_pct", "pong_ms"];
        assert_eq!(metrics("sockets: [{ connections: 9, rate_per_second: 2 }]\n"), pings);
        assert_eq!(metrics("sockets: [{ connections: 9 }]\n"), pings[..2]);
    }
}
