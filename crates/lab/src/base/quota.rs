//! A CPU quota for a server: a control group of our own, of version 1 or 2. Needs root.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, io};

/// Length of a quota's period as containers have it: who has used it up stands still for tens of milliseconds.
pub const AS_CONTAINERS: Duration = Duration::from_millis(100);
/// So short a period makes a slow CPU rather than one that stands still.
pub const AS_A_SLOW_CPU: Duration = Duration::from_millis(10);

/// The least quota that Linux takes, whatever its period is (`min_cfs_quota_period`).
const LEAST: Duration = Duration::from_millis(1);

/// A smaller change of its speed is none: each change of a quota begins a new period.
const CHANGE: f64 = 0.01;
/// A quota is changed by no more than this, either way.
const MOST: f64 = 4.0;
/// Where a piece of work ([`super::floor`]) costs so many milliseconds, a quota is as many cores as it says.
const REFERENCE_MS: f64 = 1.0;

/// A control group with a CPU quota; dropping it removes the group, which must be empty by then.
#[derive(Debug)]
pub struct Quota {
    group: PathBuf,
    v1: bool,
    cores: f64,
    period: Duration,
}

impl Quota {
    /// Makes one of so many cores, in each period.
    ///
    /// # Errors
    /// The system's, with what helps.
    pub fn new(cores: f64, period: Duration) -> io::Result<Self> {
        // The system takes no smaller one: then its period is longer.
        let period = period.max(LEAST.div_f64(cores));
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("moim-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let of_v1 = Path::new("/sys/fs/cgroup/cpu");
        let v1 = of_v1.is_dir();
        let group = if v1 { of_v1 } else { Path::new("/sys/fs/cgroup") }.join(name);
        let told = |error| {
            let cure = "quotas need root, and with cgroups of version 2 the controller cpu in \
                        /sys/fs/cgroup/cgroup.subtree_control";
            io::Error::other(format!("no CPU quota: {error} ({cure})"))
        };
        fs::create_dir(&group).map_err(told)?;
        // Removed again if the limit cannot be set.
        let quota = Self { group, v1, cores, period };
        if v1 {
            let period_us = period.as_micros().to_string();
            fs::write(quota.group.join("cpu.cfs_period_us"), period_us).map_err(told)?;
        }
        quota.set(cores).map_err(told)?;
        Ok(quota)
    }

    fn set(&self, cores: f64) -> io::Result<()> {
        let period_us = self.period.as_micros();
        let quota_us = (cores * period_us as f64).round().max(LEAST.as_micros() as f64);
        match self.v1 {
            true => fs::write(self.group.join("cpu.cfs_quota_us"), quota_us.to_string()),
            false => fs::write(self.group.join("cpu.max"), format!("{quota_us} {period_us}")),
        }
    }

    /// The file that takes the id of a process, which all that it starts inherits.
    pub fn procs(&self) -> PathBuf {
        self.group.join("cgroup.procs")
    }

    /// Puts a process with all its threads under it.
    ///
    /// # Errors
    /// The system's.
    pub fn take(&self, pid: u32) -> io::Result<()> {
        fs::write(self.procs(), pid.to_string())
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}

/// A quota that gives the same work in each second, not the same time: where the machine is slower it is larger. Without
/// this, what a server carries would follow whatever else runs on the host, and differ from machine to machine.
#[derive(Debug)]
pub(crate) struct SteadyQuota {
    quota: Quota,
    /// How many times the quota is given now.
    now: f64,
}

impl SteadyQuota {
    /// Keeps the work of a quota as it is.
    pub(crate) fn new(quota: Quota) -> Self {
        Self { quota, now: 1.0 }
    }

    /// Takes what a piece of work costs now, in milliseconds ([`super::floor`]).
    ///
    /// # Errors
    /// The system's: the quota stays as it is.
    pub(crate) fn follow(&mut self, floor_ms: f64) -> io::Result<()> {
        let slower = (floor_ms / REFERENCE_MS).clamp(MOST.recip(), MOST);
        if (slower / self.now - 1.0).abs() >= CHANGE {
            self.quota.set(self.quota.cores * slower)?;
            self.now = slower;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quota whose files lie anywhere.
    fn written(cores: f64) -> (tempfile::TempDir, Quota) {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("group");
        fs::create_dir(&group).unwrap();
        (dir, Quota { group, v1: true, cores, period: AS_A_SLOW_CPU })
    }

    #[test]
    fn a_quota_is_of_its_period() {
        let (_dir, quota) = written(0.35);
        quota.set(0.35).unwrap();
        assert_eq!(fs::read_to_string(quota.group.join("cpu.cfs_quota_us")).unwrap(), "3500");
        let v2 = Quota { v1: false, period: AS_CONTAINERS, group: quota.group.clone(), ..quota };
        v2.set(0.5).unwrap();
        assert_eq!(fs::read_to_string(v2.group.join("cpu.max")).unwrap(), "50000 100000");
        v2.set(0.001).unwrap();
        assert_eq!(fs::read_to_string(v2.group.join("cpu.max")).unwrap(), "1000 100000");
    }

    #[test]
    fn a_slower_machine_gives_more_time() {
        let (_dir, quota) = written(0.35);
        let file = quota.group.join("cpu.cfs_quota_us");
        quota.set(0.35).unwrap();
        let mut steady = SteadyQuota::new(quota);
        for (floor_ms, quota_us) in
            [(1.0, "3500"), (1.005, "3500"), (1.3, "4550"), (9.0, "14000"), (0.1, "1000")]
        {
            steady.follow(floor_ms).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), quota_us, "{floor_ms}");
        }
    }
}
