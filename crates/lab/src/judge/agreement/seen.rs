//! What browsers and bots saw of the same tracks.

use wire::quality::ReceivedTrack;

/// What somebody saw of a track in an interval: a browser, or a bot of its room and network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) person: &'a str,
    pub(super) bot: bool,
    pub(super) from_ms: u64,
    pub(super) until_ms: u64,
    pub(super) row: &'a ReceivedTrack,
}

impl Seen<'_> {
    pub(super) fn overlaps(&self, (from, until): (u64, u64)) -> bool {
        self.from_ms < until && from < self.until_ms
    }
}
