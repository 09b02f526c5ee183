//! What is believed of a number that trials tell of, each of which may be wrong: a probability for each number that may
//! be it.

/// Numbers up to this are told apart; above, steps of a two-hundredth.
const EXACT: u32 = 200;

/// A probability for each step: that the number is at least it and less than the next one.
pub(crate) struct Belief {
    /// Rising, from 0 on.
    pub(crate) steps: Vec<u32>,
    /// Together 1.
    pub(crate) mass: Vec<f64>,
}

impl Belief {
    /// Before any trial each doubling is as likely as another. 0 stands for all that is less than `least`. All that is more
    /// than `most` lies in the last step: `beyond` is how much that is, as a natural logarithm of a ratio of numbers.
    pub(crate) fn new(least: u32, most: u32, beyond: f64) -> Self {
        let exact = least..=EXACT.max(least).min(most);
        let mut steps: Vec<u32> = std::iter::once(0).chain(exact).collect();
        while let Some(&last) = steps.last().filter(|last| **last < most) {
            steps.push((last + last / EXACT).min(most));
        }
        let width = |at: usize| {
            let (next, more) = match steps.get(at + 1) {
                Some(next) => (*next, 0.0),
                None => (most + 1, beyond),
            };
            ((f64::from(next) + 1.0) / (f64::from(steps[at]) + 1.0)).ln() + more
        };
        let mass = (0..steps.len()).map(width).collect();
        let mut belief = Self { steps, mass };
        belief.see(|_| 1.0);
        belief
    }

    /// Takes how likely what was seen is, were the number this step.
    pub(crate) fn see(&mut self, likelihood: impl Fn(u32) -> f64) {
        let told = self.mass.iter_mut().zip(&self.steps);
        told.for_each(|(mass, step)| *mass *= likelihood(*step));
        let sum: f64 = self.mass.iter().sum();
        self.mass.iter_mut().for_each(|mass| *mass /= sum);
    }

    /// The largest step that is not more than a number.
    pub(crate) fn step(&self, value: u32) -> u32 {
        self.steps[self.steps.partition_point(|step| *step <= value) - 1]
    }

    /// The place of the step at which this share of what is believed is reached.
    pub(crate) fn quantile(&self, share: f64) -> usize {
        let mut sum = 0.0;
        let reached = |mass: &f64| {
            sum += mass;
            sum >= share
        };
        self.mass.iter().position(reached).unwrap_or(self.mass.len() - 1)
    }

    /// The steps `from..to`, no wider than asked for (a share), that hold most.
    pub(crate) fn window(&self, within: f64) -> (usize, usize) {
        let (mut best, mut best_sum) = ((0, 1), 0.0);
        let (mut to, mut sum) = (0, 0.0);
        for from in 0..self.steps.len() {
            let widest = f64::from(self.steps[from]) * (1.0 + within);
            // What lies between `to - 1` and `to` belongs to it.
            let fits = |to: usize| match self.steps.get(to) {
                Some(end) => f64::from(*end) <= widest || to == from + 1,
                None => to == from + 1 && to == self.steps.len(),
            };
            while to < self.steps.len() && fits(to + 1) {
                sum += self.mass[to];
                to += 1;
            }
            if sum > best_sum {
                (best, best_sum) = ((from, to), sum);
            }
            sum -= self.mass[from];
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_trials_each_doubling_is_as_likely_and_what_cannot_be_tried_is_in_the_last() {
        let belief = Belief::new(1, 1024, 0.0);
        assert!((28..=36).contains(&belief.steps[belief.quantile(0.5)]));
        assert!((belief.mass.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let beyond = Belief::new(1, 1024, 100.0);
        assert_eq!(beyond.steps[beyond.quantile(0.5)], 1024);
    }
}
