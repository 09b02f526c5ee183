//! Several people behind one link: each has an estimate of their own, and they must come to an agreement.
//!
//! Six seeds are played, or `MOIM_SEED` alone: not every seed holds the bounds for each person (the 12th does not, see
//! docs/networks.md).

use super::downlink::{received, slow};
use super::number;
use super::world::{LAN, Made, World};
use engine::PersonKey;
use engine::room::Topology;
use lab::bots::VideoSource;
use lab::record::SampleRecord;
use std::time::Duration;
use wire::room::MediaKind;

const S: Duration = Duration::from_secs(1);
/// What is judged begins when the calls have settled.
const SETTLED: Duration = Duration::from_secs(20);
const SHARED_KBPS: u32 = 3000;

/// How it was for one of them.
#[derive(Debug, Clone, Copy, Default)]
struct Got {
    /// What came by the link, in kbit/s.
    kbps: f64,
    /// Changes of a picture's size, by minute and slot.
    switches: f64,
    /// The share of pictures' time that they were paused.
    paused: f64,
    /// The worst transit of sound (95th percentile of a sample).
    sound_ms: f64,
}

fn got(world: &World, key: PersonKey) -> Got {
    let name = format!("bot-{}", key.0);
    let settled = |sample: &&SampleRecord| sample.began() >= SETTLED;
    let samples = world.samples.iter().filter(|s| s.person == name).filter(settled);
    let (mut got, mut minutes, mut pictures) = (Got::default(), 0.0, 0.0);
    for sample in samples {
        for row in sample.sample.received.iter().filter(|row| row.kind == MediaKind::Video) {
            pictures += 1.0;
            minutes += sample.sample.interval_ms as f64 / 60_000.0;
            got.switches += row.resolution_switches.unwrap_or(0) as f64;
            got.paused += row.paused_ratio.unwrap_or(0.0);
        }
    }
    got.switches /= minutes;
    got.paused /= pictures;
    got.sound_ms = received(world, key, SETTLED.as_millis() as u64 + 3000).1;
    got
}

#[test]
fn three_behind_one_link_share_it() {
    let seeds = number("MOIM_SEED").map_or(1..=6, |seed| seed..=seed);
    let mut all = Vec::new();
    for seed in seeds {
        let made = Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 1 };
        let mut world = World::of(seed, LAN, made);
        (world.clip, world.layers) = (VideoSource::Simulcast, 3);
        let people: Vec<_> = (0..5).map(|_| world.join(true)).collect();
        let house = &people[2..];
        world.share_downlink(house, slow(SHARED_KBPS));
        world.run(SETTLED);
        let before: Vec<_> = house.iter().map(|key| world.downlink(*key)).collect();
        world.run(60 * S);
        for (key, before) in house.iter().zip(before) {
            let counts = world.downlink(*key).since(&before);
            let got = Got { kbps: counts.bytes as f64 * 8.0 / 60_000.0, ..got(&world, *key) };
            println!("seed {seed}: {got:.2?} lost {}", counts.queue_full);
            assert!(counts.queue_full * 100 <= counts.offered, "seed {seed}: {counts:?}");
            assert!(got.switches < 6.0 && got.paused <= 0.3, "seed {seed}: {got:?}");
            assert!(got.sound_ms <= 20.0 + 230.0, "seed {seed}: {got:?}");
            assert!((600.0..1300.0).contains(&got.kbps), "seed {seed}: {got:?}");
            all.push(got);
        }
        world.assert_invariants(seed);
    }
    let of = |what: fn(&Got) -> bool| {
        all.iter().filter(|got| what(got)).count() as f64 / all.len() as f64
    };
    let fair = of(|got| (750.0..=1250.0).contains(&got.kbps));
    let paused = all.iter().map(|got| got.paused).sum::<f64>() / all.len() as f64;
    println!(
        "{:.0} % get 1 Mbit/s ± 25 %, pictures are paused {:.1} % of the time",
        100.0 * fair,
        100.0 * paused
    );
    let used = all.iter().map(|got| got.kbps).sum::<f64>() / all.len() as f64;
    assert!(3.0 * used >= 0.75 * f64::from(SHARED_KBPS), "{used:.0} kbit/s each");
    assert!(fair >= 0.8 && paused <= 0.06, "{fair} {paused}");
}
