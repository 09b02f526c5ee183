//! Where a room that lives on goes next: out until it is not healthy, in, out again over the same numbers, then a
//! search for the edge between, and once more from further in. As the study did it: 2000, 1400, 1300, 1000, 1400, 1350 people.

use super::edge::Edge;

/// Out, each number is so many times the one before.
const OUT: f64 = 1.4;
/// In, each number is such a part of the one before.
const IN: f64 = 0.8;
/// Further in, of the largest healthy number.
const DEEP: f64 = 0.75;
/// The second time out, each number is so many times the one before.
const OUT_AGAIN: f64 = 1.12;
/// So many numbers are tried near an edge.
const LOOKS: u32 = 10;
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
    /// Where the edge is believed to be.
    Edge,
    /// In once more, for the second edge.
    BackIn,
    /// Out once more.
    OutAgain,
    /// The same, the second time.
    SecondEdge,
}

impl Part {
    /// In words.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
            Self::Deep => "further in",
            Self::SameAgain => "out again to what was healthy",
            Self::TooManyAgain => "out again to what was too many",
            Self::Edge => "near the edge",
            Self::BackIn => "in once more",
            Self::OutAgain => "out once more",
            Self::SecondEdge => "near the edge again",
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
    /// What was tried in this search, and whether it was healthy.
    seen: Vec<(u32, bool)>,
    /// How many numbers were tried near its edge.
    looks: u32,
    /// One a search.
    pub(super) edges: Vec<Edge>,
    /// How many numbers were tried in all.
    tried: u32,
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
            seen: Vec::new(),
            looks: 0,
            edges: Vec::new(),
            tried: 0,
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
        let healthy = verdict == Verdict::Healthy;
        match verdict {
            Verdict::Healthy => self.low = self.low.max(Some(people)),
            Verdict::Broken => {
                self.high = Some(self.high.map_or(people, |high| high.min(people)));
                // What was healthy before is not so from this side.
                self.low = self.low.filter(|low| *low < people);
            }
            Verdict::Generator => {}
        }
        if verdict != Verdict::Generator {
            self.seen.push((people, healthy));
        }
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
                self.near(Part::Edge)
            }
            // Near the edge nothing can be said of the server.
            Part::Edge | Part::SecondEdge if verdict == Verdict::Generator => false,
            Part::Edge | Part::SecondEdge => self.near(self.part),
            Part::BackIn => {
                (self.low, self.high) = (healthy.then_some(people), None);
                self.seen = vec![(people, healthy)];
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
                true => self.near(Part::Edge),
                false => self.near(Part::SecondEdge),
            },
        }
    }

    /// Goes where the edge is believed to be, or on where enough was tried.
    fn near(&mut self, part: Part) -> bool {
        let edge = Edge::of(&self.seen, self.most);
        if self.looks < LOOKS {
            self.looks += 1;
            return self.go(part, edge.people);
        }
        self.looks = 0;
        self.edges.push(edge);
        self.edges.len() < 2 && self.go(Part::BackIn, scaled(edge.people, DEEP))
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
    type Played = (Vec<(u32, Part, Verdict)>, Vec<Edge>);

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
            for edge in edges {
                assert!(
                    edge.people.abs_diff(capacity) * 30 <= capacity.max(30),
                    "{capacity}: {edge:?}"
                );
                assert!(
                    (edge.between.0..=edge.between.1).contains(&capacity),
                    "{capacity}: {edge:?}"
                );
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
        assert_eq!(numbers(Part::TooManyAgain), [1612]);
        assert_eq!(numbers(Part::Edge).len() as u32, LOOKS);
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
        let near = |edge: &Edge| (1280..=1370).contains(&edge.people);
        assert!(edges.iter().all(near), "{edges:?} {played:?}");
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
        assert!(edges.iter().all(|edge| (800..=1350).contains(&edge.people)), "{edges:?}");
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
