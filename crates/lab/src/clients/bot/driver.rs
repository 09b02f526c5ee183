//! The runtime of the bots: threads `bots-0`, `bots-1`… that own their sockets, ICE, DTLS and
//! media, driven by the earliest deadline and by what arrives. Nothing on them ever blocks.

mod begin;
mod peer;
mod port;
mod shared;
mod stream;
mod worker;

use super::fixtures::Fixtures;
use super::marks::SaidMarks;
use super::media::Clock;
use crate::base::local_ip;
use crate::clients::bot::spec::{
    BotCommand, BotDriver, BotError, BotHandle, BotOffer, BotSpec, SlotPool,
};
use crate::clients::bot::words::AudioSource;
use crate::record::{Fault, MixWindows};
use hdrhistogram::Histogram;
use net::Waker;
pub use shared::Health;
use shared::{Command, Common, Reply, Says, lock};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;
use wire::QualitySample;
use wire::event::SlotChange;
use wire::room::Answer;

/// Most commands that wait for one thread.
const MAX_COMMANDS: usize = 4096;

/// How the bots are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Threads; the bots are spread over them.
    pub threads: usize,
    /// An address of the target's: bots bind to the local address that reaches it. None: loopback.
    pub target: Option<SocketAddr>,
    /// Everything random of the bots' media comes from this.
    pub seed: u64,
    /// ICE and DTLS must be done so long after the answer.
    pub connect_timeout: Duration,
    /// Whether they agree to redundancy of sound (RED), and send it once sound is lost.
    pub red: bool,
    /// What they do wrong on purpose.
    pub fault: Option<Fault>,
}

impl Default for Options {
    fn default() -> Self {
        let connect_timeout = Duration::from_secs(10);
        Self { threads: 1, target: None, seed: 1, connect_timeout, red: true, fault: None }
    }
}

/// The way to a thread.
#[derive(Clone)]
struct Line {
    commands: SyncSender<Command>,
    waker: Arc<Waker>,
}

impl Line {
    fn send(&self, command: Command) -> Result<(), BotError> {
        self.commands.try_send(command).map_err(|error| {
            BotError::new(match error {
                TrySendError::Full(_) => {
                    "the bots' thread is so far behind that it takes no command"
                }
                TrySendError::Disconnected(_) => "the bots' thread has ended",
            })
        })?;
        self.waker.wake();
        Ok(())
    }

    async fn ask<T>(&self, make: impl FnOnce(Reply<T>) -> Command) -> Result<T, BotError> {
        let (reply, answer) = oneshot::channel();
        self.send(make(reply))?;
        answer.await.unwrap_or_else(|_| Err(BotError::new("the bots' thread has ended")))
    }
}

struct Thread {
    line: Line,
    health: Arc<Mutex<Health>>,
    join: Option<JoinHandle<()>>,
}

/// All bots' threads. Dropping it ends them.
pub struct Driver {
    common: Arc<Common>,
    threads: Vec<Thread>,
    next: AtomicU64,
    /// How late timers were until it was asked last, in µs.
    told_lag_us: Mutex<Option<Histogram<u64>>>,
}

/// A bot on one of the threads.
pub struct Handle {
    bot: u64,
    line: Line,
    /// A message that could not be given to the thread: the bot is not what it should be.
    failed: Mutex<Option<BotError>>,
}

impl Driver {
    /// Starts the threads. Errors: the fixtures are damaged, the target cannot be reached from any
    /// own address, or the system gives no thread.
    pub fn start(options: &Options) -> Result<Self, BotError> {
        let error =
            |what: &str, why: &dyn std::fmt::Display| BotError::new(format!("{what}: {why}"));
        let fixtures = Fixtures::embedded().map_err(|why| error("the bots' media", &why))?;
        let transport = transport::Shared::new().map_err(|why| error("the bots' DTLS", &why))?;
        let transport = if options.red { transport } else { transport.without_red() };
        let local_ip = local_ip(options.target)
            .map_err(|why| error("no own address reaches the target", &why))?;
        let common = Arc::new(Common {
            fixtures,
            transport,
            local_ip,
            seed: options.seed,
            connect_timeout: options.connect_timeout,
            fault: options.fault,
            threads: options.threads.max(1),
            clock: Clock {
                origin: Instant::now(),
                unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            },
            stop: AtomicBool::new(false),
            origin: Instant::now(),
            tones: Mutex::default(),
            burst: OnceLock::new(),
            said: Arc::default(),
            air: Mutex::default(),
        });
        let (threads, next) = (Vec::new(), AtomicU64::new(1));
        let mut driver = Self { common, threads, next, told_lag_us: Mutex::default() };
        for number in 0..driver.common.threads {
            let thread = driver.thread(number).map_err(|why| error("a bots' thread", &why))?;
            driver.threads.push(thread);
        }
        Ok(driver)
    }

    fn thread(&self, number: usize) -> io::Result<Thread> {
        let (commands, incoming): (_, Receiver<Command>) = sync_channel(MAX_COMMANDS);
        let waker = Arc::new(Waker::new()?);
        let health = Arc::new(Mutex::new(Health::new()));
        let worker = worker::Worker::new(
            number,
            self.common.clone(),
            incoming,
            waker.clone(),
            health.clone(),
        )?;
        let join = std::thread::Builder::new()
            .name(format!("bots-{number}"))
            .spawn(move || worker.run())?;
        Ok(Thread { line: Line { commands, waker }, health, join: Some(join) })
    }

    /// How the threads fared so far.
    pub fn health(&self) -> Health {
        let mut all = Health::new();
        self.threads.iter().for_each(|thread| all.add(&lock(&thread.health)));
        all
    }
}

/// Bots whose packets a thread bears with ease.
const BOTS_A_THREAD: usize = 400;

/// Starts the driver's threads for so many bots: one, and with many bots more where this process has
/// the CPUs. Bots bind to the own address that reaches `target`; `red` and `fault` are of [`Options`].
pub fn start_for(
    target: SocketAddr,
    bots: u32,
    red: bool,
    fault: Option<Fault>,
) -> Result<Driver, BotError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (bots as usize).div_ceil(BOTS_A_THREAD).clamp(1, cpus);
    let target = Some(target);
    Driver::start(&Options { threads, target, red, fault, ..Options::default() })
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.common.stop.store(true, Ordering::Release);
        for thread in &mut self.threads {
            thread.line.waker.wake();
            if let Some(join) = thread.join.take() {
                // A panic on the thread has been told by the panic itself.
                let _ = join.join();
            }
        }
    }
}

impl BotDriver for Driver {
    type Handle = Handle;

    fn marks(&self) -> Option<SaidMarks> {
        Some(SaidMarks { said: self.common.said.clone(), origin: self.common.origin })
    }

    fn add(&self, spec: BotSpec) -> Result<Handle, BotError> {
        let now = Instant::now();
        if !spec.media.video.is_known_in(spec.video_codec) {
            return Err(BotError::new(
                "native bots show VP8, and 720p, 1080p, screen and slides in H.264, too: give them \
                 one of these or `video: none`, or use chromium people",
            ));
        }
        let role = spec.tones.unwrap_or_default();
        // Who only listens hears the marks of others.
        let marks = spec.marks.filter(|_| spec.media.audio != AudioSource::Tone);
        let marks = marks.map(|role| self.common.marks(role)).transpose()?;
        let tone = match spec.media.audio {
            AudioSource::Tone => Some(self.common.tone(role)?),
            AudioSource::None | AudioSource::Speech | AudioSource::Steady => None,
        };
        let bot = self.next.fetch_add(1, Ordering::Relaxed);
        let line = self.threads[bot as usize % self.threads.len()].line.clone();
        line.send(Command::Add { bot, spec: Box::new(spec), says: Says { tone, marks }, now })?;
        Ok(Handle { bot, line, failed: Mutex::new(None) })
    }

    fn take_timer_lag_ms_p99(&self) -> Option<f64> {
        let all = self.health().timer_lag_us;
        let before = lock(&self.told_lag_us).replace(all.clone());
        let mut new = all;
        // It only grows, so that nothing is taken that is not there.
        if let Some(before) = before {
            let _ = new.subtract(before);
        }
        (!new.is_empty()).then(|| new.value_at_quantile(0.99) as f64 / 1000.0)
    }

    fn timer_lag_ms_p99(&self) -> Option<f64> {
        self.health().timer_lag_ms_p99()
    }

    fn datagrams(&self) -> Option<(u64, u64)> {
        let health = self.health();
        Some((health.sent, health.received))
    }

    fn drops(&self) -> BTreeMap<&'static str, u64> {
        self.health().drops
    }
}

impl Handle {
    /// Sends what has no answer; a failure is told by the next call that has one.
    fn tell(&self, command: Command) {
        if let Err(error) = self.line.send(command) {
            lock(&self.failed).get_or_insert(error);
        }
    }

    fn check(&self) -> Result<(), BotError> {
        lock(&self.failed).clone().map_or(Ok(()), Err)
    }
}

impl BotHandle for Handle {
    async fn offer(&self) -> Result<BotOffer, BotError> {
        self.check()?;
        self.line.ask(|reply| Command::Offer { bot: self.bot, reply }).await
    }

    async fn accept(&self, offer: Answer) -> Result<BotOffer, BotError> {
        self.check()?;
        self.line.ask(|reply| Command::Accept { bot: self.bot, offer, reply }).await
    }

    fn candidate(&self, candidate: String) {
        self.tell(Command::Candidate { bot: self.bot, candidate });
    }

    async fn answer(&self, answer: Answer) -> Result<(), BotError> {
        self.check()?;
        self.line.ask(|reply| Command::Answer { bot: self.bot, answer, reply }).await
    }

    fn pause(&self, track: String, paused: bool) {
        self.tell(Command::Pause { bot: self.bot, track, paused });
    }

    fn layers(&self, track: String, layer: u8) {
        self.tell(Command::Layers { bot: self.bot, track, layer });
    }

    fn downlink(&self, estimate_kbps: Option<u32>) {
        self.tell(Command::Downlink { bot: self.bot, estimate_kbps });
    }

    fn slots(&self, changes: Vec<SlotChange>) {
        self.tell(Command::Slots { bot: self.bot, changes });
    }

    fn grow(&self, audio: u32, video: u32) {
        self.tell(Command::Grow { bot: self.bot, pool: SlotPool { audio, video } });
    }

    fn command(&self, command: BotCommand) {
        self.tell(Command::Do { bot: self.bot, command });
    }

    async fn connected(&self) -> Result<(), BotError> {
        self.check()?;
        self.line.ask(|reply| Command::Connected { bot: self.bot, reply }).await
    }

    async fn sample(&self) -> Result<QualitySample, BotError> {
        self.check()?;
        self.line.ask(|reply| Command::Sample { bot: self.bot, reply }).await
    }

    async fn heard(&self) -> Result<MixWindows, BotError> {
        self.check()?;
        self.line.ask(|reply| Command::Heard { bot: self.bot, reply }).await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // This one must arrive: the thread drains its commands all the time, or is gone.
        if self.line.commands.send(Command::Remove { bot: self.bot }).is_ok() {
            self.line.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
