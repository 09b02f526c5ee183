//! What readers of a settings file see: values, and all problems at once.

use settings::{
    Problems, Shape, boolean, duration, either, format_duration, ip_address, list_of, map_of,
    number, one_of, one_or_many, parse_duration, parse_size, parsed, section, size, socket_address,
    text,
};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Audio {
    Sfu,
    Mcu,
}

#[derive(Debug, PartialEq)]
struct Room {
    count: u32,
    audio: Audio,
    people: Vec<(String, u32)>,
}

#[derive(Debug, PartialEq)]
struct Plan {
    name: String,
    duration: Duration,
    share: f64,
    loud: bool,
    rooms: Vec<Room>,
    bind: Vec<SocketAddr>,
    ip: Option<IpAddr>,
    buffer: u64,
    port: u16,
}

const HOUR: Duration = Duration::from_secs(3600);

fn plan(text_of_file: &str) -> Result<Plan, Problems> {
    settings::read(text_of_file, "plan.yaml", |plan| {
        let name = plan.read("name", text(1..=20)).required();
        let length = plan.read("duration", duration(Duration::from_secs(1)..=HOUR));
        let length = length.or(Duration::from_secs(60));
        let share = plan.read("share", number(0.0..=1.0)).or(0.5);
        let loud = plan.read("loud", boolean()).or(false);
        let room = section(|room| {
            let count = room.read("count", number(1..=10)).or(1);
            let names = [("sfu", Audio::Sfu), ("mcu", Audio::Mcu)];
            let audio = room.read("audio", one_of(&names)).required();
            let people = map_of(
                one_of(&[("bot", "bot".to_owned()), ("chromium", "chromium".to_owned())]),
                number(0..=100u32),
            );
            let people = room.read("people", people).or(Vec::new());
            Some(Room { count, audio: audio?, people })
        });
        let rooms = plan.read("rooms", list_of(room, 1..=3)).or_else(Vec::new);
        let bind = plan.read("bind", one_or_many(socket_address(), 4)).or_else(Vec::new);
        let ip = plan.read("ip", ip_address()).optional();
        let buffer = plan.read("buffer", size(1..=1 << 30)).or(1024);
        let port = plan.section("media", |media| media.read("port", number(1..=65535u16)).or(7882));
        Some(Plan { name: name?, duration: length, share, loud, rooms, bind, ip, buffer, port })
    })
}

fn problems(text_of_file: &str) -> String {
    plan(text_of_file).expect_err("this document is wrong").to_string()
}

const GOOD: &str = r#"
name: first-room
duration: 1m30s
share: 0.25
loud: true
rooms: [{ count: 2, audio: mcu, people: { bot: 8, chromium: 2 } }]
bind: ["[::1]:7880", "127.0.0.1:7880"]
ip: 2001:db8::1
buffer: 64KiB
media: { port: 9000 }
"#;

#[test]
fn a_good_document_gives_its_values() {
    let plan = plan(GOOD).unwrap();
    assert_eq!(plan.name, "first-room");
    assert_eq!(plan.duration, Duration::from_secs(90));
    assert_eq!(plan.share, 0.25);
    assert!(plan.loud);
    let people = vec![("bot".to_owned(), 8), ("chromium".to_owned(), 2)];
    assert_eq!(plan.rooms, [Room { count: 2, audio: Audio::Mcu, people }]);
    assert_eq!(plan.bind[0], "[::1]:7880".parse().unwrap());
    assert_eq!(plan.bind.len(), 2);
    assert_eq!(plan.ip, Some("2001:db8::1".parse().unwrap()));
    assert_eq!(plan.buffer, 65536);
    assert_eq!(plan.port, 9000);
}

#[test]
fn absent_keys_take_their_defaults() {
    let plan = plan("name: x\nmedia:\nbind: 127.0.0.1:1\n").unwrap();
    assert_eq!((plan.port, plan.buffer, plan.share), (7882, 1024, 0.5));
    assert_eq!((plan.ip, plan.rooms.len(), plan.bind.len()), (None, 0, 1));
}

#[test]
fn every_problem_is_told_with_place_and_cure() {
    let text = "\
name: ''
duration: 90
share: 1.5
loud: yes
rooms:
  - count: 11
    audoi: sfu
  - audio: sfuu
    people: { bots: 3, chromium: many }
bind: localhost:7880
ip: 300.1.1.1
buffer: 64KIB
media: 7
extra: 1
";
    let all = problems(text);
    let expected = r#"plan.yaml:1:7 name: text of 0 characters; write text of 1 to 20 characters
plan.yaml:2:11 duration: "90" has no unit; write a duration from 1s to 1h, such as 60s, 1m30s or 500ms
plan.yaml:3:8 share: 1.5 is out of range; write a number from 0 to 1
plan.yaml:4:7 loud: "yes" is no truth value; write true or false
plan.yaml:6:5 rooms[0].audio: the key is missing; write sfu or mcu
plan.yaml:6:12 rooms[0].count: 11 is out of range; write a whole number from 1 to 10
plan.yaml:7:5 rooms[0].audoi: unknown key; did you mean "audio"? valid keys: count, audio, people
plan.yaml:8:12 rooms[1].audio: "sfuu" is not known here; did you mean "sfu"? write sfu or mcu
plan.yaml:9:15 rooms[1].people.bots: "bots" is not known here; did you mean "bot"? write bot or chromium
plan.yaml:9:34 rooms[1].people.chromium: "many" is not a whole number from 0 to 100; write a whole number from 0 to 100
plan.yaml:10:7 bind: "localhost:7880" is no IP address with a port; write an address with a port, such as 127.0.0.1:7880 or "[::1]:7880" (in quotes)
plan.yaml:11:5 ip: "300.1.1.1" is no IP address; write an IP address, such as 192.0.2.1 or 2001:db8::1
plan.yaml:12:9 buffer: "64KIB" has a unit that is not known; write a size from 1 to 1073741824 bytes, such as 65536, 64KiB or 1MiB
plan.yaml:13:8 media: "7" instead of a mapping; write `key: value` lines below it, indented
plan.yaml:14:1 extra: unknown key; valid keys: name, duration, share, loud, rooms, bind, ip, buffer, media"#;
    let (got, want): (Vec<_>, Vec<_>) = (all.lines().collect(), expected.lines().collect());
    assert_eq!(got, want);
}

#[test]
fn problems_can_be_read_by_programs() {
    let error = plan("name: x\nshare: -1\n").unwrap_err();
    let problem = &error.list()[0];
    assert_eq!(error.source(), "plan.yaml");
    assert_eq!((problem.line, problem.column), (2, 8));
    assert_eq!(problem.path, "share");
    assert_eq!(problem.cure, "write a number from 0 to 1");
}

#[test]
fn what_yaml_allows_and_this_does_not_is_told() {
    let cases = [
        ("", "plan.yaml:1:1 name: the key is missing; write text of 1 to 20 characters"),
        ("- a\n- b\n", "plan.yaml:1:1: a list instead of a mapping; write `key: value` lines"),
        (
            "name: a\nshare: 0.1\nname: b\n",
            "plan.yaml:3:1 name: the key stands already on line 1; remove one of them",
        ),
        (
            "name: x\nloud: &a true\nshare: *a\n",
            "plan.yaml:3:8: aliases are not taken; write the value out",
        ),
        ("name: !!str x\n", "plan.yaml:1:7: tags are not taken"),
        ("name: x\n---\nname: y\n", "plan.yaml:2:1: a second document in one file"),
        ("name: x\nloud: 'true'\n", "plan.yaml:2:7 loud: \"true\" is text; remove the quotes"),
        (
            "name: x\nshare:\n",
            "share: the key has no value; write a number from 0 to 1 or remove the key",
        ),
        ("name: [x]\n", "plan.yaml:1:7 name: a list; write text"),
        ("name: x\nrooms: {}\n", "plan.yaml:2:8 rooms: a mapping instead of a list"),
        ("name: x\nrooms: []\n", "plan.yaml:2:8 rooms: a list of 0 entries"),
        ("name: x\nshare: .nan\n", "plan.yaml:2:8 share: \".nan\" is not a number from 0 to 1"),
        ("name: x\nshare: NaN\n", "plan.yaml:2:8 share: NaN is out of range"),
        ("name: x\n[a]: b\n", "plan.yaml:2:1: a list as a key; keys are plain names"),
        ("name: x\nbind: [::1]:7880\n", "plan.yaml:2:"),
        ("name: \"x\nshare: 1", "not valid YAML"),
        ("name: x\nshare", "plan.yaml:2:1: not valid YAML"),
        ("name: x\n\tshare: 1\n", "not valid YAML"),
        ("name: x\0", "plan.yaml:1:1: a NUL character"),
    ];
    for (text, expected) in cases {
        let told = problems(text);
        assert!(told.contains(expected), "for {text:?}\n told {told}\n want {expected}");
    }
}

#[test]
fn limits_hold() {
    let deep = format!("name: {}{}", "[".repeat(100), "]".repeat(100));
    assert!(problems(&deep).contains("nested deeper than 32"));
    let long = format!("name: {}", "x".repeat(settings::MAX_BYTES));
    assert!(problems(&long).contains("bytes long"));
    let wide: String = (0..5000).map(|n| format!("k{n}: 1\n")).collect();
    assert!(problems(&wide).contains("more than 4096 keys"));
    let many: String = (0..500).map(|n| format!("k{n}: 1\n")).collect();
    let error = plan(&many).unwrap_err();
    assert_eq!(error.list().len(), 100);
    assert!(error.to_string().ends_with("more problems may follow"));
    let error = plan(&("name: 1\n".repeat(500) + "people: [")).unwrap_err();
    assert_eq!(error.list().len(), 101);
    assert!(error.to_string().contains("not valid YAML"), "it is told beside the first ones");
}

#[test]
fn decoders_may_add_problems_of_their_own() {
    let error = settings::read("a: 1\nb: 2\n", "x.yaml", |root| {
        let a = root.read("a", number(0..=9u8)).optional();
        let b = root.read("b", number(0..=9u8)).optional();
        if a.is_some() && b.is_some() {
            root.fault("b", "it excludes \"a\"", "remove one of them");
        }
        Some(())
    });
    let told = error.unwrap_err().to_string();
    assert_eq!(told, "x.yaml:2:4 b: it excludes \"a\"; remove one of them");
    let nothing = settings::read::<()>("", "x.yaml", |_| None).unwrap_err();
    assert_eq!(nothing.list().len(), 1, "no value without a problem");
    let even = parsed("an even number", |text| match text.parse::<u32>() {
        Ok(n) if n % 2 == 0 => Ok(n),
        _ => Err(format!("{text} is not even")),
    });
    let told = settings::read("n: 3", "x.yaml", |root| root.read("n", even).required());
    assert_eq!(told.unwrap_err().to_string(), "x.yaml:1:4 n: 3 is not even; write an even number");
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem() {
    let path = std::path::Path::new("/nonexistent/moim.yaml");
    let told = settings::read_file(path, |_| Some(())).unwrap_err().to_string();
    assert!(told.starts_with("/nonexistent/moim.yaml: the file cannot be read ("), "{told}");
    assert!(told.ends_with("check the path and its permissions"), "{told}");
}

#[test]
fn units() {
    let micros = |text: &str| parse_duration(text).map(|duration| duration.as_micros());
    assert_eq!(micros("500ms"), Ok(500_000));
    assert_eq!(micros("1h2m3s4ms5us"), Ok(3_723_004_005));
    assert_eq!(micros("0.1s"), Ok(100_000));
    assert_eq!(micros("2d"), Ok(172_800_000_000));
    for wrong in ["", "5", "s", "1s1m", "1s1s", "-1s", "1x", "1..2s", "9999999999999999999999s"] {
        assert!(parse_duration(wrong).is_err(), "{wrong}");
    }
    for text in ["0s", "1h", "1m30s", "250ms", "1h1us"] {
        assert_eq!(format_duration(parse_duration(text).unwrap()), text);
    }
    assert_eq!(parse_size("65536"), Ok(65536));
    assert_eq!(parse_size("1.5 KiB"), Ok(1536));
    assert_eq!(parse_size("2GB"), Ok(2_000_000_000));
    for wrong in ["", "KiB", "1.5", "1TB", "-1", "1e3", "99999999GiB"] {
        assert!(parse_size(wrong).is_err(), "{wrong}");
    }
}

/// Bytes from a seed (SplitMix64), so a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

#[test]
fn mutated_and_random_documents_never_panic() {
    const PIECES: [&str; 24] = [
        "\n",
        ":",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\"",
        "'",
        "#",
        "&a",
        "*a",
        "!t ",
        "|\n",
        ">\n",
        "%TAG ! x\n",
        "? ",
        "---\n",
        "...\n",
        "\t",
        "\u{feff}",
        "é",
    ];
    let mut random = Random(7);
    let (mut good, mut bad) = (0, 0);
    for round in 0..20_000 {
        let text = if round % 4 == 0 {
            let bytes: Vec<u8> = (0..random.below(80)).map(|_| random.next() as u8).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        } else {
            let mut text: Vec<char> = GOOD.chars().collect();
            for _ in 0..1 + random.below(4) {
                let from = random.below(text.len());
                let to = (from + random.below(6)).min(text.len());
                let piece = PIECES[random.below(PIECES.len())];
                if random.below(2) == 0 {
                    text.splice(from..from, piece.chars());
                } else {
                    text.splice(from..to, piece.chars());
                }
            }
            text.into_iter().collect()
        };
        match plan(&text) {
            Ok(_) => good += 1,
            Err(problems) => {
                assert!(!problems.list().is_empty(), "{text:?}");
                let lines = text.lines().count() + 2;
                for problem in problems.list() {
                    assert!((1..=lines).contains(&problem.line), "{problem:?} in {text:?}");
                }
                bad += 1;
            }
        }
    }
    assert!(good > 100 && bad > 10_000, "the mutations are too weak or too strong: {good}, {bad}");
}

#[test]
fn the_decoder_makes_its_own_schema() {
    let text_or_mapping = || {
        let short = parsed("a word", |text: &str| Ok(text.to_owned())).pattern("^[a-z]+$");
        let long = section(|long| long.read("word", text(1..=9)).required());
        either(short, long)
    };
    let decode = |root: &mut settings::Section<'_>| {
        let name = root.read("name", text_or_mapping().about("What it is called")).required();
        root.read("share", number(0.5..=1.0)).optional();
        root.read("count", number(1..=9u8)).optional();
        root.read("stay", duration(Duration::from_secs(1)..=HOUR)).optional();
        root.section("inner", |inner| inner.read("loud", boolean()).or(false));
        root.exactly_one(&["count", "share"], "write `count: 1`");
        root.at_most_one(&["stay", "inner"]);
        name
    };
    let expected = serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "x",
        "type": "object",
        "additionalProperties": false,
        "required": ["name"],
        "allOf": [
            { "oneOf": [{ "required": ["count"] }, { "required": ["share"] }] },
            { "not": { "required": ["stay", "inner"] } },
        ],
        "properties": {
            "name": {
                "description": "What it is called",
                "anyOf": [
                    { "type": "string", "pattern": "^[a-z]+$", "description": "a word" },
                    {
                        "type": "object",
                        "additionalProperties": false,
                        "required": ["word"],
                        "properties": { "word": {
                            "type": ["string", "number"], "minLength": 1, "maxLength": 9
                        } },
                    },
                ],
            },
            "share": { "type": "number", "minimum": 0.5, "maximum": 1 },
            "count": { "type": "integer", "minimum": 1, "maximum": 9 },
            "stay": {
                "type": "string",
                "pattern": r"^\s*([0-9.]+(ms|us|h|m|s|d))+\s*$",
                "description": "a duration from 1s to 1h, such as 60s, 1m30s or 500ms",
            },
            "inner": {
                "type": ["object", "null"],
                "additionalProperties": false,
                "properties": { "loud": { "type": "boolean" } },
            },
        },
    });
    assert_eq!(settings::schema("x", decode), expected);
    let read = |text: &str| settings::read(text, "x", decode).map_err(|wrong| wrong.to_string());
    assert_eq!(read("name: ada\ncount: 1"), Ok("ada".to_owned()));
    assert_eq!(read("name: { word: ada }\nshare: 0.5"), Ok("ada".to_owned()));
    for (text, told) in [
        ("name: ada", "x:1:1 count: the key is missing; write `count: 1`"),
        ("name: ada\ncount: 1\nshare: 1", "x:3:8 share: both count and share are given; keep one"),
        ("name: ada\ncount: 1\nstay: 1s\ninner: {}", "both stay and inner are given"),
    ] {
        let problems = read(text).expect_err(text);
        assert!(problems.contains(told), "{problems}");
    }
}
