//! What became of a probe: its packets tell at what rate they came.

use crate::log::{IP_UDP_BYTES, Sent};
use std::time::Instant;

/// Least packets of a probe.
pub(crate) const PROBE_PACKETS: i32 = 5;

/// A probe of our own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probed {
    pub at: Instant,
    /// Its place among the clusters, and its bytes.
    pub place: u8,
    pub bytes: u64,
    pub answer: Answer,
    /// Its result was looked at.
    pub judged: bool,
}

impl Probed {
    /// Whether enough was told of it.
    pub(crate) fn is_told(&self) -> bool {
        10 * (self.answer.bytes + self.answer.lost) >= 7 * self.bytes
    }
}

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
        self.came += 1;
    }

    /// How fast its packets came, in bits a second, and no faster than they left. None if too few came.
    pub(crate) fn bps(&self) -> Option<u64> {
        let (sent, arrived) = self.took_us();
        let us = u64::try_from(arrived).ok()?.max(sent);
        let most = self.bytes >= self.lost && self.came >= PROBE_PACKETS as u32 - 1;
        let enough = most && us > 0;
        enough.then(|| self.bytes * 8_000_000 / us)
    }

    /// How long its packets took to leave and to arrive, in µs.
    fn took_us(&self) -> (u64, i64) {
        (
            self.sent_us.1.saturating_sub(self.sent_us.0),
            self.arrived_us.1.saturating_sub(self.arrived_us.0),
        )
    }

    /// Whether they came as fast as they left.
    pub(crate) fn is_carried(&self) -> bool {
        let (sent, arrived) = self.took_us();
        self.lost == 0 && self.bps().is_some() && arrived <= sent as i64 * 23 / 20 + 1000
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
        assert_eq!(answer(1000, 0..0).bps(), Some(8_000_000));
        assert!(answer(1000, 0..0).is_carried());
        assert_eq!(answer(500, 0..0).bps(), Some(8_000_000), "they came in a heap");
        assert_eq!(answer(4000, 0..0).bps(), Some(2_000_000), "a slow path");
        assert!(!answer(4000, 0..0).is_carried());
        assert!(answer(1000, 7..9).bps().is_some() && !answer(1000, 7..9).is_carried());
        assert_eq!(answer(1000, 3..10).bps(), None, "too few came");
        assert_eq!(answer(-1000, 0..0).bps(), None, "no clock runs backwards");
    }
}
