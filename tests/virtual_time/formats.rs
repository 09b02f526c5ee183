//! What passes as it is, and what is made fit for its receiver: redundancy, pauses in sending,
//! payloads that are encrypted end to end.

use super::hand::{Ears, Hand, Heard, LOUD, PACKET, PACKET_TIME, Packet, SILENT};
use super::world::{LAN, Made, World};
use engine::PersonKey;
use engine::drops::OutDrop;
use engine::room::Topology;
use rtp::negotiated::Kind;
use std::collections::BTreeSet;
use std::time::Duration;

const SFU: Made = Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 1 };

/// The payload type of RED in these sessions.
const RED: u8 = 63;

/// A RED payload: one redundant block, and the primary one.
fn red_payload(opus: u8, redundant: &[u8], primary: &[u8]) -> Vec<u8> {
    let block = 0x8000_0000 | u32::from(opus) << 24 | PACKET << 10 | redundant.len() as u32;
    [&block.to_be_bytes(), &[opus][..], redundant, primary].concat()
}

#[test]
fn all_get_the_primary_block_of_red_while_nothing_is_lost() {
    for shards in [1, 2] {
        let mut world = World::with_slots(24, LAN, Made { shards, ..SFU }, (4, 4));
        world.red = true;
        let speaker = world.join_silent(false);
        let with = [world.join_silent(false), world.join_silent(false)];
        world.red = false;
        let without = [world.join_silent(false), world.join_silent(false)];
        let mut hand = Hand::new(&mut world, speaker, Kind::Audio);
        let all = [with, without].concat();
        let ears = Ears::of(&mut world, &all);
        let opus = hand.line.payload_type;
        let mut sent = Vec::new();
        for n in 0..100u8 {
            // Now and then it sends plain packets, as clients do when they begin.
            let (redundant, primary) = (vec![n.wrapping_sub(1); 40], vec![n; 60]);
            let red = n % 10 != 0;
            let payload = match red {
                true => red_payload(opus, &redundant, &primary),
                false => primary.clone(),
            };
            let payload_type = if red { RED } else { opus };
            let packet =
                Packet { payload_type, marker: n == 0, level_dbov: Some(LOUD), payload: &payload };
            hand.send(&mut world, packet);
            hand.timestamp = hand.timestamp.wrapping_add(PACKET);
            world.run(PACKET_TIME);
            sent.push(primary);
        }
        for key in all {
            let heard = ears.take_all(key);
            assert_eq!(heard.len(), sent.len(), "{key:?}");
            for (packet, primary) in heard.iter().zip(&sent) {
                assert_eq!((packet.payload_type, &packet.payload), (opus, primary), "{key:?}");
            }
            check_times(&heard, |_| PACKET);
        }
        world.assert_invariants(24);
        let drops: u64 = world.shards.iter().map(|s| s.stats().out_drops.total()).sum();
        assert_eq!(drops, 0);
    }
}

/// Sequence numbers follow each other; timestamps go on as the sender's do.
fn check_times(heard: &[Heard], step: impl Fn(usize) -> u32) {
    for (n, pair) in heard.windows(2).enumerate() {
        assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1), "packet {n}");
        assert_eq!(pair[1].timestamp.wrapping_sub(pair[0].timestamp), step(n), "packet {n}");
    }
}

/// Packets of comfort noise, 400 ms apart, in which nothing else is sent.
fn pause(world: &mut World, hand: &mut Hand, noises: usize) {
    for _ in 0..noises {
        hand.timestamp = hand.timestamp.wrapping_add(19 * PACKET);
        world.run(19 * PACKET_TIME);
        let (payload_type, level_dbov) = (hand.line.payload_type, Some(SILENT));
        hand.send(world, Packet { payload_type, marker: false, level_dbov, payload: &[0xF8] });
        hand.timestamp = hand.timestamp.wrapping_add(PACKET);
        world.run(PACKET_TIME);
    }
}

fn speak(world: &mut World, hand: &mut Hand, packets: usize) {
    for _ in 0..packets {
        hand.say(world, LOUD);
        world.run(PACKET_TIME);
    }
}

#[test]
fn pauses_in_sending_pass_with_their_timestamps_and_count_as_silence() {
    let mut world = World::with_slots(26, LAN, SFU, (1, 4));
    let people: Vec<_> = (0..3).map(|_| world.join_silent(false)).collect();
    let mut first = Hand::new(&mut world, people[1], Kind::Audio);
    let mut second = Hand::new(&mut world, people[2], Kind::Audio);
    let ears = Ears::of(&mut world, &people[..1]);
    let hears = |world: &World| {
        let listener = world.room.person(people[0]).unwrap();
        listener.slot_contents(Kind::Audio).find_map(|(_, track)| track)
    };
    let track = |world: &mut World, who: usize| Some(world.person(people[who]).tracks[0].0);
    speak(&mut world, &mut first, 50);
    pause(&mut world, &mut first, 5);
    speak(&mut world, &mut first, 50);
    pause(&mut world, &mut first, 3);
    let heard = ears.take_all(people[0]);
    assert_eq!(heard.len(), 108);
    assert_eq!(heard[52].payload, [0xF8], "comfort noise as it came");
    let noise = |n: usize| (49..54).contains(&n) || (104..107).contains(&n);
    check_times(&heard, |n| if noise(n) { 20 * PACKET } else { PACKET });
    // Three packets of noise are 1.2 s of silence: his slot is free for who speaks now.
    assert_eq!(hears(&world), track(&mut world, 1));
    speak(&mut world, &mut second, 20);
    assert_eq!(hears(&world), track(&mut world, 2), "the first is silent");
    // Who stops altogether is silent too, though he says nothing of it.
    world.run(Duration::from_millis(1300));
    speak(&mut world, &mut first, 20);
    assert_eq!(hears(&world), track(&mut world, 1));
    let again: BTreeSet<_> = ears.take_all(people[0]).iter().filter_map(Heard::said).collect();
    let whole = |who: PersonKey, from: u64| (from..from + 20).all(|n| again.contains(&(who.0, n)));
    assert!(whole(people[2], 0) && whole(people[1], 100), "both from their first packet on");
    world.assert_invariants(26);
}

/// A picture that nobody on the way can read: frames of three packets, 20 a second. Its payloads look
/// like VP8 with picture ids, as those of browsers that encrypt frames do.
struct Film {
    hand: Hand,
    frames: u16,
    sent: Vec<Vec<u8>>,
}

impl Film {
    fn frame(&mut self, world: &mut World) {
        for part in 0..3u8 {
            let id = (self.frames.wrapping_mul(7) | 0x8000).to_be_bytes();
            let mut payload = vec![0x90, 0xE0, id[0], id[1], self.frames as u8, part];
            let mut noise = u64::from(self.frames) << 8 | u64::from(part) | self.hand.key.0 << 32;
            payload.extend((0..900).map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (noise >> 56) as u8
            }));
            let payload_type = self.hand.line.payload_type;
            let packet =
                Packet { payload_type, marker: part == 2, level_dbov: None, payload: &payload };
            self.hand.send(world, packet);
            self.sent.push(payload);
        }
        self.frames += 1;
        self.hand.timestamp = self.hand.timestamp.wrapping_add(4500);
    }
}

/// Whether one sequence number is another or follows it.
fn from_there(sequence: u16, first: u16) -> bool {
    sequence.wrapping_sub(first) < u16::MAX / 2
}

#[test]
fn what_is_encrypted_end_to_end_passes_byte_for_byte() {
    for shards in [1, 2] {
        let mut world = World::with_slots(28, LAN, Made { shards, ..SFU }, (4, 1));
        let viewer = world.join_filming();
        // Two that can be read come first: picture ids of the slot are then others than theirs.
        let readable = [world.join_filming(), world.join_filming()];
        world.opaque = true;
        let opaque = [world.join_filming(), world.join_filming()];
        let [first, second, third, fourth] = [readable[0], readable[1], opaque[0], opaque[1]];
        let mut films = [first, second, third, fourth].map(|key| {
            let hand = Hand::new(&mut world, key, Kind::Video);
            Film { hand, frames: key.0 as u16, sent: Vec::new() }
        });
        let ears = Ears::of(&mut world, &[viewer]);
        let tracks = [first, second, third, fourth].map(|key| {
            let tracks = &world.person(key).tracks;
            tracks.iter().find(|(_, kind)| *kind == Kind::Video).unwrap().0
        });
        let room = world.room.person(viewer).unwrap();
        let mid = room.slot_contents(Kind::Video).next().unwrap().0.to_owned();
        // The lab's link loses a packet now and then, so that some are sent again.
        let mut hearing = std::mem::replace(&mut world.eats, Box::new(|_, _, _| false));
        let (mut numbers, address) = (0, world.person(viewer).address);
        world.eats = Box::new(move |to_server, person, bytes| {
            numbers += u32::from(!to_server && person == address && bytes.len() > 500);
            hearing(to_server, person, bytes) || (!to_server && numbers % 23 == 22)
        });
        for turn in [0, 1, 2, 3, 2, 3, 2, 3] {
            world.want(viewer, &mid, tracks[turn]);
            for _ in 0..15 {
                films.iter_mut().for_each(|film| film.frame(&mut world));
                world.run(Duration::from_millis(50));
            }
        }
        let ssrc = world.slot_ssrc(viewer, &mid);
        let (media, rtx): (Vec<_>, Vec<_>) =
            ears.take_all(viewer).into_iter().partition(|packet| packet.ssrc == ssrc);
        let sent = |film: usize, payload: &[u8]| films[film].sent.iter().any(|all| all == payload);
        let closed = |payload: &[u8]| sent(2, payload) || sent(3, payload);
        let first = media.iter().position(|packet| closed(&packet.payload)).expect("he got some");
        let (before, media) = media.split_at(first);
        assert!(!before.iter().all(|p| sent(0, &p.payload) || sent(1, &p.payload)), "rewritten");
        assert!(media.len() > 200, "{}", media.len());
        assert!(media.iter().all(|packet| closed(&packet.payload)), "byte for byte");
        let again: Vec<_> = rtx
            .iter()
            .filter_map(|packet| packet.payload.split_first_chunk())
            .filter(|(number, _)| from_there(u16::from_be_bytes(**number), media[0].sequence))
            .collect();
        assert!(again.len() > 3, "{} were sent again", again.len());
        assert!(again.iter().all(|(_, payload)| closed(payload)), "sent again, too");
        let mut switches = 0;
        for pair in media.windows(2) {
            assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1));
            if sent(2, &pair[0].payload) != sent(2, &pair[1].payload) {
                switches += 1;
                assert!(pair[0].marker && pair[1].payload[5] == 0, "with the first of a frame");
            }
        }
        assert_eq!(switches, 5, "each time he wanted another");
        world.assert_invariants(28);
        let drops = world.shards.iter().map(|s| s.stats().out_drops.get(OutDrop::NotNegotiated));
        assert_eq!(drops.sum::<u64>(), 0);
    }
}

#[test]
fn packets_of_a_picture_that_differ_by_a_byte_leave_with_one_length() {
    // An odd seed: shards read what came in batches.
    let mut world = World::with_slots(29, LAN, SFU, (4, 1));
    // Nothing is known of the path: pictures leave at once.
    world.feedback = false;
    let viewer = world.join_filming();
    let filming = world.join_filming();
    let mut hand = Hand::new(&mut world, filming, Kind::Video);
    let ears = Ears::of(&mut world, &[viewer]);
    let payload_type = hand.line.payload_type;
    let mut sent = Vec::new();
    for n in 0..40_u8 {
        for part in 0..4_u8 {
            // A keyframe of VP8 (RFC 6386 §9.1), then pieces of it; the last is short.
            let start: &[u8] = match part {
                0 => &[0x90, 0x80, n, 0x10, 0, 0, 0x9D, 0x01, 0x2A, 0x40, 1, 0xB4, 0],
                _ => &[0x80, 0x80, n],
            };
            let mut payload = start.to_vec();
            payload.resize([900, 900, 901, 200][usize::from(part)], part);
            let packet =
                Packet { payload_type, marker: part == 3, level_dbov: None, payload: &payload };
            hand.send(&mut world, packet);
            sent.push(payload.len());
        }
        hand.timestamp = hand.timestamp.wrapping_add(4500);
        world.run(Duration::from_millis(50));
    }
    let heard = ears.take_all(viewer);
    let lens: Vec<_> = heard.iter().map(|packet| packet.payload.len()).collect();
    assert!(heard.len() > 100 && sent.ends_with(&lens), "payloads are as long as they were");
    let alike = |frame: &[Heard]| frame[..3].iter().all(|p| p.datagram == frame[2].datagram);
    let whole: Vec<_> = heard.chunks_exact(4).collect();
    assert!(whole.iter().all(|frame| frame[3].marker && frame[3].datagram < 300));
    let levelled = whole.iter().filter(|frame| alike(frame)).count();
    assert!(levelled * 10 > whole.len() * 8, "{levelled} of {}", whole.len());
    world.assert_invariants(29);
}

#[test]
fn packets_without_content_take_no_number_of_the_subscribers() {
    for shards in [1, 2] {
        let mut world = World::with_slots(30, LAN, Made { shards, ..SFU }, (1, 1));
        let people: Vec<_> = (0..3).map(|_| world.join_silent(false)).collect();
        let mut hand = Hand::new(&mut world, people[0], Kind::Audio);
        let ears = Ears::of(&mut world, &people[1..]);
        for said in 0..100 {
            hand.say(&mut world, LOUD);
            // Browsers probe the path with padding that takes a number of theirs.
            for _ in 0..(said % 7) / 5 {
                let (payload_type, level_dbov) = (hand.line.payload_type, Some(LOUD));
                let probe = Packet { payload_type, marker: false, level_dbov, payload: &[] };
                hand.send(&mut world, probe);
            }
            world.run(PACKET_TIME);
        }
        for key in &people[1..] {
            let heard = ears.take_all(*key);
            assert_eq!(heard.len(), 100, "{key:?}");
            check_times(&heard, |_| PACKET);
        }
        world.assert_invariants(30);
    }
}

#[test]
fn padding_of_a_publisher_is_left_out_on_every_way() {
    for shards in [1, 2] {
        let mut world = World::with_slots(32, LAN, Made { shards, ..SFU }, (4, 4));
        let people: Vec<_> = (0..3).map(|_| world.join_silent(false)).collect();
        let mut hand = Hand::new(&mut world, people[0], Kind::Audio);
        let ears = Ears::of(&mut world, &people[1..]);
        for n in 0..50_u8 {
            // Where the bit stayed and the padding did not, this would be taken for its length.
            let payload = [n, 7, 7, 7, 7, 7, 7, 3];
            let (payload_type, level_dbov) = (hand.line.payload_type, Some(LOUD));
            let packet = Packet { payload_type, marker: false, level_dbov, payload: &payload };
            hand.send_padded(&mut world, packet, n % 3 * 5);
            hand.timestamp = hand.timestamp.wrapping_add(PACKET);
            world.run(PACKET_TIME);
        }
        for key in &people[1..] {
            let heard = ears.take_all(*key);
            let payloads: Vec<_> = heard.iter().map(|packet| packet.payload.clone()).collect();
            let expected: Vec<_> = (0..50).map(|n| vec![n, 7, 7, 7, 7, 7, 7, 3]).collect();
            assert_eq!(payloads, expected, "{key:?}, {shards} shards");
            check_times(&heard, |_| PACKET);
        }
        world.assert_invariants(32);
    }
}
