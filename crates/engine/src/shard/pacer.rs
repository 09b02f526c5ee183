//! Pictures leave in bursts that a path can take. What goes beyond a burst waits here for the next
//! one, at most about 20 ms. Sound never waits. The pacer only notes which packets wait: their bytes
//! are in their tracks' histories, and they are numbered and sealed when they leave.
//!
//! On a path that carries less than twice what could flow, packets leave evenly, a little faster than
//! the path is estimated to carry. On any other, a burst is what 5 ms bring at 2.5 times the
//! receiver's rate of the last second, as in libwebrtc's pacer, and never less than
//! [`LEAST_BURST_BYTES`]. Pictures that come evenly never wait; a keyframe is spread.

use crate::command::StreamKey;
use crate::limits::{
    BURST_INTERVAL, BURSTS_AT_MOST, LEAST_BURST_BYTES, PACED_AT_MOST, PACED_LEAST_BYTES,
    PACED_PACKETS, PACING_FACTOR, PACING_WINDOW,
};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What waits for the receiver's next burst.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub track: StreamKey,
    pub slot: usize,
    /// Its number, as its publisher counts.
    pub index: u64,
    pub brings: Brings,
}

/// What leaves when its turn comes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Brings {
    /// A packet of the track.
    Packet(WaitingPacket),
    /// Nothing: the number brought only padding, and the slot uses none for it.
    Nothing,
    /// The packet that left the slot with this sequence number, again, in at most `len` bytes.
    Again { sequence: u16, len: usize },
    /// Nothing any more: its track was muted. It is counted in its turn.
    Withdrawn,
}

impl Waiting {
    /// A number that brings nothing.
    pub(super) fn nothing(track: StreamKey, slot: usize, index: u64) -> Self {
        Self { track, slot, index, brings: Brings::Nothing }
    }

    /// Most bytes that will leave.
    fn len(&self) -> usize {
        match self.brings {
            Brings::Packet(WaitingPacket { len, .. }) | Brings::Again { len, .. } => len,
            Brings::Nothing | Brings::Withdrawn => 0,
        }
    }
}

/// What was found out about a packet when it came.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingPacket {
    pub begins: bool,
    pub repaired: bool,
    /// Bytes to be added to make it as long as its neighbours.
    pub padding: u8,
    /// Most bytes that will leave.
    pub len: usize,
}

/// The bursts to one receiver. The fields that every packet needs come first: they lie in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Pacer {
    /// When the present burst began.
    began: Instant,
    /// Its bytes so far.
    sent: usize,
    /// Its bytes at most.
    most: usize,
    waiting: VecDeque<Waiting>,
    /// Most bytes of a burst, by the rate of the last second.
    usual: usize,
    /// Since when `bytes` were counted.
    counted_since: Instant,
    bytes: usize,
    waiting_bytes: usize,
    /// Most bytes that waited since something began to wait.
    peak: usize,
    /// Bytes that left before the present burst, in all.
    before: u64,
    /// Bytes that were sent again, in all.
    again: u64,
    /// How fast packets leave on a path that carries little more, in bits a second.
    limit: Option<u64>,
    /// On such a path: bytes that left beyond earlier bursts, and are taken off the next ones.
    debt: usize,
}

impl Pacer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            sent: 0,
            most: LEAST_BURST_BYTES,
            usual: LEAST_BURST_BYTES,
            counted_since: now,
            bytes: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            peak: 0,
            before: 0,
            again: 0,
            limit: None,
            debt: 0,
        }
    }

    /// From the next burst on packets leave so fast, in bits a second. None: in bursts that most paths take.
    pub(super) fn limit(&mut self, bps: Option<u64>) {
        self.limit = bps;
    }

    /// Whether the next packet must wait.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.is_waiting() || self.sent + self.debt >= self.most
    }

    /// Whether something waits.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// `len` bytes left.
    #[inline]
    pub(super) fn count(&mut self, len: usize) {
        self.sent += len;
    }

    /// `len` bytes were sent again.
    pub(super) fn count_again(&mut self, len: usize) {
        self.count(len);
        self.again += len as u64;
    }

    /// Bytes of pictures that have left so far, without those that were sent again.
    pub(super) fn media(&self) -> u64 {
        self.before + self.sent as u64 - self.again
    }

    /// Whether so many more packets can wait.
    pub(super) fn has_room(&self, packets: usize) -> bool {
        let late = self.limit.is_some_and(|bps| {
            self.waiting_bytes > bytes(bps, PACED_AT_MOST).max(PACED_LEAST_BYTES)
        });
        self.waiting.len() + packets <= PACED_PACKETS && !late
    }

    /// Begins the next burst, if it is due. Says whether it was.
    #[inline]
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        let due = now.saturating_duration_since(self.began) >= BURST_INTERVAL;
        if due {
            self.begin(now);
        }
        due
    }

    fn begin(&mut self, now: Instant) {
        self.bytes += self.sent;
        self.before += self.sent as u64;
        let counted = now.saturating_duration_since(self.counted_since);
        if counted >= PACING_WINDOW {
            let bytes_per_s = self.bytes as f64 / counted.as_secs_f64();
            let burst = PACING_FACTOR * bytes_per_s * BURST_INTERVAL.as_secs_f64();
            self.usual = (burst as usize).max(LEAST_BURST_BYTES);
            (self.counted_since, self.bytes) = (now, 0);
        }
        let passed = now.saturating_duration_since(self.began);
        let sent = std::mem::take(&mut self.sent);
        self.began = now;
        (self.most, self.debt) = match self.limit {
            None => (self.usual.max(self.peak.div_ceil(BURSTS_AT_MOST)), 0),
            Some(bps) => {
                let allowed = bytes(bps, passed);
                (bytes(bps, BURST_INTERVAL).max(1), (self.debt + sent).saturating_sub(allowed))
            }
        };
    }

    /// When the next burst may leave, if something waits for it.
    pub(super) fn due(&self) -> Option<Instant> {
        self.is_waiting().then(|| self.began + BURST_INTERVAL)
    }

    /// Lets a packet wait. Says whether there was room.
    pub(super) fn wait(&mut self, waiting: Waiting) -> bool {
        let room = self.has_room(1);
        if room {
            self.waiting_bytes += waiting.len();
            self.peak = self.peak.max(self.waiting_bytes);
            self.waiting.push_back(waiting);
        }
        room
    }

    /// Whether the packet that a slot begins this track with waits here.
    pub(super) fn begins(&self, slot: usize, track: StreamKey) -> bool {
        let begins = |brings| matches!(brings, Brings::Packet(p) if p.begins && !p.repaired);
        self.waiting.iter().any(|w| (w.slot, w.track) == (slot, track) && begins(w.brings))
    }

    /// Takes the next of what waits, if the present burst is not full.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        if self.sent + self.debt >= self.most {
            return None;
        }
        let next = self.waiting.pop_front();
        self.waiting_bytes -= next.as_ref().map_or(0, Waiting::len);
        if self.waiting.is_empty() {
            self.peak = 0;
        }
        next
    }

    /// Takes the next of what waits, however much left: for a probe.
    pub(super) fn next_at_once(&mut self) -> Option<Waiting> {
        let most = std::mem::replace(&mut self.most, usize::MAX);
        let next = self.next();
        self.most = most;
        next
    }

    /// Nothing that waits of a track leaves.
    pub(super) fn withdraw(&mut self, track: StreamKey) {
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.track == track) {
            waiting.brings = Brings::Withdrawn;
        }
        self.waiting_bytes = self.waiting.iter().map(Waiting::len).sum();
        self.peak = self.waiting_bytes;
    }
}

fn bytes(bps: u64, time: Duration) -> usize {
    (bps as f64 / 8.0 * time.as_secs_f64()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::TrackKey;

    fn waiting(index: u64, len: usize) -> Waiting {
        let packet = WaitingPacket { begins: false, repaired: false, padding: 0, len };
        Waiting { track: TrackKey(1).stream(), slot: 0, index, brings: Brings::Packet(packet) }
    }

    /// What leaves in each of the bursts after the first until nothing waits.
    fn bursts(pacer: &mut Pacer, mut now: Instant) -> Vec<usize> {
        let mut bursts = Vec::new();
        while pacer.is_waiting() {
            assert_eq!(pacer.due(), Some(now + BURST_INTERVAL));
            assert!(!pacer.turn(now + BURST_INTERVAL / 2), "not yet");
            now += BURST_INTERVAL;
            assert!(pacer.turn(now));
            let mut left = 0;
            while let Some(next) = pacer.next() {
                let len = next.len();
                pacer.count(len);
                left += len;
            }
            bursts.push(left);
        }
        bursts
    }

    /// A picture of so many packets of 1000 bytes comes at once.
    fn offer(pacer: &mut Pacer, packets: u64) -> usize {
        let mut at_once = 0;
        for index in 0..packets {
            if !pacer.is_full() {
                pacer.count(1000);
                at_once += 1000;
            } else {
                assert!(pacer.wait(waiting(index, 1000)));
            }
        }
        at_once
    }

    #[test]
    fn a_picture_is_spread_and_nothing_waits_longer_than_four_bursts() {
        let start = Instant::now();
        for packets in [10, 26, 60, 150, 900] {
            let mut pacer = Pacer::new(start);
            let first = offer(&mut pacer, packets);
            assert!(first <= LEAST_BURST_BYTES + 1000);
            let later = bursts(&mut pacer, start);
            assert!(later.len() <= BURSTS_AT_MOST, "{packets} packets in {later:?}");
            assert_eq!(first + later.iter().sum::<usize>(), packets as usize * 1000);
            let most = LEAST_BURST_BYTES.max(packets as usize * 1000 / BURSTS_AT_MOST) + 1000;
            assert!(later.iter().all(|left| *left <= most), "{packets} packets in {later:?}");
        }
    }

    #[test]
    fn bursts_grow_with_what_leaves_and_shrink_again() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start);
        // 80 Mbit/s: 50 kB in 5 ms, and two and a half times as much may leave.
        for n in 0..=210 {
            pacer.turn(start + BURST_INTERVAL * n);
            pacer.count(50_000);
        }
        assert!(pacer.usual.abs_diff(125_000) < 2000, "{}", pacer.usual);
        for n in 211..=650 {
            pacer.turn(start + BURST_INTERVAL * n);
            pacer.count(100);
        }
        assert_eq!(pacer.usual, LEAST_BURST_BYTES);
    }

    #[test]
    fn what_waits_is_bounded_and_can_be_forgotten() {
        let mut pacer = Pacer::new(Instant::now());
        pacer.count(LEAST_BURST_BYTES);
        for index in 0..PACED_PACKETS as u64 {
            assert!(pacer.wait(waiting(index, 10)));
        }
        assert!(!pacer.wait(waiting(7, 10)), "full");
        pacer.withdraw(TrackKey(2).stream());
        assert_eq!(pacer.waiting_bytes, 10 * PACED_PACKETS);
        pacer.withdraw(TrackKey(1).stream());
        assert_eq!((pacer.is_waiting(), pacer.waiting_bytes), (true, 0));
        assert!(pacer.turn(pacer.began + BURST_INTERVAL));
        let left = std::iter::from_fn(|| pacer.next());
        let withdrawn = left.filter(|next| matches!(next.brings, Brings::Withdrawn)).count();
        assert_eq!((withdrawn, pacer.due()), (PACED_PACKETS, None), "all in one burst");
    }
}
