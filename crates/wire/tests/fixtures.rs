//! Every example of the contract decodes, and encodes to the same JSON again.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use wire::console::Quality;
use wire::frame::{
    Authenticated, Handshake, HandshakeAnswer, KickOut, Publish, Request, Response, SetAuthToken,
};
use wire::{EventEnvelope, QualitySample, RoomError, room};

const FIXTURES: &str = include_str!("../fixtures/messages.json");

fn same<T: DeserializeOwned + Serialize>(name: &str, value: &Value) {
    let decoded: T = serde_json::from_value(value.clone())
        .unwrap_or_else(|error| panic!("fixture {name} does not decode: {error}"));
    assert_eq!(&serde_json::to_value(decoded).unwrap(), value, "fixture {name} changed");
}

#[test]
fn every_fixture_decodes_and_encodes_to_itself() {
    let all: serde_json::Map<String, Value> = serde_json::from_str(FIXTURES).unwrap();
    for (name, value) in &all {
        match name.as_str() {
            "handshake" => same::<Request<Handshake>>(name, value),
            "handshake_answer" => same::<Response<HandshakeAnswer, Value>>(name, value),
            "join" | "join_preset" => same::<Request<room::Join>>(name, value),
            "joined" => same::<Response<room::Joined, RoomError>>(name, value),
            "join_refused" | "join_locked" => same::<Response<Value, RoomError>>(name, value),
            "offer" => same::<Request<room::Offer>>(name, value),
            "answer" => same::<Response<room::Answer, RoomError>>(name, value),
            "slots_want" | "slots_shown" => same::<Request<room::Slots>>(name, value),
            "mute" => same::<Request<room::Mute>>(name, value),
            "announce" => same::<Request<room::Announce>>(name, value),
            "announced" => same::<Response<room::Announced, RoomError>>(name, value),
            "peer_offer" | "peer_answer" => same::<Request<room::PeerDescription>>(name, value),
            "peer_candidate" => same::<Request<room::PeerCandidate>>(name, value),
            "remove" | "remove_lifted" => same::<Request<room::Remove>>(name, value),
            "lock" => same::<Request<room::Lock>>(name, value),
            "limit" => same::<Request<room::Limit>>(name, value),
            "hand" => same::<Request<room::Hand>>(name, value),
            "people" | "people_first" => same::<Request<room::People>>(name, value),
            "people_page" => same::<Response<room::PeoplePage, RoomError>>(name, value),
            "kick_out" => same::<Request<KickOut>>(name, value),
            "authenticate" => same::<Request<String>>(name, value),
            "authenticated" => same::<Response<Authenticated, Value>>(name, value),
            "set_auth_token" => same::<Request<SetAuthToken>>(name, value),
            "quality" => same::<Quality>(name, value),
            "leave" | "ping" => same::<Request<Value>>(name, value),
            "resume" => same::<Request<room::Resume>>(name, value),
            "resumed" => same::<Response<room::Resumed, RoomError>>(name, value),
            "pong" => same::<Response<room::Pong, RoomError>>(name, value),
            "quality_sample" => same::<Request<QualitySample>>(name, value),
            event if event.starts_with("event_") => {
                same::<Request<Publish<EventEnvelope>>>(name, value);
            }
            other => panic!("fixture {other} has no type here: add it"),
        }
    }
    let events = all.keys().filter(|name| name.starts_with("event_")).count();
    assert_eq!(events, 24, "one fixture an event");
}

/// The strings in a value, each replaced in turn by one that no request may have.
fn overlong(value: &Value) -> Vec<(String, Value)> {
    let within = |part: &Value, path: &str, put: &dyn Fn(Value) -> Value| -> Vec<(String, Value)> {
        let inner = overlong(part).into_iter();
        inner.map(|(rest, part)| (format!("{path}{rest}"), put(part))).collect()
    };
    match value {
        Value::String(_) => vec![(String::new(), Value::from("x".repeat(300 << 10)))],
        Value::Array(parts) => {
            let each = parts.iter().enumerate().flat_map(|(index, part)| {
                within(part, &format!("[{index}]"), &|part| {
                    let mut whole = parts.clone();
                    whole[index] = part;
                    Value::Array(whole)
                })
            });
            each.collect()
        }
        Value::Object(parts) => {
            let each = parts.iter().flat_map(|(key, part)| {
                within(part, &format!(".{key}"), &|part| {
                    let mut whole = parts.clone();
                    whole[key] = part;
                    Value::Object(whole)
                })
            });
            each.collect()
        }
        _ => Vec::new(),
    }
}

fn refused<T: DeserializeOwned>(name: &str, value: &Value) -> usize {
    let cases = overlong(&value["data"]);
    for (path, case) in &cases {
        let decoded = serde_json::from_value::<T>(case.clone());
        assert!(decoded.is_err(), "{name}{path} takes 300 KiB");
    }
    cases.len()
}

#[test]
fn every_string_of_every_request_has_a_bound() {
    let all: serde_json::Map<String, Value> = serde_json::from_str(FIXTURES).unwrap();
    let mut strings = 0;
    for (name, value) in all.iter().filter(|(_, value)| value.get("event").is_some()) {
        strings += match name.as_str() {
            "handshake" => refused::<Handshake>(name, value),
            "join" | "join_preset" => refused::<room::Join>(name, value),
            "offer" => refused::<room::Offer>(name, value),
            "slots_want" | "slots_shown" => refused::<room::Slots>(name, value),
            "mute" => refused::<room::Mute>(name, value),
            "announce" => refused::<room::Announce>(name, value),
            "peer_offer" | "peer_answer" => refused::<room::PeerDescription>(name, value),
            "peer_candidate" => refused::<room::PeerCandidate>(name, value),
            "remove" | "remove_lifted" => refused::<room::Remove>(name, value),
            "lock" => refused::<room::Lock>(name, value),
            "limit" => refused::<room::Limit>(name, value),
            "hand" => refused::<room::Hand>(name, value),
            "people" | "people_first" => refused::<room::People>(name, value),
            "resume" => refused::<room::Resume>(name, value),
            "quality_sample" => refused::<QualitySample>(name, value),
            // Said by the server alone; a token is bounded where it is looked at; no strings are read of these.
            "kick_out" | "set_auth_token" | "authenticate" | "leave" | "ping" => 0,
            event if event.starts_with("event_") => 0,
            other => panic!("request {other} has no type here: add it"),
        };
    }
    assert!(strings > 25, "only {strings} strings were found");
}

#[test]
fn a_string_at_its_bound_is_taken_and_the_answer_says_what_is_wrong_with_a_longer_one() {
    let join = |session: usize| {
        let session = "s".repeat(session);
        let value = serde_json::json!({ "room": "r", "name": "n", "session": session });
        serde_json::from_value::<room::Join>(value)
    };
    assert!(join(wire::bound::SESSION_BYTES).is_ok());
    let told = join(wire::bound::SESSION_BYTES + 1).unwrap_err().to_string();
    assert!(told.contains("a string of 129 bytes, at most 128 are taken"), "{told}");
}

#[test]
fn every_call_has_a_cost() {
    let source = include_str!("../src/room.rs");
    let calls = source.lines().filter_map(|line| {
        let (_, value) = line.strip_prefix("pub const ")?.split_once(": &str = \"")?;
        value.strip_suffix("\";")
    });
    let calls: Vec<&str> = calls.collect();
    assert!(calls.contains(&room::JOIN) && calls.contains(&room::PING), "{calls:?}");
    for call in &calls {
        assert!(room::COSTS.iter().any(|(name, _)| name == call), "{call} has no cost: add it");
    }
    assert_eq!(calls.len(), room::COSTS.len());
}
