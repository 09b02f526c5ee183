//! Time as the engine sees it: an argument, never a clock.

use std::time::{Duration, Instant};

/// The time, read once a batch by whoever drives the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time.
    pub at: Instant,
    /// Wall clock since the Unix epoch; stands in sender reports.
    pub unix: Duration,
}

impl Now {
    /// This time and a span more.
    pub fn plus(self, span: Duration) -> Self {
        Self { at: self.at + span, unix: self.unix + span }
    }
}
