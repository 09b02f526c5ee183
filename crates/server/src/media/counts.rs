//! What a media thread counts, in the metrics.

use crate::delays::Delays;
use crate::metrics::{Counter, Gauge, Histogram, MediaCounters, Metrics};
use engine::drops::{InDrop, OutDrop};
use engine::shard::Stats;
use net::FlushReport;

/// Bounds of the residence histogram, in seconds.
const RESIDENCE_SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.02, 0.05];

/// What left by the sockets since it was last asked for.
pub(super) struct Left {
    /// By UDP.
    pub flushed: FlushReport,
    /// By TCP: packets and bytes.
    pub tcp: (u64, u64),
    /// Datagrams that the kernel has dropped so far.
    pub kernel_drops: u64,
}

/// The thread's counters in the metrics: handed over some times a second.
pub(super) struct Counts {
    media: MediaCounters,
    pub packets_in: u64,
    pub bytes_in: u64,
    published: (u64, u64),
    stats: Stats,
    in_drops: Vec<Counter>,
    out_drops: Vec<Counter>,
    copies: Counter,
    relay: [Counter; 3],
    mix_in: Counter,
    /// Not handed to the mixer: opened, and closed.
    unheard: [Counter; 2],
    waiting: Counter,
    checks: Counter,
    challenges: Counter,
    moved: Counter,
    strangers_tried: Counter,
    resent: Counter,
    repeated: Counter,
    restored: Counter,
    paced: Counter,
    probed: Counter,
    rested: Counter,
    layer_switches: Counter,
    replayed: Counter,
    nacked: Counter,
    keyframes: Counter,
    keyframe_requests_refused: Counter,
    failed: Counter,
    send_buffer_full: Counter,
    kernel_drops: Gauge,
    without_pictures: Gauge,
    gso: Counter,
    pub residence: Histogram,
    mix_residence: Delays,
    pub reports_dropped: Counter,
}

impl Counts {
    pub(super) fn new(thread: &str, metrics: &Metrics) -> Self {
        let counter = |name, help| metrics.registry.counter(name, help, &[("thread", thread)]);
        Self {
            media: metrics.media_thread(thread),
            packets_in: 0,
            bytes_in: 0,
            published: (0, 0),
            stats: Stats::default(),
            in_drops: InDrop::ALL.iter().map(|reason| in_counter(*reason, metrics)).collect(),
            out_drops: OutDrop::ALL.iter().map(|r| metrics.drops("out", r.as_str())).collect(),
            waiting: counter(
                "moim_media_waiting_total",
                "Packets not taken by slots that wait for a keyframe or a connection.",
            ),
            relay: [
                counter("moim_relay_packets_out_total", "Packets handed to other shards."),
                metrics.drops("relay", "lane_full"),
                counter("moim_relay_packets_in_total", "Packets that came from other shards."),
            ],
            mix_in: counter("moim_mix_packets_in_total", "Packets of sound handed to the mixer."),
            unheard: ["opened", "closed"].map(|packet| {
                let help = "Packets of sound for a mix that nobody would hear.";
                metrics.registry.counter("moim_media_unheard_total", help, &[("thread", thread), ("packet", packet)])
            }),
            copies: counter("moim_media_copies_total", "Copies made for subscribers."),
            checks: counter(
                "moim_media_checks_total",
                "Connectivity checks answered on the way of the packets.",
            ),
            challenges: counter(
                "moim_media_challenges_total",
                "Checks that asked an address whether it is a participant's.",
            ),
            moved: counter(
                "moim_media_moved_total",
                "Times that media of a participant moved to another address.",
            ),
            strangers_tried: counter(
                "moim_media_strangers_tried_total",
                "Times that a packet from an unknown address was tried with a participant's keys.",
            ),
            resent: counter("moim_media_resent_total", "Packets sent again on request."),
            probed: counter(
                "moim_media_probed_total",
                "Packets of padding that probed what paths to receivers carry",
            ),
            rested: counter(
                "moim_media_rested_total",
                "Pictures that began to rest because the path to their receiver did not carry them",
            ),
            layer_switches: counter(
                "moim_media_layer_switches_total",
                "Times that a slot was to carry another layer of its picture.",
            ),
            repeated: counter(
                "moim_media_repeated_total",
                "Packets of sound that left with a copy of the one before (RED), because their receiver loses packets.",
            ),
            restored: counter(
                "moim_media_restored_total",
                "Packets of sound that did not come and were taken from the copy in one after them (RED).",
            ),
            paced: counter(
                "moim_media_paced_total",
                "Packets of pictures that waited for their receiver's next burst.",
            ),
            replayed: counter(
                "moim_media_replayed_total",
                "Packets of speech that had begun before its slot was there.",
            ),
            nacked: counter("moim_media_nacked_total", "Packets asked of publishers again."),
            keyframes: counter("moim_media_keyframes_asked_total", "Keyframes asked for."),
            keyframe_requests_refused: counter(
                "moim_media_keyframe_requests_refused_total",
                "Keyframe requests of receivers that came too soon after the one before.",
            ),
            failed: metrics.drops("socket", "send_failed"),
            send_buffer_full: metrics.drops("socket", "send_buffer_full"),
            kernel_drops: metrics.registry.gauge(
                "moim_media_kernel_drops",
                "Datagrams that the kernel dropped because the receive buffer was full.",
                &[("thread", thread)],
            ),
            without_pictures: metrics.registry.gauge(
                "moim_media_without_pictures_eighths",
                "Eighths of the receivers that get no pictures at the moment, since the CPU is short.",
                &[("thread", thread)],
            ),
            gso: counter("moim_media_gso_messages_total", "Segmented messages sent."),
            residence: metrics.registry.histogram(
                "moim_audio_residence_seconds",
                "Time of a packet of sound from the kernel's stamp until it is sent.",
                &[("thread", thread)],
                RESIDENCE_SECONDS,
            ),
            mix_residence: Delays::new(
                "moim_mix_residence_seconds",
                "Time of sound from its arrival until a mixed packet with it is sent: the longest in each packet, for each copy.",
                thread,
                metrics,
            ),
            reports_dropped: metrics.drops("media", "report_queue_full"),
        }
    }

    /// Hands over what was counted since it was last done, and what left meanwhile.
    pub(super) fn publish(&mut self, stats: &Stats, left: &Left) {
        let old = std::mem::replace(&mut self.stats, stats.clone());
        self.media.packets_in.add(self.packets_in - self.published.0);
        self.media.bytes_in.add(self.bytes_in - self.published.1);
        self.published = (self.packets_in, self.bytes_in);
        for (counter, reason) in self.in_drops.iter().zip(InDrop::ALL) {
            counter.add(stats.in_drops.get(*reason) - old.in_drops.get(*reason));
        }
        for (counter, reason) in self.out_drops.iter().zip(OutDrop::ALL) {
            counter.add(stats.out_drops.get(*reason) - old.out_drops.get(*reason));
        }
        self.relay[0].add(stats.relay_out - old.relay_out);
        self.relay[1].add(stats.relay_full - old.relay_full);
        self.relay[2].add(stats.relay_in - old.relay_in);
        self.mix_in.add(stats.mix_in - old.mix_in);
        self.unheard[0].add(stats.unheard - old.unheard);
        self.unheard[1].add(stats.glanced - old.glanced);
        self.copies.add(stats.copies - old.copies);
        self.mix_residence.publish(&stats.mix_residence);
        self.waiting.add(stats.waiting - old.waiting);
        self.checks.add(stats.checks - old.checks);
        self.challenges.add(stats.challenges - old.challenges);
        self.moved.add(stats.moved - old.moved);
        self.strangers_tried.add(stats.strangers_tried - old.strangers_tried);
        self.resent.add(stats.resent - old.resent);
        self.repeated.add(stats.repeated - old.repeated);
        self.restored.add(stats.restored - old.restored);
        self.paced.add(stats.paced - old.paced);
        self.probed.add(stats.probed - old.probed);
        self.rested.add(stats.rested - old.rested);
        self.layer_switches.add(stats.layer_switches - old.layer_switches);
        self.replayed.add(stats.replayed - old.replayed);
        self.nacked.add(stats.nacked - old.nacked);
        self.keyframes.add(stats.keyframes_asked - old.keyframes_asked);
        self.keyframe_requests_refused
            .add(stats.keyframe_requests_refused - old.keyframe_requests_refused);
        let Left { flushed, tcp: (packets, bytes), kernel_drops } = left;
        self.media.packets_out.add(flushed.sent + packets);
        self.media.bytes_out.add(flushed.sent_bytes + bytes);
        if stats.without_pictures_eighths > old.without_pictures_eighths {
            let eighths = stats.without_pictures_eighths;
            tracing::warn!(eighths, "the CPU is short: some receivers get no pictures for now");
        }
        if stats.miscounted > 0 && old.miscounted == 0 {
            tracing::error!(
                "a copy was neither sent nor counted as dropped: please report this fault"
            );
        }
        self.without_pictures.set(i64::from(stats.without_pictures_eighths));
        self.failed.add(flushed.failed);
        self.send_buffer_full.add(flushed.send_buffer_full);
        self.gso.add(flushed.gso_messages);
        self.kernel_drops.set(*kernel_drops as i64);
    }
}

/// Drops are what somebody should have got; what only probed the path is counted beside them.
fn in_counter(reason: InDrop, metrics: &Metrics) -> Counter {
    if !reason.is_probe() {
        return metrics.drops("in", reason.as_str());
    }
    metrics.registry.counter(
        "moim_probes_total",
        "Packets that only probed the path: padding, and packets that had come already.",
        &[("reason", reason.as_str())],
    )
}
