//! Rooms that an application's own server makes, watches and moderates by HTTP, with participants in them.

use crate::target::{Server, Socket, eventually};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use wire::event::LeaveReason;
use wire::{ErrorCode, Event};

/// A server where whoever asks may do everything. Who may do what otherwise is in `abuse/matrix.rs`.
fn server() -> Server {
    Server::with("guests: all\nlimits: { participants_per_room: 50, rooms: 4 }\n")
}

/// Status, head and body of an answer.
fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (u16, String, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let headers = "Content-Type: application/json\r\n";
    let (status, head, answer) = server.request(method, server.http, path, headers, &text);
    (status, head.to_ascii_lowercase(), serde_json::from_str(&answer).unwrap_or(Value::Null))
}

/// The body of an answer that is as it should be.
fn done(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let (status, _, answer) = ask(server, method, path, body);
    assert!((200..300).contains(&status), "{method} {path} {body}: {status} {answer}");
    answer
}

fn join(server: &Server, room: &str, session: &str) -> (Socket, Result<Value, ErrorCode>) {
    let mut socket = Socket::connect(server);
    let joined =
        socket.call("room.join", json!({ "room": room, "name": session, "session": session }));
    (socket, joined.map_err(|error| error.code))
}

/// Joins, and has a track of sound; the participant and the track.
fn talk(server: &Server, room: &str, session: &str) -> (Socket, String, String) {
    let (mut socket, joined) = join(server, room, session);
    let participant = joined.unwrap()["participant"].as_str().unwrap().to_owned();
    let tracks = json!({ "tracks": [{ "mid": "a", "kind": "audio" }] });
    let announced = socket.ask("room.announce", tracks);
    let track = announced["tracks"][0]["id"].as_str().unwrap().to_owned();
    (socket, participant, track)
}

fn ended(socket: &mut Socket) -> Option<String> {
    socket.events().into_iter().find_map(|event| match event {
        Event::RoomEnded { reason } => Some(reason),
        _ => None,
    })
}

#[test]
fn a_room_is_made_before_anyone_comes_and_is_as_it_was_asked_for() {
    let server = server();
    let wanted =
        json!({ "id": "class", "preset": "small_room_for_video", "metadata": { "of": "Ada" } });
    let (status, head, made) = ask(&server, "POST", "/v1/rooms", &wanted);
    assert_eq!(status, 201, "{made}");
    assert!(head.contains("location: /v1/rooms/class\r\n"), "{head}");
    assert_eq!((&made["audio"], &made["video"]), (&json!("sfu"), &json!("sfu")));
    assert_eq!(made["limits"]["max_participants"], 6);
    assert_eq!((&made["people"], &made["metadata"]["of"]), (&json!(0), &json!("Ada")));
    assert_eq!(done(&server, "GET", "/v1/rooms/class", &Value::Null), made);
    assert_eq!(ask(&server, "POST", "/v1/rooms", &wanted).2["code"], "room_exists");
    let seats: Vec<_> = (0..7).map(|n| join(&server, "class", &n.to_string())).collect();
    assert!(seats[..6].iter().all(|(_, joined)| joined.is_ok()));
    assert_eq!(seats[6].1, Err(ErrorCode::RoomFull));
    // The same preset opens the same room by joining.
    let large = json!({ "room": "hall", "name": "x", "preset": "large_room_for_audio_only" });
    let joined = Socket::connect(&server).ask("room.join", large);
    assert_eq!(joined["room"]["limits"]["max_participants"], 25);
    assert_eq!(joined["room"]["audio"], "mcu");
    // Without an id the server chooses one, and what is said beside a preset wins.
    let audio = json!({ "preset": "large_room_for_audio_only", "video": "sfu", "limits": { "max_participants": 40 } });
    let made = done(&server, "POST", "/v1/rooms", &audio);
    assert_eq!((&made["audio"], &made["video"]), (&json!("mcu"), &json!("sfu")));
    assert_eq!(made["limits"]["max_participants"], 40);
    let path = format!("/v1/rooms/{}", made["id"].as_str().unwrap());
    assert_eq!(done(&server, "GET", &path, &Value::Null)["people"], 0);
    let listed = done(&server, "GET", "/v1/rooms", &Value::Null);
    assert_eq!(listed["rooms"].as_array().unwrap().len(), 3);
    // What a participant may not ask of such a room.
    let (mut socket, _) = join(&server, "elsewhere", "x");
    socket.ask("room.leave", json!({}));
    let other = json!({ "room": made["id"], "name": "x", "audio": "sfu" });
    assert_eq!(socket.call("room.join", other).unwrap_err().code, ErrorCode::KindConflict);
}

#[test]
fn a_room_is_changed_and_moderated_from_outside() {
    let server = server();
    done(&server, "POST", "/v1/rooms", &json!({ "id": "hall", "preset": "mesh" }));
    let (mut ada, _, _) = talk(&server, "hall", "ada");
    let (mut min, gone, track) = talk(&server, "hall", "min");
    let page = done(&server, "GET", "/v1/rooms/hall/participants?limit=1", &Value::Null);
    assert_eq!((&page["count"], &page["participants"][0]["name"]), (&json!(2), &json!("ada")));
    let path = format!("/v1/rooms/hall/participants?after={}", page["next"].as_str().unwrap());
    let page = done(&server, "GET", &path, &Value::Null);
    assert_eq!((&page["participants"][0]["name"], &page["next"]), (&json!("min"), &Value::Null));
    // Silenced, for those who are there and for what comes later.
    done(&server, "PATCH", &format!("/v1/rooms/hall/tracks/{track}"), &json!({ "muted": true }));
    let silenced = |event: &Event| matches!(event, Event::TrackChanged { track: changed, .. } if changed.id == track && changed.muted);
    assert!(ada.events().iter().any(silenced));
    let unmute = json!({ "track": track, "muted": false });
    assert_eq!(min.call("room.mute", unmute).unwrap_err().code, ErrorCode::NotAllowed);
    done(&server, "PATCH", &format!("/v1/rooms/hall/tracks/{track}"), &json!({ "muted": false }));
    // Put out, and let in again.
    let out = format!("/v1/rooms/hall/participants/{gone}?reason=be%20kind");
    done(&server, "DELETE", &out, &Value::Null);
    assert_eq!(ended(&mut min).as_deref(), Some("be kind"));
    let removed = |event: &Event| matches!(event, Event::ParticipantLeft { reason, .. } if *reason == LeaveReason::Removed);
    assert!(ada.events().iter().any(removed));
    assert_eq!(join(&server, "hall", "min").1, Err(ErrorCode::NotAllowed));
    done(&server, "DELETE", &format!("/v1/rooms/hall/removals/{gone}"), &Value::Null);
    // Locked, with another limit: its people are told.
    let change = json!({ "locked": true, "limits": { "max_participants": 2 }, "metadata": [1] });
    let changed = done(&server, "PATCH", "/v1/rooms/hall", &change);
    assert_eq!((&changed["locked"], &changed["metadata"]), (&json!(true), &json!([1])));
    let told = |event: &Event| matches!(event, Event::RoomChanged { room } if room.locked && room.limits.max_participants == 2);
    assert!(ada.events().iter().any(told));
    assert_eq!(join(&server, "hall", "min").1, Err(ErrorCode::RoomLocked));
    let none = done(&server, "PATCH", "/v1/rooms/hall", &json!({ "metadata": null }));
    assert_eq!((none.get("metadata"), &none["locked"]), (None, &json!(true)));
    done(&server, "PATCH", "/v1/rooms/hall", &json!({ "metadata": [1] }));
    let changed = done(&server, "PATCH", "/v1/rooms/hall", &json!({ "locked": false }));
    assert_eq!(
        (&changed["limits"]["max_participants"], &changed["metadata"]),
        (&json!(2), &json!([1]))
    );
    let (_min, joined) = join(&server, "hall", "min");
    joined.unwrap();
    assert_eq!(join(&server, "hall", "zoe").1, Err(ErrorCode::RoomFull));
    // Ended: its people are told, and its id is free at once.
    done(&server, "DELETE", "/v1/rooms/hall?reason=late", &Value::Null);
    assert_eq!(ended(&mut ada).as_deref(), Some("late"));
    assert_eq!(ask(&server, "GET", "/v1/rooms/hall", &Value::Null).0, 404);
    assert_eq!(
        ada.call("room.hand", json!({ "raised": true })).unwrap_err().code,
        ErrorCode::NotJoined
    );
    done(&server, "POST", "/v1/rooms", &json!({ "id": "hall" }));
}

#[test]
fn the_lab_makes_rooms_before_its_bots_come() {
    let server = server();
    let directory = tempfile::tempdir().unwrap();
    let scenario = directory.path().join("made.yaml");
    let text = format!(
        "name: made\ntarget: {{ url: \"http://{}\" }}\nduration: 6s\nmedia: {{ video: none }}\n\
         rooms: [{{ preset: large_room_for_audio_only, create: api, max_participants: 3, people: {{ bot: 3 }} }}]\n",
        server.http
    );
    std::fs::write(&scenario, text).unwrap();
    let mut load = Command::new(env!("CARGO_BIN_EXE_moim"))
        .arg("load")
        .arg(&scenario)
        .arg("--runs")
        .arg(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let room = eventually("the room of the lab", || {
        let rooms = done(&server, "GET", "/v1/rooms", &Value::Null);
        rooms["rooms"].get(0).filter(|room| room["people"] == 3).cloned()
    });
    assert_eq!((&room["audio"], &room["video"]), (&json!("mcu"), &json!("none")));
    assert_eq!(room["limits"]["max_participants"], 3);
    assert!(load.wait().unwrap().success());
    eventually("the end of the room", || {
        let rooms = done(&server, "GET", "/v1/rooms", &Value::Null);
        rooms["rooms"].as_array().unwrap().is_empty().then_some(())
    });
}

#[test]
fn what_cannot_be_meant_is_a_problem_and_changes_nothing() {
    let server = server();
    done(&server, "POST", "/v1/rooms", &json!({ "id": "hall" }));
    let long = "x".repeat(4096);
    for (method, path, body, status, code) in [
        ("POST", "/v1/rooms", json!({ "id": "a/b" }), 400, "bad_request"),
        ("POST", "/v1/rooms", json!({ "id": "" }), 400, "bad_request"),
        ("POST", "/v1/rooms", json!({ "id": ".." }), 400, "bad_request"),
        ("POST", "/v1/rooms", json!({ "id": "x".repeat(65) }), 400, "bad_request"),
        ("POST", "/v1/rooms", json!({ "id": 7 }), 400, "bad_request"),
        ("POST", "/v1/rooms", json!({ "preset": "ballroom" }), 400, "bad_request"),
        ("POST", "/v1/rooms", json!({ "colour": "red" }), 400, "bad_request"),
        ("POST", "/v1/rooms", json!([]), 400, "bad_request"),
        ("POST", "/v1/rooms", Value::Null, 400, "bad_request"),
        ("POST", "/v1/rooms", json!({ "limits": { "max_participants": 0 } }), 400, "bad_request"),
        ("POST", "/v1/rooms", json!({ "limits": { "max_participants": 51 } }), 400, "bad_request"),
        ("POST", "/v1/rooms", json!({ "limits": { "people": 2 } }), 400, "bad_request"),
        ("POST", "/v1/rooms", json!({ "metadata": long }), 400, "bad_request"),
        ("POST", "/v1/rooms", json!({ "id": "hall" }), 409, "room_exists"),
        ("GET", "/v1/rooms/nowhere", Value::Null, 404, "unknown_room"),
        ("PUT", "/v1/rooms/hall", json!({}), 405, "method"),
        ("PATCH", "/v1/rooms/nowhere", json!({}), 404, "unknown_room"),
        ("PATCH", "/v1/rooms/hall", json!({ "locked": "yes" }), 400, "bad_request"),
        ("PATCH", "/v1/rooms/hall", json!({ "audio": "mcu" }), 400, "bad_request"),
        // All of a change, or nothing.
        (
            "PATCH",
            "/v1/rooms/hall",
            json!({ "locked": true, "limits": { "max_participants": 51 } }),
            400,
            "bad_request",
        ),
        ("DELETE", "/v1/rooms/nowhere", Value::Null, 404, "unknown_room"),
        ("GET", "/v1/rooms/nowhere/participants", Value::Null, 404, "unknown_room"),
        ("GET", "/v1/rooms/hall/participants?limit=0", Value::Null, 400, "bad_request"),
        ("GET", "/v1/rooms/hall/participants?limit=1000000", Value::Null, 400, "bad_request"),
        ("GET", "/v1/rooms/hall/participants?after=x", Value::Null, 400, "bad_request"),
        ("DELETE", "/v1/rooms/hall/participants/p-999", Value::Null, 404, "unknown_participant"),
        ("DELETE", "/v1/rooms/hall/participants/x", Value::Null, 404, "unknown_participant"),
        ("DELETE", "/v1/rooms/hall/removals/p-999", Value::Null, 404, "unknown_participant"),
        ("PATCH", "/v1/rooms/hall/tracks/x", json!({ "muted": true }), 404, "unknown_track"),
        ("PATCH", "/v1/rooms/hall/tracks/t-999", json!({ "muted": true }), 404, "unknown_track"),
        ("PATCH", "/v1/rooms/hall/tracks/t-999", json!({}), 400, "bad_request"),
    ] {
        let (came, head, answer) = ask(&server, method, path, &body);
        assert_eq!(
            (came, &answer["code"]),
            (status, &json!(code)),
            "{method} {path} {body}: {answer}"
        );
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        assert!(answer["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{answer}");
    }
    let hall = done(&server, "GET", "/v1/rooms/hall", &Value::Null);
    assert_eq!((&hall["locked"], &hall["limits"]["max_participants"]), (&Value::Null, &json!(50)));
    // Four rooms are all that this server has.
    (0..3).for_each(|_| _ = done(&server, "POST", "/v1/rooms", &json!({})));
    let (status, _, answer) = ask(&server, "POST", "/v1/rooms", &json!({}));
    assert_eq!((status, &answer["code"]), (503, &json!("room_full")), "{answer}");
}
