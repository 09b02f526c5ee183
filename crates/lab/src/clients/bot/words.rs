//! What a scenario can say that a bot sends.

use wire::room::VideoCodec;

/// What a bot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AudioSource {
    /// No audio track.
    None,
    /// For benches: 50 packets a second of 92 bytes on the wire, which say nothing.
    Steady,
    /// Recorded speech, each bot with a voice and offset of its own.
    #[default]
    Speech,
    /// A tone, each bot with a frequency of its own; who is loud changes by the room's plan
    /// ([`super::tones`]). In an MCU room bots check what they hear against it.
    Tone,
}

/// What a bot shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VideoSource {
    /// No video track.
    None,
    /// 640×360, 0.6 Mbit/s.
    #[default]
    P360,
    /// 848×480, 1.0 Mbit/s.
    P480,
    /// 1920×1080 with small keyframes, 1.46 Mbit/s: what study A's load is made of.
    Light1080,
    /// A talking head of 1280×720, with the sizes of frames that Chromium's encoder makes of one: 1.5 Mbit/s.
    P720,
    /// The same of 1920×1080: 3.4 Mbit/s.
    P1080,
    /// A screen of 1920×1080 with text that scrolls now and then, likewise: nearly nothing most of the time, and large
    /// keyframes.
    Screen,
    /// Slides of 1920×1080 that change every ten seconds, likewise.
    Slides,
    /// In three layers at once (simulcast, RFC 8853): 320×180, 640×360 and 848×480 with 0.13, 0.6 and 1.0 Mbit/s. Where the
    /// server takes no layers, the largest alone.
    Simulcast,
    /// For benches: no picture, but 100 frames a second of one full packet each.
    Singles,
    /// For benches: no picture, but 30 frames a second of eight full packets each, sent at once.
    Frames,
    /// For benches: no picture, but packets of the sizes that Chromium's camera has.
    Chromium,
}

/// RTP stream ids of the layers of [`VideoSource::Simulcast`], the smallest picture first.
const RIDS: [&str; 3] = ["q", "h", "f"];

impl VideoSource {
    /// The size of a browser's camera beside bots that send this, as the page names it.
    pub fn camera(self) -> &'static str {
        match self {
            Self::P480 => "480p",
            Self::P720 => "720p",
            Self::P1080 | Self::Light1080 => "1080p",
            Self::None | Self::P360 | Self::Simulcast | Self::Screen | Self::Slides => "360p",
            Self::Singles | Self::Frames | Self::Chromium => "360p",
        }
    }

    /// The name of a bot's track that shows this, as browsers call theirs: the server treats screens first.
    pub fn track_name(self) -> &'static str {
        match self {
            Self::Screen | Self::Slides => "screen",
            _ => "camera",
        }
    }

    /// Whether bots have pictures of this in a codec: all in VP8, and in H.264 those that were recorded in it.
    pub fn is_known_in(self, codec: VideoCodec) -> bool {
        match codec {
            VideoCodec::Vp8 => true,
            VideoCodec::H264 => {
                matches!(self, Self::None | Self::P720 | Self::P1080 | Self::Screen | Self::Slides)
            }
            VideoCodec::Vp9 | VideoCodec::Av1 => self == Self::None,
        }
    }

    /// RTP stream ids of the layers that it is sent in, the smallest picture first; empty without simulcast.
    pub fn rids(self) -> &'static [&'static str] {
        match self {
            Self::Simulcast => &RIDS,
            _ => &[],
        }
    }
}

/// What a bot does not have, as some browsers do not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lacks {
    /// What it neither offers nor accepts.
    pub transport: transport::Lacks,
    /// A line for sound: it neither says nor hears anything.
    pub sound: bool,
}

/// What a participant sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Media {
    /// Audio.
    pub audio: AudioSource,
    /// Video.
    pub video: VideoSource,
}
