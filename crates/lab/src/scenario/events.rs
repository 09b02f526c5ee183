//! The `events` of a scenario: what happens on the way.

use super::executors::MAX_PEOPLE;
use super::networks::{decode_link, has_link};
use crate::clients::bot::spec::BotCommand;
use crate::clients::link::networks::{Change, Network};
use settings::{Section, Shape, duration, number, one_of, text};
use std::time::Duration;

/// What happens on the way.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioEvent {
    /// When, from the first join.
    pub at: Duration,
    /// What happens.
    pub what: Happening,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Happening {
    /// A bot does something.
    Bot {
        /// Which one, from 1 over all rooms.
        bot: u32,
        /// What it does.
        command: BotCommand,
    },
    /// Some of the bots who are there leave at once.
    Leave {
        /// How many.
        count: u32,
    },
    /// The server that the lab started is asked to end (SIGINT).
    StopServer,
    /// It is killed (SIGKILL).
    KillServer,
    /// A network is something else from now on.
    ChangeNetwork {
        /// Its name.
        network: String,
        /// What it becomes.
        change: Change,
    },
}

/// What an event says that it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Do {
    Bot(BotCommand),
    Leave,
    StopServer,
    KillServer,
    ChangeNetwork,
}

pub(super) fn decode(event: &mut Section<'_>) -> Option<ScenarioEvent> {
    let day = Duration::from_secs(24 * 3600);
    let at = event.read("at", duration(Duration::ZERO..=day)).required();
    let bot = event.read("bot", number(1..=MAX_PEOPLE)).optional();
    let count = number(1..=MAX_PEOPLE).about("How many bots leave at once, in place of `bot`");
    let count = event.read("count", count).optional();
    let network = event.read("network", text(1..=40)).optional();
    let (up, down) = decode_link(event);
    let what = event.read(
        "do",
        one_of(&[
            ("stop_video", Do::Bot(BotCommand::StopVideo)),
            ("stop_audio", Do::Bot(BotCommand::StopAudio)),
            ("leave", Do::Leave),
            ("stop_server", Do::StopServer),
            ("kill_server", Do::KillServer),
            ("change_network", Do::ChangeNetwork),
        ]),
    );
    let (at, what) = (at, what.required()?);
    only(event, what);
    let what = match (what, bot, count) {
        (Do::Bot(command), Some(bot), _) => Happening::Bot { bot, command },
        (Do::Leave, Some(bot), None) => Happening::Bot { bot, command: BotCommand::Leave },
        (Do::Leave, None, Some(count)) => Happening::Leave { count },
        (Do::StopServer, ..) => Happening::StopServer,
        (Do::KillServer, ..) => Happening::KillServer,
        (Do::ChangeNetwork, ..) => {
            let change = Change { at: at.unwrap_or_default(), up, down };
            Happening::ChangeNetwork { network: network?, change }
        }
        (Do::Bot(_) | Do::Leave, ..) => return None,
    };
    Some(ScenarioEvent { at: at?, what })
}

/// Tells which keys an event lacks, and which do not belong to what it does.
fn only(event: &mut Section<'_>, what: Do) {
    let (bot, count, network) = (event.has("bot"), event.has("count"), event.has("network"));
    match what {
        Do::Bot(_) if !bot => event.fault("bot", "the key is missing", "write `bot: 3`"),
        Do::Leave if !bot && !count => {
            event.fault("bot", "the key is missing", "write `bot: 3`, or `count: 10`");
        }
        Do::Leave if bot && count => {
            event.fault("count", "both bot and count are given", "keep one of them");
        }
        Do::ChangeNetwork if !network => {
            event.fault("network", "the key is missing", "write a name of one of the networks");
        }
        _ => {}
    }
    let of_others = [
        ("bot", bot && !matches!(what, Do::Bot(_) | Do::Leave)),
        ("count", count && what != Do::Leave),
        ("network", network && what != Do::ChangeNetwork),
    ];
    for (key, wrong) in of_others {
        if wrong {
            event.fault(key, "it does not belong to what this event does", "remove the key");
        }
    }
    if what != Do::ChangeNetwork && has_link(event) {
        let cure = "write `do: change_network`, or remove delay, loss_pct and their like";
        event.fault("do", "only change_network says what a network becomes", cure);
    }
}

/// What only the whole can tell.
pub(super) fn check(
    root: &mut Section<'_>,
    events: &[ScenarioEvent],
    duration: Duration,
    bots: u32,
    serves: bool,
    networks: &[Network],
) {
    for event in events {
        if event.at >= duration {
            let what = format!("an event at {:?} comes after the end", event.at);
            root.fault("events", what, "choose a time before `duration`");
        }
        match &event.what {
            Happening::Bot { bot, .. } if *bot > bots => {
                let what = format!("there is no bot {bot}");
                root.fault("events", what, format!("bots are numbered 1 to {bots} over all rooms"));
            }
            Happening::Leave { count } if *count > bots => {
                let what = format!("{count} bots cannot leave: there are {bots}");
                root.fault("events", what, format!("write `count: {bots}` or less"));
            }
            Happening::StopServer | Happening::KillServer if !serves => {
                let cure = "write `serve: {}` instead of `target`, or leave the event out";
                root.fault("events", "the lab ends only a server that it started", cure);
            }
            Happening::ChangeNetwork { network, .. }
                if !networks.iter().any(|known| known.name == *network) =>
            {
                let known: Vec<&str> = networks.iter().map(|n| n.name.as_str()).collect();
                let cure = match known[..] {
                    [] => "write `networks` first".to_owned(),
                    _ => format!("write one of {}", known.join(", ")),
                };
                root.fault("events", format!("there is no network {network:?}"), cure);
            }
            _ => {}
        }
    }
}
