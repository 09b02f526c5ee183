//! Clips that bots show: frames in a loop, and how they leave.

use super::blank::{h264, vp8};
use rtp::negotiated::Codec;
use std::fmt;
use std::sync::Arc;

/// Packets of a recorded clip's frame that leave together.
pub(super) const BURST: u32 = 2;
/// Longest payload of ordinary clips: with header, extensions, RTX and tag the packet stays below 1200 bytes.
pub(super) const MAX_PAYLOAD: usize = 1140;

/// How the fixtures are made; named in every error about them.
const CURE: &str = "scripts/media.sh makes them";

/// Why a fixture cannot be used, with its name and the cure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixtureError {
    file: String,
    why: String,
}

impl FixtureError {
    pub(super) fn new(file: &str, why: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), why: why.to_string() }
    }
}

impl fmt::Display for FixtureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({CURE})", self.file, self.why)
    }
}

impl std::error::Error for FixtureError {}

/// One frame of a clip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClipFrame {
    /// The frame in VP8, or the NAL unit of its one slice in H.264.
    pub data: Vec<u8>,
    /// Whether it can be decoded by itself.
    pub keyframe: bool,
}

/// A clip in VP8 or H.264, to be played in a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clip {
    /// Which of them.
    pub codec: Codec,
    /// Parameter sets of H.264, which leave in a packet of their own before each keyframe. Empty: there is no such packet.
    pub parameter_sets: ClipFrame,
    /// Its frames, of which an empty one is not sent. The first is a keyframe, unless there are `keyframes`.
    pub frames: Vec<ClipFrame>,
    /// Keyframes that are sent, in turn, to begin with and where one is asked for. If there are none, the clip goes on from
    /// the next keyframe of `frames`.
    pub keyframes: Vec<ClipFrame>,
    /// Frames that an encoder sends behind one of `keyframes` to refine it. Each takes the place of a smaller one of the loop.
    pub refining: Vec<ClipFrame>,
    /// Frames a second, as numerator and denominator.
    pub rate: (u32, u32),
    /// Picture width, in pixels.
    pub width: u32,
    /// Picture height, in pixels.
    pub height: u32,
    /// Packets of a frame that leave together.
    pub burst: u32,
    /// Longest payload of a packet, VP8's descriptor or the header of a fragment included, in bytes.
    pub max_payload: usize,
    /// How fast its packets leave at most, in kbit/s; None: within half of a frame's time.
    pub pace_kbps: Option<u32>,
    /// What is shown in the lower layers of a line with simulcast, the smallest picture first.
    pub smaller: Vec<Arc<Clip>>,
}

impl Clip {
    /// Frames of so many full packets, a keyframe among them every two seconds.
    pub(super) fn of_packets(packets: usize, per_second: u32) -> Self {
        let len = packets * (MAX_PAYLOAD - rtp::vp8::DESCRIPTOR_LEN);
        let lens = vec![len; 2 * per_second as usize];
        Self { burst: packets as u32, ..Self::of_lens(&lens, per_second) }
    }

    /// Frames whose packets have the sizes of a recorded camera's. Errors: no such record.
    pub(super) fn recorded(json: &str) -> Result<Self, serde_json::Error> {
        let record: Recorded = serde_json::from_str(json)?;
        let data = |sizes: &Vec<usize>| {
            let descriptors = sizes.len() * rtp::vp8::DESCRIPTOR_LEN;
            sizes.iter().sum::<usize>().saturating_sub(descriptors)
        };
        let lens: Vec<usize> = record.payload_bytes.iter().map(data).collect();
        let longest = record.payload_bytes.iter().flatten().max().copied();
        let max_payload = longest.unwrap_or(MAX_PAYLOAD);
        Ok(Self { max_payload, ..Self::of_lens(&lens, record.frames_per_second) })
    }

    /// Frames of these many bytes, which show nothing; the first is a keyframe.
    pub(super) fn of_lens(lens: &[usize], per_second: u32) -> Self {
        let (width, height) = (640, 360);
        let frame = |(nth, len): (u32, &usize)| {
            let keyframe = nth == 0;
            // RFC 6386 §9.1: a keyframe says its size.
            let head: &[u8] = match keyframe {
                true => &[0x10, 0, 0, 0x9D, 0x01, 0x2A, 0x80, 0x02, 0x68, 0x01],
                false => &[0x11, 0, 0],
            };
            let mut data = head.to_vec();
            data.extend((data.len()..*len).map(|at| (at as u32 ^ nth) as u8));
            ClipFrame { data, keyframe }
        };
        let frames = (0..).zip(lens).map(frame).collect();
        let rate = (per_second, 1);
        Self::of_frames(frames, rate, (width, height))
    }

    pub(super) fn of_frames(frames: Vec<ClipFrame>, rate: (u32, u32), size: (u32, u32)) -> Self {
        Self {
            codec: Codec::Vp8,
            parameter_sets: ClipFrame { data: Vec::new(), keyframe: true },
            frames,
            keyframes: Vec::new(),
            refining: Vec::new(),
            rate,
            width: size.0,
            height: size.1,
            burst: BURST,
            max_payload: MAX_PAYLOAD,
            pace_kbps: None,
            smaller: Vec::new(),
        }
    }

    /// A frame by its number. Those of the loop come first, then keyframes that are asked for, then what refines them. The last
    /// number is that of the parameter sets.
    pub(super) fn frame(&self, number: usize) -> &ClipFrame {
        let (frames, keyframes) = (self.frames.len(), self.keyframes.len());
        match number {
            _ if number < frames => &self.frames[number],
            _ if number < frames + keyframes => &self.keyframes[number - frames],
            _ => self.refining.get(number - frames - keyframes).unwrap_or(&self.parameter_sets),
        }
    }

    /// The number of what is in front of a keyframe, see [`Self::frame`]; None without it.
    pub(super) fn sets_number(&self) -> Option<usize> {
        let number = self.frames.len() + self.keyframes.len() + self.refining.len();
        (!self.parameter_sets.data.is_empty()).then_some(number)
    }

    /// What is shown in the layers of a line with simulcast, the smallest picture first: at last the clip itself.
    pub fn layers(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        self.smaller.iter().chain([self])
    }

    /// Index of the first keyframe at or after `index`, around the end.
    pub fn keyframe_from(&self, index: usize) -> usize {
        let len = self.frames.len();
        (0..len).map(|step| (index + step) % len).find(|at| self.frames[*at].keyframe).unwrap_or(0)
    }

    /// A clip out of the sizes of frames in bytes, and whether each is a keyframe, to be played in a loop. A frame of 0 bytes
    /// is one that the encoder left out. `size` is width and height in pixels.
    ///
    /// `keyframes` are the sizes of those that are sent, in turn, to begin with and where somebody asks. Without them the next
    /// one in the loop is sent. A decoder shows a grey picture. A size that is too small for one gets the few bytes more.
    pub fn of_sizes(
        frames: &[(usize, bool)],
        keyframes: &[usize],
        per_second: u32,
        size: (u16, u16),
    ) -> Self {
        Self::of_sizes_in(Codec::Vp8, frames, keyframes, per_second, size)
    }

    /// The same in another codec: VP8, or H.264, whose frames have about these sizes (a keyframe 200 bytes more or less).
    pub fn of_sizes_in(
        codec: Codec,
        frames: &[(usize, bool)],
        keyframes: &[usize],
        per_second: u32,
        size: (u16, u16),
    ) -> Self {
        let is_h264 = codec == Codec::H264;
        let (key, delta) = (vp8::keyframe(size.0, size.1), vp8::delta(size.0, size.1));
        let frame = |(nth, (bytes, keyframe)): (usize, (usize, bool))| {
            let data = match (keyframe, is_h264) {
                _ if bytes == 0 => Vec::new(),
                (true, true) => h264::keyframe(size.0, size.1, bytes),
                (false, true) => h264::delta(size.0, size.1, bytes),
                (keyframe, false) => {
                    let mut data = if keyframe { key.clone() } else { delta.clone() };
                    data.extend((data.len()..bytes).map(|at| (at ^ nth) as u8));
                    data
                }
            };
            ClipFrame { data, keyframe: keyframe && bytes > 0 }
        };
        let sets = if is_h264 { h264::parameter_sets(size.0, size.1) } else { Vec::new() };
        let asked = keyframes.iter().map(|bytes| (*bytes, true));
        let (width, height) = (size.0.into(), size.1.into());
        let all = frames.iter().copied().enumerate().map(frame).collect();
        Self {
            codec,
            parameter_sets: ClipFrame { data: sets, keyframe: true },
            keyframes: asked.enumerate().map(frame).collect(),
            ..Self::of_frames(all, (per_second, 1), (width, height))
        }
    }

    /// The same, with frames of these sizes in bytes behind each keyframe that was asked for: see [`Clip::refining`].
    #[must_use]
    pub fn refined_by(self, sizes: &[usize]) -> Self {
        let frames: Vec<_> = sizes.iter().map(|bytes| (*bytes, false)).collect();
        let size = (self.width as u16, self.height as u16);
        Self { refining: Self::of_sizes_in(self.codec, &frames, &[], 1, size).frames, ..self }
    }
}

/// The form of `media/chromium-camera.json`.
#[derive(serde::Deserialize)]
pub(super) struct Recorded {
    frames_per_second: u32,
    /// Of each frame the payloads' lengths, VP8's descriptor included.
    pub(super) payload_bytes: Vec<Vec<usize>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_keyframe_is_found_around_the_end() {
        let frame = |keyframe: bool| ClipFrame { data: vec![u8::from(!keyframe)], keyframe };
        let frames = [true, false, true, false].map(frame).to_vec();
        let clip = Clip { frames, ..Clip::of_lens(&[], 20) };
        assert_eq!([0, 1, 2, 3].map(|at| clip.keyframe_from(at)), [0, 2, 2, 0]);
    }

    #[test]
    fn a_clip_of_sizes_has_them_all() {
        let clip =
            Clip::of_sizes(&[(9000, true), (0, false), (1, false)], &[50_000], 5, (640, 360));
        let is: Vec<_> =
            clip.frames.iter().map(|frame| (frame.data.len(), frame.keyframe)).collect();
        let delta = vp8::delta(640, 360).len();
        assert_eq!(is, [(9000, true), (0, false), (delta, false)]);
        assert_eq!((clip.keyframes[0].data.len(), clip.rate), (50_000, (5, 1)));
    }
}
