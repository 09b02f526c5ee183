//! When and how fast the path is probed, and what is made of it.
//!
//! A path is probed while more is wanted than it is known to carry. The rate is a few times the estimate, or what the path
//! carried before it fell. A probe that came as fast as it left is followed by the next. Where the controller does not believe
//! one, it begins anew.

use super::{CLUSTERS, Downlink, Limits, controller};
use crate::answer::{Answer, PROBE_PACKETS};
use crate::prober::Cluster;
use goog_cc::network_control::NetworkControllerInterface;
use goog_cc::transport::{PacedPacketInfo, ProbeClusterConfig, ProcessInterval};
use goog_cc::units::{DataRate, TimeDelta};
use std::time::{Duration, Instant};

/// For so long it is remembered what the path carried before the estimate fell to less than a half.
const REMEMBERED: Duration = Duration::from_secs(40);
/// After a dip of the estimate, the queue that caused it is gone in this time.
const DIP_PROBED_AFTER: Duration = Duration::from_millis(300);
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
/// A probe whose result has not come by then was in vain.
const PROBE_ANSWERED: Duration = Duration::from_millis(800);
/// The estimate begins anew if a probe came so many times as fast.
const RENEWING: f64 = 1.15;
/// It is taken for so much of what the probe found.
const RENEWED_SHARE: f64 = 0.95;
/// If it falls to less than half of that within this time, the probe was misled: others share the path…
const RENEWED_HOLDS: Duration = Duration::from_secs(3);
/// …and it does not begin anew for so long, and twice as long each time that this happens.
const RENEWED_RESTS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(80));
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
/// Where the numbers of such probes begin: the controller counts from 1.
const OWN_PROBES: i32 = 1 << 24;

/// The estimate fell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fall {
    pub from_bps: u64,
    pub at: Instant,
}

/// The estimate was begun anew by what a probe found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Renewed {
    at: Instant,
    bps: u64,
    /// It fell soon after, and none is for so long.
    rests: Duration,
}

/// A probe of our own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probed {
    at: Instant,
    place: u8,
    /// Its result was looked at.
    judged: bool,
}

impl Downlink {
    /// The estimate fell from this rate. It falls to a share of what came lately, which says little if little was sent: a
    /// keyframe's short queue is enough.
    pub(super) fn note_dip(&mut self, from_bps: u64, now: Instant) {
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
    pub(super) fn probe(&mut self, now: Instant) {
        if self.prober.due().is_some() {
            return;
        }
        self.renew(now);
        let carried = self.judge(now);
        if self.waits(now) {
            return;
        }
        if let Some(bps) = self.dip_bps(now) {
            return self.probe_at(bps, now);
        }
        self.goes_on |= carried;
        let soon = if self.urgent { PROBE_GOES_ON } else { PROBE_GOES_ON_IDLY };
        let lately = |last: Probed| now.saturating_duration_since(last.at) < soon;
        let goes_on = self.goes_on && !self.probed.is_some_and(lately);
        if self.wanted_bps <= self.target_bps || (!goes_on && self.rests(now)) {
            return;
        }
        let idle = self.last_second_bps * 5 < self.target_bps * 4;
        let before = self.fell_within(REMEMBERED, now).map_or(0, |fell| fell.from_bps * 17 / 20);
        let bps = match self.urgent {
            true if self.probed.is_none() => FIRST_PROBE * self.target_bps,
            true => self.wanted_bps.min(before.max(URGENT_PROBE * self.target_bps)),
            false if idle => self.wanted_bps.min(before.max(2 * self.target_bps)),
            false => self.wanted_bps.min(before),
        };
        if bps > self.target_bps {
            self.probe_at(bps, now);
        }
    }

    /// Whether a queue is so long that a probe would tell little, and harm.
    pub(super) fn waits(&self, now: Instant) -> bool {
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
        let Some(found) = self.answer().and_then(|answer| answer.bps(self.jitter_us(now))) else {
            return;
        };
        let Limits { least_bps, most_bps, .. } = self.limits;
        let bps = ((found as f64 * RENEWED_SHARE) as u64).clamp(least_bps, most_bps);
        let more = bps as f64 > self.target_bps as f64 * RENEWING;
        // The first one tells what a slow path carries before anything else does.
        let more = more || (self.asked_probes == 1 && bps < self.target_bps);
        if !self.was_told_of_probe() {
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
        let at_time = self.time(now);
        self.controller = controller(self.limits, bps, at_time);
        // It takes its limits with its first period.
        self.controller.on_process_interval(ProcessInterval { at_time, pacer_queue: None });
        (self.believed_bps, self.target_bps, self.pacing_bps) = (bps, bps, bps * 5 / 2);
        self.ceiling.lift();
        let wanted = std::mem::take(&mut self.wanted_bps);
        self.want(now, wanted, self.urgent);
    }

    /// Whether the path has just turned out to carry the last probe.
    fn judge(&mut self, now: Instant) -> bool {
        let Some(probed) = self.probed.as_mut().filter(|probed| !probed.judged) else {
            return false;
        };
        let (info, answer) = &self.clusters[usize::from(probed.place)];
        let late = now.saturating_duration_since(probed.at) >= PROBE_ANSWERED;
        probed.judged = answer.is_told(info.probe_cluster_min_bytes as u64) || late;
        let carried = probed.judged && answer.is_carried();
        self.in_vain = probed.judged && !carried;
        self.doubtful = probed.judged && answer.is_doubtful();
        carried
    }

    /// What was told of the last probe of our own.
    fn answer(&self) -> Option<&Answer> {
        self.probed.map(|probed| &self.clusters[usize::from(probed.place)].1)
    }

    /// Whether it is too soon after the last probe for another one.
    fn rests(&self, now: Instant) -> bool {
        let interval = match self.fell_within(FELL_LATELY, now) {
            Some(_) if self.urgent && self.doubtful => PROBE_INTERVAL_DOUBTFUL,
            Some(_) if self.urgent => PROBE_INTERVAL_FELL,
            _ if self.urgent => PROBE_INTERVAL_URGENT,
            _ if self.last_second_bps * 5 < self.target_bps * 4 => PROBE_INTERVAL,
            _ => 2 * PROBE_INTERVAL,
        };
        self.probed.is_some_and(|last| now.saturating_duration_since(last.at) < interval)
    }

    pub(super) fn fell_within(&self, span: Duration, now: Instant) -> Option<Fall> {
        self.fell.filter(|fell| now.saturating_duration_since(fell.at) < span)
    }

    /// Whether it was ever probed.
    pub fn was_probed(&self) -> bool {
        self.probed.is_some()
    }

    /// Whether enough was told of the last probe, and the estimate does not hold it yet.
    pub fn was_told_of_probe(&self) -> bool {
        self.probed.filter(|probed| !probed.judged).is_some_and(|probed| {
            let (info, answer) = &self.clusters[usize::from(probed.place)];
            answer.is_told(info.probe_cluster_min_bytes as u64)
        })
    }

    /// Whether a probe left whose result is not known.
    pub fn awaits_probe(&self) -> bool {
        self.probed.is_some_and(|probed| !probed.judged)
    }

    /// Whether the path did not carry the last probe that was answered.
    pub fn was_probed_in_vain(&self) -> bool {
        self.in_vain
    }

    /// By how much delays differ, in µs. Where more is wanted soon, without what the receiver's own packets make each other wait:
    /// else there is time for doubt.
    pub(super) fn jitter_us(&self, now: Instant) -> f64 {
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
        self.goes_on = false;
        self.asked_probes = (self.asked_probes + 1) % OWN_PROBES;
        let place = place(OWN_PROBES + self.asked_probes);
        let ms = match self.probed {
            None => PROBE_MS_FIRST,
            Some(_) if bps > 2 * self.target_bps && self.fell.is_some() => PROBE_MS_FAR,
            Some(_) => PROBE_MS + self.longer_ms(bps, now),
        };
        let probe = ProbeClusterConfig {
            at_time: self.time(now),
            target_data_rate: DataRate::from_bits_per_sec(bps as i64),
            target_duration: TimeDelta::from_millis(ms),
            target_probe_count: PROBE_PACKETS,
            id: OWN_PROBES + self.asked_probes,
            ..ProbeClusterConfig::default()
        };
        self.probed = Some(Probed { at: now, place, judged: false });
        self.plan(&probe, now);
    }

    pub(super) fn plan(&mut self, probe: &ProbeClusterConfig, now: Instant) {
        let bytes = (probe.target_data_rate * probe.target_duration).bytes().max(1);
        let packets = i64::from(probe.target_probe_count.max(1));
        let mut info = PacedPacketInfo::new(probe.id, packets, bytes);
        info.send_bitrate = probe.target_data_rate;
        let place = place(probe.id);
        self.clusters[usize::from(place)] = (info, Answer::default());
        let cluster = Cluster {
            id: place,
            rate_bps: probe.target_data_rate.bps().max(1) as u64,
            least_packets: packets as u32,
            least_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        };
        self.prober.plan(cluster, now);
    }
}

/// The place of a probe's cluster.
pub(super) fn place(id: i32) -> u8 {
    id.rem_euclid(CLUSTERS as i32) as u8
}
