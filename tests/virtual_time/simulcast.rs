//! Layers: each receiver gets the largest that their path carries and their screen needs, in one continuous stream, and
//! publishers send only what somebody wants.
//!
//! `MOIM_SEEDS` says how many seeds (20), `MOIM_SEED` runs one alone.

use super::downlink::{live_behind, received, slow};
use super::hand::{Ears, Hand, Heard, Packet};
use super::seeds;
use super::world::{LAN, Link, Made, Random, SIZES, World};
use engine::PersonKey;
use engine::room::Topology;
use lab::bots::VideoSource;
use rtp::vp8::Descriptor;
use std::collections::BTreeSet;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
/// From one picture to the next.
const FRAME_TIME: Duration = Duration::from_millis(50);
/// A keyframe comes by itself each so many frames; others come when they are asked for.
const KEYFRAME_EVERY: u32 = 100;

fn made(shards: u16) -> Made {
    Made { audio: Topology::Sfu, video: Topology::Sfu, shards }
}

/// Four people who send sound and three layers of pictures; what comes to the first passes a link of so many kbit/s.
fn room(seed: u64, shards: u16, rate_kbps: u32) -> (World, Vec<PersonKey>) {
    let mut world = World::of(seed, LAN, made(shards));
    (world.clip, world.layers) = (VideoSource::Simulcast, 3);
    let people: Vec<_> = (0..4).map(|_| world.join(true)).collect();
    world.set_downlink(people[0], slow(rate_kbps));
    (world, people)
}

/// The heights of the pictures that came to a person in their samples since `from_ms`.
fn heights(world: &World, key: PersonKey, from_ms: u64) -> BTreeSet<u32> {
    let name = format!("bot-{}", key.0);
    let samples = world.samples.iter().filter(|s| s.person == name && s.t_ms >= from_ms);
    let rows = samples.flat_map(|sample| &sample.sample.received);
    rows.filter(|row| row.packets_received > 0).filter_map(|row| row.frame_height).collect()
}

#[test]
fn a_slow_link_carries_sound_and_lower_layers_and_others_get_the_highest() {
    for (seed, shards) in [(1, 1), (2, 2), (3, 1)] {
        let (mut world, people) = room(seed, shards, 1500);
        let pictures = live_behind(&mut world, people[0], 1500, seed);
        let seen = heights(&world, people[0], 13_000);
        assert_eq!((pictures.len(), world.paused.len()), (3, 0), "seed {seed}: all flow, {seen:?}");
        for other in &people[1..] {
            let (pictures, _) = received(&world, *other, 13_000);
            let full = heights(&world, *other, 16_000);
            assert_eq!((pictures.len(), full), (3, [480].into()), "seed {seed}");
            assert_eq!(world.downlink(*other).queue_full, 0, "seed {seed}");
        }
        world.assert_invariants(seed);
    }
}

#[test]
fn a_publisher_who_sends_nothing_yet_keeps_no_other_picture_small() {
    for shards in [1, 2] {
        let mut world = World::of(9, LAN, made(shards));
        (world.clip, world.layers) = (VideoSource::Simulcast, 3);
        let silent = world.join_filming();
        let people: Vec<_> = (0..3).map(|_| world.join(true)).collect();
        world.run(20 * S);
        for key in people {
            assert_eq!(heights(&world, key, 10_000), [480].into(), "{key:?} on {shards} shards");
        }
        world.leave(silent);
        world.assert_invariants(9);
    }
}

#[test]
fn a_link_for_sound_and_two_small_pictures_says_which_one_rests() {
    let (mut world, people) = room(7, 1, 420);
    world.run(60 * S);
    let (pictures, sound) = received(&world, people[0], 30_000);
    // The estimate dips now and then: the last picture rests for a moment, too.
    assert!(!world.paused.is_empty() && world.stats().rested < 10, "{:?}", world.stats());
    assert!(!pictures.is_empty() && sound <= 170.0, "{pictures:?}, sound {sound:.0} ms late");
    world.assert_invariants(7);
}

#[test]
fn who_shows_a_picture_small_gets_the_small_one_and_its_publisher_sends_no_other() {
    for shards in [1, 2] {
        let mut world = World::of(8, LAN, made(shards));
        (world.clip, world.layers) = (VideoSource::Simulcast, 3);
        // Twenty keys are a shard's: the third is on another one.
        let people: Vec<_> = (0..3).map(|_| world.join(true)).collect();
        let last = people[2];
        world.run(10 * S);
        assert_eq!(heights(&world, last, 6_000), [480].into());
        let slots: Vec<String> = (0..3).map(|n| format!("v{n}")).collect();
        for viewer in people.iter().copied() {
            slots.iter().for_each(|slot| world.show(viewer, slot, SIZES[0]));
        }
        world.run(10 * S);
        assert_eq!(heights(&world, last, 15_000), [180].into());
        assert!(world.wanted.len() == 3 && world.wanted.values().all(|layer| *layer == 0));
        let sent = world.stats_in().rtp_in_bytes;
        world.run(5 * S);
        let kbps = (world.stats_in().rtp_in_bytes - sent) * 8 / 5000;
        assert!(kbps < 3 * 260, "three voices and three small pictures: {kbps} kbit/s");
        // One of them looks closer: the publisher sends more at once.
        slots.iter().for_each(|slot| world.show(last, slot, SIZES[1]));
        world.run(6 * S);
        assert_eq!(heights(&world, last, 28_000), [360].into());
        assert_eq!(heights(&world, people[0], 28_000), [180].into());
        // Nobody sees them: nothing comes.
        slots.iter().for_each(|slot| world.show(last, slot, 0));
        world.run(S);
        let before = world.downlink(last).bytes;
        world.run(5 * S);
        let kbps = (world.downlink(last).bytes - before) * 8 / 5000;
        assert!(kbps < 2 * 60, "two voices alone: {kbps} kbit/s");
        slots.iter().for_each(|slot| world.show(last, slot, SIZES[2]));
        world.run(8 * S);
        assert!(heights(&world, last, 42_000).contains(&480));
        world.assert_invariants(8);
    }
}

/// A VP8 frame in one packet: its picture id, its layer, its number there, and whether it is a keyframe.
fn frame(layer: usize, number: u32, keyframe: bool) -> Vec<u8> {
    let id = (number as u16 & 0x7FFF) | 0x8000;
    let first = if keyframe { 0x10 } else { 0x11 };
    let mut payload = vec![0x90, 0x80];
    payload.extend(id.to_be_bytes());
    payload.extend([first, 0, 0, 0x9D, 0x01, 0x2A, 0x40, 1, 0xB4, 0]);
    payload.resize(100 << layer, 0);
    let tag = [&[layer as u8][..], &number.to_be_bytes()].concat();
    payload.extend(tag);
    payload
}

/// The layer, number and keyframe of a frame that left.
fn tag(payload: &[u8]) -> (u8, u32, bool) {
    let (rest, number) = payload.split_last_chunk::<4>().expect("it has a tag");
    let keyframe = Descriptor::parse(payload).expect("it is VP8").keyframe;
    (*rest.last().expect("it has a layer"), u32::from_be_bytes(*number), keyframe)
}

/// A receiver's stream: time goes on, and each frame is a keyframe or follows the one that it refers to. Numbers and
/// picture ids are missing only where packets were `lost` on their way to the server. Returns how often the layer changed.
fn check_stream(seed: u64, heard: &[Heard], lost: bool) -> usize {
    let mut switches = 0;
    for (n, pair) in heard.windows(2).enumerate() {
        let who = format!("seed {seed}, packet {n}");
        let [old, new] = [&pair[0], &pair[1]];
        let step = new.sequence.wrapping_sub(old.sequence);
        assert!(step == 1 || (lost && step < 100), "{who}: {step} numbers further");
        let id = |heard: &Heard| Descriptor::parse(&heard.payload).unwrap().picture_id.unwrap();
        // Each frame is one packet.
        assert_eq!(id(new), (id(old) + step) & 0x7FFF, "{who}: a picture id");
        let passed = new.timestamp.wrapping_sub(old.timestamp);
        // A slot may be hidden for a while.
        assert!((1..90_000 * 20).contains(&passed), "{who}: {passed} ticks");
        let ((layer, number, _), (next_layer, next, keyframe)) =
            (tag(&old.payload), tag(&new.payload));
        let follows = (next_layer, next) == (layer, number + u32::from(step));
        assert!(follows || keyframe, "{who}: ({layer}, {number}) before ({next_layer}, {next})");
        switches += usize::from(layer != next_layer);
    }
    switches
}

/// Sends a film in three layers by hand, while viewers show it at random sizes, and layers end and come again.
fn film(seed: u64) -> usize {
    let shards = 1 + (seed % 2) as u16;
    let mut random = Random(seed);
    let loss_permille = if seed.is_multiple_of(3) { 20 } else { 0 };
    let link = Link { delay_ms: 2 + random.below(30), jitter_ms: 0, loss_permille };
    let mut world = World::with_slots(seed, link, made(shards), (4, 1));
    world.layers = 3;
    let filming = world.join_filming();
    let viewers: Vec<_> = (0..4).map(|_| world.join_listening()).collect();
    let mut hands: Vec<Hand> =
        (0..3).map(|layer| Hand::layer(&mut world, filming, layer)).collect();
    let ears = Ears::of(&mut world, &viewers);
    let mut numbers = [0_u32; 3];
    let mut sends = [true; 3];
    let mut began = [true; 3];
    for step in 0..400 {
        if random.below(20) == 0 {
            let layer = 1 + random.below(2) as usize;
            (sends[layer], began[layer]) = (!sends[layer], true);
        }
        if random.below(10) == 0 {
            let viewer = viewers[random.below(4) as usize];
            world.show(viewer, "v0", [0, SIZES[0], SIZES[1], SIZES[2]][random.below(4) as usize]);
        }
        for layer in 0..3 {
            let hand = &mut hands[layer];
            hand.timestamp = hand.timestamp.wrapping_add(4500);
            if !sends[layer] {
                continue;
            }
            let asked = random.below(8) == 0;
            let keyframe = std::mem::take(&mut began[layer]) || asked || step % KEYFRAME_EVERY == 0;
            let payload = frame(layer, numbers[layer], keyframe);
            numbers[layer] += 1;
            let payload_type = hand.line.payload_type;
            hand.send(
                &mut world,
                Packet { payload_type, marker: true, level_dbov: None, payload: &payload },
            );
        }
        world.run(FRAME_TIME);
    }
    world.run(S);
    world.assert_invariants(seed);
    let (mut switches, mut packets) = (0, 0);
    for viewer in viewers {
        let slot = world.slot_ssrc(viewer, "v0");
        let mut heard = ears.take_all(viewer);
        // What was sent again has numbers of its own.
        heard.retain(|packet| packet.ssrc == slot);
        packets += heard.len();
        switches += check_stream(seed, &heard, loss_permille > 0);
    }
    assert!(packets > 200, "seed {seed}: {packets} packets");
    switches
}

#[test]
fn a_receiver_sees_one_stream_whatever_layers_flow() {
    let seeds = seeds(20, &[]);
    let count = seeds.len();
    let switches: usize = seeds.into_iter().map(film).sum();
    assert!(switches > 10 * count, "{switches} switches in {count} runs");
}
