//! How the bots of a group come and go: executors, as k6 calls them.

use settings::{Section, Shape, duration, list_of, number, section};
use std::time::Duration;

/// Most people of a scenario.
pub const MAX_PEOPLE: u32 = 10_000;
/// How long someone who comes and goes stays, where the scenario does not say.
const CHURN_STAY: Duration = Duration::from_secs(20);
/// The longest that anything in a scenario lasts.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How a group's bots come and go.
#[derive(Debug, Clone, PartialEq)]
pub enum Executor {
    /// All come, as fast as `join` says, and stay until the end.
    Constant,
    /// All come so too; each stays about so long, leaves and comes again. A browser is started anew each time.
    Churn {
        /// The mean.
        stay: Duration,
    },
    /// As many are there as the stages say, up and down.
    Ramping {
        /// One after the other, from the first join.
        stages: Vec<RampStage>,
    },
    /// New people come at a rate, however slow the server is.
    Arrival(Arrival),
    /// As many are there as who leads the run asks for on the way. No scenario file says this: a study does.
    Led,
}

/// How many are to be in a room whose people are led.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Crowd {
    /// So many.
    pub people: u32,
    /// So many come or leave a second until then.
    pub per_second: f64,
}

/// Where people are led, so many of those who come first say marks and listen for them: they are there all the time.
pub const LED_CORE: u32 = 100;

/// A stretch of time at whose end so many of a group's bots are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RampStage {
    /// How long it takes; in none of it all come or leave at once.
    pub duration: Duration,
    /// How many are there at its end, over all rooms of the group.
    pub people: u32,
}

/// New people at a rate: an open model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// How many come a second, evenly.
    pub per_second: f64,
    /// How long each stays, in the mean.
    pub stay: Duration,
    /// Places for people at once, over all rooms of the group: who finds none is dropped.
    pub max: u32,
}

/// When a bot is there, from the first join on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// When it comes.
    pub from: Duration,
    /// When it leaves; none: at the end of the run.
    pub until: Option<Duration>,
}

/// When each of so many places is taken: who came last leaves first.
pub fn ramp(stages: &[RampStage], places: u32) -> Vec<Vec<Stay>> {
    let mut stays: Vec<Vec<Stay>> = vec![Vec::new(); places as usize];
    let (mut begin, mut there) = (Duration::ZERO, 0);
    for stage in stages {
        let steps = stage.people.abs_diff(there);
        for step in 1..=steps {
            let at = begin + stage.duration.mul_f64(f64::from(step) / f64::from(steps));
            let grows = stage.people > there;
            let place = if grows { there + step - 1 } else { there - step } as usize;
            match (grows, stays.get_mut(place)) {
                (true, Some(stays)) => stays.push(Stay { from: at, until: None }),
                (false, Some(stays)) => stays.iter_mut().for_each(|stay| {
                    stay.until.get_or_insert(at);
                }),
                (_, None) => {}
            }
        }
        (begin, there) = (begin + stage.duration, stage.people);
    }
    stays
}

/// Reads the executor of a group of `rooms` rooms, and how many bots a room has: where `bots` does
/// not say, as many as the executor needs.
pub(super) fn decode(room: &mut Section<'_>, rooms: u32, bots: Option<u32>) -> (Executor, u32) {
    let has_churn = room.has("churn");
    let churn = room.section("churn", |churn| {
        churn.read("stay", stay().about("How long each stays, in the mean")).or(CHURN_STAY)
    });
    let ramping = room.read("ramping", section(decode_ramping)).optional();
    let places = bots.map(|bots| bots.saturating_mul(rooms));
    let arrival = room.read("arrival", section(|arrival| decode_arrival(arrival, places)));
    let arrival = arrival.optional();
    room.at_most_one(&["churn", "ramping", "arrival"]);
    let (key, needed, executor) = match (has_churn, ramping, arrival) {
        (_, Some(stages), _) => {
            let most = stages.iter().map(|stage| stage.people).max().unwrap_or(0);
            ("ramping", most, Executor::Ramping { stages })
        }
        (_, _, Some(arrival)) => ("arrival", arrival.max, Executor::Arrival(arrival)),
        (true, ..) => ("churn", 0, Executor::Churn { stay: churn }),
        _ => ("people", 0, Executor::Constant),
    };
    let enough = needed.div_ceil(rooms.max(1));
    if let Some(bots) = bots.filter(|bots| *bots < enough) {
        let what = format!("{needed} people in {rooms} rooms of {bots} bots");
        room.fault(key, what, format!("write `people: {{ bot: {enough} }}`, or fewer people"));
    }
    (executor, bots.unwrap_or(enough))
}

fn stay() -> impl Shape<Value = Duration> {
    duration(Duration::from_secs(1)..=DAY)
}

fn decode_ramping(ramping: &mut Section<'_>) -> Option<Vec<RampStage>> {
    ramping.read("stages", list_of(section(decode_stage), 1..=100)).required()
}

fn decode_stage(stage: &mut Section<'_>) -> Option<RampStage> {
    let length = stage.read("duration", duration(Duration::ZERO..=DAY)).required();
    let people = number(0..=MAX_PEOPLE).about("Bots of the group that are there at its end");
    let people = stage.read("people", people).required();
    Some(RampStage { duration: length?, people: people? })
}

fn decode_arrival(arrival: &mut Section<'_>, places: Option<u32>) -> Option<Arrival> {
    let per_second = arrival.read("rate_per_second", number(0.001..=1000.0)).required();
    let length = arrival.read("stay", stay().about("How long each stays, in the mean")).required();
    let max = number(1..=MAX_PEOPLE).about("Places at once: who finds none is dropped");
    let max = arrival.read("max", max).optional().or(places.filter(|places| *places > 0));
    if max.is_none() && !arrival.has("max") {
        let cure = "write `max: 50`, or `people: { bot: 10 }` beside `arrival`";
        arrival.fault("max", "nobody knows how many places there are", cure);
    }
    Some(Arrival { per_second: per_second?, stay: length?, max: max? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn stage(seconds: u32, people: u32) -> RampStage {
        RampStage { duration: S * seconds, people }
    }

    fn there(stays: &[Vec<Stay>], at: Duration) -> usize {
        let is = |stay: &&Stay| stay.from <= at && stay.until.is_none_or(|until| at < until);
        stays.iter().flatten().filter(is).count()
    }

    #[test]
    fn a_ramp_goes_up_and_down_in_a_line() {
        let stages = [stage(20, 10), stage(30, 10), stage(10, 0), stage(10, 4)];
        let stays = ramp(&stages, 12);
        let line = [(0, 0), (1, 0), (2, 1), (10, 5), (20, 10), (49, 10), (51, 9), (55, 5), (60, 0)];
        for (at, people) in line.into_iter().chain([(65, 2), (70, 4), (500, 4)]) {
            assert_eq!(there(&stays, S * at), people, "at {at} s");
        }
        let stay =
            |from, until: Option<u32>| Stay { from: S * from, until: until.map(|at| S * at) };
        assert_eq!(stays[9], [stay(20, Some(51))], "who came last leaves first");
        assert_eq!(stays[0][0], stay(2, Some(60)));
        assert_eq!((stays[0].len(), stays[0][1].until), (2, None), "and he comes again");
        assert!(stays[10].is_empty() && stays[11].is_empty());
    }

    #[test]
    fn a_stage_of_no_time_is_at_once_and_the_last_level_stays() {
        let stays = ramp(&[stage(0, 3), stage(5, 3), stage(0, 1)], 3);
        assert_eq!(there(&stays, Duration::ZERO), 3);
        assert_eq!((there(&stays, S * 4), there(&stays, S * 5)), (3, 1));
    }
}
