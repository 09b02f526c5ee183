//! Packets of several ticks, for listeners who are not heard.

use super::ten;
use super::world::World;

#[test]
fn longer_packets_hold_the_same_sound_and_each_tick_once() {
    // Who is loudest changes, and people come and go, in the middle of packets.
    let run = |packet_ticks: u8, shards: usize| {
        let mut world = ten(|person| person as usize % shards, shards);
        world.packet_ticks = packet_ticks;
        world.layout();
        for turn in 0..20_u64 {
            world.run_ms(330 + 20 * (turn % 3));
            let talker = world.talkers.get_mut(&(1 + turn * 7 % 10)).unwrap();
            talker.amplitude = if turn % 2 == 0 { 0.3 } else { 0.001 };
            if turn % 5 == 4 {
                world.listen(20 + turn, turn as usize % shards, false);
            }
            if turn % 5 == 1 && turn > 5 {
                world.unlisten(20 + turn - 2);
            }
        }
        world.run_ms(500);
        world.check_ticks(330 / 20 * 100);
        world
    };
    for shards in [1, 2] {
        let short = run(1, shards);
        for (packet_ticks, most) in [(2, 62), (3, 45)] {
            let long = run(packet_ticks, shards);
            // Whoever came in the middle of a packet got it from its first tick on.
            for (person, ear) in long.ears.range(..=12) {
                let same = &short.ears[person];
                let ticks = ear.ticks.len();
                assert_eq!((&ear.own, &ear.levels.len()), (&same.own[..ticks].to_vec(), &ticks));
                assert!(ear.sound == same.sound[..ear.sound.len()], "{person} hears the same");
            }
            // Who is never heard gets few packets.
            let quiet = &long.ears[&12];
            let percent = 100 * quiet.packets / quiet.ticks.len();
            assert!(percent < most, "{percent} % of the packets with {packet_ticks} ticks each");
            let changed = long.heard.values().zip(long.heard.values().skip(1));
            let changes = changed.filter(|(one, next)| one != next).count();
            assert!(changes > 5, "who is heard changed {changes} times");
            assert_eq!(long.stats(0).encodes_common, short.stats(0).encodes_common);
        }
    }
}

#[test]
fn who_listens_first_again_gets_nothing_of_before() {
    let mut world = World::new(1, 3);
    world.packet_ticks = 3;
    world.talk(1, 0, 0.2);
    world.layout();
    for round in 0..6 {
        world.listen(2, 0, true);
        let from = world.tick();
        // Packets end after three ticks: somebody leaves in the middle of one.
        world.run_ms(200 + 20 * round);
        let ear = world.unlisten(2);
        assert!(ear.ticks[0] > from, "{round}: {} is of before {from}", ear.ticks[0]);
        world.run_ms(500);
    }
}
