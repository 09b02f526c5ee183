//! The continuous stream of a slot, whatever flows through it: sequence numbers without a gap, timestamps that go on by
//! the time that passed, picture ids that follow each other (VP8: RFC 7741 §4.2, VP9: RFC 9628 §4.2), or frame numbers (AV1).
//!
//! A ring notes what left with each of the last numbers. Packets that come late, requests for retransmission and frames
//! that are left out all read this ring.

use super::scalable::{Selection, UpTo};
use crate::command::StreamKey;
use crate::drops::OutDrop;
use crate::limits::{HISTORY_PACKETS, PAST_CONTENTS, SOUND_PLACES};
use rtp::extended::ANOTHER_STREAM;
use std::collections::VecDeque;
use std::time::Instant;

/// The clock rate of sound.
const SOUND_HZ: u32 = 48_000;

/// A publisher's clock goes on if it differs from the time that passed by less than so many seconds.
const CLOCKS_AGREE_S: u32 = 10;

/// The counters of a packet as its publisher sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counters {
    /// Sequence number with its rollovers.
    pub index: u64,
    /// RTP timestamp.
    pub timestamp: u32,
    /// Picture id of VP8 or VP9, or the frame number of a dependency descriptor, if there is one.
    pub picture_id: Option<u16>,
    /// TL0PICIDX of VP8 or VP9, if there is one.
    pub tl0: Option<u8>,
}

/// The counters that a packet leaves with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rewritten {
    /// Sequence number.
    pub sequence: u16,
    /// RTP timestamp.
    pub timestamp: u32,
    /// Picture id or frame number. A picture id has 7 or 15 bits: whoever writes it takes the low ones.
    pub picture_id: Option<u16>,
    /// TL0PICIDX.
    pub tl0: Option<u8>,
    /// The layers that flowed when it was numbered.
    pub up_to: UpTo,
}

/// Where a packet that left came from, and what was added to its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    /// Its track.
    pub track: StreamKey,
    /// Its number there.
    pub index: u64,
    timestamp: u32,
    place: Place,
}

impl Left {
    /// What the packet left with, with another sequence number.
    pub(super) fn rewritten(&self, packet: Counters, sequence: u16) -> Rewritten {
        rewritten(packet, sequence, self.timestamp, self.place)
    }
}

#[inline]
fn rewritten(packet: Counters, sequence: u16, timestamp: u32, place: Place) -> Rewritten {
    Rewritten {
        sequence,
        timestamp: packet.timestamp.wrapping_add(timestamp),
        picture_id: packet.picture_id.map(|id| id.wrapping_add(place.picture)),
        tl0: packet.tl0.map(|id| id.wrapping_add(place.tl0)),
        up_to: place.up_to,
    }
}

/// What flows since a switch.
#[derive(Debug, Clone, Copy)]
struct Content {
    /// None if it is a room's mix.
    track: Option<StreamKey>,
    /// The publisher's number of its first packet.
    first: u64,
    /// How many numbers of the slot were used before.
    since: u64,
    /// What is added to its timestamps.
    timestamp: u32,
}

/// What a number of the slot was used for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    /// The publisher's number, its low bits.
    index: u32,
    /// What was added to the picture id and to TL0PICIDX.
    picture: u16,
    tl0: u8,
    /// The layers that flowed then.
    up_to: UpTo,
}

/// The newest packet that left.
#[derive(Debug, Clone, Copy)]
struct Last {
    out: Rewritten,
    at: Instant,
}

/// How a slot numbers what leaves it.
#[derive(Debug, Clone)]
pub(super) struct Rewrite {
    clock_rate: u32,
    /// The number that the slot began with, and how many it has used since.
    first_sequence: u16,
    used: u64,
    content: Content,
    /// What flowed before, the newest last.
    past: VecDeque<Content>,
    /// The publisher's number that is next.
    next: u64,
    /// What is added to picture ids and to TL0PICIDX from here on.
    offsets: (u16, u8),
    /// Which layers of the present content flow.
    pub selection: Selection,
    /// Picture id of the newest packet, and whether its frame is left out.
    newest: Option<u16>,
    leaves_out: bool,
    /// What the last numbers were used for, by number. Empty before the first packet.
    ring: Vec<Place>,
    last: Option<Last>,
}

impl Rewrite {
    /// A slot before its first packet, whose timestamps count `clock_rate` a second.
    pub(super) fn new(clock_rate: u32, first_sequence: u16) -> Self {
        Self {
            clock_rate,
            first_sequence,
            used: 0,
            content: Content { track: None, first: 0, since: 0, timestamp: 0 },
            past: VecDeque::new(),
            next: 0,
            offsets: (0, 0),
            selection: Selection::default(),
            newest: None,
            leaves_out: false,
            ring: Vec::new(),
            last: None,
        }
    }

    /// The content changes: `first` is its first packet, and follows what left last.
    pub(super) fn switch(&mut self, first: Counters, track: Option<StreamKey>, now: Instant) {
        let timestamp = self.last.map_or(0, |last| self.offset_after(last, first, track, now));
        if self.used > self.content.since {
            if self.past.len() == PAST_CONTENTS {
                self.past.pop_front();
            }
            self.past.push_back(self.content);
        }
        self.next = first.index;
        self.selection.begin();
        (self.newest, self.leaves_out) = (None, false);
        self.content = Content { track, first: first.index, since: self.used, timestamp };
        let last = self.last.map(|last| last.out);
        if let (Some(out), Some(new)) = (last.and_then(|out| out.picture_id), first.picture_id) {
            self.offsets.0 = out.wrapping_add(1).wrapping_sub(new);
        }
        if let (Some(out), Some(new)) = (last.and_then(|out| out.tl0), first.tl0) {
            self.offsets.1 = out.wrapping_add(1).wrapping_sub(new);
        }
    }

    /// The offset of timestamps from this packet on. If the publisher's clock goes on, its offset stays: what left last may
    /// have waited for long. Else the time counts that passed.
    fn offset_after(
        &self,
        Last { out, at }: Last,
        first: Counters,
        track: Option<StreamKey>,
        now: Instant,
    ) -> u32 {
        let elapsed_ms = now.saturating_duration_since(at).as_millis() as u64;
        // Sound does not overlap: a packet of 20 ms may have left just before.
        let least = if self.clock_rate == SOUND_HZ { SOUND_HZ / 50 } else { 1 };
        let ticks = (elapsed_ms * u64::from(self.clock_rate) / 1000).max(u64::from(least)) as u32;
        let same = track.is_some() && track == self.content.track;
        let passed =
            first.timestamp.wrapping_add(self.content.timestamp).wrapping_sub(out.timestamp);
        let agree = passed.abs_diff(ticks) < self.clock_rate * CLOCKS_AGREE_S;
        if same && agree && passed > 0 && !self.is_another_stream(first.index) {
            return self.content.timestamp;
        }
        out.timestamp.wrapping_add(ticks).wrapping_sub(first.timestamp)
    }

    /// What a packet of the present content leaves with.
    ///
    /// # Errors
    /// [`OutDrop::BeforeSwitch`] if it has no number: it is from before the switch, was left out, or comes too late.
    #[inline]
    pub(super) fn apply(&mut self, packet: Counters, now: Instant) -> Result<Rewritten, OutDrop> {
        let timestamp = self.content.timestamp;
        if packet.index < self.next {
            let (used, place) = self.find(packet.index).ok_or(OutDrop::BeforeSwitch)?;
            return Ok(rewritten(packet, self.sequence(used), timestamp, place));
        }
        self.number_up_to(packet.index + 1);
        (self.newest, self.leaves_out) = (packet.picture_id, false);
        let place = self.place_of(packet.index);
        let out = rewritten(packet, self.sequence(self.used - 1), timestamp, place);
        self.last = Some(Last { out, at: now });
        Ok(out)
    }

    /// Leaves out a packet of the present content: the next one takes its number. A late packet has a number already,
    /// which nothing uses then.
    pub(super) fn skip(&mut self, index: u64) {
        if index >= self.next && !self.is_another_stream(index) {
            self.number_up_to(index);
            self.next = index + 1;
        }
    }

    /// Whether a packet comes after all that left, as far as its number tells.
    #[inline]
    pub(super) fn is_newest(&self, index: u64) -> bool {
        index >= self.next
    }

    /// Leaves out a packet of a frame that the receiver can do without: the next packet takes its number, and the next
    /// frame its picture id. For VP8: the references of VP9 and AV1 are differences of ids, which must stay.
    pub(super) fn drop_frame(&mut self, packet: Counters) {
        if packet.index < self.next || self.is_another_stream(packet.index) {
            return;
        }
        // Packets that are missing before it belong to earlier frames.
        self.number_up_to(packet.index);
        let began = !self.leaves_out || packet.picture_id != self.newest;
        if began && packet.picture_id.is_some() {
            self.offsets.0 = self.offsets.0.wrapping_sub(1);
        }
        // Frames of the lowest temporal layer are never left out, so TL0PICIDX has nothing to close over.
        (self.newest, self.leaves_out) = (packet.picture_id, true);
        self.next = packet.index + 1;
    }

    /// Whether a packet with this number belongs to another stream of the same publisher than the one that flows: what
    /// is added to the counters of one does not fit the other.
    #[inline]
    pub(super) fn is_another_stream(&self, index: u64) -> bool {
        index + 1 >= self.next + ANOTHER_STREAM
    }

    /// Whether a part of a packet's frame was the last that left.
    pub(super) fn is_within(&self, packet: Counters) -> bool {
        let out = packet.timestamp.wrapping_add(self.content.timestamp);
        self.used > self.content.since && self.last.is_some_and(|last| last.out.timestamp == out)
    }

    /// The sequence number of the first packet that left.
    pub(super) fn first_sequence(&self) -> u16 {
        self.first_sequence
    }

    /// The sequence number of the newest packet that left.
    pub(super) fn last_sequence(&self) -> Option<u16> {
        self.last.map(|last| last.out.sequence)
    }

    /// The packet that left with this sequence number, if that is still noted. Its track knows whether it is still kept.
    pub(super) fn left(&self, sequence: u16) -> Option<Left> {
        let newest = self.sequence(self.used.checked_sub(1)?);
        let used = (self.used - 1).checked_sub(u64::from(newest.wrapping_sub(sequence)))?;
        let place = self.place(used)?;
        let mut contents = std::iter::once(&self.content).chain(self.past.iter().rev());
        let content = contents.find(|content| content.since <= used)?;
        let index = content.first + u64::from(place.index.wrapping_sub(content.first as u32));
        Some(Left { track: content.track?, index, timestamp: content.timestamp, place })
    }

    /// The sequence number that a packet of the present content has, and what left or is to leave with it.
    pub(super) fn used_for(&self, index: u64) -> Option<(u16, Left)> {
        let (used, _) = self.find(index)?;
        let sequence = self.sequence(used);
        Some((sequence, self.left(sequence)?))
    }

    /// Reads what the next packet needs: see [`super::person::Person::ahead`].
    #[inline]
    pub(super) fn ahead(&self) -> u64 {
        let place = self.ring.get(self.used as usize & self.ring.len().wrapping_sub(1));
        self.next ^ u64::from(self.content.timestamp ^ place.map_or(0, |place| place.index))
    }

    /// What is added to the content's timestamps, for sender reports.
    #[inline]
    pub(super) fn timestamp_offset(&self) -> u32 {
        self.content.timestamp
    }

    /// The sequence number after so many others.
    #[inline]
    fn sequence(&self, used: u64) -> u16 {
        self.first_sequence.wrapping_add(used as u16)
    }

    /// Gives a number to every packet before `end` that has none: missing packets may still come.
    #[inline]
    fn number_up_to(&mut self, end: u64) {
        if self.ring.is_empty() || self.next + 1 != end {
            self.number_gap(end);
        }
        if self.next < end {
            let at = self.used as usize & (self.ring.len() - 1);
            self.ring[at] = self.place_of(self.next);
            self.used += 1;
            self.next = end;
        }
    }

    /// The same for all but the last of several.
    #[cold]
    fn number_gap(&mut self, end: u64) {
        if self.ring.is_empty() {
            let places = if self.clock_rate == SOUND_HZ { SOUND_PLACES } else { HISTORY_PACKETS };
            self.ring.resize(places, Place::default());
        }
        let Some(count) = (end - self.next).checked_sub(1) else { return };
        // Of a long gap, only the last numbers are remembered.
        for back in (0..count.min(self.ring.len() as u64)).rev() {
            let at = (self.used + count - 1 - back) as usize & (self.ring.len() - 1);
            self.ring[at] = self.place_of(end - 2 - back);
        }
        self.used += count;
        self.next = end - 1;
    }

    /// What a number that is used now is used for.
    #[inline]
    fn place_of(&self, index: u64) -> Place {
        let (picture, tl0) = self.offsets;
        Place { index: index as u32, picture, tl0, up_to: self.selection.carried() }
    }

    /// What the slot's number after so many others was used for, if that is still noted.
    #[inline]
    fn place(&self, used: u64) -> Option<Place> {
        let noted = used < self.used && self.used - used <= self.ring.len() as u64;
        noted.then(|| self.ring[used as usize & (self.ring.len() - 1)])
    }

    /// The slot's number of a late packet of the present content, if it has one.
    #[cold]
    fn find(&self, index: u64) -> Option<(u64, Place)> {
        let back = self.next.checked_sub(index).filter(|_| index >= self.content.first)?;
        // If nothing was left out since, it lies as far back as its number tells. Otherwise it lies nearer.
        let oldest = self.content.since.max(self.used.saturating_sub(self.ring.len() as u64));
        let (mut from, mut to) = (self.used.saturating_sub(back).max(oldest), self.used);
        while from < to {
            let middle = from + (to - from) / 2;
            let place = self.place(middle)?;
            let here =
                self.content.first + u64::from(place.index.wrapping_sub(self.content.first as u32));
            match here.cmp(&index) {
                std::cmp::Ordering::Equal => return Some((middle, place)),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::TrackKey;
    use std::time::Duration;

    const FIRST: Option<StreamKey> = Some(TrackKey(1).stream());

    fn packet(index: u64, timestamp: u32, picture_id: u16) -> Counters {
        Counters { index, timestamp, picture_id: Some(picture_id), tl0: Some(picture_id as u8) }
    }

    #[test]
    fn a_picture_that_stopped_goes_on_by_its_publishers_clock() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut rewrite = Rewrite::new(90_000, 100);
        let out = |rewrite: &mut Rewrite, index, seconds: u32, ms| {
            let packet = packet(index, 90_000 * seconds, 1);
            rewrite.switch(packet, FIRST, at(ms));
            rewrite.apply(packet, at(ms)).unwrap().timestamp / 90_000
        };
        assert_eq!(out(&mut rewrite, 10, 50, 0), 50);
        // It waited for a second and a half, as the next one does not.
        assert_eq!(out(&mut rewrite, 20, 51, 2500), 51);
        assert_eq!(out(&mut rewrite, 30, 53, 3000), 53);
        assert_eq!(out(&mut rewrite, 40, 9000, 4000), 54, "a clock that jumps");
        assert_eq!(out(&mut rewrite, 50, 9001, 5000), 55);
        assert_eq!(out(&mut rewrite, 60, 9000, 6000), 56, "and one that goes back");
        let another = 60 + ANOTHER_STREAM;
        assert_eq!(out(&mut rewrite, another, 9004, 7000), 57, "another stream");
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
        rewrite.switch(packet(3, 4_000_000_000, 0x7FFF), Some(TrackKey(2).stream()), later);
        let out = rewrite.apply(packet(3, 4_000_000_000, 0x7FFF), later).unwrap();
        assert_eq!((out.sequence, out.timestamp), (102, 5 + 45_000));
        let low = |id: Option<u16>| id.map(|id| id & 0x7FFF);
        assert_eq!((low(out.picture_id), out.tl0), (Some(10), Some(10)));
        let next = rewrite.apply(packet(4, 4_000_003_000, 0), later).unwrap();
        assert_eq!((next.sequence, next.timestamp), (103, 5 + 48_000));
        assert_eq!(low(next.picture_id), Some(11), "picture ids wrap at 15 bits");
        assert_eq!(rewrite.apply(packet(2, 0, 0), later), Err(OutDrop::BeforeSwitch));
    }

    #[test]
    fn frame_numbers_go_on_over_a_switch_with_all_their_bits() {
        let now = Instant::now();
        let mut rewrite = Rewrite::new(90_000, 0);
        let frame = |index: u64, number: u16| Counters { tl0: None, ..packet(index, 0, number) };
        rewrite.switch(frame(0, 0xFFFE), FIRST, now);
        assert_eq!(rewrite.apply(frame(0, 0xFFFE), now).unwrap().picture_id, Some(0xFFFE));
        assert_eq!(rewrite.apply(frame(1, 0xFFFF), now).unwrap().picture_id, Some(0xFFFF));
        rewrite.switch(frame(9, 0x8765), Some(TrackKey(2).stream()), now);
        assert_eq!(rewrite.apply(frame(9, 0x8765), now).unwrap().picture_id, Some(0));
        assert_eq!(rewrite.apply(frame(10, 0x8767), now).unwrap().picture_id, Some(2));
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
        assert_eq!(rewrite.left(65_500), None);
        let mut left = Vec::new();
        let mut send = |rewrite: &mut Rewrite, track: Option<StreamKey>, index: u64| {
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
        let second = Some(TrackKey(2).stream());
        rewrite.switch(packet(7, 21_000, 7), second, now);
        (7..107).for_each(|index| send(&mut rewrite, second, index));
        let mut numbers: Vec<u16> = left.iter().map(|(.., out)| out.sequence).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), left.len(), "no number twice");
        for (track, index, timestamp, id, out) in left {
            let origin = rewrite.left(out.sequence).expect("it left");
            assert_eq!((origin.track, origin.index), (track, index), "{out:?}");
            let again = origin.rewritten(packet(index, timestamp, id), out.sequence);
            assert_eq!(again, out);
        }
        assert_eq!(rewrite.left(65_499), None, "before the first");
    }
    /// Packets of frames: (number, picture id), two packets each, every second frame with a new TL0PICIDX.
    fn of_frame(index: u64) -> Counters {
        let frame = (index / 2) as u16;
        let (picture_id, tl0) = (Some(frame & 0x7FFF), Some((frame / 2) as u8));
        Counters { index, timestamp: u32::from(frame) * 3000, picture_id, tl0 }
    }

    #[test]
    fn frames_that_are_left_out_leave_no_gap_in_any_counter() {
        let now = Instant::now();
        let mut rewrite = Rewrite::new(90_000, 65_533);
        rewrite.switch(of_frame(100), FIRST, now);
        let mut left = Vec::new();
        for index in 100..180 {
            // Of the frames between those with a new TL0PICIDX, none leaves.
            if index / 2 % 2 == 1 {
                rewrite.drop_frame(of_frame(index));
            } else {
                left.push((index, rewrite.apply(of_frame(index), now).unwrap()));
            }
        }
        for (nth, pair) in left.windows(2).enumerate() {
            let ((_, a), (_, b)) = (pair[0], pair[1]);
            let frames = u16::from(nth % 2 == 1);
            assert_eq!(b.sequence, a.sequence.wrapping_add(1), "{pair:?}");
            assert_eq!(b.picture_id, a.picture_id.map(|id| id + frames), "{pair:?}");
            assert_eq!(b.tl0, a.tl0.map(|id| id + frames as u8), "{pair:?}");
        }
        for (index, out) in &left {
            let known = rewrite.left(out.sequence).expect("it left");
            assert_eq!(known.index, *index);
            assert_eq!(known.rewritten(of_frame(*index), out.sequence), *out);
            assert_eq!(rewrite.apply(of_frame(*index), now), Ok(*out), "the same if it comes late");
        }
        assert_eq!(rewrite.apply(of_frame(102), now), Err(OutDrop::BeforeSwitch), "left out");
    }

    #[test]
    fn what_comes_late_after_frames_were_left_out_keeps_its_place() {
        let now = Instant::now();
        let mut rewrite = Rewrite::new(90_000, 0);
        rewrite.switch(of_frame(0), FIRST, now);
        rewrite.apply(of_frame(0), now).unwrap();
        // Number 1 is missing; frame 1 is left out; number 4 is missing; then a packet of frame 2 and frame 3 left out.
        rewrite.drop_frame(of_frame(2));
        rewrite.drop_frame(of_frame(3));
        let newer = rewrite.apply(of_frame(5), now).unwrap();
        rewrite.drop_frame(of_frame(6));
        assert_eq!((newer.sequence, newer.picture_id), (3, Some(1)));
        let late = rewrite.apply(of_frame(1), now).unwrap();
        assert_eq!((late.sequence, late.picture_id), (1, Some(0)));
        let late = rewrite.apply(of_frame(4), now).unwrap();
        assert_eq!((late.sequence, late.picture_id), (2, Some(1)));
    }

    #[test]
    fn a_long_gap_is_numbered_and_what_is_too_late_is_left_out() {
        let now = Instant::now();
        let mut rewrite = Rewrite::new(90_000, 0);
        rewrite.switch(packet(1000, 0, 0), FIRST, now);
        rewrite.apply(packet(1000, 0, 0), now).unwrap();
        let after = rewrite.apply(packet(31_000, 0, 0), now).unwrap();
        assert_eq!(after.sequence, 30_000);
        let oldest = 31_001 - HISTORY_PACKETS as u64;
        let late = rewrite.apply(packet(oldest, 0, 0), now).unwrap();
        assert_eq!(u64::from(late.sequence), oldest - 1000);
        assert_eq!(rewrite.apply(packet(oldest - 1, 0, 0), now), Err(OutDrop::BeforeSwitch));
        assert_eq!(rewrite.left((oldest - 1001) as u16), None);
        assert!(rewrite.is_another_stream(31_000 + ANOTHER_STREAM));
        assert!(!rewrite.is_another_stream(30_999 + ANOTHER_STREAM));
    }
}
