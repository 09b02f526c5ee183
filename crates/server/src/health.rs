//! Whether the threads that carry calls run: each says so once a round, and a thread that died ends the process.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// A thread that has not come round for so long is late. Each does so at least once a second.
const LATE: Duration = Duration::from_secs(3);
/// A thread silent for this long stands still. Idle threads come round once a second.
pub(crate) const STALLED: Duration = Duration::from_millis(1500);

/// A thread that ended unasked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Died {
    /// Its name, such as `media-0`.
    pub thread: String,
    /// What it panicked with.
    pub why: String,
}

/// What a thread shall do wrong, for tests of a development server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadFault {
    /// It panics.
    Panic,
    /// It stands still for so long, once.
    Stall(Duration),
}

/// How long a thread with a fault runs before.
const BEFORE_FAULT: Duration = Duration::from_secs(1);

/// The threads of a server.
#[derive(Debug)]
pub struct Health {
    begun: Instant,
    threads: Mutex<Vec<(String, Arc<AtomicU64>)>>,
    died: OnceLock<mpsc::UnboundedSender<Died>>,
}

impl Default for Health {
    fn default() -> Self {
        Self { begun: Instant::now(), threads: Mutex::default(), died: OnceLock::new() }
    }
}

impl Health {
    /// Where it is told that a thread died: one message a thread at most.
    pub(crate) fn deaths(&self) -> mpsc::UnboundedReceiver<Died> {
        let (sender, deaths) = mpsc::unbounded_channel();
        // The first who asks is told: there is one server in a process.
        let _ = self.died.set(sender);
        deaths
    }

    /// Starts a thread that is looked after; `run` is given what it beats with.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn spawn(
        &self,
        name: &str,
        fault: Option<ThreadFault>,
        run: impl FnOnce(Beat) + Send + 'static,
    ) -> std::io::Result<std::thread::JoinHandle<()>> {
        let beat = self.beat(name, fault);
        let (name, died) = (name.to_owned(), self.died.get().cloned());
        std::thread::Builder::new().name(name.clone()).spawn(move || {
            let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(beat))) else { return };
            if let Some(died) = died {
                // Who is not there any more is ending the process already.
                let _ = died.send(Died { thread: name, why: reason(&*panic) });
            }
            resume_unwind(panic);
        })
    }

    fn beat(&self, name: &str, fault: Option<ThreadFault>) -> Beat {
        let at_ms = Arc::new(AtomicU64::new(self.begun.elapsed().as_millis() as u64));
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push((name.to_owned(), at_ms.clone()));
        let fault = fault.map(|fault| (Instant::now() + BEFORE_FAULT, fault));
        Beat { begun: self.begun, at_ms, fault }
    }

    /// Which threads are late, and for how long they have been silent.
    pub fn late(&self) -> Vec<(String, Duration)> {
        self.silent(LATE)
    }

    /// Which threads have been silent for so long or longer, and for how long.
    pub(crate) fn silent(&self, at_least: Duration) -> Vec<(String, Duration)> {
        let now = self.begun.elapsed();
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = threads.iter().filter_map(|(name, at_ms)| {
            let silent = now.saturating_sub(Duration::from_millis(at_ms.load(Relaxed)));
            (silent >= at_least).then(|| (name.clone(), silent))
        });
        silent.collect()
    }
}

/// What a thread says that it runs with.
#[derive(Debug)]
pub(crate) struct Beat {
    begun: Instant,
    at_ms: Arc<AtomicU64>,
    fault: Option<(Instant, ThreadFault)>,
}

impl Beat {
    /// The thread comes round.
    pub(crate) fn round(&mut self, now: Instant) {
        self.at_ms.store(now.saturating_duration_since(self.begun).as_millis() as u64, Relaxed);
        match self.fault.take_if(|(at, _)| now >= *at) {
            None => {}
            Some((_, ThreadFault::Panic)) => panic!("a fault made on purpose"),
            Some((_, ThreadFault::Stall(long))) => std::thread::sleep(long),
        }
    }
}

/// What a panic says.
pub(crate) fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without words".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_come_round_is_named() {
        let health = Health::default();
        let (mut slow, mut good) = (health.beat("control-0", None), health.beat("mix-0", None));
        assert_eq!(health.late(), []);
        let at = |ms| health.begun + Duration::from_millis(ms);
        slow.round(at(0));
        good.round(at(3_600_000));
        // As if the time had passed: nothing here waits.
        let health = Health { begun: health.begun - Duration::from_secs(10), ..health };
        let stalled = health.silent(STALLED);
        assert!(matches!(&stalled[..], [(name, _)] if name == "control-0"), "{stalled:?}");
        let late = health.late();
        assert!(matches!(&late[..], [(name, silent)] if name == "control-0" && *silent >= LATE));
    }

    #[test]
    fn a_thread_that_panics_is_told_with_its_reason() {
        let health = Health::default();
        let mut deaths = health.deaths();
        let run = |_| panic!("{} of it", "the reason");
        assert!(health.spawn("media-7", None, run).expect("a thread").join().is_err());
        let died = deaths.try_recv().expect("told");
        assert_eq!((&*died.thread, &*died.why), ("media-7", "the reason of it"));
        health.spawn("media-8", None, |_| {}).expect("a thread").join().expect("its end");
        assert!(deaths.try_recv().is_err(), "that one was done");
    }
}
