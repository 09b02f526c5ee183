//! One-way delays tell how long a path's queue is, and how much the path jitters.

use crate::log::Sent;
use std::time::Duration;

/// The least delay is that of the present window and the one before.
const WINDOW_US: u64 = 10_000_000;
/// Packets that left closer together wait for each other: that is no jitter.
const APART_US: u64 = 4_000;
/// Delays that vary at random differ by so much of what their differences differ.
const BENT: f64 = 0.58;
/// In a longer queue than this, delays differ because of the queue.
const QUEUE_SHORT: Duration = Duration::from_millis(40);
/// The least jitter is that of the present window of so long and the one before.
const JITTER_WINDOW_US: u64 = 1_500_000;
/// Jitter is known for so long.
const JITTER_LASTS_US: u64 = 1_500_000;
/// A packet's share of the means.
const SHARE: f64 = 1.0 / 16.0;

/// One-way delays, on a clock of unknown offset.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delays {
    /// When the present window began, its least delay, and that of the one before, in µs.
    window: Option<(u64, i64)>,
    before: Option<i64>,
    /// When the last packet left, and its delay.
    last: Option<(u64, i64)>,
    /// By how much the delay of that one was longer than that of the one before, in µs.
    longer: i64,
    mean_us: f64,
    /// The mean jitter, and when it was measured.
    jitter_us: f64,
    measured_us: u64,
    /// When the present window of it began, its least, and that of the one before.
    least_jitter: (u64, f64),
    least_before: f64,
}

impl Delays {
    /// A packet arrived at `arrived_us`.
    pub(crate) fn note(&mut self, sent: &Sent, arrived_us: i64) {
        let delay = arrived_us - sent.at_us as i64;
        match &mut self.window {
            Some((began, least)) if sent.at_us.saturating_sub(*began) < WINDOW_US => {
                *least = delay.min(*least);
            }
            window => {
                self.before = window.map(|(_, least)| least);
                *window = Some((sent.at_us, delay));
            }
        }
        let Some((at_us, last)) = self.last.replace((sent.at_us, delay)) else {
            self.mean_us = delay as f64;
            return;
        };
        self.mean_us += SHARE * (delay as f64 - self.mean_us);
        // What a probe waits for is its own queue. A queue that grows or shrinks evenly is no jitter.
        if sent.at_us.saturating_sub(at_us) >= APART_US && sent.cluster.is_none() {
            let before = std::mem::replace(&mut self.longer, delay - last);
            let bent = (delay - last - before).abs() as f64;
            if self.queue() <= QUEUE_SHORT {
                self.jitter_us += SHARE * (BENT * bent - self.jitter_us);
                self.note_jitter(sent.at_us);
            }
        }
    }

    /// A keyframe makes delays differ for a moment, radio does all the time: the least of some seconds counts.
    fn note_jitter(&mut self, at_us: u64) {
        let (began, least) = self.least_jitter;
        let old = at_us.saturating_sub(self.measured_us) >= JITTER_LASTS_US;
        if old || at_us.saturating_sub(began) >= JITTER_WINDOW_US {
            self.least_before = if old { self.jitter_us } else { least };
            self.least_jitter = (at_us, self.jitter_us);
        } else {
            self.least_jitter.1 = least.min(self.jitter_us);
        }
        self.measured_us = at_us;
    }

    /// How long the packets of the last moment waited longer than any packet did lately.
    pub(crate) fn queue(&self) -> Duration {
        self.longer_than_least(self.mean_us as i64)
    }

    /// How long a packet that arrived at `arrived_us` waited longer than any packet did lately.
    pub(crate) fn waited(&self, sent: &Sent, arrived_us: i64) -> Duration {
        self.longer_than_least(arrived_us - sent.at_us as i64)
    }

    fn longer_than_least(&self, delay_us: i64) -> Duration {
        let Some((_, least)) = self.window else { return Duration::ZERO };
        let least = least.min(self.before.unwrap_or(least));
        Duration::from_micros((delay_us - least).max(0) as u64)
    }

    /// By how much the delay of a packet differs from that of the one before, in the mean, in µs. What was not measured of
    /// late is forgotten.
    pub(crate) fn jitter_us(&self, now_us: u64) -> f64 {
        let known = now_us.saturating_sub(self.measured_us) < JITTER_LASTS_US;
        if known { self.least_jitter.1.min(self.least_before) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Kind;

    /// Packets that leave 20 ms apart and take so many µs, by their place.
    fn delays(delay_us: impl Fn(u64) -> u64) -> Delays {
        let mut delays = Delays::default();
        for nth in 0..200 {
            let at_us = 1_000_000 + 20_000 * nth;
            let sent = Sent::of(at_us, 1000, Kind::Video);
            delays.note(&sent, (at_us + delay_us(nth)) as i64);
        }
        delays
    }

    const LAST_US: u64 = 1_000_000 + 20_000 * 199;

    #[test]
    fn delays_that_differ_are_jitter_and_a_queue_that_grows_is_none() {
        assert_eq!(delays(|_| 50_000).jitter_us(LAST_US), 0.0);
        let grows = delays(|nth| 50_000 + 150 * nth);
        assert!(grows.jitter_us(LAST_US) < 10.0, "{}", grows.jitter_us(LAST_US));
        let radio = delays(|nth| 50_000 + nth * 7919 % 10_000);
        assert!((1500.0..8000.0).contains(&radio.jitter_us(LAST_US)), "{radio:?}");
        assert_eq!(radio.jitter_us(LAST_US + 2_000_000), 0.0, "it is forgotten");
    }

    #[test]
    fn a_queue_is_what_packets_wait_longer_than_the_least_did() {
        let queue = |delay_us: fn(u64) -> u64| delays(delay_us).queue().as_millis();
        assert_eq!(queue(|_| 50_000), 0);
        let stands = queue(|nth| if nth < 50 { 50_000 } else { 170_000 });
        assert!((118..=120).contains(&stands), "{stands} ms");
        assert!(queue(|nth| if (50..100).contains(&nth) { 170_000 } else { 50_000 }) < 5);
    }
}
