//! The estimate for those who give no feedback on packets and no estimate of their own: by the losses that their receiver
//! reports tell (RFC 3550 §6.4.1).
//!
//! As long as little is lost, nothing is estimated. If much is, the path carries what came. From then on the estimate rises,
//! the faster the less flows: where nothing flows, no report tells anything. It does not rise while reports tell that packets stand
//! in a queue of the path, and it is forgotten once it is ample.

use crate::limits::{
    DOWNLINK_LEAST_BPS, REPORTS_AMPLE, REPORTS_AT_ONCE, REPORTS_CARRIED, REPORTS_ENOUGH,
    REPORTS_GROWTH, REPORTS_LAST, REPORTS_LOST, REPORTS_PACKETS, REPORTS_SETTLE,
    REPORTS_STARVED_GROWTH, REPORTS_TORN, REPORTS_TORN_FALL, REPORTS_TORN_FROM, REPORTS_TRIED,
    REPORTS_WINDOW,
};
use std::time::Instant;

/// What flows on a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    /// What pictures take, and would take, in bits a second.
    pub bps: u64,
    pub all_bps: u64,
    /// Something waits to leave.
    pub waits: bool,
    /// Packets stand in a queue of the path.
    pub stands: bool,
}

/// What receiver reports tell of a path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reports {
    bps: Option<u64>,
    /// Packets that reports told of since the last look, how many were lost, in 1/256, and the bytes of those that came.
    packets: u64,
    lost: u64,
    came: u64,
    /// When it was looked at last, and the bytes that had been sent again then.
    looked: Option<(Instant, u64)>,
    /// No report told of any packet before the last look.
    silent: bool,
    /// When it fell last.
    fell: Option<Instant>,
    /// The receiver asked for a keyframe since the last look, and before it.
    asked: [bool; 2],
}

impl Reports {
    /// A report tells of so many packets, of so many bytes each, that `fraction`/256 of them were lost.
    pub(super) fn told(&mut self, (packets, bytes): (u32, u32), fraction: u8) {
        // A report that covers more than a few seconds tells of another time.
        let packets = u64::from(packets.min(10_000));
        let lost = packets * u64::from(fraction);
        (self.packets, self.lost) = (self.packets + packets, self.lost + lost);
        self.came += (256 * packets - lost) * u64::from(bytes) / 256;
    }

    /// The receiver lacks a keyframe of what flows.
    pub(super) fn lacks_keyframe(&mut self) {
        self.asked[0] = true;
    }

    /// What the path carries, in bits a second; None if too little was lost to tell.
    #[inline]
    pub(super) fn bps(&self) -> Option<u64> {
        self.bps
    }

    /// Makes a new estimate, where it is time: `again` bytes were sent again so far, of which reports do not tell.
    pub(super) fn look(&mut self, now: Instant, again: u64, flow: Flow) {
        let Flow { bps: flow, all_bps: all, waits, stands } = flow;
        if all == 0 {
            // Sound alone does not follow an estimate.
            *self = Self::default();
            return;
        }
        let (since, before) = *self.looked.get_or_insert((now, again));
        let passed = now.saturating_duration_since(since);
        if passed < REPORTS_WINDOW {
            return;
        }
        let came = 1.0 - self.lost as f64 / 256.0 / self.packets.max(1) as f64;
        let bytes = self.came as f64 + came * (again - before) as f64;
        let came_bps = bytes * 8.0 / passed.as_secs_f64();
        // Right after a fall, reports tell of what was lost before it.
        let settled =
            self.fell.is_none_or(|at| now.saturating_duration_since(at) >= REPORTS_SETTLE);
        // Nothing came for a while: the path was cut, and what was lost then says nothing of what it carries.
        let cut = std::mem::replace(&mut self.silent, self.packets == 0);
        // One keyframe after the other was not whole: they leave too fast, although little is lost of all that comes.
        let torn = self.asked == [true; 2] && self.packets >= REPORTS_PACKETS;
        self.asked = [false, self.asked[0]];
        if !cut && self.packets >= REPORTS_PACKETS && came < 1.0 - REPORTS_LOST {
            let carried = (REPORTS_CARRIED * came_bps) as u64;
            // By then little may have left, and less came than would have.
            let least = self.bps.filter(|_| !settled).unwrap_or(0) as f64 * REPORTS_AT_ONCE;
            if self.bps.is_none_or(|bps| carried < bps) {
                self.bps = Some(carried.max(least as u64).max(DOWNLINK_LEAST_BPS));
                self.fell = Some(now);
            }
        } else if torn && came < 1.0 - REPORTS_TORN {
            let most = REPORTS_TORN_FROM * came_bps;
            let next = self.bps.map_or(most, |bps| most.min(bps as f64 * REPORTS_TORN_FALL));
            self.bps = Some((next.max(REPORTS_CARRIED * came_bps) as u64).max(DOWNLINK_LEAST_BPS));
        } else if let Some(bps) = self.bps {
            let long = self.fell.is_none_or(|at| now.saturating_duration_since(at) >= REPORTS_LAST);
            let tried = came_bps >= bps as f64 * REPORTS_TRIED;
            // Of a picture that is paused, a still may be leaving: reports will tell of it.
            let starved = flow == 0 && !tried && !waits;
            let ample = bps as f64 > all as f64 * REPORTS_AMPLE && long;
            let may = starved || tried || long;
            let next = match stands && tried {
                // What fills a queue is what the path carries, although nothing is lost yet.
                true => bps.min((REPORTS_CARRIED * came_bps) as u64).max(DOWNLINK_LEAST_BPS),
                false if may => rise(bps, passed.as_secs_f64(), all, starved),
                false => bps,
            };
            self.bps = (!ample).then_some(next);
        }
        (self.packets, self.lost, self.came) = (0, 0, 0);
        self.looked = Some((now, again));
    }
}

/// The estimate after so many seconds without losses, where pictures would take `all` bits a second.
fn rise(bps: u64, seconds: f64, all: u64, starved: bool) -> u64 {
    let (bps, enough) = (bps as f64, all as f64 * REPORTS_ENOUGH);
    // Soon as far as makes a picture flow again, then slowly: whatever it takes, it gets a try.
    let risen = match starved && bps < enough {
        true => (bps * REPORTS_STARVED_GROWTH.powf(seconds)).min(enough),
        false => bps * REPORTS_GROWTH.powf(seconds),
    };
    risen as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn flow(bps: u64) -> Flow {
        Flow { bps, all_bps: 1_000_000, waits: false, stands: false }
    }

    /// A second in which `kbps` left and `lost` of 256 packets were lost.
    struct Seconds(Reports, Instant);

    impl Seconds {
        fn new() -> Self {
            let mut seconds = Self(Reports::default(), Instant::now());
            seconds.0.look(seconds.1, 0, flow(0));
            seconds
        }

        fn pass(&mut self, kbps: u64, lost: u8, bps: u64) -> Option<u64> {
            self.1 += Duration::from_secs(1);
            self.0.told(((kbps / 8) as u32, 1000), lost);
            self.0.look(self.1, 0, super::tests::flow(bps));
            self.0.bps()
        }
    }

    #[test]
    fn nothing_is_estimated_while_little_is_lost() {
        let mut seconds = Seconds::new();
        for lost in [0, 5, 13, 20] {
            assert_eq!(seconds.pass(1000, lost, 1_000_000), None, "{lost} of 256");
        }
        assert_eq!(seconds.pass(100, 128, 1_000_000), None, "too few packets to tell");
    }

    #[test]
    fn what_came_is_what_the_path_carries_and_the_estimate_rises_until_it_is_ample() {
        let mut seconds = Seconds::new();
        let fell = seconds.pass(1000, 128, 1_000_000).expect("half was lost");
        assert!((440_000..500_000).contains(&fell), "{fell}");
        let risen = seconds.pass(400, 0, 400_000).expect("it is not ample");
        assert!(fell < risen && risen < fell * 6 / 5, "{risen}");
        let starved = seconds.pass(0, 0, 0).expect("it is not ample");
        assert!(starved >= risen * 13 / 10, "where nothing flows it rises fast: {starved}");
        let later: Vec<_> = (0..20).map(|_| seconds.pass(900, 3, 900_000)).collect();
        assert_eq!(later.last(), Some(&None), "it is forgotten: {later:?}");
    }

    #[test]
    fn what_the_path_carried_holds_for_a_while_and_no_picture_waits_for_ever() {
        let mut seconds = Seconds::new();
        let fell = seconds.pass(1000, 128, 1_000_000).expect("half was lost");
        let holds: Vec<_> = (0..10).map(|_| seconds.pass(200, 0, 200_000)).collect();
        assert_eq!(holds, [Some(fell); 10], "no more was tried");
        let starved: Vec<_> = (0..60).map_while(|_| seconds.pass(50, 0, 0)).collect();
        assert!(starved.iter().max() > Some(&2_000_000), "it rises on: {starved:?}");
        assert!(starved[..4].iter().all(|bps| *bps <= 1_300_000), "slowly in the end");
    }

    #[test]
    fn while_a_still_leaves_no_report_means_nothing() {
        let mut seconds = Seconds::new();
        let fell = seconds.pass(1000, 128, 1_000_000);
        for _ in 0..5 {
            seconds.1 += Duration::from_secs(1);
            seconds.0.look(seconds.1, 0, Flow { waits: true, ..flow(0) });
            assert_eq!(seconds.0.bps(), fell);
        }
        assert!(seconds.pass(50, 0, 0) > fell, "it has left");
    }

    #[test]
    fn losses_of_a_cut_path_say_nothing_of_what_it_carries() {
        let mut seconds = Seconds::new();
        assert_eq!(seconds.pass(1000, 0, 1_000_000), None);
        // No report tells of any packet for two seconds. The next one tells of all that were lost meanwhile.
        (0..2).for_each(|_| assert_eq!(seconds.pass(0, 0, 1_000_000), None));
        assert_eq!(seconds.pass(3000, 240, 1_000_000), None);
        assert!(seconds.pass(1000, 128, 1_000_000).is_some(), "one that goes on counts");
    }

    #[test]
    fn the_estimate_follows_what_comes_while_packets_stand_in_a_queue() {
        let mut seconds = Seconds::new();
        seconds.pass(1000, 128, 1_000_000).expect("half was lost");
        let mut bps = 0;
        for _ in 0..8 {
            seconds.1 += Duration::from_secs(1);
            seconds.0.told((400_000 / 8000, 1000), 0);
            seconds.0.look(seconds.1, 0, Flow { stands: true, ..flow(400_000) });
            bps = seconds.0.bps().expect("it is not ample");
        }
        assert!((370_000..=400_000).contains(&bps), "{bps}");
        assert!(seconds.pass(400, 0, 400_000) > Some(bps), "the queue is gone");
    }

    #[test]
    fn who_lacks_one_keyframe_after_the_other_gets_them_slower_although_little_is_lost() {
        let mut seconds = Seconds::new();
        for _ in 0..2 {
            assert_eq!(seconds.pass(1000, 25, 1_000_000), None);
            seconds.0.lacks_keyframe();
        }
        let first = seconds.pass(1000, 25, 1_000_000).expect("a tenth was lost");
        assert!((1_100_000..1_130_000).contains(&first), "{first}");
        seconds.0.lacks_keyframe();
        let next = seconds.pass(1000, 25, 1_000_000).expect("it is not ample");
        assert!((940_000..960_000).contains(&next), "{next}");
        // Where nothing is lost, keyframes may be asked for.
        let mut seconds = Seconds::new();
        for _ in 0..5 {
            seconds.0.lacks_keyframe();
            assert_eq!(seconds.pass(1000, 0, 1_000_000), None);
        }
    }
}
