//! How late the server answers a small request, and how late the lab's own threads are, which must
//! not be taken for the server's lateness.

use crate::base::{Url, http};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How long the server may take to tell its metrics.
pub(super) const METRICS_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the server is asked for a small page.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// See [`crate::record::ServerUsage::probes`].
pub const PROBE_LATE: Duration = Duration::from_millis(250);
/// How often to look how late the lab's own threads are.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Looks that are kept: those of ten minutes.
const MAX_LOOKS: usize = 30_000;

/// Measures how late the lab's own threads handle what comes to them, by a timer beside everything
/// else that they do.
#[derive(Debug)]
pub(super) struct Inputs {
    looks: Arc<Mutex<Looks>>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Looks {
    last: Instant,
    /// The sum of all lags so far.
    sum: Duration,
    window: VecDeque<Duration>,
}

impl Looks {
    /// How much later than planned a look at `now` is.
    fn lag(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last).saturating_sub(LOOK_EVERY)
    }

    fn look(&mut self, now: Instant) {
        let lag = self.lag(now);
        self.sum += lag;
        self.last = now;
        if self.window.len() == MAX_LOOKS {
            self.window.pop_front();
        }
        self.window.push_back(lag);
    }

    fn take_p99(&mut self) -> Duration {
        let mut lags: Vec<Duration> = self.window.drain(..).collect();
        lags.sort_unstable();
        let rank = (lags.len() * 99).div_ceil(100);
        rank.checked_sub(1).map_or(Duration::ZERO, |at| lags[at])
    }
}

fn with<T>(looks: &Mutex<Looks>, work: impl FnOnce(&mut Looks) -> T) -> T {
    work(&mut looks.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Inputs {
    pub(super) fn start() -> Self {
        let (last, sum, window) = (Instant::now(), Duration::ZERO, VecDeque::new());
        let looks = Arc::new(Mutex::new(Looks { last, sum, window }));
        let shared = Arc::clone(&looks);
        let task = tokio::spawn(async move {
            loop {
                sleep(LOOK_EVERY).await;
                with(&shared, |looks| looks.look(Instant::now()));
            }
        });
        Self { looks, task }
    }

    /// 99th percentile since the last call, in milliseconds.
    pub(super) fn take_window_p99_ms(&self) -> f64 {
        with(&self.looks, Looks::take_p99).as_secs_f64() * 1000.0
    }
}

impl Drop for Inputs {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The time that the lab itself was late so far, its lateness at this moment included.
fn own(looks: &Mutex<Looks>) -> Duration {
    with(looks, |looks| looks.sum + looks.lag(Instant::now()))
}

/// Asks the server for a small page some times a second and counts what came late.
#[derive(Debug)]
pub(super) struct Probe {
    counts: Arc<ProbeCounts>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct ProbeCounts {
    made: AtomicU64,
    late: AtomicU64,
}

impl Probe {
    /// Starts to ask. `inputs` tells how much of an answer's time is the lab's own doing.
    pub(super) fn start(url: Url, inputs: &Inputs) -> Self {
        let counts = Arc::new(ProbeCounts::default());
        let (shared, looks) = (Arc::clone(&counts), Arc::clone(&inputs.looks));
        let task = tokio::spawn(async move {
            let mut ticks = interval(PROBE_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            // In the background: a request that hangs must not hold the next one up.
            let mut running = tokio::task::JoinSet::new();
            loop {
                ticks.tick().await;
                while running.try_join_next().is_some() {}
                let (url, counts, looks) = (url.clone(), Arc::clone(&shared), Arc::clone(&looks));
                running.spawn(async move {
                    let (begin, before) = (Instant::now(), own(&looks));
                    let _ = http::get(&url, "/healthz", METRICS_TIMEOUT).await;
                    let ours = own(&looks).saturating_sub(before);
                    counts.made.fetch_add(1, Ordering::Relaxed);
                    if begin.elapsed().saturating_sub(ours) > PROBE_LATE {
                        counts.late.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Self { counts, task }
    }

    /// Requests that ended since the last call: all, late ones.
    pub(super) fn take(&self) -> (u64, u64) {
        (self.counts.made.swap(0, Ordering::Relaxed), self.counts.late.swap(0, Ordering::Relaxed))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    #[test]
    fn a_stall_is_a_lag_once_and_counts_while_it_lasts() {
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        let mut looks = Looks { last: begin, sum: Duration::ZERO, window: VecDeque::new() };
        for nth in 1..=98 {
            looks.look(begin + LOOK_EVERY * nth);
        }
        let last = begin + LOOK_EVERY * 98;
        assert_eq!((looks.sum, looks.lag(last + ms(320))), (Duration::ZERO, ms(300)));
        looks.look(last + ms(320));
        looks.look(last + ms(640));
        assert_eq!((looks.sum, looks.take_p99()), (ms(600), ms(300)));
        assert_eq!(looks.take_p99(), Duration::ZERO, "the window's own");
    }

    /// A server that answers at once; the lab's only thread is blocked now and then.
    #[tokio::test]
    async fn the_labs_own_lateness_is_not_the_servers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        let inputs = Inputs::start();
        let probe = Probe::start(Url { host: "127.0.0.1".into(), port }, &inputs);
        let (mut made, mut late) = (0, 0);
        while made < 2 {
            // While a request is under way and its answer is not read yet.
            let (mut stream, _) = listener.accept().await.expect("accept");
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nok").await.expect("write");
            drop(stream);
            std::thread::sleep(2 * PROBE_LATE);
            sleep(LOOK_EVERY * 2).await;
            let (more, of_them) = probe.take();
            (made, late) = (made + more, late + of_them);
        }
        assert_eq!(late, 0, "of {made}");
        assert!(inputs.take_window_p99_ms() >= 200.0, "and is told");
        // A server that answers late is found all the same.
        while late == 0 {
            let (stream, _) = listener.accept().await.expect("accept");
            sleep(2 * PROBE_LATE).await;
            drop(stream);
            sleep(LOOK_EVERY).await;
            late += probe.take().1;
        }
    }
}
