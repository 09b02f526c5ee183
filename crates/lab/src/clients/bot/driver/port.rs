//! Where a bot's datagrams go in and out: a socket of its own, or one that a thread's bots share.
//!
//! Servers tell participants apart by their address, so that bots may share a socket only where each
//! has an address of its own: on a loopback of IPv4, all of 127.0.0.0/8 are this machine's, and one
//! socket bound to 0.0.0.0 serves them all (`IP_PKTINFO`). A thread's packets then come and go by
//! few system calls, whoever they belong to.

use super::shared::Health;
use super::stream::Stream;
use net::{Poller, SendBatch, SocketOptions, UdpBatchSocket};
use rtp::TransportAddress;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// Buffers of a bot's own socket, in bytes: some hundred packets each way.
const OWN_BUFFER: usize = 1 << 20;
/// Buffers of a shared one: what hundreds of bots get in some 100 ms.
const SHARED_BUFFER: usize = 16 << 20;
/// Most bots that share a socket: their addresses differ in the last two bytes.
const MAX_SHARING: u32 = 60_000;
/// Datagrams that wait for one system call.
const BATCH: usize = 256;

/// A bot's way in and out.
pub(super) enum Port {
    /// A socket of its own.
    Own(UdpBatchSocket),
    /// An address of the thread's shared socket.
    Shared(Ipv4Addr),
    /// A connection by TCP.
    Stream(Stream),
    /// None any more, or not yet.
    Closed,
}

impl Port {
    /// The shared way where there is one, else a socket at `local`; and its address.
    pub(super) fn open(
        local: SocketAddr,
        shared: Option<SocketAddrV4>,
    ) -> io::Result<(Self, SocketAddr)> {
        if let Some(address) = shared {
            return Ok((Self::Shared(*address.ip()), address.into()));
        }
        let options = SocketOptions {
            recv_buffer: OWN_BUFFER,
            send_buffer: OWN_BUFFER,
            ..SocketOptions::default()
        };
        let socket = UdpBatchSocket::bind(local, options)?;
        let local = socket.local_addr()?;
        Ok((Self::Own(socket), local))
    }

    /// Datagrams that the kernel dropped at its own socket.
    pub(super) fn kernel_drops(&self) -> u64 {
        match self {
            Self::Own(socket) => socket.kernel_drops().unwrap_or(0),
            Self::Shared(_) | Self::Stream(_) | Self::Closed => 0,
        }
    }
}

/// The socket that the bots of a thread share.
pub(super) struct SharedSocket {
    pub(super) socket: UdpBatchSocket,
    port: u16,
    /// First two bytes of the bots' addresses.
    net: [u8; 2],
    next: u32,
}

impl SharedSocket {
    /// One for thread `number`, where bots reach their target from `local`; none where that is no
    /// loopback of IPv4.
    pub(super) fn open(number: usize, local: IpAddr) -> io::Result<Option<Self>> {
        let IpAddr::V4(local) = local else { return Ok(None) };
        if !local.is_loopback() {
            return Ok(None);
        }
        let options = SocketOptions {
            recv_buffer: SHARED_BUFFER,
            send_buffer: SHARED_BUFFER,
            packet_info: true,
            ..SocketOptions::default()
        };
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let socket = UdpBatchSocket::bind(any, options)?;
        let port = socket.local_addr()?.port();
        // 127.0.x.x stays with servers.
        Ok(Some(Self { socket, port, net: [127, 1 + (number % 250) as u8], next: 0 }))
    }

    /// An address for the next bot; none where there are too many.
    pub(super) fn next(&mut self) -> Option<SocketAddrV4> {
        if self.next >= MAX_SHARING {
            return None;
        }
        self.next += 1;
        let [high, low] = (self.next as u16).to_be_bytes();
        let ip = Ipv4Addr::new(self.net[0], self.net[1], high, low);
        Some(SocketAddrV4::new(ip, self.port))
    }

    /// Place of an address among those given, from 1.
    pub(super) fn place(ip: Ipv4Addr) -> usize {
        let [_, _, high, low] = ip.octets();
        usize::from(u16::from_be_bytes([high, low]))
    }

    /// Has it watched.
    pub(super) fn watch(&self, poller: &Poller, token: u64) -> io::Result<()> {
        poller.add(&self.socket, token)
    }
}

/// What all bots of a thread work with.
pub(super) struct Work {
    /// For the socket of one bot at a time.
    own: SendBatch,
    shared: Option<(SharedSocket, SendBatch)>,
    pub(super) health: Health,
}

impl Work {
    pub(super) fn new(shared: Option<SharedSocket>) -> Self {
        Self {
            own: SendBatch::new(BATCH),
            shared: shared.map(|socket| (socket, SendBatch::new(BATCH))),
            health: Health::new(),
        }
    }

    pub(super) fn shared(&mut self) -> Option<&mut SharedSocket> {
        self.shared.as_mut().map(|(socket, _)| socket)
    }

    /// Queues a datagram of a bot; one of a shared socket leaves with [`Self::flush_shared`].
    pub(super) fn push(&mut self, port: &mut Port, to: TransportAddress, datagram: &[u8]) {
        let destination = to.socket;
        let queued = match (&mut *port, &mut self.shared) {
            (Port::Own(_), _) => {
                if self.own.is_full() {
                    self.flush_own(port);
                }
                self.own.push(destination, datagram)
            }
            (Port::Stream(stream), _) => {
                match stream.push(datagram) {
                    true => self.health.sent += 1,
                    false => self.health.drop("send_buffer_full", 1),
                }
                return;
            }
            (Port::Shared(source), Some((socket, batch))) => {
                if batch.is_full() {
                    flush(batch, &socket.socket, &mut self.health);
                }
                batch.push_from(Some(*source), destination, datagram)
            }
            (Port::Shared(_), None) | (Port::Closed, _) => {
                self.health.drop("socket_closed", 1);
                return;
            }
        };
        if !queued {
            self.health.drop("datagram_too_long", 1);
        }
    }

    /// Sends what is queued for a bot's own socket or connection.
    pub(super) fn flush_own(&mut self, port: &mut Port) {
        match port {
            Port::Own(socket) => flush(&mut self.own, socket, &mut self.health),
            Port::Stream(stream) => stream.write(),
            Port::Shared(_) | Port::Closed => {}
        }
    }

    /// Sends what is queued for the shared socket.
    pub(super) fn flush_shared(&mut self) {
        if let Some((socket, batch)) = &mut self.shared {
            flush(batch, &socket.socket, &mut self.health);
        }
    }
}

fn flush(batch: &mut SendBatch, socket: &UdpBatchSocket, health: &mut Health) {
    if batch.is_empty() {
        return;
    }
    let report = batch.flush(socket);
    health.sent += report.sent;
    health.drop("send_failed", report.failed);
    health.drop("send_buffer_full", report.send_buffer_full);
}
