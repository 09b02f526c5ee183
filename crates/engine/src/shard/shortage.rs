//! When the CPU is short, packets wait longer and longer until they are read. Pictures then give way to sound: first some
//! receivers get no pictures, then more, until the shortage is over.

use super::index::PersonIndex;
use crate::limits::{CPU_ENOUGH_FOR, CPU_SHORT_FOR, CPU_SHORT_WAIT};
use std::time::{Duration, Instant};

/// Receivers are divided into so many parts.
const PARTS: u8 = 8;

/// How short the CPU is.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// How many parts of the receivers get no pictures.
    parts: u8,
    /// Since when packets have waited too long, without a break.
    late_since: Option<Instant>,
    /// Since when they have not, or since when the last part got pictures again.
    prompt_since: Option<Instant>,
}

impl Shortage {
    /// A packet waited so long until it was read.
    pub(crate) fn waited(&mut self, now: Instant, wait: Duration) {
        if wait >= CPU_SHORT_WAIT {
            self.prompt_since = None;
            let since = *self.late_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= CPU_SHORT_FOR {
                self.parts = (self.parts + 1).min(PARTS);
                self.late_since = Some(now);
            }
            return;
        }
        self.late_since = None;
        if self.parts == 0 {
            return;
        }
        let since = *self.prompt_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= CPU_ENOUGH_FOR {
            self.parts -= 1;
            self.prompt_since = Some(now);
        }
    }

    /// How many eighths of the receivers get no pictures.
    pub(crate) fn eighths(&self) -> u8 {
        self.parts
    }

    /// Whether this receiver gets no pictures.
    #[inline]
    pub(crate) fn holds(&self, person: PersonIndex) -> bool {
        (person % usize::from(PARTS)) < usize::from(self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_the_machine_is_no_shortage_and_a_shortage_ends_by_and_by() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut shortage = Shortage::default();
        // One hiccup of 150 ms, then all is well.
        (0..15).for_each(|n| shortage.waited(start + ms(10 * n), ms(150 - 10 * n)));
        assert!(!shortage.holds(0));
        // Ever behind: part after part.
        (0..=45).for_each(|n| shortage.waited(start + ms(1000 + 10 * n), ms(80)));
        assert_eq!((0..16).filter(|person| shortage.holds(*person)).count(), 4, "2 of 8 parts");
        (0..400).for_each(|n| shortage.waited(start + ms(2000 + 10 * n), ms(80)));
        assert!((0..16).all(|person| shortage.holds(person)));
        // Over: a part a second.
        (0..=250).for_each(|n| shortage.waited(start + ms(7000 + 10 * n), ms(1)));
        assert_eq!((0..8).filter(|person| shortage.holds(*person)).count(), 6);
        (0..1000).for_each(|n| shortage.waited(start + ms(10_000 + 10 * n), ms(1)));
        assert!((0..8).all(|person| !shortage.holds(person)));
    }
}
