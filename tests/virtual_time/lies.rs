//! A participant whose transport-wide feedback is not true: however they lie, they get little more than an honest one.

use super::asking_again::{Control, SENDER};
use super::world::{LAN, World};
use lab::bots::VideoSource;
use rtp::RtpHeader;
use rtp::header::{is_rtcp, transport_sequence};
use rtp::twcc::FeedbackBuilder;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A liar tells each so often, for so many times.
const TURN: Duration = Duration::from_millis(100);
const TURNS: usize = 400;

/// When a packet came, as a liar says: its how many-th of this turn, when it did, and a number by chance.
type Lie = fn(u32, Instant, u64) -> Option<Instant>;

/// By chance within a second, and a third of them not at all.
fn by_chance(_: u32, at: Instant, chance: u64) -> Option<Instant> {
    (!chance.is_multiple_of(3)).then(|| at + Duration::from_micros(chance % 1_000_000))
}

/// All of a turn came at once: such a path carries everything.
fn at_once(_: u32, at: Instant, _: u64) -> Option<Instant> {
    Some(at)
}

/// They came sooner and sooner: a queue that empties for ever.
fn sooner(nth: u32, at: Instant, _: u64) -> Option<Instant> {
    Some(at - nth * Duration::from_micros(400))
}

/// Nothing came.
fn nothing(_: u32, _: Instant, _: u64) -> Option<Instant> {
    None
}

/// Numbers of packets that came to an address since they were taken last, and when.
type Came = Rc<RefCell<Vec<u16>>>;

fn watch(world: &mut World, address: SocketAddr, extension: u8) -> Came {
    let came = Came::default();
    let noted = came.clone();
    world.eats = Box::new(move |to_server, person, bytes| {
        if person != address {
            return false;
        }
        if to_server {
            // The liar's bot is honest: of its control packets none arrives.
            return is_rtcp(bytes[1]) && bytes[4..8] != SENDER.to_be_bytes();
        }
        if !is_rtcp(bytes[1]) {
            let header = RtpHeader::parse(bytes).expect("a packet of the server's");
            let number = header.find_extension(bytes, extension).and_then(transport_sequence);
            noted.borrow_mut().extend(number);
        }
        false
    });
    came
}

/// Bits a second to an honest receiver and to one who lies.
fn live(seed: u64, lie: Lie) -> [u64; 2] {
    let mut world = World::new(seed, LAN);
    (world.clip, world.layers) = (VideoSource::Simulcast, 3);
    (0..3).for_each(|_| _ = world.join(true));
    let [honest, liar] = [world.join_listening(), world.join_listening()];
    let address = world.person(liar).address;
    let client = world.client(liar);
    let extension =
        client.negotiated.lines.iter().find_map(|line| line.extensions.transport_sequence);
    let came = watch(&mut world, address, extension.expect("the server numbers its packets"));
    let mut control = Control::new(&mut world, liar);
    let (mut told, mut random) = (FeedbackBuilder::new(), super::Random(seed));
    let before = [honest, liar].map(|key| world.downlink(key));
    let mut named = 0;
    for _ in 0..TURNS {
        world.run(TURN);
        let now = world.now.at;
        for (nth, number) in (0..).zip(came.take()) {
            if let Some(at) = lie(nth, now, random.below(u64::MAX)) {
                told.record(number, at);
                named += 1;
            }
        }
        let mut compound = Vec::new();
        while told.build(SENDER, 1, &mut compound) {
            control.send(&mut world, &compound);
            compound.clear();
        }
    }
    world.assert_invariants(seed);
    let estimate = world.shards[0].estimate_bps(liar, world.now.at);
    println!("{named} packets named, an estimate of {estimate:?} bit/s");
    let told_of = lie(0, world.now.at, 1).is_some();
    assert_eq!(told_of, named > 1000, "{named} packets are told of");
    let after = [honest, liar].map(|key| world.downlink(key));
    [0, 1].map(|who| {
        let bytes = after[who].since(&before[who]).bytes;
        8 * bytes * 1000 / (TURN.as_millis() as u64 * TURNS as u64)
    })
}

#[test]
fn whoever_lies_in_their_feedback_gets_at_most_twice_an_honest_ones_bytes() {
    let lies: [(&str, Lie); 4] =
        [("by chance", by_chance), ("at once", at_once), ("sooner", sooner), ("nothing", nothing)];
    for (seed, (name, lie)) in (51..).zip(lies) {
        let [honest, liar] = live(seed, lie);
        println!("{name}: {liar} bit/s to the liar, {honest} to an honest one");
        assert!(honest > 1_000_000, "{honest}");
        assert!(liar <= 2 * honest, "{name}: {liar} bit/s, {honest} to an honest one");
    }
}
