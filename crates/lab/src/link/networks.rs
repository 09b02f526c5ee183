//! The networks of a scenario at work: who goes by which, and what they did.

use super::model::{Counts, LinkSpec};
use super::relay::{Leg, LegCounts, Relay};
use super::sdp;
use crate::record::PersonLinkUsage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Links of single people that a window is told of.
const MAX_USAGES: usize = 16;

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
    legs: Vec<Owned>,
    /// When usage was last told.
    told: Option<Instant>,
}

/// A leg, and whose it is.
#[derive(Debug)]
struct Owned {
    network: usize,
    person: String,
    leg: Leg,
    /// What it had done when usage was last told.
    before: LegCounts,
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
        let kept = Mutex::new(Kept { specs, ..Kept::default() });
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
        for owned in kept.legs.iter().filter(|owned| owned.network == network) {
            self.relay.set(owned.leg, change.up, change.down);
        }
    }

    /// An SDP of the server's as someone on a network gets it: with a leg of his own for each of
    /// its candidates, kept from one answer to the next.
    pub fn through(
        &self,
        network: usize,
        person: &str,
        sdp: &str,
        known: &mut Vec<(SocketAddr, Leg)>,
    ) -> String {
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
            let (person, before) = (person.to_owned(), LegCounts::default());
            kept.legs.push(Owned { network, person, leg, before });
            known.push((server, leg));
            Some(leg.address)
        })
    }

    /// What the links of single people did since the last call: those that lost most, at most [`MAX_USAGES`] of them.
    pub fn usage(&self, now: Instant) -> Vec<PersonLinkUsage> {
        let mut kept = self.kept();
        let wall = kept.told.replace(now).map(|told| now.saturating_duration_since(told));
        let Kept { specs, legs, .. } = &mut *kept;
        let mut used: BTreeMap<(String, usize), [Counts; 2]> = BTreeMap::new();
        for owned in legs {
            let counts = self.relay.counts(owned.leg);
            let before = std::mem::replace(&mut owned.before, counts);
            // A server may have several addresses.
            let sums = used.entry((owned.person.clone(), owned.network)).or_default();
            sums[0] = sums[0].plus(&counts.up.0.since(&before.up.0));
            sums[1] = sums[1].plus(&counts.down.0.since(&before.down.0));
        }
        let seconds = wall.unwrap_or_default().as_secs_f64();
        if seconds <= 0.0 {
            return Vec::new();
        }
        let usage = |((person, network), counts): ((String, usize), [Counts; 2])| {
            let (up, down) = specs.get(network).copied().unwrap_or_default();
            let name = self.names.get(network).cloned().unwrap_or_default();
            [(false, up), (true, down)].into_iter().zip(counts).map(
                move |((down, spec), counts)| PersonLinkUsage {
                    person: person.clone(),
                    network: name.clone(),
                    down,
                    packets: counts.offered,
                    dropped: counts.lost + counts.queue_full,
                    mbit_per_s: counts.bytes as f64 * 8.0 / seconds / 1e6,
                    limit_mbit_per_s: spec.rate_kbps.map(|kbps| f64::from(kbps) / 1000.0),
                },
            )
        };
        let mut all: Vec<PersonLinkUsage> = used.into_iter().flat_map(usage).collect();
        all.sort_by(|a, b| b.strain().total_cmp(&a.strain()));
        all.truncate(MAX_USAGES);
        all
    }

    /// What they did so far.
    pub fn summaries(&self) -> Vec<NetworkSummary> {
        let kept = self.kept();
        let summary = |(index, name): (usize, &String)| {
            let legs = kept.legs.iter().filter(|owned| owned.network == index);
            let of: Vec<LegCounts> = legs.map(|owned| self.relay.counts(owned.leg)).collect();
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
        let first = networks.through(0, "ada", sdp, &mut ada);
        assert_eq!(networks.through(0, "ada", sdp, &mut ada), first);
        assert_ne!(networks.through(0, "min", sdp, &mut min), first);
        assert!(first.contains(" 127.252.0.1 ") && !first.contains(" 4000 "), "{first}");
        let [summary] = &networks.summaries()[..] else { panic!("one network") };
        assert_eq!((summary.legs, summary.up.loss_pct), (2, None));
        assert!(Networks::start(&[]).unwrap().is_none());
    }

    #[test]
    fn the_links_of_single_people_are_told_with_what_they_lost() {
        let slow = LinkSpec {
            rate_kbps: Some(80),
            queue: Duration::from_millis(1),
            ..LinkSpec::default()
        };
        let networks = [Network { up: slow, ..network(100.0) }];
        let networks = Networks::start(&networks).unwrap().unwrap();
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let sdp = format!("a=candidate:1 1 udp 1 127.0.0.1 {port} typ host\r\n");
        let (mut of_ada, mut of_min) = (Vec::new(), Vec::new());
        networks.through(0, "ada", &sdp, &mut of_ada);
        networks.through(0, "min", &sdp, &mut of_min);
        let begin = Instant::now();
        assert_eq!(networks.usage(begin), [], "nothing is known of the time before");
        let ada = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            ada.send_to(&[0; 1000], of_ada[0].1.address).unwrap();
        }
        let told = loop {
            std::thread::sleep(Duration::from_millis(10));
            if networks.summaries()[0].relay_dropped > 0 {
                panic!("the relay knows the address");
            }
            if networks.relay.counts(of_ada[0].1).up.0.offered == 100 {
                break networks.usage(begin + Duration::from_secs(1));
            }
        };
        let first = &told[0];
        assert_eq!(
            (first.person.as_str(), first.network.as_str(), first.down),
            ("ada", "x", false)
        );
        assert_eq!((first.packets, first.limit_mbit_per_s), (100, Some(0.08)));
        assert!(first.dropped > 50, "{first:?}");
        assert!(told[1..].iter().all(|other| other.packets == 0), "{told:?}");
        let later = networks.usage(begin + Duration::from_secs(2));
        assert_eq!(
            later.iter().map(|usage| usage.packets).sum::<u64>(),
            0,
            "it counts from the last call"
        );
    }
}
