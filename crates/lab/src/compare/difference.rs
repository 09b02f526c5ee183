//! The difference of two sides in one metric, and whether the repeats support it.

use super::metric::{Metric, Way};
use crate::base::{SplitMix, mean};

/// So often runs and people are drawn again.
const DRAWS: usize = 400;

/// What a difference comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Is {
    /// The second is worse by more than the margin.
    Worse,
    /// It is better by more than that.
    Better,
    /// It differs by more than that, and nobody can say whether that is good.
    Differs,
    /// It does not differ by more than that.
    Same,
    /// More repeats would tell.
    Unclear,
    /// A single run on a side says nothing of how much runs differ.
    Unknown,
}

impl Is {
    /// In words.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Differs => "another",
            Self::Same => "no difference",
            Self::Unclear => "not clear",
            Self::Unknown => "not known",
        }
    }
}

/// The difference of two sides in one metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    /// The mean over the runs of the first side.
    pub(super) first: f64,
    /// Of the second.
    pub(super) second: f64,
    /// How much more the second one is, as a share of the first, or of [`Metric::least`] where that is larger.
    pub(super) change: f64,
    /// Where the change lies with 98 %; none with a single run on a side.
    pub(super) between: Option<(f64, f64)>,
    pub(super) is: Is,
}

impl Difference {
    /// Of these figures, run by run; `margin`: a smaller change is none. None if a side measured nothing.
    pub(super) fn of(
        metric: &Metric,
        first: &[Vec<f64>],
        second: &[Vec<f64>],
        margin: f64,
    ) -> Option<Self> {
        let of_run = |figures: &Vec<f64>| metric.of_run(figures);
        let a = mean(first.iter().filter_map(of_run))?;
        let b = mean(second.iter().filter_map(of_run))?;
        let whole = a.abs().max(metric.least);
        let change = (b - a) / whole;
        let errors = error(metric, first).zip(error(metric, second));
        let between = errors.map(|(of_a, of_b)| {
            let freedom = first.len() + second.len() - 2;
            let wide = t_99(freedom) * of_a.hypot(of_b) / whole;
            (change - wide, change + wide)
        });
        let worse = if metric.worse == Way::Less { -change } else { change };
        let is = match between {
            None => Is::Unknown,
            Some((low, high)) if low >= -margin && high <= margin => Is::Same,
            Some((low, high)) if low <= 0.0 && high >= 0.0 => Is::Unclear,
            Some(_) if metric.worse == Way::Neither && change.abs() > margin => Is::Differs,
            Some(_) if worse > margin => Is::Worse,
            Some(_) if worse < -margin => Is::Better,
            Some(_) => Is::Unclear,
        };
        Some(Self { first: a, second: b, change, between, is })
    }
}

/// The standard error of the mean over runs, by drawing runs, and people of each, again and again (Efron and Tibshirani
/// 1993, chapter 6); none with a single run.
fn error(metric: &Metric, runs: &[Vec<f64>]) -> Option<f64> {
    let count = runs.len();
    if count < 2 {
        return None;
    }
    let mut random = SplitMix(1);
    let mut draw = || {
        let of_run = |random: &mut SplitMix| {
            let run = &runs[random.below(count as u64) as usize];
            let person = |_| run[random.below(run.len() as u64) as usize];
            let drawn: Vec<f64> = (0..run.len()).map(person).collect();
            metric.of_run(&drawn)
        };
        mean((0..count).filter_map(|_| of_run(&mut random))).unwrap_or_default()
    };
    let draws: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    let middle = mean(draws.iter().copied())?;
    let variance = mean(draws.iter().map(|value| (value - middle).powi(2)))?;
    // Few runs differ less from their own mean than from the true one.
    Some((variance * count as f64 / (count - 1) as f64).sqrt())
}

/// The 99th percentile of Student's t with so many degrees of freedom.
fn t_99(freedom: usize) -> f64 {
    const T: [f64; 10] = [31.82, 6.97, 4.54, 3.75, 3.36, 3.15, 3.0, 2.9, 2.82, 2.76];
    T.get(freedom.max(1) - 1).copied().unwrap_or(2.73)
}

#[cfg(test)]
mod tests {
    use super::super::metric::SERVER_US;
    use super::*;

    fn of_run(name: &str) -> Metric {
        Metric::all().into_iter().find(|metric| metric.name == name).unwrap()
    }

    fn runs(values: &[f64]) -> Vec<Vec<f64>> {
        values.iter().map(|value| vec![*value]).collect()
    }

    /// Runs around a mean, each a few percent away.
    fn noisy(random: &mut SplitMix, around: f64, count: usize) -> Vec<Vec<f64>> {
        let uniform = |random: &mut SplitMix| random.below(1_000_001) as f64 / 1e6;
        let mut one = || around * (1.0 + 0.05 * (uniform(random) + uniform(random) - 1.0));
        (0..count).map(|_| vec![one()]).collect()
    }

    #[test]
    fn a_tenth_more_is_found_and_nothing_is_not() {
        let metric = of_run(SERVER_US);
        let mut random = SplitMix(7);
        let (mut found, mut false_alarms) = (0, 0);
        for _ in 0..200 {
            let first = noisy(&mut random, 5.0, 5);
            let is =
                |second: &[Vec<f64>]| Difference::of(&metric, &first, second, 0.05).unwrap().is;
            found += u32::from(is(&noisy(&mut random, 5.5, 5)) == Is::Worse);
            let same = is(&noisy(&mut random, 5.0, 5));
            false_alarms += u32::from(matches!(same, Is::Worse | Is::Better));
        }
        assert!(found >= 195 && false_alarms <= 2, "{found} found, {false_alarms} false alarms");
    }

    #[test]
    fn a_single_run_says_nothing_of_how_runs_differ() {
        let metric = of_run(SERVER_US);
        let one = Difference::of(&metric, &runs(&[5.0]), &runs(&[9.0, 9.1]), 0.05).unwrap();
        assert_eq!((one.is, one.between), (Is::Unknown, None));
        assert!((one.change - 0.81).abs() < 1e-9, "{one:?}");
        assert_eq!(Difference::of(&metric, &runs(&[5.0]), &[], 0.05), None);
    }

    #[test]
    fn little_of_nothing_is_no_difference_and_less_of_what_is_good_is_worse() {
        let rtt = of_run("rtt_ms");
        let people = |ms: f64| vec![vec![ms, ms * 1.1, ms * 0.9]; 4];
        let same = Difference::of(&rtt, &people(0.2), &people(0.4), 0.05).unwrap();
        assert_eq!(same.is, Is::Same, "{same:?}");
        let score = of_run("mos_lq");
        let worse = Difference::of(&score, &people(4.2), &people(2.1), 0.05).unwrap();
        assert_eq!(worse.is, Is::Worse, "{worse:?}");
        let better = Difference::of(&score, &people(2.1), &people(4.2), 0.05).unwrap();
        assert_eq!(better.is, Is::Better, "{better:?}");
    }

    #[test]
    fn what_has_no_direction_is_never_better_or_worse() {
        for name in ["received_kbps", "estimate_kbps", "retransmitted_pct"] {
            let metric = of_run(name);
            for second in [900.0, 1260.0] {
                let (first, second) = (runs(&[1000.0; 3]), runs(&[second; 3]));
                let found = Difference::of(&metric, &first, &second, 0.05).unwrap();
                assert_eq!(found.is, Is::Differs, "{name}");
            }
        }
    }

    #[test]
    fn one_bad_run_of_three_is_not_clear() {
        let metric = of_run(SERVER_US);
        let unclear =
            Difference::of(&metric, &runs(&[5.0, 5.1, 4.9]), &runs(&[5.0, 5.1, 9.0]), 0.05);
        assert_eq!(unclear.unwrap().is, Is::Unclear);
    }
}
