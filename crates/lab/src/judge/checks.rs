//! Built-in checks: everyone joined, and every expected subscription was alive in every window.
//!
//! Pure functions over what was expected and what was sampled. A window is judged if it began
//! [`GRACE_MS`] or more after both sides were there, and ended before either left or the track was
//! muted by announcement. [`alive`] says what keeps a subscription alive in a window. A mix flows all
//! the time: it also needs nearly all its packets. If listeners know what a mix must hold
//! ([`crate::clients::bot::tones`]), what they heard is judged too.

mod alive;
mod groups;
mod windows;

use super::expected::when;
pub use super::expected::{Expected, Failure, GRACE_MS, Listener, Track};
pub use crate::record::Span;
use crate::record::{MixWindows, SampleRecord, Wrong};
use std::collections::BTreeMap;
use windows::Judging;
use wire::room::MediaKind;

/// A person who gives no sample for so long is a failure.
const SILENCE_MS: u64 = 4 * wire::quality::SAMPLE_INTERVAL_MS;

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
    failures.extend(groups::failures(judging));
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
    // A person may come and go more than once: each visit is judged by itself.
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

#[cfg(test)]
mod tests;
