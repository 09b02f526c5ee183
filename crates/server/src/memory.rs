//! Bytes that strangers have the server hold: one bound for all of them, and shares of it.
//!
//! An address may hold a quarter of what all other addresses leave. A holder at that address may hold a quarter of what the others
//! there leave. So many holders never take all of it: the next one still finds a quarter of the rest. A fixed share would be
//! too small for a lone school, or gone with as many addresses as it has parts.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One of so many parts of what others leave is an address's share, or a holder's.
const PART: u64 = 4;

/// Who holds bytes, beside the address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// Everybody who shows tokens of this identity, wherever they are.
    Identity(Arc<str>),
    /// One connection, or one request, without a token.
    Unnamed(u64),
}

impl Holder {
    /// Whoever has this identity; without one somebody else each time.
    pub(crate) fn of(identity: Option<&str>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        match identity {
            Some(identity) => Self::Identity(identity.into()),
            None => Self::Unnamed(NEXT.fetch_add(1, Relaxed)),
        }
    }
}

/// What is held now, of at most so many bytes.
#[derive(Debug)]
pub(crate) struct Memory {
    most: u64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: u64,
    by_address: HashMap<IpAddr, u64>,
    by_holder: HashMap<Holder, u64>,
}

/// One holder's part of it; dropping it gives all of it back.
#[derive(Debug)]
pub(crate) struct Holding {
    memory: Arc<Memory>,
    address: IpAddr,
    holder: Holder,
    bytes: u64,
}

impl Memory {
    /// At most so many bytes.
    pub(crate) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::default() })
    }

    /// Nothing yet. `address` is what counts as one.
    pub(crate) fn hold(self: &Arc<Self>, address: IpAddr, holder: Holder) -> Holding {
        Holding { memory: self.clone(), address, holder, bytes: 0 }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Whether so many more bytes fit for them.
    fn fits(&self, most: u64, address: IpAddr, holder: &Holder, more: u64) -> bool {
        let of_address = self.by_address.get(&address).copied().unwrap_or_default();
        let own = self.by_holder.get(holder).copied().unwrap_or_default();
        let share = most.saturating_sub(self.all - of_address) / PART;
        // What the same identity holds elsewhere counts as if it were here.
        let own_share = share.saturating_sub(of_address.saturating_sub(own)) / PART;
        of_address + more <= share && own + more <= own_share
    }

    fn add(&mut self, address: IpAddr, holder: &Holder, bytes: u64) {
        self.all += bytes;
        *self.by_address.entry(address).or_default() += bytes;
        *self.by_holder.entry(holder.clone()).or_default() += bytes;
    }

    fn subtract(&mut self, address: IpAddr, holder: &Holder, bytes: u64) {
        self.all -= bytes;
        take_from(&mut self.by_address, &address, bytes);
        take_from(&mut self.by_holder, holder, bytes);
    }
}

fn take_from<K: Eq + Hash>(map: &mut HashMap<K, u64>, key: &K, bytes: u64) {
    let Some(held) = map.get_mut(key) else { return };
    *held -= bytes;
    if *held == 0 {
        map.remove(key);
    }
}

impl Holding {
    /// Holds so many more; false, and nothing changes, where they do not fit.
    pub(crate) fn grow(&mut self, more: u64) -> bool {
        let mut held = self.memory.held();
        let fits = held.fits(self.memory.most, self.address, &self.holder, more);
        if fits && more > 0 {
            held.add(self.address, &self.holder, more);
            self.bytes += more;
        }
        fits
    }

    /// Gives so many back, or all there are.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        if bytes > 0 {
            self.memory.held().subtract(self.address, &self.holder, bytes);
            self.bytes -= bytes;
        }
    }

    /// From now on it is somebody else's, whatever fits for them.
    pub(crate) fn pass_to(&mut self, holder: Holder) {
        if self.bytes > 0 {
            let mut held = self.memory.held();
            held.subtract(self.address, &self.holder, self.bytes);
            held.add(self.address, &holder, self.bytes);
        }
        self.holder = holder;
    }

    /// How many bytes it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.shrink(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 32 << 20;
    /// As much as one message takes.
    const MESSAGE: u64 = 256 << 10;

    fn at(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn named(name: &str) -> Holder {
        Holder::Identity(name.into())
    }

    /// As many messages as fit, each of another holding.
    fn fill(memory: &Arc<Memory>, address: u8, holder: impl Fn(u64) -> Holder) -> Vec<Holding> {
        let held = (0..1000).map_while(|nth| {
            let mut holding = memory.hold(at(address), holder(nth));
            holding.grow(MESSAGE).then_some(holding)
        });
        held.collect()
    }

    #[test]
    fn neither_an_identity_nor_an_address_takes_what_others_need() {
        let memory = Memory::new(MOST);
        let one = fill(&memory, 1, |_| named("mal"));
        assert_eq!(one.len(), 8, "a sixteenth of all");
        assert!(!memory.hold(at(2), named("mal")).grow(MESSAGE), "nor from elsewhere");
        assert!(memory.hold(at(1), named("ann")).grow(MESSAGE), "beside them");
        let more = fill(&memory, 1, Holder::Unnamed);
        assert!((8..24).contains(&more.len()), "{}", more.len());
        assert!(memory.hold(at(1), named("ann")).grow(MESSAGE / 2), "beside all of them");
        let others: Vec<_> =
            (2..5).map(|address| fill(&memory, address, Holder::Unnamed)).collect();
        assert!(others.iter().all(|held| !held.is_empty()));
        assert!(memory.hold(at(99), named("ann")).grow(MESSAGE), "an address that held nothing");
        drop((one, more, others));
        let held = memory.held();
        assert!(held.all == 0 && held.by_address.is_empty() && held.by_holder.is_empty());
    }

    #[test]
    fn what_is_held_follows_its_holder_and_ends_with_it() {
        let memory = Memory::new(MOST);
        let mut holding = memory.hold(at(1), Holder::Unnamed(7));
        assert!(holding.grow(1000));
        holding.pass_to(named("ann"));
        assert_eq!(memory.held().by_holder, HashMap::from([(named("ann"), 1000)]));
        holding.shrink(400);
        assert_eq!((holding.bytes(), memory.held().all), (600, 600));
        assert!(!holding.grow(MOST), "and nothing changed");
        assert_eq!(holding.bytes(), 600);
        drop(holding);
        assert_eq!(memory.held().all, 0);
    }
}
