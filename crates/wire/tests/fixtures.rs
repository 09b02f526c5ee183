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
            "slots_want" => same::<Request<room::Slots>>(name, value),
            "mute" => same::<Request<room::Mute>>(name, value),
            "announce" => same::<Request<room::Announce>>(name, value),
            "announced" => same::<Response<room::Announced, RoomError>>(name, value),
            "peer_offer" | "peer_answer" => same::<Request<room::PeerDescription>>(name, value),
            "peer_candidate" => same::<Request<room::PeerCandidate>>(name, value),
            "remove" | "remove_lifted" => same::<Request<room::Remove>>(name, value),
            "lock" => same::<Request<room::Lock>>(name, value),
            "limit" => same::<Request<room::Limit>>(name, value),
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
    assert_eq!(events, 18, "one fixture an event");
}
