//! Senders that are not browsers: formats nobody agreed on, streams without a name, packets as long as a link takes.

use super::hand::{Ears, Hand, Heard, LOUD, PACKET_TIME, Packet};
use super::world::{LAN, Made, World};
use engine::drops::{InDrop, OutDrop};
use engine::limits::MAX_UDP;
use engine::room::Topology;
use rtp::header;
use rtp::negotiated::Kind;
use rtp::rtcp;
use rtp::srtp::Opener;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

const SFU: Made = Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 1 };
/// Of RFC 4733.
const TELEPHONE_EVENT: u8 = 101;

/// A VP8 frame of so many bytes in one packet: its picture id, and whether it is a keyframe.
fn frame(id: u8, keyframe: bool, len: usize) -> Vec<u8> {
    let first = if keyframe { 0x10 } else { 0x11 };
    let mut payload = vec![0x90, 0x80, id & 0x7F, first, 0, 0, 0x9D, 0x01, 0x2A, 0x40, 1, 0xB4, 0];
    payload.resize(len, id);
    payload
}

fn film(world: &mut World, hand: &mut Hand, payload: &[u8]) {
    let payload_type = hand.line.payload_type;
    hand.send(world, Packet { payload_type, marker: true, level_dbov: None, payload });
    hand.timestamp = hand.timestamp.wrapping_add(4500);
    world.run(Duration::from_millis(50));
}

/// Nothing is missing between packets of a slot.
fn check_numbers(heard: &[Heard]) {
    for (n, pair) in heard.windows(2).enumerate() {
        assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1), "packet {n}");
    }
}

#[test]
fn formats_that_were_not_agreed_on_are_dropped_and_leave_no_gap() {
    for audio in [Topology::Sfu, Topology::Mcu] {
        for shards in [1, 2] {
            let made = Made { audio, shards, ..SFU };
            let mut world = World::with_slots(50, LAN, made, (4, 4));
            let people: Vec<_> = (0..2).map(|_| world.join_silent(false)).collect();
            let mut hand = Hand::new(&mut world, people[1], Kind::Audio);
            let ears = Ears::of(&mut world, &people[..1]);
            for nth in 0..200 {
                if nth % 5 == 4 {
                    let event = [11, 10, 0, 160];
                    let level_dbov = Some(LOUD);
                    let payload_type = TELEPHONE_EVENT;
                    let packet =
                        Packet { payload_type, marker: false, level_dbov, payload: &event };
                    hand.send(&mut world, packet);
                } else {
                    hand.say(&mut world, LOUD);
                }
                world.run(PACKET_TIME);
            }
            let dropped = world.all_stats().map(|s| s.in_drops.get(InDrop::UnknownPayloadType));
            let dropped: u64 = dropped.sum();
            assert_eq!(dropped, 40, "{audio:?}");
            let heard = ears.take_all(people[0]);
            assert!(heard.len() > 100 && heard.iter().all(|packet| packet.payload.len() > 4));
            let types: BTreeSet<u8> = heard.iter().map(|packet| packet.payload_type).collect();
            assert_eq!(types, BTreeSet::from([111]), "{audio:?} {shards}");
            check_numbers(&heard);
        }
    }
}

/// A stream that goes to other SSRCs, with no MID in its packets.
fn streams(kind: Kind, ssrcs: &[u32]) -> (usize, Vec<Heard>) {
    let mut world = World::with_slots(51, LAN, SFU, (4, 4));
    let viewer = world.join_filming();
    let filming = world.join_filming();
    let mut hand = Hand::new(&mut world, filming, kind);
    let ears = Ears::of(&mut world, &[viewer]);
    let mut numbers = BTreeMap::new();
    let mut sent = 0;
    for ssrc in ssrcs {
        let (sequence, timestamp) = (hand.sequence, hand.timestamp);
        if *ssrc != hand.ssrc() {
            numbers.insert(hand.ssrc(), (sequence, timestamp));
            hand.begin_unnamed(*ssrc);
        }
        if let Some(known) = numbers.get(ssrc) {
            (hand.sequence, hand.timestamp) = *known;
        }
        for id in 0..60_u8 {
            match kind {
                Kind::Audio => {
                    hand.say(&mut world, LOUD);
                    world.run(PACKET_TIME);
                }
                Kind::Video => film(&mut world, &mut hand, &frame(id, id % 10 == 2, 400)),
            }
            sent += 1;
        }
    }
    world.assert_invariants(51);
    (sent, ears.take_all(viewer))
}

#[test]
fn a_stream_without_a_name_is_known_by_a_format_of_one_line_alone() {
    for kind in [Kind::Audio, Kind::Video] {
        let (sent, heard) = streams(kind, &[0x1111, 0x2222, 0x3333]);
        // A picture goes on with the first keyframe of each.
        assert!(heard.len() + 9 >= sent, "{kind:?}: {} of {sent}", heard.len());
        check_numbers(&heard);
    }
}

#[test]
fn a_publisher_who_goes_back_to_an_earlier_stream_is_heard() {
    for kind in [Kind::Audio, Kind::Video] {
        let (sent, heard) = streams(kind, &[0x1111, 0x2222, 0x1111, 0x2222]);
        assert!(heard.len() + 12 >= sent, "{kind:?}: {} of {sent}", heard.len());
        check_numbers(&heard);
    }
}

#[test]
fn no_datagram_is_longer_than_a_link_takes() {
    let mut world = World::with_slots(52, LAN, SFU, (4, 4));
    let people: Vec<_> = (0..2).map(|_| world.join_filming()).collect();
    let mut hand = Hand::new(&mut world, people[1], Kind::Video);
    let longest = Rc::new(Cell::new(0));
    let (seen, to) = (longest.clone(), world.person(people[0]).address);
    world.eats = Box::new(move |to_server, person, bytes| {
        if !to_server && person == to {
            seen.set(seen.get().max(bytes.len()));
        }
        false
    });
    for id in 0..240_u8 {
        film(&mut world, &mut hand, &frame(id, id % 4 == 0, 1209 + usize::from(id)));
    }
    let [v4, _] = MAX_UDP;
    assert!(longest.get() <= v4 && longest.get() > v4 - 8, "{}", longest.get());
    let stats = world.stats();
    let too_long = stats.out_drops.get(OutDrop::TooLong) + stats.in_drops.get(InDrop::TooLong);
    assert!(too_long > 0, "they are counted");
}

#[test]
fn feedback_goes_behind_a_report_where_reduced_size_was_not_agreed_on() {
    for reduced_size in [false, true] {
        let link = super::world::Link { loss_permille: 30, ..LAN };
        let mut world = World::with_slots(53, link, SFU, (4, 4));
        world.lacks.reduced_size = !reduced_size;
        let people: Vec<_> = (0..2).map(|_| world.join_filming()).collect();
        let mut openers: BTreeMap<_, _> = BTreeMap::new();
        for key in &people {
            let opener = Opener::new(&world.client(*key).keys.remote);
            openers.insert(world.person(*key).address, opener);
        }
        let mut hand = Hand::new(&mut world, people[1], Kind::Video);
        let (alone, behind) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let counts = (alone.clone(), behind.clone());
        world.eats = Box::new(move |to_server, person, bytes| {
            if to_server || !header::is_rtcp(bytes[1]) {
                return false;
            }
            let mut plain = vec![0; bytes.len()];
            let opener = openers.get_mut(&person).expect("somebody");
            let len = opener.open_rtcp(bytes, &mut plain).expect("sealed for them");
            let first = rtcp::parse(&plain[..len]).next().expect("a packet").expect("read");
            let report =
                matches!(first, rtcp::Packet::SenderReport(_) | rtcp::Packet::ReceiverReport(_));
            let count = if report { &counts.1 } else { &counts.0 };
            count.set(count.get() + 1);
            false
        });
        for id in 0..120_u8 {
            film(&mut world, &mut hand, &frame(id, id % 30 == 0, 900));
        }
        assert!(behind.get() > 3, "{}", behind.get());
        assert_eq!(alone.get() > 0, reduced_size, "{} alone", alone.get());
    }
}

#[test]
fn formats_that_were_not_agreed_on_take_no_line_over_although_they_name_it() {
    for shards in [1, 2] {
        let mut world = World::with_slots(54, LAN, Made { shards, ..SFU }, (4, 4));
        let people: Vec<_> = (0..2).map(|_| world.join_silent(false)).collect();
        let mut hand = Hand::new(&mut world, people[1], Kind::Audio);
        let ears = Ears::of(&mut world, &people[..1]);
        let voice = hand.ssrc();
        for nth in 0..200_u32 {
            hand.say(&mut world, LOUD);
            if nth % 10 == 4 {
                // An event on an SSRC of its own, with the line's MID.
                let said = (hand.sequence, hand.timestamp);
                hand.begin_anew(voice ^ 0x5555);
                hand.sequence = hand.sequence.wrapping_add(nth as u16);
                let event = [11, 10, 0, 160];
                let (payload_type, level_dbov) = (TELEPHONE_EVENT, None);
                let packet = Packet { payload_type, marker: false, level_dbov, payload: &event };
                hand.send(&mut world, packet);
                hand.begin_unnamed(voice);
                (hand.sequence, hand.timestamp) = said;
            }
            world.run(PACKET_TIME);
        }
        let heard = ears.take_all(people[0]);
        assert!(heard.len() >= 198, "{shards}: {} of 200", heard.len());
        check_numbers(&heard);
    }
}
