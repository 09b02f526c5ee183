//! A participant gets what their path carries: sound always, of the pictures as many as fit.

use super::world::{LAN, World};
use engine::PersonKey;
use lab::bots::VideoSource;
use lab::link::{Counts, LinkSpec};
use std::collections::BTreeSet;
use std::time::Duration;
use wire::room::MediaKind;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// A link of so many kbit/s, 300 ms of queue and 20 ms of delay.
pub fn slow(rate_kbps: u32) -> LinkSpec {
    let rate_kbps = Some(rate_kbps);
    LinkSpec { delay: 20 * MS, rate_kbps, queue: 300 * MS, ..LinkSpec::default() }
}

/// Four people who send sound and 1 Mbit/s of pictures; what comes to the first passes a link of so many kbit/s.
fn room(seed: u64, rate_kbps: u32) -> (World, Vec<PersonKey>) {
    let mut world = World::new(seed, LAN);
    world.clip = VideoSource::P480;
    let people: Vec<_> = (0..4).map(|_| world.join(true)).collect();
    world.set_downlink(people[0], slow(rate_kbps));
    (world, people)
}

/// What a person's link did in each second of a span.
fn seconds(world: &mut World, key: PersonKey, count: u64) -> Vec<Counts> {
    let second = |_| {
        let before = world.downlink(key);
        world.run(S);
        world.downlink(key).since(&before)
    };
    (0..count).map(second).collect()
}

/// The tracks of pictures of which packets came to a person in their samples since `from_ms`, and the worst transit of
/// sound (95th percentile of a sample), in ms.
pub fn received(world: &World, key: PersonKey, from_ms: u64) -> (BTreeSet<String>, f64) {
    let name = format!("bot-{}", key.0);
    let samples = world.samples.iter().filter(|s| s.person == name && s.t_ms >= from_ms);
    let rows = samples.flat_map(|sample| &sample.sample.received);
    let (mut pictures, mut sound) = (BTreeSet::new(), 0.0_f64);
    for row in rows {
        match row.kind {
            MediaKind::Video if row.packets_received > 0 => _ = pictures.insert(row.track.clone()),
            MediaKind::Audio => sound = sound.max(row.transit_p95_ms.unwrap_or(0.0)),
            MediaKind::Video => {}
        }
    }
    (pictures, sound)
}

/// A minute behind a link of so many kbit/s: from the tenth second on hardly anything is lost, no three seconds bring much
/// more than the link carries, and sound is in time. Returns the tracks of pictures that came.
pub fn live_behind(world: &mut World, key: PersonKey, kbps: u32, seed: u64) -> BTreeSet<String> {
    world.run(10 * S);
    let seconds = seconds(world, key, 50);
    let offered: u64 = seconds.iter().map(|counts| counts.offered).sum();
    let lost: u64 = seconds.iter().map(|counts| counts.queue_full).sum();
    let most = seconds.windows(3).map(|three| three.iter().map(|c| c.bytes).sum::<u64>()).max();
    let most_kbps = most.unwrap_or(0) as f64 * 8.0 / 3.0 / 1000.0;
    let (pictures, sound) = received(world, key, 13_000);
    assert!(lost * 100 <= offered, "seed {seed}: {lost} of {offered} lost");
    assert!(most_kbps <= 1.1 * f64::from(kbps), "seed {seed}: {most_kbps:.0} kbit/s");
    assert!(sound <= 20.0 + 150.0, "seed {seed}: sound {sound:.0} ms late");
    pictures
}

#[test]
fn a_slow_link_carries_sound_and_the_pictures_that_fit_and_others_lose_nothing() {
    for seed in [1, 2, 3] {
        let (mut world, people) = room(seed, 1500);
        let pictures = live_behind(&mut world, people[0], 1500, seed);
        assert!(!pictures.is_empty(), "seed {seed}");
        let resting = world.paused.iter().filter(|(key, _)| *key == people[0]).count();
        // One flows, of whom speaks: they take turns.
        assert_eq!((resting, world.paused.len()), (2, 2), "it says which");
        let told = |key: PersonKey| {
            let name = format!("bot-{}", key.0);
            let last = world.samples.iter().rev().find(|sample| sample.person == name);
            last.and_then(|sample| sample.sample.estimate_kbps)
        };
        let estimate = told(people[0]).unwrap_or(0.0);
        assert!((900.0..1900.0).contains(&estimate), "seed {seed}: told {estimate} kbit/s");
        assert_eq!(told(people[1]), None, "seed {seed}: an ample path is not told of");
        for other in &people[1..] {
            let (pictures, _) = received(&world, *other, 13_000);
            assert_eq!((pictures.len(), world.downlink(*other).queue_full), (3, 0), "seed {seed}");
        }
        world.assert_invariants(seed);
    }
}

#[test]
fn a_wide_link_lets_no_picture_rest() {
    let (mut world, people) = room(4, 20_000);
    world.run(30 * S);
    assert_eq!((world.stats().rested, world.stats().probed), (0, 0));
    assert_eq!(received(&world, people[0], 6_000).0.len(), 3);
    world.assert_invariants(4);
}

#[test]
fn pictures_come_back_when_the_link_is_wide_again() {
    let (mut world, people) = room(5, 20_000);
    world.run(10 * S);
    world.set_downlink(people[0], slow(1000));
    world.run(20 * S);
    assert!(world.stats().rested >= 2, "{}", world.stats().rested);
    world.set_downlink(people[0], slow(20_000));
    let seconds = seconds(&mut world, people[0], 40);
    let rates: Vec<u64> = seconds.iter().map(|c| c.bytes * 8 / 1000).collect();
    assert!(world.paused.is_empty(), "{:?} after {rates:?}", world.paused);
    world.assert_invariants(5);
}
