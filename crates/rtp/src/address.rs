//! Where packets go to and come from.

use std::fmt;
use std::net::SocketAddr;

/// The protocol below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Protocol {
    /// Each packet for itself.
    #[default]
    Udp,
    /// A connection of framed packets (RFC 4571).
    Tcp,
}

/// A transport address (RFC 8445 §4): IP address, port and protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransportAddress {
    /// The protocol.
    pub protocol: Protocol,
    /// IP address and port.
    pub socket: SocketAddr,
}

impl TransportAddress {
    /// An address on TCP.
    pub fn tcp(socket: SocketAddr) -> Self {
        Self { protocol: Protocol::Tcp, socket }
    }

    /// Whether a connection leads there, which may fall behind.
    #[inline]
    pub fn is_tcp(&self) -> bool {
        self.protocol == Protocol::Tcp
    }
}

/// On UDP.
impl From<SocketAddr> for TransportAddress {
    #[inline]
    fn from(socket: SocketAddr) -> Self {
        Self { protocol: Protocol::Udp, socket }
    }
}

impl fmt::Display for TransportAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.is_tcp() { "tcp" } else { "udp" };
        write!(f, "{protocol} {}", self.socket)
    }
}
