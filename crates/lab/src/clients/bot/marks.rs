//! Marks in speech: in a mixed room each bot in its turn says a chirp, and bots that listen find it
//! in the mix. When it was said is known to the whole process, so that the way from mouth to ear is
//! timed, the mixer's queues and jitter buffers included ([`audio::mark`]).
//!
//! Before its chirp a bot makes itself heard for a while: a room mixes only the loudest.

use super::fixtures::OpusPacket;
use audio::mark::{MARK_SAMPLES, MarkFinder, mark};
use audio::opus::{
    Decoder, Encoder, EncoderOptions, MAX_PACKET, MAX_PACKET_SAMPLES, OpusError, packet_duration,
};
use audio::tone::Sine;
use audio::{Channels, FRAME_MS, FRAME_SAMPLES, SAMPLE_RATE, level_dbov};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One of a room's bots says its mark in each period.
pub const PERIOD: Duration = Duration::from_secs(2);
/// No mark is under way for longer: by then the next may be heard.
const LONGEST_WAY: Duration = Duration::from_millis(1_900);
/// Packets of sound before the mark: by then the room has ranked the speaker.
const LEAD: usize = 7;
/// Packets of the burst.
const PACKETS: usize = LEAD + MARK_SAMPLES / FRAME_SAMPLES;
/// Louder than anyone who only speaks.
const AMPLITUDE: f64 = 0.35;
/// A low tone leads, out of the chirp's band.
const LEAD_HZ: f64 = 250.0;
/// So many listen at once, for so long, before the next ones do.
const LISTENERS: u32 = 10;
const LISTENING: Duration = Duration::from_secs(30);
/// Who has begun to listen so long ago had ears for a mark.
const SETTLED: Duration = Duration::from_millis(300);
/// A mark that was said so long ago has been found, or will not be: ears know it 0.7 s after it came.
const DECIDED: Duration = Duration::from_millis(2_800);
/// A page tells later what it heard.
const DECIDED_IN_PAGES: Duration = Duration::from_millis(3_500);
/// Marks kept a room.
const MAX_SAID: usize = 64;
/// Missing packets in a row that are concealed: with more the stream begins anew.
const MAX_CONCEALED: u16 = 10;
const PACKET: Duration = Duration::from_millis(FRAME_MS as u64);

/// A bot's part in the marks of its room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkRole {
    /// Which room.
    pub room: u64,
    /// Its place in the room, from 0.
    pub place: u32,
    /// Its place among the bots of all rooms that mix: ten of them at a time listen, so that many
    /// rooms cost no more than one.
    pub listening: Turn,
    /// Its turn to say marks; none where it only listens.
    pub turn: Option<Turn>,
}

/// A place among those who take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The place, from 0.
    pub place: u32,
    /// How many they are.
    pub of: u32,
}

impl MarkRole {
    /// Whether it says the mark of a period.
    fn speaks(&self, period: u64) -> bool {
        self.turn.is_some_and(|turn| period % u64::from(turn.of.max(1)) == u64::from(turn.place))
    }

    /// Whether it listens: ten do at once, who take turns.
    fn listens(&self, at: Duration) -> bool {
        let bots = u64::from(self.listening.of.max(1));
        let turn = (at.as_nanos() / LISTENING.as_nanos()) as u64;
        let first = turn.wrapping_mul(u64::from(LISTENERS)) % bots;
        (u64::from(self.listening.place) + bots - first) % bots < u64::from(LISTENERS)
    }
}

/// A mark that was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spoken {
    place: u32,
    at: Instant,
}

/// What became of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Who said it: their place.
    pub speaker: u32,
    /// When, since turns began.
    pub said: Duration,
    /// Its time from mouth to ear; none where it was not found.
    pub way: Option<Duration>,
}

/// When marks were said, by room.
#[derive(Debug, Default)]
pub struct Said(Mutex<BTreeMap<u64, VecDeque<Spoken>>>);

impl Said {
    fn push(&self, role: MarkRole, at: Instant) {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let said = rooms.entry(role.room).or_default();
        if said.len() == MAX_SAID {
            said.pop_front();
        }
        said.push_back(Spoken { place: role.place, at });
    }

    fn of(&self, room: u64) -> Vec<Spoken> {
        let rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.get(&room).map(|said| said.iter().copied().collect()).unwrap_or_default()
    }
}

/// The packets that a mark is said with.
#[derive(Debug)]
pub struct Burst(Vec<OpusPacket>);

impl Burst {
    /// Encodes it. Errors: those of libopus.
    pub fn encode() -> Result<Self, OpusError> {
        let mut samples = vec![0.0; LEAD * FRAME_SAMPLES];
        Sine::new(LEAD_HZ, AMPLITUDE).fill(&mut samples);
        samples.extend(mark(AMPLITUDE));
        let mut encoder = Encoder::new(EncoderOptions::default())?;
        let mut packet = [0; MAX_PACKET];
        let mut packets = Vec::with_capacity(PACKETS);
        for frame in samples.chunks_exact(FRAME_SAMPLES) {
            let mut whole = [0.0; FRAME_SAMPLES];
            whole.copy_from_slice(frame);
            let len = encoder.encode(&whole, &mut packet)?;
            let data = packet[..len].to_vec();
            packets.push(OpusPacket { data, level_dbov: level_dbov(frame) });
        }
        Ok(Self(packets))
    }
}

/// All that a bot needs to say marks and to find those of others.
#[derive(Debug, Clone)]
pub struct Marks {
    /// Its part.
    pub role: MarkRole,
    /// When turns begin.
    pub origin: Instant,
    /// What it says.
    pub burst: Arc<Burst>,
    /// What was said, by anyone.
    pub said: Arc<Said>,
}

impl Marks {
    /// The packet of a mark that is due at `due` in place of speech. That is when it is said, as by a mouth: a
    /// bot that sends it some milliseconds late has said it no later, and a mixer plays it by its timestamp.
    pub(super) fn packet(&self, due: Instant) -> Option<&OpusPacket> {
        let time = due.saturating_duration_since(self.origin);
        let period = (time.as_nanos() / PERIOD.as_nanos()) as u64;
        if !self.role.speaks(period) {
            return None;
        }
        let within = time - PERIOD * period as u32;
        let number = (within.as_nanos() / PACKET.as_nanos()) as usize;
        let packet = self.burst.0.get(number)?;
        if number == LEAD {
            self.said.push(self.role, due);
        }
        Some(packet)
    }

    /// Whether it listens now.
    pub(super) fn listens(&self, now: Instant) -> bool {
        self.role.listens(now.saturating_duration_since(self.origin))
    }
}

/// Samples of a packet of sound: packets of a mix last 20 to 60 ms. One that cannot be read counts as 20 ms.
pub(super) fn samples_of(payload: &[u8]) -> usize {
    let lasts = packet_duration(payload).map(|lasts| lasts.as_micros() as usize * 48 / 1000);
    lasts.unwrap_or(FRAME_SAMPLES)
}

/// The ears of one who listens for marks in the mix.
#[derive(Debug)]
pub struct Ears {
    decoder: Decoder,
    /// Sequence number that comes next, once there was a packet.
    next: Option<u16>,
    finder: MarkFinder,
    /// Samples given to the finder.
    position: u64,
    /// Where each of the last packets begins, and when it came.
    arrivals: VecDeque<(u64, Instant)>,
    judge: Judge,
    /// Samples of the last packet: a lost one was as long.
    samples: usize,
    pcm: Box<[f32; MAX_PACKET_SAMPLES]>,
}

impl Ears {
    /// Ears from `now` on. Errors: libopus has no memory.
    pub fn new(now: Instant) -> Result<Self, OpusError> {
        Ok(Self {
            decoder: Decoder::new(Channels::Mono)?,
            next: None,
            finder: MarkFinder::new(),
            position: 0,
            arrivals: VecDeque::new(),
            judge: Judge::new(now),
            samples: FRAME_SAMPLES,
            pcm: Box::new([0.0; MAX_PACKET_SAMPLES]),
        })
    }

    /// Takes a packet of the mix. One that comes late was concealed and is left out.
    pub fn packet(&mut self, sequence: u16, payload: &[u8], arrival: Instant) {
        let lasts =
            |samples: usize| Duration::from_secs_f64(samples as f64 / f64::from(SAMPLE_RATE));
        match self.next.map(|next| sequence.wrapping_sub(next)) {
            Some(32_768..) => return,
            Some(gap) if gap <= MAX_CONCEALED => {
                for before in (1..=u32::from(gap)).rev() {
                    let came = arrival.checked_sub(lasts(self.samples) * before);
                    self.sound(None, came.unwrap_or(arrival));
                }
            }
            _ => {
                self.decoder.reset();
                (self.finder, self.position) = (MarkFinder::new(), 0);
                self.arrivals.clear();
                self.judge.since = arrival;
            }
        }
        self.samples = samples_of(payload);
        self.sound(Some(payload), arrival);
        self.next = Some(sequence.wrapping_add(1));
    }

    /// The sound of a packet, or what stands for a lost one.
    fn sound(&mut self, payload: Option<&[u8]>, arrival: Instant) {
        let pcm = &mut self.pcm[..self.samples];
        if self.decoder.decode(payload, pcm) != Ok(pcm.len()) {
            pcm.fill(0.0);
        }
        self.arrivals.push_back((self.position, arrival));
        self.position += pcm.len() as u64;
        self.finder.push(pcm);
        for found in self.finder.take_found() {
            let packet = self.arrivals.iter().rfind(|(start, _)| *start as f64 <= found.at);
            if let Some((start, arrival)) = packet {
                let within = (found.at - *start as f64) / f64::from(SAMPLE_RATE);
                let at = *arrival + Duration::from_secs_f64(within.max(0.0));
                self.judge.heard.push(Heard { at, over_db: found.over_db });
            }
        }
        // What the finder has not searched yet lies within two seconds.
        while self.arrivals.len() > 150 {
            self.arrivals.pop_front();
        }
    }

    /// Judges the marks of others that have been decided by `now`.
    pub(super) fn judge(&mut self, marks: &Marks, now: Instant) -> Vec<Outcome> {
        let said = marks.said.of(marks.role.room);
        self.judge.judge(&said, Some(marks.role.place), marks.origin, now)
    }
}

/// What was heard as a mark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heard {
    /// When it began.
    pub at: Instant,
    /// How far it stood over the rest, in dB.
    pub over_db: f64,
}

/// Marks that were heard, until it is known whose they were.
#[derive(Debug)]
pub struct Judge {
    heard: Vec<Heard>,
    /// Ears since then.
    since: Instant,
    /// Marks said up to here have been judged.
    judged: Instant,
    /// How long after it was said a mark is judged.
    decided: Duration,
}

impl Judge {
    /// For ears of a bot from `now` on.
    fn new(now: Instant) -> Self {
        Self { heard: Vec::new(), since: now, judged: now, decided: DECIDED }
    }

    /// For ears of a page from `now` on.
    pub fn of_page(now: Instant) -> Self {
        Self { decided: DECIDED_IN_PAGES, ..Self::new(now) }
    }

    /// Takes marks that were heard.
    pub fn hear(&mut self, marks: impl Iterator<Item = Heard>) {
        self.heard.extend(marks);
    }

    /// Marks that were said after these ears began, by others than `own`, and are decided by `now`.
    fn judge(
        &mut self,
        said: &[Spoken],
        own: Option<u32>,
        origin: Instant,
        now: Instant,
    ) -> Vec<Outcome> {
        let due = |spoken: &&Spoken| {
            Some(spoken.place) != own
                && spoken.at > self.judged
                && spoken.at >= self.since + SETTLED
                && spoken.at + self.decided <= now
        };
        let decided: Vec<Spoken> = said.iter().filter(due).copied().collect();
        if let Some(last) = decided.last() {
            self.judged = last.at;
        }
        let heard = |spoken: &Spoken| {
            let way = |heard: &Heard| {
                let way = heard.at.checked_duration_since(spoken.at)?;
                (way < LONGEST_WAY).then_some((heard.over_db, way))
            };
            let clearest = self.heard.iter().filter_map(way).max_by(|a, b| a.0.total_cmp(&b.0));
            clearest.map(|(_, way)| way)
        };
        let outcomes = decided.iter().map(|spoken| Outcome {
            speaker: spoken.place,
            said: spoken.at.saturating_duration_since(origin),
            way: heard(spoken),
        });
        let outcomes = outcomes.collect();
        self.heard.retain(|heard| heard.at + 2 * self.decided > now);
        outcomes
    }
}

/// The marks that the bots of this process say, for others who hear them.
#[derive(Debug, Clone)]
pub struct SaidMarks {
    /// When each was said.
    pub said: Arc<Said>,
    /// When turns begin.
    pub origin: Instant,
}

impl SaidMarks {
    /// What became of the marks of a room, as one heard them who says none.
    pub fn judge(&self, room: u64, judge: &mut Judge, now: Instant) -> Vec<Outcome> {
        judge.judge(&self.said.of(room), None, self.origin, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn marks(place: u32, bots: u32, said: &Arc<Said>, origin: Instant) -> Marks {
        let turn = Turn { place, of: bots };
        let role = MarkRole { room: 4, place, listening: turn, turn: Some(turn) };
        Marks { role, origin, burst: Arc::new(Burst::encode().unwrap()), said: said.clone() }
    }

    #[test]
    fn each_has_its_turn_to_speak_and_to_listen() {
        let role = |place| {
            let turn = Turn { place, of: 37 };
            MarkRole { room: 1, place, listening: turn, turn: Some(turn) }
        };
        for period in 0..100 {
            let speakers = (0..37).filter(|place| role(*place).speaks(period));
            assert_eq!(speakers.count(), 1);
        }
        let mut all = std::collections::BTreeSet::new();
        for turn in 0..40 {
            let listen = (0..37).filter(|place| role(*place).listens(LISTENING * turn));
            let listen: Vec<u32> = listen.collect();
            assert_eq!(listen.len(), 10);
            all.extend(listen);
        }
        assert_eq!(all.len(), 37);
    }

    #[test]
    fn the_way_of_a_mark_is_timed_and_a_lost_one_is_missed() {
        let (said, origin) = (Arc::new(Said::default()), Instant::now());
        let speaker = marks(0, 1, &said, origin);
        let listener = marks(1, 1, &said, origin);
        let voice = super::super::fixtures::Fixtures::embedded().unwrap().voice(0);
        let (mut ears, mut outcomes) = (Ears::new(origin).unwrap(), Vec::new());
        // It says one in each period (the first before the ears are used to it); the way takes 150 ms, and
        // the third that counts is lost on it.
        for n in 0..800u32 {
            let due = origin + 3 * MS + PACKET * n;
            let speech = &voice.packets[n as usize % voice.packets.len()];
            let packet = speaker.packet(due).unwrap_or(speech);
            if !(300 + LEAD as u32..300 + PACKETS as u32).contains(&n) {
                ears.packet(n as u16, &packet.data, due + 150 * MS);
            }
            if n % 150 == 149 {
                outcomes.extend(ears.judge(&listener, due));
            }
        }
        assert_eq!(outcomes.len(), 6, "{outcomes:?}");
        assert!(outcomes.iter().all(|one| one.speaker == 0 && one.said < 16 * PERIOD));
        for (number, Outcome { way, .. }) in outcomes.iter().enumerate() {
            match way {
                None => assert_eq!(number, 2),
                // Opus looks 6.5 ms ahead.
                Some(way) => assert!(way.abs_diff(156 * MS + MS / 2) < MS, "{number}: {way:?}"),
            }
        }
        assert_eq!(outcomes.iter().filter(|one| one.way.is_none()).count(), 1);
        assert_eq!(ears.judge(&speaker, origin + 100 * PERIOD), [], "his own are no marks for him");
    }

    #[test]
    fn a_mark_that_comes_late_is_judged_when_it_is_decided_and_no_sooner() {
        let (said, origin) = (Arc::new(Said::default()), Instant::now());
        let (speaker, listener) = (marks(0, 1, &said, origin), marks(1, 1, &said, origin));
        let voice = super::super::fixtures::Fixtures::embedded().unwrap().voice(0);
        // Marks come 1 to 1.88 s late, and meet the finder's blocks in all ways.
        let ways = (0..12).map(|step| 1_000 * MS + 80 * MS * step);
        for (way, frames) in ways.flat_map(|way| [(way, 1), (way - 100 * MS, 3)]) {
            let mut gathered: Vec<&[u8]> = Vec::new();
            let (mut joined, mut sequence) = ([0; 3 * MAX_PACKET], 0);
            let mut repacketizer = audio::opus::Repacketizer::new().unwrap();
            let (mut ears, mut outcomes) = (Ears::new(origin).unwrap(), Vec::new());
            said.0.lock().unwrap().clear();
            for n in 0..400u32 {
                let due = origin + 3 * MS + PACKET * n;
                let speech = &voice.packets[n as usize % voice.packets.len()];
                let packet = speaker.packet(due).unwrap_or(speech);
                gathered.push(&packet.data);
                if gathered.len() < frames {
                    continue;
                }
                let together = repacketizer.join(&gathered, &mut joined);
                let packets = match &together {
                    Ok(len) => vec![&joined[..*len]],
                    // A mark and what is said before it are of two configurations.
                    Err(_) => gathered.clone(),
                };
                for packet in packets {
                    ears.packet(sequence, packet, due + way);
                    sequence += 1;
                }
                gathered.clear();
                outcomes.extend(ears.judge(&listener, due + way));
            }
            // A packet of three frames leaves when the last of them is said.
            let way = way + PACKET * (frames as u32 - 1);
            assert!(outcomes.len() >= 2, "{outcomes:?}");
            for Outcome { way: found, .. } in outcomes {
                assert!(found.is_some_and(|found| found.abs_diff(way) < 10 * MS), "{found:?}");
            }
        }
    }

    #[test]
    fn of_what_is_heard_after_a_mark_the_clearest_is_it() {
        let start = Instant::now();
        let at = |ms: u64| start + MS * ms as u32;
        let said = [0, 2_000, 4_000].map(|ms| Spoken { place: 0, at: at(1_000 + ms) });
        let mut judge = Judge::new(start);
        // Something sounds like a weak one 320 ms after the first; the second was lost, and the third is heard
        // just less than two seconds after the second was said.
        let heard = [(1_320, 22.4), (2_029, 26.0), (4_990, 27.0)];
        judge.hear(heard.into_iter().map(|(ms, over_db)| Heard { at: at(ms), over_db }));
        let outcomes = judge.judge(&said[..2], None, start, at(9_000));
        let ways: Vec<_> = outcomes.iter().map(|outcome| outcome.way).collect();
        assert_eq!(ways, [Some(1_029 * MS), None]);
    }

    #[test]
    fn voices_that_are_mixed_are_no_mark() {
        let fixtures = super::super::fixtures::Fixtures::embedded().unwrap();
        let decoded = (0..8).map(|bot| {
            let mut decoder = Decoder::new(Channels::Mono).unwrap();
            let mut frame = |packet: &OpusPacket| {
                let mut pcm = [0.0; FRAME_SAMPLES];
                decoder.decode(Some(&packet.data), &mut pcm).unwrap();
                pcm
            };
            fixtures.voice(bot).packets.iter().map(&mut frame).collect()
        });
        let voices: Vec<Vec<[f32; FRAME_SAMPLES]>> = decoded.collect();
        let (mut finder, mut found) = (MarkFinder::new(), Vec::new());
        // Three of eight, others every other second, for five minutes.
        for n in 0..15_000 {
            let mut mix = [0.0; FRAME_SAMPLES];
            for (place, every) in [(0, 100), (3, 170), (6, 230)] {
                let voice = &voices[(place + n / every) % voices.len()];
                let said = &voice[(n + 37 * (n / every)) % voice.len()];
                mix.iter_mut().zip(said).for_each(|(sum, sample)| *sum += sample);
            }
            finder.push(&mix);
            found.extend(finder.take_found());
        }
        assert_eq!(found, []);
    }
}
