//! Freezes of the same tracks, as a browser and as bots count them.
//!
//! Windows are stretches of samples in which either counted one, so that nothing depends on where a sample ends.
//! A window agrees if the browser counted as many as bots did, give or take one. If only one track freezes at a
//! time, a counter that is broken would pass that test: so the sums are compared too.

use super::seen::Seen;
use std::collections::{BTreeMap, BTreeSet};

/// Windows below which nothing is judged.
const MIN_WINDOWS: usize = 10;
/// Share of the windows that must agree.
const AGREEING: f64 = 0.9;
/// Freezes by which a window may differ.
const WITHIN: f64 = 1.0;
/// Of their sums the smaller is at least this share of the larger.
const SUMS: f64 = 0.5;
/// Samples so close (ms) tell of the same moment: a browser shows a frame later than a bot has it.
const SLACK_MS: u64 = 1_000;

/// What was counted in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    browser: f64,
    /// By a bot that received all the tracks: each track's mean over those who received it.
    bots: f64,
}

impl Window {
    pub(super) fn agrees(&self) -> bool {
        (self.browser - self.bots).abs() <= WITHIN
    }
}

/// A browser's windows. Only rows that tell their freezes count: unknown is not none.
pub(super) fn windows(seen: &[Seen<'_>]) -> Vec<Window> {
    let counts = || seen.iter().filter_map(|one| Some((one, one.row.freezes?)));
    let frozen = counts().filter(|(_, count)| *count > 0);
    let mut frozen: Vec<(u64, u64)> = frozen.map(|(one, _)| (one.from_ms, one.until_ms)).collect();
    frozen.sort_unstable();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for (from, until) in frozen {
        match spans.last_mut() {
            Some(last) if from <= last.1 + SLACK_MS => last.1 = last.1.max(until),
            _ => spans.push((from, until)),
        }
    }
    let within =
        |one: &Seen<'_>, (from, until): (u64, u64)| one.until_ms > from && one.until_ms <= until;
    let window = |span: (u64, u64)| {
        let mut by_track: BTreeMap<&str, Track<'_>> = BTreeMap::new();
        for (one, count) in counts().filter(|(one, _)| within(one, span)) {
            let track = by_track.entry(&one.row.track).or_default();
            if one.bot {
                track.bots += count;
                track.counting.insert(one.person);
            } else {
                *track.browser.get_or_insert(0) += count;
            }
        }
        let both = by_track.values().filter(|track| !track.counting.is_empty());
        let both = both.filter_map(|track| {
            let bots = track.bots as f64 / track.counting.len() as f64;
            Some(Window { browser: track.browser? as f64, bots })
        });
        both.reduce(|a, b| Window { browser: a.browser + b.browser, bots: a.bots + b.bots })
    };
    spans.into_iter().filter_map(window).collect()
}

/// A track's freezes in a window.
#[derive(Default)]
struct Track<'a> {
    browser: Option<u64>,
    bots: u64,
    counting: BTreeSet<&'a str>,
}

/// How they disagree, if they do.
pub(super) fn judge(windows: &[Window]) -> Option<String> {
    if windows.len() < MIN_WINDOWS {
        return None;
    }
    let agreeing = windows.iter().filter(|window| window.agrees()).count();
    if (agreeing as f64) < AGREEING * windows.len() as f64 {
        let all = windows.len();
        return Some(format!(
            "browsers and bots counted the same freezes in {agreeing} of {all} windows with one"
        ));
    }
    let browsers: f64 = windows.iter().map(|window| window.browser).sum();
    let bots: f64 = windows.iter().map(|window| window.bots).sum();
    (browsers.min(bots) < SUMS * browsers.max(bots)).then(|| {
        format!("of the same tracks browsers counted {browsers:.0} freezes, bots {bots:.0}")
    })
}
