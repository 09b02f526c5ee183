//! Walks through each listener's windows and collects what they lacked.

use super::alive::{Fault, Life, life};
use crate::judge::expected::{Expected, GRACE_MS, Track};
use crate::record::{MIX, SampleRecord, Span};
use std::collections::BTreeMap;
use wire::quality::ReceivedTrack;
use wire::room::MediaKind;

/// Windows shorter than this are not judged: a browser's own timer may have cut them.
const SHORTEST_WINDOW_MS: u64 = 1_000;
/// Packets of a mix that must be sent a second, whether anybody speaks or not: nine of ten, if each
/// lasts 60 ms, as in large rooms. Their headers do not tell how long they last. What was lost on
/// the way has its own figure, and what is missing in shorter packets is found by those who listen
/// for marks and tones.
const MIX_ALIVE_PER_S: u64 = 15;

/// A track in a slot for a smaller share of a window was there for a moment.
const SHORTLY: f64 = 0.34;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    from_ms: u64,
    until_ms: u64,
}

impl Window {
    fn len_ms(self) -> u64 {
        self.until_ms - self.from_ms
    }

    /// Whether it lies in a span, after the time of grace.
    fn is_judged_in(self, span: &Span) -> bool {
        span.from_ms + GRACE_MS <= self.from_ms
            && span.until_ms.is_none_or(|until| self.until_ms <= until)
    }

    /// Whether it feels a cut of that span: streams need the time of grace to come back.
    fn feels(self, cut: &Span) -> bool {
        let until_ms = cut.until_ms.map(|until| until + GRACE_MS);
        cut.overlaps(&Span { from_ms: self.from_ms, until_ms: Some(self.until_ms) })
            || until_ms.is_some_and(|end| (cut.from_ms..end).contains(&self.from_ms))
    }
}

/// How a room's mix stands among the tracks.
pub(super) const MIX_OF: &str = "the mix of ";

/// What a listener lacks: one track, or some of the number they want.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lack {
    Track(String),
    Some { got: usize, wanted: usize },
}

/// What is lacked in a window.
#[derive(Debug, Clone)]
struct Missed {
    lack: Lack,
    since_ms: u64,
    /// When it ended, if that is known more exactly than by the windows.
    until_ms: Option<u64>,
    /// Packets of it came, and were of no use for this reason.
    fault: Option<Fault>,
}

/// A stretch of windows in which one listener lacked one thing.
#[derive(Debug, Clone)]
pub(super) struct Episode {
    pub(super) listener: usize,
    pub(super) kind: MediaKind,
    pub(super) lack: Lack,
    pub(super) since_ms: u64,
    pub(super) until_ms: Option<u64>,
    /// Packets of it came in some window, and were of no use for this reason.
    pub(super) fault: Option<Fault>,
}

/// Who was judged on what, and until when: kind and track → listener → end of the last window.
pub(super) type Judged = BTreeMap<(MediaKind, String), BTreeMap<usize, u64>>;

pub(super) struct Judging<'a> {
    pub(super) expected: &'a Expected,
    pub(super) episodes: Vec<Episode>,
    pub(super) judged: Judged,
}

impl<'a> Judging<'a> {
    pub(super) fn new(expected: &'a Expected) -> Self {
        Self { expected, episodes: Vec::new(), judged: BTreeMap::new() }
    }

    /// Walks through the windows of one listener and collects what they lacked.
    pub(super) fn listener(&mut self, index: usize, kind: MediaKind, samples: &[&SampleRecord]) {
        let listener = &self.expected.listeners[index];
        // People who come and go leave many tracks behind: most were over before this one came. A mix is judged as a whole.
        let apart = !(listener.mix && kind == MediaKind::Audio);
        let met: Vec<&Track> = self
            .expected
            .tracks
            .iter()
            .filter(|t| apart && t.kind == kind && t.room == listener.room)
            .filter(|t| t.participant != listener.participant)
            .filter(|t| t.on_air.iter().any(|span| span.overlaps(&listener.present)))
            .collect();
        let mut open: Vec<Episode> = Vec::new();
        for record in samples {
            let until_ms = record.t_ms;
            let from_ms = until_ms.saturating_sub(record.sample.interval_ms);
            let window = Window { from_ms, until_ms };
            if until_ms - from_ms < SHORTEST_WINDOW_MS || !window.is_judged_in(&listener.present) {
                continue;
            }
            let missed = self.missed(index, kind, &met, (record, window));
            // An open episode whose track is no longer missed ended when this window began.
            let lasts = |one: &mut Episode| missed.iter().any(|now| same(&now.lack, &one.lack));
            let ended = open.extract_if(.., |one| !lasts(one));
            let until = |one: &Episode| one.until_ms.or(Some(from_ms));
            self.episodes.extend(ended.map(|one| Episode { until_ms: until(&one), ..one }));
            for Missed { lack, since_ms, until_ms, fault } in missed {
                match open.iter_mut().find(|one| same(&one.lack, &lack)) {
                    Some(one) => {
                        one.until_ms = until_ms;
                        one.fault = Fault::worse(one.fault, fault);
                    }
                    None => {
                        let listener = index;
                        open.push(Episode { listener, kind, lack, since_ms, until_ms, fault });
                    }
                }
            }
        }
        open.sort_by(|a, b| a.lack.cmp(&b.lack));
        self.episodes.extend(open);
    }

    /// Whether the scenario itself had cut somebody's link.
    fn was_cut(&self, person: &str, window: Window) -> bool {
        let cuts = self.expected.cuts.get(person);
        cuts.is_some_and(|cuts| cuts.iter().any(|span| window.feels(span)))
    }

    /// What a listener lacks in one window of the tracks that they met.
    fn missed(
        &mut self,
        index: usize,
        kind: MediaKind,
        met: &[&Track],
        (record, window): (&SampleRecord, Window),
    ) -> Vec<Missed> {
        let listener = &self.expected.listeners[index];
        if listener.mix && kind == MediaKind::Audio {
            return self.missed_mix(index, record, window);
        }
        let wanted: Vec<&&Track> =
            met.iter().filter(|t| t.on_air.iter().any(|span| window.is_judged_in(span))).collect();
        let publisher = |track: &str| {
            let found = met.iter().find(|one| one.track == track);
            found.map_or("", |track| track.publisher.as_str())
        };
        let listener_cut = self.was_cut(&listener.person, window);
        let mut lives: BTreeMap<&str, Lived> = BTreeMap::new();
        for row in record.sample.received.iter().filter(|row| row.kind == kind) {
            let cut = listener_cut || self.was_cut(publisher(&row.track), window);
            let life = life(row, window.len_ms(), cut);
            lives.entry(row.track.as_str()).or_default().add(row, life);
        }
        let max = listener.max(kind);
        if wanted.len() > max {
            return too_few(&lives, max, window).into_iter().collect();
        }
        let mut missed = Vec::new();
        for track in wanted {
            self.judged
                .entry((kind, track.track.clone()))
                .or_default()
                .insert(index, window.until_ms);
            let life = lives.get(track.track.as_str()).map_or(Life::Silent, |one| one.life);
            if life == Life::Alive {
                continue;
            }
            let rows = record.sample.received.iter().filter(|row| row.track == track.track);
            let since_ms = rows.map(|row| since(row, life, window)).min();
            missed.push(Missed {
                lack: Lack::Track(track.track.clone()),
                since_ms: since_ms.unwrap_or(window.from_ms),
                until_ms: until(life, window),
                fault: life.fault(),
            });
        }
        missed
    }

    /// What a listener lacks of the room's mix in a window.
    fn missed_mix(&mut self, index: usize, record: &SampleRecord, window: Window) -> Vec<Missed> {
        let listener = &self.expected.listeners[index];
        let track = format!("{MIX_OF}{}", listener.room);
        let judged = self.judged.entry((MediaKind::Audio, track.clone())).or_default();
        judged.insert(index, window.until_ms);
        let cut = self.was_cut(&listener.person, window);
        let rows = record.sample.received.iter();
        let rows = rows.filter(|row| row.participant.is_empty() && row.track == MIX);
        let (mut packets, mut since_ms, mut best) = (0, window.from_ms, Life::Silent);
        for row in rows {
            packets += row.packets_received + row.packets_lost;
            let life = life(row, window.len_ms(), cut);
            best = best.or(life);
            since_ms = since(row, life, window);
        }
        let wanted = MIX_ALIVE_PER_S * (window.until_ms - window.from_ms) / 1000;
        if packets >= wanted && best == Life::Alive {
            return Vec::new();
        }
        let until_ms = until(best, window);
        vec![Missed { lack: Lack::Track(track), since_ms, until_ms, fault: best.fault() }]
    }
}

/// What the rows of a track in a window come to.
#[derive(Debug, Default)]
struct Lived {
    life: Life,
    /// The share of the window in which it was in a slot and alive.
    share: f64,
}

impl Lived {
    fn add(&mut self, row: &ReceivedTrack, life: Life) {
        let share = row.mapped_ratio.unwrap_or(1.0);
        // What has just come into a slot, or was there for a moment, may have had no packet yet.
        if life == Life::Alive || (life == Life::Silent && share < SHORTLY) {
            self.share = (self.share + share).min(1.0);
        }
        self.life = self.life.or(life);
    }
}

/// A listener who wants more tracks than there are slots must get as many as there are slots, all the time.
fn too_few(lives: &BTreeMap<&str, Lived>, max: usize, window: Window) -> Option<Missed> {
    let slots: f64 = lives.values().map(|one| one.share).sum();
    let got = (slots + SHORTLY) as usize;
    let lack = Lack::Some { got, wanted: max };
    let fault = lives.values().find_map(|one| one.life.fault());
    (got < max).then_some(Missed { lack, since_ms: window.from_ms, until_ms: None, fault })
}

/// Since when a row has been as it is: it may know when the last packet or picture came, more
/// exactly than its window does.
fn since(row: &ReceivedTrack, life: Life, window: Window) -> u64 {
    if let Life::Useless(Fault::Away { ms, ago_ms }) = life {
        return window.until_ms.saturating_sub((ago_ms + ms).max(0.0) as u64);
    }
    let knows = life == Life::Silent || row.kind == MediaKind::Video;
    let last = row.since_last_ms.filter(|_| knows);
    last.map_or(window.from_ms, |ms| window.until_ms.saturating_sub(ms.max(0.0) as u64))
}

/// Until when it was so, if that is known.
fn until(life: Life, window: Window) -> Option<u64> {
    match life {
        Life::Useless(Fault::Away { ago_ms, .. }) if ago_ms > 0.0 => {
            Some(window.until_ms.saturating_sub(ago_ms as u64))
        }
        _ => None,
    }
}

/// Whether two lacks are the same thing at different times: the count may change in between.
fn same(a: &Lack, b: &Lack) -> bool {
    match (a, b) {
        (Lack::Some { .. }, Lack::Some { .. }) => true,
        _ => a == b,
    }
}
