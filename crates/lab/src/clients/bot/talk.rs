//! Who speaks for a part of the time only: spurts of talk and silence in between, by a seed.
//!
//! In silence a bot goes on sending a packet every 20 ms, as a client without discontinuous
//! transmission (DTX) does: packets of coded silence, marked with the level of silence (RFC 6464).
//! So its track stays alive, and a check that it arrives stays true.

use super::fixtures::OpusPacket;
use crate::base::SplitMix;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Mean length of a spurt. Each spurt, and each silence, is half to one and a half of its mean.
pub const SPURT: Duration = Duration::from_secs(4);
/// Longest mean silence: who speaks for 1 % of the time or less speaks in shorter spurts.
const SILENCE: Duration = Duration::from_secs(400);

/// How much a bot speaks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TalkRole {
    /// Its spurts come from this.
    pub seed: u64,
    /// Share of the time in which it speaks, in percent.
    pub speaks_pct: f64,
}

/// All that a bot needs to speak for a part of the time.
#[derive(Debug, Clone)]
pub struct Talk {
    spurts: Spurts,
    /// What it sends in between.
    pub(super) silence: Arc<OpusPacket>,
}

impl Talk {
    /// Talk that begins at `now`.
    pub fn new(role: TalkRole, silence: Arc<OpusPacket>, now: Instant) -> Self {
        Self { spurts: Spurts::new(role, now), silence }
    }

    /// Whether it speaks at `at`; to be asked in order of time.
    pub(super) fn speaks(&mut self, at: Instant) -> bool {
        self.spurts.speaks(at)
    }
}

#[derive(Debug, Clone)]
struct Spurts {
    random: SplitMix,
    /// Mean length of speaking and of silence.
    means: (Duration, Duration),
    speaking: bool,
    until: Instant,
}

impl Spurts {
    fn new(role: TalkRole, now: Instant) -> Self {
        let share = (role.speaks_pct / 100.0).clamp(0.0, 1.0);
        let silence = SPURT.as_secs_f64() * (1.0 - share) / share.max(1e-9);
        let shorter = (SILENCE.as_secs_f64() / silence).min(1.0);
        let means = match share {
            0.0 => (Duration::ZERO, SILENCE),
            1.0 => (SPURT, Duration::ZERO),
            _ => (SPURT.mul_f64(shorter), Duration::from_secs_f64(silence * shorter)),
        };
        let mut random = SplitMix(role.seed);
        // Begun somewhere on the way, so that a room's bots do not all speak at first.
        let speaking = random.below(1 << 32) < (share * (1u64 << 32) as f64) as u64;
        let mean = if speaking { means.0 } else { means.1 };
        let until = now + mean.mul_f64(fraction(&mut random));
        Self { random, means, speaking, until }
    }

    fn speaks(&mut self, at: Instant) -> bool {
        while self.until <= at {
            self.speaking = !self.speaking;
            let mean = if self.speaking { self.means.0 } else { self.means.1 };
            self.until += mean.mul_f64(0.5 + fraction(&mut self.random));
        }
        self.speaking
    }
}

/// Somewhere in 0..1.
fn fraction(random: &mut SplitMix) -> f64 {
    random.below(1 << 32) as f64 / (1u64 << 32) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of the stretches of an hour, asked every 20 ms: (speaking, seconds).
    fn stretches(role: TalkRole) -> Vec<(bool, f64)> {
        let now = Instant::now();
        let mut spurts = Spurts::new(role, now);
        let mut stretches: Vec<(bool, f64)> = Vec::new();
        for packet in 0..180_000u32 {
            let speaks = spurts.speaks(now + Duration::from_millis(20) * packet);
            match stretches.last_mut() {
                Some((same, seconds)) if *same == speaks => *seconds += 0.02,
                _ => stretches.push((speaks, 0.02)),
            }
        }
        stretches
    }

    #[test]
    fn the_share_of_time_is_what_was_asked_in_spurts_of_some_seconds() {
        for (speaks_pct, within) in [(1.0, 1.0), (10.0, 2.0), (40.0, 3.0), (90.0, 3.0)] {
            for seed in 1..=5 {
                let all = stretches(TalkRole { seed, speaks_pct });
                let spoken: f64 = all.iter().filter(|(speaks, _)| *speaks).map(|(_, s)| s).sum();
                let share = spoken / 3600.0 * 100.0;
                assert!((share - speaks_pct).abs() < within, "{speaks_pct} %: {share} %");
                let whole = &all[1..all.len() - 1];
                let spurts = || whole.iter().filter(|(speaks, _)| *speaks).map(|(_, s)| *s);
                assert!(
                    spurts().all(|s| (1.9..6.1).contains(&s)),
                    "{:?}",
                    spurts().max_by(f64::total_cmp)
                );
            }
        }
    }

    #[test]
    fn ends_of_the_scale_and_seeds() {
        let of = |seed, speaks_pct| stretches(TalkRole { seed, speaks_pct });
        assert!(matches!(of(1, 0.0)[..], [(false, _)]));
        assert!(matches!(of(1, 100.0)[..], [(true, _)]));
        assert_eq!(of(3, 40.0), of(3, 40.0));
        assert_ne!(of(3, 40.0), of(4, 40.0));
        let at_once = (0..100).filter(|seed| of(*seed, 30.0)[0].0).count();
        assert!((15..45).contains(&at_once), "{at_once} of 100 speak at the beginning");
    }
}
