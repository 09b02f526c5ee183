//! Mixed packets on their way to the listeners. A packet for many leaves in slices, so that what comes in meanwhile is read
//! soon. All keep their order: a listener who becomes heard gets their own mix after the packets for all that came before it.
//! A command waits for none of them: all leave before it.

use crate::mix::MixedPacket;
use std::collections::VecDeque;
use std::time::Instant;

/// Packets that may wait for their next slice: a mixer makes one in a tick of each room, and one for each who is heard.
const MOST: usize = 512;

/// The mixed packets that wait.
#[derive(Default)]
pub(super) struct Spreading {
    /// With how many listeners have got it.
    waiting: VecDeque<(MixedPacket, usize)>,
    /// When the newest came.
    since: Option<Instant>,
}

impl Spreading {
    /// When the next slice is due: at once, if something waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.filter(|_| !self.waiting.is_empty())
    }

    /// How many packets wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether all must leave before another comes.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MOST
    }

    /// A packet came from the mixer.
    pub(super) fn push(&mut self, packet: MixedPacket, now: Instant) {
        self.waiting.push_back((packet, 0));
        self.since = Some(now);
    }

    /// The oldest packet, and how many listeners have got it.
    pub(super) fn take(&mut self) -> Option<(MixedPacket, usize)> {
        self.waiting.pop_front()
    }

    /// So many listeners have got it now; it is the oldest still.
    pub(super) fn put_back(&mut self, packet: MixedPacket, listeners: usize) {
        self.waiting.push_front((packet, listeners));
    }
}
