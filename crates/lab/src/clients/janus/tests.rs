//! Against a Janus in miniature, in the words of the real one's messages.

use super::*;
use futures_util::{SinkExt, StreamExt};
use std::sync::Mutex;
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use wire::room::{AudioTopology, OfferedTrack, VideoTopology};

/// What was asked for, in order.
type Log = Arc<Mutex<Vec<Value>>>;

/// Serves one connection: somebody with the number 7 publishes sound and leaves once they are heard.
async fn janus(refuse: Option<(u64, &'static str)>) -> (Url, Log) {
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
            for mut answer in answers(&request, &mut handles, refuse) {
                if answer["janus"] != "event" || answer["transaction"] == Value::Null {
                    answer["session_id"] = json!(1);
                }
                socket.send(Message::text(answer.to_string())).await.expect("sent");
            }
        }
    });
    (Url { host: "127.0.0.1".into(), port }, log)
}

fn answers(request: &Value, handles: &mut u64, refuse: Option<(u64, &str)>) -> Vec<Value> {
    let transaction = &request["transaction"];
    let id =
        |id: u64| json!({ "janus": "success", "transaction": transaction, "data": { "id": id } });
    let event = |data: Value| {
        json!({ "janus": "event", "transaction": transaction, "sender": request["handle_id"],
                "plugindata": { "plugin": "janus.plugin.videoroom", "data": data } })
    };
    let by_itself =
        |data: Value| json!({ "janus": "event", "sender": 100, "plugindata": { "data": data } });
    let with_sdp = |mut event: Value, kind: &str, sdp: &str| {
        event["jsep"] = json!({ "type": kind, "sdp": sdp });
        event
    };
    let ack = json!({ "janus": "ack", "transaction": transaction });
    match request["janus"].as_str() {
        Some("create") => vec![id(1)],
        Some("attach") => {
            *handles += 1;
            vec![id(*handles)]
        }
        Some("message") => {
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
                    return vec![ack, started, by_itself(json!({ "leaving": 7 }))];
                }
                _ => event(json!({})),
            };
            vec![ack, answer]
        }
        _ => Vec::new(),
    }
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

async fn event(incoming: &mut mpsc::Receiver<Incoming>) -> Event {
    match incoming.recv().await {
        Some(Incoming::Event(_, envelope)) => envelope.event,
        other => panic!("an event should come, not {other:?}"),
    }
}

#[tokio::test]
async fn publishers_come_as_offers_and_go() {
    let (target, log) = janus(None).await;
    let (seat, mut incoming) = VideoRoom::connect(&target).await.expect("connect");
    let joined = seat.join(&join()).await.expect("a room that exists is entered");
    assert_eq!((joined.participant.as_str(), joined.epoch), ("5", 0));
    assert_eq!(joined.participants[0].tracks[0].id, "7/a");

    let Event::PeerOffer { from, sdp, tracks } = event(&mut incoming).await else { panic!() };
    assert_eq!((from.as_str(), sdp.as_str()), ("7", "v=0 offered"));
    assert_eq!(tracks, [AnsweredTrack { mid: "0".into(), id: "7/a".into() }]);

    let track = OfferedTrack {
        mid: "x".into(),
        kind: MediaKind::Audio,
        name: String::new(),
        opaque: false,
        content_hint: wire::room::ContentHint::Speech,
        layers: Vec::new(),
    };
    let offer = Offer { sdp: "v=0 mine".into(), tracks: vec![track], session: None };
    let answer = seat.offer(&offer).await.expect("published");
    assert_eq!(answer.sdp, "v=0 answered");
    assert_eq!(answer.tracks, [AnsweredTrack { mid: "x".into(), id: "5/x".into() }]);

    let mine = PeerDescription { to: "7".into(), sdp: "v=0 taken".into(), tracks: vec![] };
    seat.peer_answer(&mine).await.expect("started");
    let Event::ParticipantLeft { participant, .. } = event(&mut incoming).await else { panic!() };
    assert_eq!(participant, "7");
    seat.leave().await.expect("left");

    let log = log.lock().expect("log");
    let start = log.iter().find(|asked| asked["body"]["request"] == "start").expect("start");
    assert_eq!((&start["handle_id"], &start["jsep"]["sdp"]), (&json!(102), &json!("v=0 taken")));
    let ended = log.iter().find(|asked| asked["janus"] == "detach").expect("detach");
    assert_eq!(ended["handle_id"], 102, "the subscription to who left");
}

#[tokio::test]
async fn who_left_before_he_could_be_subscribed_to_is_gone() {
    let (target, _) = janus(Some((428, "no such feed"))).await;
    let (seat, mut incoming) = VideoRoom::connect(&target).await.expect("connect");
    seat.join(&join()).await.expect("joined");
    let Event::ParticipantLeft { participant, .. } = event(&mut incoming).await else { panic!() };
    assert_eq!(participant, "7");
}

#[tokio::test]
async fn a_subscription_that_is_refused_ends_the_visit_with_the_cause() {
    let (target, _) = janus(Some((433, "unauthorized"))).await;
    let (seat, mut incoming) = VideoRoom::connect(&target).await.expect("connect");
    seat.join(&join()).await.expect("joined");
    let Some(Incoming::Closed(cause)) = incoming.recv().await else { panic!() };
    assert_eq!(cause, "no subscription to 7: Janus refused join: unauthorized (433)");
}

#[test]
fn rooms_have_numbers_that_javascript_can_write() {
    assert_eq!(number_of("a"), number_of("a"));
    assert_ne!(number_of("a"), number_of("b"));
    assert!((1..1 << 52).contains(&number_of("sfu-1-abcdef")));
}
