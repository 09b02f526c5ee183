//! A burst after little was sent: what came of it counts, not a rate over the last second that counts the idle time, too.

use bwe::{Downlink, Kind, Limits};
use rtp::rtcp::{self, Packet};
use rtp::twcc::{Feedback, FeedbackBuilder};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
/// A full packet, in bytes.
const FULL: usize = 1200;
const WAY: Duration = Duration::from_millis(20);

/// A path of some rate, and a receiver who gives feedback each 50 ms.
struct Path {
    now: Instant,
    downlink: Downlink,
    bps: u64,
    /// When the link is free again.
    free: Instant,
    /// Numbers that are under way, and when they arrive.
    under_way: VecDeque<(u16, Instant)>,
    builder: FeedbackBuilder,
    ms: u64,
    least_bps: u64,
}

impl Path {
    fn new(bps: u64) -> Self {
        let now = Instant::now();
        let limits = Limits { start_bps: bps, least_bps: 100_000, most_bps: 50_000_000 };
        Self {
            now,
            downlink: Downlink::new(now, limits),
            bps,
            free: now,
            under_way: VecDeque::new(),
            builder: FeedbackBuilder::new(),
            ms: 0,
            least_bps: u64::MAX,
        }
    }

    fn send(&mut self, bytes: usize, kind: Kind) {
        let number = self.downlink.next_number();
        self.downlink.sent(self.now, bytes, kind);
        let takes = Duration::from_secs_f64((bytes + 28) as f64 * 8.0 / self.bps as f64);
        self.free = self.free.max(self.now) + takes;
        self.under_way.push_back((number, self.free + WAY));
    }

    /// A keyframe of so many bytes leaves, a tenth faster than the estimate, with sound.
    fn burst(&mut self, mut bytes: usize) {
        let mut may = 0;
        while bytes > 0 {
            self.pass(1);
            may += self.downlink.estimate_bps() * 11 / 10 / 1000;
            while may >= 8 * FULL as u64 && bytes > 0 {
                may -= 8 * FULL as u64;
                bytes = bytes.saturating_sub(FULL);
                self.send(FULL, Kind::Video);
            }
        }
    }

    /// Some milliseconds pass, with sound, and a small picture five times a second.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += MS;
            self.ms += 1;
            if self.ms.is_multiple_of(20) {
                self.send(110, Kind::Audio);
            }
            if self.ms.is_multiple_of(200) {
                self.send(900, Kind::Video);
            }
            while let Some((number, at)) = self.under_way.front().filter(|(_, at)| *at <= self.now)
            {
                self.builder.record(*number, *at);
                self.under_way.pop_front();
            }
            if self.ms.is_multiple_of(50) {
                self.feed();
            }
            if self.ms.is_multiple_of(10) {
                self.downlink.tick(self.now);
                self.least_bps = self.least_bps.min(self.downlink.estimate_bps());
            }
        }
    }

    fn feed(&mut self) {
        let mut bytes = Vec::new();
        while self.builder.build(1, 2, &mut bytes) {}
        for packet in rtcp::parse(&bytes).flatten() {
            if let Packet::TransportFeedback { fci, .. } = packet
                && let Ok(feedback) = Feedback::parse(fci)
            {
                self.downlink.feedback(self.now, &feedback).expect("what came");
            }
        }
    }
}

#[test]
fn the_estimate_stays_near_what_the_path_carries_at_a_burst_after_little_was_sent() {
    for (bps, bytes) in [(1_500_000, 60_000), (1_500_000, 300_000), (600_000, 100_000)] {
        let mut path = Path::new(bps);
        path.pass(5000);
        for _ in 0..5 {
            path.burst(bytes);
            path.pass(3000);
        }
        assert!(path.least_bps * 10 >= bps * 7, "{bps}, {bytes} B: {}", path.least_bps);
        assert!(path.downlink.estimate_bps() * 10 <= bps * 11, "{bps}, {bytes} B");
    }
}

#[test]
fn a_path_that_carries_less_since_little_was_sent_is_found_at_the_burst() {
    let mut path = Path::new(1_500_000);
    path.pass(5000);
    path.bps = 500_000;
    path.burst(60_000);
    path.pass(500);
    let estimate = path.downlink.estimate_bps();
    assert!((250_000..550_000).contains(&estimate), "{estimate}");
}

/// With room for 1024 packets in each report, a report took 108 KiB, which is a mapping of its own that comes and goes.
#[test]
fn a_report_takes_as_much_memory_as_what_it_tells() {
    let mut path = Path::new(1_500_000);
    path.pass(5000);
    let reports = 20 * 60;
    let taken = allocation_counter::measure(|| path.pass(60_000));
    let bytes = taken.bytes_total / reports;
    assert!(bytes < 4096, "{bytes} bytes a report");
}
