//! The networks of a scenario at work: who goes by which, and what they did.

use super::model::{Counts, LinkSpec};
use super::relay::{Leg, LegCounts, Relay, Shared};
use super::sdp;
use crate::record::{DirectionSummary, LOADED_LINK, NetworkSummary, PersonLinkUsage, Span, Way};
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many links are recorded of a window, the worst.
const MAX_RECORDED: usize = 32;
/// A link that delays packets by so many ms there and back is recorded, even if it is not loaded.
const LONG_MS: f64 = 100.0;

/// A network that some of the people are on.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Its name in the record.
    pub name: String,
    /// Share of a scenario's people who are on it, in percent.
    pub share_pct: f64,
    /// Whether all who are on it go by one link: they share its rate and its queue each way. Else each has a link of their
    /// own.
    pub shared: bool,
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

/// What a direction did, by its counts.
fn direction(counts: &Counts) -> DirectionSummary {
    DirectionSummary {
        packets: counts.offered,
        delivered: counts.delivered(),
        loss_pct: counts.loss_pct(),
        delay_ms: counts.delay_ms(),
        jitter_ms: counts.jitter_ms(),
    }
}

/// The networks of a run.
pub struct Networks {
    relay: Relay,
    names: Vec<String>,
    /// The queues of the networks that are shared.
    shared: Vec<Option<Shared>>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// What each network is now.
    specs: Vec<(LinkSpec, LinkSpec)>,
    legs: Vec<KeptLeg>,
    /// When each network let nothing through, one way or both.
    cuts: Vec<Vec<Span>>,
    /// Since when the legs' counts were last looked at.
    looked: Option<Instant>,
}

#[derive(Debug)]
struct KeptLeg {
    network: usize,
    /// Whose.
    person: String,
    leg: Leg,
    /// What it had done when it was last looked at: up, down.
    then: (Counts, Counts),
}

impl Kept {
    /// A network is so from `t_ms` on.
    fn set(&mut self, network: usize, specs: (LinkSpec, LinkSpec), t_ms: u64) {
        let (Some(now), Some(cuts)) = (self.specs.get_mut(network), self.cuts.get_mut(network))
        else {
            return;
        };
        *now = specs;
        let cut = specs.0.is_cut() || specs.1.is_cut();
        match cuts.last_mut().filter(|span| span.until_ms.is_none()) {
            Some(open) if !cut => open.until_ms = Some(t_ms),
            None if cut => cuts.push(Span { from_ms: t_ms, until_ms: None }),
            _ => {}
        }
    }
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
        let mut kept = Kept {
            specs: vec![<(LinkSpec, LinkSpec)>::default(); networks.len()],
            cuts: vec![Vec::new(); networks.len()],
            looked: Some(Instant::now()),
            ..Kept::default()
        };
        for (index, network) in networks.iter().enumerate() {
            kept.set(index, (network.up, network.down), 0);
        }
        let names = networks.iter().map(|network| network.name.clone()).collect();
        let relay = Relay::start()?;
        let shared = networks.iter().map(|network| network.shared.then(|| relay.share()));
        let shared = shared.collect();
        Ok(Some(Self { relay, names, shared, kept: Mutex::new(kept) }))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A network is something else from now on, for all who are on it and who come later; `t_ms`:
    /// now, since the start of the run.
    pub fn change(&self, network: usize, change: &Change, t_ms: u64) {
        let mut kept = self.kept();
        kept.set(network, (change.up, change.down), t_ms);
        for kept in kept.legs.iter().filter(|kept| kept.network == network) {
            self.relay.set(kept.leg, change.up, change.down);
        }
    }

    /// When a network let nothing through, one way or both: by the scenario's own word.
    pub fn cuts(&self, network: usize) -> Vec<Span> {
        self.kept().cuts.get(network).cloned().unwrap_or_default()
    }

    /// An SDP of the server's as `person` on a network gets it: with a leg of their own for each of
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
            let specs = *kept.specs.get(network)?;
            let seed = (kept.legs.len() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let leg = self.relay.leg(server, specs, self.shared[network], seed)?;
            let (person, then) = (person.to_owned(), Default::default());
            kept.legs.push(KeptLeg { network, person, leg, then });
            known.push((server, leg));
            Some(leg.address)
        })
    }

    /// What people's links did since the last call, with all packets: those that lost something or
    /// are near their limit or long, the worst first. A shared link is as near to its limit as all who share it bring it together.
    pub fn used(&self) -> Vec<PersonLinkUsage> {
        let mut kept = self.kept();
        let now = Instant::now();
        let begin = kept.looked.replace(now).unwrap_or(now);
        let seconds = now.saturating_duration_since(begin).as_secs_f64().max(1e-3);
        let mbit_per_s = |bytes: u64| bytes as f64 * 8.0 / 1e6 / seconds;
        let Kept { specs, legs, .. } = &mut *kept;
        let mut all = Vec::new();
        let mut together = vec![(0, 0); specs.len()];
        for kept in legs {
            let counts = self.relay.counts(kept.leg);
            let after = (counts.up.0, counts.down.0);
            let before = std::mem::replace(&mut kept.then, after);
            let Some(spec) = specs.get(kept.network) else { continue };
            let (up, down) = (after.0.since(&before.0), after.1.since(&before.1));
            let bytes = &mut together[kept.network];
            *bytes = (bytes.0 + up.bytes, bytes.1 + down.bytes);
            let ways = [(Way::Up, up, spec.0), (Way::Down, down, spec.1)];
            let ways = ways.map(|(way, did, spec)| PersonLinkUsage {
                person: kept.person.clone(),
                network: self.names[kept.network].clone(),
                way,
                packets: did.offered,
                dropped: did.lost + did.queue_full,
                mbit_per_s: mbit_per_s(did.bytes),
                limit_mbit_per_s: spec.rate_kbps.map(|kbps| f64::from(kbps) / 1000.0),
                delay_ms: did.delay_ms(),
            });
            all.push((kept.network, ways));
        }
        for (network, [up, down]) in &mut all {
            if self.shared[*network].is_some() {
                up.mbit_per_s = mbit_per_s(together[*network].0);
                down.mbit_per_s = mbit_per_s(together[*network].1);
            }
        }
        recorded(all.into_iter().map(|(_, ways)| ways))
    }

    /// What they did so far.
    pub fn summaries(&self) -> Vec<NetworkSummary> {
        let kept = self.kept();
        let summary = |(index, name): (usize, &String)| {
            let legs = kept.legs.iter().filter(|kept| kept.network == index);
            let of: Vec<LegCounts> = legs.map(|kept| self.relay.counts(kept.leg)).collect();
            let sum = |media: fn(&LegCounts) -> Counts| {
                let all = of.iter().map(media);
                direction(&all.fold(Counts::default(), |sum, one| sum.plus(&one)))
            };
            NetworkSummary {
                name: name.clone(),
                legs: of.len(),
                up: sum(|leg| leg.up.1),
                down: sum(|leg| leg.down.1),
                late_ms_p95: self.relay.late_ms(95.0),
                late_ms_p99: self.relay.late_ms(99.0),
                relay_dropped: self.relay.dropped(),
                socket_error: self.relay.socket_error(),
            }
        };
        self.names.iter().enumerate().map(summary).collect()
    }
}

/// Of the links of people, up and down, those that are loaded, the worst first, then both ways of those that are long.
fn recorded(all: impl Iterator<Item = [PersonLinkUsage; 2]>) -> Vec<PersonLinkUsage> {
    let chosen = all.flat_map(|ways| {
        let round_trip_ms: f64 = ways.iter().filter_map(|way| way.delay_ms).sum();
        ways.into_iter().filter(move |way| {
            let is_long = round_trip_ms >= LONG_MS && way.delay_ms.is_some();
            way.level() >= LOADED_LINK || is_long
        })
    });
    let mut chosen: Vec<PersonLinkUsage> = chosen.collect();
    // The sort is stable: the two ways of a long link stay together.
    let load = |link: &PersonLinkUsage| match link.level() {
        level if level >= LOADED_LINK => level,
        _ => 0.0,
    };
    chosen.sort_by(|a, b| load(b).total_cmp(&load(a)));
    chosen.truncate(MAX_RECORDED);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(share_pct: f64) -> Network {
        let (up, down) = (LinkSpec::default(), LinkSpec::default());
        Network { name: "x".into(), share_pct, shared: false, up, down, changes: vec![] }
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
    fn loaded_links_are_recorded_the_worst_first_and_both_ways_of_long_ones() {
        let link = |person: &str, way, dropped, delay_ms| PersonLinkUsage {
            person: person.into(),
            network: "x".into(),
            way,
            packets: 1000,
            dropped,
            mbit_per_s: 0.1,
            limit_mbit_per_s: Some(10.0),
            delay_ms: Some(delay_ms),
        };
        let ways = |person, dropped: u64, ms| {
            [link(person, Way::Up, dropped, ms), link(person, Way::Down, 0, ms)]
        };
        let all = [ways("near", 9, 10.0), ways("far", 0, 50.0), ways("lossy", 40, 10.0)];
        let names = |found: Vec<PersonLinkUsage>| -> Vec<String> {
            found.iter().map(|one| format!("{} {}", one.person, one.way.as_str())).collect()
        };
        assert_eq!(names(recorded(all.into_iter())), ["lossy up", "far up", "far down"]);
        let many = (0..100).map(|_| ways("far", 0, 50.0));
        assert_eq!(recorded(many).len(), MAX_RECORDED);
    }

    #[test]
    fn each_window_names_whose_link_drops_or_is_full() {
        use std::net::UdpSocket;
        let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = socket();
        let slow = LinkSpec { rate_kbps: Some(100), ..LinkSpec::default() };
        let networks = [network(50.0), Network { name: "slow".into(), up: slow, ..network(50.0) }];
        let networks = Networks::start(&networks).unwrap().unwrap();
        let port = server.local_addr().unwrap().port();
        let sdp = format!("a=candidate:1 1 udp 1 127.0.0.1 {port} typ host\r\n");
        let (mut ada, mut min) = (Vec::new(), Vec::new());
        networks.through(0, "ada", &sdp, &mut ada);
        networks.through(1, "min", &sdp, &mut min);
        let (person, address) = (socket(), |legs: &[(SocketAddr, Leg)]| legs[0].1.address);
        // 200 ms of queue at 100 kbit/s hold three of these.
        for _ in 0..100 {
            person.send_to(&[0; 1000], address(&ada)).unwrap();
            person.send_to(&[0; 1000], address(&min)).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        let offered = || {
            let legs = networks.kept().legs.iter().map(|kept| kept.leg).collect::<Vec<_>>();
            legs.iter().map(|leg| networks.relay.counts(*leg).up.0.offered).collect::<Vec<_>>()
        };
        while offered() != [100, 100] {
            assert!(Instant::now() < deadline, "{:?}", offered());
            std::thread::sleep(Duration::from_millis(1));
        }
        let [link] = &networks.used()[..] else { panic!("one of them loses") };
        assert_eq!((&*link.person, &*link.network, link.way), ("min", "slow", Way::Up));
        assert!(link.packets == 100 && (90..100).contains(&link.dropped), "{link:?}");
        assert_eq!(link.limit_mbit_per_s, Some(0.1));
        assert!(networks.used().iter().all(|link| link.packets == 0), "the window's own");
    }

    /// Two people send as much at once as the queue of one holds.
    #[test]
    fn people_on_a_shared_network_share_its_rate() {
        use std::net::UdpSocket;
        let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (server, people) = (socket(), [socket(), socket()]);
        let full = |shared| {
            // 200 ms of queue hold 51 packets of 1000 bytes.
            let up = LinkSpec { rate_kbps: Some(2000), ..LinkSpec::default() };
            let network = Network { shared, up, ..network(100.0) };
            let networks = Networks::start(&[network]).unwrap().unwrap();
            let port = server.local_addr().unwrap().port();
            let sdp = format!("a=candidate:1 1 udp 1 127.0.0.1 {port} typ host\r\n");
            let mut legs = [Vec::new(), Vec::new()];
            for (name, legs) in ["ada", "min"].into_iter().zip(&mut legs) {
                networks.through(0, name, &sdp, legs);
            }
            for _ in 0..50 {
                for (person, legs) in people.iter().zip(&legs) {
                    person.send_to(&[0; 1000], legs[0].1.address).unwrap();
                }
            }
            let counts = || legs.each_ref().map(|legs| networks.relay.counts(legs[0].1).up.0);
            let deadline = Instant::now() + Duration::from_secs(10);
            while counts().iter().any(|counts| counts.offered < 50) {
                assert!(Instant::now() < deadline, "{:?}", counts());
                std::thread::sleep(Duration::from_millis(1));
            }
            (counts(), networks.used())
        };
        let (own, _) = full(false);
        assert!(own.iter().all(|counts| counts.queue_full == 0), "{own:?}");
        let (shared, used) = full(true);
        let dropped = shared.iter().map(|counts| counts.queue_full).sum::<u64>();
        assert!((1..50).contains(&dropped), "{shared:?}");
        let carried: Vec<_> = used.iter().map(|link| (link.way, link.mbit_per_s)).collect();
        assert_eq!(carried.len(), 2, "{used:?}");
        assert_eq!(carried[0], carried[1], "what all who share it sent");
    }

    #[test]
    fn it_is_kept_when_the_scenario_cut_a_network() {
        let networks = Networks::start(&[network(50.0), network(50.0)]).unwrap().unwrap();
        let cut = LinkSpec { loss: super::super::Loss::Random(1.0), ..LinkSpec::default() };
        let lossy = LinkSpec { loss: super::super::Loss::Random(0.9), ..LinkSpec::default() };
        let clear = LinkSpec::default();
        let ways = [(clear, cut), (cut, cut), (lossy, clear), (clear, clear), (cut, clear)];
        for (nth, (up, down)) in (1..).zip(ways) {
            networks.change(1, &Change { at: Duration::ZERO, up, down }, nth * 1000);
        }
        let spans =
            [Span { from_ms: 1000, until_ms: Some(3000) }, Span { from_ms: 5000, until_ms: None }];
        assert_eq!((networks.cuts(0), networks.cuts(1)), (vec![], spans.to_vec()));
    }
}
