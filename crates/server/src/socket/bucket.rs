//! How much a socket may ask for: packets, what they cost, and bytes.

use std::time::{Duration, Instant};
use wire::room::cost;

/// What calls may cost together a second in the long run, in the units of [`wire::room::COSTS`].
const COST_PER_SECOND: f64 = 200.0;
/// Bytes a second for each packet a second.
const BYTES_PER_PACKET: f64 = 5120.0;
/// Longest pause in reading: heartbeats must come through.
const LONGEST_PAUSE: f64 = 1.0;
/// Who is refused something for so long, without a pause, is no honest client.
const FLOOD: Duration = Duration::from_secs(30);

/// The budget of one socket.
#[derive(Debug)]
pub(super) struct Budget {
    packets: Bucket,
    cost: Bucket,
    bytes: Bucket,
    /// Packets refused since the last pause.
    refused: u32,
    flooding_since: Option<Instant>,
}

impl Budget {
    /// `per_second` packets in the long run, twice as many at once; bytes in proportion.
    pub(super) fn new(per_second: u32) -> Self {
        let packets = f64::from(per_second);
        Self {
            packets: Bucket::new(packets),
            cost: Bucket::new(COST_PER_SECOND),
            bytes: Bucket::new((packets * BYTES_PER_PACKET).max(1e6)),
            refused: 0,
            flooding_since: None,
        }
    }

    /// Whether a call may be carried out.
    pub(super) fn call(&mut self, event: &str) -> bool {
        let taken = self.packets.take(1.0) && self.cost.take(cost(event));
        self.refused += u32::from(!taken);
        taken
    }

    /// Whether the answer to a call of the server may be looked at.
    pub(super) fn answer(&mut self) -> bool {
        let taken = self.packets.take(1.0);
        self.refused += u32::from(!taken);
        taken
    }

    /// A frame of so many bytes was read and its packets dealt with: how long nothing more is read, so that a
    /// client which sends too much waits itself.
    pub(super) fn pause(&mut self, bytes: usize) -> Option<Duration> {
        let debt = self.bytes.owe(bytes as f64);
        let refused = std::mem::take(&mut self.refused);
        if refused > 0 {
            self.flooding_since.get_or_insert_with(Instant::now);
        } else if self.packets.is_half_full() && self.cost.is_half_full() {
            self.flooding_since = None;
        }
        let pause = debt.max(f64::from(refused) / self.packets.per_second).min(LONGEST_PAUSE);
        (pause > 0.0).then(|| Duration::from_secs_f64(pause))
    }

    /// Whether it was too much for too long.
    pub(super) fn is_flood(&self) -> bool {
        self.flooding_since.is_some_and(|since| since.elapsed() > FLOOD)
    }
}

/// Token bucket: so many a second in the long run, twice as many at once.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(per_second: f64) -> Self {
        Self { per_second, tokens: per_second * 2.0, filled: Instant::now() }
    }

    fn fill(&mut self) {
        let now = Instant::now();
        let earned = (now - self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + earned).min(self.per_second * 2.0);
        self.filled = now;
    }

    fn take(&mut self, cost: f64) -> bool {
        if self.tokens < cost {
            self.fill();
        }
        let enough = self.tokens >= cost;
        if enough {
            self.tokens -= cost;
        }
        enough
    }

    /// Takes what is not refused, and tells after how many seconds it is paid for.
    fn owe(&mut self, cost: f64) -> f64 {
        if self.tokens < cost {
            self.fill();
        }
        self.tokens -= cost;
        (-self.tokens / self.per_second).max(0.0)
    }

    fn is_half_full(&mut self) -> bool {
        if self.tokens < self.per_second {
            self.fill();
        }
        self.tokens >= self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::room::{MUTE, OFFER, QUALITY_SAMPLE};

    #[test]
    fn costly_calls_are_few_whatever_the_rate_of_packets() {
        let mut budget = Budget::new(1_000_000);
        let taken = |budget: &mut Budget, event| (0..2000).filter(|_| budget.call(event)).count();
        assert!((20..30).contains(&taken(&mut budget, MUTE)));
        assert_eq!(taken(&mut budget, OFFER), 0, "one budget for all kinds");
        assert_eq!(taken(&mut budget, wire::room::PING), 2000, "a ping costs a packet alone");
        let mut budget = Budget::new(200);
        assert!((395..405).contains(&taken(&mut budget, QUALITY_SAMPLE)));
        assert!(!budget.answer(), "answers count as packets");
    }

    #[test]
    fn who_sends_too_much_is_not_read_for_a_while() {
        let mut budget = Budget::new(200);
        assert_eq!(budget.pause(150 << 10), None, "an offer");
        while budget.answer() {}
        let pause = budget.pause(10).unwrap();
        assert!(pause <= Duration::from_millis(6), "as long as a packet is worth: {pause:?}");
        for _ in 0..100_000 {
            budget.answer();
        }
        assert_eq!(budget.pause(10), Some(Duration::from_secs(1)), "never without heartbeats");
        assert!(budget.flooding_since.is_some() && !budget.is_flood());
        assert!(budget.pause(4 << 20).is_some(), "bytes count as well");
    }
}
