//! Talkers, mixers and listeners in virtual time, with a queue between the mixers.

use audio::opus::{Application, Decoder, Encoder, EncoderOptions, MAX_PACKET};
use audio::tone::{Sine, goertzel};
use audio::{Channels, level_dbov};
use engine::mix::{
    Bar, Hear, MAX_LOUDEST, MixCommand, MixFor, MixFrame, MixPeer, MixSink, MixStats, MixedPacket,
    Mixer, Payload, TICK_SAMPLES,
};
use engine::{PersonKey, RoomKey, ShardIndex, TrackKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

pub const ROOM: RoomKey = RoomKey(7);

/// Somebody who says one tone.
pub struct Talker {
    pub shard: usize,
    pub amplitude: f64,
    /// What their microphone makes of each sample.
    pub shape: fn(f32) -> f32,
    pub sends: bool,
    /// The level that it tells, whatever it says.
    pub claims: Option<u8>,
    /// Which of his frames are lost.
    pub loses: fn(u64) -> bool,
    pub sine: Sine,
    encoder: Encoder,
    index: u64,
    offset_us: u64,
}

/// What a listener got.
pub struct Ear {
    shard: usize,
    decoder: Option<Decoder>,
    pub packets: usize,
    pub ticks: Vec<u64>,
    /// Whether each packet was his own.
    pub own: Vec<bool>,
    pub levels: Vec<u8>,
    pub sound: Vec<f32>,
}

#[derive(Default)]
pub struct Sink {
    pub packets: Vec<MixedPacket>,
    pub bars: Vec<Bar>,
    peers: Vec<(ShardIndex, MixPeer)>,
    pub refuses: bool,
    /// So many packets are refused, and then no more.
    pub refuses_first: usize,
}

impl MixSink for Sink {
    fn packet(&mut self, packet: MixedPacket) -> bool {
        self.packets.push(packet);
        !self.refuses && self.packets.len() > self.refuses_first
    }

    fn bar(&mut self, bar: Bar) -> bool {
        self.bars.push(bar);
        true
    }

    fn peer(&mut self, shard: ShardIndex, message: MixPeer) -> bool {
        self.peers.push((shard, message));
        true
    }
}

pub struct World {
    pub epoch: Instant,
    pub now_us: u64,
    pub mixers: Vec<Mixer>,
    pub talkers: BTreeMap<u64, Talker>,
    pub ears: BTreeMap<u64, Ear>,
    /// Delay of messages between mixers; none loses partial sums.
    pub sum_delay_us: Option<u64>,
    /// None: they are lost.
    pub control_delay_us: Option<u64>,
    mail: VecDeque<(u64, usize, MixPeer)>,
    /// How far the mixers are behind, and what waits for them: for which shard, since when.
    backlog: Duration,
    waiting: VecDeque<(usize, MixFrame)>,
    pub hear: Hear,
    /// Ticks in a packet for those who are not heard.
    pub packet_ticks: u8,
    /// Who comes next is a voice, whose level is made even; otherwise the mix is the plain sum.
    pub speech: bool,
    /// Every packet as bytes, for comparing whole runs.
    pub log: Vec<u8>,
    /// Who got a mix of his own in each tick.
    pub heard: BTreeMap<u64, BTreeSet<u64>>,
    /// CPU time spent in the mixers themselves, where it is measured.
    pub mixing: Option<Duration>,
}

pub fn tone_hz(person: u64) -> f64 {
    300.0 + 40.0 * person as f64
}

/// CPU time of this thread: what others do on the machine does not count. It costs a system call,
/// so that it is not asked for outside the bench.
pub fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

fn measured(total: &mut Option<Duration>, work: impl FnOnce()) {
    match total {
        None => work(),
        Some(total) => {
            let start = cpu_time();
            work();
            *total += cpu_time() - start;
        }
    }
}

impl World {
    pub fn new(shards: usize, loudest: u8) -> Self {
        Self::hearing(shards, Hear::Loudest(loudest))
    }

    pub fn hearing(shards: usize, hear: Hear) -> Self {
        let epoch = Instant::now();
        let mixer = |shard| Mixer::new(ShardIndex(shard as u16), epoch);
        let mut world = Self {
            epoch,
            now_us: 3_000,
            mixers: (0..shards).map(mixer).collect(),
            talkers: BTreeMap::new(),
            ears: BTreeMap::new(),
            sum_delay_us: Some(1_000),
            control_delay_us: Some(1_000),
            mail: VecDeque::new(),
            backlog: Duration::ZERO,
            waiting: VecDeque::new(),
            hear,
            packet_ticks: 1,
            speech: false,
            log: Vec::new(),
            heard: BTreeMap::new(),
            mixing: None,
        };
        world.layout();
        world
    }

    /// The same with mixers that are behind: frames wait for them.
    pub fn behind(mut self, backlog: Duration) -> Self {
        self.backlog = backlog;
        self.mixers = self.mixers.into_iter().map(|mixer| mixer.with_backlog(backlog)).collect();
        self
    }

    pub fn layout(&mut self) {
        let mask = |shards: &mut dyn Iterator<Item = usize>| shards.fold(0, |m, s| m | 1 << s);
        let talking = mask(&mut self.talkers.values().map(|talker| talker.shard));
        let listening = mask(&mut self.ears.values().map(|ear| ear.shard));
        let (home, hear, packet_ticks) = (ShardIndex(0), self.hear, self.packet_ticks);
        for mixer in &mut self.mixers {
            mixer.command(MixCommand::Room {
                room: ROOM,
                home,
                talking,
                listening,
                hear,
                packet_ticks,
            });
        }
    }

    /// A talker; his person, track and tone all follow from `person`.
    pub fn talk(&mut self, person: u64, shard: usize, amplitude: f64) {
        let options = EncoderOptions {
            application: Application::LowDelay,
            complexity: 0,
            bitrate_bps: 64_000,
            ..EncoderOptions::default()
        };
        let talker = Talker {
            shard,
            amplitude,
            shape: |x| x,
            sends: true,
            claims: None,
            loses: |_| false,
            sine: Sine::new(tone_hz(person), 1.0),
            encoder: Encoder::new(options).unwrap(),
            index: 1000 * person,
            offset_us: person * 3_700 % 20_000 / 1000 * 1000,
        };
        self.talkers.insert(person, talker);
        self.layout();
        let (room, track) = (ROOM, TrackKey(person));
        let person = PersonKey(person);
        let music = !self.speech;
        self.mixers[shard].command(MixCommand::AddTrack { room, person, track, music });
    }

    pub fn hush(&mut self, person: u64) {
        let talker = self.talkers.remove(&person).unwrap();
        let track = TrackKey(person);
        self.mixers[talker.shard].command(MixCommand::RemoveTrack { track });
        self.layout();
    }

    /// A listener; `decodes` where his sound is looked at.
    pub fn listen(&mut self, person: u64, shard: usize, decodes: bool) {
        let decoder = decodes.then(|| Decoder::new(Channels::Mono).unwrap());
        let (packets, ticks, own, levels, sound) = Default::default();
        self.ears.insert(person, Ear { shard, decoder, packets, ticks, own, levels, sound });
        self.layout();
        let person = PersonKey(person);
        self.mixers[shard].command(MixCommand::Listen { room: ROOM, person });
    }

    pub fn unlisten(&mut self, person: u64) -> Ear {
        let ear = self.ears.remove(&person).unwrap();
        self.mixers[ear.shard].command(MixCommand::Unlisten { person: PersonKey(person) });
        self.layout();
        ear
    }

    pub fn now(&self) -> Instant {
        self.epoch + Duration::from_micros(self.now_us)
    }

    /// The tick under way.
    pub fn tick(&self) -> u64 {
        self.now_us / 20_000
    }

    pub fn run_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_us += 1_000;
            self.say();
            while self.mail.front().is_some_and(|mail| mail.0 <= self.now_us) {
                let (_, shard, message) = self.mail.pop_front().unwrap();
                let now = self.now();
                self.mixers[shard].peer(message, now);
            }
            self.mix();
        }
    }

    /// The frames of this millisecond.
    fn say(&mut self) {
        let arrival = self.now();
        for (person, talker) in &mut self.talkers {
            if self.now_us % 20_000 != talker.offset_us {
                continue;
            }
            let (mut pcm, mut packet) = ([0.0; TICK_SAMPLES], [0; MAX_PACKET]);
            talker.sine.fill(&mut pcm);
            pcm.iter_mut().for_each(|x| *x = (talker.shape)(*x * talker.amplitude as f32));
            let len = talker.encoder.encode(&pcm, &mut packet).unwrap();
            let timestamp = (talker.index * TICK_SAMPLES as u64) as u32;
            talker.index += 1;
            if !talker.sends || (talker.loses)(talker.index) {
                continue;
            }
            let frame = MixFrame {
                track: TrackKey(*person),
                index: talker.index,
                timestamp,
                arrival,
                level_dbov: talker.claims.unwrap_or_else(|| level_dbov(&pcm)),
                payload: Payload::new(&packet[..len]).unwrap(),
            };
            self.waiting.push_back((talker.shard, frame));
        }
        let due = |(_, frame): &(usize, MixFrame)| frame.arrival + self.backlog <= arrival;
        let due = self.waiting.iter().take_while(|waits| due(waits)).count();
        let frames = self.waiting.drain(..due);
        let mixers = &mut self.mixers;
        measured(&mut self.mixing, || {
            frames.for_each(|(shard, frame)| mixers[shard].frame(frame));
        });
    }

    /// Lets some speak, each as loud as is said, and be silent between: syllables of 160 ms and
    /// pauses of 80 ms.
    pub fn speak(&mut self, voices: &[(u64, f64)], ms: u64) {
        for step in 0..ms / 20 {
            for (person, amplitude) in voices {
                let amplitude = if step % 12 < 8 { *amplitude } else { 0.0 };
                self.talkers.get_mut(person).unwrap().amplitude = amplitude;
            }
            self.run_ms(20);
        }
    }

    /// Lets every mixer do what is due.
    fn mix(&mut self) {
        let now = self.now();
        for shard in 0..self.mixers.len() {
            for round in 0.. {
                assert!(round < 5, "a deadline that does not move");
                if self.mixers[shard].next_deadline().is_none_or(|at| at > now) {
                    break;
                }
                let mut sink = Sink::default();
                let mixer = &mut self.mixers[shard];
                measured(&mut self.mixing, || mixer.handle_timeout(now, &mut sink));
                self.take(shard, sink);
            }
        }
    }

    fn take(&mut self, shard: usize, sink: Sink) {
        for (to, message) in sink.peers {
            assert_ne!(usize::from(to.0), shard, "a mixer tells itself nothing");
            let delay = match message {
                MixPeer::Sum { .. } => self.sum_delay_us,
                _ => self.control_delay_us,
            };
            if let Some(delay) = delay {
                self.mail.push_back((self.now_us + delay, to.0.into(), message));
            }
        }
        self.mail.make_contiguous().sort_by_key(|mail| mail.0);
        sink.packets.iter().for_each(|packet| self.deliver(shard, packet));
    }

    fn deliver(&mut self, shard: usize, packet: &MixedPacket) {
        assert_eq!(packet.room, ROOM);
        self.log.extend(packet.tick.to_be_bytes());
        self.log.extend(packet.payload.bytes());
        let heard = self.heard.entry(packet.tick).or_default();
        if let MixFor::One(person) = packet.to {
            heard.insert(person.0);
        }
        for (key, ear) in self.ears.iter_mut().filter(|(_, ear)| ear.shard == shard) {
            let own = packet.to == MixFor::One(PersonKey(*key));
            // As the shard does: who got a packet of his own in this tick gets no other.
            let common = matches!(packet.to, MixFor::Everyone { except }
                if !except.contains(&Some(PersonKey(*key))))
                && ear.ticks.last().is_none_or(|last| *last < packet.tick);
            if !own && !common {
                continue;
            }
            assert!(packet.ticks == 1 || common, "who is heard gets 20 ms");
            ear.packets += 1;
            for tick in packet.tick..packet.tick + u64::from(packet.ticks) {
                ear.ticks.push(tick);
                ear.own.push(own);
                ear.levels.push(packet.level_dbov);
            }
            if let Some(decoder) = &mut ear.decoder {
                let mut pcm = vec![0.0; TICK_SAMPLES * usize::from(packet.ticks)];
                let decoded = decoder.decode(Some(packet.payload.bytes()), &mut pcm);
                assert_eq!(decoded, Ok(pcm.len()));
                ear.sound.extend(pcm);
            }
        }
    }

    /// Every listener got one packet in each tick from `from` on.
    pub fn check_ticks(&self, from: u64) {
        for (person, ear) in &self.ears {
            let first = *ear.ticks.first().unwrap_or_else(|| panic!("{person} got nothing"));
            assert!(first <= from, "{person} began at {first}");
            let mut all: Vec<u64> = (first..=self.tick()).collect();
            // The last ones may wait for others.
            let waits = all.len() - ear.ticks.len().min(all.len());
            assert!(waits < usize::from(self.packet_ticks), "{person}: {waits} ticks are missing");
            all.truncate(ear.ticks.len());
            assert_eq!(ear.ticks, all, "{person}: each tick once");
        }
    }

    /// The counters of a mixer, with what must always hold of them.
    pub fn stats(&self, shard: usize) -> &MixStats {
        let stats = self.mixers[shard].stats();
        let drops: u64 = stats.frame_drops().iter().map(|(_, count)| count).sum();
        let held = stats.frames_in - stats.jitter.decoded - drops;
        assert!(held <= 33 * (self.talkers.len() as u64 + 1), "{stats:?}");
        stats
    }

    /// Whose tones are in what `person` heard in the last `ms`, of all talkers there may be.
    pub fn hears(&self, person: u64, ms: usize, of: &BTreeSet<u64>) -> BTreeSet<u64> {
        let sound = &self.ears[&person].sound;
        let last = &sound[sound.len() - 48 * ms..];
        of.iter()
            .filter(|talker| {
                let power = goertzel(last, tone_hz(**talker));
                let full = self.talkers.get(talker).map_or(0.1, |t| t.amplitude.max(0.01));
                let full = full * full / 2.0;
                // Half of it or next to nothing: anything between is a fault.
                let there = power > full * 0.4;
                assert!(
                    there || power < 2e-5,
                    "{person} hears {talker} by half: {power} of {full}"
                );
                there
            })
            .copied()
            .collect()
    }

    /// Gives the sound of the listener from tick to tick.
    pub fn sound_of(&self, person: u64, ticks: std::ops::Range<u64>) -> &[f32] {
        let ear = &self.ears[&person];
        let at = |tick: u64| (tick - ear.ticks[0]) as usize * TICK_SAMPLES;
        &ear.sound[at(ticks.start)..at(ticks.end)]
    }
}

/// The most exceptions of a packet, so that tests see the bound.
pub const MOST_HEARD: usize = MAX_LOUDEST;
