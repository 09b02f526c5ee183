//! The UDP socket.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::recv::RecvBatch;
use crate::sys;

/// How a [`UdpBatchSocket`] is made.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Receive buffer to ask for, in bytes of payload-sized accounting as `SO_RCVBUF` takes it.
    pub recv_buffer: usize,
    /// Send buffer to ask for, in bytes.
    pub send_buffer: usize,
    /// Several sockets may share the address (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// An IPv6 socket takes no IPv4; without it, `[::]` serves both.
    pub v6_only: bool,
    /// Let the kernel join datagrams of one sender (`UDP_GRO`), where it can.
    pub gro: bool,
    /// Have arrivals stamped by the kernel (`SO_TIMESTAMPNS`).
    pub timestamps: bool,
    /// Say of each datagram to which own address it came (`IP_PKTINFO`, IPv4 only): so one socket
    /// bound to `0.0.0.0` serves many addresses, such as those of 127.0.0.0/8.
    pub packet_info: bool,
}

impl Default for SocketOptions {
    /// 4 MiB buffers, GRO and timestamps on, nothing shared, IPv6 with IPv4.
    fn default() -> Self {
        Self {
            recv_buffer: 4 << 20,
            send_buffer: 4 << 20,
            reuse_port: false,
            v6_only: false,
            gro: true,
            timestamps: true,
            packet_info: false,
        }
    }
}

/// A nonblocking UDP socket whose traffic goes in batches.
#[derive(Debug)]
pub struct UdpBatchSocket {
    inner: UdpSocket,
    v6: bool,
    gro: bool,
    granted_recv_buffer: usize,
    granted_send_buffer: usize,
}

impl UdpBatchSocket {
    /// Binds to `addr` (port 0: any free one).
    ///
    /// # Errors
    /// What the system says, with the address in the text: in use, not of this machine, refused.
    /// A smaller buffer than asked for, or a kernel without GRO, is no error: see
    /// [`granted_recv_buffer`](Self::granted_recv_buffer) and [`gro`](Self::gro).
    pub fn bind(addr: SocketAddr, options: SocketOptions) -> io::Result<Self> {
        Self::bind_inner(addr, &options)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot bind UDP {addr}: {e}")))
    }

    fn bind_inner(addr: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let owned = sys::socket(addr, libc::SOCK_DGRAM)?;
        let fd = owned.as_fd();
        if addr.is_ipv6() {
            let only = i32::from(options.v6_only);
            sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, only)?;
        }
        if options.reuse_port {
            sys::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        let granted_recv_buffer =
            set_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, options.recv_buffer)?;
        let granted_send_buffer =
            set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, options.send_buffer)?;
        // Not to be fragmented, whatever paths are said to take (RFC 8899 §4.4 sends so): else the kernel
        // makes up an identification for each datagram, from tables that all CPUs share.
        let (level, option) = match addr.is_ipv4() {
            true => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            false => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
        };
        let _ = sys::set_option(fd, level, option, libc::IP_PMTUDISC_PROBE);
        if options.timestamps {
            sys::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        }
        if options.packet_info && addr.is_ipv4() {
            sys::set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        }
        let gro = options.gro && sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        sys::bind(fd, addr)?;
        let inner = UdpSocket::from(owned);
        Ok(Self { inner, v6: addr.is_ipv6(), gro, granted_recv_buffer, granted_send_buffer })
    }

    /// Takes what has arrived into `batch`, whose former content is lost, and returns the number
    /// of datagrams: 0 when nothing waits. A [full](RecvBatch::is_full) batch may have left more.
    ///
    /// # Errors
    /// What the system says; an error that an earlier datagram left at the socket is among them
    /// (the socket stays usable).
    pub fn recv(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.fill(self.inner.as_fd())
    }

    /// Sends one datagram now: for rare control traffic.
    ///
    /// # Errors
    /// `WouldBlock` with a full send buffer; else what the system says.
    pub fn send_to(&self, dst: SocketAddr, data: &[u8]) -> io::Result<usize> {
        let dst = match dst {
            SocketAddr::V4(a) if self.v6 => (a.ip().to_ipv6_mapped(), a.port()).into(),
            other => other,
        };
        self.inner.send_to(data, dst)
    }

    /// The same socket for another thread, say one that only sends.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { inner: self.inner.try_clone()?, ..*self })
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// The receive buffer that the kernel granted, in bytes, on the scale of
    /// [`SocketOptions::recv_buffer`] (the kernel doubles the figure for its own book-keeping).
    pub fn granted_recv_buffer(&self) -> usize {
        self.granted_recv_buffer
    }

    /// The send buffer that the kernel granted, in bytes.
    pub fn granted_send_buffer(&self) -> usize {
        self.granted_send_buffer
    }

    /// Whether the kernel joins datagrams for this socket.
    pub fn gro(&self) -> bool {
        self.gro
    }

    /// Datagrams that the kernel dropped at this socket since it was made (a full receive buffer,
    /// mostly). One system call; the kernel's counter is 32 bits wide.
    ///
    /// # Errors
    /// A kernel before 4.12 does not tell.
    pub fn kernel_drops(&self) -> io::Result<u64> {
        sys::dropped_datagrams(self.inner.as_fd()).map(u64::from)
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.v6
    }
}

impl AsFd for UdpBatchSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl AsRawFd for UdpBatchSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

/// Asks for a buffer of `bytes` past the system's limit, then within it; returns the grant.
fn set_buffer(fd: BorrowedFd<'_>, force: i32, plain: i32, bytes: usize) -> io::Result<usize> {
    // The kernel doubles the value.
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX).min(i32::MAX / 2);
    if sys::set_option(fd, libc::SOL_SOCKET, force, bytes).is_err() {
        sys::set_option(fd, libc::SOL_SOCKET, plain, bytes)?;
    }
    Ok(sys::get_option(fd, libc::SOL_SOCKET, plain)? as usize / 2)
}
