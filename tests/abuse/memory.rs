//! What can be made to be held without rights is bounded.

use super::offers::sdp;
use super::{server_with_keys, token};
use crate::target::{Server, Socket, Wire, eventually};
use serde_json::json;
use std::io::{Read, Write};
use std::ops::Range;
use wire::frame::SOCKET_PATH;

const KEYS: &str = "keys: { ours: \"0123456789abcdef0123456789abcdef\" }\n";
/// Length of a message that never ends, and how much of it is sent.
const MESSAGE: usize = 1 << 20;
const SENT: usize = MESSAGE - 1000;

/// A WebSocket below any library: frames as they are written.
pub(super) struct Raw(pub(super) Box<dyn Wire>);

impl Raw {
    pub(super) fn connect(server: &Server) -> Self {
        Self::connect_as(server, [127, 0, 0, 1], None)
    }

    /// From an address of this machine, with a token.
    pub(super) fn connect_as(server: &Server, from: [u8; 4], token: Option<&str>) -> Self {
        Self::try_connect_as(server, from, token).expect("a WebSocket")
    }

    /// The same, where the server may refuse it.
    pub(super) fn try_connect_as(
        server: &Server,
        from: [u8; 4],
        token: Option<&str>,
    ) -> std::io::Result<Self> {
        let mut stream = server.wire_from(from)?;
        let head = format!(
            "GET {SOCKET_PATH} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            server.http
        );
        stream.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            answer.push(byte[0]);
        }
        if !answer.starts_with(b"HTTP/1.1 101") {
            return Err(std::io::Error::other(String::from_utf8_lossy(&answer).into_owned()));
        }
        let mut raw = Self(stream);
        let data = json!({ "authToken": token });
        let handshake = json!({ "event": "#handshake", "data": data, "cid": 1 });
        raw.write(&frame(1, handshake.to_string().as_bytes()))?;
        Ok(raw)
    }

    pub(super) fn write(&mut self, data: &[u8]) -> std::io::Result<()> {
        self.0.write_all(data)
    }

    /// Reads until the server closes the connection; the code and the reason of its close frame, if one came.
    pub(super) fn close_frame(&mut self) -> Option<(u16, String)> {
        self.0.tcp().set_nonblocking(false).unwrap();
        let mut came = Vec::new();
        // A reset ends it as well.
        let _ = self.0.read_to_end(&mut came);
        let mut rest = &came[..];
        while let [first, length, more @ ..] = rest {
            let (length, more) = match *length {
                126 => (usize::from(u16::from_be_bytes([more[0], more[1]])), &more[2..]),
                short => (usize::from(short), more),
            };
            if first & 15 == 8 {
                let code = u16::from_be_bytes([more[0], more[1]]);
                return Some((code, String::from_utf8_lossy(&more[2..length]).into_owned()));
            }
            rest = &more[length..];
        }
        None
    }

    /// Reads what the server said, and tells whether it has closed the connection.
    pub(super) fn is_closed(&mut self) -> bool {
        self.0.tcp().set_nonblocking(true).unwrap();
        let mut memory = [0; 4096];
        let closed = loop {
            match self.0.read(&mut memory) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
            }
        };
        self.0.tcp().set_nonblocking(false).unwrap();
        closed
    }
}

/// A masked frame; the mask is zero.
pub(super) fn frame(opcode: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = head(opcode, data.len());
    frame.extend(data);
    frame
}

pub(super) fn head(opcode: u8, length: usize) -> Vec<u8> {
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
    begin_as(server, count, [127, 0, 0, 1], None)
}

fn begin_as(server: &Server, count: usize, from: [u8; 4], token: Option<&str>) -> (Vec<Raw>, u64) {
    let before = server.resident_bytes();
    let mut message = head(1, MESSAGE);
    message.resize(message.len() + SENT, b' ');
    let sockets: Vec<Raw> = (0..count)
        .map(|_| {
            let mut socket = Raw::connect_as(server, from, token);
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
    let (mut sockets, grown) = begin(&server, 30);
    let (code, reason) = sockets[0].close_frame().expect("a close frame, not a reset");
    assert!(code == 1009 && reason.contains("without a token"), "{code} {reason}");
    eventually("the end of sockets whose message is too long", || {
        sockets[1..].iter_mut().all(Raw::is_closed).then_some(())
    });
    assert_eq!(server.dropped("signaling", "unfinished_message"), 30);
    assert!(grown < 12 << 20, "30 sockets without a token hold {grown} bytes");

    // Guests may send offers: of theirs the sum is bounded.
    let server = Server::with("");
    let (sockets, grown) = begin(&server, 120);
    assert!(grown < 48 << 20, "120 guests hold {grown} bytes");
    refused(&server, 90..120);
    // An offer of somebody else has room all the same.
    long_offer(&mut Socket::connect(&server));
    drop(sockets);
}

/// Waits until so many sockets were refused since their message takes too much.
fn refused(server: &Server, range: Range<u64>) {
    let count = || server.dropped("signaling", "unfinished_message");
    eventually("refusals", || (count() >= range.start).then_some(()));
    assert!(range.contains(&count()), "{} were refused", count());
}

/// An offer that is longer than what everybody may send.
fn long_offer(socket: &mut Socket) {
    let answer = socket.call("room.offer", json!({ "sdp": "v".repeat(150 << 10), "tracks": [] }));
    assert_eq!(answer.unwrap_err().code.as_str(), "not_joined", "it was read whole");
}

#[test]
fn many_sockets_of_one_identity_leave_room_for_others_and_are_told_why_they_end() {
    let server = server_with_keys();
    let hostile = [127, 0, 0, 66];
    let mal = token("mal", json!({}), 600);
    let (mut sockets, grown) = begin_as(&server, 60, hostile, Some(&mal));
    assert!(grown < 32 << 20, "60 sockets of one identity hold {grown} bytes");
    refused(&server, 40..60);
    // Somebody behind the same address, and somebody elsewhere.
    for (from, identity) in [(hostile, "ann"), ([127, 0, 0, 2], "bob")] {
        let mut honest = Socket::connect_from(from, &server);
        honest.ask("#authenticate", json!(token(identity, json!({}), 600)));
        long_offer(&mut honest);
    }
    let (code, reason) = sockets[59].close_frame().expect("a close frame, not a reset");
    assert!(code == 1013 && reason.contains("unfinished messages"), "{code} {reason}");
}

#[test]
fn a_token_in_the_join_alone_allows_long_offers() {
    let server = server_with_keys();
    let mut socket = Socket::connect(&server);
    let join = json!({ "room": "r", "name": "Ann", "token": token("ann", json!({}), 600) });
    socket.ask("room.join", join);
    socket.ask("room.offer", json!({ "sdp": sdp(4, 4, 150_000), "tracks": [] }));
}

#[test]
fn a_message_under_way_goes_on_between_pings_of_an_honest_client() {
    // With TLS, each ping is a record of its own, which is longer than the ping.
    for server in [Server::with(KEYS), Server::with_tls(KEYS)] {
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
