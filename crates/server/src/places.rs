//! Places for connections: so many in all, and so many for one address, so that no one address takes
//! everybody's.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Once;

/// Connections beyond all places that may still ask how the server is: `/healthz` and `/metrics`.
pub(crate) const RESERVE: usize = 64;
/// Descriptors of the process itself (threads, logs, what answers read from files) and both reserves: that of trusted
/// proxies is another. Where few may be open at all, they are at most half of those.
const OWN: usize = 128 + 2 * RESERVE;
const OWN_EACH_SHARD: usize = 16;
/// HTTP connections that are no sockets: pages, `/healthz`, the API.
const NO_SOCKETS: usize = 2048;
/// Most media connections of a shard.
const MOST_MEDIA: usize = 4096;
/// When fewer than one of so many places is left…
const SCARCE: usize = 8;
/// …an address that has as many as this gets no more: newcomers still find a place.
const FEW: usize = 8;

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// All are taken, or few are left and the address has its share of those.
    All,
    /// The address has as many as one address may have.
    Address,
}

/// How many connections the process's descriptors allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Over HTTP, sockets included.
    pub http: usize,
    /// Of media on TCP, each shard.
    pub media: usize,
}

/// Shares out the descriptors that the system allows; the soft limit is raised to the hard one before.
pub(crate) fn shares(sockets: usize, shards: usize) -> Shares {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, ..limit };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = raised;
        }
    }
    // No limit at all is more than there will ever be.
    let open = limit.current.map_or(usize::MAX / 2, |open| open as usize);
    let shares = share_out(open, sockets, shards);
    if shares.http < sockets {
        // HTTP and media both ask.
        static TOLD: Once = Once::new();
        let possible = shares.http;
        TOLD.call_once(|| {
            tracing::warn!(
                open_files = open,
                "limits.sockets is {sockets}, but open files are enough for {possible} connections: raise the \
                 limit (ulimit -n, LimitNOFILE)"
            );
        });
    }
    shares
}

/// How many of `most` places one address may have, where the settings say `per_address` of so many sockets. Where descriptors are
/// few, it is half of them. An address that may have all sockets is a reverse proxy's: it is everybody's, and may have all places.
pub(crate) fn each(most: usize, per_address: usize, sockets: usize) -> usize {
    if per_address >= sockets { per_address } else { per_address.min((most / 2).max(1)) }
}

fn share_out(open: usize, sockets: usize, shards: usize) -> Shares {
    let left = open - (OWN + shards * OWN_EACH_SHARD).min(open / 2);
    let http = (left - left / 16).min(sockets + NO_SOCKETS);
    Shares { http, media: ((left - http) / shards.max(1)).min(MOST_MEDIA) }
}

/// Places taken and left.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    most_each: usize,
    taken: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Places {
    /// `most` places in all, `most_each` for one address.
    pub(crate) fn new(most: usize, most_each: usize) -> Self {
        Self { most, most_each, taken: 0, by_address: HashMap::new() }
    }

    /// How many there are for one address.
    pub(crate) fn most_each(&self) -> usize {
        self.most_each
    }

    /// Takes a place for a connection from `address`.
    pub(crate) fn take(&mut self, address: IpAddr) -> Result<(), Full> {
        if self.taken == self.most {
            return Err(Full::All);
        }
        self.count(address)?;
        self.taken += 1;
        Ok(())
    }

    /// A connection from `address` is gone.
    pub(crate) fn give_back(&mut self, address: IpAddr) {
        self.taken -= 1;
        self.uncount(address);
    }

    /// Takes a place for a connection of a trusted proxy: it counts for no address by itself.
    pub(crate) fn take_for_proxy(&mut self) -> Result<(), Full> {
        if self.taken == self.most {
            return Err(Full::All);
        }
        self.taken += 1;
        Ok(())
    }

    /// A connection of a trusted proxy is gone.
    pub(crate) fn give_back_of_proxy(&mut self) {
        self.taken -= 1;
    }

    /// Counts for `address` what has a place already, such as a request that a proxy passes on.
    pub(crate) fn count(&mut self, address: IpAddr) -> Result<(), Full> {
        let key = network(address);
        let own = self.by_address.get(&key).copied().unwrap_or_default();
        let scarce = self.most_each < self.most && self.most - self.taken < self.most / SCARCE;
        if scarce && own >= FEW {
            return Err(Full::All);
        }
        if own >= self.most_each {
            return Err(Full::Address);
        }
        self.by_address.insert(key, own + 1);
        Ok(())
    }

    /// What was counted for `address` has ended.
    pub(crate) fn uncount(&mut self, address: IpAddr) {
        let key = network(address);
        let Some(own) = self.by_address.get_mut(&key) else { return };
        *own -= 1;
        if *own == 0 {
            self.by_address.remove(&key);
        }
    }
}

/// What counts as one address: of IPv6 the /64, all of whose addresses one host can have.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_its_bound_and_an_ipv6_host_is_its_network() {
        let mut places = Places::new(100, 2);
        for text in ["2001:db8::1", "2001:db8::ffff:2"] {
            places.take(at(text)).unwrap();
        }
        assert_eq!(places.take(at("2001:db8::3")), Err(Full::Address));
        places.take(at("2001:db8:0:1::1")).unwrap();
        places.take(at("192.0.2.1")).unwrap();
        places.take(at("::ffff:192.0.2.1")).unwrap();
        assert_eq!(places.take(at("192.0.2.1")), Err(Full::Address), "written as either");
        places.give_back(at("2001:db8::ffff:2"));
        places.take(at("2001:db8::3")).unwrap();
    }

    #[test]
    fn what_comes_by_a_proxy_counts_for_its_client_and_in_all() {
        let mut places = Places::new(3, 2);
        for _ in 0..3 {
            places.take_for_proxy().unwrap();
        }
        assert_eq!(places.take_for_proxy(), Err(Full::All));
        assert_eq!(places.take(at("192.0.2.1")), Err(Full::All));
        places.count(at("192.0.2.1")).unwrap();
        places.count(at("192.0.2.1")).unwrap();
        assert_eq!(places.count(at("192.0.2.1")), Err(Full::Address));
        places.count(at("192.0.2.2")).unwrap();
        places.uncount(at("192.0.2.1"));
        places.give_back_of_proxy();
        places.take(at("192.0.2.1")).unwrap();
        assert_eq!(places.taken, 3);
    }

    #[test]
    fn all_places_may_be_those_of_one_address() {
        let mut places = Places::new(2, 2);
        places.take(at("127.0.0.1")).unwrap();
        places.take(at("127.0.0.1")).unwrap();
        assert_eq!(
            places.take(at("127.0.0.1")),
            Err(Full::All),
            "its reason decides who may still ask"
        );
    }

    #[test]
    fn the_last_places_are_for_who_has_none() {
        let mut places = Places::new(80, 79);
        let mut own = 0;
        while places.take(at("192.0.2.1")).is_ok() {
            own += 1;
        }
        assert_eq!(own, 71);
        for last in 2..11 {
            places.take(at(&format!("192.0.2.{last}"))).unwrap();
        }
        assert_eq!(places.take(at("192.0.2.99")), Err(Full::All));
        for _ in 0..71 {
            places.give_back(at("192.0.2.1"));
        }
        assert_eq!(places.by_address.len(), 9, "nothing is kept of who is gone");
    }

    #[test]
    fn where_places_are_few_an_address_has_half_unless_it_is_everybodys() {
        assert_eq!(each(12_048, 512, 10_000), 512);
        assert_eq!(each(120, 512, 10_000), 60);
        assert_eq!(each(1, 512, 10_000), 1);
        assert_eq!(each(120, 10_000, 10_000), 10_000, "a proxy");
        let mut places = Places::new(120, each(120, 512, 10_000));
        while places.take(at("192.0.2.1")).is_ok() {}
        assert_eq!(places.take(at("192.0.2.1")), Err(Full::Address));
        assert_eq!(places.take(at("192.0.2.2")), Ok(()));
    }

    #[test]
    fn descriptors_are_shared_out_and_some_are_kept() {
        assert_eq!(share_out(20_000, 10_000, 1), Shares { http: 12_048, media: 4096 });
        for (open, sockets, shards) in [(1024, 10_000, 1), (20_000, 18_100, 2), (64, 10, 1)] {
            let shares = share_out(open, sockets, shards);
            let taken = shares.http + shares.media * shards;
            assert!(taken + OWN.min(open / 2) <= open, "{shares:?} of {open}");
            assert!(shares.http >= open / 3, "some may come however few there are: {shares:?}");
        }
        assert!(share_out(20_000, 18_100, 1).http > 18_100);
    }
}
