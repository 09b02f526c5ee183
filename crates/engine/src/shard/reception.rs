//! How a stream arrives at the shard of its publisher: its SSRCs, its numbers, its losses.

use crate::drops::InDrop;
use crate::limits::SSRC_RETIRED;
use rtp::RtpHeader;
use rtp::extended::{FIRST_CYCLE, nearest};
use rtp::nack::{NackGenerator, Pushed};
use rtp::negotiated::{Kind, Line, StreamIds};
use rtp::red::Came;
use rtp::report::ReceiveStream;
use std::time::Instant;

/// Cycles of 2^16 numbers from the stream before to the next one. A retransmission may be half a cycle ahead, and the
/// next number is still more than [`rtp::extended::ANOTHER_STREAM`] away.
const CYCLES_BETWEEN: u64 = 3;

/// The reception of one stream, and of those that its publisher sent on the same line before.
pub(super) struct Reception {
    /// Its SSRC and that of its retransmissions; if none was announced, None before the first packet.
    pub ids: Option<StreamIds>,
    /// The SSRC of the stream before the present one, and when that began.
    retired: Option<(u32, Instant)>,
    /// What is added to the indices that opening a packet authenticates.
    base: u64,
    /// The newest number, retransmissions not counted.
    newest: Option<u64>,
    clock_rate: u32,
    /// Whether missing packets are asked for.
    repairs: bool,
    /// It is of pictures, and they cannot be: only a keyframe makes good what is missing.
    needs_keyframes: bool,
    pub receive: ReceiveStream,
    pub missing: NackGenerator,
    /// What came of a stream of which no packet is asked for again: sound repeats itself instead.
    came: Came,
}

impl Reception {
    pub(super) fn new(line: &Line) -> Self {
        let clock_rate = line.codec.clock_rate();
        Self {
            ids: line.remote,
            retired: None,
            base: FIRST_CYCLE,
            newest: None,
            clock_rate,
            repairs: line.nack,
            needs_keyframes: !line.nack && line.codec.kind() == Kind::Video,
            receive: ReceiveStream::new(line.remote.map_or(0, |ids| ids.ssrc), clock_rate),
            missing: NackGenerator::new(),
            came: Came::default(),
        }
    }

    /// The number of a packet that was opened with this index (`ROC << 16 | SEQ`). From here on this is its only number.
    #[inline]
    pub(super) fn number(&mut self, index: u64) -> u64 {
        let number = self.base + index;
        self.newest = self.newest.max(Some(number));
        number
    }

    /// The number of a retransmission, by the sequence number of the original.
    pub(super) fn number_of_repaired(&self, original: u16) -> u64 {
        nearest(self.newest.unwrap_or(self.base | u64::from(original)), original)
    }

    /// Whether a packet of sound has not come, though others of its stream have.
    pub(super) fn lacks(&self, number: u64) -> bool {
        !self.repairs && self.came.lacks(number)
    }

    /// Whether a packet of pictures is missing by now that nobody can send again: all who see them wait for a keyframe.
    pub(super) fn misses_picture(&mut self, now: Instant, scratch: &mut Vec<u16>) -> bool {
        if !self.needs_keyframes {
            return false;
        }
        if self.missing.take_keyframe_needed() {
            return true;
        }
        if !self.missing.is_pending() {
            return false;
        }
        self.missing.due(now, scratch);
        let misses = !scratch.is_empty();
        scratch.clear();
        if misses {
            self.missing.restart();
        }
        misses
    }

    /// Takes note of a packet. `payload_len`: without padding, in bytes; 0 if there is only padding. `repaired`: it came as a
    /// retransmission, or as a copy in a later packet.
    ///
    /// # Errors
    /// [`InDrop::Duplicate`]: it had come already in another way.
    pub(super) fn note(
        &mut self,
        number: u64,
        header: &RtpHeader,
        payload_len: usize,
        repaired: bool,
        arrival: Instant,
    ) -> Result<(), InDrop> {
        let of_use = if self.repairs {
            let pushed = self.missing.push_number(number, arrival);
            if !header.marker && payload_len > 0 {
                self.missing.frame_goes_on(number, arrival);
            }
            // A retransmission that is newer than all before is media like any other: nothing else will bring it.
            !repaired || matches!(pushed, Pushed::Recovered | Pushed::New)
        } else {
            if self.needs_keyframes {
                self.missing.push_number(number, arrival);
            }
            self.came.take(number)
        };
        if !repaired {
            match payload_len {
                0 => self.receive.push_padding(header.sequence),
                len => self.receive.push(header.sequence, header.timestamp, len, arrival),
            }
        }
        if of_use { Ok(()) } else { Err(InDrop::Duplicate) }
    }

    /// The SSRC that the publisher really uses. Says whether a new stream began: another was in use before. Sequence
    /// numbers, timestamps and losses of the two have nothing to do with each other. Slots and voices see this by the
    /// numbers of the new stream, which lie far beyond all before.
    pub(super) fn adopt(&mut self, ssrc: u32, at: Instant) -> bool {
        let again = self.newest.take();
        if let Some(newest) = again {
            self.retired = self.ids.map(|ids| (ids.ssrc, at));
            self.base = ((newest >> 16) + CYCLES_BETWEEN) << 16;
            self.missing.restart();
            self.came = Came::default();
        }
        self.ids = Some(StreamIds { ssrc, rtx: self.ids.and_then(|ids| ids.rtx) });
        self.receive = ReceiveStream::new(ssrc, self.clock_rate);
        again.is_some()
    }

    /// Whether this is the SSRC of the stream before the present one, which has just begun: its packets come late. After a
    /// while the publisher has gone back to it.
    pub(super) fn is_retired(&self, ssrc: u32, at: Instant) -> bool {
        self.retired.is_some_and(|(known, since)| {
            known == ssrc && at.saturating_duration_since(since) < SSRC_RETIRED
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::track::voice_line;
    use super::*;
    use rtp::extended::ANOTHER_STREAM;

    #[test]
    fn numbers_are_those_that_were_authenticated_and_retransmissions_lie_near_them() {
        let mut reception = Reception::new(&voice_line());
        assert_eq!(reception.number_of_repaired(65_535), FIRST_CYCLE | 65_535, "before all others");
        let mut reception_of = |index| reception.number(index);
        let first = reception_of(65_530);
        assert_eq!(reception_of((1 << 16) + 4), first + 10, "after a wrap");
        assert_eq!(reception_of(65_531), first + 1, "late");
        assert_eq!(reception.number_of_repaired(65_533), first + 3);
        assert_eq!(reception.number_of_repaired(6), first + 12);
    }

    #[test]
    fn a_new_stream_lies_far_beyond_whatever_came_before() {
        for last in [0, 9, 32_768, 65_535, 70_000] {
            for first in [0, 9, 32_768, 65_535] {
                let mut reception = Reception::new(&voice_line());
                let at = Instant::now();
                assert!(!reception.adopt(5, at), "the first one");
                let mut old = reception.number(last);
                old = old.max(reception.number_of_repaired((last as u16).wrapping_add(32_767)));
                assert!(reception.adopt(6, at) && reception.is_retired(5, at));
                assert!(!reception.is_retired(5, at + SSRC_RETIRED), "it is back");
                let new = reception.number(first);
                assert_eq!(new as u16, first as u16);
                assert!(new >= old + ANOTHER_STREAM, "{last}, {first}");
            }
        }
    }
    #[test]
    fn a_picture_that_nobody_sends_again_is_missed_once() {
        use rtp::negotiated::Codec;
        let (now, mut scratch) = (Instant::now(), Vec::new());
        let line = Line { codec: Codec::Vp8, ..voice_line() };
        let mut reception = Reception::new(&line);
        let mut note = |number: u64| {
            reception.note(number, &header(number as u16), 900, false, now).unwrap();
            let later = now + std::time::Duration::from_millis(100);
            reception.misses_picture(later, &mut scratch)
        };
        assert!(!note(100) && !note(101));
        assert!(note(103), "102 is missing");
        assert!(!note(104) && !note(105), "it was told");
        assert!(note(110) && !note(111));
    }

    #[test]
    fn sound_that_came_as_a_copy_does_not_come_again() {
        let mut reception = Reception::new(&voice_line());
        let mut note = |number: u64, copy: bool| {
            let header = header(number as u16);
            reception.note(number, &header, 50, copy, Instant::now()).is_ok()
        };
        assert!(note(100, false) && note(102, false));
        assert!(note(101, true), "a copy of what is missing");
        assert!(!note(101, true) && !note(101, false) && !note(102, true));
        assert!(!reception.lacks(99) && !reception.lacks(101) && reception.lacks(103));
    }

    fn header(sequence: u16) -> RtpHeader {
        let [first, second] = sequence.to_be_bytes();
        let packet = [0x80, 0, first, second, 0, 0, 0, 0, 0, 0, 0, 0];
        RtpHeader::parse(&packet).unwrap()
    }
}
