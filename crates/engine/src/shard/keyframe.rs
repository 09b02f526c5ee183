//! Whether a keyframe is wanted of a publisher, and which one came last.

use crate::limits::{KEYFRAME_INTERVAL, KEYFRAME_INTERVAL_DEAR, KEYFRAME_RETRY};
use std::time::Instant;

/// Who waits for a keyframe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waits {
    /// Nobody does.
    Nobody,
    /// Only people do on whose paths a keyframe is dear.
    Dear,
    /// Others do.
    Somebody,
}

/// When a keyframe was asked for and whether one is still wanted.
#[derive(Debug, Default)]
pub(super) struct KeyframeWish {
    wanted: bool,
    /// All who want one have a path on which a keyframe is dear.
    dear: bool,
    asked: Option<Instant>,
    /// None has come since.
    awaited: bool,
    /// When the slots were last searched for one that waits.
    looked: Option<Instant>,
    /// A slot began to wait. It gets what is kept; if that is not possible, a keyframe is wanted.
    waited_for: bool,
    /// A packet was repaired: a keyframe that was not whole may be whole now.
    repaired: bool,
}

/// The newest keyframe that began.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewestKeyframe {
    /// The number of its first packet.
    pub first: u64,
    pub timestamp: u32,
    /// When that packet came.
    pub at: Instant,
    /// It was asked for.
    pub asked: bool,
}

impl KeyframeWish {
    /// Somebody needs a keyframe.
    pub(super) fn want(&mut self) {
        self.want_for(false);
    }

    /// The same of somebody on whose path a keyframe is `dear`. For those alone one is asked for once a second at most.
    pub(super) fn want_for(&mut self, dear: bool) {
        self.dear = dear && (self.dear || !self.wanted);
        self.wanted = true;
    }

    /// A slot waits for one from now on.
    pub(super) fn wait(&mut self) {
        self.waited_for = true;
    }

    /// The slots that began to wait were offered what is kept; `still` says who waits on.
    pub(super) fn waited(&mut self, still: Waits) {
        if std::mem::take(&mut self.waited_for) && still != Waits::Nobody {
            self.want_for(still == Waits::Dear);
        }
    }

    /// Whether one is still to be asked for.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether one was asked for since somebody wanted it, or began to wait.
    pub(super) fn is_asked(&self) -> bool {
        !self.wanted && !self.waited_for && self.asked.is_some()
    }

    /// A keyframe came. Says whether it was asked for.
    pub(super) fn came(&mut self) -> bool {
        self.wanted = false;
        std::mem::take(&mut self.awaited)
    }

    /// A packet came as a retransmission.
    pub(super) fn repaired(&mut self) {
        self.repaired = true;
    }

    /// Whether to search the slots for one that waits. A slot that begins to wait says so. Otherwise a search after a
    /// repair, and now and then, is enough.
    pub(super) fn looks(&mut self, now: Instant) -> bool {
        let lately = |at: Option<Instant>| {
            at.is_some_and(|at| now.saturating_duration_since(at) < KEYFRAME_RETRY)
        };
        let now_and_then = !self.wanted && !lately(self.asked) && !lately(self.looked);
        let looks = now_and_then || self.waited_for || std::mem::take(&mut self.repaired);
        if looks {
            self.looked = Some(now);
        }
        looks
    }

    /// Whether to ask the publisher now: not too often, and again if none came.
    pub(super) fn ask(&mut self, now: Instant, waits: Waits) -> bool {
        let since = self.asked.map(|at| now.saturating_duration_since(at));
        let due = match since {
            None => self.wanted || waits != Waits::Nobody,
            Some(since) if self.wanted && self.dear => since >= KEYFRAME_INTERVAL_DEAR,
            Some(since) if self.wanted => since >= KEYFRAME_INTERVAL,
            Some(since) => match waits {
                Waits::Nobody => false,
                Waits::Dear => since >= KEYFRAME_INTERVAL_DEAR,
                Waits::Somebody => since >= KEYFRAME_RETRY,
            },
        };
        if due {
            self.wanted = false;
            (self.asked, self.awaited) = (Some(now), true);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn one_that_was_asked_for_is_none_for_who_begins_to_wait_later() {
        let start = Instant::now();
        let mut wish = KeyframeWish::default();
        assert!(!wish.is_asked());
        wish.wait();
        wish.waited(Waits::Somebody);
        assert!(!wish.is_asked() && wish.ask(start, Waits::Somebody) && wish.is_asked());
        wish.came();
        assert!(wish.is_asked(), "it may be a later frame");
        wish.wait();
        assert!(!wish.is_asked());
        wish.waited(Waits::Somebody);
        let later = start + Duration::from_secs(1);
        assert!(!wish.is_asked() && wish.ask(later, Waits::Somebody) && wish.is_asked());
    }

    #[test]
    fn keyframes_are_asked_for_at_once_then_seldom_and_again_where_none_comes() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut wish = KeyframeWish::default();
        assert!(!wish.ask(at(0), Waits::Nobody), "nobody wants one");
        wish.want();
        assert!(wish.ask(at(0), Waits::Somebody));
        wish.want();
        assert!(!wish.ask(at(100), Waits::Somebody), "throttled");
        assert!(wish.ask(at(300), Waits::Somebody), "kept for later");
        assert!(!wish.ask(at(900), Waits::Somebody));
        assert!(wish.ask(at(1000), Waits::Somebody), "none came");
        wish.came();
        assert!(!wish.ask(at(5000), Waits::Nobody));
        wish.want_for(true);
        assert!(wish.ask(at(5000), Waits::Somebody));
        assert!(wish.came() && !wish.came(), "one was asked for");
        wish.want_for(true);
        assert!(!wish.ask(at(5900), Waits::Somebody), "for thin paths once a second");
        wish.want();
        assert!(wish.ask(at(5900), Waits::Somebody), "somebody else wants one, too");
    }
}
