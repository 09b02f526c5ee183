//! A moderator's decision holds until a moderator lifts it.

use super::{server_with_keys, token};
use crate::peer::Peer;
use crate::target::{Server, Socket};
use serde_json::{Value, json};
use wire::room::{Joined, TrackInfo};
use wire::{ErrorCode, Event};

/// Joins the room `hall` with a token, as this session.
fn join(server: &Server, token: &str, session: &str, preset: &str) -> (Socket, Joined) {
    let mut socket = Socket::connect(server);
    let joined = socket.ask("room.join", asked(token, session, preset));
    (socket, serde_json::from_value(joined).unwrap())
}

fn asked(token: &str, session: &str, preset: &str) -> Value {
    json!({ "room": "hall", "name": session, "session": session, "token": token, "preset": preset })
}

/// Sends sound on this line; the id of the track.
fn announce(socket: &mut Socket, mid: &str, name: &str) -> String {
    let tracks = json!([{ "mid": mid, "kind": "audio", "name": name }]);
    let announced = socket.ask("room.announce", json!({ "tracks": tracks }));
    announced["tracks"][0]["id"].as_str().unwrap().to_owned()
}

/// The newest state of a track in what a socket was told.
fn told(watcher: &mut Socket, id: &str) -> TrackInfo {
    let states = watcher.events().into_iter().filter_map(|event| match event {
        Event::TrackAdded { track, .. } | Event::TrackChanged { track, .. } => Some(track),
        _ => None,
    });
    let mut newest = None;
    states.filter(|track| track.id == id).for_each(|track| newest = Some(track));
    newest.expect("the track is told")
}

#[test]
fn a_silenced_participant_stays_silent_on_new_lines_and_after_joining_again() {
    let server = server_with_keys();
    let admin = token("root", json!({ "roomAdmin": true }), 600);
    let (mut moderator, _) = join(&server, &admin, "root", "mesh");
    let loud = token("loud", json!({}), 600);
    let (mut socket, _) = join(&server, &loud, "first", "mesh");
    let track = announce(&mut socket, "a", "microphone");
    moderator.ask("room.mute", json!({ "track": track, "muted": true }));
    assert!(told(&mut moderator, &track).silenced);
    // The same line anew, another line, another name.
    for (mid, name) in [("b", "microphone"), ("a", "microphone"), ("c", "trumpet")] {
        let track = announce(&mut socket, mid, name);
        assert!(told(&mut moderator, &track).silenced, "line {mid}, {name}");
        let unmute = json!({ "track": track, "muted": false });
        assert_eq!(socket.call("room.mute", unmute).unwrap_err().code, ErrorCode::NotAllowed);
    }
    // Another session of the same identity.
    socket.ask("room.leave", json!({}));
    let (mut again, _) = join(&server, &loud, "second", "mesh");
    let track = announce(&mut again, "a", "microphone");
    assert!(told(&mut moderator, &track).silenced, "after joining again");
    // A moderator lifts it, and it stays lifted.
    moderator.ask("room.mute", json!({ "track": track, "muted": false }));
    assert!(!told(&mut moderator, &track).silenced);
    let track = announce(&mut again, "d", "microphone");
    assert!(!told(&mut moderator, &track).silenced, "lifted");
}

#[test]
fn silence_holds_for_forwarded_sound_that_is_offered_again() {
    let server = server_with_keys();
    let admin = token("root", json!({ "roomAdmin": true }), 600);
    let (mut moderator, _) = join(&server, &admin, "root", "small_call");
    let loud = token("loud", json!({}), 600);
    for round in 0..2 {
        let session = format!("page-{round}");
        let (mut socket, _) = join(&server, &loud, &session, "small_call");
        let (_peer, offered) = Peer::offering("loud", 1);
        let offer = json!({ "sdp": offered.sdp, "tracks": offered.tracks, "session": session });
        let answer = socket.ask("room.offer", offer);
        let id = answer["tracks"][0]["id"].as_str().unwrap().to_owned();
        if round == 0 {
            moderator.ask("room.mute", json!({ "track": id, "muted": true }));
        }
        assert!(told(&mut moderator, &id).silenced, "round {round}");
        socket.ask("room.leave", json!({}));
    }
}

#[test]
fn a_removed_participant_stays_out_until_a_moderator_lets_them_in() {
    let server = server_with_keys();
    let admin = token("root", json!({ "roomAdmin": true }), 600);
    let (mut moderator, _) = join(&server, &admin, "root", "mesh");
    let guest = token("guest", json!({}), 600);
    let (_socket, joined) = join(&server, &guest, "first", "mesh");
    moderator.ask("room.remove", json!({ "participant": joined.participant }));
    for session in ["first", "second"] {
        let mut socket = Socket::connect(&server);
        let error = socket.call("room.join", asked(&guest, session, "mesh")).unwrap_err();
        assert_eq!(error.code, ErrorCode::NotAllowed, "{error}");
        assert!(error.message.contains("moderator removed you"), "{error}");
    }
    // Others come in; who was never removed cannot be let in.
    let (mut other, other_joined) = join(&server, &token("other", json!({}), 600), "o", "mesh");
    let lift = |participant: &str| json!({ "participant": participant, "lift": true });
    let error = moderator.call("room.remove", lift(&other_joined.participant)).unwrap_err();
    assert_eq!(error.code, ErrorCode::UnknownParticipant);
    let error = other.call("room.remove", lift(&joined.participant)).unwrap_err();
    assert_eq!(error.code, ErrorCode::NotAllowed, "only moderators lift");
    moderator.ask("room.remove", lift(&joined.participant));
    join(&server, &guest, "third", "mesh");
}
