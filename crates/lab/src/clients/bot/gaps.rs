//! Gaps in the sound that comes.

use rtp::extended::timestamp_diff;
use std::time::{Duration, Instant};

/// Opus' clock (RFC 7587, section 4.1).
const SOUND_HZ: f64 = 48_000.0;

/// By how much packets of one track came later than they follow the ones before: how long it would be silent if each were played
/// as it comes. A packet that did not come makes no gap here.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// When the newest packet came, and its timestamp.
    last: Option<(Instant, u32)>,
    longest: Duration,
}

impl Gaps {
    /// A packet came.
    pub(super) fn came(&mut self, timestamp: u32, now: Instant) {
        let Some((at, before)) = self.last else {
            self.last = Some((now, timestamp));
            return;
        };
        // One that others overtook.
        let Ok(samples) = u32::try_from(timestamp_diff(timestamp, before)) else { return };
        self.last = Some((now, timestamp));
        let follows = Duration::from_secs_f64(f64::from(samples) / SOUND_HZ);
        let gap = now.saturating_duration_since(at).saturating_sub(follows);
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
    fn what_comes_later_than_it_follows_is_a_gap() {
        let begin = Instant::now();
        let mut gaps = Gaps::default();
        let mut come = |ms: u64, tick: u32| {
            // The clock wraps on the way.
            let timestamp = u32::MAX.wrapping_sub(1_000).wrapping_add(960 * tick);
            gaps.came(timestamp, begin + Duration::from_millis(ms));
            gaps.take().as_millis()
        };
        assert_eq!((come(0, 0), come(20, 1)), (0, 0));
        assert_eq!(come(60, 3), 0, "one did not come, and the next is in time");
        assert_eq!(come(460, 23), 0, "a pause");
        assert_eq!(come(550, 24), 70);
        assert_eq!(come(551, 25), 0, "it waited with the one before");
        assert_eq!((come(552, 24), come(580, 26)), (0, 9), "a late copy changes nothing");
    }
}
