//! Threads that are behind: commands and reports come late, reports find no room, people go at any moment. When it is quiet
//! again, the room, its shards and its people agree.
//!
//! `MOIM_SEEDS` says how many seeds (12), `MOIM_SEED` runs one alone.

use super::hand::{Hand, LOUD, PACKET_TIME};
use super::seeds;
use super::world::{Link, Made, Random, World};
use engine::room::Topology;
use engine::{Command, PersonKey, ShardIndex, StreamKey, TrackKey};
use rtp::challenge::{Challenger, Secret};
use rtp::negotiated::Kind;
use rtp::stun::Responder;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Random moves of a run.
const MOVES: usize = 40;
/// Seeds that found a fault once: the room passed over a report while it wanted something else, and never heard what flows.
const SHOWED_FAULTS: [u64; 2] = [32, 333];
/// Everything settles within this, and was compared then.
const QUIET: Duration = Duration::from_secs(2);

struct Run {
    seed: u64,
    world: World,
    random: Random,
    people: Vec<(PersonKey, Hand)>,
    /// Who has left; the control thread has not heard of it.
    closing: Vec<(ShardIndex, PersonKey)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let made =
            Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 1 + (seed % 3) as u16 };
        let slots = if random.below(2) == 0 { (8, 8) } else { (2, 2) };
        let link = Link { delay_ms: 5, jitter_ms: 0, loss_permille: 0 };
        let mut world = World::with_slots(seed, link, made, slots);
        world.behind_us = [300, 5_000, 100_000][random.below(3) as usize];
        world.refused_permille = [0, 300, 900][random.below(3) as usize];
        Self { seed, world, random, people: Vec::new(), closing: Vec::new() }
    }

    fn join(&mut self) {
        let key = self.world.join_silent(true);
        let name = format!("u{}", key.0);
        let responder = Box::new(Responder::new(&name, "password"));
        let challenger =
            Box::new(Challenger::new(&name, ("theirs", "password"), &Secret::of(&[1; 32])));
        self.world.command(key, Command::Expect { person: key, responder, challenger });
        let hand = Hand::new(&mut self.world, key, Kind::Audio);
        self.people.push((key, hand));
    }

    fn leave(&mut self, at: usize) {
        let (key, _) = self.people.swap_remove(at);
        self.closing.push((self.world.person(key).shard, key));
        self.world.leave(key);
    }

    /// The control thread hears that somebody has left; some of its own commands come later than the room's.
    fn close(&mut self) {
        if let Some((shard, person)) = self.closing.pop() {
            if self.random.below(2) == 0 {
                self.world.command_to(shard, Command::Suspend { person });
                self.world.command_to(shard, Command::Begin { person });
            }
            self.world.command_to(shard, Command::Forget { person });
        }
    }

    /// Somebody chooses what a slot of theirs carries, and chooses again before anything came of it.
    fn want(&mut self, at: usize) {
        let key = self.people[at].0;
        let others: Vec<TrackKey> = {
            let others = self.world.room.people().filter(|person| person.key != key);
            let tracks = others.flat_map(|person| &person.tracks);
            tracks.filter(|track| track.kind == Kind::Video).map(|track| track.key).collect()
        };
        let slots = self.world.room.person(key).unwrap().slot_contents(Kind::Video);
        let mids: Vec<String> = slots.map(|(mid, _)| mid.to_owned()).collect();
        if mids.is_empty() || others.is_empty() {
            return;
        }
        let mid = &mids[self.random.below(mids.len() as u64) as usize];
        let some = self.random.below(others.len() as u64) as usize;
        for _ in 0..=self.random.below(4) {
            let track = others[(some + self.random.below(2) as usize) % others.len()];
            self.world.want(key, mid, track);
            let wait = self.random.below(3) * self.random.below(60);
            self.world.run(Duration::from_millis(wait));
        }
    }

    fn act(&mut self) {
        let count = self.people.len() as u64;
        let at = self.random.below(count.max(1)) as usize;
        match self.random.below(8) {
            _ if count < 3 => self.join(),
            0 | 1 if count < 7 => self.join(),
            2 => self.leave(at),
            3 => self.close(),
            _ => self.want(at),
        }
    }

    fn say(&mut self, steps: u64) {
        for _ in 0..steps {
            // The first few speak: in a room with few slots they take those of the others.
            for (_, hand) in self.people.iter_mut().take(3) {
                hand.say(&mut self.world, LOUD);
            }
            self.world.run(PACKET_TIME);
        }
    }

    /// Nothing is asked for, and everything that is late arrives.
    fn settle(&mut self) {
        while !self.closing.is_empty() {
            self.close();
        }
        self.world.run(QUIET);
    }

    /// Returns how many slots carry something.
    fn compare(&self) -> usize {
        let (seed, room) = (self.seed, &self.world.room);
        let mut wanted = BTreeSet::new();
        let mut carried = 0;
        for shard in 0..self.world.shards.len() {
            let here: BTreeSet<_> = self.world.shards[shard].people().collect();
            let of_room = room.people().filter(|person| usize::from(person.shard.0) == shard);
            let of_room: BTreeSet<_> = of_room.map(|person| person.key).collect();
            assert_eq!(here, of_room, "seed {seed}: who is on shard {shard}");
        }
        for person in room.people() {
            let shard = &self.world.shards[usize::from(person.shard.0)];
            let key = |stream: Option<StreamKey>| stream.map(|stream| stream.track);
            let slots: BTreeMap<_, _> = shard
                .slots(person.key)
                .map(|(mid, now, next)| (mid, (key(now), key(next))))
                .collect();
            for kind in [Kind::Audio, Kind::Video] {
                for (mid, track) in person.slot_contents(kind) {
                    let (now, next) = slots[mid];
                    let who =
                        format!("seed {seed}: slot {mid} of {:?}: {now:?}, {next:?}", person.key);
                    assert_eq!(next.or(now), track, "{who}: the room and the shard");
                    let told =
                        self.world.told.get(&(person.key, mid.to_owned())).copied().flatten();
                    if kind == Kind::Video {
                        assert_eq!(next, None, "{who}: everybody sends, so that it switched");
                        assert_eq!(told, now, "{who}: what the participant was told");
                    } else {
                        assert_eq!(told, track, "{who}: what the participant was told");
                    }
                    wanted.extend([now, next].into_iter().flatten());
                    carried += usize::from(track.is_some());
                }
            }
        }
        // Pictures alone rest: the level of a sound tells who speaks.
        let tracks = room.people().flat_map(|person| &person.tracks);
        for track in tracks.filter(|track| track.kind == Kind::Video) {
            let rests = self.world.resting.contains(&track.key);
            let key = track.key;
            assert_eq!(rests, !wanted.contains(&key), "seed {seed}: whether {key:?} rests");
        }
        carried
    }

    fn nothing_is_left(&mut self) {
        while !self.people.is_empty() {
            self.leave(0);
        }
        self.settle();
        for shard in &self.world.shards {
            let left: Vec<_> = shard.kept().filter(|(_, count)| *count > 0).collect();
            assert_eq!(left, [], "seed {}: when everybody has left", self.seed);
            assert_eq!(shard.next_deadline(), None, "seed {}: nothing is to be done", self.seed);
        }
        assert_eq!(self.world.room.people().len(), 0);
    }
}

fn run(seed: u64) -> usize {
    let (mut run, mut carried) = (Run::new(seed), 0);
    for nth in 0..MOVES {
        run.act();
        let steps = run.random.below(10);
        run.say(steps);
        if nth % 10 == 9 {
            run.settle();
            carried += run.compare();
        }
    }
    run.nothing_is_left();
    carried
}

#[test]
fn however_late_commands_and_reports_come_all_agree_when_it_is_quiet() {
    let seeds = seeds(12, &SHOWED_FAULTS);
    let carried: usize = seeds.iter().map(|&seed| run(seed)).sum();
    println!("{} seeds: {carried} slots were compared that carried something", seeds.len());
    assert!(carried > 10 * seeds.len());
}
