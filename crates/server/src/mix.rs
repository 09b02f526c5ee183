//! A mixing thread: the mixer of one shard, driven by its ticks.
//!
//! Packets of sound come from the media thread and mixed ones go back to it, through rings; mixers
//! of other shards are reached by bounded queues. Rooms tell it who talks and listens.

use crate::commands;
use crate::delays::Delays;
use crate::health::{Beat, Health, ThreadFault};
use crate::metrics::{Counter, Metrics};
use crate::relay::{FromMixer, MixEnds};
use engine::ShardIndex;
use engine::mix::{Bar, MixCommand, MixFrame, MixPeer, MixSink, MixStats, MixedPacket, Mixer};
use net::Waker;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Packets between a media thread and its mixer, each way.
const PACKETS: usize = 4096;
/// More of them into the mixer for each second of a backlog.
const BACKLOG_PACKETS_PER_S: usize = 8192;
/// Messages of other mixers that may wait.
const PEER_MESSAGES: usize = 1024;
/// How often the counters are handed over to the metrics, and the longest sleep.
const COUNT_INTERVAL: Duration = Duration::from_millis(200);

/// What rooms hold of a mixing thread.
#[derive(Debug, Clone)]
pub(crate) struct MixHandle {
    commands: commands::Sender<MixCommand>,
    wake: Wake,
    stop: Arc<AtomicBool>,
}

/// Wakes a mixing thread once it runs.
#[derive(Debug, Clone, Default)]
struct Wake(Arc<OnceLock<Thread>>);

impl Wake {
    fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }
}

impl MixHandle {
    /// Of no thread: what it is told is forgotten.
    #[cfg(test)]
    pub(crate) fn idle() -> Self {
        Self { commands: commands::queue().0, wake: Wake::default(), stop: Arc::default() }
    }

    /// Sends a command; they arrive in order.
    pub(crate) fn send(&self, command: MixCommand) {
        if self.commands.send(command) {
            self.wake.wake();
        }
    }

    /// Whether the thread is so far behind that it gets no new work.
    pub(crate) fn is_behind(&self) -> bool {
        self.commands.is_behind()
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.wake();
    }
}

/// A mixing thread before it runs.
pub(crate) struct MixThread {
    name: String,
    mixer: Mixer,
    commands: commands::Receiver<MixCommand>,
    frames: Consumer<MixFrame>,
    peers_in: Receiver<MixPeer>,
    out: Out,
    /// A fault made on purpose: so far behind it is, always.
    backlog: Duration,
    wake: Wake,
    stop: Arc<AtomicBool>,
    counts: Counts,
}

/// Where a mixer's output goes.
struct Out {
    mixed: Producer<FromMixer>,
    media: Arc<Waker>,
    written: bool,
    peers: Vec<(SyncSender<MixPeer>, Wake)>,
}

impl MixSink for Out {
    fn packet(&mut self, packet: MixedPacket) -> bool {
        self.written = true;
        self.mixed.push(FromMixer::Packet(packet)).is_ok()
    }

    fn bar(&mut self, bar: Bar) -> bool {
        // It need not wake the thread: packets follow, or come in.
        self.mixed.push(FromMixer::Bar(bar)).is_ok()
    }

    fn peer(&mut self, shard: ShardIndex, message: MixPeer) -> bool {
        let Some((queue, wake)) = self.peers.get(usize::from(shard.0)) else { return false };
        let sent = queue.try_send(message).is_ok();
        wake.wake();
        sent
    }
}

/// The mixing threads of shards whose media threads have these wakers, behind by `backlog`.
pub(crate) fn threads(
    media: &[Arc<Waker>],
    metrics: &Metrics,
    backlog: Duration,
) -> Vec<(MixThread, MixHandle, MixEnds)> {
    let epoch = Instant::now();
    let waiting = (backlog.as_secs_f64() * BACKLOG_PACKETS_PER_S as f64) as usize;
    let wakes: Vec<Wake> = media.iter().map(|_| Wake::default()).collect();
    let (senders, receivers): (Vec<_>, Vec<_>) =
        media.iter().map(|_| sync_channel(PEER_MESSAGES)).unzip();
    let peers: Vec<_> = senders.into_iter().zip(wakes.iter().cloned()).collect();
    let mut all = Vec::new();
    for (index, (peers_in, wake)) in receivers.into_iter().zip(wakes).enumerate() {
        let name = format!("mix-{index}");
        let (commands_in, commands) = commands::queue();
        let (frames_in, frames) = RingBuffer::new(PACKETS + waiting);
        let (mixed, mixed_out) = RingBuffer::new(PACKETS);
        let stop = Arc::new(AtomicBool::new(false));
        let handle = MixHandle { commands: commands_in, wake: wake.clone(), stop: stop.clone() };
        let out = Out { mixed, media: media[index].clone(), written: false, peers: peers.clone() };
        let thread = MixThread {
            counts: Counts::new(&name, metrics),
            mixer: Mixer::new(ShardIndex(index as u16), epoch).with_backlog(backlog),
            backlog,
            name,
            commands,
            frames,
            peers_in,
            out,
            wake,
            stop,
        };
        all.push((thread, handle, MixEnds { frames: frames_in, mixed: mixed_out, epoch }));
    }
    all
}

impl MixThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn spawn(
        self,
        health: &Health,
        fault: Option<ThreadFault>,
    ) -> std::io::Result<std::thread::JoinHandle<()>> {
        let name = self.name.clone();
        health.spawn(&name, fault, move |beat| self.run(beat))
    }

    /// The next frame. With a backlog they wait, as its ticks do.
    fn next_frame(&mut self) -> Option<MixFrame> {
        let frame = self.frames.peek().ok()?;
        if !self.backlog.is_zero() && frame.arrival.elapsed() < self.backlog {
            return None;
        }
        self.frames.pop().ok()
    }

    fn run(mut self, mut beat: Beat) {
        let _ = self.wake.0.set(std::thread::current());
        // Ticks keep their time while SDP is worked on elsewhere; packets come before them.
        let _ = net::thread::set_current_thread_prompt(-8, Duration::from_micros(500));
        let _ = net::thread::set_timer_slack(Duration::from_nanos(1));
        let mut count_due = Instant::now();
        while !self.stop.load(Ordering::Acquire) {
            while let Some(command) = self.commands.take() {
                self.mixer.command(command);
            }
            while let Some(frame) = self.next_frame() {
                self.mixer.frame(frame);
            }
            let now = Instant::now();
            beat.round(now);
            for message in self.peers_in.try_iter() {
                self.mixer.peer(message, now);
            }
            self.mixer.handle_timeout(now, &mut self.out);
            if std::mem::take(&mut self.out.written) {
                self.out.media.wake();
            }
            if now >= count_due {
                count_due = now + COUNT_INTERVAL;
                self.counts.publish(self.mixer.stats());
            }
            let until = self.mixer.next_deadline().unwrap_or(now + COUNT_INTERVAL);
            let sleep = until.min(now + COUNT_INTERVAL).saturating_duration_since(Instant::now());
            if !sleep.is_zero() {
                std::thread::park_timeout(sleep);
            }
        }
    }
}

/// One of the mixer's counters.
type Read = fn(&MixStats) -> u64;

/// The thread's counters in the metrics.
struct Counts {
    counters: Vec<(Counter, Read)>,
    drops: Vec<Counter>,
    delays: Delays,
    told: MixStats,
}

impl Counts {
    fn new(thread: &str, metrics: &Metrics) -> Self {
        let mut counters: Vec<(Counter, Read)> = Vec::new();
        let mut add = |name, help, read: Read| {
            counters.push((metrics.registry.counter(name, help, &[("thread", thread)]), read));
        };
        add("moim_mix_ticks_total", "Ticks of 20 ms mixed.", |s| s.ticks);
        add("moim_mix_ticks_late_total", "Ticks more than 20 ms late.", |s| s.ticks_late);
        add("moim_mix_ticks_skipped_total", "Ticks left out: too late.", |s| s.ticks_skipped);
        add("moim_mix_decoded_total", "Frames of sound decoded.", |s| s.jitter.decoded);
        add("moim_mix_concealed_total", "Frames of sound concealed.", |s| s.jitter.concealed);
        add("moim_mix_encodes_common_total", "Encodes for all who are not heard.", |s| {
            s.encodes_common
        });
        add("moim_mix_encodes_own_total", "Encodes for one who is heard.", |s| s.encodes_own);
        add("moim_mix_silent_ticks_total", "Ticks of a room without an encode: silence.", |s| {
            s.silent_ticks
        });
        add("moim_mix_sums_late_total", "Partial sums that came too late.", |s| s.sums_late);
        add("moim_mix_packets_total", "Mixed packets made.", |s| s.packets);
        add("moim_mix_unheard_total", "Frames of people who were not among the loudest.", |s| {
            s.jitter.unheard
        });
        let mut drops: Vec<Counter> =
            faults(&MixStats::default()).map(|(reason, _)| metrics.drops("mix", reason)).collect();
        drops.push(metrics.drops("mix", "media_queue_full"));
        drops.push(metrics.drops("mix", "peer_queue_full"));
        let delays = Delays::new(
            "moim_mix_jitter_delay_seconds",
            "Delay in force of the jitter buffers of those who are heard, once a tick.",
            thread,
            metrics,
        );
        Self { counters, drops, delays, told: MixStats::default() }
    }

    fn publish(&mut self, stats: &MixStats) {
        for (counter, read) in &self.counters {
            counter.add(read(stats) - read(&self.told));
        }
        for (counter, (now, told)) in self.drops.iter().zip(dropped(stats).zip(dropped(&self.told)))
        {
            counter.add(now - told);
        }
        self.delays.publish(&stats.delays);
        self.told.clone_from(stats);
    }
}

/// What was dropped, in the order of the counters.
fn dropped(stats: &MixStats) -> impl Iterator<Item = u64> {
    let frames = faults(stats).map(|(_, count)| count);
    frames.chain([stats.packets_refused, stats.peers_refused])
}

/// Frames that somebody should have heard: who is not among the loudest is no fault.
fn faults(stats: &MixStats) -> impl Iterator<Item = (&'static str, u64)> {
    stats.frame_drops().into_iter().filter(|(reason, _)| *reason != "unheard")
}
