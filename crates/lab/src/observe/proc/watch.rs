//! What the kernel counts for a process and around it, and what of that a process used in an
//! interval: its threads' time on a CPU and in wait for one, the CPUs it may use, the quota of its
//! control group, its UDP sockets, the network it is in, its files and its memory.
//!
//! Works for any process of this machine, in other network namespaces too; needs no help from it.
//! Other users' processes show their files and sockets to root only: what cannot be read is null.

use super::cgroup::{self, Quota};
use super::cpus::{CpuTimes, affinity};
use super::network::{Counts, delta};
use super::usage::{self, ThreadTimes, Usage};
use crate::record::KernelUsage;
use std::fs;
use std::time::Instant;

/// Watches one process through the kernel's counters.
#[derive(Debug)]
pub struct Watch {
    pid: u32,
    at: Instant,
    times: ThreadTimes,
    cpus: CpuTimes,
    quota: Option<Quota>,
    network: Counts,
    oom_kills: Option<u64>,
}

impl Watch {
    /// Begins to watch; what is read later counts from now.
    pub fn start(pid: u32) -> Self {
        let mut watch = Self {
            pid,
            at: Instant::now(),
            times: ThreadTimes::default(),
            cpus: CpuTimes::default(),
            quota: None,
            network: Counts::default(),
            oom_kills: None,
        };
        watch.read();
        watch
    }

    /// What was used since the last call, with each thread's share of time; none once it is gone.
    pub fn read(&mut self) -> Option<(Usage, KernelUsage)> {
        let pid = self.pid;
        let now = Instant::now();
        let times = usage::thread_times(pid)?;
        let wall = now.saturating_duration_since(self.at);
        self.at = now;
        let used = usage::usage(&self.times, &times, wall);
        self.times.update(times);
        let cpus = affinity(pid);
        let cpu_times = CpuTimes::read();
        let on_set = cpu_times.since(&self.cpus, &cpus);
        self.cpus = cpu_times;
        let quota = Quota::of(pid);
        let (oom_kills, memory_limit_mib) = cgroup::memory(pid);
        let counts = Counts::of(pid);
        let usage = KernelUsage {
            pid,
            waiting: used.waiting,
            waiting_thread: used.most_waiting.clone(),
            cpus,
            cpus_busy: on_set.busy,
            cpus_steal: on_set.steal,
            softirq_most: on_set.softirq_most,
            quota: quota.as_ref().and_then(|now| now.since(self.quota.as_ref())),
            udp_drops: counts.udp_drops_since(&self.network),
            softnet_drops: counts.softnet_drops_since(&self.network),
            links: counts.links_since(&self.network, wall),
            fds: fds(pid),
            fd_limit: fd_limits(pid).and_then(|limits| limits.0),
            memory_limit_mib,
            oom_kills: delta(oom_kills, self.oom_kills),
        };
        self.quota = quota;
        self.network = counts;
        self.oom_kills = oom_kills;
        Some((used, usage))
    }
}

/// Descriptors that a process has open.
fn fds(pid: u32) -> Option<u64> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64)
}

/// How many it may have open, and how far it may raise that itself (soft and hard limit); None
/// if there is no limit.
pub fn fd_limits(pid: u32) -> Option<(Option<u64>, Option<u64>)> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = line.split_whitespace().map(|word| word.parse().ok());
    Some((words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn this_process() {
        let mut watch = Watch::start(std::process::id());
        let file = fs::File::open("/proc/self/stat").expect("open");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        let (used, kernel) = watch.read().expect("ourselves");
        drop(file);
        assert!(used.cores > 0.0 && kernel.fds.is_some_and(|fds| fds > 3));
        assert!(!kernel.cpus.is_empty() && kernel.cpus_busy.is_some_and(|busy| busy <= 1.0));
        assert!(kernel.fd_limit.is_none_or(|limit| limit > 3));
        assert!(Watch::start(u32::MAX).read().is_none());
    }

    #[test]
    fn a_full_receive_buffer_is_counted() {
        let mut watch = Watch::start(std::process::id());
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
        watch.read();
        for _ in 0..2_000 {
            let _ = sender.send_to(&[0; 1400], receiver.local_addr().expect("address"));
        }
        let (_, kernel) = watch.read().expect("ourselves");
        assert!(kernel.udp_drops.is_some_and(|drops| drops > 0), "{kernel:?}");
    }
}
