//! How much of a picture a slot gets, and how long it waits until it gets more again.

use crate::limits::{
    LAYER_FAILED_TIMES, LAYER_LEAST, LAYER_MOST, LAYER_MOST_LARGEST, LAYER_SETTLED, REST_LEAST,
    REST_LEAST_UNEVEN, REST_MOST, REST_MOST_UNEVEN, SETTLED, STARVED_GROWTH, STILL_LEAST,
};
use rtp::negotiated::MOST_LAYERS;
use std::time::{Duration, Instant};

/// How much of a picture a slot gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// Nothing: the path does not carry it.
    pub const REST: Self = Self(0);
    /// The smallest layer, without its highest frame rate.
    pub const FEWER_FRAMES: Self = Self(1);
    /// The smallest layer, whole.
    pub const SMALLEST: Self = Self::layer(0);

    /// The layer with this number, 0 being the smallest, whole.
    pub const fn layer(layer: u8) -> Self {
        Self(layer + 2)
    }

    /// The highest layer that it may have, by number.
    pub fn wish(self) -> u8 {
        self.0.saturating_sub(2)
    }

    /// The level below; None if there is none.
    pub fn below(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// The level above.
    pub fn above(self) -> Self {
        Self(self.0 + 1)
    }
}

/// How long a slot waits until it gets more again, after the path did not carry what it had. It waits longer each time that
/// it got more and had to fall again soon.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Patience {
    /// How long it waited last, and until when.
    last: Option<(Duration, Instant)>,
    /// The level that did not fit, and when it was given up: a lower one need not wait as long.
    failed: Option<(Level, Instant)>,
    /// When it got more.
    rose: Option<Instant>,
    /// The estimate at which its last keyframe took too long for what came after it, in bits a second.
    starved: Option<u64>,
    /// When its receiver last said that they lack the still.
    lacked: Option<Instant>,
    /// No other one was sent since.
    wants_still: bool,
}

/// A picture's fall.
#[derive(Debug, Clone, Copy)]
pub struct Fall {
    /// Its level before.
    pub from: Level,
    /// It rests now.
    pub rests: bool,
    /// It comes by fits and starts: it need not wait long.
    pub uneven: bool,
    /// The wait is so many times as long as usual. It differs, so that not all who share a path try again at once.
    pub spread: f32,
}

impl Patience {
    /// It fell from a level to the next, or rests.
    pub(super) fn fell(&mut self, fall: Fall, now: Instant) {
        let Fall { from, rests, uneven, spread } = fall;
        let (least, most, times, settled) = match (rests, uneven) {
            (true, true) => (REST_LEAST_UNEVEN, REST_MOST_UNEVEN, 2, SETTLED),
            (true, false) => (REST_LEAST, REST_MOST, 2, SETTLED),
            (false, _) => {
                let largest = usize::from(from.wish()) + 1 == MOST_LAYERS;
                let most = if largest { LAYER_MOST_LARGEST } else { LAYER_MOST };
                (LAYER_LEAST, most, LAYER_FAILED_TIMES, LAYER_SETTLED)
            }
        };
        // One fall goes over several steps.
        let falling = self.last.is_some_and(|(_, until)| now < until);
        let soon = |at: Instant| now.saturating_duration_since(at) < settled;
        let failed = self.rose.take().is_some_and(soon);
        let wait = match self.last {
            Some((last, _)) if failed => times * last,
            Some((last, _)) if falling => last,
            _ => least.mul_f32(spread),
        };
        let wait = wait.min(most);
        let known = self.failed.filter(|_| falling);
        self.failed = Some(known.map_or((from, now), |(highest, _)| (highest.max(from), now)));
        self.last = Some((wait, now + wait));
        self.wants_still = false;
    }

    /// Its keyframe took too long for what came after it, while the path was estimated to carry so much, in bits a second.
    pub(super) fn starved(&mut self, estimate_bps: Option<u64>) {
        self.starved = estimate_bps;
    }

    /// It rests, and its receiver lacks the still: another one is sent soon, though not for each request.
    pub(super) fn lacks_still(&mut self, now: Instant) {
        let lately = |at: Instant| now.saturating_duration_since(at) < STILL_LEAST;
        if self.lacked.is_some_and(lately) {
            return;
        }
        (self.lacked, self.wants_still) = (Some(now), true);
        if self.starved.take().is_some() {
            self.last = self.last.map(|(wait, _)| (wait, now));
            self.rose = None;
        }
    }

    /// The path carried nothing for a while, and does again. It need not wait for what did not fit then, and its still may not have
    /// come.
    pub(super) fn outage_ended(&mut self) {
        (self.last, self.rose, self.starved, self.wants_still) = (None, None, None, true);
    }

    /// Whether its receiver lacks the still, and it is time for another one: none was sent since, and it has rested for a while.
    pub(super) fn wants_still(&self, now: Instant) -> bool {
        let long = |at| now.saturating_duration_since(at) >= STILL_LEAST;
        self.wants_still && self.failed.is_none_or(|(_, at)| long(at))
    }

    /// Whether the path carries no more, as far as is known, than since its last keyframe took too long.
    pub(super) fn is_starved(&mut self, estimate_bps: Option<u64>) -> bool {
        let Some((then, now)) = self.starved.zip(estimate_bps) else { return false };
        self.starved = Some(then.min(now));
        now as f64 <= then as f64 * STARVED_GROWTH
    }

    /// Whether it may get to this level.
    pub(super) fn is_over(&self, to: Level, now: Instant) -> bool {
        // The estimate must have seen what it got last.
        let lately = |at: Instant| now.saturating_duration_since(at) < LAYER_LEAST;
        let lower = self.failed.is_some_and(|(failed, at)| to < failed && !lately(at));
        let over = lower || self.last.is_none_or(|(_, until)| now >= until);
        over && !self.rose.is_some_and(lately)
    }

    /// Whether it has rested for as long as a screen does at least.
    pub(super) fn has_rested(&self, now: Instant) -> bool {
        let long = |at| now.saturating_duration_since(at) >= REST_LEAST_UNEVEN;
        self.failed.is_none_or(|(_, at)| long(at))
    }

    /// It gets more.
    pub(super) fn rose(&mut self, now: Instant) {
        (self.rose, self.starved, self.wants_still) = (Some(now), None, false);
    }
}
