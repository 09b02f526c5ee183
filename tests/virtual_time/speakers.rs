//! Rooms with more voices and pictures than slots: whoever speaks has one, from his first syllable on.

use super::hand::{Ears, Hand, Heard, LOUD, PACKET, PACKET_TIME, SILENCE, SILENT, VOICE};
use super::world::{LAN, Link, Made, World};
use engine::PersonKey;
use engine::room::Topology;
use rtp::negotiated::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A room of people who send sound by hand, and have few slots for that of others.
struct Few {
    world: World,
    hands: Vec<Hand>,
}

impl Few {
    fn new(people: usize, slots: (u32, u32), shards: u16, link: Link) -> Self {
        let video = if slots.1 > 0 { Topology::Sfu } else { Topology::None };
        let made = Made { audio: Topology::Sfu, video, shards };
        let mut world = World::with_slots(21, link, made, slots);
        let keys: Vec<_> = (0..people).map(|_| world.join_silent(slots.1 > 0)).collect();
        let hands = keys.iter().map(|key| Hand::new(&mut world, *key, Kind::Audio)).collect();
        let mut few = Self { world, hands };
        few.pass(50, &[]);
        few
    }

    /// So many packets of everyone, of which those of some are loud.
    fn pass(&mut self, packets: usize, loud: &[usize]) {
        for _ in 0..packets {
            for (place, hand) in self.hands.iter_mut().enumerate() {
                hand.say(&mut self.world, if loud.contains(&place) { LOUD } else { SILENT });
            }
            self.world.run(PACKET_TIME);
        }
    }

    fn key(&self, place: usize) -> PersonKey {
        self.hands[place].key
    }

    /// Whom somebody hears or sees, by place.
    fn shown(&self, place: usize, kind: Kind) -> BTreeSet<usize> {
        let person = self.world.room.person(self.key(place)).expect("he is here");
        let tracks: Vec<_> = person.slot_contents(kind).filter_map(|(_, track)| track).collect();
        let has = |key| {
            let person = self.world.room.person(key).expect("he is here");
            person.tracks.iter().any(|track| tracks.contains(&track.key))
        };
        (0..self.hands.len()).filter(|place| has(self.key(*place))).collect()
    }
}

/// Sequences have no gap, and timestamps go on by a packet's time at least.
fn check_slots(heard: &[Heard]) {
    let mut slots: BTreeMap<u32, &Heard> = BTreeMap::new();
    for packet in heard {
        if let Some(last) = slots.insert(packet.ssrc, packet) {
            let step = packet.timestamp.wrapping_sub(last.timestamp);
            assert_eq!(packet.sequence, last.sequence.wrapping_add(1), "{last:?} {packet:?}");
            assert!((PACKET..48_000 * 60).contains(&step), "{last:?} {packet:?}");
        }
    }
}

/// Whether someone was heard from one packet of his to another, each once, in order, in one slot.
fn check_speech(heard: &[Heard], who: PersonKey, from: u64, until: u64) {
    let of_him = |packet: &&Heard| packet.said().is_some_and(|(key, _)| key == who.0);
    let said: Vec<&Heard> = heard
        .iter()
        .filter(of_him)
        .filter(|packet| (from..until).contains(&packet.said().expect("made by hand").1))
        .collect();
    let counts: Vec<u64> = said.iter().map(|packet| packet.said().expect("by hand").1).collect();
    assert_eq!(counts, (from..until).collect::<Vec<_>>(), "{who:?}");
    for pair in said.windows(2) {
        assert_eq!(pair[1].ssrc, pair[0].ssrc, "one slot");
        assert_eq!(pair[1].timestamp, pair[0].timestamp.wrapping_add(PACKET));
    }
}

#[test]
fn who_begins_to_speak_is_heard_from_his_first_syllable_though_slots_are_short() {
    for shards in [1, 2] {
        let mut few = Few::new(7, (2, 0), shards, LAN);
        let listeners = [few.key(0), few.key(1)];
        let ears = Ears::of(&mut few.world, &listeners);
        let mut all: BTreeMap<PersonKey, Vec<Heard>> = BTreeMap::new();
        for speaker in [3, 4, 5, 6, 2, 3, 6] {
            let from = u64::from(few.hands[speaker].said);
            // Two seconds of speech, half a second of silence.
            few.pass(100, &[speaker]);
            few.pass(25, &[]);
            for listener in listeners {
                let heard = ears.take_all(listener);
                check_speech(&heard, few.key(speaker), from, from + 100);
                all.entry(listener).or_default().extend(heard);
            }
        }
        for heard in all.values() {
            check_slots(heard);
            assert!(heard.iter().map(|packet| packet.ssrc).collect::<BTreeSet<_>>().len() <= 2);
        }
        few.world.assert_invariants(21);
        let shards = &few.world.shards;
        let replayed: u64 = shards.iter().map(|shard| shard.stats().replayed).sum();
        let copies: u64 = shards.iter().map(|shard| shard.stats().copies).sum();
        // Seven times for up to six listeners, the time until it is known: some 100 ms each.
        assert!((1..=7 * 6 * 12).contains(&replayed), "{replayed} of {copies} copies");
    }
}

#[test]
fn whoever_claims_to_speak_and_says_nothing_keeps_no_slot() {
    for shards in [1, 2] {
        let mut few = Few::new(7, (2, 2), shards, LAN);
        let (liars, honest) = ([2, 3, 4, 5], 6);
        liars.iter().for_each(|liar| few.hands[*liar].sounds_like = &SILENCE);
        let listener = few.key(0);
        let ears = Ears::of(&mut few.world, &[listener]);
        few.pass(150, &liars);
        // They are found out one after the other, and none of them holds a slot against who speaks.
        let from = u64::from(few.hands[honest].said);
        few.pass(200, &[2, 3, 4, 5, honest]);
        assert!(few.shown(0, Kind::Audio).contains(&honest), "{shards} shards");
        assert!(few.shown(0, Kind::Video).contains(&honest), "{shards} shards");
        check_speech(&ears.take_all(listener), few.key(honest), from + 25, from + 200);
        // Whoever is doubted and speaks the truth from then on is believed again after 30 s.
        few.hands[2].sounds_like = &VOICE;
        few.pass(1_600, &[]);
        few.pass(50, &[2]);
        assert!(few.shown(0, Kind::Audio).contains(&2), "{shards} shards");
        few.world.assert_invariants(21);
    }
}

#[test]
fn who_tells_no_level_or_silence_alone_is_heard_though_slots_are_short() {
    for shards in [1, 2] {
        for claims in [None, Some(SILENT)] {
            let mut few = Few::new(7, (2, 2), shards, LAN);
            // The others are honest, or their clients tell nothing, either.
            let alike = if claims.is_none() { 0..7 } else { 3..5 };
            few.hands[alike].iter_mut().for_each(|hand| hand.claims = Some(claims));
            let listener = few.key(0);
            let ears = Ears::of(&mut few.world, &[listener]);
            for speaker in [3, 4, 3] {
                // A client that tells silence alone is found out once, within some seconds.
                few.pass(200, &[speaker]);
                let from = u64::from(few.hands[speaker].said);
                few.pass(50, &[speaker]);
                assert!(few.shown(0, Kind::Audio).contains(&speaker), "{shards} {claims:?}");
                assert!(few.shown(0, Kind::Video).contains(&speaker), "{shards} {claims:?}");
                check_speech(&ears.take_all(listener), few.key(speaker), from, from + 50);
                few.pass(100, &[]);
                assert_eq!(few.world.room.speaking().count(), 0, "{shards} {claims:?}");
            }
            few.world.assert_invariants(21);
        }
    }
}

#[test]
fn where_slots_suffice_nothing_is_kept_or_told_again() {
    let mut few = Few::new(3, (2, 0), 1, LAN);
    few.pass(50, &[1]);
    few.pass(50, &[2]);
    assert_eq!(few.world.stats().replayed, 0);
    few.world.assert_invariants(21);
}

#[test]
fn who_speaks_keeps_his_slot_and_who_waits_gets_the_next_that_is_free() {
    let mut few = Few::new(6, (2, 0), 1, LAN);
    few.pass(20, &[2]);
    few.pass(20, &[2, 3]);
    let mut changes = 0;
    let mut before = few.shown(0, Kind::Audio);
    assert_eq!(before, BTreeSet::from([2, 3]));
    // Two more talk over them, in and out: nothing changes as long as both go on.
    for turn in 0..20 {
        few.pass(15, if turn % 2 == 0 { &[2, 3, 4, 5] } else { &[2, 3, 4] });
        let now = few.shown(0, Kind::Audio);
        changes += usize::from(now != before);
        before = now;
    }
    assert_eq!((changes, before), (0, BTreeSet::from([2, 3])));
    few.pass(60, &[2, 4]);
    assert_eq!(few.shown(0, Kind::Audio), BTreeSet::from([2, 4]), "3 is silent, 4 has waited");
    // Slots of people who were loud last stay in pauses.
    few.pass(100, &[]);
    assert_eq!(few.shown(0, Kind::Audio), BTreeSet::from([2, 4]));
    few.world.assert_invariants(21);
}

#[test]
fn a_room_short_of_slots_allocates_no_memory_for_packets() {
    let mut few = Few::new(6, (2, 0), 1, LAN);
    few.pass(50, &[2, 3]);
    few.world.allocations = Some(0);
    few.pass(100, &[2, 3]);
    assert_eq!(few.world.allocations, Some(0));
}

#[test]
fn those_who_spoke_last_are_seen_where_slots_of_pictures_are_short() {
    let mut few = Few::new(5, (4, 2), 1, LAN);
    few.world.run(Duration::from_secs(3));
    for (speaker, seen) in [(3, None), (4, Some([3, 4])), (2, Some([4, 2])), (3, Some([2, 3]))] {
        few.pass(60, &[speaker]);
        if let Some(seen) = seen {
            assert_eq!(few.shown(0, Kind::Video), BTreeSet::from(seen));
            assert_eq!(few.shown(1, Kind::Video), BTreeSet::from(seen));
        }
        few.pass(50, &[]);
    }
    // Who speaks sees the two who spoke before him.
    assert_eq!(few.shown(3, Kind::Video), BTreeSet::from([2, 4]));
    // Who comes later sees those who spoke last, too; and so does everyone when one of them leaves.
    let late = few.world.join_silent(true);
    few.hands.push(Hand::new(&mut few.world, late, Kind::Audio));
    few.pass(5, &[]);
    assert_eq!(few.shown(5, Kind::Video), BTreeSet::from([2, 3]));
    let gone = few.hands.remove(3);
    few.world.leave(gone.key);
    few.pass(50, &[]);
    // The place of each is one less from there on.
    assert_eq!(few.shown(0, Kind::Video), BTreeSet::from([2, 3]), "2, and 4 who spoke before");
    few.world.run(Duration::from_secs(3));
    few.world.assert_invariants(21);
    let rows: Vec<_> = few.world.samples.iter().flat_map(|r| &r.sample.received).collect();
    assert!(rows.iter().all(|row| row.packets_lost == 0), "{rows:?}");
    assert!(rows.iter().all(|row| row.freezes.unwrap_or(0) == 0), "make before break: {rows:?}");
}
