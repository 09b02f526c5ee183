//! What can go wrong with a transport.

use str0m::RtcError;

/// Why a handshake cannot come to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFault {
    /// The other side has no certificate of a kind that this side takes. The library takes ECDSA alone.
    CertificateKind,
    /// The other side's certificate is not the one whose fingerprint stands in its SDP.
    Fingerprint,
    /// Anything else.
    Other,
}

/// What can go wrong with a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportError {
    /// The SDP is too long: bytes or m-lines, and the bound.
    SdpTooLarge(String),
    /// The SDP could not be parsed or negotiated, with the reason.
    Sdp(String),
    /// An answer came without an offer of ours.
    NoOfferPending,
    /// A datagram was neither STUN nor DTLS, or broke the protocol.
    Datagram(String),
    /// DTLS or ICE ended for good.
    Failed(String),
    /// The DTLS handshake cannot come to an end.
    Handshake(HandshakeFault, String),
    /// The library panicked: this transport must be dropped, no other is harmed.
    Panicked,
}

impl std::fmt::Display for TransportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SdpTooLarge(what) => write!(f, "the SDP is too large: {what}"),
            Self::Sdp(why) => write!(f, "the SDP was not understood: {why}"),
            Self::NoOfferPending => f.write_str("an answer came, but no offer is pending"),
            Self::Datagram(why) => write!(f, "not a STUN or DTLS datagram of this session: {why}"),
            Self::Handshake(_, why) => write!(f, "the DTLS handshake failed: {why}"),
            Self::Failed(why) => write!(f, "the transport failed: {why}"),
            Self::Panicked => f.write_str("the ICE and DTLS library gave up on this transport"),
        }
    }
}

impl std::error::Error for TransportError {}

impl TransportError {
    /// Of an error of the library, while a handshake is under way.
    pub(crate) fn of_handshake(error: &RtcError) -> Self {
        let why = error.to_string();
        let fault = match error {
            RtcError::Dtls(_) if why.contains("certificate") => HandshakeFault::CertificateKind,
            RtcError::Dtls(_) => HandshakeFault::Other,
            _ if why.contains("fingerprint") => HandshakeFault::Fingerprint,
            _ => return Self::Failed(why),
        };
        Self::Handshake(fault, why)
    }
}
