//! What people of a large room are told of its audience: how many came and left since they were told last.

use wire::Event;

/// Who came and left of a room's audience since its people were told.
#[derive(Debug, Default)]
pub(super) struct Audience {
    joined: u32,
    left: u32,
}

impl Audience {
    /// Somebody came or left.
    pub(super) fn note(&mut self, joined: bool) {
        let count = if joined { &mut self.joined } else { &mut self.left };
        *count += 1;
    }

    /// What is to be told, if anybody came or left; `count` people are here now.
    pub(super) fn news(&mut self, count: u32) -> Option<Event> {
        let Self { joined, left } = std::mem::take(self);
        (joined + left > 0).then_some(Event::People { count, joined, left })
    }
}
