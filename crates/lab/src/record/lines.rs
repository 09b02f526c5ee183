//! What happened, line by line: `samples.jsonl` and `events.jsonl`.

use super::meta::PersonKind;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use wire::QualitySample;

/// The track id of a room's mix in samples; a mix has no participant.
pub const MIX: &str = "mix";

/// A sample of a participant; a line of `samples.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleRecord {
    /// End of the interval, in milliseconds since the start of the run.
    pub t_ms: u64,
    /// The participant's name.
    pub person: String,
    /// Bot or browser.
    pub kind: PersonKind,
    /// What the participant sent and received.
    pub sample: QualitySample,
}

impl SampleRecord {
    /// Start of the interval, since the start of the run.
    pub fn began(&self) -> Duration {
        Duration::from_millis(self.t_ms.saturating_sub(self.sample.interval_ms))
    }
}

/// The severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It happened.
    Info,
    /// It should be looked at.
    Warn,
    /// It failed.
    Error,
}

/// Something that happened; a line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// When, in milliseconds since the start of the run.
    pub t_ms: u64,
    /// What, in words.
    pub text: String,
    /// The participant's name, if the event concerns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// The severity.
    pub level: Level,
}

/// A participant's media was connected.
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// The participant's name.
    pub person: String,
    /// When, in milliseconds since the start of the run.
    pub t_ms: u64,
    /// From asking to join until then, in milliseconds.
    pub took_ms: f64,
}

/// A stretch of time, in milliseconds since the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its beginning.
    pub from_ms: u64,
    /// Its end; none if it has not ended.
    pub until_ms: Option<u64>,
}

impl Span {
    /// Whether both have a moment in common.
    pub fn overlaps(&self, other: &Span) -> bool {
        self.from_ms <= other.until_ms.unwrap_or(u64::MAX)
            && other.from_ms <= self.until_ms.unwrap_or(u64::MAX)
    }
}
