//! The quality sample: what one participant saw in one interval (every 3 s).
//!
//! The interval's own values, never totals, unless the name says so; unknown is null, never 0.

use crate::bound;
use crate::room::MediaKind;
use serde::{Deserialize, Serialize};

/// How often a sample is taken, in milliseconds.
pub const SAMPLE_INTERVAL_MS: u64 = 3_000;

/// One participant's sample.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QualitySample {
    /// Who measured: the participant's id.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub participant: String,
    /// When, in milliseconds since this participant asked to join.
    pub at_ms: u64,
    /// Length of the interval, in milliseconds.
    pub interval_ms: u64,
    /// Round-trip time to the server, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Estimate of what the uplink carries (congestion control), in kbit/s.
    pub available_outgoing_kbps: Option<f64>,
    /// Estimate of what the downlink carries, as the server told, in kbit/s; null where it carries all with ease, or nobody
    /// estimates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate_kbps: Option<f64>,
    /// SRTP cipher in use, such as `AEAD_AES_256_GCM`.
    #[serde(deserialize_with = "bound::optional::<{ bound::ID_BYTES }, _>")]
    pub srtp_cipher: Option<String>,
    /// From the request to join until the first audio packet that could be played, if new.
    pub join_to_first_audio_ms: Option<f64>,
    /// From the request to join until the first decoded frame, if new.
    pub join_to_first_frame_ms: Option<f64>,
    /// What was sent, a row a track.
    pub sent: Vec<SentTrack>,
    /// What was received, a row a track (not a slot: rows are split where a slot was re-mapped).
    pub received: Vec<ReceivedTrack>,
}

/// What was sent of one track in the interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentTrack {
    /// The track's id.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub track: String,
    /// Audio or video.
    pub kind: MediaKind,
    /// The codec, such as `opus` or `vp8`.
    #[serde(default)]
    #[serde(deserialize_with = "bound::optional::<{ bound::ID_BYTES }, _>")]
    pub codec: Option<String>,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets sent again.
    #[serde(default)]
    pub retransmitted_packets_sent: Option<u64>,
    /// Payload bits a second, in kbit/s.
    pub bitrate_kbps: f64,
    /// Loss that the other side reported, in percent.
    #[serde(default)]
    pub remote_loss_pct: Option<f64>,
    /// Frames encoded a second (video).
    #[serde(default)]
    pub frames_per_second: Option<f64>,
    /// Key frames that the other side asked for.
    #[serde(default)]
    pub keyframe_requests: Option<u64>,
    /// Share of the interval in which the picture was sent worse than it could be, for want of CPU (0 to 1): of the layer or line
    /// that was limited most (W3C webrtc-stats, `qualityLimitationDurations`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limited_ratio: Option<f64>,
    /// The same for want of bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_limited_ratio: Option<f64>,
}

/// What was received of one track in the interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceivedTrack {
    /// Whose track it is.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub participant: String,
    /// The track's id.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub track: String,
    /// Audio or video.
    pub kind: MediaKind,
    /// The codec, such as `opus` or `vp8`.
    #[serde(default)]
    #[serde(deserialize_with = "bound::optional::<{ bound::ID_BYTES }, _>")]
    pub codec: Option<String>,
    /// Packets received.
    pub packets_received: u64,
    /// Packets lost: max(0, Δlost) (RFC 3550 A.3).
    pub packets_lost: u64,
    /// Packets that are among the lost ones, but whose sound came as a copy in a later packet (audio).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_recovered: Option<u64>,
    /// Packets that came as retransmissions, which `packets_received` leaves out (video).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_packets_received: Option<u64>,
    /// Loss in percent of what was expected; null where nothing was expected.
    #[serde(default)]
    pub loss_pct: Option<f64>,
    /// Packets received since the slot got this track.
    #[serde(default)]
    pub total_packets_received: Option<u64>,
    /// Packets lost since the slot got this track.
    #[serde(default)]
    pub total_packets_lost: Option<u64>,
    /// Interarrival jitter (RFC 3550 A.8), in milliseconds.
    #[serde(default)]
    pub jitter_ms: Option<f64>,
    /// Packets that came too late to be played (audio): of a bot, later than the buffer that its `mouth_to_ear_ms` assumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_discarded: Option<u64>,
    /// How long sound that was due was not there at most, in milliseconds. It is made of packets that were lost by their numbers,
    /// and of the time by which the next one came later than due. Due is the arrival of the packet before it plus the step of
    /// their timestamps (in a mix at most 60 ms).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ms: Option<f64>,
    /// The longest time in which nothing could be played or shown that was due: of sound `gap_ms`, of a picture the time
    /// between two frames. What was announced as paused does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<Outage>,
    /// Share of the interval in which the slot held this track (0 to 1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapped_ratio: Option<f64>,
    /// Mean time in the jitter buffer, in milliseconds. Of a bot, which plays nothing: how long a buffer would hold sound back
    /// that waits for the slowest packets in time.
    #[serde(default)]
    pub jitter_buffer_ms: Option<f64>,
    /// Time from being sent to arriving, median of the interval, in milliseconds: measured by marks
    /// on one clock; null where nobody marks.
    #[serde(default)]
    pub transit_ms: Option<f64>,
    /// The same, 95th percentile.
    #[serde(default)]
    pub transit_p95_ms: Option<f64>,
    /// Marks that should have been found in what came.
    #[serde(default)]
    pub marks_expected: Option<u64>,
    /// Those that were found.
    #[serde(default)]
    pub marks_found: Option<u64>,
    /// Marks that were found in a mix, one by one: each speaker's clock stands differently to the
    /// mixer's, so that a change of delay shows only against the same speaker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<HeardMark>,
    /// Mouth-to-ear delay, in milliseconds: measured.
    #[serde(default)]
    pub mouth_to_ear_ms: Option<f64>,
    /// From the camera to the screen, median of the interval, in milliseconds: measured by a time code in the picture; null where
    /// there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub camera_to_screen_ms: Option<f64>,
    /// Payload bits a second, in kbit/s.
    pub bitrate_kbps: f64,
    /// Share of samples that were concealed (audio), in percent.
    #[serde(default)]
    pub concealed_pct: Option<f64>,
    /// Those of them that were concealed by silence, in percent of all: pauses, for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_concealed_pct: Option<f64>,
    /// Level of what was played out: 0..1 (audio).
    #[serde(default)]
    pub audio_level: Option<f64>,
    /// Frames decoded a second (video); bots count complete frames.
    #[serde(default)]
    pub frames_per_second: Option<f64>,
    /// Picture width, in pixels.
    #[serde(default)]
    pub frame_width: Option<u32>,
    /// Picture height, in pixels.
    #[serde(default)]
    pub frame_height: Option<u32>,
    /// Changes of the picture's height, such as from one layer to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_switches: Option<u64>,
    /// Share of the interval in which the picture was said to be paused (0 to 1): the path did not carry it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_ratio: Option<f64>,
    /// Freezes (W3C webrtc-stats).
    #[serde(default)]
    pub freezes: Option<u64>,
    /// Freeze ratio: Δ freeze duration / Δ inter-frame delay.
    #[serde(default)]
    pub freeze_ratio: Option<f64>,
    /// Time since the last packet or frame at the end of the interval, in milliseconds.
    #[serde(default)]
    pub since_last_ms: Option<f64>,
    /// Key frames asked for.
    #[serde(default)]
    pub keyframe_requests: Option<u64>,
    /// MOS-LQ (ITU-T G.107.2, delay left out); audio only.
    #[serde(default)]
    pub mos_lq: Option<f64>,
    /// MOS-CQ (delay in); null where no delay is known.
    #[serde(default)]
    pub mos_cq: Option<f64>,
    /// The formula that many SDKs use, for comparison.
    #[serde(default)]
    pub mos_sdk: Option<f64>,
}

/// A time in which nothing of a track could be played or shown although it was due.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// How long it lasted, in milliseconds.
    pub ms: f64,
    /// How long before the end of the interval it ended, in milliseconds; 0 where it lasts.
    pub ago_ms: f64,
}

/// A mark of somebody that was found in what was heard.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HeardMark {
    /// Who said it: their place among those of the room who say marks, from 0.
    pub speaker: u32,
    /// When it was said, in milliseconds since marks began.
    pub said_ms: f64,
    /// How long it was under way, in milliseconds.
    pub transit_ms: f64,
}
