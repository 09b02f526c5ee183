//! What became of a probe: its packets tell at what rate they came.

use crate::log::{IP_UDP_BYTES, Sent};

/// Least packets of a probe.
pub(crate) const PROBE_PACKETS: i32 = 5;

/// Where delays differ, a probe may have come in less time than the path needs, by so many times the difference.
const JITTERS: f64 = 2.5;

/// What feedback told of a probe's packets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answer {
    came: u32,
    /// Bytes of those that did not come.
    lost: u64,
    /// When the first and the last packet that came left and arrived, in µs.
    sent_us: (u64, u64),
    arrived_us: (i64, i64),
    /// Bytes of all but the first packet that came.
    bytes: u64,
    line: Line,
}

/// Arrival times in µs over bytes, each since the first packet: sums for a line through them by least squares.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    bytes: f64,
    us: f64,
    bytes_squared: f64,
    us_squared: f64,
    product: f64,
}

impl Line {
    fn add(&mut self, bytes: f64, us: f64) {
        self.bytes += bytes;
        self.us += us;
        self.bytes_squared += bytes * bytes;
        self.us_squared += us * us;
        self.product += bytes * us;
    }

    /// How many µs a byte takes, and its standard error, of so many packets.
    fn slope(&self, packets: f64) -> (f64, f64) {
        let bytes = self.bytes_squared - self.bytes * self.bytes / packets;
        let us = self.us_squared - self.us * self.us / packets;
        let product = self.product - self.bytes * self.us / packets;
        let slope = product / bytes.max(1.0);
        let rest = (us - slope * product).max(0.0);
        (slope, (rest / (packets - 2.0).max(1.0) / bytes.max(1.0)).sqrt())
    }
}

impl Answer {
    /// Feedback told when a packet arrived in µs, or that it did not.
    pub(crate) fn note(&mut self, sent: &Sent, arrived_us: Option<i64>) {
        let Some(arrived_us) = arrived_us else {
            self.lost += u64::from(sent.bytes);
            return;
        };
        if self.came == 0 {
            (self.sent_us.0, self.arrived_us.0) = (sent.at_us, arrived_us);
        } else {
            self.bytes += u64::from(sent.bytes) + IP_UDP_BYTES as u64;
        }
        (self.sent_us.1, self.arrived_us.1) = (sent.at_us, arrived_us);
        self.line.add(self.bytes as f64, (arrived_us - self.arrived_us.0) as f64);
        self.came += 1;
    }

    /// Whether enough was told of a probe of so many bytes.
    pub(crate) fn is_told(&self, of: u64) -> bool {
        10 * (self.bytes + self.lost) >= 7 * of
    }

    /// How fast its packets came, in bits a second, and no faster than they left. None if too few came.
    ///
    /// By radio, packets come late or in heaps. `jitter_us` tells by how much delays differ in the mean, and the probe itself
    /// shows more of it. Both make the rate lower: it is the least that may well have been.
    pub(crate) fn bps(&self, jitter_us: f64) -> Option<u64> {
        if !self.is_enough() {
            return None;
        }
        let (sent, _) = self.took_us();
        let (slope, error) = self.line.slope(f64::from(self.came));
        let doubt = error.max(JITTERS * jitter_us / self.bytes as f64);
        let us = (slope + doubt).max(sent as f64 / self.bytes as f64);
        Some((8_000_000.0 / us) as u64)
    }

    /// Whether enough came to tell a rate, and took some time.
    fn is_enough(&self) -> bool {
        let (sent, arrived) = self.took_us();
        let most = self.bytes >= self.lost && self.came >= PROBE_PACKETS as u32 - 1;
        most && arrived >= 0 && (arrived > 0 || sent > 0)
    }

    /// How long its packets took to leave and to arrive, in µs.
    fn took_us(&self) -> (u64, i64) {
        (
            self.sent_us.1.saturating_sub(self.sent_us.0),
            self.arrived_us.1.saturating_sub(self.arrived_us.0),
        )
    }

    /// Whether they came as fast as they left. A few that are lost say nothing of a rate: radio loses some at any.
    pub(crate) fn is_carried(&self) -> bool {
        4 * self.lost <= self.bytes && self.is_enough() && self.is_fast()
    }

    /// Whether too many were lost to tell, and what came did as fast as it left.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.lost > 0 && !self.is_carried() && self.is_fast()
    }

    fn is_fast(&self) -> bool {
        let (sent, arrived) = self.took_us();
        arrived <= sent as i64 * 23 / 20 + 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Kind;

    /// Ten packets of 1000 bytes that leave 1 ms apart and arrive so many µs apart, of which some do not.
    fn answer(apart_us: i64, lost: std::ops::Range<u64>) -> Answer {
        let mut answer = Answer::default();
        for nth in 0..10 {
            let sent = Sent::of(1000 * nth, 1000 - IP_UDP_BYTES as u16, Kind::Padding);
            let came = !lost.contains(&nth);
            answer.note(&sent, came.then_some(70_000 + apart_us * nth as i64));
        }
        answer
    }

    #[test]
    fn a_probe_tells_what_a_path_carries_and_no_more_than_left() {
        assert_eq!(answer(1000, 0..0).bps(0.0), Some(8_000_000));
        assert!(answer(1000, 0..0).is_carried());
        assert_eq!(answer(500, 0..0).bps(0.0), Some(8_000_000), "they came in a heap");
        assert_eq!(answer(4000, 0..0).bps(0.0), Some(2_000_000), "a slow path");
        assert!(!answer(4000, 0..0).is_carried());
        assert!(answer(1000, 7..9).bps(0.0).is_some() && !answer(1000, 7..9).is_carried());
        assert_eq!(answer(1000, 3..10).bps(0.0), None, "too few came");
        assert_eq!(answer(-1000, 0..0).bps(0.0), None, "no clock runs backwards");
    }
}
