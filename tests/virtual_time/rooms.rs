//! What holds in a room, in virtual time.

use super::world::{LAN, Link, Made, Random, World};
use engine::room::{Effects, Topology};
use engine::shard::Stats;
use lab::record::SampleRecord;
use rtp::negotiated::Kind;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::room::MediaKind;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn packets_are_forwarded_in_batches_and_without_allocating_memory() {
    let mut world = World::new(1, LAN);
    (0..10).for_each(|_| {
        world.join(true);
    });
    world.run(seconds(10));
    let before = world.stats().rtp_out;
    world.allocations = Some(0);
    world.run(seconds(5));
    assert_eq!(world.allocations, Some(0));
    assert!(world.stats().rtp_out > before + 50_000, "{:?}", world.stats());
    assert!(world.longest_batch > 10, "{}", world.longest_batch);
    world.assert_invariants(1);
    assert_eq!(world.failures(), []);
}

#[test]
fn ten_people_see_and_hear_all_others_without_loss() {
    let mut world = World::new(1, LAN);
    for _ in 0..10 {
        world.join(true);
        world.run(Duration::from_millis(100));
    }
    world.run(seconds(15));
    world.assert_invariants(1);
    assert_eq!(world.failures(), []);
    let stats = world.stats().clone();
    assert_eq!((stats.in_drops.total(), stats.out_drops.total()), (0, 0), "{stats:?}");
    let mut tracks: BTreeMap<(String, MediaKind), Vec<String>> = BTreeMap::new();
    for record in world.samples.iter().filter(|record| record.t_ms > 12_000) {
        for row in &record.sample.received {
            assert_ne!(row.participant, record.sample.participant, "nobody receives himself");
            assert_eq!(row.packets_lost, 0, "{}: {row:?}", record.person);
            if row.kind == MediaKind::Video {
                assert!(row.frames_per_second.is_some_and(|fps| fps > 19.0), "{row:?}");
                assert_eq!((row.frame_width, row.frame_height), (Some(640), Some(360)));
            } else {
                assert!(row.packets_received.abs_diff(150) <= 1, "50 packets a second: {row:?}");
            }
            tracks
                .entry((record.person.clone(), row.kind))
                .or_default()
                .push(row.participant.clone());
        }
        assert!(record.sample.rtt_ms.is_some_and(|rtt| (3.9..30.0).contains(&rtt)), "{record:?}");
    }
    assert_eq!(tracks.len(), 20);
    for (who, mut from) in tracks {
        from.sort();
        from.dedup();
        assert_eq!(from.len(), 9, "{who:?} receives the nine others");
    }
}

#[test]
fn a_seed_repeats_byte_for_byte() {
    let run = |seed| {
        let mut world = World::new(seed, Link { delay_ms: 10, jitter_ms: 8, loss_permille: 20 });
        let first = world.join(true);
        for i in 0..3 {
            world.join(i > 0);
        }
        world.run(seconds(4));
        world.leave(first);
        world.run(seconds(3));
        (world.digest, serde_json::to_string(&world.samples.len()).unwrap())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn a_link_that_eats_one_stream_to_one_subscriber_is_told_with_both_names() {
    let mut world = World::new(3, LAN);
    // With feedback, such a loss would let other pictures rest too.
    world.feedback = false;
    let people: Vec<_> = (0..4).map(|_| world.join(true)).collect();
    world.run(seconds(7));
    assert_eq!(world.failures(), []);
    // The second person's slot that carries the third person's picture.
    let (victim, publisher) = (people[1], people[2]);
    let track = world.person(publisher).tracks.iter().find(|(_, k)| *k == Kind::Video).unwrap().0;
    let mid = {
        let slots = world.room.person(victim).unwrap().slot_contents(Kind::Video);
        slots.into_iter().find(|(_, t)| *t == Some(track)).unwrap().0.to_owned()
    };
    let (address, ssrc) = (world.person(victim).address, world.slot_ssrc(victim, &mid));
    world.eats = Box::new(move |to_server, person, bytes| {
        !to_server && person == address && bytes.get(8..12) == Some(&ssrc.to_be_bytes())
    });
    world.run(seconds(9));
    let failures = world.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    let (victim, publisher) =
        (world.person(victim).name.clone(), world.person(publisher).name.clone());
    assert_eq!(failures[0].listeners, std::slice::from_ref(&victim));
    assert_eq!(failures[0].publisher.as_deref(), Some(publisher.as_str()));
    assert_eq!(failures[0].kind, Some(MediaKind::Video));
    assert!(failures[0].text.contains(&victim) && failures[0].text.contains(&publisher));
}

#[test]
fn lost_packets_of_pictures_are_repaired_both_ways() {
    let mut world = World::new(4, Link { delay_ms: 15, jitter_ms: 0, loss_permille: 30 });
    for _ in 0..4 {
        world.join(true);
    }
    world.run(seconds(13));
    world.assert_invariants(4);
    let stats = world.stats();
    assert!(stats.nacked > 50 && stats.resent > 50, "{stats:?}");
    let rows = || {
        let late = world.samples.iter().filter(|record| record.t_ms > 4_000);
        late.flat_map(|record| &record.sample.received)
    };
    let fps: Vec<f64> = rows().filter_map(|row| row.frames_per_second).collect();
    let mean = fps.iter().sum::<f64>() / fps.len() as f64;
    assert!(mean > 18.5, "{mean} of 20 frames a second after repair");
    // Sound is not repaired: what is lost on two hops is counted as it is.
    let audio = rows().filter(|row| row.kind == MediaKind::Audio);
    let (lost, received) = audio.fold((0, 0), |(lost, received), row| {
        (lost + row.packets_lost, received + row.packets_received)
    });
    let loss = 100.0 * lost as f64 / (lost + received) as f64;
    assert!((4.0..8.0).contains(&loss), "{loss} % lost on two hops of 3 %");
}

#[test]
fn who_joins_late_sees_a_picture_within_half_a_second() {
    let mut world = World::new(5, LAN);
    world.join(true);
    world.run(Duration::from_millis(3_700));
    // Keyframes come by themselves every 2 s: three moments 0.7 s apart cannot all be lucky.
    for _ in 0..3 {
        let late = world.join(false);
        world.run(Duration::from_millis(4_700));
        let name = world.person(late).name.clone();
        let firsts: Vec<f64> = world
            .samples
            .iter()
            .filter(|record| record.person == name)
            .filter_map(|record| record.sample.join_to_first_frame_ms)
            .collect();
        assert_eq!(firsts.len(), 1, "told once: {firsts:?}");
        assert!(firsts[0] < 500.0, "the keyframe was asked for: {} ms", firsts[0]);
    }
}

#[test]
fn nobody_is_sent_a_packet_before_he_has_keys() {
    let mut world = World::new(9, LAN);
    world.join(true);
    world.run(seconds(2));
    let late = world.begin_handshake(false);
    let early = Rc::new(Cell::new(0));
    let (counted, address) = (early.clone(), world.person(late).address);
    world.eats = Box::new(move |to_server, person, _| {
        counted.set(counted.get() + u32::from(!to_server && person == address));
        false
    });
    // Long enough for keyframes to come by themselves.
    world.run(seconds(5));
    assert_eq!(early.get(), 0, "the first keyframe would be lost on him");
    world.finish_handshake(late);
    world.run(seconds(4));
    assert!(early.get() > 100);
    let name = world.person(late).name.clone();
    let rows = world.samples.iter().filter(|record| record.person == name);
    let rows: Vec<_> = rows.flat_map(|record| &record.sample.received).collect();
    assert!(rows.iter().any(|row| row.frame_width == Some(640)), "he sees: {rows:?}");
    assert!(rows.iter().all(|row| row.packets_lost == 0), "from the first packet on: {rows:?}");
    world.assert_invariants(9);
}

#[test]
fn a_slot_changes_its_picture_without_a_gap_or_a_freeze() {
    let mut world = World::new(6, LAN);
    let people: Vec<_> = (0..4).map(|_| world.join(true)).collect();
    world.run(seconds(4));
    let viewer = people[0];
    let pictures: Vec<_> = people[1..]
        .iter()
        .map(|other| {
            let tracks = &world.person(*other).tracks;
            tracks.iter().find(|(_, kind)| *kind == Kind::Video).unwrap().0
        })
        .collect();
    let mid = {
        let mut slots = world.room.person(viewer).unwrap().slot_contents(Kind::Video);
        slots.find(|(_, track)| *track == Some(pictures[0])).unwrap().0.to_owned()
    };
    // Round and round: each time the old picture flows until the new one's keyframe is there.
    for turn in 1..=12 {
        let next = pictures[turn % pictures.len()];
        world.want(viewer, &mid, next);
        world.run(Duration::from_millis(900));
        let room = world.room.person(viewer).unwrap();
        assert!(room.slot_contents(Kind::Video).any(|slot| slot == (mid.as_str(), Some(next))));
        world.assert_invariants(6);
    }
    let id = format!("p-{}", viewer.0);
    let rows = world.samples.iter().filter(|record| record.sample.participant == id);
    let rows: Vec<_> = rows.flat_map(|record| &record.sample.received).collect();
    assert!(rows.iter().all(|row| row.packets_lost == 0), "{rows:?}");
    assert!(rows.iter().all(|row| row.freezes.unwrap_or(0) == 0), "{rows:?}");
    let stats = world.stats();
    assert_eq!(stats.out_drops.total(), 0, "{stats:?}");
    assert!(stats.keyframes_asked >= 12, "each turn needs a keyframe at once: {stats:?}");
}

/// Seeded churn: people come and go, sound only or with a picture, over a lossy wire or not.
fn churn(seed: u64) {
    let mut random = Random(seed);
    let loss = [0, 0, 20][random.below(3) as usize];
    // Without loss also without reordering, so that every sample must show none.
    let jitter_ms = if loss == 0 { 0 } else { 3 };
    let mut world = World::new(seed, Link { delay_ms: 5, jitter_ms, loss_permille: loss });
    let mut here = Vec::new();
    let (mut joins, mut leaves) = (0, 0);
    while joins + leaves < 24 {
        if here.len() < 2 || (here.len() < 7 && random.below(2) == 0) {
            here.push(world.join(random.below(4) > 0));
            joins += 1;
        } else {
            let at = random.below(here.len() as u64) as usize;
            world.leave(here.swap_remove(at));
            leaves += 1;
        }
        world.run(Duration::from_millis(300 + random.below(1800)));
        world.assert_invariants(seed);
    }
    world.run(seconds(3));
    world.assert_invariants(seed);
    let (people, tracks, subscriptions) = world.shards[0].sizes();
    assert_eq!(people, here.len(), "seed {seed}");
    let published: usize = world.people.iter().map(|person| person.tracks.len()).sum();
    assert_eq!(tracks, published, "seed {seed}");
    assert_eq!(
        subscriptions,
        published * (people - 1),
        "seed {seed}: everyone subscribes to all others, once"
    );
    for record in &world.samples {
        for row in &record.sample.received {
            assert_ne!(row.participant, record.sample.participant, "seed {seed}: himself");
            if loss == 0 {
                assert_eq!(row.packets_lost, 0, "seed {seed} {}: {row:?}", record.person);
            }
        }
    }
}

#[test]
fn twenty_seeds_of_coming_and_going() {
    (100..120).for_each(churn);
}

#[test]
fn what_a_moderator_muted_goes_on_without_a_gap_though_packets_overtake_each_other() {
    let link = Link { delay_ms: 5, jitter_ms: 12, loss_permille: 0 };
    let kind = Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 2 };
    let mut world = World::of(11, link, kind);
    let people: Vec<_> = (0..3).map(|_| world.join(true)).collect();
    world.run(seconds(4));
    let tracks = world.person(people[0]).tracks.clone();
    let silence = |world: &mut World, on| {
        for (track, _) in &tracks {
            let mut effects = Effects::default();
            world.room.silence(*track, on, &mut effects).unwrap();
            world.take(effects);
        }
    };
    silence(&mut world, true);
    world.run(seconds(1));
    let stats = |world: &World| world.shards.iter().map(|s| s.stats().clone()).collect::<Vec<_>>();
    let muted = stats(&world);
    world.run(seconds(4));
    let asked = |stats: &[Stats]| stats.iter().map(|s| s.keyframes_asked).sum::<u64>();
    assert_eq!(asked(&muted), asked(&stats(&world)), "nobody asks the muted for keyframes");
    silence(&mut world, false);
    world.run(seconds(9));
    world.assert_invariants(11);
    let id = format!("p-{}", people[0].0);
    let row = |record: &SampleRecord, kind| {
        let mut rows = record.sample.received.iter();
        rows.find(|row| row.participant == id && row.kind == kind).cloned()
    };
    for record in &world.samples {
        for kind in [MediaKind::Audio, MediaKind::Video] {
            let Some(row) = row(record, kind) else { continue };
            assert!(row.packets_lost <= 20, "{} at {}: {row:?}", record.person, record.t_ms);
            if record.t_ms == 9_000 {
                assert_eq!(row.packets_received, 0, "muted: {row:?}");
            }
        }
    }
    let last: Vec<_> = world.samples.iter().filter(|record| record.t_ms > 14_000).collect();
    assert_eq!(last.len(), 3);
    for record in last.iter().filter(|record| record.sample.participant != id) {
        let picture = row(record, MediaKind::Video).expect("it is in a slot again");
        assert!(picture.frames_per_second.is_some_and(|fps| fps > 18.0), "{picture:?}");
        let sound = row(record, MediaKind::Audio).expect("it is in a slot again");
        assert!(sound.packets_received > 140, "{sound:?}");
    }
}
