//! TCP for media (RFC 6544): sockets that never block and hold back little.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use crate::sys;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// The kernel takes no more while so many bytes have not left yet: what waits, waits with us, where sound can
/// still overtake pictures.
const NOT_SENT_BYTES: i32 = 16 << 10;

/// A listening socket.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Listens at `addr` (port 0: any free one); an IPv6 one takes no IPv4.
    ///
    /// # Errors
    /// What the system says, with the address in the text: in use, not of this machine, refused.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let bound = listen(addr, BACKLOG, true);
        bound
            .map(Self)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot bind TCP {addr}: {e}")))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// The next connection, ready for media, and who opened it; none where none waits.
    ///
    /// # Errors
    /// No descriptor is left, or what became of a connection before it was accepted.
    pub fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        match self.0.accept() {
            Ok((stream, from)) => {
                tune(&stream)?;
                Ok(Some((stream, from)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket that listens at `addr` (port 0: any free one) and never blocks. `backlog`: connections that wait to be accepted.
/// An IPv6 one that is `v6_only` takes no IPv4; else the system's setting decides, which mostly takes it.
///
/// # Errors
/// What the system says: in use, not of this machine, refused.
pub fn listen(addr: SocketAddr, backlog: i32, v6_only: bool) -> io::Result<TcpListener> {
    let owned = sys::socket(addr, libc::SOCK_STREAM)?;
    let fd = owned.as_fd();
    // Connections of the server before this one may still be dying.
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if addr.is_ipv6() && v6_only {
        sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    sys::bind(fd, addr)?;
    sys::listen(fd, backlog)?;
    Ok(TcpListener::from(owned))
}

/// Begins a connection to `to`: it can be written when it stands. Its own address is known at once.
///
/// # Errors
/// What the system says at once; what comes later, the first write or read says.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let owned = sys::socket(to, libc::SOCK_STREAM)?;
    sys::connect(owned.as_fd(), to)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot connect to TCP {to}: {e}")))?;
    let stream = TcpStream::from(owned);
    tune(&stream)?;
    Ok(stream)
}

/// Makes a stream fit for media: nothing blocks, nothing waits for more to send.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    sys::set_option(stream.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Events, Poller};
    use std::io::{Read, Write};

    #[test]
    fn a_connection_neither_blocks_nor_takes_more_than_little() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut client = connect(listener.local_addr().unwrap()).unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(4));
        poller.add(&listener, 1).unwrap();
        poller.wait(&mut events, None).unwrap();
        let (mut server, from) = listener.accept().unwrap().expect("it connected");
        assert_eq!(from, client.local_addr().unwrap());
        assert!(listener.accept().unwrap().is_none());
        let mut byte = [0; 1];
        let nothing = server.read(&mut byte).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        // Nobody reads: what is taken is bounded by the other side's window and a little more.
        let mut taken = 0;
        let full = loop {
            match client.write(&[7; 4096]) {
                Ok(count) => taken += count,
                Err(error) => break error,
            }
            assert!(taken < 64 << 20);
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(server.read(&mut byte).unwrap(), 1);
    }

    #[test]
    fn a_port_in_use_is_said_with_its_address() {
        let first = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let error = Listener::bind(address).unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
