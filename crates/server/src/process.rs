//! What this process and its threads use, for `/metrics`: read from /proc (proc(5)) when somebody asks. Series `process_…`
//! have the names and meanings that Prometheus' client libraries gave them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

/// The text of these series. What the kernel does not tell is left out.
pub(crate) fn render() -> String {
    let mut out = String::with_capacity(2048);
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(Stat { cpu_seconds, resident_bytes, started_seconds }) = Stat::read(&stat) {
        let (name, help) = ("process_cpu_seconds_total", "CPU time of all threads, in seconds.");
        series(&mut out, name, help, "counter", cpu_seconds);
        let (name, help) = ("process_resident_memory_bytes", "Resident memory, in bytes.");
        series(&mut out, name, help, "gauge", resident_bytes);
        if let Some(boot) = boot_seconds() {
            let (name, help) = ("process_start_time_seconds", "When it began, since 1970.");
            series(&mut out, name, help, "gauge", boot + started_seconds);
        }
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        // The one that reads them is among them.
        let open = files.count().saturating_sub(1);
        series(&mut out, "process_open_fds", "Open files and sockets.", "gauge", open as f64);
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if let Some(limit) = limit {
        series(&mut out, "process_max_fds", "As many may be open.", "gauge", limit as f64);
    }
    let name = "moim_thread_cpu_seconds_total";
    head(&mut out, name, "CPU time, in seconds, by thread; those of one name together.", "counter");
    for (thread, seconds) in threads() {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name}{{thread=\"{thread}\"}} {seconds}");
    }
    out
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
    /// Since the machine came up.
    started_seconds: f64,
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
            started_seconds: field(22)? / ticks,
            resident_bytes: field(24)? * rustix::param::page_size() as f64,
        })
    }
}

/// When the machine came up, since 1970.
fn boot_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// CPU seconds by the thread's name: the server gives its threads fixed names.
fn threads() -> BTreeMap<String, f64> {
    let mut threads = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file));
        // A thread may end while we look.
        let (Ok(name), Ok(schedstat)) = (read("comm"), read("schedstat")) else { continue };
        let nanoseconds = schedstat.split_ascii_whitespace().next();
        let Some(Ok(nanoseconds)) = nanoseconds.map(str::parse::<f64>) else { continue };
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = name.trim_end().replace(|c| !fits(c), "_");
        *threads.entry(name).or_default() += nanoseconds / 1e9;
    }
    threads
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
        assert_eq!(read.started_seconds, 5000.0 / ticks);
        assert_eq!(read.resident_bytes, 25.0 * rustix::param::page_size() as f64);
        assert_eq!(Stat::read("7 (a) S 1"), None);
    }

    #[test]
    fn a_thread_that_works_is_seen_by_its_name() {
        let value = |text: &str, series: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(series)).unwrap_or("-1");
            line.trim().parse().unwrap()
        };
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let works = move || {
            let mut n = 0u64;
            let before = value(&render(), "process_cpu_seconds_total ");
            while value(&render(), "process_cpu_seconds_total ") < before + 0.05 {
                n = std::hint::black_box(n + 1);
            }
            wait.recv().ok();
        };
        std::thread::scope(|scope| {
            std::thread::Builder::new().name("busy-7".into()).spawn_scoped(scope, works).unwrap();
            let series = "moim_thread_cpu_seconds_total{thread=\"busy-7\"} ";
            while value(&render(), series) < 0.01 {
                std::thread::yield_now();
            }
            drop(done);
        });
        let text = render();
        for series in ["process_resident_memory_bytes ", "process_open_fds ", "process_max_fds "] {
            assert!(value(&text, series) > 0.0, "{series}: {text}");
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - value(&text, "process_start_time_seconds ");
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }
}
