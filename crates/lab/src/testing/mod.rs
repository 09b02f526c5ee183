//! For tests: rows, a server and bots in miniature.

pub mod bots;
pub mod server;

use wire::quality::ReceivedTrack;
use wire::room::MediaKind;

/// A received row of a kind.
pub fn row(participant: &str, track: &str, kind: MediaKind, packets: u64) -> ReceivedTrack {
    ReceivedTrack {
        participant: participant.into(),
        track: track.into(),
        kind,
        codec: None,
        packets_received: packets,
        packets_lost: 0,
        loss_pct: None,
        total_packets_received: None,
        total_packets_lost: None,
        jitter_ms: None,
        jitter_buffer_ms: None,
        transit_ms: None,
        transit_p95_ms: None,
        marks_expected: None,
        marks_found: None,
        marks: Vec::new(),
        mouth_to_ear_ms: None,
        bitrate_kbps: 0.0,
        concealed_pct: None,
        audio_level: None,
        frames_per_second: None,
        frame_width: None,
        frame_height: None,
        freezes: None,
        freeze_ratio: None,
        since_last_ms: None,
        keyframe_requests: None,
        mos_lq: None,
        mos_cq: None,
        mos_sdk: None,
    }
}

/// A received row of audio.
pub fn audio_row(participant: &str, track: &str, packets: u64) -> ReceivedTrack {
    row(participant, track, MediaKind::Audio, packets)
}

/// A received row of video.
pub fn video_row(participant: &str, track: &str, packets: u64) -> ReceivedTrack {
    row(participant, track, MediaKind::Video, packets)
}
