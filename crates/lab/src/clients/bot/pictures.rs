//! Pictures of recorded sizes: what Chromium's own encoder made of a talking head, of a screen and of slides
//! (scripts/record-pictures.mjs). What they show is grey, and padded to the recorded sizes.

use super::clip::{Clip, FixtureError};
use super::words::VideoSource;
use rtp::negotiated::Codec;
use std::sync::{Arc, OnceLock};

macro_rules! recorded {
    ($source:expr, $codec:expr, $name:literal) => {
        Of {
            source: $source,
            codec: $codec,
            name: $name,
            json: include_str!(concat!("../../../../../media/", $name)),
        }
    };
}

/// A record, and what it is of.
struct Of {
    source: VideoSource,
    codec: Codec,
    name: &'static str,
    json: &'static str,
}

const RECORDS: [Of; 8] = [
    recorded!(VideoSource::P720, Codec::Vp8, "pictures-720p-vp8.json"),
    recorded!(VideoSource::P1080, Codec::Vp8, "pictures-1080p-vp8.json"),
    recorded!(VideoSource::Screen, Codec::Vp8, "pictures-screen-vp8.json"),
    recorded!(VideoSource::Slides, Codec::Vp8, "pictures-slides-vp8.json"),
    recorded!(VideoSource::P720, Codec::H264, "pictures-720p-h264.json"),
    recorded!(VideoSource::P1080, Codec::H264, "pictures-1080p-h264.json"),
    recorded!(VideoSource::Screen, Codec::H264, "pictures-screen-h264.json"),
    recorded!(VideoSource::Slides, Codec::H264, "pictures-slides-h264.json"),
];
/// Chromium sends so many times as fast as it encodes.
const PACING: f64 = 2.5;

/// The form of a record.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
struct Record {
    width: u16,
    height: u16,
    frames_per_second: u32,
    /// What the encoder was to keep to.
    target_kbps: u32,
    /// Keyframes that were asked for, at several moments.
    keyframe_bytes: Vec<usize>,
    /// Frames that came behind a keyframe that was asked for, as long as they were larger than others: the median of each.
    #[serde(default)]
    refining_bytes: Vec<usize>,
    /// Frames by the moments at which a picture came; 0: the encoder left it out.
    frame_bytes: Vec<usize>,
}

impl Record {
    fn clip(&self, codec: Codec) -> Clip {
        let frames: Vec<(usize, bool)> =
            self.frame_bytes.iter().map(|bytes| (*bytes, false)).collect();
        let size = (self.width, self.height);
        let (keyframes, rate) = (&self.keyframe_bytes, self.frames_per_second);
        let clip = Clip::of_sizes_in(codec, &frames, keyframes, rate, size);
        let clip = clip.refined_by(&self.refining_bytes);
        Clip { pace_kbps: Some((PACING * f64::from(self.target_kbps)) as u32), ..clip }
    }
}

/// All records; what they are of is made when a bot shows it first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pictures(Vec<Recorded>);

/// A record of a source's pictures in a codec, and the clip that is made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Recorded {
    source: VideoSource,
    codec: Codec,
    record: Record,
    made: OnceLock<Arc<Clip>>,
}

impl Pictures {
    /// Those of this build. Errors: one is damaged.
    pub(super) fn embedded() -> Result<Self, FixtureError> {
        let read = RECORDS.map(|Of { source, codec, name, json }| {
            let record: Record =
                serde_json::from_str(json).map_err(|why| FixtureError::new(name, why))?;
            if record.keyframe_bytes.is_empty() || record.frame_bytes.is_empty() {
                return Err(FixtureError::new(name, "no frames"));
            }
            Ok(Recorded { source, codec, record, made: OnceLock::new() })
        });
        read.into_iter().collect::<Result<_, _>>().map(Self)
    }

    /// What a source shows in a codec, if it was recorded.
    pub(super) fn clip(&self, source: VideoSource, codec: Codec) -> Option<Arc<Clip>> {
        let mut all = self.0.iter();
        let Recorded { record, made, .. } =
            all.find(|recorded| recorded.source == source && recorded.codec == codec)?;
        Some(made.get_or_init(|| Arc::new(record.clip(codec))).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::bot::blank::vp8;

    #[test]
    fn frames_have_the_recorded_sizes_and_say_what_they_are() {
        let pictures = Pictures::embedded().unwrap();
        for Recorded { source, codec, record, .. } in &pictures.0 {
            let clip = pictures.clip(*source, *codec).unwrap();
            let is_h264 = *codec == Codec::H264;
            let size = (record.width, record.height);
            assert_eq!(clip.keyframes.len(), record.keyframe_bytes.len());
            for (frame, bytes) in clip.keyframes.iter().zip(&record.keyframe_bytes) {
                assert!(frame.keyframe);
                if is_h264 {
                    assert!(
                        frame.data.len().abs_diff(*bytes) < 200,
                        "{} of {bytes}",
                        frame.data.len()
                    );
                    continue;
                }
                let head = rtp::vp8::frame_header(&frame.data).unwrap();
                assert_eq!((head.keyframe, head.size), (true, Some(size)));
                assert_eq!(frame.data.len(), *bytes);
                assert!(frame.data.starts_with(&vp8::keyframe(size.0, size.1)));
            }
            assert_eq!(clip.frames.len(), record.frame_bytes.len());
            let delta = vp8::delta(size.0, size.1);
            for (frame, bytes) in clip.frames.iter().zip(&record.frame_bytes) {
                assert!(!frame.keyframe && frame.data.is_empty() == (*bytes == 0));
                if is_h264 {
                    let off = frame.data.len().abs_diff(*bytes);
                    assert!(off <= 12 + bytes / 50, "{} of {bytes}", frame.data.len());
                } else if *bytes > 0 {
                    assert_eq!(frame.data.len(), *bytes.max(&delta.len()));
                    assert!(frame.data.starts_with(&delta));
                }
            }
            // Real ones are large, other than those of the generators of scripts/media.sh.
            let mean = record.keyframe_bytes.iter().sum::<usize>() / clip.keyframes.len();
            assert!((20_000..400_000).contains(&mean), "{source:?}: keyframes of {mean} bytes");
        }
        assert!(pictures.clip(VideoSource::P360, Codec::Vp8).is_none());
        assert!(pictures.clip(VideoSource::P720, Codec::Vp9).is_none());
    }
}
