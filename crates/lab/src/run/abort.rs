//! Thresholds that end a run as soon as they fail (`abort_on_fail`).

use crate::base::short;
use crate::judge::threshold::{Threshold, Windows};
use crate::people::sockets::Counted;
use crate::people::stage::{Stage, Told};
use crate::scenario::Scenario;
use std::time::Duration;

/// Looks at all that was sampled and counted so far; each sample is taken once.
#[derive(Debug)]
pub(super) struct Abort<'a> {
    thresholds: Vec<(&'a Threshold, Duration)>,
    windows: Windows,
    told: Told,
}

impl<'a> Abort<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let ending = |threshold: &'a Threshold| Some((threshold, threshold.abort?));
        let thresholds: Vec<_> = scenario.thresholds.iter().filter_map(ending).collect();
        let windows = Windows::new(thresholds.iter().map(|(threshold, _)| *threshold));
        Self { thresholds, windows, told: Told::default() }
    }

    /// Which threshold fails by now, in words. A threshold of which nothing was measured yet does not
    /// count: it fails at the end.
    pub(super) fn look(
        &mut self,
        stage: &Stage,
        sockets: impl FnOnce() -> Counted,
        elapsed: Duration,
    ) -> Option<String> {
        if self.thresholds.is_empty() {
            return None;
        }
        let Self { thresholds, windows, told } = self;
        stage.since(told, |samples, joins| {
            samples.iter().for_each(|record| windows.add(record));
            joins.iter().for_each(|join| windows.join(join));
        });
        windows.sockets(sockets());
        let due = thresholds.iter().filter(|(_, delay)| *delay <= elapsed);
        for (threshold, _) in due {
            let result = windows.judge(threshold);
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
