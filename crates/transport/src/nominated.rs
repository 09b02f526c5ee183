//! Which address the other side nominated (RFC 8445 §8): str0m does not tell, so the STUN request
//! that carries USE-CANDIDATE is matched to its success response by transaction id.

use rtp::TransportAddress;
use rtp::stun::{self, BINDING_REQUEST, BINDING_SUCCESS, USE_CANDIDATE};

/// Requests without an answer are forgotten oldest first.
const MAX_PENDING: usize = 32;

type TransactionId = [u8; 12];

/// Follows the nominations of one transport.
#[derive(Debug, Default)]
pub(crate) struct Nominations {
    /// Requests: the address, and whose user fragment they name.
    pending: Vec<(TransactionId, TransportAddress, Option<String>)>,
    nominated: Option<TransportAddress>,
    /// Whose user fragment the request of the last nomination named.
    receiver: Option<String>,
}

impl Nominations {
    /// A STUN message came from (`incoming`) or goes to `remote`. Returns the remote address if
    /// this message completed a nomination of another address than before.
    pub(crate) fn observe(
        &mut self,
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
                self.pending.push((id, remote, stun::receiver(message).map(str::to_owned)));
                None
            }
            BINDING_SUCCESS => {
                let at = self.pending.iter().position(|(pending, ..)| *pending == id)?;
                let (_, asked, receiver) = self.pending.remove(at);
                self.receiver = receiver;
                // Of an answer that comes in, its source is what works; both are the same pair.
                let address = if incoming { remote } else { asked };
                let changed = self.nominated != Some(address);
                self.nominated = Some(address);
                changed.then_some(address)
            }
            _ => None,
        }
    }

    /// The user fragment that the nomination was asked of.
    pub(crate) fn receiver(&self) -> Option<&str> {
        self.receiver.as_deref()
    }

    /// The address that media goes to.
    pub(crate) fn current(&self) -> Option<TransportAddress> {
        self.nominated
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

    #[test]
    fn only_an_answered_use_candidate_nominates() {
        let (one, two) = (address(1), address(2));
        let mut nominations = Nominations::default();
        assert_eq!(nominations.observe(&stun(1, 1, &NOMINATE[..8]), one, true), None);
        assert_eq!(nominations.observe(&stun(0x101, 1, &[]), one, false), None, "no USE-CANDIDATE");
        assert_eq!(nominations.observe(&stun(1, 2, NOMINATE), one, true), None);
        assert_eq!(
            nominations.observe(&stun(0x101, 3, &[]), one, false),
            None,
            "other transaction"
        );
        assert_eq!(nominations.observe(&stun(0x101, 2, &[]), one, false), Some(one));
        assert_eq!(nominations.observe(&stun(1, 4, NOMINATE), one, true), None);
        assert_eq!(nominations.observe(&stun(0x101, 4, &[]), one, false), None, "same as before");
        assert_eq!(nominations.observe(&stun(1, 5, NOMINATE), two, true), None);
        assert_eq!(nominations.observe(&stun(0x101, 5, &[]), two, false), Some(two));
        assert_eq!((nominations.current(), nominations.receiver()), (Some(two), Some("a")));
    }

    #[test]
    fn cut_messages_are_nothing() {
        let mut nominations = Nominations::default();
        let whole = stun(1, 1, NOMINATE);
        for end in 0..whole.len() {
            nominations.observe(&whole[..end], address(1), true);
        }
        assert_eq!(nominations.current(), None);
    }
}
