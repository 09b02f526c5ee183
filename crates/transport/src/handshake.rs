//! Whether a handshake shows that somebody receives at an address: a source address alone can be forged.

use rtp::TransportAddress;

/// Where the datagrams of a handshake went and came from.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// None did yet.
    #[default]
    Nowhere,
    /// All of them here.
    At(TransportAddress),
    /// At more than one address.
    Scattered,
}

impl Handshake {
    /// A datagram came from there, or went there.
    pub(crate) fn note(&mut self, address: TransportAddress) {
        *self = match *self {
            Self::Nowhere => Self::At(address),
            Self::At(known) if known == address => return,
            _ => Self::Scattered,
        };
    }
}
