//! When the CPU is short, packets wait longer and longer until they are read. Pictures then give way to sound: first some
//! receivers get no pictures, then more, until the shortage is over.
//!
//! A machine that stands still for a moment is not short of CPU, however often that happens: what waited meanwhile is read in a
//! few batches, and the batches after them are in time. So the share of late batches counts.

use super::index::PersonIndex;
use crate::limits::{CPU_ENOUGH_FOR, CPU_JUDGED_BY, CPU_SHORT_FOR, CPU_SHORT_WAIT};
use std::time::{Duration, Instant};

/// Receivers are divided into so many parts.
const PARTS: u8 = 8;

/// How short the CPU is.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// How many parts of the receivers get no pictures.
    parts: u8,
    /// When the span that is counted began.
    since: Option<Instant>,
    /// Batches in it, and those of them that were late.
    batches: u32,
    late: u32,
    /// Spans in time since the last that was not, or since the last part got pictures again.
    in_time: u32,
}

impl Shortage {
    /// The first packet of a batch waited so long until it was read.
    pub(crate) fn waited(&mut self, now: Instant, wait: Duration) {
        let since = *self.since.get_or_insert(now);
        self.batches += 1;
        self.late += u32::from(wait >= CPU_SHORT_WAIT);
        if now.saturating_duration_since(since) >= CPU_SHORT_FOR && self.batches >= CPU_JUDGED_BY {
            self.judge();
            (self.since, self.batches, self.late) = (Some(now), 0, 0);
        }
    }

    /// Takes pictures from a part of the receivers, or gives them back to one, by the span that is over.
    fn judge(&mut self) {
        if self.late * 2 > self.batches {
            self.parts = (self.parts + 1).min(PARTS);
            self.in_time = 0;
        } else if self.late * 8 <= self.batches {
            self.in_time += 1;
            if self.in_time >= CPU_ENOUGH_FOR {
                self.parts = self.parts.saturating_sub(1);
                self.in_time = 0;
            }
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

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn held(shortage: &Shortage) -> usize {
        (0..16).filter(|person| shortage.holds(*person)).count()
    }

    #[test]
    fn a_shortage_takes_pictures_from_more_and_more_and_ends_by_and_by() {
        let start = Instant::now();
        let mut shortage = Shortage::default();
        // Ever behind: part after part.
        (0..=45).for_each(|n| shortage.waited(start + ms(10 * n), ms(80)));
        assert_eq!(held(&shortage), 4, "2 of 8 parts");
        (0..400).for_each(|n| shortage.waited(start + ms(1000 + 10 * n), ms(80)));
        assert_eq!(held(&shortage), 16);
        // A few large batches, each of them late, are a shortage as well.
        (0..20).for_each(|n| shortage.waited(start + ms(5000 + 100 * n), ms(300)));
        assert_eq!(held(&shortage), 16);
        // Over: a part a second, even if one batch in ten is late.
        (0..=250).for_each(|n| {
            shortage.waited(start + ms(7000 + 10 * n), ms(if n % 10 == 0 { 50 } else { 1 }))
        });
        assert_eq!(held(&shortage), 12);
        (0..1000).for_each(|n| shortage.waited(start + ms(10_000 + 10 * n), ms(1)));
        assert_eq!(held(&shortage), 0);
    }

    /// A machine that stands still for 50 to 1000 ms twice a second, and reads in batches of 32 packets what came meanwhile.
    #[test]
    fn pauses_of_the_machine_are_no_shortage() {
        let start = Instant::now();
        for (pause_ms, packets_a_second) in
            [(50, 50), (250, 50), (250, 2000), (1000, 50), (1000, 300)]
        {
            let mut shortage = Shortage::default();
            for round in 0..20 {
                let ends = start + ms(round * (pause_ms + 250));
                for batch in 0..(pause_ms * packets_a_second / 1000).div_ceil(32) {
                    let waited = pause_ms - batch * 32 * 1000 / packets_a_second;
                    shortage.waited(ends, ms(waited));
                }
                let step_ms = (1000 / packets_a_second).max(5);
                (0..250 / step_ms).for_each(|n| shortage.waited(ends + ms(n * step_ms), ms(1)));
                assert_eq!(
                    held(&shortage),
                    0,
                    "{pause_ms} ms, {packets_a_second} a second, pause {round}"
                );
            }
        }
    }
}
