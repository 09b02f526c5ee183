//! Addresses that are asked whether a participant receives there, before media goes to them. A source address can be forged:
//! media for somebody else's would flood a stranger.
//!
//! An address that has not answered gets no more than [`REFLECTED_TIMES`] the bytes that came from there. A check is answered,
//! too, and its answer is shorter.

use super::datagram::Datagram;
use crate::command::PersonKey;
use crate::limits::{CHALLENGE_AGAIN, CHALLENGE_ENDS, CHALLENGES_EACH, REFLECTED_TIMES};
use foldhash::HashMap;
use rtp::TransportAddress;
use rtp::challenge::Challenger;
use std::time::Instant;

/// Why media is to go to another address, the weakest reason first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// A check came from there while nothing came from the address in use.
    Silent,
    /// Only who uses it sends what came from there.
    Moved,
    /// The participant nominated it.
    Nominated,
}

/// A datagram that came from an address that is asked, by its length in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Came {
    /// A check, which the agent answers.
    Check(usize),
    /// A packet of media.
    Media(usize),
}

impl Came {
    /// How many bytes may leave for it.
    fn room(self) -> usize {
        match self {
            Self::Check(len) => (REFLECTED_TIMES - 1) * len,
            Self::Media(len) => REFLECTED_TIMES * len,
        }
    }
}

/// An address that is asked.
struct Challenge {
    person: PersonKey,
    reason: Reason,
    nth: u32,
    began: Instant,
    /// How often it left, and when it is to leave again or ends.
    left: usize,
    due: Instant,
    /// Bytes that may leave for the address.
    room: usize,
}

/// All addresses that are asked.
#[derive(Default)]
pub(super) struct Challenges {
    by_address: HashMap<TransportAddress, Challenge>,
    /// The addresses, the oldest first: a seed must repeat byte for byte.
    order: Vec<TransportAddress>,
    begun: u32,
}

impl Challenges {
    /// How many addresses are kept.
    pub(super) fn kept(&self) -> usize {
        self.by_address.len() + self.order.len()
    }

    /// Who is thought to be at an address.
    pub(super) fn person_of(&self, address: TransportAddress) -> Option<PersonKey> {
        self.by_address.get(&address).map(|challenge| challenge.person)
    }

    /// More bytes came from an address that is asked.
    pub(super) fn came(&mut self, address: TransportAddress, came: Came) {
        if let Some(challenge) = self.by_address.get_mut(&address) {
            challenge.room += came.room();
        }
    }

    /// Asks an address that something came from, unless it is asked already. Of one participant a few are asked at a time.
    pub(super) fn begin(
        &mut self,
        (person, address): (PersonKey, TransportAddress),
        reason: Reason,
        came: Came,
        now: Instant,
    ) {
        if let Some(known) = self.by_address.get_mut(&address) {
            if known.person == person {
                known.reason = known.reason.max(reason);
            }
            return;
        }
        let theirs = |address: &&TransportAddress| self.by_address[*address].person == person;
        if self.order.iter().filter(theirs).count() >= CHALLENGES_EACH
            && let Some(oldest) = self.order.iter().find(theirs).copied()
        {
            self.end(oldest);
        }
        self.begun = self.begun.wrapping_add(1);
        let room = came.room();
        let nth = self.begun;
        let challenge = Challenge { person, reason, nth, began: now, left: 0, due: now, room };
        self.by_address.insert(address, challenge);
        self.order.push(address);
    }

    /// Whose the answer to a challenge is, and why they were asked.
    pub(super) fn answered<'a>(
        &mut self,
        datagram: &Datagram<'_>,
        challenger: impl FnOnce(PersonKey) -> Option<&'a Challenger>,
    ) -> Option<(PersonKey, Reason)> {
        let Challenge { person, reason, nth, .. } = *self.by_address.get(&datagram.source)?;
        let challenger = challenger(person)?;
        if !challenger.is_answer(datagram.data, datagram.source, nth) {
            return None;
        }
        self.end(datagram.source);
        Some((person, reason))
    }

    /// Sends what is due. `send` gets who is asked, where, the number of the challenge, and the bytes that there is room for. It
    /// returns how many bytes left. Who does not answer in time is asked no more.
    pub(super) fn send(
        &mut self,
        now: Instant,
        mut send: impl FnMut(PersonKey, TransportAddress, u32, usize) -> Option<usize>,
    ) {
        let by_address = &mut self.by_address;
        self.order.retain(|address| {
            let Some(challenge) = by_address.get_mut(address) else { return false };
            if now >= challenge.began + CHALLENGE_ENDS {
                by_address.remove(address);
                return false;
            }
            let again = CHALLENGE_AGAIN.get(challenge.left);
            if let Some(again) = again.filter(|_| now >= challenge.due)
                && let Some(len) = send(challenge.person, *address, challenge.nth, challenge.room)
            {
                challenge.room -= len;
                challenge.left += 1;
                challenge.due = now + *again;
            }
            true
        });
    }

    /// Whether some address is asked.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Nothing is asked for a participant any more.
    pub(super) fn forget(&mut self, person: PersonKey) {
        let by_address = &mut self.by_address;
        self.order.retain(|address| {
            let theirs = by_address.get(address).is_none_or(|known| known.person == person);
            if theirs {
                by_address.remove(address);
            }
            !theirs
        });
    }

    fn end(&mut self, address: TransportAddress) {
        self.by_address.remove(&address);
        self.order.retain(|known| *known != address);
    }
}
