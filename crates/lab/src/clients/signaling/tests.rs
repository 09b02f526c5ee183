use super::*;
use crate::testing::server::FakeServer;
use serde_json::json;
use wire::ErrorCode;
use wire::event::Event;

fn join(name: &str) -> Join {
    Join { room: "r".into(), name: name.into(), session: Some("s".into()), ..Join::default() }
}

async fn enter(server: &FakeServer, name: &str) -> (Signaling, mpsc::Receiver<Incoming>, Joined) {
    let (signaling, incoming) = Signaling::connect(&server.socket()).await.expect("connect");
    let joined = signaling.join(&join(name)).await.expect("join");
    (signaling, incoming, joined)
}

async fn next_event(incoming: &mut mpsc::Receiver<Incoming>) -> EventEnvelope {
    match incoming.recv().await {
        Some(Incoming::Event(channel, event)) => {
            assert_eq!(channel, "room:r");
            event
        }
        other => panic!("an event should come, not {other:?}"),
    }
}

#[tokio::test]
async fn calls_events_and_heartbeats() {
    let server = FakeServer::start().await;
    let (one, mut events, joined) = enter(&server, "one").await;
    assert_eq!((joined.participant.as_str(), joined.epoch), ("p1", 1));
    let (two, _two_events, joined) = enter(&server, "two").await;
    assert_eq!(joined.participants[0].name, "one");

    let event = next_event(&mut events).await;
    assert_eq!(event.epoch, 2);
    let Event::ParticipantJoined { participant, .. } = event.event else { panic!("{event:?}") };
    assert_eq!(participant.name, "two");

    let track = wire::room::OfferedTrack {
        mid: "0".into(),
        kind: wire::room::MediaKind::Audio,
        name: String::new(),
        opaque: false,
        content_hint: wire::room::ContentHint::Speech,
        layers: Vec::new(),
    };
    let offer = Offer { sdp: "v=0".into(), tracks: vec![track], session: None };
    let answer = two.offer(&offer).await.expect("offer");
    assert_eq!(answer.tracks[0].id, "p2-audio");
    assert!(matches!(next_event(&mut events).await.event, Event::TrackAdded { .. }));
    assert!(matches!(next_event(&mut events).await.event, Event::Slots { .. }));

    two.quality_sample(&QualitySample::default()).await.expect("transmit");
    two.leave().await.expect("leave: an answer without data");
    let left = next_event(&mut events).await;
    assert!(matches!(left.event, Event::ParticipantLeft { .. }), "{left:?}");
    assert_eq!(server.with(|world| world.samples.len()), 1, "came before the leave");
    assert!(server.with(|world| world.heartbeats) >= 2, "each ping was answered");
    drop(one);
}

#[tokio::test]
async fn a_refusal_is_typed() {
    let server = FakeServer::start().await;
    server.with(|world| world.refuse.push("one".into()));
    let (signaling, _incoming) = Signaling::connect(&server.socket()).await.expect("connect");
    let error = signaling.join(&join("one")).await.expect_err("full");
    let SignalingError::Refused(error) = error else { panic!("{error:?}") };
    assert_eq!(error.code, ErrorCode::RoomFull);
    let error = signaling.mute(&room::Mute { track: "t".into(), muted: true }).await;
    assert!(matches!(error, Err(SignalingError::Refused(e)) if e.code == ErrorCode::UnknownEvent));
    let error = signaling.call::<_, Joined>(room::QUALITY_SAMPLE, &json!({})).await;
    assert!(matches!(error, Err(SignalingError::Malformed(_))), "{error:?}");
}

#[tokio::test]
async fn a_lost_socket_fails_its_calls_and_resumes_with_what_was_missed() {
    let server = FakeServer::start().await;
    let (one, mut events, joined) = enter(&server, "one").await;
    server.with(|world| world.cut.push(joined.participant.clone()));
    let error = one.leave().await.expect_err("cut");
    assert!(matches!(error, SignalingError::Closed(_)), "{error:?}");
    assert!(matches!(events.recv().await, Some(Incoming::Closed(_))));
    assert_eq!(events.recv().await, None);

    let (_two, _, _) = enter(&server, "two").await;
    let (again, mut events) = Signaling::connect(&server.socket()).await.expect("connect");
    let mut resume = Resume {
        room: "r".into(),
        participant: joined.participant,
        session: "s".into(),
        seen: joined.epoch,
    };
    let resumed = again.resume(&resume).await.expect("resume");
    assert_eq!((resumed.epoch, resumed.events.len()), (2, 1));
    server.with(|world| world.publish("r", json!({ "type": "room_ended", "reason": "x" })));
    assert_eq!(next_event(&mut events).await.epoch, 3, "events go to the new socket");
    resume.participant = "nobody".into();
    let gone = again.resume(&resume).await;
    assert!(matches!(gone, Err(SignalingError::Refused(e)) if e.code == ErrorCode::Gone));
}

#[tokio::test]
async fn nobody_there() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        free.local_addr().expect("address").port()
    };
    let error = Signaling::connect(&format!("ws://127.0.0.1:{port}/socketcluster/")).await;
    let error = error.expect_err("closed port").to_string();
    assert!(error.starts_with("no connection: "), "{error}");
}
