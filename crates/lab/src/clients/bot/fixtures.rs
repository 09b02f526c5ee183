//! What bots say and show: Opus speech from Ogg files and VP8 clips from IVF files, read once and
//! shared by all bots.

pub use super::clip::{Clip, ClipFrame, FixtureError};
use crate::clients::bot::pictures::Pictures;
use crate::clients::bot::words::VideoSource;
use rtp::negotiated::Codec;
use std::fmt;
use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, OnceLock};

macro_rules! embedded {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../../../../media/", $name)).as_slice())
    };
}

const VOICES: [(&str, &[u8]); 8] = [
    embedded!("speech-1.ogg"),
    embedded!("speech-2.ogg"),
    embedded!("speech-3.ogg"),
    embedded!("speech-4.ogg"),
    embedded!("speech-5.ogg"),
    embedded!("speech-6.ogg"),
    embedded!("speech-7.ogg"),
    embedded!("speech-8.ogg"),
];
const CLIPS: [(&str, &[u8]); 4] = [
    embedded!("video-360p.ivf"),
    embedded!("video-480p.ivf"),
    embedded!("video-1080p.ivf"),
    embedded!("video-180p.ivf"),
];
/// Sizes of a camera's packets in Chromium, by frame; see scripts/record-camera.py.
const CAMERA: &str = include_str!("../../../../../media/chromium-camera.json");

/// 20 ms of a voice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpusPacket {
    /// The packet.
    pub data: Vec<u8>,
    /// The level of what it decodes to, in −dBov (RFC 6464).
    pub level_dbov: u8,
}

/// Speech, to be played in a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voice {
    /// Its packets, 20 ms each.
    pub packets: Vec<OpusPacket>,
}

/// Bytes of a steady packet's Opus: on the wire 92, with header, level, capture time and tag.
const STEADY_BYTES: usize = 48;

impl Voice {
    /// Packets of one size, a frame of silence padded (RFC 6716 §3.2.5).
    fn steady(silence: &OpusPacket) -> Self {
        let data = padded(&silence.data, STEADY_BYTES);
        Self { packets: vec![OpusPacket { data, level_dbov: silence.level_dbov }] }
    }
}

/// An Opus packet of one frame, as one of code 3 with padding up to `len` bytes (up to 250 more).
fn padded(packet: &[u8], len: usize) -> Vec<u8> {
    let Some((toc, frame)) = packet.split_first() else { return Vec::new() };
    let padding = len.saturating_sub(frame.len() + 3).min(250);
    // One frame, with padding, at a constant rate.
    let mut out = vec![toc | 0b11, 0b0100_0001, padding as u8];
    out.extend_from_slice(frame);
    out.resize(out.len() + padding, 0);
    out
}

/// All voices and clips.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixtures {
    voices: Vec<Arc<Voice>>,
    clips: [Arc<Clip>; 3],
    pictures: Pictures,
    singles: Arc<Clip>,
    frames: Arc<Clip>,
    camera: Arc<Clip>,
    steady: Arc<Voice>,
    silence: Arc<OpusPacket>,
}

impl Fixtures {
    /// The fixtures of this build, read on first use. Errors: they are damaged.
    pub fn embedded() -> Result<Arc<Self>, FixtureError> {
        static EMBEDDED: OnceLock<Result<Arc<Fixtures>, FixtureError>> = OnceLock::new();
        EMBEDDED
            .get_or_init(|| {
                let named = VOICES.iter().chain(&CLIPS).map(|(name, data)| (*name, data.to_vec()));
                Self::parse(named.collect()).map(Arc::new)
            })
            .clone()
    }

    /// The fixtures of a directory, under the names of those in `media/`. Errors: one is missing
    /// or damaged.
    pub fn load(dir: &Path) -> Result<Arc<Self>, FixtureError> {
        let read = |name: &'static str| {
            let path = dir.join(name);
            std::fs::read(&path)
                .map(|data| (name, data))
                .map_err(|error| FixtureError::new(&path.display().to_string(), error))
        };
        let names = VOICES.iter().chain(&CLIPS).map(|(name, _)| *name);
        Self::parse(names.map(read).collect::<Result<_, _>>()?).map(Arc::new)
    }

    fn parse(mut files: Vec<(&'static str, Vec<u8>)>) -> Result<Self, FixtureError> {
        let clips = files.split_off(VOICES.len());
        let voices = files.iter().map(|(name, data)| read_voice(name, data).map(Arc::new));
        let voices = voices.collect::<Result<_, _>>()?;
        let clip = |at: usize| {
            let (name, data): &(&str, Vec<u8>) = &clips[at];
            read_clip(name, data)
        };
        let half = Arc::new(clip(0)?);
        let full = Clip { smaller: vec![Arc::new(clip(3)?), half.clone()], ..clip(1)? };
        let camera = Clip::recorded(CAMERA);
        let camera = camera.map_err(|why| FixtureError::new("chromium-camera.json", why))?;
        let silence = Arc::new(silence().map_err(|why| FixtureError::new("silence", why))?);
        Ok(Self {
            voices,
            clips: [half, Arc::new(full), Arc::new(clip(2)?)],
            pictures: Pictures::embedded()?,
            singles: Arc::new(Clip::of_packets(1, 100)),
            frames: Arc::new(Clip::of_packets(8, 30)),
            camera: Arc::new(camera),
            steady: Arc::new(Voice::steady(&silence)),
            silence,
        })
    }

    /// The voice of a bot.
    pub fn voice(&self, bot: u32) -> Arc<Voice> {
        self.voices[bot as usize % self.voices.len()].clone()
    }

    /// Packets of one size.
    pub fn steady(&self) -> Arc<Voice> {
        self.steady.clone()
    }

    /// 20 ms of silence.
    pub fn silence(&self) -> Arc<OpusPacket> {
        self.silence.clone()
    }

    /// The clip of a source in a codec; none where nothing is shown, or nothing in this codec
    /// ([`VideoSource::is_known_in`]).
    pub fn clip_in(&self, source: VideoSource, codec: Codec) -> Option<Arc<Clip>> {
        let recorded = self.pictures.clip(source, codec);
        recorded.or_else(|| self.clip(source).filter(|clip| clip.codec == codec))
    }

    /// The clip of a source in VP8; none where nothing is shown.
    pub fn clip(&self, source: VideoSource) -> Option<Arc<Clip>> {
        let at = match source {
            VideoSource::None => return None,
            VideoSource::P360 => 0,
            // Whether the layers below are sent is up to the line.
            VideoSource::P480 | VideoSource::Simulcast => 1,
            VideoSource::Light1080 => 2,
            VideoSource::P720 | VideoSource::P1080 | VideoSource::Screen | VideoSource::Slides => {
                return self.pictures.clip(source, Codec::Vp8);
            }
            VideoSource::Singles => return Some(self.singles.clone()),
            VideoSource::Frames => return Some(self.frames.clone()),
            VideoSource::Chromium => return Some(self.camera.clone()),
        };
        Some(self.clips[at].clone())
    }
}

/// Silence as an encoder codes it once it has been silent for a while. In low delay (CELT) it does
/// not depend on what was decoded before.
fn silence() -> Result<OpusPacket, audio::opus::OpusError> {
    use audio::opus::{Application, Encoder, EncoderOptions, MAX_PACKET};
    let application = Application::LowDelay;
    let mut encoder = Encoder::new(EncoderOptions { application, ..EncoderOptions::default() })?;
    let samples = [0.0; audio::FRAME_SAMPLES];
    let mut packet = [0; MAX_PACKET];
    let mut len = 0;
    for _ in 0..50 {
        len = encoder.encode(&samples, &mut packet)?;
    }
    Ok(OpusPacket { data: packet[..len].to_vec(), level_dbov: audio::level_dbov(&samples) })
}

/// Reads Opus in Ogg (RFC 7845): identification header, comment header, then packets of 20 ms.
fn read_voice(name: &str, data: &[u8]) -> Result<Voice, FixtureError> {
    let error = |why: &dyn fmt::Display| FixtureError::new(name, why);
    let mut reader = ogg::PacketReader::new(Cursor::new(data));
    let mut next = || reader.read_packet().map_err(|why| error(&why));
    let head = next()?.ok_or_else(|| error(&"the file is empty"))?;
    if !head.data.starts_with(b"OpusHead") {
        return Err(error(&"not Opus in Ogg"));
    }
    next()?;
    let channels = audio::Channels::Mono;
    let mut decoder = audio::opus::Decoder::new(channels).map_err(|why| error(&why))?;
    let mut samples = vec![0.0; audio::opus::MAX_PACKET_SAMPLES];
    let mut packets = Vec::new();
    while let Some(packet) = next()? {
        let decoded =
            decoder.decode(Some(&packet.data), &mut samples).map_err(|why| error(&why))?;
        if decoded != audio::FRAME_SAMPLES {
            return Err(error(&format!("a packet of {decoded} samples, not of 20 ms")));
        }
        let level_dbov = audio::level_dbov(&samples[..decoded]);
        packets.push(OpusPacket { data: packet.data, level_dbov });
    }
    if packets.is_empty() {
        return Err(error(&"no packets"));
    }
    Ok(Voice { packets })
}

/// Reads VP8 in IVF: a header of 32 bytes, then frames, each with a header of 12 bytes.
fn read_clip(name: &str, data: &[u8]) -> Result<Clip, FixtureError> {
    let error = |why: &str| FixtureError::new(name, why);
    let (head, mut rest) =
        data.split_first_chunk::<32>().ok_or_else(|| error("shorter than an IVF header"))?;
    if &head[..4] != b"DKIF" || &head[8..12] != b"VP80" {
        return Err(error("not VP8 in IVF"));
    }
    let u16_at = |at: usize| u32::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let u32_at =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let rate = (u32_at(16), u32_at(20));
    let fps = f64::from(rate.0) / f64::from(rate.1);
    if !(1.0..=120.0).contains(&fps) {
        return Err(error(&format!("{}/{} frames a second", rate.0, rate.1)));
    }
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (head, tail) =
            rest.split_first_chunk::<12>().ok_or_else(|| error("cut inside a frame header"))?;
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let (frame, tail) =
            tail.split_at_checked(len).ok_or_else(|| error("cut inside a frame"))?;
        let keyframe = frame.first().is_some_and(|tag| tag & 1 == 0); // RFC 6386 §9.1
        if !frame.is_empty() {
            frames.push(ClipFrame { data: frame.to_vec(), keyframe });
        }
        rest = tail;
    }
    if !frames.first().is_some_and(|frame| frame.keyframe) {
        return Err(error("it does not begin with a keyframe"));
    }
    Ok(Clip::of_frames(frames, rate, (u16_at(12), u16_at(14))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::bot::clip::{MAX_PAYLOAD, Recorded};

    #[test]
    fn the_embedded_fixtures_are_whole() {
        let fixtures = Fixtures::embedded().unwrap();
        for bot in 0..8 {
            let voice = fixtures.voice(bot);
            assert!(voice.packets.len() > 250, "voice {bot}: {} packets", voice.packets.len());
            let loudest = voice.packets.iter().map(|packet| packet.level_dbov).min().unwrap();
            let quietest = voice.packets.iter().map(|packet| packet.level_dbov).max().unwrap();
            assert!(loudest < 30, "voice {bot} is loudest at -{loudest} dBov");
            assert!(quietest > 50, "voice {bot} never pauses: -{quietest} dBov");
        }
        assert_eq!(fixtures.voice(8), fixtures.voice(0));
        assert_ne!(fixtures.voice(1), fixtures.voice(0));
        for (source, width, fps) in [
            (VideoSource::P360, 640, 20),
            (VideoSource::P480, 848, 25),
            (VideoSource::Light1080, 1920, 30),
        ] {
            let clip = fixtures.clip(source).unwrap();
            assert_eq!((clip.width, clip.rate.0 / clip.rate.1), (width, fps));
            let keyframes = clip.frames.iter().filter(|frame| frame.keyframe).count();
            assert!(keyframes >= 2, "{source:?} has {keyframes} keyframes");
        }
        assert!(fixtures.clip(VideoSource::None).is_none());
        let layers = fixtures.clip(VideoSource::Simulcast).unwrap();
        let layers: Vec<_> = layers.layers().collect();
        let sizes: Vec<_> = layers.iter().map(|clip| (clip.width, clip.height)).collect();
        assert_eq!(sizes, [(320, 180), (640, 360), (848, 480)]);
        assert_eq!(VideoSource::Simulcast.rids().len(), layers.len());
        for clip in layers {
            let size = (clip.width as u16, clip.height as u16);
            let keyframes = clip.frames.iter().filter(|frame| frame.keyframe);
            for frame in keyframes.clone() {
                assert_eq!(rtp::vp8::frame_header(&frame.data).unwrap().size, Some(size));
            }
            assert!(keyframes.count() >= 2);
        }
        for (source, packets, per_second) in
            [(VideoSource::Singles, 1, 100), (VideoSource::Frames, 8, 30)]
        {
            let clip = fixtures.clip(source).unwrap();
            assert_eq!((clip.rate, clip.burst), ((per_second, 1), packets));
            for frame in &clip.frames {
                let head = rtp::vp8::frame_header(&frame.data).unwrap();
                assert_eq!(head.keyframe, frame.keyframe);
                assert!(!head.keyframe || head.size == Some((640, 360)));
                let chunks = rtp::vp8::packetize(&frame.data, MAX_PAYLOAD, 1, 1);
                assert_eq!(chunks.count(), packets as usize);
            }
        }
        let record: Recorded = serde_json::from_str(CAMERA).unwrap();
        let camera = fixtures.clip(VideoSource::Chromium).unwrap();
        assert_eq!(camera.frames.len(), record.payload_bytes.len());
        for (frame, sizes) in camera.frames.iter().zip(&record.payload_bytes) {
            // Chromium cuts its frames as this does: into as few payloads as can be, of one length.
            let cut: Vec<usize> = rtp::vp8::packetize(&frame.data, camera.max_payload, 1, 1)
                .map(|c| c.len())
                .collect();
            assert_eq!(cut.len(), sizes.len(), "{cut:?} for {sizes:?}");
            let apart = cut.iter().zip(sizes).map(|(own, theirs)| own.abs_diff(*theirs)).max();
            assert!(apart <= Some(16), "{cut:?} for {sizes:?}");
        }
        let steady = fixtures.steady();
        assert_eq!(steady.packets[0].data.len(), STEADY_BYTES);
        let mut decoder = audio::opus::Decoder::new(audio::Channels::Mono).unwrap();
        let mut samples = [0.0; audio::FRAME_SAMPLES];
        let decoded = decoder.decode(Some(&steady.packets[0].data), &mut samples);
        assert_eq!(decoded.unwrap(), audio::FRAME_SAMPLES);
        // Silence is heard as such after speech, too.
        let (voice, silence) = (fixtures.voice(0), fixtures.silence());
        let mut decoder = audio::opus::Decoder::new(audio::Channels::Mono).unwrap();
        let mut samples = [0.0; audio::FRAME_SAMPLES];
        for packet in voice.packets[..100].iter().chain(std::iter::repeat_n(&*silence, 10)) {
            decoder.decode(Some(&packet.data), &mut samples).unwrap();
        }
        let (level, len) = (audio::level_dbov(&samples), silence.data.len());
        assert!(level > 80 && silence.level_dbov == 127, "silence of {len} bytes at -{level} dBov");
    }

    #[test]
    fn what_is_missing_or_damaged_is_named_with_the_cure() {
        let error = Fixtures::load(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/speech-1.ogg") && error.contains("scripts/media.sh"));
        assert!(read_voice("a.ogg", b"").unwrap_err().to_string().contains("a.ogg"));
        assert!(read_voice("a.ogg", &[0; 500]).is_err());
        let clip = CLIPS[0].1;
        assert!(read_clip("a.ivf", clip).is_ok());
        for (damaged, why) in [
            (&clip[..10], "shorter"),
            (&clip[..40], "frame header"),
            (&clip[..50], "inside a frame"),
            (&clip[..32], "keyframe"),
            (&[0; 64][..], "not VP8"),
        ] {
            let error = read_clip("a.ivf", damaged).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
