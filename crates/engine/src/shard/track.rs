//! A published track: what comes in of it, who gets it, which keyframes are wanted.

use super::history::History;
use super::person::PersonIndex;
use super::speaker::Voice;
use crate::command::{ShardIndex, TrackKey};
use crate::limits::{KEYFRAME_INTERVAL, KEYFRAME_RETRY};
use rtp::extended::SequenceUnwrapper;
use rtp::nack::NackGenerator;
use rtp::negotiated::{Kind, Line, StreamIds};
use rtp::report::ReceiveStream;
use std::time::{Duration, Instant};

/// A subscription: a slot of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub person: PersonIndex,
    pub slot: usize,
}

/// When a keyframe was asked for and whether one is still wanted.
#[derive(Debug, Default)]
pub(crate) struct KeyframeWish {
    wanted: bool,
    asked: Option<Instant>,
    /// When somebody was last looked for who waits.
    looked: Option<Instant>,
}

impl KeyframeWish {
    /// Somebody needs a keyframe.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// One came.
    pub(crate) fn came(&mut self) {
        self.wanted = false;
    }

    /// Whether it is time to look for somebody who waits: now and then, since who begins to wait says so.
    pub(crate) fn looks(&mut self, now: Instant) -> bool {
        let lately = |at: Option<Instant>| {
            at.is_some_and(|at| now.saturating_duration_since(at) < KEYFRAME_RETRY)
        };
        let looks = !self.wanted && !lately(self.asked) && !lately(self.looked);
        if looks {
            self.looked = Some(now);
        }
        looks
    }

    /// Whether to ask the publisher now: not too often, and again where none came.
    pub(crate) fn ask(&mut self, now: Instant, someone_waits: bool) -> bool {
        let since = self.asked.map(|at| now.saturating_duration_since(at));
        let due = match since {
            None => self.wanted || someone_waits,
            Some(since) if self.wanted => since >= KEYFRAME_INTERVAL,
            Some(since) => someone_waits && since >= KEYFRAME_RETRY,
        };
        if due {
            self.wanted = false;
            self.asked = Some(now);
        }
        due
    }
}

/// Where a track's packets come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A person of this shard.
    Person(PersonIndex),
    /// Another shard, over the relay.
    Relay(ShardIndex),
}

/// A track on this shard.
pub(crate) struct Track {
    pub key: TrackKey,
    pub origin: Origin,
    /// It goes to the mixer, not to slots.
    pub mixed: bool,
    /// A moderator muted it.
    pub silenced: bool,
    /// Other shards that get its packets.
    pub exports: Vec<ShardIndex>,
    pub line: Line,
    pub ids: Option<StreamIds>,
    pub subscriptions: Vec<Subscription>,
    pub receive: ReceiveStream,
    unwrapper: SequenceUnwrapper,
    pub missing: NackGenerator,
    pub history: History,
    pub keyframe: KeyframeWish,
    pub voice: Voice,
    /// Its timestamp at a moment of the server's wall clock (ns), by the publisher's reports.
    pub reference: Option<(u32, i128)>,
    /// Timestamp of the newest packet and when it came (wall clock).
    pub newest: Option<(u32, Duration)>,
}

impl Track {
    pub(crate) fn new(key: TrackKey, origin: Origin, line: Line) -> Self {
        let clock_rate = line.codec.clock_rate();
        let line_ssrc = line.remote.map_or(0, |ids| ids.ssrc);
        Self {
            key,
            origin,
            mixed: false,
            silenced: false,
            exports: Vec::new(),
            ids: line.remote,
            line,
            subscriptions: Vec::new(),
            receive: ReceiveStream::new(line_ssrc, clock_rate),
            unwrapper: SequenceUnwrapper::new(),
            missing: NackGenerator::new(),
            history: History::default(),
            keyframe: KeyframeWish::default(),
            voice: Voice::default(),
            reference: None,
            newest: None,
        }
    }

    /// The person of this shard who publishes it.
    pub(crate) fn publisher(&self) -> Option<PersonIndex> {
        match self.origin {
            Origin::Person(person) => Some(person),
            Origin::Relay(_) => None,
        }
    }

    pub(crate) fn is_video(&self) -> bool {
        self.line.codec.kind() == Kind::Video
    }

    /// The sequence number with its rollovers: the track's own count, retransmissions included.
    pub(crate) fn unwrap(&mut self, sequence: u16) -> u64 {
        self.unwrapper.unwrap(sequence)
    }

    /// The SSRC that the publisher really uses.
    pub(crate) fn adopt(&mut self, ssrc: u32) {
        let rtx = self.ids.and_then(|ids| ids.rtx);
        self.ids = Some(StreamIds { ssrc, rtx });
        self.receive = ReceiveStream::new(ssrc, self.line.codec.clock_rate());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyframes_are_asked_for_at_once_then_seldom_and_again_where_none_comes() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut wish = KeyframeWish::default();
        assert!(!wish.ask(at(0), false), "nobody wants one");
        wish.want();
        assert!(wish.ask(at(0), true));
        wish.want();
        assert!(!wish.ask(at(100), true), "throttled");
        assert!(wish.ask(at(300), true), "kept for later");
        assert!(!wish.ask(at(900), true));
        assert!(wish.ask(at(1000), true), "none came");
        wish.came();
        assert!(!wish.ask(at(5000), false));
    }
}
