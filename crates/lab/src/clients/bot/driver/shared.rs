//! What the bots' threads and those who command them share.

use crate::clients::bot::fixtures::Fixtures;
use crate::clients::bot::marks::{Burst, MarkRole, Marks, Said};
use crate::clients::bot::media::Clock;
use crate::clients::bot::spec::{BotCommand, BotError, BotOffer, BotSpec, SlotPool};
use crate::clients::bot::tones::{MAX_TONES, OnAir, Tone, TonePlan, ToneRole, ToneVoice};
use crate::record::{Fault, MixWindows};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use wire::QualitySample;
use wire::event::SlotChange;
use wire::room::Answer;

/// How the bots' threads kept up: a verdict needs it.
#[derive(Debug, Clone)]
pub struct Health {
    /// How late timers were, in µs.
    pub timer_lag_us: Histogram<u64>,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams not sent, not taken, or dropped by the kernel, by reason.
    pub drops: BTreeMap<&'static str, u64>,
}

impl Health {
    pub(super) fn new() -> Self {
        let timer_lag_us = Histogram::new_with_bounds(1, 60_000_000, 2);
        Self {
            timer_lag_us: timer_lag_us.expect("the bounds are constants and fit"),
            sent: 0,
            received: 0,
            drops: BTreeMap::new(),
        }
    }

    /// Timers were no later than this in 99 of 100 cases, in ms; None where none has run.
    pub fn timer_lag_ms_p99(&self) -> Option<f64> {
        let lag = &self.timer_lag_us;
        (!lag.is_empty()).then(|| lag.value_at_quantile(0.99) as f64 / 1000.0)
    }

    pub(super) fn drop(&mut self, reason: &'static str, count: u64) {
        if count > 0 {
            *self.drops.entry(reason).or_default() += count;
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.timer_lag_us.add(&other.timer_lag_us);
        self.sent += other.sent;
        self.received += other.received;
        other.drops.iter().for_each(|(reason, count)| self.drop(reason, *count));
    }
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, BotError>>;

/// What a bot says besides plain speech.
#[derive(Default)]
pub(super) struct Says {
    pub(super) tone: Option<Tone>,
    pub(super) marks: Option<Marks>,
}

pub(super) enum Command {
    Add { bot: u64, spec: Box<BotSpec>, says: Says, now: Instant },
    Offer { bot: u64, reply: Reply<BotOffer> },
    Accept { bot: u64, offer: Answer, reply: Reply<BotOffer> },
    Answer { bot: u64, answer: Answer, reply: Reply<()> },
    Candidate { bot: u64, candidate: String },
    Slots { bot: u64, changes: Vec<SlotChange> },
    Pause { bot: u64, track: String, paused: bool },
    Layers { bot: u64, track: String, layer: u8 },
    Downlink { bot: u64, estimate_kbps: Option<u32> },
    Grow { bot: u64, pool: SlotPool },
    Do { bot: u64, command: BotCommand },
    Connected { bot: u64, reply: Reply<()> },
    Sample { bot: u64, reply: Reply<QualitySample> },
    Heard { bot: u64, reply: Reply<MixWindows> },
    Remove { bot: u64 },
}

/// What all threads share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) fixtures: Arc<Fixtures>,
    pub(super) transport: transport::Shared,
    pub(super) local_ip: IpAddr,
    pub(super) seed: u64,
    pub(super) connect_timeout: Duration,
    pub(super) fault: Option<Fault>,
    pub(super) threads: usize,
    /// One clock for all bots, so that what one says and another hears is measured by the same clock.
    pub(super) clock: Clock,
    pub(super) stop: AtomicBool,
    /// The clock of all plans of tones begins here, and that of turns to speak.
    pub(super) origin: Instant,
    /// Tones that were encoded, by place.
    pub(super) tones: Mutex<BTreeMap<u32, Arc<ToneVoice>>>,
    /// What marks are said with, encoded once, and when they were said.
    pub(super) burst: OnceLock<Arc<Burst>>,
    pub(super) said: Arc<Said>,
    /// Who sends in which room, by its plan.
    pub(super) air: Mutex<BTreeMap<TonePlan, OnAir>>,
}

impl Common {
    /// Works on who sends in a room.
    pub(super) fn on_air<T>(&self, plan: TonePlan, work: impl FnOnce(&mut OnAir) -> T) -> T {
        work(lock(&self.air).entry(plan).or_default())
    }

    /// A part in the marks of a room; what they are said with is encoded on the caller's thread.
    pub(super) fn marks(&self, role: MarkRole) -> Result<Marks, BotError> {
        let burst = match self.burst.get() {
            Some(burst) => burst,
            None => {
                let error = |error| BotError::new(format!("no marks: {error}"));
                let encoded = Arc::new(Burst::encode().map_err(error)?);
                self.burst.get_or_init(|| encoded)
            }
        };
        let (burst, said) = (burst.clone(), self.said.clone());
        Ok(Marks { role, origin: self.origin, burst, said })
    }

    /// The tone of a part. The caller's thread encodes it if nobody has yet: the bots' threads have no
    /// time for it.
    pub(super) fn tone(&self, role: ToneRole) -> Result<Tone, BotError> {
        let place = role.place % MAX_TONES;
        let known = lock(&self.tones).get(&place).cloned();
        let voice = match known {
            Some(voice) => voice,
            None => {
                let encoded = ToneVoice::encode(place)
                    .map_err(|error| BotError::new(format!("no tone: {error}")))?;
                lock(&self.tones).entry(place).or_insert(Arc::new(encoded)).clone()
            }
        };
        Ok(Tone { role, origin: self.origin, voice })
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
