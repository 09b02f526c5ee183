//! What the server keeps of quality samples: the answer of `GET /v1/quality`, shown by `/console`.

use crate::room::{AudioTopology, VideoTopology};
use serde::{Deserialize, Serialize};

/// All rooms, by id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// When this was taken, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// The rooms.
    pub rooms: Vec<RoomQuality>,
}

/// One room's quality.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoomQuality {
    /// The room's id.
    pub id: String,
    /// Its audio topology.
    pub audio: AudioTopology,
    /// Its video topology.
    pub video: VideoTopology,
    /// Nobody new comes in.
    pub locked: bool,
    /// People now.
    pub people: u32,
    /// MOS-LQ over the people's last samples; null where nobody has one.
    pub mos_lq: Option<MosSpread>,
    /// The ten with the worst MOS-LQ, worst first; those without one are left out.
    pub bottom: Vec<PersonQuality>,
    /// The last minutes, oldest first: an entry every 3 s.
    pub history: Vec<QualityPoint>,
}

/// Spread over people.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MosSpread {
    /// Least.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub average: f64,
    /// Median.
    pub median: f64,
    /// People with a value.
    pub people: u32,
}

/// One person's last sample in short: the mean over what they receive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PersonQuality {
    /// The participant's id.
    pub participant: String,
    /// The name that others see.
    pub name: String,
    /// MOS-LQ of the sound they receive.
    pub mos_lq: f64,
    /// Loss of what they receive, in percent.
    pub loss_pct: Option<f64>,
    /// Round-trip time, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Jitter of what they receive, in milliseconds.
    pub jitter_ms: Option<f64>,
    /// Age of the sample, in milliseconds.
    pub age_ms: u64,
}

/// A room at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QualityPoint {
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// People with a sample.
    pub people: u32,
    /// MOS-LQ over them; null where nobody has one.
    pub mos_lq: Option<MosSpread>,
}
