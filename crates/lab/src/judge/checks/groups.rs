//! Puts what single listeners lacked together, in words.

use super::alive::Fault;
use super::windows::{Episode, Judged, Judging, Lack, MIX_OF};
use crate::judge::expected::{Expected, Failure, when};
use std::collections::{BTreeMap, BTreeSet};
use wire::room::MediaKind;

/// Groups the episodes: a track that nobody receives, a listener who receives nothing, and the
/// rest one by one.
pub(super) fn failures(judging: Judging<'_>) -> Vec<Failure> {
    let Judging { expected, episodes, judged } = judging;
    Grouping { expected, episodes }.failures(&judged)
}

/// Episodes that belong to no group yet.
struct Grouping<'a> {
    expected: &'a Expected,
    episodes: Vec<Episode>,
}

impl Grouping<'_> {
    fn failures(mut self, judged: &Judged) -> Vec<Failure> {
        let mut failures = Vec::new();
        for ((kind, track), listeners) in judged {
            let lack = Lack::Track(track.clone());
            let of_track = |e: &Episode| e.kind == *kind && e.lack == lack;
            let count = |at: u64| listeners.values().filter(|last_ms| **last_ms > at).count();
            if let Some(group) = self.common(of_track, |e| e.listener.to_string(), count) {
                let publisher = self.publisher(*kind, track);
                let subject = format!("nobody receives {}", what(*kind, &publisher));
                failures.push(self.failure(&subject, named(publisher), &group));
            }
        }
        for (index, listener) in self.expected.listeners.iter().enumerate() {
            for kind in [MediaKind::Audio, MediaKind::Video] {
                let of_person = |e: &Episode| {
                    e.listener == index && e.kind == kind && matches!(e.lack, Lack::Track(_))
                };
                let last_ms = |((k, _), who): (&(MediaKind, String), &BTreeMap<usize, u64>)| {
                    who.get(&index).copied().filter(|_| *k == kind)
                };
                let count = |at: u64| judged.iter().filter_map(last_ms).filter(|l| *l > at).count();
                if let Some(group) = self.common(of_person, |e| format!("{:?}", e.lack), count) {
                    let kind = kind.as_str();
                    let subject = format!("{} receives no {kind} of anyone", listener.person);
                    failures.push(self.failure(&subject, None, &group));
                }
            }
        }
        for episode in std::mem::take(&mut self.episodes) {
            failures.push(self.single(episode));
        }
        failures
    }

    /// An episode that belongs to no group.
    fn single(&self, episode: Episode) -> Failure {
        let listener = &self.expected.listeners[episode.listener].person;
        let kind = episode.kind.as_str();
        let (subject, publisher) = match &episode.lack {
            Lack::Track(track) => {
                let publisher = self.publisher(episode.kind, track);
                let subject = match publisher.starts_with(MIX_OF) {
                    true => {
                        format!("{listener} does not receive {}", what(episode.kind, &publisher))
                    }
                    false => format!("{listener} receives no {kind} of {publisher}"),
                };
                (subject, named(publisher))
            }
            Lack::Some { got, wanted } => {
                (format!("{listener} receives {got} of {wanted} {kind} tracks"), None)
            }
        };
        self.failure(&subject, publisher, &[episode])
    }

    /// Takes out the last episode of each `key` among those that `belongs` names. It does so if these
    /// episodes share a moment, there are two or more of them, and no fewer than `count` says were
    /// judged after that moment. None if not.
    fn common(
        &mut self,
        belongs: impl Fn(&Episode) -> bool,
        key: impl Fn(&Episode) -> String,
        count: impl Fn(u64) -> usize,
    ) -> Option<Vec<Episode>> {
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        for (at, episode) in self.episodes.iter().enumerate().filter(|(_, e)| belongs(e)) {
            last.insert(key(episode), at);
        }
        let begin = last.values().map(|at| self.episodes[*at].since_ms).max()?;
        let end = last.values().filter_map(|at| self.episodes[*at].until_ms).min();
        if last.len() < 2 || last.len() < count(begin) || end.is_some_and(|end| end <= begin) {
            return None;
        }
        let mut taken: Vec<usize> = last.into_values().collect();
        taken.sort_unstable_by(|a, b| b.cmp(a));
        Some(taken.into_iter().map(|at| self.episodes.remove(at)).collect())
    }

    fn publisher(&self, kind: MediaKind, track: &str) -> String {
        let found = self.expected.tracks.iter().find(|t| t.kind == kind && t.track == track);
        found.map_or_else(|| track.to_owned(), |t| t.publisher.clone())
    }

    fn failure(&self, subject: &str, publisher: Option<String>, group: &[Episode]) -> Failure {
        let since_ms = group.iter().map(|e| e.since_ms).min().unwrap_or(0);
        let until_ms = group.iter().map(|e| e.until_ms).reduce(|a, b| Some(a?.max(b?))).flatten();
        let listeners: BTreeSet<String> =
            group.iter().map(|e| self.expected.listeners[e.listener].person.clone()).collect();
        Failure {
            listeners: listeners.into_iter().collect(),
            publisher,
            kind: group.first().map(|e| e.kind),
            since_ms,
            until_ms,
            text: format!("{subject} {}{}", when(since_ms, until_ms), though_it_came(group)),
        }
    }
}

/// What was wrong with packets that did come.
fn though_it_came(group: &[Episode]) -> String {
    let fault = group.iter().fold(None, |worst, one| Fault::worse(worst, one.fault));
    let (Some(fault), Some(Episode { kind, .. })) = (fault, group.first()) else {
        return String::new();
    };
    match (kind, fault) {
        (MediaKind::Video, Fault::Broken) => ": packets came, and no picture could be shown".into(),
        (MediaKind::Audio, Fault::Broken) => {
            ": packets came, and half or more of the sound was lost".into()
        }
        (MediaKind::Video, Fault::Away { ms, .. }) => {
            format!(": the picture stood still for {:.1} s", ms / 1000.0)
        }
        (MediaKind::Audio, Fault::Away { ms, .. }) => {
            format!(": no sound could be played for {:.1} s", ms / 1000.0)
        }
    }
}

/// What is received, in words: the audio of somebody, or a room's mix, which is nobody's own.
fn what(kind: MediaKind, publisher: &str) -> String {
    match publisher.starts_with(MIX_OF) {
        true => publisher.to_owned(),
        false => format!("{} of {publisher}", kind.as_str()),
    }
}

fn named(publisher: String) -> Option<String> {
    (!publisher.starts_with(MIX_OF)).then_some(publisher)
}
