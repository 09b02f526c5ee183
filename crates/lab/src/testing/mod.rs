//! For tests: rows, a server and bots in miniature.

pub mod bots;
pub mod server;
pub mod streams;

use crate::record::{MachineMeta, Meta, PersonKind, PersonMeta, SCHEMA, SampleRecord, TargetMeta};
use wire::QualitySample;
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
        packets_discarded: None,
        gap_ms: None,
        outage: None,
        mapped_ratio: None,
        jitter_buffer_ms: None,
        transit_ms: None,
        transit_p95_ms: None,
        marks_expected: None,
        marks_found: None,
        marks: Vec::new(),
        mouth_to_ear_ms: None,
        camera_to_screen_ms: None,
        bitrate_kbps: 0.0,
        concealed_pct: None,
        silent_concealed_pct: None,
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
        paused_ratio: None,
        resolution_switches: None,
        packets_recovered: None,
        retransmitted_packets_received: None,
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

/// A meta of a run with one bot.
pub(crate) fn meta() -> Meta {
    Meta {
        schema: SCHEMA,
        name: "first-room".into(),
        started_at: "2026-01-02T03:04:05Z".into(),
        duration_s: 60.0,
        target: TargetMeta { adapter: "moim".into(), url: "http://127.0.0.1:7880".into() },
        version: "0.1.0".into(),
        scenario: "name: first-room\n".into(),
        people: vec![PersonMeta {
            name: "bot-1".into(),
            kind: PersonKind::Bot,
            room: "r".into(),
            role: None,
            network: None,
            participant: None,
        }],
        machine: MachineMeta { cores: 2, ..Default::default() },
        cpus: None,
        fault: None,
    }
}

pub(crate) fn sample(t_ms: u64) -> SampleRecord {
    let sample = QualitySample { rtt_ms: Some(1.5), interval_ms: 3_000, ..Default::default() };
    SampleRecord { t_ms, person: "bot-1".into(), kind: PersonKind::Bot, sample }
}
