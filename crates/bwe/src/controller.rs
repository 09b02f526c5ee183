//! Google congestion control as libwebrtc sets it up, and what it is told.

use goog_cc::experiments::FieldTrials;
use goog_cc::network_control::{NetworkControllerConfig, NetworkControllerInterface};
use goog_cc::transport::{NetworkAvailability, PacketResult, StreamsConfig, TargetRateConstraints};
use goog_cc::units::{DataRate, TimeDelta, Timestamp};
use goog_cc::{GoogCcConfig, GoogCcNetworkController};

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

/// A controller that takes the path to carry `start_bps`.
pub(crate) fn controller(
    limits: Limits,
    start_bps: u64,
    at_time: Timestamp,
) -> GoogCcNetworkController {
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
pub(crate) fn without_outages(mut told: Vec<PacketResult>) -> Vec<PacketResult> {
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
    use goog_cc::transport::SentPacket;

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
