//! Numbers that nothing will bring. Once a keyframe is whole, what is missing before it is asked for no more
//! ([`super::encoding::Encoding::forget_superseded`]). Receivers who take packets strictly in order would wait for it all the
//! same: aiortc stands still until 512 more have come. So each such number that left a gap in a slot leaves as an empty
//! retransmission ([`super::repeat::fill`]).

use super::history::History;
use crate::command::StreamKey;
use crate::limits::HISTORY_PACKETS;
use rtp::RtpHeader;
use rtp::extended::ANOTHER_STREAM;

/// What is missing of a stream of pictures before its newest keyframe.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The newest number that came.
    newest: Option<u64>,
    /// One was passed over since the last keyframe that was whole.
    open: bool,
    /// From here on numbers count: the beginning of the stream, or of that keyframe.
    pub from: u64,
    /// Those that nothing brought, ascending, each with the timestamp of the frame before it.
    pub lost: Vec<(u64, u32)>,
}

impl Gaps {
    /// A number came.
    #[inline]
    pub(super) fn came(&mut self, number: u64) {
        let newest = self.newest.replace(number.max(self.newest.unwrap_or(0)));
        match newest.map(|newest| number.saturating_sub(newest)) {
            Some(0 | 1) => {}
            Some(2..ANOTHER_STREAM) => self.open = true,
            _ => self.from = number,
        }
    }

    /// Packets were dropped on purpose: what they leave is no gap, and numbers count from the next one on.
    #[inline]
    pub(super) fn forget(&mut self) {
        (self.newest, self.open) = (None, false);
        self.lost.clear();
    }

    /// Whether something is missing since the last keyframe that was whole.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// A keyframe is whole, which these numbers hold.
    pub(super) fn close(&mut self, (first, end): (u64, u64), history: &History) {
        let from = self.from.max(first.saturating_sub(HISTORY_PACKETS as u64));
        let mut timestamp = None;
        self.lost.clear();
        for number in from..first {
            if let Some(kept) = history.get(number) {
                timestamp = RtpHeader::parse(kept).ok().map(|header| header.timestamp);
            } else if !history.has(number) {
                self.lost.extend(timestamp.map(|timestamp| (number, timestamp)));
            }
        }
        (self.from, self.open) = (first, self.newest > Some(end));
    }

    /// Whether nothing is missing before the newest keyframe.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty()
    }
}

/// The keyframe of a stream up to which nothing is missing in a slot.
pub(super) type Filled = Option<(StreamKey, u64)>;

#[cfg(test)]
mod tests {
    use super::*;
    use rtp::header::HeaderWriter;
    use std::time::Instant;

    /// Each of these numbers came, with the timestamp of a frame of two packets.
    fn came(gaps: &mut Gaps, history: &mut History, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            let timestamp = number as u32 / 2;
            let mut packet = [0; 16];
            HeaderWriter { timestamp, ..HeaderWriter::default() }.write(&mut packet).unwrap();
            history.keep(number, &packet, Instant::now());
            gaps.came(number);
        }
    }

    #[test]
    fn what_is_missing_before_a_whole_keyframe_is_known_once() {
        let (mut gaps, mut history) = (Gaps::default(), History::default());
        came(&mut gaps, &mut history, (100..120).filter(|at| ![100, 107, 108, 115].contains(at)));
        assert!(gaps.is_open());
        gaps.close((118, 119), &history);
        assert_eq!(gaps.lost, [(107, 53), (108, 53), (115, 57)], "what began is not missing");
        assert!(!gaps.is_open());
        came(&mut gaps, &mut history, 120..130);
        gaps.close((128, 129), &history);
        assert!(gaps.is_empty());
    }

    #[test]
    fn what_was_dropped_on_purpose_is_no_gap() {
        let (mut gaps, mut history) = (Gaps::default(), History::default());
        came(&mut gaps, &mut history, [100, 101, 103].into_iter());
        gaps.forget();
        came(&mut gaps, &mut history, [200, 201].into_iter());
        assert!(!gaps.is_open() && gaps.is_empty());
        came(&mut gaps, &mut history, [203, 204].into_iter());
        gaps.close((204, 204), &history);
        assert_eq!(gaps.lost.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [202]);
    }

    #[test]
    fn a_stream_that_begins_anew_misses_nothing_and_no_more_is_looked_for_than_is_kept() {
        let (mut gaps, mut history) = (Gaps::default(), History::default());
        came(&mut gaps, &mut history, 0..10);
        let anew = 2 * ANOTHER_STREAM;
        came(&mut gaps, &mut history, anew..anew + 10);
        assert!(!gaps.is_open());
        let later = anew + 10_000;
        came(&mut gaps, &mut history, [later - 3, later - 1, later].into_iter());
        gaps.close((later, later), &history);
        assert_eq!(gaps.lost.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [later - 2]);
    }
}
