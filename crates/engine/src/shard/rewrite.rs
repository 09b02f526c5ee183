//! The continuous stream of a slot, whatever flows through it: sequence numbers without a gap,
//! timestamps that go on by wall clock, VP8 picture ids that follow each other (RFC 7741 §4.2).

use crate::drops::OutDrop;
use std::time::Instant;

/// What of a packet a slot changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inbound {
    /// Sequence number, unwrapped.
    pub index: u64,
    /// RTP timestamp.
    pub timestamp: u32,
    /// VP8 picture id and its width in bits, where there is one.
    pub picture_id: Option<u16>,
    /// VP8 TL0PICIDX, where there is one.
    pub tl0: Option<u8>,
}

/// What a packet leaves with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outbound {
    /// Sequence number.
    pub sequence: u16,
    /// RTP timestamp.
    pub timestamp: u32,
    /// Picture id, 15 bits.
    pub picture_id: Option<u16>,
    /// TL0PICIDX.
    pub tl0: Option<u8>,
}

/// The offsets of a slot.
#[derive(Debug, Clone)]
pub(crate) struct Rewrite {
    clock_rate: u32,
    /// First index of the present content: what is before it belongs to nobody.
    anchor: u64,
    /// Highest index of the present content seen.
    highest_in: u64,
    sequence_offset: u16,
    timestamp_offset: u32,
    picture_offset: u16,
    tl0_offset: u8,
    last: Option<Last>,
}

/// The newest packet that left.
#[derive(Debug, Clone, Copy)]
struct Last {
    out: Outbound,
    at: Instant,
}

impl Rewrite {
    /// A slot's offsets before its first packet; sequence numbers begin at `first_sequence`.
    pub(crate) fn new(clock_rate: u32, first_sequence: u16) -> Self {
        Self {
            clock_rate,
            anchor: 0,
            highest_in: 0,
            sequence_offset: first_sequence,
            timestamp_offset: 0,
            picture_offset: 0,
            tl0_offset: 0,
            last: None,
        }
    }

    /// The content changes: `first` is its first packet, and follows what left last.
    pub(crate) fn switch(&mut self, first: Inbound, now: Instant) {
        self.anchor = first.index;
        self.highest_in = first.index;
        let Some(last) = self.last else {
            self.sequence_offset = self.sequence_offset.wrapping_sub(first.index as u16);
            return;
        };
        let sequence = last.out.sequence.wrapping_add(1);
        let elapsed_ms = now.saturating_duration_since(last.at).as_millis() as u64;
        let ticks = (elapsed_ms * u64::from(self.clock_rate) / 1000).max(1) as u32;
        let timestamp = last.out.timestamp.wrapping_add(ticks);
        self.sequence_offset = sequence.wrapping_sub(first.index as u16);
        self.timestamp_offset = timestamp.wrapping_sub(first.timestamp);
        if let (Some(out), Some(new)) = (last.out.picture_id, first.picture_id) {
            self.picture_offset = out.wrapping_add(1).wrapping_sub(new);
        }
        if let (Some(out), Some(new)) = (last.out.tl0, first.tl0) {
            self.tl0_offset = out.wrapping_add(1).wrapping_sub(new);
        }
    }

    /// What a packet of the present content leaves with.
    pub(crate) fn apply(&mut self, packet: Inbound, now: Instant) -> Result<Outbound, OutDrop> {
        if packet.index < self.anchor {
            return Err(OutDrop::BeforeSwitch);
        }
        let out = Outbound {
            sequence: (packet.index as u16).wrapping_add(self.sequence_offset),
            timestamp: packet.timestamp.wrapping_add(self.timestamp_offset),
            picture_id: packet.picture_id.map(|id| id.wrapping_add(self.picture_offset) & 0x7FFF),
            tl0: packet.tl0.map(|id| id.wrapping_add(self.tl0_offset)),
        };
        if packet.index >= self.highest_in {
            self.highest_in = packet.index;
            self.last = Some(Last { out, at: now });
        }
        Ok(out)
    }

    /// A packet of the present content is left out on purpose: the next one takes its number.
    pub(crate) fn skip(&mut self, index: u64) {
        if index > self.highest_in {
            self.highest_in = index;
            self.sequence_offset = self.sequence_offset.wrapping_sub(1);
        }
    }

    /// What is added to the content's timestamps, for sender reports.
    pub(crate) fn timestamp_offset(&self) -> u32 {
        self.timestamp_offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn packet(index: u64, timestamp: u32, picture_id: u16) -> Inbound {
        Inbound { index, timestamp, picture_id: Some(picture_id), tl0: Some(picture_id as u8) }
    }

    #[test]
    fn a_switch_continues_all_counters() {
        let start = Instant::now();
        let mut rewrite = Rewrite::new(90_000, 100);
        rewrite.switch(packet(70_000, 5, 9), start);
        let first = rewrite.apply(packet(70_000, 5, 9), start).unwrap();
        assert_eq!((first.sequence, first.timestamp, first.picture_id), (100, 5, Some(9)));
        assert_eq!(rewrite.apply(packet(70_001, 5, 9), start).unwrap().sequence, 101);

        let later = start + Duration::from_millis(500);
        rewrite.switch(packet(3, 4_000_000_000, 0x7FFF), later);
        let out = rewrite.apply(packet(3, 4_000_000_000, 0x7FFF), later).unwrap();
        assert_eq!((out.sequence, out.timestamp), (102, 5 + 45_000));
        assert_eq!((out.picture_id, out.tl0), (Some(10), Some(10)));
        let next = rewrite.apply(packet(4, 4_000_003_000, 0), later).unwrap();
        assert_eq!((next.sequence, next.timestamp), (103, 5 + 48_000));
        assert_eq!(next.picture_id, Some(11), "picture ids wrap at 15 bits");
        assert_eq!(rewrite.apply(packet(2, 0, 0), later), Err(OutDrop::BeforeSwitch));
    }

    #[test]
    fn what_is_left_out_leaves_no_gap_and_late_packets_keep_their_place() {
        let now = Instant::now();
        let mut rewrite = Rewrite::new(48_000, 0);
        rewrite.switch(packet(10, 0, 0), now);
        assert_eq!(rewrite.apply(packet(10, 0, 0), now).unwrap().sequence, 0);
        rewrite.skip(11);
        assert_eq!(rewrite.apply(packet(12, 0, 0), now).unwrap().sequence, 1);
        assert_eq!(rewrite.apply(packet(14, 0, 0), now).unwrap().sequence, 3);
        assert_eq!(rewrite.apply(packet(13, 0, 0), now).unwrap().sequence, 2, "late");
        rewrite.skip(13);
        assert_eq!(rewrite.apply(packet(15, 0, 0), now).unwrap().sequence, 4);
    }
}
