//! A CPU quota for a server: a control group of our own, of version 1 or 2. Needs root.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{fs, io};

/// Length of a quota's period in µs, as containers have it.
const PERIOD_US: f64 = 100_000.0;

/// A control group with a CPU quota; dropping it removes the group, which must be empty by then.
#[derive(Debug)]
pub struct Quota(PathBuf);

impl Quota {
    /// Makes one of so many cores.
    ///
    /// # Errors
    /// The system's, with what helps.
    pub fn new(cores: f64) -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("moim-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let us = (cores * PERIOD_US).round();
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let (dir, file, text) = match v1.is_dir() {
            true => (v1.join(name), "cpu.cfs_quota_us", us.to_string()),
            false => {
                (Path::new("/sys/fs/cgroup").join(name), "cpu.max", format!("{us} {PERIOD_US}"))
            }
        };
        let made = fs::create_dir(&dir).and_then(|()| fs::write(dir.join(file), text));
        let told = |error| io::Error::other(format!("no CPU quota: {error} (quotas need root)"));
        made.map(|()| Self(dir)).map_err(told)
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
