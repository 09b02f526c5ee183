//! The number of a scenario that is varied, and the scenario with another one.

use crate::scenario::{
    Executor, MAX_PEOPLE, RoomGroup, Scenario, ServeOptions, SocketGroup, Target,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

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

    /// The largest number that a scenario may have.
    pub fn most(self, scenario: &Scenario) -> u32 {
        let a_room = scenario.rooms.first().map_or(1, |room| (room.bots + room.chromium).max(1));
        match self {
            Self::People => MAX_PEOPLE - scenario.chromium().min(MAX_PEOPLE - 1),
            Self::Rooms => MAX_PEOPLE / a_room,
            Self::Senders => a_room,
            Self::Connections | Self::Rate => 100_000,
        }
    }

    /// The scenario with this number. It lasts as much longer as coming takes; thresholds and events begin so much later.
    ///
    /// # Errors
    /// The scenario has nothing of that kind, or several: what to write.
    pub fn with(self, scenario: &Scenario, number: u32) -> Result<Scenario, String> {
        let mut varied = scenario.clone();
        match self {
            Self::People => {
                let room = only_room(&mut varied)?;
                if room.count != 1 {
                    return Err("`people` are of one room: write `count: 1`, or vary rooms".into());
                }
                room.bots = number;
                if let Some(ahead) = &mut room.ahead {
                    ahead.max_participants = Some(number + room.chromium);
                }
            }
            Self::Rooms => only_room(&mut varied)?.count = number,
            Self::Senders => only_room(&mut varied)?.senders = Some(number),
            Self::Connections => only_group(&mut varied)?.connections = number,
            Self::Rate => only_group(&mut varied)?.rate_per_second = f64::from(number),
        }
        let coming = match self {
            Self::Connections | Self::Rate => varied
                .sockets
                .iter()
                .map(|group| f64::from(group.connections) / group.arrival_per_second)
                .fold(0.0, f64::max),
            _ => f64::from(varied.bots() + varied.chromium()) / varied.join_per_second,
        };
        let coming = Duration::from_secs_f64(coming) + SETTLES;
        varied.duration += coming;
        varied.thresholds.iter_mut().for_each(|threshold| threshold.from += coming);
        varied.events.iter_mut().for_each(|event| event.at += coming);
        Ok(varied)
    }
}

/// The only group of rooms, whose people stay.
fn only_room(scenario: &mut Scenario) -> Result<&mut RoomGroup, String> {
    match scenario.rooms.as_mut_slice() {
        [room] if room.executor == Executor::Constant => Ok(room),
        [_] => Err("the people whose number is varied must stay: leave `ramping`, `arrival` and `churn` out".into()),
        [] => Err("the scenario has no rooms: vary connections or rate".into()),
        _ => Err("the scenario has several groups of rooms: write one".into()),
    }
}

/// The only group of sockets.
fn only_group(scenario: &mut Scenario) -> Result<&mut SocketGroup, String> {
    match scenario.sockets.as_mut_slice() {
        [group] => Ok(group),
        [] => Err("the scenario has no sockets: vary people or rooms".into()),
        _ => Err("the scenario has several groups of sockets: write one".into()),
    }
}

/// The same with another CPU quota for the server that the lab starts.
pub(super) fn with_quota(scenario: &Scenario, cores: f64) -> Scenario {
    let mut changed = scenario.clone();
    if let Target::Serve(options) = &mut changed.target {
        *options = ServeOptions { quota_cores: Some(cores), ..options.clone() };
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
             thresholds: { loss_pct: [\"user_p95 < 1\"] }\n",
        );
        let many = Vary::People.with(&rooms, 100).unwrap();
        assert_eq!((many.bots(), many.rooms[0].count), (100, 1));
        assert_eq!(many.duration, Duration::from_secs(20 + 20 + 4));
        assert_eq!(many.thresholds[0].from, Duration::from_secs(24));
        let many = Vary::Rooms.with(&rooms, 7).unwrap();
        assert_eq!((many.bots(), many.rooms[0].bots), (70, 10));
        assert_eq!(Vary::Senders.with(&rooms, 3).unwrap().rooms[0].senders, Some(3));
        assert_eq!(Vary::Rooms.most(&rooms), 1000);
        assert_eq!(Vary::Senders.most(&rooms), 10);
        let sockets = scenario("sockets: [{ connections: 100, arrival_per_second: 50 }]\n");
        let faster = Vary::Rate.with(&sockets, 1700).unwrap();
        assert_eq!(faster.sockets[0].rate_per_second, 1700.0);
        assert_eq!(faster.duration, Duration::from_secs(20 + 2 + 4));
        assert_eq!(Vary::Connections.with(&sockets, 9).unwrap().sockets[0].connections, 9);
    }

    #[test]
    fn what_cannot_be_varied_is_said() {
        let two = scenario("rooms: [{ people: { bot: 2 } }, { people: { bot: 3 } }]\n");
        let alike = scenario("rooms: [{ count: 2, people: { bot: 2 } }]\n");
        let go = scenario("rooms: [{ people: { bot: 2 }, churn: { stay: 5s } }]\n");
        for (vary, scenario, part) in [
            (Vary::People, &two, "several groups"),
            (Vary::People, &alike, "vary rooms"),
            (Vary::People, &go, "must stay"),
            (Vary::Rate, &alike, "no sockets"),
        ] {
            let error = vary.with(scenario, 4).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
        assert!(Vary::parse("cats").expect_err("unknown").contains("rooms"));
        assert!(Vary::ALL.iter().all(|vary| Vary::parse(vary.as_str()) == Ok(*vary)));
    }
}
