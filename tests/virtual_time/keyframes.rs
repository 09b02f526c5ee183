//! Slots begin with keyframes that came already, and nothing is asked for that one made useless.

use super::bursts::{delta, picture, watched, watched_by};
use super::hand::{Ears, Hand, Heard};
use super::world::{LAN, Made, World};
use engine::room::Topology;
use engine::{PersonKey, TrackKey};
use lab::link::LinkSpec;
use rtp::negotiated::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SFU: Made = Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 1 };
const MS: Duration = Duration::from_millis(1);
/// The payload type of pictures in these sessions.
const VP8: u8 = 96;
/// That of what is sent again.
const RTX: u8 = 97;

fn camera(world: &mut World, key: PersonKey) -> TrackKey {
    let tracks = &world.person(key).tracks;
    tracks.iter().find(|(_, kind)| *kind == Kind::Video).expect("a camera").0
}

/// Somebody wants a track in the first slot of pictures.
fn want(world: &mut World, viewer: PersonKey, track: TrackKey) {
    let room = world.room.person(viewer).expect("is here");
    let mid = room.slot_contents(Kind::Video).next().expect("a slot").0.to_owned();
    world.want(viewer, &mid, track);
}

#[test]
fn a_slot_begins_with_a_keyframe_whose_first_packet_was_repaired() {
    let mut world = World::new(51, LAN);
    let filming = world.join(true);
    // The first packet of every frame is lost, and comes again as a retransmission.
    let mut ended: BTreeMap<u32, bool> = BTreeMap::new();
    world.eats = Box::new(move |to_server, _, bytes| {
        if !to_server || bytes[1] & 0x7F != VP8 {
            return false;
        }
        let ssrc = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
        ended.insert(ssrc, bytes[1] & 0x80 != 0).unwrap_or(true)
    });
    world.run(1000 * MS);
    let viewer = world.join_listening();
    world.run(9000 * MS);
    let (id, from) = (format!("p-{}", viewer.0), format!("p-{}", filming.0));
    let rows = world.samples.iter().filter(|r| r.sample.participant == id && r.t_ms > 5000);
    let rows: Vec<_> = rows.flat_map(|r| &r.sample.received).collect();
    let seen = |row: &&&wire::quality::ReceivedTrack| {
        row.participant == from && row.frames_per_second.is_some_and(|fps| fps > 15.0)
    };
    assert!(rows.iter().filter(seen).count() >= 1, "the picture is seen: {rows:?}");
    world.assert_invariants(51);
}

#[test]
fn who_comes_soon_after_a_keyframe_gets_it_and_no_other_is_asked_for() {
    let mut world = World::with_slots(52, LAN, SFU, (4, 1));
    world.feedback = false;
    let people: Vec<_> = (0..3).map(|_| world.join_filming()).collect();
    let mut hand = Hand::new(&mut world, people[0], Kind::Video);
    let ears = Ears::of(&mut world, &people[1..]);
    let track = camera(&mut world, people[0]);
    let other = camera(&mut world, people[1]);
    want(&mut world, people[1], track);
    want(&mut world, people[2], other);
    world.run(500 * MS);
    picture(&mut world, &mut hand, 40);
    for _ in 0..5 {
        world.run(50 * MS);
        delta(&mut world, &mut hand);
    }
    world.run(50 * MS);
    let first = ears.take_all(people[1]);
    assert_eq!((first.len(), ears.take_all(people[2]).len()), (45, 0));
    let asked = world.stats().keyframes_asked;
    want(&mut world, people[2], track);
    world.run(50 * MS);
    delta(&mut world, &mut hand);
    world.run(50 * MS);
    let second = ears.take_all(people[2]);
    let payloads = |heard: &[super::hand::Heard]| -> Vec<Vec<u8>> {
        heard.iter().map(|packet| packet.payload.clone()).collect()
    };
    assert_eq!(second.len(), 46, "all since the keyframe, and what came then");
    assert_eq!(payloads(&second)[..45].len(), payloads(&first).len());
    for pair in second.windows(2) {
        assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1));
    }
    assert_eq!(world.stats().keyframes_asked, asked, "the publisher is not asked");
    // Much later, or after much else, another keyframe is cheaper.
    world.run(2000 * MS);
    want(&mut world, people[2], other);
    world.run(100 * MS);
    world.leave(people[2]);
    let late = world.join_filming();
    want(&mut world, late, track);
    world.run(100 * MS);
    assert!(world.stats().keyframes_asked > asked, "a new one is asked for");
    world.assert_invariants(52);
}

#[test]
fn nothing_said_while_muted_is_told_from_the_history() {
    let (mut world, people, mut hand, ears) = watched(1);
    let track = camera(&mut world, people[0]);
    let silence = |on| engine::Command::Silence { track, on };
    world.command(people[0], silence(true));
    world.run(5 * MS);
    people[1..].iter().for_each(|viewer| drop(ears.take_all(*viewer)));
    picture(&mut world, &mut hand, 3);
    world.run(20 * MS);
    world.command(people[0], silence(false));
    world.run(100 * MS);
    for viewer in &people[1..] {
        assert_eq!(ears.take_all(*viewer), []);
    }
    picture(&mut world, &mut hand, 3);
    world.run(50 * MS);
    assert_eq!(ears.take_all(people[1]).len(), 3, "it goes on with the next keyframe");
}

#[test]
fn what_a_keyframe_made_useless_is_not_asked_for() {
    let (mut world, _, mut hand, _) = watched(1);
    world.run(500 * MS);
    let before = world.stats().nacked;
    hand.sequence = hand.sequence.wrapping_add(20);
    delta(&mut world, &mut hand);
    world.run(40 * MS);
    let asked = world.stats().nacked - before;
    assert!(asked >= 20, "{asked}");
    picture(&mut world, &mut hand, 3);
    world.run(20 * MS);
    let before = world.stats().nacked;
    world.run(2000 * MS);
    assert_eq!(world.stats().nacked, before, "a keyframe came");
}

#[test]
fn a_publisher_far_away_is_asked_once_a_round_trip() {
    let (mut world, people, mut hand, _) = watched(1);
    let far = LinkSpec { delay: 200 * MS, ..LinkSpec::default() };
    world.set_link(people[0], far);
    // What is sent to it tells the round trip.
    let mut other = Hand::new(&mut world, people[1], Kind::Video);
    let track = camera(&mut world, people[1]);
    want(&mut world, people[0], track);
    for _ in 0..60 {
        picture(&mut world, &mut other, 2);
        delta(&mut world, &mut hand);
        world.run(100 * MS);
    }
    let rtt = world.shards[0].rtt_ms(people[0]).expect("it reports");
    assert!((390.0..450.0).contains(&rtt), "{rtt}");
    let before = world.stats().nacked;
    hand.sequence = hand.sequence.wrapping_add(1);
    delta(&mut world, &mut hand);
    world.run(1400 * MS);
    let asked = world.stats().nacked - before;
    assert!((2..=4).contains(&asked), "{asked} times in 1.2 s");
}

/// Numbers of a slot that these packets brought, also as retransmissions, and how many of them left empty.
fn brought(heard: &[Heard]) -> (BTreeSet<u16>, usize) {
    let number = |packet: &Heard| match packet.payload_type {
        RTX => u16::from_be_bytes(packet.payload[..2].try_into().expect("it begins with a number")),
        _ => packet.sequence,
    };
    let empty = |packet: &&Heard| packet.payload_type == RTX && packet.payload.len() == 2;
    (heard.iter().map(number).collect(), heard.iter().filter(empty).count())
}

#[test]
fn numbers_that_nothing_will_bring_leave_empty_once_a_keyframe_is_whole() {
    for (shards, resends) in [(1, false), (2, false), (1, true), (2, true)] {
        let (mut world, people, mut hand, ears) = watched_by(shards, resends);
        // Each time some are lost for good.
        for lost in [1, 2, 5, 40] {
            let before = hand.timestamp;
            delta(&mut world, &mut hand);
            hand.sequence = hand.sequence.wrapping_add(lost);
            delta(&mut world, &mut hand);
            world.run(60 * MS);
            let early: Vec<_> = people[1..].iter().map(|who| ears.take_all(*who)).collect();
            for _ in 0..3 {
                picture(&mut world, &mut hand, 3);
                world.run(50 * MS);
                delta(&mut world, &mut hand);
                world.run(50 * MS);
            }
            let offset = early[0][0].timestamp.wrapping_sub(before);
            for (who, mut heard) in people[1..].iter().zip(early) {
                assert_eq!(brought(&heard).1, 0, "they may still come");
                heard.extend(ears.take_all(*who));
                let (numbers, empty) = brought(&heard);
                let first = heard[0].sequence;
                let in_order: BTreeSet<_> =
                    (0..14 + lost).map(|nth| first.wrapping_add(nth)).collect();
                let what = format!("{shards} shards, {lost} lost, sent again: {resends}");
                assert_eq!(numbers, in_order, "{what}");
                assert_eq!(empty, usize::from(lost), "each once; {what}");
                let empty = heard.iter().filter(|it| it.payload_type == RTX);
                for packet in empty {
                    assert_eq!(
                        packet.timestamp,
                        before.wrapping_add(offset),
                        "of the frame before"
                    );
                }
            }
        }
        world.assert_invariants(31);
    }
}

#[test]
fn who_cannot_have_packets_again_gets_no_empty_ones() {
    let (mut world, people, mut hand, ears) = watched_by(1, false);
    world.lacks.rtx = true;
    let track = camera(&mut world, people[0]);
    let late = world.join_filming();
    let all = Ears::of(&mut world, &[late]);
    want(&mut world, late, track);
    drop(ears);
    for _ in 0..4 {
        picture(&mut world, &mut hand, 2);
        world.run(50 * MS);
        hand.sequence = hand.sequence.wrapping_add(1);
    }
    let heard = all.take_all(late);
    assert!(heard.len() >= 4 && heard.iter().all(|packet| packet.payload_type == VP8), "{heard:?}");
}
