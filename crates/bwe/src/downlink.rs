//! The estimate for one receiver: Google congestion control, with our units and clock.

mod probing;

use crate::arrivals::ReceiverClock;
use crate::burst::Burst;
use crate::ceiling::Ceiling;
use crate::log::{IP_UDP_BYTES, Kind, SendLog, Sent};
use crate::prober::Prober;
use crate::probes::Probes;
use goog_cc::experiments::FieldTrials;
use goog_cc::network_control::{NetworkControllerConfig, NetworkControllerInterface};
use goog_cc::transport::{
    NetworkAvailability, NetworkControlUpdate, PacketResult, ProcessInterval, SentPacket,
    StreamsConfig, TargetRateConstraints, TransportPacketsFeedback,
};
use goog_cc::units::{DataRate, DataSize, TimeDelta, Timestamp};
use goog_cc::{GoogCcConfig, GoogCcNetworkController};
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
/// Where a queue grew, the path carries this share of what came: the controller's own share.
const BACK_OFF: f64 = 0.85;
/// An estimate below this share of that fell because little was sent before.
const FELL_TOO_FAR: f64 = 0.75;
/// A full packet.
const FULL_BITS: u64 = 9600;
/// Without feedback for so long, packets that leave are taken to have been away.
const SILENCE: Duration = Duration::from_millis(1500);
/// If nothing of what left in so long came, the path was cut: a queue that is full lets some of it through. Those losses
/// say nothing of what the path carries.
const OUTAGE: TimeDelta = TimeDelta::from_millis(200);

/// What a path is taken for at first, and how far an estimate may go, in bits a second.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The estimate until feedback says more.
    pub start_bps: u64,
    /// It never falls below this.
    pub least_bps: u64,
    /// It never rises above this.
    pub most_bps: u64,
}

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
    /// When packets left again after a silence without feedback.
    resumed: Option<Instant>,
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
            resumed: None,
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
        self.sent_bytes += bytes as u64;
        self.unheard.0 += bytes as u64;
        self.unheard.1 = Some((now, kind));
    }

    /// Feedback came. It counts with the next [`Downlink::tick`].
    pub fn feedback(&mut self, now: Instant, feedback: &Feedback<'_>) {
        let now_us = self.us(now) as i64;
        let offset = self.clock.on_reference(now_us, feedback.reference_us());
        self.told_at = now;
        let apart_us = 2 * FULL_BITS * 1_000_000 / self.target_bps.max(1);
        for (number, came) in feedback.packets() {
            if self.pending.len() == self.pending.capacity() {
                break;
            }
            let Some(number) = self.log.number(number) else { continue };
            let Some(sent) = self.log.tell(number, came.is_some()) else { continue };
            if let Some(at_us) = came {
                self.ceiling.came(now, &sent, at_us + offset);
            }
            let arrived = came.map(|at_us| at_us + offset);
            let waited = |at_us| (at_us, self.ceiling.waited(&sent, at_us));
            self.burst.note(&sent, arrived.map(waited), apart_us);
            self.probes.note(&sent, came.map(|at_us| at_us + offset));
            let receive_time = match came {
                Some(at_us) => Timestamp::from_micros((at_us + offset).max(0)),
                None => Timestamp::plus_infinity(),
            };
            let sent_packet = self.sent_packet(&sent, number);
            self.pending.push(PacketResult { sent_packet, receive_time, ..Default::default() });
        }
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
        let capacity = self.pending.capacity();
        let told = std::mem::replace(&mut self.pending, Vec::with_capacity(capacity));
        let packet_feedbacks = without_outages(told);
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

/// A controller that takes the path to carry `start_bps`.
fn controller(limits: Limits, start_bps: u64, at_time: Timestamp) -> GoogCcNetworkController {
    let rate = |bps: u64| DataRate::from_bits_per_sec(bps as i64);
    let constraints = TargetRateConstraints {
        at_time,
        min_data_rate: Some(rate(limits.least_bps)),
        max_data_rate: Some(rate(limits.most_bps)),
        starting_rate: Some(rate(start_bps)),
    };
    let stream_based_config =
        StreamsConfig { at_time, requests_alr_probing: Some(true), ..StreamsConfig::default() };
    let config = NetworkControllerConfig {
        field_trials: FieldTrials::default(),
        constraints,
        stream_based_config,
    };
    let mut controller = GoogCcNetworkController::new(config, GoogCcConfig { feedback_only: true });
    // The probes that it would begin with are ours to make.
    let available = NetworkAvailability { at_time, network_available: true };
    controller.on_network_availability(available);
    controller
}

/// What feedback told, less the losses of outages.
fn without_outages(mut told: Vec<PacketResult>) -> Vec<PacketResult> {
    let mut first = 0;
    while first < told.len() {
        let lost = told[first..].iter().take_while(|packet| !packet.is_received()).count();
        let sent = |at: usize| told[at].sent_packet.send_time;
        if lost > 0 && sent(first + lost - 1) - sent(first) >= OUTAGE {
            told.drain(first..first + lost);
        } else {
            first += lost.max(1);
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(at_ms: i64, came: bool) -> PacketResult {
        let send_time = Timestamp::from_millis(at_ms);
        let sent_packet = SentPacket { send_time, ..SentPacket::default() };
        let receive_time = if came { send_time } else { Timestamp::plus_infinity() };
        PacketResult { sent_packet, receive_time, ..Default::default() }
    }

    #[test]
    fn losses_of_an_outage_are_not_told_and_others_are() {
        let came = |ms: i64| ms < 1000 || (1300..2000).contains(&ms) || ms >= 2180;
        let told = (0..300).map(|n| packet(10 * n, came(10 * n))).collect();
        let left = without_outages(told);
        assert_eq!(left.iter().filter(|packet| !packet.is_received()).count(), 18, "a short one");
        assert_eq!(left.len(), 270);
        let all = (0..50).map(|n| packet(10 * n, false)).collect();
        assert!(without_outages(all).is_empty());
        assert!(without_outages(Vec::new()).is_empty());
    }
}
