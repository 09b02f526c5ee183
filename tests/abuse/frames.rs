//! Cheap calls with costly answers: each kind of call has a budget.

use super::memory::{Raw, frame};
use crate::target::{Server, Socket, eventually};
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant};
use wire::Event;

const MUTES: usize = 900;
/// How long a flood of answers goes on, and what it may cost.
const FLOOD: Duration = Duration::from_secs(3);
const FLOOD_COST: Duration = Duration::from_millis(450);

#[test]
fn a_flood_of_mutes_reaches_the_others_as_a_few_events() {
    let server = Server::with("");
    let mut hostile = Socket::connect(&server);
    hostile.ask("room.join", json!({ "room": "r", "name": "Mal", "preset": "mesh" }));
    let tracks = json!({ "tracks": [{ "mid": "audio", "kind": "audio", "name": "microphone" }] });
    let track = hostile.ask("room.announce", tracks)["tracks"][0]["id"].clone();
    let mut listener = Socket::connect(&server);
    listener.ask("room.join", json!({ "room": "r", "name": "Ann" }));
    let begin = Instant::now();
    for count in 0..MUTES {
        let data = json!({ "track": track, "muted": count % 2 == 0 });
        hostile
            .send(&json!({ "event": "room.mute", "data": data, "cid": 1000 + count }).to_string());
    }
    let mut refused = 0;
    for _ in 0..MUTES {
        let answer = hostile.packet().expect("the socket stays open");
        refused += usize::from(answer["error"]["code"] == "too_fast");
    }
    let events = listener.events();
    let told = events.iter().filter(|event| matches!(event, Event::TrackChanged { .. })).count();
    eprintln!("{MUTES} mutes in {:?}: {told} events, {refused} refused", begin.elapsed());
    // 20 at once and 10 a second, and the machine may be slow.
    assert!((10..150).contains(&told), "{told} events");
    assert!(refused > MUTES / 2);
    // Afterwards it may mute again, and the others hear of it.
    hostile.call_patiently("room.mute", &json!({ "track": track, "muted": true })).unwrap();
}

#[test]
fn a_flood_of_answers_nobody_waits_for_costs_little() {
    let server = Server::with("");
    let mut flood = frame(1, br#"{"rid":1}"#).repeat(1000);
    let one_of_many = format!("[{}]", vec![r#"{"rid":1}"#; 1000].join(","));
    flood.extend(frame(1, one_of_many.as_bytes()));
    let mut hostile = Raw::connect(&server);
    hostile.0.tcp().set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let (before, begin) = (server.cpu(), Instant::now());
    let mut at = 0;
    while begin.elapsed() < FLOOD {
        // It does not fit where the server stopped reading.
        match hostile.0.write(&flood[at..]) {
            Ok(count) => at = (at + count) % flood.len(),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
        }
    }
    let cost = server.cpu().saturating_sub(before);
    eprintln!("a flood of {FLOOD:?} cost {cost:?} of CPU");
    assert!(cost < FLOOD_COST, "it cost {cost:?}");
    assert!(server.dropped("signaling", "too_fast") > 100);
    Socket::connect(&server).ask("ping", json!({}));
}

/// What a client sends stands in some lines of the log, and ends none.
#[test]
fn nothing_that_a_client_sends_begins_a_line_of_the_log() {
    let server = Server::start("{}");
    let forged = "x\n2026-01-01T00:00:00.000000Z  INFO forged";
    for event in [forged, &format!("#{forged}"), &format!("room.{forged}"), "room.join"] {
        let mut socket = Socket::connect(&server);
        let argument = json!({ "room": forged, "name": forged, "channel": forged });
        socket.call(event, argument).expect_err("it is refused");
    }
    eventually("the refusals", || (server.log().matches("refused").count() >= 4).then_some(()));
    let log = server.log();
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01")), "{log}");
}
