//! Where a room's edge lies, by trials near it. A machine that gets slower and faster makes the same number healthy once and
//! too many the next time, so each trial only moves what is believed, by a psychometric function, and the next number
//! is the one that tells most: the middle of it (QUEST: Watson and Pelli 1983).

use crate::base::Belief;

/// How far the edge moves by itself from trial to trial, as a standard deviation of its logarithm.
const WANDERS: f64 = 0.05;
/// A trial goes wrong for reasons that have nothing to do with the number, with this probability.
const LAPSES: f64 = 0.03;
/// Beside the middle, the edge lies between two numbers with 90 %.
const SURE: f64 = 0.9;

/// The largest number that is as often healthy as not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) people: u32,
    /// Between these it lies with 90 %.
    pub(super) between: (u32, u32),
}

impl Edge {
    /// What trials (a number, and whether it was healthy) say of it; no edge is larger than `most`.
    pub(super) fn of(trials: &[(u32, bool)], most: u32) -> Self {
        let mut belief = Belief::new(1, most, 0.0);
        for (people, healthy) in trials {
            let carried = |edge| carries(f64::from(edge), f64::from(*people));
            belief.see(|edge| if *healthy { carried(edge) } else { 1.0 - carried(edge) });
        }
        let quantile = |share| belief.steps[belief.quantile(share)];
        let tail = (1.0 - SURE) / 2.0;
        Self { people: quantile(0.5), between: (quantile(tail), quantile(1.0 - tail)) }
    }
}

/// How likely a room with this edge is healthy with so many people.
fn carries(edge: f64, people: f64) -> f64 {
    // A number counts as carried up to the next one. A logistic curve has the shape of the normal one by this factor.
    let away = ((edge + 0.5) / people).ln() / WANDERS;
    LAPSES + (1.0 - 2.0 * LAPSES) / (1.0 + (-1.7 * away).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_trials_every_doubling_is_as_likely() {
        let edge = Edge::of(&[], 1024);
        assert!((28..=36).contains(&edge.people), "{edge:?}");
    }

    #[test]
    fn a_trial_that_contradicts_others_moves_little() {
        let out = [(300, true), (420, true), (588, true), (823, true), (1152, false)];
        let near = [(940, true), (1000, false), (960, false), (950, true), (955, false)];
        let mut trials = [out, near].concat();
        let before = Edge::of(&trials, 2600);
        assert!((920..=980).contains(&before.people), "{before:?}");
        trials.push((600, false));
        let after = Edge::of(&trials, 2600);
        assert!(before.people.abs_diff(after.people) <= 20, "{before:?} {after:?}");
        assert!(before.between.0 < before.people && before.people < before.between.1);
    }
}
