//! Sending: datagrams are written into one arena and leave by `sendmmsg`, runs of equal size to
//! one destination as one GSO message.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{AddAssign, Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use crate::socket::UdpBatchSocket;
use crate::sys::{self, MESSAGES_PER_CALL, Outgoing};

/// Most bytes of one datagram in a [`SendBatch`].
pub const MAX_DATAGRAM: usize = 1500;
/// Most datagrams in one GSO message (`UDP_MAX_SEGMENTS` of older kernels).
const GSO_SEGMENTS: u16 = 64;
/// Most bytes in one GSO message: an IPv4 datagram's payload.
const GSO_BYTES: usize = 65_507;
/// How long one flush may wait, in all, for room in the send buffer.
const BLOCKED_LIMIT: Duration = Duration::from_millis(1);

/// Datagrams to send, bounded, in memory made once and used again. One batch serves any number
/// of sockets in turn.
pub struct SendBatch {
    arena: Vec<u8>,
    used: usize,
    queued: Vec<Queued>,
    capacity: usize,
    messages: Vec<Outgoing>,
    gso: bool,
    lent: Option<SocketAddr>,
    /// The kernel's send buffer was full when it was tried last.
    blocked: bool,
}

#[derive(Clone, Copy)]
struct Queued {
    src: Option<Ipv4Addr>,
    dst: SocketAddr,
    len: u16,
}

/// What became of the datagrams of one or more [flushes](SendBatch::flush):
/// `sent + failed + send_buffer_full` is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushReport {
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams refused for their destination's sake (unreachable, not permitted…).
    pub failed: u64,
    /// Datagrams dropped because the send buffer stayed full.
    pub send_buffer_full: u64,
    /// GSO messages that the kernel took; their datagrams are in `sent`.
    pub gso_messages: u64,
    /// GSO messages that it refused and that went out singly instead.
    pub gso_fallbacks: u64,
    /// The last error number (`errno`) counted in `failed`.
    pub last_errno: Option<i32>,
    /// Of `send_buffer_full`: those at the end that were not tried any more.
    left: u64,
}

impl AddAssign for FlushReport {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.failed += other.failed;
        self.send_buffer_full += other.send_buffer_full;
        self.gso_messages += other.gso_messages;
        self.gso_fallbacks += other.gso_fallbacks;
        self.last_errno = other.last_errno.or(self.last_errno);
    }
}

/// Room for one datagram in the batch: [`MAX_DATAGRAM`] bytes with arbitrary content. Dropped
/// without [`commit`](Self::commit), nothing is sent.
pub struct Slot<'a> {
    batch: &'a mut SendBatch,
    src: Option<Ipv4Addr>,
    dst: SocketAddr,
}

impl Deref for Slot<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.batch.arena[self.batch.used..][..MAX_DATAGRAM]
    }
}

impl DerefMut for Slot<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.batch.arena[self.batch.used..][..MAX_DATAGRAM]
    }
}

impl Slot<'_> {
    /// Queues the first `len` bytes.
    ///
    /// # Panics
    /// `len` is over [`MAX_DATAGRAM`]: like an index past the slot's end, a fault of the caller.
    #[inline]
    pub fn commit(self, len: usize) {
        assert!(len <= MAX_DATAGRAM, "a slot holds {MAX_DATAGRAM} bytes, not {len}");
        let (src, dst) = (self.src, self.dst);
        self.batch.queued.push(Queued { src, dst, len: len as u16 });
        self.batch.used += len;
    }
}

impl SendBatch {
    /// Memory for `capacity` datagrams (at least 1).
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            arena: vec![0; capacity * MAX_DATAGRAM],
            used: 0,
            queued: Vec::with_capacity(capacity),
            capacity,
            messages: Vec::with_capacity(capacity),
            gso: true,
            lent: None,
            blocked: false,
        }
    }

    /// Turns segmentation by the kernel off or on (it is on): off suits a path where
    /// [`gso_fallbacks`](FlushReport::gso_fallbacks) keeps growing.
    pub fn set_gso(&mut self, on: bool) {
        self.gso = on;
    }

    /// Room for the next datagram, to `dst`; `None` when the batch is full and must be flushed.
    pub fn slot(&mut self, dst: SocketAddr) -> Option<Slot<'_>> {
        self.slot_from(None, dst)
    }

    /// Like [`Self::slot`], from the own address `src` where one is given, on a socket bound to
    /// `0.0.0.0`.
    #[inline]
    pub fn slot_from(&mut self, src: Option<Ipv4Addr>, dst: SocketAddr) -> Option<Slot<'_>> {
        (self.queued.len() < self.capacity).then_some(Slot { batch: self, src, dst })
    }

    /// Like [`Self::slot`] for callers that cannot hold the slot until they know its length: what
    /// is written counts from [`Self::commit_lent`] on, and is lent again without it.
    #[inline]
    pub fn lend(&mut self, dst: SocketAddr) -> Option<&mut [u8]> {
        self.lent = None;
        if self.is_full() {
            return None;
        }
        self.lent = Some(dst);
        Some(&mut self.arena[self.used..][..MAX_DATAGRAM])
    }

    /// Queues the first `len` bytes of what was lent last; nothing where nothing is lent.
    ///
    /// # Panics
    /// `len` is over [`MAX_DATAGRAM`].
    #[inline]
    pub fn commit_lent(&mut self, len: usize) {
        if let Some(dst) = self.lent.take() {
            Slot { batch: self, src: None, dst }.commit(len);
        }
    }

    /// Queues a copy of `data`; false, with nothing queued, when the batch is full or `data`
    /// longer than [`MAX_DATAGRAM`].
    #[must_use = "a datagram that does not fit is the caller's to count"]
    pub fn push(&mut self, dst: SocketAddr, data: &[u8]) -> bool {
        self.push_from(None, dst, data)
    }

    /// Like [`Self::push`], from the own address `src`: see [`Self::slot_from`].
    #[must_use = "a datagram that does not fit is the caller's to count"]
    #[inline]
    pub fn push_from(&mut self, src: Option<Ipv4Addr>, dst: SocketAddr, data: &[u8]) -> bool {
        if data.len() > MAX_DATAGRAM {
            return false;
        }
        let Some(mut slot) = self.slot_from(src, dst) else { return false };
        slot[..data.len()].copy_from_slice(data);
        slot.commit(data.len());
        true
    }

    /// Datagrams queued.
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether nothing is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Whether the next [`slot`](Self::slot) is `None`.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.queued.len() == self.capacity
    }

    /// Drops what is queued; returns how many datagrams that was.
    pub fn clear(&mut self) -> usize {
        let dropped = self.queued.len();
        self.queued.clear();
        (self.used, self.blocked) = (0, false);
        dropped
    }

    /// Sends what the kernel takes at once, and never waits: where its send buffer is full, what is left stays queued in
    /// order, and [`Self::is_blocked`] says so until a later call got rid of it. Else as [`Self::flush`].
    pub fn flush_now(&mut self, socket: &UdpBatchSocket) -> FlushReport {
        let v6 = socket.is_v6();
        self.flush_by(|arena, messages| sys::send(socket.as_fd(), v6, arena, messages))
    }

    /// Whether the kernel took not all that was queued: wait until the socket is writable.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether so much waits for the kernel that only half of the room is left.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.blocked && self.queued.len() * 2 >= self.capacity
    }

    fn flush_by(
        &mut self,
        mut send: impl FnMut(&[u8], &[Outgoing]) -> io::Result<usize>,
    ) -> FlushReport {
        if self.queued.is_empty() {
            return FlushReport::default();
        }
        self.plan();
        let arena = &self.arena[..self.used];
        let mut report = send_all(&mut self.messages, |messages| send(arena, messages), || false);
        let left = std::mem::take(&mut report.left) as usize;
        report.send_buffer_full -= left as u64;
        self.blocked = left > 0;
        if !self.blocked {
            self.clear();
            return report;
        }
        let gone = self.queued.len() - left;
        let bytes: usize = self.queued.drain(..gone).map(|gone| usize::from(gone.len)).sum();
        self.arena.copy_within(bytes..self.used, 0);
        self.used -= bytes;
        report
    }

    /// Sends all that is queued and leaves the batch empty. With a full send buffer it waits up
    /// to 1 ms in all and drops what is left then. An error of one message drops that message
    /// (a datagram, or a run of them to one destination) and the rest goes on.
    pub fn flush(&mut self, socket: &UdpBatchSocket) -> FlushReport {
        if self.queued.is_empty() {
            return FlushReport::default();
        }
        self.plan();
        let (arena, v6) = (&self.arena[..self.used], socket.is_v6());
        let mut blocked_since: Option<Instant> = None;
        let report = send_all(
            &mut self.messages,
            |messages| sys::send(socket.as_fd(), v6, arena, messages),
            || {
                let waited = blocked_since.get_or_insert_with(Instant::now).elapsed();
                let left = BLOCKED_LIMIT.saturating_sub(waited);
                !left.is_zero() && wait_writable(socket, left)
            },
        );
        self.clear();
        report
    }

    /// Groups the queue into messages: consecutive datagrams to one destination and of one size,
    /// of which the last may be shorter.
    fn plan(&mut self) {
        self.messages.clear();
        let mut start = 0;
        let mut open = false; // may the last message take one more?
        for datagram in &self.queued {
            let len = usize::from(datagram.len);
            match self.messages.last_mut() {
                Some(run)
                    if open
                        && run.dst == datagram.dst
                        && run.src == datagram.src
                        && (1..=run.segment).contains(&datagram.len)
                        && run.datagrams < GSO_SEGMENTS
                        && run.len + len <= GSO_BYTES =>
                {
                    run.len += len;
                    run.datagrams += 1;
                    open = datagram.len == run.segment;
                }
                _ => {
                    let Queued { src, dst, len: segment } = *datagram;
                    self.messages.push(Outgoing { src, dst, start, len, segment, datagrams: 1 });
                    open = self.gso && len > 0;
                }
            }
            start += len;
        }
    }
}

fn wait_writable(socket: &UdpBatchSocket, timeout: Duration) -> bool {
    let mut fds = [libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 }];
    match sys::poll(&mut fds, Some(timeout)) {
        Ok(ready) => ready > 0,
        // The next try finds out, and the time limit holds.
        Err(e) => e.kind() == io::ErrorKind::Interrupted,
    }
}

/// Sends `messages` in order by `send`, which says how many of the front it took or why it
/// refused the first; `unblock` waits for room and says whether to try again.
fn send_all(
    messages: &mut Vec<Outgoing>,
    mut send: impl FnMut(&[Outgoing]) -> io::Result<usize>,
    mut unblock: impl FnMut() -> bool,
) -> FlushReport {
    let mut report = FlushReport::default();
    let mut next = 0;
    while next < messages.len() {
        let end = messages.len().min(next + MESSAGES_PER_CALL);
        let error = match send(&messages[next..end]) {
            Ok(count) => {
                let taken = &messages[next..(next + count).min(end)];
                report.sent += taken.iter().map(|m| u64::from(m.datagrams)).sum::<u64>();
                report.sent_bytes += taken.iter().map(|m| m.len as u64).sum::<u64>();
                report.gso_messages += taken.iter().filter(|m| m.datagrams > 1).count() as u64;
                next += taken.len();
                continue;
            }
            Err(error) => error,
        };
        let refused = messages[next];
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => {
                if !unblock() {
                    report.left = messages[next..].iter().map(|m| u64::from(m.datagrams)).sum();
                    report.send_buffer_full += report.left;
                    break;
                }
            }
            // The device cannot checksum (EIO), or the segment is over the path's MTU.
            Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE) if refused.datagrams > 1 => {
                report.gso_fallbacks += 1;
                messages.splice(next..=next, singly(refused));
            }
            // The queue of the device is full; the socket's buffer may have room for the next.
            Some(libc::ENOBUFS) => {
                report.send_buffer_full += u64::from(refused.datagrams);
                next += 1;
            }
            errno => {
                report.failed += u64::from(refused.datagrams);
                report.last_errno = errno.or(report.last_errno);
                next += 1;
            }
        }
    }
    report
}

/// The datagrams of a GSO message as one message each.
fn singly(run: Outgoing) -> impl Iterator<Item = Outgoing> {
    let size = usize::from(run.segment);
    (0..usize::from(run.datagrams)).map(move |i| {
        let len = (run.len - i * size).min(size);
        let (start, segment) = (run.start + i * size, len as u16);
        Outgoing { start, len, segment, datagrams: 1, ..run }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn port(n: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], n))
    }

    fn planned(gso: bool, datagrams: &[(u16, usize)]) -> Vec<(u16, usize, usize, u16)> {
        let mut batch = SendBatch::new(2000);
        batch.set_gso(gso);
        for &(dst, len) in datagrams {
            assert!(batch.push(port(dst), &vec![1; len]));
        }
        batch.plan();
        batch.messages.iter().map(|m| (m.dst.port(), m.start, m.len, m.datagrams)).collect()
    }

    #[test]
    fn runs_end_at_a_new_destination_a_shorter_or_a_longer_datagram() {
        let queue = [(1, 100), (1, 100), (1, 60), (1, 60), (1, 70), (2, 70), (2, 70), (1, 70)];
        assert_eq!(
            planned(true, &queue),
            [(1, 0, 260, 3), (1, 260, 60, 1), (1, 320, 70, 1), (2, 390, 140, 2), (1, 530, 70, 1)]
        );
        assert_eq!(planned(false, &queue).len(), queue.len());
        assert_eq!(planned(true, &[(1, 0), (1, 0), (1, 5)]).len(), 3, "empty ones stand alone");
    }

    #[test]
    fn runs_keep_within_the_kernels_limits() {
        let small: Vec<_> = planned(true, &[(1, 10); 150]).iter().map(|m| m.3).collect();
        assert_eq!(small, [64, 64, 22]);
        let large = planned(true, &[(1, 1500); 100]);
        assert!(large.iter().all(|m| m.2 <= GSO_BYTES));
        assert_eq!(large.iter().map(|m| m.3).collect::<Vec<_>>(), [43, 43, 14]);
    }

    #[test]
    fn the_batch_is_bounded_and_a_dropped_slot_sends_nothing() {
        let mut batch = SendBatch::new(2);
        let _ = batch.slot(port(1)).unwrap();
        assert!(batch.is_empty());
        assert!(!batch.push(port(1), &[0; MAX_DATAGRAM + 1]));
        assert!(batch.push(port(1), &[0; MAX_DATAGRAM]) && batch.push(port(1), &[0; MAX_DATAGRAM]));
        assert!(batch.is_full() && batch.slot(port(1)).is_none() && !batch.push(port(1), &[]));
        assert_eq!((batch.clear(), batch.len()), (2, 0));
    }

    /// Plays `script` (a count taken or an errno) to `send_all`, then takes one message a call.
    fn run(
        datagrams: &[(u16, usize)],
        script: &[Result<usize, i32>],
        unblock: impl FnMut() -> bool,
    ) -> (FlushReport, Vec<Outgoing>) {
        let mut batch = SendBatch::new(100);
        for &(dst, len) in datagrams {
            assert!(batch.push(port(dst), &vec![0; len]));
        }
        batch.plan();
        let mut script: VecDeque<_> = script.iter().copied().collect();
        let mut taken = Vec::new();
        let report = send_all(
            &mut batch.messages,
            |messages| match script.pop_front().unwrap_or(Ok(1)) {
                Ok(count) => {
                    taken.extend_from_slice(&messages[..count]);
                    Ok(count)
                }
                Err(errno) => Err(io::Error::from_raw_os_error(errno)),
            },
            unblock,
        );
        (report, taken)
    }

    #[test]
    fn a_refused_gso_message_goes_out_singly() {
        for errno in [libc::EIO, libc::EINVAL, libc::EMSGSIZE] {
            let queue = [(1, 9), (2, 50), (2, 50), (2, 20), (3, 9)];
            let (report, taken) = run(&queue, &[Ok(1), Err(errno)], || false);
            assert_eq!((report.sent, report.sent_bytes, report.failed), (5, 138, 0));
            assert_eq!((report.gso_messages, report.gso_fallbacks), (0, 1));
            let layout: Vec<_> = taken.iter().map(|m| (m.dst.port(), m.start, m.len)).collect();
            assert_eq!(layout, [(1, 0, 9), (2, 9, 50), (2, 59, 50), (2, 109, 20), (3, 129, 9)]);
        }
    }

    #[test]
    fn an_error_of_one_destination_spares_the_others() {
        for errno in [libc::ECONNREFUSED, libc::EPERM, libc::ENETUNREACH, libc::EINVAL] {
            let (report, taken) = run(&[(1, 9), (2, 9), (3, 9)], &[Ok(1), Err(errno)], || false);
            assert_eq!((report.sent, report.failed, report.last_errno), (2, 1, Some(errno)));
            assert_eq!(taken.iter().map(|m| m.dst.port()).collect::<Vec<_>>(), [1, 3]);
        }
    }

    #[test]
    fn what_the_kernel_does_not_take_at_once_stays_in_order() {
        let mut batch = SendBatch::new(8);
        let mut sent: Vec<u8> = Vec::new();
        let mut room = 0;
        let put = |batch: &mut SendBatch, fill: u8| {
            assert!(batch.push(port(u16::from(fill % 3)), &vec![fill; 10 + usize::from(fill)]));
        };
        let flush = |batch: &mut SendBatch, room: &mut usize, sent: &mut Vec<u8>| {
            batch.flush_by(|arena, messages| {
                let Some(message) = messages.first().filter(|_| *room > 0) else {
                    return Err(io::Error::from_raw_os_error(libc::EAGAIN));
                };
                *room -= 1;
                sent.push(arena[message.start]);
                assert_eq!(message.len, 10 + usize::from(arena[message.start]));
                Ok(1)
            })
        };
        (0..6).for_each(|fill| put(&mut batch, fill));
        room += 2;
        let report = flush(&mut batch, &mut room, &mut sent);
        assert_eq!((report.sent, report.send_buffer_full, report.failed), (2, 0, 0));
        assert!(batch.is_blocked() && batch.is_behind() && batch.len() == 4);
        (6..10).for_each(|fill| put(&mut batch, fill));
        assert!(batch.is_full() && batch.lend(port(1)).is_none(), "bounded");
        room += 7;
        flush(&mut batch, &mut room, &mut sent);
        assert!(batch.is_blocked() && !batch.is_behind() && batch.len() == 1);
        room += 1;
        flush(&mut batch, &mut room, &mut sent);
        assert_eq!(sent, (0..10).collect::<Vec<u8>>());
        assert!(!batch.is_blocked() && batch.is_empty());
    }

    #[test]
    fn a_full_send_buffer_is_waited_for_and_then_dropped_and_counted() {
        let queue = [(1, 9), (2, 9), (2, 9), (3, 9)];
        let full = Err(libc::EAGAIN);
        let (report, _) = run(&queue, &[Ok(1), full, full], || true);
        assert_eq!((report.sent, report.send_buffer_full), (4, 0));
        let mut patience = 1;
        let (report, taken) = run(&queue, &[Ok(1), full, full], || {
            patience -= 1;
            patience >= 0
        });
        assert_eq!((report.sent, report.send_buffer_full, report.failed), (1, 3, 0));
        assert_eq!(taken.len(), 1);
        let (report, _) = run(&queue, &[Err(libc::ENOBUFS), Err(libc::EINTR)], || false);
        assert_eq!((report.sent, report.send_buffer_full), (3, 1));
    }
}
