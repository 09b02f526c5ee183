//! How fast a burst came: packets of pictures that left close together, while the path had no queue. Where little left before,
//! only this tells what the path carries. A rate over the last second counts the idle time in it.

use crate::log::{IP_UDP_BYTES, Kind, Sent};
use std::time::Duration;

/// Packets of pictures that left further apart are of two bursts, unless they have to.
const APART_US: u64 = 25_000;
/// A burst tells a rate once so many of its packets came, over so long.
const LEAST_PACKETS: u32 = 6;
const LEAST_US: i64 = 30_000;
/// One that lasts longer is no burst.
const MOST_US: u64 = 1_000_000;
/// Its first packet found no queue: it waited for less than this. Else others share the path.
const WAITED: Duration = Duration::from_millis(15);

/// The last burst of pictures.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Burst {
    /// When the last packet left, in µs.
    left_us: u64,
    /// When the first and the last packet left and arrived, in µs.
    sent_us: (u64, u64),
    arrived_us: (i64, i64),
    came: u32,
    /// Bytes of all that came but the first, and of those that did not come.
    bytes: u64,
    lost: u64,
    /// How long its first packet waited longer than any packet did lately.
    waited: Duration,
}

impl Burst {
    /// Feedback told when a packet arrived in µs and how long it `waited`, or that it did not arrive. Packets of a burst leave
    /// `apart_us` apart at most.
    pub(crate) fn note(&mut self, sent: &Sent, arrived: Option<(i64, Duration)>, apart_us: u64) {
        // A probe tells of itself.
        if sent.kind != Kind::Video || sent.cluster.is_some() {
            return;
        }
        let bytes = u64::from(sent.bytes) + IP_UDP_BYTES as u64;
        if sent.at_us.saturating_sub(self.left_us) > apart_us.max(APART_US) {
            *self = Self::default();
        }
        self.left_us = self.left_us.max(sent.at_us);
        let Some((arrived_us, waited)) = arrived else {
            self.lost += bytes;
            return;
        };
        if self.came == 0 {
            (self.sent_us.0, self.arrived_us.0) = (sent.at_us, arrived_us);
            self.waited = waited;
        } else {
            self.bytes += bytes;
        }
        self.sent_us.1 = self.sent_us.1.max(sent.at_us);
        self.arrived_us.1 = self.arrived_us.1.max(arrived_us);
        self.came += 1;
    }

    /// How fast it came, in bits a second, and no faster than it left. None if too little of it came, or if others may share the path.
    pub(crate) fn bps(&self) -> Option<u64> {
        let arrived = self.arrived_us.1 - self.arrived_us.0;
        let sent = self.sent_us.1.saturating_sub(self.sent_us.0);
        let enough = self.came >= LEAST_PACKETS && arrived >= LEAST_US;
        if !enough || sent > MOST_US || self.waited > WAITED || 10 * self.lost > self.bytes {
            return None;
        }
        Some(self.bytes * 8_000_000 / sent.max(arrived as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1200 bytes that leave 5 ms apart, and arrive so many µs apart.
    fn burst(packets: u64, apart_us: i64, waited: Duration, lost: u64) -> Burst {
        let mut burst = Burst::default();
        for nth in 0..packets {
            let sent = Sent::of(5000 * nth, 1200 - IP_UDP_BYTES as u16, Kind::Video);
            let came = (70_000 + apart_us * nth as i64, waited);
            burst.note(&sent, (nth % 10 >= lost).then_some(came), 0);
        }
        burst
    }

    #[test]
    fn a_burst_tells_how_fast_it_came_and_no_faster_than_it_left() {
        assert_eq!(burst(20, 8000, Duration::ZERO, 0).bps(), Some(1_200_000));
        assert_eq!(burst(20, 2000, Duration::ZERO, 0).bps(), Some(1_920_000), "in a heap");
        assert_eq!(burst(5, 8000, Duration::ZERO, 0).bps(), None, "too little");
        assert_eq!(burst(250, 8000, Duration::ZERO, 0).bps(), None, "it is none");
        assert_eq!(burst(20, 8000, 3 * WAITED, 0).bps(), None, "others were there");
        assert_eq!(burst(20, 8000, Duration::ZERO, 2).bps(), None, "too many were lost");
    }

    #[test]
    fn sound_and_probes_are_of_no_burst_and_a_pause_begins_another() {
        let mut burst = burst(20, 8000, Duration::ZERO, 0);
        let before = burst.bps();
        for (kind, cluster) in [(Kind::Audio, None), (Kind::Padding, None), (Kind::Video, Some(3))]
        {
            let mut sent = Sent::of(100_000, 1000, kind);
            sent.cluster = cluster;
            burst.note(&sent, Some((500_000, Duration::ZERO)), 0);
        }
        assert_eq!(burst.bps(), before);
        let later = Sent::of(95_000 + 2 * APART_US, 1000, Kind::Video);
        let came = Some((500_000, Duration::ZERO));
        let mut next = burst;
        next.note(&later, came, 0);
        assert_eq!(next.bps(), None);
        burst.note(&later, came, 3 * APART_US);
        assert!(burst.bps().is_some(), "on a slow path packets have to leave further apart");
    }
}
