//! What can be made to be held without rights is bounded.

use crate::target::{Server, Socket, connect_from, eventually};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use wire::frame::SOCKET_PATH;

const KEYS: &str = "keys: { ours: \"0123456789abcdef0123456789abcdef\" }\n";
/// Length of a message that never ends, and how much of it is sent.
const MESSAGE: usize = 1 << 20;
const SENT: usize = MESSAGE - 1000;

/// A WebSocket below any library: frames as they are written.
pub(super) struct Raw(pub(super) TcpStream);

impl Raw {
    pub(super) fn connect(server: &Server) -> Self {
        let mut stream = connect_from([127, 0, 0, 1], server.http).unwrap();
        let head = format!(
            "GET {SOCKET_PATH} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            server.http
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
        let mut raw = Self(stream);
        raw.write(&frame(1, br##"{"event":"#handshake","data":{},"cid":1}"##)).unwrap();
        raw
    }

    pub(super) fn write(&mut self, data: &[u8]) -> std::io::Result<()> {
        self.0.write_all(data)
    }

    /// Reads what the server said, and tells whether it has closed the connection.
    fn is_closed(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let mut memory = [0; 4096];
        let closed = loop {
            match (&self.0).read(&mut memory) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
            }
        };
        self.0.set_nonblocking(false).unwrap();
        closed
    }
}

/// A masked frame; the mask is zero.
pub(super) fn frame(opcode: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = head(opcode, data.len());
    frame.extend(data);
    frame
}

fn head(opcode: u8, length: usize) -> Vec<u8> {
    let mut head = vec![0x80 | opcode];
    match length {
        0..126 => head.push(0x80 | length as u8),
        126..65536 => {
            head.push(0x80 | 126);
            head.extend((length as u16).to_be_bytes());
        }
        _ => {
            head.push(0x80 | 127);
            head.extend((length as u64).to_be_bytes());
        }
    }
    head.extend([0; 4]);
    head
}

/// Begins a message on each of `count` sockets; tells them and how much the server's memory grew.
fn begin(server: &Server, count: usize) -> (Vec<Raw>, u64) {
    let before = server.resident_bytes();
    let mut message = head(1, MESSAGE);
    message.resize(message.len() + SENT, b' ');
    let sockets: Vec<Raw> = (0..count)
        .map(|_| {
            let mut socket = Raw::connect(server);
            // Where the server closes it meanwhile, the rest cannot be sent.
            let _ = socket.write(&message);
            socket
        })
        .collect();
    // Whoever comes after them is served when theirs was read.
    Socket::connect(server).ask("ping", json!({}));
    let grown = server.resident_bytes().saturating_sub(before);
    eprintln!("{count} unfinished messages: {} KiB more", grown >> 10);
    (sockets, grown)
}

#[test]
fn a_socket_without_rights_holds_little_and_all_sockets_together_hold_a_bounded_amount() {
    let server = Server::with(KEYS);
    let (sockets, grown) = begin(&server, 30);
    eventually("the end of sockets whose message is too long", || {
        sockets.iter().all(Raw::is_closed).then_some(())
    });
    assert_eq!(server.dropped("signaling", "unfinished_message"), 30);
    assert!(grown < 12 << 20, "30 sockets without a token hold {grown} bytes");

    // Guests may send offers: of theirs the sum is bounded.
    let server = Server::with("");
    let (sockets, grown) = begin(&server, 120);
    assert!(grown < 112 << 20, "120 guests hold {grown} bytes");
    let closed = sockets.iter().filter(|socket| socket.is_closed()).count();
    assert!((20..=110).contains(&closed), "{closed} were closed");
    // An offer of somebody else has room all the same.
    let mut honest = Socket::connect(&server);
    let answer = honest.call("room.offer", json!({ "sdp": "v".repeat(150 << 10), "tracks": [] }));
    assert_eq!(answer.unwrap_err().code.as_str(), "not_joined", "it was read whole");
}

#[test]
fn a_message_under_way_goes_on_between_pings_of_an_honest_client() {
    let server = Server::with(KEYS);
    let mut socket = Raw::connect(&server);
    for _ in 0..2000 {
        socket.write(&frame(9, b"still here")).unwrap();
    }
    socket.write(&frame(1, br#"{"event":"ping","cid":2}"#)).unwrap();
    let mut heard = Vec::new();
    while !heard.windows(8).any(|part| part == br#"{"rid":2"#) {
        let mut memory = [0; 4096];
        let count = socket.0.read(&mut memory).unwrap();
        assert!(count > 0, "pings closed it");
        heard.extend_from_slice(&memory[..count]);
    }
}

#[test]
fn a_long_session_id_is_not_kept() {
    let server = Server::with("");
    let before = server.resident_bytes();
    let session = "s".repeat(240 << 10);
    // Their participants would be there for a minute more.
    for index in 0..300 {
        let mut socket = Socket::connect(&server);
        let join = json!({ "room": "r", "name": format!("n{index}"), "session": session });
        let error = socket.call("room.join", join).expect_err("nobody needs such an id");
        assert_eq!(error.code.as_str(), "bad_request", "{error}");
    }
    let grown = server.resident_bytes().saturating_sub(before);
    eprintln!("300 joins with long session ids: {} KiB more", grown >> 10);
    assert!(grown < 16 << 20, "300 joins hold {grown} bytes");
}
