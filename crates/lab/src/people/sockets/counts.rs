//! What a load counts while it runs.

use crate::observe::rows::most;
use crate::observe::sockets::SocketCounts;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Longer latencies count as this.
pub(super) const MAX_US: u64 = 120_000_000;

/// Counts by the moment from which on they count.
pub type Counted = BTreeMap<Duration, SocketCounts>;

/// How a load goes.
#[derive(Debug, Clone, Default)]
pub struct Now {
    /// Connections that are up.
    pub live: u32,
    /// Pings due a second, in the last second.
    pub offered_per_s: f64,
    /// Pings answered a second, in the last second.
    pub answered_per_s: f64,
    /// 99th percentile of their latency, in milliseconds; of several groups the worst.
    pub p99_ms: Option<f64>,
    /// The counts so far from each moment that was asked for.
    pub counts: BTreeMap<Duration, SocketCounts>,
}

impl Now {
    /// Adds another group.
    pub fn add(&mut self, other: Self) {
        self.live += other.live;
        self.offered_per_s += other.offered_per_s;
        self.answered_per_s += other.answered_per_s;
        self.p99_ms = most(self.p99_ms, other.p99_ms);
        for (from, counts) in other.counts {
            match self.counts.get_mut(&from) {
                Some(ours) => ours.add(&counts),
                None => drop(self.counts.insert(from, counts)),
            }
        }
    }
}

/// Counts from a moment on.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) from_ns: u64,
    pub(super) made: u64,
    pub(super) answered: u64,
    pub(super) latency_us: Histogram<u64>,
    pub(super) connect_us: Histogram<u64>,
    /// Of each connection: answered, and the sum of their latencies.
    pub(super) each: Vec<(u64, u64)>,
    pub(super) tried: u64,
    pub(super) lost: u64,
}

impl Counts {
    pub(super) fn new(from_ns: u64) -> io::Result<Self> {
        let (latency_us, connect_us) = (histogram()?, histogram()?);
        let (made, answered, tried, lost) = (0, 0, 0, 0);
        Ok(Self { from_ns, made, answered, latency_us, connect_us, each: Vec::new(), tried, lost })
    }

    pub(super) fn answer(&mut self, index: u32, us: u64) {
        self.answered += 1;
        self.latency_us.saturating_record(us);
        let index = index as usize;
        if self.each.len() <= index {
            self.each.resize(index + 1, (0, 0));
        }
        let (answered, sum_us) = &mut self.each[index];
        (*answered, *sum_us) = (*answered + 1, *sum_us + us);
    }
}

pub(super) fn histogram() -> io::Result<Histogram<u64>> {
    // A histogram that grows by itself would clamp what is recorded with saturation to 2 ms.
    Histogram::new_with_max(MAX_US, 3).map_err(io::Error::other)
}
