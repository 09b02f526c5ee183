//! A publisher's last packets in plaintext, kept once for all subscribers, for resending.

use crate::limits::{HISTORY_PACKETS, MAX_PACKET};

/// One kept packet. `bytes` is a whole RTP packet as it was opened.
#[derive(Debug, Clone, Default)]
struct Kept {
    index: u64,
    bytes: Vec<u8>,
}

/// A ring of plaintext packets by unwrapped sequence number.
#[derive(Debug, Default)]
pub(crate) struct History {
    ring: Vec<Kept>,
}

impl History {
    /// Keeps a packet; the one that is [`HISTORY_PACKETS`] older makes place.
    pub(crate) fn keep(&mut self, index: u64, packet: &[u8]) {
        if self.ring.is_empty() {
            self.ring.resize(HISTORY_PACKETS, Kept::default());
        }
        let place = &mut self.ring[index as usize % HISTORY_PACKETS];
        if !place.bytes.is_empty() && place.index > index {
            return;
        }
        if place.bytes.capacity() == 0 {
            place.bytes.reserve_exact(MAX_PACKET);
        }
        place.index = index;
        place.bytes.clear();
        place.bytes.extend_from_slice(packet);
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
