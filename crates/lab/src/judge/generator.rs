//! Decides whether the load generator itself was at its limit: what it measures then proves nothing. A whole run is
//! judged for the verdict, each window for the view and for the bottleneck, by the same rules. Browsers are shown, not
//! judged: they share the machine's CPUs with everyone.

use crate::base::short;
use crate::record::{GeneratorUsage, ThreadUsage};
use std::fmt;

/// How late timers (99th percentile, ms), and packets on the lab's own link, may be.
pub const LATE_MS: f64 = 5.0;
/// Share of a core of one thread from which on it is full.
pub const THREAD_CORES: f64 = 0.95;
/// How late the lab's own threads may handle what comes to them (99th percentile of a window, ms). If
/// they are later, what the lab says of answers and joins is its own doing.
pub const LATE_INPUTS_MS: f64 = 100.0;
/// Share of throttled periods from which on a quota holds it back.
const THROTTLED: f64 = 0.05;

/// What the generator lacks.
#[derive(Debug, Clone, PartialEq)]
pub enum Limit {
    /// One of its threads has no time left.
    Thread(ThreadUsage),
    /// A CPU quota holds it back: in this share of the periods.
    Quota(f64),
    /// Receive buffers of its sockets were full: for so many datagrams.
    Sockets(u64),
    /// Its timers fire late: by so many ms (99th percentile).
    Timers(f64),
    /// Its own threads handle what comes so many ms late (99th percentile).
    Inputs(f64),
    /// Its link sends packets on late: by so many ms (99th percentile).
    Link(f64),
    /// Its sockets come and ping late: by so many ms (99th percentile).
    Late(f64),
    /// Its link could not open a socket for someone: why.
    LinkSocket(String),
}

impl Limit {
    /// Whether it is only lateness, which others on the same CPUs can cause.
    pub fn is_lateness(&self) -> bool {
        match self {
            Self::Timers(_) | Self::Inputs(_) | Self::Link(_) | Self::Late(_) => true,
            Self::Thread(thread) => thread.cores < THREAD_CORES,
            Self::Quota(_) | Self::Sockets(_) | Self::LinkSocket(_) => false,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(ThreadUsage { name, cores, waited }) => {
                write!(f, "{name} is busy {:.0} %", cores * 100.0)?;
                if *cores < THREAD_CORES {
                    write!(f, " and waits for a CPU {:.0} % of the time", waited * 100.0)?;
                }
                Ok(())
            }
            Self::Quota(share) => {
                write!(f, "a CPU quota holds it back in {:.0} % of the periods", share * 100.0)
            }
            Self::Sockets(count) => {
                write!(f, "its sockets' receive buffers were full for {count} datagrams")
            }
            Self::Timers(ms) => write!(f, "timers fire {} ms late", short(*ms)),
            Self::Inputs(ms) => write!(f, "the lab handles what comes {} ms late", short(*ms)),
            Self::Link(ms) => write!(f, "the link sends packets on {} ms late", short(*ms)),
            Self::Late(ms) => write!(f, "its sockets come and ping {} ms late", short(*ms)),
            Self::LinkSocket(why) => write!(f, "the link could not open a socket: {why}"),
        }
    }
}

/// What the generator lacks over all windows, and no single one tells.
pub fn of_all<'a>(windows: impl Iterator<Item = &'a GeneratorUsage>) -> Vec<Limit> {
    quota(windows).into_iter().collect()
}

fn quota<'a>(windows: impl Iterator<Item = &'a GeneratorUsage>) -> Option<Limit> {
    let kernel = windows.filter_map(|usage| usage.kernel.as_ref());
    let quotas = kernel.filter_map(|kernel| kernel.quota.as_ref());
    let (throttled, periods) =
        quotas.fold((0, 0), |(t, p), quota| (t + quota.throttled, p + quota.periods));
    let share = throttled as f64 / periods.max(1) as f64;
    (share > THROTTLED).then_some(Limit::Quota(share))
}

/// What the generator lacks in these windows, whose timers were so late over all of them. Empty: it is healthy. The
/// caller adds what the link lacks.
pub fn limits<'a>(
    windows: impl Iterator<Item = &'a GeneratorUsage> + Clone,
    timer_lag_ms_p99: f64,
) -> Vec<Limit> {
    let threads = windows.clone().filter_map(|usage| usage.fullest_thread.as_ref());
    let fullest = threads.max_by(|a, b| a.wanted().total_cmp(&b.wanted()));
    let inputs_ms = windows.clone().map(|usage| usage.input_lag_ms_p99).fold(0.0, f64::max);
    let kernel = windows.clone().filter_map(|usage| usage.kernel.as_ref());
    let dropped: u64 = kernel.filter_map(|kernel| kernel.udp_drops).sum();
    let found = [
        fullest.filter(|thread| thread.wanted() >= THREAD_CORES).cloned().map(Limit::Thread),
        quota(windows),
        (dropped > 0).then_some(Limit::Sockets(dropped)),
        (timer_lag_ms_p99 > LATE_MS).then_some(Limit::Timers(timer_lag_ms_p99)),
        (inputs_ms > LATE_INPUTS_MS).then_some(Limit::Inputs(inputs_ms)),
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
        let fullest_thread = Some(ThreadUsage { name: "bots-0".into(), cores, waited: 0.0 });
        GeneratorUsage { fullest_thread, kernel, ..GeneratorUsage::default() }
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

    #[test]
    fn every_thread_counts_with_its_wait_for_a_cpu_and_so_do_late_inputs() {
        let mut starved = usage(0.45, 0, 0);
        if let Some(thread) = &mut starved.fullest_thread {
            (thread.name, thread.waited) = ("lab".into(), 0.4);
        }
        starved.input_lag_ms_p99 = 100.0;
        assert_eq!(limits([&starved].into_iter(), 5.0), []);
        if let Some(thread) = &mut starved.fullest_thread {
            thread.waited = 0.51;
        }
        starved.input_lag_ms_p99 = 240.0;
        let found = limits([&usage(0.9, 0, 0), &starved].into_iter(), 0.2);
        let said: Vec<String> = found.iter().map(ToString::to_string).collect();
        let want = [
            "lab is busy 45 % and waits for a CPU 51 % of the time",
            "the lab handles what comes 240 ms late",
        ];
        assert_eq!(said, want);
        assert!(found.iter().all(Limit::is_lateness), "others on its CPUs may be why");
    }
}
