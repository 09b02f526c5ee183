//! Waiting: for a few descriptors ([`wait`]), for thousands ([`Poller`]), for another thread
//! ([`Waker`]). Timeouts are finer than a millisecond, up to the thread's
//! [timer slack](crate::thread::set_timer_slack).

use std::fs::File;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sys;

/// Wakes a thread that waits on it, from any thread (share it by `Arc`). Wakes before the
/// [`drain`](Self::drain) are one wake.
#[derive(Debug)]
pub struct Waker {
    event: File,
    /// Woken and not drained yet: waking once more costs no call to the system.
    woken: AtomicBool,
}

impl Waker {
    /// A waker that nobody has woken yet.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        sys::eventfd().map(|fd| Self { event: File::from(fd), woken: AtomicBool::new(false) })
    }

    /// Makes the waker readable.
    pub fn wake(&self) {
        // What was handed over before this is seen by whoever sees the flag.
        if !self.woken.swap(true, Ordering::AcqRel) {
            // The one possible failure is a full counter: then it is readable already.
            let _ = (&self.event).write(&1u64.to_ne_bytes());
        }
    }

    /// Takes the wakes back; whether there were any. Call it before looking at what the wake
    /// announced, so that none is lost.
    pub fn drain(&self) -> bool {
        let woken = (&self.event).read(&mut [0; 8]).is_ok();
        // After the read: a wake from here on writes again.
        self.woken.swap(false, Ordering::AcqRel);
        woken
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsRawFd for Waker {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

/// A descriptor to [`wait`] for, and what the wait found.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct PollFd<'a> {
    raw: libc::pollfd,
    owner: PhantomData<BorrowedFd<'a>>,
}

impl<'a> PollFd<'a> {
    /// Waits until `fd` can be read.
    pub fn readable(fd: &'a impl AsFd) -> Self {
        let raw = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        Self { raw, owner: PhantomData }
    }

    /// Waits until `fd` can be read or written.
    pub fn readable_or_writable(fd: &'a impl AsFd) -> Self {
        let mut both = Self::readable(fd);
        both.raw.events |= libc::POLLOUT;
        both
    }

    /// Whether the last wait found it readable, closed or in error: reading tells which.
    pub fn is_ready(&self) -> bool {
        self.raw.revents != 0
    }
}

/// Most descriptors that [`wait`] takes; a [`Poller`] takes any number.
const WAIT_LIMIT: usize = 16;

/// Waits until one of `fds` (at most 16) is ready or `timeout` is over (`None`: without end), and
/// returns how many are ready. A signal ends the wait early with 0.
///
/// # Errors
/// `InvalidInput` for more than 16 descriptors; else what the system says.
pub fn wait(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let mut raw = [libc::pollfd { fd: -1, events: 0, revents: 0 }; WAIT_LIMIT];
    let Some(raw) = raw.get_mut(..fds.len()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "too many descriptors to wait for",
        ));
    };
    for (raw, fd) in raw.iter_mut().zip(fds.iter()) {
        *raw = fd.raw;
    }
    let ready = uninterrupted(sys::poll(raw, timeout))?;
    for (fd, raw) in fds.iter_mut().zip(raw.iter()) {
        fd.raw.revents = if ready == 0 { 0 } else { raw.revents };
    }
    Ok(ready)
}

/// An interrupted wait found nothing ready.
fn uninterrupted(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        other => other,
    }
}

/// Waits for any number of descriptors (epoll, level-triggered). Needs Linux 5.11.
#[derive(Debug)]
pub struct Poller(OwnedFd);

/// What [`Poller::wait`] found, in memory made once and used again.
pub struct Events {
    memory: Vec<libc::epoll_event>,
    filled: usize,
}

/// One ready descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token it was added with.
    pub token: u64,
    /// It can be read (or has been closed, or is in error: reading tells which).
    pub readable: bool,
    /// It can be written (asked for by [`Poller::set_writable`]).
    pub writable: bool,
}

impl Events {
    /// Memory for up to `capacity` (at least 1) events a wait; the others come with the next.
    pub fn with_capacity(capacity: usize) -> Self {
        let empty = libc::epoll_event { events: 0, u64: 0 };
        Self { memory: vec![empty; capacity.max(1)], filled: 0 }
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.memory[..self.filled].iter().map(|raw| {
            let events = { raw.events } as i32;
            Event {
                token: raw.u64,
                readable: events & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) != 0,
                writable: events & (libc::EPOLLOUT | libc::EPOLLERR) != 0,
            }
        })
    }
}

impl Poller {
    /// A poller without descriptors.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        sys::epoll().map(Self)
    }

    /// Reports `fd` under `token` whenever it can be read. A closed descriptor leaves by itself,
    /// unless a clone of it lives on.
    ///
    /// # Errors
    /// `AlreadyExists`, or what the system says.
    pub fn add(&self, fd: &impl AsFd, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, token)
    }

    /// Reports `fd` also whenever it can be written, or no more.
    ///
    /// # Errors
    /// `NotFound` for one that was not added, or what the system says.
    pub fn set_writable(&self, fd: &impl AsFd, token: u64, on: bool) -> io::Result<()> {
        let out = if on { libc::EPOLLOUT } else { 0 };
        self.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN | out, token)
    }

    /// Reports `fd` no more.
    ///
    /// # Errors
    /// `NotFound` for one that was not added, or what the system says.
    pub fn remove(&self, fd: &impl AsFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, op: i32, fd: &impl AsFd, events: i32, token: u64) -> io::Result<()> {
        sys::epoll_control(self.0.as_fd(), op, fd.as_fd().as_raw_fd(), events as u32, token)
    }

    /// Waits until a descriptor is ready or `timeout` is over (`None`: without end), and returns
    /// how many `events` holds now. A signal ends the wait early with 0.
    ///
    /// # Errors
    /// What the system says; a kernel before 5.11 lacks the call.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.filled = 0;
        events.filled =
            uninterrupted(sys::epoll_wait(self.0.as_fd(), &mut events.memory, timeout))?;
        Ok(events.filled)
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn a_waker_wakes_a_waiting_thread_once_for_many_wakes() {
        let waker = Arc::new(Waker::new().unwrap());
        let other = Arc::clone(&waker);
        let thread = std::thread::spawn(move || {
            other.wake();
            other.wake();
        });
        let mut fds = [PollFd::readable(&*waker)];
        assert_eq!(wait(&mut fds, None).unwrap(), 1);
        assert!(fds[0].is_ready());
        thread.join().unwrap();
        assert!(waker.drain());
        assert!(!waker.drain());
        assert_eq!(wait(&mut fds, Some(Duration::ZERO)).unwrap(), 0);
        assert!(!fds[0].is_ready());
    }

    #[test]
    fn whatever_is_handed_over_before_a_wake_is_found_after_the_drain() {
        const ALL: u32 = 50_000;
        let waker = Arc::new(Waker::new().unwrap());
        let (sender, receiver) = std::sync::mpsc::sync_channel(8);
        let other = Arc::clone(&waker);
        let thread = std::thread::spawn(move || {
            for n in 0..ALL {
                sender.send(n).unwrap();
                other.wake();
            }
        });
        let mut next = 0;
        while next < ALL {
            let mut fds = [PollFd::readable(&*waker)];
            let ready = wait(&mut fds, Some(Duration::from_secs(20))).unwrap();
            assert_eq!(ready, 1, "number {next} was handed over and nobody woke");
            waker.drain();
            for n in receiver.try_iter() {
                assert_eq!(n, next);
                next += 1;
            }
        }
        thread.join().unwrap();
    }

    #[test]
    fn wait_tells_which_is_ready_and_refuses_too_many() {
        let (a, b) = (Waker::new().unwrap(), Waker::new().unwrap());
        b.wake();
        let mut fds = [PollFd::readable(&a), PollFd::readable(&b)];
        assert_eq!(wait(&mut fds, None).unwrap(), 1);
        assert_eq!(fds.map(|f| f.is_ready()), [false, true]);
        let mut many = [PollFd::readable(&a); WAIT_LIMIT + 1];
        assert_eq!(wait(&mut many, None).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn the_poller_reports_tokens_of_the_ready_ones_only() {
        let poller = Poller::new().unwrap();
        let wakers: Vec<_> = (0..2000).map_while(|_| Waker::new().ok()).collect();
        assert!(wakers.len() > 500, "descriptors ran out at {}", wakers.len());
        for (i, waker) in wakers.iter().enumerate() {
            poller.add(waker, i as u64).unwrap();
        }
        let again = poller.add(&wakers[0], 0).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let mut events = Events::with_capacity(64);
        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
        wakers[3].wake();
        wakers[400].wake();
        assert_eq!(poller.wait(&mut events, None).unwrap(), 2);
        let mut tokens: Vec<_> = events.iter().map(|e| e.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [3, 400]);
        assert!(events.iter().all(|e| e.readable && !e.writable));

        poller.remove(&wakers[3]).unwrap();
        poller.set_writable(&wakers[400], 9, true).unwrap();
        wakers[400].drain();
        assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
        let event = Event { token: 9, readable: false, writable: true };
        assert_eq!(events.iter().next(), Some(event));
        assert_eq!(poller.remove(&wakers[3]).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn timeouts_are_finer_than_a_millisecond_and_never_early() {
        crate::thread::set_timer_slack(Duration::from_nanos(1)).unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(1));
        let timeout = Duration::from_micros(200);
        let mut shortest = Duration::MAX;
        for _ in 0..200 {
            let start = Instant::now();
            assert_eq!(poller.wait(&mut events, Some(timeout)).unwrap(), 0);
            let waited = start.elapsed();
            assert!(waited >= timeout, "woke after {waited:?}");
            shortest = shortest.min(waited);
        }
        // The best of many, so that a busy machine does not matter.
        assert!(shortest < Duration::from_millis(1), "never under {shortest:?}");
    }
}
