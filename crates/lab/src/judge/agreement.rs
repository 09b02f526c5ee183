//! Do browsers and bots agree? If both are in one room and on one network, a browser is the canary: of
//! the same tracks it must read what bots read. If it does not, neither can be believed.
//!
//! Two figures are compared, while the browser is there: **loss** ([`loss`]) and **freezes** ([`freezes`]). The
//! constant difference of their delays (a browser waits in a jitter buffer, a bot plays nothing) is no
//! disagreement.

mod freezes;
mod loss;
mod seen;

use crate::record::{Meta, PersonKind, PersonMeta, SampleRecord};
pub use loss::Loss;
use seen::Seen;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How browsers and bots agreed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Loss of the same tracks; null if nobody received a packet of such a track.
    pub loss: Option<Loss>,
    /// Windows in which a browser or a bot counted a freeze.
    pub freeze_windows: u64,
    /// Those of them in which both counted as many, give or take one.
    pub freeze_windows_agreeing: u64,
    /// How they disagree, in words. Empty: they agree, as far as there was enough to tell.
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

/// One room's people on one network.
#[derive(Default)]
struct Group<'a> {
    browsers: BTreeMap<&'a str, Vec<&'a SampleRecord>>,
    bots: Vec<&'a SampleRecord>,
}

/// Compares them; None if they share no room and network.
pub fn compare(meta: &Meta, samples: &[SampleRecord]) -> Option<Agreement> {
    let groups = groups(&meta.people, samples);
    if groups.is_empty() {
        return None;
    }
    let (mut pieces, mut windows) = (Vec::new(), Vec::new());
    for group in &groups {
        for browser in group.browsers.values() {
            let seen = seen(browser, &group.bots);
            pieces.extend(loss::pieces(&seen));
            windows.extend(freezes::windows(&seen));
        }
    }
    let (loss, lost) = loss::judge(&pieces);
    let agreeing = windows.iter().filter(|window| window.agrees()).count() as u64;
    let disagreements = lost.into_iter().chain(freezes::judge(&windows)).collect();
    let freeze_windows = windows.len() as u64;
    Some(Agreement { loss, freeze_windows, freeze_windows_agreeing: agreeing, disagreements })
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
        match record.kind {
            PersonKind::Bot => group.bots.push(record),
            PersonKind::Chromium => group.browsers.entry(name).or_default().push(record),
        }
    }
    let both = |group: &Group<'_>| !group.browsers.is_empty() && !group.bots.is_empty();
    groups.into_values().filter(both).collect()
}

/// All that a browser and the bots saw of tracks that both receive, while the browser was there.
fn seen<'a>(browser: &[&'a SampleRecord], bots: &[&'a SampleRecord]) -> Vec<Seen<'a>> {
    fn tracks<'a>(records: &[&'a SampleRecord]) -> BTreeSet<&'a str> {
        let rows = records.iter().flat_map(|record| &record.sample.received);
        rows.map(|row| row.track.as_str()).collect()
    }
    let (own, theirs) = (tracks(browser), tracks(bots));
    let from = browser.first().map_or(0, |record| begin(record));
    let until = browser.last().map_or(0, |record| record.t_ms);
    let there = bots.iter().filter(|record| begin(record) >= from && record.t_ms <= until);
    browser
        .iter()
        .chain(there)
        .flat_map(|record| record.sample.received.iter().map(move |row| (*record, row)))
        .filter(|(_, row)| own.contains(row.track.as_str()) && theirs.contains(row.track.as_str()))
        .map(|(record, row)| Seen {
            person: &record.person,
            bot: record.kind == PersonKind::Bot,
            from_ms: begin(record),
            until_ms: record.t_ms,
            row,
        })
        .collect()
}

fn begin(record: &SampleRecord) -> u64 {
    record.t_ms.saturating_sub(record.sample.interval_ms)
}

#[cfg(test)]
mod tests;
