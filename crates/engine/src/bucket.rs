//! A share of something scarce: so much at once, so much a second in the long run.

use std::time::{Duration, Instant};

/// A token bucket. What a token is, its owner decides: a packet, a byte.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    per_second: f64,
    most: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full one: `most` tokens at once, `per_second` in the long run.
    pub fn new(most: u32, per_second: u32, now: Instant) -> Self {
        let (most, per_second) = (f64::from(most), f64::from(per_second));
        Self { per_second, most, tokens: most, filled: now }
    }

    /// Takes `tokens`; says whether there were enough. Where not, none is taken.
    pub fn take(&mut self, tokens: u32, now: Instant) -> bool {
        self.fill(now);
        let enough = self.tokens >= f64::from(tokens);
        self.tokens -= if enough { f64::from(tokens) } else { 0.0 };
        enough
    }

    /// Takes `tokens` even if there are too few; says after how long the debt is earned.
    pub fn owe(&mut self, tokens: u32, now: Instant) -> Duration {
        self.fill(now);
        self.tokens -= f64::from(tokens);
        Duration::from_secs_f64((-self.tokens / self.per_second).max(0.0))
    }

    /// Whether it holds half of what it can hold, or more.
    pub fn is_half_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.tokens >= self.most / 2.0
    }

    fn fill(&mut self, now: Instant) {
        let earned = now.saturating_duration_since(self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + earned).min(self.most);
        self.filled = self.filled.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_gives_what_it_holds_and_then_what_it_earns() {
        let begin = Instant::now();
        let mut bucket = Bucket::new(3, 2, begin);
        assert!((0..3).all(|_| bucket.take(1, begin)));
        assert!(!bucket.take(1, begin));
        let half = begin + Duration::from_millis(500);
        assert!(bucket.take(1, half) && !bucket.take(1, half));
        let later = begin + Duration::from_secs(60);
        assert!(!bucket.take(4, later), "no more than it holds");
        assert!(bucket.take(3, later) && !bucket.take(1, half), "time does not go back");
    }

    #[test]
    fn a_debt_is_paid_before_anything_is_taken() {
        let begin = Instant::now();
        let mut bucket = Bucket::new(4, 2, begin);
        assert_eq!(bucket.owe(2, begin), Duration::ZERO);
        assert!(bucket.is_half_full(begin));
        assert_eq!(bucket.owe(4, begin), Duration::from_secs(1));
        let later = begin + Duration::from_millis(1500);
        assert!(!bucket.is_half_full(later) && bucket.take(1, later) && !bucket.take(1, later));
    }
}
