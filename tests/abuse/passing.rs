//! What a member of a mesh has passed on to another costs the sender, not the receiver.

use crate::target::{Server, Socket};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpSocket;
use wire::{ErrorCode, Event};

/// A description that is as long as one may be.
const LONG: usize = 150_000;

/// A socket over a connection that takes little while nobody reads it.
fn slow(server: &Server) -> Socket {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        socket.connect(server.http).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(crate::target::PATIENCE)).unwrap();
    Socket::over(server.secure(stream), server)
}

#[test]
fn a_member_of_a_mesh_who_floods_another_is_refused_and_the_other_stays() {
    let server = Server::start("{ outbox_bytes: 512KiB }");
    let join = |name: &str| json!({ "room": "mesh", "name": name, "preset": "mesh" });
    let (mut victim, mut hostile) = (slow(&server), Socket::connect(&server));
    let to = victim.ask("room.join", join("victim"))["participant"].clone();
    hostile.ask("room.join", join("hostile"));
    let sdp = "v=0\r\n".to_owned() + &"a".repeat(LONG);
    let mut passed = 0;
    for _ in 0..40 {
        match hostile.call("room.peer_offer", json!({ "to": to, "sdp": sdp })) {
            Ok(_) => passed += 1,
            Err(error) => assert_eq!(error.code, ErrorCode::TooFast, "{error}"),
        }
        // The connection itself takes some; the rest waits in the outbox.
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("{passed} of 40 offers were passed on");
    assert_eq!(server.dropped("signaling", "slow_consumer"), 0, "the victim was closed");
    assert!((1..=4).contains(&passed), "{passed} of 40 were passed on");
    let offers = victim.events();
    let offers = offers.iter().filter(|event| matches!(event, Event::PeerOffer { .. })).count();
    assert_eq!(offers, passed, "what was passed on arrives");
    // Once the victim has read, another member gets through.
    let mut honest = Socket::connect(&server);
    honest.ask("room.join", join("honest"));
    honest.ask("room.peer_offer", json!({ "to": to, "sdp": "v=0\r\n" }));
    let heard = victim.events();
    assert!(heard.iter().any(|event| matches!(event, Event::PeerOffer { .. })), "{heard:?}");
}
