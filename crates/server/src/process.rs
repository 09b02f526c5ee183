//! What this process and its threads use, for `/metrics`: read from /proc (proc(5)) when somebody asks. Series `process_…`
//! have the names and meanings that Prometheus' client libraries gave them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The text of these series. What the kernel does not tell is left out.
pub(crate) fn render() -> String {
    let mut out = String::with_capacity(2048);
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(Stat { cpu_seconds, resident_bytes }) = Stat::read(&stat) {
        let (name, help) = ("process_cpu_seconds_total", "CPU time of all threads, in seconds.");
        series(&mut out, name, help, "counter", cpu_seconds);
        let (name, help) = ("process_resident_memory_bytes", "Resident memory, in bytes.");
        series(&mut out, name, help, "gauge", resident_bytes);
    }
    let (name, help) = ("process_start_time_seconds", "Start of the process, in s since 1970.");
    series(&mut out, name, help, "gauge", started().as_secs_f64());
    if let Some(open) = open_files() {
        series(&mut out, "process_open_fds", "Open files and sockets.", "gauge", open as f64);
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if let Some(limit) = limit {
        let help = "Most files and sockets that may be open.";
        series(&mut out, "process_max_fds", help, "gauge", limit as f64);
    }
    let name = "moim_thread_cpu_seconds_total";
    head(&mut out, name, "CPU time, in seconds, by thread; those of one name together.", "counter");
    for (thread, nanoseconds) in THREADS.lock().unwrap_or_else(PoisonError::into_inner).read() {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name}{{thread=\"{thread}\"}} {}", nanoseconds as f64 / 1e9);
    }
    out
}

/// When the process began, as far as this module knows: the first time that somebody asks.
pub(crate) fn started() -> Duration {
    static STARTED: OnceLock<Duration> = OnceLock::new();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    *STARTED.get_or_init(now)
}

/// Linux 6.2 and newer tell the number as the size of the directory; to read it takes long where there are thousands.
fn open_files() -> Option<u64> {
    let directory = "/proc/self/fd";
    match fs::metadata(directory).ok()?.len() {
        // The one that reads them is among them.
        0 => Some((fs::read_dir(directory).ok()?.count() as u64).saturating_sub(1)),
        open => Some(open),
    }
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn series(out: &mut String, name: &str, help: &str, kind: &str, value: f64) {
    head(out, name, help, kind);
    let _ = writeln!(out, "{name} {value}");
}

/// What is read of /proc/self/stat.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    resident_bytes: f64,
}

impl Stat {
    fn read(stat: &str) -> Option<Self> {
        // The name, in brackets, may hold anything. After it comes field 3.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / ticks,
            resident_bytes: field(24)? * rustix::param::page_size() as f64,
        })
    }
}

static THREADS: Mutex<Threads> = Mutex::new(Threads::new());

/// CPU time by the thread's name: the server gives its threads fixed names. What a thread had that has ended stays, since a
/// counter does not fall.
#[derive(Debug)]
struct Threads {
    /// Name and nanoseconds, by thread id.
    seen: BTreeMap<String, (String, u64)>,
    ended: BTreeMap<String, u64>,
}

impl Threads {
    const fn new() -> Self {
        Self { seen: BTreeMap::new(), ended: BTreeMap::new() }
    }

    /// Nanoseconds by name.
    fn read(&mut self) -> BTreeMap<String, u64> {
        let mut now = BTreeMap::new();
        for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let read = |file: &str| fs::read_to_string(task.path().join(file));
            // A thread may end while we look.
            let (Ok(name), Ok(schedstat)) = (read("comm"), read("schedstat")) else { continue };
            let nanoseconds = schedstat.split_ascii_whitespace().next();
            let Some(Ok(nanoseconds)) = nanoseconds.map(str::parse) else { continue };
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let name = name.trim_end().replace(|c| !fits(c), "_");
            now.insert(task.file_name().to_string_lossy().into_owned(), (name, nanoseconds));
        }
        self.take(now)
    }

    fn take(&mut self, now: BTreeMap<String, (String, u64)>) -> BTreeMap<String, u64> {
        for (id, (name, before)) in std::mem::replace(&mut self.seen, now) {
            // Another thread may have the id by now.
            let goes_on =
                self.seen.get(&id).is_some_and(|(known, now)| *known == name && *now >= before);
            if !goes_on {
                *self.ended.entry(name).or_default() += before;
            }
        }
        let mut all = self.ended.clone();
        for (name, nanoseconds) in self.seen.values() {
            *all.entry(name.clone()).or_default() += nanoseconds;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let line =
            "7 (a) b) (c) S 1 1 1 0 -1 4194304 9 0 0 0 300 200 0 0 20 0 4 0 5000 1000000 25 1 1";
        let read = Stat::read(line).unwrap();
        assert_eq!(read.cpu_seconds, 500.0 / ticks);
        assert_eq!(read.resident_bytes, 25.0 * rustix::param::page_size() as f64);
        assert_eq!(Stat::read("7 (a) S 1"), None);
    }

    #[test]
    fn what_a_thread_had_stays_when_it_ends() {
        let mut threads = Threads::new();
        let now = |list: &[(&str, &str, u64)]| {
            list.iter().map(|(id, name, ns)| (id.to_string(), (name.to_string(), *ns))).collect()
        };
        let all = |list: &[(&str, u64)]| -> BTreeMap<String, u64> {
            list.iter().map(|(name, ns)| (name.to_string(), *ns)).collect()
        };
        assert_eq!(
            threads.take(now(&[("1", "a", 5), ("2", "a", 7), ("3", "b", 1)])),
            all(&[("a", 12), ("b", 1)])
        );
        assert_eq!(threads.take(now(&[("1", "a", 6), ("3", "b", 1)])), all(&[("a", 13), ("b", 1)]));
        // Another thread has the id of one that ended.
        assert_eq!(
            threads.take(now(&[("1", "a", 2), ("3", "c", 4)])),
            all(&[("a", 15), ("b", 1), ("c", 4)])
        );
    }

    #[test]
    fn a_thread_that_works_is_seen_by_its_name() {
        let value = |text: &str, series: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(series)).unwrap_or("-1");
            line.trim().parse().unwrap()
        };
        let begun = std::time::Instant::now();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let works = move || {
            while wait.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                std::hint::spin_loop();
            }
        };
        std::thread::scope(|scope| {
            std::thread::Builder::new().name("busy-7".into()).spawn_scoped(scope, works).unwrap();
            let series = "moim_thread_cpu_seconds_total{thread=\"busy-7\"} ";
            while value(&render(), series) < 0.05 && begun.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            drop(done);
        });
        let text = render();
        for series in [
            "moim_thread_cpu_seconds_total{thread=\"busy-7\"} ",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_max_fds ",
        ] {
            assert!(value(&text, series) > 0.04, "{series}: {text}");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - value(&text, "process_start_time_seconds ");
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }
}
