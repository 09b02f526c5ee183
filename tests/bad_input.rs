//! Bad input from the network and on sockets: told or counted by its reason, and a call beside it
//! goes on undisturbed.

use crate::peer::{Peer, Seat, assert_same, finish, meet, run_for};
use crate::target::{Server, Socket, eventually};
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::room::MediaKind;
use wire::{ErrorCode, Event};

/// Two plain peers who send each other sound and pictures all the time.
struct Call {
    ada: Seat,
    min: Seat,
    /// The address of one of them.
    own: UdpSocket,
    /// A datagram of hers.
    media: Vec<u8>,
    stop: Arc<AtomicBool>,
    /// Frames of sound that came so far to whom fewer came.
    heard: Arc<AtomicUsize>,
    thread: Option<JoinHandle<(Peer, Peer)>>,
}

impl Call {
    fn begin(server: &Server) -> Self {
        let (mut ada, ada_seat) = Peer::join(server, "call", "ada", 1);
        let (mut min, min_seat) = Peer::join(server, "call", "min", 2);
        meet(&mut [&mut ada, &mut min]);
        let (own, media) = (ada.own_socket(), ada.last_media.clone());
        let (stop, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, count) = (stop.clone(), heard.clone());
        let thread = std::thread::spawn(move || {
            let long = Duration::from_secs(120);
            run_for(long, &mut [&mut ada, &mut min], "the call's end", |peers| {
                let each = peers.iter().map(|peer| peer.heard_of(MediaKind::Audio).count());
                count.store(each.min().unwrap(), Relaxed);
                stopped.load(Relaxed)
            });
            (ada, min)
        });
        Self { ada: ada_seat, min: min_seat, own, media, stop, heard, thread: Some(thread) }
    }

    /// Waits until 2 s more of sound have come.
    fn goes_on(&self) {
        let heard = self.heard.load(Relaxed);
        eventually("sound in the call", || (self.heard.load(Relaxed) >= heard + 100).then_some(()));
    }

    /// Ends it: nobody left, and all frames came as they were sent, from the first to the last.
    fn end(mut self) {
        self.goes_on();
        for seat in [&mut self.ada, &mut self.min] {
            let events = seat.socket.events();
            let left = events.iter().find(|e| matches!(e, Event::ParticipantLeft { .. }));
            assert_eq!(left, None);
        }
        self.stop.store(true, Relaxed);
        let (mut ada, mut min) = self.thread.take().unwrap().join().unwrap();
        finish(&mut [&mut ada, &mut min]);
        for (from, to) in [(&ada, &min), (&min, &ada)] {
            assert!(assert_same(from, to, MediaKind::Audio) > 100);
            assert!(assert_same(from, to, MediaKind::Video) > 40);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// SplitMix64: bytes that are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A STUN binding request (RFC 8489 §5) for a user fragment.
fn stun(username: &str) -> Vec<u8> {
    assert_eq!(username.len() % 4, 0, "no padding");
    let mut request = vec![0, 1, 0, 4 + username.len() as u8, 0x21, 0x12, 0xA4, 0x42];
    request.extend([7; 12]);
    request.extend([0, 6, 0, username.len() as u8]);
    request.extend(username.as_bytes());
    request
}

/// The server counts so many for a reason, not more and not less.
fn assert_dropped(server: &Server, place: &str, reason: &str, count: u64) {
    eventually(&format!("{count} of {place} {reason}"), || {
        (server.dropped(place, reason) >= count).then_some(())
    });
    assert_eq!(server.dropped(place, reason), count, "{place} {reason}");
}

#[test]
fn datagrams_of_strangers_are_counted_and_disturb_no_call() {
    let server = Server::start("{}");
    let call = Call::begin(&server);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |data: &[u8]| stranger.send_to(data, server.media).unwrap();
    let mut random = Random(1);
    const EACH: u64 = 8;
    for round in 0..EACH {
        for first in 0..=255 {
            let len = 2 + (random.next() % 1300) as usize;
            let mut datagram = random.bytes(len);
            datagram[0] = first;
            send(&datagram);
            if first % 8 == 7 {
                // So that no receive buffer overflows: that is not what is asked here.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert_eq!(server.dropped("control", "bad_datagram"), 0, "round {round}");
        assert_eq!(server.dropped("control", "unknown_peer"), 0, "round {round}");
    }
    for datagram in [&[][..], &[128]] {
        send(datagram);
    }
    for username in ["nobodynobody:you", "", ":::::::::::"] {
        let username = &username[..username.len() / 4 * 4];
        send(&stun(username));
    }
    // Of the first byte (RFC 7983 §7): 0..=3 STUN and 20..=63 DTLS, 128..=191 SRTP and SRTCP. Noise is no
    // binding request.
    assert_dropped(&server, "in", "stun_not_asked", EACH * 4);
    assert_dropped(&server, "in", "unknown_fragment", 3);
    assert_dropped(&server, "in", "unknown_source", EACH * (44 + 64));
    assert_dropped(&server, "in", "not_media", EACH * (256 - 4 - 44 - 64) + 2);
    for reason in ["malformed", "authentication_failed", "replayed", "unknown_ssrc"] {
        assert_eq!(server.dropped("in", reason), 0, "{reason}");
    }
    call.end();
}

#[test]
fn datagrams_from_a_participants_own_address_are_counted_and_disturb_no_call() {
    let server = Server::start("{}");
    let call = Call::begin(&server);
    let send = |data: &[u8]| {
        call.own.send_to(data, server.media).unwrap();
    };
    let mut random = Random(2);
    // SRTP and SRTCP that are too short for a header or a tag.
    for kind in [[128, 111], [128, 200]] {
        for rest in [0, 2, 6, 9] {
            send(&[&kind[..], &random.bytes(rest)].concat());
        }
    }
    assert_dropped(&server, "in", "malformed", 8);
    // Hers, of later, with another content: the tag does not fit.
    for later in 1..=50u16 {
        let mut forged = call.media.clone();
        let sequence = u16::from_be_bytes([forged[2], forged[3]]).wrapping_add(1000 + later);
        forged[2..4].copy_from_slice(&sequence.to_be_bytes());
        let end = forged.len();
        let from = end.min(40);
        forged[from..].copy_from_slice(&random.bytes(end - from));
        send(&forged);
    }
    for _ in 0..50 {
        let mut report = [&[128, 200, 0, 6], &random.bytes(60)[..]].concat();
        report[60] |= 128; // Encrypted, says the last word (RFC 7714 §9.2).
        send(&report);
    }
    assert_dropped(&server, "in", "authentication_failed", 100);
    // Hers once more.
    (0..10).for_each(|_| send(&call.media));
    eventually("replays", || {
        let counts = ["replayed", "too_old"].map(|reason| server.dropped("in", reason));
        (counts.iter().sum::<u64>() == 10).then_some(())
    });
    // Neither a handshake nor its end can be forged: records of DTLS in the clear (RFC 6347
    // §4.1: type, version, epoch, sequence number, length), alerts among them, and noise.
    let record = |kind: u8, number: u8, body: &[u8]| {
        let head = [kind, 254, 253, 0, 0, 0, 0, 0, 0, 0, number, 0, body.len() as u8];
        [&head[..], body].concat()
    };
    for number in 0..10 {
        send(&record(21, number, &[1, 0])); // close_notify
        send(&record(21, number, &[2, 40])); // handshake_failure
        send(&record(20, number, &[1])); // ChangeCipherSpec
        send(&record(22, number, &random.bytes(60)));
        send(&record(23, number, &random.bytes(60)));
        for kind in [20, 22, 23, 25, 40, 63] {
            send(&[&[kind], &random.bytes(80)[..]].concat());
        }
    }
    // STUN: noise, requests without integrity for nobody and for her, and an answer that nobody waits for.
    let hers = format!("{}:you", call.ada.ufrag);
    let hers = format!("{hers}{}", "x".repeat(hers.len().next_multiple_of(4) - hers.len()));
    for _ in 0..20 {
        send(&[&[0, 1], &random.bytes(60)[..]].concat());
        send(&stun("nobodynobody:you"));
        send(&stun(&hers));
        send(&[&[1, 1, 0, 0, 0x21, 0x12, 0xA4, 0x42], &random.bytes(12)[..]].concat());
    }
    for first in [4, 19, 64, 127, 192, 255] {
        send(&[first, 1, 2, 3]);
    }
    assert_dropped(&server, "in", "not_media", 6);
    assert_dropped(&server, "in", "check_not_authentic", 20);
    // The noise may have the shape of a name.
    eventually("the noise in STUN's clothes", || {
        let counts = ["stun_not_asked", "unknown_fragment"].map(|why| server.dropped("in", why));
        (counts.iter().sum::<u64>() == 60).then_some(())
    });
    assert!(server.dropped("in", "unknown_fragment") >= 20);
    // DTLS from there is hers as far as anybody can tell: so much of it goes up, and no more.
    eventually("the noise in DTLS's clothes", || {
        (server.dropped("in", "control_share") > 0).then_some(())
    });
    assert_eq!(server.dropped("control", "unknown_peer"), 0);
    assert_eq!(server.dropped("media", "control_queue_full"), 0);
    call.end();
    assert_eq!(server.dropped("in", "authentication_failed"), 100);
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    /// In no room.
    Stranger,
    /// Alone in another room, as session `lone`.
    Lone,
    /// In the call, with media.
    Ada,
}

/// What is called, and the code that refuses it.
type Row = (&'static str, Who, &'static str, Value, ErrorCode);

/// Joins that are refused.
fn bad_joins() -> Vec<Row> {
    let join = |keys: Value| {
        let mut data = json!({ "room": "other", "name": "x" });
        data.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        data
    };
    let row = |case, keys, code| (case, Who::Stranger, "room.join", join(keys), code);
    let mut rows = vec![
        row("another kind", json!({ "room": "call", "video": "none" }), ErrorCode::KindConflict),
        row(
            "another codec",
            json!({ "room": "call", "video_codec": "h264" }),
            ErrorCode::KindConflict,
        ),
        row("a full room", json!({ "room": "call" }), ErrorCode::RoomFull),
        ("in already", Who::Lone, "room.join", join(json!({})), ErrorCode::BadRequest),
    ];
    let long = "x".repeat(65);
    for (case, keys) in [
        ("a kind that is none", json!({ "audio": "sfv" })),
        ("no room's name", json!({ "room": "" })),
        ("a long room's name", json!({ "room": long })),
        ("a space in a room's name", json!({ "room": "a b" })),
        ("a slash in a room's name", json!({ "room": "../x" })),
        ("a letter beyond ASCII in a room's name", json!({ "room": "방" })),
        ("a number for a room's name", json!({ "room": 7 })),
        ("no name", json!({ "name": " " })),
        ("a long name", json!({ "name": long })),
        ("a control character in a name", json!({ "name": "a\u{7}" })),
        ("a name that turns the text around it", json!({ "name": "a\u{202e}nna" })),
        ("a mark of direction in a name", json!({ "name": "a\u{200f}" })),
        ("a character without width in a name", json!({ "name": "a\u{200b}nn" })),
        ("a name that nobody sees", json!({ "name": "\u{3164}" })),
        ("an object for a name", json!({ "name": {} })),
        ("a number for a session", json!({ "session": 1 })),
    ] {
        rows.push(row(case, keys, ErrorCode::BadRequest));
    }
    for (case, data) in [
        ("nothing", Value::Null),
        ("a list", json!([])),
        ("a text", json!("call")),
        ("no keys", json!({})),
        ("no name's key", json!({ "room": "other" })),
    ] {
        rows.push((case, Who::Stranger, "room.join", data, ErrorCode::BadRequest));
    }
    rows
}

/// Calls that are refused whatever is negotiated. `sdp` is a good offer.
fn bad_calls(sdp: &str, call: &Call) -> Vec<Row> {
    use ErrorCode::*;
    let offer = |sdp: &str| json!({ "sdp": sdp, "tracks": [], "session": "lone" });
    let resume = |keys: [&str; 3]| json!({ "room": keys[0], "participant": keys[1], "session": keys[2], "seen": 0 });
    let adas = call.ada.joined.participant.as_str();
    let mut rows = vec![
        ("no such call", Who::Stranger, "room.jion", json!({}), UnknownEvent),
        ("an empty event", Who::Stranger, "", json!({}), UnknownEvent),
        ("no such built-in", Who::Lone, "#nothing", json!({}), UnknownEvent),
        ("a second handshake", Who::Lone, "#handshake", json!({}), BadRequest),
        (
            "a channel to read",
            Who::Stranger,
            "#subscribe",
            json!({ "channel": "room:call" }),
            NotAllowed,
        ),
        ("a channel to write", Who::Ada, "#publish", json!({ "channel": "room:call" }), NotAllowed),
        ("an offer before joining", Who::Stranger, "room.offer", offer(sdp), NotJoined),
        ("slots before joining", Who::Stranger, "room.slots", json!({ "want": [] }), NotJoined),
        ("leaving before joining", Who::Stranger, "room.leave", json!({}), NotJoined),
        (
            "muting before joining",
            Who::Stranger,
            "room.mute",
            json!({ "track": "t-1", "muted": true }),
            NotJoined,
        ),
        ("an offer without SDP", Who::Lone, "room.offer", json!({ "tracks": [] }), BadRequest),
        ("an offer without tracks", Who::Lone, "room.offer", json!({ "sdp": sdp }), BadRequest),
        (
            "an offer of no session",
            Who::Lone,
            "room.offer",
            json!({ "sdp": sdp, "tracks": [] }),
            OfferConflict,
        ),
        ("an offer of another session", Who::Ada, "room.offer", offer(sdp), OfferConflict),
        ("slots of a wrong shape", Who::Ada, "room.slots", json!({ "want": {} }), BadRequest),
        ("muting half said", Who::Ada, "room.mute", json!({ "track": "t-1" }), BadRequest),
        (
            "a sample of a wrong shape",
            Who::Ada,
            "quality.sample",
            json!({ "at_ms": "now" }),
            BadRequest,
        ),
        (
            "resuming with a wrong session",
            Who::Stranger,
            "room.resume",
            resume(["call", adas, "min"]),
            Gone,
        ),
        (
            "resuming in another room",
            Who::Stranger,
            "room.resume",
            resume(["other", adas, "ada"]),
            Gone,
        ),
        (
            "resuming as nobody",
            Who::Stranger,
            "room.resume",
            resume(["call", "p-999999", "ada"]),
            Gone,
        ),
        (
            "resuming as nonsense",
            Who::Stranger,
            "room.resume",
            resume(["call", "ada", "ada"]),
            Gone,
        ),
    ];
    let before_lines = sdp.split("m=").next().unwrap();
    let lines = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n".repeat(513);
    for (case, bad) in [
        ("no SDP", String::new()),
        ("a word for SDP", "offer".into()),
        ("noise for SDP", "\u{0}\r\n\u{fffd}=\r\n".into()),
        ("an SDP of a version only", "v=0\r\n".into()),
        ("an SDP without lines", before_lines.into()),
        ("an SDP cut in the middle", sdp[..sdp.len() / 2].into()),
        ("an SDP without fingerprint", sdp.replace("a=fingerprint", "a=x-fingerprint")),
        ("an SDP without ICE", sdp.replace("a=ice-", "a=x-ice-")),
        ("an SDP of too many lines", format!("{before_lines}{lines}")),
        ("an SDP of too many bytes", format!("{sdp}a={}\r\n", "x".repeat(200 << 10))),
    ] {
        let adas = json!({ "sdp": bad, "tracks": [], "session": "ada" });
        rows.push((case, Who::Lone, "room.offer", offer(&bad), BadSdp));
        rows.push((case, Who::Ada, "room.offer", adas, BadSdp));
    }
    rows
}

/// Calls that are refused to who has negotiated.
fn bad_wishes(call: &Call) -> Vec<Row> {
    use ErrorCode::*;
    let [sound, picture] = call.ada.slots.map(|slot| slot.to_string());
    let [adas, mins] = [&call.ada.tracks, &call.min.tracks];
    let want = |slot: &str, track: &str| json!({ "want": [{ "slot": slot, "track": track }] });
    let mute = |track: &str| json!({ "track": track, "muted": true });
    let slots = |case, data, code| (case, Who::Ada, "room.slots", data, code);
    let mutes = |case, track: &str| (case, Who::Ada, "room.mute", mute(track), UnknownTrack);
    vec![
        slots("a slot that is none", want("nope", &mins[1]), UnknownSlot),
        slots("her own line as a slot", want("", &mins[1]), UnknownSlot),
        slots("a track that is none", want(&picture, "t-999999"), UnknownTrack),
        slots("a track's id of nonsense", want(&picture, "camera"), UnknownTrack),
        slots("a picture in a slot of sound", want(&sound, &mins[1]), UnknownTrack),
        slots("sound in a slot of pictures", want(&picture, &mins[0]), UnknownTrack),
        slots("her own picture", want(&picture, &adas[1]), UnknownTrack),
        ("muting another's track", Who::Ada, "room.mute", mute(&mins[0]), ErrorCode::NotAllowed),
        mutes("muting a track that is none", "t-999999"),
        mutes("muting nonsense", "microphone"),
        ("a stranger's view", Who::Lone, "room.slots", want(&picture, &mins[1]), UnknownSlot),
        ("a stranger's muting", Who::Lone, "room.mute", mute(&mins[0]), UnknownTrack),
    ]
}

#[test]
fn calls_that_make_no_sense_are_refused_with_their_code_and_disturb_no_call() {
    let server = Server::start("{ participants_per_room: 2 }");
    let mut call = Call::begin(&server);
    let (mut stranger, mut lone) = (Socket::connect(&server), Socket::connect(&server));
    lone.ask("room.join", json!({ "room": "other", "name": "lone", "session": "lone" }));
    let (_, offered) = Peer::offering("lone", 3);
    let mut refuse = |rows: Vec<Row>, call: &mut Call| {
        assert!(!rows.is_empty());
        for (case, who, event, data, code) in rows {
            let socket = match who {
                Who::Stranger => &mut stranger,
                Who::Lone => &mut lone,
                Who::Ada => &mut call.ada.socket,
            };
            match socket.call_patiently(event, &data) {
                Ok(answer) => panic!("{case} ({who:?}, {event}): taken with {answer}"),
                Err(error) => {
                    assert_eq!(error.code, code, "{case} ({who:?}, {event}): {error}");
                    assert_eq!(error.name, "RoomError");
                    assert!(error.message.len() > 10, "{case}: no reason in {error}");
                }
            }
        }
    };
    refuse(bad_joins(), &mut call);
    let rows = bad_calls(&offered.sdp, &call);
    refuse(rows, &mut call);
    // After all of that a good offer is taken; of tracks that are not in it, none.
    let offer = |tracks: Value| json!({ "sdp": offered.sdp, "tracks": tracks, "session": "lone" });
    let nine: Vec<Value> =
        (0..9).map(|n| json!({ "mid": n.to_string(), "kind": "audio" })).collect();
    let slot = offered.slots[0].to_string();
    let row = |case, tracks, code| (case, Who::Lone, "room.offer", offer(tracks), code);
    refuse(
        vec![
            row(
                "a line that is none",
                json!([{ "mid": "nope", "kind": "audio" }]),
                ErrorCode::UnknownTrack,
            ),
            row(
                "a slot as a track",
                json!([{ "mid": slot, "kind": "audio" }]),
                ErrorCode::UnknownTrack,
            ),
            row("too many tracks", json!(nine), ErrorCode::NotAllowed),
        ],
        &mut call,
    );
    let rows = bad_wishes(&call);
    refuse(rows, &mut call);
    let answer = lone.call_patiently("room.offer", &offer(json!(offered.tracks))).unwrap();
    assert_eq!(answer["tracks"].as_array().unwrap().len(), 2);
    call.end();
}

#[test]
fn frames_that_make_no_sense_are_counted_and_in_the_end_close_the_socket() {
    let server = Server::start("{}");
    let mut socket = Socket::connect(&server);
    let not_json = ["x", "{", "{\"event\":", "[1", "\u{0}"];
    not_json.iter().for_each(|text| socket.send(text));
    let shapes = ["7", "null", "\"ping\"", "{}", "{\"event\":7}", "{\"cid\":1}", "[7]"];
    for (nth, text) in shapes.iter().enumerate() {
        socket.send(text);
        if text.contains("cid") {
            let answer = socket.packet().unwrap();
            assert_eq!(
                (&answer["rid"], &answer["error"]["code"]),
                (&json!(1), &json!("bad_request"))
            );
        }
        socket.ask("ping", json!(nth)); // It goes on.
    }
    socket.send(&format!("\"{}\"", "x".repeat(300 << 10)));
    socket.ask("ping", Value::Null);
    assert_dropped(&server, "signaling", "not_json", not_json.len() as u64);
    assert_dropped(&server, "signaling", "bad_shape", shapes.len() as u64);
    assert_dropped(&server, "signaling", "too_large", 1);
    // 13 so far; the 20th is the last.
    (13..20).for_each(|_| socket.send("x"));
    assert_eq!(socket.packet(), Err(4100));
}

#[test]
fn a_terminated_server_takes_nobody_new_and_ends_when_the_last_has_left() {
    let mut server = Server::start("{}");
    let mut ada = Socket::connect(&server);
    ada.ask("room.join", json!({ "room": "last", "name": "ada" }));
    server.terminate();
    // Until the signal arrives people still come in, and go again.
    let refused = eventually("a refusal", || {
        let mut late = Socket::connect(&server);
        match late.call("room.join", json!({ "room": "last", "name": "min" })) {
            Ok(_) => {
                late.ask("room.leave", json!({}));
                None
            }
            Err(error) => Some(error),
        }
    });
    assert_eq!(refused.code, ErrorCode::Draining, "{refused}");
    let mut other = Socket::connect(&server);
    let refused = other.call("room.join", json!({ "room": "new", "name": "min" })).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Draining, "{refused}");
    // Who is there stays until he leaves.
    ada.ask("ping", Value::Null);
    ada.ask("room.leave", json!({}));
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(ada.packet(), Err(wire::frame::close::DRAINING));
}
