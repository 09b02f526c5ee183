//! Feedback tells which pictures are lost: they are sent again before anybody asks, within the bounds of requests.

use super::asking_again::{Control, RTX, SENDER, refused};
use super::world::{LAN, World};
use engine::PersonKey;
use lab::link::{LinkSpec, Loss};
use rtp::header::{RtpHeader, is_rtcp, transport_sequence};
use rtp::rtcp::{self, Packet, ReportBlock};
use rtp::srtp::Opener;
use rtp::twcc::FeedbackBuilder;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::room::MediaKind;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// So much of what comes to a person is lost.
fn loses(world: &mut World, key: PersonKey, share: f64) {
    let (delay, jitter) = (25 * MS, 5 * MS);
    let spec = LinkSpec { delay, jitter, loss: Loss::Random(share), ..LinkSpec::default() };
    world.set_downlink(key, spec);
}

/// A person's requests for packets never arrive.
fn silence(world: &mut World, key: PersonKey) {
    let (address, keys) = (world.person(key).address, world.client(key).keys.local);
    let mut opener = Opener::new(&keys);
    world.eats = Box::new(move |to_server, person, bytes| {
        if !to_server || person != address || !is_rtcp(bytes[1]) {
            return false;
        }
        let mut plain = vec![0; bytes.len()];
        let len = opener.open_rtcp(bytes, &mut plain).expect("it is theirs");
        rtcp::parse(&plain[..len]).any(|packet| matches!(packet, Ok(Packet::Nack(_))))
    });
}

/// The share of the time for which the pictures of a person are still, after the first twelve seconds.
fn still(world: &World, key: PersonKey) -> f64 {
    let name = format!("bot-{}", key.0);
    let samples = world.samples.iter().filter(|s| s.person == name && s.t_ms > 12_000);
    let rows = samples.flat_map(|sample| &sample.sample.received);
    let rows = rows.filter(|row| row.kind == MediaKind::Video);
    let ratios: Vec<f64> = rows.filter_map(|row| row.freeze_ratio).collect();
    assert!(ratios.len() > 20, "{}", ratios.len());
    ratios.iter().sum::<f64>() / ratios.len() as f64
}

#[test]
fn pictures_that_are_lost_come_again_though_nobody_asks() {
    for seed in [61, 62, 63] {
        let mut world = World::new(seed, LAN);
        (0..3).for_each(|_| _ = world.join(true));
        let lossy = world.join_listening();
        loses(&mut world, lossy, 0.05);
        silence(&mut world, lossy);
        world.run(60 * S);
        let lost = world.downlink(lossy).lost;
        let stats = world.stats();
        println!("{lost} lost, {} sent again: still {}", stats.resent, still(&world, lossy));
        // A third of the packets is sound. Each goes twice, and few go in vain.
        assert!(stats.resent_unasked > lost / 2 && stats.resent_unasked < lost, "{stats:?}");
        assert!(stats.resent <= 2 * stats.resent_unasked, "{stats:?}");
        // Without being sent again unasked, three quarters of the time.
        assert!(still(&world, lossy) < 0.04, "seed {seed}: {}", still(&world, lossy));
        world.assert_invariants(seed);
    }
}

#[test]
fn who_asks_for_what_is_sent_again_already_asks_too_soon() {
    let mut world = World::new(64, LAN);
    (0..3).for_each(|_| _ = world.join(true));
    let lossy = world.join_listening();
    loses(&mut world, lossy, 0.05);
    world.run(40 * S);
    let stats = world.stats();
    assert!(stats.resent_unasked > 50 && refused(&world, "resend_too_soon") > 50, "{stats:?}");
    let resent = stats.resent;
    assert!(resent < 3 * world.downlink(lossy).lost, "{resent}: once, by either");
    assert!(still(&world, lossy) < 0.01, "{}", still(&world, lossy));
    world.assert_invariants(64);
}

#[test]
fn where_little_is_lost_hardly_anything_is_sent_again_unasked() {
    let mut world = World::new(65, LAN);
    (0..3).for_each(|_| _ = world.join(true));
    let lossy = world.join_listening();
    loses(&mut world, lossy, 0.005);
    world.run(40 * S);
    let stats = world.stats();
    // Packets that overtake each other look lost to a report now and then.
    assert!(stats.resent > 50 && 10 * stats.resent_unasked < stats.resent, "{stats:?}");
    world.assert_invariants(65);
}

#[test]
fn a_receiver_whose_feedback_tells_that_all_is_lost_gets_at_most_twice_an_honest_ones_bytes() {
    let mut world = World::new(66, LAN);
    (0..3).for_each(|_| _ = world.join(true));
    let [honest, hostile] = [world.join_listening(), world.join_listening()];
    let addresses = [honest, hostile].map(|key| world.person(key).address);
    let lines = world.client(hostile).negotiated.lines;
    let id = lines.iter().find_map(|line| line.extensions.transport_sequence).expect("agreed");
    let bytes: Rc<RefCell<[u64; 3]>> = Rc::default();
    let numbers: Rc<RefCell<Vec<u16>>> = Rc::default();
    let highest: Rc<RefCell<BTreeMap<u32, u32>>> = Rc::default();
    let (counted, noted, reached) = (bytes.clone(), numbers.clone(), highest.clone());
    world.eats = Box::new(move |to_server, person, bytes| {
        let Some(who) = addresses.iter().position(|address| *address == person) else {
            return false;
        };
        if is_rtcp(bytes[1]) {
            // The hostile one's own bot tells the truth.
            return to_server && who == 1 && bytes[4..8] != SENDER.to_be_bytes();
        }
        let again = usize::from(who == 1 && bytes[1] & 0x7F == RTX);
        counted.borrow_mut()[who + again] += bytes.len() as u64;
        let header = RtpHeader::parse(bytes).expect("it is RTP");
        if who == 1
            && let Some(number) = header.find_extension(bytes, id)
        {
            noted.borrow_mut().extend(transport_sequence(number));
            reached.borrow_mut().insert(header.ssrc, u32::from(header.sequence));
        }
        false
    });
    world.run(2 * S);
    let mut control = Control::new(&mut world, hostile);
    let (before, mut told) = (*bytes.borrow(), FeedbackBuilder::new());
    for turn in 0..400 {
        let mut compound = Vec::new();
        if turn % 10 == 0 {
            let block = |(ssrc, highest): (&u32, &u32)| ReportBlock {
                ssrc: *ssrc,
                fraction_lost: 255,
                highest_sequence: *highest,
                ..ReportBlock::default()
            };
            let blocks: Vec<_> = highest.borrow().iter().map(block).take(20).collect();
            rtcp::receiver_report(&mut compound, SENDER, &blocks);
            control.send(&mut world, &compound);
            compound.clear();
        }
        // Of all that left since the last feedback, only the last came.
        if let Some(last) = std::mem::take(&mut *numbers.borrow_mut()).last() {
            told.record(*last, world.now.at);
        }
        while told.build(SENDER, 0, &mut compound) {
            control.send(&mut world, &compound);
            compound.clear();
        }
        world.run(20 * MS);
    }
    let [good, bad, again] = [0, 1, 2].map(|kind| bytes.borrow()[kind] - before[kind]);
    println!("{bad} bytes and {again} again, {good} to the honest one");
    assert!(good > 1_000_000 && bad + again <= 2 * good, "{bad} and {again} bytes, {good}");
    // Its pictures rest, since nothing is taken to fit; what still flows comes again within the bounds of requests.
    assert!(20 * again < 13 * bad + 20 * 20_000, "{again} bytes again, {bad} before");
    let stats = world.stats();
    assert!(stats.resent_unasked > 50 && refused(&world, "resend_budget") > 20, "{stats:?}");
    world.assert_invariants(66);
}
