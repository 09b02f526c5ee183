//! Seats and rooms that one address or one token takes: everybody else still finds some.

use super::{server_with_keys, token};
use crate::target::{Server, Socket};
use serde_json::json;
use wire::{ErrorCode, Event, RoomError};

/// Where the attack comes from; everybody else has another address.
const HOSTILE: [u8; 4] = [127, 0, 0, 66];
const HONEST: [u8; 4] = [127, 0, 0, 2];

fn join(socket: &mut Socket, room: &str, token: Option<&str>) -> Result<String, RoomError> {
    let join = json!({ "room": room, "name": "x", "session": "s", "token": token });
    let joined = socket.call_patiently("room.join", &join)?;
    Ok(joined["participant"].as_str().unwrap().to_owned())
}

#[test]
fn one_address_opens_not_all_rooms() {
    let server = Server::with("");
    let mut sockets = Vec::new();
    let refused = loop {
        let mut socket = Socket::connect_from(HOSTILE, &server);
        match join(&mut socket, &format!("room-{}", sockets.len()), None) {
            Ok(_) => sockets.push(socket),
            Err(error) => break error,
        }
        assert!(sockets.len() < 400, "one address opened {} of 1000 rooms", sockets.len());
    };
    assert_eq!(refused.code, ErrorCode::RoomFull, "{refused}");
    assert!(refused.message.contains("limits.rooms_per_address"), "{refused}");
    let mut honest = Socket::connect_from(HONEST, &server);
    join(&mut honest, "garden", None).unwrap();
    // What is given back can be taken again.
    sockets[0].ask("room.leave", json!({}));
    join(&mut Socket::connect_from(HOSTILE, &server), "another", None).unwrap();
}

#[test]
fn one_address_takes_a_full_room_and_not_the_server() {
    let server = Server::start("{ participants_per_room: 20, seats_per_address: 20 }");
    let take = |from, room: &str| {
        let mut socket = Socket::connect_from(from, &server);
        join(&mut socket, room, None).map(|_| socket)
    };
    let class: Vec<_> = (0..20).map(|_| take(HOSTILE, "class").unwrap()).collect();
    let refused = take(HOSTILE, "other").map(drop).unwrap_err();
    assert_eq!(refused.code, ErrorCode::RoomFull, "{refused}");
    assert!(refused.message.contains("limits.seats_per_address"), "{refused}");
    take(HONEST, "other").unwrap();
    drop(class);
}

#[test]
fn one_token_takes_one_seat_of_a_room_and_the_older_session_stays_out() {
    let server = server_with_keys();
    let mal = token("mal", json!({}), 600);
    let mut last: Option<(Socket, String)> = None;
    for _ in 0..20 {
        let mut socket = Socket::connect_from(HOSTILE, &server);
        let participant = join(&mut socket, "class", Some(&mal)).unwrap();
        assert_eq!(server.metric("moim_participants"), 1.0);
        let Some((mut older, gone)) = last.replace((socket, participant)) else { continue };
        let ended = |event: &Event| matches!(event, Event::RoomEnded { .. });
        assert!(older.events().iter().any(ended), "the older session is told");
        let resume = json!({ "room": "class", "participant": gone, "session": "s", "seen": 0 });
        let error = older.call_patiently("room.resume", &resume).unwrap_err();
        assert_eq!(error.code, ErrorCode::Replaced, "{error}");
    }
    // As many as the settings allow.
    let keys = format!("keys: {{ ours: \"{}\" }}\n", super::SECRET);
    let server = Server::with(&format!("{keys}limits: {{ sessions_per_identity: 3 }}\n"));
    let sockets: Vec<Socket> = (0..5)
        .map(|_| {
            let mut socket = Socket::connect_from(HOSTILE, &server);
            join(&mut socket, "class", Some(&mal)).unwrap();
            socket
        })
        .collect();
    assert_eq!(server.metric("moim_participants"), 3.0);
    drop(sockets);
}
