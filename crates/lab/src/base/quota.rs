//! A CPU quota for a server: a control group of our own, of version 1 or 2. Needs root.

use super::floor::Floor;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, io};

/// Length of a quota's period as containers have it: who has used it up stands still for tens of milliseconds.
pub const AS_CONTAINERS: Duration = Duration::from_millis(100);
/// So short a period makes a slow CPU rather than one that stands still.
pub const AS_A_SLOW_CPU: Duration = Duration::from_millis(10);

/// How often it is seen how fast the machine is.
const LOOKS: Duration = Duration::from_millis(40);
/// A smaller change of its speed is none: each change of a quota begins a new period.
const CHANGE: f64 = 0.01;
/// A quota is changed by no more than this, either way.
const MOST: f64 = 2.0;

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
        let quota_us = (cores * period_us as f64).round();
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
/// this, what a server carries would follow whatever else runs on the host.
#[derive(Debug)]
pub(crate) struct SteadyQuota {
    quota: Arc<Quota>,
    /// The thread, and what ends it when it is dropped.
    keeper: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl SteadyQuota {
    /// Keeps the work of a quota on these CPUs as it is when the first one of this process is made.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(quota: Quota, cpus: Vec<usize>) -> io::Result<Self> {
        static USUAL_MS: OnceLock<f64> = OnceLock::new();
        let quota = Arc::new(quota);
        let (stop, stopped) = sync_channel(0);
        let kept = quota.clone();
        let keep = move || {
            let Ok(mut floor) = Floor::new() else { return };
            let measure = || {
                // Each time: the lab moves all of its threads to CPUs of its own.
                net::thread::pin_current_thread(&cpus)?;
                let now_ms = floor.measure()?;
                Ok(now_ms.map_or(1.0, |now_ms| now_ms / USUAL_MS.get_or_init(|| now_ms)))
            };
            // Where it cannot go on, the quota stays as it is.
            let _ = keep_work(&kept, &stopped, measure);
        };
        let thread = std::thread::Builder::new().name("lab-floor".into()).spawn(keep)?;
        Ok(Self { quota, keeper: Some((stop, thread)) })
    }

    /// Puts a process with all its threads under it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn take(&self, pid: u32) -> io::Result<()> {
        self.quota.take(pid)
    }
}

impl Drop for SteadyQuota {
    fn drop(&mut self) {
        // The group goes with the last who holds it.
        if let Some((stop, thread)) = self.keeper.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// Changes a quota with how many times the usual a piece of work costs, until it is told to stop.
fn keep_work(
    quota: &Quota,
    stopped: &Receiver<()>,
    mut measure: impl FnMut() -> io::Result<f64>,
) -> io::Result<()> {
    let mut now = 1.0;
    loop {
        let slower = measure()?.clamp(MOST.recip(), MOST);
        if (slower / now - 1.0_f64).abs() >= CHANGE {
            quota.set(quota.cores * slower)?;
            now = slower;
        }
        if stopped.recv_timeout(LOOKS) != Err(RecvTimeoutError::Timeout) {
            return Ok(());
        }
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
    }

    #[test]
    fn a_slower_machine_gives_more_time_and_it_ends_when_told() {
        let (_dir, quota) = written(0.35);
        let file = quota.group.join("cpu.cfs_quota_us");
        let (stop, stopped) = sync_channel::<()>(0);
        let keeper = std::thread::spawn(move || {
            let mut costs = [1.0, 1.01, 1.3].into_iter();
            let mut last = 0.0;
            let measure = || {
                last = costs.next().unwrap_or(last);
                Ok(last)
            };
            keep_work(&quota, &stopped, measure).unwrap();
        });
        let read = || fs::read_to_string(&file).ok().and_then(|text| text.parse::<u32>().ok());
        let begun = std::time::Instant::now();
        while read() != Some(4550) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", read());
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(stop);
        keeper.join().unwrap();
    }
}
