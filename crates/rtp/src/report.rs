//! What a stream's receiver and sender know and tell of it (RFC 3550 §6.4, appendix A).

pub use crate::ntp::Ntp;
use crate::rtcp::{ReportBlock, SenderInfo};
use std::time::{Duration, Instant};

/// A jump ahead up to this is loss; a longer one is a restart (RFC 3550 A.1).
const MAX_DROPOUT: u16 = 3000;
/// A step back up to this is a late packet. RFC 3550 A.1 suggests 100, which is 0.1 s of video.
const MAX_MISORDER: u16 = 1000;

/// Statistics of one received stream (RFC 3550 A.1, A.3, A.8).
#[derive(Debug, Clone)]
pub struct ReceiveStream {
    ssrc: u32,
    clock_rate: u32,
    sequence: Option<Sequence>,
    received: u64,
    bytes: u64,
    jitter: f64,
    last_arrival: Option<(Instant, u32)>,
    last_sr: Option<(Ntp, Instant)>,
    at_report: Totals,
    at_interval: Totals,
}

/// Extended sequence numbers; they go on over a restart.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    base: u64,
    highest: u64,
    /// Expected before the last restart.
    expected_before: u64,
    /// The number that would prove a restart.
    restart_at: Option<u16>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    expected: u64,
    received: u64,
    bytes: u64,
}

/// What one interval had of its own.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Interval {
    /// Packets that should have come.
    pub expected: u64,
    /// Packets that came, late ones and copies among them.
    pub received: u64,
    /// max(0, expected − received)
    pub lost: u64,
    /// Payload bytes that came.
    pub bytes: u64,
    /// Interarrival jitter at the end of the interval; None where nothing came.
    pub jitter_ms: Option<f64>,
}

impl Interval {
    /// Loss in percent; None where nothing was expected.
    pub fn loss_pct(&self) -> Option<f64> {
        (self.expected > 0).then(|| 100.0 * self.lost as f64 / self.expected as f64)
    }
}

impl ReceiveStream {
    /// Statistics of the stream `ssrc`, whose timestamps count `clock_rate` a second.
    pub fn new(ssrc: u32, clock_rate: u32) -> Self {
        Self {
            ssrc,
            clock_rate: clock_rate.max(1),
            sequence: None,
            received: 0,
            bytes: 0,
            jitter: 0.0,
            last_arrival: None,
            last_sr: None,
            at_report: Totals::default(),
            at_interval: Totals::default(),
        }
    }

    /// Takes note of a packet. One that the sequence numbers call implausible (a jump that
    /// nothing has followed yet) does not count.
    pub fn push(&mut self, sequence: u16, timestamp: u32, payload_len: usize, arrival: Instant) {
        if !self.push_sequence(sequence) {
            return;
        }
        self.received += 1;
        self.bytes += payload_len as u64;
        if let Some((last, last_timestamp)) = self.last_arrival {
            let passed = match arrival.checked_duration_since(last) {
                Some(after) => after.as_secs_f64(),
                None => -last.duration_since(arrival).as_secs_f64(),
            };
            let sent = f64::from(timestamp.wrapping_sub(last_timestamp) as i32);
            let difference = passed * f64::from(self.clock_rate) - sent;
            self.jitter += (difference.abs() - self.jitter) / 16.0;
        }
        self.last_arrival = Some((arrival, timestamp));
    }

    /// Takes note of a packet that is nothing but padding: it came, but its timestamp is that of a packet before it and
    /// says nothing about jitter.
    pub fn push_padding(&mut self, sequence: u16) {
        self.received += u64::from(self.push_sequence(sequence));
    }

    fn push_sequence(&mut self, sequence: u16) -> bool {
        let Some(state) = &mut self.sequence else {
            let first = u64::from(sequence);
            self.sequence = Some(Sequence {
                base: first,
                highest: first,
                expected_before: 0,
                restart_at: None,
            });
            return true;
        };
        let ahead = sequence.wrapping_sub(state.highest as u16);
        if ahead < MAX_DROPOUT {
            state.highest += u64::from(ahead);
            state.restart_at = None;
            return true;
        }
        if ahead > 0_u16.wrapping_sub(MAX_MISORDER) {
            return true; // late, or a copy
        }
        if state.restart_at != Some(sequence) {
            state.restart_at = Some(sequence.wrapping_add(1));
            return false;
        }
        state.expected_before += state.highest - state.base + 1;
        // The next cycle: what was told of the highest number never goes back.
        state.base = ((state.highest >> 16) + 1) << 16 | u64::from(sequence);
        state.highest = state.base;
        state.restart_at = None;
        self.last_arrival = None;
        true
    }

    /// Takes note of a sender report of this stream, for the next report block.
    pub fn on_sender_report(&mut self, ntp: Ntp, arrival: Instant) {
        self.last_sr = Some((ntp, arrival));
    }

    /// Packets that should have come, in all.
    pub fn expected(&self) -> u64 {
        self.sequence.map_or(0, |s| s.expected_before + s.highest - s.base + 1)
    }

    /// Packets that came, in all, late ones and copies among them.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Packets lost, in all; negative where copies came (RFC 3550 §6.4.1).
    pub fn cumulative_lost(&self) -> i64 {
        self.expected() as i64 - self.received as i64
    }

    /// Extended highest sequence number; None before the first packet.
    pub fn highest_sequence(&self) -> Option<u64> {
        self.sequence.map(|s| s.highest)
    }

    /// Interarrival jitter in timestamp units.
    pub fn jitter(&self) -> u32 {
        self.jitter as u32
    }

    /// Interarrival jitter in ms.
    pub fn jitter_ms(&self) -> f64 {
        self.jitter * 1000.0 / f64::from(self.clock_rate)
    }

    /// The block for the next report; None before the first packet. Its fraction is the loss
    /// since the last block that this function gave.
    pub fn report_block(&mut self, now: Instant) -> Option<ReportBlock> {
        let highest = self.sequence?.highest;
        let totals = self.totals();
        let expected = totals.expected - self.at_report.expected;
        let lost = expected.saturating_sub(totals.received - self.at_report.received);
        self.at_report = totals;
        let fraction = (lost * 256).checked_div(expected).unwrap_or(0).min(255);
        let (last_sr, delay) = match self.last_sr {
            Some((ntp, at)) => (ntp.middle(), units_65536(now.saturating_duration_since(at))),
            None => (0, 0),
        };
        let lost = self.cumulative_lost().clamp(-0x80_0000, 0x7F_FFFF);
        Some(ReportBlock {
            ssrc: self.ssrc,
            fraction_lost: fraction as u8,
            cumulative_lost: lost as i32,
            highest_sequence: highest as u32,
            jitter: self.jitter(),
            last_sr,
            delay_since_last_sr: delay,
        })
    }

    /// What came since the last call of this function.
    pub fn interval(&mut self) -> Interval {
        let (now, before) = (self.totals(), self.at_interval);
        self.at_interval = now;
        let expected = now.expected - before.expected;
        let received = now.received - before.received;
        Interval {
            expected,
            received,
            lost: expected.saturating_sub(received),
            bytes: now.bytes - before.bytes,
            jitter_ms: (received > 0).then(|| self.jitter_ms()),
        }
    }

    fn totals(&self) -> Totals {
        Totals { expected: self.expected(), received: self.received, bytes: self.bytes }
    }
}

/// What a sender knows of its stream, for sender reports.
#[derive(Debug, Clone)]
pub struct SendStream {
    ssrc: u32,
    clock_rate: u32,
    packets: u64,
    octets: u64,
    last: Option<(u32, Instant)>,
}

impl SendStream {
    /// A stream that has sent nothing.
    pub fn new(ssrc: u32, clock_rate: u32) -> Self {
        Self { ssrc, clock_rate: clock_rate.max(1), packets: 0, octets: 0, last: None }
    }

    /// The stream's SSRC.
    pub fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// Takes note of a packet that was sent.
    pub fn push(&mut self, timestamp: u32, payload_len: usize, now: Instant) {
        self.packets += 1;
        self.octets += payload_len as u64;
        self.last = Some((timestamp, now));
    }

    /// Packets sent, in all.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Payload bytes sent, in all.
    pub fn octets(&self) -> u64 {
        self.octets
    }

    /// What a sender report says at `now`, whose wall clock is `ntp`; None before the first
    /// packet. The timestamp goes on from the last packet's.
    pub fn sender_info(&self, now: Instant, ntp: Ntp) -> Option<SenderInfo> {
        let (timestamp, at) = self.last?;
        let passed = now.saturating_duration_since(at).as_nanos();
        let units = passed * u128::from(self.clock_rate) / 1_000_000_000;
        Some(SenderInfo {
            ntp,
            rtp_timestamp: timestamp.wrapping_add(units as u32),
            packet_count: self.packets as u32,
            octet_count: self.octets as u32,
        })
    }
}

/// Round-trip time from a report block that arrived at `now` on the clock of our sender reports
/// (RFC 3550 §6.4.1); None where the block answers no sender report, or one from the future.
pub fn rtt_ms(block: &ReportBlock, now: Ntp) -> Option<f64> {
    if block.last_sr == 0 {
        return None;
    }
    let since_sr = now.middle().wrapping_sub(block.last_sr) as i32;
    let rtt = i64::from(since_sr) - i64::from(block.delay_since_last_sr);
    // Clocks of 1/65536 s may disagree by a unit on each side.
    (since_sr >= -2 && rtt >= -2).then(|| rtt.max(0) as f64 * 1000.0 / 65536.0)
}

fn units_65536(duration: Duration) -> u32 {
    u32::try_from((duration.as_nanos() << 16) / 1_000_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn counts_loss_over_the_wrap() {
        let start = Instant::now();
        let mut stream = ReceiveStream::new(7, 48_000);
        assert_eq!(stream.report_block(start), None);
        assert_eq!(stream.interval(), Interval::default());
        for i in 0..100_u16 {
            if i % 10 != 5 {
                stream.push(
                    65_500_u16.wrapping_add(i),
                    u32::from(i) * 960,
                    80,
                    at(start, u64::from(i) * 20),
                );
            }
        }
        assert_eq!((stream.expected(), stream.received()), (100, 90));
        assert_eq!(stream.highest_sequence(), Some(65_599));
        let block = stream.report_block(at(start, 2000)).unwrap();
        assert_eq!((block.ssrc, block.cumulative_lost, block.fraction_lost), (7, 10, 25));
        assert_eq!((block.highest_sequence, block.jitter), (0x1003F, 0));
        assert_eq!((block.last_sr, block.delay_since_last_sr), (0, 0));
        let interval = stream.interval();
        assert_eq!((interval.expected, interval.received, interval.lost), (100, 90, 10));
        assert_eq!((interval.bytes, interval.loss_pct()), (7200, Some(10.0)));
        // A late one in the next interval lowers the total and is no loss of its own.
        stream.push(65_505, 5 * 960, 80, at(start, 2000));
        let interval = stream.interval();
        assert_eq!((interval.expected, interval.received, interval.lost), (0, 1, 0));
        assert_eq!(interval.loss_pct(), None);
        assert_eq!(stream.cumulative_lost(), 9);
        assert_eq!(stream.report_block(start).unwrap().fraction_lost, 0);
        assert_eq!(stream.interval().jitter_ms, None);
    }

    #[test]
    fn copies_make_the_loss_negative() {
        let start = Instant::now();
        let mut stream = ReceiveStream::new(7, 48_000);
        for _ in 0..3 {
            stream.push(1, 0, 80, start);
        }
        assert_eq!(stream.cumulative_lost(), -2);
        assert_eq!(stream.report_block(start).unwrap().cumulative_lost, -2);
        assert_eq!(stream.interval().lost, 0);
    }

    #[test]
    fn jitter_follows_rfc3550_a8() {
        let start = Instant::now();
        let mut stream = ReceiveStream::new(7, 8000);
        // Every second packet is 5 ms late: |D| = 5 ms = 40 units, each time.
        let mut expected = 0.0;
        for i in 0..200_u64 {
            let late = if i % 2 == 1 { 5 } else { 0 };
            stream.push(i as u16, i as u32 * 160, 80, at(start, i * 20 + late));
            if i > 0 {
                expected += (40.0 - expected) / 16.0;
            }
            assert!((stream.jitter_ms() - expected / 8.0).abs() < 1e-6);
        }
        assert_eq!(stream.jitter(), 39);
    }

    #[test]
    fn a_restart_needs_two_in_a_row_and_totals_go_on() {
        let start = Instant::now();
        let mut stream = ReceiveStream::new(7, 8000);
        for i in 100..110 {
            stream.push(i, 0, 10, start);
        }
        stream.push(30_000, 0, 10, start);
        assert_eq!((stream.expected(), stream.received()), (10, 10));
        stream.push(30_001, 0, 10, start);
        stream.push(30_003, 0, 10, start);
        assert_eq!((stream.expected(), stream.received()), (13, 12));
        assert_eq!(stream.highest_sequence(), Some(65_536 + 30_003));
        assert_eq!(stream.interval().lost, 1);
    }

    #[test]
    fn round_trip_time_is_that_of_rfc3550_figure_2() {
        // The example of RFC 3550 §6.4.1: A = 46864.500, LSR = 46853.125, DLSR = 5.250 s.
        let block = ReportBlock {
            last_sr: 0xb705_2000,
            delay_since_last_sr: 0x0005_4000,
            ..ReportBlock::default()
        };
        let now = Ntp(0xb44d_b710_8000_0000);
        assert_eq!(rtt_ms(&block, now), Some(6125.0));
        assert_eq!(rtt_ms(&ReportBlock::default(), now), None);
        let future = ReportBlock { last_sr: 0xb810_0000, ..block };
        assert_eq!(rtt_ms(&future, now), None);
        let long = ReportBlock { delay_since_last_sr: u32::MAX, ..block };
        assert_eq!(rtt_ms(&long, now), None);
    }

    #[test]
    fn a_report_and_its_answer_give_the_round_trip() {
        let start = Instant::now();
        let wall = Duration::new(1_800_000_000, 0);
        let ntp = |ms| Ntp::from_unix(wall + Duration::from_millis(ms));
        let mut sender = SendStream::new(7, 48_000);
        assert_eq!(sender.sender_info(start, ntp(0)), None);
        sender.push(u32::MAX - 479, 100, start);
        sender.push(u32::MAX - 479, 100, start);
        let info = sender.sender_info(at(start, 20), ntp(20)).unwrap();
        assert_eq!((info.rtp_timestamp, info.packet_count, info.octet_count), (480, 2, 200));
        let mut receiver = ReceiveStream::new(7, 48_000);
        receiver.push(1, 0, 100, at(start, 30));
        receiver.on_sender_report(info.ntp, at(start, 50));
        let block = receiver.report_block(at(start, 1050)).unwrap();
        assert_eq!(block.delay_since_last_sr, 65536);
        let rtt = rtt_ms(&block, ntp(1080)).unwrap();
        assert!((rtt - 60.0).abs() < 0.05, "{rtt}");
    }
}
