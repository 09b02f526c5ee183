//! Built-in checks: everyone joined, and every expected subscription was alive in every window.
//!
//! Pure functions over what was expected and what was sampled. A window is judged when it began
//! [`GRACE_MS`] or more after both sides were there, and ended before either left or the track was
//! muted by announcement. A subscription is alive in a window when a packet of it came; a mix, which
//! flows all the time, when (nearly) all its packets came. Where listeners know what a mix must hold
//! ([`crate::bot::tones`]), what they heard is judged too.

use crate::bot::hearing::{MixWindows, Wrong};
use crate::bot::media::MIX;
use crate::record::SampleRecord;
use crate::roster::Churn;
use std::collections::{BTreeMap, BTreeSet};
use wire::room::MediaKind;

/// How long a subscription may take to begin, in milliseconds: one window.
pub const GRACE_MS: u64 = wire::quality::SAMPLE_INTERVAL_MS;
/// Windows shorter than this are not judged: a browser's own timer may have cut them.
const SHORTEST_WINDOW_MS: u64 = 1_000;
/// A person who gives no sample for so long is a failure.
const SILENCE_MS: u64 = 4 * wire::quality::SAMPLE_INTERVAL_MS;
/// Packets of a mix that must be sent a second, of 50: one every 20 ms, whether anybody speaks or
/// not. What was lost on the way has its own figure.
const MIX_ALIVE_PER_S: u64 = 45;

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

    /// Whether a window lies in the span, after the time of grace.
    fn judges(&self, window: Window) -> bool {
        self.from_ms + GRACE_MS <= window.from_ms
            && self.until_ms.is_none_or(|until| window.until_ms <= until)
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    from_ms: u64,
    until_ms: u64,
}

/// What a listener lacks: one track, or some of the number he wants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    Track(String),
    Some { got: usize, wanted: usize },
}

/// A stretch of windows in which one listener lacked one thing.
#[derive(Debug, Clone)]
struct Episode {
    listener: usize,
    kind: MediaKind,
    lack: Lack,
    since_ms: u64,
    until_ms: Option<u64>,
}

/// Judges all samples (in order of time within each person).
pub fn subscriptions(expected: &Expected, samples: &[SampleRecord]) -> Vec<Failure> {
    let mut by_person: BTreeMap<&str, Vec<&SampleRecord>> = BTreeMap::new();
    for record in samples {
        by_person.entry(record.person.as_str()).or_default().push(record);
    }
    let mut failures = Vec::new();
    let mut judging = Judging { expected, episodes: Vec::new(), judged: BTreeMap::new() };
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

struct Judging<'a> {
    expected: &'a Expected,
    episodes: Vec<Episode>,
    /// Who was judged on what, and until when: kind and track → listener → end of the last window.
    judged: BTreeMap<(MediaKind, String), BTreeMap<usize, u64>>,
}

impl Judging<'_> {
    /// Walks through the windows of one listener and collects what he lacked.
    fn listener(&mut self, index: usize, kind: MediaKind, samples: &[&SampleRecord]) {
        let listener = &self.expected.listeners[index];
        // People who come and go leave many tracks behind: most were over before he came.
        let met: Vec<&Track> = self
            .expected
            .tracks
            .iter()
            .filter(|t| t.kind == kind && t.room == listener.room)
            .filter(|t| t.participant != listener.participant)
            .filter(|t| t.on_air.iter().any(|span| span.overlaps(&listener.present)))
            .collect();
        let mut open: BTreeMap<Lack, u64> = BTreeMap::new();
        for record in samples {
            let until_ms = record.t_ms;
            let from_ms = until_ms.saturating_sub(record.sample.interval_ms);
            let window = Window { from_ms, until_ms };
            if until_ms - from_ms < SHORTEST_WINDOW_MS || !listener.present.judges(window) {
                continue;
            }
            let lacks = self.lacks(index, kind, &met, (record, window));
            // Whatever was open and is missing no more ended with this window's beginning.
            let ended: Vec<Lack> = open
                .keys()
                .filter(|lack| !lacks.iter().any(|(now, _)| same(now, lack)))
                .cloned()
                .collect();
            for lack in ended {
                if let Some(since_ms) = open.remove(&lack) {
                    let until_ms = Some(from_ms);
                    self.episodes.push(Episode { listener: index, kind, lack, since_ms, until_ms });
                }
            }
            for (lack, since_ms) in lacks {
                if !open.keys().any(|other| same(other, &lack)) {
                    open.insert(lack, since_ms);
                }
            }
        }
        for (lack, since_ms) in open {
            self.episodes.push(Episode { listener: index, kind, lack, since_ms, until_ms: None });
        }
    }

    /// What a listener lacks in one window of the tracks that he met, each with the time since when.
    fn lacks(
        &mut self,
        index: usize,
        kind: MediaKind,
        met: &[&Track],
        (record, window): (&SampleRecord, Window),
    ) -> Vec<(Lack, u64)> {
        let listener = &self.expected.listeners[index];
        if listener.mix && kind == MediaKind::Audio {
            return self.lacks_mix(index, record, window);
        }
        let wanted: Vec<&&Track> =
            met.iter().filter(|t| t.on_air.iter().any(|span| span.judges(window))).collect();
        let rows = || record.sample.received.iter().filter(|row| row.kind == kind);
        let alive: BTreeSet<&str> =
            rows().filter(|row| row.packets_received > 0).map(|row| row.track.as_str()).collect();
        let max = listener.max(kind);
        if wanted.len() > max {
            if alive.len() >= max {
                return Vec::new();
            }
            return vec![(Lack::Some { got: alive.len(), wanted: max }, window.from_ms)];
        }
        let mut lacks = Vec::new();
        for track in wanted {
            self.judged
                .entry((kind, track.track.clone()))
                .or_default()
                .insert(index, window.until_ms);
            if alive.contains(track.track.as_str()) {
                continue;
            }
            // The row itself may know more exactly when the last packet came.
            let since_last =
                rows().filter(|row| row.track == track.track).filter_map(|row| row.since_last_ms);
            let since_ms = since_last
                .map(|ms| window.until_ms.saturating_sub(ms.max(0.0) as u64))
                .min()
                .unwrap_or(window.from_ms);
            lacks.push((Lack::Track(track.track.clone()), since_ms));
        }
        lacks
    }

    /// Whether a listener got the room's mix all through a window.
    fn lacks_mix(
        &mut self,
        index: usize,
        record: &SampleRecord,
        window: Window,
    ) -> Vec<(Lack, u64)> {
        let track = mix_of(&self.expected.listeners[index].room);
        let judged = self.judged.entry((MediaKind::Audio, track.clone())).or_default();
        judged.insert(index, window.until_ms);
        let rows = record.sample.received.iter();
        let rows = rows.filter(|row| row.participant.is_empty() && row.track == MIX);
        let (mut packets, mut since_ms) = (0, window.from_ms);
        for row in rows {
            packets += row.packets_received + row.packets_lost;
            if let (0, Some(since_last_ms)) = (row.packets_received, row.since_last_ms) {
                since_ms = window.until_ms.saturating_sub(since_last_ms.max(0.0) as u64);
            }
        }
        let wanted = MIX_ALIVE_PER_S * (window.until_ms - window.from_ms) / 1000;
        match packets < wanted {
            true => vec![(Lack::Track(track), since_ms)],
            false => Vec::new(),
        }
    }

    /// Groups the episodes: a track that nobody receives, a listener who receives nothing, and the
    /// rest one by one.
    fn into_failures(mut self) -> Vec<Failure> {
        let mut failures = Vec::new();
        let judged = std::mem::take(&mut self.judged);
        for ((kind, track), listeners) in &judged {
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

    /// Takes out the episodes that `belongs` names, if there is a moment that the last of each key
    /// share, and all keys (two or more) that were judged after it (`count`) have one.
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
            text: format!("{subject} {}", when(since_ms, until_ms)),
        }
    }
}

/// How a room's mix stands among the tracks.
const MIX_OF: &str = "the mix of ";

fn mix_of(room: &str) -> String {
    format!("{MIX_OF}{room}")
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

/// Whether two lacks are the same thing at different times: the count may change in between.
fn same(a: &Lack, b: &Lack) -> bool {
    match (a, b) {
        (Lack::Some { .. }, Lack::Some { .. }) => true,
        _ => a == b,
    }
}

fn when(since_ms: u64, until_ms: Option<u64>) -> String {
    let seconds = |ms: u64| (ms + 500) / 1000;
    match until_ms {
        None => format!("since {} s", seconds(since_ms)),
        Some(until_ms) => format!("from {} s to {} s", seconds(since_ms), seconds(until_ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::PersonKind;
    use crate::testing::row;
    use wire::QualitySample;

    const PEOPLE: [&str; 4] = ["a", "b", "c", "d"];
    const END_MS: u64 = 30_000;

    fn everyone() -> Expected {
        let span = Span { from_ms: 0, until_ms: None };
        let track = |name: &str, kind: MediaKind| Track {
            room: "r".into(),
            publisher: name.into(),
            participant: format!("p-{name}"),
            track: format!("{name}-{}", kind.as_str()),
            kind,
            on_air: vec![span],
        };
        let tracks = PEOPLE
            .iter()
            .flat_map(|name| [track(name, MediaKind::Audio), track(name, MediaKind::Video)])
            .collect();
        let listeners = PEOPLE
            .iter()
            .map(|name| Listener {
                room: "r".into(),
                person: (*name).into(),
                participant: format!("p-{name}"),
                present: span,
                mix: false,
                max_audio: None,
                max_video: None,
            })
            .collect();
        Expected { tracks, listeners, end_ms: END_MS, ..Expected::default() }
    }

    /// Samples of everyone every 3 s; `alive(listener, publisher, kind, t_ms)` says what came.
    fn samples(alive: impl Fn(&str, &str, MediaKind, u64) -> bool) -> Vec<SampleRecord> {
        let mut records = Vec::new();
        for t_ms in (3_000..=END_MS).step_by(3_000) {
            for listener in PEOPLE {
                let mut sample = QualitySample { interval_ms: 3_000, ..Default::default() };
                for publisher in PEOPLE.iter().filter(|p| **p != listener) {
                    for kind in [MediaKind::Audio, MediaKind::Video] {
                        let track = format!("{publisher}-{}", kind.as_str());
                        let packets = if alive(listener, publisher, kind, t_ms) { 60 } else { 0 };
                        sample.received.push(row(&format!("p-{publisher}"), &track, kind, packets));
                    }
                }
                let kind = PersonKind::Bot;
                records.push(SampleRecord { t_ms, person: listener.into(), kind, sample });
            }
        }
        records
    }

    fn texts(expected: &Expected, records: &[SampleRecord]) -> Vec<String> {
        subscriptions(expected, records).into_iter().map(|f| f.text).collect()
    }

    #[test]
    fn all_alive_passes() {
        assert_eq!(texts(&everyone(), &samples(|_, _, _, _| true)), Vec::<String>::new());
    }

    #[test]
    fn a_track_that_nobody_receives_is_one_failure() {
        let records =
            samples(|_, p, kind, t| !(p == "b" && kind == MediaKind::Video && t > 21_000));
        let failures = subscriptions(&everyone(), &records);
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert_eq!(failures[0].text, "nobody receives video of b since 21 s");
        assert_eq!(failures[0].listeners, ["a", "c", "d"]);
        assert_eq!(failures[0].publisher.as_deref(), Some("b"));
        assert_eq!(failures[0].kind, Some(MediaKind::Video));
    }

    #[test]
    fn one_who_lacks_one_track_is_named_with_time_of_return() {
        let records = samples(|l, p, kind, t| {
            !(l == "c" && p == "a" && kind == MediaKind::Audio && (9_001..=15_000).contains(&t))
        });
        assert_eq!(texts(&everyone(), &records), ["c receives no audio of a from 9 s to 15 s"]);
    }

    #[test]
    fn one_who_lacks_everything_is_one_failure_a_kind() {
        let records = samples(|l, _, _, t| !(l == "d" && t > 12_000));
        let want = [
            "d receives no audio of anyone since 12 s",
            "d receives no video of anyone since 12 s",
        ];
        assert_eq!(texts(&everyone(), &records), want);
    }

    #[test]
    fn a_missing_row_is_as_dead_as_an_empty_one_and_a_row_knows_the_moment() {
        let mut records = samples(|_, p, _, t| !(p == "a" && t > 15_000));
        for record in records.iter_mut().filter(|r| r.t_ms > 15_000) {
            if record.person == "b" {
                record.sample.received.retain(|row| row.packets_received > 0);
            }
            for row in record.sample.received.iter_mut().filter(|r| r.packets_received == 0) {
                row.since_last_ms = Some((record.t_ms - 13_600) as f64);
            }
        }
        let want =
            ["nobody receives audio of a since 14 s", "nobody receives video of a since 14 s"];
        assert_eq!(texts(&everyone(), &records), want);
    }

    #[test]
    fn muted_by_announcement_and_gone_are_not_expected() {
        let mut expected = everyone();
        expected.tracks[1].on_air = vec![Span { from_ms: 0, until_ms: Some(14_000) }];
        expected.listeners[3].present.until_ms = Some(9_500);
        for track in &mut expected.tracks[6..] {
            track.on_air[0].until_ms = Some(9_500);
        }
        let mut records = samples(|_, p, kind, t| {
            let muted = p == "a" && kind == MediaKind::Video && t > 14_000;
            let gone = p == "d" && t > 9_500;
            !muted && !gone
        });
        records.retain(|r| r.person != "d" || r.t_ms <= 9_500);
        assert_eq!(texts(&expected, &records), Vec::<String>::new());
        expected.tracks[1].on_air.push(Span { from_ms: 18_000, until_ms: None });
        assert_eq!(texts(&expected, &records), ["nobody receives video of a since 21 s"]);
    }

    #[test]
    fn the_first_window_is_grace_and_the_next_counts() {
        let late = |dead_until: u64| samples(move |_, p, _, t| !(p == "a" && t <= dead_until));
        assert_eq!(texts(&everyone(), &late(3_000)), Vec::<String>::new());
        let failures = texts(&everyone(), &late(6_000));
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert_eq!(failures[0], "nobody receives audio of a from 3 s to 6 s");
    }

    #[test]
    fn a_canary_shows_as_many_as_it_wants_whichever_they_are() {
        let mut expected = everyone();
        expected.listeners[0].max_video = Some(2);
        let some = |count: usize| {
            samples(move |l, p, kind, t| {
                let position = PEOPLE.iter().position(|x| *x == p).unwrap_or(0);
                l != "a" || kind == MediaKind::Audio || t <= 12_000 || position <= count
            })
        };
        assert_eq!(texts(&expected, &some(2)), Vec::<String>::new());
        assert_eq!(texts(&expected, &some(1)), ["a receives 1 of 2 video tracks since 12 s"]);
    }

    #[test]
    fn no_samples_is_a_failure_too() {
        let mut records = samples(|_, _, _, _| true);
        records.retain(|r| r.person != "b" || r.t_ms <= 15_000);
        assert_eq!(texts(&everyone(), &records), ["b gives no sample since 15 s"]);
        records.retain(|r| r.person != "b");
        assert_eq!(texts(&everyone(), &records), ["b gives no sample since 0 s"]);
    }

    /// A mixed room: everyone gets `packets(listener, t_ms)` of the mix in each window.
    fn mixed(packets: impl Fn(&str, u64) -> u64) -> (Expected, Vec<SampleRecord>) {
        let mut expected = everyone();
        expected.listeners.iter_mut().for_each(|listener| listener.mix = true);
        let mut records = samples(|_, _, _, _| true);
        for record in &mut records {
            record.sample.received.retain(|row| row.kind == MediaKind::Video);
            let packets = packets(&record.person, record.t_ms);
            record.sample.received.push(row("", "mix", MediaKind::Audio, packets));
        }
        (expected, records)
    }

    #[test]
    fn a_mix_must_flow_all_the_time_and_nobodys_own_audio_is_missed() {
        let (expected, records) = mixed(|_, _| 150);
        assert_eq!(texts(&expected, &records), Vec::<String>::new());
        let (expected, records) =
            mixed(|who, t_ms| if who == "c" && t_ms > 9_000 { 0 } else { 150 });
        assert_eq!(texts(&expected, &records), ["c does not receive the mix of r since 9 s"]);
        let (expected, records) = mixed(|_, t_ms| if t_ms > 21_000 { 0 } else { 148 });
        let failures = subscriptions(&expected, &records);
        assert_eq!(failures[0].text, "nobody receives the mix of r since 21 s");
        assert_eq!((failures.len(), failures[0].listeners.len()), (1, 4));
        assert_eq!(failures[0].publisher, None);
        // A third of the packets missing is a fault, three in a hundred are not.
        let (expected, records) = mixed(|who, t_ms| match (who, t_ms) {
            ("a", 12_000) => 100,
            ("b", _) => 146,
            _ => 150,
        });
        let want = ["a does not receive the mix of r from 9 s to 12 s"];
        assert_eq!(texts(&expected, &records), want);
        // Lost packets were sent: they are the loss's own figure.
        let (expected, mut records) = mixed(|_, _| 120);
        for row in records.iter_mut().flat_map(|record| &mut record.sample.received) {
            row.packets_lost = 30;
        }
        assert_eq!(texts(&expected, &records), Vec::<String>::new());
    }

    #[test]
    fn a_wrong_mix_is_a_failure_that_says_how() {
        let (mut expected, records) = mixed(|_, _| 150);
        let right = MixWindows { windows: 9, ..MixWindows::default() };
        expected.mixes.insert("a".into(), right.clone());
        assert_eq!(texts(&expected, &records), Vec::<String>::new());
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let wrong = Wrong { at_ms: 14_750, missing: names(&["c"]), extra: names(&["b", "d"]) };
        let heard = MixWindows { wrong: 2, examples: vec![wrong], ..right };
        expected.mixes.insert("b".into(), heard);
        let want = "b hears a wrong mix in 2 of 9 windows, first without c and with b, d at 14.8 s \
                    of the plan";
        assert_eq!(texts(&expected, &records), [want]);
    }

    #[test]
    fn each_visit_is_judged_by_itself() {
        let mut expected = everyone();
        let again = Span { from_ms: 24_000, until_ms: None };
        expected.listeners[0].present.until_ms = Some(6_000);
        expected.listeners.push(Listener { present: again, ..expected.listeners[0].clone() });
        for track in &mut expected.tracks[..2] {
            track.on_air[0].until_ms = Some(6_000);
        }
        let mut records = samples(|_, p, _, t| !(p == "a" && t > 6_000));
        records.retain(|r| r.person != "a" || !(6_001..=26_000).contains(&r.t_ms));
        assert_eq!(texts(&expected, &records), Vec::<String>::new());
    }

    #[test]
    fn rooms_do_not_mix() {
        let mut expected = everyone();
        for listener in &mut expected.listeners[2..] {
            listener.room = "other".into();
        }
        let records = samples(|l, _, _, _| l == "a" || l == "b");
        assert_eq!(texts(&expected, &records), Vec::<String>::new());
    }
}
