//! A publisher's last packets in plaintext, kept once for all subscribers: for resending, for what waits for a burst, and
//! for slots that begin late.

use crate::limits::{HISTORY_PACKETS, MAX_PACKET};
use rtp::RtpHeader;
use std::ops::Range;

/// One kept packet. `bytes` is a whole RTP packet as it was opened.
#[derive(Debug, Clone)]
struct Kept {
    index: u64,
    /// Empty if the number brought nothing.
    bytes: Vec<u8>,
}

/// The number of a place that was never used.
const UNUSED: u64 = u64::MAX;

/// A ring of plaintext packets by unwrapped sequence number.
#[derive(Debug, Default)]
pub(crate) struct History {
    ring: Vec<Kept>,
    newest: u64,
}

impl History {
    /// Keeps a packet in place of the one that is [`HISTORY_PACKETS`] older.
    pub(crate) fn keep(&mut self, index: u64, packet: &[u8]) {
        let Some(place) = self.place(index) else { return };
        if place.bytes.capacity() == 0 {
            place.bytes.reserve_exact(MAX_PACKET);
        }
        place.bytes.extend_from_slice(packet);
    }

    /// Notes that a number brought nothing but padding.
    pub(crate) fn pass(&mut self, index: u64) {
        self.place(index);
    }

    /// The place of a number, emptied for it; None if a newer number is there.
    fn place(&mut self, index: u64) -> Option<&mut Kept> {
        if self.ring.is_empty() {
            self.ring.resize(HISTORY_PACKETS, Kept { index: UNUSED, bytes: Vec::new() });
        }
        let place = &mut self.ring[index as usize % HISTORY_PACKETS];
        if place.index != UNUSED && place.index > index {
            return None;
        }
        self.newest = self.newest.max(index);
        place.index = index;
        place.bytes.clear();
        Some(place)
    }

    /// Whether it is known what this number brought.
    fn has(&self, index: u64) -> bool {
        let place = self.ring.get(index as usize % HISTORY_PACKETS);
        place.is_some_and(|place| place.index == index)
    }

    /// The last number of the frame that begins with this one, if all of it is kept.
    pub(crate) fn frame_end(&self, first: u64) -> Option<u64> {
        let timestamp = RtpHeader::parse(self.get(first)?).ok()?.timestamp;
        for index in first..first + HISTORY_PACKETS as u64 {
            let Some(bytes) = self.get(index) else {
                if self.has(index) { continue } else { return None }
            };
            let header = RtpHeader::parse(bytes).ok().filter(|it| it.timestamp == timestamp)?;
            if header.marker {
                return Some(index);
            }
        }
        None
    }

    /// All numbers from this one to the newest, if none of them is missing.
    pub(crate) fn since(&self, first: u64) -> Option<Range<u64>> {
        let all = first..self.newest + 1;
        let short = !all.is_empty() && all.end - first <= HISTORY_PACKETS as u64;
        (short && all.clone().all(|index| self.has(index))).then_some(all)
    }

    /// How many bytes are kept of these numbers.
    pub(crate) fn bytes(&self, numbers: Range<u64>) -> usize {
        numbers.filter_map(|index| self.get(index)).map(<[u8]>::len).sum()
    }

    /// The packet with this unwrapped sequence number, if it is still kept.
    pub(crate) fn get(&self, index: u64) -> Option<&[u8]> {
        let place = self.ring.get(index as usize % HISTORY_PACKETS)?;
        (place.index == index && !place.bytes.is_empty()).then_some(&place.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_ones_only() {
        let mut history = History::default();
        assert_eq!(history.get(5), None);
        let all = 5..5 + 2 * HISTORY_PACKETS as u64;
        all.clone().for_each(|index| history.keep(index, &index.to_be_bytes()));
        history.keep(6, b"late");
        for index in all {
            let kept = index >= 5 + HISTORY_PACKETS as u64;
            assert_eq!(history.get(index), kept.then_some(&index.to_be_bytes()[..]));
        }
    }
}
