//! Metrics of sockets without a room, by name, and how their counts are reduced. A connection stands where a person does
//! elsewhere: `user_pN` are percentiles over connections.

use super::reduced::Reduced;
use crate::base::{percentile, sorted};
use hdrhistogram::Histogram;

/// Latency of pings, in milliseconds: all values; within a connection their mean.
pub const PONG_MS: &str = "pong_ms";
/// Answered of what a connection offered, in percent: a value a connection.
pub const ANSWERED_PCT: &str = "answered_pct";
/// From the moment a connection was due until the handshake's answer, in milliseconds: a value a connection.
pub const CONNECT_MS: &str = "connect_ms";
/// Connections that did not come up or ended early: one number. Its `n` are those that were tried.
pub const LOST: &str = "lost";
/// All of them; those that need pings first.
pub const NAMES: [&str; 4] = [PONG_MS, ANSWERED_PCT, CONNECT_MS, LOST];

/// Whether a metric needs connections that ping.
pub fn needs_pings(name: &str) -> bool {
    name == PONG_MS || name == ANSWERED_PCT
}

/// What the sockets of a run came to, from a moment on.
#[derive(Debug, Clone)]
pub struct SocketCounts {
    /// Latency of pings that were due since, in µs.
    pub pong_us: Histogram<u64>,
    /// Of connections that were opened since, in µs.
    pub connect_us: Histogram<u64>,
    /// Mean latency of each connection that was answered, in ms.
    pub pong_of_each_ms: Vec<f64>,
    /// Answered of what each connection offered, in percent.
    pub answered_of_each_pct: Vec<f64>,
    /// Connections that were opened since.
    pub tried: u64,
    /// Those that did not come up, and connections that ended early, since.
    pub lost: u64,
}

impl SocketCounts {
    /// Adds those of another group.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, so that none is refused.
        let _ = self.pong_us.add(&other.pong_us);
        let _ = self.connect_us.add(&other.connect_us);
        self.pong_of_each_ms.extend(&other.pong_of_each_ms);
        self.answered_of_each_pct.extend(&other.answered_of_each_pct);
        self.tried += other.tried;
        self.lost += other.lost;
    }

    /// A metric of [`NAMES`]; none if nothing was measured.
    pub fn reduce(&self, name: &str) -> Option<Reduced> {
        match name {
            PONG_MS => of_histogram(&self.pong_us, sorted(self.pong_of_each_ms.iter().copied())),
            CONNECT_MS => {
                let of_each = |pct| self.connect_us.value_at_percentile(pct) as f64 / 1000.0;
                let mut reduced = of_histogram(&self.connect_us, Vec::new())?;
                (reduced.user_p1, reduced.user_p5) = (of_each(1.0), of_each(5.0));
                reduced.user_p95 = of_each(95.0);
                Some(reduced)
            }
            ANSWERED_PCT => of_values(&sorted(self.answered_of_each_pct.iter().copied())),
            LOST if self.tried > 0 => {
                Some(Reduced { n: self.tried, ..of_values(&[self.lost as f64])? })
            }
            _ => None,
        }
    }
}

/// All values from a histogram in µs, and those of each connection, in rising order.
fn of_histogram(us: &Histogram<u64>, each: Vec<f64>) -> Option<Reduced> {
    let ms = |pct| us.value_at_percentile(pct) as f64 / 1000.0;
    let user = |pct| percentile(&each, pct).unwrap_or(0.0);
    (!us.is_empty()).then(|| Reduced {
        p50: ms(50.0),
        p95: ms(95.0),
        p99: ms(99.0),
        max: us.max() as f64 / 1000.0,
        user_p1: user(1.0),
        user_p5: user(5.0),
        user_p95: user(95.0),
        n: us.len(),
        model: None,
        delay: None,
    })
}

/// A value a connection, in rising order.
fn of_values(values: &[f64]) -> Option<Reduced> {
    Some(Reduced {
        p50: percentile(values, 50.0)?,
        p95: percentile(values, 95.0)?,
        p99: percentile(values, 99.0)?,
        max: percentile(values, 100.0)?,
        user_p1: percentile(values, 1.0)?,
        user_p5: percentile(values, 5.0)?,
        user_p95: percentile(values, 95.0)?,
        n: values.len() as u64,
        model: None,
        delay: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pongs_ms: &[u64], each_ms: &[f64], each_pct: &[f64], lost: u64) -> SocketCounts {
        let mut of = SocketCounts {
            pong_us: Histogram::new_with_max(60_000_000, 3).expect("bounds"),
            connect_us: Histogram::new_with_max(60_000_000, 3).expect("bounds"),
            pong_of_each_ms: each_ms.to_vec(),
            answered_of_each_pct: each_pct.to_vec(),
            tried: 10,
            lost,
        };
        for ms in pongs_ms {
            of.pong_us.record(ms * 1000).expect("within the bounds");
            of.connect_us.record(ms * 500).expect("within the bounds");
        }
        of
    }

    #[test]
    fn each_metric_of_one_group_and_of_two() {
        let mut all = counts(&[1, 1, 9], &[1.0, 9.0], &[100.0, 50.0], 1);
        let near = |a: f64, b: f64| (a - b).abs() < 0.01 * b.max(1.0);
        let pong = all.reduce(PONG_MS).expect("measured");
        assert!(near(pong.p50, 1.0) && near(pong.max, 9.0), "{pong:?}");
        assert_eq!((pong.user_p1, pong.user_p95, pong.n), (1.0, 9.0, 3));
        let answered = all.reduce(ANSWERED_PCT).expect("measured");
        assert_eq!((answered.user_p5, answered.max, answered.n), (50.0, 100.0, 2));
        let connect = all.reduce(CONNECT_MS).expect("measured");
        assert!(near(connect.user_p95, 4.5) && near(connect.p50, 0.5), "{connect:?}");
        let lost = all.reduce(LOST).expect("tried");
        assert_eq!((lost.p50, lost.max, lost.user_p95, lost.n), (1.0, 1.0, 1.0, 10));

        all.add(&counts(&[9, 9, 9, 9], &[20.0], &[0.0], 2));
        assert_eq!(all.reduce(LOST).map(|lost| (lost.max, lost.n)), Some((3.0, 20)));
        assert!(near(all.reduce(PONG_MS).expect("measured").p50, 9.0));
        assert_eq!(all.reduce(ANSWERED_PCT).map(|answered| answered.user_p1), Some(0.0));
        assert_eq!(all.reduce("loss_pct"), None);
    }

    #[test]
    fn of_nothing_there_is_no_value() {
        let none = SocketCounts { tried: 0, ..counts(&[], &[], &[], 0) };
        assert!(NAMES.iter().all(|name| none.reduce(name).is_none()));
    }
}
