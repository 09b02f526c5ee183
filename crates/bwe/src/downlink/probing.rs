//! When a path is probed, at which rate, and what a probe makes of the estimate.

use super::{DIP_PROBED_AFTER, Downlink, Fall, Limits, Renewed};
use std::time::{Duration, Instant};

/// For so long it is remembered what the path carried before the estimate fell to less than a half.
const REMEMBERED: Duration = Duration::from_secs(40);
/// From one probe of our own to the next, if the path did not carry the last one: while little is sent…
const PROBE_INTERVAL: Duration = Duration::from_secs(3);
/// …while more is wanted soon, …
const PROBE_INTERVAL_URGENT: Duration = Duration::from_secs(2);
/// …and so soon after the estimate fell.
const PROBE_INTERVAL_FELL: Duration = Duration::from_secs(1);
const FELL_LATELY: Duration = Duration::from_secs(15);
/// The same if it told nothing.
const PROBE_INTERVAL_DOUBTFUL: Duration = Duration::from_millis(300);
/// How long one lasts, in ms. One at far more than the estimate is short.
const PROBE_MS: i64 = 20;
const PROBE_MS_FAR: i64 = 5;
/// The first one makes a queue of 300 ms on a path of 300 kbit/s.
const PROBE_MS_FIRST: i64 = 9;
/// The first one is at up to so many times the estimate: its packets show what a slow path carries.
const FIRST_PROBE: u64 = 20;
/// One that is urgent is at up to so many times the estimate, any other at up to twice.
const URGENT_PROBE: u64 = 3;
/// From one probe that the path carried to the next, at least.
const PROBE_GOES_ON: Duration = Duration::from_millis(50);
/// The same if it is not urgent.
const PROBE_GOES_ON_IDLY: Duration = Duration::from_secs(1);
/// The estimate begins anew if a probe came so many times as fast.
const RENEWING: f64 = 1.15;
/// It is taken for so much of what the probe found.
const RENEWED_SHARE: f64 = 0.95;
/// If it falls to less than half of that within this time, the probe was misled: others share the path…
const RENEWED_HOLDS: Duration = Duration::from_secs(3);
/// …and it does not begin anew for so long, and twice as long each time that this happens.
const RENEWED_RESTS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(80));
/// While packets wait so long, nothing is probed.
const PROBE_QUEUE: Duration = Duration::from_millis(80);
/// By radio, packets come late or in heaps: a probe lasts so many times longer than their delays differ, and so much at most.
const PROBE_JITTERS: f64 = 9.0;
/// The same for one at twice the estimate. One at more makes a longer queue.
const PROBE_JITTERS_MS: f64 = 60.0;
/// Half a full packet: that much lies before another one in the mean.
const OWN_BITS: f64 = 4800.0;
/// So many probes in a row are believed all the same.
const RENEWED_INSISTS: u32 = 3;

impl Downlink {
    /// The rate that is probed because the estimate dipped: near what it was, once, when the queue is gone.
    fn dip_bps(&mut self, now: Instant) -> Option<u64> {
        let over = |dip: &mut Fall| now.saturating_duration_since(dip.at) >= DIP_PROBED_AFTER;
        let bps = self.dip.take_if(over)?.from_bps * 17 / 20;
        Some(bps.min(self.wanted_bps)).filter(|bps| *bps > self.target_bps)
    }

    /// Probes the path if it is time, and makes of the last probe what it tells.
    pub(super) fn probe(&mut self, now: Instant) {
        if self.probes.prober.due().is_some() {
            return;
        }
        self.renew(now);
        let carried = self.probes.judge(now);
        if self.waits(now) {
            return;
        }
        if let Some(bps) = self.dip_bps(now) {
            return self.probe_at(bps, now);
        }
        self.probes.goes_on |= carried;
        let soon = if self.urgent { PROBE_GOES_ON } else { PROBE_GOES_ON_IDLY };
        let goes_on = self.probes.goes_on && !self.probes.is_lately(soon, now);
        if self.wanted_bps <= self.target_bps || (!goes_on && self.rests(now)) {
            return;
        }
        let idle = self.last_second_bps * 5 < self.target_bps * 4;
        let before = self.fell_within(REMEMBERED, now).map_or(0, |fell| fell.from_bps * 17 / 20);
        let bps = match self.urgent {
            true if !self.probes.is_any() => FIRST_PROBE * self.target_bps,
            true => self.wanted_bps.min(before.max(URGENT_PROBE * self.target_bps)),
            false if idle => self.wanted_bps.min(before.max(2 * self.target_bps)),
            false => self.wanted_bps.min(before),
        };
        if bps > self.target_bps {
            self.probe_at(bps, now);
        }
    }

    /// Whether a queue is so long that a probe would tell little, and harm.
    pub(super) fn waits(&self, now: Instant) -> bool {
        self.ceiling.queue(now) > PROBE_QUEUE
    }

    /// The controller remembers losses for long, and does not believe a probe then. If more is wanted soon, and all of a probe
    /// came much faster than it believes, it begins anew, as on another network.
    fn renew(&mut self, now: Instant) {
        if let Some(renewed) = &mut self.renewed {
            let soon = now.saturating_duration_since(renewed.at) < RENEWED_HOLDS;
            if soon && 2 * self.target_bps < renewed.bps {
                let (least, most) = RENEWED_RESTS;
                renewed.rests = (2 * renewed.rests).clamp(least, most);
                renewed.bps = 0;
            }
        }
        let rests = |renewed: Renewed| now.saturating_duration_since(renewed.at) < renewed.rests;
        let Some(found) =
            self.probes.last_answer().and_then(|answer| answer.bps(self.jitter_us(now)))
        else {
            return;
        };
        let Limits { least_bps, most_bps, .. } = self.limits;
        let bps = ((found as f64 * RENEWED_SHARE) as u64).clamp(least_bps, most_bps);
        let more = bps as f64 > self.target_bps as f64 * RENEWING;
        // The first one tells what a slow path carries before anything else does.
        let more = more || (self.probes.is_first() && bps < self.target_bps);
        if !self.probes.is_told() {
            return;
        }
        self.found_more = if more { self.found_more + 1 } else { 0 };
        let rests = self.renewed.is_some_and(rests) && self.found_more < RENEWED_INSISTS;
        if !self.urgent || !more || rests {
            return;
        }
        self.found_more = 0;
        let rests = self.renewed.map_or(Duration::ZERO, |renewed| renewed.rests);
        self.renewed = Some(Renewed { at: now, bps, rests });
        self.ceiling.lift();
        self.begin_anew(bps, now);
    }

    /// Whether it is too soon after the last probe for another one.
    fn rests(&self, now: Instant) -> bool {
        let interval = match self.fell_within(FELL_LATELY, now) {
            Some(_) if self.urgent && self.probes.doubtful => PROBE_INTERVAL_DOUBTFUL,
            Some(_) if self.urgent => PROBE_INTERVAL_FELL,
            _ if self.urgent => PROBE_INTERVAL_URGENT,
            _ if self.last_second_bps * 5 < self.target_bps * 4 => PROBE_INTERVAL,
            _ => 2 * PROBE_INTERVAL,
        };
        self.probes.is_lately(interval, now)
    }

    /// By how much delays differ, in µs. Where more is wanted soon, without what the receiver's own packets make each other wait:
    /// else there is time for doubt.
    pub(super) fn jitter_us(&self, now: Instant) -> f64 {
        let own_us = OWN_BITS * 1_000_000.0 / self.target_bps.max(1) as f64;
        let own_us = if self.urgent { own_us } else { 0.0 };
        (self.ceiling.jitter_us(self.us(now)) - own_us).max(0.0)
    }

    /// How much longer a probe at this rate lasts because delays differ, in ms.
    fn longer_ms(&self, bps: u64, now: Instant) -> i64 {
        let ms = PROBE_JITTERS * self.jitter_us(now) / 1000.0;
        let times = bps as f64 / self.target_bps.max(1) as f64;
        ms.min(PROBE_JITTERS_MS / (times - 1.0).max(1.0)) as i64
    }

    /// A probe of our own at this rate.
    fn probe_at(&mut self, bps: u64, now: Instant) {
        let ms = match self.probes.is_any() {
            false => PROBE_MS_FIRST,
            true if bps > 2 * self.target_bps && self.fell.is_some() => PROBE_MS_FAR,
            true => PROBE_MS + self.longer_ms(bps, now),
        };
        self.probes.ask(now, self.time(now), bps, ms);
    }
}
