//! Who receives at which IP address. A NAT that gives a participant another port keeps the address.

use super::index::PersonIndex;
use crate::bucket::Bucket;
use crate::limits::STRANGERS_A_SECOND;
use foldhash::HashMap;
use rtp::TransportAddress;
use std::net::IpAddr;
use std::time::Instant;

/// The participants at an IP address.
struct Place {
    people: Vec<PersonIndex>,
    /// How often packets of unknown sources may be tried with their keys.
    tries: Bucket,
    /// Who is tried first.
    next: usize,
}

/// The participants by UDP, by their IP addresses.
#[derive(Default)]
pub(super) struct Nearby {
    // Looked up, never iterated over: a seed must repeat byte for byte.
    by_ip: HashMap<IpAddr, Place>,
}

impl Nearby {
    /// How many addresses are kept.
    pub(super) fn kept(&self) -> usize {
        self.by_ip.len()
    }

    /// Somebody receives there from now on.
    pub(super) fn add(&mut self, address: TransportAddress, person: PersonIndex, now: Instant) {
        if address.is_tcp() {
            return;
        }
        let place = self.by_ip.entry(address.socket.ip()).or_insert_with(|| Place {
            people: Vec::with_capacity(1),
            tries: Bucket::new(STRANGERS_A_SECOND, STRANGERS_A_SECOND, now),
            next: 0,
        });
        if !place.people.contains(&person) {
            place.people.push(person);
        }
    }

    /// Somebody no longer receives there.
    pub(super) fn remove(&mut self, address: TransportAddress, person: PersonIndex) {
        let ip = address.socket.ip();
        let Some(place) = self.by_ip.get_mut(&ip).filter(|_| !address.is_tcp()) else { return };
        place.people.retain(|known| *known != person);
        if place.people.is_empty() {
            self.by_ip.remove(&ip);
        }
    }

    /// Who is there, each time from another one on.
    pub(super) fn people(&mut self, ip: IpAddr) -> impl Iterator<Item = PersonIndex> + Clone + '_ {
        let place = self.by_ip.get_mut(&ip);
        let (people, from) = place.map_or((&[][..], 0), |place| {
            place.next = place.next.wrapping_add(1);
            (&place.people[..], place.next % place.people.len())
        });
        people[from..].iter().chain(&people[..from]).copied()
    }

    /// Whether one more packet of an unknown source may be tried there.
    pub(super) fn may_try(&mut self, ip: IpAddr, now: Instant) -> bool {
        self.by_ip.get_mut(&ip).is_some_and(|place| place.tries.take(1, now))
    }
}
