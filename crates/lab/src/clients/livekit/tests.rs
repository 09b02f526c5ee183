//! Against what a real LiveKit said: `exchange.txt` is recorded, and played again.

use super::messages::{
    AddTrackRequest, LeaveRequest, Request, RequestResponse, Response, SignalRequest,
    SignalResponse,
};
use super::*;
use crate::clients::sdp::{self, Line};
use crate::clients::seat::OFFERED;
use futures_util::{SinkExt, StreamExt};
use jsonwebtoken::dangerous::insecure_decode_claims;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server;
use wire::event::{Event, SlotChange};
use wire::room::{
    Answer, ContentHint, Join, Joined, MediaKind, Offer, OfferedLayer, OfferedTrack,
    PeerDescription,
};

const RECORDED: &str = include_str!("exchange.txt");

/// A message of an exchange.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    Bot(Request),
    Server(Response),
}

fn server(bytes: &[u8]) -> Said {
    let response = SignalResponse::decode(bytes).expect("a SignalResponse");
    Said::Server(response.message.expect("a kind that the adapter knows"))
}

fn bot(bytes: &[u8]) -> Said {
    let request = SignalRequest::decode(bytes).expect("a SignalRequest");
    Said::Bot(request.message.expect("a kind that the adapter knows"))
}

/// The bytes of a text in which those that are no signs are escaped.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next().expect("an escape") {
                b'n' => b'\n',
                b'r' => b'\r',
                b'x' => {
                    let digits = [rest.next().expect("a digit"), rest.next().expect("a digit")];
                    let digits = str::from_utf8(&digits).expect("ASCII");
                    u8::from_str_radix(digits, 16).expect("hexadecimal")
                }
                other => other,
            },
            byte => byte,
        });
    }
    bytes
}

fn recorded() -> Vec<Said> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    let said = lines.map(|line| {
        let mut parts = line.splitn(3, ' ');
        let (way, _kind) = (parts.next(), parts.next());
        let bytes = unescaped(parts.next().expect("three parts"));
        match way {
            Some(">") => bot(&bytes),
            _ => server(&bytes),
        }
    });
    said.collect()
}

fn requests(said: &[Said]) -> Vec<Request> {
    let requests = said.iter().filter_map(|said| match said {
        Said::Bot(request) => Some(request.clone()),
        Said::Server(_) => None,
    });
    requests.collect()
}

/// The SDPs of a bot in an exchange: its offer, and its answers.
fn sdps(said: &[Said]) -> (String, Vec<String>) {
    let (mut offer, mut answers) = (String::new(), Vec::new());
    for request in requests(said) {
        match request {
            Request::Offer(description) => offer = description.sdp,
            Request::Answer(description) => answers.push(description.sdp),
            _ => {}
        }
    }
    (offer, answers)
}

/// A server that says its part of an exchange, each message once the bot's before it have come. It hands back the path
/// that was asked for and what the bot said.
async fn plays(script: Vec<Said>) -> (Url, JoinHandle<(String, Vec<Request>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let played = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("accept");
        let mut path = String::new();
        #[allow(clippy::result_large_err)] // the library's own type
        let note = |request: &server::Request, response: server::Response| {
            path = request.uri().to_string();
            Ok(response)
        };
        let mut socket = tokio_tungstenite::accept_hdr_async(stream, note).await.expect("a socket");
        let mut heard = Vec::new();
        for said in script {
            match said {
                Said::Server(response) => {
                    let bytes = SignalResponse { message: Some(response) }.encode_to_vec();
                    socket.send(Message::binary(bytes)).await.expect("sent");
                }
                Said::Bot(_) => {
                    let Some(Ok(Message::Binary(bytes))) = socket.next().await else { break };
                    let Said::Bot(request) = bot(&bytes) else { unreachable!() };
                    heard.push(request);
                }
            }
        }
        (path, heard)
    });
    (Url { host: "127.0.0.1".into(), port }, played)
}

fn enters() -> Join {
    Join { room: "rec-1".into(), name: "bot-2".into(), ..Join::default() }
}

/// An offer of these lines by mid.
fn offer(sdp: &str) -> Offer {
    let kinds = [(MediaKind::Audio, "microphone"), (MediaKind::Video, "camera")];
    let track = |(line, (kind, name)): (Line, (MediaKind, &str))| OfferedTrack {
        mid: line.mid,
        kind,
        name: name.into(),
        opaque: false,
        content_hint: ContentHint::Speech,
        layers: Vec::new(),
    };
    let tracks = sdp::lines(sdp).into_iter().zip(kinds).map(track).collect();
    Offer { sdp: sdp.into(), tracks, session: None }
}

async fn next(incoming: &mut mpsc::Receiver<Incoming>) -> Event {
    match incoming.recv().await {
        Some(Incoming::Event(_, envelope)) => envelope.event,
        other => panic!("an event should come, not {other:?}"),
    }
}

/// An offer of the server's comes, which has no ids: what its lines hold is told after it.
async fn is_offered(incoming: &mut mpsc::Receiver<Incoming>) -> (String, Vec<SlotChange>) {
    let Event::PeerOffer { from, sdp, tracks } = next(incoming).await else { panic!("an offer") };
    assert_eq!((from.as_str(), tracks), (OFFERED, vec![]));
    let Event::Slots { slots } = next(incoming).await else { panic!("slots") };
    (sdp, slots)
}

async fn candidates(incoming: &mut mpsc::Receiver<Incoming>, whose: &str) {
    for protocol in ["udp", "tcp"] {
        let Event::PeerCandidate { from, candidate, .. } = next(incoming).await else { panic!() };
        assert_eq!(from, whose);
        assert!(candidate.starts_with("candidate:") && candidate.contains(" 127.0.0.1 788"));
        assert!(candidate.contains(&format!(" {protocol} ")), "{candidate}");
    }
}

#[tokio::test]
async fn a_visit_is_what_was_recorded() {
    let script = recorded();
    let (mine, answers) = sdps(&script);
    let wanted = requests(&script);
    let (target, played) = plays(script).await;
    let (seat, mut incoming) = take_seat(&target, true);
    let joined: Joined = seat.join(&enters()).await.expect("joined");
    assert_eq!((joined.participant.as_str(), joined.count), ("PA_QSy2fii5ZpgQ", 2));
    let [other] = &joined.participants[..] else { panic!("{:?}", joined.participants) };
    assert_eq!((other.id.as_str(), other.name.as_str()), ("PA_4EoqLowVUD7X", "bot-1"));
    let mut kinds: Vec<MediaKind> = other.tracks.iter().map(|track| track.kind).collect();
    kinds.sort_by_key(|kind| *kind == MediaKind::Video);
    assert_eq!(kinds, [MediaKind::Audio, MediaKind::Video]);

    let (sdp, slots) = is_offered(&mut incoming).await;
    assert!(sdp.contains("m=application") && slots.is_empty(), "no tracks yet: {sdp}");
    let Answer { sdp, tracks } = seat.offer(&offer(&mine)).await.expect("published");
    assert!(sdp.contains("a=recvonly"));
    let ids: Vec<&str> = tracks.iter().map(|track| track.id.as_str()).collect();
    assert_eq!(ids, ["TR_AMmWStCesXk7Ss", "TR_VCDrPbXX78C6yn"]);
    candidates(&mut incoming, OFFERED).await;
    candidates(&mut incoming, "").await;

    let answer =
        |sdp: &str| PeerDescription { to: OFFERED.into(), sdp: sdp.into(), tracks: vec![] };
    seat.peer_answer(&answer(&answers[0])).await.expect("answered");
    let (_, slots) = is_offered(&mut incoming).await;
    let told = |slot: &SlotChange| (slot.participant.clone(), slot.track.clone(), slot.paused);
    let mut told: Vec<_> = slots.iter().map(told).collect();
    told.sort_by(|a, b| a.1.cmp(&b.1));
    let of = |track: &str| (Some(other.id.clone()), Some(track.to_owned()), None);
    let mut ids: Vec<&str> = other.tracks.iter().map(|track| track.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(told, ids.into_iter().map(of).collect::<Vec<_>>());
    seat.peer_answer(&answer(&answers[1])).await.expect("answered");
    let Event::Slots { slots } = next(&mut incoming).await else { panic!("the picture flows") };
    assert_eq!((slots.len(), slots[0].track.as_deref()), (1, Some("TR_VCzNjASAMNnvny")));
    seat.leave().await.expect("left");

    let (path, heard) = played.await.expect("played");
    assert_eq!(heard, wanted);
    assert!(
        path.starts_with("/rtc?access_token=") && path.contains("&auto_subscribe=1&"),
        "{path}"
    );
    let token = path["/rtc?access_token=".len()..].split('&').next().expect("a token");
    let claims: Value = insecure_decode_claims(token).expect("claims");
    assert_eq!((&claims["sub"], &claims["name"]), (&json!("bot-2"), &json!("bot-2")));
    let grants =
        json!({ "room": "rec-1", "roomJoin": true, "canPublish": true, "canSubscribe": true });
    assert_eq!(claims["video"], grants);
}

#[tokio::test]
async fn a_server_that_is_not_behind_a_link_is_told_addresses_and_lines_may_become_empty() {
    let script = recorded();
    let (mine, answers) = sdps(&script);
    let mut offered = script.iter().filter_map(|said| match said {
        Said::Server(Response::Offer(offer)) => Some(offer.clone()),
        _ => None,
    });
    let (first, second) = (offered.next().expect("one"), offered.next().expect("two"));
    let mut third = second.clone();
    third.sdp = third.sdp.replace("a=sendrecv", "a=inactive");
    let until = script.iter().position(|said| matches!(said, Said::Bot(_))).expect("a request");
    let mut script = script[..until].to_vec();
    let answered = || Said::Bot(Request::Answer(first.clone()));
    script.extend([Said::Server(Response::Offer(second.clone())), answered()]);
    script.extend([Said::Server(Response::Offer(third)), answered()]);
    let (target, played) = plays(script).await;
    let (seat, mut incoming) = take_seat(&target, false);
    seat.join(&enters()).await.expect("joined");
    is_offered(&mut incoming).await;
    let (_, slots) = is_offered(&mut incoming).await;
    assert_eq!(slots.len(), 2);
    let sdp = format!("{}a=candidate:1 1 udp 1 127.1.0.1 4000 typ host\r\n", answers[1]);
    let answer = PeerDescription { to: OFFERED.into(), sdp, tracks: vec![] };
    seat.peer_answer(&answer).await.expect("answered");
    let (_, slots) = is_offered(&mut incoming).await;
    assert_eq!(slots.len(), 2, "each is told once");
    assert!(slots.iter().all(|slot| slot.participant.is_none() && slot.track.is_none()));
    seat.peer_answer(&answer).await.expect("answered");
    let (_, heard) = played.await.expect("played");
    let Request::Answer(told) = &heard[0] else { panic!("{heard:?}") };
    assert!(told.sdp.ends_with("127.1.0.1 4000 typ host\r\n"));
    assert!(!crate::clients::link::told(&told.sdp, true).contains("127.1.0.1"));
    assert!(sdp::lines(&mine).iter().all(|line| line.msid.is_some()));
}

#[tokio::test]
async fn what_is_refused_says_why() {
    let script = recorded();
    let join = script[0].clone();
    let track =
        AddTrackRequest { cid: "KzHFTgr0Ezp7XKYOjvDH".into(), ..AddTrackRequest::default() };
    let no = RequestResponse { reason: 2, message: "no permission".into(), add_track: Some(track) };
    let asked = script.iter().find(|said| matches!(said, Said::Bot(_))).expect("one").clone();
    let refuses = vec![join, asked, Said::Server(Response::Request(no))];
    let (mine, _) = sdps(&script);
    let (target, _played) = plays(refuses).await;
    let (seat, mut incoming) = take_seat(&target, false);
    seat.join(&enters()).await.expect("joined");
    let refused = seat.offer(&offer(&mine)).await.expect_err("refused").to_string();
    assert_eq!(refused, "LiveKit refused a track: no permission (2)");
    let Some(Incoming::Closed(_)) = incoming.recv().await else { panic!("the server is gone") };

    let deleted = Said::Server(Response::Leave(LeaveRequest { reason: 5 }));
    let (target, _played) = plays(vec![deleted]).await;
    let (seat, _incoming) = take_seat(&target, false);
    let put_out = seat.join(&enters()).await.expect_err("not let in").to_string();
    assert_eq!(put_out, "the socket was closed: LiveKit put them out: RoomDeleted");
}

/// A server that answers one request with a status and a text.
async fn answers(status: &'static str, text: &'static str) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("accept");
        let mut asked = vec![0; 4096];
        let _ = stream.read(&mut asked).await.expect("a request");
        let length = text.len();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{text}");
        stream.write_all(answer.as_bytes()).await.expect("answered");
    });
    Url { host: "127.0.0.1".into(), port }
}

#[tokio::test]
async fn a_key_that_is_not_the_servers_is_named_with_the_cure() {
    let target = answers("200 OK", "success").await;
    reach(&target).await.expect("a server that takes the token");
    let target = answers("401 Unauthorized", "invalid API key: devkey").await;
    let checked = reach(&target).await.expect_err("refused").to_string();
    let target = answers("401 Unauthorized", "invalid API key: devkey").await;
    let (seat, _incoming) = take_seat(&target, false);
    let entered = seat.join(&enters()).await.expect_err("refused").to_string();
    for text in [checked, entered] {
        for part in ["key devkey: invalid API key", "set LIVEKIT_API_KEY and LIVEKIT_API_SECRET"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    let told = |name: &str| (name == "LIVEKIT_API_KEY").then(|| "mine".to_owned());
    let key = ApiKey::told(told);
    assert_eq!(key.name, "mine");
    let token = key.token("r", "ada").expect("a token");
    let claims: Value = insecure_decode_claims(&token).expect("claims");
    assert_eq!((&claims["iss"], &claims["video"]["room"]), (&json!("mine"), &json!("r")));
    let refused = key.refused(401, &format!("invalid token: {token}, error: x"), &token);
    assert!(!refused.to_string().contains(&token), "a token is told to nobody");
}

#[test]
fn a_picture_in_layers_says_so() {
    let layer =
        |(rid, width, height): (&str, u32, u32)| OfferedLayer { rid: rid.into(), width, height };
    let layers = [("q", 320, 180), ("h", 640, 360), ("f", 854, 480)].map(layer).to_vec();
    let track =
        OfferedTrack { layers, ..offer("\nm=audio\na=mid:0\nm=video\na=mid:1").tracks[1].clone() };
    let said = room::add_track(&track, "c".into());
    assert_eq!((said.width, said.height, said.disable_red), (854, 480, false));
    let layers: Vec<_> =
        said.layers.iter().map(|layer| (layer.quality, layer.rid.as_str())).collect();
    assert_eq!(layers, [(0, "q"), (1, "h"), (2, "f")]);
}
