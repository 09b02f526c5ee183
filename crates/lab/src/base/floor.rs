//! The machine's floor: what a fixed piece of a server's kind of work costs now. A machine that is shared gets slower
//! and faster by a fifth for half a minute at a time, and with it all that runs there.

use super::figures::percentile_of;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// So many packets of sound go through the kernel and back.
const PACKETS: u32 = 300;
/// Bytes of each.
const BYTES: usize = 120;
/// A packet takes no longer, or it is lost.
const LONGEST: Duration = Duration::from_secs(1);
/// The figure is the median of the last so many pieces.
const PIECES: usize = 24;

/// Measures the CPUs of the thread that calls it.
#[derive(Debug)]
pub(crate) struct Floor {
    socket: UdpSocket,
    lately: VecDeque<f64>,
}

impl Floor {
    /// # Errors
    /// The system's: no socket.
    pub(crate) fn new() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(socket.local_addr()?)?;
        socket.set_read_timeout(Some(LONGEST))?;
        Ok(Self { socket, lately: VecDeque::with_capacity(PIECES) })
    }

    /// Does a piece of work, about a millisecond (the first time, [`PIECES`]); CPU time of the last pieces (median), in
    /// milliseconds.
    ///
    /// # Errors
    /// The system's: a packet was not sent, or did not come.
    pub(crate) fn measure(&mut self) -> io::Result<f64> {
        loop {
            let took = self.piece()?;
            if self.lately.len() == PIECES {
                self.lately.pop_front();
            }
            self.lately.push_back(took);
            if self.lately.len() == PIECES {
                let median = percentile_of(self.lately.iter().copied(), 50.0);
                return Ok(median.unwrap_or_default());
            }
        }
    }

    fn piece(&self) -> io::Result<f64> {
        let before = net::thread::thread_cpu_time();
        let mut packet = [0; BYTES];
        for _ in 0..PACKETS {
            self.socket.send(&packet)?;
            self.socket.recv(&mut packet)?;
        }
        let took = net::thread::thread_cpu_time() - before;
        Ok(took.as_secs_f64() * 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_last_pieces_counts() {
        let mut floor = Floor::new().unwrap();
        for _ in 0..3 {
            assert!(floor.measure().unwrap() > 0.0);
            assert_eq!(floor.lately.len(), PIECES);
        }
        floor.lately = (1..=PIECES as u32).map(|piece| f64::from(piece) * 1000.0).collect();
        let half = f64::from(PIECES as u32 / 2) * 1000.0;
        let median = floor.measure().unwrap();
        assert!((half..=half + 1000.0).contains(&median), "one piece moves little: {median}");
    }
}
