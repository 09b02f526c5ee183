//! The schema in docs/ is that of the decoder, both know the same keys, and what people are shown as
//! an example is one.

use super::*;
use serde_json::Map;
use std::collections::BTreeSet;
use std::path::PathBuf;

const SHIPPED: &str = include_str!("../../../../../docs/scenario.schema.json");
const DOCS: &str = include_str!("../../../../../docs/lab.md");

/// Documents that say everything which a scenario may say.
const EVERYTHING: [&str; 3] = [
    "
name: all
serve: { shards: 2, keep_together: 1, cpus: [0, 1], quota_cores: 0.5, floor: true, fault: mixer_backlog=1s }
duration: 2m
rooms:
  - { preset: small_call, count: 2, audio: sfu, video: sfu, video_codec: vp8,
      people: { bot: 3, chromium: 1 }, senders: 2, loud: anyone }
  - { people: { bot: 5 }, churn: { stay: 5s },
      roles: [{ name: a, weight: 2, audio: true, video: false, speaks_pct: 40, in_turn: true,
               lacks: [rtx] }] }
  - { ramping: { stages: [{ duration: 1m30s, people: 3 }] } }
  - { arrival: { rate_per_second: 0.5, stay: 20s, max: 4 } }
  - { count: 9, people: { bot: 30 }, sizes: zipf }
  - { create: api, max_participants: 9, people: { bot: 2 } }
sockets:
  - { connections: 10, arrival_per_second: 5, rate_per_second: 1, batch_ms: 5, chromium: 1 }
media: { audio: speech, video: simulcast, transport: udp }
networks:
  - { name: mobile, share_pct: 30, delay: 80ms, jitter: 10ms, loss_pct: 2, burst_packets: 4,
      rate_kbps: 2000, queue: 300ms, way: both,
      changes: [{ at: 30s, delay: 80ms, jitter: 10ms, loss_pct: 2, burst_packets: 4,
                  rate_kbps: 2000, queue: 300ms, way: up }, { at: 40s, up: WAY, down: WAY }] }
  - { name: home, share_pct: 30, shared: true, up: WAY, down: WAY }
join: { per_second: 2.5 }
canary: { show: 2, jitter_buffer: 300ms, time_code: true, camera: 180p, frames_per_second: 15, window: 640x360 }
thresholds:
  loss_pct: [\"user_p95 < 1\", { threshold: \"max < 5\", from: 5s, abort_on_fail: true, delay_abort_eval: 10s }]
  rtt_ms: [{ threshold: \"p95<=300\", abortOnFail: false, delayAbortEval: 1s }]
events:
  - { at: 20s, bot: 3, do: stop_video }
  - { at: 30s, count: 2, do: leave }
  - { at: 40s, do: change_network, network: mobile, delay: 80ms, jitter: 10ms, loss_pct: 2,
      burst_packets: 4, rate_kbps: 2000, queue: 300ms, way: both }
  - { at: 50s, do: change_network, network: home, up: WAY, down: WAY }
",
    "
name: running
target: { adapter: moim, url: \"http://127.0.0.1:7880\", limit: { mbit_per_s: 1.5, packets_per_s: 100 } }
duration: 90s
rooms: [{ preset: mesh, people: { bot: 2 } }]
matrix: { transport: [udp], network: [free] }
",
    "
name: streams
target: { adapter: whip, url: \"http://127.0.0.1:8889\", publish: \"/{stream}/whip\", play: \"/{stream}/whep\" }
duration: 90s
rooms: [{ people: { bot: 2 } }]
",
];

/// What they say of a direction of a link.
const WAY: &str =
    "{ delay: 80ms, jitter: 10ms, loss_pct: 2, burst_packets: 4, rate_kbps: 2000, queue: 300ms }";

fn json(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).expect("YAML")
}

fn validator() -> jsonschema::Validator {
    jsonschema::validator_for(&Scenario::schema()).expect("a JSON Schema")
}

/// That both take it.
fn takes(validator: &jsonschema::Validator, yaml: &str, what: &str) {
    Scenario::parse(yaml, what).unwrap_or_else(|problems| panic!("{problems}"));
    let document = json(yaml);
    let wrong: Vec<String> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
}

/// The keys of each mapping of a schema, by its path; `[]` is an entry of a list.
fn keys_of_schema(schema: &Value, path: &str, into: &mut BTreeSet<(String, String)>) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        into.insert((path.to_owned(), key.clone()));
        keys_of_schema(inner, &format!("{path}.{key}"), into);
    }
    let list = [("[]", &schema["items"]), (".*", &schema["additionalProperties"])];
    for (step, inner) in list.into_iter().filter(|(_, inner)| inner.is_object()) {
        keys_of_schema(inner, &format!("{path}{step}"), into);
    }
    for inner in schema["anyOf"].as_array().into_iter().flatten() {
        keys_of_schema(inner, path, into);
    }
}

/// Each mapping of a document: its path as in a schema, and as a JSON pointer.
fn mappings(value: &Value, path: &str, pointer: &str, into: &mut Vec<(String, String)>) {
    match value {
        Value::Array(list) => (0..).zip(list).for_each(|(at, inner)| {
            mappings(inner, &format!("{path}[]"), &format!("{pointer}/{at}"), into);
        }),
        Value::Object(map) => {
            // The keys of `thresholds` are data.
            let any = path == ".thresholds";
            if !any {
                into.push((path.to_owned(), pointer.to_owned()));
            }
            for (key, inner) in map {
                let step = if any { "*" } else { key };
                mappings(inner, &format!("{path}.{step}"), &format!("{pointer}/{key}"), into);
            }
        }
        _ => {}
    }
}

#[test]
fn the_schema_in_the_repository_is_that_of_the_decoder() {
    let made = format!("{:#}\n", Scenario::schema());
    if made != SHIPPED {
        let path = std::env::temp_dir().join("scenario.schema.json");
        std::fs::write(&path, made).expect("a file for the schema");
        let path = path.display();
        panic!("docs/scenario.schema.json is not the decoder's: copy {path} (moim load --schema)");
    }
}

#[test]
fn schema_and_decoder_know_the_same_keys() {
    let validator = validator();
    let mut known = BTreeSet::new();
    keys_of_schema(&Scenario::schema(), "", &mut known);
    let mut said = BTreeSet::new();
    for yaml in EVERYTHING.map(|yaml| yaml.replace("WAY", WAY)) {
        takes(&validator, &yaml, "everything");
        let document = json(&yaml);
        let mut found = Vec::new();
        mappings(&document, "", "", &mut found);
        for (path, pointer) in found {
            let keys = document.pointer(&pointer).and_then(Value::as_object).expect("a mapping");
            said.extend(keys.keys().map(|key| (path.clone(), key.clone())));
            // The decoder lists the keys that it knows there.
            let mut wrong = document.clone();
            let mapping: &mut Map<String, Value> =
                wrong.pointer_mut(&pointer).and_then(Value::as_object_mut).expect("a mapping");
            mapping.insert("zzz".into(), 1.into());
            assert!(!validator.is_valid(&wrong), "{path}");
            let problems = problems(&wrong.to_string()).join("\n");
            let (_, valid) = problems.split_once("valid keys: ").expect("an unknown key");
            let valid = valid.lines().next().unwrap_or_default().split(", ").map(str::to_owned);
            let of_schema = known.iter().filter(|(of, _)| *of == path).map(|(_, key)| key.clone());
            let (valid, of_schema): (BTreeSet<_>, BTreeSet<_>) =
                (valid.collect(), of_schema.collect());
            assert_eq!(valid, of_schema, "the keys of {path:?}");
        }
    }
    let unsaid: Vec<_> = known.difference(&said).collect();
    assert!(unsaid.is_empty(), "no document says {unsaid:?}");
    assert!(said.is_subset(&known));
}

#[test]
fn examples_are_scenarios() {
    let validator = validator();
    let mut directories = vec![concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios").into()];
    let mut count = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir::<PathBuf>(directory).expect("scenarios") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a scenario");
            takes(&validator, &text, &path.display().to_string());
            count += 1;
        }
    }
    assert!(count >= 5);
    // Those in the documents leave out what they are not about.
    let blocks = DOCS.split("```yaml check\n").skip(1).map(|block| block.split("```").next());
    for block in blocks.clone().flatten() {
        let mut text = block.to_owned();
        for (key, line) in [
            ("name:", "name: x"),
            ("serve:", "serve: {}"),
            ("duration:", "duration: 10m"),
            ("rooms:", "rooms: [{ people: { bot: 20 } }]"),
        ] {
            let said =
                |of: &str| of.starts_with(key) || key == "serve:" && of.starts_with("target:");
            if !block.lines().any(said) {
                text = format!("{line}\n{text}");
            }
        }
        takes(&validator, &text, "docs/lab.md");
    }
    assert!(blocks.count() >= 3);
}

#[test]
fn both_refuse_what_is_wrong() {
    let validator = validator();
    let head = "name: x\nserve: {}\nduration: 60s\n";
    let rooms = "rooms: [{ people: { bot: 2 } }]\n";
    for (text, tail) in [
        ("serve: {}\nduration: 60s\n", rooms),
        ("name: x\nduration: 60s\n", rooms),
        ("name: x\nserve: {}\n", rooms),
        (head, ""),
        ("name: X\nserve: {}\nduration: 60s\n", rooms),
        ("name: x\nserve: {}\nduration: 60\n", rooms),
        ("name: x\nserve: {}\ntarget: { url: \"http://a\" }\nduration: 60s\n", rooms),
        ("name: x\ntarget: { url: \"https://a\" }\nduration: 60s\n", rooms),
        ("name: x\nserve: { shards: 0 }\nduration: 60s\n", rooms),
        ("name: x\nserve: { cpus: all }\nduration: 60s\n", rooms),
        (head, "rooms: []\n"),
        (head, "rooms: [{}]\n"),
        (head, "rooms: [{ people: { bots: 2 } }]\n"),
        (head, "rooms: [{ people: { bot: -2 } }]\n"),
        (head, "rooms: [{ people: { bot: 2 }, video: hologram }]\n"),
        (head, "rooms: [{ people: { bot: 2 }, senders: 1, roles: [{ name: a }] }]\n"),
        (head, "rooms: [{ people: { bot: 2 }, roles: [{ weight: 1 }] }]\n"),
        (head, "rooms: [{ people: { bot: 2 }, roles: [{ name: a, speaks_pct: 101 }] }]\n"),
        (head, "rooms: [{ ramping: { stages: [{ people: 1 }] } }]\n"),
        (head, "rooms: [{ churn: {}, arrival: { rate_per_second: 1, stay: 5s, max: 1 } }]\n"),
        (head, "rooms: [{ people: { bot: 2 } }]\nmedia: { transport: sctp }\n"),
        (head, "rooms: [{ people: { bot: 2 } }]\nthresholds: { los_pct: [\"max < 1\"] }\n"),
        (head, "rooms: [{ people: { bot: 2 } }]\nthresholds: { loss_pct: [\"p90 < 1\"] }\n"),
        (
            head,
            "rooms: [{ people: { bot: 2 } }]\nthresholds: { loss_pct: [{ abort_on_fail: true }] }\n",
        ),
        (head, "rooms: [{ people: { bot: 2 } }]\nevents: [{ at: 5s }]\n"),
        (head, "rooms: [{ people: { bot: 2 } }]\nevents: [{ at: soon, do: stop_server }]\n"),
        (head, "rooms: [{ people: { bot: 2 } }]\nnetworks: [{ loss_pct: 101 }]\n"),
    ] {
        let text = format!("{text}{tail}");
        assert!(Scenario::parse(&text, "x").is_err(), "the decoder takes {text}");
        assert!(!validator.is_valid(&json(&text)), "the schema takes {text}");
    }
}
