//! Tones instead of speech: each bot of a room has a frequency of its own, and a seeded plan says
//! who is loud. Who speaks and who checks read the same plan, so that what a mix must hold at any
//! moment is known without asking anyone.
//!
//! The plan is a pure function of (seed, bots, loud, time). What is said was encoded before: one
//! second in a loop for each loudness, since every frequency is a whole number of Hz.

use super::fixtures::OpusPacket;
use crate::base::SplitMix;
use audio::opus::{Application, Decoder, Encoder, EncoderOptions, MAX_PACKET, OpusError};
use audio::tone::Sine;
use audio::{Channels, FRAME_SAMPLES, level_dbov};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tones that can be told apart; who comes after them is never loud.
pub const MAX_TONES: u32 = 100;
/// How many a plan makes loud where nothing else is said: as many as a mixed room lets be heard.
pub const LOUD: u32 = 3;
/// Who is loud stays so for this time.
pub const PERIOD: Duration = Duration::from_secs(2);
/// Peak of a loud tone; −20 dBov.
pub const LOUD_AMPLITUDE: f64 = 0.141_421;
/// A quiet tone lies 6 dB below a loud one: another rank, and far over the noise that two codings
/// leave beside loud tones (up to 17 dB below them) where a mix holds it by mistake.
pub const QUIET_AMPLITUDE: f64 = LOUD_AMPLITUDE * 0.5;
/// The lowest tone, and the distance to the next, in Hz.
const FIRST_HZ: u32 = 300;
const STEP_HZ: u32 = 31;
/// Packets of the loop: one second, after which every tone is at its first phase again.
const LOOP: usize = 50;
/// So many people check what they hear at once, and for so long, before the next ones do.
const LISTENERS: u32 = 10;
const LISTENING: Duration = Duration::from_secs(6);
/// Who came or went so long ago is heard or silent for sure.
const SETTLED: Duration = Duration::from_secs(1);

/// The frequency of a place, in Hz.
pub fn frequency_hz(place: u32) -> f64 {
    f64::from(FIRST_HZ + STEP_HZ * (place % MAX_TONES))
}

/// Who is loud when, in one room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TonePlan {
    /// Everything random comes from this; rooms of one run have different ones.
    pub seed: u64,
    /// How many take part, at places from 0.
    pub bots: u32,
    /// How many are loud at once.
    pub loud: u32,
    /// Every second one is ever loud, from place 1, and only the others check what they hear.
    /// Over two shards, which a room's people join in turn, all who are heard are then on the
    /// other one.
    pub alternate: bool,
}

impl TonePlan {
    /// Number of the period that `at` lies in.
    pub fn period(&self, at: Duration) -> u64 {
        (at.as_nanos() / PERIOD.as_nanos()) as u64
    }

    /// Places of those who are loud in a period, rising.
    pub fn loud_in(&self, period: u64) -> Vec<u32> {
        let mut places: Vec<u32> = (0..self.bots.min(MAX_TONES)).collect();
        places.retain(|place| !self.alternate || place % 2 == 1);
        let mut random = SplitMix(self.seed ^ period.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let count = (self.loud as usize).min(places.len());
        for at in 0..count {
            let other = at + random.below((places.len() - at) as u64) as usize;
            places.swap(at, other);
        }
        places.truncate(count);
        places.sort_unstable();
        places
    }

    /// Whether a place checks at `at` what it hears: ten at once, who take turns.
    pub fn listens(&self, place: u32, at: Duration) -> bool {
        if self.alternate && place % 2 == 1 {
            return false;
        }
        let step = if self.alternate { 2 } else { 1 };
        let (place, bots) = (place / step, u64::from(self.bots.div_ceil(step).max(1)));
        let turn = (at.as_nanos() / LISTENING.as_nanos()) as u64;
        let first = turn.wrapping_mul(u64::from(LISTENERS)) % bots;
        (u64::from(place) + bots - first) % bots < u64::from(LISTENERS)
    }

    /// What the listener at `place` must and must not hear in all of `from..until` by the plan.
    ///
    /// Who is loud and on air must be there; who is quiet, gone or the listener must not.
    /// While one of the loud is not on air, a mix may hold quiet ones instead; around coming and
    /// going everything is allowed.
    pub fn expected(&self, place: u32, from: Duration, until: Duration, air: &OnAir) -> Expected {
        let loud = self.loud_in(self.period(from));
        let there = |place: u32| air.is_on(place, from, until);
        let complete = loud.iter().all(|place| there(*place) == Some(true));
        let mut expected = Expected::default();
        for other in 0..self.bots.min(MAX_TONES) {
            match (there(other), loud.contains(&other)) {
                _ if other == place => expected.forbidden.push(other),
                (Some(true), true) => expected.required.push(other),
                (Some(true), false) if complete => expected.forbidden.push(other),
                (Some(false), _) => expected.forbidden.push(other),
                _ => {}
            }
        }
        expected
    }
}

/// What a listener must hear.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// Places that must be heard.
    pub required: Vec<u32>,
    /// Places that must not be heard.
    pub forbidden: Vec<u32>,
}

/// One bot's part in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ToneRole {
    /// The room's plan.
    pub plan: TonePlan,
    /// The bot's place in it, from 0.
    pub place: u32,
    /// Whether it checks, when its turn comes, what it hears of a mix. Not where others than the
    /// bots of the plan may be heard.
    pub listens: bool,
}

/// Who of a room's bots sends, by place, on the plan's clock.
#[derive(Debug, Clone, Default)]
pub struct OnAir {
    places: BTreeMap<u32, Spell>,
}

#[derive(Debug, Clone)]
struct Spell {
    name: String,
    from: Duration,
    until: Option<Duration>,
}

impl OnAir {
    /// A bot begins to send.
    pub fn begin(&mut self, place: u32, name: &str, from: Duration) {
        self.places.insert(place, Spell { name: name.to_owned(), from, until: None });
    }

    /// A bot sends no more.
    pub fn end(&mut self, place: u32, until: Duration) {
        if let Some(spell) = self.places.get_mut(&place) {
            spell.until.get_or_insert(until);
        }
    }

    /// Name of who was last at a place.
    pub fn name(&self, place: u32) -> String {
        self.places.get(&place).map_or_else(|| format!("tone {place}"), |spell| spell.name.clone())
    }

    /// Whether a place surely sent all the time, or surely never; none where neither is sure.
    fn is_on(&self, place: u32, from: Duration, until: Duration) -> Option<bool> {
        let Some(spell) = self.places.get(&place) else { return Some(false) };
        let began = spell.from + SETTLED <= from;
        match spell.until {
            Some(end) if end + SETTLED <= from => Some(false),
            Some(end) if end < until => None,
            _ if began => Some(true),
            _ => None,
        }
    }
}

/// What a place says, encoded: a second of each loudness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToneVoice {
    loud: Vec<OpusPacket>,
    quiet: Vec<OpusPacket>,
}

impl ToneVoice {
    /// Encodes the tone of a place: some 15 ms of CPU time. Errors: those of libopus.
    pub fn encode(place: u32) -> Result<Self, OpusError> {
        let frequency_hz = frequency_hz(place);
        Ok(Self {
            loud: encode_loop(frequency_hz, LOUD_AMPLITUDE)?,
            quiet: encode_loop(frequency_hz, QUIET_AMPLITUDE)?,
        })
    }

    /// The packet of the 20 ms that begin at `at`. Loud or quiet, the wave is at the same phase.
    pub fn packet(&self, at: Duration, loud: bool) -> &OpusPacket {
        let frame = (at.as_millis() / u128::from(audio::FRAME_MS)) as usize % LOOP;
        if loud { &self.loud[frame] } else { &self.quiet[frame] }
    }
}

/// The second second of a tone: by then encoder and decoder are as they will be after each round.
fn encode_loop(frequency_hz: f64, amplitude: f64) -> Result<Vec<OpusPacket>, OpusError> {
    let options = EncoderOptions {
        application: Application::LowDelay,
        complexity: 0,
        ..EncoderOptions::default()
    };
    let mut encoder = Encoder::new(options)?;
    let mut decoder = Decoder::new(Channels::Mono)?;
    let mut sine = Sine::new(frequency_hz, amplitude);
    let mut samples = [0.0; FRAME_SAMPLES];
    let mut packet = [0; MAX_PACKET];
    let mut packets = Vec::with_capacity(LOOP);
    for frame in 0..2 * LOOP {
        sine.fill(&mut samples);
        let len = encoder.encode(&samples, &mut packet)?;
        decoder.decode(Some(&packet[..len]), &mut samples)?;
        if frame >= LOOP {
            let (data, level_dbov) = (packet[..len].to_vec(), level_dbov(&samples));
            packets.push(OpusPacket { data, level_dbov });
        }
    }
    Ok(packets)
}

/// All that a bot needs to say its tone.
#[derive(Debug, Clone)]
pub struct Tone {
    /// Its part in the plan.
    pub role: ToneRole,
    /// When the plan begins.
    pub origin: Instant,
    /// Its packets.
    pub voice: Arc<ToneVoice>,
}

impl Tone {
    /// The time on the plan's clock.
    pub fn at(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use audio::tone::goertzel;

    const S: Duration = Duration::from_secs(1);

    fn plan(bots: u32) -> TonePlan {
        TonePlan { seed: 7, bots, loud: LOUD, alternate: false }
    }

    #[test]
    fn a_plan_repeats_and_changes_and_reaches_everyone() {
        let mut seen = std::collections::BTreeSet::new();
        let mut before = Vec::new();
        let mut changes = 0;
        for period in 0..400 {
            let loud = plan(100).loud_in(period);
            assert_eq!(loud, plan(100).loud_in(period));
            assert!(loud.len() == 3 && loud.windows(2).all(|pair| pair[0] < pair[1]), "{loud:?}");
            changes += usize::from(loud != before);
            seen.extend(loud.iter().copied());
            before = loud;
        }
        assert_eq!(seen.len(), 100, "everyone has his turn");
        assert!(changes > 390, "{changes}");
        assert_ne!(plan(100).loud_in(3), TonePlan { seed: 8, ..plan(100) }.loud_in(3));
        assert_eq!(plan(2).loud_in(0), [0, 1]);
        assert!(plan(0).loud_in(0).is_empty());
        assert!(plan(300).loud_in(5).iter().all(|place| *place < MAX_TONES));
        assert_eq!(plan(9).period(Duration::from_millis(3_999)), 1);
    }

    #[test]
    fn ten_listen_at_once_and_all_have_their_turn() {
        for bots in [1, 4, 10, 37, 100] {
            let mut heard = std::collections::BTreeSet::new();
            for turn in 0..100 {
                let at = LISTENING * turn;
                let places = (0..bots).filter(|place| plan(bots).listens(*place, at));
                let places: Vec<u32> = places.collect();
                assert_eq!(places.len() as u32, bots.min(LISTENERS), "{bots} bots, turn {turn}");
                heard.extend(places);
            }
            assert_eq!(heard.len() as u32, bots);
        }
        let apart = TonePlan { alternate: true, ..plan(100) };
        for turn in 0..100 {
            let listen = (0..100).filter(|place| apart.listens(*place, LISTENING * turn));
            let listen: Vec<u32> = listen.collect();
            assert_eq!(listen.len() as u32, LISTENERS);
            assert!(listen.iter().all(|place| place % 2 == 0), "{listen:?}");
            let loud = apart.loud_in(u64::from(turn));
            assert!(loud.len() == 3 && loud.iter().all(|place| place % 2 == 1), "{loud:?}");
        }
    }

    #[test]
    fn what_is_expected_follows_who_is_on_air() {
        let plan = plan(5);
        let loud = plan.loud_in(5);
        let quiet: Vec<u32> = (0..5).filter(|place| !loud.contains(place)).collect();
        let (from, until) = (S * 10, S * 11);
        let mut air = OnAir::default();
        (0..5).for_each(|place| air.begin(place, &format!("bot-{place}"), S));
        let heard = plan.expected(quiet[0], from, until, &air);
        assert_eq!((&heard.required, &heard.forbidden), (&loud, &quiet));
        let himself = plan.expected(loud[0], from, until, &air);
        assert_eq!(himself.required, loud[1..]);
        assert!(himself.forbidden.contains(&loud[0]) && himself.forbidden.contains(&quiet[0]));
        // One of the loud left long ago: they must be silent, and quiet ones may take their place.
        air.end(loud[1], S * 8);
        let after = plan.expected(quiet[0], from, until, &air);
        assert_eq!(after.required, [loud[0], loud[2]]);
        let mut silent = vec![quiet[0], loud[1]];
        silent.sort_unstable();
        assert_eq!(after.forbidden, silent);
        // One who just left, or just came, may be heard or not.
        air.end(loud[2], from - S / 2);
        air.begin(loud[0], "again", from - S / 2);
        let between = plan.expected(quiet[0], from, until, &air);
        assert_eq!((between.required, between.forbidden), (vec![], silent));
        assert_eq!((air.name(loud[0]), air.name(77)), ("again".into(), "tone 77".into()));
    }

    /// Each tone, through its own loop and a change of loudness, stands clear of all the others.
    #[test]
    fn tones_survive_opus_and_are_told_apart() {
        for place in (0..MAX_TONES).step_by(9) {
            let voice = ToneVoice::encode(place).unwrap();
            let mut decoder = Decoder::new(Channels::Mono).unwrap();
            let mut samples = Vec::new();
            for frame in 0..250_u64 {
                let at = Duration::from_millis(20 * frame);
                // Loud, and quiet in between.
                let packet = voice.packet(at, !(100..150).contains(&frame));
                let mut decoded = [0.0; FRAME_SAMPLES];
                decoder.decode(Some(&packet.data), &mut decoded).unwrap();
                samples.extend_from_slice(&decoded);
                assert!(packet.data.len() < 200, "{} bytes", packet.data.len());
            }
            // Over the seam of the loop, quiet, and loud again 0.4 s after the change.
            for (from, amplitude) in
                [(25, LOUD_AMPLITUDE), (105, QUIET_AMPLITUDE), (170, LOUD_AMPLITUDE)]
            {
                let window = &samples[from * FRAME_SAMPLES..(from + 40) * FRAME_SAMPLES];
                let hann: Vec<f32> = (0..window.len())
                    .map(|at| {
                        let turn = std::f64::consts::TAU * at as f64 / window.len() as f64;
                        window[at] * (1.0 - turn.cos()) as f32
                    })
                    .collect();
                let own = goertzel(&hann, frequency_hz(place));
                let wanted = amplitude * amplitude / 2.0;
                assert!((0.7..1.3).contains(&(own / wanted)), "place {place} at {from}: {own}");
                for other in (0..MAX_TONES).filter(|other| *other != place) {
                    let spill = goertzel(&hann, frequency_hz(other)) / own;
                    assert!(spill < 1e-3, "place {place} sounds at place {other}: {spill}");
                }
            }
            assert!((18..=22).contains(&voice.packet(S, true).level_dbov));
            assert!((24..=28).contains(&voice.packet(S, false).level_dbov));
        }
    }
}
