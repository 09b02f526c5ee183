//! A CPU quota for a server: a control group of our own, of version 1 or 2. Needs root.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, io};

/// Length of a quota's period as containers have it: who has used it up stands still for tens of milliseconds.
pub const AS_CONTAINERS: Duration = Duration::from_millis(100);
/// So short a period makes a slow CPU rather than one that stands still.
pub const AS_A_SLOW_CPU: Duration = Duration::from_millis(10);

/// A control group with a CPU quota; dropping it removes the group, which must be empty by then.
#[derive(Debug)]
pub struct Quota(PathBuf);

impl Quota {
    /// Makes one of so many cores, in each period.
    ///
    /// # Errors
    /// The system's, with what helps.
    pub fn new(cores: f64, period: Duration) -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("moim-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let period = period.as_micros() as f64;
        let us = (cores * period).round();
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let (dir, files) = match v1.is_dir() {
            true => (
                v1.join(name),
                vec![
                    ("cpu.cfs_period_us", period.to_string()),
                    ("cpu.cfs_quota_us", us.to_string()),
                ],
            ),
            false => (
                Path::new("/sys/fs/cgroup").join(name),
                vec![("cpu.max", format!("{us} {period}"))],
            ),
        };
        let told = |error| {
            let cure = "quotas need root, and with cgroups of version 2 the controller cpu in \
                        /sys/fs/cgroup/cgroup.subtree_control";
            io::Error::other(format!("no CPU quota: {error} ({cure})"))
        };
        fs::create_dir(&dir).map_err(told)?;
        // Removed again if the limit cannot be set.
        let quota = Self(dir);
        for (file, text) in files {
            fs::write(quota.0.join(file), text).map_err(told)?;
        }
        Ok(quota)
    }

    /// The file that takes the id of a process, which all that it starts inherits.
    pub fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
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
        let _ = fs::remove_dir(&self.0);
    }
}
