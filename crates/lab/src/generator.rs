//! When the load generator itself is at its limit: what it measures then proves nothing. Judged over
//! a whole run for the verdict, and window by window for the view, by the same rules. Browsers are
//! shown, not judged: they share the machine's CPUs with everyone.

use crate::record::GeneratorUsage;
use crate::summary::short;
use std::fmt;

/// How late timers (99th percentile, ms), and packets on the lab's own link, may be.
pub const LATE_MS: f64 = 5.0;
/// Share of a core of one thread from which on it is full.
pub const THREAD_CORES: f64 = 0.95;
/// Share of throttled periods from which on a quota holds it back.
const THROTTLED: f64 = 0.05;

/// What the generator lacks.
#[derive(Debug, Clone, PartialEq)]
pub enum Limit {
    /// One of its threads is full: its name, and its share of a core.
    Thread(String, f64),
    /// A CPU quota holds it back: in this share of the periods.
    Quota(f64),
    /// Receive buffers of its sockets were full: for so many datagrams.
    Sockets(u64),
    /// Its timers fire late: by so many ms (99th percentile).
    Timers(f64),
    /// Its link sends packets on late: by so many ms (99th percentile).
    Link(f64),
}

impl Limit {
    /// Whether it is no more than lateness, which others on the same CPUs can bring about.
    pub fn is_lateness(&self) -> bool {
        matches!(self, Self::Timers(_) | Self::Link(_))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(name, cores) => write!(f, "{name} is busy {:.0} %", cores * 100.0),
            Self::Quota(share) => {
                write!(f, "a CPU quota holds it back in {:.0} % of the periods", share * 100.0)
            }
            Self::Sockets(count) => {
                write!(f, "its sockets' receive buffers were full for {count} datagrams")
            }
            Self::Timers(ms) => write!(f, "timers fire {} ms late", short(*ms)),
            Self::Link(ms) => write!(f, "the link sends packets on {} ms late", short(*ms)),
        }
    }
}

/// What it lacks in some windows, whose timers were so late in all; empty: it is healthy.
pub fn limits<'a>(
    windows: impl Iterator<Item = &'a GeneratorUsage> + Clone,
    timer_lag_ms_p99: f64,
) -> Vec<Limit> {
    let threads = windows.clone().filter_map(|usage| usage.busiest_thread.as_ref());
    let busiest = threads.max_by(|a, b| a.1.total_cmp(&b.1));
    let kernel = windows.filter_map(|usage| usage.kernel.as_ref());
    let quotas = kernel.clone().filter_map(|kernel| kernel.quota.as_ref());
    let (throttled, periods) =
        quotas.fold((0, 0), |(t, p), quota| (t + quota.throttled, p + quota.periods));
    let share = throttled as f64 / periods.max(1) as f64;
    let dropped: u64 = kernel.filter_map(|kernel| kernel.udp_drops).sum();
    let found = [
        busiest
            .filter(|(_, cores)| *cores >= THREAD_CORES)
            .map(|(name, cores)| Limit::Thread(name.clone(), *cores)),
        (share > THROTTLED).then_some(Limit::Quota(share)),
        (dropped > 0).then_some(Limit::Sockets(dropped)),
        (timer_lag_ms_p99 > LATE_MS).then_some(Limit::Timers(timer_lag_ms_p99)),
    ];
    found.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{KernelUsage, QuotaUsage};

    fn usage(cores: f64, throttled: u64, udp_drops: u64) -> GeneratorUsage {
        let quota = Some(QuotaUsage { cores: 0.5, periods: 30, throttled });
        let udp_drops = Some(udp_drops);
        let kernel = Some(KernelUsage { quota, udp_drops, ..KernelUsage::default() });
        let busiest_thread = Some(("bots-0".into(), cores));
        GeneratorUsage { busiest_thread, kernel, ..GeneratorUsage::default() }
    }

    #[test]
    fn each_limit_is_found_and_said() {
        let healthy = usage(0.94, 1, 0);
        assert_eq!(limits([&healthy].into_iter(), 5.0), []);
        let bad = usage(0.96, 20, 7);
        let found = limits([&healthy, &bad].into_iter(), 7.25);
        let said: Vec<String> = found.iter().map(ToString::to_string).collect();
        let want = [
            "bots-0 is busy 96 %",
            "a CPU quota holds it back in 35 % of the periods",
            "its sockets' receive buffers were full for 7 datagrams",
            "timers fire 7.25 ms late",
        ];
        assert_eq!(said, want);
        let lateness: Vec<bool> = found.iter().map(Limit::is_lateness).collect();
        assert_eq!(lateness, [false, false, false, true]);
    }
}
