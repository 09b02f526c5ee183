//! Receiving: one `recvmmsg` a batch, GRO super-datagrams split.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::sys::{self, RECV_BUFFER, Received};

/// Memory for what [`UdpBatchSocket::recv`](crate::UdpBatchSocket::recv) takes in one call, made
/// once and used again; one batch serves any number of sockets in turn.
pub struct RecvBatch {
    buffers: Vec<u8>,
    received: Vec<Received>,
    filled: usize,
    clock: ClockPair,
}

/// One received datagram.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Who sent it; IPv4 stays IPv4 on an IPv6 socket too.
    pub src: SocketAddr,
    /// The own address it came to, where [`SocketOptions::packet_info`](crate::SocketOptions) is on.
    pub dst: Option<Ipv4Addr>,
    /// Its bytes, which may be changed in place (to decrypt, say).
    pub data: &'a mut [u8],
    /// The kernel's arrival time (`CLOCK_REALTIME`) since the epoch, where timestamps are on.
    /// Datagrams that GRO joined share the time of the first.
    pub received: Option<Duration>,
    /// The arrival on the monotonic clock: `received`, converted by one reading of both clocks
    /// a batch; the time of that reading where the kernel gave none.
    pub arrival: Instant,
}

/// One reading of both clocks.
#[derive(Clone, Copy)]
struct ClockPair {
    realtime: Duration,
    monotonic: Instant,
}

impl ClockPair {
    fn now() -> Self {
        let realtime = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { realtime, monotonic: Instant::now() }
    }

    /// The monotonic time of a past `realtime`; one that lies ahead (the clock was set) is now.
    fn monotonic_at(&self, realtime: Option<Duration>) -> Instant {
        let age = realtime.map_or(Duration::ZERO, |t| self.realtime.saturating_sub(t));
        self.monotonic.checked_sub(age).unwrap_or(self.monotonic)
    }
}

impl RecvBatch {
    /// Memory for `messages` (1 to 64) kernel messages, each a datagram or a GRO super-datagram:
    /// 64 KiB of address space each, of which only what is ever filled becomes resident.
    pub fn new(messages: usize) -> Self {
        let messages = messages.clamp(1, sys::MESSAGES_PER_CALL);
        Self {
            buffers: vec![0; messages * RECV_BUFFER],
            received: vec![Received::default(); messages],
            filled: 0,
            clock: ClockPair::now(),
        }
    }

    /// Whether the last call filled every message, so that more may be waiting.
    pub fn is_full(&self) -> bool {
        self.filled == self.received.len()
    }

    /// The kernel messages of the last call; fewer than its datagrams where GRO joined some.
    pub fn messages(&self) -> usize {
        self.filled
    }

    /// The own address that each message of the last call came to, as [`Datagram::dst`].
    pub fn destinations(&self) -> impl Iterator<Item = Option<Ipv4Addr>> + Clone {
        self.received[..self.filled].iter().map(|message| message.dst)
    }

    /// The datagrams of the last call, in order of arrival.
    pub fn datagrams(&mut self) -> impl Iterator<Item = Datagram<'_>> {
        let clock = self.clock;
        let buffers = self.buffers.chunks_exact_mut(RECV_BUFFER);
        buffers.zip(&self.received[..self.filled]).flat_map(move |(buffer, message)| {
            let (received, arrival) = (message.realtime, clock.monotonic_at(message.realtime));
            let dst = message.dst;
            // An address of neither family does not occur; its message would be passed over.
            let source = message.src.map(|src| (src, &mut buffer[..message.len]));
            source.into_iter().flat_map(move |(src, bytes)| {
                Segments { rest: Some(bytes), size: message.segment }.map(move |data| Datagram {
                    src,
                    dst,
                    data,
                    received,
                    arrival,
                })
            })
        })
    }

    pub(crate) fn fill(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        self.filled = 0;
        let result = loop {
            match sys::receive(fd, &mut self.buffers, &mut self.received) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.filled = match result {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            other => other?,
        };
        self.clock = ClockPair::now();
        let count = |m: &Received| match m.segment {
            0 => 1,
            size => m.len.div_ceil(size).max(1),
        };
        let known = self.received[..self.filled].iter().filter(|m| m.src.is_some());
        Ok(known.map(count).sum())
    }
}

/// The datagrams of one message: pieces of `size` bytes (0: it is a single one), the last maybe
/// shorter. An empty message is one empty datagram.
struct Segments<'a> {
    rest: Option<&'a mut [u8]>,
    size: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a mut [u8];

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        if self.size == 0 || rest.len() <= self.size {
            return Some(rest);
        }
        let (head, tail) = rest.split_at_mut(self.size);
        self.rest = Some(tail);
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(len: usize, size: usize) -> Vec<usize> {
        let mut bytes = vec![0; len];
        Segments { rest: Some(&mut bytes), size }.map(|s| s.len()).collect()
    }

    #[test]
    fn messages_are_split_by_their_segment_size() {
        assert_eq!(split(0, 0), [0]);
        assert_eq!(split(9, 0), [9]);
        assert_eq!(split(9, 9), [9]);
        assert_eq!(split(10, 4), [4, 4, 2]);
        assert_eq!(split(8, 4), [4, 4]);
    }

    #[test]
    fn arrival_follows_the_kernel_time_and_never_lies_ahead() {
        let monotonic = Instant::now() + Duration::from_secs(5);
        let pair = ClockPair { realtime: Duration::from_secs(100), monotonic };
        let ago = |ms| Some(pair.realtime - Duration::from_millis(ms));
        assert_eq!(pair.monotonic_at(ago(3)), monotonic - Duration::from_millis(3));
        assert_eq!(pair.monotonic_at(Some(Duration::from_secs(101))), monotonic);
        assert_eq!(pair.monotonic_at(None), monotonic);
        // A realtime clock set forward by a century must not panic.
        let far = ClockPair { realtime: Duration::MAX, monotonic };
        assert_eq!(far.monotonic_at(Some(Duration::ZERO)), monotonic);
    }
}
