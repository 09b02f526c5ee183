//! All that is read from `/proc`, `/sys` and the kernel's queues, of any process of this machine.

mod cgroup;
mod cpus;
mod listener;
mod network;
mod usage;
mod watch;

pub use cgroup::{QuotaFile, quota_file};
pub use cpus::affinity;
pub use listener::listener;
pub use network::{Qdisc, qdiscs, tc};
pub use usage::{
    ThreadTimes, Usage, child_with_thread, children_pss_mib, family_time, machine, rss_mib,
    thread_times, threads, threads_named, usage,
};
pub use watch::{Watch, fd_limits};
