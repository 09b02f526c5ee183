//! When quality broke: the first fault, or the first window in which a threshold that failed over
//! the whole run fails.

use crate::checks::Failure;
use crate::metrics::Collector;
use crate::record::SampleRecord;
use crate::threshold::Threshold;
use std::collections::{BTreeMap, BTreeSet};
use wire::quality::SAMPLE_INTERVAL_MS;

/// The moment in which quality broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// In milliseconds since the start of the run.
    pub t_ms: u64,
    /// What broke.
    pub why: String,
}

/// Someone's media was connected.
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// Who.
    pub person: String,
    /// When, in milliseconds since the start of the run.
    pub t_ms: u64,
    /// From asking to join until then, in milliseconds.
    pub took_ms: f64,
}

/// When quality broke first; none where it held. `failed`: the thresholds that do not hold.
pub fn first_break(
    samples: &[SampleRecord],
    joins: &[Join],
    failed: &[&Threshold],
    first_fault: Option<&(u64, String)>,
    subscriptions: &[Failure],
) -> Option<Break> {
    let fault = first_fault.map(|(t_ms, why)| Break { t_ms: *t_ms, why: why.clone() });
    let silent = subscriptions
        .iter()
        .min_by_key(|failure| failure.since_ms)
        .map(|failure| Break { t_ms: failure.since_ms, why: failure.text.clone() });
    let windows = if failed.is_empty() { Vec::new() } else { by_window(samples, joins) };
    let thresholds = failed.iter().map(|threshold| first_window(threshold, &windows));
    thresholds.chain([fault, silent].into_iter().flatten()).min_by_key(|broke| broke.t_ms)
}

/// A collector a window, with the window's end.
fn by_window(samples: &[SampleRecord], joins: &[Join]) -> Vec<(u64, Collector)> {
    let mut windows: BTreeMap<u64, Collector> = BTreeMap::new();
    let window = |t_ms: u64| t_ms.div_ceil(SAMPLE_INTERVAL_MS) * SAMPLE_INTERVAL_MS;
    let mut known = BTreeSet::new();
    for record in samples {
        let collector = windows.entry(window(record.t_ms)).or_default();
        // The first sample of each is warm-up here as in the whole.
        if known.insert(&record.person) {
            collector.add(&record.person, &record.sample);
        } else {
            collector.add_warm(&record.person, &record.sample);
        }
    }
    for join in joins {
        let collector = windows.entry(window(join.t_ms)).or_default();
        collector.join(join);
    }
    windows.into_iter().collect()
}

/// The first window in which a threshold fails; the last one where it fails in none by itself.
fn first_window(threshold: &Threshold, windows: &[(u64, Collector)]) -> Break {
    let fails = |collector: &Collector| {
        let result = threshold.judge_so_far(collector);
        (!result.ok).then_some(result.value).flatten()
    };
    let found = windows.iter().find_map(|(t_ms, one)| Some((*t_ms, fails(one)?)));
    let t_ms = found.or(windows.last().map(|(t_ms, _)| (*t_ms, f64::NAN)));
    let (t_ms, value) = t_ms.unwrap_or((0, f64::NAN));
    let expr = format!("{} {}", threshold.metric, threshold.condition);
    let why = match value.is_nan() {
        true => format!("{expr} does not hold over the whole run"),
        false => format!("{expr} does not hold: it was {}", crate::summary::short(value)),
    };
    Break { t_ms, why }
}
