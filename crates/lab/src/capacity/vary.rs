//! The number of a scenario that is varied, and the scenario with another one.

use crate::observe::sockets::{CONNECT_MS, LOST};
use crate::scenario::{Executor, MAX_MESH, MAX_PEOPLE, Scenario, Target};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use wire::room::{AudioTopology, VideoTopology};

/// Most connections, and pings a second of each, as a scenario may say.
const MOST_SOCKETS: u32 = 100_000;

/// Once all have come, thresholds count from so much later on: a sample tells of the 3 s before it.
const SETTLES: Duration = Duration::from_secs(4);

/// What is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vary {
    /// Bots of the only room.
    People,
    /// Rooms that are alike.
    Rooms,
    /// Of a room's people, those who send video.
    Senders,
    /// Sockets without a room.
    Connections,
    /// Pings a second of each socket.
    Rate,
}

impl Vary {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::People, Self::Rooms, Self::Senders, Self::Connections, Self::Rate];

    /// The word of the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::People => "people",
            Self::Rooms => "rooms",
            Self::Senders => "senders",
            Self::Connections => "connections",
            Self::Rate => "rate",
        }
    }

    /// Reads the word of the command line.
    ///
    /// # Errors
    /// A sentence that names those there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|vary| vary.as_str() == text);
        known.ok_or_else(|| {
            "people (of one room), rooms, senders, connections and rate (of sockets) can be varied"
                .into()
        })
    }

    /// One of them, in words.
    pub fn unit(self) -> &'static str {
        match self {
            Self::People => "people in the room",
            Self::Rooms => "rooms",
            Self::Senders => "people of a room who send video",
            Self::Connections => "connections",
            Self::Rate => "pings a second of each connection",
        }
    }

    /// Whether another one costs as much as those before it. In a room each person receives all others, unless they are mixed.
    pub fn alike(self) -> bool {
        matches!(self, Self::Rooms | Self::Connections | Self::Rate)
    }

    /// Whether each of them takes memory of its own: a ping does not.
    pub fn takes_memory(self) -> bool {
        self != Self::Rate
    }

    /// The smallest and the largest number that the scenario may have.
    ///
    /// # Errors
    /// It has nothing of that kind, or several: what to write.
    pub fn range(self, scenario: &Scenario) -> Result<(u32, u32), String> {
        if matches!(self, Self::Connections | Self::Rate) {
            return match scenario.sockets.as_slice() {
                [_] => Ok((1, MOST_SOCKETS)),
                [] => Err("the scenario has no sockets: vary people or rooms".into()),
                _ => Err("the scenario has several groups of sockets: write one".into()),
            };
        }
        let room = match scenario.rooms.as_slice() {
            [room] if room.executor == Executor::Constant => room,
            [_] => {
                return Err("the people of a room must stay while their number is varied: leave \
                            `ramping`, `arrival` and `churn` out"
                    .into());
            }
            [] => return Err("the scenario has no rooms: vary connections or rate".into()),
            _ => return Err("the scenario has several groups of rooms, or `sizes: zipf`: write one, of rooms that are alike".into()),
        };
        let a_room = (room.bots + room.chromium).max(1);
        let mesh = room.audio == AudioTopology::Mesh || room.video == VideoTopology::Mesh;
        match self {
            Self::People if room.count != 1 => {
                Err("`people` are of one room: write `count: 1`, or vary rooms".into())
            }
            // With one person alone nobody hears anybody.
            Self::People => {
                let most = if mesh { MAX_MESH } else { MAX_PEOPLE };
                Ok((if room.chromium > 0 { 1 } else { 2 }, most - room.chromium.min(most - 2)))
            }
            Self::Senders if !room.roles.is_empty() => {
                Err("`senders` and `roles` exclude each other: leave `roles` out".into())
            }
            Self::Senders => Ok((1, a_room)),
            _ => Ok((1, MAX_PEOPLE / a_room)),
        }
    }

    /// The scenario with this number, one of its [`Vary::range`]. It lasts as much longer as coming takes; thresholds (but
    /// for those on how people come) and events begin so much later.
    pub fn with(self, scenario: &Scenario, number: u32) -> Scenario {
        let mut varied = scenario.clone();
        varied.text = format!("# moim capacity: {number} {}\n{}", self.unit(), scenario.text);
        if let Some(room) = varied.rooms.first_mut() {
            match self {
                Self::People => {
                    room.bots = number;
                    let most = Some(number + room.chromium);
                    room.ahead.iter_mut().for_each(|ahead| ahead.max_participants = most);
                }
                Self::Rooms => room.count = number,
                Self::Senders => room.senders = Some(number),
                Self::Connections | Self::Rate => {}
            }
        }
        if let Some(group) = varied.sockets.first_mut() {
            match self {
                Self::Connections => group.connections = number,
                Self::Rate => group.rate_per_second = f64::from(number),
                Self::People | Self::Rooms | Self::Senders => {}
            }
        }
        let sockets = varied.sockets.iter();
        let sockets = sockets.map(|one| f64::from(one.connections) / one.arrival_per_second);
        let people = f64::from(varied.bots() + varied.chromium()) / varied.join_per_second;
        let coming = Duration::from_secs_f64(sockets.fold(people, f64::max)) + SETTLES;
        varied.duration += coming;
        let later = varied.thresholds.iter_mut().filter(|one| !is_of_coming(one.metric));
        later.for_each(|threshold| threshold.from += coming);
        varied.events.iter_mut().for_each(|event| event.at += coming);
        varied
    }
}

/// Whether a metric is measured while people or connections come.
fn is_of_coming(metric: &str) -> bool {
    metric.starts_with("join_to_") || metric == CONNECT_MS || metric == LOST
}

/// The same with another CPU quota for the server that the lab starts.
pub(super) fn with_quota(scenario: &Scenario, cores: f64) -> Scenario {
    let mut changed = scenario.clone();
    if let Target::Serve(options) = &mut changed.target {
        options.quota_cores = Some(cores);
    }
    changed
}

/// The quota of the server that the lab starts.
pub(super) fn quota(scenario: &Scenario) -> Option<f64> {
    match &scenario.target {
        Target::Serve(options) => options.quota_cores,
        Target::Running(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(text: &str) -> Scenario {
        Scenario::parse(&format!("name: x\nserve: {{}}\nduration: 20s\n{text}"), "x").expect(text)
    }

    #[test]
    fn the_number_stands_where_it_belongs_and_coming_takes_its_time() {
        let rooms = scenario(
            "rooms: [{ people: { bot: 10 } }]\njoin: { per_second: 5 }\n\
             thresholds: { loss_pct: [\"user_p95 < 1\"], join_to_connected_ms: [\"p95 < 100\"] }\n",
        );
        let many = Vary::People.with(&rooms, 100);
        assert_eq!((many.bots(), many.rooms[0].count), (100, 1));
        assert_eq!(many.duration, Duration::from_secs(20 + 20 + 4));
        assert_eq!(many.thresholds[0].from, Duration::from_secs(24));
        assert_eq!(many.thresholds[1].from, Duration::ZERO, "they come before that");
        assert!(many.text.starts_with("# moim capacity: 100 people in the room\nname: x"));
        let many = Vary::Rooms.with(&rooms, 7);
        assert_eq!((many.bots(), many.rooms[0].bots), (70, 10));
        assert_eq!(Vary::Senders.with(&rooms, 3).rooms[0].senders, Some(3));
        assert_eq!(Vary::Rooms.range(&rooms), Ok((1, 1000)));
        assert_eq!(Vary::Senders.range(&rooms), Ok((1, 10)));
        assert_eq!(Vary::People.range(&rooms), Ok((2, MAX_PEOPLE)));
        let sockets = scenario("sockets: [{ connections: 100, arrival_per_second: 50 }]\n");
        let faster = Vary::Rate.with(&sockets, 1700);
        assert_eq!(faster.sockets[0].rate_per_second, 1700.0);
        assert_eq!(faster.duration, Duration::from_secs(20 + 2 + 4));
        assert_eq!(Vary::Connections.with(&sockets, 9).sockets[0].connections, 9);
    }

    #[test]
    fn what_cannot_be_varied_is_said() {
        let two = scenario("rooms: [{ people: { bot: 2 } }, { people: { bot: 3 } }]\n");
        let alike = scenario("rooms: [{ count: 2, people: { bot: 2 } }]\n");
        let go = scenario("rooms: [{ people: { bot: 2 }, churn: { stay: 5s } }]\n");
        let roles = scenario("rooms: [{ people: { bot: 2 }, roles: [{ name: a }] }]\n");
        for (vary, scenario, part) in [
            (Vary::People, &two, "several groups"),
            (Vary::People, &alike, "vary rooms"),
            (Vary::People, &go, "must stay"),
            (Vary::Senders, &roles, "leave `roles` out"),
            (Vary::Rate, &alike, "no sockets"),
        ] {
            let error = vary.range(scenario).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
        let mesh = scenario("rooms: [{ audio: mesh, video: mesh, people: { bot: 2 } }]\n");
        assert_eq!(Vary::People.range(&mesh), Ok((2, MAX_MESH)));
        assert!(Vary::parse("cats").expect_err("unknown").contains("rooms"));
        assert!(Vary::ALL.iter().all(|vary| Vary::parse(vary.as_str()) == Ok(*vary)));
    }
}
