//! Every seat has a live socket or a deadline: no socket fills rooms with ghosts.

use crate::target::{Server, Socket, eventually};
use serde_json::{Value, json};
use wire::ErrorCode;
use wire::frame::close::NO_PONG;

fn join(socket: &mut Socket, room: &str) -> String {
    let joined =
        socket.ask("room.join", json!({ "room": room, "name": "ghost", "session": "hostile" }));
    joined["participant"].as_str().unwrap().to_owned()
}

#[test]
fn a_socket_that_has_a_seat_cannot_resume_another_and_leave_ghosts() {
    let server = Server::start("{ rooms: 50 }");
    for round in 0..40 {
        let mut anchor = Socket::connect(&server);
        let held = join(&mut anchor, "anchor");
        let mut socket = Socket::connect(&server);
        join(&mut socket, &format!("ghost-{round}"));
        let resume =
            json!({ "room": "anchor", "participant": held, "session": "hostile", "seen": 0 });
        let error = socket.call("room.resume", resume.clone()).unwrap_err();
        assert_eq!(error.code, ErrorCode::BadRequest, "{error}");
        assert!(error.message.contains("room.leave"), "{error}");
        // The seat is still the socket's own: it can leave it, and its room ends.
        socket.ask("room.leave", json!({}));
        // Without a seat it may take up the lost one.
        socket.ask("room.resume", resume);
        socket.ask("room.leave", json!({}));
        assert_eq!(anchor.packet(), Err(NO_PONG), "the other socket took the seat");
    }
    // What is over leaves nothing over, and rooms are there for others.
    eventually("all rooms to be over", || (server.metric("moim_rooms") == 0.0).then_some(()));
    assert_eq!(server.metric("moim_participants"), 0.0);
    let mut others: Vec<Socket> = (0..50).map(|_| Socket::connect(&server)).collect();
    for (at, socket) in others.iter_mut().enumerate() {
        join(socket, &format!("room-{at}"));
    }
}

#[test]
fn many_joins_and_resumes_in_one_frame_take_one_seat() {
    let server = Server::start("{}");
    let mut socket = Socket::connect(&server);
    let packet = |cid: u64| {
        let (event, data) = match cid % 2 {
            0 => ("room.join", json!({ "room": format!("r{cid}"), "name": "x", "session": "s" })),
            _ => (
                "room.resume",
                json!({ "room": "r2", "participant": "p-1", "session": "s",
                "seen": 0 }),
            ),
        };
        json!({ "event": event, "data": data, "cid": cid })
    };
    let frame: Vec<Value> = (2..42).map(packet).collect();
    socket.send(&json!(frame).to_string());
    for _ in 2..42 {
        socket.packet().unwrap();
    }
    assert_eq!(server.metric("moim_participants"), 1.0);
    socket.ask("room.leave", json!({}));
    eventually("the room to be over", || (server.metric("moim_rooms") == 0.0).then_some(()));
}
