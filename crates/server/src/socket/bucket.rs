//! How much a socket may ask for: packets, what they cost, and bytes.

use engine::Bucket;
use std::time::{Duration, Instant};
use wire::room::cost;

/// What calls may cost together a second in the long run, in the units of [`wire::room::COSTS`].
const COST_PER_SECOND: u32 = 200;
/// Bytes a second for each packet a second.
const BYTES_PER_PACKET: u32 = 5120;
/// Bytes a second at least, however few packets a client may send.
const LEAST_BYTES_PER_SECOND: u32 = 1_000_000;
/// Longest pause in reading: heartbeats must come through.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A client that is refused something for so long, without a pause, is no honest one.
const FLOOD: Duration = Duration::from_secs(30);

/// The budget of one socket.
#[derive(Debug)]
pub(super) struct Budget {
    /// Packets a second in the long run.
    per_second: u32,
    packets: Bucket,
    cost: Bucket,
    bytes: Bucket,
    /// Packets refused since the last pause.
    refused: u32,
    flooding_since: Option<Instant>,
}

impl Budget {
    /// `per_second` packets in the long run, twice as many at once; bytes in proportion.
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        let bucket = |per_second: u32| Bucket::new(per_second.saturating_mul(2), per_second, now);
        let bytes = per_second.saturating_mul(BYTES_PER_PACKET).max(LEAST_BYTES_PER_SECOND);
        Self {
            per_second,
            packets: bucket(per_second),
            cost: bucket(COST_PER_SECOND),
            bytes: bucket(bytes),
            refused: 0,
            flooding_since: None,
        }
    }

    /// Whether a call may be carried out.
    pub(super) fn call(&mut self, event: &str, now: Instant) -> bool {
        let taken = self.packets.take(1, now) && self.cost.take(cost(event), now);
        self.refused += u32::from(!taken);
        taken
    }

    /// Whether the answer to a call of the server may be looked at.
    pub(super) fn answer(&mut self, now: Instant) -> bool {
        let taken = self.packets.take(1, now);
        self.refused += u32::from(!taken);
        taken
    }

    /// After a frame of so many bytes and its packets: how long nothing more is read, so that a client that
    /// sends too much has to wait.
    pub(super) fn pause(&mut self, bytes: usize, now: Instant) -> Option<Duration> {
        let debt = self.bytes.owe(u32::try_from(bytes).unwrap_or(u32::MAX), now);
        let refused = std::mem::take(&mut self.refused);
        if refused > 0 {
            self.flooding_since.get_or_insert(now);
        } else if self.flooding_since.is_some()
            && self.packets.is_half_full(now)
            && self.cost.is_half_full(now)
        {
            self.flooding_since = None;
        }
        let worth = Duration::from_secs_f64(f64::from(refused) / f64::from(self.per_second));
        let pause = debt.max(worth).min(LONGEST_PAUSE);
        (!pause.is_zero()).then_some(pause)
    }

    /// Whether it was too much for too long.
    pub(super) fn is_flood(&self, now: Instant) -> bool {
        self.flooding_since.is_some_and(|since| now.saturating_duration_since(since) > FLOOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::room::{MUTE, OFFER, PING, QUALITY_SAMPLE};

    #[test]
    fn costly_calls_are_few_whatever_the_rate_of_packets() {
        let now = Instant::now();
        let mut budget = Budget::new(1_000_000, now);
        let taken =
            |budget: &mut Budget, event| (0..2000).filter(|_| budget.call(event, now)).count();
        assert_eq!(taken(&mut budget, MUTE), 20);
        assert_eq!(taken(&mut budget, OFFER), 0, "one budget for all kinds");
        assert_eq!(taken(&mut budget, PING), 2000, "a ping costs a packet alone");
        let mut budget = Budget::new(200, now);
        assert_eq!(taken(&mut budget, QUALITY_SAMPLE), 400);
        assert!(!budget.answer(now), "answers count as packets");
    }

    #[test]
    fn who_sends_too_much_is_not_read_for_a_while() {
        let now = Instant::now();
        let mut budget = Budget::new(200, now);
        assert_eq!(budget.pause(150 << 10, now), None, "an offer");
        while budget.answer(now) {}
        assert_eq!(budget.pause(10, now), Some(Duration::from_millis(5)), "what a packet is worth");
        for _ in 0..100_000 {
            budget.answer(now);
        }
        assert_eq!(budget.pause(10, now), Some(Duration::from_secs(1)), "never without heartbeats");
        assert!(!budget.is_flood(now) && budget.is_flood(now + FLOOD + LONGEST_PAUSE));
        assert!(budget.pause(4 << 20, now).is_some(), "bytes count as well");
        assert_eq!(budget.pause(10, now + FLOOD), None, "all is paid for");
        assert!(!budget.is_flood(now + 3 * FLOOD), "and it is no flood any more");
    }
}
