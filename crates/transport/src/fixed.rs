//! A session made from a seed, without any handshake: for virtual time, and for cascades later.

use crate::lacks::Lacks;
use rtp::negotiated::{Codec, Direction, Extensions, Layer, Line, Negotiated, StreamIds};
use rtp::srtp::{KeyPair, Profile};

/// RTP stream ids of layers, the smallest picture first.
const RIDS: [&str; 3] = ["q", "h", "f"];

/// One side of a [`Fixed`] session.
#[derive(Debug, Clone)]
pub struct FixedPeer {
    /// What was "agreed", seen from this side.
    pub negotiated: Negotiated,
    /// The keys, seen from this side.
    pub keys: KeyPair,
}

/// What a [`Fixed`] session holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed {
    /// Everything random comes from this.
    pub seed: u64,
    /// The video codec.
    pub video: Codec,
    /// Whether the client sends audio.
    pub send_audio: bool,
    /// Whether the client sends video.
    pub send_video: bool,
    /// In how many layers it sends video (simulcast); 0 or 1 is a single stream.
    pub layers: usize,
    /// Whether the client can do RED (RFC 2198).
    pub red: bool,
    /// Whether it wants RED all the time.
    pub red_first: bool,
    /// Whether transport-wide feedback is given.
    pub feedback: bool,
    /// Whether the client sends pictures again that were lost. webrtcbin does not by default.
    pub resends: bool,
    /// What the client lacks besides.
    pub lacks: Lacks,
    /// The client's audio slots.
    pub audio_slots: u32,
    /// The client's video slots.
    pub video_slots: u32,
}

impl Fixed {
    /// Server's and client's side. More slots with the same seed keep everything of the fewer.
    ///
    /// Mids: `a` and `v` are what the client sends; `a0…`, `v0…` are its slots.
    pub fn pair(&self) -> (FixedPeer, FixedPeer) {
        let mut random = SplitMix(self.seed);
        let exported: Vec<u8> = (0..11).flat_map(|_| random.next().to_be_bytes()).collect();
        let keys = |client| KeyPair::from_exporter(Profile::AeadAes256Gcm, &exported, client);
        let server_lines = self.lines();
        let client_lines = server_lines
            .iter()
            .map(|line| Line {
                direction: match line.direction {
                    Direction::Send => Direction::Receive,
                    _ => Direction::Send,
                },
                local: line.remote,
                remote: line.local,
                layers: self.own_layers(line),
                ..line.clone()
            })
            .collect();
        let fits = "88 bytes are what the profile exports";
        (
            FixedPeer {
                negotiated: Negotiated { lines: server_lines },
                keys: keys(false).expect(fits),
            },
            FixedPeer {
                negotiated: Negotiated { lines: client_lines },
                keys: keys(true).expect(fits),
            },
        )
    }

    /// The SSRCs of a stream. They depend on seed and name alone, so that growing a pool changes no line.
    fn ids(&self, name: &str, video: bool) -> StreamIds {
        let mut random = SplitMix(name.bytes().fold(self.seed ^ 0x5eed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }));
        let ssrc = random.next() as u32 | 1;
        let repaired = video && !self.lacks.rtx;
        StreamIds { ssrc, rtx: repaired.then(|| random.next() as u32 & !1) }
    }

    /// The layers of a line, as the client that sends them sees them.
    fn own_layers(&self, line: &Line) -> Vec<Layer> {
        let own = |layer: &Layer| Layer {
            ids: Some(self.ids(&format!("{}{}", line.mid, layer.rid), true)),
            ..layer.clone()
        };
        line.layers.iter().map(own).collect()
    }

    fn lines(&self) -> Vec<Line> {
        let (mut lines, lacks) = (Vec::new(), self.lacks);
        let red = self.red && !lacks.red;
        let red_first = red && self.red_first;
        let mut add = |mid: String, codec: Codec, direction: Direction| {
            let video = codec != Codec::Opus;
            let sends = direction == Direction::Send;
            let rids = if video && !sends && self.layers > 1 { self.layers } else { 0 };
            let layer = |rid: &&str| Layer { rid: (*rid).into(), ids: None, pixels: 0 };
            let layers: Vec<Layer> = RIDS.iter().take(rids).map(layer).collect();
            let ids = layers.is_empty().then(|| self.ids(&mid, video));
            // None on sound that clients send, as in an answer (`without_feedback_on_published_sound`).
            let numbered = (video || sends) && !lacks.no_feedback_on(video);
            lines.push(Line {
                mid,
                direction,
                codec,
                payload_type: if video { 96 } else { 111 },
                rtx_payload_type: (video && !lacks.rtx).then_some(97),
                red_payload_type: (!video && red).then_some(63),
                red_first: !video && red_first,
                extensions: Extensions {
                    audio_level: (!video && !lacks.levels).then_some(1),
                    transport_sequence: numbered.then_some(3),
                    abs_send_time: Some(2),
                    mid: Some(4),
                    orientation: None,
                    capture_time: (!video).then_some(6),
                    rid: video.then_some(10),
                    repaired_rid: video.then_some(11),
                    dependency: (codec == Codec::Av1).then_some(12),
                },
                local: if sends { ids } else { None },
                remote: if sends { None } else { ids },
                layers,
                nack: video && (sends || self.resends),
                transport_cc: self.feedback && numbered,
                reduced_size: !lacks.reduced_size,
            });
        };
        if self.send_audio {
            add("a".into(), Codec::Opus, Direction::Receive);
        }
        if self.send_video {
            add("v".into(), self.video, Direction::Receive);
        }
        for slot in 0..self.audio_slots {
            add(format!("a{slot}"), Codec::Opus, Direction::Send);
        }
        for slot in 0..self.video_slots {
            add(format!("v{slot}"), self.video, Direction::Send);
        }
        lines
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, good enough for identifiers.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
