//! A slow automatic gain: it brings one voice near the level that all voices shall have.
//!
//! The level of a voice is the mean power of its active speech. Speech is active if it is louder
//! than a gate, which lies over the quietest frame of the last two seconds: neither pauses nor
//! steady sound (noise, a tone) count, and neither is made louder.

use crate::frame::FRAME_SAMPLES;

/// The level that voices are brought to, in dBov of active speech: the one that speech has in
/// tests by ITU-T P.56 and P.800, with room for its peaks.
pub const TARGET_DBOV: f32 = -26.0;
/// Most that a voice is made louder or quieter, in dB.
pub const MOST_DB: f32 = 12.0;
/// So near to its place, in dB, the gain rests: speech is never quite even.
const REST_DB: f32 = 1.0;
/// Steps of the gain in dB a frame of active speech: 2 dB a second up, 6 dB down.
const UP_DB: f32 = 0.04;
const DOWN_DB: f32 = 0.12;
/// Frames of active speech over which the level is taken: 3 s.
const MEMORY: f32 = 150.0;
/// So many of them tell something of a voice: 0.5 s.
const LEAST: f32 = 25.0;
/// Speech is louder than this, in dBov…
const QUIETEST_DBOV: f32 = -50.0;
/// …and so much louder than the noise, in dB.
const OVER_NOISE_DB: f32 = 9.0;
/// The noise is the quietest frame of so many windows of so many frames: 2 s.
const WINDOWS: usize = 4;
const WINDOW: u32 = 25;
/// Frames under the gate that still belong to speech, as in P.56: 200 ms.
const HANGOVER: u32 = 10;
/// Steps in dB a frame by which a gain over 0 dB is taken back under the gate: 60 dB a second.
const BACK_DB: f32 = 1.2;

/// The gain of one voice in frames of 20 ms. Within a frame it moves along a line, so that it makes
/// no click; at rest it is constant, and at 0 dB samples stay as they are to the bit.
#[derive(Clone, Debug)]
pub struct Gain {
    /// Of active speech, in dB.
    speech_db: f32,
    /// In force at the end of the last frame, in dB.
    now_db: f32,
    /// Mean square of active speech, and over how many frames, up to [`MEMORY`].
    power: f32,
    frames: f32,
    /// The quietest frame of each window in dBov, the one that is filling first.
    quietest: [f32; WINDOWS],
    in_window: u32,
    /// Frames under the gate in a row.
    under_gate: u32,
}

impl Default for Gain {
    fn default() -> Self {
        Self {
            speech_db: 0.0,
            now_db: 0.0,
            power: 0.0,
            frames: 0.0,
            quietest: [f32::INFINITY; WINDOWS],
            in_window: 0,
            under_gate: 0,
        }
    }
}

fn amplitude(gain_db: f32) -> f32 {
    10_f32.powf(gain_db / 20.0)
}

impl Gain {
    /// A gain of 0 dB that knows nothing of its voice.
    pub fn new() -> Self {
        Self::default()
    }

    /// The gain in force, in dB.
    pub fn gain_db(&self) -> f32 {
        self.now_db
    }

    /// Listens to the next frame of the voice, and brings it to its level.
    pub fn run(&mut self, samples: &mut [f32; FRAME_SAMPLES]) {
        let power = samples.iter().map(|x| x * x).sum::<f32>() / FRAME_SAMPLES as f32;
        if self.is_speech(10.0 * power.log10()) {
            self.under_gate = 0;
            self.measure(power);
        } else {
            self.under_gate = self.under_gate.saturating_add(1);
        }
        let next_db = if self.under_gate <= HANGOVER {
            self.speech_db
        } else {
            self.speech_db.min((self.now_db - BACK_DB).max(0.0))
        };
        self.apply(next_db, samples);
    }

    /// The next frame is not of the voice (it was lost, or nothing came): the gain stays, and learns nothing.
    pub fn hold(&mut self, samples: &mut [f32; FRAME_SAMPLES]) {
        self.apply(self.now_db, samples);
    }

    fn apply(&mut self, next_db: f32, samples: &mut [f32; FRAME_SAMPLES]) {
        let before_db = std::mem::replace(&mut self.now_db, next_db);
        if before_db == 0.0 && next_db == 0.0 {
            return;
        }
        let (from, to) = (amplitude(before_db), amplitude(next_db));
        let slope = (to - from) / FRAME_SAMPLES as f32;
        for (at, sample) in samples.iter_mut().enumerate() {
            *sample *= from + slope * at as f32;
        }
    }

    /// Whether a frame of this level is over the gate, which it moves.
    fn is_speech(&mut self, dbov: f32) -> bool {
        if self.in_window == WINDOW {
            self.quietest.rotate_right(1);
            (self.quietest[0], self.in_window) = (f32::INFINITY, 0);
        }
        self.in_window += 1;
        self.quietest[0] = self.quietest[0].min(dbov);
        let noise_dbov = self.quietest.iter().fold(f32::INFINITY, |least, x| least.min(*x));
        dbov > QUIETEST_DBOV.max(noise_dbov + OVER_NOISE_DB)
    }

    /// Takes a frame of active speech into the level, and the gain a step nearer to its place.
    fn measure(&mut self, power: f32) {
        self.frames = (self.frames + 1.0).min(MEMORY);
        self.power += (power - self.power) / self.frames;
        let wanted_db = (TARGET_DBOV - 10.0 * self.power.log10()).clamp(-MOST_DB, MOST_DB);
        let lacks_db = wanted_db - self.speech_db;
        if self.frames >= LEAST && lacks_db.abs() > REST_DB {
            let step_db = lacks_db - lacks_db.signum() * REST_DB;
            self.speech_db += step_db.clamp(-DOWN_DB, UP_DB);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tone::{Sine, goertzel};
    use std::f32::consts::PI;

    /// Syllables: 160 ms of a tone that swells and fades, and 80 ms of silence with the same over
    /// it. Its mean power lies 3 dB under that of a steady tone.
    struct Voice {
        sine: Sine,
        noise: Sine,
        frame: usize,
    }

    impl Voice {
        fn new(amplitude: f64, noise: f64) -> Self {
            Self { sine: Sine::new(300.0, amplitude), noise: Sine::new(2_500.0, noise), frame: 0 }
        }

        fn next(&mut self) -> [f32; FRAME_SAMPLES] {
            let mut samples = [0.0; FRAME_SAMPLES];
            self.sine.fill(&mut samples);
            let first = self.frame % 12 * FRAME_SAMPLES;
            for (at, sample) in samples.iter_mut().enumerate() {
                let turn = (first + at) as f32 / (8 * FRAME_SAMPLES) as f32;
                let swell = if turn < 1.0 { (turn * PI).sin() } else { 0.0 };
                *sample = *sample * swell + self.noise.next_sample();
            }
            self.frame += 1;
            samples
        }
    }

    /// The mean level of all frames over −50 dBov, in dBov.
    fn level(frames: &[[f32; FRAME_SAMPLES]]) -> f32 {
        let powers = frames.iter().map(|frame| frame.iter().map(|x| x * x).sum::<f32>() / 960.0);
        let active: Vec<f32> = powers.filter(|power| *power > 1e-5).collect();
        10.0 * (active.iter().sum::<f32>() / active.len() as f32).log10()
    }

    fn run(gain: &mut Gain, voice: &mut Voice, frames: usize) -> Vec<[f32; FRAME_SAMPLES]> {
        let next = |_| {
            let mut frame = voice.next();
            gain.run(&mut frame);
            frame
        };
        (0..frames).map(next).collect()
    }

    #[test]
    fn voices_18_db_apart_end_near_each_other_and_slowly() {
        let (mut loud, mut quiet) = (Gain::new(), Gain::new());
        let (mut shouts, mut whispers) = (Voice::new(0.282, 0.0), Voice::new(0.0355, 0.0));
        let first = run(&mut quiet.clone(), &mut Voice::new(0.0355, 0.0), 1)[0];
        assert_eq!(first, Voice::new(0.0355, 0.0).next(), "it begins with 0 dB");
        for second in 0..20 {
            let before = (loud.gain_db(), quiet.gain_db());
            let (one, other) =
                (run(&mut loud, &mut shouts, 50), run(&mut quiet, &mut whispers, 50));
            let (fell, rose) = (before.0 - loud.gain_db(), quiet.gain_db() - before.1);
            assert!((-0.1..=6.0).contains(&fell) && (-0.1..=2.0).contains(&rose), "{fell} {rose}");
            if second > 10 {
                let (one, other) = (level(&one), level(&other));
                assert!((one - other).abs() < 3.0, "{one} and {other} dBov");
                assert!((one - TARGET_DBOV).abs() < 2.0, "{one}");
            }
        }
        assert!(loud.gain_db() < -7.0 && quiet.gain_db() > 7.0);
        let mut far = Gain::new();
        run(&mut far, &mut Voice::new(0.02, 0.0), 2_000);
        assert!((far.gain_db() - MOST_DB).abs() <= REST_DB && far.gain_db() <= MOST_DB);
    }

    #[test]
    fn who_has_the_level_is_not_changed_to_the_bit() {
        let (mut gain, amplitude) = (Gain::new(), 0.1);
        let (mut voice, mut same) = (Voice::new(amplitude, 0.0), Voice::new(amplitude, 0.0));
        let sound = run(&mut gain, &mut voice, 1_000);
        assert!((level(&sound) - TARGET_DBOV).abs() < 0.5, "{}", level(&sound));
        assert!(sound.iter().all(|frame| *frame == same.next()));
    }

    #[test]
    fn steady_sound_and_pauses_are_not_made_louder() {
        for amplitude in [0.008, 0.05, 0.5] {
            let (mut gain, mut sine) = (Gain::new(), Sine::new(440.0, amplitude));
            for frame in 0..500 {
                let mut samples = [0.0; FRAME_SAMPLES];
                sine.fill(&mut samples);
                let before = samples;
                gain.run(&mut samples);
                assert_eq!(samples, before, "frame {frame} of a tone of {amplitude}");
            }
        }
        // Frames that are made up for lost ones tell nothing of the noise.
        let (mut gain, mut sine) = (Gain::new(), Sine::new(440.0, 0.02));
        for frame in 0..1_000 {
            let mut samples = [0.0; FRAME_SAMPLES];
            if frame % 50 == 49 {
                gain.hold(&mut samples);
                continue;
            }
            sine.fill(&mut samples);
            let before = samples;
            gain.run(&mut samples);
            assert_eq!(samples, before, "frame {frame}");
        }
        // A quiet voice in a room with noise of −57 dBov, and then the noise alone.
        let (mut gain, mut voice) = (Gain::new(), Voice::new(0.03, 0.002));
        run(&mut gain, &mut voice, 1_000);
        let learned = gain.gain_db();
        assert!(learned > 8.0, "{learned}");
        voice.sine = Sine::new(300.0, 0.0);
        let pause = run(&mut gain, &mut voice, 200);
        let same: Vec<_> = run(&mut Gain::new(), &mut voice.restarted(), 200);
        assert_eq!(gain.gain_db(), 0.0);
        let power = |frame: &[f32; FRAME_SAMPLES]| goertzel(frame, 2_500.0);
        assert!((power(&pause[25]) / power(&same[25]) - 1.0).abs() < 0.01, "after half a second");
        voice.sine = Sine::new(300.0, 0.03);
        run(&mut gain, &mut voice, 6);
        assert!((gain.gain_db() - learned).abs() < 0.5, "it is remembered");
    }

    impl Voice {
        /// The noise alone, from the start.
        fn restarted(&self) -> Self {
            Self::new(0.0, 0.002)
        }
    }

    #[test]
    fn it_makes_no_click() {
        // What is beside the tone in 20 ms at each place, from 2 to 20 kHz.
        let beside = |sound: &[f32]| {
            let piece = |at: usize| {
                let hann = |n: usize| (PI * (n as f32 + 0.5) / 960.0).sin().powi(2);
                let piece = &sound[at..at + FRAME_SAMPLES];
                let piece: Vec<f32> = piece.iter().enumerate().map(|(n, x)| x * hann(n)).collect();
                let all = piece.iter().map(|x| f64::from(x * x)).sum::<f64>() / 960.0;
                (40..400).map(|n| goertzel(&piece, f64::from(n) * 50.0)).sum::<f64>() / all
            };
            (0..=sound.len() - FRAME_SAMPLES).step_by(240).map(piece).fold(0.0, f64::max)
        };
        let mut gain = Gain { speech_db: 11.0, ..Gain::default() };
        // Over the gate, under it until the boost is gone, and over it again.
        let mut sine = Sine::new(507.0, 1.0);
        let mut sound = Vec::new();
        for frame in 0..90 {
            let amplitude = if (30..60).contains(&frame) { 0.003 } else { 0.05 };
            gain.quietest = [-60.0; WINDOWS];
            let mut samples = [0.0; FRAME_SAMPLES];
            sine.fill(&mut samples);
            samples.iter_mut().for_each(|x| *x *= amplitude);
            gain.run(&mut samples);
            // The steps of the source itself make clicks; the gain is looked at without them.
            samples.iter_mut().for_each(|x| *x /= amplitude);
            sound.extend(samples);
        }
        let before = 10.0 * beside(&sound[..9_600]).log10();
        let all = 10.0 * beside(&sound).log10();
        println!("beside the tone: {before:.0} dB at rest, {all:.0} dB in all");
        assert!(all < -55.0 && before < -55.0, "{before} dB at rest, {all} dB in all");
    }
}
