//! How many bits a second come or leave in the long run.

use std::time::{Duration, Instant};

/// How long bytes are counted until they make a new rate.
const WINDOW: Duration = Duration::from_secs(1);
/// The rate of a long time is about that of so many windows.
const SLOW_WINDOWS: u32 = 12;
/// It is known from so many on.
const SLOW_KNOWN: u32 = 6;
/// A keyframe counts little by little, over about so many windows.
const KEYFRAME_WINDOWS: u32 = 10;

/// What refines a keyframe comes within this time.
const REFINED: Duration = Duration::from_secs(1);

/// Bytes that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Of a keyframe. They count little by little: what came is to tell what flows in the long run.
    Keyframe(usize),
    /// Of a keyframe that was asked for, with its timestamp. Of several, the largest counts: each one that a path could not
    /// carry would make the picture dearer for that path.
    Asked(usize, u32),
    /// Of anything else.
    Other(usize),
}

/// Bits a second of what comes or leaves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rate {
    since: Option<Instant>,
    bytes: u32,
    bps: u32,
    /// That of a longer time, and that of the last window.
    slow_bps: u32,
    newest_bps: u32,
    /// Bytes of keyframes that were not counted yet.
    keyframes: u32,
    /// The windows that made the first of these, at most [`SLOW_WINDOWS`].
    slow_windows: u32,
    /// The least rate of a window until then.
    least_bps: u32,
    /// Bytes of a window of that, and how long it has lasted. Time in which a keyframe is refined is left out.
    steady: (u32, Duration),
    /// Until when that is counted.
    steady_at: Option<Instant>,
    /// The timestamp of the last keyframe that was asked for, and its bytes.
    asked: (u32, u32),
    /// When the last packet of any keyframe came.
    keyframe_at: Option<Instant>,
}

impl Rate {
    /// That of `bps` bits a second, as it was made at this moment.
    #[cfg(test)]
    pub(super) fn of(now: Instant, bps: u32) -> Self {
        Self { since: Some(now), bps, ..Self::default() }
    }

    /// So many bytes more.
    #[inline]
    pub(crate) fn count(&mut self, now: Instant, counted: Counted) {
        match counted {
            Counted::Other(bytes) => {
                self.bytes = self.bytes.saturating_add(bytes as u32);
                let steady = if self.is_refining(now) { 0 } else { bytes as u32 };
                self.steady.0 = self.steady.0.saturating_add(steady);
            }
            Counted::Keyframe(bytes) => {
                self.keyframes = self.keyframes.saturating_add(bytes as u32);
                self.begin_refining(now);
            }
            Counted::Asked(bytes, timestamp) => {
                self.count_asked(bytes as u32, timestamp);
                self.begin_refining(now);
            }
        }
        let since = *self.since.get_or_insert(now);
        self.steady_at.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed >= WINDOW {
            self.turn(now, passed);
        }
    }

    fn count_asked(&mut self, bytes: u32, timestamp: u32) {
        let (last, so_far) = self.asked;
        let so_far = if last == timestamp { so_far.saturating_add(bytes) } else { bytes };
        self.asked = (timestamp, so_far);
        self.keyframes = self.keyframes.max(so_far);
    }

    #[cold]
    fn turn(&mut self, now: Instant, passed: Duration) {
        let due = self.keyframes / KEYFRAME_WINDOWS;
        (self.keyframes, self.bytes) = (self.keyframes - due, self.bytes.saturating_add(due));
        let newest = (f64::from(self.bytes) * 8.0 / passed.as_secs_f64()) as u32;
        // Most of the old rate stays: keyframes are rare and large.
        let first = self.bps == 0;
        self.turn_slow(now, passed, due);
        self.bps = if first { newest } else { self.bps / 4 * 3 + newest / 4 };
        self.newest_bps = newest;
        self.least_bps = if first { newest } else { self.least_bps.min(newest) };
        (self.since, self.bytes) = (Some(now), 0);
    }

    /// A window has passed, in which `due` bytes of keyframes count. Time in which a keyframe is refined says nothing of what a
    /// screen takes. If it counted, who had to pause the screen would make it dearer by each keyframe that they ask for.
    fn turn_slow(&mut self, now: Instant, passed: Duration, due: u32) {
        let lasted = self.count_steady(now);
        let due = f64::from(due) * lasted.as_secs_f64() / passed.as_secs_f64();
        let (bytes, time) = &mut self.steady;
        *bytes = bytes.saturating_add(due as u32);
        if *time >= WINDOW {
            let newest = f64::from(*bytes) * 8.0 / time.as_secs_f64();
            self.steady = Default::default();
            self.slow_windows = SLOW_WINDOWS.min(self.slow_windows + 1);
            let slow = f64::from(self.slow_bps);
            self.slow_bps = (slow + (newest - slow) / f64::from(self.slow_windows)) as u32;
        }
    }

    /// Counts the time until now, but that in which a keyframe is refined. Returns how much that was.
    fn count_steady(&mut self, now: Instant) -> Duration {
        let since = self.steady_at.replace(now).unwrap_or(now);
        let refined = self.keyframe_at.map_or(since, |at| at + REFINED);
        let lasted = now.saturating_duration_since(refined.max(since));
        self.steady.1 += lasted;
        lasted
    }

    fn begin_refining(&mut self, now: Instant) {
        self.count_steady(now);
        self.keyframe_at = Some(now);
    }

    fn is_refining(&self, now: Instant) -> bool {
        self.keyframe_at.is_some_and(|at| now.saturating_duration_since(at) < REFINED)
    }

    /// The rate, in bits a second. 0 if nothing came for two windows.
    pub(crate) fn bps(&self, now: Instant) -> u64 {
        if self.counts(now) { u64::from(self.bps) } else { 0 }
    }

    /// The rate of what comes by fits and starts: that of a longer time, and that of the last second if that is less. Until the
    /// first is known, the least of a window stands for it.
    pub(crate) fn uneven_bps(&self, now: Instant) -> (u64, u64) {
        if !self.counts(now) {
            return (0, 0);
        }
        let known = self.slow_windows >= SLOW_KNOWN;
        let slow = if known { self.slow_bps } else { self.least_bps };
        (u64::from(slow), u64::from(slow.min(self.newest_bps)))
    }

    fn counts(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) < 2 * WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_follows_what_comes_and_ends_with_it() {
        let start = Instant::now();
        let mut rate = Rate::default();
        let at = |ms| start + Duration::from_millis(ms);
        for ms in 0..3000 {
            rate.count(at(ms), Counted::Other(125));
        }
        assert!(rate.bps(at(3000)).abs_diff(1_000_000) < 20_000, "{}", rate.bps(at(3000)));
        for ms in 3000..15_000 {
            rate.count(at(ms), Counted::Other(25));
        }
        assert!(rate.bps(at(15_000)).abs_diff(200_000) < 40_000, "{}", rate.bps(at(15_000)));
        assert_eq!(rate.bps(at(17_000)), 0);
    }

    #[test]
    fn what_comes_by_fits_and_starts_takes_little_in_the_long_run_and_at_the_moment() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut rate = Rate::default();
        // Three seconds of 2 Mbit/s, and six of 0.2.
        for ms in 0..27_000 {
            rate.count(at(ms), Counted::Other(if ms % 9000 < 3000 { 250 } else { 25 }));
        }
        let (slow, calm) = rate.uneven_bps(at(27_000));
        assert!((600_000..1_000_000).contains(&slow) && calm < 210_000, "{slow}, {calm}");
        for ms in 27_000..29_500 {
            rate.count(at(ms), Counted::Other(250));
        }
        let (slow, calm) = rate.uneven_bps(at(29_500));
        assert!(slow < 1_200_000 && calm == slow, "{slow}, {calm}");
        assert_eq!(rate.uneven_bps(at(32_000)), (0, 0));
    }

    #[test]
    fn what_refines_a_keyframe_that_was_asked_for_makes_a_screen_no_dearer() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        // A keyframe of 100 kB is asked for each 3 s, and 200 kB refine it. Else it takes 80 kbit/s.
        for first in [0, 1500] {
            let mut rate = Rate::default();
            for ms in 0..30_000 {
                let counted = match (ms + 3000 - first) % 3000 {
                    0..100 => Counted::Asked(1000, ms as u32 / 3000),
                    200..400 => Counted::Other(1000),
                    _ => Counted::Other(10),
                };
                rate.count(at(ms), counted);
            }
            // Little by little the keyframes count.
            let (slow, _) = rate.uneven_bps(at(30_000));
            assert!((80_000..200_000).contains(&slow), "{first}: {slow}");
            // What is large by itself counts.
            (30_000..42_000).for_each(|ms| rate.count(at(ms), Counted::Other(250)));
            let (slow, _) = rate.uneven_bps(at(42_000));
            assert!(slow > 1_200_000, "{first}: {slow}");
        }
    }

    #[test]
    fn keyframes_of_a_publishers_own_leave_the_rate_of_what_is_even_as_it_is() {
        let start = Instant::now();
        for every in [700, 1300, 2100, 5000] {
            let mut rate = Rate::default();
            for ms in 0..40_000_u64 {
                let keyframe = (ms % every < 20).then_some(Counted::Keyframe(125));
                rate.count(
                    start + Duration::from_millis(ms),
                    keyframe.unwrap_or(Counted::Other(125)),
                );
            }
            let (slow, _) = rate.uneven_bps(start + Duration::from_millis(40_000));
            assert!((900_000..1_100_000).contains(&slow), "{every}: {slow}");
        }
    }

    #[test]
    fn keyframes_count_as_what_they_take_in_the_long_run() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut rate = Rate::default();
        rate.count(at(0), Counted::Keyframe(250_000));
        (0..2000).for_each(|ms| rate.count(at(ms), Counted::Other(10)));
        assert!(rate.bps(at(2000)) < 400_000, "one: {}", rate.bps(at(2000)));
        for s in 2..60 {
            rate.count(at(1000 * s), Counted::Keyframe(50_000));
            (0..1000).for_each(|ms| rate.count(at(1000 * s + ms), Counted::Other(10)));
        }
        assert!(rate.bps(at(60_000)).abs_diff(480_000) < 30_000, "{}", rate.bps(at(60_000)));
    }

    #[test]
    fn keyframes_that_a_path_could_not_carry_do_not_make_a_picture_dearer() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut rate = Rate::default();
        for n in 0..20_000_u64 {
            let keyframe = (n % 1000 < 100).then_some(Counted::Asked(1000, n as u32 / 1000));
            rate.count(at(n), keyframe.unwrap_or(Counted::Other(10)));
        }
        let bps = rate.bps(at(20_000));
        assert!((130_000..180_000).contains(&bps), "72 kbit/s, and 100 kB now and then: {bps}");
    }
}
