//! Mixed rooms: a packet that nobody would hear stays closed, and what others can do with that is bounded.

use super::hand::{Ears, Hand, LOUD, PACKET, PACKET_TIME, SILENT};
use super::world::{LAN, Made, World};
use engine::drops::InDrop;
use engine::room::Topology;
use engine::{Command, PersonKey};
use rtp::header::{AudioLevel, HeaderWriter};
use rtp::negotiated::Kind;
use std::time::Duration;

const MIXED: Made = Made { audio: Topology::Mcu, video: Topology::None, shards: 1 };

/// A mixed room of somebody who listens and so many whose sound is made by hand. All of them said one packet.
fn room(talkers: usize) -> (World, PersonKey, Vec<Hand>) {
    let mut world = World::of(3, LAN, MIXED);
    let listener = world.join_listening();
    let people: Vec<_> = (0..talkers).map(|_| world.join_silent(false)).collect();
    world.run(Duration::from_millis(100));
    let mut hands: Vec<_> =
        people.into_iter().map(|key| Hand::new(&mut world, key, Kind::Audio)).collect();
    say(&mut world, &mut hands, &vec![SILENT; talkers], 1);
    (world, listener, hands)
}

/// So many times 20 ms in which each says a packet of a level.
fn say(world: &mut World, hands: &mut [Hand], levels_dbov: &[u8], times: u32) {
    for _ in 0..times {
        hands.iter_mut().zip(levels_dbov).for_each(|(hand, level)| hand.say(world, *level));
        world.run(PACKET_TIME);
    }
}

/// Packets that stayed closed, that were opened for nothing, and that went to the mixer.
fn counts(world: &World) -> (u64, u64, u64) {
    let stats = world.stats();
    (stats.glanced, stats.unheard, stats.mix_in)
}

/// What a round of packets changed.
fn changes(world: &mut World, round: impl FnOnce(&mut World)) -> (u64, u64, u64) {
    let before = counts(world);
    round(world);
    let after = counts(world);
    (after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

#[test]
fn of_sixteen_quiet_packets_fifteen_stay_closed_and_count_all_the_same() {
    let (mut world, _, mut hands) = room(1);
    let key = hands[0].key;
    let ears = Ears::of(&mut world, &[key]);
    let said = changes(&mut world, |world| say(world, &mut hands, &[SILENT], 160));
    assert_eq!(said, (150, 10, 0));
    world.run(Duration::from_secs(3));
    let report = ears.take_reports().pop().expect("a report");
    let newest = hands[0].sequence.wrapping_sub(1);
    assert_eq!((report.cumulative_lost, report.highest_sequence as u16), (0, newest));
    let said = changes(&mut world, |world| say(world, &mut hands, &[SILENT], 2));
    assert_eq!(said, (1, 1, 0), "the first after silence is opened");
    let remote = world.person(key).address.into();
    world.command(key, Command::Move { person: key, remote });
    let said = changes(&mut world, |world| say(world, &mut hands, &[SILENT], 2));
    assert_eq!(said, (1, 1, 0), "and after a change of address");
    world.assert_invariants(3);
}

#[test]
fn whose_client_tells_no_level_or_silence_alone_is_heard_in_a_mix() {
    for claims in [None, Some(SILENT)] {
        let (mut world, _, mut hands) = room(5);
        hands[0].claims = Some(claims);
        say(&mut world, &mut hands, &[LOUD, SILENT, SILENT, SILENT, SILENT], 200);
        let said = changes(&mut world, |world| {
            say(world, &mut hands, &[LOUD, SILENT, SILENT, SILENT, SILENT], 50);
        });
        assert_eq!(said.2, 50, "{claims:?}: all of them go to the mixer");
        let mixed = |world: &World| world.mixers[0].stats().jitter.decoded;
        let before = mixed(&world);
        say(&mut world, &mut hands, &[LOUD, SILENT, SILENT, SILENT, SILENT], 50);
        assert!(mixed(&world) >= before + 48, "{claims:?}: and are mixed");
        assert!(world.room.speaking().map(|(who, _)| who).eq([hands[0].key]), "{claims:?}");
        say(&mut world, &mut hands, &[SILENT; 5], 100);
        let before = mixed(&world);
        say(&mut world, &mut hands, &[SILENT; 5], 50);
        assert_eq!(mixed(&world), before, "{claims:?}: nobody speaks");
        assert_eq!(world.room.speaking().count(), 0, "{claims:?}");
        world.assert_invariants(3);
    }
}

#[test]
fn a_rollover_is_opened() {
    let (mut world, _, mut hands) = room(1);
    // Up to four before the end of the cycle, in steps that a receiver takes for losses.
    while hands[0].sequence < 65_532 {
        let left = 65_532 - hands[0].sequence;
        hands[0].sequence += left.min(1000);
        say(&mut world, &mut hands, &[SILENT], 1);
    }
    let before = hands[0].sequence;
    let said = changes(&mut world, |world| say(world, &mut hands, &[SILENT], 10));
    assert!(before > 65_500 && hands[0].sequence < 20, "over the end: {}", hands[0].sequence);
    let left = u64::from(u16::MAX - before) + 1;
    assert_eq!(said, (9, 1, 0), "{left} of the old cycle, and the first of the new one is opened");
    let failed = world.stats().in_drops.get(InDrop::AuthenticationFailed);
    assert_eq!(failed, 0, "the cycle was counted");
}

#[test]
fn whoever_is_heard_is_opened_in_their_pauses_and_whoever_is_loud_at_once() {
    let (mut world, _, mut hands) = room(5);
    // Three fill the places of those who are heard; the others are loud enough to be heard alone.
    say(&mut world, &mut hands, &[20, 20, 20, 40, 40], 20);
    let said = changes(&mut world, |world| say(world, &mut hands, &[20, 20, 20, 40, 40], 50));
    let (closed, opened, mixed) = said;
    assert!(closed >= 88 && opened <= 12 && mixed == 150, "{said:?}");
    // A pause of 300 ms within speech: the others do not come near.
    let said = changes(&mut world, |world| {
        say(world, &mut hands, &[SILENT, 20, 20, 50, 50], 15);
        say(world, &mut hands, &[20, 20, 20, 50, 50], 15);
    });
    assert_eq!(said.2, 90, "all of the three who are heard: {said:?}");
    let said = changes(&mut world, |world| say(world, &mut hands, &[20, 20, 20, 50, 10], 5));
    assert_eq!(said.2, 20, "the one who is louder now is opened from the first packet: {said:?}");
    // Once the loud are silent, who was too quiet is heard.
    say(&mut world, &mut hands, &[SILENT, SILENT, SILENT, 50, SILENT], 100);
    let said = changes(&mut world, |world| {
        say(world, &mut hands, &[SILENT, SILENT, SILENT, 50, SILENT], 50);
    });
    assert_eq!(said.2, 50, "{said:?}");
    world.assert_invariants(3);
}

/// A datagram from a participant's address with their SSRC, of somebody who has no keys.
fn forge(world: &mut World, hand: &Hand, sequence: u16, level_dbov: u8) {
    let level = [AudioLevel { voice: true, level_dbov }.to_byte()];
    let id = hand.line.extensions.audio_level.expect("levels were agreed on");
    let ssrc = hand.line.local.expect("it has an SSRC").ssrc;
    let writer = HeaderWriter {
        marker: false,
        payload_type: hand.line.payload_type,
        sequence,
        timestamp: hand.timestamp.wrapping_add(PACKET),
        ssrc,
        extensions: &[(id, &level)],
    };
    let mut bytes = vec![0x5A; 120];
    writer.write(&mut bytes).expect("it fits");
    world.send(hand.key, bytes);
    world.run(Duration::from_millis(1));
    world.run(PACKET_TIME);
}

#[test]
fn forged_packets_are_not_heard_and_keep_nothing_from_being_heard() {
    let (mut world, listener, mut hands) = room(1);
    let next = hands[0].sequence;
    let failed = |world: &World| world.stats().in_drops.get(InDrop::AuthenticationFailed);
    // Fifteen quiet ones are noted, each once; beyond them, and loud, they are found out.
    let forged = changes(&mut world, |world| {
        (0..15).for_each(|n| forge(world, &hands[0], next.wrapping_add(n), SILENT));
    });
    assert_eq!((forged, failed(&world)), ((15, 0, 0), 0));
    let forged = changes(&mut world, |world| {
        forge(world, &hands[0], next, SILENT);
        forge(world, &hands[0], next.wrapping_add(15), SILENT);
        forge(world, &hands[0], next.wrapping_sub(3), SILENT);
        forge(world, &hands[0], next.wrapping_add(3), LOUD);
    });
    assert_eq!((forged, failed(&world)), ((0, 0, 0), 4));
    // What the participant says with these numbers is heard from the first packet on.
    let ears = Ears::of(&mut world, &[listener]);
    let said = changes(&mut world, |world| say(world, &mut hands, &[LOUD], 15));
    assert_eq!(said, (0, 0, 15));
    assert_eq!(world.mixers[0].stats().jitter.duplicate, 0);
    let heard = ears.take_all(listener).len();
    assert!((14..=16).contains(&heard), "a packet a tick: {heard}");
    // The same again is a replay, opened or not.
    let replayed = world.stats().in_drops.get(InDrop::Replayed);
    forge(&mut world, &hands[0], next, SILENT);
    assert_eq!(world.stats().in_drops.get(InDrop::Replayed), replayed + 1);
    world.assert_invariants(3);
}

#[test]
fn silence_from_a_forged_address_is_found_out_after_half_a_second() {
    let (mut world, _, hands) = room(1);
    let before = hands[0].sequence;
    for n in 0..200_u16 {
        forge(&mut world, &hands[0], before.wrapping_add(n), SILENT);
    }
    let (closed, ..) = counts(&world);
    assert!(closed <= 15, "without an opened packet for 0.5 s all are opened: {closed}");
    assert!(world.stats().in_drops.get(InDrop::AuthenticationFailed) >= 185);
}
