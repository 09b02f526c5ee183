//! The CPUs: which ones a process may use, and how busy they are.

use std::collections::BTreeMap;
use std::fs;

/// Time of each CPU so far, in ticks.
#[derive(Debug, Clone, Default)]
pub struct CpuTimes(BTreeMap<usize, Ticks>);

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Ticks {
    idle: u64,
    softirq: u64,
    steal: u64,
    total: u64,
}

/// What a set of CPUs did in an interval; shares from 0 to 1, null if nothing is known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OnSet {
    /// Not idle, what the host took included.
    pub busy: Option<f64>,
    /// What the host took (steal).
    pub steal: Option<f64>,
    /// Soft interrupts, on the CPU that had most.
    pub softirq_most: Option<f64>,
}

impl CpuTimes {
    /// Reads `/proc/stat` (proc(5)).
    pub fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let mut cpus = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().and_then(|name| name.strip_prefix("cpu"));
            let Some(cpu) = name.and_then(|number| number.parse().ok()) else { continue };
            // user nice system idle iowait irq softirq steal; guest time is in user already.
            let fields: Vec<u64> = words.take(8).flat_map(str::parse).collect();
            let [_, _, _, idle, iowait, _, softirq, steal] = fields[..] else { continue };
            let total = fields.iter().sum();
            cpus.insert(cpu, Ticks { idle: idle + iowait, softirq, steal, total });
        }
        Self(cpus)
    }

    /// What these CPUs did since an earlier reading.
    pub fn since(&self, before: &Self, cpus: &[usize]) -> OnSet {
        let deltas = cpus.iter().filter_map(|cpu| {
            let (now, then) = (self.0.get(cpu)?, before.0.get(cpu)?);
            let of = |now: u64, then: u64| now.saturating_sub(then);
            let total = of(now.total, then.total);
            (total > 0).then(|| Ticks {
                idle: of(now.idle, then.idle),
                softirq: of(now.softirq, then.softirq),
                steal: of(now.steal, then.steal),
                total,
            })
        });
        let deltas: Vec<Ticks> = deltas.collect();
        if deltas.is_empty() {
            return OnSet::default();
        }
        let total: u64 = deltas.iter().map(|ticks| ticks.total).sum();
        let share = |part: u64| Some(part as f64 / total as f64);
        let softirq = deltas.iter().map(|ticks| ticks.softirq as f64 / ticks.total as f64);
        OnSet {
            busy: share(deltas.iter().map(|ticks| ticks.total - ticks.idle.min(ticks.total)).sum()),
            steal: share(deltas.iter().map(|ticks| ticks.steal).sum()),
            softirq_most: softirq.reduce(f64::max),
        }
    }
}

/// The CPUs that some thread of a process may run on; empty if that cannot be read.
pub fn affinity(pid: u32) -> Vec<usize> {
    let mut all: Vec<usize> = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        all.extend(list.map(cpu_list).unwrap_or_default());
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Reads `0-2,5`.
fn cpu_list(text: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<usize>()) {
            cpus.extend(first..=last.min(first + 4096));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_set() {
        let before = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 100 800 0 0 0 0 0 0\n\
                      cpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n";
        let after = "cpu0 140 0 120 810 10 0 10 10 7 0\ncpu1 0 0 0 50 0 0 50 0 0 0\n";
        let (before, after) = (CpuTimes::parse(before), CpuTimes::parse(after));
        let one = after.since(&before, &[0]);
        assert_eq!(one.busy, Some(0.8), "idle and waiting for disks are not busy");
        assert_eq!((one.steal, one.softirq_most), (Some(0.1), Some(0.1)));
        let both = after.since(&before, &[0, 1, 7]);
        assert_eq!((both.busy, both.softirq_most), (Some(0.65), Some(0.5)));
        assert_eq!(after.since(&before, &[7]), OnSet::default());
        assert_eq!(after.since(&after, &[0]), OnSet::default(), "no time has passed");
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(cpu_list(" 3"), [3]);
        assert!(cpu_list("").is_empty());
        assert_eq!(affinity(std::process::id()), net::thread::current_thread_cpus().expect("cpus"));
        assert!(affinity(u32::MAX).is_empty());
    }
}
