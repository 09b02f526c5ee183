//! A scenario: who meets where for how long, what they send, and what must hold.

mod adapters;
mod canary;
mod defaults;
mod events;
mod executors;
mod matrix;
mod networks;
mod rooms;
mod target;

use crate::base::Url;
use crate::clients::Server;
use crate::clients::bot::words::{AudioSource, Media, VideoSource};
use crate::clients::link::networks::Network;
use crate::clients::seat::Adapter;
use crate::clients::whip::Paths;
use crate::judge::threshold::{self, Threshold};
use crate::observe::metrics::NAMES;
use crate::observe::sockets;
use crate::record::LinkLimit;
pub use canary::Canary;
pub use events::{Happening, ScenarioEvent};
pub use executors::{Arrival, Crowd, Executor, LED_CORE, MAX_PEOPLE, RampStage, Stay, ramp};
pub use matrix::Matrix;
use matrix::PROTOCOLS;
pub use rooms::{Ahead, MAX_MESH, Role, RoomGroup};
use rtp::Protocol;
use serde_json::{Value, json};
use settings::{
    Problems, Section, duration, either, list_of, map_of, mapped, number, one_of, parsed, section,
};
use std::path::Path;
use std::time::Duration;
use target::TargetSection;
pub use target::{Cpus, ServeOptions, Target};
use wire::room::{AudioTopology, VideoTopology};

/// A checked scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name: part of room ids and of the record's directory.
    pub name: String,
    /// What is tested.
    pub target: Target,
    /// What the target speaks.
    pub adapter: Adapter,
    /// Where the target takes and gives streams, if it speaks WHIP.
    pub paths: Paths,
    /// What the target's link bears, as far as it was said: the lab cannot see it from outside.
    pub link_limit: LinkLimit,
    /// How long, from the first join.
    pub duration: Duration,
    /// The rooms; none where there are only sockets.
    pub rooms: Vec<RoomGroup>,
    /// Sockets without rooms: clients that ping, or only stay.
    pub sockets: Vec<SocketGroup>,
    /// What bots send.
    pub media: Media,
    /// What bots go by to the server.
    pub protocol: Protocol,
    /// The networks that people are on, by share; who is on none has no link.
    pub networks: Vec<Network>,
    /// How many people join a second.
    pub join_per_second: f64,
    /// How browsers take part.
    pub canary: Canary,
    /// What must hold.
    pub thresholds: Vec<Threshold>,
    /// What happens on the way, in order of time.
    pub events: Vec<ScenarioEvent>,
    /// What is combined, a run each; none: it is one run.
    pub matrix: Option<Matrix>,
    /// The file's text, for the record.
    pub text: String,
}

/// A combination of a [`Matrix`]: its name, and its scenario, or why there is none.
pub type Combination = (String, Result<Scenario, &'static str>);

/// Some clients of the sockets, without a room.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SocketGroup {
    /// How many.
    pub connections: u32,
    /// How many of them come a second.
    pub arrival_per_second: f64,
    /// Pings a second that each sends; 0: it only stays.
    pub rate_per_second: f64,
    /// A client wakes this often, in milliseconds, and sends what is due. Latency counts from the
    /// moment a ping was due, so that this wait is in it.
    pub batch_ms: u32,
    /// Pages in a real browser that stay connected all the time and ping once a second.
    pub chromium: u32,
}

impl Scenario {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// All problems at once, each with its line and cure.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        let mut scenario = settings::read_file(path, decode)?;
        scenario.text = std::fs::read_to_string(path).unwrap_or_default();
        Ok(scenario)
    }

    /// Reads and checks a text; `source` names it in messages.
    ///
    /// # Errors
    /// As [`Scenario::read`].
    pub fn parse(text: &str, source: &str) -> Result<Self, Problems> {
        let mut scenario = settings::read(text, source, decode)?;
        scenario.text = text.to_owned();
        Ok(scenario)
    }

    /// The JSON Schema of scenarios, made by what reads them: keys, kinds of values and ranges. What
    /// only the whole can tell stands in no schema.
    pub fn schema() -> Value {
        settings::schema("A scenario of moim load", decode)
    }

    /// The combinations of its matrix, in the order in which it names them; none without a matrix.
    pub fn combinations(&self) -> Vec<Combination> {
        let pairs = self.matrix.iter().flat_map(Matrix::pairs);
        pairs.map(|(transport, network)| self.combined(transport, network)).collect()
    }

    fn combined(&self, transport: Option<Protocol>, network: Option<&str>) -> Combination {
        let word = |of: Protocol| PROTOCOLS.iter().find(|known| known.1 == of).map(|known| known.0);
        let words = [transport.and_then(word), network];
        let name = words.into_iter().flatten().collect::<Vec<&str>>().join(", ");
        let mut one = self.clone();
        one.matrix = None;
        one.text = format!("# of the matrix: {name}\n{}", self.text);
        one.protocol = transport.unwrap_or(self.protocol);
        if let Some(network) = network {
            one.networks.retain(|known| known.name == network);
        }
        match one.protocol == Protocol::Tcp && !one.networks.is_empty() {
            true => (name, Err("the lab's networks carry udp alone")),
            false => (name, Ok(one)),
        }
    }

    /// Browsers in all, in rooms and on sockets alone.
    pub fn browsers(&self) -> u32 {
        self.chromium() + self.sockets.iter().map(|group| group.chromium).sum::<u32>()
    }

    /// Whether there are browsers that come and go: they log in with a token.
    pub fn browsers_churn(&self) -> bool {
        let churns = |room: &RoomGroup| matches!(room.executor, Executor::Churn { .. });
        self.rooms.iter().any(|room| room.chromium > 0 && churns(room))
    }

    /// Bots in all rooms.
    pub fn bots(&self) -> u32 {
        self.rooms.iter().map(|room| room.count * room.bots).sum()
    }

    /// The server as people enter it, at an address.
    pub fn server(&self, url: &Url) -> Server {
        Server { adapter: self.adapter, url: url.clone(), paths: self.paths.clone() }
    }

    /// Browsers in all rooms.
    pub fn chromium(&self) -> u32 {
        self.rooms.iter().map(|room| room.count * room.chromium).sum()
    }
}

fn decode(root: &mut Section<'_>) -> Option<Scenario> {
    let name = root.read("name", name()).required();
    let target = target::decode(root);
    let seconds = |s| Duration::from_secs(s);
    let length = root.read("duration", duration(seconds(1)..=seconds(24 * 3600))).required();
    let sockets = root.read("sockets", list_of(section(decode_sockets), 1..=8)).or(vec![]);
    let rooms = root.read("rooms", list_of(section(rooms::decode), 1..=1000));
    let has_rooms = root.has("rooms");
    let rooms = rooms.optional().or((!has_rooms).then(Vec::new));
    root.at_least_one(&["rooms", "sockets"], "write `rooms: [{ people: { bot: 8 } }]`");
    let (protocol, media) = root.section("media", |media| {
        let protocol = media.read("transport", one_of(&PROTOCOLS)).or(Protocol::Udp);
        let audio = media.read("audio", one_of(&AUDIO_SOURCES)).or(AudioSource::Speech);
        let video = media.read("video", one_of(&VIDEO_SOURCES)).or(VideoSource::P360);
        (protocol, Media { audio, video })
    });
    let each = list_of(section(networks::decode), 0..=16);
    let networks = root.read("networks", each).or(vec![]);
    let join_per_second =
        root.section("join", |join| join.read("per_second", number(0.01..=1000.0)).or(10.0));
    let canary = root.section("canary", |canary| canary::decode(canary, media.video.camera()));
    let metrics: Vec<(&str, &'static str)> = NAMES.iter().map(|name| (*name, *name)).collect();
    let conditions = list_of(threshold::shape(), 1..=20);
    let own = mapped(map_of(one_of(&metrics), conditions), Some);
    let thresholds = root.read("thresholds", either(one_of(&[("default", None)]), own));
    let (thresholds, by_default) = match thresholds.optional() {
        Some(Some(thresholds)) => (thresholds, false),
        Some(None) => (vec![], true),
        None => (vec![], false),
    };
    let events = root.read("events", list_of(section(events::decode), 0..=1000)).or(vec![]);
    let matrix = root.read("matrix", section(matrix::decode)).optional();

    let TargetSection { target, adapter, paths, link_limit } = target?;
    let mut scenario = Scenario {
        name: name?,
        target,
        adapter,
        paths,
        link_limit,
        duration: length?,
        rooms: rooms?,
        sockets,
        media,
        protocol,
        networks,
        join_per_second,
        canary,
        thresholds: thresholds
            .into_iter()
            .flat_map(|(metric, list)| {
                list.into_iter().map(move |(condition, from, abort)| Threshold {
                    metric,
                    condition,
                    from,
                    abort,
                })
            })
            .collect(),
        events,
        matrix,
        text: String::new(),
    };
    scenario.events.sort_by_key(|event| event.at);
    if by_default {
        let pings = scenario.sockets.iter().any(|group| group.rate_per_second > 0.0);
        let sockets = (!scenario.sockets.is_empty()).then_some(pings);
        scenario.thresholds = defaults::of(&scenario.rooms, scenario.media, sockets);
    }
    match &scenario.matrix {
        None => check_whole(root, &scenario),
        Some(matrix) => {
            matrix::check(root, matrix, &scenario.networks);
            let all = scenario.combinations().into_iter();
            let (each, left_out): (Vec<_>, Vec<_>) =
                all.map(|(_, one)| one).partition(Result::is_ok);
            if let (true, Some(Err(why))) = (each.is_empty(), left_out.first()) {
                let what = format!("none of its combinations can run: {why}");
                root.fault("matrix", what, "add udp to `transport`, or free to `network`");
            }
            each.iter().flatten().for_each(|one| check_whole(root, one));
        }
    }
    scenario.rooms = scenario.rooms.iter().flat_map(RoomGroup::by_size).collect();
    Some(scenario)
}

const AUDIO_SOURCES: [(&str, AudioSource); 4] = [
    ("speech", AudioSource::Speech),
    ("tone", AudioSource::Tone),
    ("steady", AudioSource::Steady),
    ("none", AudioSource::None),
];
const VIDEO_SOURCES: [(&str, VideoSource); 12] = [
    ("360p", VideoSource::P360),
    ("480p", VideoSource::P480),
    ("720p", VideoSource::P720),
    ("1080p", VideoSource::P1080),
    ("light-1080p", VideoSource::Light1080),
    ("simulcast", VideoSource::Simulcast),
    ("screen", VideoSource::Screen),
    ("slides", VideoSource::Slides),
    ("singles", VideoSource::Singles),
    ("frames", VideoSource::Frames),
    ("chromium", VideoSource::Chromium),
    ("none", VideoSource::None),
];

fn name() -> impl settings::Shape<Value = String> {
    let expected = "a name of 1 to 40 of a–z 0–9 - _ ., such as first-room";
    parsed(expected, |text: &str| {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
        if text.is_empty() || text.len() > 40 || !text.chars().all(known) || text.starts_with('.') {
            return Err(format!("{text:?} is no name"));
        }
        Ok(text.to_owned())
    })
    .like(json!({ "type": ["string", "number"], "pattern": "^[a-z0-9_-][a-z0-9._-]{0,39}$" }))
}

fn decode_sockets(group: &mut Section<'_>) -> Option<SocketGroup> {
    let connections = group.read("connections", number(1..=100_000u32)).required();
    let arrival = group.read("arrival_per_second", number(0.01..=10_000.0)).or(160.0);
    Some(SocketGroup {
        arrival_per_second: arrival,
        rate_per_second: group.read("rate_per_second", number(0.0..=100_000.0)).or(0.0),
        batch_ms: group.read("batch_ms", number(1..=1000u32)).or(5),
        chromium: group.read("chromium", number(0..=4u32)).or(0),
        connections: connections?,
    })
}

/// What only the whole can tell.
fn check_whole(root: &mut Section<'_>, scenario: &Scenario) {
    let people = |room: &RoomGroup| u64::from(room.count) * u64::from(room.bots + room.chromium);
    let groups: Vec<RoomGroup> = scenario.rooms.iter().flat_map(RoomGroup::by_size).collect();
    let people: u64 = groups.iter().map(people).sum();
    if people > u64::from(MAX_PEOPLE) {
        let what = format!("{people} people in all");
        root.fault("rooms", what, format!("write rooms of at most {MAX_PEOPLE} people in all"));
        return;
    }
    let bots = groups.iter().map(|room| room.count * room.bots).sum();
    check_coming(root, scenario);
    check_tcp(root, scenario);
    let asked = adapters::Asked {
        rooms: &scenario.rooms,
        media: scenario.media,
        protocol: scenario.protocol,
        sockets: !scenario.sockets.is_empty(),
    };
    adapters::check(root, scenario.adapter, asked);
    check_thresholds(root, scenario);
    let (length, rooms, networks) = (scenario.duration, &scenario.rooms, &scenario.networks);
    let (serves, url) = match &scenario.target {
        Target::Serve(_) => (true, None),
        Target::Running(url) => (false, Some(url)),
    };
    for late in scenario.thresholds.iter().filter(|threshold| threshold.from >= length) {
        let what = format!("{late}: no window begins so late");
        root.fault("thresholds", what, "let `from` be shorter than `duration`");
    }
    events::check(root, &scenario.events, length, bots, serves, networks);
    rooms::check(root, rooms, length, scenario.media);
    networks::check(root, networks, rooms, url);
}

/// Everyone must be able to come before the run ends.
fn check_coming(root: &mut Section<'_>, scenario: &Scenario) {
    let length_s = scenario.duration.as_secs_f64();
    let mut refuse = |key: &str, who: &str, count: u32, per_second: f64, cure: &str| {
        let needed_s = f64::from(count.saturating_sub(1)) / per_second;
        if needed_s >= length_s {
            let what = format!(
                "{count} {who} need {needed_s:.0} s to come at {per_second} a second, and the run lasts {length_s} s"
            );
            let enough = (f64::from(count) / (length_s / 2.0)).ceil();
            root.fault(
                key,
                what,
                format!("write {}, or a longer `duration`", cure.replace('N', &enough.to_string())),
            );
        }
    };
    let by_itself =
        |room: &&RoomGroup| matches!(room.executor, Executor::Constant | Executor::Churn { .. });
    let groups: Vec<RoomGroup> = scenario.rooms.iter().flat_map(RoomGroup::by_size).collect();
    let people =
        groups.iter().filter(by_itself).map(|room| room.count * (room.bots + room.chromium)).sum();
    refuse("join", "people", people, scenario.join_per_second, "`join: { per_second: N }`");
    for group in &scenario.sockets {
        let (count, rate) = (group.connections, group.arrival_per_second);
        refuse("sockets", "sockets", count, rate, "`arrival_per_second: N`");
    }
}

/// What goes by UDP alone.
fn check_tcp(root: &mut Section<'_>, scenario: &Scenario) {
    if scenario.protocol != Protocol::Tcp {
        return;
    }
    let mut refuse = |what: &str, cure: &str| root.fault("media", what, cure);
    let mesh =
        |room: &RoomGroup| room.audio == AudioTopology::Mesh || room.video == VideoTopology::Mesh;
    if scenario.rooms.iter().any(mesh) {
        refuse("people of a mesh reach each other by udp alone", "write udp, or sfu for the room");
    }
    if !scenario.networks.is_empty() {
        refuse("`networks` stand before people who go by udp alone", "write udp");
    }
    if scenario.chromium() > 0 {
        refuse("browsers choose for themselves, and choose udp", "write udp, or bots alone");
    }
}

/// Thresholds on sockets need some, and what is judged by pings some that ping.
fn check_thresholds(root: &mut Section<'_>, scenario: &Scenario) {
    let metrics = scenario.thresholds.iter().map(|threshold| threshold.metric);
    let pings = scenario.sockets.iter().any(|group| group.rate_per_second > 0.0);
    for metric in metrics.filter(|metric| sockets::NAMES.contains(metric)) {
        if scenario.sockets.is_empty() {
            let cure = "add `sockets: [{ connections: 100, rate_per_second: 10 }]`";
            root.fault("thresholds", format!("{metric} is of sockets, and there are none"), cure);
        } else if sockets::needs_pings(metric) && !pings {
            let cure = "write `rate_per_second` for a group of `sockets`";
            root.fault("thresholds", format!("{metric} is of pings, and nobody pings"), cure);
        }
    }
}

#[cfg(test)]
mod tests;
