//! Pictures of recorded sizes: what Chromium's own encoder made of a talking head, of a screen and of slides
//! (scripts/record-pictures.mjs). What they show is grey, and padded to the recorded sizes.

use super::clip::{Clip, FixtureError};
use super::words::VideoSource;
use std::sync::{Arc, OnceLock};

macro_rules! recorded {
    ($source:expr, $name:literal) => {
        ($source, $name, include_str!(concat!("../../../../../media/", $name)))
    };
}

/// The records, by what they are of.
const RECORDS: [(VideoSource, &str, &str); 4] = [
    recorded!(VideoSource::P720, "pictures-720p-vp8.json"),
    recorded!(VideoSource::P1080, "pictures-1080p-vp8.json"),
    recorded!(VideoSource::Screen, "pictures-screen-vp8.json"),
    recorded!(VideoSource::Slides, "pictures-slides-vp8.json"),
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
    /// Frames by the moments at which a picture came; 0: the encoder left it out.
    frame_bytes: Vec<usize>,
}

impl Record {
    fn clip(&self) -> Clip {
        let frames: Vec<(usize, bool)> =
            self.frame_bytes.iter().map(|bytes| (*bytes, false)).collect();
        let size = (self.width, self.height);
        let clip = Clip::of_sizes(&frames, &self.keyframe_bytes, self.frames_per_second, size);
        Clip { pace_kbps: Some((PACING * f64::from(self.target_kbps)) as u32), ..clip }
    }
}

/// All records; what they are of is made when a bot shows it first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pictures([(VideoSource, Record, OnceLock<Arc<Clip>>); RECORDS.len()]);

impl Pictures {
    /// Those of this build. Errors: one is damaged.
    pub(super) fn embedded() -> Result<Self, FixtureError> {
        let mut read = Vec::with_capacity(RECORDS.len());
        for (source, name, json) in RECORDS {
            let record: Record =
                serde_json::from_str(json).map_err(|why| FixtureError::new(name, why))?;
            if record.keyframe_bytes.is_empty() || record.frame_bytes.is_empty() {
                return Err(FixtureError::new(name, "no frames"));
            }
            read.push((source, record, OnceLock::new()));
        }
        let all = read.try_into().map_err(|_| FixtureError::new("pictures", "too few"))?;
        Ok(Self(all))
    }

    /// What a source shows, if it was recorded.
    pub(super) fn clip(&self, source: VideoSource) -> Option<Arc<Clip>> {
        let (_, record, made) = self.0.iter().find(|(of, _, _)| *of == source)?;
        Some(made.get_or_init(|| Arc::new(record.clip())).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::bot::blank;

    #[test]
    fn frames_have_the_recorded_sizes_and_say_what_they_are() {
        let pictures = Pictures::embedded().unwrap();
        for (source, record, _) in &pictures.0 {
            let clip = pictures.clip(*source).unwrap();
            let size = (record.width, record.height);
            let (key, delta) = (blank::keyframe(size.0, size.1), blank::delta(size.0, size.1));
            assert_eq!(clip.keyframes.len(), record.keyframe_bytes.len());
            for (frame, bytes) in clip.keyframes.iter().zip(&record.keyframe_bytes) {
                let head = rtp::vp8::frame_header(&frame.data).unwrap();
                assert_eq!((head.keyframe, head.size), (true, Some(size)));
                assert_eq!(frame.data.len(), *bytes);
                assert!(frame.keyframe && frame.data.starts_with(&key));
            }
            assert_eq!(clip.frames.len(), record.frame_bytes.len());
            for (frame, bytes) in clip.frames.iter().zip(&record.frame_bytes) {
                let wanted = if *bytes == 0 { 0 } else { *bytes.max(&delta.len()) };
                assert_eq!(frame.data.len(), wanted);
                assert!(!frame.keyframe && (wanted == 0 || frame.data.starts_with(&delta)));
            }
            // Real ones are large, other than those of the generators of scripts/media.sh.
            let mean = record.keyframe_bytes.iter().sum::<usize>() / clip.keyframes.len();
            assert!((20_000..400_000).contains(&mean), "{source:?}: keyframes of {mean} bytes");
        }
        assert!(pictures.clip(VideoSource::P360).is_none());
    }
}
