//! A scenario: who meets where for how long, what they send, and what must hold.

mod networks;

use crate::bots::{AudioSource, BotCommand, Media, VideoSource};
use crate::link::networks::Network;
use crate::metrics::NAMES;
use crate::threshold::{Condition, Threshold};
use settings::{
    Problems, Section, duration, list_of, map_of, number, one_of, one_or_many, parsed, section,
};
use std::path::Path;
use std::time::Duration;
use wire::room::{AudioTopology, Preset, VideoCodec, VideoTopology};

/// Most people of a scenario.
pub const MAX_PEOPLE: u32 = 10_000;

/// Most people of a mesh: each holds a connection with every other.
const MAX_MESH: u32 = 16;
/// How long someone who comes and goes stays, where the scenario does not say.
const CHURN_STAY: Duration = Duration::from_secs(20);

/// A checked scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name: part of room ids and of the record's directory.
    pub name: String,
    /// What is tested.
    pub target: Target,
    /// How long, from the first join.
    pub duration: Duration,
    /// The rooms; none where there are only sockets.
    pub rooms: Vec<RoomGroup>,
    /// Sockets without rooms: clients that ping, or only stay.
    pub sockets: Vec<SocketGroup>,
    /// What bots send.
    pub media: Media,
    /// The networks that people are on, by share; who is on none has no link before him.
    pub networks: Vec<Network>,
    /// How many people join a second.
    pub join_per_second: f64,
    /// How many videos a browser shows.
    pub canary_show: u32,
    /// What must hold.
    pub thresholds: Vec<Threshold>,
    /// What happens on the way, in order of time.
    pub events: Vec<ScenarioEvent>,
    /// The file's text, for the record.
    pub text: String,
}

/// What is tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A server that runs already.
    Running(Url),
    /// A server of our own, started for the run.
    Serve(ServeOptions),
}

/// How a server of our own is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// Media threads.
    pub shards: u16,
    /// Which CPUs it runs on.
    pub cpus: Cpus,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self { shards: 1, cpus: Cpus::Auto }
    }
}

/// How the CPUs are divided between a server of our own and the generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cpus {
    /// Half for each; shared where there is one CPU only, or browsers, which need all.
    Auto,
    /// Both run on all.
    Shared,
    /// These for the server, the rest for the generator.
    Server(Vec<usize>),
}

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

/// Where a server answers: `http://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Name or address; an IPv6 address in brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Url {
    /// What to write, for messages.
    const EXPECTED: &'static str = "the server's address, such as http://127.0.0.1:7880";

    /// Reads `http://host[:port]`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("http://") else {
            return Err(format!("{text:?} is no http:// address"));
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@', ' ']) {
            return Err(format!("{text:?} has more than a host and a port"));
        }
        let after_address = rest.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match rest[after_address..].rfind(':') {
            Some(at) => (&rest[..after_address + at], &rest[after_address + at + 1..]),
            None => (rest, "80"),
        };
        let port: u16 = port.parse().map_err(|_| format!("{port:?} is no port"))?;
        if host.is_empty() || port == 0 {
            return Err(format!("{text:?} names no host or no port"));
        }
        Ok(Self { host: host.to_owned(), port })
    }

    /// `host:port`.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The socket endpoint.
    pub fn socket(&self) -> String {
        format!("ws://{}{}", self.authority(), wire::frame::SOCKET_PATH)
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

/// Some rooms that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomGroup {
    /// How many.
    pub count: u32,
    /// Audio topology.
    pub audio: AudioTopology,
    /// Video topology.
    pub video: VideoTopology,
    /// Video codec.
    pub video_codec: VideoCodec,
    /// Bots in each.
    pub bots: u32,
    /// Browsers in each.
    pub chromium: u32,
    /// How many of a room's people send video, counted as they join; the others only watch.
    /// None: all do.
    pub senders: Option<u32>,
    /// Where bots say tones: every second one is loud in turn and the others check, so that over
    /// two shards all who are heard are on the other one.
    pub alternate: bool,
    /// The bots come and go: each stays about so long, leaves and comes again.
    pub churn: Option<Duration>,
}

/// What happens on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScenarioEvent {
    /// When, from the first join.
    pub at: Duration,
    /// Which bot, from 1 over all rooms.
    pub bot: u32,
    /// What it does.
    pub what: BotCommand,
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

    /// Browsers in all, in rooms and on sockets alone.
    pub fn browsers(&self) -> u32 {
        self.chromium() + self.sockets.iter().map(|group| group.chromium).sum::<u32>()
    }

    /// Bots in all rooms.
    pub fn bots(&self) -> u32 {
        self.rooms.iter().map(|room| room.count * room.bots).sum()
    }

    /// Browsers in all rooms.
    pub fn chromium(&self) -> u32 {
        self.rooms.iter().map(|room| room.count * room.chromium).sum()
    }
}

fn decode(root: &mut Section<'_>) -> Option<Scenario> {
    let name = root.read("name", name()).required();
    let target = decode_target(root);
    let seconds = |s| Duration::from_secs(s);
    let length = root.read("duration", duration(seconds(1)..=seconds(24 * 3600))).required();
    let sockets = root.read("sockets", list_of(section(decode_sockets), 1..=8)).or(vec![]);
    let rooms = root.read("rooms", list_of(section(decode_rooms), 1..=1000));
    let rooms = if sockets.is_empty() { rooms.required() } else { Some(rooms.or(vec![])) };
    let media = root.section("media", |media| Media {
        audio: media.read("audio", one_of(&AUDIO_SOURCES)).or(AudioSource::Speech),
        video: media.read("video", one_of(&VIDEO_SOURCES)).or(VideoSource::P360),
    });
    let each = list_of(section(networks::decode), 0..=16);
    let networks = root.read("networks", each).or(vec![]);
    let join_per_second =
        root.section("join", |join| join.read("per_second", number(0.01..=1000.0)).or(10.0));
    let canary_show = root.section("canary", |canary| canary.read("show", number(0..=100)).or(4));
    let condition = || parsed(Condition::EXPECTED, Condition::parse);
    let metrics: Vec<(&str, &'static str)> = NAMES.iter().map(|name| (*name, *name)).collect();
    let conditions = list_of(condition(), 1..=20);
    let thresholds = root.read("thresholds", map_of(one_of(&metrics), conditions)).or(vec![]);
    let events = root.read("events", list_of(section(decode_event), 0..=1000)).or(vec![]);

    let mut scenario = Scenario {
        name: name?,
        target: target?,
        duration: length?,
        rooms: rooms?,
        sockets,
        media,
        networks,
        join_per_second,
        canary_show,
        thresholds: thresholds
            .into_iter()
            .flat_map(|(metric, list)| {
                list.into_iter().map(move |condition| Threshold { metric, condition })
            })
            .collect(),
        events,
        text: String::new(),
    };
    scenario.events.sort_by_key(|event| event.at);
    check_whole(root, &scenario);
    networks::check(root, &scenario);
    Some(scenario)
}

const AUDIO_SOURCES: [(&str, AudioSource); 3] =
    [("speech", AudioSource::Speech), ("tone", AudioSource::Tone), ("none", AudioSource::None)];
const VIDEO_SOURCES: [(&str, VideoSource); 4] = [
    ("360p", VideoSource::P360),
    ("480p", VideoSource::P480),
    ("1080p", VideoSource::P1080),
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
}

fn decode_target(root: &mut Section<'_>) -> Option<Target> {
    let (has_target, has_serve) = (root.has("target"), root.has("serve"));
    let url = root.read(
        "target",
        section(|target| {
            target.read("adapter", one_of(&[("moim", ())])).or(());
            target.read("url", parsed(Url::EXPECTED, Url::parse)).required()
        }),
    );
    let url = url.optional();
    let serve = root.section("serve", |serve| ServeOptions {
        shards: serve.read("shards", number(1..=64)).or(1),
        cpus: decode_cpus(serve),
    });
    match (has_target, has_serve) {
        (true, false) => url.map(Target::Running),
        (false, true) => Some(Target::Serve(serve)),
        (true, true) => {
            root.fault("serve", "both target and serve are given", "keep one of them");
            None
        }
        (false, false) => {
            let cure = "write `target: { adapter: moim, url: \"http://127.0.0.1:7880\" }` for a \
                        server that runs, or `serve: {}` to have one started";
            root.fault("target", "the key is missing", cure);
            None
        }
    }
}

fn decode_cpus(serve: &mut Section<'_>) -> Cpus {
    let expected = "`shared`, or the server's CPUs, such as [0]";
    let word = parsed(expected, |text: &str| match text {
        "shared" => Ok(None),
        _ => match text.parse::<usize>() {
            Ok(cpu) if cpu < 1024 => Ok(Some(cpu)),
            _ => Err(format!("{text:?} is no CPU")),
        },
    });
    let words: Vec<Option<usize>> = serve.read("cpus", one_or_many(word, 1024)).or(vec![]);
    match words.iter().copied().collect::<Option<Vec<usize>>>() {
        None => Cpus::Shared,
        Some(list) if list.is_empty() => Cpus::Auto,
        Some(list) => Cpus::Server(list),
    }
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

fn decode_rooms(room: &mut Section<'_>) -> Option<RoomGroup> {
    let presets = Preset::ALL.map(|preset| (preset_name(preset), preset));
    let preset = room.read("preset", one_of(&presets)).or(Preset::SmallCall).topologies();
    let audio =
        [("mesh", AudioTopology::Mesh), ("sfu", AudioTopology::Sfu), ("mcu", AudioTopology::Mcu)];
    let audio = room.read("audio", one_of(&audio)).or(preset.0);
    let video =
        [("none", VideoTopology::None), ("mesh", VideoTopology::Mesh), ("sfu", VideoTopology::Sfu)];
    let video = room.read("video", one_of(&video)).or(preset.1);
    let codecs = [("vp8", VideoCodec::Vp8), ("h264", VideoCodec::H264)];
    let video_codec = room.read("video_codec", one_of(&codecs)).or(VideoCodec::Vp8);
    let count = room.read("count", number(1..=MAX_PEOPLE)).or(1);
    let has_people = room.has("people");
    let (bots, chromium) = room.section("people", |people| {
        let bots = people.read("bot", number(0..=MAX_PEOPLE)).or(0);
        (bots, people.read("chromium", number(0..=100)).or(0))
    });
    if !has_people || bots + chromium == 0 {
        room.fault("people", "nobody comes", "write `people: { bot: 8, chromium: 2 }`");
    }
    let senders = room.read("senders", number(0..=MAX_PEOPLE)).optional();
    let loud = [("anyone", false), ("every_second", true)];
    let alternate = room.read("loud", one_of(&loud)).or(false);
    let stay = duration(Duration::from_secs(1)..=Duration::from_secs(3600));
    let has_churn = room.has("churn");
    let churn = room.section("churn", |churn| churn.read("stay", stay).or(CHURN_STAY));
    let churn = has_churn.then_some(churn);
    Some(RoomGroup { count, audio, video, video_codec, bots, chromium, senders, alternate, churn })
}

/// A preset's name in scenarios, as in `wire`.
fn preset_name(preset: Preset) -> &'static str {
    match preset {
        Preset::SmallCall => "small_call",
        Preset::Mesh => "mesh",
        Preset::AudioRoom => "audio_room",
        Preset::AudioMixWithCameras => "audio_mix_with_cameras",
    }
}

fn decode_event(event: &mut Section<'_>) -> Option<ScenarioEvent> {
    let day = Duration::from_secs(24 * 3600);
    let at = event.read("at", duration(Duration::ZERO..=day)).required();
    let bot = event.read("bot", number(1..=MAX_PEOPLE)).required();
    let what = event.read(
        "do",
        one_of(&[
            ("stop_video", BotCommand::StopVideo),
            ("stop_audio", BotCommand::StopAudio),
            ("leave", BotCommand::Leave),
        ]),
    );
    let what = what.required();
    Some(ScenarioEvent { at: at?, bot: bot?, what: what? })
}

/// What only the whole can tell.
fn check_whole(root: &mut Section<'_>, scenario: &Scenario) {
    let people = |room: &RoomGroup| u64::from(room.count) * u64::from(room.bots + room.chromium);
    let people: u64 = scenario.rooms.iter().map(people).sum();
    if people > u64::from(MAX_PEOPLE) {
        let what = format!("{people} people in all");
        root.fault("rooms", what, format!("write rooms of at most {MAX_PEOPLE} people in all"));
        return;
    }
    let bots = scenario.bots();
    for event in &scenario.events {
        if event.bot > bots {
            let what = format!("there is no bot {}", event.bot);
            root.fault("events", what, format!("bots are numbered 1 to {bots} over all rooms"));
        }
        if event.at >= scenario.duration {
            let what = format!("an event at {:?} comes after the end", event.at);
            root.fault("events", what, "choose a time before `duration`");
        }
    }
    for (index, room) in scenario.rooms.iter().enumerate() {
        if room.churn.is_some() && room.chromium > 0 {
            let what = format!("rooms[{index}].churn: browsers do not come and go");
            root.fault("rooms", what, "give the browsers a room of their own, without churn");
        }
        if (room.audio == AudioTopology::Mesh || room.video == VideoTopology::Mesh)
            && room.bots + room.chromium > MAX_MESH
        {
            let what = format!("rooms[{index}]: a mesh of {} people", room.bots + room.chromium);
            root.fault("rooms", what, format!("write at most {MAX_MESH} people a mesh"));
        }
    }
    let h264 = |room: &RoomGroup| room.bots > 0 && room.video_codec == VideoCodec::H264;
    if scenario.media.video != VideoSource::None && scenario.rooms.iter().any(h264) {
        let cure =
            "use vp8 for rooms with bots, chromium people alone, or `media: { video: none }`";
        root.fault("rooms", "bots send VP8 only", cure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_ROOM: &str = include_str!("../../../scenarios/first-room.yaml");

    fn problems(text: &str) -> Vec<String> {
        let problems = Scenario::parse(text, "x.yaml").expect_err("should be refused");
        problems.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_first_room() {
        let scenario = Scenario::parse(FIRST_ROOM, "first-room.yaml").expect("valid");
        assert_eq!(scenario.name, "first-room");
        assert_eq!((scenario.bots(), scenario.chromium()), (8, 2));
        assert_eq!(scenario.duration, Duration::from_secs(60));
        assert_eq!(scenario.thresholds[0].metric, "loss_pct");
        assert!(matches!(scenario.target, Target::Serve(_)));
        assert_eq!((scenario.join_per_second, scenario.canary_show), (10.0, 4));
        assert_eq!(scenario.text, FIRST_ROOM);
    }

    #[test]
    fn every_key() {
        let text = "
name: all
target: { adapter: moim, url: \"http://[::1]:7880\" }
duration: 1m
rooms:
  - { count: 2, audio: sfu, video: sfu, video_codec: vp8, people: { bot: 3, chromium: 1 } }
  - { video: none, people: { bot: 1 } }
media: { audio: speech, video: 480p }
join: { per_second: 2.5 }
canary: { show: 2 }
thresholds: { loss_pct: [\"user_p95 < 1\", \"max < 5\"], mos_lq: [\"user_p5 > 4\"] }
events: [{ at: 30s, bot: 7, do: leave }, { at: 20s, bot: 3, do: stop_video }]
";
        let scenario = Scenario::parse(text, "all.yaml").expect("valid");
        let url = Url { host: "[::1]".into(), port: 7880 };
        assert_eq!(url.socket(), "ws://[::1]:7880/socketcluster/");
        assert_eq!(scenario.target, Target::Running(url));
        assert_eq!((scenario.bots(), scenario.chromium()), (7, 2));
        assert_eq!(scenario.media.video, VideoSource::P480);
        assert_eq!((scenario.join_per_second, scenario.canary_show), (2.5, 2));
        assert_eq!(scenario.thresholds.len(), 3);
        let event = |at, bot, what| ScenarioEvent { at: Duration::from_secs(at), bot, what };
        let want = [event(20, 3, BotCommand::StopVideo), event(30, 7, BotCommand::Leave)];
        assert_eq!(scenario.events, want, "in order of time");
    }

    #[test]
    fn sockets_without_rooms_and_kinds_by_preset() {
        let text = "
name: sockets
serve: { shards: 2, cpus: [1] }
duration: 30s
sockets: [{ connections: 100, arrival_per_second: 50, rate_per_second: 425, chromium: 1 }]
";
        let scenario = Scenario::parse(text, "x.yaml").expect("valid");
        assert_eq!((scenario.rooms.len(), scenario.browsers(), scenario.chromium()), (0, 1, 0));
        let cpus = Cpus::Server(vec![1]);
        assert_eq!(scenario.target, Target::Serve(ServeOptions { shards: 2, cpus }));
        let group = scenario.sockets[0];
        assert_eq!((group.connections, group.rate_per_second, group.batch_ms), (100, 425.0, 5));

        let text = "
name: mixed
serve: { cpus: shared }
duration: 30s
rooms:
  - { preset: audio_room, churn: { stay: 5s }, people: { bot: 3 } }
  - { preset: mesh, video: none, senders: 1, people: { bot: 3 } }
";
        let scenario = Scenario::parse(text, "x.yaml").expect("valid");
        let kinds = |room: &RoomGroup| (room.audio, room.video, room.senders, room.churn);
        let stay = Some(Duration::from_secs(5));
        let (mcu, none) = (AudioTopology::Mcu, VideoTopology::None);
        assert_eq!(kinds(&scenario.rooms[0]), (mcu, none, None, stay));
        assert_eq!(kinds(&scenario.rooms[1]), (AudioTopology::Mesh, none, Some(1), None));
        for (text, part) in [
            ("rooms: []", "rooms"),
            ("rooms: [{ audio: mesh, people: { bot: 17 } }]", "a mesh of 17 people"),
            ("rooms: [{ churn: {}, people: { chromium: 1 } }]", "do not come and go"),
            ("sockets: [{}]", "connections: the key is missing"),
        ] {
            let found = problems(&format!("name: x\nserve: {{}}\nduration: 5s\n{text}\n"));
            assert!(found.iter().any(|problem| problem.contains(part)), "{part}: {found:?}");
        }
    }

    #[test]
    fn all_errors_at_once_with_line_cure_and_nearest_key() {
        let text = "\
nam: x
serve: {}
duration: soon
rooms:
  - { audoi: sfu, video: hologram, people: { bto: 2 } }
media: { video: 4k }
thresholds:
  los_pct: [\"user_p95 < 1\"]
  loss_pct: [\"user_p90 < 1\"]
events: [{ at: 5s, bot: 0, do: stopvideo }]
";
        let problems = problems(text);
        for (line, parts) in [
            (1, ["nam: unknown key", "did you mean \"name\"?"]),
            (1, ["name: the key is missing", "such as first-room"]),
            (3, ["duration: ", "soon"]),
            (5, ["rooms[0].audoi: unknown key", "did you mean \"audio\"?"]),
            (5, ["rooms[0].video: ", "none, mesh or sfu"]),
            (5, ["rooms[0].people.bto: unknown key", "did you mean \"bot\"?"]),
            (5, ["rooms[0].people: nobody comes", "bot: 8"]),
            (6, ["media.video: ", "360p, 480p, 1080p or none"]),
            (8, ["thresholds.los_pct: ", "did you mean \"loss_pct\"?"]),
            (9, ["thresholds.loss_pct[0]: \"user_p90\" is no known reduction", "user_p95"]),
            (10, ["events[0].bot: 0 is out of range", "from 1"]),
            (10, ["events[0].do: ", "did you mean \"stop_video\"?"]),
        ] {
            let place = format!("x.yaml:{line}:");
            let found = problems
                .iter()
                .any(|p| p.starts_with(&place) && parts.iter().all(|part| p.contains(part)));
            assert!(found, "line {line} {parts:?} in\n{}", problems.join("\n"));
        }
        assert_eq!(problems.len(), 12, "{}", problems.join("\n"));
    }

    #[test]
    fn what_only_the_whole_can_tell() {
        let with = |head: &str, tail: &str| {
            let rooms = "rooms: [{ video_codec: h264, people: { bot: 2 } }]";
            format!("name: x\n{head}\nduration: 10s\n{rooms}\n{tail}\n")
        };
        let target = "target: { url: \"http://127.0.0.1:1\" }";
        for (text, want) in [
            (with("", ""), "target: the key is missing; write `target"),
            (with(&format!("serve: {{}}\n{target}"), ""), "both target and serve are given"),
            (with("serve: {}", ""), "bots send VP8 only"),
            (with("serve: {}", "events: [{ at: 5s, bot: 3, do: leave }]"), "there is no bot 3"),
            (with("serve: {}", "events: [{ at: 10s, bot: 1, do: leave }]"), "after the end"),
            (with("target: { url: \"https://x\" }", ""), "is no http:// address"),
            (with("target: { url: \"http://x:y\" }", ""), "\"y\" is no port"),
            (with("target: { adapter: moin }", ""), "did you mean \"moim\"?"),
        ] {
            let problems = problems(&text);
            assert!(problems.iter().any(|p| p.contains(want)), "{want} in\n{problems:#?}");
        }
        Scenario::parse(&with("serve: {}", "media: { video: none }"), "x").expect("no video sent");
    }

    #[test]
    fn a_missing_file_and_broken_yaml_are_told() {
        let missing = Scenario::read(Path::new("/nowhere/x.yaml")).expect_err("missing");
        assert!(missing.to_string().contains("/nowhere/x.yaml"), "{missing}");
        assert!(problems("rooms: [")[0].starts_with("x.yaml:"), "with a line");
    }
}
