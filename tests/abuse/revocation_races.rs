//! Tokens are revoked while sockets and requests do with them what they can: after the answer nothing of them is left, and
//! nothing comes.

use super::{SECRET, unix_s};
use crate::peer::Peer;
use crate::target::{AtEnd, Server, Socket, eventually, read_all};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::scope;

/// Tokens that are revoked one after the other.
const ROUNDS: usize = 16;
/// Where the attack comes from.
const HOSTILE: [u8; 4] = [127, 0, 0, 66];
const HONEST: [u8; 4] = [127, 0, 0, 2];
/// Revocations beside joins that are all under way, and how many these are.
const MOMENTS: usize = 120;
const AT_ONCE: usize = 16;
/// Attackers of each kind do so much after the answer.
const AFTER: usize = 3;

fn token(identity: &str, id: &str) -> String {
    let root = identity == "root";
    let channels = ["news", "large"];
    let claims = json!({
        "iss": "ours", "sub": identity, "jti": id, "iat": unix_s(), "exp": unix_s() + 600,
        "video": { "roomJoin": true, "roomList": root },
        "sockets": { "subscribe": channels, "publish": channels, "admin": root },
    });
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
}

fn server() -> Server {
    let limits = "sessions_per_identity: 100, seats_per_identity: 100, rooms_per_identity: 100, outbox_bytes: 64MiB";
    Server::with(&format!("keys: {{ ours: \"{SECRET}\" }}\nlimits: {{ {limits} }}\n"))
}

/// A request of the HTTP API.
fn ask(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (status, _, answer) = server.request(method, server.http, path, &headers, &text);
    (status, serde_json::from_str(&answer).unwrap_or(Value::Null))
}

/// What root asks for.
fn done(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let (status, answer) = ask(server, method, path, &token("root", "of root"), body);
    assert_eq!(status, 200, "{method} {path}: {answer}");
    answer
}

fn publish(server: &Server, token: &str, data: &Value) -> bool {
    let body = json!({ "data": data });
    ask(server, "POST", "/v1/channels/news/messages", token, &body).0 == 200
}

/// What is done with a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    /// Into rooms that are not there yet.
    Join,
    Resume,
    Offer,
    Subscribe,
    /// Many in a frame.
    Publish,
    /// By a request.
    Post,
}

const ACTS: [Act; 7] =
    [Act::Join, Act::Join, Act::Resume, Act::Offer, Act::Subscribe, Act::Publish, Act::Post];

/// A token, and what is done with it.
struct Round<'a> {
    server: &'a Server,
    token: String,
    nth: usize,
    sdp: &'a str,
    answered: AtomicBool,
    stop: AtomicBool,
    /// How often each attacker came through before the revocation was answered, and tried after it.
    before: [AtomicUsize; ACTS.len()],
    after: [AtomicUsize; ACTS.len()],
}

impl Round<'_> {
    /// Does it again and again. What begins after the answer must not come through.
    fn go(&self, nth: usize) {
        let act = ACTS[nth];
        for time in 0.. {
            if self.stop.load(SeqCst) {
                return;
            }
            let late = self.answered.load(SeqCst);
            let through = self.once(act, &format!("r-{}-{nth}-{time}", self.nth)).is_some();
            assert!(!late || !through, "{act:?} after the revocation");
            let count = if late { &self.after[nth] } else { &self.before[nth] };
            count.fetch_add(usize::from(late || through), SeqCst);
        }
    }

    /// Does it once; none where it was refused, or the socket was closed.
    fn once(&self, act: Act, room: &str) -> Option<()> {
        if act == Act::Post {
            return publish(self.server, &self.token, &json!(self.nth)).then_some(());
        }
        let mut socket = Socket::connect_from(HOSTILE, self.server);
        let join = json!({ "room": room, "name": "x", "session": "s", "token": self.token });
        match act {
            Act::Subscribe => {
                socket.try_call("#authenticate", &json!(self.token)).ok()?.ok()?;
                socket.try_call("#subscribe", &json!({ "channel": "news" })).ok()?.ok()?;
                return Some(());
            }
            Act::Publish => {
                socket.try_call("#authenticate", &json!(self.token)).ok()?.ok()?;
                let data = json!({ "channel": "news", "data": self.nth });
                let one = json!({ "event": "#publish", "data": data });
                let frame = vec![one; 150];
                socket.try_send(&json!(frame).to_string());
                socket.try_call("#publish", &data).ok()?.ok()?;
                return Some(());
            }
            _ => {}
        }
        let joined = socket.try_call("room.join", &join).ok()?.ok()?;
        match act {
            Act::Offer => {
                let offer = json!({ "sdp": self.sdp, "tracks": [], "session": "s" });
                socket.try_call("room.offer", &offer).ok()?.ok()?;
            }
            Act::Resume => {
                let resume = json!({ "room": room, "participant": joined["participant"], "session": "s", "seen": 0 });
                for _ in 0..5 {
                    socket = Socket::connect_from(HOSTILE, self.server);
                    socket.try_call("room.resume", &resume).ok()?.ok()?;
                }
            }
            _ => {}
        }
        socket.try_call("room.leave", &json!({})).ok()?.ok()?;
        Some(())
    }

    /// No seat and no subscription is there.
    fn assert_nothing_is_left(&self) {
        let sockets = done(self.server, "GET", "/v1/sockets?limit=1000", &Value::Null);
        let of_mal = |row: &&Value| row["channels"] != json!([]) && row["identity"] != "root";
        let left: Vec<_> = sockets["sockets"].as_array().unwrap().iter().filter(of_mal).collect();
        assert!(left.is_empty(), "round {}: {left:?}", self.nth);
        let rooms = done(self.server, "GET", "/v1/rooms", &Value::Null);
        let seated: Vec<_> =
            rooms["rooms"].as_array().unwrap().iter().filter(|row| row["people"] != 0).collect();
        assert!(seated.is_empty(), "round {}: {seated:?}", self.nth);
    }
}

/// Reads what is published until the end is: numbers of rounds, and after a revocation a text with its round. Returns
/// what came too late.
fn watch(mut watcher: Socket) -> Vec<usize> {
    let (mut over, mut late) = (None, Vec::new());
    loop {
        let packet = watcher.any_packet().expect("the watcher reads all");
        let data = &packet["data"]["data"];
        match (data.as_u64().map(|round| round as usize), data.as_str()) {
            (Some(round), _) if over.is_some_and(|over| round <= over) => late.push(round),
            (_, Some("end")) => return late,
            (_, Some(round)) => over = round.parse().ok(),
            _ => {}
        }
    }
}

#[test]
fn after_the_answer_to_a_revocation_nothing_of_the_token_is_left_or_comes() {
    let server = server();
    let root = token("root", "of root");
    let mut watcher = Socket::connect_from(HONEST, &server);
    watcher.try_call("#authenticate", &json!(root)).unwrap().unwrap();
    watcher.try_call("#subscribe", &json!({ "channel": "news" })).unwrap().unwrap();
    let (_peer, offered) = Peer::offering("mal", 1);
    scope(|all| {
        let watching = all.spawn(|| watch(watcher));
        // Otherwise the watcher would wait for ever.
        let _failed = AtEnd(|| {
            if std::thread::panicking() {
                server.terminate()
            }
        });
        for nth in 0..ROUNDS {
            // By turns the token, and all of the identity up to now.
            let (identity, id) = (format!("mal-{nth}"), format!("t-{nth}"));
            let body = if nth % 2 == 0 { json!({ "jti": id }) } else { json!({ "sub": identity }) };
            let round = Round {
                server: &server,
                token: token(&identity, &id),
                nth,
                sdp: &offered.sdp,
                answered: AtomicBool::new(false),
                stop: AtomicBool::new(false),
                before: Default::default(),
                after: Default::default(),
            };
            scope(|attackers| {
                let round = &round;
                let _ready = AtEnd(|| round.stop.store(true, SeqCst));
                (0..ACTS.len()).for_each(|nth| drop(attackers.spawn(move || round.go(nth))));
                let all = |counts: &[AtomicUsize], least| {
                    counts.iter().all(|count| count.load(SeqCst) >= least).then_some(())
                };
                eventually("all come through", || all(&round.before, 1));
                done(&server, "POST", "/v1/revocations", &body);
                round.answered.store(true, SeqCst);
                assert!(publish(&server, &root, &json!(nth.to_string())));
                round.assert_nothing_is_left();
                eventually("all have tried", || all(&round.after, AFTER));
                round.assert_nothing_is_left();
            });
        }
        assert!(publish(&server, &root, &json!("end")));
        assert_eq!(watching.join().unwrap(), Vec::<usize>::new(), "published too late");
    });
    eventually("no room is left", || (server.metric("moim_rooms") == 0.0).then_some(()));
    assert_eq!(server.metric("moim_participants"), 0.0);
}

/// Many join at the moment of the revocation, each a room of their own.
#[test]
fn joins_at_the_moment_of_a_revocation_leave_no_seat_and_no_room() {
    let server = server();
    let (mut before, mut refused) = (0, 0);
    for round in 0..MOMENTS {
        let mal = token("mal", &format!("t-{round}"));
        let mut sockets: Vec<Socket> =
            (0..AT_ONCE).map(|_| Socket::connect_from(HOSTILE, &server)).collect();
        // The request lacks its last byte.
        let body = json!({ "jti": format!("t-{round}") }).to_string();
        let (root, length) = (token("root", "of root"), body.len());
        let mut request = server.wire_from(HONEST).unwrap();
        write!(
            request,
            "POST /v1/revocations HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {root}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{}",
            server.http,
            &body[..length - 1]
        )
        .unwrap();
        let sent = AtomicUsize::new(0);
        scope(|both| {
            both.spawn(|| {
                for (nth, socket) in sockets.iter_mut().enumerate() {
                    let room = format!("m-{round}-{nth}");
                    let join = json!({ "room": room, "name": "x", "session": "s", "token": mal });
                    let call = json!({ "event": "room.join", "data": join, "cid": 9 });
                    socket.try_send(&call.to_string());
                    sent.fetch_add(1, SeqCst);
                }
            });
            // After the first of them, after the second, and so on.
            while sent.load(SeqCst) <= round % AT_ONCE {
                std::hint::spin_loop();
            }
            request.write_all(&body.as_bytes()[length - 1..]).unwrap();
        });
        let answer = read_all(&mut *request).unwrap();
        assert!(answer.contains(" 200 OK"), "{answer}");
        for socket in &mut sockets {
            let answer = std::iter::repeat_with(|| socket.any_packet())
                .find(|packet| packet.as_ref().map_or(true, |packet| packet["rid"] == 9));
            match answer {
                Some(Ok(answer)) if answer["error"]["code"] == "bad_token" => refused += 1,
                _ => before += 1,
            }
        }
        let rooms = done(&server, "GET", "/v1/rooms", &Value::Null);
        assert_eq!(rooms["rooms"], json!([]), "round {round}");
        assert_eq!(server.metric("moim_participants"), 0.0, "round {round}");
    }
    eprintln!("{before} joined before, {refused} were refused");
    assert!(before > 0 && refused > 0, "it was at the same moment");
}

/// A client that reads nothing keeps the writer of its socket busy, so that the socket closes late.
#[test]
fn who_reads_nothing_publishes_nothing_after_the_revocation() {
    let server = server();
    let root = token("root", "of root");
    let mut watcher = Socket::connect_from(HONEST, &server);
    watcher.try_call("#authenticate", &json!(root)).unwrap().unwrap();
    watcher.try_call("#subscribe", &json!({ "channel": "news" })).unwrap().unwrap();
    let mut mal = Socket::connect_from(HOSTILE, &server);
    mal.try_call("#authenticate", &json!(token("mal", "t"))).unwrap().unwrap();
    mal.try_call("#subscribe", &json!({ "channel": "large" })).unwrap().unwrap();
    // More than the buffers of both kernels take.
    let large = json!({ "data": "x".repeat(60_000) });
    for _ in 0..300 {
        done(&server, "POST", "/v1/channels/large/messages", &large);
    }
    done(&server, "POST", "/v1/revocations", &json!({ "jti": "t" }));
    let late = json!({ "event": "#publish", "data": { "channel": "news", "data": "late" } });
    for _ in 0..20 {
        mal.try_send(&late.to_string());
    }
    eventually("the socket's end", || (server.metric("moim_sockets") == 1.0).then_some(()));
    assert!(publish(&server, &root, &json!("end")));
    let first = watcher.any_packet().unwrap();
    assert_eq!(first["data"]["data"], "end", "published after the revocation: {first}");
}

#[test]
fn a_right_that_ends_while_the_body_comes_is_none() {
    let server = server();
    for (path, body) in [
        ("/v1/channels/news/messages", json!({ "data": 1 })),
        ("/v1/revocations", json!({ "jti": "other" })),
    ] {
        let (identity, text) = (format!("mal-{}", body.to_string().len()), body.to_string());
        // Whoever may revoke, too.
        let claims = json!({ "iss": "ours", "sub": identity, "jti": "t", "iat": unix_s(), "exp": unix_s() + 600,
            "sockets": { "admin": true } });
        let key = EncodingKey::from_secret(SECRET.as_bytes());
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap();
        let mut stream = server.wire_from(HOSTILE).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nExpect: 100-continue\r\n\
             Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            server.http,
            text.len()
        )
        .unwrap();
        // That comes when the rights were looked at, and the body is awaited.
        let mut goes_on = [0; 25];
        stream.read_exact(&mut goes_on).unwrap();
        assert!(goes_on.starts_with(b"HTTP/1.1 100 "), "{}", String::from_utf8_lossy(&goes_on));
        done(&server, "POST", "/v1/revocations", &json!({ "sub": identity }));
        stream.write_all(text.as_bytes()).unwrap();
        let answer = read_all(&mut *stream).unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
        assert!(answer.contains("revoked"), "{answer}");
    }
}
