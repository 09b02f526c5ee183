//! What holds in a forwarded room whatever people, moderators and the wire do: random calls and
//! packets, by seed.
//!
//! `MOIM_SEEDS` says how many seeds (12), `MOIM_SEED` runs one alone.

use super::hand::{Hand, LOUD, PACKET_TIME, said};
use super::seeds;
use super::world::{Link, Made, Random, World};
use engine::room::{Effects, Topology};
use engine::{Command, PersonKey, TrackKey};
use rtp::header::is_rtcp;
use rtp::negotiated::Kind;
use rtp::rtcp;
use rtp::srtp::{Opener, Sealer};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Random moves of a run.
const MOVES: usize = 40;
/// Seeds that found a fault once: a slot whose picture was given up for one that ended, and a question for a track that
/// overtook the track, or outlived it.
const SHOWED_FAULTS: [u64; 3] = [130, 272, 323];
/// The SSRC that hand-made control packets come from.
const SENDER: u32 = 0xBAD;
/// Keys of people are below this.
const MOST_KEYS: u64 = 10_000;
/// Steps after the last move in which everything settles: keyframes, speakers.
const SETTLES: u32 = 100;
/// A slot flows that had a packet so many steps ago at most.
const LATELY: u32 = 25;

/// What leaves the server for those who are there.
#[derive(Default)]
struct Watch {
    step: u32,
    openers: BTreeMap<SocketAddr, Opener>,
    /// In which step a slot had its last packet.
    last: BTreeMap<(SocketAddr, u32), u32>,
    /// Whose sound came, and the how many-th packet of theirs.
    heard: BTreeSet<(u64, u64)>,
}

impl Watch {
    fn take(&mut self, to: SocketAddr, bytes: &[u8]) {
        let ssrc = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
        self.last.insert((to, ssrc), self.step);
        let Some(opener) = self.openers.get_mut(&to) else { return };
        let mut plain = vec![0; bytes.len()];
        let opened = opener.open_rtp(bytes, &mut plain).expect("the server seals for them");
        let payload = &plain[opened.header.payload_range(&plain[..opened.len]).unwrap()];
        // Of a picture, the last bytes are no key of anybody's.
        self.heard.extend(said(payload).filter(|(who, _)| *who <= MOST_KEYS));
    }
}

/// Somebody who is there.
struct Person {
    key: PersonKey,
    hand: Hand,
    control: Sealer,
    /// Their track of sound, and their picture.
    sound: TrackKey,
    picture: Option<TrackKey>,
    /// Of sound: from which of their packets on a moderator silenced them, if one did.
    silent_from: Option<u64>,
    /// The picture is silenced.
    hidden: bool,
    /// The server takes them for gone.
    suspended: bool,
}

struct Run {
    seed: u64,
    world: World,
    watch: Rc<RefCell<Watch>>,
    random: Random,
    people: Vec<Person>,
    /// Packets that nobody may hear: whose, from which on, and until before which.
    unheard: Vec<(u64, u64, u64)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let made =
            Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 1 + (seed % 3) as u16 };
        // Few slots in every other run: they follow speakers, and speech is kept for them.
        let slots = if random.below(2) == 0 { (8, 8) } else { (2, 2) };
        let link = Link { delay_ms: 5, jitter_ms: 0, loss_permille: 0 };
        let mut world = World::with_slots(seed, link, made, slots);
        let watch: Rc<RefCell<Watch>> = Rc::default();
        let watching = watch.clone();
        world.eats = Box::new(move |to_server, person, bytes| {
            if !to_server && !is_rtcp(bytes[1]) {
                watching.borrow_mut().take(person, bytes);
            }
            false
        });
        Self { seed, world, watch, random, people: Vec::new(), unheard: Vec::new() }
    }

    /// 20 ms, in which everybody says a packet.
    fn step(&mut self) {
        for person in &mut self.people {
            person.hand.say(&mut self.world, LOUD);
        }
        self.world.run(PACKET_TIME);
        self.watch.borrow_mut().step += 1;
    }

    fn join(&mut self) {
        let video = self.random.below(3) > 0;
        let key = self.world.join_silent(video);
        let client = self.world.client(key);
        let hand = Hand::new(&mut self.world, key, Kind::Audio);
        let address = self.world.person(key).address;
        let opener = Opener::new(&client.keys.remote);
        self.watch.borrow_mut().openers.insert(address, opener);
        let tracks = &self.world.person(key).tracks;
        let of = |kind| tracks.iter().find(|(_, known)| *known == kind).map(|(track, _)| *track);
        let (sound, picture) = (of(Kind::Audio).unwrap(), of(Kind::Video));
        let control = Sealer::new(&client.keys.local);
        let (silent_from, hidden, suspended) = (None, false, false);
        self.people.push(Person {
            key,
            hand,
            control,
            sound,
            picture,
            silent_from,
            hidden,
            suspended,
        });
    }

    fn leave(&mut self, at: usize) {
        let person = self.people.swap_remove(at);
        let address = self.world.person(person.key).address;
        self.world.leave(person.key);
        self.watch.borrow_mut().openers.remove(&address);
        if let Some(from) = person.silent_from {
            self.unheard.push((person.key.0, from, u64::MAX));
        }
    }

    /// A moderator silences or releases somebody's sound or picture.
    fn silence(&mut self, at: usize) {
        let person = &mut self.people[at];
        let said = u64::from(person.hand.said);
        let (track, on) = match person.picture.filter(|_| self.random.below(2) == 0) {
            Some(picture) => {
                person.hidden = !person.hidden;
                (picture, person.hidden)
            }
            None => {
                let on = person.silent_from.is_none();
                match person.silent_from.take() {
                    // What was under way when it was released may be heard.
                    Some(from) => self.unheard.push((person.key.0, from, said.max(3) - 3)),
                    None => person.silent_from = Some(said + 1),
                }
                (person.sound, on)
            }
        };
        let mut effects = Effects::default();
        self.world.room.silence(track, on, &mut effects).unwrap();
        self.world.take(effects);
    }

    /// The server takes somebody for gone, or sees them again.
    fn suspend(&mut self, at: usize) {
        let person = &mut self.people[at];
        person.suspended = !person.suspended;
        let key = person.key;
        let command = match person.suspended {
            true => Command::Suspend { person: key },
            false => Command::Begin { person: key },
        };
        self.world.command(key, command);
    }

    /// Somebody chooses what a slot of theirs shows.
    fn want(&mut self, at: usize) {
        let key = self.people[at].key;
        let other = &self.people[self.random.below(self.people.len() as u64) as usize];
        let (kind, track) = match other.picture {
            Some(picture) if self.random.below(2) == 0 => (Kind::Video, picture),
            _ => (Kind::Audio, other.sound),
        };
        if other.key == key {
            return;
        }
        let person = self.world.room.person(key).unwrap();
        let mids: Vec<String> = person.slot_contents(kind).map(|(mid, _)| mid.to_owned()).collect();
        let mid = &mids[self.random.below(mids.len() as u64) as usize];
        self.world.want(key, mid, track);
    }

    /// Somebody sends control packets that they should not, or junk.
    fn harass(&mut self, at: usize) {
        let key = self.people[at].key;
        let person = self.world.room.person(key).unwrap();
        let kind = if self.random.below(2) == 0 { Kind::Audio } else { Kind::Video };
        let mids: Vec<String> = person.slot_contents(kind).map(|(mid, _)| mid.to_owned()).collect();
        let mid = mids[self.random.below(mids.len() as u64) as usize].clone();
        let ssrc = self.world.slot_ssrc(key, &mid);
        let mut compound = Vec::new();
        let first = self.random.below(1 << 16) as u16;
        match self.random.below(4) {
            0 => rtcp::nack(&mut compound, SENDER, ssrc, (0..600).map(|n| first.wrapping_add(n))),
            1 => (0..20).for_each(|nth| {
                rtcp::pli(&mut compound, SENDER, ssrc);
                rtcp::fir(&mut compound, SENDER, ssrc, nth);
            }),
            2 => {
                let own = self.people[at].hand.line.local.unwrap().ssrc;
                rtcp::bye(&mut compound, &[own, ssrc]);
            }
            _ => {
                let junk = (0..40).map(|_| self.random.below(256) as u8);
                compound.extend([0x80, 205, 0, 9].into_iter().chain(junk));
            }
        }
        let mut buffer = compound.clone();
        buffer.resize(compound.len() + 64, 0);
        let sealed = self.people[at].control.seal_rtcp(&mut buffer, compound.len()).unwrap();
        buffer.truncate(sealed);
        self.world.send(key, buffer);
        let junk: Vec<u8> = (0..60).map(|_| self.random.below(256) as u8).collect();
        // Of the kinds that stay with the shard: STUN and DTLS have another way.
        self.world.send(key, [&[0x90, 96][..], &junk].concat());
    }

    fn act(&mut self) {
        let count = self.people.len() as u64;
        let at = self.random.below(count.max(1)) as usize;
        match self.random.below(10) {
            _ if count < 2 => self.join(),
            0 | 1 if count < 6 => self.join(),
            2 if count > 2 => self.leave(at),
            3 | 4 => self.silence(at),
            5 => self.suspend(at),
            6 | 7 => self.want(at),
            _ => self.harass(at),
        }
    }

    /// Every track that is in a slot flows, or there is a reason why not.
    fn check_flows(&mut self) -> usize {
        let (mut flowing, step) = (0, self.watch.borrow().step);
        let mut tracks = BTreeMap::new();
        for person in &self.people {
            let silent = person.silent_from.map(|_| "silenced");
            tracks.insert(person.sound, silent);
            let hidden = person.hidden.then_some("silenced");
            // Who is taken for gone is asked for no keyframe.
            let unasked = person.suspended.then_some("its publisher is taken for gone");
            tracks.extend(person.picture.map(|picture| (picture, hidden.or(unasked))));
        }
        let keys: Vec<_> = self.people.iter().map(|p| (p.key, p.suspended)).collect();
        for (key, suspended) in keys {
            let address = self.world.person(key).address;
            for kind in [Kind::Audio, Kind::Video] {
                let slots = self.world.room.person(key).unwrap().slot_contents(kind);
                let slots: Vec<_> = slots.map(|(mid, track)| (mid.to_owned(), track)).collect();
                for (mid, track) in slots {
                    let Some(track) = track else { continue };
                    let gone = suspended.then_some("taken for gone");
                    let reason = tracks[&track].or(gone);
                    let ssrc = self.world.slot_ssrc(key, &mid);
                    let last = self.watch.borrow().last.get(&(address, ssrc)).copied();
                    let flows = last.is_some_and(|last| last + LATELY >= step);
                    assert!(
                        flows || reason.is_some(),
                        "seed {}: {track:?} in the slot {mid} of {key:?} does not flow: last in \
                         step {last:?} of {step}",
                        self.seed
                    );
                    if suspended {
                        assert!(!flows, "seed {}: {key:?} is taken for gone", self.seed);
                    }
                    flowing += usize::from(flows);
                }
            }
        }
        flowing
    }

    /// Nothing was heard of anybody from when they were silenced to when they were released.
    fn check_silence(&self) {
        let now = self.people.iter().filter_map(|p| Some((p.key.0, p.silent_from?, u64::MAX)));
        let watch = self.watch.borrow();
        for (who, from, until) in self.unheard.iter().copied().chain(now) {
            let heard = watch.heard.range((who, from)..(who, until.max(from))).next();
            assert_eq!(heard, None, "seed {}: silent from {from} until {until}", self.seed);
        }
    }

    fn check_nothing_is_left(&mut self) {
        while !self.people.is_empty() {
            self.leave(0);
        }
        self.world.run(Duration::from_secs(1));
        for shard in &self.world.shards {
            let left: Vec<_> = shard.kept().filter(|(_, count)| *count > 0).collect();
            assert_eq!(left, [], "seed {}: when everybody has left", self.seed);
            assert_eq!(shard.next_deadline(), None, "seed {}: nothing is to be done", self.seed);
        }
    }
}

/// One seeded run: how many slots flowed, how many silences held, and how many packets of sound were heard.
fn run(seed: u64) -> [usize; 3] {
    let mut run = Run::new(seed);
    let mut flowing = 0;
    for nth in 0..MOVES {
        run.act();
        let wait = if nth % 8 == 7 { SETTLES } else { 1 + run.random.below(15) as u32 };
        (0..wait).for_each(|_| run.step());
        run.world.assert_invariants(seed);
        run.check_silence();
        if wait == SETTLES {
            flowing += run.check_flows();
        }
    }
    let (silences, heard) = (run.unheard.len(), run.watch.borrow().heard.len());
    run.check_nothing_is_left();
    [flowing, silences, heard]
}

#[test]
fn whatever_is_called_and_sent_every_packet_is_accounted_for_and_nothing_is_left() {
    let seeds = seeds(12, &SHOWED_FAULTS);
    let mut sums = [0; 3];
    for &seed in &seeds {
        sums.iter_mut().zip(run(seed)).for_each(|(sum, more)| *sum += more);
    }
    let [flowing, silences, heard] = sums;
    let count = seeds.len();
    println!("{count} seeds: {flowing} slots flowed, {silences} silences held, {heard} heard");
    assert!(flowing > 0 && silences > 0 && heard > 100 * count);
}
