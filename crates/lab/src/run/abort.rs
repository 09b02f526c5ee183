//! Thresholds that end a run as soon as they fail (`abort_on_fail`).

use crate::metrics::Collector;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::summary::short;
use crate::threshold::Threshold;
use std::collections::BTreeMap;
use std::time::Duration;

/// Looks at all that was sampled so far; each sample is taken once.
#[derive(Debug)]
pub(super) struct Abort<'a> {
    thresholds: Vec<(&'a Threshold, Duration)>,
    collector: Collector,
    seen: (usize, usize),
}

impl<'a> Abort<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let ending = |threshold: &'a Threshold| Some((threshold, threshold.abort?));
        let thresholds = scenario.thresholds.iter().filter_map(ending).collect();
        Self { thresholds, collector: Collector::default(), seen: (0, 0) }
    }

    /// Which threshold fails by now, in words. One of which nothing was measured yet is none: that
    /// it fails is told at the end.
    pub(super) fn look(&mut self, stage: &Stage, elapsed: Duration) -> Option<String> {
        if self.thresholds.is_empty() {
            return None;
        }
        let Self { thresholds, collector, seen } = self;
        let new = stage.since(*seen, |samples, joins| {
            samples.iter().for_each(|record| collector.add(&record.person, &record.sample));
            joins.iter().for_each(|join| {
                collector.value(&join.person, "join_to_connected_ms", Some(join.took_ms));
            });
            (samples.len(), joins.len())
        });
        *seen = (seen.0 + new.0, seen.1 + new.1);
        let due = thresholds.iter().filter(|(_, delay)| *delay <= elapsed);
        for (threshold, _) in due {
            let metric = threshold.metric;
            let reduced = BTreeMap::from([(metric.to_owned(), collector.reduce_one(metric))]);
            let result = threshold.judge(&reduced);
            if let (false, Some(value)) = (result.ok, result.value) {
                return Some(format!(
                    "ended at {:.1} s by abort_on_fail: {} did not hold, it was {}",
                    elapsed.as_secs_f64(),
                    result.expr,
                    short(value)
                ));
            }
        }
        None
    }
}
