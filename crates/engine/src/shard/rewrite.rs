//! The continuous stream of a slot, whatever flows through it: sequence numbers without a gap,
//! timestamps that go on by wall clock, VP8 picture ids that follow each other (RFC 7741 §4.2).

use crate::command::TrackKey;
use crate::drops::OutDrop;
use crate::limits::{HISTORY_PACKETS, PAST_ERAS};
use rtp::extended::ANOTHER_STREAM;
use std::collections::VecDeque;
use std::time::Instant;

/// The clock rate of sound.
const SOUND_HZ: u32 = 48_000;

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

/// What is added to the counters of packets, from one of them on.
#[derive(Debug, Clone, Copy)]
struct Era {
    /// The track that flows; none where it is a room's mix.
    track: Option<TrackKey>,
    /// Index of its first packet, and the highest one seen.
    first_in: u64,
    highest_in: u64,
    sequence: u16,
    timestamp: u32,
    picture: u16,
    tl0: u8,
}

/// Where a packet that left came from, and what it left with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Its track.
    pub track: TrackKey,
    /// Its unwrapped sequence number there.
    pub index: u64,
    timestamp: u32,
    picture: u16,
    tl0: u8,
}

impl Origin {
    /// What the packet left with, but for its sequence number.
    pub(crate) fn counters(
        &self,
        timestamp: u32,
        picture_id: Option<u16>,
        tl0: Option<u8>,
    ) -> (u32, Option<u16>, Option<u8>) {
        (
            timestamp.wrapping_add(self.timestamp),
            picture_id.map(|id| id.wrapping_add(self.picture) & 0x7FFF),
            tl0.map(|id| id.wrapping_add(self.tl0)),
        )
    }
}

impl Era {
    #[inline]
    fn apply(&self, packet: Inbound) -> Outbound {
        Outbound {
            sequence: (packet.index as u16).wrapping_add(self.sequence),
            timestamp: packet.timestamp.wrapping_add(self.timestamp),
            picture_id: packet.picture_id.map(|id| id.wrapping_add(self.picture) & 0x7FFF),
            tl0: packet.tl0.map(|id| id.wrapping_add(self.tl0)),
        }
    }

    /// The packet that left with this sequence number, if it was one of these.
    fn origin(&self, sequence: u16) -> Option<Origin> {
        let newest = (self.highest_in as u16).wrapping_add(self.sequence);
        let back = u64::from(newest.wrapping_sub(sequence));
        let index = self.highest_in.checked_sub(back).filter(|index| *index >= self.first_in)?;
        let Self { timestamp, picture, tl0, .. } = *self;
        (back < HISTORY_PACKETS as u64).then_some(Origin {
            track: self.track?,
            index,
            timestamp,
            picture,
            tl0,
        })
    }
}

/// The offsets of a slot, those of today and some from before: with them it is known of each
/// sequence number what left with it, and nothing needs to be noted of each packet.
#[derive(Debug, Clone)]
pub(crate) struct Rewrite {
    clock_rate: u32,
    /// First index of the present content: what is before it belongs to nobody.
    anchor: u64,
    era: Era,
    /// Those before, the newest last.
    past: VecDeque<Era>,
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
        let sequence = first_sequence;
        let (first_in, highest_in, timestamp, picture, tl0) = (0, 0, 0, 0, 0);
        let era = Era { track: None, first_in, highest_in, sequence, timestamp, picture, tl0 };
        Self { clock_rate, anchor: 0, era, past: VecDeque::new(), last: None }
    }

    /// The content changes: `first` is its first packet, and follows what left last.
    pub(crate) fn switch(&mut self, first: Inbound, track: Option<TrackKey>, now: Instant) {
        self.keep_era();
        let era = &mut self.era;
        self.anchor = first.index;
        (era.track, era.first_in, era.highest_in) = (track, first.index, first.index);
        let Some(last) = self.last else {
            era.sequence = era.sequence.wrapping_sub(first.index as u16);
            return;
        };
        let sequence = last.out.sequence.wrapping_add(1);
        let elapsed_ms = now.saturating_duration_since(last.at).as_millis() as u64;
        // Sound does not overlap: a packet of 20 ms may have left just before.
        let least = if self.clock_rate == SOUND_HZ { SOUND_HZ / 50 } else { 1 };
        let ticks = (elapsed_ms * u64::from(self.clock_rate) / 1000).max(u64::from(least)) as u32;
        let timestamp = last.out.timestamp.wrapping_add(ticks);
        era.sequence = sequence.wrapping_sub(first.index as u16);
        era.timestamp = timestamp.wrapping_sub(first.timestamp);
        if let (Some(out), Some(new)) = (last.out.picture_id, first.picture_id) {
            era.picture = out.wrapping_add(1).wrapping_sub(new);
        }
        if let (Some(out), Some(new)) = (last.out.tl0, first.tl0) {
            era.tl0 = out.wrapping_add(1).wrapping_sub(new);
        }
    }

    /// The present era ends.
    fn keep_era(&mut self) {
        if self.last.is_none() || self.era.track.is_none() {
            return;
        }
        if self.past.len() == PAST_ERAS {
            self.past.pop_front();
        }
        self.past.push_back(self.era);
    }

    /// What a packet of the present content leaves with.
    #[inline]
    pub(crate) fn apply(&mut self, packet: Inbound, now: Instant) -> Result<Outbound, OutDrop> {
        if packet.index < self.era.first_in {
            return self.late(packet);
        }
        let out = self.era.apply(packet);
        if packet.index >= self.era.highest_in {
            self.era.highest_in = packet.index;
            self.last = Some(Last { out, at: now });
        }
        Ok(out)
    }

    /// Whether a packet with this number is of another stream of the same publisher than what flows: what is added to
    /// the counters of one fits nothing of the other.
    #[inline]
    pub(crate) fn is_another_stream(&self, index: u64) -> bool {
        index >= self.era.highest_in + ANOTHER_STREAM
    }

    /// A packet from before a number that was left out.
    fn late(&self, packet: Inbound) -> Result<Outbound, OutDrop> {
        let same = |era: &&Era| era.track == self.era.track && packet.index >= era.first_in;
        match self.past.iter().rev().find(same) {
            Some(era) if packet.index >= self.anchor => Ok(era.apply(packet)),
            _ => Err(OutDrop::BeforeSwitch),
        }
    }

    /// A packet of the present content is left out on purpose: the next one takes its number.
    pub(crate) fn skip(&mut self, index: u64) {
        if index > self.era.highest_in && !self.is_another_stream(index) {
            // What is overtaken by this belongs to the era before.
            self.era.highest_in = index - 1;
            self.keep_era();
            (self.era.first_in, self.era.highest_in) = (index + 1, index);
            self.era.sequence = self.era.sequence.wrapping_sub(1);
        }
    }

    /// The packet that left with this sequence number, as far as that is still known; whether it is kept, its
    /// track knows.
    pub(crate) fn origin(&self, sequence: u16) -> Option<Origin> {
        let eras = std::iter::once(&self.era).chain(self.past.iter().rev());
        eras.filter_map(|era| era.origin(sequence)).next()
    }

    /// What is added to the content's timestamps, for sender reports.
    #[inline]
    pub(crate) fn timestamp_offset(&self) -> u32 {
        self.era.timestamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const FIRST: Option<TrackKey> = Some(TrackKey(1));

    fn packet(index: u64, timestamp: u32, picture_id: u16) -> Inbound {
        Inbound { index, timestamp, picture_id: Some(picture_id), tl0: Some(picture_id as u8) }
    }

    #[test]
    fn a_switch_continues_all_counters() {
        let start = Instant::now();
        let mut rewrite = Rewrite::new(90_000, 100);
        rewrite.switch(packet(70_000, 5, 9), FIRST, start);
        let first = rewrite.apply(packet(70_000, 5, 9), start).unwrap();
        assert_eq!((first.sequence, first.timestamp, first.picture_id), (100, 5, Some(9)));
        assert_eq!(rewrite.apply(packet(70_001, 5, 9), start).unwrap().sequence, 101);

        let later = start + Duration::from_millis(500);
        rewrite.switch(packet(3, 4_000_000_000, 0x7FFF), Some(TrackKey(2)), later);
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
        rewrite.switch(packet(10, 0, 0), FIRST, now);
        assert_eq!(rewrite.apply(packet(10, 0, 0), now).unwrap().sequence, 0);
        rewrite.skip(11);
        assert_eq!(rewrite.apply(packet(12, 0, 0), now).unwrap().sequence, 1);
        assert_eq!(rewrite.apply(packet(14, 0, 0), now).unwrap().sequence, 3);
        assert_eq!(rewrite.apply(packet(13, 0, 0), now).unwrap().sequence, 2, "late");
        rewrite.skip(13);
        assert_eq!(rewrite.apply(packet(15, 0, 0), now).unwrap().sequence, 4);
    }

    #[test]
    fn it_is_known_of_each_number_what_left_with_it() {
        let now = Instant::now();
        let mut rewrite = Rewrite::new(90_000, 65_500);
        assert_eq!(rewrite.origin(65_500), None);
        let mut left = Vec::new();
        let mut send = |rewrite: &mut Rewrite, track: Option<TrackKey>, index: u64| {
            let (timestamp, id) = (index as u32 * 3000, index as u16 & 0x7FFF);
            let out = rewrite.apply(packet(index, timestamp, id), now).unwrap();
            left.push((track.unwrap(), index, timestamp, id, out));
        };
        rewrite.switch(packet(40_000, 0, 0), FIRST, now);
        (40_000..40_100).for_each(|index| send(&mut rewrite, FIRST, index));
        rewrite.skip(40_100);
        rewrite.skip(40_101);
        (40_102..40_110).for_each(|index| send(&mut rewrite, FIRST, index));
        // Overtaken by two that were left out: it keeps its own number.
        rewrite.skip(40_112);
        rewrite.skip(40_113);
        send(&mut rewrite, FIRST, 40_114);
        send(&mut rewrite, FIRST, 40_111);
        let second = Some(TrackKey(2));
        rewrite.switch(packet(7, 21_000, 7), second, now);
        (7..107).for_each(|index| send(&mut rewrite, second, index));
        let mut numbers: Vec<u16> = left.iter().map(|(.., out)| out.sequence).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), left.len(), "no number twice");
        for (track, index, timestamp, id, out) in left {
            let origin = rewrite.origin(out.sequence).expect("it left");
            assert_eq!((origin.track, origin.index), (track, index), "{out:?}");
            let counters = origin.counters(timestamp, Some(id), Some(id as u8));
            assert_eq!(counters, (out.timestamp, out.picture_id, out.tl0));
        }
        assert_eq!(rewrite.origin(65_499), None, "before the first");
    }
}
