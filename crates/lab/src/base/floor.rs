//! The machine's floor: what a fixed piece of a server's kind of work costs now. A machine that is shared gets slower
//! and faster by a tenth and more for half a minute at a time, and with it all that runs there.
//!
//! The piece is many sockets and much memory, since what others take is mostly the caches: beside a server with 800 people
//! (95 windows of 3 s, 2026-11-27) its cost and the server's move together (correlation 0.94 in 3 s, 0.97 in 18 s). Packets
//! through one socket moved half as much.

use super::random::SplitMix;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// So many packets of sound go through the kernel and back, each through a socket of its own.
const PACKETS: usize = 200;
/// Sockets, which take turns.
const SOCKETS: usize = 512;
/// Bytes of a packet.
const BYTES: usize = 120;
/// What packets are taken from, in bytes.
const MEMORY: usize = 16 << 20;
/// With each packet so many bytes are touched, a cache line apart.
const TOUCHED: usize = 20;
const CACHE_LINE: usize = 64;
/// A packet takes no longer, or it is lost.
const LONGEST: Duration = Duration::from_secs(1);
/// The figure is the mean of the last so many pieces.
const PIECES: usize = 50;

/// Measures the CPUs of the thread that calls it.
#[derive(Debug)]
pub(crate) struct Floor {
    sockets: Vec<UdpSocket>,
    /// The next socket.
    next: usize,
    memory: Vec<u8>,
    random: SplitMix,
    lately: VecDeque<f64>,
}

impl Floor {
    /// # Errors
    /// The system's: no socket.
    pub(crate) fn new() -> io::Result<Self> {
        let socket = |_| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(socket.local_addr()?)?;
            socket.set_read_timeout(Some(LONGEST))?;
            Ok(socket)
        };
        Ok(Self {
            sockets: (0..SOCKETS).map(socket).collect::<io::Result<_>>()?,
            next: 0,
            memory: vec![1; MEMORY],
            random: SplitMix(1),
            lately: VecDeque::with_capacity(PIECES),
        })
    }

    /// Does a piece of work, about a millisecond; CPU time of the last pieces (mean), in milliseconds, as soon as there are
    /// enough.
    ///
    /// # Errors
    /// The system's: a packet was not sent, or did not come.
    pub(crate) fn measure(&mut self) -> io::Result<Option<f64>> {
        let took = self.piece()?;
        if self.lately.len() == PIECES {
            self.lately.pop_front();
        }
        self.lately.push_back(took);
        let all: f64 = self.lately.iter().sum();
        Ok((self.lately.len() == PIECES).then(|| all / PIECES as f64))
    }

    fn piece(&mut self) -> io::Result<f64> {
        let before = net::thread::thread_cpu_time();
        let mut packet = [0; BYTES];
        for _ in 0..PACKETS {
            let from = self.random.below((MEMORY - TOUCHED * CACHE_LINE) as u64) as usize;
            let lines = &mut self.memory[from..from + TOUCHED * CACHE_LINE];
            lines.iter_mut().step_by(CACHE_LINE).for_each(|byte| *byte = byte.wrapping_add(1));
            let socket = &self.sockets[self.next];
            socket.send(&lines[..BYTES])?;
            socket.recv(&mut packet)?;
            self.next = (self.next + 1) % SOCKETS;
        }
        let took = net::thread::thread_cpu_time() - before;
        Ok(took.as_secs_f64() * 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_the_last_pieces_counts() {
        let mut floor = Floor::new().unwrap();
        for _ in 1..PIECES {
            assert_eq!(floor.measure().unwrap(), None, "too few pieces to tell");
        }
        assert!(floor.measure().unwrap().is_some_and(|mean| mean > 0.0));
        floor.lately = (0..PIECES).map(|_| 1000.0).collect();
        let mean = floor.measure().unwrap().unwrap();
        assert!((970.0..1000.0).contains(&mean), "one piece moves little: {mean}");
        assert_eq!(floor.lately.len(), PIECES);
    }
}
