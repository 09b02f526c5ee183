//! The estimate that receivers make of their path and tell (REMB, draft-alvestrand-rmcat-remb-03), of those who give no
//! transport-wide feedback.
//!
//! Receivers only know what comes, and their estimate rises to one and a half times that at most (libwebrtc's
//! `AimdRateControl`). If pictures rest or have smaller layers than they need, and the estimate may be that bound, one of
//! them is tried: it counts as carried as long as the estimate rises with it and few packets are lost.

use crate::limits::{
    DOWNLINK_LEAST_BPS, DOWNLINK_MOST_BPS, REMB_BOUND, REMB_LASTS, TRIAL_HEADROOM,
    TRIAL_MOST_TIMES, TRIAL_STALLS,
};
use std::time::Instant;

/// What a receiver estimates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remb {
    bps: u64,
    /// When it came.
    at: Instant,
    trial: Option<Trial>,
}

/// A picture gets more than the path is estimated to carry.
#[derive(Debug, Clone, Copy)]
struct Trial {
    began: Instant,
    /// What flows then, in bits a second.
    need: u64,
    /// The highest estimate since it began, and when it came.
    highest: (u64, Instant),
    /// The estimate fell, or much was lost.
    failed: bool,
}

impl Remb {
    /// An estimate came, after this one.
    pub(super) fn told(last: Option<Self>, now: Instant, bps: u64) -> Self {
        let bps = bps.clamp(DOWNLINK_LEAST_BPS, DOWNLINK_MOST_BPS);
        let mut trial = last.and_then(|last| last.trial);
        if let Some(trial) = &mut trial {
            let (highest, _) = trial.highest;
            // By less than a twentieth it only varies.
            trial.failed |= 20 * bps < 19 * highest;
            if 20 * bps > 21 * highest {
                trial.highest = (bps, now);
            }
        }
        Self { bps, at: now, trial }
    }

    /// Whether it says nothing any more.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= REMB_LASTS
    }

    /// What the receiver said last, in bits a second.
    pub(super) fn bps(&self) -> u64 {
        self.bps
    }

    /// What is taken to be carried meanwhile, in bits a second; 0 if nothing is tried.
    pub(super) fn tried_bps(&self) -> u64 {
        self.trial.map_or(0, |trial| (trial.need as f64 * TRIAL_HEADROOM) as u64)
    }

    /// Whether a picture may be tried, so that pictures take `need` in place of `flow`, beside what `sound` takes; all in
    /// bits a second.
    pub(super) fn may_try(&self, flow: u64, need: u64, sound: u64) -> bool {
        let bound = ((flow + sound) as f64 * REMB_BOUND.0) as u64 + REMB_BOUND.1;
        let bounded = self.bps <= bound.max(DOWNLINK_LEAST_BPS);
        // It has risen as far as it does while little flows.
        let calm = 5 * self.bps.saturating_sub(sound) >= 6 * flow;
        let near = flow == 0 || need + sound <= TRIAL_MOST_TIMES * self.bps;
        self.trial.is_none() && need + sound > self.bps && bounded && calm && near
    }

    /// A picture is tried, and all that flows then is `need`, in bits a second.
    pub(super) fn begin(&mut self, now: Instant, need: u64) {
        self.trial = Some(Trial { began: now, need, highest: (self.bps, now), failed: false });
    }

    /// Many packets were lost.
    pub(super) fn lost(&mut self) {
        if let Some(trial) = &mut self.trial {
            trial.failed = true;
        }
    }

    /// Ends a trial that is over. If what is tried is too much, says since when it flows.
    pub(super) fn judge(&mut self, now: Instant) -> Option<Instant> {
        let trial = self.trial?;
        let carried = self.bps >= trial.need;
        let stalls = now.saturating_duration_since(trial.highest.1) >= TRIAL_STALLS;
        let failed = !carried && (trial.failed || stalls);
        self.trial = Some(trial).filter(|_| !carried && !failed);
        failed.then_some(trial.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(ms: u64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_millis(ms)
    }

    #[test]
    fn what_a_receiver_says_counts_within_bounds_and_not_for_long() {
        for (said, counts) in [(0, 100_000), (300_000, 300_000), (u64::MAX, DOWNLINK_MOST_BPS)] {
            assert_eq!(Remb::told(None, at(0), said).bps(), counts);
        }
        let remb = Remb::told(None, at(0), 1);
        assert!(!remb.is_old(at(9999)) && remb.is_old(at(10_000)));
    }

    #[test]
    fn a_picture_is_tried_where_the_estimate_says_no_more_than_what_flows() {
        let remb = |bps| Remb::told(None, at(0), bps);
        assert!(remb(300_000).may_try(120_000, 240_000, 120_000));
        assert!(!remb(300_000).may_try(120_000, 180_000, 120_000), "it fits");
        assert!(!remb(300_000).may_try(60_000, 300_000, 60_000), "it knows of more than flows");
        assert!(!remb(260_000).may_try(120_000, 240_000, 120_000), "it has just fallen");
        assert!(!remb(300_000).may_try(120_000, 500_000, 120_000), "it is far too much");
        assert!(remb(100_000).may_try(0, 1_000_000, 20_000), "nothing else says whether it fits");
        let mut tried = remb(300_000);
        tried.begin(at(0), 400_000);
        assert!(!tried.may_try(120_000, 240_000, 120_000), "one at a time");
    }

    /// What becomes of a trial of 600 kbit/s at 300 with these estimates, one each second.
    fn outcome(estimates: &[u64]) -> (Option<Instant>, u64) {
        let mut remb = Remb::told(None, at(0), 300_000);
        remb.begin(at(0), 600_000);
        assert_eq!(remb.tried_bps(), 750_000);
        for (second, kbps) in (1..).zip(estimates) {
            remb = Remb::told(Some(remb), at(1000 * second), 1000 * kbps);
            if let Some(since) = remb.judge(at(1000 * second)) {
                return (Some(since), second);
            }
        }
        assert_eq!(remb.tried_bps(), 0, "it is over");
        (None, 0)
    }

    #[test]
    fn what_is_tried_counts_as_carried_while_the_estimate_rises() {
        assert_eq!(outcome(&[320, 350, 380, 410, 440, 470, 510, 550, 600]), (None, 0));
        assert_eq!(outcome(&[320, 350, 280]), (Some(at(0)), 3), "it fell");
        assert_eq!(outcome(&[300, 310, 300]), (Some(at(0)), 3), "it stalls");
        let mut remb = Remb::told(None, at(0), 300_000);
        remb.begin(at(0), 600_000);
        assert_eq!(remb.judge(at(500)), None);
        remb.lost();
        assert_eq!(remb.judge(at(500)), Some(at(0)), "much is lost");
        assert_eq!(remb.judge(at(600)), None, "once");
    }
}
