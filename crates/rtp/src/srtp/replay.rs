//! A window over packet indices, and the estimate of the index from a sequence number.

use crate::extended::sequence_diff;

/// Indices behind the highest one that are remembered, for replay and against reuse.
pub const WINDOW: u64 = 1024;
const WORDS: usize = (WINDOW / 64) as usize;

/// What the window says about an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    New,
    Before,
    TooOld,
}

/// The last [`WINDOW`] indices (RFC 3711 §3.3.2), a ring of bits.
#[derive(Debug, Clone)]
pub(super) struct Window {
    highest: u64,
    bits: [u64; WORDS],
}

impl Window {
    /// A window in which `first` has been seen.
    pub(super) fn new(first: u64) -> Self {
        let mut window = Self { highest: first, bits: [0; WORDS] };
        window.set(first);
        window
    }

    #[inline]
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    #[inline]
    pub(super) fn check(&self, index: u64) -> Seen {
        if index > self.highest {
            return Seen::New;
        }
        if self.highest - index >= WINDOW {
            return Seen::TooOld;
        }
        match self.bits[word(index)] & bit(index) {
            0 => Seen::New,
            _ => Seen::Before,
        }
    }

    /// Remembers an index that [`Window::check`] called new.
    #[inline]
    pub(super) fn mark(&mut self, index: u64) {
        if index > self.highest {
            if index - self.highest >= WINDOW {
                self.bits = [0; WORDS];
            } else {
                for skipped in self.highest + 1..index {
                    self.bits[word(skipped)] &= !bit(skipped);
                }
            }
            self.highest = index;
        }
        self.set(index);
    }

    #[inline]
    fn set(&mut self, index: u64) {
        self.bits[word(index)] |= bit(index);
    }
}

#[inline]
fn word(index: u64) -> usize {
    (index % WINDOW / 64) as usize
}

#[inline]
fn bit(index: u64) -> u64 {
    1 << (index % 64)
}

/// The 48-bit index nearest to `highest` that ends in `sequence` (RFC 3711 §3.3.1, appendix A);
/// None where it would lie before index 0.
#[inline]
pub(super) fn estimate_index(highest: u64, sequence: u16) -> Option<u64> {
    highest.checked_add_signed(i64::from(sequence_diff(sequence, highest as u16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_remembers_exactly_its_length() {
        let mut window = Window::new(10);
        assert_eq!(window.check(10), Seen::Before);
        assert_eq!(window.check(9), Seen::New);
        window.mark(10 + WINDOW - 1);
        assert_eq!(window.check(10), Seen::Before);
        assert_eq!(window.check(11), Seen::New);
        window.mark(10 + WINDOW);
        assert_eq!(window.check(10), Seen::TooOld);
        // The bit of index 10 now stands for 10 + WINDOW.
        assert_eq!(window.check(10 + WINDOW), Seen::Before);
        assert_eq!(window.check(11), Seen::New);
        window.mark(11);
        assert_eq!(window.check(11), Seen::Before);
        window.mark(1_000_000);
        assert_eq!(window.check(1_000_000 - WINDOW + 1), Seen::New);
        assert_eq!(window.check(1_000_000 - WINDOW), Seen::TooOld);
    }

    #[test]
    fn window_agrees_with_a_plain_set() {
        let mut random = crate::testing::Random::new(7);
        let mut window = Window::new(5000);
        let mut set = std::collections::BTreeSet::from([5000_u64]);
        for _ in 0..50_000 {
            let highest = *set.last().unwrap();
            let index = highest + random.below(40) - 20 - random.below(2) * random.below(1500);
            let expected = match index {
                i if i + WINDOW <= highest => Seen::TooOld,
                i if set.contains(&i) => Seen::Before,
                _ => Seen::New,
            };
            assert_eq!(window.check(index), expected);
            if expected == Seen::New {
                window.mark(index);
                set.insert(index);
            }
        }
    }

    #[test]
    fn index_is_the_nearest() {
        assert_eq!(estimate_index(65535, 0), Some(65536));
        assert_eq!(estimate_index(65536, 65535), Some(65535));
        assert_eq!(estimate_index(65536 * 3 + 5, 65530), Some(65536 * 3 - 6));
        assert_eq!(estimate_index(5, 65535), None);
    }
}
