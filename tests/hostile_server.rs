//! Hostile servers against `moim load`: each run ends within its bound, with a cause, without a panic, and in little memory.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::{Message, WebSocket, accept_hdr};

/// How long a run is by its scenario.
const LENGTH: &str = "4s";
/// A run ends so long after its begin, whatever the server does. That is its length, the time to connect, to join and to
/// leave, and as much again for a busy machine.
const BOUND: Duration = Duration::from_secs(60);
/// Memory that it may take at most, in bytes.
const MEMORY: u64 = 400 << 20;
/// The key by which connections of the load of sockets are told from those of bots.
const KEY_OF_LOAD: &str = "bW9pbSBsYWIgc29ja2V0cw==";

/// How a server treats a connection. It has seen the head of a request, and not read it.
type Act = fn(TcpStream, &str);

/// A server, what is run against it, and what the run must say.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    act: Act,
    /// The scenario's words for whom it takes the server for, and the scheme of its URL.
    adapter: (&'static str, &'static str),
    /// Connections that only ping, in place of bots.
    sockets: bool,
    /// Health and metrics have no end.
    endless_pages: bool,
    code: i32,
    says: &'static str,
}

const fn case(name: &'static str, act: Act, code: i32, says: &'static str) -> Case {
    let adapter = ("moim", "http");
    Case { name, act, adapter, sockets: false, endless_pages: false, code, says }
}

/// Serves until the test ends.
fn serve(act: Act, endless_pages: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        for stream in listener.incoming().flatten() {
            spawn(move || {
                let mut head = vec![0; 4096];
                let seen = loop {
                    match stream.peek(&mut head) {
                        Ok(0) | Err(_) => return,
                        Ok(len) if head[..len].windows(4).any(|end| end == b"\r\n\r\n") => {
                            break len;
                        }
                        Ok(_) => sleep(Duration::from_millis(1)),
                    }
                };
                let head = String::from_utf8_lossy(&head[..seen]).into_owned();
                if head.starts_with("POST") || head.to_lowercase().contains("upgrade: websocket") {
                    return act(stream, &head);
                }
                // Health and metrics.
                let mut stream = stream;
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nok\n");
                if endless_pages {
                    for_ever(&mut stream, b"moim_dropped_total{where=\"in\",reason=\"x\"} 1\n");
                }
            });
        }
    });
    address
}

/// Writes this again and again until the other side has enough.
fn for_ever(stream: &mut TcpStream, text: &[u8]) {
    let all = text.repeat((64 << 10) / text.len() + 1);
    while stream.write_all(&all).is_ok() {}
}

/// Keeps a connection until the other side closes it, and says nothing.
fn hold(mut stream: TcpStream) {
    let mut memory = [0; 4096];
    while stream.read(&mut memory).is_ok_and(|count| count > 0) {}
}

fn silent(stream: TcpStream, _: &str) {
    hold(stream);
}

fn endless_head(mut stream: TcpStream, _: &str) {
    let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n");
    for_ever(&mut stream, b"X-More: of the same, and no end of it in sight\r\n");
}

fn redirect(mut stream: TcpStream, _: &str) {
    let _ = stream.read(&mut [0; 4096]);
    let answer = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n";
    let _ = stream.write_all(answer.as_bytes());
}

fn half_a_head(mut stream: TcpStream, _: &str) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(b"HTTP/1.1 101 Switching Prot");
}

/// A socket after its upgrade.
struct Socket(WebSocket<TcpStream>);

impl Socket {
    fn upgrade(stream: TcpStream) -> Option<Self> {
        // The protocol that was asked for is spoken. How large its error is, the library says.
        #[allow(clippy::result_large_err)]
        let agree = |request: &Request, mut response: Response| {
            let name = "Sec-WebSocket-Protocol";
            if let Some(protocol) = request.headers().get(name) {
                response.headers_mut().insert(name, protocol.clone());
            }
            Ok(response)
        };
        accept_hdr(stream, agree).ok().map(Self)
    }

    fn say(&mut self, packet: &Value) -> Option<()> {
        self.0.send(Message::text(packet.to_string())).ok()
    }

    /// The next call that is not answered here: the handshake, and what `also` is, are.
    fn call(&mut self, also: &[(&str, Value)]) -> Option<Value> {
        loop {
            let Ok(message) = self.0.read() else { return None };
            let Ok(packet) = serde_json::from_str::<Value>(message.to_text().ok()?) else {
                continue;
            };
            let event = packet["event"].as_str().unwrap_or_default();
            let shaken = json!({ "id": "x", "pingTimeout": 20_000, "isAuthenticated": false });
            let answer = match event {
                "#handshake" => Some(shaken),
                event => {
                    also.iter().find(|(known, _)| *known == event).map(|(_, data)| data.clone())
                }
            };
            let Some(data) = answer else { return Some(packet) };
            self.say(&json!({ "rid": packet["cid"], "data": data }))?;
        }
    }

    fn raw(&mut self) -> &mut TcpStream {
        self.0.get_mut()
    }
}

/// The answer to `room.join`.
fn joined() -> Value {
    let limits = json!({ "max_participants": 9, "max_audio_slots": 9, "max_video_slots": 9 });
    let room = json!({ "id": "room-1", "audio": "sfu", "video": "sfu", "video_codec": "vp8", "locked": false,
        "limits": limits });
    let you = json!({ "can_publish": true, "can_subscribe": true, "can_moderate": false });
    json!({ "participant": "p-1", "epoch": 1, "room": room, "you": you, "count": 1, "participants": [],
        "ice_servers": [] })
}

fn huge_frame(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    let _ = socket.raw().write_all(&[0x81, 127, 0x3F, 0, 0, 0, 0, 0, 0, 0]);
    for_ever(socket.raw(), b"x");
}

fn endless_fragments(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    let _ = socket.raw().write_all(&[0x01, 1, b'"']);
    for_ever(socket.raw(), &[0x00, 1, b'x']);
}

fn endless_heartbeats(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    for_ever(socket.raw(), &[0x81, 0]);
}

fn steering_words(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    let _ = socket.0.read();
    let message = format!("\u{1b}[2Jno\r\n{}", "more ".repeat(100_000));
    let error = json!({ "name": "RoomError", "code": "not_allowed", "message": message });
    let _ = socket.say(&json!({ "rid": 1, "error": error }));
    hold(socket.0.get_ref().try_clone().unwrap());
}

fn broken_json(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    if let Some(call) = socket.call(&[]) {
        let _ = socket.0.send(Message::text(format!("{{\"rid\":{},\"data\":{{{{", call["cid"])));
    }
    hold(socket.0.get_ref().try_clone().unwrap());
}

fn garbage_sdp(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    let sdp = format!(
        "v=0\r\n\u{0}m=audio \u{1b}[2J\r\n{}",
        "a=candidate:1 1 udp 1 x 9\r\n".repeat(9000)
    );
    let answer = json!({ "sdp": sdp, "tracks": [] });
    while socket.call(&[("room.join", joined()), ("room.offer", answer.clone())]).is_some() {}
}

fn never_an_answer(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    while socket.call(&[]).is_some() {}
}

fn end_in_the_middle(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    socket.call(&[("room.join", joined())]);
}

/// Tells of people who come, with long names, and of nothing else.
fn events_by_the_million(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    socket.call(&[("room.join", joined())]);
    let name = "x".repeat(100 << 10);
    for epoch in 2.. {
        let person = json!({ "id": format!("p-{epoch}"), "name": name, "tracks": [] });
        let event = json!({ "epoch": epoch, "type": "participant_joined", "participant": person, "count": 9 });
        let data = json!({ "channel": "room:room-1", "data": event });
        if socket.say(&json!({ "event": "#publish", "data": data })).is_none() {
            return;
        }
    }
}

/// Frames that are nothing in any of the languages.
fn no_language(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    let _ = socket.0.send(Message::text("\u{1b}[2J{{{{".repeat(9000)));
    let _ = socket.0.send(Message::binary(vec![0xFF; 9000]));
    hold(socket.0.get_ref().try_clone().unwrap());
}

/// Janus' error to the first request.
fn steering_words_of_janus(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    let _ = socket.0.read();
    let reason = format!("\u{1b}[2Jno\r\n{}", "more ".repeat(100_000));
    let error = json!({ "code": 4, "reason": reason });
    let _ = socket.say(&json!({ "janus": "error", "transaction": "1", "error": error }));
    hold(socket.0.get_ref().try_clone().unwrap());
}

/// Of Janus: ids for whatever is asked for, and then events that nobody asked for.
fn events_of_janus(stream: TcpStream, _: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    for _ in 0..2 {
        let Ok(Message::Text(text)) = socket.0.read() else { return };
        let Ok(request) = serde_json::from_str::<Value>(&text) else { return };
        let answer = json!({ "janus": "success", "transaction": request["transaction"], "data": { "id": 7 } });
        let _ = socket.say(&answer);
    }
    let publishers = vec![json!({ "id": 1, "display": "x".repeat(9000) }); 10];
    let data = json!({ "videoroom": "event", "room": 1, "publishers": publishers });
    let event = json!({ "janus": "event", "sender": 7, "plugindata": { "data": data } });
    while socket.say(&event).is_some() {}
}

fn answer_of_http(mut stream: TcpStream, head: &str, body: &str) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let _ = stream.shutdown(Shutdown::Write);
    hold(stream);
}

fn steering_words_of_http(stream: TcpStream, _: &str) {
    let body = format!("\u{1b}[2Jno\r\n{}", "more ".repeat(100_000));
    answer_of_http(stream, "403 Forbidden", &body);
}

fn garbage_sdp_of_http(stream: TcpStream, _: &str) {
    answer_of_http(
        stream,
        "201 Created\r\nLocation: \u{1b}[2J",
        "v=0\r\n\u{0}m=audio \u{1b}[2J\r\n",
    );
}

fn endless_body(mut stream: TcpStream, _: &str) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(b"HTTP/1.1 201 Created\r\nLocation: /x\r\n\r\n");
    for_ever(&mut stream, b"a=candidate:1 1 udp 1 x 9\r\n");
}

/// Asks for answers without end, and reads none. Bots are served, so that a run begins.
fn asks_and_reads_nothing(stream: TcpStream, head: &str) {
    let Some(mut socket) = Socket::upgrade(stream) else { return };
    if !head.contains(KEY_OF_LOAD) {
        while socket.call(&[]).is_some() {}
        return;
    }
    for_ever(socket.raw(), &[0x81, 0]);
}

fn endless_head_for_loads(stream: TcpStream, head: &str) {
    match head.contains(KEY_OF_LOAD) {
        true => endless_head(stream, head),
        false => never_an_answer(stream, head),
    }
}

/// Most memory that a process had so far.
fn peak_bytes(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

/// Runs a scenario against a server of the case; what it said, and what it took.
fn suffer(case: &Case) {
    let name = case.name;
    let (adapter, scheme) = case.adapter;
    let url = format!("{scheme}://{}", serve(case.act, case.endless_pages));
    let directory = tempfile::tempdir().unwrap();
    let scenario = directory.path().join("hostile.yaml");
    let load = match case.sockets {
        true => "sockets: [{ connections: 2, arrival_per_second: 20, rate_per_second: 5 }]",
        false => "rooms: [{ count: 1, audio: sfu, video: sfu, people: { bot: 2 } }]",
    };
    let text = format!(
        "name: hostile\ntarget: {{ adapter: {adapter}, url: \"{url}\" }}\nduration: {LENGTH}\n{load}\nthresholds: default\n"
    );
    std::fs::write(&scenario, text).unwrap();
    let said = directory.path().join("said");
    let out = std::fs::File::create(&said).unwrap();
    let (begin, mut peak) = (Instant::now(), 0);
    let mut run = Command::new(env!("CARGO_BIN_EXE_moim"))
        .arg("load")
        .arg(&scenario)
        .arg("--runs")
        .arg(directory.path().join("runs"))
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn()
        .unwrap();
    let status = loop {
        peak = peak.max(peak_bytes(&run).unwrap_or(0));
        if let Some(status) = run.try_wait().unwrap() {
            break Some(status);
        }
        if begin.elapsed() > BOUND || peak > 4 * MEMORY {
            let _ = run.kill();
            let _ = run.wait();
            break None;
        }
        sleep(Duration::from_millis(20));
    };
    let said = String::from_utf8_lossy(&std::fs::read(said).unwrap()).into_owned();
    let shown: String = said.chars().take(3000).collect();
    eprintln!("{name}: {status:?} after {:?}, {} MiB", begin.elapsed(), peak >> 20);
    assert!(peak <= MEMORY, "{name}: {} MiB\n{shown}", peak >> 20);
    let status = status.unwrap_or_else(|| panic!("{name}: no end\n{shown}"));
    // A flood may keep the load's own CPU busy: then the run judges nothing.
    let void = case.code == 99 && status.code() == Some(110);
    assert!(status.code() == Some(case.code) || void, "{name}: {status:?} {shown}");
    assert!(said.contains(case.says), "{name}: not {:?} in\n{shown}", case.says);
    assert!(!said.contains("panicked"), "{name}: {shown}");
    assert!(said.len() < 64 << 10, "{name}: {} bytes said", said.len());
    let steers = |char: char| char.is_control() && !char.is_whitespace();
    assert!(!said.contains(steers), "{name}: it steers the terminal: {said:?}");
}

/// A few at a time: floods share the machine's cores.
fn suffer_all(cases: &[Case]) {
    for some in cases.chunks(3) {
        scope(|scope| some.iter().for_each(|case| drop(scope.spawn(move || suffer(case)))));
    }
}

#[test]
fn a_server_that_lets_nobody_in_ends_a_run_before_it_begins() {
    suffer_all(&[
        case("silence", silent, 111, "no answer in time"),
        case("an endless head", endless_head, 111, "no connection"),
        case("another place", redirect, 111, "302"),
        case("half a head", half_a_head, 111, "no connection"),
        case("a huge frame", huge_frame, 111, "closed"),
        case("endless fragments", endless_fragments, 111, "closed"),
        case("heartbeats without end", endless_heartbeats, 111, "does not answer"),
        case("words that steer", steering_words, 111, "not_allowed"),
    ]);
}

#[test]
fn a_server_that_lies_in_the_middle_fails_a_run_with_the_cause() {
    let endless_pages = |case: Case| Case { endless_pages: true, ..case };
    suffer_all(&[
        case("events by the million", events_by_the_million, 99, "far more than happens"),
        endless_pages(case("pages without end", never_an_answer, 99, "nobody")),
        case("broken JSON", broken_json, 99, "not JSON"),
        case("an SDP of garbage", garbage_sdp, 99, "the answer was refused"),
        case("never an answer", never_an_answer, 99, "nobody"),
        case("the end in the middle", end_in_the_middle, 99, "closed"),
    ]);
}

#[test]
fn a_server_that_floods_a_load_of_sockets_fails_it_with_the_cause() {
    let of_sockets = |case: Case| Case { sockets: true, ..case };
    suffer_all(&[
        of_sockets(case("asks and reads nothing", asks_and_reads_nothing, 99, "does not read")),
        of_sockets(case("heads without end", endless_head_for_loads, 99, "upgrade without end")),
    ]);
}

#[test]
fn a_server_of_another_kind_that_lets_nobody_in_fails_a_run_with_the_cause() {
    let of = |adapter, cases: &[Case]| -> Vec<Case> {
        cases.iter().map(|case| Case { adapter, ..*case }).collect()
    };
    // Janus is asked before a run begins. Of the others nobody joins.
    let [janus, livekit, whip] = [("janus", "ws"), ("livekit", "ws"), ("whip", "http")];
    let first = [
        case("silence", silent, 111, "no answer in time"),
        case("an endless head", endless_head, 111, "no connection"),
        case("another place", redirect, 111, "302"),
        case("half a head", half_a_head, 111, "no connection"),
        case("words that steer", steering_words_of_janus, 111, "refused"),
        case("events without end", events_of_janus, 99, "0 of 2 joined"),
        case("no language", no_language, 111, "Janus"),
        case("a huge frame", huge_frame, 111, "closed"),
        case("endless fragments", endless_fragments, 111, "closed"),
    ];
    let second = [
        case("silence", silent, 99, "0 of 2 joined"),
        case("an endless head", endless_head, 99, "no connection"),
        case("another place", redirect, 99, "302"),
        case("half a head", half_a_head, 99, "no connection"),
        case("words that steer", steering_words_of_http, 99, "LiveKit refused"),
        case("no language", no_language, 99, "SignalResponse"),
        case("a huge frame", huge_frame, 99, "could not join"),
        case("endless fragments", endless_fragments, 99, "could not join"),
    ];
    let third = [
        case("silence", silent, 99, "nobody could measure it"),
        case("an endless head", endless_head, 99, "nobody could measure it"),
        case("another place", redirect, 99, "302"),
        case("half a head", half_a_head, 99, "nobody could measure it"),
        case("words that steer", steering_words_of_http, 99, "could not join: room.offer"),
        case("an SDP of garbage", garbage_sdp_of_http, 99, "nobody could measure it"),
        case("an endless body", endless_body, 99, "nobody could measure it"),
    ];
    suffer_all(&[of(janus, &first), of(livekit, &second), of(whip, &third)].concat());
}
