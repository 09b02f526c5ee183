//! What a load of sockets found, as the summary holds it.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Latency over a phase, from the moment a ping was due until its answer was read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median, in milliseconds.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Largest.
    pub max_ms: f64,
}

impl Latency {
    /// Of a histogram in µs; none of nothing.
    pub fn of(histogram_us: &Histogram<u64>) -> Option<Self> {
        let ms = |us: u64| us as f64 / 1000.0;
        (!histogram_us.is_empty()).then(|| Self {
            p50_ms: ms(histogram_us.value_at_quantile(0.5)),
            p90_ms: ms(histogram_us.value_at_quantile(0.9)),
            p99_ms: ms(histogram_us.value_at_quantile(0.99)),
            max_ms: ms(histogram_us.max()),
        })
    }
}

/// Pings over a phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// How long, in seconds.
    pub seconds: f64,
    /// Pings that were due.
    pub offered: u64,
    /// Those of them that were sent.
    pub made: u64,
    /// Those of them that were answered.
    pub answered: u64,
    /// Null if nothing was answered.
    pub latency: Option<Latency>,
}

impl Phase {
    /// Answered over offered, in percent; none if nothing was offered.
    pub fn answered_pct(&self) -> Option<f64> {
        (self.offered > 0).then(|| 100.0 * self.answered as f64 / self.offered as f64)
    }

    /// Pings answered a second.
    pub fn answered_per_s(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.answered as f64 / self.seconds)
    }
}

/// One second of a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// End of it, in seconds since the load began.
    pub t_s: f64,
    /// Connections that are up.
    pub live: u32,
    /// Pings due in it.
    pub offered: u64,
    /// Pings answered in it.
    pub answered: u64,
    /// Median latency of the answers, in milliseconds.
    pub p50_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// Connections that did not come up, or ended early, in it.
    #[serde(default)]
    pub lost: u64,
    /// From when a connection was due until its handshake was answered, of those that came up in it: 95th percentile, in
    /// milliseconds.
    #[serde(default)]
    pub connect_p95_ms: Option<f64>,
}

impl SocketsSummary {
    /// The same without the seconds that are not valid, from and until in milliseconds. Losses count only if some were in a second
    /// that is.
    #[must_use]
    pub fn outside(&self, valid: impl Fn(u64, u64) -> bool) -> Self {
        let is_valid = |second: &&Second| {
            let until_ms = (1e3 * second.t_s) as u64;
            valid(until_ms.saturating_sub(1000), until_ms)
        };
        let seconds: Vec<Second> = self.seconds.iter().filter(is_valid).copied().collect();
        let mut left = Self { seconds, ..self.clone() };
        if left.seconds.iter().all(|second| second.lost == 0) && left.connected > 0 {
            left.closed.clear();
            left.failed.clear();
        }
        left
    }
}

/// What the browser saw that stayed connected and pinged by hand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ByHand {
    /// Pages.
    pub pages: u32,
    /// Pings sent.
    pub pings: u64,
    /// Pings answered.
    pub answered: u64,
    /// Times that a socket was lost.
    pub lost: u64,
    /// Latency as the pages measured it; null if nothing was answered.
    pub latency: Option<Latency>,
}

/// A group of sockets over the whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketsSummary {
    /// Connections asked for.
    pub connections: u32,
    /// Connections that came up.
    pub connected: u32,
    /// Connections that are up at the end.
    pub live: u32,
    /// Connections that came a second.
    pub arrival_per_second: f64,
    /// Pings a second that each sends.
    pub rate_per_second: f64,
    /// How often a client wakes, in milliseconds.
    pub batch_ms: u32,
    /// From the moment each was due until the handshake's answer, in milliseconds.
    pub connect: Option<Latency>,
    /// How much later than due connections were begun and pings were made, 99th percentile, in milliseconds: what the
    /// generator itself adds.
    #[serde(default)]
    pub late_ms_p99: Option<f64>,
    /// Connections that came up, pinged, and were never answered.
    #[serde(default)]
    pub unanswered: u32,
    /// Connections that ended before they were ended, by close code; `lost`: without one.
    pub closed: BTreeMap<String, u64>,
    /// Why connections did not come up, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Answers whose count did not grow on their connection.
    pub counts_not_rising: u64,
    /// Texts that were no answer to a ping and no heartbeat.
    pub other_packets: u64,
    /// Everything.
    pub whole: Phase,
    /// From when all had come; null if they did not.
    pub steady: Option<Phase>,
    /// Memory of the server before the first connection, in MiB.
    #[serde(default)]
    pub server_rss_before_mib: Option<f64>,
    /// Memory of the server with all connections, in MiB.
    #[serde(default)]
    pub server_rss_mib: Option<f64>,
    /// What a connection costs the server, in KiB.
    #[serde(default)]
    pub kib_per_connection: Option<f64>,
    /// The browser's own view; null if there was none.
    #[serde(default)]
    pub by_hand: Option<ByHand>,
    /// Second by second.
    pub seconds: Vec<Second>,
}
