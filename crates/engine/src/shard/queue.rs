//! Between opening and forwarding: the packets of a batch wait here in plaintext, so that each
//! subscriber gets all packets of a track in a row. They share one memory, allocated once.

use super::index::TrackIndex;
use super::packet::Opened;
use crate::limits::{MAX_PACKET, QUEUED_PACKETS};

/// Bytes from packet to packet: an odd number of cache lines, so that the beginnings of packets do not
/// compete for the same places in the caches.
const STRIDE: usize = 23 * 64;
const _: () = assert!(STRIDE >= MAX_PACKET);

/// Opened packets in the order in which they came.
#[derive(Default)]
pub(super) struct Queue {
    arena: Vec<u8>,
    packets: Vec<Queued>,
}

/// One of them.
pub(super) struct Queued {
    pub track: TrackIndex,
    pub opened: Opened,
}

impl Queue {
    /// How many packets wait.
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Memory for the next packet, with arbitrary content; it is lent again unless
    /// [`Self::push`] follows. None if the queue is full.
    #[inline]
    pub(super) fn lend(&mut self) -> Option<&mut [u8]> {
        let len = self.packets.len();
        if len == QUEUED_PACKETS {
            return None;
        }
        if self.arena.is_empty() {
            self.arena.resize(QUEUED_PACKETS * STRIDE, 0);
            self.packets.reserve_exact(QUEUED_PACKETS);
        }
        Some(&mut self.arena[len * STRIDE..][..MAX_PACKET])
    }

    /// Adds the packet in the memory that was lent last.
    #[inline]
    pub(super) fn push(&mut self, track: TrackIndex, opened: Opened) {
        self.packets.push(Queued { track, opened });
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.packets.len() == QUEUED_PACKETS
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.packets.clear();
    }

    /// A packet and its bytes.
    #[inline]
    pub(super) fn packet(&self, at: usize) -> (&Opened, &[u8]) {
        (&self.packets[at].opened, &self.arena[at * STRIDE..][..MAX_PACKET])
    }

    /// Gives `of` each track with the places of its packets in the queue.
    pub(super) fn by_track(&self, mut of: impl FnMut(TrackIndex, &[u8])) {
        let mut left = bits(self.packets.len());
        while left != 0 {
            let track = self.packets[left.trailing_zeros() as usize].track;
            let (mut run, mut len) = ([0; QUEUED_PACKETS], 0);
            for (at, packet) in self.packets.iter().enumerate() {
                if left & (1 << at) != 0 && packet.track == track {
                    left &= !(1 << at);
                    run[len] = at as u8;
                    len += 1;
                }
            }
            of(track, &run[..len]);
        }
    }
}

/// A bit for each of the first `len` packets.
fn bits(len: usize) -> u64 {
    const { assert!(QUEUED_PACKETS == 64) };
    1_u64.checked_shl(len as u32).map_or(u64::MAX, |bit| bit - 1)
}
