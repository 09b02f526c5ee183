//! What a media or bot thread does to itself. (A nice value, an affinity and a timer slack are
//! inherited by the threads that it starts afterwards.)

use std::io;
use std::time::Duration;

use crate::sys;

/// Sets the nice value of the calling thread (-20, first served, to 19, last).
///
/// # Errors
/// `PermissionDenied` for a lower value than the present one without the privilege.
pub fn set_current_thread_nice(nice: i32) -> io::Result<()> {
    sys::set_nice(nice)
}

/// Makes the calling thread one that is served soon: this nice value, and a short time slice, which
/// from Linux 6.12 on gives an early deadline at each wake-up (older kernels ignore the slice).
///
/// # Errors
/// `PermissionDenied` for a lower nice value than the present one without the privilege.
pub fn set_current_thread_prompt(nice: i32, slice: Duration) -> io::Result<()> {
    sys::set_slice(nice, slice)
}

/// The nice value of the calling thread.
pub fn current_thread_nice() -> i32 {
    sys::nice()
}

/// Lets the calling thread run on these CPUs only.
///
/// # Errors
/// `InvalidInput` when none of them exists or is allowed to this process.
pub fn pin_current_thread(cpus: &[usize]) -> io::Result<()> {
    sys::set_affinity(cpus)
}

/// The CPUs that the calling thread may run on.
///
/// # Errors
/// The machine has more than 1024 CPUs.
pub fn current_thread_cpus() -> io::Result<Vec<usize>> {
    sys::affinity()
}

/// The CPU time that the calling thread has used.
pub fn thread_cpu_time() -> Duration {
    sys::thread_cpu_time()
}

/// Sets how much later than asked the timers of the calling thread may fire (50 µs at first), so
/// that pacing is exact: use 1 ns for media threads.
///
/// # Errors
/// What the system says.
pub fn set_timer_slack(slack: Duration) -> io::Result<()> {
    sys::set_timer_slack(slack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nice_and_affinity_belong_to_the_thread() {
        let before = current_thread_nice();
        std::thread::spawn(move || {
            set_current_thread_prompt(before, Duration::from_micros(100)).unwrap();
            assert_eq!(current_thread_nice(), before);
            set_current_thread_nice((before + 1).min(19)).unwrap();
            assert_eq!(current_thread_nice(), (before + 1).min(19));
            let cpus = current_thread_cpus().unwrap();
            pin_current_thread(&cpus[..1]).unwrap();
            assert_eq!(current_thread_cpus().unwrap(), &cpus[..1]);
            for none in [&[][..], &[1023], &[1_000_000]] {
                let kind = pin_current_thread(none).unwrap_err().kind();
                assert_eq!(kind, io::ErrorKind::InvalidInput, "{none:?}");
            }
        })
        .join()
        .unwrap();
        assert_eq!(current_thread_nice(), before);
    }

    #[test]
    fn cpu_time_grows_with_work_and_not_with_other_threads() {
        let start = thread_cpu_time();
        std::thread::spawn(|| {
            let start = thread_cpu_time();
            while thread_cpu_time() - start < Duration::from_millis(30) {}
        })
        .join()
        .unwrap();
        assert!(thread_cpu_time() - start < Duration::from_millis(30));
        let mut spins = 0u64;
        while thread_cpu_time() - start < Duration::from_millis(31) {
            spins += 1;
        }
        assert!(spins > 0);
    }
}
