//! Times in which nothing could be played or shown that was due.

use rtp::extended::timestamp_diff;
use std::time::{Duration, Instant};
use wire::quality::Outage;

/// Opus' clock (RFC 7587, section 4.1).
const SOUND_HZ: f64 = 48_000.0;

/// The longest packet of a mix, which goes on without a pause: a step beyond it is sound that was never made.
const LONGEST_OF_MIX: Duration = Duration::from_millis(60);

/// What a packet of sound lasts, until two in a row have shown it.
const USUAL: Duration = Duration::from_millis(20);
/// The longest packet of Opus (RFC 6716, section 2.1.4): a longer step is a pause.
const LONGEST: Duration = Duration::from_millis(120);

/// The longest time of an interval, and when it ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Longest(Option<(Duration, Instant)>);

impl Longest {
    /// Nothing came for so long until now.
    pub(super) fn note(&mut self, time: Duration, now: Instant) {
        if self.0.is_none_or(|(longest, _)| time > longest) {
            self.0 = Some((time, now));
        }
    }

    /// What the interval that ends now had; the next begins.
    pub(super) fn take(&mut self, now: Instant) -> Option<Outage> {
        let ms = |time: Duration| 1e3 * time.as_secs_f64();
        let (time, ended) = self.0.take()?;
        Some(Outage { ms: ms(time), ago_ms: ms(now.saturating_duration_since(ended)) })
    }
}

/// A packet of sound that came.
#[derive(Debug, Clone, Copy)]
struct Came {
    at: Instant,
    sequence: u16,
    timestamp: u32,
}

/// How long sound was not there that was due: what was lost, and by how much the next packet came later than due. A packet is
/// due when the one before it has been played: after the step of their timestamps. A step without a missing number is a pause.
/// In a mix, which makes none, a step counts as 60 ms at most.
#[derive(Debug)]
pub(super) struct Gaps {
    newest: Option<Came>,
    /// How long a packet lasts.
    packet: Duration,
    longest: Longest,
}

impl Default for Gaps {
    fn default() -> Self {
        Self { newest: None, packet: USUAL, longest: Longest::default() }
    }
}

impl Gaps {
    /// A packet came.
    pub(super) fn came(&mut self, sequence: u16, timestamp: u32, mix: bool, now: Instant) {
        let came = Came { at: now, sequence, timestamp };
        let Some(before) = self.newest else {
            self.newest = Some(came);
            return;
        };
        // One that others overtook.
        let Ok(samples) = u32::try_from(timestamp_diff(timestamp, before.timestamp)) else {
            return;
        };
        self.newest = Some(came);
        let step = Duration::from_secs_f64(f64::from(samples) / SOUND_HZ);
        let elapsed = now.saturating_duration_since(before.at);
        let numbers = sequence.wrapping_sub(before.sequence);
        let missing = u32::from(numbers.saturating_sub(1));
        if numbers == 1 && step <= LONGEST && !step.is_zero() {
            self.packet = step;
        }
        let lost = (self.packet * missing).min(step.saturating_sub(self.packet));
        let gap = match mix {
            true => lost.max(elapsed.saturating_sub(step.min(LONGEST_OF_MIX))),
            false => lost + elapsed.saturating_sub(step),
        };
        self.longest.note(gap, now);
    }

    /// The longest gap of the interval that ends now; none where no two packets followed each other.
    pub(super) fn take(&mut self, now: Instant) -> Option<Outage> {
        self.longest.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes packets: when they come, and which number and tick of 20 ms they have. Gives the gap before each, in ms.
    fn gaps(mix: bool, packets: &[(u64, u16, u32)]) -> Vec<u128> {
        let (begin, mut gaps) = (Instant::now(), Gaps::default());
        let mut of = |&(ms, number, tick): &(u64, u16, u32)| {
            // Clock and numbers wrap on the way.
            let timestamp = u32::MAX.wrapping_sub(1_000).wrapping_add(960 * tick);
            let at = begin + Duration::from_millis(ms);
            gaps.came(u16::MAX.wrapping_add(number), timestamp, mix, at);
            gaps.take(at).map_or(0, |gap| gap.ms.round() as u128)
        };
        packets.iter().map(&mut of).collect()
    }

    #[test]
    fn what_comes_later_than_it_is_due_is_a_gap() {
        let packets = [(0, 0, 0), (20, 1, 1), (420, 2, 21), (510, 3, 22), (511, 4, 23)];
        assert_eq!(gaps(false, &packets), [0, 0, 0, 70, 0], "a pause is none");
        let packets = [(0, 0, 0), (20, 1, 1), (20, 0, 0), (60, 2, 2)];
        assert_eq!(gaps(false, &packets), [0, 0, 0, 20], "a late copy changes nothing");
    }

    #[test]
    fn what_is_lost_by_its_numbers_is_a_gap() {
        let packets = [(0, 0, 0), (20, 1, 1), (60, 3, 3), (5060, 253, 253), (5080, 254, 254)];
        assert_eq!(gaps(false, &packets), [0, 0, 20, 4980, 0]);
        let packets = [(0, 0, 0), (20, 1, 1), (5120, 251, 251)];
        assert_eq!(gaps(false, &packets), [0, 0, 5080], "and the next one is late too");
        let packets = [(0, 0, 0), (60, 1, 3), (240, 4, 12)];
        assert_eq!(gaps(false, &packets), [0, 0, 120], "packets of 60 ms");
        let packets = [(0, 0, 0), (20, 1, 1), (5020, 3, 251)];
        assert_eq!(gaps(false, &packets), [0, 0, 20], "one was lost in a pause");
    }

    #[test]
    fn a_mix_that_leaves_ticks_out_has_a_gap() {
        let packets = [(0, 0, 0), (60, 1, 3), (120, 2, 6), (620, 3, 31)];
        assert_eq!(
            gaps(true, &packets),
            [0, 0, 0, 440],
            "the mixer stood still, its ticks went on"
        );
        let packets = [(0, 0, 0), (20, 1, 1), (2020, 101, 101)];
        assert_eq!(gaps(true, &packets), [0, 0, 1980], "packets were lost");
    }
}
