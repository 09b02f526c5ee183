//! Where to look next for a capacity, as a function of the trials so far: growth by fours until a trial breaks, then
//! probabilistic bisection (Horstein 1963; Waeber, Frazier and Henderson 2013). Trials of real machines contradict each
//! other now and then, so each of them moves what is believed instead of ending the search on that side: what is asked
//! twice is what the answer hangs on.

use crate::base::Belief;
use serde::{Deserialize, Serialize};

/// Growth: each number is so many times the one before.
const GROWTH: u32 = 4;
/// A trial tells the wrong thing with this probability. Larger than expected: a search that believes too much ends wrong.
const FLIPS: f64 = 0.06;
/// The answer is an interval that holds the capacity with this probability, if trials are wrong as often as that.
const SURE: f64 = 0.98;
/// As soon as an interval of the answer's width holds this much, its ends are asked for instead of the middle.
const FAVOURITE: f64 = 0.5;
/// A search that is made again begins within this share of what was found before.
const AROUND: f64 = 0.1;
/// Where the generator is the limit, a number that held is good enough if the generator's is at most so many times it.
const NEAR_GENERATOR: f64 = 1.25;

/// How a trial went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All that must hold held.
    Holds,
    /// Something did not.
    Breaks,
    /// The generator was the limit: nothing is said of the server.
    Generator,
}

/// What is searched.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Tried first.
    pub from: u32,
    /// Less is never tried.
    pub least: u32,
    /// More is never tried.
    pub most: u32,
    /// Width of the answer, as a share of it.
    pub within: f64,
    /// More trials are never made.
    pub trials: u32,
    /// The interval that was found before, of a search that is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<(u32, u32)>,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// So much is carried; 0: not even one.
    pub low: u32,
    /// So much is too much; none: no limit of the server was found.
    pub high: Option<u32>,
    /// How sure that is, 0 to 1.
    pub sure: f64,
    /// The answer is as narrow as asked for, or no larger number can be tried.
    pub complete: bool,
}

/// The number to try after these trials; none: the search is over ([`answer`]).
pub fn next(bounds: &Bounds, trials: &[(u32, Outcome)]) -> Option<u32> {
    if answer(bounds, trials).complete || trials.len() >= bounds.trials as usize {
        return None;
    }
    if let Some((value, Outcome::Generator)) = trials.last()
        && limit(trials).is_none_or(|limit| limit > *value)
    {
        return Some(*value);
    }
    let belief = believed(bounds, trials);
    let grows = limit(trials).is_none() && bounds.before.is_none();
    if grows && trials.iter().all(|(_, outcome)| *outcome != Outcome::Breaks) {
        let last = trials.last().map(|(value, _)| *value);
        let larger = last.map_or(bounds.from, |last| last.saturating_mul(GROWTH));
        // The largest number is tried again, until it is sure.
        return Some(belief.step(larger.clamp(bounds.least, bounds.most)));
    }
    let (from, to) = belief.window(bounds.within);
    let inside: f64 = belief.mass[from..to].iter().sum();
    let wanted = match inside >= FAVOURITE {
        false => belief.quantile(0.5),
        true => {
            let below: f64 = belief.mass[..from].iter().sum();
            if below >= 1.0 - inside - below { from } else { to }
        }
    };
    // What is less than the least needs no trial, and after the last step there is nothing.
    let mut wanted = belief.steps[wanted.min(belief.steps.len() - 1)].max(bounds.least);
    let held = held(trials);
    if held > 0 && trials.iter().all(|(_, outcome)| *outcome != Outcome::Breaks) {
        // A search that is made again may be of a server that carries far more than before.
        wanted = wanted.min(belief.step(held.saturating_mul(GROWTH)));
    }
    match limit(trials) {
        Some(limit) if wanted >= limit => {
            let low = surely(&belief).min(held);
            let middle = (f64::from(low.max(1)) * f64::from(limit)).sqrt() as u32;
            Some(belief.step(middle.clamp(low + 1, limit - 1)).max(bounds.least))
        }
        _ => Some(wanted),
    }
}

/// What these trials say, whether that is as narrow as asked for or not.
pub fn answer(bounds: &Bounds, trials: &[(u32, Outcome)]) -> Found {
    let belief = believed(bounds, trials);
    let (from, to) = belief.window(bounds.within);
    let inside: f64 = belief.mass[from..to].iter().sum();
    let high = belief.steps.get(to).copied();
    let low = surely(&belief).min(held(trials));
    let tried = match (high, limit(trials)) {
        (Some(high), Some(limit)) => high <= limit,
        (None, Some(_)) => false,
        (_, None) => true,
    };
    if inside >= SURE && tried {
        return Found { low: belief.steps[from], high, sure: inside, complete: true };
    }
    if let Some(limit) = limit(trials) {
        let near = f64::from(limit) <= f64::from(low.max(1)) * NEAR_GENERATOR
            || limit <= (low + 1).max(bounds.least);
        // What is above cannot be tried, so that nothing is said of it.
        if near {
            return Found { low, high: None, sure: SURE, complete: true };
        }
    }
    let broken = trials.iter().any(|(_, outcome)| *outcome == Outcome::Breaks);
    let high = broken.then(|| surely_not(&belief)).flatten();
    Found { low, high, sure: SURE, complete: false }
}

/// The smallest number at which the generator was the limit twice in a row: once may be a moment of the machine.
pub fn limit(trials: &[(u32, Outcome)]) -> Option<u32> {
    let twice = trials.windows(2).filter(|pair| pair[0] == pair[1]);
    let limited = twice.map(|pair| pair[0]).filter(|(_, outcome)| *outcome == Outcome::Generator);
    limited.map(|(value, _)| value).min()
}

/// The largest number that held, or 0.
fn held(trials: &[(u32, Outcome)]) -> u32 {
    let held = trials.iter().filter(|(_, outcome)| *outcome == Outcome::Holds);
    held.map(|(value, _)| *value).max().unwrap_or_default()
}

/// What is believed of the capacity after these trials.
fn believed(bounds: &Bounds, trials: &[(u32, Outcome)]) -> Belief {
    let mut belief = Belief::new(bounds.least, bounds.most, 1.0);
    if let Some((low, high)) = bounds.before {
        // It is as likely around what was found before as anywhere else.
        let around = f64::from(low) * (1.0 - AROUND)..=f64::from(high) * (1.0 + AROUND);
        let is = |step: u32| around.contains(&f64::from(step));
        let mass = belief.mass.iter().zip(&belief.steps);
        let share: f64 = mass.filter(|(_, step)| is(**step)).map(|(mass, _)| mass).sum();
        belief.see(|step| if is(step) { 1.0 / share } else { 1.0 / (1.0 - share) });
    }
    for (value, outcome) in trials {
        let (carried, not) = match outcome {
            Outcome::Holds => (1.0 - FLIPS, FLIPS),
            Outcome::Breaks => (FLIPS, 1.0 - FLIPS),
            Outcome::Generator => continue,
        };
        belief.see(|step| if step >= *value { carried } else { not });
    }
    belief
}

/// At least so much is carried, surely.
fn surely(belief: &Belief) -> u32 {
    belief.steps[belief.quantile((1.0 - SURE) / 2.0)]
}

/// So much is not carried, surely; none: it may be.
fn surely_not(belief: &Belief) -> Option<u32> {
    belief.steps.get(belief.quantile(1.0 - (1.0 - SURE) / 2.0) + 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::SplitMix;

    const BOUNDS: Bounds =
        Bounds { from: 10, least: 1, most: 20_000, within: 0.05, trials: 60, before: None };

    /// Plays against a server of this capacity; how many trials it took, and the answer.
    fn play(bounds: &Bounds, carries: &mut dyn FnMut(u32) -> Outcome) -> (usize, Found) {
        let mut trials = Vec::new();
        while let Some(value) = next(bounds, &trials) {
            assert!((1..=bounds.most).contains(&value), "{value} after {trials:?}");
            trials.push((value, carries(value)));
            assert!(trials.len() <= bounds.trials as usize, "{trials:?}");
        }
        (trials.len(), answer(bounds, &trials))
    }

    fn up_to(capacity: u32) -> impl FnMut(u32) -> Outcome {
        move |value| if value <= capacity { Outcome::Holds } else { Outcome::Breaks }
    }

    fn holds(found: &Found, capacity: u32) -> bool {
        found.low <= capacity && found.high.is_none_or(|high| capacity < high)
    }

    #[test]
    fn each_capacity_is_found_in_few_trials_and_confirmed() {
        for capacity in 1..=5000 {
            let mut asked = Vec::new();
            let mut carries = up_to(capacity);
            let (took, found) = play(&BOUNDS, &mut |value| {
                asked.push(value);
                carries(value)
            });
            let high = found.high.expect("a limit");
            assert!(holds(&found, capacity), "{capacity}: {found:?}");
            assert!(took <= 25, "{capacity}: {took} trials {asked:?}");
            assert!(found.sure >= SURE);
            let narrow = f64::from(high) <= f64::from(found.low) * 1.05 || high == found.low + 1;
            assert!(narrow, "{capacity}: {found:?}");
            let near = |value: &&u32| (f64::from(**value) / f64::from(capacity) - 1.0).abs() <= 0.1;
            assert!(
                capacity < 20 || asked.iter().filter(near).count() >= 4,
                "{capacity}: {asked:?}"
            );
        }
    }

    #[test]
    fn one_verdict_of_twenty_may_be_wrong() {
        let anew = [1, 3, 12, 47, 180, 640, 1350, 2600, 5000].map(|capacity| (capacity, None));
        let again = [47, 640, 5000].map(|capacity| (capacity, Some((capacity, capacity + 2))));
        for (capacity, before) in anew.into_iter().chain(again) {
            let bounds = Bounds { before, ..BOUNDS };
            let right = (0..100u64).filter(|seed| {
                let mut random = SplitMix(seed * 7919 + u64::from(capacity));
                let mut carries = |value: u32| {
                    let lies = random.below(100) < 5;
                    if (value <= capacity) == lies { Outcome::Breaks } else { Outcome::Holds }
                };
                let (_, found) = play(&bounds, &mut carries);
                holds(&found, capacity)
            });
            let right = right.count();
            assert!(right >= 95, "{capacity}: {right} of 100");
        }
    }

    #[test]
    fn a_generator_at_its_limit_ends_growth_and_gives_at_least() {
        for (capacity, limit) in [(5000, 300), (5000, 11), (250, 300), (5000, 10), (8, 300)] {
            let mut carries = |value: u32| match value {
                value if value >= limit => Outcome::Generator,
                value if value <= capacity => Outcome::Holds,
                _ => Outcome::Breaks,
            };
            let (took, found) = play(&BOUNDS, &mut carries);
            assert!(holds(&found, capacity) && took <= 25, "{capacity} {limit}: {found:?} {took}");
            assert!(found.low < limit);
            match capacity < limit {
                true => assert!(found.high.is_some(), "{capacity} {limit}: {found:?}"),
                false => {
                    assert!(found.high.is_none(), "{capacity} {limit}: {found:?}");
                    let near = f64::from(found.low.max(1)) * 1.3 >= f64::from(limit - 1);
                    assert!(near, "{capacity} {limit}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn a_search_again_begins_from_what_was_found_before_and_believes_it_no_more_than_that() {
        let (mut anew, mut again) = (0, 0);
        for capacity in [3, 47, 640, 1350, 5000] {
            let (took, found) = play(&BOUNDS, &mut up_to(capacity));
            anew += took;
            let before = Some((found.low, found.high.expect("a limit")));
            let bounds = Bounds { before, ..BOUNDS };
            let (took, found) = play(&bounds, &mut up_to(capacity));
            assert!(holds(&found, capacity), "{capacity}: {found:?}");
            again += took;
            for other in [1, capacity / 2, capacity * 3] {
                let (took, found) = play(&bounds, &mut up_to(other));
                let right = holds(&found, other) && found.high.is_some() && took <= 25;
                assert!(right, "{other} after {capacity}: {found:?} {took}");
            }
        }
        assert!(again * 3 <= anew * 2, "{again} trials, and {anew} without");
    }

    #[test]
    fn a_generator_that_is_the_limit_at_once_ends_the_search() {
        let bounds = Bounds { least: 2, ..BOUNDS };
        let (took, found) = play(&bounds, &mut |_| Outcome::Generator);
        assert!(took <= 12 && found.complete, "{took} {found:?}");
        assert_eq!((found.low, found.high), (0, None));
    }

    #[test]
    fn a_moment_in_which_the_generator_was_late_is_asked_again_and_forgotten() {
        for (capacity, nth) in [(5000, 2), (250, 3), (8, 1), (640, 9)] {
            let (mut carries, mut asked) = (up_to(capacity), 0);
            let (took, found) = play(&BOUNDS, &mut |value| {
                asked += 1;
                if asked == nth { Outcome::Generator } else { carries(value) }
            });
            assert!(holds(&found, capacity) && took <= 26, "{capacity}: {found:?} {took}");
            assert!(found.high.is_some() && found.complete, "{capacity}: {found:?}");
        }
    }

    #[test]
    fn a_search_that_is_not_over_says_what_is_sure_and_no_more() {
        let mut trials = Vec::new();
        assert_eq!(answer(&BOUNDS, &trials).low, 0);
        for capacity in [1, 160, 1350] {
            trials.clear();
            while let Some(value) = next(&BOUNDS, &trials) {
                let found = answer(&BOUNDS, &trials);
                assert!(holds(&found, capacity), "{capacity}: {found:?} after {trials:?}");
                let held = trials.iter().filter(|(_, outcome)| *outcome == Outcome::Holds);
                assert!(found.low <= held.map(|(value, _)| *value).max().unwrap_or(0));
                let outcome = if value <= capacity { Outcome::Holds } else { Outcome::Breaks };
                trials.push((value, outcome));
            }
        }
    }

    #[test]
    fn bounds_end_it() {
        let bounds = Bounds { from: 10, most: 50, ..BOUNDS };
        let (took, found) = play(&bounds, &mut up_to(5000));
        assert_eq!((found.low, found.high), (50, None), "in {took}");
        let (_, found) = play(&bounds, &mut |_| Outcome::Breaks);
        assert_eq!((found.low, found.high), (0, Some(1)));
        assert!(found.complete);
        let few = Bounds { trials: 5, ..BOUNDS };
        let (took, found) = play(&few, &mut up_to(1350));
        assert!(took == 5 && !found.complete, "{found:?}");
        let (_, found) = play(&Bounds { least: 2, ..BOUNDS }, &mut up_to(1));
        assert_eq!((found.low, found.high), (0, Some(2)));
        let (_, found) = play(&Bounds { from: 1, ..BOUNDS }, &mut up_to(1));
        assert_eq!((found.low, found.high), (1, Some(2)));
    }
}
