//! Sound repeats itself where packets are lost (RED, RFC 2198): on the way to the server, and on the way from it.

use super::hand::{Ears, Hand, LOUD, PACKET_TIME, Packet};
use super::world::{LAN, Link, Made, World};
use engine::drops::OutDrop;
use engine::room::Topology;
use lab::checks::Failure;
use lab::link::{LinkSpec, Loss};
use rtp::negotiated::Kind;
use std::time::Duration;
use wire::room::MediaKind;

const S: Duration = Duration::from_secs(1);
const SFU: Made = Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 1 };
/// 5 % lost each way.
const LOSSY: Link = Link { delay_ms: 25, jitter_ms: 15, loss_permille: 50 };
/// And packets overtake each other.
const OVERTAKING: Link = Link { jitter_ms: 60, ..LOSSY };

/// What all people heard since `from_ms`: packets expected, lost, recovered; and the worst MOS-LQ of a sample.
fn sound(world: &World, from_ms: u64) -> (u64, u64, u64, f64) {
    let samples = world.samples.iter().filter(|sample| sample.t_ms >= from_ms);
    let rows = samples.flat_map(|sample| &sample.sample.received);
    let (mut expected, mut lost, mut recovered, mut worst) = (0, 0, 0, 5.0_f64);
    for row in rows.filter(|row| row.kind == MediaKind::Audio && row.packets_received > 100) {
        expected += row.packets_received + row.packets_lost;
        lost += row.packets_lost;
        recovered += row.packets_recovered.unwrap_or(0);
        worst = worst.min(row.mos_lq.unwrap_or(1.0));
    }
    (expected, lost, recovered, worst)
}

/// Four people who talk and show a picture, behind such links, from the twentieth second of a minute on.
fn room(seed: u64, link: Link, made: Made, red: bool) -> World {
    let mut world = World::of(seed, link, made);
    world.red = red;
    let people = (0..4).map(|_| world.join(true)).count();
    assert_eq!(people, 4);
    world.run(60 * S);
    world.assert_invariants(seed);
    world
}

#[test]
fn sound_that_is_lost_each_way_is_heard_all_the_same() {
    for (seed, shards) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
        let world = room(seed, LOSSY, Made { shards, ..SFU }, true);
        let (expected, lost, recovered, worst) = sound(&world, 20_000);
        let percent = |part: u64| 100.0 * part as f64 / expected as f64;
        assert!(expected > 20_000 && percent(lost) > 4.0, "seed {seed}: {lost} of {expected}");
        assert!(percent(lost - recovered.min(lost)) < 1.0, "seed {seed}: {recovered} of {lost}");
        assert!(worst >= 2.8, "seed {seed}: {worst}");
        let restored: u64 = world.shards.iter().map(|shard| shard.stats().restored).sum();
        assert!(restored > 400, "seed {seed}: {restored} restored on the way to the server");
        let plain = room(seed, LOSSY, Made { shards, ..SFU }, false);
        let (expected, lost, recovered, _) = sound(&plain, 20_000);
        assert!(100 * lost > 8 * expected && recovered == 0, "seed {seed}: {lost} of {expected}");
    }
}

#[test]
fn what_is_restored_and_then_comes_late_does_not_leave_twice() {
    for (seed, shards) in [(9, 1), (10, 2)] {
        let world = room(seed, OVERTAKING, Made { shards, ..SFU }, true);
        let restored: u64 = world.shards.iter().map(|shard| shard.stats().restored).sum();
        assert!(restored > 500, "seed {seed}: {restored} restored");
        for shard in &world.shards {
            assert_eq!(shard.stats().out_drops.get(OutDrop::SealRefused), 0, "seed {seed}");
        }
        let (expected, lost, recovered, _) = sound(&world, 20_000);
        let plain = room(seed, OVERTAKING, Made { shards, ..SFU }, false);
        let (heard, before) = (lost - recovered.min(lost), sound(&plain, 20_000).1);
        assert!(3 * heard < 2 * before, "seed {seed}: {heard} and {before} of {expected} lost");
    }
}

#[test]
fn a_packet_that_stayed_closed_is_not_restored() {
    let mixed = Made { audio: Topology::Mcu, video: Topology::None, shards: 1 };
    let mut world = World::of(12, LAN, mixed);
    (world.red, world.red_first) = (true, true);
    let key = world.join_silent(false);
    let mut hand = Hand::new(&mut world, key, Kind::Audio);
    let red = hand.line.red_payload_type.expect("RED was agreed on");
    // Each packet repeats the one before it: silence, and speech now and then.
    for n in 0..400_u32 {
        let level_dbov = Some(if n % 50 < 40 { 127 } else { 20 });
        let opus = hand.line.payload_type;
        let (before, now) = ([0xF8, n as u8], [0xF8, n as u8 + 1]);
        let head = [0x80 | opus, (960_u32 >> 6) as u8, ((960_u32 & 0x3F) << 2) as u8, 2, opus];
        let payload = [&head[..], &before, &now].concat();
        let packet = Packet { payload_type: red, marker: false, level_dbov, payload: &payload };
        hand.send(&mut world, packet);
        hand.timestamp = hand.timestamp.wrapping_add(960);
        world.run(PACKET_TIME);
    }
    let stats = world.stats();
    assert!(stats.glanced > 150 && stats.mix_in > 80, "{stats:?}");
    assert_eq!(stats.restored, 0, "nothing was lost");
}

#[test]
fn a_mix_repeats_itself_too() {
    let mixed = Made { audio: Topology::Mcu, video: Topology::None, shards: 1 };
    let mut world = World::of(5, LOSSY, mixed);
    world.red = true;
    for _ in 0..4 {
        world.join(false);
    }
    world.run(60 * S);
    let (expected, lost, recovered, _) = sound(&world, 20_000);
    assert!(expected > 5000 && 100 * lost > 3 * expected, "{lost} of {expected}");
    assert!(100 * (lost - recovered.min(lost)) < expected, "{recovered} of {lost}");
}

/// Of the frames that the mixer of a room of four played from the twentieth second of a minute on: those made up, those
/// recovered, all; and how long the jitter buffers held them on average, in ms.
fn played(seed: u64, link: Link, red: bool) -> (u64, u64, u64, u64) {
    let mixed = Made { audio: Topology::Mcu, video: Topology::None, shards: 1 };
    let mut world = World::of(seed, link, mixed);
    world.red = red;
    for _ in 0..4 {
        world.join(false);
    }
    world.run(20 * S);
    let before = world.mixers[0].stats().clone();
    world.run(40 * S);
    let stats = world.mixers[0].stats();
    let (concealed, recovered) = (
        stats.jitter.concealed - before.jitter.concealed,
        stats.jitter.recovered - before.jitter.recovered,
    );
    let frames: u64 =
        stats.delays.counts.iter().zip(before.delays.counts).map(|(now, b)| now - b).sum();
    (concealed, recovered, frames, (stats.delays.sum_ms - before.delays.sum_ms) / frames)
}

#[test]
fn a_mixer_hears_what_was_lost_on_the_way_to_it() {
    for seed in [1, 2, 3] {
        let (concealed, _, frames, delay_ms) = played(seed, LOSSY, true);
        println!("seed {seed}: {concealed} of {frames} made up, {delay_ms} ms");
        assert!(
            frames > 3_000 && 100 * concealed <= frames,
            "seed {seed}: {concealed} of {frames}"
        );
        let (lost, recovered, frames, without_ms) = played(seed, LOSSY, false);
        println!("seed {seed}: without: {lost} of {frames}, {recovered} by FEC, {without_ms} ms");
        assert!(100 * lost > 2 * frames, "seed {seed}: {lost} of {frames} without RED");
        let (_, _, _, calm_ms) = played(seed, LAN, true);
        println!("seed {seed}: {calm_ms} ms where nothing is lost");
        assert!(calm_ms < 50 && delay_ms > calm_ms, "seed {seed}: {delay_ms} and {calm_ms} ms");
    }
}

#[test]
fn nothing_is_repeated_where_nothing_is_lost_and_no_longer_once_it_is_not() {
    let world = room(6, LAN, SFU, true);
    assert_eq!((world.stats().repeated, world.stats().restored), (0, 0));
    assert_eq!(sound(&world, 0).2, 0);
    let mut world = World::of(7, LOSSY, SFU);
    world.red = true;
    let people: Vec<_> = (0..3).map(|_| world.join(true)).collect();
    world.run(20 * S);
    let lossy = world.stats().repeated;
    assert!(lossy > 1000, "{lossy}");
    for key in people {
        world.set_link(key, lab::link::LinkSpec::default());
    }
    world.run(15 * S);
    let settled = (world.stats().repeated, world.stats().restored);
    world.run(15 * S);
    assert_eq!((world.stats().repeated, world.stats().restored), settled);
    let failures: Vec<Failure> = world.failures();
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn who_names_red_first_gets_it_all_the_time_and_who_did_not_agree_never() {
    let mut world = World::with_slots(8, LAN, SFU, (4, 4));
    let speaker = world.join_silent(false);
    (world.red, world.red_first) = (true, true);
    let first = world.join_silent(false);
    (world.red, world.red_first) = (false, false);
    let never = world.join_silent(false);
    let mut hand = Hand::new(&mut world, speaker, Kind::Audio);
    let ears = Ears::of(&mut world, &[first, never]);
    for _ in 0..50 {
        hand.say(&mut world, LOUD);
        world.run(PACKET_TIME);
    }
    let (with, without) = (ears.take_all(first), ears.take_all(never));
    assert_eq!((with.len(), without.len()), (50, 50));
    assert_eq!(with[0].payload, without[0].payload, "nothing came before the first");
    for (n, pair) in without.windows(2).enumerate() {
        let packet = &with[n + 1];
        assert_eq!(packet.payload_type, 63);
        let blocks: Vec<_> = rtp::red::redundant(&packet.payload).collect();
        assert_eq!((blocks.len(), blocks[0].packets_back, blocks[0].offset), (1, 1, 960));
        assert_eq!(packet.payload[blocks[0].bytes.clone()], pair[0].payload);
        assert_eq!(packet.payload[rtp::red::primary(&packet.payload).unwrap()], pair[1].payload);
    }
    world.assert_invariants(8);
}

/// The same room behind links that lose `permille` in runs of four packets on average.
fn room_of_bursts(seed: u64, permille: u64) -> World {
    let mut world = World::of(seed, Link { loss_permille: permille, ..LOSSY }, SFU);
    world.red = true;
    let people: Vec<_> = (0..4).map(|_| world.join(true)).collect();
    let loss = Loss::Bursts { share: permille as f64 / 1000.0, mean_packets: 4.0 };
    let spec = LinkSpec { delay: Duration::from_millis(25), loss, ..LinkSpec::default() };
    people.iter().for_each(|key| world.set_link(*key, spec));
    world.run(60 * S);
    world.assert_invariants(seed);
    world
}

#[test]
fn sound_that_is_lost_in_runs_is_heard_by_a_second_copy() {
    for seed in [11, 12] {
        let world = room_of_bursts(seed, 100);
        let (expected, lost, recovered, _) = sound(&world, 20_000);
        assert!(10 * lost > expected, "seed {seed}: {lost} of {expected}");
        // With one copy alone 7 % are.
        assert!(25 * (lost - recovered) < expected, "seed {seed}: {recovered} of {lost}");
    }
}

#[test]
fn pictures_that_are_lost_each_way_move_all_the_same() {
    for seed in [13, 14, 15] {
        let world = room(seed, LOSSY, SFU, true);
        let samples = world.samples.iter().filter(|sample| sample.t_ms >= 20_000);
        let rows = samples.flat_map(|sample| &sample.sample.received);
        let rows: Vec<_> = rows.filter(|row| row.kind == MediaKind::Video).collect();
        let froze: f64 = rows.iter().filter_map(|row| row.freeze_ratio).sum();
        let share = froze / rows.len() as f64;
        // Without a second copy of what is sent again it is 3 % and more.
        assert!(rows.len() > 100 && share < 0.014, "seed {seed}: still for {share:.4} of the time");
        assert!(world.stats().keyframes_asked < 20, "{:?}", world.stats());
    }
}
