//! A peak limiter for mixes: adds no delay, leaves everything below its threshold untouched.

use crate::frame::FRAME_SAMPLES;

/// What the limiter lets through, as peak: -3.1 dB, since peaks of what Opus decodes to are higher: of
/// twenty tones of full scale 0.78, of twenty that their microphones clipped 0.95.
pub const THRESHOLD: f32 = 0.7;
/// Samples between two points of the gain curve: 1 ms.
const STEP: usize = 48;
const STEPS: usize = FRAME_SAMPLES / STEP;
/// Growth of the gain from point to point while it recovers: 60 dB a second.
const RELEASE: f32 = 1.006_931_7;

/// The limiter of one stream of 20 ms mono frames. The gain falls as fast as the peaks of the
/// frame in hand ask and recovers slowly; within a frame it moves along a line between points 1 ms
/// apart, so that limiting makes no clicks.
#[derive(Clone, Debug)]
pub struct Limiter {
    gain: f32,
}

impl Default for Limiter {
    fn default() -> Self {
        Self { gain: 1.0 }
    }
}

impl Limiter {
    /// A limiter at rest.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits `samples` to [`THRESHOLD`]. What is no number becomes 0.
    pub fn run(&mut self, samples: &mut [f32; FRAME_SAMPLES]) {
        let mut allowed = [1.0_f32; STEPS];
        for (allowed, step) in allowed.iter_mut().zip(samples.chunks_exact_mut(STEP)) {
            let mut peak = 0.0_f32;
            for sample in step {
                if !sample.is_finite() {
                    *sample = 0.0;
                }
                peak = peak.max(sample.abs());
            }
            if peak > THRESHOLD {
                *allowed = THRESHOLD / peak;
            }
        }
        if self.gain >= 1.0 && allowed.iter().all(|allowed| *allowed >= 1.0) {
            return;
        }
        // The line between two points stays under what a step allows when both points do.
        let mut from = self.gain.min(allowed[0]);
        for (index, step) in samples.chunks_exact_mut(STEP).enumerate() {
            let next = allowed.get(index + 1).copied().unwrap_or(1.0);
            let to = (from * RELEASE).min(allowed[index]).min(next).min(1.0);
            let slope = (to - from) / STEP as f32;
            for (at, sample) in step.iter_mut().enumerate() {
                *sample = (*sample * (from + slope * at as f32)).clamp(-1.0, 1.0);
            }
            from = to;
        }
        self.gain = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tone::{Sine, goertzel};

    /// Of a sine with peaks at the threshold.
    const THRESHOLD_POWER: f64 = (THRESHOLD * THRESHOLD / 2.0) as f64;

    fn frames(sine: &mut Sine, limiter: &mut Limiter, count: usize) -> Vec<f32> {
        let mut sound = Vec::new();
        for _ in 0..count {
            let mut samples = [0.0; FRAME_SAMPLES];
            sine.fill(&mut samples);
            limiter.run(&mut samples);
            sound.extend(samples);
        }
        sound
    }

    fn peak(samples: &[f32]) -> f32 {
        samples.iter().fold(0.0, |peak, x| x.abs().max(peak))
    }

    #[test]
    fn below_the_threshold_not_a_bit_changes() {
        let (mut sine, mut same) = (Sine::new(300.0, 0.69), Sine::new(300.0, 0.69));
        let sound = frames(&mut sine, &mut Limiter::new(), 10);
        let mut expected = vec![0.0; sound.len()];
        same.fill(&mut expected);
        assert_eq!(sound, expected);
    }

    #[test]
    fn no_sample_passes_1_and_the_tone_stays_a_tone() {
        let mut limiter = Limiter::new();
        let sound = frames(&mut Sine::new(440.0, 3.0), &mut limiter, 50);
        assert!(peak(&sound) <= THRESHOLD + 0.001, "{}", peak(&sound));
        let steady = &sound[10 * FRAME_SAMPLES..];
        // Clipped, a sine of 3.0 would hold 0.075 of power at the third harmonic.
        assert!(goertzel(steady, 440.0) > 0.8 * THRESHOLD_POWER);
        assert!(goertzel(steady, 1320.0) < 0.000_1, "{}", goertzel(steady, 1320.0));
        let sudden = frames(&mut Sine::new(1000.0, 0.5), &mut Limiter::new(), 1);
        assert_eq!(
            peak(&sudden),
            peak(&frames(&mut Sine::new(1000.0, 0.5), &mut limiter, 50)[48_000 - 960..]),
            "recovered"
        );
    }

    #[test]
    fn a_peak_at_any_place_is_held() {
        for at in [0, 1, 47, 48, 500, 958, 959] {
            let mut limiter = Limiter::new();
            let mut samples = [0.5; FRAME_SAMPLES];
            samples[at] = -40.0;
            limiter.run(&mut samples);
            assert!(
                peak(&samples) <= 1.0 && samples[at] < 0.01 - THRESHOLD,
                "at {at}: {}",
                samples[at]
            );
        }
    }

    #[test]
    fn what_is_no_number_is_silence() {
        let mut samples = [0.25; FRAME_SAMPLES];
        (samples[3], samples[4]) = (f32::NAN, f32::INFINITY);
        Limiter::new().run(&mut samples);
        assert_eq!(samples[2..6], [0.25, 0.0, 0.0, 0.25]);
    }
}
