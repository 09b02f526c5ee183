//! Rooms in which all are heard who are not silent.

use super::set;
use super::world::{Sink, World};
use engine::mix::{Hear, MixFor};

#[test]
fn where_everyone_is_heard_each_hears_all_the_others_and_not_himself() {
    for shards in [1, 3] {
        let mut world = World::hearing(shards, Hear::Everyone);
        let shard_of = |person: u64| person as usize % shards;
        for person in 1..=12 {
            world.talk(person, shard_of(person), 0.05);
        }
        // 12 is silent; 13 to 15 only listen.
        world.talkers.get_mut(&12).unwrap().amplitude = 0.0;
        (1..=15).for_each(|person| world.listen(person, shard_of(person), true));
        world.run_ms(2_000);
        for person in 1..=15 {
            let heard = world.hears(person, 500, &set(1..=12));
            assert_eq!(heard, set((1..=11).filter(|other| *other != person)), "{person}");
        }
        assert_eq!(world.heard[&(world.tick() - 1)], set(1..=11));
        // Who begins is heard, and who ends is not.
        world.talkers.get_mut(&12).unwrap().amplitude = 0.05;
        world.talkers.get_mut(&1).unwrap().amplitude = 0.0;
        world.run_ms(3_000);
        for person in [1, 7, 12, 14] {
            let heard = world.hears(person, 500, &set(1..=12));
            assert_eq!(heard, set((2..=12).filter(|other| *other != person)), "{person}");
        }
        world.check_ticks(1);
        let stats = (0..shards).map(|shard| world.stats(shard).clone()).collect::<Vec<_>>();
        let decoded: u64 = stats.iter().map(|stats| stats.jitter.decoded).sum();
        assert!(decoded > 11 * 240, "{decoded}");
        for stats in stats {
            assert_eq!((stats.sums_late, stats.sums_unused, stats.ranks), (0, 0, 0), "{stats:?}");
            assert!(stats.jitter.decoded < decoded / shards as u64 + 300, "spread over all");
        }
    }
}

#[test]
fn where_everyone_is_heard_nobody_hears_himself_though_packets_find_no_room() {
    for (refuses, common) in [(8, true), (9, false)] {
        let mut world = World::hearing(1, Hear::Everyone);
        for person in 1..=12 {
            world.talk(person, 0, 0.05);
            world.listen(person, 0, false);
        }
        world.listen(13, 0, false);
        world.run_ms(1_000);
        let mut sink = Sink::default();
        sink.refuses_first = refuses;
        let due = world.mixers[0].next_deadline().unwrap();
        world.mixers[0].handle_timeout(due, &mut sink);
        let own = sink.packets.iter().filter(|packet| matches!(packet.to, MixFor::One(_)));
        assert_eq!(own.count(), 12);
        let except = sink.packets.iter().find_map(|packet| match packet.to {
            MixFor::Everyone { except } => Some(except.into_iter().flatten().count()),
            MixFor::One(_) => None,
        });
        assert_eq!(except, common.then_some(refuses), "those who lack theirs, if they fit");
    }
}
