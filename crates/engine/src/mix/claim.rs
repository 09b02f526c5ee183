//! Claimed levels against measured ones: a sender may write any level into its packets, but what is decoded of a
//! participant who is heard tells how loud they are.

use super::message::TICK_SAMPLES;
use super::rank::Level;
use crate::limits::{CLAIM_DOUBTED, CLAIM_TOLERANCE_DB};

/// Ticks in a row beyond that make a false claim: 0.8 s, longer than sound waits in a jitter buffer.
const BEYOND_TICKS: u32 = 40;
/// Ticks for which a false claim counts as loud as it was found.
const HELD_TICKS: u32 = CLAIM_DOUBTED.as_secs() as u32 * audio::SAMPLE_RATE / TICK_SAMPLES as u32;

/// How far one track's claims can be believed.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    measured: Level,
    /// Ticks in a row in which the claim was too loud.
    beyond: u32,
    /// By how much claims count less, and for how many ticks more.
    excess_db: u8,
    held: u32,
}

impl Claim {
    /// Sound of this level (−dBov) was decoded.
    pub(crate) fn decoded(&mut self, dbov: u8) {
        self.measured.frame(dbov);
    }

    /// A tick is over in which the track was decoded or not, and its claims came to this level (−dBov).
    pub(crate) fn tick(&mut self, tick: u64, decoded: bool, claimed: u8) {
        self.held = self.held.saturating_sub(1);
        if self.held == 0 {
            self.excess_db = 0;
        }
        self.measured.tick(tick);
        let excess = self.measured.dbov().saturating_sub(claimed);
        if !decoded || excess <= CLAIM_TOLERANCE_DB {
            self.beyond = 0;
            return;
        }
        self.beyond += 1;
        if self.beyond >= BEYOND_TICKS {
            (self.excess_db, self.held) = (excess, HELD_TICKS);
        }
    }

    /// What a claimed level (−dBov) counts as.
    pub(crate) fn believed(&self, claimed: u8) -> u8 {
        claimed.saturating_add(self.excess_db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks in which something is claimed and something decoded, some ticks later.
    fn run(claim: &mut Claim, ticks: std::ops::Range<u64>, claimed: u8, measured: Option<u8>) {
        for tick in ticks {
            measured.into_iter().for_each(|dbov| claim.decoded(dbov));
            claim.tick(tick, measured.is_some(), claimed);
        }
    }

    #[test]
    fn a_false_claim_counts_as_measured_for_a_while() {
        let mut claim = Claim::default();
        run(&mut claim, 0..39, 0, Some(127));
        assert_eq!(claim.believed(0), 0, "not yet");
        run(&mut claim, 39..60, 0, Some(127));
        assert_eq!(claim.believed(0), 127);
        run(&mut claim, 60..1500, 0, None);
        assert_eq!(claim.believed(0), 127, "who is not heard is not measured");
        run(&mut claim, 1500..1700, 0, None);
        assert_eq!(claim.believed(0), 0, "they may have mended it");
        let mut loud = Claim::default();
        run(&mut loud, 0..100, 0, Some(35));
        assert_eq!(loud.believed(0), 35, "as loud as they are");
    }

    #[test]
    fn honest_claims_are_believed() {
        let mut claim = Claim::default();
        for syllable in 0..50 {
            let at = syllable * 60;
            // Claims come before the sound does, and pauses follow.
            run(&mut claim, at..at + 20, 30, Some(60));
            run(&mut claim, at + 20..at + 40, 30, Some(33));
            run(&mut claim, at + 40..at + 60, 80, Some(80));
        }
        assert_eq!(claim.believed(30), 30);
        run(&mut claim, 3000..5000, 30, None);
        assert_eq!(claim.believed(30), 30, "who is not heard is not judged");
    }
}
