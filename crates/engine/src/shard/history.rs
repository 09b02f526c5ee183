//! A publisher's last packets in plaintext, kept once for all subscribers: for resending, for what waits for a burst, and
//! for slots that begin late.
//!
//! A packet that waits for somebody is held. It moves aside when its place is needed, and stays until all have got it. It
//! stays a while longer, since it may be asked for again.

use crate::limits::{HELD_AFTER, HELD_BYTES, HISTORY_PACKETS, MAX_PACKET};
use rtp::RtpHeader;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

/// One kept packet. `bytes` is a whole RTP packet as it was opened.
#[derive(Debug, Clone)]
struct Kept {
    index: u64,
    /// Empty if the number brought nothing.
    bytes: Vec<u8>,
    /// For how many it waits.
    held: Cell<u32>,
    /// It may be asked for again until then by somebody who got it late.
    until: Cell<Option<Instant>>,
}

impl Kept {
    /// Whether it is to be kept although its place is needed.
    fn is_needed(&self, now: Instant) -> bool {
        let late = self.until.get().is_some_and(|until| now < until);
        !self.bytes.is_empty() && (self.held.get() > 0 || late)
    }

    fn empty(index: u64) -> Self {
        Self { index, bytes: Vec::new(), held: Cell::new(0), until: Cell::new(None) }
    }
}

/// The number of a place that was never used.
const UNUSED: u64 = u64::MAX;

/// A ring of plaintext packets by unwrapped sequence number.
#[derive(Debug, Default)]
pub(crate) struct History {
    ring: Vec<Kept>,
    newest: u64,
    /// Those that are needed beyond their time, and how many bytes they have.
    aside: BTreeMap<u64, Kept>,
    aside_bytes: usize,
    /// When it was last looked which of them are needed.
    looked: Option<Instant>,
}

impl History {
    /// Keeps a packet in place of the one that is [`HISTORY_PACKETS`] older.
    pub(crate) fn keep(&mut self, index: u64, packet: &[u8], now: Instant) {
        let Some(place) = self.place(index, now) else { return };
        if place.bytes.capacity() == 0 {
            place.bytes.reserve_exact(MAX_PACKET);
        }
        place.bytes.extend_from_slice(packet);
    }

    /// Notes that a number brought nothing but padding.
    pub(crate) fn pass(&mut self, index: u64, now: Instant) {
        self.place(index, now);
    }

    /// A packet waits for somebody.
    pub(crate) fn hold(&self, index: u64) {
        if let Some(kept) = self.kept(index) {
            kept.held.set(kept.held.get() + 1);
        }
    }

    /// A packet left to somebody for whom it waited. They may ask for it again.
    pub(crate) fn release(&self, index: u64, now: Instant) {
        if let Some(kept) = self.kept(index) {
            kept.until.set(Some(now + HELD_AFTER));
        }
        self.let_go(index);
    }

    /// A packet waits for somebody no more: it will not leave.
    pub(crate) fn let_go(&self, index: u64) {
        if let Some(kept) = self.kept(index) {
            kept.held.set(kept.held.get().saturating_sub(1));
        }
    }

    fn kept(&self, index: u64) -> Option<&Kept> {
        let place = self.ring.get(index as usize % HISTORY_PACKETS);
        let here = place.filter(|place| place.index == index);
        here.or_else(|| self.aside.get(&index))
    }

    /// Forgets what is needed no more of what moved aside, now and then.
    fn tidy(&mut self, now: Instant) {
        let lately = |at| now.saturating_duration_since(at) < HELD_AFTER / 10;
        if !self.aside.is_empty() && !self.looked.is_some_and(lately) {
            self.looked = Some(now);
            self.aside.retain(|_, kept| kept.is_needed(now));
            self.aside_bytes = self.aside.values().map(|kept| kept.bytes.len()).sum();
        }
    }

    /// The place of a number, emptied for it; None if a newer number is there.
    fn place(&mut self, index: u64, now: Instant) -> Option<&mut Kept> {
        if self.ring.is_empty() {
            self.ring.resize(HISTORY_PACKETS, Kept::empty(UNUSED));
        }
        self.tidy(now);
        let place = &mut self.ring[index as usize % HISTORY_PACKETS];
        if place.index != UNUSED && place.index > index {
            return None;
        }
        self.newest = self.newest.max(index);
        if place.until.get().is_some() || place.held.get() > 0 {
            if place.is_needed(now) && self.aside_bytes + place.bytes.len() <= HELD_BYTES {
                self.aside_bytes += place.bytes.len();
                let kept = std::mem::replace(place, Kept::empty(index));
                self.aside.insert(kept.index, kept);
                place.bytes.reserve_exact(MAX_PACKET);
            }
            (place.held, place.until) = (Cell::new(0), Cell::new(None));
        }
        place.index = index;
        place.bytes.clear();
        Some(place)
    }

    /// Whether it is known what this number brought.
    pub(super) fn has(&self, index: u64) -> bool {
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
        if place.index == index {
            return (!place.bytes.is_empty()).then_some(&place.bytes);
        }
        Some(&self.aside.get(&index)?.bytes)
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
        let now = Instant::now();
        all.clone().for_each(|index| history.keep(index, &index.to_be_bytes(), now));
        history.keep(6, b"late", now);
        for index in all {
            let kept = index >= 5 + HISTORY_PACKETS as u64;
            assert_eq!(history.get(index), kept.then_some(&index.to_be_bytes()[..]));
        }
    }

    #[test]
    fn what_waits_for_somebody_is_kept_until_they_have_it_and_a_while_longer() {
        let start = Instant::now();
        let mut history = History::default();
        let keep = |history: &mut History, from: u64, now| {
            let all = from..from + HISTORY_PACKETS as u64;
            all.for_each(|index| history.keep(index, &index.to_be_bytes(), now));
        };
        keep(&mut history, 0, start);
        for index in [10, 11] {
            history.hold(index);
        }
        history.hold(11);
        keep(&mut history, HISTORY_PACKETS as u64, start);
        let kept = |history: &History| [9, 10, 11, 12].map(|index| history.get(index).is_some());
        assert_eq!(kept(&history), [false, true, true, false]);
        history.release(10, start);
        history.release(11, start);
        assert_eq!(kept(&history), [false, true, true, false], "10 may be asked for again");
        let later = start + HELD_AFTER;
        history.pass(1, later);
        assert_eq!(kept(&history), [false, false, true, false], "one still waits for 11");
        history.release(11, later);
        history.pass(1, later + HELD_AFTER);
        assert_eq!((kept(&history), history.aside_bytes), ([false; 4], 0));
    }

    #[test]
    fn what_is_held_has_a_bound() {
        let now = Instant::now();
        let mut history = History::default();
        let packet = [7; MAX_PACKET];
        for index in 0..10 * (HELD_BYTES / MAX_PACKET) as u64 {
            history.keep(index, &packet, now);
            history.hold(index);
        }
        assert!(history.aside_bytes <= HELD_BYTES && history.aside_bytes > HELD_BYTES - 2000);
    }
}
