//! The mixer from frames to what listeners decode, with real Opus both ways, in virtual time.

#[path = "mix/everyone.rs"]
mod everyone;
#[path = "mix/longer.rs"]
mod longer;
#[path = "mix/world.rs"]
mod world;

use audio::tone::{Sine, goertzel};
use engine::mix::{MixCommand, TICK_SAMPLES};
use engine::{PersonKey, TrackKey};
use std::collections::BTreeSet;
use std::time::Duration;
use world::{MOST_HEARD, ROOM, Sink, World, cpu_time, tone_hz};

/// Share of its power that a tone keeps through two encoders; a jump in the wave leaves 0.97.
const PURE: f64 = 0.994;

fn set(people: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
    people.into_iter().collect()
}

/// Whether `sound` is one person's tone of a power all along: looked at in overlapping pieces of
/// 50 ms, a whole number of its waves. A gap or a jump in the wave has power elsewhere.
fn check_pure(sound: &[f32], person: u64, power: f64) {
    for at in (0..sound.len() - 2_400).step_by(240) {
        let piece = &sound[at..at + 2_400];
        let tone = goertzel(piece, tone_hz(person));
        let all = piece.iter().map(|x| f64::from(x * x)).sum::<f64>() / 2_400.0;
        assert!((0.85..1.2).contains(&(tone / power)), "at {at}: {tone} of {power}");
        assert!(tone / all > PURE, "at {at}: {} of {all} is another sound", all - tone);
    }
}

/// Ten people who talk and listen and two who listen, 4 dB from one to the next: 10 is loudest.
fn ten(shard_of: impl Fn(u64) -> usize, shards: usize) -> World {
    let mut world = World::new(shards, 3);
    for person in 1..=10 {
        let amplitude = 0.25 * 10_f64.powf(-4.0 * (10 - person) as f64 / 20.0);
        world.talk(person, shard_of(person), amplitude);
    }
    (1..=12).for_each(|person| world.listen(person, shard_of(person), true));
    world
}

fn check_ten(world: &World) {
    for person in 1..=12 {
        let heard = world.hears(person, 500, &set(1..=10));
        assert_eq!(heard, set((8..=10).filter(|other| *other != person)), "{person}");
    }
}

#[test]
fn each_hears_the_loudest_without_himself_and_nobody_else() {
    let mut world = ten(|_| 0, 1);
    world.run_ms(2_000);
    check_ten(&world);
    world.check_ticks(1);
    let stats = world.stats(0);
    assert_eq!((stats.ticks, stats.ticks_late, stats.ticks_skipped), (100, 0, 0));
    assert_eq!((stats.jitter.late, stats.jitter.overflow, stats.packets_refused), (0, 0, 0));
    // S + K: one for those who are not heard and one for each of the three who are.
    let own = world.heard.values().map(|heard| heard.len() as u64).sum::<u64>();
    assert_eq!((stats.encodes_common, stats.encodes_own), (100, own));
    assert!(world.heard.range(20..).all(|(_, heard)| *heard == set([8, 9, 10])));
    assert_eq!(stats.packets, 100 + own);
}

#[test]
fn two_and_three_mixers_give_what_one_gives() {
    let mut one = ten(|_| 0, 1);
    one.run_ms(2_000);
    type ShardOf = fn(u64) -> usize;
    let spread: [(usize, ShardOf); 4] = [
        (2, |person| (person % 2) as usize),
        // All who are heard on the other shard; nobody there but them.
        (2, |person| usize::from((8..=10).contains(&person))),
        (3, |person| (person % 3) as usize),
        // Nobody at home.
        (3, |person| 1 + (person % 2) as usize),
    ];
    for (shards, shard_of) in spread {
        let mut world = ten(shard_of, shards);
        world.run_ms(2_000);
        check_ten(&world);
        world.check_ticks(1);
        assert_eq!(world.heard, one.heard, "the same ranks in the same ticks");
        for shard in 0..shards {
            let stats = world.stats(shard);
            assert_eq!((stats.sums_late, stats.sums_unused), (0, 0), "{stats:?}");
        }
        let sent: u64 = (0..shards).map(|shard| world.stats(shard).sums_sent).sum();
        assert!(sent > 90);
        assert_eq!(sent, (0..shards).map(|shard| world.stats(shard).sums_received).sum());
    }
}

#[test]
fn whoever_claims_to_be_loud_and_is_silent_keeps_nobody_out() {
    for shards in [1, 2] {
        let mut world = World::new(shards, 3);
        // Three say nothing, three next to nothing, and all of them claim to be as loud as can be.
        for liar in 1..=6 {
            let amplitude = if liar <= 3 { 0.0 } else { 0.0005 };
            world.talk(liar, liar as usize % shards, amplitude);
            world.talkers.get_mut(&liar).unwrap().claims = Some(0);
        }
        for honest in [7, 8] {
            world.talk(honest, honest as usize % shards, 0.1);
            world.listen(honest, honest as usize % shards, false);
        }
        world.listen(9, 0, true);
        // Each three of them are found out after 0.8 s.
        world.run_ms(4_000);
        assert!(world.hears(9, 500, &set([7, 8])).is_superset(&set([7, 8])), "{shards} shards");
        // They come back after 30 s, and are found out again: heard is who speaks, all but 2 s.
        let from = world.tick();
        world.run_ms(32_000);
        let lost = (from..world.tick()).filter(|tick| !world.heard[tick].contains(&7)).count();
        assert!(lost <= 100, "{shards} shards: {lost} ticks");
    }
}

/// How loud two tones are beside each other in what somebody heard in the last ticks, in dB.
fn apart_db(world: &World, listener: u64, tones: (u64, u64), ticks: usize) -> f64 {
    let sound = &world.ears[&listener].sound;
    let last = &sound[sound.len() - ticks * TICK_SAMPLES..];
    10.0 * (goertzel(last, tone_hz(tones.0)) / goertzel(last, tone_hz(tones.1))).log10()
}

#[test]
fn voices_18_db_apart_are_made_even_and_music_is_not() {
    const LOUD: f64 = 0.2;
    const QUIET: f64 = LOUD / 7.943;
    for shards in [1, 2] {
        let mut world = World::new(shards, 3);
        // Two voices and two instruments, on two shards, with tones far from each other.
        for (person, speech) in [(1, true), (12, true), (5, false), (16, false)] {
            world.speech = speech;
            world.talk(person, person as usize % shards, 0.0);
            world.listen(person, person as usize % shards, true);
        }
        world.listen(3, 0, true);
        world.run_ms(500);
        let (voices, music) = ((1, 12), (5, 16));
        world.speak(&[(1, LOUD), (12, QUIET)], 480);
        let first = apart_db(&world, 3, voices, 20);
        assert!((16.0..20.0).contains(&first), "they begin as they are: {first} dB");
        world.speak(&[(1, LOUD), (12, QUIET)], 12_000);
        // Whole syllables and pauses.
        let last = apart_db(&world, 3, voices, 120);
        println!("{shards} shards: voices {first:.1} dB apart at first, {last:.1} dB at last");
        assert!(last.abs() < 3.0, "{shards} shards: {last} dB");
        // Each hears the other without himself: what is taken out is what was put in.
        for (person, other) in [(1, 12), (12, 1)] {
            let own = apart_db(&world, person, (person, other), 120);
            assert!(own < -30.0, "{shards} shards: {person} hears himself at {own} dB");
        }
        world.speak(&[(1, 0.0), (12, 0.0), (5, LOUD), (16, QUIET)], 12_000);
        let apart = apart_db(&world, 3, music, 120);
        assert!((16.0..20.0).contains(&apart), "{shards} shards: music {apart} dB");
        world.check_ticks(1);
    }
}

#[test]
fn a_change_of_who_is_loudest_is_heard_two_ticks_later() {
    for shards in [1, 2] {
        let mut world = World::new(shards, 1);
        world.talk(1, 0, 0.05);
        world.talk(2, shards - 1, 0.0);
        for person in [1, 2, 3] {
            world.listen(person, if person == 2 { shards - 1 } else { 0 }, true);
        }
        world.run_ms(1_000);
        assert_eq!(world.heard[&world.tick()], set([1]));
        world.talkers.get_mut(&2).unwrap().amplitude = 0.3;
        // His first loud frame comes 4 ms from now, in the tick under way.
        let tick = world.tick();
        world.run_ms(220);
        let change = world.heard.iter().find(|(_, heard)| heard.contains(&2)).unwrap();
        assert_eq!(*change.0, tick + 2, "{shards}");
        assert_eq!(*change.1, set([1, 2]), "who leaves fades out over one tick, his own mix too");
        assert_eq!(world.heard[&(change.0 + 1)], set([2]));
        let after = *change.0 + 4;
        let sound = world.sound_of(3, after..after + 5);
        assert!(goertzel(sound, tone_hz(2)) > 0.02, "{shards}");
        assert!(goertzel(sound, tone_hz(1)) < 5e-5, "{shards}");
        world.check_ticks(1);
    }
}

#[test]
fn the_first_syllable_of_who_begins_is_in_the_mix() {
    // 200 ms: two frames each, softly at first where he has to take somebody's place.
    let tones = [1_000.0, 1_400.0, 1_800.0, 2_200.0, 2_600.0];
    for (shards, other) in [(1, false), (2, false), (1, true), (2, true)] {
        let mut world = World::new(shards, 1);
        if other {
            world.talk(1, 0, 0.05);
            world.talkers.get_mut(&1).unwrap().sine = Sine::new(400.0, 1.0);
        }
        world.talk(2, shards - 1, 0.0);
        world.listen(3, 0, true);
        world.run_ms(2_000);
        // What is heard of each tone when he begins, and when he says the same again amid his speech.
        let mut say = || {
            let from = world.ears[&3].sound.len();
            for (at, hz) in tones.into_iter().enumerate() {
                let talker = world.talkers.get_mut(&2).unwrap();
                talker.amplitude = if other && at < 2 { 0.03 } else { 0.3 };
                talker.sine = Sine::new(hz, 1.0);
                world.run_ms(40);
            }
            world.talkers.get_mut(&2).unwrap().sine = Sine::new(600.0, 1.0);
            // Until he is no longer behind.
            world.run_ms(8_000);
            let sound = &world.ears[&3].sound[from..from + 30 * TICK_SAMPLES];
            // Pieces of 5 ms tell tones 200 Hz apart from each other.
            let power = |hz| sound.chunks_exact(240).map(|piece| goertzel(piece, hz)).sum::<f64>();
            tones.map(power)
        };
        let (first, again) = (say(), say());
        let kept: Vec<f64> = first.iter().zip(again).map(|(first, again)| first / again).collect();
        println!("{shards} shards, somebody else {other}: kept {kept:.2?}");
        // Up to 15 ms of a tone are left out at a time, to catch up.
        assert!(kept.iter().all(|kept| (0.6..1.4).contains(kept)), "{shards}, {other}: {kept:?}");
        assert_eq!(world.stats(shards - 1).jitter.late, 0);
        world.check_ticks(1);
    }
}

#[test]
fn twenty_who_shout_never_clip() {
    type Wave = (&'static str, fn(f32) -> f32);
    // As loud as can be, and beyond: their own microphones clip.
    let waves: [Wave; 3] = [
        ("tones", |x| x),
        ("half clipped tones", |x| (1.5 * x).clamp(-1.0, 1.0)),
        ("clipped tones", |x| (4.0 * x).clamp(-1.0, 1.0)),
    ];
    for (name, shape) in waves {
        for (shards, speech) in [(1, true), (1, false), (3, false)] {
            let mut world = World::new(shards, 8);
            world.speech = speech;
            for person in 1..=20 {
                world.talk(person, person as usize % shards, 1.0);
                world.talkers.get_mut(&person).unwrap().shape = shape;
                world.listen(person, person as usize % shards, person <= 8);
            }
            (0..shards).for_each(|shard| world.listen(30 + shard as u64, shard, true));
            let voices: Vec<_> = (1..=20).map(|person| (person, 1.0)).collect();
            world.run_ms(1_000);
            world.speak(&voices, 2_000);
            let decoded = world.ears.values().filter(|ear| !ear.sound.is_empty());
            let peaks: Vec<f32> = decoded
                .map(|ear| ear.sound.iter().fold(0.0_f32, |peak, x| peak.max(x.abs())))
                .collect();
            let highest = peaks.iter().copied().fold(0.0, f32::max);
            println!("peaks of {name}, {shards} shards, speech {speech}: {highest}");
            assert!(highest <= 1.0, "{name}, {shards} shards, speech {speech}: {peaks:?}");
            assert!(peaks.iter().all(|peak| *peak > 0.4), "{name}: they are heard: {peaks:?}");
        }
    }
}

#[test]
fn who_leaves_or_is_silenced_is_silent_from_the_next_tick() {
    for leaves in [true, false] {
        let mut world = World::new(1, 3);
        world.talk(1, 0, 0.3);
        world.listen(1, 0, false);
        world.listen(2, 0, true);
        world.run_ms(1_000);
        assert!(world.ears[&2].levels[40..].iter().all(|dbov| (10..=16).contains(dbov)));
        let tick = world.tick();
        if leaves {
            world.hush(1);
        } else {
            let track = TrackKey(1);
            world.mixers[0].command(MixCommand::Silence { track, on: true });
        }
        world.run_ms(300);
        let ear = &world.ears[&2];
        let at = ear.ticks.iter().position(|t| *t == tick).unwrap();
        assert!(ear.levels[at] < 20 && ear.levels[at + 1..].iter().all(|dbov| *dbov == 127));
        world.check_ticks(1);
        assert!(!world.heard[&(tick + 1)].contains(&1));
        if !leaves {
            assert!(world.stats(0).silenced > 10);
            let track = TrackKey(1);
            world.mixers[0].command(MixCommand::Silence { track, on: false });
            world.run_ms(500);
            assert_eq!(world.hears(2, 200, &set([1])), set([1]), "and heard again");
        }
    }
}

#[test]
fn in_silence_packets_go_on_and_nothing_is_encoded() {
    let mut world = World::new(2, 3);
    world.talk(1, 1, 0.0);
    world.listen(1, 1, false);
    world.listen(2, 0, true);
    world.listen(3, 1, false);
    world.run_ms(1_000);
    let encodes = |world: &World, shard: usize| {
        let stats = world.stats(shard);
        (stats.encodes_common, stats.encodes_own)
    };
    assert_eq!((encodes(&world, 0), encodes(&world, 1)), ((5, 0), (5, 0)), "run out and no more");
    world.talkers.get_mut(&1).unwrap().amplitude = 0.3;
    world.run_ms(1_000);
    assert_eq!(world.hears(2, 500, &set([1])), set([1]));
    assert_eq!(world.ears[&1].levels.last(), Some(&127), "alone, he hears nobody");
    let before = (encodes(&world, 0), encodes(&world, 1));
    world.talkers.get_mut(&1).unwrap().amplitude = 0.0;
    world.run_ms(3_000);
    let after = (encodes(&world, 0), encodes(&world, 1));
    // Until his level has decayed he is heard, and five ticks run out.
    assert!(after.0.0 - before.0.0 < 90 && after.1.0 - before.1.0 < 90, "{before:?} {after:?}");
    let silent = world.stats(0).silent_ticks;
    assert!(silent > 100, "{silent}");
    world.run_ms(1_000);
    assert_eq!(after, (encodes(&world, 0), encodes(&world, 1)));
    assert_eq!(world.stats(0).silent_ticks, silent + 50);
    world.check_ticks(1);
    assert_eq!(world.ears[&2].ticks.len() as u64, 300);
    let tail = &world.ears[&2].sound[280 * TICK_SAMPLES..];
    assert!(tail.iter().all(|x| x.abs() < 1e-3));
}

#[test]
fn lost_frames_are_concealed() {
    let mut world = World::new(1, 3);
    world.talk(1, 0, 0.3);
    world.listen(2, 0, true);
    world.talkers.get_mut(&1).unwrap().loses = |index| index % 10 == 5;
    world.run_ms(3_000);
    let stats = world.stats(0);
    assert!((13..=16).contains(&stats.jitter.concealed), "{:?}", stats.jitter);
    let sound = world.sound_of(2, 50..149);
    for (number, piece) in sound.chunks_exact(480).enumerate() {
        let power = piece.iter().map(|x| x * x).sum::<f32>() / 480.0;
        assert!(power > 0.008, "10 ms at {number}: {power}, of 0.045");
    }
}

#[test]
fn a_sum_that_does_not_come_is_left_out_and_counted() {
    let mut world = World::new(2, 3);
    world.talk(1, 0, 0.2);
    world.talk(2, 1, 0.2);
    world.listen(3, 0, true);
    world.run_ms(1_000);
    assert_eq!(world.hears(3, 300, &set([1, 2])), set([1, 2]));
    assert_eq!(world.stats(0).sums_late, 0);
    for delay in [None, Some(14_000)] {
        let before = (world.stats(0).sums_late, world.stats(0).sums_unused);
        world.sum_delay_us = delay;
        world.run_ms(1_000);
        assert_eq!(world.hears(3, 300, &set([1, 2])), set([1]), "{delay:?}");
        let stats = world.stats(0);
        let unused = if delay.is_some() { 50 } else { 0 };
        assert!((49..=50).contains(&(stats.sums_late - before.0)), "{stats:?}");
        assert!(stats.sums_unused.abs_diff(before.1 + unused) <= 2, "{stats:?}");
    }
    world.sum_delay_us = Some(8_000);
    world.run_ms(1_010);
    assert_eq!(world.hears(3, 300, &set([1, 2])), set([1, 2]), "8 ms is in time");
    world.check_ticks(1);
}

#[test]
fn without_the_newest_rank_a_mixer_goes_on_with_the_last() {
    let mut world = World::new(2, 1);
    world.talk(1, 1, 0.2);
    world.talk(2, 1, 0.0);
    world.listen(3, 0, true);
    world.run_ms(1_000);
    assert_eq!(world.hears(3, 300, &set([1, 2])), set([1]));
    world.control_delay_us = Some(600_000);
    world.talkers.get_mut(&2).unwrap().amplitude = 0.4;
    world.run_ms(1_000);
    // Levels took 600 ms to home; the rank that home then made is under way.
    assert_eq!(world.stats(0).ranks, 2);
    assert_eq!(world.hears(3, 300, &set([1, 2])), set([1]));
    world.run_ms(1_000);
    assert_eq!(world.hears(3, 300, &set([1, 2])), set([2]));
    world.check_ticks(1);
}

#[test]
fn mixers_that_learn_of_a_room_at_different_times_find_each_other() {
    let mut world = World::new(3, 3);
    // What is said to a mixer that does not know the room yet is lost.
    world.control_delay_us = None;
    world.talk(1, 1, 0.2);
    world.talk(2, 0, 0.2);
    world.listen(3, 2, true);
    world.run_ms(1_000);
    assert_eq!(world.hears(3, 300, &set([1, 2])), set([0; 0]));
    world.control_delay_us = Some(1_000);
    world.run_ms(500);
    assert_eq!(world.hears(3, 300, &set([1, 2])), set([1, 2]), "though nothing changed since");
    assert_eq!(world.stats(2).sums_late, 0);
}

#[test]
fn a_seed_repeats_byte_for_byte() {
    let run = || {
        let mut world = ten(|person| (person % 2) as usize, 2);
        world.run_ms(500);
        world.hush(9);
        world.talkers.get_mut(&1).unwrap().amplitude = 0.5;
        world.run_ms(500);
        (world.log.clone(), world.heard.clone(), world.stats(0).clone(), world.stats(1).clone())
    };
    let (one, other) = (run(), run());
    assert!(one.0.len() > 10_000);
    assert!(one == other);
}

#[test]
fn a_late_thread_catches_up_three_ticks_and_leaves_the_rest_out() {
    let mut world = World::new(1, 3);
    world.listen(1, 0, false);
    world.run_ms(200);
    let (tick, mut sink) = (world.tick(), Sink::default());
    let later = |ms| world.epoch + Duration::from_millis(tick * 20 + ms);
    let (three, eleven) = (later(60), later(60 + 220));
    let ticks = |sink: &Sink| sink.packets.iter().map(|p| p.tick).collect::<Vec<_>>();
    let mixer = &mut world.mixers[0];
    mixer.handle_timeout(three, &mut sink);
    assert_eq!(ticks(&sink), [tick + 1, tick + 2, tick + 3]);
    assert_eq!((mixer.stats().ticks_late, mixer.stats().ticks_skipped), (1, 0));
    let mut sink = Sink::default();
    mixer.handle_timeout(eleven, &mut sink);
    assert_eq!(ticks(&sink), [tick + 12, tick + 13, tick + 14]);
    assert_eq!((mixer.stats().ticks_late, mixer.stats().ticks_skipped), (2, 8));
    assert_eq!(mixer.next_deadline(), Some(eleven + Duration::from_millis(20)));
}

#[test]
fn a_mixer_behind_by_a_backlog_gives_the_same_a_second_late_and_counts_each_tick_as_late() {
    for shards in [1, 2] {
        let new = || ten(|person| person as usize % shards, shards);
        let mut punctual = new();
        punctual.run_ms(2_000);
        let mut behind = new().behind(Duration::from_secs(1));
        behind.run_ms(1_000);
        assert!(behind.log.is_empty(), "the first second's sound is a second old when it comes");
        behind.run_ms(2_000);
        assert!(behind.log.len() > 10_000);
        assert!(behind.log == punctual.log, "{} bytes", behind.log.len());
        for shard in 0..shards {
            let (late, all) = (behind.stats(shard), punctual.stats(shard));
            assert_eq!(
                (late.ticks, late.ticks_late, late.ticks_skipped),
                (all.ticks, all.ticks, 0)
            );
            assert_eq!((all.ticks_late, &late.jitter), (0, &all.jitter));
            assert_eq!((late.packets, late.sums_late), (all.packets, all.sums_late));
        }
    }
}

#[test]
fn who_stops_sending_is_not_heard_after_200_ms() {
    let mut world = World::new(1, 1);
    world.talk(1, 0, 0.1);
    world.talk(2, 0, 0.5);
    world.listen(1, 0, true);
    world.listen(3, 0, true);
    world.run_ms(1_000);
    assert_eq!(world.heard[&world.tick()], set([0; 0]), "2 does not listen");
    world.talkers.get_mut(&2).unwrap().sends = false;
    let tick = world.tick();
    world.run_ms(1_000);
    let change = *world.heard.iter().find(|(_, heard)| heard.contains(&1)).unwrap().0;
    // His level decays from -9 by 1 dB a tick meanwhile, and is forgotten after ten.
    assert!((tick + 10..=tick + 13).contains(&change), "{change} after {tick}");
    assert_eq!(world.hears(3, 500, &set([1, 2])), set([1]));
}

#[test]
fn the_others_go_on_without_a_gap_for_who_becomes_heard_and_falls_back() {
    let mut world = World::new(1, 3);
    world.talk(1, 0, 0.3);
    world.talk(2, 0, 0.0);
    world.listen(2, 0, true);
    world.listen(3, 0, true);
    world.run_ms(1_000);
    for amplitude in [0.3, 0.0] {
        world.talkers.get_mut(&2).unwrap().amplitude = amplitude;
        world.run_ms(2_000);
        assert_eq!(world.heard[&world.tick()].contains(&2), amplitude > 0.0);
    }
    // What 2 hears is 1's tone all along, from the common stream, his own, and the common one.
    check_pure(world.sound_of(2, 20..world.tick()), 1, 0.045);
    world.check_ticks(1);
}

#[test]
fn alone_or_all_heard_there_is_no_common_stream() {
    let mut world = World::new(1, 3);
    for person in [1, 2] {
        world.talk(person, 0, 0.2);
        world.listen(person, 0, true);
    }
    world.run_ms(1_000);
    let (common, own) = (world.stats(0).encodes_common, world.stats(0).encodes_own);
    world.run_ms(1_000);
    assert_eq!((world.stats(0).encodes_common, world.stats(0).encodes_own), (common, own + 100));
    assert_eq!(world.hears(1, 500, &set([1, 2])), set([2]));
    assert_eq!(world.hears(2, 500, &set([1, 2])), set([1]));
    // One falls silent: he goes on with the common stream, which goes on as his own did.
    world.talkers.get_mut(&2).unwrap().amplitude = 0.0;
    world.run_ms(3_000);
    assert!(world.stats(0).encodes_common > common + 50);
    check_pure(world.sound_of(2, 60..world.tick()), 1, 0.02);
    world.check_ticks(1);
}

#[test]
fn people_who_come_and_go_get_one_packet_a_tick_while_they_are_there() {
    let mut world = ten(|person| (person % 2) as usize, 2);
    world.run_ms(100);
    for step in 0..30_u64 {
        let person = 1 + step * 7 % 10;
        if world.ears.contains_key(&person) {
            let ear = world.unlisten(person);
            let last = *ear.ticks.last().unwrap();
            // The tick under way may wait for a sum.
            assert!(last + 1 >= world.tick(), "{last} of {}", world.tick());
            assert_eq!(ear.ticks, (ear.ticks[0]..=last).collect::<Vec<_>>());
            world.hush(person);
        } else {
            let tick = world.tick();
            world.talk(person, (person % 2) as usize, 0.2);
            world.listen(person, (person % 2) as usize, false);
            world.run_ms(30);
            assert_eq!(world.ears[&person].ticks[0], tick + 1, "from the next tick");
        }
        world.run_ms(70 + step % 13);
    }
    // To the middle of a tick, when no sum is on its way.
    world.run_ms(20 - world.now_us / 1_000 % 20 + 5);
    world.check_ticks(world.tick());
    for mixer in &mut world.mixers {
        mixer.command(MixCommand::End { room: ROOM });
        assert_eq!(mixer.next_deadline(), None);
        let stats = mixer.stats();
        let drops: u64 = stats.frame_drops().iter().map(|(_, count)| count).sum();
        // Nothing is held any more: every frame was decoded or dropped for a counted reason.
        assert_eq!(stats.frames_in, stats.jitter.decoded + drops, "{stats:?}");
        assert_eq!(stats.commands_unknown, 0);
    }
}

#[test]
fn what_is_unknown_or_refused_is_counted_and_nothing_else_happens() {
    let mut world = World::new(1, 99);
    for person in 1..=12 {
        world.talk(person, 0, 0.05);
        world.listen(person, 0, false);
    }
    world.run_ms(1_000);
    assert_eq!(world.heard[&world.tick()].len(), MOST_HEARD, "no more than can be excepted");
    world.check_ticks(1);
    let (track, person) = (TrackKey(99), PersonKey(99));
    let mixer = &mut world.mixers[0];
    for command in [
        MixCommand::RemoveTrack { track },
        MixCommand::Silence { track, on: true },
        MixCommand::Unlisten { person },
        MixCommand::End { room: engine::RoomKey(1) },
        MixCommand::Listen { room: engine::RoomKey(1), person },
        MixCommand::AddTrack { room: engine::RoomKey(1), person, track, music: false },
    ] {
        mixer.command(command);
    }
    assert_eq!(mixer.stats().commands_unknown, 6);
    let mut sink = Sink::default();
    sink.refuses = true;
    let before = mixer.stats().packets;
    let due = mixer.next_deadline().unwrap();
    mixer.handle_timeout(due, &mut sink);
    assert_eq!(mixer.stats().packets - before, 9);
    assert_eq!(mixer.stats().packets_refused, 9);
}

/// Cost follows those who are heard, not those who talk or listen; `--nocapture` prints it in µs.
#[test]
fn a_tick_costs_a_decode_for_each_who_is_heard_and_at_most_one_encode_more() {
    for (people, listeners) in [(100_u64, 100_u64), (100, 1), (3, 3)] {
        let mut world = World::new(1, 3);
        for person in 1..=people {
            world.talk(person, 0, 0.3 / (1.0 + person as f64));
        }
        (1..=listeners).for_each(|person| world.listen(person, 0, false));
        world.run_ms(1_000);
        world.mixing = Some(Duration::ZERO);
        let ticks = world.stats(0).ticks;
        let (before, decoded) = (world.stats(0).clone(), world.stats(0).jitter.decoded);
        world.run_ms(10_000);
        let stats = world.stats(0);
        let us = world.mixing.unwrap().as_micros() as f64 / (stats.ticks - ticks) as f64;
        let own = stats.encodes_own - before.encodes_own;
        let encodes = own + stats.encodes_common - before.encodes_common;
        let per_tick = |count: u64| count as f64 / (stats.ticks - ticks) as f64;
        assert!((2.9..=3.1).contains(&per_tick(stats.jitter.decoded - decoded)));
        assert!(per_tick(encodes) <= 4.0 && encodes > 0);
        println!(
            "{people} talk, {listeners} listen, K=3: {us:.0} us a tick, {:.1} decodes, {:.1} encodes",
            per_tick(stats.jitter.decoded - decoded),
            per_tick(encodes),
        );
    }
    let mut pcm = [0.0; TICK_SAMPLES];
    let options =
        audio::opus::EncoderOptions { fec: true, expected_loss_percent: 8, ..Default::default() };
    let mut encoder = audio::opus::Encoder::new(options).unwrap();
    let mut decoder = audio::opus::Decoder::new(audio::Channels::Mono).unwrap();
    let (mut encoding, mut decoding) = (Duration::ZERO, Duration::ZERO);
    let mut packet = [0; 512];
    for n in 0..1_000_u32 {
        // Hops, so that the speech layer works as it does for speech.
        let mut sine = audio::tone::Sine::new(f64::from(200 + n / 5 * 7919 % 13 * 60), 0.3);
        sine.fill(&mut pcm);
        let start = cpu_time();
        let len = encoder.encode(&pcm, &mut packet).unwrap();
        let encoded = cpu_time();
        decoder.decode(Some(&packet[..len]), &mut pcm).unwrap();
        encoding += encoded - start;
        decoding += cpu_time() - encoded;
    }
    println!(
        "one encode {} us, one decode {} us",
        encoding.as_micros() / 1000,
        decoding.as_micros() / 1000
    );
}
