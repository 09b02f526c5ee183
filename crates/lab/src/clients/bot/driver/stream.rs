//! A bot's connection where it goes by TCP (RFC 6544, RFC 4571): it connects to the passive candidate of the answer.

use net::Poller;
use net::framing::{self, Decoder};
use rtp::TransportAddress;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Most bytes that wait for the kernel.
const MAX_WAITING: usize = 1 << 20;
/// Longest packet taken.
const MAX_PACKET: usize = 2048;

/// A bot's connection.
pub(super) struct Stream {
    stream: TcpStream,
    to: SocketAddr,
    /// None while it is lent.
    decoder: Option<Box<Decoder>>,
    out: VecDeque<u8>,
    blocked: bool,
    /// What the poller watches for: nothing yet, reading, or writing too.
    watched: Option<bool>,
    broken: Option<io::Error>,
}

impl Stream {
    /// Begins to connect; its own address is known at once.
    pub(super) fn connect(to: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let stream = net::stream::connect(to)?;
        let local = stream.local_addr()?;
        let this = Self {
            stream,
            to,
            decoder: Some(Box::new(Decoder::new(MAX_PACKET))),
            out: VecDeque::new(),
            blocked: false,
            watched: None,
            broken: None,
        };
        Ok((this, local))
    }

    /// Queues a packet; says whether there was room.
    pub(super) fn push(&mut self, packet: &[u8]) -> bool {
        if self.out.len() + packet.len() + framing::HEADER_LEN > MAX_WAITING {
            return false;
        }
        self.out.extend((packet.len() as u16).to_be_bytes());
        self.out.extend(packet);
        true
    }

    /// Hands what waits to the kernel, as much as it takes.
    pub(super) fn write(&mut self) {
        self.blocked = false;
        while self.broken.is_none() && !self.out.is_empty() {
            match self.stream.write(self.out.as_slices().0) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.broken = Some(error),
            }
        }
    }

    /// Has it watched: for packets, and for room where some wait for it.
    pub(super) fn watch(&mut self, poller: &Poller, token: u64) -> io::Result<()> {
        if self.watched.is_none() {
            poller.add(&self.stream, token)?;
            self.watched = Some(false);
        }
        if self.watched != Some(self.blocked) {
            poller.set_writable(&self.stream, token, self.blocked)?;
            self.watched = Some(self.blocked);
        }
        Ok(())
    }

    /// Is watched no more.
    pub(super) fn unwatch(&self, poller: &Poller) {
        let _ = poller.remove(&self.stream);
    }

    /// Why it is broken, if it is.
    pub(super) fn broken(&self) -> Option<&io::Error> {
        self.broken.as_ref()
    }

    /// Who is at the other side.
    pub(super) fn peer(&self) -> TransportAddress {
        TransportAddress::tcp(self.to)
    }

    /// Lends what takes packets out of what came; [`Self::give_back`] takes it again.
    pub(super) fn lend(&mut self) -> Option<Box<Decoder>> {
        self.decoder.take()
    }

    /// Reads into what was lent; says whether there was anything.
    pub(super) fn read(&mut self, decoder: &mut Decoder) -> bool {
        match self.stream.read(decoder.spare()) {
            Ok(0) => {
                self.broken = Some(io::ErrorKind::ConnectionReset.into());
                false
            }
            Ok(count) => {
                decoder.advance(count);
                true
            }
            Err(error) => {
                let passing = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
                if !passing.contains(&error.kind()) {
                    self.broken = Some(error);
                }
                false
            }
        }
    }

    /// Takes back what was lent.
    pub(super) fn give_back(&mut self, decoder: Box<Decoder>) {
        self.decoder = Some(decoder);
    }

    /// How often to read in a row.
    pub(super) const READS: usize = 8;
}

/// The first passive TCP candidate of an SDP.
pub(super) fn passive_candidate(sdp: &str) -> Option<SocketAddr> {
    sdp.lines().filter_map(|line| line.strip_prefix("a=candidate:")).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, protocol, _, ip, port, rest @ ..] = fields.as_slice() else { return None };
        let passive = rest.windows(2).any(|pair| pair == ["tcptype", "passive"]);
        if !protocol.eq_ignore_ascii_case("tcp") || !passive {
            return None;
        }
        Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_passive_candidate_is_connected_to() {
        let udp = "a=candidate:1 1 udp 2130706431 127.0.0.1 7882 typ host\r\n";
        let active = "a=candidate:2 1 tcp 2105458943 127.0.0.1 9 typ host tcptype active\r\n";
        let passive = "a=candidate:3 1 TCP 2105458943 ::1 7882 typ host tcptype passive\r\n";
        assert_eq!(passive_candidate(&format!("{udp}{active}")), None);
        let found = passive_candidate(&format!("v=0\r\n{udp}{active}{passive}"));
        assert_eq!(found, Some("[::1]:7882".parse().unwrap()));
    }
}
