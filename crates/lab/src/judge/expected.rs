//! What should have been received, and what was not.

use crate::record::{MixWindows, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::room::MediaKind;

/// A built-in check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// Whether it holds.
    pub ok: bool,
    /// In words.
    pub detail: String,
}

/// How long a subscription may take to begin, in milliseconds: one window.
pub const GRACE_MS: u64 = wire::quality::SAMPLE_INTERVAL_MS;

/// A track that is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// The room.
    pub room: String,
    /// The publisher's name.
    pub publisher: String,
    /// The publisher's participant id.
    pub participant: String,
    /// The track's id.
    pub track: String,
    /// Audio or video.
    pub kind: MediaKind,
    /// When it was published and not muted.
    pub on_air: Vec<Span>,
}

/// Someone who should receive the tracks of all others in the room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The room.
    pub room: String,
    /// The name, as in the samples.
    pub person: String,
    /// The participant id.
    pub participant: String,
    /// When they were connected.
    pub present: Span,
    /// Whether they get the room's mix in place of others' audio.
    pub mix: bool,
    /// Most audio tracks that they want at once; none: all.
    pub max_audio: Option<u32>,
    /// Most video tracks that they want at once, whichever they are; none: all.
    pub max_video: Option<u32>,
}

impl Listener {
    /// Most tracks of a kind that this listener wants at once.
    pub(super) fn max(&self, kind: MediaKind) -> usize {
        let max = match kind {
            MediaKind::Audio => self.max_audio,
            MediaKind::Video => self.max_video,
        };
        max.map_or(usize::MAX, |max| max as usize)
    }
}

/// All that should have been received.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Expected {
    /// What was published.
    pub tracks: Vec<Track>,
    /// Who should have received it.
    pub listeners: Vec<Listener>,
    /// What listeners heard of mixes, by name.
    pub mixes: BTreeMap<String, MixWindows>,
    /// What came of bots who come and go.
    pub churn: Churn,
    /// What came of browsers that come and go.
    pub browsers_churn: Churn,
    /// When the scenario itself cut people's links (loss of 100 %), by name.
    pub cuts: BTreeMap<String, Vec<Span>>,
    /// End of the run, in milliseconds since its start.
    pub end_ms: u64,
}

/// Something expected was missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Who lacks it.
    pub listeners: Vec<String>,
    /// Whose track is missing; None if it is not a single publisher's.
    pub publisher: Option<String>,
    /// Audio or video; None if the listener gave no sample at all.
    pub kind: Option<MediaKind>,
    /// Since when, in milliseconds since the start of the run.
    pub since_ms: u64,
    /// When it came back; None if it did not.
    pub until_ms: Option<u64>,
    /// The sentence, such as `nobody receives video of bot-7 since 21 s`.
    pub text: String,
}

/// What came of people who come and go.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Churn {
    /// Visits that lasted as long as they were to.
    pub loops: u64,
    /// Visits that failed, by reason: an error code of the server, or `no_connection`,
    /// `socket_closed`, `no_answer`, `negotiation`, `ice_dtls`, `no_audio`, `lost`, `browser`, `login`.
    pub failures: BTreeMap<String, u64>,
    /// People who came at a rate, whether there was a place for them or not…
    pub arrived: u64,
    /// …and those of them for whom there was none.
    pub dropped: u64,
    /// From asking to join until the first audio packet, of each visit that heard one, in ms.
    pub join_to_first_audio_ms: Vec<f64>,
}

pub(super) fn when(since_ms: u64, until_ms: Option<u64>) -> String {
    let seconds = |ms: u64| (ms + 500) / 1000;
    match until_ms {
        None => format!("since {} s", seconds(since_ms)),
        Some(until_ms) => format!("from {} s to {} s", seconds(since_ms), seconds(until_ms)),
    }
}
