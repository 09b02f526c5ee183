//! One frame: 20 ms of PCM at 48 kHz, mono or stereo, samples from -1.0 to 1.0.

/// Samples a second in each channel, everywhere in moim.
pub const SAMPLE_RATE: u32 = 48_000;
/// Length of a frame in milliseconds.
pub const FRAME_MS: u32 = 20;
/// Samples of one channel in a frame.
pub const FRAME_SAMPLES: usize = (SAMPLE_RATE / 1000 * FRAME_MS) as usize;

/// One channel or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// One.
    Mono,
    /// Two, interleaved: left first.
    Stereo,
}

impl Channels {
    /// 1 or 2.
    pub const fn count(self) -> usize {
        match self {
            Self::Mono => 1,
            Self::Stereo => 2,
        }
    }
}

/// 20 ms of sound, in memory of its own that is the same size for mono and stereo.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    channels: Channels,
    samples: Box<[f32; 2 * FRAME_SAMPLES]>,
}

impl Frame {
    /// Silence.
    pub fn silence(channels: Channels) -> Self {
        Self { channels, samples: Box::new([0.0; 2 * FRAME_SAMPLES]) }
    }

    /// Its channels.
    pub fn channels(&self) -> Channels {
        self.channels
    }

    /// Its samples, interleaved: 960 for mono, 1920 for stereo.
    pub fn samples(&self) -> &[f32] {
        &self.samples[..FRAME_SAMPLES * self.channels.count()]
    }

    /// Its samples, to be changed.
    pub fn samples_mut(&mut self) -> &mut [f32] {
        &mut self.samples[..FRAME_SAMPLES * self.channels.count()]
    }

    /// Makes it silent.
    pub fn clear(&mut self) {
        self.samples.fill(0.0);
    }

    /// Adds `other` times `gain`, as a mixer does: mono goes to both sides of a stereo frame, and
    /// stereo to a mono frame by the mean of its sides. Sums may pass 1.0; see
    /// [`clip`](Self::clip).
    pub fn add(&mut self, other: &Self, gain: f32) {
        let (to, from) = (self.channels, other.channels);
        let (sums, added) = (self.samples_mut(), other.samples());
        match (to, from) {
            (Channels::Mono, Channels::Mono) | (Channels::Stereo, Channels::Stereo) => {
                sums.iter_mut().zip(added).for_each(|(sum, x)| *sum += x * gain);
            }
            (Channels::Stereo, Channels::Mono) => {
                for (sides, x) in sums.chunks_exact_mut(2).zip(added) {
                    sides.iter_mut().for_each(|side| *side += x * gain);
                }
            }
            (Channels::Mono, Channels::Stereo) => {
                for (sum, sides) in sums.iter_mut().zip(added.chunks_exact(2)) {
                    *sum += (sides[0] + sides[1]) * 0.5 * gain;
                }
            }
        }
    }

    /// Cuts every sample to the range from -1.0 to 1.0; what is no number becomes 0.
    pub fn clip(&mut self) {
        for sample in self.samples_mut() {
            *sample = if sample.is_nan() { 0.0 } else { sample.clamp(-1.0, 1.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(channels: Channels, samples: &[f32]) -> Frame {
        let mut frame = Frame::silence(channels);
        frame.samples_mut()[..samples.len()].copy_from_slice(samples);
        frame
    }

    #[test]
    fn a_frame_is_20_ms() {
        assert_eq!(Frame::silence(Channels::Mono).samples().len(), 960);
        assert_eq!(Frame::silence(Channels::Stereo).samples().len(), 1920);
    }

    #[test]
    fn adding_keeps_sides_and_crosses_between_mono_and_stereo() {
        use Channels::{Mono, Stereo};
        let (mono, stereo) = (frame(Mono, &[0.5, -0.25]), frame(Stereo, &[0.5, 0.25, 0.0, -0.5]));
        let sum = |base: &Frame, other: &Frame| {
            let mut sum = base.clone();
            sum.add(other, 2.0);
            sum.samples()[..4].to_vec()
        };
        assert_eq!(sum(&mono, &mono), [1.5, -0.75, 0.0, 0.0]);
        assert_eq!(sum(&stereo, &stereo), [1.5, 0.75, 0.0, -1.5]);
        assert_eq!(sum(&stereo, &mono), [1.5, 1.25, -0.5, -1.0]);
        assert_eq!(sum(&mono, &stereo), [1.25, -0.75, 0.0, 0.0]);
    }

    #[test]
    fn clipping_leaves_no_sample_out_of_range() {
        let mut loud = frame(Channels::Mono, &[1.5, -7.0, 0.5, f32::NAN, f32::INFINITY]);
        loud.clip();
        assert_eq!(loud.samples()[..5], [1.0, -1.0, 0.5, 0.0, 1.0]);
        loud.clear();
        assert_eq!(loud, Frame::silence(Channels::Mono));
    }
}
