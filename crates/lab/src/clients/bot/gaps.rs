//! Gaps in the sound that comes.

use rtp::extended::timestamp_diff;
use std::time::{Duration, Instant};

/// Opus' clock (RFC 7587, section 4.1).
const SOUND_HZ: f64 = 48_000.0;

/// The longest packet of a mix, which goes on without a pause: a step beyond it is sound that was never made.
const LONGEST_OF_MIX: Duration = Duration::from_millis(60);

/// How much later than due packets came. A packet is due when the one before it has been played: after the step of their timestamps.
/// So what was lost makes no gap. In a mix a step counts as 60 ms at most.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// When the newest packet came, and its timestamp.
    last: Option<(Instant, u32)>,
    longest: Duration,
}

impl Gaps {
    /// A packet came.
    pub(super) fn came(&mut self, timestamp: u32, mix: bool, now: Instant) {
        let Some((at, before)) = self.last else {
            self.last = Some((now, timestamp));
            return;
        };
        // One that others overtook.
        let Ok(samples) = u32::try_from(timestamp_diff(timestamp, before)) else { return };
        self.last = Some((now, timestamp));
        let step = Duration::from_secs_f64(f64::from(samples) / SOUND_HZ);
        let due = if mix { step.min(LONGEST_OF_MIX) } else { step };
        let gap = now.saturating_duration_since(at).saturating_sub(due);
        self.longest = self.longest.max(gap);
    }

    /// The longest gap since it was last asked for.
    pub(super) fn take(&mut self) -> Duration {
        std::mem::take(&mut self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_later_than_it_is_due_is_a_gap() {
        let begin = Instant::now();
        let mut gaps = Gaps::default();
        let mut come = |ms: u64, tick: u32| {
            // The clock wraps on the way.
            let timestamp = u32::MAX.wrapping_sub(1_000).wrapping_add(960 * tick);
            gaps.came(timestamp, false, begin + Duration::from_millis(ms));
            gaps.take().as_millis()
        };
        assert_eq!((come(0, 0), come(20, 1)), (0, 0));
        assert_eq!(come(60, 3), 0, "one did not come, and the next is in time");
        assert_eq!(come(460, 23), 0, "a pause");
        assert_eq!(come(550, 24), 70);
        assert_eq!(come(551, 25), 0, "it waited with the one before");
        assert_eq!((come(552, 24), come(580, 26)), (0, 9), "a late copy changes nothing");
    }

    #[test]
    fn a_mix_that_leaves_ticks_out_has_a_gap() {
        let begin = Instant::now();
        let mut gaps = Gaps::default();
        let mut come = |ms: u64, tick: u32| {
            gaps.came(960 * tick, true, begin + Duration::from_millis(ms));
            gaps.take().as_millis()
        };
        assert_eq!((come(0, 0), come(60, 3), come(120, 6)), (0, 0, 0), "packets of 60 ms");
        assert_eq!(come(620, 31), 440, "the mixer stood still, and its ticks went on");
    }
}
