//! `make bench-join`: what a call costs a room of 20 and a room of 2000, side by side in rounds. Ends with 1 where the large
//! one takes more than twice as long for a call whose effects are as many.
//!
//! It runs the room's state machine alone: no shard, no socket. A new voice changes a slot of everybody who follows
//! speakers, so it is told for each of these changes.

use engine::room::{Effects, Published, Room, RoomLimits, RoomSetup, Topology};
use engine::{PersonKey, Report, RoomKey, ShardIndex, TrackKey};
use rtp::negotiated::{Codec, Direction, Extensions, Line, Negotiated, StreamIds};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

/// People in the rooms, small and large.
const PEOPLE: [u64; 2] = [20, 2000];
/// Slots of sound and of pictures that each of them has.
const SLOTS: (u32, u32) = (4, 8);
/// Rounds, of which the median counts, and calls in each.
const ROUNDS: usize = 41;
const CALLS: u64 = 50;
/// A call in the large room takes at most so many times as long.
const MOST: f64 = 2.0;
/// The first key of those who come for a call.
const GUESTS: u64 = 1_000_000;

/// What is measured: its name, and a call by its number, which says into how many changes its time is divided.
type Call = (&'static str, fn(&mut Room, u64) -> usize);

const MEASURED: [Call; 4] = [
    ("a join with its offer, and the leave", |room, nth| {
        come(room, GUESTS + nth, &mut Effects::default());
        room.leave(PersonKey(GUESTS + nth), &mut Effects::default()).expect("they are there");
        1
    }),
    ("a slot change", |room, nth| {
        let mut effects = Effects::default();
        let want = [("v0".to_owned(), Some(TrackKey(10 * (5 + nth % 9) + 1)))];
        room.want(PersonKey(1), &want, &mut effects).expect("it is there");
        black_box(effects);
        1
    }),
    ("a mute", |room, nth| {
        let mut effects = Effects::default();
        room.mute(PersonKey(2), TrackKey(20), nth % 2 == 0, &mut effects).expect("it is there");
        black_box(effects);
        1
    }),
    ("a new voice, each slot that follows", |room, nth| {
        let mut effects = Effects::default();
        let speakers = vec![(PersonKey(1 + nth % 19), 20)];
        room.report(Report::Speakers { room: RoomKey(1), speakers }, &mut effects);
        effects.commands.len().max(1)
    }),
];

/// A participant's lines: sound and picture sent, and their slots.
fn lines() -> Negotiated {
    let line = |mid: String, codec, direction| Line {
        mid,
        direction,
        codec,
        payload_type: 96,
        rtx_payload_type: None,
        red_payload_type: None,
        red_first: false,
        extensions: Extensions::default(),
        local: Some(StreamIds { ssrc: 1, rtx: None }),
        remote: None,
        layers: Vec::new(),
        nack: false,
        transport_cc: false,
        reduced_size: true,
    };
    let sent = [("a", Codec::Opus), ("v", Codec::Vp8)]
        .map(|(mid, codec)| line(mid.into(), codec, Direction::Receive));
    let audio = (0..SLOTS.0).map(|i| (format!("a{i}"), Codec::Opus));
    let video = (0..SLOTS.1).map(|i| (format!("v{i}"), Codec::Vp8));
    let slots = audio.chain(video).map(|(mid, codec)| line(mid, codec, Direction::Send));
    Negotiated { lines: sent.into_iter().chain(slots).collect() }
}

/// Somebody comes in and offers sound and a picture.
fn come(room: &mut Room, number: u64, effects: &mut Effects) {
    let person = PersonKey(number);
    room.join(person, String::new(), ShardIndex(0), effects).expect("there is room");
    let track = |mid: &str, key| Published {
        mid: mid.into(),
        name: String::new(),
        key: TrackKey(key),
        layers: Vec::new(),
        opaque: false,
        music: false,
    };
    let tracks = [track("a", number * 10), track("v", number * 10 + 1)];
    room.negotiated(person, &lines(), &tracks, effects).expect("they are there");
}

fn room(people: u64) -> Room {
    let limits =
        RoomLimits { people: 3000, roster: 3000, audio_slots: SLOTS.0, video_slots: SLOTS.1 };
    let setup = RoomSetup::new(Topology::Sfu, Topology::Sfu, limits);
    let mut room = Room::new(RoomKey(1), setup);
    (1..=people).for_each(|number| come(&mut room, number, &mut Effects::default()));
    room
}

/// Nanoseconds that a change took.
fn round(room: &mut Room, call: Call, first: u64) -> f64 {
    let begin = Instant::now();
    let changes: usize = (first..first + CALLS).map(|nth| call.1(room, nth)).sum();
    begin.elapsed().as_nanos() as f64 / changes as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> ExitCode {
    let mut rooms = PEOPLE.map(room);
    let mut holds = true;
    println!("in a room of                            {:>8} {:>8}   ratio", PEOPLE[0], PEOPLE[1]);
    for call in MEASURED {
        let mut took = [Vec::new(), Vec::new()];
        for nth in 0..ROUNDS as u64 {
            for (room, took) in rooms.iter_mut().zip(&mut took) {
                took.push(round(room, call, nth * CALLS));
            }
        }
        let ratio =
            median(took[0].iter().zip(&took[1]).map(|(small, large)| large / small).collect());
        let [small, large] = took.map(|took| median(took) / 1000.0);
        println!("{:<40}{small:>6.2} µs {large:>5.2} µs {ratio:>6.2}", call.0);
        holds &= ratio <= MOST;
    }
    println!("{}", if holds { "holds" } else { "does not hold" });
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
