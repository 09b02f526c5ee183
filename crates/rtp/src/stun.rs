//! Connectivity checks that change nothing, answered where they arrive (RFC 8489, RFC 8445 §7.3,
//! consent: RFC 7675 §5.1).
//!
//! Once a pair is in use, its checks only ask whether somebody is still there. Whoever holds the ICE
//! credentials can answer; whatever is not plainly such a check is left to the ICE agent.

use crate::TransportAddress;
use aws_lc_rs::hmac;
use crc::{CRC_32_ISO_HDLC, Crc};
use std::net::{IpAddr, SocketAddr};

/// The message type of a check.
pub const BINDING_REQUEST: u16 = 0x0001;
/// The message type of its success response.
pub const BINDING_SUCCESS: u16 = 0x0101;
/// The magic cookie of RFC 8489.
pub(crate) const MAGIC_COOKIE: u32 = 0x2112_A442;
pub(crate) const USERNAME: u16 = 0x0006;
pub(crate) const MESSAGE_INTEGRITY: u16 = 0x0008;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
/// How its sender ranks a pair (RFC 8445 §16.1).
pub const PRIORITY: u16 = 0x0024;
/// The pair shall be used (RFC 8445 §7.1.2).
pub const USE_CANDIDATE: u16 = 0x0025;
const FINGERPRINT: u16 = 0x8028;
pub(crate) const ICE_CONTROLLED: u16 = 0x8029;
const ICE_CONTROLLING: u16 = 0x802A;
/// Attributes from here on may be ignored by who does not know them.
const OPTIONAL: u16 = 0x8000;
const FINGERPRINT_XOR: u32 = 0x5354_554E;
pub(crate) const HEADER: usize = 20;
pub(crate) const HMAC_BYTES: usize = 20;

/// CRC-32 as RFC 8489 §14.7 wants it.
const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// The attributes of a message, up to where it is cut short: type and value.
pub fn attributes(message: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = message.get(HEADER..).unwrap_or_default();
    std::iter::from_fn(move || {
        let [a, b, c, d, tail @ ..] = rest else { return None };
        let len = usize::from(u16::from_be_bytes([*c, *d]));
        let value = tail.get(..len)?;
        rest = tail.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_be_bytes([*a, *b]), value))
    })
}

/// Whether a message is a binding request, by its type alone.
pub fn is_request(message: &[u8]) -> bool {
    message.starts_with(&BINDING_REQUEST.to_be_bytes())
}

/// Whether a message is a success response, by its type alone.
pub fn is_success(message: &[u8]) -> bool {
    message.starts_with(&BINDING_SUCCESS.to_be_bytes())
}

/// The priority that a request tells (RFC 8445 §16.1).
pub fn priority(request: &[u8]) -> Option<u32> {
    let (_, value) = attributes(request).find(|(kind, _)| *kind == PRIORITY)?;
    value.try_into().ok().map(u32::from_be_bytes)
}

/// Whose a request is: the receiver's user fragment, the USERNAME up to its colon (RFC 8445 §7.2.2).
pub fn receiver(message: &[u8]) -> Option<&str> {
    if message.first()? > &3 {
        return None;
    }
    let (_, name) = attributes(message).find(|(kind, _)| *kind == USERNAME)?;
    std::str::from_utf8(name).ok()?.split(':').next()
}

/// Answers the checks of one peer.
#[derive(Clone)]
pub struct Responder {
    local_ufrag: String,
    key: Password,
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Responder({})", self.local_ufrag)
    }
}

impl Responder {
    /// With the own credentials, as they stand in the own SDP.
    pub fn new(local_ufrag: &str, local_password: &str) -> Self {
        Self { local_ufrag: local_ufrag.to_owned(), key: Password::new(local_password) }
    }

    /// Writes the success response to a check that came from `source` and returns its length in
    /// bytes. None where the agent must see it: it is no check, of other credentials, not authentic, in conflict
    /// about the roles, or has an attribute that must be understood; or `out` is too short.
    pub fn answer(
        &self,
        request: &[u8],
        source: TransportAddress,
        out: &mut [u8],
    ) -> Option<usize> {
        let integrity = self.plain_check(request)?;
        if !is_signed(&self.key, request, integrity) {
            return None;
        }
        let mut writer = Writer { out, len: 0 };
        writer.put(&BINDING_SUCCESS.to_be_bytes())?;
        writer.put(&[0, 0])?;
        writer.put(request.get(4..HEADER)?)?;
        writer.address(source.socket, request.get(4..HEADER)?)?;
        writer.sign(&self.key)?;
        Some(writer.len)
    }

    /// The password, which signs both the other side's requests and the answers to them.
    pub fn password(&self) -> &Password {
        &self.key
    }

    /// The own user fragment, which requests must name.
    pub fn local_ufrag(&self) -> &str {
        &self.local_ufrag
    }

    /// Whether this is a binding request that names the own user fragment and was signed with the own
    /// password (RFC 8489 §9.1.3), whatever else it asks for.
    pub fn authenticates(&self, request: &[u8]) -> bool {
        let integrity = self.integrity_of(request, |_| true);
        integrity.is_some_and(|integrity| is_signed(&self.key, request, integrity))
    }

    /// Where the integrity attribute of a request begins that is a check of ours and nothing else.
    fn plain_check(&self, request: &[u8]) -> Option<usize> {
        self.integrity_of(request, |attribute| match attribute {
            USERNAME | PRIORITY | USE_CANDIDATE => true,
            // The other side must be the one that controls: who is ICE-lite never does.
            ICE_CONTROLLED => false,
            attribute => attribute >= OPTIONAL,
        })
    }

    /// Where the integrity attribute begins of a whole binding request that names the own user fragment and
    /// has only attributes that are `known` before it.
    fn integrity_of(&self, request: &[u8], known: impl Fn(u16) -> bool) -> Option<usize> {
        let word = |at: usize| Some(u16::from_be_bytes(request.get(at..at + 2)?.try_into().ok()?));
        let cookie = u32::from_be_bytes(request.get(4..8)?.try_into().ok()?);
        let whole = usize::from(word(2)?) + HEADER == request.len();
        if word(0)? != BINDING_REQUEST || cookie != MAGIC_COOKIE || !whole {
            return None;
        }
        let (mut at, mut ours) = (HEADER, false);
        loop {
            let (kind, len) = (word(at)?, usize::from(word(at + 2)?));
            let value = request.get(at + 4..at + 4 + len)?;
            match kind {
                MESSAGE_INTEGRITY => return (len == HMAC_BYTES && ours).then_some(at),
                kind if !known(kind) => return None,
                USERNAME => {
                    let (ufrag, rest) = value.split_at_checked(self.local_ufrag.len())?;
                    ours = ufrag == self.local_ufrag.as_bytes() && rest.first() == Some(&b':');
                }
                _ => {}
            }
            at += 4 + len.next_multiple_of(4);
        }
    }
}

/// A password of short-term credentials (RFC 8489 §9.1.1).
#[derive(Clone)]
pub struct Password(hmac::Key);

impl Password {
    /// As it stands in an SDP.
    pub fn new(password: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes()))
    }
}

/// The part that the sender of a check has (RFC 8445 §6.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It chooses the pair.
    Controlling {
        /// It chooses the pair of this check.
        nominates: bool,
    },
    /// The other side does.
    Controlled,
}

/// A connectivity check (RFC 8445 §7.2.2).
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    /// The receiver's user fragment, a colon, the sender's.
    pub username: &'a str,
    /// The transaction.
    pub id: [u8; 12],
    /// Of the candidate that it makes known, see [`PRIORITY`].
    pub priority: u32,
    /// The sender's part.
    pub role: Role,
    /// Decides if both sides have the same part.
    pub tie_breaker: [u8; 8],
}

impl Check<'_> {
    /// Writes it, signed with the receiver's password, and returns its length in bytes. None if `out` is too short.
    pub fn write(&self, password: &Password, out: &mut [u8]) -> Option<usize> {
        let mut writer = Writer { out, len: 0 };
        writer.put(&BINDING_REQUEST.to_be_bytes())?;
        writer.put(&[0, 0])?;
        writer.put(&MAGIC_COOKIE.to_be_bytes())?;
        writer.put(&self.id)?;
        writer.attribute(USERNAME, self.username.as_bytes())?;
        writer.attribute(PRIORITY, &self.priority.to_be_bytes())?;
        match self.role {
            Role::Controlled => writer.attribute(ICE_CONTROLLED, &self.tie_breaker)?,
            Role::Controlling { nominates } => {
                writer.attribute(ICE_CONTROLLING, &self.tie_breaker)?;
                if nominates {
                    writer.attribute(USE_CANDIDATE, &[])?;
                }
            }
        }
        writer.sign(password)?;
        Some(writer.len)
    }
}

/// Whether the integrity attribute that begins at `integrity` was made with this key. The length field covers the message up
/// to and with that attribute (RFC 8489 §14.5).
pub(crate) fn is_signed(key: &Password, message: &[u8], integrity: usize) -> bool {
    let value = integrity + 4;
    let covered = (value + HMAC_BYTES - HEADER) as u16;
    let mut signed = hmac::Context::with_key(&key.0);
    signed.update(&message[..2]);
    signed.update(&covered.to_be_bytes());
    signed.update(&message[4..integrity]);
    let tag = signed.sign();
    let theirs = &message[value..value + HMAC_BYTES];
    aws_lc_rs::constant_time::verify_slices_are_equal(tag.as_ref(), theirs).is_ok()
}

/// Writes a message into a buffer, as far as it reaches.
pub(crate) struct Writer<'a> {
    pub(crate) out: &'a mut [u8],
    pub(crate) len: usize,
}

impl Writer<'_> {
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.out.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) -> Option<()> {
        self.put(&kind.to_be_bytes())?;
        self.put(&(value.len() as u16).to_be_bytes())?;
        self.put(value)?;
        self.put(&[0; 3][..value.len().next_multiple_of(4) - value.len()])
    }

    /// Ends the message with its integrity and its fingerprint.
    pub(crate) fn sign(&mut self, key: &Password) -> Option<()> {
        self.cover(4 + HMAC_BYTES)?;
        let tag = hmac::sign(&key.0, &self.out[..self.len]);
        self.attribute(MESSAGE_INTEGRITY, tag.as_ref())?;
        self.cover(8)?;
        let crc = CRC.checksum(&self.out[..self.len]) ^ FINGERPRINT_XOR;
        self.attribute(FINGERPRINT, &crc.to_be_bytes())
    }

    /// RFC 8489 §14.2; `cookie_and_id` is what the address is mixed with.
    fn address(&mut self, address: SocketAddr, cookie_and_id: &[u8]) -> Option<()> {
        let port = address.port() ^ (MAGIC_COOKIE >> 16) as u16;
        let (family, octets): (u8, &[u8]) = match address.ip() {
            IpAddr::V4(ip) => (1, &ip.octets()),
            IpAddr::V6(ip) => (2, &ip.octets()),
        };
        let mut value = [0; 20];
        value[1] = family;
        value[2..4].copy_from_slice(&port.to_be_bytes());
        for (place, (octet, mask)) in value[4..].iter_mut().zip(octets.iter().zip(cookie_and_id)) {
            *place = octet ^ mask;
        }
        self.attribute(XOR_MAPPED_ADDRESS, &value[..4 + octets.len()])
    }

    /// Sets the length field as if `more` bytes were there already.
    fn cover(&mut self, more: usize) -> Option<()> {
        let len = (self.len + more - HEADER) as u16;
        self.out.get_mut(2..4)?.copy_from_slice(&len.to_be_bytes());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UFRAG: &str = "evtj";
    const PASSWORD: &str = "VOkJxbRl1RmTxUk/WvJxBt";

    /// RFC 5769 §2.1.
    const REQUEST: [u8; 108] = [
        0x00, 0x01, 0x00, 0x58, 0x21, 0x12, 0xa4, 0x42, 0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6,
        0x86, 0xfa, 0x87, 0xdf, 0xae, 0x80, 0x22, 0x00, 0x10, 0x53, 0x54, 0x55, 0x4e, 0x20, 0x74,
        0x65, 0x73, 0x74, 0x20, 0x63, 0x6c, 0x69, 0x65, 0x6e, 0x74, 0x00, 0x24, 0x00, 0x04, 0x6e,
        0x00, 0x01, 0xff, 0x80, 0x29, 0x00, 0x08, 0x93, 0x2f, 0xf9, 0xb1, 0x51, 0x26, 0x3b, 0x36,
        0x00, 0x06, 0x00, 0x09, 0x65, 0x76, 0x74, 0x6a, 0x3a, 0x68, 0x36, 0x76, 0x59, 0x20, 0x20,
        0x20, 0x00, 0x08, 0x00, 0x14, 0x9a, 0xea, 0xa7, 0x0c, 0xbf, 0xd8, 0xcb, 0x56, 0x78, 0x1e,
        0xf2, 0xb5, 0xb2, 0xd3, 0xf2, 0x49, 0xc1, 0xb5, 0x71, 0xa2, 0x80, 0x28, 0x00, 0x04, 0xe5,
        0x7a, 0x3b, 0xcf,
    ];

    fn source(text: &str) -> TransportAddress {
        TransportAddress::from(text.parse::<SocketAddr>().expect("an address"))
    }

    /// A check as a controlling agent sends it.
    fn check(ufrag: &str, password: &str, extra: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = vec![0; 512];
        let mut writer = Writer { out: &mut out, len: 0 };
        // Whole words, as attributes are padded to.
        let username = format!("{ufrag}:{}", &"abcdefgh"[..11 - ufrag.len()]);
        let mut write = || {
            writer.put(&[
                0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
            ])?;
            writer.attribute(USERNAME, username.as_bytes())?;
            writer.attribute(0x802A, &[7; 8])?;
            for (kind, value) in extra {
                writer.attribute(*kind, value)?;
            }
            writer.cover(4 + HMAC_BYTES)?;
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes());
            let tag = hmac::sign(&key, &writer.out[..writer.len]);
            writer.attribute(MESSAGE_INTEGRITY, tag.as_ref())?;
            writer.cover(8)?;
            writer.attribute(FINGERPRINT, &[0; 4])
        };
        write().expect("room");
        let len = writer.len;
        out.truncate(len);
        out
    }

    #[test]
    fn the_integrity_of_rfc_5769_holds_and_breaks_with_each_bit_it_covers() {
        let responder = Responder::new(UFRAG, PASSWORD);
        let integrity = REQUEST.len() - 8 - 4 - HMAC_BYTES;
        assert!(is_signed(&responder.key, &REQUEST, integrity));
        assert!(!is_signed(&Password::new("another"), &REQUEST, integrity));
        for at in (0..2).chain(4..integrity).chain(integrity + 4..integrity + 4 + HMAC_BYTES) {
            let mut bent = REQUEST;
            bent[at] ^= 1;
            assert!(!is_signed(&responder.key, &bent, integrity), "byte {at}");
        }
        let crc = CRC.checksum(&REQUEST[..REQUEST.len() - 8]) ^ FINGERPRINT_XOR;
        assert_eq!(crc.to_be_bytes(), [0xe5, 0x7a, 0x3b, 0xcf], "FINGERPRINT");
        let mut out = [0; 128];
        let from = source("192.0.2.1:32853");
        assert_eq!(
            responder.answer(&REQUEST, from, &mut out),
            None,
            "it comes from a controlled one"
        );
    }

    /// RFC 5769 §2.2 and §2.3: the mapped addresses there.
    #[test]
    fn the_answer_tells_the_address_and_is_signed() {
        let responder = Responder::new(UFRAG, PASSWORD);
        let mut request = check(UFRAG, PASSWORD, &[(PRIORITY, &[0; 4]), (USE_CANDIDATE, &[])]);
        for (from, value) in [
            ("192.0.2.1:32853", &[0, 1, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43][..]),
            (
                "[2001:db8:1234:5678:11:2233:4455:6677]:32853",
                &[
                    0, 2, 0xa1, 0x47, 0x01, 0x13, 0xa9, 0xfa, 0xa5, 0xd3, 0xf1, 0x79, 0xbc, 0x25,
                    0xf4, 0xb5, 0xbe, 0xd2, 0xb9, 0xd9,
                ],
            ),
        ] {
            // The transaction of the RFC; signed anew.
            request[8..20].copy_from_slice(&REQUEST[8..20]);
            let integrity = request.len() - 8 - 4 - HMAC_BYTES;
            let mut signed = request[..integrity].to_vec();
            let covered = (integrity + 4 + HMAC_BYTES - HEADER) as u16;
            signed[2..4].copy_from_slice(&covered.to_be_bytes());
            let tag = hmac::sign(&responder.key.0, &signed);
            request[integrity + 4..integrity + 4 + HMAC_BYTES].copy_from_slice(tag.as_ref());

            let mut out = [0; 128];
            let len = responder.answer(&request, source(from), &mut out).expect("an answer");
            let answer = &out[..len];
            assert_eq!(answer[..2], BINDING_SUCCESS.to_be_bytes());
            assert_eq!(answer[4..20], REQUEST[4..20], "the transaction is kept");
            assert_eq!(&answer[24..24 + value.len()], value, "{from}");
            let integrity = 24 + value.len();
            assert!(is_signed(&responder.key, answer, integrity));
            let crc = CRC.checksum(&answer[..len - 8]) ^ FINGERPRINT_XOR;
            assert_eq!(answer[len - 4..], crc.to_be_bytes());
            assert_eq!(usize::from(answer[2]) << 8 | usize::from(answer[3]), len - HEADER);
        }
    }

    #[test]
    fn the_fragment_before_the_colon_names_the_receiver() {
        let mut request = vec![0, 1, 0, 12, 0x21, 0x12, 0xA4, 0x42];
        request.extend([7; 12]);
        request.extend([0x80, 0x22, 0, 2, b'x', b'y', 0, 0]);
        request.extend([0, 6, 0, 7]);
        request.extend(b"abcd:ef\0");
        assert_eq!(receiver(&request), Some("abcd"));
        for end in 0..request.len() - 1 {
            assert_eq!(receiver(&request[..end]), None);
        }
        assert_eq!(receiver(&[22, 254, 253]), None, "DTLS names nobody");
    }

    #[test]
    fn what_is_signed_with_the_own_password_is_authentic_whatever_it_asks() {
        let responder = Responder::new(UFRAG, PASSWORD);
        assert_eq!(responder.local_ufrag(), UFRAG);
        assert!(responder.authenticates(&REQUEST), "of RFC 5769, with a role that is in conflict");
        for extra in [&[][..], &[(0x0003, &[0; 4][..])], &[(USE_CANDIDATE, &[])]] {
            assert!(responder.authenticates(&check(UFRAG, PASSWORD, extra)), "{extra:?}");
        }
        let good = check(UFRAG, PASSWORD, &[]);
        assert!(!responder.authenticates(&check("evtk", PASSWORD, &[])), "another's fragment");
        assert!(!responder.authenticates(&check(UFRAG, "wrong", &[])), "another password");
        for end in 0..good.len() {
            assert!(!responder.authenticates(&good[..end]), "cut at {end}");
        }
        let mut response = good.clone();
        response[..2].copy_from_slice(&BINDING_SUCCESS.to_be_bytes());
        assert!(!responder.authenticates(&response), "no request");
        // An integrity of the right length before the name covers nothing of it.
        let unnamed = [&good[..HEADER], &[0, 8, 0, 20][..], &[0; 20], &good[HEADER..]].concat();
        assert!(!responder.authenticates(&unnamed));
    }

    #[test]
    fn a_check_that_is_written_is_one_that_is_read() {
        let responder = Responder::new(UFRAG, PASSWORD);
        let name = format!("{UFRAG}:their");
        let check = |role| {
            let (id, tie_breaker) = ([5; 12], [6; 8]);
            let mut out = [0; 128];
            let check = Check { username: &name, id, priority: 77, role, tie_breaker };
            let len = check.write(&Password::new(PASSWORD), &mut out).expect("room");
            out[..len].to_vec()
        };
        let from = source("192.0.2.1:5");
        for nominates in [false, true] {
            let request = check(Role::Controlling { nominates });
            assert_eq!((receiver(&request), priority(&request)), (Some(UFRAG), Some(77)));
            assert_eq!(attributes(&request).any(|(kind, _)| kind == USE_CANDIDATE), nominates);
            assert!(responder.answer(&request, from, &mut [0; 128]).is_some());
        }
        let request = check(Role::Controlled);
        assert!(responder.authenticates(&request));
        assert_eq!(responder.answer(&request, from, &mut [0; 128]), None, "both are controlled");
    }

    #[test]
    fn all_else_is_for_the_agent() {
        let responder = Responder::new(UFRAG, PASSWORD);
        let from = source("192.0.2.1:32853");
        let mut out = [0; 128];
        let mut answered = |request: &[u8]| responder.answer(request, from, &mut out).is_some();
        let good = check(UFRAG, PASSWORD, &[]);
        assert!(answered(&good));
        assert!(answered(&check(UFRAG, PASSWORD, &[(0xC057, &[0; 4])])), "an optional attribute");
        assert!(!answered(&check(UFRAG, PASSWORD, &[(0x0003, &[0; 4])])), "one to be understood");
        assert!(
            !answered(&check(UFRAG, PASSWORD, &[(ICE_CONTROLLED, &[0; 8])])),
            "a conflict of roles"
        );
        assert!(!answered(&check("evtk", PASSWORD, &[])), "the credentials of a restart");
        assert!(!answered(&check("evt", PASSWORD, &[])), "a fragment of the fragment");
        assert!(!answered(&check(UFRAG, "wrong", &[])), "not authentic");
        for end in 0..good.len() {
            assert!(!answered(&good[..end]), "cut at {end}");
        }
        let mut response = good.clone();
        response[0] = 1;
        assert!(!answered(&response), "no request");
        let mut short = [0; 40];
        assert_eq!(responder.answer(&good, from, &mut short), None, "no room");
    }
}
