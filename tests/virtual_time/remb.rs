//! A participant who gives no transport-wide feedback says what their path carries (REMB).

use super::asking_again::{Control, SENDER};
use super::downlink::slow;
use super::world::{LAN, World};
use engine::PersonKey;
use lab::bots::VideoSource;
use rtp::rtcp;
use std::time::Duration;

const S: Duration = Duration::from_secs(1);

/// People who send sound and pictures in three layers, and one who receives and says what their path carries.
struct Few {
    world: World,
    receiver: PersonKey,
    control: Control,
    /// What the receiver said last, in bits a second.
    estimate: f64,
}

impl Few {
    fn new(seed: u64, senders: usize) -> Self {
        let mut world = World::new(seed, LAN);
        (world.clip, world.layers) = (VideoSource::Simulcast, 3);
        (0..senders).for_each(|_| _ = world.join(true));
        world.feedback = false;
        let receiver = world.join_listening();
        let control = Control::new(&mut world, receiver);
        Self { world, receiver, control, estimate: 0.0 }
    }

    /// A second goes by after the receiver said this. Returns how much came meanwhile, in bits.
    fn second(&mut self, bps: f64) -> f64 {
        self.estimate = bps;
        let mut compound = Vec::new();
        rtcp::remb(&mut compound, SENDER, bps as u64, &[]);
        self.control.send(&mut self.world, &compound);
        let before = self.world.downlink(self.receiver);
        self.world.run(S);
        self.world.downlink(self.receiver).since(&before).bytes as f64 * 8.0
    }

    /// So many seconds, in which the receiver behaves as libwebrtc's `AimdRateControl` does on a path of so much: its
    /// estimate rises by 8 % a second up to one and a half times what came, and falls below that if the path is full.
    fn live(&mut self, seconds: usize, path_bps: f64) {
        for _ in 0..seconds {
            let estimate = self.estimate;
            let came = self.second(estimate);
            let full = came >= 0.95 * path_bps;
            let risen = (1.08 * estimate).min(1.5 * came + 10_000.0).max(estimate);
            self.estimate = if full { 0.85 * came } else { risen };
        }
    }
}

#[test]
fn what_a_receiver_says_that_their_path_carries_is_what_flows() {
    let mut few = Few::new(8, 2);
    few.world.run(5 * S);
    assert!(few.world.paused.is_empty(), "nothing is known");
    let second = |few: &mut Few| (few.second(300_000.0), few.world.paused.len());
    let seconds: Vec<(f64, usize)> = (0..30).map(|_| second(&mut few)).collect();
    let mean = seconds[5..].iter().map(|(bits, _)| bits).sum::<f64>() / 25.0;
    assert!((200_000.0..300_000.0).contains(&mean), "sound and one picture: {seconds:?}");
    // The other is tried now and then.
    let paused = seconds[5..].iter().filter(|(_, paused)| *paused == 1).count();
    assert!(paused >= 20, "the other is said to be paused: {seconds:?}");
    let came: Vec<f64> = (0..30).map(|_| few.second(3_000_000.0)).collect();
    assert!(few.world.paused.is_empty(), "{came:?}");
    assert!(came[25..].iter().all(|bits| *bits > 1_000_000.0), "{came:?}");
    few.world.run(12 * S);
    let estimate = few.world.shards[0].estimate_bps(few.receiver, few.world.now.at);
    assert_eq!(estimate, None, "it is forgotten");
    few.world.assert_invariants(8);
}

#[test]
fn pictures_come_back_although_an_estimate_only_tells_of_what_flows() {
    let mut few = Few::new(9, 3);
    few.world.set_downlink(few.receiver, slow(280));
    few.estimate = 280_000.0;
    few.live(30, 280_000.0);
    assert!(few.world.paused.len() >= 2, "{:?}", few.world.paused);
    few.world.set_downlink(few.receiver, slow(20_000));
    few.live(30, 20_000_000.0);
    assert!(few.world.paused.is_empty(), "{:?}", few.world.paused);
    few.live(30, 20_000_000.0);
    assert!(few.estimate > 3_000_000.0, "larger ones, too: {}", few.estimate);
    few.world.assert_invariants(9);
}

/// What somebody says of their path as their how many-th word, in bits a second.
type Word = fn(u64) -> u64;

/// Bytes that came in 20 s to a liar, to an honest receiver, and to one who gives feedback on packets. Keyframes that were
/// asked for.
struct Came {
    liar: u64,
    honest: u64,
    other: u64,
    keyframes: u64,
}

/// A liar says so much of their path so often a second, whose downlink carries what `path_kbps` says.
fn lie(word: Word, a_second: u32, path_kbps: u32) -> Came {
    let mut few = Few::new(11, 2);
    let liar = few.world.join_listening();
    let mut control = Control::new(&mut few.world, liar);
    few.world.feedback = true;
    let other = few.world.join_listening();
    few.world.set_downlink(liar, slow(path_kbps));
    few.world.run(5 * S);
    let [liar_before, honest_before, other_before] =
        [liar, few.receiver, other].map(|key| few.world.downlink(key));
    let (mut told, asked) = (0, few.world.stats().keyframes_asked);
    for _ in 0..20 {
        let mut compound = Vec::new();
        rtcp::remb(&mut compound, SENDER, 5_000_000, &[]);
        few.control.send(&mut few.world, &compound);
        for _ in 0..a_second {
            let mut compound = Vec::new();
            rtcp::remb(&mut compound, SENDER, word(told), &[]);
            control.send(&mut few.world, &compound);
            few.world.run(S / a_second);
            told += 1;
        }
    }
    let keyframes = few.world.stats().keyframes_asked - asked;
    few.world.assert_invariants(11);
    let mut since = |key, before| few.world.downlink(key).since(&before).bytes;
    Came {
        liar: since(liar, liar_before),
        honest: since(few.receiver, honest_before),
        other: since(other, other_before),
        keyframes,
    }
}

#[test]
fn who_lies_about_their_path_gets_no_more_and_takes_nothing_from_others() {
    let calm = lie(|_| 5_000_000, 1, 20_000);
    let all: [(&str, Word, u32, u32); 7] = [
        ("nothing", |_| 0, 1, 20_000),
        ("a bit", |_| 1, 1, 20_000),
        ("10 Gbit/s", |_| 10_000_000_000, 1, 20_000),
        ("10 Gbit/s on a slow path", |_| 10_000_000_000, 1, 500),
        ("by turns", |nth| [0, 10_000_000_000][(nth % 2) as usize], 250, 20_000),
        ("by turns, slowly", |nth| [0, 10_000_000_000][(nth % 2) as usize], 2, 20_000),
        ("anything", |nth| nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (nth % 64), 250, 20_000),
    ];
    for (name, word, a_second, path_kbps) in all {
        let came = lie(word, a_second, path_kbps);
        let Came { liar, honest, other, keyframes } = came;
        eprintln!(
            "{name}: {liar} bytes to the liar, {honest} and {other} to others, {keyframes} keyframes"
        );
        assert!(liar <= 2 * honest, "{name}: {liar} bytes to the liar, {honest} to the honest one");
        assert!(honest >= calm.honest / 100 * 95, "{name}: {honest} of {}", calm.honest);
        assert!(other >= calm.other / 100 * 95, "{name}: {other} of {}", calm.other);
        // Each makes a picture larger for all who get it: two a second for each of two slots at most.
        assert!(keyframes <= calm.keyframes + 4 * 20, "{name}: {keyframes} keyframes");
        // Sound flows whatever is said.
        assert!(liar > 20 * 2 * 2000, "{name}: {liar} bytes");
    }
}

#[test]
fn where_feedback_on_packets_was_agreed_on_nobody_else_estimates() {
    let mut world = World::new(10, LAN);
    let people: Vec<_> = (0..3).map(|_| world.join(true)).collect();
    let mut control = Control::new(&mut world, people[0]);
    for _ in 0..10 {
        let mut compound = Vec::new();
        rtcp::remb(&mut compound, SENDER, 100_000, &[]);
        control.send(&mut world, &compound);
        world.run(S);
    }
    assert_eq!((world.stats().rested, world.paused.len()), (0, 0));
    world.assert_invariants(10);
}
