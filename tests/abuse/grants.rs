//! What a token does not grant does not pass, by whatever way.

use super::{server_with_keys, token, unix_s};
use crate::peer::Peer;
use crate::target::{Server, Socket, eventually};
use serde_json::{Value, json};
use wire::{ErrorCode, Event};

fn join(server: &Server, preset: &str, token: &str) -> (Socket, String) {
    let mut socket = Socket::connect(server);
    let join = json!({ "room": preset, "name": "x", "token": token, "preset": preset });
    let joined = socket.ask("room.join", join);
    (socket, joined["participant"].as_str().unwrap().to_owned())
}

#[test]
fn a_mesh_passes_nothing_of_people_who_may_neither_send_nor_receive() {
    let server = server_with_keys();
    let (mut victim, to) = join(&server, "mesh", &token("victim", json!({}), 600));
    let none = json!({ "canPublish": false, "canSubscribe": false });
    let (mut watcher, _) = join(&server, "mesh", &token("watcher", none, 600));
    let description = json!({ "to": to, "sdp": "v=0\r\n" });
    let candidate = json!({ "to": to, "candidate": "candidate:1 1 udp 1 127.0.0.1 9 typ host" });
    for (event, data) in [
        ("room.peer_offer", &description),
        ("room.peer_answer", &description),
        ("room.peer_candidate", &candidate),
    ] {
        let error = watcher.call(event, data.clone()).unwrap_err();
        assert_eq!(error.code, ErrorCode::NotAllowed, "{event}: {error}");
    }
    let passed = |event: &Event| {
        matches!(
            event,
            Event::PeerOffer { .. } | Event::PeerAnswer { .. } | Event::PeerCandidate { .. }
        )
    };
    assert!(!victim.events().iter().any(passed));
}

#[test]
fn a_picture_that_calls_itself_microphone_is_refused() {
    let server = server_with_keys();
    let only = || token("ada", json!({ "canPublishSources": ["microphone"] }), 600);
    let (mut socket, _) = join(&server, "mesh", &only());
    let tracks = json!([{ "mid": "v", "kind": "video", "name": "microphone" }]);
    let error = socket.call("room.announce", json!({ "tracks": tracks })).unwrap_err();
    assert_eq!(error.code, ErrorCode::NotAllowed, "announced: {error}");
    let (_peer, offered) = Peer::offering("ada", 1);
    let line = |kind: &str, mid: &str| json!({ "mid": mid, "kind": kind, "name": "microphone" });
    let [audio, video] = [&offered.tracks[0].mid, &offered.tracks[1].mid];
    for (tracks, code) in [
        (json!([line("video", video)]), Some(ErrorCode::NotAllowed)),
        // The kind is the line's, whatever is said of it.
        (json!([line("audio", video)]), Some(ErrorCode::BadSdp)),
        (json!([line("audio", audio)]), None),
    ] {
        let (mut socket, _) = join(&server, "small_call", &only());
        let offer = json!({ "sdp": offered.sdp, "tracks": tracks });
        let outcome = socket.call("room.offer", offer).err().map(|error| error.code);
        assert_eq!(outcome, code, "{tracks}");
    }
}

#[test]
fn a_moderators_rights_end_with_the_token_and_come_back_with_a_fresh_one() {
    let server = server_with_keys();
    let ends = unix_s() + 2;
    let (mut moderator, _) = join(&server, "mesh", &token("root", json!({ "roomAdmin": true }), 2));
    let lock = |locked: bool| json!({ "locked": locked });
    moderator.ask("room.lock", lock(true));
    moderator.ask("room.lock", lock(false));
    eventually("the token's end", || (unix_s() > ends).then_some(()));
    for (event, data) in [
        ("room.lock", lock(true)),
        ("room.limit", json!({ "max_participants": 2 })),
        ("room.remove", json!({ "participant": "p-1" })),
    ] {
        let error = moderator.call(event, data).unwrap_err();
        assert_eq!(error.code, ErrorCode::NotAllowed, "{event}: {error}");
        assert!(error.message.contains("expired"), "{event}: {error}");
    }
    let announce = |mid: &str| json!({ "tracks": [{ "mid": mid, "kind": "audio" }] });
    let error = moderator.call("room.announce", announce("a")).unwrap_err();
    assert_eq!(error.code, ErrorCode::BadToken, "{error}");
    // Somebody else's token does not count for this seat; a fresh one of the same identity does.
    let other = token("other", json!({ "roomAdmin": true }), 600);
    moderator.ask("#authenticate", Value::from(other));
    assert_eq!(moderator.call("room.lock", lock(true)).unwrap_err().code, ErrorCode::NotAllowed);
    let fresh = token("root", json!({ "roomAdmin": true }), 600);
    moderator.ask("#authenticate", Value::from(fresh));
    moderator.ask("room.lock", lock(true));
    moderator.ask("room.announce", announce("a"));
}

#[test]
fn a_token_for_one_room_makes_and_ends_no_other() {
    let server = server_with_keys();
    let ask = |method: &str, path: &str, body: &Value, video: Value| {
        let token = token("app", video, 600);
        let headers =
            format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
        server.request(method, server.http, path, &headers, &body.to_string()).0
    };
    let makes = || json!({ "roomCreate": true, "room": "garden" });
    let any = || json!({ "roomCreate": true });
    let (garden, cellar) = (json!({ "id": "garden" }), json!({ "id": "cellar" }));
    for (method, path, body, video, status) in [
        ("POST", "/v1/rooms", &garden, makes(), 201),
        ("POST", "/v1/rooms", &cellar, makes(), 403),
        ("POST", "/v1/rooms", &json!({}), makes(), 403),
        ("POST", "/v1/rooms", &cellar, any(), 201),
        ("DELETE", "/v1/rooms/cellar", &Value::Null, makes(), 403),
        ("DELETE", "/v1/rooms/garden", &Value::Null, makes(), 204),
        ("PATCH", "/v1/rooms/cellar", &json!({ "locked": true }), any(), 403),
        // A participant's token may open a room by joining, and make none ahead.
        ("POST", "/v1/rooms", &garden, json!({}), 403),
    ] {
        let said = video.to_string();
        assert_eq!(ask(method, path, body, video), status, "{method} {path} {body} by {said}");
    }
}
