//! The `networks` of a scenario.

use super::Scenario;
use crate::link::model::{LinkSpec, Loss};
use crate::link::networks::Network;
use settings::{Section, duration, number, one_of, parsed};
use std::time::Duration;
use wire::room::{AudioTopology, VideoTopology};

/// Which way a network is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ways {
    Both,
    Up,
    Down,
}

pub(super) fn decode(network: &mut Section<'_>) -> Option<Network> {
    let minute = Duration::ZERO..=Duration::from_secs(60);
    let name = parsed("a name, such as mobile", |text: &str| match text.len() {
        1..=40 => Ok(text.to_owned()),
        _ => Err("it has 1 to 40 characters".into()),
    });
    let name = network.read("name", name).or("network".to_owned());
    let share_pct = network.read("share_pct", number(0.0..=100.0)).or(100.0);
    let delay = network.read("delay", duration(minute.clone())).or(Duration::ZERO);
    let jitter = network.read("jitter", duration(minute.clone())).or(Duration::ZERO);
    let loss_pct = network.read("loss_pct", number(0.0..=99.0)).or(0.0);
    let burst = network.read("burst_packets", number(1.0..=10_000.0)).or(1.0);
    let rate_kbps = network.read("rate_kbps", number(1..=100_000_000u32)).optional();
    let queue = network.read("queue", duration(minute)).or(Duration::ZERO);
    let ways = [("both", Ways::Both), ("up", Ways::Up), ("down", Ways::Down)];
    let ways = network.read("way", one_of(&ways)).or(Ways::Both);
    let share = loss_pct / 100.0;
    let loss = match (share > 0.0, burst > 1.0) {
        (false, _) => Loss::None,
        (true, false) => Loss::Random(share),
        (true, true) => Loss::Bursts { share, mean_packets: burst },
    };
    let spec = LinkSpec { delay, jitter, loss, rate_kbps, queue };
    let clear = LinkSpec::default();
    let (up, down) = match ways {
        Ways::Both => (spec, spec),
        Ways::Up => (spec, clear),
        Ways::Down => (clear, spec),
    };
    Some(Network { name, share_pct, up, down })
}

/// What only the whole can tell.
pub(super) fn check(root: &mut Section<'_>, scenario: &Scenario) {
    if scenario.networks.is_empty() {
        return;
    }
    let share: f64 = scenario.networks.iter().map(|network| network.share_pct).sum();
    if share > 100.0 {
        let what = format!("the shares add up to {share} %");
        root.fault("networks", what, "write shares of 100 % in all, or less: the rest has no link");
    }
    let mesh = scenario
        .rooms
        .iter()
        .any(|room| room.audio == AudioTopology::Mesh || room.video == VideoTopology::Mesh);
    if mesh {
        let cure = "give rooms of a mesh a scenario of their own, without networks";
        root.fault("networks", "members of a mesh send to each other, past the link", cure);
    }
}
