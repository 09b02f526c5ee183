//! What goes first where there is too little: of a connection, of the CPU.

use super::world::{LAN, Made, Random, World};
use engine::drops::OutDrop;
use engine::room::Topology;
use engine::shard::Stats;
use engine::{Command, PersonKey, Priority};
use lab::record::SampleRecord;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use wire::room::MediaKind;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The payload type of pictures.
const PICTURES: u8 = 96;

/// Sequence numbers to each person, by SSRC, as they left.
type Sequences = Rc<RefCell<BTreeMap<(SocketAddr, u32), Vec<u16>>>>;

/// Four people who all send sound and pictures, the first by TCP if asked.
fn four(tcp: bool) -> (World, Vec<PersonKey>, Sequences) {
    let mut world = World::new(11, LAN);
    let sequences = Sequences::default();
    let seen = sequences.clone();
    world.eats = Box::new(move |to_server, person, bytes| {
        if !to_server && !rtp::header::is_rtcp(bytes[1]) {
            let ssrc = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
            let sequence = u16::from_be_bytes(bytes[2..4].try_into().unwrap());
            seen.borrow_mut().entry((person, ssrc)).or_default().push(sequence);
        }
        false
    });
    let people = (0..4).map(|place| {
        world.by_tcp = tcp && place == 0;
        world.join(true)
    });
    let people = people.collect();
    world.run(seconds(5));
    (world, people, sequences)
}

fn assert_no_gap(sequences: &Sequences) {
    for ((person, ssrc), left) in sequences.borrow().iter() {
        for pair in left.windows(2) {
            assert_eq!(pair[1], pair[0].wrapping_add(1), "to {person}, SSRC {ssrc:#x}");
        }
    }
}

/// Rows of a kind that `listener` received between two times.
fn rows(world: &World, listener: PersonKey, kind: MediaKind, from: u64, to: u64) -> Vec<u64> {
    let id = format!("p-{}", listener.0);
    let records = world.samples.iter().filter(|record| record.sample.participant == id);
    let within = records.filter(|record| (from..to).contains(&record.t_ms));
    let packets = |record: &SampleRecord| {
        let of_kind = record.sample.received.iter().filter(|row| row.kind == kind);
        of_kind.map(|row| row.packets_received).collect::<Vec<_>>()
    };
    within.flat_map(packets).collect()
}

fn assert_hears_and_sees_all(world: &World, listener: PersonKey, from: u64, to: u64) {
    for kind in [MediaKind::Audio, MediaKind::Video] {
        let rows = rows(world, listener, kind, from, to);
        assert!(!rows.is_empty() && rows.len().is_multiple_of(3), "{kind:?}: {rows:?}");
        assert!(rows.iter().all(|packets| *packets >= 140), "{kind:?}: {rows:?}");
    }
}

#[test]
fn tcp_back_pressure_holds_pictures_back_and_lets_sound_through() {
    let (mut world, people, sequences) = four(true);
    let behind = world.person(people[0]).address;
    let asked = world.stats().keyframes_asked;
    world.behind.insert(behind, Priority::Low);
    world.run(seconds(8));
    let held = world.stats().clone();
    assert!(held.out_drops.get(OutDrop::ConnectionBehind) > 500, "{held:?}");
    assert_eq!(held.keyframes_asked, asked, "nobody is asked for a picture that could not go");
    assert!(rows(&world, people[0], MediaKind::Video, 8_500, 12_500).iter().all(|n| *n == 0));
    let sound = rows(&world, people[0], MediaKind::Audio, 8_500, 12_500);
    assert!(sound.len() == 6 && sound.iter().all(|n| n.abs_diff(150) <= 1), "{sound:?}");
    people[1..].iter().for_each(|who| assert_hears_and_sees_all(&world, *who, 5_500, 12_500));
    // He has caught up: pictures go on, from keyframes, and no number is missing.
    world.behind.clear();
    world.run(seconds(8));
    assert_hears_and_sees_all(&world, people[0], 17_500, 21_000);
    assert_no_gap(&sequences);
    world.assert_invariants(11);
}

#[test]
fn a_full_lane_between_shards_makes_no_gap_in_a_picture() {
    let made = Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 2 };
    let mut world = World::of(12, LAN, made);
    let sequences = Sequences::default();
    let seen = sequences.clone();
    world.eats = Box::new(move |to_server, person, bytes| {
        if !to_server && bytes[1] & 0x7F == PICTURES {
            let ssrc = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
            let sequence = u16::from_be_bytes(bytes[2..4].try_into().unwrap());
            seen.borrow_mut().entry((person, ssrc)).or_default().push(sequence);
        }
        false
    });
    let people: Vec<PersonKey> = (0..4).map(|_| world.join(true)).collect();
    world.run(seconds(5));
    let sum = |world: &World, of: fn(&Stats) -> u64| -> u64 {
        world.shards.iter().map(|shard| of(shard.stats())).sum()
    };
    let again = |world: &World| sum(world, |stats| stats.resent + stats.keyframes_asked);
    let before = again(&world);
    world.lanes_full = Some(Rc::new(RefCell::new(Random(12))));
    world.run(seconds(8));
    assert!(sum(&world, |stats| stats.relay_full) > 100, "sound that is late is lost");
    assert_eq!(again(&world), before, "sent again or asked for");
    for who in people {
        let rows = rows(&world, who, MediaKind::Video, 8_500, 12_500);
        assert!(!rows.is_empty() && rows.iter().all(|packets| *packets >= 140), "{rows:?}");
    }
    assert_no_gap(&sequences);
    world.assert_invariants(12);
}

#[test]
fn a_full_send_buffer_makes_no_gap_and_costs_pictures_before_sound() {
    let (mut world, people, sequences) = four(false);
    world.full = Some(Rc::new(RefCell::new(Random(11))));
    world.run(seconds(8));
    let refused = world.stats().out_drops.get(OutDrop::SendBufferFull);
    assert!(refused > 200, "{refused}");
    for who in &people {
        let sound = rows(&world, *who, MediaKind::Audio, 8_500, 12_500);
        assert!(sound.len() == 6 && sound.iter().all(|n| *n > 130), "{sound:?}");
    }
    assert_no_gap(&sequences);
    // As long as there is no room for pictures at all, sound is whole.
    world.full = None;
    world.behind = people.iter().map(|who| (world.person(*who).address, Priority::Low)).collect();
    world.run(seconds(6));
    for who in &people {
        let sound = rows(&world, *who, MediaKind::Audio, 16_500, 18_500);
        assert!(!sound.is_empty() && sound.iter().all(|n| n.abs_diff(150) <= 1), "{sound:?}");
        assert!(rows(&world, *who, MediaKind::Video, 16_500, 18_500).iter().all(|n| *n == 0));
    }
    world.behind.clear();
    world.run(seconds(8));
    people.iter().for_each(|who| assert_hears_and_sees_all(&world, *who, 23_500, 27_000));
    assert_no_gap(&sequences);
    world.assert_invariants(11);
}

#[test]
fn a_subscriber_who_is_stalled_delays_nobody() {
    let (mut world, people, sequences) = four(true);
    let stalled = world.person(people[0]).address;
    world.behind.insert(stalled, Priority::High);
    let before = sequences.borrow().iter().filter(|((to, _), _)| *to == stalled).count();
    world.run(seconds(8));
    let heard = rows(&world, people[0], MediaKind::Audio, 8_500, 12_500);
    assert!(before > 0 && heard.iter().all(|n| *n == 0), "{heard:?}");
    people[1..].iter().for_each(|who| assert_hears_and_sees_all(&world, *who, 5_500, 12_500));
    world.behind.clear();
    world.run(seconds(8));
    people.iter().for_each(|who| assert_hears_and_sees_all(&world, *who, 17_500, 21_000));
    assert_no_gap(&sequences);
    world.assert_invariants(11);
}

#[test]
fn when_the_cpu_is_short_pictures_go_before_sound() {
    let (mut world, people, sequences) = four(false);
    world.read_late = Duration::from_millis(80);
    world.run(seconds(8));
    let short = world.stats().clone();
    assert!(short.without_pictures_eighths > 3, "{short:?}");
    assert!(short.out_drops.get(OutDrop::CpuShort) > 500, "{short:?}");
    for person in &people {
        let sound = rows(&world, *person, MediaKind::Audio, 5_500, 12_500);
        assert!(sound.iter().all(|n| n.abs_diff(150) <= 1), "{sound:?}");
    }
    assert!(rows(&world, people[0], MediaKind::Video, 8_500, 12_500).iter().all(|n| *n == 0));
    // It is over: all see again.
    world.read_late = Duration::ZERO;
    world.run(seconds(15));
    assert_eq!(world.stats().without_pictures_eighths, 0);
    people.iter().for_each(|who| assert_hears_and_sees_all(&world, *who, 24_000, 28_000));
    assert_no_gap(&sequences);
    world.assert_invariants(11);
}

#[test]
fn nothing_is_sent_to_who_gave_no_consent_for_too_long() {
    let (mut world, people, sequences) = four(false);
    let (silent, address) = (people[0], world.person(people[0]).address);
    world.command(silent, Command::Suspend { person: silent });
    world.run(seconds(1));
    let sent = |sequences: &Sequences| {
        let sequences = sequences.borrow();
        sequences.iter().filter(|((to, _), _)| *to == address).map(|(_, s)| s.len()).sum::<usize>()
    };
    let before = sent(&sequences);
    world.run(seconds(6));
    assert_eq!(sent(&sequences), before);
    assert!(world.stats().out_drops.get(OutDrop::NoConsent) > 1000, "{:?}", world.stats());
    people[1..].iter().for_each(|who| assert_hears_and_sees_all(&world, *who, 5_500, 12_001));
    // He is back.
    world.command(silent, Command::Begin { person: silent });
    world.run(seconds(9));
    people.iter().for_each(|who| assert_hears_and_sees_all(&world, *who, 17_500, 21_001));
    assert_no_gap(&sequences);
    world.assert_invariants(11);
}
