//! The estimate for one receiver: Google congestion control, with our units and clock.

use crate::arrivals::ReceiverClock;
use crate::burst::Burst;
use crate::ceiling::Ceiling;
use crate::controller::{Limits, controller, without_outages};
use crate::log::{IP_UDP_BYTES, Kind, SendLog, Sent};
use crate::prober::Prober;
use crate::probes::Probes;
use goog_cc::GoogCcNetworkController;
use goog_cc::network_control::NetworkControllerInterface;
use goog_cc::transport::{
    NetworkControlUpdate, PacketResult, ProcessInterval, SentPacket, StreamsConfig,
    TransportPacketsFeedback,
};
use goog_cc::units::{DataRate, DataSize, Timestamp};
use rtp::twcc::Feedback;
use std::time::{Duration, Instant};

/// The controller's own period, as in libwebrtc.
const PERIOD: Duration = Duration::from_millis(25);
/// Where its clock begins: it takes times near zero for unset ones.
const EPOCH_US: u64 = 1_000_000;
/// Packets told of between two ticks that are kept. Feedback on 8192 packets a second comes to 330 in 40 ms.
const PENDING_PACKETS: usize = 1024;
/// After a dip of the estimate, the queue that caused it is gone in this time.
const DIP_PROBED_AFTER: Duration = Duration::from_millis(300);
/// For so long it is remembered what the path carried before the estimate fell to less than a half.
const REMEMBERED: Duration = Duration::from_secs(40);
/// From one probe of our own to the next, if the path did not carry the last one: while little is sent…
const PROBE_INTERVAL: Duration = Duration::from_secs(3);
/// …while more is wanted soon, …
const PROBE_INTERVAL_URGENT: Duration = Duration::from_secs(2);
/// …and so soon after the estimate fell.
const PROBE_INTERVAL_FELL: Duration = Duration::from_secs(1);
const FELL_LATELY: Duration = Duration::from_secs(15);
/// The same if it told nothing.
const PROBE_INTERVAL_DOUBTFUL: Duration = Duration::from_millis(300);
/// How long one lasts, in ms. One at far more than the estimate is short.
const PROBE_MS: i64 = 20;
const PROBE_MS_FAR: i64 = 5;
/// The first one makes a queue of 300 ms on a path of 300 kbit/s.
const PROBE_MS_FIRST: i64 = 9;
/// The first one is at up to so many times the estimate: its packets show what a slow path carries.
const FIRST_PROBE: u64 = 20;
/// One that is urgent is at up to so many times the estimate, any other at up to twice.
const URGENT_PROBE: u64 = 3;
/// From one probe that the path carried to the next, at least.
const PROBE_GOES_ON: Duration = Duration::from_millis(50);
/// The same if it is not urgent.
const PROBE_GOES_ON_IDLY: Duration = Duration::from_secs(1);
/// The estimate begins anew if a probe came so many times as fast.
const RENEWING: f64 = 1.15;
/// It is taken for so much of what the probe found.
const RENEWED_SHARE: f64 = 0.95;
/// If it falls to less than half of that within this time, the probe was misled: others share the path…
const RENEWED_HOLDS: Duration = Duration::from_secs(3);
/// …and it does not begin anew for so long, and twice as long each time that this happens.
const RENEWED_RESTS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(80));
/// While packets wait so long, no more leaves than the path carries.
const STANDS: Duration = Duration::from_millis(40);
/// While packets wait so long, nothing is probed.
const PROBE_QUEUE: Duration = Duration::from_millis(80);
/// By radio, packets come late or in heaps: a probe lasts so many times longer than their delays differ, and so much at most.
const PROBE_JITTERS: f64 = 9.0;
/// The same for one at twice the estimate. One at more makes a longer queue.
const PROBE_JITTERS_MS: f64 = 60.0;
/// Half a full packet: that much lies before another one in the mean.
const OWN_BITS: f64 = 4800.0;
/// So many probes in a row are believed all the same.
const RENEWED_INSISTS: u32 = 3;
/// Where a queue grew, the path carries this share of what came: the controller's own share.
const BACK_OFF: f64 = 0.85;
/// An estimate below this share of that fell because little was sent before.
const FELL_TOO_FAR: f64 = 0.75;
/// A full packet.
const FULL_BITS: u64 = 9600;
/// Without feedback for so long, packets that leave are taken to have been away.
const SILENCE: Duration = Duration::from_millis(1500);
/// Each packet that leaves may be told of so many times in the mean.
const TOLD_TIMES: u32 = 4;
/// So many numbers may be told of at once: a compound of 1300 bytes can hold more, a receiver has no reason to.
const TOLD_AT_ONCE: u32 = 16_384;
/// Without feedback for so long on packets that left, a path is taken to have been out.
const OUTAGE: Duration = Duration::from_secs(1);

/// A receiver tells of far more packets than left to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuchTold;

/// The estimate fell.
#[derive(Debug, Clone, Copy)]
struct Fall {
    from_bps: u64,
    at: Instant,
}

/// The estimate was begun anew by what a probe found.
#[derive(Debug, Clone, Copy)]
struct Renewed {
    at: Instant,
    bps: u64,
    /// It fell soon after, and none is for so long.
    rests: Duration,
}

/// The path to one receiver.
pub struct Downlink {
    origin: Instant,
    log: SendLog,
    probes: Probes,
    clock: ReceiverClock,
    controller: GoogCcNetworkController,
    limits: Limits,
    /// What feedback told since the last tick, and when the last one came.
    pending: Vec<PacketResult>,
    told_at: Instant,
    /// How many numbers feedback may tell of now. What leaves fills it.
    credit: u32,
    /// When packets left again after a silence without feedback.
    resumed: Option<Instant>,
    /// When the first packet left since feedback came last.
    unanswered: Option<Instant>,
    /// Bytes that left since the controller heard of it, and the last of them.
    unheard: (u64, Option<(Instant, Kind)>),
    period_began: Option<Instant>,
    /// The controller's estimate, and ours.
    believed_bps: u64,
    target_bps: u64,
    ceiling: Ceiling,
    burst: Burst,
    pacing_bps: u64,
    wanted_bps: u64,
    /// It is wanted soon.
    urgent: bool,
    sent_bytes: u64,
    renewed: Option<Renewed>,
    /// So many probes in a row found that much more.
    found_more: u32,
    /// The estimates of the last seconds, the newest first, and when they fell to less than a half.
    lately_bps: [u64; 3],
    fell: Option<Fall>,
    /// It fell last.
    last_fall: Option<Fall>,
    /// It dipped while little was sent, and was not probed since.
    dip: Option<Fall>,
    /// When the present second began, the bytes that had left then, and the rate of the last one.
    second: (Instant, u64),
    last_second_bps: u64,
}

impl Downlink {
    /// A path that nothing is known of.
    pub fn new(now: Instant, limits: Limits) -> Self {
        Self {
            origin: now,
            log: SendLog::new(),
            probes: Probes::default(),
            clock: ReceiverClock::default(),
            controller: controller(
                limits,
                limits.start_bps,
                Timestamp::from_micros(EPOCH_US as i64),
            ),
            limits,
            pending: Vec::with_capacity(PENDING_PACKETS),
            told_at: now,
            credit: TOLD_AT_ONCE,
            resumed: None,
            unanswered: None,
            unheard: (0, None),
            period_began: None,
            believed_bps: limits.start_bps,
            target_bps: limits.start_bps,
            ceiling: Ceiling::default(),
            burst: Burst::default(),
            pacing_bps: limits.start_bps * 5 / 2,
            wanted_bps: 0,
            urgent: false,
            sent_bytes: 0,
            renewed: None,
            found_more: 0,
            lately_bps: [0; 3],
            fell: None,
            last_fall: None,
            dip: None,
            second: (now, 0),
            last_second_bps: 0,
        }
    }

    /// The transport-wide sequence number of the next packet.
    #[inline]
    pub fn next_number(&self) -> u16 {
        self.log.next_number()
    }

    /// A datagram of so many bytes left with the next number.
    #[inline]
    pub fn sent(&mut self, now: Instant, bytes: usize, kind: Kind) {
        let at_us = self.us(now);
        let cluster = self.probes.prober.cluster().filter(|_| kind != Kind::Audio);
        self.log.push(at_us, bytes, kind, cluster);
        if cluster.is_some() {
            self.probes.prober.count(bytes);
        }
        self.credit = TOLD_AT_ONCE.min(self.credit + TOLD_TIMES);
        self.sent_bytes += bytes as u64;
        self.unheard.0 += bytes as u64;
        self.unheard.1 = Some((now, kind));
        self.unanswered.get_or_insert(now);
    }

    /// Feedback came. It counts with the next [`Downlink::tick`]. Says whether the path was out until now.
    ///
    /// # Errors
    /// [`TooMuchTold`]: what was beyond that is left out.
    pub fn feedback(&mut self, now: Instant, feedback: &Feedback<'_>) -> Result<bool, TooMuchTold> {
        let long = |since| now.saturating_duration_since(since) >= OUTAGE;
        let was_out = self.unanswered.take().is_some_and(long);
        let now_us = self.us(now) as i64;
        let offset = self.clock.on_reference(now_us, feedback.reference_us());
        self.told_at = now;
        let apart_us = 2 * FULL_BITS * 1_000_000 / self.target_bps.max(1);
        let (first, count) = self.log.window();
        for (number, came) in feedback.packets_within(first, count) {
            self.credit = self.credit.checked_sub(1).ok_or(TooMuchTold)?;
            if self.pending.len() == self.pending.capacity() {
                break;
            }
            let Some(number) = self.log.number(number) else { continue };
            let Some(sent) = self.log.tell(number, came.is_some()) else { continue };
            let arrived = came.map(|at_us| at_us + offset);
            if let Some(arrived_us) = arrived {
                self.ceiling.came(now, &sent, arrived_us);
            }
            let waited = |arrived_us| (arrived_us, self.ceiling.waited(&sent, arrived_us));
            self.burst.note(&sent, arrived.map(waited), apart_us);
            self.probes.note(&sent, arrived);
            let receive_time = match arrived {
                Some(arrived_us) => Timestamp::from_micros(arrived_us.max(0)),
                None => Timestamp::plus_infinity(),
            };
            let sent_packet = self.sent_packet(&sent, number);
            self.pending.push(PacketResult { sent_packet, receive_time, ..Default::default() });
        }
        Ok(was_out)
    }

    fn sent_packet(&self, sent: &Sent, number: u64) -> SentPacket {
        SentPacket {
            send_time: Timestamp::from_micros(sent.at_us as i64),
            size: DataSize::from_bytes(i64::from(sent.bytes) + IP_UDP_BYTES as i64),
            pacing_info: self.probes.info(sent),
            audio: sent.kind == Kind::Audio,
            sequence_number: number as i64,
            data_in_flight: DataSize::from_bytes(i64::from(sent.in_flight)),
            prior_unacked_data: DataSize::zero(),
        }
    }

    /// So much would be sent if the path carried it, in bits a second. While that is more than the estimate, probes look
    /// for it; else nothing is probed. If it is `urgent`, they look for it soon, although as much is sent as the path is known
    /// to carry. A change of less than a quarter is none: the controller probes after each.
    pub fn want(&mut self, now: Instant, bps: u64, urgent: bool) {
        self.urgent = urgent;
        if bps == 0 && self.wanted_bps == 0 || 4 * bps.abs_diff(self.wanted_bps) < bps {
            return;
        }
        self.wanted_bps = bps;
        let config = StreamsConfig {
            at_time: self.time(now),
            max_total_allocated_bitrate: Some(DataRate::from_bits_per_sec(bps as i64)),
            ..StreamsConfig::default()
        };
        let update = self.controller.on_streams_config(config);
        self.apply(update, now);
    }

    /// Whether feedback came since the last estimate.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether packets leave again after a silence, and no feedback on them can have come yet: what the controller would
    /// take for a path that is cut.
    fn is_resuming(&mut self, now: Instant) -> bool {
        let silent = |since| now.saturating_duration_since(since) > SILENCE;
        if !self.pending.is_empty() || !silent(self.told_at) {
            self.resumed = None;
            return false;
        }
        if self.unheard.1.is_some() {
            self.resumed.get_or_insert(now);
        }
        !self.resumed.is_some_and(silent)
    }

    /// Makes a new estimate of what came since the last one. To be called every 10 to 50 ms while packets are numbered.
    pub fn tick(&mut self, now: Instant) {
        let due = self.period_began.is_none_or(|at| now.saturating_duration_since(at) >= PERIOD);
        if due {
            self.period_began = Some(now);
        }
        if self.is_resuming(now) {
            // What the controller knows is of before. Where nothing leaves, only a probe can tell more.
            if due {
                self.count_second(now);
                self.probe(now);
            }
            return;
        }
        if let (bytes, Some((at, kind))) = std::mem::take(&mut self.unheard) {
            let sent = SentPacket {
                send_time: self.time(at),
                size: DataSize::from_bytes(bytes as i64),
                audio: kind == Kind::Audio,
                data_in_flight: DataSize::from_bytes(i64::from(self.log.in_flight())),
                ..SentPacket::default()
            };
            let update = self.controller.on_sent_packet(sent);
            self.apply(update, now);
        }
        // Losses alone say nothing of time: they wait for the next packet that came.
        if self.pending.iter().any(PacketResult::is_received) {
            self.report(now);
        } else if self.pending.len() == self.pending.capacity() {
            self.pending.clear();
        }
        if due {
            self.log.grow();
            let interval = ProcessInterval { at_time: self.time(now), pacer_queue: None };
            let update = self.controller.on_process_interval(interval);
            self.apply(update, now);
            self.ceiling.turn(now, self.believed_bps);
            self.target_bps = self.bounded_bps();
            self.count_second(now);
            self.probe(now);
        }
    }

    fn report(&mut self, now: Instant) {
        // The controller keeps what it is told: it gets as much memory as that needs, and the room for more stays here.
        let packet_feedbacks = without_outages(self.pending.drain(..).collect());
        self.bound(&packet_feedbacks);
        let feedback = TransportPacketsFeedback {
            feedback_time: self.time(self.told_at),
            data_in_flight: DataSize::from_bytes(i64::from(self.log.in_flight())),
            packet_feedbacks,
            sendless_arrival_times: Vec::new(),
        };
        let update = self.controller.on_transport_packets_feedback(feedback);
        let from_bps = self.target_bps;
        self.apply(update, self.told_at);
        if self.target_bps < from_bps {
            self.last_fall = Some(Fall { from_bps, at: self.told_at });
        }
        self.recover(now);
    }

    /// No probe raises the estimate above what its [`crate::answer`] tells.
    fn bound(&mut self, told: &[PacketResult]) {
        let places = told.iter().map(|packet| packet.sent_packet.pacing_info.probe_cluster_id);
        for id in places.filter(|id| *id > 0) {
            if let Some(answer) = self.probes.answer(id) {
                let found = answer.bps(self.jitter_us(self.told_at));
                self.ceiling.probed(self.told_at, found, self.target_bps);
            }
        }
    }

    /// What the controller believes, as far as it may be.
    fn bounded_bps(&self) -> u64 {
        self.ceiling.bound(self.believed_bps).max(self.limits.least_bps)
    }

    fn apply(&mut self, update: NetworkControlUpdate, now: Instant) {
        if let Some(target) = update.target_rate {
            self.believed_bps = target.target_rate.bps().max(0) as u64;
            let bps = self.bounded_bps();
            let from_bps = std::mem::replace(&mut self.target_bps, bps);
            self.note_dip(from_bps, now);
        }
        if let Some(pacer) = update.pacer_config {
            self.pacing_bps = pacer.data_rate().bps().max(0) as u64;
        }
        for probe in update.probe_cluster_configs {
            if self.wanted_bps > self.target_bps && !self.waits(now) {
                self.probes.plan(&probe, now);
            }
        }
    }

    /// The estimate fell from this rate. It falls to a share of what came lately, which says little if little was sent: a
    /// keyframe's short queue is enough.
    fn note_dip(&mut self, from_bps: u64, now: Instant) {
        let idle = self.last_second_bps * 5 < from_bps * 4;
        if idle && self.target_bps * 10 < from_bps * 7 {
            self.dip = Some(Fall { from_bps, at: now });
        }
    }

    /// The rate that is probed because the estimate dipped: near what it was, once, when the queue is gone.
    fn dip_bps(&mut self, now: Instant) -> Option<u64> {
        let over = |dip: &mut Fall| now.saturating_duration_since(dip.at) >= DIP_PROBED_AFTER;
        let bps = self.dip.take_if(over)?.from_bps * 17 / 20;
        Some(bps.min(self.wanted_bps)).filter(|bps| *bps > self.target_bps)
    }

    /// Probes the path if it is time, and makes of the last probe what it tells.
    fn probe(&mut self, now: Instant) {
        if self.probes.prober.due().is_some() {
            return;
        }
        self.renew(now);
        let carried = self.probes.judge(now);
        if self.waits(now) {
            return;
        }
        if let Some(bps) = self.dip_bps(now) {
            return self.probe_at(bps, now);
        }
        self.probes.goes_on |= carried;
        let soon = if self.urgent { PROBE_GOES_ON } else { PROBE_GOES_ON_IDLY };
        let goes_on = self.probes.goes_on && !self.probes.is_lately(soon, now);
        if self.wanted_bps <= self.target_bps || (!goes_on && self.rests(now)) {
            return;
        }
        let idle = self.last_second_bps * 5 < self.target_bps * 4;
        let before = self.fell_within(REMEMBERED, now).map_or(0, |fell| fell.from_bps * 17 / 20);
        let bps = match self.urgent {
            true if !self.probes.is_any() => FIRST_PROBE * self.target_bps,
            true => self.wanted_bps.min(before.max(URGENT_PROBE * self.target_bps)),
            false if idle => self.wanted_bps.min(before.max(2 * self.target_bps)),
            false => self.wanted_bps.min(before),
        };
        if bps > self.target_bps {
            self.probe_at(bps, now);
        }
    }

    /// Whether so many packets stand in the path that no more should leave than it carries.
    pub fn has_queue(&self, now: Instant) -> bool {
        self.ceiling.queue(now) > STANDS
    }

    /// Whether a queue is so long that a probe would tell little, and harm.
    fn waits(&self, now: Instant) -> bool {
        self.ceiling.queue(now) > PROBE_QUEUE
    }

    /// The controller remembers losses for long, and does not believe a probe then. If more is wanted soon, and all of a probe
    /// came much faster than it believes, it begins anew, as on another network.
    fn renew(&mut self, now: Instant) {
        if let Some(renewed) = &mut self.renewed {
            let soon = now.saturating_duration_since(renewed.at) < RENEWED_HOLDS;
            if soon && 2 * self.target_bps < renewed.bps {
                let (least, most) = RENEWED_RESTS;
                renewed.rests = (2 * renewed.rests).clamp(least, most);
                renewed.bps = 0;
            }
        }
        let rests = |renewed: Renewed| now.saturating_duration_since(renewed.at) < renewed.rests;
        let Some(found) =
            self.probes.last_answer().and_then(|answer| answer.bps(self.jitter_us(now)))
        else {
            return;
        };
        let Limits { least_bps, most_bps, .. } = self.limits;
        let bps = ((found as f64 * RENEWED_SHARE) as u64).clamp(least_bps, most_bps);
        let more = bps as f64 > self.target_bps as f64 * RENEWING;
        // The first one tells what a slow path carries before anything else does.
        let more = more || (self.probes.is_first() && bps < self.target_bps);
        if !self.probes.is_told() {
            return;
        }
        self.found_more = if more { self.found_more + 1 } else { 0 };
        let rests = self.renewed.is_some_and(rests) && self.found_more < RENEWED_INSISTS;
        if !self.urgent || !more || rests {
            return;
        }
        self.found_more = 0;
        let rests = self.renewed.map_or(Duration::ZERO, |renewed| renewed.rests);
        self.renewed = Some(Renewed { at: now, bps, rests });
        self.ceiling.lift();
        self.begin_anew(bps, now);
    }

    /// Whether it is too soon after the last probe for another one.
    fn rests(&self, now: Instant) -> bool {
        let interval = match self.fell_within(FELL_LATELY, now) {
            Some(_) if self.urgent && self.probes.doubtful => PROBE_INTERVAL_DOUBTFUL,
            Some(_) if self.urgent => PROBE_INTERVAL_FELL,
            _ if self.urgent => PROBE_INTERVAL_URGENT,
            _ if self.last_second_bps * 5 < self.target_bps * 4 => PROBE_INTERVAL,
            _ => 2 * PROBE_INTERVAL,
        };
        self.probes.is_lately(interval, now)
    }

    /// By how much delays differ, in µs. Where more is wanted soon, without what the receiver's own packets make each other wait:
    /// else there is time for doubt.
    fn jitter_us(&self, now: Instant) -> f64 {
        let own_us = OWN_BITS * 1_000_000.0 / self.target_bps.max(1) as f64;
        let own_us = if self.urgent { own_us } else { 0.0 };
        (self.ceiling.jitter_us(self.us(now)) - own_us).max(0.0)
    }

    /// How much longer a probe at this rate lasts because delays differ, in ms.
    fn longer_ms(&self, bps: u64, now: Instant) -> i64 {
        let ms = PROBE_JITTERS * self.jitter_us(now) / 1000.0;
        let times = bps as f64 / self.target_bps.max(1) as f64;
        ms.min(PROBE_JITTERS_MS / (times - 1.0).max(1.0)) as i64
    }

    /// A probe of our own at this rate.
    fn probe_at(&mut self, bps: u64, now: Instant) {
        let ms = match self.probes.is_any() {
            false => PROBE_MS_FIRST,
            true if bps > 2 * self.target_bps && self.fell.is_some() => PROBE_MS_FAR,
            true => PROBE_MS + self.longer_ms(bps, now),
        };
        self.probes.ask(now, self.time(now), bps, ms);
    }

    /// The controller fell a moment ago, to a share of what came lately, and little was sent then. The burst at which it fell
    /// tells more: the controller begins anew with a share of what came of it.
    fn recover(&mut self, now: Instant) {
        let lately = |fall: &Fall| now.saturating_duration_since(fall.at) < DIP_PROBED_AFTER;
        let Some(fall) = self.last_fall.filter(lately) else { return };
        let Some(came_bps) = self.burst.bps() else { return };
        let bps = ((came_bps as f64 * BACK_OFF) as u64).min(fall.from_bps);
        if (self.target_bps as f64) < FELL_TOO_FAR * bps as f64 {
            self.dip = None;
            self.last_fall = None;
            self.begin_anew(bps, now);
        }
    }

    /// The controller forgets what it knows, but that the path carries so much.
    fn begin_anew(&mut self, bps: u64, now: Instant) {
        let at_time = self.time(now);
        self.controller = controller(self.limits, bps, at_time);
        // It takes its limits with its first period.
        self.controller.on_process_interval(ProcessInterval { at_time, pacer_queue: None });
        (self.believed_bps, self.target_bps, self.pacing_bps) = (bps, bps, bps * 5 / 2);
        let wanted = std::mem::take(&mut self.wanted_bps);
        self.want(now, wanted, self.urgent);
    }

    fn fell_within(&self, span: Duration, now: Instant) -> Option<Fall> {
        self.fell.filter(|fell| now.saturating_duration_since(fell.at) < span)
    }

    /// Whether it was ever probed.
    pub fn was_probed(&self) -> bool {
        self.probes.is_any()
    }

    /// Whether enough was told of the last probe, and the estimate does not hold it yet.
    pub fn was_told_of_probe(&self) -> bool {
        self.probes.is_told()
    }

    /// Whether a probe left whose result is not known.
    pub fn awaits_probe(&self) -> bool {
        self.probes.is_awaited()
    }

    /// Whether the path did not carry the last probe that was answered.
    pub fn was_probed_in_vain(&self) -> bool {
        self.probes.in_vain
    }

    /// What the path carries now, in bits a second.
    #[inline]
    pub fn estimate_bps(&self) -> u64 {
        self.target_bps
    }

    /// How fast packets may leave, in bits a second: bursts are shorter than the estimate would make them.
    #[inline]
    pub fn pacing_bps(&self) -> u64 {
        self.pacing_bps
    }

    fn count_second(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.second.0);
        if passed >= Duration::from_secs(1) {
            let bits = (self.sent_bytes - self.second.1) as f64 * 8.0;
            self.last_second_bps = (bits / passed.as_secs_f64()) as u64;
            self.second = (now, self.sent_bytes);
            let [newest, older, oldest] = self.lately_bps;
            if 2 * self.target_bps < oldest {
                self.fell = Some(Fall { from_bps: oldest, at: now });
                self.lately_bps = [0; 3];
            } else {
                self.lately_bps = [self.target_bps, newest, older];
            }
        }
    }

    /// When the next packets of a probe are due; None if nothing is probed.
    pub fn probe_due(&self) -> Option<Instant> {
        self.probes.prober.due()
    }

    /// The probes that are due.
    #[inline]
    pub fn prober(&mut self) -> &mut Prober {
        &mut self.probes.prober
    }

    /// Bytes that left in all.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Bytes that left and that feedback has not told of.
    pub fn in_flight(&self) -> u32 {
        self.log.in_flight()
    }

    fn us(&self, at: Instant) -> u64 {
        EPOCH_US + at.saturating_duration_since(self.origin).as_micros() as u64
    }

    fn time(&self, at: Instant) -> Timestamp {
        Timestamp::from_micros(self.us(at) as i64)
    }
}
