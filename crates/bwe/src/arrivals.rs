//! Arrival times of feedback on our own clock.

/// The reference time of feedback counts 2^24 units of 64 ms.
const WRAP_US: i64 = (1 << 24) * 64_000;
/// A receiver's clock that jumps further than this between two feedbacks is a new clock.
const MOST_JUMP_US: i64 = 60_000_000;

/// A receiver's clock beside ours. Where it stands is unknown, and only differences count: the first feedback's reference
/// time is taken for the moment when that feedback came.
#[derive(Debug, Default)]
pub(crate) struct ReceiverClock {
    /// The last reference time, and what it is on our clock, both in µs.
    last: Option<(i64, i64)>,
}

impl ReceiverClock {
    /// A feedback came at `now_us` with this reference time. Returns what is to be added to its times.
    pub(crate) fn on_reference(&mut self, now_us: i64, reference_us: i64) -> i64 {
        let ours = match self.last {
            None => now_us,
            Some((last, ours)) => {
                let passed = (reference_us - last + WRAP_US / 2).rem_euclid(WRAP_US) - WRAP_US / 2;
                let ours = ours + passed;
                // It is anchored when it starts: it may be as far ahead or behind as a feedback is late.
                let fits = passed.abs() <= MOST_JUMP_US && (now_us - ours).abs() <= MOST_JUMP_US;
                if fits { ours } else { now_us }
            }
        };
        self.last = Some((reference_us, ours));
        ours - reference_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receivers_clock_goes_on_over_its_wrap_and_starts_anew_after_a_jump() {
        let mut clock = ReceiverClock::default();
        let top = (1 << 23) - 1;
        let at = |units: i64| units * 64_000;
        assert_eq!(clock.on_reference(5_000_000, at(top)), 5_000_000 - at(top));
        // 128 ms later the 24 bits have wrapped.
        let offset = clock.on_reference(5_140_000, at(-(1 << 23) + 1));
        assert_eq!(offset + at(-(1 << 23) + 1), 5_128_000);
        // A day later by their clock, a moment by ours.
        let offset = clock.on_reference(5_200_000, at(-(1 << 23) + 1_350_000));
        assert_eq!(offset + at(-(1 << 23) + 1_350_000), 5_200_000);
        // A clock that runs away in small steps is caught too.
        let mut reference = 0;
        for _ in 0..100_000 {
            reference = (reference + at(900)).rem_euclid(WRAP_US);
            let ours = clock.on_reference(5_200_000, reference) + reference;
            assert!((ours - 5_200_000).abs() <= MOST_JUMP_US);
        }
    }
}
