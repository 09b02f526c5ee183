//! A session made from a seed, without any handshake: for virtual time, and for cascades later.

use rtp::negotiated::{Codec, Direction, Extensions, Line, Negotiated, StreamIds};
use rtp::srtp::{KeyPair, Profile};

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
    /// Whether the client can do RED (RFC 2198).
    pub red: bool,
    /// Whether transport-wide feedback is given.
    pub feedback: bool,
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

    fn lines(&self) -> Vec<Line> {
        let (mut lines, red) = (Vec::new(), self.red);
        let mut add = |mid: String, codec: Codec, direction: Direction| {
            // The SSRC depends on seed and mid alone, so that growing a pool changes no line.
            let mut random = SplitMix(mid.bytes().fold(self.seed ^ 0x5eed, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            }));
            let video = codec != Codec::Opus;
            let ids = Some(StreamIds {
                ssrc: random.next() as u32 | 1,
                rtx: video.then(|| random.next() as u32 & !1),
            });
            let sends = direction == Direction::Send;
            lines.push(Line {
                mid,
                direction,
                codec,
                payload_type: if video { 96 } else { 111 },
                rtx_payload_type: video.then_some(97),
                red_payload_type: (!video && red).then_some(63),
                extensions: Extensions {
                    audio_level: (!video).then_some(1),
                    transport_sequence: Some(3),
                    abs_send_time: Some(2),
                    mid: Some(4),
                    orientation: None,
                    capture_time: (!video).then_some(6),
                },
                local: if sends { ids } else { None },
                remote: if sends { None } else { ids },
                nack: video,
                transport_cc: self.feedback,
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
