//! Lines of the log that would come too often: one a minute is written, and says how many it stands for.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// From one line to the next.
const PAUSE: Duration = Duration::from_secs(60);

/// When a line was written, and what happened since then.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// Something happened; says whether to write a line, and how often it happened since the last one, this time
    /// included.
    pub(crate) fn happens(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 += 1;
        if state.0.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            return None;
        }
        state.0 = Some(now);
        Some(std::mem::take(&mut state.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_counts_what_it_stands_for() {
        let (seldom, begin) = (Seldom::default(), Instant::now());
        let after = |seconds| seldom.happens(begin + Duration::from_secs(seconds));
        assert_eq!(after(0), Some(1));
        assert_eq!(after(1), None);
        assert_eq!(after(59), None);
        assert_eq!(after(60), Some(3));
        assert_eq!(after(119), None);
        assert_eq!(after(300), Some(2));
    }
}
