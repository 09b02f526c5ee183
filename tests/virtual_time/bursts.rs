//! Pictures leave in bursts that a path can take; sound waits for none of them.

use super::hand::{Ears, Hand, LOUD, Packet};
use super::world::{LAN, Made, World};
use engine::drops::OutDrop;
use engine::limits::{BURSTS_AT_MOST, LEAST_BURST_BYTES};
use engine::room::Topology;
use engine::{Command, PersonKey, Shard};
use rtp::negotiated::Kind;
use std::time::Duration;

const SFU: Made = Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 1 };
const MS: Duration = Duration::from_millis(1);

/// Bytes of a packet's payload here.
const LEN: usize = 1000;

/// Sends a picture of so many packets at once. It is a keyframe of VP8 (RFC 6386 §9.1).
pub(super) fn picture(world: &mut World, hand: &mut Hand, packets: u16) {
    for n in 0..packets {
        let start: &[u8] = match n {
            0 => &[0x90, 0x80, 1, 0x10, 0, 0, 0x9D, 0x01, 0x2A, 0x40, 1, 0xB4, 0],
            _ => &[0x80, 0x80, 1],
        };
        let mut payload = start.to_vec();
        payload.resize(LEN - 2, 7);
        payload.extend(n.to_be_bytes());
        send(world, hand, n + 1 == packets, &payload);
    }
    hand.timestamp = hand.timestamp.wrapping_add(4500);
}

/// Sends a picture of one packet that is no keyframe.
pub(super) fn delta(world: &mut World, hand: &mut Hand) {
    let mut payload = vec![0x90, 0x80, 1, 0x11];
    payload.resize(LEN / 2, 7);
    send(world, hand, true, &payload);
    hand.timestamp = hand.timestamp.wrapping_add(4500);
}

pub(super) fn send(world: &mut World, hand: &mut Hand, marker: bool, payload: &[u8]) {
    let payload_type = hand.line.payload_type;
    hand.send(world, Packet { payload_type, marker, level_dbov: None, payload });
}

/// One who films and two who watch, the last on another shard where there is one.
pub(super) fn watched(shards: u16) -> (World, Vec<PersonKey>, Hand, Ears) {
    watched_by(shards, true)
}

/// The same, and whether pictures are sent again that were lost on their way to the server.
pub(super) fn watched_by(shards: u16, resends: bool) -> (World, Vec<PersonKey>, Hand, Ears) {
    let mut world = World::with_slots(31, LAN, Made { shards, ..SFU }, (4, 1));
    // Nothing is known of the paths.
    (world.feedback, world.resends) = (false, resends);
    let people: Vec<_> = (0..3).map(|_| world.join_filming()).collect();
    let mut hand = Hand::new(&mut world, people[0], Kind::Video);
    let ears = Ears::of(&mut world, &people[1..]);
    let track = world.person(people[0]).tracks.iter().find(|(_, kind)| *kind == Kind::Video);
    let track = track.expect("he films").0;
    for viewer in &people[1..] {
        let room = world.room.person(*viewer).expect("he is here");
        let mid = room.slot_contents(Kind::Video).next().expect("he may watch").0.to_owned();
        world.want(*viewer, &mid, track);
    }
    for _ in 0..4 {
        picture(&mut world, &mut hand, 2);
        world.run(50 * MS);
    }
    for viewer in &people[1..] {
        assert!(!ears.take_all(*viewer).is_empty(), "it flows");
    }
    (world, people, hand, ears)
}

fn paced(world: &World) -> u64 {
    world.shards.iter().map(|shard: &Shard| shard.stats().paced).sum()
}

#[test]
fn a_picture_leaves_in_bursts_and_sound_waits_for_none() {
    for shards in [1, 2] {
        let (mut world, people, mut hand, ears) = watched(shards);
        assert_eq!(paced(&world), 0, "small pictures wait for nothing");
        let mut voice = Hand::new(&mut world, people[0], Kind::Audio);
        let viewer = people[2];
        picture(&mut world, &mut hand, 150);
        // Padding takes no number, and what follows keeps its place.
        send(&mut world, &mut hand, false, &[]);
        picture(&mut world, &mut hand, 5);
        voice.say(&mut world, LOUD);
        let (mut bursts, mut sound, mut seen) = (Vec::new(), None, Vec::new());
        for ms in 0..60 {
            world.run(MS);
            let heard = ears.take_all(viewer);
            let (pictures, voices): (Vec<_>, Vec<_>) =
                heard.into_iter().partition(|packet| packet.payload.len() == LEN);
            if !voices.is_empty() {
                sound = Some(ms);
            }
            if !pictures.is_empty() {
                bursts.push((ms, pictures.iter().map(|packet| packet.datagram).sum::<usize>()));
            }
            seen.extend(pictures);
        }
        assert_eq!(seen.len(), 155, "{bursts:?}");
        for pair in seen.windows(2) {
            assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1));
        }
        let order = |packet: &super::hand::Heard| packet.payload[LEN - 2..].to_vec();
        let expected = (0..150_u16).chain(0..5).map(|n| n.to_be_bytes().to_vec());
        assert!(seen.iter().map(order).eq(expected), "in the order in which they came");
        let (first, last) = (bursts[0].0, bursts[bursts.len() - 1].0);
        assert!(last - first >= 15, "spread: {bursts:?}");
        assert!(last - first <= 5 * BURSTS_AT_MOST + 2, "nothing waits for long: {bursts:?}");
        let most = LEAST_BURST_BYTES.max(155 * 1100 / BURSTS_AT_MOST) + 1100;
        assert!(bursts.iter().all(|(_, bytes)| *bytes <= most), "{bursts:?}");
        assert!(sound.is_some_and(|ms| ms <= first + 2), "sound at {sound:?} ms: {bursts:?}");
        assert!(paced(&world) >= 240, "{} for both", paced(&world));
        world.assert_invariants(31);
    }
}

#[test]
fn what_waits_while_its_track_is_muted_is_counted() {
    let (mut world, people, mut hand, ears) = watched(1);
    picture(&mut world, &mut hand, 150);
    for _ in 0..10 {
        if paced(&world) == 0 {
            world.run(MS);
        }
    }
    assert!(paced(&world) > 200, "most of both wait: {}", paced(&world));
    let track = world.person(people[0]).tracks.iter().find(|(_, kind)| *kind == Kind::Video);
    let track = track.expect("they film").0;
    world.command(people[0], Command::Silence { track, on: true });
    world.run(100 * MS);
    let came: usize = people[1..].iter().map(|viewer| ears.take_all(*viewer).len()).sum();
    let withdrawn = world.stats().out_drops.get(OutDrop::Withdrawn) as usize;
    assert!(came < 150 && came + withdrawn == 300, "{came} came, {withdrawn} withdrawn");
    world.assert_invariants(31);
}

#[test]
fn padding_of_sound_takes_no_number_and_waits_for_no_picture() {
    let (mut world, people, mut hand, ears) = watched(1);
    let mut voice = Hand::new(&mut world, people[0], Kind::Audio);
    voice.say(&mut world, LOUD);
    world.run(10 * MS);
    ears.take_all(people[2]);
    picture(&mut world, &mut hand, 150);
    world.run(5 * MS);
    assert!(paced(&world) > 100, "pictures wait");
    let payload_type = voice.line.payload_type;
    let nothing = Packet { payload_type, marker: false, level_dbov: None, payload: &[] };
    for _ in 0..3 {
        voice.send_padded(&mut world, nothing, 20);
        voice.say(&mut world, LOUD);
    }
    world.run(100 * MS);
    let heard = ears.take_all(people[2]);
    let sound: Vec<_> = heard.iter().filter(|packet| packet.payload.len() < LEN / 2).collect();
    assert_eq!(sound.len(), 3);
    for pair in sound.windows(2) {
        assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1));
    }
    world.assert_invariants(31);
}

#[test]
fn padding_takes_no_number_where_its_slot_still_waits_for_its_first_picture() {
    let mut world = World::with_slots(33, LAN, SFU, (4, 2));
    world.feedback = false;
    let filming = [world.join_filming(), world.join_filming()];
    let viewer = world.join_filming();
    let mut hands = filming.map(|key| Hand::new(&mut world, key, Kind::Video));
    let ears = Ears::of(&mut world, &[viewer]);
    picture(&mut world, &mut hands[0], 2);
    world.run(50 * MS);
    assert_eq!(ears.take_all(viewer).len(), 2, "the first flows");
    picture(&mut world, &mut hands[0], 100);
    picture(&mut world, &mut hands[1], 3);
    send(&mut world, &mut hands[1], false, &[]);
    picture(&mut world, &mut hands[1], 3);
    world.run(100 * MS);
    let heard = ears.take_all(viewer);
    let first = heard[0].ssrc;
    let (one, other): (Vec<_>, Vec<_>) = heard.into_iter().partition(|p| p.ssrc == first);
    assert_eq!((one.len(), other.len()), (100, 6));
    for packets in [one, other] {
        for pair in packets.windows(2) {
            assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1));
        }
    }
    world.assert_invariants(33);
}

#[test]
fn what_is_missing_is_asked_for_soon_however_calm_it_was() {
    let (mut world, _, mut hand, _) = watched(1);
    let nacked = |world: &World| world.shards[0].stats().nacked;
    for phase in 0..40 {
        world.run(MS * (500 + phase));
        let before = nacked(&world);
        picture(&mut world, &mut hand, 2);
        hand.sequence = hand.sequence.wrapping_add(1);
        delta(&mut world, &mut hand);
        // The way there 2 to 4 ms, 10 for it to come after all, and a tick of 10.
        world.run(25 * MS);
        assert_eq!(nacked(&world), before + 1, "phase {phase}");
        // It never comes: the tries end.
        world.run(4000 * MS);
    }
}

#[test]
fn nothing_that_waits_leaves_after_its_track_was_muted_or_somebody_left() {
    for shards in [1, 2] {
        let (mut world, people, mut hand, ears) = watched(shards);
        let track = world.person(people[0]).tracks.iter().find(|(_, kind)| *kind == Kind::Video);
        let track = track.expect("he films").0;
        let waits = |world: &mut World, hand: &mut Hand| {
            let before = paced(world);
            picture(world, hand, 30);
            picture(world, hand, 120);
            world.run(5 * MS);
            assert!(paced(world) > before + 200, "it waits");
        };
        // A keyframe is among what waits: nobody may switch to it.
        waits(&mut world, &mut hand);
        world.command(people[0], Command::Silence { track, on: true });
        world.run(MS);
        picture(&mut world, &mut hand, 1);
        world.run(6 * MS);
        people[1..].iter().for_each(|viewer| drop(ears.take_all(*viewer)));
        world.run(100 * MS);
        for viewer in &people[1..] {
            assert_eq!(ears.take_all(*viewer), [], "{viewer:?}");
        }
        // Let go, and a viewer leaves in the middle of a burst; the other one gets all of it.
        world.command(people[0], Command::Silence { track, on: false });
        world.run(MS);
        waits(&mut world, &mut hand);
        world.leave(people[1]);
        world.run(100 * MS);
        assert_eq!(ears.take_all(people[2]).len(), 150);
        // The one who films leaves.
        waits_alone(&mut world, &mut hand);
        world.leave(people[0]);
        world.run(100 * MS);
        let left = ears.take_all(people[2]).len();
        assert!((20..100).contains(&left), "{left}: what waited went with its track");
        world.assert_invariants(31);
    }
}

/// The same with one viewer.
fn waits_alone(world: &mut World, hand: &mut Hand) {
    let before = paced(world);
    picture(world, hand, 150);
    world.run(5 * MS);
    assert!(paced(world) > before + 100, "it waits");
}
