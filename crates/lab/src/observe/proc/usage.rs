//! CPU by thread and memory of processes, and what machine this is.

use crate::record::{MachineMeta, ThreadUsage};
use procfs::process::all_processes;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// CPU time of each thread of a process so far, with its name.
#[derive(Debug, Clone, Default)]
pub struct ThreadTimes(BTreeMap<i32, (String, Scheduled)>);

/// What the scheduler says of a thread so far: the first two fields of `schedstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Scheduled {
    on_cpu: Duration,
    /// Ready to run, with no CPU for it.
    waited: Duration,
}

impl ThreadTimes {
    /// Takes a later reading. Threads that are missing in it are kept: the kernel's listing may
    /// skip one while others end, and a thread that came back must not seem new.
    pub fn update(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// What a process used in an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Cores of all threads together.
    pub cores: f64,
    /// Cores by thread name; threads of one name are added up.
    pub threads: BTreeMap<String, f64>,
    /// The busiest single thread.
    pub busiest: Option<(String, f64)>,
    /// The thread with the least time left: it was on a CPU, or waited for one, longest.
    pub fullest: Option<ThreadUsage>,
    /// Of the time that all threads wanted to run, the share that they waited for a CPU, 0 to 1.
    pub waiting: f64,
    /// The thread that waited most, and for which share of the interval.
    pub most_waiting: Option<(String, f64)>,
}

/// The threads of a process now; none if it is gone.
pub fn threads(pid: u32) -> Option<impl Iterator<Item = (i32, PathBuf)>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    Some(tasks.filter_map(|task| Some((task.file_name().to_str()?.parse().ok()?, task.path()))))
}

/// CPU time of all threads of a process; none if it is gone.
pub fn thread_times(pid: u32) -> Option<ThreadTimes> {
    let mut times = BTreeMap::new();
    for (tid, task) in threads(pid)? {
        let read = |file: &str| fs::read_to_string(task.join(file));
        // A thread may end while we look.
        let (Ok(name), Ok(schedstat)) = (read("comm"), read("schedstat")) else { continue };
        if let Some(time) = scheduled(&schedstat) {
            times.insert(tid, (name.trim_end().to_owned(), time));
        }
    }
    Some(ThreadTimes(times))
}

/// The first two fields of `schedstat`, in ns.
fn scheduled(schedstat: &str) -> Option<Scheduled> {
    let mut fields = schedstat.split_whitespace().map(|field| field.parse().ok());
    let mut next = || fields.next().flatten().map(Duration::from_nanos);
    Some(Scheduled { on_cpu: next()?, waited: next()? })
}

/// What was used between two readings.
pub fn usage(before: &ThreadTimes, after: &ThreadTimes, wall: Duration) -> Usage {
    let mut usage = Usage::default();
    let wall_s = wall.as_secs_f64();
    if wall_s <= 0.0 {
        return usage;
    }
    let mut waited = 0.0;
    let most = |known: &mut Option<(String, f64)>, name: &String, value: f64| {
        if known.as_ref().is_none_or(|(_, most)| value > *most) {
            *known = Some((name.clone(), value));
        }
    };
    for (tid, (name, time)) in &after.0 {
        // A new thread began at 0.
        let since = before.0.get(tid).map_or(Scheduled::default(), |(_, time)| *time);
        let share = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() / wall_s;
        let cores = share(time.on_cpu, since.on_cpu);
        let waiting = share(time.waited, since.waited);
        usage.cores += cores;
        waited += waiting;
        *usage.threads.entry(name.clone()).or_default() += cores;
        let thread = ThreadUsage { name: name.clone(), cores, waited: waiting };
        if usage.fullest.as_ref().is_none_or(|most| thread.wanted() > most.wanted()) {
            usage.fullest = Some(thread);
        }
        most(&mut usage.busiest, name, cores);
        most(&mut usage.most_waiting, name, waiting);
    }
    usage.waiting = if waited > 0.0 { waited / (waited + usage.cores) } else { 0.0 };
    usage
}

/// CPU time so far of a process and all its descendants that still live.
pub fn family_time(root: u32) -> Duration {
    let ticks = procfs::ticks_per_second().max(1);
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    let mut times: HashMap<i32, u64> = HashMap::new();
    for stat in all_processes().into_iter().flatten().flatten().filter_map(|p| p.stat().ok()) {
        children.entry(stat.ppid).or_default().push(stat.pid);
        times.insert(stat.pid, stat.utime + stat.stime);
    }
    let mut total = 0;
    let mut open = vec![root as i32];
    while let Some(pid) = open.pop() {
        total += times.get(&pid).copied().unwrap_or(0);
        open.extend(children.remove(&pid).unwrap_or_default());
    }
    Duration::from_secs_f64(total as f64 / ticks as f64)
}

/// A child of a process that has a thread of this name.
pub fn child_with_thread(parent: u32, thread: &str) -> Option<u32> {
    let children = all_processes().ok()?.flatten().filter_map(|process| process.stat().ok());
    let mut own = children.filter(|stat| stat.ppid == parent as i32).map(|stat| stat.pid as u32);
    own.find(|pid| !threads_named(*pid, thread).is_empty())
}

/// The threads of a process whose names begin so.
pub fn threads_named(pid: u32, prefix: &str) -> Vec<i32> {
    let wanted = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with(prefix))
    };
    let all = threads(pid).into_iter().flatten().filter(|(_, task)| wanted(task));
    all.map(|(tid, _)| tid).collect()
}

/// Resident memory of a process, in MiB.
pub fn rss_mib(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// Memory of all processes below one whose name begins with `name`, in MiB: shared pages count in
/// parts (PSS), so that the sum is true. None if there are none.
pub fn children_pss_mib(root: u32, name: &str) -> Option<f64> {
    let mut children: HashMap<i32, Vec<(i32, String)>> = HashMap::new();
    for stat in all_processes().ok()?.flatten().filter_map(|process| process.stat().ok()) {
        children.entry(stat.ppid).or_default().push((stat.pid, stat.comm));
    }
    let mut total_kib = 0.0;
    let mut open = vec![root as i32];
    while let Some(pid) = open.pop() {
        for (child, comm) in children.remove(&pid).unwrap_or_default() {
            open.push(child);
            if comm.starts_with(name) {
                total_kib += pss_kib(child).unwrap_or(0.0);
            }
        }
    }
    (total_kib > 0.0).then_some(total_kib / 1024.0)
}

fn pss_kib(pid: i32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// This machine.
pub fn machine() -> MachineMeta {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let cpu = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(':'))
        .map_or("unknown", |(_, name)| name.trim());
    let loads = read("/proc/loadavg");
    MachineMeta {
        cpu: cpu.to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        load_average: loads.split_whitespace().take(3).flat_map(str::parse).collect(),
        versions: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    #[test]
    fn a_busy_thread_is_named_with_what_it_used() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let pid = std::process::id();
        let busy = std::thread::Builder::new()
            .name("busy-one".into())
            .spawn(|| {
                while !STOP.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            })
            .expect("thread");
        let begin = Instant::now();
        let before = thread_times(pid).expect("ourselves");
        // Until it has really had some CPU: others may be using it.
        let usage = loop {
            std::thread::sleep(Duration::from_millis(50));
            let after = thread_times(pid).expect("ourselves");
            let usage = usage(&before, &after, begin.elapsed());
            if usage.threads.get("busy-one").is_some_and(|cores| *cores > 0.02) {
                break usage;
            }
        };
        STOP.store(true, Ordering::Relaxed);
        busy.join().expect("join");
        assert!(usage.threads["busy-one"] <= 1.1, "one thread is one core at most: {usage:?}");
        assert!(usage.cores >= usage.threads["busy-one"]);
        assert!(usage.busiest.is_some());
        assert!(rss_mib(pid).expect("ourselves") > 1.0);
        assert!(family_time(pid) > Duration::ZERO);
        assert!(thread_times(u32::MAX).is_none());
    }

    #[test]
    fn threads_of_one_name_are_added_and_new_ones_begin_at_zero() {
        let ms = Duration::from_millis;
        let times = |list: &[(i32, &str, u64)]| {
            let one = |v| Scheduled { on_cpu: ms(v), waited: ms(v / 10) };
            ThreadTimes(list.iter().map(|(t, n, v)| (*t, ((*n).to_owned(), one(*v)))).collect())
        };
        let before = times(&[(1, "lab", 1000), (2, "gone", 50)]);
        let after = times(&[(1, "lab", 1500), (3, "lab", 250), (4, "bots", 900)]);
        let usage = usage(&before, &after, ms(1000));
        assert_eq!(usage.threads, BTreeMap::from([("lab".into(), 0.75), ("bots".into(), 0.9)]));
        assert_eq!(usage.busiest, Some(("bots".into(), 0.9)));
        assert!((usage.cores - 1.65).abs() < 1e-9);
        assert!((usage.waiting - 1.0 / 11.0).abs() < 1e-9);
        assert_eq!(usage.most_waiting, Some(("bots".into(), 0.09)));
        // A reading that missed a thread does not make it new.
        let mut known = before;
        known.update(times(&[(2, "gone", 60)]));
        assert_eq!(super::usage(&known, &after, ms(1000)).threads["lab"], 0.75);
    }

    #[test]
    fn a_thread_that_waits_for_its_cpu_is_fuller_than_a_busier_one() {
        let ms = Duration::from_millis;
        let times = |lab: (u64, u64), bots: (u64, u64)| {
            let one = |of: (u64, u64)| Scheduled { on_cpu: ms(of.0), waited: ms(of.1) };
            let named = |name: &str, of| (name.to_owned(), one(of));
            ThreadTimes(BTreeMap::from([(1, named("lab", lab)), (2, named("bots", bots))]))
        };
        let usage = usage(&times((0, 0), (0, 0)), &times((440, 540), (560, 100)), ms(1000));
        assert_eq!(usage.busiest, Some(("bots".into(), 0.56)));
        let fullest = usage.fullest.expect("threads");
        assert_eq!((fullest.name.as_str(), fullest.cores, fullest.waited), ("lab", 0.44, 0.54));
    }

    #[test]
    fn this_machine() {
        let machine = machine();
        assert!(machine.cores >= 1 && !machine.kernel.is_empty());
        assert_eq!(machine.load_average.len(), 3);
        let ms = Duration::from_millis;
        let want = Scheduled { on_cpu: ms(12), waited: ms(5) };
        assert_eq!(scheduled("12000000 5000000 9"), Some(want));
        assert_eq!(scheduled(""), None);
    }
}
