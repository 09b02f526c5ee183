use super::stream::sent_lines;
use super::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;
use wire::Event;
use wire::room::{ContentHint, Join, MediaKind, Offer, OfferedTrack, PeerDescription};

/// It sends sound and no picture.
const ANSWER: &str = "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=sendonly\r\n\
                      m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:1\r\na=inactive\r\n";
const OFFER: &str = "v=0\r\na=candidate:1 1 udp 1 127.1.0.1 9 typ host\r\na=end\r\n";

/// A server of streams.
#[derive(Default)]
struct Fake {
    /// What it was asked for.
    asked: Mutex<Vec<String>>,
    /// So many times to come, a stream that is asked for is not there.
    absent: Mutex<u32>,
}

impl Fake {
    async fn start() -> (Arc<Self>, Url) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        let fake = Arc::new(Self::default());
        let server = Arc::clone(&fake);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut text = String::new();
                while !text.contains("a=end") && !text.starts_with("DELETE") {
                    let mut buffer = [0; 4096];
                    let n = stream.read(&mut buffer).await.expect("read");
                    text += std::str::from_utf8(&buffer[..n]).expect("text");
                }
                let answer = server.answer(&text);
                stream.write_all(answer.as_bytes()).await.expect("write");
            }
        });
        (fake, Url { host: "127.0.0.1".into(), port })
    }

    fn answer(&self, request: &str) -> String {
        let mut words = request.split(' ');
        let (method, path) = (words.next().expect("a method"), words.next().expect("a path"));
        let linked = if request.contains("a=candidate:") { "" } else { ", without candidates" };
        let linked = if method == "POST" { linked } else { "" };
        self.asked.lock().unwrap().push(format!("{method} {path}{linked}"));
        let mut absent = self.absent.lock().unwrap();
        if path.ends_with("whep") && *absent > 0 {
            *absent -= 1;
            return "HTTP/1.0 404 Not Found\r\n\r\nno stream".into();
        }
        format!("HTTP/1.0 201 Created\r\nLocation: {path}/1\r\n\r\n{ANSWER}")
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn join(room: &str, name: &str) -> Join {
    Join { room: room.into(), name: name.into(), ..Join::default() }
}

fn offer() -> Offer {
    let track = OfferedTrack {
        mid: "0".into(),
        kind: MediaKind::Audio,
        name: "microphone".into(),
        opaque: false,
        content_hint: ContentHint::Speech,
        layers: Vec::new(),
    };
    Offer { sdp: OFFER.into(), tracks: vec![track], session: None }
}

async fn next(incoming: &mut mpsc::Receiver<Incoming>) -> Incoming {
    let taken = timeout(Duration::from_secs(10), incoming.recv()).await;
    taken.expect("something comes").expect("the seat is there")
}

#[tokio::test]
async fn people_of_a_room_get_each_others_streams() {
    let (fake, url) = Fake::start().await;
    let paths = Paths::default();
    let (first, mut to_first) = take_seat(&url, &paths, false);
    let joined = first.join(&join("room", "bot 1")).await.expect("joins");
    assert_eq!((joined.participant.as_str(), joined.count), ("room-bot_1", 1));
    let answer = first.offer(&offer()).await.expect("sends");
    assert_eq!((answer.tracks[0].id.as_str(), answer.sdp.as_str()), ("room-bot_1/audio", ANSWER));
    assert_eq!(fake.asked(), ["POST /room-bot_1/whip"]);

    let (second, mut to_second) = take_seat(&url, &paths, true);
    let joined = second.join(&join("room", "bot 2")).await.expect("joins");
    let others: Vec<_> = joined.participants.iter().map(|other| other.id.as_str()).collect();
    assert_eq!(others, ["room-bot_1"], "who sends already");
    assert_eq!(next(&mut to_second).await, Incoming::Call("room-bot_1".into()));
    // The stream is not there at once.
    *fake.absent.lock().unwrap() = 2;
    let to = "room-bot_1".to_owned();
    let asks = PeerDescription { to, sdp: OFFER.into(), tracks: Vec::new() };
    second.peer_offer(&asks).await.expect("asks");
    let Incoming::Event(_, event) = next(&mut to_second).await else { panic!("an event") };
    let Event::PeerAnswer { from, sdp, tracks } = event.event else { panic!("{event:?}") };
    let tracks: Vec<_> = tracks.iter().map(|t| (t.mid.as_str(), t.id.as_str())).collect();
    assert_eq!((from.as_str(), sdp.as_str()), ("room-bot_1", ANSWER));
    assert_eq!(tracks, [("0", "room-bot_1/audio")]);
    assert_eq!(fake.asked(), ["POST /room-bot_1/whep, without candidates"; 3]);

    second.offer(&offer()).await.expect("sends");
    assert_eq!(next(&mut to_first).await, Incoming::Call("room-bot_2".into()));
    second.leave().await.expect("leaves");
    let Incoming::Event(_, event) = next(&mut to_first).await else { panic!("an event") };
    assert!(
        matches!(&event.event, Event::ParticipantLeft { participant, count: 1, .. } if participant == "room-bot_2"),
        "{event:?}"
    );
    let asked = fake.asked();
    let ended = ["DELETE /room-bot_1/whep/1", "DELETE /room-bot_2/whip/1"];
    assert_eq!(asked[1..], ended.map(String::from), "{asked:?}");
}

#[tokio::test]
async fn who_left_is_asked_for_nothing_and_other_rooms_hear_nothing() {
    let (fake, url) = Fake::start().await;
    let own = Paths { publish: "/in?stream={stream}".into(), play: "/out?stream={stream}".into() };
    let (first, _) = take_seat(&url, &own, false);
    first.join(&join("a", "x")).await.expect("joins");
    first.offer(&offer()).await.expect("sends");
    assert_eq!(fake.asked(), ["POST /in?stream=a-x"]);
    let (other, _) = take_seat(&url, &own, false);
    let joined = other.join(&join("b", "y")).await.expect("joins");
    assert!(joined.participants.is_empty());
    drop(first);
    let (late, _) = take_seat(&url, &own, false);
    let joined = late.join(&join("a", "z")).await.expect("joins");
    assert!(joined.participants.is_empty(), "nobody is left");
}

#[tokio::test]
async fn a_refusal_is_told() {
    let (_, url) = Fake::start().await;
    let nowhere = Url { port: 1, ..url.clone() };
    assert!(matches!(reach(&nowhere).await, Err(SignalingError::Connect(_))));
    let (seat, _) = take_seat(&nowhere, &Paths::default(), false);
    seat.join(&join("c", "x")).await.expect("needs no connection");
    assert!(matches!(seat.offer(&offer()).await, Err(SignalingError::Connect(_))));
}

#[test]
fn an_answer_tells_what_it_sends() {
    assert_eq!(sent_lines(ANSWER), [("0".to_owned(), MediaKind::Audio)]);
    let refused = ANSWER.replace("m=audio 9", "m=audio 0");
    assert_eq!(sent_lines(&refused), []);
    let both = ANSWER.replace("a=inactive", "a=sendrecv");
    assert_eq!(sent_lines(&both).len(), 2);
}
