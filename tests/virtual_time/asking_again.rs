//! What receivers ask for, packets again and keyframes, is answered within bounds.

use super::bursts::{send, watched};
use super::world::{LAN, World};
use engine::PersonKey;
use engine::drops::{InDrop, OutDrop};
use lab::bots::VideoSource;
use lab::link::LinkSpec;
use rtp::header::is_rtcp;
use rtp::rtcp;
use rtp::srtp::Sealer;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use wire::room::MediaKind;

const MS: Duration = Duration::from_millis(1);
/// The payload type of what is sent again in these sessions.
const RTX: u8 = 97;
/// The SSRC that hand-made control packets come from; the bot of the same participant has another.
pub const SENDER: u32 = 0xBAD;
/// Bytes of items in one NACK.
const COMPOUND_BYTES: usize = 1140;

/// Sends control packets of a participant, made by hand.
pub struct Control {
    key: PersonKey,
    sealer: Sealer,
}

impl Control {
    pub fn new(world: &mut World, key: PersonKey) -> Self {
        let sealer = Sealer::new(&world.client(key).keys.local);
        Self { key, sealer }
    }

    pub fn send(&mut self, world: &mut World, compound: &[u8]) {
        let mut buffer = compound.to_vec();
        buffer.resize(compound.len() + 64, 0);
        let sealed = self.sealer.seal_rtcp(&mut buffer, compound.len()).expect("it can be sealed");
        buffer.truncate(sealed);
        world.send(self.key, buffer);
    }
}

/// Bytes of media on the wire by direction (to the server?) and participant, and which numbers of
/// which streams were sent to each participant.
#[derive(Default)]
struct Seen {
    bytes: BTreeMap<(bool, SocketAddr), u64>,
    packets: BTreeMap<(bool, SocketAddr), u64>,
    numbers: BTreeMap<(SocketAddr, u32), Vec<u16>>,
}

fn watch(world: &mut World) -> Rc<RefCell<Seen>> {
    let seen: Rc<RefCell<Seen>> = Rc::default();
    let noted = seen.clone();
    world.eats = Box::new(move |to_server, person, bytes| {
        if is_rtcp(bytes[1]) {
            return false;
        }
        let mut seen = noted.borrow_mut();
        *seen.bytes.entry((to_server, person)).or_default() += bytes.len() as u64;
        *seen.packets.entry((to_server, person)).or_default() += 1;
        if !to_server && bytes[1] & 0x7F != RTX {
            let ssrc = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
            let number = u16::from_be_bytes(bytes[2..4].try_into().unwrap());
            seen.numbers.entry((person, ssrc)).or_default().push(number);
        }
        false
    });
    seen
}

/// Copies refused for a reason.
fn refused(world: &World, reason: &str) -> u64 {
    let reasons = OutDrop::ALL.iter().filter(|known| known.as_str() == reason);
    reasons.map(|reason| world.stats().out_drops.get(*reason)).sum()
}

#[test]
fn a_receiver_that_asks_for_everything_again_gets_at_most_twice_an_honest_ones_bytes() {
    let mut world = World::new(41, LAN);
    let _senders: Vec<_> = (0..3).map(|_| world.join(true)).collect();
    let [honest, hostile] = [world.join_listening(), world.join_listening()];
    let seen = watch(&mut world);
    world.run(2000 * MS);
    let mut control = Control::new(&mut world, hostile);
    let (good, bad) = (world.person(honest).address, world.person(hostile).address);
    let before = seen.borrow().bytes.clone();
    for _ in 0..80 {
        let numbers = seen.borrow().numbers.clone();
        for ((_, ssrc), numbers) in numbers.iter().filter(|((to, _), _)| *to == bad) {
            let last = &numbers[numbers.len().saturating_sub(600)..];
            // Each of them three times at once, and again in the next turn.
            for _ in 0..3 {
                let mut compound = Vec::new();
                rtcp::nack(&mut compound, SENDER, *ssrc, last.iter().copied());
                for part in compound[12..].chunks(COMPOUND_BYTES) {
                    let mut nack = compound[..12].to_vec();
                    nack.extend(part);
                    let words = (nack.len() / 4 - 1) as u16;
                    nack[2..4].copy_from_slice(&words.to_be_bytes());
                    control.send(&mut world, &nack);
                }
            }
        }
        world.run(100 * MS);
    }
    let got = |who| seen.borrow().bytes[&(false, who)] - before[&(false, who)];
    let (good, bad) = (got(good), got(bad));
    assert!(good > 1_000_000, "{good}");
    assert!(bad >= good, "what flows goes on: {bad} of {good}");
    assert!(bad <= 2 * good, "{bad} bytes to the hostile one, {good} to the honest one");
    let refusals = ["resend_too_soon", "resend_budget"].map(|reason| refused(&world, reason));
    println!("{bad} bytes, {good} to the honest one; refused {refusals:?}");
    assert!(refusals[0] > 10 && refusals[1] > 1000, "{refusals:?}");
    assert!(world.stats().resent > 100, "some of it is sent again");
    world.assert_invariants(41);
    let lost: u64 =
        world.samples.iter().flat_map(|r| &r.sample.received).map(|r| r.packets_lost).sum();
    assert_eq!(lost, 0, "nobody loses anything");
}

#[test]
fn a_participant_behind_a_narrow_link_is_not_sent_much_more_than_what_the_others_send() {
    let mut world = World::new(42, LAN);
    world.clip = VideoSource::P480;
    // With feedback the pictures would rest.
    world.feedback = false;
    let others: Vec<_> = (0..3).map(|_| world.join(true)).collect();
    let slow = world.join(true);
    let narrow =
        LinkSpec { delay: 20 * MS, rate_kbps: Some(1500), queue: 300 * MS, ..LinkSpec::default() };
    world.set_link(slow, narrow);
    let seen = watch(&mut world);
    let address = world.person(slow).address;
    let senders: Vec<_> = others.iter().map(|key| world.person(*key).address).collect();
    let mut steps = Vec::new();
    for _ in 0..200 {
        let seen = std::mem::take(&mut *seen.borrow_mut());
        let sent = |who: &SocketAddr| seen.bytes.get(&(true, *who)).copied().unwrap_or(0);
        let got = seen.bytes.get(&(false, address)).copied().unwrap_or(0);
        let packets = seen.packets.get(&(false, address)).copied().unwrap_or(0);
        steps.push((senders.iter().map(sent).sum::<u64>(), got, packets));
        world.run(100 * MS);
    }
    // It has the pictures of all by then.
    let worst = steps[30..].windows(30).map(|window| {
        let sum = |of: fn(&(u64, u64, u64)) -> u64| window.iter().map(of).sum::<u64>();
        (sum(|step| step.1) as f64 / sum(|step| step.0) as f64, sum(|step| step.2) / 3)
    });
    let worst = worst.max_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
    println!("at most {:.2} times over 3 s, {} packets a second", worst.0, worst.1);
    let stats = world.stats();
    assert!(stats.resent > 100 && stats.nacked < 5000, "it asks: {stats:?}");
    assert!(worst.0 <= 1.3, "{:.2} times what the others send, {} packets/s", worst.0, worst.1);
    let id = format!("p-{}", slow.0);
    let rows = world.samples.iter().filter(|r| r.sample.participant != id && r.t_ms > 6000);
    let rows: Vec<_> =
        rows.flat_map(|r| &r.sample.received).filter(|row| row.participant != id).collect();
    assert!(rows.len() >= 3 * 2 * 2 * 4, "{}", rows.len());
    assert!(rows.iter().all(|row| row.packets_lost == 0), "the others are untouched: {rows:?}");
    let pictures = rows.iter().filter(|row| row.kind == MediaKind::Video);
    assert!(pictures.clone().all(|row| row.frames_per_second.is_some_and(|fps| fps > 18.0)));
    world.assert_invariants(42);
}

#[test]
fn a_flood_of_keyframe_requests_reaches_the_publisher_twice_a_second_at_most() {
    let mut world = World::new(43, LAN);
    world.join(true);
    let hostile = world.join_listening();
    let seen = watch(&mut world);
    world.run(3000 * MS);
    let address = world.person(hostile).address;
    let streams: Vec<u32> =
        seen.borrow().numbers.keys().filter(|(to, _)| *to == address).map(|key| key.1).collect();
    let mut control = Control::new(&mut world, hostile);
    let before = world.stats().keyframes_asked;
    for turn in 0..1000 {
        let mut compound = Vec::new();
        for ssrc in &streams {
            for request in 0..20 {
                rtcp::pli(&mut compound, SENDER, *ssrc);
                rtcp::fir(&mut compound, SENDER, *ssrc, (turn * 20 + request) as u8);
            }
        }
        control.send(&mut world, &compound);
        world.run(10 * MS);
    }
    let asked = world.stats().keyframes_asked - before;
    assert!((10..=21).contains(&asked), "{asked} in 10 s");
    world.assert_invariants(43);
}

#[test]
fn who_sends_too_many_pictures_is_not_asked_for_those_that_were_dropped() {
    let (mut world, _, mut hand, _ears) = watched(1);
    let dropped = |world: &World| world.stats().in_drops.get(InDrop::SenderShare);
    // Twenty thousand a second, five times what anybody may send.
    for _ in 0..3000 {
        (0..20).for_each(|_| send(&mut world, &mut hand, true, &[0x10; 100]));
        world.run(MS);
    }
    world.run(100 * MS);
    let (refused, asked) = (dropped(&world), world.stats().nacked);
    println!("{refused} packets were dropped, {asked} asked for again");
    assert!(refused > 30_000, "{refused}");
    assert_eq!(asked, 0, "numbers of packets that were dropped on purpose are asked for");
    assert!(world.stats().keyframes_asked > 0, "only a keyframe makes it good");
    // Afterwards a packet that is lost is one like any other.
    world.run(3000 * MS);
    for nth in 0..50 {
        hand.sequence = hand.sequence.wrapping_add(u16::from(nth == 25));
        send(&mut world, &mut hand, true, &[0x10; 100]);
        world.run(10 * MS);
    }
    assert_eq!(dropped(&world), refused);
    assert!(world.stats().nacked > 0, "it is asked for again");
}
