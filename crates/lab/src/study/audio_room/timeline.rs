//! Where a room that lives on goes next: out until it is not healthy, in, out again over the same numbers, then a
//! bisection, and once more from further in. As the study did it: 2000, 1400, 1300, 1000, 1400, 1350 people.

/// Out, each number is so many times the one before.
const OUT: f64 = 1.4;
/// In, each number is such a part of the one before.
const IN: f64 = 0.8;
/// Further in, of the largest healthy number.
const DEEP: f64 = 0.75;
/// The second time out, each number is so many times the one before.
const OUT_AGAIN: f64 = 1.12;
/// An edge is found when what is too many is at most so many times what is not.
const CLOSE: f64 = 1.03;
/// Where verdicts contradict each other the search comes to no end by itself.
const MOST_TRIALS: u32 = 80;

/// How a number of people went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Healthy,
    /// The server was at its end.
    Broken,
    /// The generator was at its end: nothing is said of the server.
    Generator,
}

/// What a number is tried for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Out, until it is too many.
    Out,
    /// In, until it is healthy.
    In,
    /// Further in.
    Deep,
    /// The largest number that was healthy coming down, going up.
    SameAgain,
    /// The smallest that was too many, going up.
    TooManyAgain,
    /// Between the largest healthy and the smallest that was too many.
    Edge,
    /// In once more, for the second edge.
    BackIn,
    /// Out once more.
    OutAgain,
    /// Between them, the second time.
    SecondEdge,
}

impl Part {
    /// Whether what is found here moves an edge.
    fn is_near_an_edge(self) -> bool {
        !matches!(self, Self::Out | Self::In | Self::Deep | Self::BackIn)
    }

    /// In words.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
            Self::Deep => "further in",
            Self::SameAgain => "out again to what was healthy",
            Self::TooManyAgain => "out again to what was too many",
            Self::Edge => "bisection",
            Self::BackIn => "in once more",
            Self::OutAgain => "out once more",
            Self::SecondEdge => "second bisection",
        }
    }
}

/// The search: which numbers were tried, and which is next.
#[derive(Debug)]
pub(super) struct Timeline {
    most: u32,
    part: Part,
    people: u32,
    /// The largest healthy and the smallest broken number of this search for an edge.
    low: Option<u32>,
    high: Option<u32>,
    /// The largest healthy numbers beside the smallest that were too many, one a search.
    pub(super) edges: Vec<(u32, u32)>,
    /// How many numbers were tried.
    tried: u32,
    /// The number now broke once, and is looked at again.
    doubted: bool,
}

impl Timeline {
    /// Begins with so many; more than `most` are never tried.
    pub(super) fn new(start: u32, most: u32) -> Self {
        let people = start.min(most);
        Self {
            most,
            part: Part::Out,
            people,
            low: None,
            high: None,
            edges: Vec::new(),
            tried: 0,
            doubted: false,
        }
    }

    /// How many are to be there now, and what for.
    pub(super) fn now(&self) -> (u32, Part) {
        (self.people, self.part)
    }

    /// Takes how the number now went, and moves on. False: the search is over.
    pub(super) fn went(&mut self, verdict: Verdict) -> bool {
        let people = self.people;
        self.tried += 1;
        if self.tried == MOST_TRIALS {
            return false;
        }
        // On the way out a machine's hiccup counts little; an edge should not stand on one.
        self.doubted = verdict == Verdict::Broken && !self.doubted && self.part.is_near_an_edge();
        if self.doubted {
            return true;
        }
        match verdict {
            Verdict::Healthy => self.low = self.low.max(Some(people)),
            Verdict::Broken => {
                self.high = Some(self.high.map_or(people, |high| high.min(people)));
                // What was healthy before is not so from this side.
                self.low = self.low.filter(|low| *low < people);
            }
            Verdict::Generator => {}
        }
        let healthy = verdict == Verdict::Healthy;
        match self.part {
            Part::Out if healthy && people < self.most => self.go(Part::Out, more(people, OUT)),
            Part::Out => self.go(Part::In, scaled(people, IN)),
            Part::In if healthy => self.go(Part::Deep, scaled(people, DEEP)),
            Part::In => self.go(Part::In, scaled(people, IN)),
            Part::Deep => match self.low {
                Some(low) => self.go(Part::SameAgain, low),
                None => self.go(Part::Deep, scaled(people, DEEP)),
            },
            Part::SameAgain => match self.high {
                Some(high) => self.go(Part::TooManyAgain, high),
                None => false,
            },
            Part::TooManyAgain => {
                if healthy {
                    // Too many coming down, healthy going up: the edge lies above.
                    self.high = None;
                    return self.go(Part::OutAgain, more(people, OUT_AGAIN));
                }
                self.bisect(Part::Edge)
            }
            // Between the two nothing can be said of the server.
            Part::Edge | Part::SecondEdge if verdict == Verdict::Generator => false,
            Part::Edge => self.bisect(Part::Edge),
            Part::BackIn => {
                (self.low, self.high) = (healthy.then_some(people), None);
                match healthy {
                    true => self.go(Part::OutAgain, more(people, OUT_AGAIN)),
                    false => self.go(Part::BackIn, scaled(people, DEEP)),
                }
            }
            Part::OutAgain if healthy => match people < self.most {
                true => self.go(Part::OutAgain, more(people, OUT_AGAIN)),
                false => false,
            },
            Part::OutAgain if verdict == Verdict::Generator => false,
            Part::OutAgain => match self.edges.is_empty() {
                true => self.bisect(Part::Edge),
                false => self.bisect(Part::SecondEdge),
            },
            Part::SecondEdge => self.bisect(Part::SecondEdge),
        }
    }

    /// Halves what lies between, or goes on where it is small enough.
    fn bisect(&mut self, part: Part) -> bool {
        let (Some(low), Some(high)) = (self.low, self.high) else {
            // Nothing is healthy from this side: further in.
            return self.go(Part::In, scaled(self.people, IN));
        };
        if high > scaled(low, CLOSE).max(low + 1) {
            return self.go(part, low.midpoint(high));
        }
        self.edges.push((low, high));
        self.edges.len() < 2 && self.go(Part::BackIn, scaled(low, DEEP))
    }

    fn go(&mut self, part: Part, people: u32) -> bool {
        (self.part, self.people) = (part, people.clamp(1, self.most));
        // With nobody in the room there is nowhere further in to go.
        people > 0
    }
}

fn scaled(people: u32, by: f64) -> u32 {
    (f64::from(people) * by).floor() as u32
}

/// So many times as many, and one more at least.
fn more(people: u32, by: f64) -> u32 {
    scaled(people, by).max(people + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was tried, and the edges.
    type Played = (Vec<(u32, Part, Verdict)>, Vec<(u32, u32)>);

    /// Plays against a server that carries what `carries` says of a number and whether it was reached from below.
    fn play(start: u32, most: u32, carries: impl Fn(u32, bool) -> Verdict) -> Played {
        let (mut timeline, mut played, mut before) = (Timeline::new(start, most), Vec::new(), 0);
        loop {
            let (people, part) = timeline.now();
            let verdict = carries(people, people > before);
            before = people;
            played.push((people, part, verdict));
            assert!(played.len() < 100, "it comes to an end: {played:?}");
            if !timeline.went(verdict) {
                return (played, timeline.edges);
            }
        }
    }

    fn up_to(capacity: u32) -> impl Fn(u32, bool) -> Verdict {
        move |people, _| if people <= capacity { Verdict::Healthy } else { Verdict::Broken }
    }

    #[test]
    fn each_capacity_is_found_twice_within_a_thirtieth_and_in_few_steps() {
        for capacity in (5..2500).step_by(7) {
            let (played, edges) = play(300, 2600, up_to(capacity));
            assert_eq!(edges.len(), 2, "{capacity}: {played:?}");
            for (low, high) in edges {
                assert!(low <= capacity && capacity < high, "{capacity}: {low} {high}");
                assert!(high <= (low * 103).div_ceil(100).max(low + 1), "{capacity}: {low} {high}");
            }
            assert!(played.len() <= 60, "{capacity}: {} steps", played.len());
        }
    }

    #[test]
    fn the_same_number_is_seen_coming_down_and_going_up() {
        let (played, _) = play(300, 2600, up_to(1350));
        let numbers = |part| {
            played.iter().filter(move |one| one.1 == part).map(|one| one.0).collect::<Vec<_>>()
        };
        assert_eq!(numbers(Part::Out), [300, 420, 588, 823, 1152, 1612]);
        assert_eq!(numbers(Part::In), [1289]);
        assert_eq!(numbers(Part::Deep), [966]);
        assert_eq!(numbers(Part::SameAgain), [1289]);
        assert_eq!(numbers(Part::TooManyAgain), [1612, 1612], "what broke is looked at again");
    }

    #[test]
    fn a_hiccup_moves_no_edge() {
        let tried = std::cell::Cell::new(0);
        let (played, edges) = play(300, 2600, |people, _| {
            tried.set(tried.get() + 1);
            // Every fifth look the machine is slow for a while.
            let slow = tried.get() % 5 == 0;
            if people <= if slow { 1000 } else { 1350 } {
                Verdict::Healthy
            } else {
                Verdict::Broken
            }
        });
        assert!(edges.iter().all(|(low, _)| (1300..=1350).contains(low)), "{edges:?} {played:?}");
        assert_eq!(edges.len(), 2);
    }

    #[test]
    fn hysteresis_is_no_trap() {
        // Broken once, it heals only further in.
        let broken = std::cell::Cell::new(false);
        let sticky = |people: u32, _| {
            let limit = if broken.get() { 900 } else { 1350 };
            broken.set(people > limit);
            if broken.get() { Verdict::Broken } else { Verdict::Healthy }
        };
        let (played, edges) = play(300, 2600, sticky);
        assert!(!edges.is_empty(), "{played:?}");
        assert!(edges.iter().all(|(low, _)| (800..=1350).contains(low)), "{edges:?}");
    }

    #[test]
    fn a_generator_at_its_limit_finds_no_edge() {
        let limited = |people, _| {
            if people <= 1000 { Verdict::Healthy } else { Verdict::Generator }
        };
        let (played, edges) = play(300, 2600, limited);
        assert!(edges.is_empty());
        assert!(
            played.iter().any(|one| one.1 == Part::SameAgain),
            "in and out is shown: {played:?}"
        );
        let between = |people, _| match people {
            ..=1300 => Verdict::Healthy,
            1301..=1500 => Verdict::Generator,
            _ => Verdict::Broken,
        };
        let (played, edges) = play(300, 2600, between);
        assert!(edges.is_empty() && played.len() < 20, "{played:?}");
        let flip = std::cell::Cell::new(false);
        let (played, _) = play(300, 2600, |_, _| {
            flip.set(!flip.get());
            if flip.get() { Verdict::Healthy } else { Verdict::Broken }
        });
        assert!(played.len() as u32 <= MOST_TRIALS);
        let (played, edges) = play(4, 8, |_, _| Verdict::Healthy);
        assert!(edges.is_empty() && played.len() <= 8, "{played:?}");
        let (_, edges) = play(4, 8, |_, _| Verdict::Broken);
        assert!(edges.is_empty(), "nobody is healthy: the search ends");
    }
}
