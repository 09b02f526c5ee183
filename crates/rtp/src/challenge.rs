//! Checks that this side sends to an address before anything else goes there. To answer one, somebody must hold the other side's
//! password and receive at that address (return routability; RFC 8445 §7.2, RFC 7675).
//!
//! An ICE-lite agent needs no checks to connect. It needs them when packets of a participant come from another address, since a
//! source address can be forged.

use crate::TransportAddress;
use crate::stun::{
    self, Check, HEADER, HMAC_BYTES, MAGIC_COOKIE, MESSAGE_INTEGRITY, Password, Role,
};
use aws_lc_rs::hmac;
use std::net::IpAddr;

/// The priority of a peer-reflexive candidate (RFC 8445 §5.1.2.1): type preference 110, the highest local preference, component 1.
pub const PEER_REFLEXIVE: u32 = 110 << 24 | 65_535 << 8 | 255;

/// What transaction ids are made of. Nobody else may know it: an address counts as reached if the id comes back from there.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl Secret {
    /// A new one, from the system's random source. None if that gives nothing.
    pub fn draw() -> Option<Self> {
        let mut bytes = [0; 32];
        aws_lc_rs::rand::fill(&mut bytes).ok()?;
        Some(Self::of(&bytes))
    }

    /// Of known bytes: for what has to repeat.
    pub fn of(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }
}

/// Makes the checks to one peer, and knows their answers.
#[derive(Clone)]
pub struct Challenger {
    /// `theirs:ours`, the user fragments.
    username: String,
    /// Of the other side's password.
    key: Password,
    secret: Secret,
}

impl std::fmt::Debug for Challenger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Challenger({})", self.username)
    }
}

impl Challenger {
    /// With the own user fragment, and the user fragment and password in the other side's SDP. A secret may serve many peers.
    pub fn new(local_ufrag: &str, remote: (&str, &str), secret: &Secret) -> Self {
        let (ufrag, password) = remote;
        Self {
            username: format!("{ufrag}:{local_ufrag}"),
            key: Password::new(password),
            secret: secret.clone(),
        }
    }

    /// Writes the `nth` challenge to an address and returns its length in bytes. None if `out` is too short.
    pub fn write(&self, to: TransportAddress, nth: u32, out: &mut [u8]) -> Option<usize> {
        let (id, tie_breaker) = self.ids(to, nth);
        let (username, priority) = (&self.username[..], PEER_REFLEXIVE);
        // Who offers to a lite agent controls (RFC 8445 §6.1.1).
        let check = Check { username, id, priority, role: Role::Controlled, tie_breaker };
        check.write(&self.key, out)
    }

    /// Whether a message from this address is the answer to the `nth` challenge to it.
    pub fn is_answer(&self, message: &[u8], from: TransportAddress, nth: u32) -> bool {
        let (id, _) = self.ids(from, nth);
        let asked = message.get(8..HEADER) == Some(&id[..])
            && message.get(4..8) == Some(&MAGIC_COOKIE.to_be_bytes()[..]);
        stun::is_success(message)
            && asked
            && integrity_of(message).is_some_and(|at| stun::is_signed(&self.key, message, at))
    }

    /// The transaction id of the `nth` challenge to an address, and a tie-breaker.
    fn ids(&self, to: TransportAddress, nth: u32) -> ([u8; 12], [u8; 8]) {
        let mut made = hmac::Context::with_key(&self.secret.0);
        made.update(self.username.as_bytes());
        match to.socket.ip() {
            IpAddr::V4(ip) => made.update(&ip.octets()),
            IpAddr::V6(ip) => made.update(&ip.octets()),
        }
        made.update(&to.socket.port().to_be_bytes());
        made.update(&[u8::from(to.is_tcp())]);
        made.update(&nth.to_be_bytes());
        let tag = made.sign();
        let (mut id, mut tie_breaker) = ([0; 12], [0; 8]);
        id.copy_from_slice(&tag.as_ref()[..12]);
        tie_breaker.copy_from_slice(&tag.as_ref()[12..20]);
        (id, tie_breaker)
    }
}

/// Where the integrity attribute of a whole message begins.
fn integrity_of(message: &[u8]) -> Option<usize> {
    let word = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
    if usize::from(word(2)?) + HEADER != message.len() {
        return None;
    }
    let mut at = HEADER;
    loop {
        let (kind, len) = (word(at)?, usize::from(word(at + 2)?));
        message.get(at + 4..at + 4 + len)?;
        if kind == MESSAGE_INTEGRITY {
            return (len == HMAC_BYTES).then_some(at);
        }
        at += 4 + len.next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stun::{ICE_CONTROLLED, Responder, Writer};
    use std::net::SocketAddr;

    const PASSWORD: &str = "VOkJxbRl1RmTxUk/WvJxBt";

    fn address(text: &str) -> TransportAddress {
        TransportAddress::from(text.parse::<SocketAddr>().expect("an address"))
    }

    fn challenger() -> Challenger {
        Challenger::new("ours", ("theirs", PASSWORD), &Secret::of(&[7; 32]))
    }

    fn request(to: TransportAddress, nth: u32) -> Vec<u8> {
        let mut out = [0; 256];
        let len = challenger().write(to, nth, &mut out).expect("room");
        out[..len].to_vec()
    }

    /// What the other side answers.
    fn answer(id: &[u8], password: &str) -> Vec<u8> {
        let mut out = [0; 256];
        let mut writer = Writer { out: &mut out, len: 0 };
        let mut write = || {
            writer.put(&stun::BINDING_SUCCESS.to_be_bytes())?;
            writer.put(&[0, 0])?;
            writer.put(&MAGIC_COOKIE.to_be_bytes())?;
            writer.put(id)?;
            writer.attribute(0x8022, b"agent")?;
            writer.sign(&Password::new(password))
        };
        write().expect("room");
        let len = writer.len;
        out[..len].to_vec()
    }

    #[test]
    fn the_challenge_is_an_authentic_check_of_a_controlled_agent() {
        for to in ["192.0.2.1:5", "[2001:db8::1]:5"] {
            let request = request(address(to), 1);
            assert!(Responder::new("theirs", PASSWORD).authenticates(&request));
            assert!(!Responder::new("theirs", "another").authenticates(&request));
            assert_eq!(stun::receiver(&request), Some("theirs"));
            assert_eq!(stun::priority(&request), Some(PEER_REFLEXIVE));
            let kinds: Vec<u16> = stun::attributes(&request).map(|(kind, _)| kind).collect();
            assert!(kinds.contains(&ICE_CONTROLLED) && !kinds.contains(&stun::USE_CANDIDATE));
        }
        let mut short = [0; 60];
        assert_eq!(challenger().write(address("192.0.2.1:5"), 1, &mut short), None);
    }

    #[test]
    fn only_who_was_asked_there_and_holds_the_password_answers() {
        let (challenger, to) = (challenger(), address("192.0.2.1:5"));
        let id = request(to, 3)[8..20].to_vec();
        let good = answer(&id, PASSWORD);
        assert!(challenger.is_answer(&good, to, 3));
        assert!(!challenger.is_answer(&good, to, 4), "of an earlier challenge");
        assert!(!challenger.is_answer(&good, address("192.0.2.1:6"), 3), "another port");
        assert!(!challenger.is_answer(&good, TransportAddress::tcp(to.socket), 3));
        assert!(!challenger.is_answer(&answer(&id, "another"), to, 3));
        assert!(!challenger.is_answer(&answer(&[9; 12], PASSWORD), to, 3), "a guess");
        let other = Challenger::new("ours", ("theirs", PASSWORD), &Secret::of(&[8; 32]));
        assert!(!other.is_answer(&good, to, 3), "another secret");
        for end in 0..good.len() {
            assert!(!challenger.is_answer(&good[..end], to, 3), "cut at {end}");
        }
        for at in 0..good.len() - 8 {
            let mut bent = good.clone();
            bent[at] ^= 1;
            assert!(!challenger.is_answer(&bent, to, 3), "byte {at}");
        }
    }
}
