//! Who speaks for a part of the time only: spurts of talk and silence in between, by a seed.
//!
//! In silence a bot goes on sending a packet every 20 ms, as a client without discontinuous
//! transmission (DTX) does: packets of coded silence, marked with the level of silence (RFC 6464).
//! So its track stays alive, and a check that it arrives stays true.

use super::fixtures::OpusPacket;
use crate::base::{SplitMix, spread};
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
    /// Its number, if bots speak in turn: of any so many in a row as many speak at any time.
    pub in_turn: Option<u32>,
}

/// All that a bot needs to speak for a part of the time.
#[derive(Debug, Clone)]
pub struct Talk {
    spurts: Spurts,
    /// What it sends in between.
    pub(super) silence: Arc<OpusPacket>,
}

impl Talk {
    /// Talk that begins at `now`; turns are counted from `epoch`, the same for all.
    pub fn new(role: TalkRole, silence: Arc<OpusPacket>, (epoch, now): (Instant, Instant)) -> Self {
        Self { spurts: Spurts::new(role, (epoch, now)), silence }
    }

    /// Whether it speaks at `at`; to be asked in order of time.
    pub(super) fn speaks(&mut self, at: Instant) -> bool {
        self.spurts.speaks(at)
    }
}

#[derive(Debug, Clone)]
struct Spurts {
    /// Where lengths come from; none: all are alike.
    random: Option<SplitMix>,
    /// Mean length of speaking and of silence.
    means: (Duration, Duration),
    speaking: bool,
    until: Instant,
}

impl Spurts {
    fn new(role: TalkRole, (epoch, now): (Instant, Instant)) -> Self {
        let share = (role.speaks_pct / 100.0).clamp(0.0, 1.0);
        let silence = SPURT.as_secs_f64() * (1.0 - share) / share.max(1e-9);
        let shorter = (SILENCE.as_secs_f64() / silence).min(1.0);
        let means = match share {
            0.0 => (Duration::ZERO, SILENCE),
            1.0 => (SPURT, Duration::ZERO),
            _ => (SPURT.mul_f64(shorter), Duration::from_secs_f64(silence * shorter)),
        };
        if let Some(number) = role.in_turn {
            return Self::in_turn(number, means, (epoch, now));
        }
        let mut random = SplitMix(role.seed);
        // Begun somewhere on the way, so that a room's bots do not all speak at first.
        let speaking = random.below(1 << 32) < (share * (1u64 << 32) as f64) as u64;
        let mean = if speaking { means.0 } else { means.1 };
        let until = now + mean.mul_f64(fraction(&mut random));
        Self { random: Some(random), means, speaking, until }
    }

    /// Spurts and silences of the same length each, which begin at a moment of the bot's own.
    fn in_turn(number: u32, means: (Duration, Duration), (epoch, now): (Instant, Instant)) -> Self {
        let round = means.0 + means.1;
        let offset = spread(number);
        let rounds = now.saturating_duration_since(epoch).as_secs_f64() / round.as_secs_f64();
        let into = round.mul_f64((rounds + offset).fract());
        let speaking = into < means.0;
        let until = now + if speaking { means.0 - into } else { round - into };
        Self { random: None, means, speaking, until }
    }

    fn speaks(&mut self, at: Instant) -> bool {
        while self.until <= at {
            self.speaking = !self.speaking;
            let mean = if self.speaking { self.means.0 } else { self.means.1 };
            let share = self.random.as_mut().map_or(1.0, |random| 0.5 + fraction(random));
            self.until += mean.mul_f64(share);
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
        let mut spurts = Spurts::new(role, (now, now));
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
                let all = stretches(TalkRole { seed, speaks_pct, in_turn: None });
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
    fn in_turn_as_many_speak_at_any_time() {
        let epoch = Instant::now();
        for (people, speaks_pct) in [(30, 10.0), (300, 1.0), (823, 1.0), (1350, 1.0), (50, 40.0)] {
            let mut all: Vec<Spurts> = (1..=people)
                .map(|number| {
                    let role = TalkRole { seed: 1, speaks_pct, in_turn: Some(number) };
                    // They come one after the other.
                    Spurts::new(role, (epoch, epoch + Duration::from_millis(50) * number))
                })
                .collect();
            let wanted = f64::from(people) * speaks_pct / 100.0;
            for second in 100..600u32 {
                let at = epoch + Duration::from_secs(1) * second;
                let speak = all.iter_mut().filter_map(|one| one.speaks(at).then_some(())).count();
                let apart = (speak as f64 - wanted).abs();
                assert!(apart <= 2.5, "{people} at {second} s: {speak} of {wanted}");
            }
        }
    }

    #[test]
    fn ends_of_the_scale_and_seeds() {
        let of = |seed, speaks_pct| stretches(TalkRole { seed, speaks_pct, in_turn: None });
        assert!(matches!(of(1, 0.0)[..], [(false, _)]));
        assert!(matches!(of(1, 100.0)[..], [(true, _)]));
        assert_eq!(of(3, 40.0), of(3, 40.0));
        assert_ne!(of(3, 40.0), of(4, 40.0));
        let at_once = (0..100).filter(|seed| of(*seed, 30.0)[0].0).count();
        assert!((15..45).contains(&at_once), "{at_once} of 100 speak at the beginning");
    }
}
