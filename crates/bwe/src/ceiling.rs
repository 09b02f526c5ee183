//! What the estimate must not exceed, whatever the controller believes. The controller takes a probe for what its first and
//! its last packet tell. It sees nothing wrong with a queue that stands.

use crate::delays::Delays;
use crate::log::Sent;
use std::time::{Duration, Instant};

/// A ceiling rises so many times in a second, as the controller's own estimate does.
const GROWTH: f64 = 1.08;
/// A queue stands if packets have waited so long…
const STANDING: Duration = Duration::from_millis(80);
/// …for so long.
const STANDS: Duration = Duration::from_millis(700);
/// It may be ours if this share of the estimate came.
const USED: f64 = 0.7;
/// It is drained by sending this share of what came, so often in a row…
const DRAIN_SHARE: f64 = 0.85;
const DRAINED_AT_MOST: u32 = 3;
/// …and then not for so long: others fill it.
const DRAIN_RESTS: Duration = Duration::from_secs(15);
/// Where nothing comes for so long, no queue is left.
const QUEUE_LASTS: Duration = Duration::from_millis(400);
/// What comes is counted for so long.
const CAME_WINDOW: Duration = Duration::from_millis(500);

/// A bound of the estimate, by what feedback tells of times and bytes.
#[derive(Debug, Default)]
pub(crate) struct Ceiling {
    bps: Option<(Instant, u64)>,
    delays: Delays,
    told_at: Option<Instant>,
    /// Since when a queue stands, and how often in a row it was drained.
    stands: Option<Instant>,
    drained: u32,
    /// Since when `came` bytes came, and the rate of the window before, in bits a second.
    since: Option<Instant>,
    came: u64,
    came_bps: Option<u64>,
}

impl Ceiling {
    /// A packet came, as feedback tells.
    pub(crate) fn came(&mut self, now: Instant, sent: &Sent, arrived_us: i64) {
        self.delays.note(sent, arrived_us);
        self.told_at = Some(now);
        let passed = now.saturating_duration_since(*self.since.get_or_insert(now));
        if passed >= CAME_WINDOW {
            self.came_bps = Some((self.came as f64 * 8.0 / passed.as_secs_f64()) as u64);
            (self.since, self.came) = (Some(now), 0);
        }
        self.came += u64::from(sent.bytes);
    }

    /// By how much the delays of packets differ, in µs, at this time of their clock.
    pub(crate) fn jitter_us(&self, now_us: u64) -> f64 {
        self.delays.jitter_us(now_us)
    }

    /// How long a packet that arrived then waited in the path.
    pub(crate) fn waited(&self, sent: &Sent, arrived_us: i64) -> Duration {
        self.delays.waited(sent, arrived_us)
    }

    /// How long packets wait in the path. A queue that nothing was told of lately is gone.
    pub(crate) fn queue(&self, now: Instant) -> Duration {
        let lately = |at: Instant| now.saturating_duration_since(at) < QUEUE_LASTS;
        if self.told_at.is_some_and(lately) { self.delays.queue() } else { Duration::ZERO }
    }

    /// A probe told of `found_bps`, or too little: nothing raises the estimate above both that and what it is.
    pub(crate) fn probed(&mut self, now: Instant, found_bps: Option<u64>, estimate_bps: u64) {
        self.bps = Some((now, found_bps.unwrap_or(0).max(estimate_bps)));
    }

    /// What the controller believes, bounded.
    pub(crate) fn bound(&self, believed_bps: u64) -> u64 {
        self.bps.map_or(believed_bps, |(_, bps)| bps.min(believed_bps))
    }

    /// The estimate begins anew.
    pub(crate) fn lift(&mut self) {
        self.bps = None;
    }

    /// Time passed: it rises until it bounds nothing. Where a queue stands, it falls.
    pub(crate) fn turn(&mut self, now: Instant, believed_bps: u64) {
        if let Some((at, bps)) = self.bps {
            let passed = now.saturating_duration_since(at).as_secs_f64();
            let risen = (bps as f64 * GROWTH.powf(passed)) as u64;
            self.bps = (risen < believed_bps).then_some((now, risen));
        }
        let estimate_bps = self.bound(believed_bps);
        // If far less came than the estimate, the queue is not ours: delays grew for another reason.
        let used = |bps: &u64| *bps as f64 >= USED * estimate_bps as f64;
        if self.is_to_drain(now)
            && let Some(came_bps) = self.came_bps.filter(used)
        {
            let bps = came_bps.min(estimate_bps) as f64 * DRAIN_SHARE;
            self.bps = Some((now, bps as u64));
        }
    }

    fn is_to_drain(&mut self, now: Instant) -> bool {
        let queue = self.queue(now);
        if queue < STANDING / 2 {
            self.drained = 0;
        }
        if queue < STANDING {
            self.stands = None;
            return false;
        }
        let vain = self.drained >= DRAINED_AT_MOST;
        let since = *self.stands.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed < if vain { DRAIN_RESTS } else { STANDS } {
            return false;
        }
        self.stands = Some(now);
        self.drained = if vain { 1 } else { self.drained + 1 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{IP_UDP_BYTES, Kind};

    const MS: Duration = Duration::from_millis(1);

    /// Packets of 1250 bytes come each 10 ms for so long, after so many ms.
    fn come(
        ceiling: &mut Ceiling,
        from: Instant,
        (start_ms, ms): (u64, u64),
        delay_ms: u64,
        believed_bps: u64,
    ) {
        for at in (start_ms..start_ms + ms).step_by(10) {
            let sent = Sent::of(1000 * at, 1250 - IP_UDP_BYTES as u16, Kind::Video);
            let now = from + MS * at as u32;
            ceiling.came(now, &sent, 1000 * (at + delay_ms) as i64);
            ceiling.turn(now, believed_bps);
        }
    }

    #[test]
    fn no_probe_raises_the_estimate_above_what_it_found_and_the_bound_goes() {
        let start = Instant::now();
        let mut ceiling = Ceiling::default();
        assert_eq!(ceiling.bound(3_000_000), 3_000_000);
        ceiling.probed(start, Some(2_000_000), 1_000_000);
        assert_eq!(ceiling.bound(3_000_000), 2_000_000);
        ceiling.probed(start, None, 1_000_000);
        assert_eq!(ceiling.bound(3_000_000), 1_000_000, "too little was told");
        ceiling.turn(start + 1000 * MS, 3_000_000);
        assert_eq!(ceiling.bound(3_000_000), 1_080_000);
        ceiling.turn(start + 20_000 * MS, 3_000_000);
        assert_eq!(ceiling.bound(9_000_000), 9_000_000);
    }

    #[test]
    fn a_queue_that_stands_is_drained_and_left_alone_where_others_fill_it() {
        let start = Instant::now();
        let mut ceiling = Ceiling::default();
        come(&mut ceiling, start, (0, 3000), 20, 1_000_000);
        assert_eq!(ceiling.bound(1_000_000), 1_000_000);
        come(&mut ceiling, start, (3000, 1000), 160, 1_000_000);
        let drained = ceiling.bound(1_000_000);
        assert!((700_000..900_000).contains(&drained), "1 Mbit/s came: {drained}");
        come(&mut ceiling, start, (4000, 2500), 160, 1_000_000);
        let least = ceiling.bound(1_000_000);
        assert!((450_000..drained).contains(&least), "{least}");
        assert!(ceiling.queue(start + 6500 * MS) > STANDING);
        assert_eq!(ceiling.queue(start + 7000 * MS), Duration::ZERO, "nothing came lately");
        come(&mut ceiling, start, (6500, 9000), 160, 1_000_000);
        assert!(ceiling.bound(1_000_000) > least, "that is in vain");
    }

    #[test]
    fn a_path_that_becomes_longer_is_not_taken_for_a_queue_where_little_flows() {
        let start = Instant::now();
        let mut ceiling = Ceiling::default();
        come(&mut ceiling, start, (0, 3000), 20, 5_000_000);
        come(&mut ceiling, start, (3000, 9000), 320, 5_000_000);
        assert_eq!(ceiling.bound(5_000_000), 5_000_000);
        come(&mut ceiling, start, (12_000, 9000), 320, 5_000_000);
        assert_eq!(ceiling.queue(start + 21_000 * MS), Duration::ZERO, "it is as long by now");
    }
}
