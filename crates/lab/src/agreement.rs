//! Do browsers and bots agree? Where both are in one room and on one network, a browser is the canary: of
//! the same tracks it must read what bots read. Where it does not, neither can be believed.
//!
//! Two figures are compared. **Loss**: of all tracks that both receive; it may differ by [`LOSS_POINTS`] and by
//! what chance explains. Where a browser cannot know it, it is not compared: Chromium counts no packet of a gap of
//! more than 50 in sound as lost (libwebrtc takes it for a stream that begins anew), and only conceals it. **Freezes**: windows are stretches of samples in which either counted one, so that
//! nothing depends on where a sample ends; a window agrees where the browser counted as many as bots did on
//! the same tracks, give or take one. The constant difference of their delays (a browser waits in a jitter
//! buffer, a bot plays nothing) is no disagreement.

use crate::record::{Meta, PersonKind, PersonMeta, SampleRecord};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wire::quality::ReceivedTrack;
use wire::room::MediaKind;

/// Points of loss by which they may differ.
pub const LOSS_POINTS: f64 = 0.3;
/// Packets that a browser must expect before its loss is judged.
const MIN_PACKETS: u64 = 5_000;
/// Standard deviations of what chance explains.
const CHANCE: f64 = 4.0;
/// Points by which a browser conceals more than it lost: there is a gap that it did not count.
const UNCOUNTED: f64 = 5.0;
/// Windows with a freeze below which their number is not judged.
const MIN_WINDOWS: u64 = 10;
/// Share of the windows that must agree.
const AGREEING: f64 = 0.9;
/// Freezes by which a window may differ.
const FREEZES: f64 = 1.0;
/// Samples so close (ms) tell of the same moment: a browser shows a frame later than a bot has it.
const SLACK_MS: u64 = 1_000;

/// How browsers and bots agreed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Loss of the same tracks; null where neither received a packet of such.
    pub loss: Option<Loss>,
    /// Windows in which a browser or a bot counted a freeze.
    pub freeze_windows: u64,
    /// Those of them in which both counted as many, give or take one.
    pub freeze_windows_agreeing: u64,
    /// Where they disagree, in words; empty: they agree, as far as there was enough to tell.
    pub disagreements: Vec<String>,
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.disagreements.is_empty() {
            return f.write_str(&self.disagreements.join("; "));
        }
        match &self.loss {
            None => f.write_str("nothing was received by both")?,
            Some(Loss { bots_pct, browsers_pct, .. }) => {
                write!(f, "loss {browsers_pct:.2} % and {bots_pct:.2} % of the same tracks")?;
            }
        }
        let (all, agreeing) = (self.freeze_windows, self.freeze_windows_agreeing);
        match all {
            0 => Ok(()),
            _ => write!(f, ", the same freezes in {agreeing} of {all} windows with one"),
        }
    }
}

/// Loss of the same tracks, as both read it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// By bots, in percent.
    pub bots_pct: f64,
    /// By browsers, in percent.
    pub browsers_pct: f64,
    /// Packets that browsers expected.
    pub browser_packets: u64,
}

/// One room's people on one network.
#[derive(Default)]
struct Group<'a> {
    browsers: BTreeMap<&'a str, Vec<&'a SampleRecord>>,
    bots: BTreeMap<&'a str, Vec<&'a SampleRecord>>,
}

/// Packets of one kind of people: lost, expected.
#[derive(Default)]
struct Packets(u64, u64);

impl Packets {
    fn add(&mut self, row: &ReceivedTrack) {
        self.0 += row.packets_lost;
        self.1 += row.packets_lost + row.packets_received;
    }

    fn share(&self) -> f64 {
        self.0 as f64 / self.1.max(1) as f64
    }
}

/// Compares them; none where they share no room and network.
pub fn compare(meta: &Meta, samples: &[SampleRecord]) -> Option<Agreement> {
    let groups = groups(&meta.people, samples);
    if groups.is_empty() {
        return None;
    }
    let (mut bots, mut browsers) = (Packets::default(), Packets::default());
    let mut found = Agreement::default();
    for group in &groups {
        for browser in group.browsers.values() {
            let shared = shared_tracks(browser, group);
            let gaps = uncounted_gaps(browser, &shared);
            counted(browser, &shared, &gaps).for_each(|row| browsers.add(row));
            let all = group.bots.values().flat_map(|records| counted(records, &shared, &gaps));
            all.for_each(|row| bots.add(row));
            for window in windows(browser, group, &shared) {
                let agrees = (browser_freezes(browser, &shared, window)
                    - bot_freezes(group, &shared, window))
                .abs()
                    <= FREEZES;
                found.freeze_windows += 1;
                found.freeze_windows_agreeing += u64::from(agrees);
            }
        }
    }
    if bots.1 > 0 && browsers.1 > 0 {
        let pct = |packets: &Packets| 100.0 * packets.share();
        found.loss = Some(Loss {
            bots_pct: pct(&bots),
            browsers_pct: pct(&browsers),
            browser_packets: browsers.1,
        });
        found.disagreements.extend(loss_disagrees(&bots, &browsers));
    }
    let (all, agreeing) = (found.freeze_windows, found.freeze_windows_agreeing);
    if all >= MIN_WINDOWS && (agreeing as f64) < AGREEING * all as f64 {
        found.disagreements.push(format!(
            "browsers and bots counted the same freezes in {agreeing} of {all} windows with one"
        ));
    }
    Some(found)
}

/// Rooms with both kinds of people on one network. Everybody's first window is warm-up.
fn groups<'a>(people: &'a [PersonMeta], samples: &'a [SampleRecord]) -> Vec<Group<'a>> {
    let places: BTreeMap<&str, (&str, Option<usize>)> = people
        .iter()
        .map(|person| (person.name.as_str(), (person.room.as_str(), person.network)))
        .collect();
    let mut groups: BTreeMap<(&str, Option<usize>), Group<'a>> = BTreeMap::new();
    let mut warm = BTreeSet::new();
    for record in samples {
        let name = record.person.as_str();
        let Some(place) = places.get(name) else { continue };
        if warm.insert(name) {
            continue;
        }
        let group = groups.entry(*place).or_default();
        let people = match record.kind {
            PersonKind::Bot => &mut group.bots,
            PersonKind::Chromium => &mut group.browsers,
        };
        people.entry(name).or_default().push(record);
    }
    let both = |group: &Group<'_>| !group.browsers.is_empty() && !group.bots.is_empty();
    groups.into_values().filter(both).collect()
}

/// Tracks that the browser receives, and a bot of the group, too.
fn shared_tracks<'a>(browser: &[&'a SampleRecord], group: &Group<'_>) -> BTreeSet<&'a str> {
    let of_bots: BTreeSet<&str> = group
        .bots
        .values()
        .flatten()
        .flat_map(|record| record.sample.received.iter().map(|row| row.track.as_str()))
        .collect();
    let own = browser.iter().flat_map(|record| &record.sample.received);
    own.map(|row| row.track.as_str()).filter(|track| of_bots.contains(track)).collect()
}

fn rows<'a>(
    records: &'a [&'a SampleRecord],
    tracks: &'a BTreeSet<&str>,
) -> impl Iterator<Item = &'a ReceivedTrack> {
    let all = records.iter().flat_map(|record| &record.sample.received);
    all.filter(|row| tracks.contains(row.track.as_str()))
}

/// Where (from, until, in ms) the browser did not count what was lost of its sound, with a sample before and
/// after: others' samples end at other times.
fn uncounted_gaps(browser: &[&SampleRecord], tracks: &BTreeSet<&str>) -> Vec<(u64, u64)> {
    let uncounted = |row: &ReceivedTrack| {
        row.concealed_pct.is_some_and(|pct| pct > row.loss_pct.unwrap_or(0.0) + UNCOUNTED)
    };
    browser
        .iter()
        .filter(|record| rows(&[**record], tracks).any(uncounted))
        .map(|record| {
            let interval = record.sample.interval_ms;
            (record.t_ms.saturating_sub(2 * interval), record.t_ms + interval)
        })
        .collect()
}

/// Rows of tracks whose loss a browser can know.
fn counted<'a>(
    records: &'a [&'a SampleRecord],
    tracks: &'a BTreeSet<&str>,
    gaps: &'a [(u64, u64)],
) -> impl Iterator<Item = &'a ReceivedTrack> {
    records.iter().flat_map(move |record| {
        let begin = record.t_ms.saturating_sub(record.sample.interval_ms);
        let known = !gaps.iter().any(|(from, until)| begin < *until && *from < record.t_ms);
        let rows = record.sample.received.iter();
        rows.filter(move |row| known || row.kind == MediaKind::Video)
            .filter(|row| tracks.contains(row.track.as_str()))
    })
}

fn loss_disagrees(bots: &Packets, browsers: &Packets) -> Option<String> {
    if browsers.1.min(bots.1) < MIN_PACKETS {
        return None;
    }
    let share = (bots.0 + browsers.0) as f64 / (bots.1 + browsers.1) as f64;
    let variance = share * (1.0 - share) * (1.0 / bots.1 as f64 + 1.0 / browsers.1 as f64);
    let allowed = LOSS_POINTS / 100.0 + CHANCE * variance.sqrt();
    ((bots.share() - browsers.share()).abs() > allowed).then(|| {
        format!(
            "of the same tracks browsers lost {:.2} %, bots {:.2} %",
            100.0 * browsers.share(),
            100.0 * bots.share()
        )
    })
}

fn freezes(record: &SampleRecord, tracks: &BTreeSet<&str>) -> u64 {
    rows(&[record], tracks).filter_map(|row| row.freezes).sum()
}

/// Stretches of samples (from, until, in ms) in which the browser or a bot counted a freeze.
fn windows(
    browser: &[&SampleRecord],
    group: &Group<'_>,
    tracks: &BTreeSet<&str>,
) -> Vec<(u64, u64)> {
    let all = browser.iter().chain(group.bots.values().flatten());
    let mut frozen: Vec<(u64, u64)> = all
        .filter(|record| freezes(record, tracks) > 0)
        .map(|record| (record.t_ms.saturating_sub(record.sample.interval_ms), record.t_ms))
        .collect();
    frozen.sort_unstable();
    let mut windows: Vec<(u64, u64)> = Vec::new();
    for (from, until) in frozen {
        match windows.last_mut() {
            Some(last) if from <= last.1 + SLACK_MS => last.1 = last.1.max(until),
            _ => windows.push((from, until)),
        }
    }
    windows
}

fn in_window(record: &SampleRecord, (from, until): (u64, u64)) -> bool {
    record.t_ms > from && record.t_ms <= until
}

fn browser_freezes(browser: &[&SampleRecord], tracks: &BTreeSet<&str>, window: (u64, u64)) -> f64 {
    let within = browser.iter().filter(|record| in_window(record, window));
    within.map(|record| freezes(record, tracks)).sum::<u64>() as f64
}

/// What a bot counted that received all the tracks: each track's mean over those who received it.
fn bot_freezes(group: &Group<'_>, tracks: &BTreeSet<&str>, window: (u64, u64)) -> f64 {
    let mut by_track: BTreeMap<&str, (u64, BTreeSet<&str>)> = BTreeMap::new();
    for (bot, records) in &group.bots {
        for record in records.iter().filter(|record| in_window(record, window)) {
            for row in rows(&[*record], tracks).filter(|row| row.kind == MediaKind::Video) {
                let track = tracks.get(row.track.as_str()).copied().unwrap_or_default();
                let (count, bots) = by_track.entry(track).or_default();
                *count += row.freezes.unwrap_or(0);
                bots.insert(bot);
            }
        }
    }
    by_track.values().map(|(count, bots)| *count as f64 / bots.len().max(1) as f64).sum()
}

#[cfg(test)]
mod tests;
