//! Marks: chirps that are said into a room and found again in what comes out of a mixer, so that the
//! way from mouth to ear can be timed.
//!
//! A chirp of 60 ms sweeps 3 kHz: through a matched filter its 2880 samples become one peak of a
//! third of a millisecond, 22 dB over noise as loud as itself (Klauder et al., "The Theory and
//! Design of Chirp Radars", BSTJ 1960). Speech codecs leave its band alone.

use crate::frame::SAMPLE_RATE;
use std::f64::consts::TAU;

/// Length of a mark, in samples at 48 kHz: 60 ms, three packets.
pub const MARK_SAMPLES: usize = 2880;
/// A mark stands so far over the rest, in dB, or it was not found. Marks in a mix of three voices do by 26 to 37,
/// the voices alone by more than 18 five times a minute, and in an hour never by 22.
pub const FOUND_DB: f64 = 22.0;
/// The sweep.
const FROM_HZ: f64 = 500.0;
const TO_HZ: f64 = 3500.0;
/// Samples are averaged by so many before they are searched: the sweep lies far below what is left.
const DECIMATION: usize = 4;
/// Marks are looked for in blocks of so many places, half a second at 12 kHz…
const HOP: usize = 6000;
/// …with so many more before and behind, which show whether a peak at the edge is one.
const MARGIN: usize = 1500;
/// Places around a peak that belong to it: 10 ms.
const PEAK: usize = 120;
const TEMPLATE: usize = MARK_SAMPLES / DECIMATION;

/// The samples of a mark, with peaks of `amplitude` (1.0 is full scale).
pub fn mark(amplitude: f64) -> Vec<f32> {
    (0..MARK_SAMPLES).map(|n| (sweep(n as f64) * amplitude) as f32).collect()
}

/// The mark at a sample: a linear sweep, softened over 5 ms at both ends.
fn sweep(sample: f64) -> f64 {
    let rate = f64::from(SAMPLE_RATE);
    let (time, length) = (sample / rate, MARK_SAMPLES as f64 / rate);
    let phase = FROM_HZ * time + (TO_HZ - FROM_HZ) * time * time / (2.0 * length);
    let edge = (time.min(length - time) / 0.005).clamp(0.0, 1.0);
    (TAU * phase).sin() * (0.5 - 0.5 * (TAU / 2.0 * edge).cos())
}

/// A mark in a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Where it begins, in samples at 48 kHz since the stream began.
    pub at: f64,
    /// How far its peak stands over the rest, in dB.
    pub over_db: f64,
}

/// Looks for marks in a stream: at most one in three quarters of a second is found.
#[derive(Debug)]
pub struct MarkFinder {
    template: Vec<f32>,
    /// Samples at 12 kHz that were not searched yet, and where the first of them lies.
    samples: Vec<f32>,
    first: u64,
    /// Samples at 48 kHz that make no whole one of 12 kHz yet.
    rest: Vec<f32>,
    /// What the matched filter says of each of them, as far as it has come: a little with each call, so
    /// that none takes long.
    scores: Vec<f32>,
    found: Vec<Found>,
}

impl Default for MarkFinder {
    fn default() -> Self {
        Self::new()
    }
}

impl MarkFinder {
    /// One that has heard nothing yet.
    pub fn new() -> Self {
        // The middle of each four samples, as the average of four lies there too.
        let middle = (DECIMATION as f64 - 1.0) / 2.0;
        let template = (0..TEMPLATE).map(|n| sweep((n * DECIMATION) as f64 + middle) as f32);
        Self {
            template: template.collect(),
            samples: Vec::with_capacity(2 * (HOP + 2 * MARGIN + TEMPLATE)),
            first: 0,
            rest: Vec::new(),
            scores: Vec::with_capacity(2 * (HOP + 2 * MARGIN)),
            found: Vec::new(),
        }
    }

    /// Takes the stream's next samples (one channel, 48 kHz).
    pub fn push(&mut self, samples: &[f32]) {
        self.rest.extend_from_slice(samples);
        let whole = self.rest.len() / DECIMATION * DECIMATION;
        let average = |four: &[f32]| four.iter().sum::<f32>() / DECIMATION as f32;
        self.samples.extend(self.rest[..whole].chunks_exact(DECIMATION).map(average));
        self.rest.drain(..whole);
        let places = (self.samples.len() + 1).saturating_sub(TEMPLATE);
        let new = self.scores.len()..places;
        self.scores.extend(new.map(|place| dot(&self.samples[place..], &self.template)));
        while self.scores.len() >= HOP + 2 * MARGIN {
            self.search();
            self.samples.drain(..HOP);
            self.scores.drain(..HOP);
            self.first += HOP as u64;
        }
    }

    /// The marks found since the last call.
    pub fn take_found(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.found)
    }

    fn search(&mut self) {
        let places = HOP + 2 * MARGIN;
        let scores = &self.scores[..places];
        let height = |place: usize| scores[place].abs();
        let peak = (0..places).max_by(|a, b| height(*a).total_cmp(&height(*b))).unwrap_or(0);
        if (MARGIN..MARGIN + HOP).contains(&peak) {
            let around = peak.saturating_sub(PEAK)..peak + PEAK;
            let rest = scores.iter().enumerate().filter(|(place, _)| !around.contains(place));
            let (sum, count) = rest.fold((0.0f64, 0u32), |(sum, count), (_, score)| {
                (sum + f64::from(*score).powi(2), count + 1)
            });
            // Total silence around it: as far over as can be told.
            let rest = (sum / f64::from(count.max(1))).sqrt().max(1e-9);
            let over_db = 20.0 * (f64::from(height(peak)) / rest).log10();
            if over_db >= FOUND_DB && height(peak) > 1e-3 {
                let shift = vertex(height(peak - 1), height(peak), height(peak + 1));
                let place = (self.first + peak as u64) as f64 + shift;
                self.found.push(Found { at: place * DECIMATION as f64, over_db });
            }
        }
    }
}

/// Where the parabola through three neighbours has its vertex, from the middle one.
fn vertex(before: f32, peak: f32, after: f32) -> f64 {
    let (a, b, c) = (f64::from(before), f64::from(peak), f64::from(after));
    let bend = a - 2.0 * b + c;
    if bend.abs() < 1e-12 { 0.0 } else { (0.5 * (a - c) / bend).clamp(-0.5, 0.5) }
}

/// Sum of products, in lanes that the compiler can keep apart.
fn dot(samples: &[f32], template: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    for (a, b) in samples.chunks_exact(8).zip(template.chunks_exact(8)) {
        for (lane, (x, y)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += x * y;
        }
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opus::{Decoder, Encoder, EncoderOptions, MAX_PACKET};
    use crate::tone::Sine;
    use crate::{Channels, FRAME_SAMPLES};

    /// Three seconds with a mark at a sample, over a voice of this loudness.
    fn stream(at: usize, voice: f64) -> Vec<f32> {
        let mut samples = vec![0.0; 3 * SAMPLE_RATE as usize];
        let mut sines = [180.0, 730.0, 1210.0, 2600.0].map(|hz| Sine::new(hz, voice / 2.0));
        for sample in &mut samples {
            *sample = sines.iter_mut().map(Sine::next_sample).sum();
        }
        for (sample, mark) in samples[at..].iter_mut().zip(mark(0.3)) {
            *sample += mark;
        }
        samples
    }

    fn find(samples: &[f32]) -> Vec<Found> {
        let mut finder = MarkFinder::new();
        samples.chunks(777).for_each(|chunk| finder.push(chunk));
        finder.take_found()
    }

    #[test]
    fn a_mark_is_found_where_it_is_wherever_that_is() {
        // Over the seams of blocks, too.
        for at in (24_000..72_000).step_by(1_111) {
            let found = find(&stream(at, 0.05));
            assert_eq!(found.len(), 1, "{at}: {found:?}");
            assert!((found[0].at - at as f64).abs() < 6.0, "{at}: {found:?}");
            assert!(found[0].over_db > 22.0, "{found:?}");
        }
    }

    #[test]
    fn without_a_mark_nothing_is_found() {
        let mut silent = stream(30_000, 0.2);
        silent.drain(29_000..34_000);
        assert_eq!(find(&silent), []);
        assert_eq!(find(&vec![0.0; 150_000]), []);
    }

    #[test]
    fn a_mark_survives_two_codings_and_lost_packets_beside_it() {
        let mut samples = stream(48_000, 0.1);
        for stage in 0..2 {
            let mut encoder = Encoder::new(EncoderOptions::default()).unwrap();
            let mut decoder = Decoder::new(Channels::Mono).unwrap();
            let (mut packet, mut pcm) = ([0; MAX_PACKET], [0.0; FRAME_SAMPLES]);
            let mut out = Vec::new();
            for (n, frame) in samples.chunks_exact(FRAME_SAMPLES).enumerate() {
                let frame: &[f32; FRAME_SAMPLES] = frame.try_into().unwrap();
                let len = encoder.encode(frame, &mut packet).unwrap();
                let lost = stage == 1 && (n == 47 || n == 56);
                decoder.decode((!lost).then_some(&packet[..len]), &mut pcm).unwrap();
                out.extend_from_slice(&pcm);
            }
            samples = out;
        }
        let found = find(&samples);
        assert_eq!(found.len(), 1, "{found:?}");
        // Each coding looks 6.5 ms ahead: it comes out so much later.
        let late_ms = (found[0].at - 48_000.0) / 48.0;
        assert!((11.0..15.0).contains(&late_ms), "{late_ms} ms, {found:?}");
    }
}
