//! The world: people with real bot media, a room, its shards and mixers, the lanes between them,
//! and the wire.

mod people;

pub use people::Person;

use super::sinks::{Kept, Outbox, Within};
use engine::drops::OutDrop;
use engine::mix::{Hear, Mixer};
use engine::room::{Effects, Notice, Room, RoomLimits, RoomSetup, Topology};
use engine::shard::{Datagram, RelayPacket, Stats};
use engine::{Now, PersonKey, Priority, Report, RoomKey, Shard, ShardIndex, Subject, TrackKey};
use lab::bot::fixtures::Clip;
use lab::bots::VideoSource;
use lab::checks::Expected;
use lab::link::{Fate, LinkSpec, Loss, Path, Queue};
use lab::record::SampleRecord;
use rtp::TransportAddress;
use rtp::negotiated::Codec;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::event::{PauseReason, SlotChange};

/// Small and seeded (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// The wire's character.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub delay_ms: u64,
    /// Each packet waits up to so long besides.
    pub jitter_ms: u64,
    /// Independent loss each way, in 1/1000.
    pub loss_permille: u64,
}

impl Link {
    fn spec(&self) -> LinkSpec {
        LinkSpec {
            delay: Duration::from_millis(self.delay_ms),
            // Packets wait 0 to three times as long.
            jitter: Duration::from_millis(self.jitter_ms) / 3,
            loss: match self.loss_permille {
                0 => Loss::None,
                permille => Loss::Random(permille as f64 / 1000.0),
            },
            ..LinkSpec::default()
        }
    }
}

/// What a room is made as, and over how many shards it goes.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    pub audio: Topology,
    pub video: Topology,
    pub shards: u16,
}

pub const LAN: Link = Link { delay_ms: 2, jitter_ms: 0, loss_permille: 0 };

/// What is under way.
enum Flying {
    /// A datagram to a shard.
    Up { shard: ShardIndex, from: SocketAddr, bytes: Vec<u8> },
    /// A datagram to a person.
    Down { to: SocketAddr, bytes: Vec<u8> },
    /// What one thread of the server hands to another.
    Within(ShardIndex, Within),
    /// A report to the room.
    Report(Report),
}

pub struct World {
    origin: Instant,
    pub now: Now,
    pub shards: Vec<Shard>,
    pub mixers: Vec<Mixer>,
    pub room: Room,
    pub people: Vec<Person>,
    wire: BTreeMap<(Instant, u64), Flying>,
    /// When the last thing handed over on a lane to a shard arrives.
    lanes: BTreeMap<(ShardIndex, u8), Instant>,
    /// How much waits on each lane now, and the most that ever did on one.
    waiting: BTreeMap<(ShardIndex, u8), usize>,
    pub longest_lane: usize,
    /// So long what one thread hands to another is under way at most.
    pub behind_us: u64,
    /// How often in 1000 times the room's queue has no room for a report.
    pub refused_permille: u64,
    /// Reports of each shard that the room has not taken yet.
    reports: Vec<engine::Outbox<Subject, Report>>,
    /// When the last report arrives.
    reported: Option<Instant>,
    /// What people were told of their slots of media.
    pub told: BTreeMap<(PersonKey, String), Option<TrackKey>>,
    /// Slots whose pictures rest, as their participants were told.
    pub paused: BTreeSet<(PersonKey, String)>,
    /// Which tracks rest, as their publishers were told.
    pub resting: BTreeSet<TrackKey>,
    /// The highest layers that are wanted, as their publishers were told.
    pub wanted: BTreeMap<TrackKey, u8>,
    /// How much was handed over, by lane.
    handed_over: BTreeMap<u8, u64>,
    /// How often shards allocated memory while they took packets, where that is counted.
    pub allocations: Option<u64>,
    /// Whether shards read what came in batches, and the longest one.
    batches: bool,
    pub longest_batch: usize,
    sent: u64,
    random: Random,
    pub link: Link,
    /// The lab's own link each way before each person.
    paths: BTreeMap<(bool, SocketAddr), Path>,
    /// The queue before the downlinks of those who share one, and who they are.
    shared: (Queue, BTreeSet<SocketAddr>),
    on_tcp: BTreeSet<SocketAddr>,
    /// Whether who comes in now comes by TCP.
    pub by_tcp: bool,
    /// Of those by TCP, whose connections have no room for pictures (low), or for nothing at all (high).
    pub behind: BTreeMap<SocketAddr, Priority>,
    /// The send buffer is full now and then, by this chance.
    pub full: Option<Rc<RefCell<Random>>>,
    /// The same of the media lanes between shards.
    pub lanes_full: Option<Rc<RefCell<Random>>>,
    /// How long packets wait until a shard reads them.
    pub read_late: Duration,
    /// Whether those who come can do RED, and want it all the time.
    pub red: bool,
    pub red_first: bool,
    /// Whether those who come give transport-wide feedback.
    pub feedback: bool,
    /// Whether those who come send pictures again that were lost.
    pub resends: bool,
    /// What those who come lack besides.
    pub lacks: transport::Lacks,
    /// Whether what those who come send is encrypted end to end.
    pub opaque: bool,
    /// Whether those who come say that they send music.
    pub music: bool,
    /// The codec of pictures.
    pub codec: Codec,
    /// In how many layers those who come send pictures.
    pub layers: usize,
    /// What those who come with a camera show, and what they call it.
    pub clip: VideoSource,
    /// Pictures of the test's own, in place of a clip.
    pub pictures: Option<Arc<Clip>>,
    pub picture: &'static str,
    /// Datagrams that never arrive.
    pub eats: Box<Eats>,
    /// Sees what leaves for people, and when it arrives.
    pub sees: Option<Box<Sees>>,
    /// A hash over all that was ever sent, with its time (FNV-1a).
    pub digest: u64,
    pub samples: Vec<SampleRecord>,
    pub expected: Expected,
    next_key: u64,
    next_sample: Instant,
}

/// Whether the wire eats a datagram: (to server?, address of the person, bytes).
type Eats = dyn FnMut(bool, SocketAddr, &[u8]) -> bool;

/// A datagram that leaves for a person.
pub struct Leaves<'a> {
    pub to: SocketAddr,
    pub bytes: &'a [u8],
    pub at: Instant,
    /// When it arrives; None if the link loses it.
    pub arrives: Option<Instant>,
}

/// Who sees what leaves.
type Sees = dyn FnMut(&Leaves<'_>);

/// Pixels of the layers that those with simulcast send.
pub const SIZES: [u32; 3] = [320 * 180, 640 * 360, 848 * 480];

impl World {
    /// A room where everything is forwarded, on one shard.
    pub fn new(seed: u64, link: Link) -> Self {
        Self::of(seed, link, Made { audio: Topology::Sfu, video: Topology::Sfu, shards: 1 })
    }

    /// A room of this kind.
    pub fn of(seed: u64, link: Link, kind: Made) -> Self {
        Self::with_slots(seed, link, kind, (32, 64))
    }

    /// A room of this kind, where nobody has more slots of audio and video than these.
    pub fn with_slots(seed: u64, link: Link, kind: Made, most: (u32, u32)) -> Self {
        Self::made(seed, link, kind, most, Hear::Loudest(3))
    }

    /// A room of this kind in which these people are heard, if its sound is mixed.
    pub fn hearing(seed: u64, link: Link, kind: Made, hear: Hear) -> Self {
        Self::made(seed, link, kind, (32, 64), hear)
    }

    fn made(seed: u64, link: Link, kind: Made, most: (u32, u32), hear: Hear) -> Self {
        let origin = Instant::now();
        let Made { audio, video, shards } = kind;
        let limits =
            RoomLimits { people: 400, roster: 400, audio_slots: most.0, video_slots: most.1 };
        let setup = RoomSetup { hear, shards, ..RoomSetup::new(audio, video, limits) };
        let indices = || (0..shards).map(ShardIndex);
        Self {
            origin,
            now: Now { at: origin, unix: Duration::from_secs(1_700_000_000) },
            shards: indices().map(|index| Shard::new(index, shards)).collect(),
            mixers: indices().map(|index| Mixer::new(index, origin)).collect(),
            room: Room::new(RoomKey(1), setup),
            people: Vec::new(),
            wire: BTreeMap::new(),
            lanes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            longest_lane: 0,
            behind_us: 300,
            refused_permille: 0,
            reports: indices().map(|_| engine::Outbox::new(1024)).collect(),
            reported: None,
            told: BTreeMap::new(),
            paused: BTreeSet::new(),
            resting: BTreeSet::new(),
            wanted: BTreeMap::new(),
            handed_over: BTreeMap::new(),
            allocations: None,
            batches: seed % 2 == 1,
            longest_batch: 0,
            sent: 0,
            random: Random(seed),
            link,
            paths: BTreeMap::new(),
            shared: Default::default(),
            on_tcp: BTreeSet::new(),
            by_tcp: false,
            behind: BTreeMap::new(),
            full: None,
            lanes_full: None,
            read_late: Duration::ZERO,
            red: false,
            red_first: false,
            feedback: true,
            resends: true,
            lacks: transport::Lacks::default(),
            opaque: false,
            music: false,
            codec: Codec::Vp8,
            layers: 1,
            clip: VideoSource::P360,
            pictures: None,
            picture: "camera",
            eats: Box::new(|_, _, _| false),
            sees: None,
            digest: 0xcbf2_9ce4_8422_2325,
            samples: Vec::new(),
            expected: Expected::default(),
            next_key: 1,
            next_sample: origin + Duration::from_secs(3),
        }
    }

    pub fn elapsed_ms(&self) -> u64 {
        self.now.at.duration_since(self.origin).as_millis() as u64
    }

    fn apply(&mut self, effects: Effects) {
        for (shard, command) in effects.commands {
            self.within(shard, Within::Command(command));
        }
        for (shard, command) in effects.mixers {
            self.within(shard, Within::Mix(command));
        }
        for notice in effects.notices {
            match notice {
                Notice::Slots { person, changes } => {
                    for change in changes.iter().filter(|change| !change.mix) {
                        let content = change.content.map(|(_, track)| track);
                        let slot = (person, change.mid.clone());
                        match change.rests {
                            true => self.paused.insert(slot.clone()),
                            false => self.paused.remove(&slot),
                        };
                        self.told.insert(slot, content);
                    }
                    let changes: Vec<SlotChange> = changes
                        .into_iter()
                        .map(|change| SlotChange {
                            slot: change.mid,
                            participant: change.content.map(|(p, _)| format!("p-{}", p.0)),
                            track: change.content.map(|(_, t)| format!("t-{}", t.0)),
                            mix: change.mix,
                            paused: change.rests.then_some(PauseReason::Bandwidth),
                            rtp_timestamp: change.rtp_timestamp,
                        })
                        .collect();
                    let now = self.now.at;
                    self.person(person).media.map_slots(&changes, now);
                }
                Notice::SlotsWanted { person, audio, video } => {
                    let session = &mut self.person(person).session;
                    (session.audio_slots, session.video_slots) = (audio, video);
                    self.negotiate(person);
                }
                Notice::Layers { person, track, layer } => {
                    self.wanted.insert(track, layer);
                    self.person(person).media.layers(&format!("t-{}", track.0), layer);
                }
                Notice::Downlink { person, kbps } => self.person(person).media.downlink(kbps),
                Notice::Paused { person, track, paused } => {
                    match paused {
                        true => self.resting.insert(track),
                        false => self.resting.remove(&track),
                    };
                    self.person(person).media.pause(&format!("t-{}", track.0), paused);
                }
                Notice::All(_) | Notice::Audience { .. } | Notice::Speakers(_) => {}
            }
        }
    }

    /// What a call to the room had as effects is carried out.
    pub fn take(&mut self, effects: Effects) {
        self.apply(effects);
    }

    fn digest(&mut self, bytes: &[u8]) {
        let at = self.now.at.duration_since(self.origin).as_micros() as u64;
        for byte in at.to_be_bytes().iter().chain(bytes) {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Whether the wire lets a datagram through, and when it arrives.
    fn passes(&mut self, to_server: bool, person: SocketAddr, bytes: &[u8]) -> Option<Instant> {
        self.digest(bytes);
        if (self.eats)(to_server, person, bytes) {
            return None;
        }
        let (spec, random) = (self.link.spec(), &mut self.random);
        let path = self.paths.entry((to_server, person));
        let path = path.or_insert_with(|| Path::new(spec, random.below(u64::MAX)));
        let fate = match !to_server && self.shared.1.contains(&person) {
            true => path.offer_by(&mut self.shared.0, self.now.at, bytes.len(), None),
            false => path.offer(self.now.at, bytes.len(), None),
        };
        let arrives = match fate {
            Fate::Arrives(at) => Some(at),
            Fate::Lost | Fate::QueueFull => None,
        };
        if let Some(sees) = self.sees.as_mut().filter(|_| !to_server) {
            sees(&Leaves { to: person, bytes, at: self.now.at, arrives });
        }
        arrives
    }

    fn fly(&mut self, at: Instant, flying: Flying) {
        self.sent += 1;
        self.wire.insert((at, self.sent), flying);
    }

    fn send_up(&mut self, shard: ShardIndex, from: SocketAddr, bytes: Vec<u8>) {
        if let Some(at) = self.passes(true, from, &bytes) {
            // A media thread reads what has come since it last looked: here every 2 ms, in every other world.
            let since = at.saturating_duration_since(self.origin).as_nanos() as u64;
            let wait = if self.batches { 2_000_000 - since % 2_000_000 } else { 0 };
            self.fly(at + Duration::from_nanos(wait), Flying::Up { shard, from, bytes });
        }
    }

    /// Hands something to another thread: it takes it a little later, in order.
    fn within(&mut self, to: ShardIndex, what: Within) {
        let lane = (to, what.lane());
        let at = self.now.at + Duration::from_micros(self.random.below(self.behind_us));
        let at = self.lanes.get(&lane).map_or(at, |last| at.max(*last));
        self.lanes.insert(lane, at);
        let waiting = self.waiting.entry(lane).or_default();
        *waiting += 1;
        *self.handed_over.entry(lane.1).or_default() += 1;
        self.longest_lane = self.longest_lane.max(*waiting);
        self.fly(at, Flying::Within(to, what));
    }

    /// How much the threads handed to each other by a lane so far.
    pub fn handed_over(&self, lane: u8) -> u64 {
        self.handed_over.get(&lane).copied().unwrap_or_default()
    }

    fn flush(&mut self, shard: ShardIndex, outbox: Outbox) {
        for (to, bytes) in outbox.out {
            if let Some(at) = self.passes(false, to, &bytes) {
                self.fly(at, Flying::Down { to, bytes });
            }
        }
        for (to, what) in outbox.within {
            self.within(to, what);
        }
        for frame in outbox.frames {
            self.mixers[usize::from(shard.0)].frame(frame);
        }
        for bar in outbox.bars {
            self.shards[usize::from(shard.0)].handle_bar(self.now, &bar);
        }
        if !outbox.mixed.is_empty() {
            let mut out = self.outbox();
            for packet in outbox.mixed {
                self.shards[usize::from(shard.0)].handle_mixed(self.now, &packet, &mut out);
            }
            self.flush(shard, out);
        }
        self.report(shard);
    }

    /// A shard's reports leave for the room, as a media thread hands them over.
    fn report(&mut self, shard: ShardIndex) {
        let index = usize::from(shard.0);
        let (outbox, random) = (&mut self.reports[index], &mut self.random);
        for report in self.shards[index].take_reports() {
            outbox.put(report.subject(), report).expect("it has room");
        }
        let (refused, mut taken) = (self.refused_permille, Vec::new());
        outbox.hand_over(|report| {
            if refused > 0 && random.below(1000) < refused {
                return Err(report);
            }
            taken.push(report);
            Ok(())
        });
        for report in taken {
            let at = self.now.at + Duration::from_micros(self.random.below(self.behind_us));
            let at = self.reported.map_or(at, |last| at.max(last));
            self.reported = Some(at);
            self.fly(at, Flying::Report(report));
        }
    }

    /// When a report that was refused is tried again.
    fn reports_due(&self) -> Option<Instant> {
        let waits = self.reports.iter().any(|outbox| !outbox.is_empty());
        waits.then(|| self.now.at + Duration::from_millis(10))
    }

    fn outbox(&self) -> Outbox {
        let mut outbox = Outbox::new(self.behind.clone());
        outbox.full = self.full.clone();
        outbox.lanes_full = self.lanes_full.clone();
        outbox
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Duration) {
        let end = self.now.at + span;
        loop {
            let bots = self.people.iter().filter_map(|person| person.media.next_deadline());
            let next = bots
                .chain(self.shards.iter().filter_map(Shard::next_deadline))
                .chain(self.mixers.iter().filter_map(Mixer::next_deadline))
                .chain(self.wire.keys().next().map(|(at, _)| *at))
                .chain(self.reports_due())
                .chain([self.next_sample])
                .min()
                .unwrap_or(end);
            if next >= end {
                self.now = self.now.plus(end - self.now.at);
                return;
            }
            if next > self.now.at {
                self.now = self.now.plus(next - self.now.at);
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        while self.wire.first_key_value().is_some_and(|((at, _), _)| *at <= now.at) {
            match self.wire.pop_first() {
                Some((_, Flying::Up { shard, from, bytes })) => {
                    let mut batch = vec![(from, bytes)];
                    while let Some(next) = self.wire.first_entry()
                        && next.key().0 <= now.at
                        && matches!(next.get(), Flying::Up { shard: to, .. } if *to == shard)
                        && let Flying::Up { from, bytes, .. } = next.remove()
                    {
                        batch.push((from, bytes));
                    }
                    self.read(shard, &batch);
                }
                Some((_, flying)) => self.deliver(flying),
                None => {}
            }
        }
        let mut out = Vec::new();
        for person in &mut self.people {
            if person.media.next_deadline().is_some_and(|at| at <= now.at) {
                let (address, shard) = (person.address, person.shard);
                let media = &mut person.media;
                media.poll(now.at, &mut |bytes| out.push((shard, address, bytes.to_vec())));
            }
        }
        for (shard, from, bytes) in out {
            self.send_up(shard, from, bytes);
        }
        for index in 0..self.shards.len() {
            let mut outbox = self.outbox();
            self.shards[index].handle_timeout(now, &mut outbox);
            self.mixers[index].handle_timeout(now.at, &mut outbox);
            self.flush(ShardIndex(index as u16), outbox);
        }
        if self.next_sample <= now.at {
            self.next_sample += Duration::from_secs(3);
            self.take_samples();
        }
    }

    fn deliver(&mut self, flying: Flying) {
        let now = self.now;
        match flying {
            Flying::Up { shard, from, bytes } => self.read(shard, &[(from, bytes)]),
            Flying::Down { to, bytes } => {
                // Who left does not read any more.
                if let Some(person) = self.people.iter_mut().find(|p| p.address == to) {
                    let _ = person.media.handle_datagram(now.at, &bytes);
                }
            }
            Flying::Within(to, what) => self.hand_over(to, what),
            Flying::Report(report) => {
                let mut effects = Effects::default();
                self.room.report(report, &mut effects);
                self.apply(effects);
            }
        }
    }

    /// A media thread takes what has come.
    fn read(&mut self, shard: ShardIndex, batch: &[(SocketAddr, Vec<u8>)]) {
        let now = self.now;
        self.longest_batch = self.longest_batch.max(batch.len());
        let arrival = now.at - self.read_late;
        let on_tcp = &self.on_tcp;
        let source = |address: SocketAddr| match on_tcp.contains(&address) {
            true => TransportAddress::tcp(address),
            false => address.into(),
        };
        let batch =
            batch.iter().map(|(from, data)| Datagram { source: source(*from), data, arrival });
        let mut outbox = self.outbox();
        let at = &mut self.shards[usize::from(shard.0)];
        match &mut self.allocations {
            None => at.handle_batch(now, batch, &mut outbox, |_, _| {}),
            Some(count) => {
                let mut kept = Kept::new();
                let counted = allocation_counter::measure(|| {
                    at.handle_batch(now, batch, &mut kept, |_, _| {});
                });
                *count += counted.count_total;
                outbox.out = kept.datagrams();
            }
        }
        self.flush(shard, outbox);
    }

    fn hand_over(&mut self, to: ShardIndex, what: Within) {
        let now = self.now;
        *self.waiting.entry((to, what.lane())).or_default() -= 1;
        let mut outbox = self.outbox();
        let shard = &mut self.shards[usize::from(to.0)];
        match what {
            Within::Command(command) => shard.command(command, now, &mut outbox),
            Within::Mix(command) => self.mixers[usize::from(to.0)].command(command),
            Within::Relayed { stream, index, content, bytes } => {
                let packet = RelayPacket { stream, index, content, bytes: &bytes };
                shard.handle_relayed(now, &packet, &mut outbox);
                shard.flush(now, &mut outbox);
            }
            Within::Control(message) => shard.handle_relay_control(message),
            Within::Peer(message) => self.mixers[usize::from(to.0)].peer(message, now.at),
        }
        self.flush(to, outbox);
    }

    fn take_samples(&mut self) {
        let t_ms = self.elapsed_ms();
        for person in &mut self.people {
            let mut sample = person.media.sample(self.now.at);
            sample.participant = format!("p-{}", person.key.0);
            self.samples.push(SampleRecord {
                t_ms,
                person: person.name.clone(),
                kind: lab::record::PersonKind::Bot,
                sample,
            });
        }
    }

    /// The counters of the only shard.
    pub fn stats(&self) -> &Stats {
        assert_eq!(self.shards.len(), 1);
        self.shards[0].stats()
    }

    /// The counters of the shard where the first of the people is.
    pub fn stats_in(&self) -> &Stats {
        self.shards[0].stats()
    }

    /// The counters of all shards.
    pub fn all_stats(&self) -> impl Iterator<Item = &Stats> {
        self.shards.iter().map(Shard::stats)
    }

    /// What must hold at every moment.
    pub fn assert_invariants(&self, seed: u64) {
        for stats in self.shards.iter().map(Shard::stats) {
            let sum = stats.rtp_out + stats.out_drops.total();
            assert_eq!(stats.copies, sum, "seed {seed}: copies made = sent + dropped: {stats:?}");
            assert_eq!(stats.out_drops.get(OutDrop::SealRefused), 0, "seed {seed}");
            assert_eq!(stats.stale_commands, 0, "seed {seed}: {stats:?}");
        }
        for person in &self.people {
            assert_eq!(person.media.counters().seal_errors, 0, "seed {seed}: {}", person.name);
        }
    }

    /// Failures that the lab's checks find in all that was measured so far.
    pub fn failures(&mut self) -> Vec<lab::checks::Failure> {
        self.expected.end_ms = self.elapsed_ms();
        lab::checks::subscriptions(&self.expected, &self.samples)
    }
}
