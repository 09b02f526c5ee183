//! Against a Janus in miniature, in the words of the real one's messages.

use super::entrance::{left, number_of};
use super::*;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use wire::event::{Event, SlotChange};
use wire::room::{
    AnsweredTrack, Join, MediaKind, Offer, OfferedTrack, PeerDescription, VideoTopology,
};

/// What was asked for, in order.
type Log = Arc<Mutex<Vec<Value>>>;

/// Serves one connection: a request of the session's or, with the plugin's name, to a plugin has these answers.
async fn janus(
    plugin: &'static str,
    answers: impl Fn(&Value) -> Vec<Value> + Send + 'static,
) -> (Url, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let log = Log::default();
    let shared = Arc::clone(&log);
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("accept");
        #[allow(clippy::result_large_err)] // the library's own type
        let protocol = |request: &Request, mut response: Response| {
            let wanted = request.headers().get("Sec-WebSocket-Protocol").cloned().expect("one");
            response.headers_mut().insert("Sec-WebSocket-Protocol", wanted);
            Ok(response)
        };
        let mut socket =
            tokio_tungstenite::accept_hdr_async(stream, protocol).await.expect("WebSocket");
        let mut handles = 100;
        while let Some(Ok(Message::Text(text))) = socket.next().await {
            let request: Value = serde_json::from_str(&text).expect("JSON");
            shared.lock().expect("log").push(request.clone());
            let asked = &request["transaction"];
            let id =
                |id: u64| json!({ "janus": "success", "transaction": asked, "data": { "id": id } });
            let told = match request["janus"].as_str() {
                Some("create") => vec![id(1)],
                Some("attach") => {
                    assert_eq!(request["plugin"], plugin);
                    handles += 1;
                    vec![id(handles)]
                }
                Some("message") => answers(&request),
                _ => Vec::new(),
            };
            for mut answer in told {
                if answer["janus"] != "event" || answer["transaction"] == Value::Null {
                    answer["session_id"] = json!(1);
                }
                socket.send(Message::text(answer.to_string())).await.expect("sent");
            }
        }
    });
    (Url { host: "127.0.0.1".into(), port }, log)
}

/// What Janus says to a request…
fn event(request: &Value, data: Value) -> Value {
    json!({ "janus": "event", "transaction": request["transaction"], "sender": request["handle_id"],
            "plugindata": { "data": data } })
}

/// …and by itself.
fn by_itself(data: Value) -> Value {
    json!({ "janus": "event", "sender": 101, "plugindata": { "data": data } })
}

fn ack(request: &Value) -> Value {
    json!({ "janus": "ack", "transaction": request["transaction"] })
}

fn with_sdp(mut event: Value, kind: &str, sdp: &str) -> Value {
    event["jsep"] = json!({ "type": kind, "sdp": sdp });
    event
}

/// A VideoRoom in which somebody with the number 7 publishes sound and leaves once they are heard.
async fn video_room(refuse: Option<(u64, &'static str)>) -> (Url, Log) {
    janus("janus.plugin.videoroom", move |request| {
        let event = |data: Value| event(request, data);
        let body = &request["body"];
        let answer = match (body["request"].as_str(), body["ptype"].as_str()) {
            (Some("create"), _) => event(json!({ "error_code": 427, "error": "exists" })),
            (Some("join"), Some("publisher")) => event(json!({
                "videoroom": "joined", "id": 5, "publishers": [{
                    "id": 7, "display": "bot-7",
                    "streams": [{ "type": "audio", "mid": "a", "mindex": 0 }],
                }],
            })),
            (Some("join"), Some("subscriber")) => match refuse {
                Some((code, error)) => event(json!({ "error_code": code, "error": error })),
                None => {
                    let streams = json!([{ "mid": "0", "feed_id": 7, "feed_mid": "a" }]);
                    let data = json!({ "videoroom": "attached", "streams": streams });
                    with_sdp(event(data), "offer", "v=0 offered")
                }
            },
            (Some("publish"), _) => {
                with_sdp(event(json!({ "configured": "ok" })), "answer", "v=0 answered")
            }
            (Some("start"), _) => {
                let started = event(json!({ "started": "ok" }));
                return vec![ack(request), started, by_itself(json!({ "leaving": 7 }))];
            }
            _ => event(json!({})),
        };
        vec![ack(request), answer]
    })
    .await
}

/// An AudioBridge in which 7 is there already, 8 comes and both are set up, and 7 leaves.
async fn audio_bridge(exists: bool) -> (Url, Log) {
    janus("janus.plugin.audiobridge", move |request| {
        let event = |data: Value| event(request, data);
        let person = |id: u64, name: &str| json!({ "id": id, "display": name, "setup": false, "muted": false });
        match request["body"]["request"].as_str() {
            Some("create") => {
                let data = match exists {
                    true => json!({ "audiobridge": "event", "error_code": 486,
                                    "error": "Room 3 already exists" }),
                    false => json!({ "audiobridge": "created", "room": 3, "permanent": false }),
                };
                let mut made = event(data);
                made["janus"] = json!("success");
                vec![made]
            }
            Some("join") => vec![
                ack(request),
                event(json!({ "audiobridge": "joined", "room": 3, "id": 5,
                              "participants": [person(7, "bot-7")] })),
            ],
            Some("configure") => {
                let answer = event(json!({ "audiobridge": "event", "result": "ok" }));
                let news = [
                    json!({ "audiobridge": "joined", "room": 3, "participants": [person(8, "bot-8")] }),
                    json!({ "audiobridge": "event", "room": 3, "participants": [person(8, "bot-8")] }),
                    json!({ "audiobridge": "event", "room": 3, "participants": [person(7, "bot-7")] }),
                    json!({ "audiobridge": "event", "room": 3, "leaving": 7 }),
                ];
                let sdp = "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=sendrecv\r\na=mid:x\r\n";
                let answer = with_sdp(answer, "answer", sdp);
                [ack(request), answer].into_iter().chain(news.map(by_itself)).collect()
            }
            Some("leave") => {
                vec![ack(request), event(json!({ "audiobridge": "left", "room": 3, "id": 5 }))]
            }
            other => panic!("{other:?} is no request of an AudioBridge"),
        }
    })
    .await
}

fn offer() -> Offer {
    let track = OfferedTrack {
        mid: "x".into(),
        kind: MediaKind::Audio,
        name: String::new(),
        opaque: false,
        content_hint: wire::room::ContentHint::Speech,
        layers: Vec::new(),
    };
    Offer { sdp: "v=0 mine".into(), tracks: vec![track], session: None }
}

fn join() -> Join {
    Join {
        room: "r".into(),
        name: "bot-5".into(),
        audio: Some(AudioTopology::Sfu),
        video: Some(VideoTopology::None),
        ..Join::default()
    }
}

async fn next(incoming: &mut mpsc::Receiver<Incoming>) -> Event {
    match incoming.recv().await {
        Some(Incoming::Event(_, envelope)) => envelope.event,
        other => panic!("an event should come, not {other:?}"),
    }
}

#[tokio::test]
async fn publishers_come_as_offers_and_go() {
    let (target, log) = video_room(None).await;
    let (seat, mut incoming) =
        take_seat(&target, AudioTopology::Sfu, false).await.expect("connect");
    let joined = seat.join(&join()).await.expect("a room that exists is entered");
    assert_eq!((joined.participant.as_str(), joined.epoch), ("5", 0));
    assert_eq!(joined.participants[0].tracks[0].id, "7/a");

    let Event::PeerOffer { from, sdp, tracks } = next(&mut incoming).await else { panic!() };
    assert_eq!((from.as_str(), sdp.as_str()), ("7", "v=0 offered"));
    assert_eq!(tracks, [AnsweredTrack { mid: "0".into(), id: "7/a".into() }]);

    let answer = seat.offer(&offer()).await.expect("published");
    assert_eq!(answer.sdp, "v=0 answered");
    assert_eq!(answer.tracks, [AnsweredTrack { mid: "x".into(), id: "5/x".into() }]);

    let mine = PeerDescription { to: "7".into(), sdp: "v=0 taken".into(), tracks: vec![] };
    seat.peer_answer(&mine).await.expect("started");
    let Event::ParticipantLeft { participant, .. } = next(&mut incoming).await else { panic!() };
    assert_eq!(participant, "7");
    seat.leave().await.expect("left");

    let log = log.lock().expect("log");
    let start = log.iter().find(|asked| asked["body"]["request"] == "start").expect("start");
    assert_eq!((&start["handle_id"], &start["jsep"]["sdp"]), (&json!(102), &json!("v=0 taken")));
    let ended = log.iter().find(|asked| asked["janus"] == "detach").expect("detach");
    assert_eq!(ended["handle_id"], 102, "the subscription to who left");
}

#[tokio::test]
async fn behind_a_link_janus_gets_an_address_with_nobody_there() {
    let (target, log) = video_room(None).await;
    let taken = take_seat(&target, AudioTopology::Sfu, true).await;
    let (seat, _incoming) = taken.expect("connect");
    seat.join(&join()).await.expect("joined");
    let sdp = "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
               a=candidate:1 1 udp 5 127.1.0.1 4000 typ host\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:1\r\n";
    seat.offer(&Offer { sdp: sdp.into(), ..offer() }).await.expect("published");
    let log = log.lock().expect("log");
    let jsep =
        &log.iter().find(|asked| asked["body"]["request"] == "publish").expect("one")["jsep"];
    let told = jsep["sdp"].as_str().expect("an SDP");
    let candidates: Vec<_> = told.lines().filter(|line| line.contains("candidate")).collect();
    assert_eq!(candidates, ["a=candidate:1 1 udp 1 127.0.0.1 9 typ host"]);
    assert!(told.find("candidate") < told.find("m=video"), "in the first line, which carries all");
    assert_eq!(jsep["trickle"], false, "no others come");
}

#[tokio::test]
async fn who_left_before_he_could_be_subscribed_to_is_gone() {
    let (target, _) = video_room(Some((428, "no such feed"))).await;
    let (seat, mut incoming) =
        take_seat(&target, AudioTopology::Sfu, false).await.expect("connect");
    seat.join(&join()).await.expect("joined");
    let Event::ParticipantLeft { participant, .. } = next(&mut incoming).await else { panic!() };
    assert_eq!(participant, "7");
}

#[tokio::test]
async fn a_subscription_that_is_refused_ends_the_visit_with_the_cause() {
    let (target, _) = video_room(Some((433, "unauthorized"))).await;
    let (seat, mut incoming) =
        take_seat(&target, AudioTopology::Sfu, false).await.expect("connect");
    seat.join(&join()).await.expect("joined");
    let Some(Incoming::Closed(cause)) = incoming.recv().await else { panic!() };
    assert_eq!(cause, "no subscription to 7: Janus refused join: unauthorized (433)");
}

#[tokio::test]
async fn an_audio_bridge_is_entered_by_one_line_and_tells_who_is_there() {
    for exists in [true, false] {
        let (target, log) = audio_bridge(exists).await;
        let (seat, mut incoming) =
            take_seat(&target, AudioTopology::Mcu, false).await.expect("connect");
        let join = Join { audio: Some(AudioTopology::Mcu), ..join() };
        let joined = seat.join(&join).await.expect("joined");
        assert_eq!((joined.participant.as_str(), joined.count), ("5", 2));
        let first = &joined.participants[0];
        assert_eq!((first.id.as_str(), first.name.as_str(), first.tracks.len()), ("7", "bot-7", 0));

        let answer = seat.offer(&offer()).await.expect("answered");
        assert_eq!(answer.tracks, [AnsweredTrack { mid: "x".into(), id: "5/x".into() }]);
        // Those who are known already and tell of themselves again come once.
        let mut events = Vec::new();
        for _ in 0..3 {
            events.push(next(&mut incoming).await);
        }
        let mix = SlotChange {
            slot: "x".into(),
            participant: None,
            track: None,
            mix: true,
            paused: None,
            rtp_timestamp: None,
        };
        assert!(events.contains(&Event::Slots { slots: vec![mix] }), "{events:?}");
        events.retain(|event| !matches!(event, Event::Slots { .. }));
        let Event::ParticipantJoined { participant, count: 3, .. } = &events[0] else {
            panic!("{events:?}")
        };
        assert_eq!((participant.id.as_str(), participant.name.as_str()), ("8", "bot-8"));
        assert_eq!(events[1], left(7, 2));
        seat.leave().await.expect("left");

        let log = log.lock().expect("log");
        let asked = |what: &str| log.iter().find(|asked| asked["body"]["request"] == what);
        let create = &asked("create").expect("a room is made")["body"];
        assert_eq!(
            (&create["sampling_rate"], &create["default_bitrate"]),
            (&json!(48_000), &json!(32_000))
        );
        let jsep = &asked("configure").expect("an offer")["jsep"];
        assert_eq!(jsep, &json!({ "type": "offer", "sdp": "v=0 mine", "trickle": false }));
        assert_eq!(asked("join").expect("join")["body"]["room"], create["room"]);
    }
}

#[test]
fn rooms_have_numbers_that_javascript_can_write() {
    assert_eq!(number_of("a"), number_of("a"));
    assert_ne!(number_of("a"), number_of("b"));
    assert!((1..1 << 52).contains(&number_of("sfu-1-abcdef")));
}
