//! Counters that wrap, made long: 16-bit sequence numbers and 32-bit timestamps.

/// Signed distance from `b` to `a` on the 16-bit circle: positive when `a` is newer.
#[inline]
pub fn sequence_diff(a: u16, b: u16) -> i16 {
    a.wrapping_sub(b) as i16
}

/// Whether sequence `a` comes after `b` on the 16-bit circle.
#[inline]
pub fn sequence_newer(a: u16, b: u16) -> bool {
    sequence_diff(a, b) > 0
}

/// Signed distance from `b` to `a` on the 32-bit circle: positive when `a` is newer.
#[inline]
pub fn timestamp_diff(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// Whether timestamp `a` comes after `b` on the 32-bit circle.
#[inline]
pub fn timestamp_newer(a: u32, b: u32) -> bool {
    timestamp_diff(a, b) > 0
}

/// Extended numbers that are so far apart are of different streams. The numbers of what goes on as one stream make smaller steps.
/// SRTP would take one of half a cycle for a step back (RFC 3711, section 3.3.1), and nothing after it could be sealed.
pub const ANOTHER_STREAM: u64 = 1 << 14;

/// The extended value of `sequence` that is nearest to `reference`.
#[inline]
pub fn nearest(reference: u64, sequence: u16) -> u64 {
    let difference = i64::from(sequence_diff(sequence, reference as u16));
    // Below cycle 0 there is nothing: such a number can only lie ahead.
    reference.checked_add_signed(difference).unwrap_or(u64::from(sequence))
}

/// The cycle in which a stream begins, so that a late packet from before a wrap stays positive.
pub const FIRST_CYCLE: u64 = 1 << 16;

/// Extends 16-bit sequence numbers to 64 bits, each by its distance to the highest one seen.
///
/// The first number lands in cycle 1, so that a late packet from before a wrap stays positive.
#[derive(Debug, Clone, Copy, Default)]
pub struct SequenceUnwrapper {
    highest: Option<u64>,
}

impl SequenceUnwrapper {
    /// An unwrapper that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The extended value of `sequence`; moves the highest value forward.
    pub fn unwrap(&mut self, sequence: u16) -> u64 {
        let Some(highest) = self.highest else {
            let first = FIRST_CYCLE | u64::from(sequence);
            self.highest = Some(first);
            return first;
        };
        let value = nearest(highest, sequence);
        self.highest = Some(highest.max(value));
        value
    }

    /// The highest extended value so far.
    pub fn highest(&self) -> Option<u64> {
        self.highest
    }
}

/// Extends 32-bit timestamps to 64 bits, each by its distance to the highest one seen.
///
/// The first value lands in cycle 1, as in [`SequenceUnwrapper`].
#[derive(Debug, Clone, Copy, Default)]
pub struct TimestampUnwrapper {
    highest: Option<u64>,
}

impl TimestampUnwrapper {
    /// An unwrapper that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The extended value of `timestamp`; moves the highest value forward.
    pub fn unwrap(&mut self, timestamp: u32) -> u64 {
        let Some(highest) = self.highest else {
            let first = (1 << 32) | u64::from(timestamp);
            self.highest = Some(first);
            return first;
        };
        let diff = i64::from(timestamp_diff(timestamp, highest as u32));
        let value = highest.checked_add_signed(diff).unwrap_or(u64::from(timestamp));
        self.highest = Some(highest.max(value));
        value
    }

    /// The highest extended value so far.
    pub fn highest(&self) -> Option<u64> {
        self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_around_the_wrap() {
        assert!(sequence_newer(0, 65535));
        assert!(!sequence_newer(65535, 0));
        assert!(!sequence_newer(7, 7));
        assert_eq!(sequence_diff(2, 65534), 4);
        assert!(timestamp_newer(5, u32::MAX));
        assert_eq!(timestamp_diff(u32::MAX, 1), -2);
    }

    #[test]
    fn unwraps_forward_and_late_packets() {
        let mut u = SequenceUnwrapper::new();
        let first = u.unwrap(1);
        assert_eq!(u.unwrap(65535), first - 2);
        assert_eq!(u.unwrap(2), first + 1);
        assert_eq!(u.highest(), Some(first + 1));
        let mut u = SequenceUnwrapper::new();
        let first = u.unwrap(65534);
        for i in 1..200_000_u64 {
            assert_eq!(u.unwrap((65534 + i) as u16), first + i);
        }
    }

    #[test]
    fn unwraps_timestamps() {
        let mut u = TimestampUnwrapper::new();
        let first = u.unwrap(u32::MAX - 10);
        assert_eq!(u.unwrap(949), first + 960);
        assert_eq!(u.unwrap(u32::MAX), first + 10);
    }
}
