//! Built-in checks: everyone joined, and every expected subscription was alive in every window.
//!
//! Pure functions over what was expected and what was sampled. A window is judged when it began
//! [`GRACE_MS`] or more after both sides were there, and ended before either left or the track was
//! muted by announcement. What keeps a subscription alive in a window is in [`alive`]; a mix, which
//! flows all the time, needs (nearly) all its packets besides. Where listeners know what a mix must
//! hold ([`crate::bot::tones`]), what they heard is judged too.

mod alive;
mod groups;
mod windows;

use crate::bot::hearing::{MixWindows, Wrong};
use crate::record::SampleRecord;
use crate::roster::Churn;
use std::collections::BTreeMap;
use windows::Judging;
use wire::room::MediaKind;

/// How long a subscription may take to begin, in milliseconds: one window.
pub const GRACE_MS: u64 = wire::quality::SAMPLE_INTERVAL_MS;
/// A person who gives no sample for so long is a failure.
const SILENCE_MS: u64 = 4 * wire::quality::SAMPLE_INTERVAL_MS;
/// A stretch of time in milliseconds since the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its beginning.
    pub from_ms: u64,
    /// Its end; none while it lasts.
    pub until_ms: Option<u64>,
}

impl Span {
    fn overlaps(&self, other: &Span) -> bool {
        self.from_ms <= other.until_ms.unwrap_or(u64::MAX)
            && other.from_ms <= self.until_ms.unwrap_or(u64::MAX)
    }
}

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
    /// When he was connected.
    pub present: Span,
    /// Whether he gets the room's mix in place of others' audio.
    pub mix: bool,
    /// Most audio tracks that he wants at once; none: all.
    pub max_audio: Option<u32>,
    /// Most video tracks that he wants at once, whichever they are; none: all.
    pub max_video: Option<u32>,
}

impl Listener {
    fn max(&self, kind: MediaKind) -> usize {
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
    /// What came of people who come and go.
    pub churn: Churn,
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
    /// Whose track is missing; none where it is no single one's.
    pub publisher: Option<String>,
    /// Audio or video; none where the listener gave no sample at all.
    pub kind: Option<MediaKind>,
    /// Since when, in milliseconds since the start of the run.
    pub since_ms: u64,
    /// When it came back; none where it did not.
    pub until_ms: Option<u64>,
    /// The sentence, such as `nobody receives video of bot-7 since 21 s`.
    pub text: String,
}

/// Judges all samples (in order of time within each person).
pub fn subscriptions(expected: &Expected, samples: &[SampleRecord]) -> Vec<Failure> {
    let mut by_person: BTreeMap<&str, Vec<&SampleRecord>> = BTreeMap::new();
    for record in samples {
        by_person.entry(record.person.as_str()).or_default().push(record);
    }
    let mut failures = Vec::new();
    let mut judging = Judging::new(expected);
    for (index, listener) in expected.listeners.iter().enumerate() {
        let samples = by_person.get(listener.person.as_str()).map_or(&[][..], Vec::as_slice);
        failures.extend(silence(listener, samples, expected.end_ms));
        for kind in [MediaKind::Audio, MediaKind::Video] {
            judging.listener(index, kind, samples);
        }
    }
    failures.extend(judging.into_failures());
    failures.extend(expected.mixes.iter().filter_map(|(person, heard)| wrong_mix(person, heard)));
    failures.sort_by(|a, b| (a.since_ms, &a.text).cmp(&(b.since_ms, &b.text)));
    failures
}

/// A listener who heard another mix than the plan says.
fn wrong_mix(person: &str, heard: &MixWindows) -> Option<Failure> {
    let first = heard.examples.first()?;
    let Wrong { at_ms, missing, extra } = first;
    let named = |names: &[String], how: &str| match names {
        [] => None,
        names => Some(format!("{how} {}", names.join(", "))),
    };
    let how = [named(missing, "without"), named(extra, "with")];
    let how: Vec<String> = how.into_iter().flatten().collect();
    let text = format!(
        "{person} hears a wrong mix in {} of {} windows, first {} at {:.1} s of the plan",
        heard.wrong,
        heard.windows,
        how.join(" and "),
        *at_ms as f64 / 1000.0
    );
    Some(Failure {
        listeners: vec![person.to_owned()],
        publisher: None,
        kind: Some(MediaKind::Audio),
        since_ms: *at_ms,
        until_ms: None,
        text,
    })
}

/// A stretch without any sample.
fn silence(listener: &Listener, samples: &[&SampleRecord], end_ms: u64) -> Option<Failure> {
    let end_ms = listener.present.until_ms.unwrap_or(end_ms);
    let mut last_ms = listener.present.from_ms;
    // Someone may come and go more than once: each visit is judged by itself.
    let visit = listener.present.from_ms..=end_ms;
    let times = samples.iter().map(|s| s.t_ms).filter(|t| visit.contains(t));
    for t_ms in times.chain([end_ms]) {
        if t_ms > last_ms + SILENCE_MS {
            let until_ms = (t_ms < end_ms).then_some(t_ms);
            return Some(Failure {
                listeners: vec![listener.person.clone()],
                publisher: None,
                kind: None,
                since_ms: last_ms,
                until_ms,
                text: format!("{} gives no sample {}", listener.person, when(last_ms, until_ms)),
            });
        }
        last_ms = last_ms.max(t_ms);
    }
    None
}

fn when(since_ms: u64, until_ms: Option<u64>) -> String {
    let seconds = |ms: u64| (ms + 500) / 1000;
    match until_ms {
        None => format!("since {} s", seconds(since_ms)),
        Some(until_ms) => format!("from {} s to {} s", seconds(since_ms), seconds(until_ms)),
    }
}

#[cfg(test)]
mod tests;
