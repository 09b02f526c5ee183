//! The probes of one path: those that are planned or on their way, and what was told of each.

use crate::answer::{Answer, PROBE_PACKETS};
use crate::log::Sent;
use crate::prober::{Cluster, Prober};
use goog_cc::transport::{PacedPacketInfo, ProbeClusterConfig};
use goog_cc::units::{DataRate, TimeDelta, Timestamp};
use std::time::{Duration, Instant};

/// Probes that feedback may still be on its way for.
const CLUSTERS: usize = 16;
/// A probe whose result has not come by then was in vain.
const ANSWERED: Duration = Duration::from_millis(800);
/// Where the numbers of probes of our own begin: the controller counts from 1.
const OWN: i32 = 1 << 24;

/// A probe of our own.
#[derive(Debug, Clone, Copy)]
struct Probed {
    at: Instant,
    place: u8,
    /// Its result was looked at.
    judged: bool,
}

/// Probes: the controller's, and our own.
#[derive(Default)]
pub(crate) struct Probes {
    /// When their packets are due.
    pub prober: Prober,
    clusters: [(PacedPacketInfo, Answer); CLUSTERS],
    /// The last one of our own.
    probed: Option<Probed>,
    /// The path carried it, and none followed yet.
    pub goes_on: bool,
    /// It was in vain.
    pub in_vain: bool,
    /// So much of it was lost that it told nothing.
    pub doubtful: bool,
    /// Those of our own so far.
    asked: i32,
}

impl Probes {
    /// Feedback told when a packet arrived, in µs, or that it did not.
    pub(crate) fn note(&mut self, sent: &Sent, arrived_us: Option<i64>) {
        if let Some(place) = sent.cluster {
            self.clusters[usize::from(place) % CLUSTERS].1.note(sent, arrived_us);
        }
    }

    /// The probe that a packet is of, for the controller.
    pub(crate) fn info(&self, sent: &Sent) -> PacedPacketInfo {
        let of = |place| self.clusters[usize::from(place) % CLUSTERS].0;
        sent.cluster.map(of).unwrap_or_default()
    }

    /// What was told of the probe with this number, unless it is forgotten.
    pub(crate) fn answer(&self, id: i32) -> Option<&Answer> {
        let (info, answer) = &self.clusters[usize::from(place(id))];
        (info.probe_cluster_id == id).then_some(answer)
    }

    /// What was told of the last one of our own.
    pub(crate) fn last_answer(&self) -> Option<&Answer> {
        self.probed.map(|probed| &self.clusters[usize::from(probed.place)].1)
    }

    /// A probe is to leave as soon as it may.
    pub(crate) fn plan(&mut self, probe: &ProbeClusterConfig, now: Instant) {
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

    /// One of our own is to leave, at this rate and for so long. `at_time` is `now` on the controller's clock.
    pub(crate) fn ask(&mut self, now: Instant, at_time: Timestamp, bps: u64, ms: i64) {
        self.goes_on = false;
        self.asked = (self.asked + 1) % OWN;
        let id = OWN + self.asked;
        let probe = ProbeClusterConfig {
            at_time,
            target_data_rate: DataRate::from_bits_per_sec(bps as i64),
            target_duration: TimeDelta::from_millis(ms),
            target_probe_count: PROBE_PACKETS,
            id,
            ..ProbeClusterConfig::default()
        };
        self.probed = Some(Probed { at: now, place: place(id), judged: false });
        self.plan(&probe, now);
    }

    /// Looks at the result of the last one of our own, once. Whether the path has just turned out to carry it.
    pub(crate) fn judge(&mut self, now: Instant) -> bool {
        if !self.is_awaited() {
            return false;
        }
        let told = self.is_told();
        let Some(probed) = self.probed.as_mut() else { return false };
        probed.judged = told || now.saturating_duration_since(probed.at) >= ANSWERED;
        let answer = &self.clusters[usize::from(probed.place)].1;
        let carried = probed.judged && answer.is_carried();
        self.in_vain = probed.judged && !carried;
        self.doubtful = probed.judged && answer.is_doubtful();
        carried
    }

    /// Whether there was ever one of our own.
    pub(crate) fn is_any(&self) -> bool {
        self.probed.is_some()
    }

    /// Whether the last one of our own is the first.
    pub(crate) fn is_first(&self) -> bool {
        self.asked == 1
    }

    /// Whether the last one of our own was planned so lately.
    pub(crate) fn is_lately(&self, span: Duration, now: Instant) -> bool {
        self.probed.is_some_and(|probed| now.saturating_duration_since(probed.at) < span)
    }

    /// Whether the result of the last one of our own was not looked at yet.
    pub(crate) fn is_awaited(&self) -> bool {
        self.probed.is_some_and(|probed| !probed.judged)
    }

    /// Whether enough was told of it meanwhile.
    pub(crate) fn is_told(&self) -> bool {
        self.probed.filter(|probed| !probed.judged).is_some_and(|probed| {
            let (info, answer) = &self.clusters[usize::from(probed.place)];
            answer.is_told(info.probe_cluster_min_bytes as u64)
        })
    }
}

/// The place of a probe's cluster.
fn place(id: i32) -> u8 {
    id.rem_euclid(CLUSTERS as i32) as u8
}
