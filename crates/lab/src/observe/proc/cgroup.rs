//! Control groups, version 1 and 2: how much CPU and memory a process may use, and how often it was
//! held back (kernel: Documentation/admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst).

use crate::record::QuotaUsage;
use std::fs;
use std::path::{Path, PathBuf};

/// A group's CPU quota and its counters so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Quota {
    file: QuotaFile,
    cores: f64,
    periods: u64,
    throttled: u64,
}

/// The file that holds a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaFile {
    /// `cpu.max`: quota and period in µs.
    V2(PathBuf),
    /// `cpu.cfs_quota_us`: the quota in µs.
    V1(PathBuf),
}

impl QuotaFile {
    fn group(&self) -> &Path {
        let (Self::V2(path) | Self::V1(path)) = self;
        path.parent().unwrap_or(path)
    }

    /// (quota, period) in µs; none without a quota.
    pub fn read(&self) -> Option<(u64, u64)> {
        match self {
            Self::V2(path) => {
                let text = fs::read_to_string(path).ok()?;
                let (quota, period) = text.trim().split_once(' ')?;
                Some((quota.parse().ok()?, period.parse().ok()?))
            }
            Self::V1(path) => {
                let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse().ok();
                let period = number(&path.with_file_name("cpu.cfs_period_us"))?;
                Some((number(path)?, period))
            }
        }
    }

    /// Sets the quota, in µs a period.
    ///
    /// # Errors
    /// The file cannot be written: needs root, or a group of one's own.
    pub fn set(&self, quota_us: u64) -> std::io::Result<()> {
        match self {
            Self::V2(path) => {
                let period = self.read().map_or(100_000, |(_, period)| period);
                fs::write(path, format!("{quota_us} {period}"))
            }
            Self::V1(path) => fs::write(path, quota_us.to_string()),
        }
    }
}

/// The tightest quota that holds for a process: its group's, or one above.
pub fn quota_file(pid: u32) -> Option<QuotaFile> {
    let with = groups(pid, "cpu").into_iter().filter_map(|(v2, group)| {
        let file = match v2 {
            true => QuotaFile::V2(group.join("cpu.max")),
            false => QuotaFile::V1(group.join("cpu.cfs_quota_us")),
        };
        let (quota, period) = file.read()?;
        Some((quota as f64 / period.max(1) as f64, file))
    });
    with.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, file)| file)
}

impl Quota {
    /// The quota that holds for a process, with its counters.
    pub fn of(pid: u32) -> Option<Self> {
        let file = quota_file(pid)?;
        let (quota, period) = file.read()?;
        let stat = fs::read_to_string(file.group().join("cpu.stat")).ok()?;
        let (periods, throttled) = (field(&stat, "nr_periods")?, field(&stat, "nr_throttled")?);
        Some(Self { cores: quota as f64 / period.max(1) as f64, periods, throttled, file })
    }

    /// What happened since an earlier reading of the same group.
    pub fn since(&self, before: Option<&Self>) -> Option<QuotaUsage> {
        let before = before.filter(|before| before.file == self.file)?;
        Some(QuotaUsage {
            cores: self.cores,
            periods: self.periods.saturating_sub(before.periods),
            throttled: self.throttled.saturating_sub(before.throttled),
        })
    }
}

/// Out-of-memory kills in a process's group so far, and the group's limit in MiB.
pub fn memory(pid: u32) -> (Option<u64>, Option<f64>) {
    let Some((v2, group)) = groups(pid, "memory").into_iter().next() else { return (None, None) };
    let (events, limit) = match v2 {
        true => ("memory.events", "memory.max"),
        false => ("memory.oom_control", "memory.limit_in_bytes"),
    };
    let read = |file: &str| fs::read_to_string(group.join(file)).ok();
    let kills = read(events).and_then(|text| field(&text, "oom_kill"));
    let bytes: Option<u64> = read(limit).and_then(|text| text.trim().parse().ok());
    // Version 1 writes a number near 2⁶³ for no limit.
    let limit = bytes.filter(|bytes| *bytes < 1 << 60).map(|bytes| bytes as f64 / 1048576.0);
    (kills, limit)
}

/// The groups of a process under a controller, its own first, then those above; whether each is of
/// version 2.
fn groups(pid: u32, controller: &str) -> Vec<(bool, PathBuf)> {
    let of = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    for line in of.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let v2 = controllers.is_empty();
        if !v2 && !controllers.split(',').any(|one| one == controller) {
            continue;
        }
        let Some(root) = mounted_at(&mounts, v2, controller) else { continue };
        for above in Path::new(path.trim_start_matches('/')).ancestors() {
            found.push((v2, root.join(above)));
        }
    }
    found
}

/// Where a controller's hierarchy is mounted (proc_pid_mountinfo(5)).
fn mounted_at(mounts: &str, v2: bool, controller: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split_whitespace();
        let (kind, options) = (after.next()?, after.nth(1).unwrap_or(""));
        let fits = match kind {
            "cgroup2" => v2,
            "cgroup" => !v2 && options.split(',').any(|option| option == controller),
            _ => false,
        };
        fits.then(|| before.split_whitespace().nth(4).map(PathBuf::from))?
    })
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_both_versions() {
        let dir = tempfile::tempdir().expect("tempdir");
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("write");
        write("cpu.cfs_quota_us", "-1\n");
        write("cpu.cfs_period_us", "100000\n");
        let v1 = QuotaFile::V1(dir.path().join("cpu.cfs_quota_us"));
        assert_eq!(v1.read(), None, "-1 is no quota");
        v1.set(30_000).expect("set");
        assert_eq!(v1.read(), Some((30_000, 100_000)));
        write("cpu.max", "max 100000\n");
        let v2 = QuotaFile::V2(dir.path().join("cpu.max"));
        assert_eq!(v2.read(), None);
        write("cpu.max", "50000 100000\n");
        v2.set(60_000).expect("set");
        assert_eq!(v2.read(), Some((60_000, 100_000)));
    }

    #[test]
    fn mounts_and_counters() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:3 - cgroup cgroup rw,cpu,cpuacct\n\
            40 31 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let at = |v2, controller| mounted_at(mounts, v2, controller);
        assert_eq!(at(false, "cpu"), Some("/sys/fs/cgroup/cpu,cpuacct".into()));
        assert_eq!(at(false, "memory"), None);
        assert_eq!(at(true, "cpu"), Some("/sys/fs/cgroup/unified".into()));
        let stat = "nr_periods 50\nnr_throttled 20\nthrottled_time 9\n";
        assert_eq!((field(stat, "nr_periods"), field(stat, "nr_throttled")), (Some(50), Some(20)));
        assert_eq!(field("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", "oom_kill"), Some(2));
        let quota = |periods, throttled| Quota {
            file: QuotaFile::V2("/x/cpu.max".into()),
            cores: 0.5,
            periods,
            throttled,
        };
        let used = quota(80, 35).since(Some(&quota(50, 20))).expect("same group");
        assert_eq!((used.periods, used.throttled, used.throttled_share()), (30, 15, 0.5));
        assert_eq!(quota(80, 35).since(None), None);
        assert!(groups(u32::MAX, "cpu").is_empty());
    }
}
