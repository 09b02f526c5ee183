//! Which packets of a received stream to ask for again, and when.

use crate::extended::{FIRST_CYCLE, nearest};
use crate::losses::Losses;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Wait before a first request: packets that are only out of order arrive meanwhile. Where they come later, it is longer…
pub const REORDER_WAIT: Duration = Duration::from_millis(10);
/// …up to this, and to half of a round trip.
pub const REORDER_WAIT_MOST: Duration = Duration::from_millis(40);
/// What is left of a longer wait with each packet that is missing.
const REORDER_MEMORY: f64 = 0.98;
/// Where many packets are missing, each is asked for twice in a row, so long after each other: requests are lost as well.
const REPEAT_WAIT: Duration = Duration::from_millis(15);
/// Where many packets are missing: a frame whose last packet has not come so long after the one before it lacks that one.
const TAIL_WAIT: Duration = Duration::from_millis(15);
/// Bounds of the wait between two requests for one packet.
pub const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Requests for one packet, after which it is given up.
pub const MAX_TRIES: u8 = 10;
/// Most missing packets that are tracked.
pub const MAX_MISSING: usize = 1000;
/// Most sequence numbers of one answer of [`NackGenerator::due`].
pub const MAX_DUE: usize = 128;

/// The longest round-trip time lately, in ms, from what that was and a new one: answers that come a little later than
/// usual are waited for.
pub fn longest_lately(known: Option<f64>, rtt_ms: f64) -> f64 {
    known.map_or(rtt_ms, |known| rtt_ms.max(known + (rtt_ms - known) / 8.0))
}

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
    /// When a later packet came.
    since: Instant,
    /// When it was asked for first.
    asked: Option<Instant>,
    due: Instant,
    tries: u8,
    /// When it is asked for anew, if the next request only repeats the last one.
    anew: Option<Instant>,
}

/// Tracks the missing sequence numbers of one received stream (RFC 4585 §6.2.1).
#[derive(Debug)]
pub struct NackGenerator {
    /// The newest number seen.
    highest: Option<u64>,
    /// Ascending by sequence.
    missing: VecDeque<Missing>,
    /// When the newest packet came, if its frame goes on.
    unfinished: Option<Instant>,
    /// How long packets that overtake each other are waited for.
    wait: Duration,
    /// How many were asked for.
    losses: Losses,
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
            unfinished: None,
            wait: REORDER_WAIT,
            losses: Losses::default(),
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

    /// Packets were dropped on purpose: nothing that is missing is asked for, and the next number begins anew. Only a keyframe
    /// repairs video.
    #[inline]
    pub fn give_up(&mut self) {
        if self.highest.take().is_some() {
            self.abandoned = self.abandoned.saturating_add(self.missing.len() as u64);
            self.missing.clear();
            self.unfinished = None;
            self.keyframe_needed = true;
        }
    }

    /// Takes note of a packet (also of one repaired by RTX, with its original sequence number).
    pub fn push(&mut self, sequence: u16, now: Instant) -> Pushed {
        let first = FIRST_CYCLE | u64::from(sequence);
        self.push_number(self.highest.map_or(first, |highest| nearest(highest, sequence)), now)
    }

    /// Whether a packet is missing that was asked for.
    pub fn was_asked_for(&self, sequence: u16) -> bool {
        let number = self.highest.map(|highest| nearest(highest, sequence));
        let found = number.and_then(|number| {
            self.missing.binary_search_by_key(&number, |missing| missing.sequence).ok()
        });
        found.is_some_and(|at| self.missing[at].asked.is_some())
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
                    self.missing.remove(at).iter().for_each(|missing| self.came(missing, now));
                    Pushed::Recovered
                }
                Err(_) => Pushed::Old,
            };
        }
        (self.highest, self.unfinished) = (Some(sequence), None);
        let gap = sequence - highest - 1;
        self.losses.sent(u32::try_from(gap + 1).unwrap_or(u32::MAX));
        if gap + self.missing.len() as u64 > MAX_MISSING as u64 {
            self.abandoned = self.abandoned.saturating_add(gap + self.missing.len() as u64);
            self.missing.clear();
            self.keyframe_needed = true;
            return Pushed::New;
        }
        if gap > 0 {
            self.wait = self.wait.mul_f64(REORDER_MEMORY).max(REORDER_WAIT);
        }
        let due = now + self.wait.min(self.retry / 2).max(REORDER_WAIT);
        self.missing.extend((highest + 1..sequence).map(|sequence| Missing {
            sequence,
            since: now,
            asked: None,
            due,
            tries: 0,
            anew: None,
        }));
        Pushed::New
    }

    /// The packet with this number, which just came, is not the last one of its frame. If that one is lost, only the next
    /// frame shows it: it is asked for before. To be called after [`NackGenerator::push_number`].
    pub fn frame_goes_on(&mut self, sequence: u64, now: Instant) {
        if self.highest == Some(sequence) {
            self.unfinished = Some(now);
        }
    }

    /// When the packet after the newest one is taken to be missing.
    fn tail_due(&self) -> Option<Instant> {
        let wait = self.wait.max(TAIL_WAIT);
        self.unfinished.filter(|_| self.losses.are_many()).map(|since| since + wait)
    }

    /// Takes the packet after the newest one for missing, if it is time.
    fn look_for_tail(&mut self, now: Instant) {
        let (Some(due), Some(highest)) = (self.tail_due(), self.highest) else { return };
        if now < due || self.missing.len() == MAX_MISSING {
            return;
        }
        let sequence = highest + 1;
        (self.highest, self.unfinished) = (Some(sequence), None);
        self.losses.sent(1);
        let (asked, anew) = (None, None);
        self.missing.push_back(Missing { sequence, since: now, asked, due: now, tries: 0, anew });
    }

    /// A packet that was missing came. If it came sooner than it can have been sent again, it was only overtaken.
    fn came(&mut self, missing: &Missing, now: Instant) {
        let soon = |asked| now.saturating_duration_since(asked) < self.retry / 2;
        let overtaken = missing.asked.is_none_or(soon);
        if overtaken {
            let late = now.saturating_duration_since(missing.since) + Duration::from_millis(1);
            self.wait = self.wait.max(late).min(REORDER_WAIT_MOST);
        }
    }

    /// Appends to `out` the sequence numbers to ask for now, at most [`MAX_DUE`], ascending. Each
    /// counts as asked for.
    pub fn due(&mut self, now: Instant, out: &mut Vec<u16>) {
        self.look_for_tail(now);
        let before = self.missing.len();
        self.missing.retain(|m| m.tries < MAX_TRIES || m.anew.is_some() || m.due > now);
        let given_up = before - self.missing.len();
        if given_up > 0 {
            self.abandoned += given_up as u64;
            self.keyframe_needed = true;
        }
        for missing in self.missing.iter_mut().filter(|m| m.due <= now).take(MAX_DUE) {
            if missing.asked.is_none() {
                missing.asked = Some(now);
                self.losses.lost();
            }
            if let Some(anew) = missing.anew.take() {
                missing.due = anew;
            } else {
                missing.tries += 1;
                missing.due = now + self.retry;
                if self.losses.are_many() && self.retry > REPEAT_WAIT {
                    missing.anew = Some(missing.due);
                    missing.due = now + REPEAT_WAIT;
                }
            }
            out.push(missing.sequence as u16);
        }
    }

    /// When [`NackGenerator::due`] has something to do next.
    pub fn next_due(&self) -> Option<Instant> {
        self.missing.iter().map(|m| m.due).chain(self.tail_due()).min()
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

    /// Whether there is something to ask for, now or soon.
    pub fn is_pending(&self) -> bool {
        !self.missing.is_empty() || self.tail_due().is_some()
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
    fn what_was_dropped_on_purpose_is_not_missing_and_only_a_keyframe_makes_it_good() {
        let now = Instant::now();
        let mut nack = NackGenerator::new();
        nack.give_up();
        assert!(!nack.take_keyframe_needed(), "nothing came yet");
        nack.push(10, now);
        nack.push(12, now);
        nack.give_up();
        assert_eq!((nack.missing_count(), nack.abandoned_count()), (0, 1));
        assert!(nack.take_keyframe_needed());
        assert_eq!(nack.push(500, now), Pushed::New);
        assert!(!nack.is_pending(), "the next number begins anew");
        nack.push(502, now);
        assert_eq!(nack.missing_count(), 1);
    }

    #[test]
    fn where_many_are_missing_the_end_of_a_frame_is_asked_for_before_the_next_frame_comes() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut nack = NackGenerator::new();
        nack.push_number(1000, at(0));
        nack.frame_goes_on(1000, at(0));
        assert!(
            !nack.is_pending() && due(&mut nack, at(100)).is_empty(),
            "nothing was lost so far"
        );
        // One of ten is lost, and the last number is that of a frame that goes on.
        for n in (1001..1400).filter(|n| n % 10 != 0) {
            nack.push_number(n, at(n));
            due(&mut nack, at(n + 500));
        }
        nack.missing.clear();
        nack.frame_goes_on(1398, at(3000));
        assert!(!nack.is_pending(), "it is not the newest");
        nack.frame_goes_on(1399, at(3000));
        let wait = nack.wait.max(TAIL_WAIT);
        assert_eq!(nack.next_due(), Some(at(3000) + wait));
        assert!(due(&mut nack, at(3000) + wait - Duration::from_millis(1)).is_empty());
        assert_eq!(due(&mut nack, at(3000) + wait), [1400]);
        assert_eq!(nack.push_number(1400, at(3060)), Pushed::Recovered);
        assert!(!nack.is_pending(), "its frame ends");
        nack.push_number(1401, at(3070));
        nack.frame_goes_on(1401, at(3070));
        nack.push_number(1402, at(3075));
        assert!(!nack.is_pending() && due(&mut nack, at(4000)).is_empty(), "it came");
    }

    #[test]
    fn where_many_are_missing_requests_are_repeated_once_each_and_given_up_after_as_many_rounds() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut nack = NackGenerator::new();
        nack.set_rtt(Duration::from_millis(60));
        nack.losses.sent(u32::MAX);
        (0..100).for_each(|_| nack.losses.lost());
        nack.losses.sent(1000);
        nack.push_number(1000, at(0));
        nack.push_number(1002, at(0));
        let asked: Vec<u64> = (0..2000).filter(|ms| !due(&mut nack, at(*ms)).is_empty()).collect();
        let rounds = (0..u64::from(MAX_TRIES)).flat_map(|n| [10 + 60 * n, 25 + 60 * n]);
        assert_eq!(asked, rounds.collect::<Vec<_>>());
        assert!(nack.take_keyframe_needed());
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
    fn packets_that_overtake_each_other_are_waited_for_and_asked_for_soon_again_once_they_do_not() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut nack = NackGenerator::new();
        nack.set_rtt(Duration::from_millis(60));
        nack.push(0, at(0));
        // The first comes 18 ms late: it was asked for in vain.
        nack.push(2, at(10));
        assert_eq!(due(&mut nack, at(20)), [1]);
        assert_eq!(nack.push(1, at(28)), Pushed::Recovered);
        nack.push(4, at(100));
        assert!(due(&mut nack, at(118)).is_empty());
        assert_eq!(nack.push(3, at(118)), Pushed::Recovered);
        // A retransmission is not taken for that.
        nack.push(6, at(200));
        assert_eq!(due(&mut nack, at(220)), [5]);
        assert_eq!(nack.push(5, at(275)), Pushed::Recovered);
        assert!(nack.wait < Duration::from_millis(20), "{:?}", nack.wait);
        for n in 0..40_u16 {
            nack.push(8 + 2 * n, at(300 + u64::from(n)));
        }
        assert_eq!(nack.wait, REORDER_WAIT);
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
