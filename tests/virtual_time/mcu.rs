//! Rooms whose sound is mixed: a hundred people, each with a tone of his own, and three of them
//! loud by a seeded plan that changes every two seconds. What each listener decodes must hold the
//! tones of the loudest without himself, and nobody else's.

use super::sinks::Outbox;
use super::world::{LAN, Link, Made, World};
use engine::drops::OutDrop;
use engine::limits::MIX_COPIES_AT_ONCE;
use engine::mix::{Hear, MAX_LOUDEST, MixFor, MixedPacket, Payload};
use engine::room::Topology;
use engine::{Command, PersonKey, RoomKey};
use lab::bot::hearing::Window;
use lab::bot::tones::{LOUD_AMPLITUDE, MAX_TONES, Tone, TonePlan, ToneRole, ToneVoice};
use rtp::RtpHeader;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The audio level extension's id in the sessions of these tests.
const LEVEL_ID: u8 = 1;

/// A mixed packet as it left the server.
struct Sent {
    sequence: u16,
    timestamp: u32,
    level_dbov: u8,
}

type Wire = Rc<RefCell<BTreeMap<SocketAddr, Vec<Sent>>>>;

/// A room that is mixed, and what leaves it.
fn mixed(seed: u64, link: Link, shards: u16) -> (World, Wire) {
    hearing(seed, link, shards, Hear::Loudest(3))
}

/// The same in which these people are heard.
fn hearing(seed: u64, link: Link, shards: u16, hear: Hear) -> (World, Wire) {
    let made = Made { audio: Topology::Mcu, video: Topology::None, shards };
    let mut world = World::hearing(seed, link, made, hear);
    // Tones keep their levels.
    world.music = true;
    let wire = Wire::default();
    let seen = wire.clone();
    world.eats = Box::new(move |to_server, person, bytes| {
        if !to_server && !(64..96).contains(&(bytes[1] & 0x7F)) {
            let header = RtpHeader::parse(bytes).expect("the server sends RTP");
            let level = header.find_extension(bytes, LEVEL_ID).expect("a level")[0] & 0x7F;
            let RtpHeader { sequence, timestamp, .. } = header;
            let sent = Sent { sequence, timestamp, level_dbov: level };
            seen.borrow_mut().entry(person).or_default().push(sent);
        }
        false
    });
    (world, wire)
}

/// Somebody comes in who says the tone of a place.
fn join(world: &mut World, plan: TonePlan, place: u32, origin: Instant) -> PersonKey {
    let key = world.begin_handshake(false);
    let voice = Arc::new(ToneVoice::encode(place).expect("libopus encodes"));
    let role = ToneRole { plan, place, listens: true };
    world.person(key).media.set_tone(Tone { role, origin, voice });
    world.finish_handshake(key);
    key
}

/// Whether a window holds the loud ones of its period without the listener, and nobody else.
fn check(window: &Window, plan: &TonePlan, place: u32) {
    let mut loud: BTreeSet<u32> = plan.loud_in(plan.period(window.from)).into_iter().collect();
    loud.remove(&place);
    assert_eq!(window.missing, 0, "{place}: nothing is lost");
    let full = LOUD_AMPLITUDE * LOUD_AMPLITUDE / 2.0;
    let heard = |least: f64| -> BTreeSet<u32> {
        (0..MAX_TONES).filter(|other| window.powers[*other as usize] > full * least).collect()
    };
    // From a quarter of its power on it is there: two codings in a row take up to half. A quiet one
    // would have an eighth or more; what is there by the coding of others less than a 40th.
    let powers: Vec<_> =
        loud.iter().map(|who| (who, window.powers[*who as usize] / full)).collect();
    assert_eq!(heard(0.25), loud, "{place} at {:?}: {powers:?}", window.from);
    assert_eq!(heard(0.06), loud, "{place} at {:?}", window.from);
}

/// Every packet follows the one before it by one tick.
fn check_wire(wire: &Wire, people: usize, ticks: usize) {
    let wire = wire.borrow();
    assert_eq!(wire.len(), people);
    for (person, sent) in wire.iter() {
        assert!(sent.len() >= ticks, "{person}: {} of {ticks} packets", sent.len());
        for pair in sent.windows(2) {
            assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1), "{person}");
            assert_eq!(pair[1].timestamp, pair[0].timestamp.wrapping_add(960), "{person}");
        }
    }
}

/// Lets a hundred people talk for `seconds`, those of `bots` places in turn loud; returns how many
/// listeners were checked, and how many windows.
fn hundred(shards: u16, bots: u32, seconds: u64) -> (usize, usize) {
    let (mut world, wire) = mixed(11, LAN, shards);
    let plan = TonePlan { seed: 5, bots, loud: 3, alternate: false };
    let origin = world.now.at;
    // Shards take turns, so that places do: those that are loud come first, where there are two.
    let order = (0..50).flat_map(|place| [place, place + 50]);
    let people: Vec<(u32, PersonKey)> =
        order.map(|place| (place, join(&mut world, plan, place, origin))).collect();
    for (place, key) in &people {
        let shard = world.person(*key).shard.0;
        assert!(shards == 1 || u32::from(shard) == place / 50, "{place} is on {shard}");
    }
    let (mut listeners, mut windows) = (BTreeSet::new(), 0);
    for second in 0..seconds {
        world.run(Duration::from_secs(1));
        for (place, key) in &people {
            for window in world.person(*key).media.take_windows() {
                // In the first seconds jitter buffers learn how the network is.
                if window.from < Duration::from_secs(4) {
                    continue;
                }
                check(&window, &plan, *place);
                listeners.insert(*place);
                windows += 1;
            }
        }
        assert_eq!(world.shards.len(), usize::from(shards), "second {second}");
    }
    let sent = world.samples.iter().flat_map(|sample| &sample.sample.sent);
    let losses: Vec<_> = sent.filter_map(|track| track.remote_loss_pct).collect();
    assert!(losses.len() > 100 && losses.iter().all(|pct| *pct == 0.0), "nobody is told of losses");
    let closed: u64 = world.shards.iter().map(|shard| shard.stats().glanced).sum();
    assert!(closed > seconds * 50 * 40, "most packets stay closed: {closed}");
    world.assert_invariants(11);
    check_wire(&wire, 100, seconds as usize * 50 - 2);
    for mixer in &world.mixers {
        let stats = mixer.stats();
        assert_eq!((stats.ticks_late, stats.ticks_skipped, stats.sums_late), (0, 0, 0));
        let lost = stats.jitter.late + stats.jitter.overflow + stats.jitter.concealed;
        assert_eq!((lost, stats.packets_refused, stats.codec_failed), (0, 0, 0), "{stats:?}");
    }
    (listeners.len(), windows)
}

#[test]
fn a_hundred_hear_the_three_loudest_and_not_themselves() {
    let (listeners, windows) = hundred(1, 100, 30);
    assert!(listeners >= 40 && windows >= 100, "{listeners} listeners, {windows} windows");
}

#[test]
fn a_hundred_over_two_shards_with_all_who_are_loud_on_one() {
    let (listeners, windows) = hundred(2, 50, 20);
    assert!(listeners >= 40 && windows >= 100, "{listeners} listeners, {windows} windows");
}

#[test]
fn where_everyone_is_heard_a_dozen_hear_each_other_and_not_themselves() {
    for shards in [1, 2] {
        let (mut world, wire) = hearing(5, LAN, shards, Hear::Everyone);
        // All are loud all the time.
        let plan = TonePlan { seed: 5, bots: 12, loud: 12, alternate: false };
        let origin = world.now.at;
        let people: Vec<(u32, PersonKey)> =
            (0..12).map(|place| (place, join(&mut world, plan, place, origin))).collect();
        // Who listens gets the common mix, which is for nobody else.
        (0..shards).for_each(|_| _ = world.join_listening());
        let mut windows = 0;
        for _ in 0..14 {
            world.run(Duration::from_secs(1));
            for (place, key) in &people {
                let took = world.person(*key).media.take_windows();
                for window in took.iter().filter(|window| window.from >= Duration::from_secs(4)) {
                    // All are there, though together they are so loud that the limiter works.
                    let full = LOUD_AMPLITUDE * LOUD_AMPLITUDE / 2.0;
                    let heard: Vec<u32> = (0..MAX_TONES)
                        .filter(|other| window.powers[*other as usize] > full * 0.06)
                        .collect();
                    let others: Vec<u32> = (0..12).filter(|other| other != place).collect();
                    assert_eq!((window.missing, heard), (0, others), "{place}, {shards} shards");
                    windows += 1;
                }
            }
        }
        assert!(windows >= 40, "{windows} windows");
        world.assert_invariants(5);
        check_wire(&wire, 12 + usize::from(shards), 14 * 50 - 2);
        for shard in &world.shards {
            assert_eq!(shard.stats().out_drops.get(OutDrop::SameTick), 0);
        }
    }
}

#[test]
fn a_packet_for_many_leaves_in_slices_and_everybody_gets_it_once() {
    const LISTENERS: usize = MIX_COPIES_AT_ONCE + 22;
    let (mut world, wire) = mixed(5, LAN, 1);
    let listeners: Vec<_> = (0..LISTENERS).map(|_| world.join_listening()).collect();
    world.run(Duration::from_secs(1));
    let got = wire.borrow().values().map(Vec::len).min();
    assert!(wire.borrow().len() == LISTENERS && got > Some(20), "{got:?}");
    let silence = Payload::new(&[0xF8, 0xFF, 0xFE]).expect("short");
    let now = world.now;
    let mut packet = MixedPacket {
        room: RoomKey(1),
        to: MixFor::Everyone { except: [None; MAX_LOUDEST] },
        tick: 1_000,
        ticks: 2,
        level_dbov: 127,
        since: now.at.checked_sub(Duration::from_millis(70)),
        payload: silence,
    };
    let mut out = Outbox::new(BTreeMap::new());
    let shard = &mut world.shards[0];
    shard.handle_mixed(now, &packet, &mut out);
    assert_eq!(out.out.len(), MIX_COPIES_AT_ONCE);
    assert!(shard.next_deadline() <= Some(now.at), "the rest is due");
    // Somebody of the first slice leaves, and the listeners after them move up.
    shard.command(Command::Remove { person: listeners[0] }, now, &mut out);
    let to: BTreeSet<_> = out.out.drain(..).map(|(address, _)| address).collect();
    assert_eq!(to.len(), LISTENERS, "everybody got it");
    assert_eq!(
        shard.stats().mix_residence.counts[6],
        LISTENERS as u64,
        "70 ms after what is in it came"
    );
    // Somebody's own packet of the next tick comes after what waits for them.
    packet.tick = 1_002;
    shard.handle_mixed(now, &packet, &mut out);
    (packet.to, packet.tick, packet.ticks) = (MixFor::One(listeners[LISTENERS - 1]), 1_004, 1);
    shard.handle_mixed(now, &packet, &mut out);
    assert_eq!(out.out.len(), LISTENERS, "all but one listener, and one of them twice");
    assert_eq!(shard.stats().out_drops.get(OutDrop::SameTick), 0);
    assert_eq!(shard.kept().find(|(what, _)| *what == "mixed packets"), Some(("mixed packets", 0)));
    // Of two ticks that were sent none comes again.
    (packet.to, packet.tick) = (MixFor::One(listeners[3]), 1_003);
    shard.handle_mixed(now, &packet, &mut out);
    assert_eq!((out.out.len(), shard.stats().out_drops.get(OutDrop::SameTick)), (LISTENERS, 1));
}

#[test]
fn who_leaves_is_silent_from_the_next_tick() {
    for shards in [1, 2] {
        let (mut world, wire) = mixed(3, LAN, shards);
        let plan = TonePlan { seed: 1, bots: 2, loud: 2, alternate: false };
        let origin = world.now.at;
        let leaver = join(&mut world, plan, 0, origin);
        let stays = join(&mut world, plan, 1, origin);
        let address = world.person(stays).address;
        // To the middle of a tick.
        world.run(Duration::from_millis(3_010));
        let before = wire.borrow()[&address].len();
        assert!(wire.borrow()[&address][before - 50..].iter().all(|sent| sent.level_dbov < 30));
        world.leave(leaver);
        world.run(Duration::from_millis(500));
        let wire = wire.borrow();
        let after = &wire[&address][before..];
        assert_eq!(after.len(), 25);
        assert!(after.iter().all(|sent| sent.level_dbov == 127), "{shards} shards");
    }
}
