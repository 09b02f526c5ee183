//! Who holds how many seats, or has opened how many rooms that are there, and how many they may.

use crate::config::Limits;
use crate::metrics::Metrics;
use crate::places::network;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::{ErrorCode, RoomError};

/// Who is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Owner {
    /// All who come from an address (IPv6: a /64), with a token or without.
    Address(IpAddr),
    /// All who show a token of this identity.
    Identity(String),
}

/// An owner, and how many they may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Share {
    owner: Owner,
    most: u32,
}

/// What is held now.
#[derive(Debug, Default)]
struct Claims(Mutex<HashMap<Owner, u32>>);

/// One thing that its owners hold; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Arc<Claims>,
    owners: Vec<Owner>,
}

impl Claims {
    /// Takes one more for all of these owners, or for none.
    ///
    /// # Errors
    /// The first share that is used up.
    fn take(self: &Arc<Self>, shares: Vec<Share>) -> Result<Claim, Share> {
        let mut held = self.held();
        let is_full = |share: &Share| held.get(&share.owner).is_some_and(|own| *own >= share.most);
        if let Some(full) = shares.iter().find(|share| is_full(share)) {
            return Err(full.clone());
        }
        let owners: Vec<Owner> = shares.into_iter().map(|share| share.owner).collect();
        owners.iter().for_each(|owner| *held.entry(owner.clone()).or_default() += 1);
        drop(held);
        Ok(Claim { claims: self.clone(), owners })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Owner, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = self.claims.held();
        for owner in &self.owners {
            let Some(own) = held.get_mut(owner) else { continue };
            *own -= 1;
            if *own == 0 {
                held.remove(owner);
            }
        }
    }
}

/// The seats and rooms of a server, with the share of each address and identity.
#[derive(Debug)]
pub(super) struct Shares {
    seats: Arc<Claims>,
    opened: Arc<Claims>,
    limits: Limits,
    metrics: Arc<Metrics>,
}

impl Shares {
    pub(super) fn new(limits: Limits, metrics: Arc<Metrics>) -> Self {
        Self { seats: Arc::default(), opened: Arc::default(), limits, metrics }
    }

    /// Takes a seat for whoever joins from an address, of an identity if their token names one; `freed` of theirs end by it.
    ///
    /// # Errors
    /// `room_full`, with what is used up.
    pub(super) fn seat(
        &self,
        from: IpAddr,
        identity: Option<&str>,
        freed: usize,
    ) -> Result<Claim, RoomError> {
        let Limits { seats_per_address, seats_per_identity, .. } = self.limits;
        let with = |most: u32| most.saturating_add(freed as u32);
        let shares = shares(from, identity, with(seats_per_address), with(seats_per_identity));
        self.seats.take(shares).map_err(|full| match full.owner {
            Owner::Address(_) => self.full("seats_per_address", || {
                format!("this address holds {seats_per_address} seats in rooms of this server")
            }),
            Owner::Identity(_) => self.full("seats_per_identity", || {
                format!("this identity holds {seats_per_identity} seats in rooms of this server")
            }),
        })
    }

    /// Takes a room for whoever opens it.
    ///
    /// # Errors
    /// `room_full`, with what is used up.
    pub(super) fn room(&self, from: IpAddr, identity: Option<&str>) -> Result<Claim, RoomError> {
        let Limits { rooms_per_address, rooms_per_identity, .. } = self.limits;
        let shares = shares(from, identity, rooms_per_address, rooms_per_identity);
        self.opened.take(shares).map_err(|full| match full.owner {
            Owner::Address(_) => self.full("rooms_per_address", || {
                format!("{rooms_per_address} rooms that were opened from this address are open")
            }),
            Owner::Identity(_) => self.full("rooms_per_identity", || {
                format!("{rooms_per_identity} rooms that this identity opened are open")
            }),
        })
    }

    fn full(&self, key: &'static str, what: impl FnOnce() -> String) -> RoomError {
        self.metrics.dropped("rooms", key);
        let text = format!("{}, as many as limits.{key} allows: leave one first", what());
        RoomError::new(ErrorCode::RoomFull, text)
    }
}

fn shares(from: IpAddr, identity: Option<&str>, of_address: u32, of_identity: u32) -> Vec<Share> {
    let mut shares = vec![Share { owner: Owner::Address(network(from)), most: of_address }];
    shares.extend(
        identity.map(|own| Share { owner: Owner::Identity(own.to_owned()), most: of_identity }),
    );
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_their_share_and_what_is_dropped_is_given_back() {
        let claims = Arc::new(Claims::default());
        let address = |last, most| Share { owner: Owner::Address([192, 0, 2, last].into()), most };
        let named = |most| Share { owner: Owner::Identity("ann".into()), most };
        let one = claims.take(vec![address(1, 2), named(2)]).unwrap();
        let two = claims.take(vec![address(2, 2), named(2)]).unwrap();
        assert_eq!(claims.take(vec![address(3, 2), named(2)]).unwrap_err(), named(2));
        let three = claims.take(vec![address(1, 2)]).unwrap();
        assert_eq!(claims.take(vec![address(1, 2)]).unwrap_err(), address(1, 2));
        drop(one);
        let four = claims.take(vec![address(1, 2), named(2)]).unwrap();
        drop((two, three, four));
        assert!(claims.held().is_empty(), "nothing is kept of who is gone");
    }
}
