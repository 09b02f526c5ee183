//! The last packets of a voice in plaintext, kept if slots are short. A participant who gets a slot because they speak is
//! heard from their first syllable on, although it came before they had the slot.

use crate::limits::{LATE_BYTES, LATE_PACKETS, ONSET_PACKETS};
use std::time::Instant;

/// Where a packet lies in the memory.
#[derive(Debug, Clone, Copy)]
struct Place {
    index: u64,
    arrival: Instant,
    len: usize,
}

/// The last [`LATE_PACKETS`] packets of a track, by unwrapped sequence number. All its memory is
/// allocated at the start.
#[derive(Debug)]
pub(crate) struct Lately {
    places: [Option<Place>; LATE_PACKETS],
    bytes: Vec<u8>,
    newest: u64,
}

/// A packet that is kept, whole as it was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Past<'a> {
    /// Its unwrapped sequence number.
    pub index: u64,
    /// When it came.
    pub arrival: Instant,
    /// The RTP packet.
    pub bytes: &'a [u8],
}

impl Lately {
    pub(crate) fn new() -> Self {
        let bytes = vec![0; LATE_PACKETS * LATE_BYTES];
        Self { places: [None; LATE_PACKETS], bytes, newest: 0 }
    }

    /// Keeps a packet. If it is too long to be kept, all before it is forgotten: a replay must leave
    /// nothing out.
    pub(crate) fn keep(&mut self, index: u64, arrival: Instant, packet: &[u8]) {
        if packet.len() > LATE_BYTES {
            self.forget();
            return;
        }
        let at = index as usize % LATE_PACKETS;
        if self.places[at].is_some_and(|place| place.index > index) {
            return;
        }
        self.places[at] = Some(Place { index, arrival, len: packet.len() });
        self.bytes[at * LATE_BYTES..][..packet.len()].copy_from_slice(packet);
        self.newest = self.newest.max(index);
    }

    /// Keeps nothing of what came so far.
    pub(crate) fn forget(&mut self) {
        self.places = [None; LATE_PACKETS];
    }

    /// What is kept of speech that began with packet `first` and was known as speech from packet
    /// `known` on, oldest first. Nothing if `known` is no longer kept: a speaker who waited so long
    /// for a slot is heard from now on.
    pub(crate) fn speech(&self, (first, known): (u64, u64)) -> impl Iterator<Item = Past<'_>> {
        let end = self.newest + 1;
        let oldest = end.saturating_sub(LATE_PACKETS as u64);
        let from = match known >= oldest {
            true => first.saturating_sub(ONSET_PACKETS).max(oldest),
            false => end,
        };
        (from..end).filter_map(|index| self.get(index))
    }

    fn get(&self, index: u64) -> Option<Past<'_>> {
        let at = index as usize % LATE_PACKETS;
        let place = self.places[at].filter(|place| place.index == index)?;
        let bytes = &self.bytes[at * LATE_BYTES..][..place.len];
        Some(Past { index, arrival: place.arrival, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lately: &Lately, speech: (u64, u64)) -> Vec<u64> {
        lately.speech(speech).map(|past| past.index).collect()
    }

    #[test]
    fn speech_is_told_from_a_little_before_its_first_packet_and_not_what_is_over() {
        let mut lately = Lately::new();
        let now = Instant::now();
        assert_eq!(told(&lately, (0, 0)), []);
        (0..100).filter(|n| *n != 97).for_each(|n| lately.keep(n, now, &n.to_be_bytes()));
        lately.keep(3, now, b"late");
        assert_eq!(told(&lately, (95, 98)), [92, 93, 94, 95, 96, 98, 99], "97 never came");
        let all: Vec<u64> = (100 - LATE_PACKETS as u64..100).filter(|n| *n != 97).collect();
        assert_eq!(told(&lately, (10, 80)), all, "no more than is kept");
        assert_eq!(told(&lately, (10, 13)), [], "it began long ago");
        assert!(lately.speech((95, 98)).all(|past| past.bytes == past.index.to_be_bytes()));
        lately.keep(100, now, &[0; LATE_BYTES + 1]);
        assert_eq!(told(&lately, (95, 98)), [], "nothing with a hole in it");
    }
}
