//! Which packets of a received stream to ask for again, and when.

use crate::extended::{FIRST_CYCLE, nearest};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Wait before a first request: packets that are only out of order arrive meanwhile.
pub const REORDER_WAIT: Duration = Duration::from_millis(10);
/// Bounds of the wait between two requests for one packet.
pub const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Requests for one packet, after which it is given up.
pub const MAX_TRIES: u8 = 10;
/// Most missing packets that are tracked.
pub const MAX_MISSING: usize = 1000;
/// Most sequence numbers of one answer of [`NackGenerator::due`].
pub const MAX_DUE: usize = 128;

/// What a packet was to the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// Newer than all before it.
    New,
    /// One that was missing.
    Recovered,
    /// Neither: a copy, or too late to matter.
    Old,
}

#[derive(Debug, Clone, Copy)]
struct Missing {
    sequence: u64,
    due: Instant,
    tries: u8,
}

/// Tracks the missing sequence numbers of one received stream (RFC 4585 §6.2.1).
#[derive(Debug)]
pub struct NackGenerator {
    /// The newest number seen.
    highest: Option<u64>,
    /// Ascending by sequence.
    missing: VecDeque<Missing>,
    retry: Duration,
    keyframe_needed: bool,
    abandoned: u64,
}

impl Default for NackGenerator {
    fn default() -> Self {
        Self::new()
    }
}

impl NackGenerator {
    /// A generator that has seen nothing.
    pub fn new() -> Self {
        Self {
            highest: None,
            missing: VecDeque::new(),
            retry: Duration::from_millis(100),
            keyframe_needed: false,
            abandoned: 0,
        }
    }

    /// Sets the round-trip time: a packet is asked for again after about one.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.retry = rtt.clamp(RETRY_WAIT.0, RETRY_WAIT.1);
    }

    /// A new stream begins: nothing of the old one is asked for any more.
    pub fn restart(&mut self) {
        *self = Self { retry: self.retry, abandoned: self.abandoned, ..Self::new() };
    }

    /// Takes note of a packet (also of one repaired by RTX, with its original sequence number).
    pub fn push(&mut self, sequence: u16, now: Instant) -> Pushed {
        let first = FIRST_CYCLE | u64::from(sequence);
        self.push_number(self.highest.map_or(first, |highest| nearest(highest, sequence)), now)
    }

    /// The same where the number is known with its rollovers.
    pub fn push_number(&mut self, sequence: u64, now: Instant) -> Pushed {
        let Some(highest) = self.highest else {
            self.highest = Some(sequence);
            return Pushed::New;
        };
        if sequence <= highest {
            let found = self.missing.binary_search_by_key(&sequence, |m| m.sequence);
            return match found {
                Ok(at) => {
                    self.missing.remove(at);
                    Pushed::Recovered
                }
                Err(_) => Pushed::Old,
            };
        }
        self.highest = Some(sequence);
        let gap = sequence - highest - 1;
        if gap + self.missing.len() as u64 > MAX_MISSING as u64 {
            self.abandoned = self.abandoned.saturating_add(gap + self.missing.len() as u64);
            self.missing.clear();
            self.keyframe_needed = true;
            return Pushed::New;
        }
        let due = now + REORDER_WAIT;
        self.missing.extend((highest + 1..sequence).map(|sequence| Missing {
            sequence,
            due,
            tries: 0,
        }));
        Pushed::New
    }

    /// Appends to `out` the sequence numbers to ask for now, at most [`MAX_DUE`], ascending. Each
    /// counts as asked for.
    pub fn due(&mut self, now: Instant, out: &mut Vec<u16>) {
        let before = self.missing.len();
        self.missing.retain(|m| m.tries < MAX_TRIES || m.due > now);
        let given_up = before - self.missing.len();
        if given_up > 0 {
            self.abandoned += given_up as u64;
            self.keyframe_needed = true;
        }
        for missing in self.missing.iter_mut().filter(|m| m.due <= now).take(MAX_DUE) {
            missing.tries += 1;
            missing.due = now + self.retry;
            out.push(missing.sequence as u16);
        }
    }

    /// When [`NackGenerator::due`] has something to do next.
    pub fn next_due(&self) -> Option<Instant> {
        self.missing.iter().map(|m| m.due).min()
    }

    /// Forgets what is missing before `sequence`: a keyframe starts there, nobody needs it.
    pub fn clear_before(&mut self, sequence: u16) {
        let Some(highest) = self.highest else { return };
        let limit = nearest(highest, sequence);
        let count = self.missing.partition_point(|m| m.sequence < limit);
        self.missing.drain(..count);
    }

    /// Whether packets were given up since the last call, so that only a keyframe repairs video.
    pub fn take_keyframe_needed(&mut self) -> bool {
        std::mem::take(&mut self.keyframe_needed)
    }

    /// Packets that are missing and still asked for.
    pub fn missing_count(&self) -> usize {
        self.missing.len()
    }

    /// Packets given up, in all.
    pub fn abandoned_count(&self) -> u64 {
        self.abandoned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn due(nack: &mut NackGenerator, now: Instant) -> Vec<u16> {
        let mut out = Vec::new();
        nack.due(now, &mut out);
        out
    }

    #[test]
    fn asks_after_the_reorder_wait_then_once_a_round_trip_then_gives_up() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut nack = NackGenerator::new();
        nack.set_rtt(Duration::from_millis(50));
        assert_eq!(nack.push(65_534, at(0)), Pushed::New);
        assert_eq!(nack.push(1, at(0)), Pushed::New);
        assert_eq!(nack.next_due(), Some(at(10)));
        assert!(due(&mut nack, at(9)).is_empty());
        assert_eq!(nack.push(0, at(9)), Pushed::Recovered);
        assert_eq!(due(&mut nack, at(10)), [65_535]);
        assert!(due(&mut nack, at(59)).is_empty());
        for i in 1..10 {
            assert_eq!(due(&mut nack, at(10 + i * 50)), [65_535]);
        }
        assert!(!nack.take_keyframe_needed());
        assert!(due(&mut nack, at(510)).is_empty());
        assert!(nack.take_keyframe_needed() && !nack.take_keyframe_needed());
        assert_eq!((nack.missing_count(), nack.abandoned_count()), (0, 1));
        assert_eq!(nack.push(65_535, at(511)), Pushed::Old);
        assert_eq!(nack.next_due(), None);
    }

    #[test]
    fn waits_are_bounded() {
        let start = Instant::now();
        for (rtt, wait) in [(1, 20), (90, 90), (400, 400), (5000, 1000)] {
            let mut nack = NackGenerator::new();
            nack.set_rtt(Duration::from_millis(rtt));
            nack.push(1, start);
            nack.push(3, start);
            let asked = start + REORDER_WAIT;
            assert_eq!(due(&mut nack, asked), [2]);
            assert_eq!(nack.next_due(), Some(asked + Duration::from_millis(wait)));
        }
    }

    #[test]
    fn a_jump_resets_and_asks_for_a_keyframe() {
        let now = Instant::now();
        let mut nack = NackGenerator::new();
        nack.push(0, now);
        nack.push(10, now);
        assert_eq!(nack.missing_count(), 9);
        nack.push(1001, now);
        assert_eq!(nack.missing_count(), 999);
        nack.push(1004, now);
        assert_eq!((nack.missing_count(), nack.abandoned_count()), (0, 1001));
        assert!(nack.take_keyframe_needed());
        nack.push(1006, now);
        assert_eq!(due(&mut nack, now + REORDER_WAIT), [1005]);
    }

    #[test]
    fn a_keyframe_makes_older_losses_unneeded() {
        let now = Instant::now();
        let mut nack = NackGenerator::new();
        nack.push(65_530, now);
        nack.push(3, now);
        nack.clear_before(1);
        assert_eq!(due(&mut nack, now + REORDER_WAIT), [1, 2]);
    }

    #[test]
    fn answers_are_bounded_and_ascend() {
        let now = Instant::now();
        let mut nack = NackGenerator::new();
        nack.push(0, now);
        nack.push(301, now);
        let mut all = Vec::new();
        for _ in 0..3 {
            let some = due(&mut nack, now + REORDER_WAIT);
            assert!(some.len() <= MAX_DUE && !some.is_empty());
            all.extend(some);
        }
        assert_eq!(all, (1..=300).collect::<Vec<_>>());
    }

    #[test]
    fn asks_for_exactly_what_is_lost() {
        let start = Instant::now();
        let mut random = Random::new(31);
        let mut nack = NackGenerator::new();
        let mut lost = Vec::new();
        let mut asked = Vec::new();
        for i in 0..100_000_u64 {
            let now = start + Duration::from_millis(i);
            let sequence = (i + 60_000) as u16;
            if i > 0 && i < 99_000 && random.below(50) == 0 {
                lost.push(sequence);
                continue;
            }
            nack.push(sequence, now);
            let some = due(&mut nack, now);
            for sequence in &some {
                assert_eq!(nack.push(*sequence, now), Pushed::Recovered);
            }
            asked.extend(some);
        }
        assert_eq!(asked, lost);
        assert_eq!((nack.missing_count(), nack.abandoned_count()), (0, 0));
    }
}
