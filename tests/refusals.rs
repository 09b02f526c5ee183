//! What rooms and channels refuse: a row a case. The one who asked is told the code, the log has it
//! once, and nobody else notices.

use crate::target::{Server, Socket};
use serde_json::{Value, json};
use server::auth::{Secret, TokenRequest, issue};
use wire::room::OfferedTrack;
use wire::{ErrorCode, Event};

const SECRET: &str = "a secret of the test that is long enough";

/// A token for any room; `change` makes it what the case needs.
fn token(change: impl FnOnce(&mut TokenRequest)) -> String {
    let mut request =
        TokenRequest { identity: "someone".into(), ttl_s: 600, ..TokenRequest::default() };
    change(&mut request);
    issue("test", &Secret::new(SECRET).unwrap(), &request).unwrap()
}

fn plain() -> String {
    token(|_| {})
}

fn join(room: &str, more: Value) -> Value {
    let mut join = json!({ "room": room, "name": "asker", "token": plain() });
    join.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    join
}

/// One refusal.
struct Case {
    what: &'static str,
    /// What succeeds before, on the same socket.
    first: Vec<(&'static str, Value)>,
    event: &'static str,
    data: Value,
    code: ErrorCode,
}

fn case(
    what: &'static str,
    first: Vec<(&'static str, Value)>,
    (event, data): (&'static str, Value),
    code: ErrorCode,
) -> Case {
    Case { what, first, event, data, code }
}

/// The rooms beside: `open` (sfu, one member), `full` (a mesh of its two), `locked`, `voices` (mcu
/// without video); `other` is the member of `open`, `theirs` a track in `mesh`.
fn cases(other: &str, theirs: &str) -> Vec<Case> {
    use ErrorCode as E;
    let into = |room: &str| vec![("room.join", join(room, json!({})))];
    let video = OfferedTrack {
        mid: "1".into(),
        kind: wire::room::MediaKind::Video,
        name: "c".into(),
        opaque: false,
        content_hint: wire::room::ContentHint::Speech,
        layers: Vec::new(),
    };
    let twice = json!({ "sdp": "v=0\r\n", "tracks": [video, video, video] });
    let offer = json!({ "sdp": "v=0\r\n", "tracks": [video] });
    vec![
        case(
            "a kind that does not exist",
            vec![],
            ("room.join", join("new", json!({ "audio": "sfx" }))),
            E::BadRequest,
        ),
        case(
            "a preset that does not exist",
            vec![],
            ("room.join", join("new", json!({ "preset": "party" }))),
            E::BadRequest,
        ),
        case(
            "another kind than the room's",
            vec![],
            ("room.join", join("open", json!({ "audio": "mcu" }))),
            E::KindConflict,
        ),
        case(
            "a mesh larger than its limit",
            vec![],
            ("room.join", join("full", json!({}))),
            E::RoomFull,
        ),
        case("a locked room", vec![], ("room.join", join("locked", json!({}))), E::RoomLocked),
        case(
            "no token",
            vec![],
            ("room.join", json!({ "room": "open", "name": "asker" })),
            E::NotAllowed,
        ),
        case(
            "a token of somebody else's key",
            vec![],
            ("room.join", json!({ "room": "open", "name": "asker", "token": "a.b.c" })),
            E::BadToken,
        ),
        case(
            "a token for another room",
            vec![],
            {
                let token = token(|request| request.room = Some("elsewhere".into()));
                ("room.join", join("open", json!({ "token": token })))
            },
            E::NotAllowed,
        ),
        case(
            "a page of nobody",
            into("open"),
            ("room.people", json!({ "limit": 0 })),
            E::BadRequest,
        ),
        case(
            "a page after nobody",
            into("open"),
            ("room.people", json!({ "after": "the last one" })),
            E::BadRequest,
        ),
        case(
            "video where the room has none",
            into("voices"),
            ("room.offer", offer.clone()),
            E::KindConflict,
        ),
        case(
            "media for the server of a mesh",
            into("mesh"),
            ("room.offer", offer),
            E::KindConflict,
        ),
        case("a line with three tracks", into("open"), ("room.offer", twice), E::BadRequest),
        case(
            "a label with two tracks",
            into("mesh"),
            ("room.announce", {
                let track = json!({ "mid": "a", "kind": "audio" });
                json!({ "tracks": [track, track] })
            }),
            E::BadRequest,
        ),
        case(
            "a slot with two wishes",
            into("open"),
            ("room.slots", {
                let want = json!({ "slot": "0", "track": null });
                json!({ "want": [want, want] })
            }),
            E::BadRequest,
        ),
        case(
            "a mesh's offer where there is none",
            into("open"),
            ("room.peer_offer", json!({ "to": other, "sdp": "v=0\r\n" })),
            E::KindConflict,
        ),
        case(
            "an offer to somebody who is not there",
            into("mesh"),
            ("room.peer_offer", json!({ "to": "p-999999", "sdp": "v=0\r\n" })),
            E::UnknownParticipant,
        ),
        case(
            "muting somebody else",
            into("mesh"),
            ("room.mute", json!({ "track": theirs, "muted": true })),
            E::NotAllowed,
        ),
        case(
            "removing somebody",
            into("open"),
            ("room.remove", json!({ "participant": other })),
            E::NotAllowed,
        ),
        case("locking", into("open"), ("room.lock", json!({ "locked": true })), E::NotAllowed),
        case(
            "changing the limit",
            into("open"),
            ("room.limit", json!({ "max_participants": 2 })),
            E::NotAllowed,
        ),
        case(
            "publishing without rights",
            vec![],
            ("#publish", json!({ "channel": "news", "data": 1 })),
            E::NotAllowed,
        ),
        case(
            "publishing on a room's channel",
            into("open"),
            ("#publish", json!({ "channel": "room:open", "data": 1 })),
            E::NotAllowed,
        ),
        case(
            "subscribing without rights",
            vec![],
            ("#subscribe", json!({ "channel": "news" })),
            E::NotAllowed,
        ),
        case("an unknown event", vec![], ("room.dance", json!({})), E::UnknownEvent),
        case("a call without a room", vec![], ("room.leave", json!({})), E::NotJoined),
    ]
}

/// A member of a room that has to stay as it is.
fn member(server: &Server, join_data: Value) -> (Socket, String) {
    let mut socket = Socket::connect(server);
    let joined = socket.ask("room.join", join_data);
    let id = joined["participant"].as_str().unwrap().to_owned();
    (socket, id)
}

#[test]
fn each_refusal_has_its_code_is_logged_once_and_touches_nobody_else() {
    let server = Server::with(&format!(
        "limits: {{ participants_per_mesh: 2, sessions_per_identity: 100 }}\nkeys: {{ test: \"{SECRET}\" }}\n"
    ));
    let admin = token(|request| request.admin = true);
    let (mut open, other) = member(&server, join("open", json!({ "name": "member" })));
    let (mut full, _) = member(&server, join("full", json!({ "preset": "mesh" })));
    let (mut second, _) = member(&server, join("full", json!({})));
    let (mut locked, _) = member(&server, join("locked", json!({ "token": admin })));
    locked.ask("room.lock", json!({ "locked": true }));
    let (mut voices, _) = member(&server, join("voices", json!({ "preset": "audio_room" })));
    let (mut mesh, _) = member(&server, join("mesh", json!({ "preset": "mesh" })));
    // A mesh's track has an id without any media.
    let tracks = json!({ "tracks": [{ "mid": "a", "kind": "audio", "name": "microphone" }] });
    let announced = mesh.ask("room.announce", tracks);
    let theirs = announced["tracks"][0]["id"].as_str().unwrap().to_owned();
    for socket in [&mut open, &mut full, &mut second, &mut locked, &mut voices, &mut mesh] {
        socket.events();
    }
    for case in cases(&other, &theirs) {
        let mut asker = Socket::connect(&server);
        for (event, data) in case.first {
            asker.ask(event, data);
        }
        let before = server.refusals(case.code.as_str());
        let refused = asker.call(case.event, case.data).expect_err(case.what);
        assert_eq!(refused.code, case.code, "{}: {refused}", case.what);
        assert!(refused.message.len() > 20, "{}: cause and cure: {refused}", case.what);
        assert_eq!(server.refusals(case.code.as_str()), before + 1, "{}: logged once", case.what);
        // Whoever was there notices at most that somebody came.
        for socket in [&mut open, &mut full, &mut second, &mut locked, &mut voices, &mut mesh] {
            for event in socket.events() {
                let calm = matches!(
                    event,
                    Event::ParticipantJoined { .. } | Event::ParticipantLeft { .. }
                );
                assert!(calm, "{}: {event:?}", case.what);
            }
        }
        // He goes on: the next right call works.
        asker.ask("ping", Value::Null);
        if asker.call("room.leave", json!({})).is_ok() {
            open.events();
        }
    }
}

#[test]
fn a_moderator_mutes_removes_locks_and_limits() {
    let keys = format!("keys: {{ test: \"{SECRET}\" }}\n");
    let server = Server::with(&format!("{keys}limits: {{ sessions_per_identity: 9 }}\n"));
    let admin = token(|request| (request.admin, request.identity) = (true, "root".into()));
    let (mut moderator, _) =
        member(&server, join("hall", json!({ "token": admin, "preset": "mesh" })));
    let (mut guest, guest_id) = member(&server, join("hall", json!({})));
    let tracks = json!({ "tracks": [{ "mid": "a", "kind": "audio", "name": "microphone" }] });
    let track = guest.ask("room.announce", tracks)["tracks"][0]["id"].as_str().unwrap().to_owned();
    moderator.events();
    guest.events();

    moderator.ask("room.mute", json!({ "track": track, "muted": true }));
    let events = guest.events();
    let Some(Event::TrackChanged { track: told, .. }) = events.first() else {
        panic!("{events:?}")
    };
    assert!(told.silenced && told.muted);
    let refused = guest.call("room.mute", json!({ "track": track, "muted": false })).unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotAllowed, "he cannot unmute himself");
    moderator.ask("room.mute", json!({ "track": track, "muted": false }));
    guest.ask("room.mute", json!({ "track": track, "muted": false }));

    moderator.ask("room.limit", json!({ "max_participants": 2 }));
    let mut third = Socket::connect(&server);
    let refused = third.call("room.join", join("hall", json!({}))).unwrap_err();
    assert_eq!(refused.code, ErrorCode::RoomFull);
    moderator.ask("room.limit", json!({ "max_participants": 3 }));
    moderator.ask("room.lock", json!({ "locked": true }));
    let refused = third.call("room.join", join("hall", json!({}))).unwrap_err();
    assert_eq!(refused.code, ErrorCode::RoomLocked);
    moderator.ask("room.lock", json!({ "locked": false }));
    third.ask("room.join", join("hall", json!({})));

    moderator.ask("room.remove", json!({ "participant": guest_id }));
    let events = guest.events();
    assert!(matches!(events.last(), Some(Event::RoomEnded { .. })), "{events:?}");
    let events = moderator.events();
    let left = events.iter().find_map(|event| match event {
        Event::ParticipantLeft { participant, reason, .. } => Some((participant.clone(), *reason)),
        _ => None,
    });
    assert_eq!(left, Some((guest_id, wire::event::LeaveReason::Removed)));
}
