//! Which packets of mixed sound are opened: what the mixer told of a room, and what is known of a track.

use crate::mix::QUIETEST_DBOV;
use std::time::{Duration, Instant};

/// How many numbers after the newest opened packet of a stream a packet may lie and stay closed.
pub(super) const AHEAD: u64 = 15;
/// Without an opened packet for so long the next one is opened: 25 packets, or some of comfort noise.
const CLOSED_LONGEST: Duration = Duration::from_millis(500);
/// After a packet that reaches the bar all are opened for so long: somebody who becomes heard is told with the next ticks.
const OPEN_AFTER: Duration = Duration::from_millis(200);
/// What a mixer told lasts so long. If it tells nothing, all that can be heard is opened.
const BAR_LASTS: Duration = Duration::from_millis(100);

/// Which packets of a track of a mixed room are opened.
#[derive(Debug, Default)]
pub(super) struct Glances {
    /// The index of the newest opened packet, and a bit for each number after it that was noted.
    after: (u64, u16),
    opened: Option<Instant>,
    /// Until then all packets are opened and go to the mixer.
    open_until: Option<Instant>,
}

impl Glances {
    /// A packet was opened.
    pub(super) fn opened(&mut self, at: Instant, level_dbov: Option<u8>, bar_dbov: u8) {
        self.opened = self.opened.max(Some(at));
        if level_dbov.is_none_or(|level| level <= bar_dbov) {
            self.open_for(at);
        }
    }

    /// The track is heard, or may become heard.
    pub(super) fn open_for(&mut self, at: Instant) {
        self.open_until = self.open_until.max(Some(at + OPEN_AFTER));
    }

    /// The next packet is opened, whatever it says.
    pub(super) fn forget(&mut self) {
        self.opened = None;
    }

    /// Whether all packets are opened and go to the mixer.
    #[inline]
    pub(super) fn is_open(&self, at: Instant) -> bool {
        self.open_until.is_some_and(|until| at < until)
    }

    /// Whether a packet was opened lately, so that this one may stay closed.
    pub(super) fn may_close(&self, at: Instant) -> bool {
        self.opened.is_some_and(|opened| at.saturating_duration_since(opened) < CLOSED_LONGEST)
    }

    /// Whether the packet of a number came lately and stayed closed. Numbers and indices differ by whole cycles.
    pub(super) fn noted(&self, number: u64) -> bool {
        let behind = (number as u16).wrapping_sub(self.after.0 as u16);
        (1..=AHEAD as u16).contains(&behind) && self.after.1 & (1 << (behind - 1)) != 0
    }

    /// Takes note of the closed packet of an index, at most [`AHEAD`] after the newest opened one; says whether it is new.
    pub(super) fn note(&mut self, opened: u64, index: u64) -> bool {
        if self.after.0 != opened {
            self.after = (opened, 0);
        }
        let bit = 1_u16 << (index - opened - 1);
        let new = self.after.1 & bit == 0;
        self.after.1 |= bit;
        new
    }
}

/// What a mixer told of a room last.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told(Option<(Instant, u8)>);

impl Told {
    /// It told this level at a moment.
    pub(super) fn new(at: Instant, dbov: u8) -> Self {
        Self(Some((at, dbov)))
    }

    /// The level in −dBov that a packet must reach.
    #[inline]
    pub(super) fn bar_dbov(self, at: Instant) -> u8 {
        let lasts = |(told, _): &(Instant, u8)| at.saturating_duration_since(*told) < BAR_LASTS;
        self.0.filter(lasts).map_or(QUIETEST_DBOV, |(_, dbov)| dbov)
    }
}
