//! When a media thread begins its next round. In a large mixed room nearly all that comes is sound that nobody hears. A thread
//! that wakes up for each few of those packets spends a fifth of its time on waking up. So it rests after a round of them; a
//! packet that somebody does wait for, and that comes meanwhile, waits for the end of the rest.

use engine::Handled;
use engine::mix::TICK;
use std::time::{Duration, Instant};

/// After a round of quiet packets the next one begins so much later, at the soonest.
const REST: Duration = Duration::from_millis(1);
/// So long before a mixer's tick nothing rests: what came is in the tick.
const BEFORE_TICK: Duration = Duration::from_millis(3);
/// A round is one of quiet packets if it had so many of them at least…
const QUIET: u32 = 4;
/// …and they were so many times as many as the others.
const QUIET_TO_OTHERS: u32 = 3;

/// What came in a round.
#[derive(Debug)]
pub(super) struct Round {
    begun: Instant,
    quiet: u32,
    others: u32,
    /// There is something else to do soon.
    busy: bool,
}

impl Round {
    pub(super) fn new(now: Instant) -> Self {
        Self { begun: now, quiet: 0, others: 0, busy: false }
    }

    /// A datagram was handled.
    pub(super) fn note(&mut self, outcome: Handled) {
        match outcome {
            Handled::Quiet => self.quiet += 1,
            _ => self.others += 1,
        }
    }

    /// More waits to be read, came by another way than UDP, or waits to leave: no rest follows.
    pub(super) fn busy(&mut self) {
        self.busy = true;
    }

    fn is_quiet(&self) -> bool {
        !self.busy && self.quiet >= QUIET && self.quiet >= QUIET_TO_OTHERS * self.others
    }
}

/// Rests between rounds.
#[derive(Debug)]
pub(super) struct Rests {
    /// The beginning of a mixer's tick.
    pub(super) epoch: Instant,
}

impl Rests {
    /// How long to rest after a round, if something is due at `deadline`.
    pub(super) fn after(
        &self,
        round: &Round,
        now: Instant,
        deadline: Option<Instant>,
    ) -> Option<Duration> {
        if !round.is_quiet() {
            return None;
        }
        let into_tick = now.saturating_duration_since(self.epoch).as_nanos() % TICK.as_nanos();
        let next_tick = now + TICK - Duration::from_nanos(into_tick as u64);
        let until = (round.begun + REST).min(next_tick - BEFORE_TICK);
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        until.checked_duration_since(now).filter(|rest| !rest.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_rests_after_quiet_packets_only_and_not_beyond_what_is_due() {
        let epoch = Instant::now();
        let rests = Rests { epoch };
        let at = |us| epoch + Duration::from_micros(us);
        // All begin 5 ms into the third tick.
        let round = |quiet, others| {
            let mut round = Round::new(at(45_000));
            (0..quiet).for_each(|_| round.note(Handled::Quiet));
            (0..others).for_each(|_| round.note(Handled::Audio));
            round
        };
        let rest = |round: &Round, us, deadline: Option<u64>| {
            let rest = rests.after(round, at(us), deadline.map(at));
            rest.map(|rest| rest.as_micros())
        };
        assert_eq!(rest(&round(30, 10), 45_200, None), Some(800));
        assert_eq!(rest(&round(30, 11), 45_200, None), None, "somebody waits");
        assert_eq!(rest(&round(3, 0), 45_200, None), None, "it wakes up seldom");
        assert_eq!(rest(&round(30, 0), 46_000, None), None, "the round was long");
        assert_eq!(rest(&round(30, 0), 45_200, Some(45_500)), Some(300));
        assert_eq!(rest(&round(30, 0), 45_200, Some(45_100)), None, "something is due");
        let mut full = round(30, 0);
        full.busy();
        assert_eq!(rest(&full, 45_200, None), None, "more waits");
        // The tick at 60 ms is near.
        let late = |us| {
            let mut late = Round::new(at(us));
            (0..30).for_each(|_| late.note(Handled::Quiet));
            late
        };
        assert_eq!(rest(&late(56_500), 56_600, None), Some(400));
        assert_eq!(rest(&late(57_000), 57_100, None), None, "the mixer waits for what comes now");
        assert_eq!(rest(&late(60_000), 60_100, None), Some(900));
    }
}
