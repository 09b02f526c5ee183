//! Watches server and generator: CPU by thread, memory, traffic, drops, and how late timers fire.

mod probe;

use crate::base::{FloorReading, Url, http};
use crate::observe::proc;
use crate::record::{GeneratorUsage, KernelUsage, LinkLimit, MachineRecord, ServerUsage};
use hdrhistogram::Histogram;
pub use probe::PROBE_LATE;
use probe::{Inputs, METRICS_TIMEOUT, Probe};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The period of the timer whose lag is measured.
const TICK: Duration = Duration::from_millis(10);
/// Longer lags count as this.
const MAX_LAG_US: u64 = 60_000_000;
/// The environment variable with the `admin.token` of a server that was not started by the lab.
const ADMIN_TOKEN: &str = "MOIM_ADMIN_TOKEN";

/// What a server's metrics say so far; None if it has no such series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters {
    packets_in: Option<f64>,
    packets_out: Option<f64>,
    bytes_in: Option<f64>,
    bytes_out: Option<f64>,
    /// Bytes that wait for TCP connections now.
    tcp_waiting: Option<f64>,
    /// By `where/reason`.
    drops: BTreeMap<String, u64>,
    /// Ticks by thread.
    stalled: BTreeMap<String, u64>,
    /// By name.
    mix: BTreeMap<String, u64>,
    /// Ticks of the signaling loop: due, missed.
    signaling: Option<(f64, f64)>,
    /// Those over 5 ms late, and how late the latest was since the server's start, in ms.
    signaling_late: (f64, Option<f64>),
}

impl Counters {
    /// Reads Prometheus text. Series of one name are added up, unknown ones are skipped. The counters
    /// of mixers are also kept for each mixer, as `moim_mix_ticks_total mix-0`.
    pub fn parse(text: &str) -> Self {
        let mut counters = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let sum = match name {
                "moim_media_packets_in_total" => &mut counters.packets_in,
                "moim_media_packets_out_total" => &mut counters.packets_out,
                "moim_media_bytes_in_total" => &mut counters.bytes_in,
                "moim_media_bytes_out_total" => &mut counters.bytes_out,
                "moim_tcp_waiting_bytes" => &mut counters.tcp_waiting,
                "moim_signaling_ticks_total" => {
                    counters.signaling.get_or_insert_default().0 += value;
                    continue;
                }
                "moim_signaling_ticks_missed_total" => {
                    counters.signaling.get_or_insert_default().1 += value;
                    continue;
                }
                "moim_signaling_ticks_over_5_ms_total" => {
                    counters.signaling_late.0 += value;
                    continue;
                }
                "moim_signaling_delay_worst_us" => {
                    counters.signaling_late.1 = Some(value / 1000.0);
                    continue;
                }
                "moim_dropped_total" => {
                    let reason = format!("{}/{}", label(labels, "where"), label(labels, "reason"));
                    *counters.drops.entry(reason).or_default() += value as u64;
                    continue;
                }
                "moim_thread_stalled_ticks_total" => {
                    let thread = label(labels, "thread").to_owned();
                    *counters.stalled.entry(thread).or_default() += value as u64;
                    continue;
                }
                name if name.starts_with("moim_mix_") && name.ends_with("_total") => {
                    let one = format!("{name} {}", label(labels, "thread"));
                    *counters.mix.entry(one).or_default() += value as u64;
                    *counters.mix.entry(name.to_owned()).or_default() += value as u64;
                    continue;
                }
                _ => continue,
            };
            *sum = Some(sum.unwrap_or(0.0) + value);
        }
        counters
    }
}

fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let start = labels.find(&format!("{name}=\"")).map(|at| &labels[at + name.len() + 2..]);
    start.and_then(|rest| rest.split('"').next()).unwrap_or("unknown")
}

/// Rate of a counter that may be unknown; one that fell (a restart) is unknown too.
fn rate(before: Option<f64>, after: Option<f64>, wall_s: f64) -> Option<f64> {
    let delta = after? - before?;
    (delta >= 0.0 && wall_s > 0.0).then_some(delta / wall_s)
}

/// By how much each of these counters grew.
fn grown(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let then = |name| before.get(name).copied().unwrap_or(0);
    after.iter().map(|(name, now)| (name.clone(), now.saturating_sub(then(name)))).collect()
}

/// Measures how late a 10 ms timer fires, on a thread of its own (`lab-timer`).
#[derive(Debug)]
pub struct TimerLag {
    lags: Arc<Mutex<Lags>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Lags {
    window_us: Histogram<u64>,
    all_us: Histogram<u64>,
}

fn lock(lags: &Mutex<Lags>) -> MutexGuard<'_, Lags> {
    lags.lock().unwrap_or_else(PoisonError::into_inner)
}

fn p99_ms(histogram_us: &Histogram<u64>) -> f64 {
    histogram_us.value_at_quantile(0.99) as f64 / 1000.0
}

impl TimerLag {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start() -> std::io::Result<Self> {
        // A histogram that grows by itself would clamp what is recorded with saturation to 2 ms.
        let histogram = || Histogram::new_with_max(MAX_LAG_US, 3).map_err(std::io::Error::other);
        let lags = Lags { window_us: histogram()?, all_us: histogram()? };
        let (lags, stop) = (Arc::new(Mutex::new(lags)), Arc::new(AtomicBool::new(false)));
        let (shared, stopped) = (Arc::clone(&lags), Arc::clone(&stop));
        let thread = thread::Builder::new().name("lab-timer".into()).spawn(move || {
            // It has the priority of the bots' threads, so that it is as late as they are.
            crate::base::be_prompt();
            let mut next = Instant::now() + TICK;
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(next.saturating_duration_since(Instant::now()));
                let now = Instant::now();
                let lag_us = now.saturating_duration_since(next).as_micros() as u64;
                let mut lags = lock(&shared);
                lags.window_us.saturating_record(lag_us);
                lags.all_us.saturating_record(lag_us);
                // Ticks that it slept through count as one late tick, not as many.
                next = (next + TICK).max(now);
            }
        })?;
        Ok(Self { lags, stop, thread: Some(thread) })
    }

    /// 99th percentile since the last call, in milliseconds.
    pub fn take_window_p99_ms(&self) -> f64 {
        let mut lags = lock(&self.lags);
        let p99_ms = p99_ms(&lags.window_us);
        lags.window_us.reset();
        p99_ms
    }

    /// 99th percentile since the start, in milliseconds.
    pub fn p99_ms(&self) -> f64 {
        p99_ms(&lock(&self.lags).all_us)
    }

    /// Forgets what was measured before: the load begins now.
    pub fn reset(&self) {
        let mut lags = lock(&self.lags);
        lags.window_us.reset();
        lags.all_us.reset();
    }
}

impl Drop for TimerLag {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Watches one server and this process.
#[derive(Debug)]
pub struct Monitor {
    url: Url,
    /// What the server's metrics want (`admin.token` of its settings).
    token: Option<String>,
    /// None if the server is on another machine.
    server: Option<proc::Watch>,
    own: proc::Watch,
    browser_pid: Option<u32>,
    link_limit: LinkLimit,
    floor: Option<FloorReading>,
    timer: TimerLag,
    inputs: Inputs,
    probe: Probe,
    at: Instant,
    /// What the server's metrics said last, and when.
    counters: Option<(Instant, Counters)>,
    browser_time: Duration,
    /// Datagrams of the bots so far: sent, received.
    datagrams: Option<(u64, u64)>,
}

impl Monitor {
    /// Declares what the server's link bears.
    pub fn with_link_limit(self, link_limit: LinkLimit) -> Self {
        Self { link_limit, ..self }
    }

    /// Where to read what a piece of work costs on the server's CPUs.
    pub(crate) fn with_floor(self, floor: Option<FloorReading>) -> Self {
        Self { floor, ..self }
    }

    /// Begins to watch. `server_pid`: None if the server is on another machine.
    ///
    /// # Errors
    /// The timer's thread cannot be started.
    pub async fn start(
        url: Url,
        server_pid: Option<u32>,
        browser_pid: Option<u32>,
    ) -> std::io::Result<Self> {
        let inputs = Inputs::start();
        let mut monitor = Self {
            probe: Probe::start(url.clone(), &inputs),
            inputs,
            url,
            token: std::env::var(ADMIN_TOKEN).ok().filter(|token| !token.is_empty()),
            server: server_pid.map(proc::Watch::start),
            own: proc::Watch::start(std::process::id()),
            browser_pid,
            link_limit: LinkLimit::default(),
            floor: None,
            timer: TimerLag::start()?,
            at: Instant::now(),
            counters: None,
            browser_time: Duration::ZERO,
            datagrams: None,
        };
        monitor.record(0, None).await;
        monitor.timer.reset();
        Ok(monitor)
    }

    /// What was used since the last call. `datagrams`: what the bots have sent and received so far.
    pub async fn record(&mut self, t_ms: u64, datagrams: Option<(u64, u64)>) -> MachineRecord {
        let now = Instant::now();
        let wall = now.saturating_duration_since(self.at);
        self.at = now;
        let generator = self.generator(wall, datagrams);
        let kernel = self.server.as_mut().and_then(proc::Watch::read);
        // Last: it takes as long as the server likes.
        let token = self.token.as_deref();
        let text = http::get_with(&self.url, "/metrics", token, METRICS_TIMEOUT).await.ok();
        let counters = text.map(|text| Counters::parse(&text));
        let server = self.server(kernel, counters);
        MachineRecord { t_ms, server, generator, ..MachineRecord::default() }
    }

    fn server(
        &mut self,
        kernel: Option<(proc::Usage, KernelUsage)>,
        counters: Option<Counters>,
    ) -> Option<ServerUsage> {
        let probes = self.probe.take();
        let declared = self.link_limit != LinkLimit::default();
        if kernel.is_none() && counters.is_none() && !declared {
            return None;
        }
        let link_limit = self.link_limit;
        let probes = Some(probes);
        let floor_ms = self.floor.as_ref().and_then(FloorReading::ms);
        let mut usage = ServerUsage { probes, link_limit, floor_ms, ..ServerUsage::default() };
        if let Some((used, kernel)) = kernel {
            usage.cpu_cores = Some(used.cores);
            usage.threads = used.threads;
            usage.busiest_thread = used.busiest;
            usage.rss_mib = proc::rss_mib(kernel.pid);
            usage.kernel = Some(kernel);
        }
        let Some(after) = counters else { return Some(usage) };
        let now = Instant::now();
        let (at, before) = self.counters.take().unwrap_or((now, Counters::default()));
        let wall_s = now.saturating_duration_since(at).as_secs_f64();
        let mbit = |before, after| rate(before, after, wall_s).map(|bytes| bytes * 8.0 / 1e6);
        usage.packets_in_per_s = rate(before.packets_in, after.packets_in, wall_s);
        usage.packets_out_per_s = rate(before.packets_out, after.packets_out, wall_s);
        usage.tcp_waiting_bytes = after.tcp_waiting;
        usage.mbit_in_per_s = mbit(before.bytes_in, after.bytes_in);
        usage.mbit_out_per_s = mbit(before.bytes_out, after.bytes_out);
        if let (Some(then), Some(now)) = (before.signaling, after.signaling) {
            usage.signaling_ticks = Some(((now.0 - then.0) as u64, (now.1 - then.1) as u64));
        }
        if let Some(worst) = after.signaling_late.1 {
            let over = (after.signaling_late.0 - before.signaling_late.0).max(0.0);
            usage.signaling_delay = Some((over as u64, worst));
        }
        usage.drops = grown(&before.drops, &after.drops);
        usage.drops.retain(|_, count| *count > 0);
        usage.stalled_ticks = grown(&before.stalled, &after.stalled);
        usage.stalled_ticks.retain(|_, count| *count > 0);
        usage.mix = grown(&before.mix, &after.mix);
        self.counters = Some((now, after));
        Some(usage)
    }

    fn generator(&mut self, wall: Duration, datagrams: Option<(u64, u64)>) -> GeneratorUsage {
        let mut usage = GeneratorUsage {
            timer_lag_ms_p99: self.timer.take_window_p99_ms(),
            input_lag_ms_p99: self.inputs.take_window_p99_ms(),
            rss_mib: proc::rss_mib(std::process::id()),
            ..GeneratorUsage::default()
        };
        if let Some((used, kernel)) = self.own.read() {
            usage.cpu_cores = used.cores;
            usage.threads = used.threads;
            usage.busiest_thread = used.busiest;
            usage.fullest_thread = used.fullest;
            usage.kernel = Some(kernel);
        }
        if let Some((sent, received)) = datagrams {
            let before = self.datagrams.replace((sent, received)).unwrap_or_default();
            let rate =
                |now: u64, before: u64| now.saturating_sub(before) as f64 / wall.as_secs_f64();
            usage.packets_out_per_s = Some(rate(sent, before.0));
            usage.packets_in_per_s = Some(rate(received, before.1));
        }
        if let Some(pid) = self.browser_pid {
            let time = proc::family_time(pid);
            // The time of a browser process that ended is lost: the window then reads less, or nothing.
            let spent = time.saturating_sub(self.browser_time).as_secs_f64();
            let cores = spent / wall.as_secs_f64().max(1e-9);
            self.browser_time = time;
            usage.cpu_cores += cores;
            usage.threads.insert("chromium".into(), cores);
        }
        usage
    }

    /// How late timers fired since the start: 99th percentile, in milliseconds.
    pub fn timer_lag_ms_p99(&self) -> f64 {
        self.timer.p99_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const TEXT: &str = "\
# HELP moim_media_packets_in_total Packets received, by thread.
# TYPE moim_media_packets_in_total counter
moim_media_packets_in_total{thread=\"media-0\"} 700
moim_media_packets_in_total{thread=\"media-1\"} 300
moim_media_packets_out_total{thread=\"media-0\"} 5000
moim_media_bytes_out_total{thread=\"media-0\"} 1e6
moim_tcp_waiting_bytes{thread=\"media-0\"} 100
moim_tcp_waiting_bytes{thread=\"media-1\"} 20
moim_dropped_total{where=\"media\",reason=\"replayed\"} 3
moim_mix_ticks_total{thread=\"mix-0\"} 40
moim_signaling_ticks_total 90
moim_signaling_ticks_missed_total 4
moim_mix_ticks_total{thread=\"mix-1\"} 2
moim_thread_stalled_ticks_total{thread=\"media-1\"} 30
moim_call_seconds_bucket{le=\"+Inf\"} 3
nonsense
";

    #[test]
    fn prometheus_text() {
        let counters = Counters::parse(TEXT);
        assert_eq!(counters.packets_in, Some(1000.0));
        assert_eq!(counters.packets_out, Some(5000.0));
        assert_eq!((counters.bytes_in, counters.bytes_out), (None, Some(1e6)));
        assert_eq!(counters.tcp_waiting, Some(120.0));
        assert_eq!(counters.drops, BTreeMap::from([("media/replayed".into(), 3)]));
        let mix = [("", 42), (" mix-0", 40), (" mix-1", 2)];
        let mix = mix.map(|(of, ticks)| (format!("moim_mix_ticks_total{of}"), ticks));
        assert_eq!(counters.mix, BTreeMap::from(mix));
        assert_eq!(counters.signaling, Some((90.0, 4.0)));
        assert_eq!(counters.stalled, BTreeMap::from([("media-1".into(), 30)]));
        assert_eq!(Counters::parse(""), Counters::default());
        assert_eq!(rate(Some(10.0), Some(40.0), 3.0), Some(10.0));
        assert_eq!(rate(Some(40.0), Some(10.0), 3.0), None, "a restart");
        assert_eq!(rate(None, Some(10.0), 3.0), None);
    }

    #[tokio::test]
    async fn a_server_on_this_machine() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        tokio::spawn(async move {
            let mut round = 0u32;
            loop {
                let (mut stream, _) = listener.accept().await.expect("accept");
                let mut buffer = [0u8; 512];
                let length = stream.read(&mut buffer).await.unwrap_or(0);
                // The probe asks too.
                if !buffer[..length].starts_with(b"GET /metrics") {
                    continue;
                }
                let text = TEXT.replace(" 3\n", &format!(" {}\n", 3 + 2 * round));
                let answer = format!("HTTP/1.1 200 OK\r\n\r\n{text}");
                stream.write_all(answer.as_bytes()).await.expect("write");
                round += 1;
            }
        });
        let url = Url { host: "127.0.0.1".into(), port };
        let pid = proc::listener(&url.host, port);
        let mut monitor = Monitor::start(url, pid, None).await.expect("start");
        let record = monitor.record(3_000, None).await;
        let server = record.server.expect("local");
        assert_eq!(server.packets_in_per_s, Some(0.0));
        assert_eq!(server.mbit_in_per_s, None, "no such series: unknown, not 0");
        assert_eq!(server.drops, BTreeMap::from([("media/replayed".into(), 2)]), "the interval's");
        assert!(server.cpu_cores.is_some() && server.rss_mib.is_some());
        let mut generator = record.generator;
        // A new thread has its name once it has run.
        while !generator.threads.contains_key("lab-timer") {
            generator = monitor.record(3_000, None).await.generator;
        }
        assert!(generator.busiest_thread.is_some());
    }

    #[tokio::test]
    async fn a_server_that_is_silent_and_elsewhere_is_null() {
        let port = {
            let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
            free.local_addr().expect("address").port()
        };
        let url = Url { host: "127.0.0.1".into(), port };
        let mut monitor = Monitor::start(url, None, None).await.expect("start");
        assert_eq!(monitor.record(3_000, None).await.server, None);
    }

    #[test]
    fn lag_is_measured() {
        let timer = TimerLag::start().expect("start");
        while lock(&timer.lags).all_us.len() < 5 {
            thread::sleep(TICK);
        }
        assert!(timer.p99_ms() < 60_000.0);
        // Ticks still come in between: more long lags than short ones, whatever their number.
        lock(&timer.lags).all_us.record_n(8_000, 1_000_000).expect("within the bounds");
        assert!(timer.p99_ms() > 7.9, "a long lag is told: {}", timer.p99_ms());
        timer.take_window_p99_ms();
        timer.reset();
        assert!(lock(&timer.lags).all_us.len() < 5);
    }
}
