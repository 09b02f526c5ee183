//! Bodies of requests: nobody without rights has any of theirs read, and those with rights hold a bounded amount.

use super::{SECRET, server_with_keys, unix_s};
use crate::target::{Server, Wire, eventually};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Connections of an attack, and requests that each begins in all.
const CONNECTIONS: usize = 10;
const REQUESTS: usize = 200;
/// So much of a body is sent, and never its end.
const SENT: usize = 200 << 10;
/// More memory than this may no attack take.
const MORE: u64 = 32 << 20;

/// A token of an identity that may call sockets and revoke tokens.
fn admin(identity: &str) -> String {
    let claims = json!({
        "iss": "ours", "sub": identity, "exp": unix_s() + 600, "sockets": { "admin": true },
    });
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
}

/// HTTP/2 without TLS, below any library (RFC 9113).
pub(super) struct Http2 {
    stream: Box<dyn Wire>,
    came: Vec<u8>,
    next: u32,
    /// What may still be sent: of all streams, and of each that is open.
    window: i64,
    open: BTreeMap<u32, Request>,
    answered: BTreeSet<u32>,
    /// What the server allows: streams at once, and bytes of each at first.
    streams: u32,
    initial: i64,
    pub(super) ended: bool,
}

#[derive(Debug)]
struct Request {
    window: i64,
    left: usize,
}

impl Http2 {
    pub(super) fn connect(server: &Server, from: [u8; 4]) -> Self {
        let mut stream = server.wire_from(from).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        stream.tcp().set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let (open, answered) = (BTreeMap::new(), BTreeSet::new());
        let mut client = Self {
            stream,
            came: Vec::new(),
            next: 1,
            window: 65_535,
            open,
            answered,
            streams: 100,
            initial: 65_535,
            ended: false,
        };
        client.frame(4, 0, 0, &[]);
        client
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.ended |= self.stream.write_all(&frame).is_err();
    }

    /// Begins a request whose body has more bytes than are ever sent.
    pub(super) fn begin(&mut self, path: &str, token: Option<&str>) {
        // POST and http of HPACK's table, then names of it with values as they are (RFC 7541).
        let mut head = vec![0x83, 0x86];
        literal(&mut head, &[0x04], path);
        literal(&mut head, &[0x01], "127.0.0.1");
        if let Some(token) = token {
            literal(&mut head, &[0x0f, 23 - 15], &format!("Bearer {token}"));
        }
        let stream = self.next;
        self.next += 2;
        self.frame(1, 4, stream, &head);
        self.open.insert(stream, Request { window: self.initial, left: SENT });
    }

    /// Sends what may be sent; false where nothing may.
    pub(super) fn send(&mut self) -> bool {
        let ready = |request: &Request| request.left > 0 && request.window > 0;
        let found = self.open.iter().find(|(_, request)| ready(request)).map(|(id, _)| *id);
        let Some(stream) = found.filter(|_| self.window > 0) else { return false };
        let request = self.open.get_mut(&stream).unwrap();
        let most = request.window.min(self.window).min(16 << 10) as usize;
        let bytes = most.min(request.left);
        request.window -= bytes as i64;
        request.left -= bytes;
        self.window -= bytes as i64;
        self.frame(0, 0, stream, &vec![b' '; bytes]);
        true
    }

    /// Reads what came; false if that is nothing.
    pub(super) fn read(&mut self) -> bool {
        let mut memory = [0; 1 << 16];
        match self.stream.read(&mut memory) {
            Ok(0) => self.ended = true,
            Ok(count) => self.came.extend_from_slice(&memory[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return false;
            }
            Err(_) => self.ended = true,
        }
        while let [a, b, c, kind, flags, w, x, y, z, rest @ ..] = &self.came[..] {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if rest.len() < length {
                break;
            }
            let (kind, flags, stream) = (*kind, *flags, u32::from_be_bytes([*w, *x, *y, *z]));
            let payload = rest[..length].to_vec();
            self.came.drain(..9 + length);
            self.take(kind, flags, stream, &payload);
        }
        true
    }

    fn take(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        match kind {
            // SETTINGS
            4 if flags & 1 == 0 => {
                for setting in payload.chunks(6) {
                    match setting[1] {
                        3 => self.streams = number(&setting[2..]),
                        4 => self.initial = i64::from(number(&setting[2..])),
                        _ => {}
                    }
                }
                self.frame(4, 1, 0, &[]);
            }
            // HEADERS, RST_STREAM
            1 | 3 => {
                self.answered.insert(stream);
                self.open.remove(&stream);
            }
            // PING
            6 if flags & 1 == 0 => self.frame(6, 1, 0, payload),
            // GOAWAY
            7 => self.ended = true,
            // WINDOW_UPDATE
            8 if stream == 0 => self.window += i64::from(number(payload)),
            8 => {
                if let Some(request) = self.open.get_mut(&stream) {
                    request.window += i64::from(number(payload));
                }
            }
            _ => {}
        }
    }
}

fn literal(head: &mut Vec<u8>, name: &[u8], value: &str) {
    head.extend(name);
    match value.len() {
        short @ 0..127 => head.push(short as u8),
        long => {
            head.push(127);
            let mut rest = long - 127;
            while rest >= 128 {
                head.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            head.push(rest as u8);
        }
    }
    head.extend(value.as_bytes());
}

/// Begins requests on all connections as long as the server takes more of them; tells the connections, and how much its memory grew
/// at most.
fn besiege(server: &Server, path: &str, token: Option<&str>) -> (Vec<Http2>, u64) {
    let before = server.resident_bytes();
    let mut most = before;
    let connect = |last| Http2::connect(server, [127, 0, 0, last]);
    let mut clients: Vec<Http2> = (0..CONNECTIONS).map(|at| connect(66 + at as u8 / 5)).collect();
    let mut moved = Instant::now();
    // Until nothing moves any more: each body is sent as far as the server reads it.
    while moved.elapsed() < Duration::from_secs(1) {
        for client in clients.iter_mut().filter(|client| !client.ended) {
            let some = client.open.len() < client.streams as usize;
            if some && (client.next as usize) < 2 * REQUESTS {
                client.begin(path, token);
                moved = Instant::now();
            }
            for _ in 0..16 {
                if !client.send() {
                    break;
                }
                moved = Instant::now();
            }
            client.read();
        }
        most = most.max(server.resident_bytes());
    }
    let grown = most - before;
    let (begun, answered) = clients.iter().fold((0, 0), |(begun, answered), client| {
        (begun + client.next as usize / 2, answered + client.answered.len())
    });
    eprintln!("{begun} requests, {answered} answered: {} KiB more", grown >> 10);
    (clients, grown)
}

/// Somebody who has the right revokes a token that nobody has.
fn revoke(server: &Server, identity: &str) -> u16 {
    let headers = format!("Authorization: Bearer {}\r\n", admin(identity));
    let body = json!({ "jti": "nobody's" }).to_string();
    server.request("POST", server.http, "/v1/revocations", &headers, &body).0
}

#[test]
fn bodies_of_requests_without_rights_are_not_read() {
    let server = server_with_keys();
    for path in ["/v1/revocations", "/v1/rooms", "/v1/sockets/a/invocations"] {
        let (clients, grown) = besiege(&server, path, None);
        assert!(
            grown < MORE,
            "{path}: {CONNECTIONS} connections without a token hold {grown} bytes"
        );
        let honest = server.get_from([127, 0, 0, 1], "/healthz").unwrap();
        assert!(honest.ends_with("ok\n"), "{honest}");
        assert_eq!(revoke(&server, "backend"), 200, "somebody who has the right");
        let all = |client: &Http2| client.answered.len() >= REQUESTS - 1 || client.ended;
        assert!(clients.iter().all(all), "each was answered, or its connection was closed");
    }
}

#[test]
fn a_request_of_http_1_without_rights_is_answered_before_its_body_came() {
    let server = server_with_keys();
    for (method, path) in [("POST", "/v1/rooms"), ("PUT", "/v1/sockets/a/token")] {
        let mut stream = server.wire_from([127, 0, 0, 1]).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {}\r\n", server.http).unwrap();
        write!(stream, "Content-Length: 200000\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 401", "{method} {path}");
    }
}

#[test]
fn bodies_with_rights_are_short_whole_in_time_and_leave_room_for_others() {
    let server = server_with_keys();
    let (_clients, grown) = besiege(&server, "/v1/sockets/a/messages", Some(&admin("mal")));
    assert!(grown < MORE, "{CONNECTIONS} connections of one identity hold {grown} bytes");
    assert!(server.dropped("http", "bodies_full") > 0, "one identity has a bound");
    assert_eq!(revoke(&server, "ann"), 200, "somebody else, from elsewhere");
    eventually("the end of bodies that are not whole in time", || {
        (server.dropped("http", "body_too_slow") > 0).then_some(())
    });
    eventually("room for the same identity", || (revoke(&server, "mal") == 200).then_some(()));
    let headers = format!("Authorization: Bearer {}\r\n", admin("ann"));
    let long = "x".repeat(64 << 10);
    let answer = server.request("POST", server.http, "/v1/revocations", &headers, &long);
    assert_eq!(answer.0, 413, "{}", answer.2);
    let problem: serde_json::Value = serde_json::from_str(&answer.2).unwrap();
    assert_eq!(problem["code"], "too_long", "{problem}");
}

#[test]
fn a_request_with_two_hosts_is_refused() {
    let server = server_with_keys();
    let own = server.http;
    for path in ["/", "/healthz", "/v1/openapi.json"] {
        for (one, other) in
            [("a.test".to_owned(), own.to_string()), (own.to_string(), own.to_string())]
        {
            let mut stream = server.wire_from([127, 0, 0, 1]).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {one}\r\nHost: {other}\r\n\r\n").unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 400", "{path} {one} {other}");
        }
    }
}
