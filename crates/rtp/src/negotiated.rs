//! What two peers agreed on: lines, codecs, payload types, header extensions, SSRCs.
//!
//! Directions and "local" are seen from the side that holds the value.

/// Kind of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Sound.
    Audio,
    /// Pictures.
    Video,
}

/// A codec that packets are understood in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Opus (RFC 7587).
    Opus,
    /// VP8 (RFC 7741).
    Vp8,
    /// H.264 (RFC 6184).
    H264,
    /// VP9 (RFC 9628).
    Vp9,
    /// AV1 (RTP Payload Format For AV1, Alliance for Open Media).
    Av1,
}

impl Codec {
    /// The codec's RTP clock rate, in Hz.
    pub fn clock_rate(self) -> u32 {
        match self {
            Self::Opus => 48_000,
            Self::Vp8 | Self::H264 | Self::Vp9 | Self::Av1 => 90_000,
        }
    }

    /// Audio or video.
    pub fn kind(self) -> Kind {
        match self {
            Self::Opus => Kind::Audio,
            Self::Vp8 | Self::H264 | Self::Vp9 | Self::Av1 => Kind::Video,
        }
    }

    /// The name as it stands in SDP and statistics, in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opus => "opus",
            Self::Vp8 => "vp8",
            Self::H264 => "h264",
            Self::Vp9 => "vp9",
            Self::Av1 => "av1",
        }
    }
}

/// Who sends on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// This side.
    Send,
    /// The other side.
    Receive,
    /// Both.
    Both,
    /// Nobody.
    Inactive,
}

/// Ids of the header extensions of a line; none where it was not negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extensions {
    /// Client-to-mixer audio level (RFC 6464).
    pub audio_level: Option<u8>,
    /// Transport-wide sequence number.
    pub transport_sequence: Option<u8>,
    /// Absolute send time.
    pub abs_send_time: Option<u8>,
    /// Media identification (RFC 9143).
    pub mid: Option<u8>,
    /// Video orientation (3GPP TS 26.114).
    pub orientation: Option<u8>,
    /// When it was captured, by its sender's clock (`abs-capture-time`).
    pub capture_time: Option<u8>,
    /// RTP stream id: which layer of a line a packet is of (RFC 8852).
    pub rid: Option<u8>,
    /// Which layer a retransmission is of (RFC 8852).
    pub repaired_rid: Option<u8>,
    /// Layers and references of a frame, see [`crate::dependency`].
    pub dependency: Option<u8>,
}

/// An outgoing or incoming stream: its SSRC and that of its retransmissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamIds {
    /// SSRC of the media.
    pub ssrc: u32,
    /// SSRC of its RTX stream (RFC 4588).
    pub rtx: Option<u32>,
}

/// The most layers of a line.
pub const MOST_LAYERS: usize = 3;

/// A layer of a line that is sent with simulcast (RFC 8853): a stream of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Its RTP stream id (`a=rid`), which its packets carry.
    pub rid: String,
    /// Its SSRCs, if this side sends it; the other side's are known by their packets.
    pub ids: Option<StreamIds>,
    /// How many pixels its pictures have; 0 if that is not known.
    pub pixels: u32,
}

/// A negotiated m-line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its `a=mid`.
    pub mid: String,
    /// Who sends.
    pub direction: Direction,
    /// The codec.
    pub codec: Codec,
    /// The codec's payload type.
    pub payload_type: u8,
    /// The payload type of its retransmissions.
    pub rtx_payload_type: Option<u8>,
    /// The payload type of RED over this codec (RFC 2198), where both sides can.
    pub red_payload_type: Option<u8>,
    /// Whether RED is wanted all the time, not only while packets are lost: the client names it before the codec.
    pub red_first: bool,
    /// Header extension ids.
    pub extensions: Extensions,
    /// What this side sends, where it does; of a line with layers, none.
    pub local: Option<StreamIds>,
    /// What the other side announced to send, where it did; of a line with layers, none.
    pub remote: Option<StreamIds>,
    /// Its layers in the order of the SDP, the smallest picture first, at most [`MOST_LAYERS`]. Empty without simulcast.
    pub layers: Vec<Layer>,
    /// Whether generic NACK (RFC 4585) was negotiated.
    pub nack: bool,
    /// Whether transport-wide feedback was negotiated.
    pub transport_cc: bool,
    /// Whether both sides take RTCP in reduced size (RFC 5506): feedback without a report before it.
    pub reduced_size: bool,
}

impl Line {
    /// Whether media of this payload type was agreed on: the codec's, or that of RED over it.
    #[inline]
    pub fn takes(&self, payload_type: u8) -> bool {
        payload_type == self.payload_type || Some(payload_type) == self.red_payload_type
    }
}

/// All usable lines of a session, in the order of the SDP; rejected ones are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Negotiated {
    /// The lines.
    pub lines: Vec<Line>,
}

impl Negotiated {
    /// The line with this `a=mid`.
    pub fn line(&self, mid: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.mid == mid)
    }
}
