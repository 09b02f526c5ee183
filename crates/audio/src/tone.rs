//! Tones: made, and looked for. Bots mark their speech with them and tests find them again.

use std::f64::consts::TAU;

use crate::frame::SAMPLE_RATE;

/// An endless sine wave at 48 kHz: each call goes on where the last one ended.
#[derive(Clone, Debug)]
pub struct Sine {
    phase: f64,
    step: f64,
    amplitude: f64,
}

impl Sine {
    /// A sine of `frequency_hz`, with peaks of `amplitude` (1.0 is full scale).
    pub fn new(frequency_hz: f64, amplitude: f64) -> Self {
        Self { phase: 0.0, step: frequency_hz / f64::from(SAMPLE_RATE), amplitude }
    }

    /// The next sample.
    pub fn next_sample(&mut self) -> f32 {
        let sample = (self.phase * TAU).sin() * self.amplitude;
        // Kept under one turn, so that it is as exact after a day as at first.
        self.phase = (self.phase + self.step).fract();
        sample as f32
    }

    /// The next samples of one channel, in place of what `samples` held.
    pub fn fill(&mut self, samples: &mut [f32]) {
        samples.fill_with(|| self.next_sample());
    }
}

/// The power of `samples` (one channel, 48 kHz) at `frequency_hz`, by the Goertzel algorithm: 0.5
/// for a sine of full scale, A²/2 for one of amplitude A, near 0 where there is none. The longer
/// the samples, the narrower the band: about 48000 / length Hz to each side.
pub fn goertzel(samples: &[f32], frequency_hz: f64) -> f64 {
    if samples.is_empty() {
        return 0.0;
    }
    let angle = TAU * frequency_hz / f64::from(SAMPLE_RATE);
    let coefficient = 2.0 * angle.cos();
    let (mut last, mut before) = (0.0f64, 0.0f64);
    for &sample in samples {
        (last, before) = (f64::from(sample) + coefficient * last - before, last);
    }
    let square = last * last + before * before - coefficient * last * before;
    2.0 * square / (samples.len() as f64).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tone_is_found_at_its_frequency_and_nowhere_else() {
        let mut sine = Sine::new(440.0, 0.5);
        let mut samples = vec![0.0; 9600];
        // In uneven pieces: the wave must go on across them.
        samples.chunks_mut(37).for_each(|piece| sine.fill(piece));
        assert!((goertzel(&samples, 440.0) - 0.125).abs() < 1e-4);
        for other in [220.0, 400.0, 480.0, 880.0, 5000.0] {
            assert!(goertzel(&samples, other) < 1e-4, "{other} Hz");
        }
        assert_eq!(goertzel(&[], 440.0), 0.0);
        assert_eq!(goertzel(&[0.0; 960], 440.0), 0.0);
    }
}
