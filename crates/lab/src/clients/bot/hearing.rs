//! What a bot hears in a room's mix: decoded by libopus, and looked at tone by tone.
//!
//! Sans-IO: packets go in with their time of arrival, spectra of whole windows come out. Each
//! period of the plan gives one window of a second, behind the time in which a change of plan may
//! still be on its way through network, jitter buffer and rank. Missing packets are concealed;
//! a window that lacks too many is void.

use super::marks::samples_of;
use super::tones::{LOUD_AMPLITUDE, MAX_TONES, OnAir, PERIOD, TonePlan, frequency_hz};
use crate::record::{MAX_EXAMPLES, MixWindows, Wrong};
use audio::opus::{Decoder, MAX_PACKET_SAMPLES, OpusError};
use audio::{Channels, FRAME_SAMPLES, SAMPLE_RATE};
use std::f64::consts::TAU;
use std::time::{Duration, Instant};

/// A window begins so long after a change of plan: the old plan's last packets have been mixed and
/// sent, and the rank follows.
const AFTER_CHANGE: Duration = Duration::from_millis(750);
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(1);
/// Samples are averaged by so many: the tones lie far below what is left.
const DECIMATION: usize = 4;
/// A window's power is the mean over blocks of 200 ms: where a jitter buffer on the way leaves a
/// frame out or repeats one, the phase jumps, and over a whole second a tone would cancel itself.
const BLOCKS: usize = 5;
/// Samples of a block, and of a window.
const BLOCK_SAMPLES: usize = SAMPLE_RATE as usize / DECIMATION / BLOCKS;
const WINDOW_SAMPLES: usize = BLOCK_SAMPLES * BLOCKS;
/// More packets missing in a row than this are not concealed: the stream begins anew.
const MAX_CONCEALED: u16 = 10;
/// A window with more concealed packets than this is void.
const MAX_MISSING: u32 = 5;
/// Windows kept until they are taken.
const MAX_WINDOWS: usize = 64;
/// A tone is there from 6 dB below a loud one…
const PRESENT: f64 = 0.25;
/// …and must be 12 dB below it where it may not be there; quiet ones lie 6 dB below.
const ABSENT: f64 = 0.06;

/// Goertzel's recursion for all tones at once, block by block of one window.
#[derive(Debug)]
struct Spectrum {
    coefficients: Vec<f64>,
    last: Vec<f64>,
    before: Vec<f64>,
    /// Power of the blocks that are whole.
    sums: Vec<f64>,
    /// Samples taken.
    taken: usize,
}

impl Spectrum {
    fn new() -> Self {
        let rate_hz = f64::from(SAMPLE_RATE) / DECIMATION as f64;
        let coefficient = |place| 2.0 * (TAU * frequency_hz(place) / rate_hz).cos();
        let places = MAX_TONES as usize;
        Self {
            coefficients: (0..MAX_TONES).map(coefficient).collect(),
            last: vec![0.0; places],
            before: vec![0.0; places],
            sums: vec![0.0; places],
            taken: 0,
        }
    }

    /// Takes a sample, under a Hann window of twice the height: so a tone keeps its power.
    fn push(&mut self, sample: f64) {
        let turn = TAU * (self.taken % BLOCK_SAMPLES) as f64 / BLOCK_SAMPLES as f64;
        let sample = sample * (1.0 - turn.cos());
        self.taken += 1;
        let states = self.last.iter_mut().zip(&mut self.before);
        for ((last, before), coefficient) in states.zip(&self.coefficients) {
            (*last, *before) = (sample + coefficient * *last - *before, *last);
        }
        if self.taken.is_multiple_of(BLOCK_SAMPLES) {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        let scale = 2.0 / (BLOCK_SAMPLES as f64).powi(2) / BLOCKS as f64;
        let states = self.coefficients.iter().zip(self.last.iter().zip(&self.before));
        for (sum, (coefficient, (last, before))) in self.sums.iter_mut().zip(states) {
            *sum += scale * (last * last + before * before - coefficient * last * before);
        }
        self.last.fill(0.0);
        self.before.fill(0.0);
    }

    /// The power of each tone, 0.5 for full scale; begins anew.
    fn take(&mut self) -> Vec<f64> {
        let powers = self.sums.clone();
        self.reset();
        powers
    }

    fn reset(&mut self) {
        self.taken = 0;
        self.last.fill(0.0);
        self.before.fill(0.0);
        self.sums.fill(0.0);
    }
}

/// What was heard in one window.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Its beginning on the plan's clock, as the sound arrived.
    pub from: Duration,
    /// Power of each place's tone.
    pub powers: Vec<f64>,
    /// Packets in it that were concealed.
    pub missing: u32,
}

/// The ears of one listener.
#[derive(Debug)]
pub struct Hearing {
    origin: Instant,
    decoder: Decoder,
    /// Sequence number and timestamp that come next, once there was a packet.
    next: Option<(u16, u32)>,
    /// Where timestamp 0 lies on the plan's clock, in samples, by the packet that came soonest.
    base: i64,
    /// Samples since the stream began, as counted by timestamps.
    position: i64,
    spectrum: Spectrum,
    missing: u32,
    /// Period of the window that is being taken; none between windows.
    period: Option<u64>,
    windows: Vec<Window>,
    /// Frames of 20 ms in the last packet: a lost one had as many.
    frames: u16,
    pcm: Box<[f32; MAX_PACKET_SAMPLES]>,
}

impl Hearing {
    /// Ears that have heard nothing yet; the plan's clock begins at `origin`. Errors: libopus has
    /// no memory.
    pub fn new(origin: Instant) -> Result<Self, OpusError> {
        Ok(Self {
            origin,
            decoder: Decoder::new(Channels::Mono)?,
            next: None,
            base: 0,
            position: 0,
            spectrum: Spectrum::new(),
            missing: 0,
            period: None,
            windows: Vec::new(),
            frames: 1,
            pcm: Box::new([0.0; MAX_PACKET_SAMPLES]),
        })
    }

    /// Takes a packet of the mix: one or more frames of 20 ms. One that comes late was concealed and is left out.
    pub fn packet(&mut self, sequence: u16, timestamp: u32, payload: &[u8], arrival: Instant) {
        let since = arrival.saturating_duration_since(self.origin);
        let arrived = (since.as_nanos() * u128::from(SAMPLE_RATE) / 1_000_000_000) as i64;
        let gap = self.next.map(|(next, _)| sequence.wrapping_sub(next));
        match gap {
            Some(32_768..) => return,
            Some(gap) if gap <= MAX_CONCEALED => {
                for _ in 0..gap {
                    self.sound(None);
                }
                // What the sender left out (no packet lost) passes as silence.
                if let Some((_, expected)) = self.next {
                    let skipped = timestamp.wrapping_sub(expected) as i32;
                    let frames = skipped / FRAME_SAMPLES as i32 - i32::from(gap * self.frames);
                    self.position += i64::from(frames.max(0)) * FRAME_SAMPLES as i64;
                }
            }
            _ => {
                self.decoder.reset();
                self.leave_window();
                (self.base, self.position) = (arrived, 0);
            }
        }
        // The soonest packet knows best when the stream began.
        self.base = self.base.min(arrived - self.position);
        self.frames = (samples_of(payload) / FRAME_SAMPLES).max(1) as u16;
        self.sound(Some(payload));
        let next = timestamp.wrapping_add(u32::from(self.frames) * FRAME_SAMPLES as u32);
        self.next = Some((sequence.wrapping_add(1), next));
    }

    /// Windows that are whole.
    pub fn take_windows(&mut self) -> Vec<Window> {
        std::mem::take(&mut self.windows)
    }

    fn leave_window(&mut self) {
        self.period = None;
        self.spectrum.reset();
        self.missing = 0;
    }

    /// Decodes a packet, or conceals a lost one.
    fn sound(&mut self, payload: Option<&[u8]>) {
        let samples = usize::from(self.frames) * FRAME_SAMPLES;
        let pcm = &mut self.pcm[..samples];
        let whole = self.decoder.decode(payload, pcm) == Ok(samples);
        if !whole {
            pcm.fill(0.0);
        }
        for at in (0..samples).step_by(FRAME_SAMPLES) {
            self.frame(at, payload.is_some() && whole);
        }
    }

    /// Hands the decoded frame from a sample on to the window that it lies in.
    fn frame(&mut self, from: usize, whole: bool) {
        let at = self.base + self.position;
        self.position += FRAME_SAMPLES as i64;
        let period_samples = PERIOD.as_secs() as i64 * i64::from(SAMPLE_RATE);
        let begin = AFTER_CHANGE.as_millis() as i64 * i64::from(SAMPLE_RATE) / 1000;
        let (period, within) = (at.div_euclid(period_samples), at.rem_euclid(period_samples));
        let enters = within >= begin && within < begin + FRAME_SAMPLES as i64;
        if enters && period >= 0 {
            self.leave_window();
            self.period = Some(period as u64);
        }
        let Some(period) = self.period else { return };
        self.missing += u32::from(!whole);
        for chunk in self.pcm[from..from + FRAME_SAMPLES].chunks_exact(DECIMATION) {
            let mean = chunk.iter().map(|x| f64::from(*x)).sum::<f64>() / DECIMATION as f64;
            self.spectrum.push(mean);
        }
        if self.spectrum.taken >= WINDOW_SAMPLES {
            let from = PERIOD * period as u32 + AFTER_CHANGE;
            if self.windows.len() < MAX_WINDOWS {
                let (powers, missing) = (self.spectrum.take(), self.missing);
                self.windows.push(Window { from, powers, missing });
            }
            self.leave_window();
        }
    }
}

/// Judges a window of the listener at `place`.
pub fn judge(heard: &mut MixWindows, plan: &TonePlan, place: u32, window: &Window, air: &OnAir) {
    if window.missing > MAX_MISSING {
        heard.void += 1;
        return;
    }
    let expected = plan.expected(place, window.from, window.from + WINDOW, air);
    let loud = LOUD_AMPLITUDE * LOUD_AMPLITUDE / 2.0;
    let power = |place: &u32| window.powers.get(*place as usize).copied().unwrap_or(0.0) / loud;
    let named = |places: Vec<u32>| places.into_iter().map(|place| air.name(place)).collect();
    let mut missing = expected.required;
    missing.retain(|place| power(place) < PRESENT);
    let mut extra = expected.forbidden;
    extra.retain(|place| power(place) > ABSENT);
    heard.windows += 1;
    if missing.is_empty() && extra.is_empty() {
        return;
    }
    heard.wrong += 1;
    if heard.examples.len() < MAX_EXAMPLES {
        let at_ms = window.from.as_millis() as u64;
        heard.examples.push(Wrong { at_ms, missing: named(missing), extra: named(extra) });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tones::{LOUD, QUIET_AMPLITUDE};
    use super::*;
    use audio::opus::{Application, Encoder, EncoderOptions, MAX_PACKET, Repacketizer};
    use audio::tone::Sine;

    const BOTS: u32 = 20;
    const FRAME: Duration = Duration::from_millis(20);

    fn plan() -> TonePlan {
        TonePlan { seed: 3, bots: BOTS, loud: LOUD, alternate: false }
    }

    fn everyone() -> OnAir {
        let mut air = OnAir::default();
        (0..BOTS).for_each(|place| air.begin(place, &format!("bot-{}", place + 1), Duration::ZERO));
        air
    }

    /// A mix of what `amplitude(place, plan time)` says, encoded as a mixer does, `delay` late.
    fn hear(
        seconds: u64,
        delay: Duration,
        amplitude: impl Fn(u32, Duration) -> f64,
        lost: impl Fn(u64) -> bool,
    ) -> Vec<Window> {
        hear_packets(1, seconds, delay, amplitude, lost)
    }

    /// The same in packets of so many frames.
    fn hear_packets(
        frames: u64,
        seconds: u64,
        delay: Duration,
        amplitude: impl Fn(u32, Duration) -> f64,
        lost: impl Fn(u64) -> bool,
    ) -> Vec<Window> {
        let (mut repacketizer, mut gathered) = (Repacketizer::new().unwrap(), Vec::new());
        let origin = Instant::now();
        let mut hearing = Hearing::new(origin).unwrap();
        let application = Application::Audio;
        let mut encoder =
            Encoder::new(EncoderOptions { application, ..EncoderOptions::default() }).unwrap();
        let mut sines: Vec<Sine> =
            (0..BOTS).map(|place| Sine::new(frequency_hz(place), 1.0)).collect();
        let mut packet = [0; MAX_PACKET];
        for frame in 0..seconds * 50 {
            let at = FRAME * frame as u32;
            let mut pcm = [0.0; FRAME_SAMPLES];
            for (place, sine) in sines.iter_mut().enumerate() {
                let amplitude = amplitude(place as u32, at) as f32;
                pcm.iter_mut().for_each(|sample| *sample += amplitude * sine.next_sample());
            }
            let len = encoder.encode(&pcm, &mut packet).unwrap();
            gathered.push(packet[..len].to_vec());
            if frame % frames + 1 < frames {
                continue;
            }
            let all: Vec<&[u8]> = gathered.iter().map(Vec::as_slice).collect();
            let mut joined = [0; 3 * MAX_PACKET];
            let len = repacketizer.join(&all, &mut joined).unwrap();
            gathered.clear();
            if !lost(frame) {
                let first = frame + 1 - frames;
                let (sequence, timestamp) = (60_000 + (first / frames) as u32, 960 * first as u32);
                let jitter = Duration::from_millis(frame % 4);
                let arrival = origin + at + delay + jitter;
                hearing.packet(sequence as u16, timestamp, &joined[..len], arrival);
            }
        }
        hearing.take_windows()
    }

    /// The loud ones without `without`, by the plan.
    fn loud(place: u32, at: Duration, without: u32) -> f64 {
        let heard = place != without && plan().loud_in(plan().period(at)).contains(&place);
        if heard { LOUD_AMPLITUDE } else { 0.0 }
    }

    fn judged(windows: &[Window], place: u32, air: &OnAir) -> MixWindows {
        let mut heard = MixWindows::default();
        windows.iter().for_each(|window| judge(&mut heard, &plan(), place, window, air));
        heard
    }

    #[test]
    fn a_right_mix_is_right_for_everyone() {
        for (place, delay_ms) in [(0, 20), (plan().loud_in(1)[0], 90), (7, 300)] {
            let delay = Duration::from_millis(delay_ms);
            let windows = hear(12, delay, |other, at| loud(other, at, place), |_| false);
            assert_eq!(windows.len(), 6, "place {place}");
            assert_eq!(windows[1].from, Duration::from_millis(2750));
            let heard = judged(&windows, place, &everyone());
            assert_eq!((heard.windows, heard.wrong, heard.void), (windows.len() as u64, 0, 0));
        }
    }

    #[test]
    fn a_mix_in_packets_of_60_ms_is_heard_as_well() {
        let (place, delay) = (plan().loud_in(1)[0], Duration::from_millis(90));
        // Each fiftieth packet is lost: three frames of a window at most.
        let lost = |frame: u64| frame % 150 == 149;
        let windows = hear_packets(3, 12, delay, |other, at| loud(other, at, place), lost);
        let heard = judged(&windows, place, &everyone());
        assert_eq!((heard.windows, heard.wrong, heard.void), (6, 0, 0));
        assert!(windows.iter().any(|window| window.missing == 3), "a lost packet is three frames");
    }

    #[test]
    fn whoever_is_missing_or_too_much_is_named() {
        let delay = Duration::from_millis(50);
        let himself = plan().loud_in(3)[0];
        let first = plan().loud_in(2).into_iter().find(|place| *place != himself).unwrap();
        let quiet = |place: &u32| !plan().loud_in(4).contains(place) && *place != himself;
        let stranger = (0..BOTS).find(quiet).unwrap();
        let windows = hear(
            10,
            delay,
            |place, at| match (plan().period(at), place) {
                // One of the loud is left out in period 2.
                (2, place) if place == first => 0.0,
                // The listener hears themselves in period 3.
                (3, place) if place == himself => LOUD_AMPLITUDE,
                // A quiet one is mixed in period 4, at their quiet level.
                (4, place) if place == stranger => QUIET_AMPLITUDE,
                _ => loud(place, at, himself),
            },
            |_| false,
        );
        let heard = judged(&windows, himself, &everyone());
        let name = |place: u32| vec![format!("bot-{}", place + 1)];
        let wrong = |at_ms, missing, extra| Wrong { at_ms, missing, extra };
        let want = [
            wrong(4750, name(first), vec![]),
            wrong(6750, vec![], name(himself)),
            wrong(8750, vec![], name(stranger)),
        ];
        assert_eq!(heard.examples, want);
        assert_eq!((heard.windows, heard.wrong), (5, 3));
    }

    #[test]
    fn lost_packets_are_concealed_or_make_a_window_void() {
        let delay = Duration::from_millis(30);
        // Five lost one by one in the first window, a tenth of the second.
        let lost = |frame: u64| match frame {
            40..=79 => frame.is_multiple_of(8),
            140..=180 => frame.is_multiple_of(5),
            _ => false,
        };
        let windows = hear(6, delay, |place, at| loud(place, at, 5), lost);
        assert_eq!(windows.len(), 3);
        let heard = judged(&windows, 5, &everyone());
        assert_eq!((heard.windows, heard.wrong, heard.void), (2, 0, 1));
        // A long gap leaves its window out, and the next is whole again.
        let gap = |frame: u64| (150..200).contains(&frame);
        let windows = hear(8, delay, |place, at| loud(place, at, 5), gap);
        let from: Vec<u128> = windows.iter().map(|window| window.from.as_millis()).collect();
        assert_eq!(from, [750, 4750, 6750]);
        assert_eq!(judged(&windows, 5, &everyone()).wrong, 0);
    }

    #[test]
    fn nonsense_is_not_heard() {
        let origin = Instant::now();
        let mut hearing = Hearing::new(origin).unwrap();
        for frame in 0..200_u32 {
            let arrival = origin + FRAME * frame;
            hearing.packet(frame as u16, 960 * frame, &[0xFF; 3], arrival);
            hearing.packet(frame as u16, 960 * frame, &[], arrival);
        }
        let windows = hearing.take_windows();
        assert!(!windows.is_empty() && windows.iter().all(|window| window.missing > MAX_MISSING));
        let mut heard = MixWindows::default();
        windows.iter().for_each(|window| judge(&mut heard, &plan(), 0, window, &everyone()));
        assert_eq!((heard.windows, heard.void), (0, windows.len() as u64));
    }
}
