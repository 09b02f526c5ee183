use super::resource::resolved;
use super::*;
use crate::testing::streams::{ANSWER, FakeStreams};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use wire::Event;
use wire::room::{ContentHint, Join, Joined, MediaKind, Offer, OfferedTrack, PeerDescription};

const OFFER: &str = "v=0\r\na=candidate:1 1 udp 1 127.1.0.1 9 typ host\r\n";

async fn join(seat: &dyn Seat, room: &str, name: &str) -> Joined {
    let join = Join { room: room.into(), name: name.into(), ..Join::default() };
    seat.join(&join).await.expect("needs no connection")
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

fn asks(to: &str) -> PeerDescription {
    PeerDescription { to: to.into(), sdp: OFFER.into(), tracks: Vec::new() }
}

async fn next(incoming: &mut mpsc::Receiver<Incoming>) -> Incoming {
    let taken = timeout(Duration::from_secs(10), incoming.recv()).await;
    taken.expect("something comes").expect("the seat is there")
}

async fn event(incoming: &mut mpsc::Receiver<Incoming>) -> Event {
    match next(incoming).await {
        Incoming::Event(_, envelope) => envelope.event,
        other => panic!("no event: {other:?}"),
    }
}

#[tokio::test]
async fn people_of_a_room_get_each_others_streams() {
    let (fake, url) = FakeStreams::start().await;
    let paths = Paths::default();
    let (first, mut to_first) = take_seat(&url, &paths, false);
    let one = join(&*first, "room", "bot 1").await.participant;
    assert!(one.starts_with("room-bot_1-"), "{one}");
    let answer = first.offer(&offer()).await.expect("sends");
    assert_eq!(
        (answer.tracks[0].id.clone(), answer.sdp.as_str()),
        (format!("{one}/audio"), ANSWER)
    );
    assert_eq!(fake.asked(), [format!("POST /{one}/whip, with candidates")]);

    let (second, mut to_second) = take_seat(&url, &paths, true);
    let joined = join(&*second, "room", "bot 2").await;
    let others: Vec<_> = joined.participants.iter().map(|other| other.id.as_str()).collect();
    assert_eq!((others, joined.count), (vec![one.as_str()], 2), "who sends already");
    assert_eq!(next(&mut to_second).await, Incoming::Call(one.clone()));
    // The stream is not there at once.
    *fake.absent.lock().unwrap() = 2;
    second.peer_offer(&asks(&one)).await.expect("asks");
    let Event::PeerAnswer { from, sdp, tracks } = event(&mut to_second).await else { panic!() };
    let tracks: Vec<_> = tracks.into_iter().map(|track| (track.mid, track.id)).collect();
    assert_eq!((&from, sdp.as_str()), (&one, ANSWER));
    assert_eq!(tracks, [("0".to_owned(), format!("{one}/audio"))]);
    let linked = format!("POST /{one}/whep");
    assert_eq!(
        fake.asked(),
        [linked.clone(), linked.clone(), linked],
        "no candidates past the link"
    );

    second.offer(&offer()).await.expect("sends");
    let two = joined.participant;
    assert_eq!(next(&mut to_first).await, Incoming::Call(two.clone()));
    second.leave().await.expect("leaves");
    let Event::ParticipantLeft { participant, count, .. } = event(&mut to_first).await else {
        panic!()
    };
    assert_eq!((&participant, count), (&two, 1));
    let mut asked = fake.asked();
    asked.sort();
    let ended = [format!("DELETE /{one}/whep/1"), format!("DELETE /{two}/whip/1")];
    assert_eq!(asked[..2], ended, "{asked:?}");
    let again = join(&*take_seat(&url, &paths, false).0, "room", "bot 2").await;
    assert_ne!(again.participant, two, "who comes again sends another stream");
}

#[tokio::test]
async fn who_left_is_asked_for_no_more_and_other_rooms_hear_nothing() {
    let (fake, url) = FakeStreams::start().await;
    let own = Paths { publish: "/in?stream={stream}".into(), play: "/{stream}/whep".into() };
    let (first, _to_first) = take_seat(&url, &own, false);
    let one = join(&*first, "a", "x").await.participant;
    first.offer(&offer()).await.expect("sends");
    assert_eq!(fake.asked(), [format!("POST /in?stream={one}, with candidates")]);
    let (second, mut to_second) = take_seat(&url, &own, false);
    join(&*second, "a", "y").await;
    assert_eq!(next(&mut to_second).await, Incoming::Call(one.clone()));
    let (other, mut to_other) = take_seat(&url, &own, false);
    assert!(join(&*other, "b", "z").await.participants.is_empty());
    *fake.absent.lock().unwrap() = u32::MAX;
    second.peer_offer(&asks(&one)).await.expect("asks");
    while fake.asked().is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
    drop(first);
    let Event::ParticipantLeft { participant, .. } = event(&mut to_second).await else { panic!() };
    assert_eq!(participant, one);
    // Then nobody asks any more: two intervals in a row without a question.
    let mut quiet = 0;
    while quiet < 2 {
        sleep(Duration::from_millis(300)).await;
        quiet =
            if fake.asked().iter().any(|asked| asked.starts_with("POST")) { 0 } else { quiet + 1 };
    }
    assert!(to_second.try_recv().is_err() && to_other.try_recv().is_err());
}

#[tokio::test]
async fn a_refusal_is_told() {
    let (fake, url) = FakeStreams::start().await;
    *fake.refuses.lock().unwrap() = true;
    let (seat, mut incoming) = take_seat(&url, &Paths::default(), false);
    join(&*seat, "c", "x").await;
    let (other, _to_other) = take_seat(&url, &Paths::default(), false);
    let stream = join(&*other, "c", "y").await.participant;
    seat.peer_offer(&asks(&stream)).await.expect("asks");
    let Incoming::Refused(who, error) = next(&mut incoming).await else { panic!() };
    assert_eq!(who, stream);
    assert!(error.to_string().contains("not for you (403)"), "{error}");

    let nowhere = Url { port: 1, ..url.clone() };
    assert!(matches!(reach(&nowhere).await, Err(SignalingError::Connect(_))));
    let (seat, _) = take_seat(&nowhere, &Paths::default(), false);
    join(&*seat, "d", "x").await;
    assert!(matches!(seat.offer(&offer()).await, Err(SignalingError::Connect(_))));
}

#[test]
fn a_resource_is_where_its_location_says() {
    for (asked, location, want) in [
        ("/x/whip", "/r/1", "/r/1"),
        ("/x/whip", "http://127.0.0.1:8889/r/1?a=b", "/r/1?a=b"),
        ("/x/whip", "https://other", "/"),
        ("/x/whip", "r/1", "/x/r/1"),
        ("/in?stream=a/b", "1", "/1"),
    ] {
        assert_eq!(resolved(asked, location), want, "{location}");
    }
}
