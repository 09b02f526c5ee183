//! A publisher's stream with all that real senders do: padding, repair of what never came, beginning anew.

use super::hand::{Ears, Hand, Heard, LOUD, PACKET_TIME, Packet};
use super::world::{LAN, Made, Random, World};
use engine::Command;
use engine::drops::OutDrop;
use engine::room::Topology;
use rtp::negotiated::Kind;
use std::collections::BTreeSet;
use std::time::Duration;

const SFU: Made = Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 1 };
/// From one picture to the next.
const FRAME_TIME: Duration = Duration::from_millis(50);

/// A VP8 frame in one packet (RFC 7741, RFC 6386 §9.1): its picture id, and whether it is a keyframe.
fn frame(id: u8, keyframe: bool) -> Vec<u8> {
    let first = if keyframe { 0x10 } else { 0x11 };
    let mut payload = vec![0x90, 0x80, id & 0x7F, first, 0, 0, 0x9D, 0x01, 0x2A, 0x40, 1, 0xB4, 0];
    payload.resize(400, id);
    payload
}

fn film(world: &mut World, hand: &mut Hand, payload: &[u8]) {
    let payload_type = hand.line.payload_type;
    hand.send(world, Packet { payload_type, marker: true, level_dbov: None, payload });
    hand.timestamp = hand.timestamp.wrapping_add(4500);
    world.run(FRAME_TIME);
}

/// Nothing is missing between packets of a slot.
fn check_numbers(heard: &[Heard]) {
    for (n, pair) in heard.windows(2).enumerate() {
        assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1), "packet {n}");
        let passed = pair[1].timestamp.wrapping_sub(pair[0].timestamp);
        assert!(passed < 90_000, "packet {n}: {passed}");
    }
}

#[test]
fn a_retransmission_that_is_newer_than_all_before_is_media() {
    for shards in [1, 2] {
        let mut world = World::with_slots(40, LAN, Made { shards, ..SFU }, (4, 1));
        let viewer = world.join_filming();
        let filming = world.join_filming();
        let mut hand = Hand::new(&mut world, filming, Kind::Video);
        let ears = Ears::of(&mut world, &[viewer]);
        for id in 0..60_u8 {
            let payload = frame(id, id % 10 == 0);
            if id % 10 == 9 {
                // It never came, and its repair comes before the next one.
                let original = hand.sequence;
                hand.sequence = hand.sequence.wrapping_add(1);
                hand.send_again(&mut world, original, true, &payload);
                hand.timestamp = hand.timestamp.wrapping_add(4500);
                world.run(FRAME_TIME);
            } else {
                film(&mut world, &mut hand, &payload);
            }
        }
        let heard = ears.take_all(viewer);
        let ids: BTreeSet<u8> =
            heard.iter().map(|packet| *packet.payload.last().unwrap()).collect();
        let first = *ids.first().expect("pictures come");
        assert!(first <= 10 && ids.len() == usize::from(60 - first), "{first}, {}", ids.len());
        check_numbers(&heard);
        world.assert_invariants(40);
    }
}

#[test]
fn padding_is_no_loss_and_nobody_asks_for_it() {
    for kind in [Kind::Audio, Kind::Video] {
        let mut world = World::with_slots(41, LAN, SFU, (4, 4));
        let people: Vec<_> = (0..2).map(|_| world.join_filming()).collect();
        let mut hand = Hand::new(&mut world, people[0], kind);
        let ears = Ears::of(&mut world, &people);
        for id in 0..200_u8 {
            match kind {
                Kind::Audio => hand.say(&mut world, LOUD),
                Kind::Video => film(&mut world, &mut hand, &frame(id, id % 20 == 0)),
            }
            let (payload_type, level_dbov) = (hand.line.payload_type, None);
            for _ in 0..id % 3 {
                let probe = Packet { payload_type, marker: false, level_dbov, payload: &[] };
                hand.send_padded(&mut world, probe, 200);
            }
            world.run(PACKET_TIME);
        }
        world.run(Duration::from_secs(2));
        let reports = ears.take_reports();
        assert!(reports.len() > 3, "{kind:?}: {} reports", reports.len());
        for report in reports {
            assert_eq!((report.fraction_lost, report.cumulative_lost), (0, 0), "{kind:?}");
        }
        assert_eq!(world.stats().nacked, 0, "{kind:?}");
        assert!(ears.take_all(people[1]).len() > 180, "{kind:?}");
        world.assert_invariants(41);
    }
}

#[test]
fn a_picture_goes_on_when_its_publisher_begins_a_new_stream() {
    for shards in [1, 2] {
        let mut world = World::with_slots(42, LAN, Made { shards, ..SFU }, (4, 1));
        let viewer = world.join_filming();
        let filming = world.join_filming();
        let mut hand = Hand::new(&mut world, filming, Kind::Video);
        let ears = Ears::of(&mut world, &[viewer]);
        for stream in 0..4_u8 {
            if stream > 0 {
                hand.begin_anew(0x7000_0000 + 20_001 * u32::from(stream));
            }
            for id in 0..30 {
                // The first packets of a new stream may well be none of a keyframe.
                film(&mut world, &mut hand, &frame(stream * 30 + id, id % 10 == 2));
            }
        }
        let heard = ears.take_all(viewer);
        let of =
            |stream: u8| heard.iter().filter(|packet| packet.payload[20] / 30 == stream).count();
        for stream in 1..4 {
            assert_eq!(of(stream), 28, "stream {stream}: all from its first keyframe on");
        }
        check_numbers(&heard);
        world.assert_invariants(42);
    }
}

#[test]
fn a_voice_is_heard_and_speaks_again_when_its_publisher_begins_a_new_stream() {
    for shards in [1, 2] {
        let mut world = World::with_slots(43, LAN, Made { shards, ..SFU }, (1, 4));
        let people: Vec<_> = (0..3).map(|_| world.join_silent(false)).collect();
        let mut first = Hand::new(&mut world, people[1], Kind::Audio);
        let mut second = Hand::new(&mut world, people[2], Kind::Audio);
        let ears = Ears::of(&mut world, &people[..1]);
        let say = |world: &mut World, hand: &mut Hand, packets: usize| {
            for _ in 0..packets {
                hand.say(world, LOUD);
                world.run(PACKET_TIME);
            }
        };
        say(&mut world, &mut first, 50);
        first.begin_anew(0x7000_9000);
        say(&mut world, &mut first, 50);
        let heard = ears.take_all(people[0]);
        let said: BTreeSet<_> = heard.iter().filter_map(Heard::said).map(|(_, n)| n).collect();
        assert!((50..100).all(|n| said.contains(&n)), "the new stream is heard: {said:?}");
        check_numbers(&heard);
        // Slots are short: only who counts as speaking gets the one there is.
        world.run(Duration::from_millis(1300));
        say(&mut world, &mut second, 40);
        world.run(Duration::from_millis(1300));
        say(&mut world, &mut first, 40);
        let heard: Vec<_> = ears.take_all(people[0]).iter().filter_map(Heard::said).collect();
        assert!(heard.contains(&(people[2].0, 39)), "{shards} shards: the second speaks");
        assert!(heard.contains(&(people[1].0, 139)), "{shards} shards: the first speaks again");
        world.assert_invariants(43);
    }
}

#[test]
fn packets_of_a_track_that_was_removed_count_as_arrived() {
    let mut world = World::with_slots(43, LAN, SFU, (4, 1));
    let filming = world.join_filming();
    let mut hand = Hand::new(&mut world, filming, Kind::Video);
    let ears = Ears::of(&mut world, &[filming]);
    hand.transport_sequence = Some(1);
    let mut tracks = world.person(filming).tracks.iter();
    let (track, _) = *tracks.find(|(_, kind)| *kind == Kind::Video).expect("a picture");
    world.command(filming, Command::RemoveTrack { track });
    for id in 0..50 {
        film(&mut world, &mut hand, &frame(id, id == 0));
    }
    let told = ears.take_arrivals().concat();
    let numbers: Vec<u16> = (1..=told.len() as u16).collect();
    assert!(told == numbers && told.len() >= 40, "{told:?}");
}

/// The numbers and times of one publisher jump, as far as its packets can be opened. Whoever has its slot next is heard whole.
#[test]
fn no_jump_of_numbers_or_times_closes_a_slot_for_the_next_track() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let made =
            Made { audio: Topology::Sfu, video: Topology::None, shards: 1 + (seed % 2) as u16 };
        let mut world = World::with_slots(seed, LAN, made, (1, 0));
        let listener = world.join_silent(false);
        let ears = Ears::of(&mut world, &[listener]);
        for round in 0..4 {
            let key = world.join_silent(false);
            let mut hand = Hand::new(&mut world, key, Kind::Audio);
            hand.sequence = 3000;
            for nth in 0..1 + random.below(6) {
                for _ in 0..1 + random.below(20) {
                    hand.say(&mut world, LOUD);
                    world.run(PACKET_TIME);
                }
                // In the first cycle a long step cannot be one back. A sealer of its own makes it.
                let far = nth == 0;
                let step = random.below(if far { 62_000 } else { 32_000 }) as u16;
                let (sequence, timestamp) = (hand.sequence.wrapping_add(step), hand.timestamp);
                if far {
                    hand = Hand::new(&mut world, key, Kind::Audio);
                }
                (hand.sequence, hand.timestamp) = (sequence, timestamp);
                if random.below(2) == 0 {
                    hand.timestamp = random.below(1 << 32) as u32;
                }
            }
            hand.say(&mut world, LOUD);
            world.run(PACKET_TIME);
            world.leave(key);
            let honest = world.join_silent(false);
            let mut hand = Hand::new(&mut world, honest, Kind::Audio);
            ears.take_all(listener);
            for _ in 0..100 {
                hand.say(&mut world, LOUD);
                world.run(PACKET_TIME);
            }
            let heard = ears.take_all(listener);
            assert!(heard.len() >= 95, "seed {seed}, round {round}: {} of 100", heard.len());
            check_numbers(&heard);
            world.leave(honest);
        }
        let refused: u64 =
            world.all_stats().map(|stats| stats.out_drops.get(OutDrop::SealRefused)).sum();
        assert_eq!(refused, 0, "seed {seed}");
        world.assert_invariants(seed);
    }
}

/// The same for pictures, whose ids jump as well.
#[test]
fn no_jump_of_numbers_times_or_picture_ids_closes_a_slot_of_pictures() {
    // With a picture id of 15 bits and TL0PICIDX (RFC 7741 §4.2).
    let frame = |id: u16, tl0: u8, keyframe: bool| {
        let first = if keyframe { 0x10 } else { 0x11 };
        let [high, low] = (id | 0x8000).to_be_bytes();
        let mut payload = vec![0x90, 0xE0, high, low, tl0, 0, first, 0, 0, 0x9D, 0x01, 0x2A];
        payload.extend([0x40, 1, 0xB4, 0]);
        payload.resize(400, 7);
        payload
    };
    for seed in 0..8 {
        let mut random = Random(seed);
        let made = Made { shards: 1 + (seed % 2) as u16, ..SFU };
        let mut world = World::with_slots(seed, LAN, made, (1, 1));
        let viewer = world.join_filming();
        let ears = Ears::of(&mut world, &[viewer]);
        for round in 0..3 {
            let key = world.join_filming();
            let mut hand = Hand::new(&mut world, key, Kind::Video);
            hand.sequence = 3000;
            for nth in 0..1 + random.below(5) {
                let (id, tl0) = (random.below(1 << 15) as u16, random.below(256) as u8);
                for at in 0..1 + random.below(10) as u16 {
                    let keyframe = at == 0 && random.below(2) == 0;
                    let (id, tl0) = (id.wrapping_add(at), tl0.wrapping_add(at as u8));
                    film(&mut world, &mut hand, &frame(id, tl0, keyframe));
                }
                let far = nth == 0;
                let step = random.below(if far { 62_000 } else { 32_000 }) as u16;
                let (sequence, timestamp) = (hand.sequence.wrapping_add(step), hand.timestamp);
                if far {
                    hand = Hand::new(&mut world, key, Kind::Video);
                }
                (hand.sequence, hand.timestamp) = (sequence, timestamp);
                if random.below(2) == 0 {
                    hand.timestamp = random.below(1 << 32) as u32;
                }
            }
            film(&mut world, &mut hand, &frame(0, 0, true));
            world.leave(key);
            let honest = world.join_filming();
            let mut hand = Hand::new(&mut world, honest, Kind::Video);
            ears.take_all(viewer);
            for id in 0..60 {
                film(&mut world, &mut hand, &frame(id, id as u8, id % 20 == 0));
            }
            let mut heard = ears.take_all(viewer);
            heard.retain(|packet| packet.payload_type == hand.line.payload_type);
            assert!(heard.len() >= 40, "seed {seed}, round {round}: {} of 60", heard.len());
            check_numbers(&heard);
            let ids = |packet: &Heard| {
                (u16::from_be_bytes([packet.payload[2], packet.payload[3]]), packet.payload[4])
            };
            for pair in heard.windows(2) {
                let ((id, tl0), next) = (ids(&pair[0]), ids(&pair[1]));
                let follows = ((id.wrapping_add(1)) | 0x8000, tl0.wrapping_add(1));
                assert_eq!(next, follows, "seed {seed}, round {round}");
            }
            world.leave(honest);
        }
        let refused: u64 =
            world.all_stats().map(|stats| stats.out_drops.get(OutDrop::SealRefused)).sum();
        assert_eq!(refused, 0, "seed {seed}");
        world.assert_invariants(seed);
    }
}
