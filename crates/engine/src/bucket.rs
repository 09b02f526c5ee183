//! A share of something scarce: so much at once, so much a second in the long run.

use std::time::Instant;

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
        let earned = now.saturating_duration_since(self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + earned).min(self.most);
        self.filled = self.filled.max(now);
        let enough = self.tokens >= f64::from(tokens);
        self.tokens -= if enough { f64::from(tokens) } else { 0.0 };
        enough
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
}
