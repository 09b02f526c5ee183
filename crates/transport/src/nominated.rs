//! Which address the other side nominated (RFC 8445 §8): str0m does not tell, so the STUN request
//! that carries USE-CANDIDATE is matched to its success response by transaction id.
//!
//! Firefox nominates every pair that works, one after the other, and then uses the best of them (aggressive nomination,
//! RFC 5245 §8.1.1.2). Chromium nominates the pair that it uses, again and again. So a worse pair than the one in use has to
//! be nominated again after [`MOVES_DOWN_AFTER`].

use rtp::TransportAddress;
use rtp::stun::{self, BINDING_REQUEST, BINDING_SUCCESS, USE_CANDIDATE};
use std::time::{Duration, Instant};

/// Requests without an answer are forgotten oldest first.
const MAX_PENDING: usize = 32;
/// So long after its first nomination a pair that is worse than the one in use has to be nominated again.
const MOVES_DOWN_AFTER: Duration = Duration::from_secs(1);

type TransactionId = [u8; 12];

/// How good a pair is for who nominates it: by UDP, then by its priority (RFC 8445 §7.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    udp: bool,
    priority: u32,
}

/// A request that nominates an address.
#[derive(Debug)]
struct Asked {
    id: TransactionId,
    address: TransportAddress,
    /// Whose user fragment it names.
    receiver: Option<String>,
    /// Of a request of the other side. What this side nominates it uses.
    rank: Option<Rank>,
}

/// Follows the nominations of one transport.
#[derive(Debug, Default)]
pub(crate) struct Nominations {
    pending: Vec<Asked>,
    nominated: Option<(TransportAddress, Option<Rank>)>,
    /// A worse address that was nominated, by which request, and when first.
    worse: Option<(TransportAddress, TransactionId, Instant)>,
    /// Whose user fragment the request of the last nomination named.
    receiver: Option<String>,
}

impl Nominations {
    /// A STUN message came from (`incoming`) or goes to `remote`. Returns the remote address if
    /// this message completed a nomination of another address than before.
    pub(crate) fn observe(
        &mut self,
        now: Instant,
        message: &[u8],
        remote: TransportAddress,
        incoming: bool,
    ) -> Option<TransportAddress> {
        let (kind, id) = header(message)?;
        match kind {
            BINDING_REQUEST if has_use_candidate(message) => {
                if self.pending.len() == MAX_PENDING {
                    self.pending.remove(0);
                }
                let receiver = stun::receiver(message).map(str::to_owned);
                let priority = stun::priority(message).unwrap_or_default();
                let rank = incoming.then(|| Rank { udp: !remote.is_tcp(), priority });
                self.pending.push(Asked { id, address: remote, receiver, rank });
                None
            }
            BINDING_SUCCESS => {
                let at = self.pending.iter().position(|pending| pending.id == id)?;
                let Asked { address: asked, receiver, rank, .. } = self.pending.remove(at);
                // Of an answer that comes in, its source is what works; both are the same pair.
                let address = if incoming { remote } else { asked };
                // After an ICE restart nothing is known of the pairs.
                let anew = std::mem::replace(&mut self.receiver, receiver) != self.receiver;
                if !anew && self.waits(now, (address, id), rank) {
                    return None;
                }
                let changed = self.current() != Some(address);
                (self.nominated, self.worse) = (Some((address, rank)), None);
                changed.then_some(address)
            }
            _ => None,
        }
    }

    /// Whether an address is worse than the one in use, and was not nominated before for long enough. A request that is sent
    /// again is none more.
    fn waits(
        &mut self,
        now: Instant,
        (address, id): (TransportAddress, TransactionId),
        rank: Option<Rank>,
    ) -> bool {
        let is_worse = self.nominated.is_some_and(|(current, known)| {
            current != address && rank.zip(known).is_some_and(|(new, known)| new < known)
        });
        if !is_worse {
            return false;
        }
        let known = self.worse.filter(|(known, ..)| *known == address);
        let (_, first, since) = *self.worse.insert(known.unwrap_or((address, id, now)));
        first == id || now.saturating_duration_since(since) < MOVES_DOWN_AFTER
    }

    /// The user fragment that the nomination was asked of.
    pub(crate) fn receiver(&self) -> Option<&str> {
        self.receiver.as_deref()
    }

    /// The priority that the other side gives the pair in use.
    pub(crate) fn priority(&self) -> Option<u32> {
        self.nominated?.1.map(|rank| rank.priority)
    }

    /// The address that media goes to.
    pub(crate) fn current(&self) -> Option<TransportAddress> {
        self.nominated.map(|(address, _)| address)
    }
}

fn has_use_candidate(message: &[u8]) -> bool {
    stun::attributes(message).any(|(kind, _)| kind == USE_CANDIDATE)
}

fn header(message: &[u8]) -> Option<(u16, TransactionId)> {
    let kind = u16::from_be_bytes(message.get(0..2)?.try_into().ok()?);
    Some((kind, message.get(8..20)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stun(kind: u16, id: u8, attributes: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(kind.to_be_bytes());
        message.extend((attributes.len() as u16).to_be_bytes());
        message.extend(0x2112_A442u32.to_be_bytes());
        message.extend([id; 12]);
        message.extend(attributes);
        message
    }

    fn address(port: u16) -> TransportAddress {
        std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    const NOMINATE: &[u8] = &[0x00, 0x06, 0x00, 0x03, b'a', b':', b'b', 0, 0x00, 0x25, 0x00, 0x00];

    /// A transport, and the moment at which all happens.
    struct Side {
        nominations: Nominations,
        now: Instant,
        next: u8,
    }

    impl Side {
        fn new() -> Self {
            Self { nominations: Nominations::default(), now: Instant::now(), next: 0 }
        }

        fn observe(&mut self, message: &[u8], at: TransportAddress, incoming: bool) -> Option<u16> {
            let moved = self.nominations.observe(self.now, message, at, incoming);
            moved.map(|address| address.socket.port())
        }

        /// The other side nominates an address with a priority, and is answered.
        fn nominated(&mut self, at: TransportAddress, priority: u32) -> Option<u16> {
            self.next += 1;
            let mut attributes = NOMINATE.to_vec();
            attributes.extend([0, 0x24, 0, 4]);
            attributes.extend(priority.to_be_bytes());
            assert_eq!(self.observe(&stun(1, self.next, &attributes), at, true), None);
            self.observe(&stun(0x101, self.next, &[]), at, false)
        }
    }

    #[test]
    fn only_an_answered_use_candidate_nominates() {
        let (one, two) = (address(1), address(2));
        let mut side = Side::new();
        assert_eq!(side.observe(&stun(1, 1, &NOMINATE[..8]), one, true), None);
        assert_eq!(side.observe(&stun(0x101, 1, &[]), one, false), None, "no USE-CANDIDATE");
        assert_eq!(side.observe(&stun(1, 2, NOMINATE), one, true), None);
        assert_eq!(side.observe(&stun(0x101, 3, &[]), one, false), None, "other transaction");
        assert_eq!(side.observe(&stun(0x101, 2, &[]), one, false), Some(1));
        assert_eq!(side.observe(&stun(1, 4, NOMINATE), one, true), None);
        assert_eq!(side.observe(&stun(0x101, 4, &[]), one, false), None, "same as before");
        assert_eq!(side.observe(&stun(1, 5, NOMINATE), two, true), None);
        assert_eq!(side.observe(&stun(0x101, 5, &[]), two, false), Some(2));
        let nominations = &side.nominations;
        assert_eq!((nominations.current(), nominations.receiver()), (Some(two), Some("a")));
    }

    /// Firefox: the pair by TCP works last, and is not the one that media comes on.
    #[test]
    fn of_pairs_that_are_nominated_one_after_the_other_the_best_is_used() {
        let tcp = TransportAddress::tcp(address(3).socket);
        let mut side = Side::new();
        assert_eq!(side.nominated(address(1), 50), Some(1));
        assert_eq!(side.nominated(address(2), 70), Some(2), "a better one");
        assert_eq!(side.nominated(tcp, 90), None, "by TCP");
        assert_eq!(side.nominated(tcp, 90), None, "once more at once");
        assert_eq!(side.nominated(address(1), 50), None);
        assert_eq!(side.nominations.current(), Some(address(2)));
    }

    /// Chromium: UDP was closed, or another network costs less.
    #[test]
    fn a_worse_pair_that_is_nominated_again_and_again_is_used() {
        let tcp = TransportAddress::tcp(address(3).socket);
        let mut side = Side::new();
        assert_eq!(side.nominated(address(1), 70), Some(1));
        assert_eq!(side.nominated(tcp, 70), None);
        side.now += MOVES_DOWN_AFTER;
        assert_eq!(side.nominated(tcp, 70), Some(3));
        assert_eq!(side.nominated(address(1), 70), Some(1), "and back at once");
    }

    #[test]
    fn a_request_that_is_sent_again_is_no_second_nomination() {
        let mut side = Side::new();
        assert_eq!(side.nominated(address(1), 70), Some(1));
        assert_eq!(side.nominated(address(2), 50), None);
        side.now += 2 * MOVES_DOWN_AFTER;
        side.next -= 1;
        assert_eq!(side.nominated(address(2), 50), None, "its answer was lost");
        assert_eq!(side.nominated(address(2), 50), Some(2));
    }

    #[test]
    fn what_this_side_nominates_it_uses() {
        let mut side = Side::new();
        for (id, at, used) in
            [(1, address(1), Some(1)), (2, address(2), Some(2)), (3, address(1), Some(1))]
        {
            assert_eq!(side.observe(&stun(1, id, NOMINATE), at, false), None);
            assert_eq!(side.observe(&stun(0x101, id, &[]), at, true), used);
        }
    }

    #[test]
    fn cut_messages_are_nothing() {
        let mut side = Side::new();
        let whole = stun(1, 1, NOMINATE);
        for end in 0..whole.len() {
            side.observe(&whole[..end], address(1), true);
        }
        assert_eq!(side.nominations.current(), None);
    }
}
