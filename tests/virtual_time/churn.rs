//! People come and go over one to three shards, by seed: what must hold whatever happens.
//!
//! `MOIM_SEEDS` says how many seeds (20; evidence runs 1000), `MOIM_SEED` runs one alone; `MOIM_MINUTES` how long
//! memory is watched (6; evidence watches an hour).

use super::world::{Link, Made, Random, World};
use super::{number, seeds};
use engine::PersonKey;
use engine::room::{Effects, Topology};
use rtp::negotiated::Kind;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Virtual time of a run, and how many joins and leaves it has at least.
const SPAN: Duration = Duration::from_secs(32);
const MOVES: usize = 20;

#[test]
fn whoever_comes_and_goes_over_however_many_shards() {
    let seeds = seeds(20, &[]);
    let relayed: u64 = seeds.iter().map(|&seed| run(seed)).sum();
    assert!(relayed > 0 || seeds.len() < 3, "some of it crossed shards");
    println!("{} seeds, {relayed} packets relayed", seeds.len());
}

/// The sequence numbers that left the server, by listener and SSRC.
type Sequences = Rc<RefCell<BTreeMap<(std::net::SocketAddr, u32), Vec<u16>>>>;

/// One seeded run; returns how many packets crossed shards.
fn run(seed: u64) -> u64 {
    let mut random = Random(seed);
    let shards = 1 + (seed % 3) as u16;
    let audio = if seed.is_multiple_of(4) { Topology::Mcu } else { Topology::Sfu };
    let video = if random.below(4) == 0 { Topology::None } else { Topology::Sfu };
    // None is lost, so that each gap is the server's own; in every third run they overtake each
    // other, and what comes late for a slot that has switched is left out rightly.
    let jitter_ms = if random.below(3) == 0 { 1 + random.below(12) } else { 0 };
    let link = Link { delay_ms: 5, jitter_ms, loss_permille: 0 };
    let mut world = World::of(seed, link, Made { audio, video, shards });
    let sequences = Sequences::default();
    let seen = sequences.clone();
    world.eats = Box::new(move |to_server, person, bytes| {
        if !to_server && bytes.len() > 12 && !(64..96).contains(&(bytes[1] & 0x7F)) {
            let ssrc = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
            let sequence = u16::from_be_bytes([bytes[2], bytes[3]]);
            seen.borrow_mut().entry((person, ssrc)).or_default().push(sequence);
        }
        false
    });
    let mut here: Vec<PersonKey> = Vec::new();
    let mut moves = 0;
    let start = world.elapsed_ms();
    let pause = SPAN.as_millis() as u64 / (MOVES as u64 + 4);
    while moves < MOVES || world.elapsed_ms() - start < SPAN.as_millis() as u64 {
        let leave = here.len() > 2 && (here.len() >= 6 || random.below(2) == 0);
        if leave {
            let who = here.remove(random.below(here.len() as u64) as usize);
            world.leave(who);
        } else {
            here.push(world.join(video != Topology::None && random.below(3) > 0));
        }
        moves += 1;
        if here.len() > 2 && random.below(3) == 0 {
            choose(&mut world, &here, &mut random);
        }
        world.run(Duration::from_millis(pause / 2 + random.below(pause)));
        world.assert_invariants(seed);
    }
    assert!(moves >= MOVES);
    check_samples(&world, seed);
    check_sequences(&sequences.borrow(), &world, seed);
    let relayed = world.shards.iter().map(|shard| shard.stats().relay_in).sum();
    for who in here {
        world.leave(who);
    }
    world.run(Duration::from_secs(1));
    for shard in &world.shards {
        assert_eq!(shard.sizes(), (0, 0, 0), "seed {seed}: nothing stays when everybody left");
    }
    assert!(world.longest_lane <= 1024, "seed {seed}: {} waited on a lane", world.longest_lane);
    relayed
}

/// A minute in which one after the other leaves and somebody like him comes, and its last seconds in peace.
fn minute(world: &mut World, here: &mut [(PersonKey, bool)], random: &mut Random) {
    for _ in 0..16 {
        let place = random.below(here.len() as u64) as usize;
        let (who, video) = here[place];
        world.leave(who);
        world.run(Duration::from_millis(500 + random.below(1000)));
        here[place] = (world.join(video), video);
        world.run(Duration::from_millis(1000 + random.below(1000)));
    }
    world.run(Duration::from_secs(12));
    world.forget();
}

#[test]
fn coming_and_going_leaves_no_memory_behind() {
    let minutes = number("MOIM_MINUTES").unwrap_or(6);
    let first = minutes / 6;
    let mut random = Random(7);
    let (mut world, mut here) = (None, Vec::new());
    let mut live = allocation_counter::measure(|| {
        let kind = Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 2 };
        let link = Link { delay_ms: 5, jitter_ms: 2, loss_permille: 5 };
        let mut made = World::of(7, link, kind);
        here = [true, false, false, false].map(|video| (made.join(video), video)).to_vec();
        world = Some(made);
    })
    .bytes_current;
    let mut world = world.expect("it was made");
    let mut early = None;
    for number in 1..=minutes {
        live += allocation_counter::measure(|| minute(&mut world, &mut here, &mut random))
            .bytes_current;
        world.assert_invariants(7);
        if number == first {
            early = Some(live);
        }
    }
    let early = early.expect("minutes are many");
    println!("{early} bytes live after {first} minutes, {live} after {minutes}");
    assert!(early > 100_000, "{early}");
    assert!(live as f64 <= 1.05 * early as f64, "{early} bytes at first, {live} at last");
}

/// Somebody chooses what he sees, or is muted by a moderator for a while.
fn choose(world: &mut World, here: &[PersonKey], random: &mut Random) {
    let who = here[random.below(here.len() as u64) as usize];
    let other = here[random.below(here.len() as u64) as usize];
    let tracks = world.person(other).tracks.clone();
    let Some((track, kind)) = tracks.last().copied() else { return };
    if random.below(2) == 0 {
        let mut effects = Effects::default();
        let on = random.below(2) == 0;
        world.room.silence(track, on, &mut effects).unwrap();
        world.take(effects);
    } else if kind == Kind::Video && other != who {
        let slots = world.room.person(who).unwrap();
        let mids: Vec<String> =
            slots.slot_contents(Kind::Video).map(|(mid, _)| mid.to_owned()).collect();
        if let Some(mid) = mids.get(random.below(mids.len().max(1) as u64) as usize) {
            world.want(who, mid, track);
        }
    }
}

fn check_samples(world: &World, seed: u64) {
    assert!(!world.samples.is_empty());
    let mut received = 0;
    for record in &world.samples {
        for row in &record.sample.received {
            received += row.packets_received;
            let own = row.participant == record.sample.participant;
            assert!(!own, "seed {seed}: {} receives himself: {row:?}", record.person);
            // What is on its way past others counts as lost for a moment.
            let overtaken = if world.link.jitter_ms > 0 { 20 } else { 0 };
            assert!(row.packets_lost <= overtaken, "seed {seed}: {}: {row:?}", record.person);
        }
    }
    assert!(received > 1000, "seed {seed}: {received} packets received");
}

/// Each number from the first to the last left exactly once; retransmissions have streams of
/// their own.
fn check_sequences(
    sequences: &BTreeMap<(std::net::SocketAddr, u32), Vec<u16>>,
    world: &World,
    seed: u64,
) {
    assert!(sequences.len() > world.people.len(), "seed {seed}");
    for ((person, ssrc), numbers) in sequences {
        let first = numbers[0];
        // From the first, as signed distances: a late packet may come before it.
        let mut offsets = BTreeSet::new();
        let mut extended = 0i32;
        let mut last = first;
        for number in numbers {
            extended += i32::from(number.wrapping_sub(last) as i16);
            last = *number;
            let new = offsets.insert(extended);
            assert!(new, "seed {seed}: {person} {ssrc:08x}: {number} left twice");
        }
        let (low, high) = (offsets.first().unwrap(), offsets.last().unwrap());
        let span = (high - low + 1) as usize;
        let whole = offsets.len() == span || world.link.jitter_ms > 0;
        assert!(whole, "seed {seed}: {person} {ssrc:08x}: a gap: {} of {span}", offsets.len());
    }
}
