//! The machine's floor: what a fixed piece of a server's kind of work costs now. A machine that is shared gets slower
//! and faster by a tenth and more for half a minute at a time, and with it all that runs there.
//!
//! The piece is many sockets and much memory, since what others take is mostly the caches: beside a server with 800 people
//! (55 windows of 3 s, 2026-11-27) its cost and the server's move together (correlation 0.94 in 3 s, 0.97 in 18 s). Packets
//! through one socket moved half as much.

use super::random::SplitMix;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
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
/// The figure is the mean of the last so many pieces …
const PIECES: usize = 50;
/// … one of which is done this often: a fortieth of a CPU.
const OFTEN: Duration = Duration::from_millis(40);

/// Measures the floor all the time, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct FloorWatch {
    latest: Arc<AtomicU64>,
    /// What ends the thread when it is dropped, and the thread.
    thread: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl FloorWatch {
    /// Begins to measure these CPUs, and tells each figure (in milliseconds) until that gives an error.
    ///
    /// # Errors
    /// The system's: no socket, no thread.
    pub(crate) fn start(
        cpus: Vec<usize>,
        mut tell: impl FnMut(f64) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = sync_channel::<()>(0);
        let latest = Arc::new(AtomicU64::new(f64::NAN.to_bits()));
        let (mut floor, shared) = (Floor::new()?, latest.clone());
        let mut look = move || {
            // Each time: the lab moves all of its threads to CPUs of its own.
            net::thread::pin_current_thread(&cpus)?;
            let Some(now_ms) = floor.measure()? else { return Ok(()) };
            shared.store(now_ms.to_bits(), Relaxed);
            tell(now_ms)
        };
        let measure = move || {
            while look().is_ok() && stopped.recv_timeout(OFTEN) == Err(RecvTimeoutError::Timeout) {}
        };
        let thread = std::thread::Builder::new().name("lab-floor".into()).spawn(measure)?;
        Ok(Self { latest, thread: Some((stop, thread)) })
    }

    /// Where the latest figure is to be read.
    pub(crate) fn reading(&self) -> FloorReading {
        FloorReading(self.latest.clone())
    }
}

impl Drop for FloorWatch {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// The latest figure of a [`FloorWatch`].
#[derive(Debug, Clone)]
pub(crate) struct FloorReading(Arc<AtomicU64>);

impl FloorReading {
    /// What a piece of work costs, in milliseconds of CPU time, mean of the last two seconds; none before that.
    pub(crate) fn ms(&self) -> Option<f64> {
        Some(f64::from_bits(self.0.load(Relaxed))).filter(|ms| ms.is_finite())
    }
}

/// Measures the CPUs of the thread that calls it.
#[derive(Debug)]
struct Floor {
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
    fn new() -> io::Result<Self> {
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
    fn measure(&mut self) -> io::Result<Option<f64>> {
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

    #[test]
    fn it_tells_until_it_is_dropped_or_cannot_go_on() {
        let cpus = net::thread::current_thread_cpus().unwrap();
        let (told, figures) = std::sync::mpsc::channel();
        let watch =
            FloorWatch::start(cpus.clone(), move |ms| told.send(ms).map_err(io::Error::other));
        let watch = watch.unwrap();
        let reading = watch.reading();
        assert!(figures.recv().is_ok_and(|ms| ms > 0.0));
        assert!(reading.ms().is_some_and(|ms| ms > 0.0));
        drop(watch);
        figures.iter().for_each(drop);
        let ends = FloorWatch::start(cpus, |_| Err(io::Error::other("the quota is gone")));
        let ends = ends.unwrap();
        while ends.reading().ms().is_none() {
            std::thread::sleep(OFTEN);
        }
    }
}
