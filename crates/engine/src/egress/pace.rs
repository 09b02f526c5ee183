//! How fast pictures leave: in bursts that a path can take, five milliseconds apart. Sound never waits.
//!
//! Where an estimate of the path is known, packets leave a little faster than that: the more waits, the faster, up to
//! [`PACING_LIMITED`] times the estimate. On an ample path a burst may be longer, as far as it makes a short queue. Where
//! nothing is known, a burst is what 5 ms bring at 2.5 times the receiver's rate of the last second, as in libwebrtc's
//! pacer, and never less than [`LEAST_BURST_BYTES`].

use crate::limits::{
    BURST_INTERVAL, BURST_QUEUE, BURSTS_AT_MOST, LEAST_BURST_BYTES, PACED_AIM, PACING_FACTOR,
    PACING_LIMITED, PACING_WINDOW,
};
use std::time::{Duration, Instant};

/// How fast packets may leave on a path of which something is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    /// What the path carries of pictures, in bits a second.
    bps: u64,
    /// Bytes that may leave at once.
    depth: usize,
    /// What leaves in a second at most, in bits.
    most_bps: u64,
}

impl Limit {
    /// That of a path which carries so many bits of pictures a second; None if bursts of the usual size are short there. An
    /// `ample` path takes longer bursts.
    pub(super) fn of(bps: u64, ample: bool) -> Option<Self> {
        let depth = bytes(bps, BURST_QUEUE);
        let wide = ample && bytes(bps, BURST_INTERVAL) >= LEAST_BURST_BYTES;
        let depth = if ample { depth.min(LEAST_BURST_BYTES) } else { 0 };
        let most_bps = (bps as f64 * PACING_LIMITED) as u64;
        (!wide).then_some(Self { bps: bps.max(1), depth, most_bps })
    }

    /// The same without haste, however much waits: a queue stands in the path already.
    pub(super) fn without_haste(self) -> Self {
        Self { most_bps: self.bps, ..self }
    }

    /// Bytes of a burst at this rate.
    fn burst(self, bps: u64) -> usize {
        bytes(bps, BURST_INTERVAL).max(self.depth).max(1)
    }

    /// How fast packets leave if so many bytes wait, in bits a second: so that they leave within [`PACED_AIM`], where that is
    /// not too fast.
    fn rate_bps(self, queued: usize) -> u64 {
        let aim = (queued as f64 * 8.0 / PACED_AIM.as_secs_f64()) as u64;
        aim.clamp(self.bps, self.most_bps.max(self.bps))
    }
}

/// The bursts to one receiver.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Pace {
    /// When the present burst began.
    pub began: Instant,
    /// Its bytes so far.
    sent: usize,
    /// Its bytes at most.
    most: usize,
    /// On a limited path: bytes that left beyond earlier bursts, and are taken off the next ones.
    debt: usize,
    /// Most bytes of a burst, by the rate of the last second.
    usual: usize,
    /// Since when `bytes` were counted.
    counted_since: Instant,
    bytes: usize,
    /// Bytes that left before the present burst, in all.
    before: u64,
    /// Bytes that were sent again, in all.
    again: u64,
    limit: Option<Limit>,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            sent: 0,
            most: LEAST_BURST_BYTES,
            debt: 0,
            usual: LEAST_BURST_BYTES,
            counted_since: now,
            bytes: 0,
            before: 0,
            again: 0,
            limit: None,
        }
    }

    /// From the next burst on packets leave so. None: in bursts that most paths take.
    pub(super) fn limit(&mut self, limit: Option<Limit>) {
        self.limit = limit;
    }

    /// The same from the present burst on.
    pub(super) fn begin_with(&mut self, limit: Option<Limit>) {
        self.limit = limit;
        self.most = limit.map_or(LEAST_BURST_BYTES, |limit| limit.burst(limit.bps));
    }

    /// What leaves in a second at most, in bits; None if that is not limited.
    #[inline]
    pub(super) fn most_bps(&self) -> Option<u64> {
        self.limit.map(|limit| limit.most_bps)
    }

    /// Whether the present burst is full.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.sent + self.debt >= self.most
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

    /// Bytes that were sent again so far.
    pub(super) fn again(&self) -> u64 {
        self.again
    }

    /// Begins the next burst, if it is due: so many bytes wait, and so many at most since something began to wait. Says
    /// whether it was.
    #[inline]
    pub(super) fn turn(&mut self, now: Instant, queued: usize, peak: usize) -> bool {
        let due = now.saturating_duration_since(self.began) >= BURST_INTERVAL;
        if due {
            self.begin(now, queued, peak);
        }
        due
    }

    fn begin(&mut self, now: Instant, queued: usize, peak: usize) {
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
            None => (self.usual.max(peak.div_ceil(BURSTS_AT_MOST)), 0),
            Some(limit) => {
                let bps = limit.rate_bps(queued);
                let debt = (self.debt + sent).saturating_sub(bytes(bps, passed));
                (limit.burst(bps), debt)
            }
        };
    }

    /// When the next burst may leave.
    pub(super) fn due(&self) -> Instant {
        self.began + BURST_INTERVAL
    }
}

fn bytes(bps: u64, time: Duration) -> usize {
    (bps as f64 / 8.0 * time.as_secs_f64()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What leaves in each of the bursts after the first, if so many packets of 1000 bytes wait.
    fn bursts(pace: &mut Pace, mut waiting: usize, mut now: Instant) -> Vec<usize> {
        let (mut bursts, peak) = (Vec::new(), 1000 * waiting);
        while waiting > 0 {
            assert!(!pace.turn(now + BURST_INTERVAL / 2, 1000 * waiting, peak), "not yet");
            now += BURST_INTERVAL;
            assert!(pace.turn(now, 1000 * waiting, peak));
            let mut left = 0;
            while waiting > 0 && !pace.is_full() {
                pace.count(1000);
                (waiting, left) = (waiting - 1, left + 1000);
            }
            bursts.push(left);
        }
        bursts
    }

    /// A picture of so many packets of 1000 bytes comes at once. How many of them have to wait.
    fn offer(pace: &mut Pace, packets: usize) -> usize {
        let at_once = (0..packets).take_while(|_| {
            let leaves = !pace.is_full();
            pace.count(if leaves { 1000 } else { 0 });
            leaves
        });
        packets - at_once.count()
    }

    #[test]
    fn a_picture_is_spread_and_nothing_waits_longer_than_four_bursts() {
        let start = Instant::now();
        for packets in [10, 26, 60, 150, 900] {
            let mut pace = Pace::new(start);
            let waiting = offer(&mut pace, packets);
            assert!((packets - waiting) * 1000 <= LEAST_BURST_BYTES + 1000);
            let later = bursts(&mut pace, waiting, start);
            assert!(later.len() <= BURSTS_AT_MOST, "{packets} packets in {later:?}");
            let most = LEAST_BURST_BYTES.max(packets * 1000 / BURSTS_AT_MOST) + 1000;
            assert!(later.iter().all(|left| *left <= most), "{packets} packets in {later:?}");
        }
    }

    #[test]
    fn bursts_grow_with_what_leaves_and_shrink_again() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        // 80 Mbit/s: 50 kB in 5 ms, and two and a half times as much may leave.
        for n in 0..=210 {
            pace.turn(start + BURST_INTERVAL * n, 0, 0);
            pace.count(50_000);
        }
        assert!(pace.usual.abs_diff(125_000) < 2000, "{}", pace.usual);
        for n in 211..=650 {
            pace.turn(start + BURST_INTERVAL * n, 0, 0);
            pace.count(100);
        }
        assert_eq!(pace.usual, LEAST_BURST_BYTES);
    }

    /// How long so many packets of 1000 bytes take on a path that carries so many kbit/s, in ms, and the longest burst.
    fn takes(kbps: u64, ample: bool, packets: usize) -> (usize, usize) {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.limit(Limit::of(1000 * kbps, ample));
        pace.turn(start + Duration::from_secs(1), 0, 0);
        let waiting = offer(&mut pace, packets);
        let bursts = bursts(&mut pace, waiting, start + Duration::from_secs(1));
        let first = 1000 * (packets - waiting);
        (5 * bursts.len(), bursts.into_iter().chain([first]).max().unwrap())
    }

    #[test]
    fn a_limited_path_gets_packets_evenly_and_the_faster_the_more_wait() {
        // 80 kB at 1.2 times 1.5 Mbit/s are 356 ms; what is left at the end leaves more slowly.
        let (ms, most) = takes(1500, false, 80);
        assert!((350..430).contains(&ms) && most <= 2000, "{ms} ms, {most} bytes at once");
        let (ms, _) = takes(1500, false, 20);
        assert!((85..115).contains(&ms), "at the estimate: {ms} ms");
    }

    #[test]
    fn an_ample_path_gets_bursts_that_make_a_short_queue() {
        let (ms, most) = takes(1500, true, 80);
        assert!((300..400).contains(&ms) && (7000..9000).contains(&most), "{ms} ms, {most} bytes");
        let (ms, most) = takes(20_000, true, 80);
        assert!((15..30).contains(&ms) && most <= 26_000, "{ms} ms, {most} bytes at once");
        assert_eq!(Limit::of(50_000_000, true), None, "usual bursts are short there");
    }
}
