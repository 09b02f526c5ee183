//! The networks of a scenario at work: who goes by which, and what they did.

use super::model::{Counts, LinkSpec};
use super::relay::{Leg, LegCounts, Relay};
use super::sdp;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A network that some of the people are on.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Its name in the record.
    pub name: String,
    /// Share of a scenario's people who are on it, in percent.
    pub share_pct: f64,
    /// From people to the server.
    pub up: LinkSpec,
    /// From the server to people.
    pub down: LinkSpec,
    /// What it becomes on the way, in order of time.
    pub changes: Vec<Change>,
}

/// What a network is from some moment on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// When, from the first join.
    pub at: Duration,
    /// From people to the server.
    pub up: LinkSpec,
    /// From the server to people.
    pub down: LinkSpec,
}

/// Which of the networks the `index`th of `people` is on; none: no link stands between.
pub fn network_of(networks: &[Network], index: u32, people: u32) -> Option<usize> {
    let place = (f64::from(index) + 0.5) / f64::from(people.max(1)) * 100.0;
    let mut end = 0.0;
    networks.iter().position(|network| {
        end += network.share_pct;
        place < end
    })
}

/// What a direction of a network did with media, all its people together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionSummary {
    /// Packets of media that came to the link.
    pub packets: u64,
    /// Packets of these that it delivered.
    pub delivered: u64,
    /// Share that it did not deliver, in percent; null where nothing came.
    pub loss_pct: Option<f64>,
    /// Mean delay that it made, in milliseconds.
    pub delay_ms: Option<f64>,
    /// Jitter that it made (RFC 3550: mean |difference| of the delays of packets that follow each
    /// other in a stream), in milliseconds.
    pub jitter_ms: Option<f64>,
}

/// What a network did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkSummary {
    /// Its name.
    pub name: String,
    /// Connections that went by it.
    pub legs: usize,
    /// From people to the server.
    pub up: DirectionSummary,
    /// From the server to people.
    pub down: DirectionSummary,
    /// How much later than the model said the relay of all links sent packets on: 95th percentile,
    /// in milliseconds. What is read of a link can be no more exact.
    #[serde(default)]
    pub late_ms_p95: Option<f64>,
    /// The same, 99th percentile.
    #[serde(default)]
    pub late_ms_p99: Option<f64>,
    /// Packets that the relay had no room for, or that belonged to nobody.
    #[serde(default)]
    pub relay_dropped: u64,
}

impl DirectionSummary {
    fn of(counts: &Counts) -> Self {
        Self {
            packets: counts.offered,
            delivered: counts.delivered(),
            loss_pct: counts.loss_pct(),
            delay_ms: counts.delay_ms(),
            jitter_ms: counts.jitter_ms(),
        }
    }
}

/// The networks of a run.
pub struct Networks {
    relay: Relay,
    names: Vec<String>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// What each network is now.
    specs: Vec<(LinkSpec, LinkSpec)>,
    /// The legs, with the network of each.
    legs: Vec<(usize, Leg)>,
}

impl std::fmt::Debug for Networks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Networks").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Networks {
    /// Starts their relay; none where there are no networks.
    ///
    /// # Errors
    /// The system gives no socket or thread.
    pub fn start(networks: &[Network]) -> io::Result<Option<Self>> {
        if networks.is_empty() {
            return Ok(None);
        }
        let specs = networks.iter().map(|network| (network.up, network.down)).collect();
        let names = networks.iter().map(|network| network.name.clone()).collect();
        let kept = Mutex::new(Kept { specs, legs: Vec::new() });
        Ok(Some(Self { relay: Relay::start()?, names, kept }))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A network is something else from now on, for all who are on it and who come later.
    pub fn change(&self, network: usize, change: &Change) {
        let mut kept = self.kept();
        if let Some(specs) = kept.specs.get_mut(network) {
            *specs = (change.up, change.down);
        }
        for (_, leg) in kept.legs.iter().filter(|(of, _)| *of == network) {
            self.relay.set(*leg, change.up, change.down);
        }
    }

    /// An SDP of the server's as someone on a network gets it: with a leg of his own for each of
    /// its candidates, kept from one answer to the next.
    pub fn through(&self, network: usize, sdp: &str, known: &mut Vec<(SocketAddr, Leg)>) -> String {
        sdp::rewrite(sdp, |server| {
            if server.is_ipv6() {
                return None; // The relay has sockets of IPv4.
            }
            if let Some((_, leg)) = known.iter().find(|(address, _)| *address == server) {
                return Some(leg.address);
            }
            let mut kept = self.kept();
            let (up, down) = *kept.specs.get(network)?;
            let seed = (kept.legs.len() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let leg = self.relay.leg(server, up, down, seed)?;
            kept.legs.push((network, leg));
            known.push((server, leg));
            Some(leg.address)
        })
    }

    /// What they did so far.
    pub fn summaries(&self) -> Vec<NetworkSummary> {
        let kept = self.kept();
        let summary = |(index, name): (usize, &String)| {
            let legs = kept.legs.iter().filter(|(of, _)| *of == index);
            let of: Vec<LegCounts> = legs.map(|(_, leg)| self.relay.counts(*leg)).collect();
            let sum = |media: fn(&LegCounts) -> Counts| {
                let all = of.iter().map(media);
                DirectionSummary::of(&all.fold(Counts::default(), |sum, one| sum.plus(&one)))
            };
            NetworkSummary {
                name: name.clone(),
                legs: of.len(),
                up: sum(|leg| leg.up.1),
                down: sum(|leg| leg.down.1),
                late_ms_p95: self.relay.late_ms(95.0),
                late_ms_p99: self.relay.late_ms(99.0),
                relay_dropped: self.relay.dropped(),
            }
        };
        self.names.iter().enumerate().map(summary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(share_pct: f64) -> Network {
        let (up, down) = (LinkSpec::default(), LinkSpec::default());
        Network { name: "x".into(), share_pct, up, down, changes: vec![] }
    }

    #[test]
    fn people_are_shared_out() {
        let networks = [network(30.0), network(20.0)];
        let of: Vec<_> = (0..10).map(|index| network_of(&networks, index, 10)).collect();
        assert_eq!(of[..5], [Some(0), Some(0), Some(0), Some(1), Some(1)]);
        assert!(of[5..].iter().all(Option::is_none));
        assert_eq!(network_of(&[network(100.0)], 0, 1), Some(0));
        assert_eq!(network_of(&[], 0, 1), None);
    }

    #[test]
    fn a_leg_for_each_candidate_and_the_same_one_again() {
        let networks = Networks::start(&[network(100.0)]).unwrap().unwrap();
        let sdp = "a=candidate:1 1 udp 1 127.0.0.1 4000 typ host\r\n";
        let (mut ada, mut min) = (Vec::new(), Vec::new());
        let first = networks.through(0, sdp, &mut ada);
        assert_eq!(networks.through(0, sdp, &mut ada), first);
        assert_ne!(networks.through(0, sdp, &mut min), first);
        assert!(first.contains(" 127.252.0.1 ") && !first.contains(" 4000 "), "{first}");
        let [summary] = &networks.summaries()[..] else { panic!("one network") };
        assert_eq!((summary.legs, summary.up.loss_pct), (2, None));
        assert!(Networks::start(&[]).unwrap().is_none());
    }
}
