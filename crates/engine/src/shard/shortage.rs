//! When the CPU is short, packets wait longer and longer until they are read. Pictures then give way to sound: first some
//! receivers get no pictures, then more, until the shortage is over.
//!
//! A machine that stands still for a moment is not short of CPU: what waited meanwhile is read in a few batches, and those after
//! them are in time. So the share of late batches counts, over a span of time in which packets are read.

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
    /// When the last batch was read.
    last: Option<Instant>,
    /// How long the span is by now. A pause between two batches counts as [`CPU_SHORT_WAIT`] at most.
    span: Duration,
    /// Batches in it, and those of them that were late.
    batches: u32,
    late: u32,
    /// Spans in time since the last short one, or since the last part got pictures again.
    in_time: u32,
}

impl Shortage {
    /// A batch is read whose first packet waited so long.
    pub(crate) fn waited(&mut self, now: Instant, wait: Duration) {
        let last = self.last.replace(now).unwrap_or(now);
        self.span += now.saturating_duration_since(last).min(CPU_SHORT_WAIT);
        let late = wait >= CPU_SHORT_WAIT;
        self.batches += 1;
        self.late += u32::from(late);
        if self.span >= CPU_SHORT_FOR {
            self.judge(late);
            (self.span, self.batches, self.late) = (Duration::ZERO, 0, 0);
        }
    }

    /// Takes pictures from a part of the receivers, or gives them back to one, by the span that is over. `late`: its last
    /// batch still was.
    fn judge(&mut self, late: bool) {
        if late && self.late * 2 > self.batches {
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
        // Over: a part a second, even if one batch in ten is late.
        let wait = |n| if n % 10 == 0 { 50 } else { 1 };
        (0..=250).for_each(|n| shortage.waited(start + ms(7000 + 10 * n), ms(wait(n))));
        assert_eq!(held(&shortage), 12);
        (0..1000).for_each(|n| shortage.waited(start + ms(10_000 + 10 * n), ms(1)));
        assert_eq!(held(&shortage), 0);
    }

    #[test]
    fn a_few_large_batches_that_are_late_are_a_shortage() {
        let start = Instant::now();
        let mut shortage = Shortage::default();
        (0..=20).for_each(|n| shortage.waited(start + ms(100 * n), ms(300)));
        assert_eq!(held(&shortage), 8, "4 of 8 parts");
    }

    #[test]
    fn one_hiccup_is_none() {
        let start = Instant::now();
        let mut shortage = Shortage::default();
        (0..15).for_each(|n| shortage.waited(start + ms(10 * n), ms(150 - 10 * n)));
        (15..40).for_each(|n| shortage.waited(start + ms(10 * n), ms(1)));
        assert_eq!(held(&shortage), 0);
    }

    /// Lets a machine run and stand still by turns, and read in batches of 32 packets what came meanwhile.
    fn stands_still(
        shortage: &mut Shortage,
        start: Instant,
        pause_ms: u64,
        runs_ms: u64,
        rate: u64,
    ) {
        for round in 1..=20 {
            let ends = start + ms(round * (pause_ms + runs_ms) - runs_ms);
            for batch in 0..(pause_ms * rate / 1000).div_ceil(32) {
                shortage.waited(ends, ms(pause_ms - batch * 32 * 1000 / rate));
            }
            let step_ms = (1000 / rate).max(5);
            (1..runs_ms / step_ms).for_each(|n| shortage.waited(ends + ms(n * step_ms), ms(1)));
        }
    }

    #[test]
    fn pauses_of_the_machine_are_none() {
        let start = Instant::now();
        for (pause_ms, rate) in
            [(50, 50), (250, 50), (250, 1000), (500, 500), (1000, 50), (1000, 300)]
        {
            for runs_ms in (100..1000).step_by(5) {
                let mut shortage = Shortage::default();
                stands_still(&mut shortage, start, pause_ms, runs_ms, rate);
                assert_eq!(held(&shortage), 0, "{pause_ms} ms, {runs_ms} between, {rate} a second");
            }
        }
    }

    #[test]
    fn pauses_of_the_machine_keep_no_pictures_away() {
        let start = Instant::now();
        let mut shortage = Shortage::default();
        (0..=25).for_each(|n| shortage.waited(start + ms(10 * n), ms(80)));
        assert_eq!(held(&shortage), 2);
        stands_still(&mut shortage, start + ms(300), 100, 500, 150);
        assert_eq!(held(&shortage), 0);
    }
}
