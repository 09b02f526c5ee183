//! Whose a STUN or DTLS datagram is: by what the control thread expects, and by where authentic checks came from.
//!
//! A check counts if its integrity fits the credentials that it names (RFC 8445 §7.3). DTLS is taken from where such a
//! check came from. An address is that participant's until they are gone or silent for [`ADDRESS_LASTS`]: another
//! participant who forges it as the source of their own checks gets nothing. Each participant has a share of the control
//! thread.

use super::challenges::{Came, Challenges, Reason};
use super::datagram::Datagram;
use super::stats::Stats;
use crate::bucket::Bucket;
use crate::command::PersonKey;
use crate::drops::InDrop;
use crate::limits::{
    ADDRESS_LASTS, ADDRESSES_EACH, CHECKS_A_SECOND, CHECKS_AT_ONCE, DTLS_A_SECOND, DTLS_AT_ONCE,
};
use crate::sink::{Priority, Sink};
use foldhash::HashMap;
use rtp::TransportAddress;
use rtp::challenge::Challenger;
use rtp::stun::{self, Responder};
use std::time::Instant;

/// All transports of a shard.
#[derive(Default)]
pub(super) struct Transports {
    // Looked up, never iterated over: a seed must repeat byte for byte.
    expected: HashMap<PersonKey, Expected>,
    by_ufrag: HashMap<String, PersonKey>,
    by_address: HashMap<TransportAddress, Claim>,
    challenges: Challenges,
}

/// Whose an address is, by the last authentic check from there.
struct Claim {
    person: PersonKey,
    seen: Instant,
    /// The priority that it gave the pair.
    priority: Option<u32>,
    /// Its length in bytes.
    len: usize,
}

/// What is expected of one participant.
struct Expected {
    responder: Responder,
    challenger: Challenger,
    /// Where authentic checks came from, the oldest first.
    addresses: Vec<TransportAddress>,
    checks: Bucket,
    dtls: Bucket,
}

impl Transports {
    /// Checks with these credentials are this participant's from now on.
    pub(super) fn expect(
        &mut self,
        person: PersonKey,
        (responder, challenger): (Responder, Challenger),
        now: Instant,
    ) {
        let ufrag = responder.local_ufrag().to_owned();
        match self.expected.get_mut(&person) {
            Some(expected) => {
                let old = std::mem::replace(&mut expected.responder, responder);
                expected.challenger = challenger;
                self.by_ufrag.remove(old.local_ufrag());
            }
            None => {
                let addresses = Vec::with_capacity(ADDRESSES_EACH);
                let checks = Bucket::new(CHECKS_AT_ONCE, CHECKS_A_SECOND, now);
                let dtls = Bucket::new(DTLS_AT_ONCE, DTLS_A_SECOND, now);
                let new = Expected { responder, challenger, addresses, checks, dtls };
                self.expected.insert(person, new);
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
        self.challenges.forget(person);
        Some(())
    }

    /// How much is kept: participants, fragments, addresses.
    pub(super) fn kept(&self) -> usize {
        self.expected.len() + self.by_ufrag.len() + self.by_address.len() + self.challenges.kept()
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
        if let Some(claim) = self.by_address.get(&source)
            && claim.person != person
            && now.saturating_duration_since(claim.seen) < ADDRESS_LASTS
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
        let (priority, len) = (stun::priority(request), request.len());
        self.by_address.insert(source, Claim { person, seen: now, priority, len });
        self.challenges.came(source, Came::Check(len));
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
        let person = self.owner(datagram.source).ok_or(InDrop::UnknownSource)?;
        let expected = self.expected.get_mut(&person).ok_or(InDrop::UnknownSource)?;
        if expected.dtls.take(1, now) { Ok(person) } else { Err(InDrop::ControlShare) }
    }

    /// An authentic check from an address in use was answered without the control thread.
    pub(super) fn seen(&mut self, source: TransportAddress, now: Instant) {
        if let Some(claim) = self.by_address.get_mut(&source) {
            claim.seen = now;
        }
    }

    /// Whose checks came from an address.
    pub(super) fn owner(&self, address: TransportAddress) -> Option<PersonKey> {
        self.by_address.get(&address).map(|claim| claim.person)
    }

    /// The priority that checks from an address gave the pair.
    pub(super) fn priority(&self, address: TransportAddress) -> Option<u32> {
        self.by_address.get(&address)?.priority
    }

    /// Who is thought to be at an address that is asked.
    pub(super) fn challenged(&self, address: TransportAddress) -> Option<PersonKey> {
        self.challenges.person_of(address)
    }

    /// More bytes came from an address that is asked.
    pub(super) fn came(&mut self, address: TransportAddress, came: Came) {
        self.challenges.came(address, came);
    }

    /// Asks an address that something came from.
    pub(super) fn challenge(
        &mut self,
        who: (PersonKey, TransportAddress),
        reason: Reason,
        came: Came,
        now: Instant,
    ) {
        self.challenges.begin(who, reason, came, now);
    }

    /// Asks an address that a participant nominated by their last check from there.
    pub(super) fn challenge_checked(&mut self, who: (PersonKey, TransportAddress), now: Instant) {
        let len = self.by_address.get(&who.1).map_or(0, |claim| claim.len);
        self.challenges.begin(who, Reason::Nominated, Came::Check(len), now);
    }

    /// Whose the answer to a challenge is, and why they were asked.
    pub(super) fn answered(&mut self, datagram: &Datagram<'_>) -> Option<(PersonKey, Reason)> {
        let Self { challenges, expected, .. } = self;
        challenges.answered(datagram, |person| expected.get(&person).map(|one| &one.challenger))
    }

    /// Sends the challenges that are due.
    #[inline]
    pub(super) fn send_challenges(
        &mut self,
        now: Instant,
        sink: &mut impl Sink,
        stats: &mut Stats,
    ) {
        let Self { challenges, expected, .. } = self;
        if challenges.is_empty() {
            return;
        }
        challenges.send(now, |person, address, nth, room| {
            let challenger = &expected.get(&person)?.challenger;
            let slot = sink.slot(address, Priority::High)?;
            let len = challenger.write(address, nth, slot).filter(|len| *len <= room)?;
            sink.commit(len);
            stats.challenges += 1;
            Some(len)
        });
    }

    /// Forgets an address that this participant no longer uses, unless it is somebody else's by now.
    fn release(&mut self, address: TransportAddress, person: PersonKey) {
        if self.owner(address) == Some(person) {
            self.by_address.remove(&address);
        }
    }
}
