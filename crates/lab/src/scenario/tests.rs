mod matrix;
mod schema;

use super::*;
use crate::base::Url;
use crate::clients::bot::spec::BotCommand;
use crate::clients::canary::WINDOW;
use crate::clients::seat::Adapter;
use crate::record::LinkLimit;
use wire::room::{AudioTopology, Preset, VideoTopology};

const FIRST_ROOM: &str = include_str!("../../../../scenarios/first-room.yaml");

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
    assert_eq!((scenario.join_per_second, scenario.canary.show), (10.0, 4));
    let Canary { camera, window, time_code, frames_per_second, .. } = scenario.canary;
    assert_eq!((camera, window, time_code, frames_per_second), (Some("360p"), WINDOW, false, None));
    assert_eq!(scenario.text, FIRST_ROOM);
}

#[test]
fn every_key() {
    let text = "
name: all
target: { adapter: moim, url: \"http://[::1]:7880\", limit: { mbit_per_s: 100 } }
duration: 1m
rooms:
  - { count: 2, audio: sfu, video: sfu, video_codec: vp8, people: { bot: 3, chromium: 1 } }
  - { video: none, people: { bot: 1 } }
media: { audio: speech, video: 480p }
join: { per_second: 2.5 }
canary: { show: 2, jitter_buffer: 300ms, time_code: true, camera: 180p, frames_per_second: 15, window: 640x360 }
thresholds: { loss_pct: [\"user_p95 < 1\", \"max < 5\"], mos_lq: [\"user_p5 > 4\"] }
events: [{ at: 30s, bot: 7, do: leave }, { at: 20s, bot: 3, do: stop_video }]
";
    let scenario = Scenario::parse(text, "all.yaml").expect("valid");
    let url = Url { host: "[::1]".into(), port: 7880 };
    assert_eq!(url.socket(), "ws://[::1]:7880/socketcluster/");
    assert_eq!(scenario.target, Target::Running(url));
    let limit = LinkLimit { mbit_per_s: Some(100.0), packets_per_s: None };
    assert_eq!(scenario.link_limit, limit);
    assert_eq!((scenario.bots(), scenario.chromium()), (7, 2));
    assert_eq!(scenario.media.video, VideoSource::P480);
    assert_eq!(scenario.join_per_second, 2.5);
    let canary = Canary {
        show: 2,
        camera: Some("180p"),
        frames_per_second: Some(15),
        window: (640, 360),
        jitter_buffer_ms: Some(300),
        time_code: true,
    };
    assert_eq!(scenario.canary, canary);
    assert_eq!(scenario.thresholds.len(), 3);
    let event = |at, bot, command| {
        let what = Happening::Bot { bot, command };
        ScenarioEvent { at: Duration::from_secs(at), what }
    };
    let want = [event(20, 3, BotCommand::StopVideo), event(30, 7, BotCommand::Leave)];
    assert_eq!(scenario.events, want, "in order of time");
}

#[test]
fn rooms_have_sizes_by_zipfs_law() {
    let text = "name: x\nserve: {}\nduration: 1h\n\
                rooms: [{ count: 9, people: { bot: 12 }, sizes: zipf }, { people: { bot: 3 } }]\n";
    let scenario = Scenario::parse(text, "x").expect("valid");
    let sizes: Vec<(u32, u32)> =
        scenario.rooms.iter().map(|room| (room.count, room.bots)).collect();
    assert_eq!(sizes, [(1, 12), (1, 6), (1, 4), (1, 3), (5, 2), (1, 3)]);
    assert_eq!(scenario.bots(), 38);
    // Its largest room alone counts so many: the others are smaller.
    let large = text.replace("count: 9, people: { bot: 12 }", "count: 2000, people: { bot: 1000 }");
    assert!(Scenario::parse(&large, "x").is_ok());
    let browsers = text.replace("bot: 12 }", "bot: 12, chromium: 1 }");
    assert!(problems(&browsers)[0].contains("bots that stay"));
    let alone = text.replace("bot: 12 }", "bot: 1 }");
    assert!(problems(&alone)[0].contains("nobody is alone"));
    let event = format!("{text}events: [{{ at: 1s, bot: 39, do: leave }}]\n");
    assert!(problems(&event)[0].contains("1 to 38"), "{:?}", problems(&event));
    let ramping =
        text.replace("people: { bot: 12 }", "ramping: { stages: [{ duration: 2s, people: 9 }] }");
    assert!(problems(&ramping)[0].contains("leave `ramping`"));
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
    assert_eq!(
        scenario.target,
        Target::Serve(ServeOptions { shards: 2, cpus, ..ServeOptions::default() })
    );
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
    let kinds = |room: &RoomGroup| (room.audio, room.video, room.senders, room.executor.clone());
    let stay = Executor::Churn { stay: Duration::from_secs(5) };
    let (mcu, none) = (AudioTopology::Mcu, VideoTopology::None);
    assert_eq!(kinds(&scenario.rooms[0]), (mcu, none, None, stay));
    assert_eq!(kinds(&scenario.rooms[1]), (AudioTopology::Mesh, none, Some(1), Executor::Constant));
    for (text, part) in [
        ("rooms: []", "rooms"),
        ("rooms: [{ audio: mesh, people: { bot: 17 } }]", "a mesh of 17 people"),
        (
            "media: { video: simulcast }\nrooms: [{ video: mesh, people: { bot: 2 } }]",
            "in one layer",
        ),
        (
            "rooms: [{ ramping: { stages: [{ duration: 1s, people: 1 }] }, people: { chromium: 1 } }]",
            "by churn alone",
        ),
        ("sockets: [{}]", "connections: the key is missing"),
    ] {
        let found = problems(&format!("name: x\nserve: {{}}\nduration: 5s\n{text}\n"));
        assert!(found.iter().any(|problem| problem.contains(part)), "{part}: {found:?}");
    }
}

#[test]
fn a_threshold_that_begins_after_the_end_is_refused() {
    let text = |from: &str| {
        let side = format!("{{ threshold: \"max < 5\", from: {from} }}");
        format!(
            "name: x\nserve: {{}}\nduration: 10s\nrooms: [{{ people: {{ bot: 2 }} }}]\nthresholds: {{ loss_pct: [{side}] }}\n"
        )
    };
    let scenario = Scenario::parse(&text("9s"), "x.yaml").expect("a second counts");
    assert_eq!(scenario.thresholds[0].from, Duration::from_secs(9));
    let found = problems(&text("10s")).join("\n");
    assert!(found.contains("loss_pct max < 5 from 10 s on: no window begins so late"), "{found}");
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
  mos: [\"user_p5 > 4\"]
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
        (
            6,
            [
                "media.video: ",
                "light-1080p, simulcast, screen, slides, singles, frames, chromium or none",
            ],
        ),
        (8, ["thresholds.los_pct: ", "did you mean \"loss_pct\"?"]),
        (10, ["thresholds.mos: ", "did you mean \"mos_lq\"?"]),
        (9, ["thresholds.loss_pct[0]: \"user_p90\" is no known reduction", "user_p95"]),
        (11, ["events[0].bot: 0 is out of range", "from 1"]),
        (11, ["events[0].do: ", "did you mean \"stop_video\"?"]),
    ] {
        let place = format!("x.yaml:{line}:");
        let found = problems
            .iter()
            .any(|p| p.starts_with(&place) && parts.iter().all(|part| p.contains(part)));
        assert!(found, "line {line} {parts:?} in\n{}", problems.join("\n"));
    }
    assert_eq!(problems.len(), 13, "{}", problems.join("\n"));
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
        (with("serve: {}", ""), "bots have no such pictures in H.264"),
        (with("serve: {}", "").replace("h264", "vp9"), "bots send VP8 and H.264 only"),
        (with("serve: {}", "events: [{ at: 5s, bot: 3, do: leave }]"), "there is no bot 3"),
        (with("serve: {}", "events: [{ at: 10s, bot: 1, do: leave }]"), "after the end"),
        (with("target: { url: \"https://x\" }", ""), "is no http:// or ws:// address"),
        (with("target: { url: \"http://x:y\" }", ""), "\"y\" is no port"),
        (with("target: { adapter: moin }", ""), "did you mean \"moim\"?"),
        (with("target: { url: \"http://::1:7990\" }", ""), "stands in brackets"),
    ] {
        let problems = problems(&text);
        assert!(problems.iter().any(|p| p.contains(want)), "{want} in\n{problems:#?}");
    }
    Scenario::parse(&with("serve: {}", "media: { video: none }"), "x").expect("no video sent");
}

#[test]
fn janus_is_another_target_for_the_same_scenario_and_what_it_has_not_is_refused() {
    let janus = "name: x\ntarget: { adapter: janus, url: \"ws://127.0.0.1:8188\" }\nduration: 9s\n";
    let sfu = "rooms: [{ audio: sfu, video: sfu, people: { bot: 3 } }]\n";
    let scenario = Scenario::parse(&format!("{janus}{sfu}"), "x.yaml").expect("valid");
    assert_eq!(scenario.adapter, Adapter::Janus);
    let url = Url { host: "127.0.0.1".into(), port: 8188 };
    assert_eq!(scenario.target, Target::Running(url));
    let mcu = "rooms: [{ audio: mcu, video: none, people: { bot: 3 } }]\n";
    Scenario::parse(&format!("{janus}{mcu}"), "x.yaml").expect("a room that mixes");
    let networks = "networks: [{ name: far, share_pct: 50, delay: 50ms }]\n";
    Scenario::parse(&format!("{janus}{sfu}{networks}"), "x.yaml").expect("a link before it");
    for (rest, want) in [
        ("rooms: [{ audio: mcu, video: sfu, people: { bot: 3 } }]", "or mixes sound"),
        ("rooms: [{ audio: mesh, video: none, people: { bot: 3 } }]", "or mixes sound"),
        (&format!("{mcu}media: {{ audio: tone, video: none }}"), "mixes everybody"),
        ("rooms: [{ audio: sfu, people: { bot: 1, chromium: 1 } }]", "browsers enter moim's"),
        (&format!("{sfu}sockets: [{{ connections: 3 }}]"), "no realtime sockets"),
        (&format!("{sfu}media: {{ transport: tcp }}"), "by udp alone"),
        (&format!("{sfu}media: {{ video: simulcast }}"), "nobody chooses layers"),
    ] {
        let problems = problems(&format!("{janus}{rest}\n"));
        assert!(problems.iter().any(|p| p.contains(want)), "{want} in\n{problems:#?}");
    }
}

#[test]
fn livekit_is_another_target_for_rooms_that_forward() {
    let livekit =
        "name: x\ntarget: { adapter: livekit, url: \"ws://127.0.0.1:7880\" }\nduration: 9s\n";
    let sfu = "rooms: [{ audio: sfu, video: sfu, people: { bot: 3 } }]\n";
    let networks = "networks: [{ name: far, share_pct: 50, delay: 50ms }]\n";
    let text = format!("{livekit}{sfu}{networks}media: {{ video: simulcast }}\n");
    let scenario = Scenario::parse(&text, "x.yaml").expect("valid");
    assert_eq!((scenario.adapter, scenario.adapter.name()), (Adapter::LiveKit, "livekit"));
    for (rest, want) in [
        ("rooms: [{ audio: mcu, video: none, people: { bot: 3 } }]", "neither mixes nor is a mesh"),
        ("rooms: [{ audio: sfu, video: mesh, people: { bot: 3 } }]", "neither mixes nor is a mesh"),
        ("rooms: [{ audio: sfu, people: { bot: 1, chromium: 1 } }]", "bots alone for LiveKit"),
        (&format!("{sfu}sockets: [{{ connections: 3 }}]"), "LiveKit has no realtime sockets"),
        (&format!("{sfu}media: {{ transport: tcp }}"), "bots reach LiveKit by udp alone"),
        ("rooms: [{ create: api, people: { bot: 2 } }]", "LiveKit does not have moim's HTTP API"),
    ] {
        let problems = problems(&format!("{livekit}{rest}\n"));
        assert!(problems.iter().any(|p| p.contains(want)), "{want} in\n{problems:#?}");
    }
}

#[test]
fn streams_by_whip_have_paths_and_are_forwarded() {
    let whip = "name: x\ntarget: { adapter: whip, url: \"http://127.0.0.1:8889\" }\nduration: 9s\n";
    let sfu = "rooms: [{ audio: sfu, video: sfu, people: { bot: 3 } }]\n";
    let networks = "networks: [{ name: far, share_pct: 50, delay: 50ms }]\n";
    let scenario = Scenario::parse(&format!("{whip}{sfu}{networks}"), "x.yaml").expect("valid");
    assert_eq!((scenario.adapter, scenario.paths.play.as_str()), (Adapter::Whip, "/{stream}/whep"));
    let own = whip.replace(" }", ", play: \"/rtc/v1/whep/?app=live&stream={stream}\" }");
    let scenario = Scenario::parse(&format!("{own}{sfu}"), "x.yaml").expect("valid");
    assert_eq!(scenario.paths.play, "/rtc/v1/whep/?app=live&stream={stream}");
    assert_eq!(scenario.paths.publish, "/{stream}/whip");
    let lost = whip.replace(" }", ", play: \"/whep\" }");
    for (head, rest, want) in [
        (
            whip,
            "rooms: [{ audio: mcu, video: none, people: { bot: 3 } }]",
            "neither mixed nor a mesh",
        ),
        (whip, &format!("{sfu}media: {{ video: simulcast }}"), "nobody chooses layers"),
        (&lost, sfu, "a path with {stream} in it"),
        (&own.replace("whip,", "janus,"), sfu, "only `adapter: whip` has paths"),
    ] {
        let problems = problems(&format!("{head}{rest}\n"));
        assert!(problems.iter().any(|p| p.contains(want)), "{want} in\n{problems:#?}");
    }
}

#[test]
fn socketcluster_is_a_target_for_sockets_alone() {
    let head = "name: x\ntarget: { adapter: socketcluster, url: \"http://127.0.0.1:8000\" }\nduration: 9s\n";
    let sockets = "sockets: [{ connections: 3 }]\n";
    let scenario = Scenario::parse(&format!("{head}{sockets}"), "x.yaml").expect("valid");
    assert_eq!(scenario.adapter, Adapter::SocketCluster);
    let problems = problems(&format!("{head}{sockets}rooms: [{{ people: {{ bot: 3 }} }}]\n"));
    assert!(problems.iter().any(|p| p.contains("has no rooms")), "{problems:#?}");
}

#[test]
fn thresholds_on_sockets_need_some_and_pings_where_they_judge_them() {
    let head = "name: x\nserve: {}\nduration: 9s\n";
    let of = |metric: &str| format!("thresholds: {{ {metric}: [\"max < 5\"] }}\n");
    let pings = "sockets: [{ connections: 3, rate_per_second: 2 }]\n";
    for metric in ["pong_ms", "answered_pct", "connect_ms", "lost"] {
        let text = format!("{head}{pings}{}", of(metric));
        let scenario = Scenario::parse(&text, "x.yaml").expect("valid");
        assert_eq!(scenario.thresholds[0].metric, metric);
        let none = problems(&format!("{head}rooms: [{{ people: {{ bot: 2 }} }}]\n{}", of(metric)));
        assert!(none.iter().any(|p| p.contains("there are none")), "{none:#?}");
        let silent = format!("{head}sockets: [{{ connections: 3 }}]\n{}", of(metric));
        match Scenario::parse(&silent, "x.yaml") {
            Ok(_) => assert!(metric == "connect_ms" || metric == "lost", "{metric}"),
            Err(told) => assert!(told.to_string().contains("nobody pings"), "{told}"),
        }
    }
}

#[test]
fn a_missing_file_and_broken_yaml_are_told() {
    let missing = Scenario::read(Path::new("/nowhere/x.yaml")).expect_err("missing");
    assert!(missing.to_string().contains("/nowhere/x.yaml"), "{missing}");
    assert!(problems("rooms: [")[0].starts_with("x.yaml:"), "with a line");
}

#[test]
fn roles_are_dealt_by_weight_and_repeat() {
    let roles = "[{ name: speaker, weight: 2, speaks_pct: 40 }, \
                 { name: listener, weight: 8, audio: false, video: false }]";
    let group = |bots: u32, roles: &str| {
        let rooms = format!("rooms: [{{ people: {{ bot: {bots} }}, roles: {roles} }}]");
        let text = format!("name: x\nserve: {{}}\nduration: 5s\n{rooms}\n");
        Scenario::parse(&text, "x.yaml").expect("valid").rooms.remove(0)
    };
    let counts = |bots: u32, roles: &str| {
        let group = group(bots, roles);
        let dealt = group.deal(1);
        assert_eq!(dealt.len(), bots as usize);
        let count = |role: &Role| dealt.iter().filter(|dealt| **dealt == role).count();
        group.roles.iter().map(count).collect::<Vec<_>>()
    };
    assert_eq!(counts(10, roles), [2, 8]);
    assert_eq!(counts(3, roles), [1, 2], "0.6 and 2.4: the largest remainder is rounded up");
    assert_eq!(counts(7, "[{ name: a }, { name: b }, { name: c }]"), [3, 2, 2]);
    assert_eq!(counts(1, "[{ name: a }, { name: b, weight: 10000 }]"), [0, 1]);
    let group = group(50, roles);
    let names = |seed| group.deal(seed).iter().map(|role| role.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(1), names(1));
    assert_ne!(names(1), names(2), "another room's bots are shuffled otherwise");
    assert_eq!(group.roles[0].speaks_pct, 40.0);
    let known = (group.roles[1].audio, group.roles[1].video, group.roles[0].video);
    assert_eq!(known, (false, false, true));
}

#[test]
fn roles_that_contradict_are_told() {
    let with = |room: &str, tail: &str| {
        format!(
            "name: x\nserve: {{}}\nduration: 5s\nrooms: [{{ people: {{ bot: 2 }}, {room} }}]\n{tail}"
        )
    };
    for (text, told) in [
        (with("senders: 1, roles: [{ name: a }]", ""), "both senders and roles are given"),
        (with("roles: [{ weight: 1 }]", ""), "roles[0].name: the key is missing"),
        (with("roles: [{ name: a, weight: 0 }]", ""), "0 is out of range"),
        (with("roles: [{ name: a, audio: false, speaks_pct: 5 }]", ""), "says nothing"),
        (with("roles: [{ name: a, in_turn: true }]", ""), "a part of the time"),
        (with("roles: [{ name: a }]", "media: { audio: tone }\n"), "a plan of their own"),
    ] {
        let found = problems(&text);
        assert!(found.iter().any(|problem| problem.contains(told)), "{told}: {found:?}");
    }
}

#[test]
fn rooms_that_the_api_makes_have_a_limit_of_their_own() {
    let with =
        |head: &str, room: &str| format!("name: x\n{head}\nduration: 5s\nrooms: [{{ {room} }}]\n");
    let ahead = |room: &str| {
        let parsed = Scenario::parse(&with("serve: {}", room), "x.yaml").expect(room);
        parsed.rooms[0].ahead
    };
    let preset = Preset::LargeRoomForAudioOnly;
    let large = "preset: large_room_for_audio_only, create: api";
    let made = |max_participants| Some(Ahead { preset, max_participants });
    assert_eq!(ahead(&format!("{large}, people: {{ bot: 25 }}")), made(None));
    let more = format!("{large}, people: {{ bot: 26 }}, max_participants: 30");
    assert_eq!(ahead(&more), made(Some(30)));
    assert_eq!(ahead("preset: audio_room, people: { bot: 2 }, create: join"), None);
    let janus = "target: { adapter: janus, url: \"http://127.0.0.1:1\" }";
    for (head, room, told) in [
        ("serve: {}", format!("{large}, people: {{ bot: 26 }}"), "write `max_participants: 26`"),
        ("serve: {}", "max_participants: 3, people: { bot: 2 }".into(), "write `create: api`"),
        (
            "serve: {}",
            "preset: small_room_for_video, people: { bot: 2 }".into(),
            "write `create: api`",
        ),
        (janus, "create: api, people: { bot: 2 }".into(), "Janus does not have moim's HTTP API"),
        ("serve: {}", "create: api, people: { bot: 2 }, churn: {}".into(), "leave `create` out"),
    ] {
        let found = problems(&with(head, &room));
        assert!(found.iter().any(|problem| problem.contains(told)), "{told}: {found:?}");
    }
}

#[test]
fn executors_and_the_people_they_need() {
    let of = |room: &str| {
        let text = format!("name: x\nserve: {{}}\nduration: 60s\nrooms: [{{ {room} }}]\n");
        let group = Scenario::parse(&text, "x.yaml").expect(room).rooms.remove(0);
        (group.bots, group.executor)
    };
    let stage = |seconds, people| RampStage { duration: Duration::from_secs(seconds), people };
    let stages = "stages: [{ duration: 20s, people: 10 }, { duration: 10s, people: 0 }]";
    let ramping = Executor::Ramping { stages: vec![stage(20, 10), stage(10, 0)] };
    assert_eq!(of(&format!("count: 3, ramping: {{ {stages} }}")), (4, ramping.clone()));
    assert_eq!(of(&format!("people: {{ bot: 12 }}, ramping: {{ {stages} }}")), (12, ramping));
    let arrival =
        |max| Executor::Arrival(Arrival { per_second: 0.5, stay: Duration::from_secs(20), max });
    assert_eq!(of("arrival: { rate_per_second: 0.5, stay: 20s, max: 7 }"), (7, arrival(7)));
    let room = "count: 2, people: { bot: 5 }, arrival: { rate_per_second: 0.5, stay: 20s }";
    assert_eq!(of(room), (5, arrival(10)));
    for (room, told) in [
        ("churn: {}, ramping: { stages: [{ duration: 1s, people: 1 }] }", "both churn and ramping"),
        ("ramping: { stages: [] }", "a list of 0 entries"),
        ("ramping: { stages: [{ duration: 1s, people: 0 }] }", "nobody comes"),
        ("ramping: { stages: [{ duration: 2m, people: 1 }] }", "write `duration: 2m` or more"),
        (
            "people: { bot: 2 }, ramping: { stages: [{ duration: 1s, people: 3 }] }",
            "3 people in 1 rooms of 2 bots; write `people: { bot: 3 }`",
        ),
        ("arrival: { rate_per_second: 1, stay: 5s }", "how many places there are"),
        ("arrival: { stay: 5s, max: 1 }", "rate_per_second: the key is missing"),
        ("people: { chromium: 1 }, arrival: { rate_per_second: 1, stay: 5s, max: 1 }", "browsers"),
    ] {
        let text = format!("name: x\nserve: {{}}\nduration: 60s\nrooms: [{{ {room} }}]\n");
        let found = problems(&text);
        assert!(found.iter().any(|problem| problem.contains(told)), "{told}: {found:?}");
    }
}

#[test]
fn everyone_can_come_before_the_run_ends() {
    let text = |rest: &str| format!("name: x\nserve: {{}}\nduration: 20s\n{rest}");
    let of = |rest: &str| problems(&text(rest));
    let found = of("rooms: [{ people: { bot: 1000 } }]\n");
    let want = "1000 people need 100 s to come at 10 a second, and the run lasts 20 s";
    assert!(found.iter().any(|problem| problem.contains(want)), "{found:?}");
    assert!(found[0].contains("write `join: { per_second: 100 }`"), "{found:?}");
    let found = of("sockets: [{ connections: 4000 }]\n");
    let want = "4000 sockets need 25 s to come at 160 a second";
    assert!(found.iter().any(|problem| problem.contains(want)), "{found:?}");
    for rest in [
        "rooms: [{ people: { bot: 200 } }]\n",
        "rooms: [{ people: { bot: 1000 } }]\njoin: { per_second: 100 }\n",
        "rooms: [{ ramping: { stages: [{ duration: 10s, people: 900 }] } }]\n",
        "sockets: [{ connections: 3000 }]\n",
    ] {
        assert!(Scenario::parse(&text(rest), "x.yaml").is_ok(), "{rest}");
    }
}

#[test]
fn events_of_all_kinds() {
    let head = "name: x\nserve: {}\nduration: 60s\nrooms: [{ people: { bot: 4 } }]\n\
                networks: [{ name: mobile, delay: 80ms }]\n";
    let parse = |events: &str| Scenario::parse(&format!("{head}events: [{events}]\n"), "x.yaml");
    let events = parse(
        "{ at: 1s, do: stop_server }, { at: 2s, do: kill_server }, { at: 3s, do: leave, count: 4 }, \
         { at: 4s, do: change_network, network: mobile, delay: 200ms, loss_pct: 100, way: down }",
    );
    let events = events.expect("valid").events;
    let what: Vec<&Happening> = events.iter().map(|event| &event.what).collect();
    let (server, kill, leave) =
        (Happening::StopServer, Happening::KillServer, Happening::Leave { count: 4 });
    assert_eq!(what[..3], [&server, &kill, &leave]);
    let Happening::ChangeNetwork { network, change } = what[3] else { panic!("{what:?}") };
    assert_eq!((network.as_str(), change.at.as_secs()), ("mobile", 4));
    assert_eq!(change.up, crate::clients::link::model::LinkSpec::default());
    assert_eq!(change.down.delay, Duration::from_millis(200));
    for (events, told) in [
        ("{ at: 1s, do: stop_video }", "events[0].bot: the key is missing; write `bot: 3`"),
        ("{ at: 1s, do: leave }", "write `bot: 3`, or `count: 10`"),
        ("{ at: 1s, do: leave, bot: 1, count: 2 }", "both bot and count are given"),
        ("{ at: 1s, do: leave, count: 5 }", "5 bots cannot leave: there are 4"),
        ("{ at: 1s, do: kill_server, bot: 1 }", "events[0].bot: it does not belong"),
        ("{ at: 1s, do: stop_audio, bot: 1, delay: 1s }", "only change_network says"),
        ("{ at: 1s, do: change_network }", "events[0].network: the key is missing"),
        ("{ at: 1s, do: change_network, network: mobil }", "there is no network \"mobil\""),
        ("{ at: 61s, do: stop_server }", "after the end"),
    ] {
        let problems = parse(events).expect_err(events).to_string();
        assert!(problems.contains(told), "{events}: {problems}");
    }
    let other = head.replace("serve: {}", "target: { url: \"http://127.0.0.1:1\" }");
    let found = problems(&format!("{other}events: [{{ at: 1s, do: kill_server }}]\n"));
    assert!(found[0].contains("only a server that it started"), "{found:?}");
}

#[test]
fn bots_go_by_udp_or_tcp_and_what_cannot_is_told() {
    let with = |transport: &str, room: &str, more: &str| {
        let head = format!("name: x\nserve: {{}}\nduration: 5s\nrooms: [{{ {room} }}]\n{more}");
        format!("{head}media: {{ transport: {transport} }}\n")
    };
    let plain = "people: { bot: 2 }";
    assert_eq!(Scenario::parse(&with("udp", plain, ""), "x").unwrap().protocol, Protocol::Udp);
    assert_eq!(Scenario::parse(&with("tcp", plain, ""), "x").unwrap().protocol, Protocol::Tcp);
    for (room, more, told) in [
        ("audio: mesh, video: none, people: { bot: 2 }", "", "people of a mesh"),
        (plain, "networks: [{ name: far, share_pct: 100, delay: 50ms }]\n", "`networks` stand"),
        ("people: { bot: 1, chromium: 1 }", "", "browsers choose"),
    ] {
        let found = problems(&with("tcp", room, more));
        assert!(found.iter().any(|text| text.contains(told)), "{room} {more}: {found:?}");
    }
}
