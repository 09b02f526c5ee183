//! Probes: for a moment packets leave at a higher rate, and the feedback on them tells whether it fits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Probes that wait at most; the oldest go.
const MOST_WAITING: usize = 5;
/// A probe that could not begin for so long is given up.
const LASTS: Duration = Duration::from_secs(5);
/// Packets of a probe leave at least so long apart, in groups.
const LEAST_INTERVAL: Duration = Duration::from_millis(2);
/// A probe may be late by so much at one group, else it is given up: it would tell nothing.
const MOST_LATE: Duration = Duration::from_millis(20);

/// One probe.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cluster {
    pub id: u8,
    pub rate_bps: u64,
    pub least_packets: u32,
    pub least_bytes: u32,
}

/// When a probe's packets are due.
#[derive(Debug, Default)]
pub struct Prober {
    waiting: VecDeque<(Cluster, Instant)>,
    /// The first of `waiting` began then; so many packets and bytes of it have left.
    began: Option<Instant>,
    sent: (u32, u32),
}

impl Prober {
    pub(crate) fn plan(&mut self, cluster: Cluster, now: Instant) {
        if self.waiting.len() == MOST_WAITING {
            self.end();
        }
        self.waiting.push_back((cluster, now));
    }

    /// When the next packets of a probe are due; none where nothing is probed.
    pub fn due(&self) -> Option<Instant> {
        let (cluster, planned) = self.waiting.front()?;
        Some(match self.began {
            None => *planned,
            Some(began) => began + time(self.sent.1, cluster.rate_bps),
        })
    }

    /// How many bytes of a probe are to leave now; 0 where none are due.
    pub fn bytes_due(&mut self, now: Instant) -> usize {
        loop {
            let Some(due) = self.due().filter(|due| *due <= now) else { return 0 };
            let late = now.duration_since(due);
            if late <= if self.began.is_some() { MOST_LATE } else { LASTS } {
                break;
            }
            self.end();
        }
        let rate_bps = self.waiting.front().map_or(0, |(cluster, _)| cluster.rate_bps);
        (rate_bps as f64 * LEAST_INTERVAL.as_secs_f64() / 8.0) as usize + 1
    }

    /// The probe that packets which leave now belong to.
    #[inline]
    pub fn cluster(&self) -> Option<u8> {
        self.began?;
        self.waiting.front().map(|(cluster, _)| cluster.id)
    }

    /// The next packets are the probe's.
    pub fn begin(&mut self, now: Instant) {
        if !self.waiting.is_empty() {
            self.began.get_or_insert(now);
        }
    }

    /// A packet of the probe left.
    #[inline]
    pub fn count(&mut self, bytes: usize) {
        let Some((cluster, _)) = self.waiting.front() else { return };
        self.sent.0 += 1;
        self.sent.1 += bytes as u32;
        if self.sent.0 >= cluster.least_packets && self.sent.1 >= cluster.least_bytes {
            self.end();
        }
    }

    /// Nothing is left to probe with, or the probe is done.
    pub fn end(&mut self) {
        self.waiting.pop_front();
        (self.began, self.sent) = (None, (0, 0));
    }
}

fn time(bytes: u32, rate_bps: u64) -> Duration {
    Duration::from_secs_f64(f64::from(bytes) * 8.0 / rate_bps.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn cluster(id: u8) -> Cluster {
        Cluster { id, rate_bps: 3_000_000, least_packets: 5, least_bytes: 5625 }
    }

    #[test]
    fn a_probe_leaves_at_its_rate_and_ends_when_it_has_enough() {
        let start = Instant::now();
        let mut prober = Prober::default();
        assert_eq!((prober.due(), prober.bytes_due(start)), (None, 0));
        prober.plan(cluster(1), start);
        let (mut now, mut packets, mut bytes) = (start, 0, 0);
        while let Some(due) = prober.due() {
            now = now.max(due);
            let mut want = prober.bytes_due(now);
            prober.begin(now);
            while want > 0 && prober.due().is_some() {
                assert_eq!(prober.cluster(), Some(1));
                prober.count(1100);
                want = want.saturating_sub(1100);
                (packets, bytes) = (packets + 1, bytes + 1100);
            }
        }
        assert!(packets == 6 && bytes >= 5625, "{packets} packets, {bytes} bytes");
        let took = now.duration_since(start).as_secs_f64();
        let rate_bps = f64::from(bytes - 1100) * 8.0 / took;
        assert!((2_700_000.0..=3_400_000.0).contains(&rate_bps), "{rate_bps}");
        assert_eq!(prober.cluster(), None);
    }

    #[test]
    fn a_probe_that_is_late_is_given_up_and_few_wait() {
        let start = Instant::now();
        let mut prober = Prober::default();
        prober.plan(cluster(1), start);
        prober.plan(cluster(2), start);
        assert!(prober.bytes_due(start) > 0);
        prober.begin(start);
        prober.count(1100);
        assert!(prober.bytes_due(start + 4 * MS) > 0);
        assert!(prober.bytes_due(start + 40 * MS) > 0, "the second begins");
        prober.begin(start + 40 * MS);
        assert_eq!(prober.cluster(), Some(2));
        for id in 3..20 {
            prober.plan(cluster(id), start + 50 * MS);
        }
        assert_eq!(prober.waiting.len(), MOST_WAITING);
        assert_eq!(prober.bytes_due(start + Duration::from_secs(10)), 0);
        assert_eq!(prober.due(), None, "all are too old");
    }
}
