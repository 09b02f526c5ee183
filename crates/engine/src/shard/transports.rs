//! Whose a STUN or DTLS datagram is: by what the control thread expects, and by where authentic checks came from.
//!
//! A check counts if its integrity fits the credentials that it names (RFC 8445 §7.3). DTLS is taken from where such a
//! check came from. An address is that participant's until they are gone or silent for [`ADDRESS_LASTS`]: another
//! participant who forges it as the source of their own checks gets nothing. Each participant has a share of the control
//! thread.

use super::datagram::Datagram;
use crate::bucket::Bucket;
use crate::command::PersonKey;
use crate::drops::InDrop;
use crate::limits::{
    ADDRESS_LASTS, ADDRESSES_EACH, CHECKS_A_SECOND, CHECKS_AT_ONCE, DTLS_A_SECOND, DTLS_AT_ONCE,
};
use foldhash::HashMap;
use rtp::TransportAddress;
use rtp::stun::{self, Responder};
use std::time::Instant;

/// All transports of a shard.
#[derive(Default)]
pub(super) struct Transports {
    // Looked up, never iterated over: a seed must repeat byte for byte.
    expected: HashMap<PersonKey, Expected>,
    by_ufrag: HashMap<String, PersonKey>,
    /// Whose each address is, and when their last authentic check from there came.
    by_address: HashMap<TransportAddress, (PersonKey, Instant)>,
}

/// What is expected of one participant.
struct Expected {
    responder: Responder,
    /// Where authentic checks came from, the oldest first.
    addresses: Vec<TransportAddress>,
    checks: Bucket,
    dtls: Bucket,
}

impl Transports {
    /// Checks with these credentials are this participant's from now on.
    pub(super) fn expect(&mut self, person: PersonKey, responder: Responder, now: Instant) {
        let ufrag = responder.local_ufrag().to_owned();
        match self.expected.get_mut(&person) {
            Some(expected) => {
                let old = std::mem::replace(&mut expected.responder, responder);
                self.by_ufrag.remove(old.local_ufrag());
            }
            None => {
                let addresses = Vec::with_capacity(ADDRESSES_EACH);
                let checks = Bucket::new(CHECKS_AT_ONCE, CHECKS_A_SECOND, now);
                let dtls = Bucket::new(DTLS_AT_ONCE, DTLS_A_SECOND, now);
                self.expected.insert(person, Expected { responder, addresses, checks, dtls });
            }
        }
        self.by_ufrag.insert(ufrag, person);
    }

    /// Nothing is expected of a participant any more; their addresses are anybody's.
    pub(super) fn forget(&mut self, person: PersonKey) -> Option<()> {
        let expected = self.expected.remove(&person)?;
        self.by_ufrag.remove(expected.responder.local_ufrag());
        for address in expected.addresses {
            self.release(address, person);
        }
        Some(())
    }

    /// How much is kept: participants, fragments, addresses.
    pub(super) fn kept(&self) -> usize {
        self.expected.len() + self.by_ufrag.len() + self.by_address.len()
    }

    /// Whose a STUN datagram is, if it is an authentic check within their share.
    pub(super) fn check(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
    ) -> Result<PersonKey, InDrop> {
        let (source, request) = (datagram.source, datagram.data);
        if !stun::is_request(request) {
            return Err(InDrop::StunNotAsked);
        }
        let ufrag = stun::receiver(request).ok_or(InDrop::StunNotAsked)?;
        let person = *self.by_ufrag.get(ufrag).ok_or(InDrop::UnknownFragment)?;
        let expected = self.expected.get_mut(&person).ok_or(InDrop::UnknownFragment)?;
        if !expected.responder.authenticates(request) {
            return Err(InDrop::CheckNotAuthentic);
        }
        if let Some((owner, seen)) = self.by_address.get(&source)
            && *owner != person
            && now.saturating_duration_since(*seen) < ADDRESS_LASTS
        {
            return Err(InDrop::AddressTaken);
        }
        if !expected.checks.take(1, now) {
            return Err(InDrop::ControlShare);
        }
        let oldest = if expected.addresses.contains(&source) {
            None
        } else {
            let full = expected.addresses.len() == ADDRESSES_EACH;
            let oldest = full.then(|| expected.addresses.remove(0));
            expected.addresses.push(source);
            oldest
        };
        self.by_address.insert(source, (person, now));
        if let Some(oldest) = oldest {
            self.release(oldest, person);
        }
        Ok(person)
    }

    /// Whose a DTLS datagram is, if it comes from where an authentic check came from and is within their share.
    pub(super) fn dtls(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
    ) -> Result<PersonKey, InDrop> {
        let (person, _) = *self.by_address.get(&datagram.source).ok_or(InDrop::UnknownSource)?;
        let expected = self.expected.get_mut(&person).ok_or(InDrop::UnknownSource)?;
        if expected.dtls.take(1, now) { Ok(person) } else { Err(InDrop::ControlShare) }
    }

    /// An authentic check from an address in use was answered without the control thread.
    pub(super) fn seen(&mut self, source: TransportAddress, now: Instant) {
        if let Some((_, seen)) = self.by_address.get_mut(&source) {
            *seen = now;
        }
    }

    /// Forgets an address that this participant no longer uses, unless it is somebody else's by now.
    fn release(&mut self, address: TransportAddress, person: PersonKey) {
        if self.by_address.get(&address).is_some_and(|(owner, _)| *owner == person) {
            self.by_address.remove(&address);
        }
    }
}
