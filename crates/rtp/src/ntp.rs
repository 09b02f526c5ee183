//! NTP timestamps as RTCP carries them.

use std::time::Duration;

/// Seconds from 1900-01-01 to 1970-01-01.
const UNIX_OFFSET_S: u64 = 2_208_988_800;

/// An NTP timestamp, 32.32 fixed point seconds since 1900 (RFC 3550 §4). It wraps in 2036.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ntp(pub u64);

impl Ntp {
    /// The timestamp at a time since the Unix epoch.
    pub fn from_unix(since_epoch: Duration) -> Self {
        let seconds = since_epoch.as_secs().wrapping_add(UNIX_OFFSET_S);
        // Rounded up, so that the way back to nanoseconds (rounded down) is exact.
        let fraction = (u64::from(since_epoch.subsec_nanos()) << 32).div_ceil(1_000_000_000);
        Self((seconds << 32) | fraction)
    }

    /// The time since the Unix epoch; None for a time before it, read in the era of 1900.
    pub fn to_unix(self) -> Option<Duration> {
        let seconds = (self.0 >> 32).checked_sub(UNIX_OFFSET_S)?;
        let nanos = ((self.0 & 0xFFFF_FFFF) * 1_000_000_000) >> 32;
        Some(Duration::new(seconds, nanos as u32))
    }

    /// The middle 32 bits, as report blocks carry them: 16.16 fixed point seconds.
    pub fn middle(self) -> u32 {
        (self.0 >> 16) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_both_ways() {
        let time = Duration::new(1_700_000_000, 123_456_789);
        assert_eq!(Ntp::from_unix(time).to_unix(), Some(time));
        let half = Ntp::from_unix(Duration::from_millis(500));
        assert_eq!(half.0, (UNIX_OFFSET_S << 32) | 0x8000_0000);
        assert_eq!(half.middle(), ((UNIX_OFFSET_S as u32 & 0xFFFF) << 16) | 0x8000);
        assert_eq!(Ntp(0).to_unix(), None);
    }
}
