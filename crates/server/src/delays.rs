//! Delays that the engine counts, in the metrics.

use crate::metrics::{Histogram, Metrics};
use engine::mix::{DELAY_BOUNDS_MS, DelayCounts};

/// The bounds of [`DELAY_BOUNDS_MS`], in seconds.
const BOUNDS_S: [f64; DELAY_BOUNDS_MS.len()] = {
    let (mut seconds, mut at) = ([0.0; DELAY_BOUNDS_MS.len()], 0);
    while at < seconds.len() {
        seconds[at] = DELAY_BOUNDS_MS[at] as f64 / 1e3;
        at += 1;
    }
    seconds
};

/// One histogram of a thread.
pub(crate) struct Delays {
    histogram: Histogram,
    told: DelayCounts,
}

impl Delays {
    pub(crate) fn new(
        name: &'static str,
        help: &'static str,
        thread: &str,
        metrics: &Metrics,
    ) -> Self {
        let labels = &[("thread", thread)];
        let histogram = metrics.registry.histogram(name, help, labels, &BOUNDS_S);
        Self { histogram, told: DelayCounts::default() }
    }

    /// Hands over what was counted since it was last done.
    pub(crate) fn publish(&mut self, now: &DelayCounts) {
        let counts = now.counts.iter().zip(&self.told.counts).map(|(now, told)| now - told);
        self.histogram.add(counts, (now.sum_ms - self.told.sum_ms) as f64 / 1e3);
        self.told.clone_from(now);
    }
}
