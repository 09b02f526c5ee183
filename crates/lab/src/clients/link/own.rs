//! Sockets of one flow each, by which the relay reaches servers beyond the loopback.

use net::{Poller, SocketOptions, UdpBatchSocket};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

const BUFFER: usize = 1 << 20;
/// After so long without a packet a flow has ended: who is connected sends a consent check every 5 s (RFC 7675).
const IDLE: Duration = Duration::from_secs(60);

/// They are opened with a flow's first packet. Those of flows that have ended are closed when another one is opened.
pub(super) struct OwnSockets {
    /// Of a socket, the token at the poller is this one and the flow's number more.
    first_token: u64,
    /// By the flow's number: the socket, and when it sent last.
    open: HashMap<usize, (UdpBatchSocket, Instant)>,
}

impl OwnSockets {
    /// None yet.
    pub(super) fn new(first_token: u64) -> Self {
        Self { first_token, open: HashMap::new() }
    }

    /// The flow that an event of the poller is of, if it is of one of these sockets.
    pub(super) fn flow_of(&self, token: u64) -> Option<usize> {
        token.checked_sub(self.first_token).map(|flow| flow as usize)
    }

    /// A flow's socket, if it is open.
    pub(super) fn get(&self, flow: usize) -> Option<&UdpBatchSocket> {
        self.open.get(&flow).map(|(socket, _)| socket)
    }

    /// A flow's socket for a packet that leaves now, bound to the own address `near`.
    ///
    /// # Errors
    /// The system gives no socket.
    pub(super) fn of(
        &mut self,
        flow: usize,
        near: IpAddr,
        poller: &Poller,
        now: Instant,
    ) -> io::Result<&UdpBatchSocket> {
        if !self.open.contains_key(&flow) {
            self.open.retain(|_, (_, sent)| now.saturating_duration_since(*sent) < IDLE);
        }
        let (socket, sent) = match self.open.entry(flow) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let options = SocketOptions {
                    recv_buffer: BUFFER,
                    send_buffer: BUFFER,
                    ..SocketOptions::default()
                };
                let socket = UdpBatchSocket::bind(SocketAddr::from((near, 0)), options)?;
                poller.add(&socket, self.first_token + flow as u64)?;
                place.insert((socket, now))
            }
        };
        *sent = now;
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_flow_keeps_its_socket_until_it_has_been_silent_for_long() {
        let (poller, now) = (Poller::new().unwrap(), Instant::now());
        let near = IpAddr::from(Ipv4Addr::LOCALHOST);
        let mut own = OwnSockets::new(3);
        let mut port = |flow, after: Duration| {
            let socket = own.of(flow, near, &poller, now + after);
            socket.and_then(UdpBatchSocket::local_addr).unwrap().port()
        };
        let (first, second) = (port(0, Duration::ZERO), port(1, Duration::ZERO));
        assert_ne!(first, second);
        assert_eq!(port(1, IDLE), second, "nothing is closed where nothing is opened");
        port(2, IDLE);
        assert!(own.get(0).is_none() && own.get(1).is_some() && own.get(2).is_some());
        assert_eq!((own.flow_of(3), own.flow_of(5), own.flow_of(2)), (Some(0), Some(2), None));
    }

    #[test]
    fn an_address_that_is_not_ours_is_an_error() {
        let poller = Poller::new().unwrap();
        let near = IpAddr::from([192, 0, 2, 1]);
        assert!(OwnSockets::new(3).of(0, near, &poller, Instant::now()).is_err());
    }
}
