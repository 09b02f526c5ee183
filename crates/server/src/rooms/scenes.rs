//! Scenes with a few people in a room: what each of them is told, and what holds afterwards.

use super::tests::{idle, outcome};
use super::*;
use crate::auth::{Guests, Secret, Target, TokenRequest, issue};
use crate::desk::RoomDesk;
use crate::socket::{Application, SocketOptions, Sockets};
use engine::TrackKey;
use engine::room::Published;
use rtp::negotiated::{Codec, Direction, Extensions, Kind as MediaKind, Line, Negotiated};
use serde_json::{Value, json};
use std::net::SocketAddr;
use wire::{Event, EventEnvelope};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A server with the room `garden` of a preset.
struct Scene {
    rooms: Arc<Rooms>,
    sockets: Arc<Sockets<Rooms>>,
    auth: Arc<Auth>,
    preset: &'static str,
}

/// Somebody in the room.
struct Seated {
    socket: Arc<Socket>,
    id: String,
}

impl Scene {
    /// An identity may have several seats.
    fn new(preset: &'static str) -> Self {
        Self::with(preset, Limits { sessions_per_identity: 8, ..Limits::default() })
    }

    fn with(preset: &'static str, limits: Limits) -> Self {
        let secret = Secret::new(SECRET).unwrap();
        let auth = Arc::new(Auth::new([("ours", &secret)], Guests::Join));
        let metrics = Arc::new(Metrics::new());
        let mix = MixConfig::default();
        let rooms = Rooms::new(vec![idle()], 56, limits, mix, auth.clone(), metrics.clone());
        let rooms = Arc::new(rooms);
        let options = SocketOptions::from(&limits);
        let sockets = Sockets::new(rooms.clone(), options, auth.clone(), metrics);
        Self { rooms, sockets, auth, preset }
    }

    fn connect(&self) -> Arc<Socket> {
        self.sockets.new_socket(SocketAddr::from(([127, 0, 0, 1], 9)))
    }

    /// Joins with a token of this identity; without one as a guest. Everybody has a session of their own, if any.
    fn join(&self, identity: Option<&str>, session: Option<&str>) -> Result<Seated, ErrorCode> {
        let token = identity.map(|identity| {
            let request = TokenRequest {
                identity: identity.into(),
                ttl_s: 600,
                admin: identity == "root",
                ..TokenRequest::default()
            };
            issue("ours", &Secret::new(SECRET).unwrap(), &request).unwrap()
        });
        let socket = self.connect();
        let join = json!({ "room": "garden", "name": "x", "preset": self.preset, "token": token,
            "session": session });
        let joined = outcome(&self.rooms, &socket, "room.join", join).unwrap();
        let joined = joined.map_err(|error| error.code)?;
        let id = joined["participant"].as_str().unwrap().to_owned();
        socket.taken();
        Ok(Seated { socket, id })
    }

    fn call(&self, who: &Seated, event: &str, data: Value) -> Result<Value, ErrorCode> {
        let answer = outcome(&self.rooms, &who.socket, event, data);
        answer.expect("it waits for nobody").map_err(|error| error.code)
    }

    /// The socket is lost, and the same page takes its participant up with another.
    fn resume(&self, who: &mut Seated, session: &str, meanwhile: impl FnOnce()) -> Vec<Event> {
        self.rooms.closed(&who.socket);
        who.socket.clear_state();
        meanwhile();
        who.socket = self.connect();
        let resume =
            json!({ "room": "garden", "participant": who.id, "session": session, "seen": 0 });
        self.call(who, "room.resume", resume).unwrap();
        told(who)
    }

    /// What the control thread and the room make of an offer.
    fn negotiate(&self, who: &Seated, lines: Vec<Line>, tracks: &[&str]) {
        let seat = calls::seat(&who.socket).unwrap();
        let published: Vec<Published> = tracks.iter().map(|mid| self.published(mid)).collect();
        let (mut effects, mut state) = (Effects::default(), locked(&seat.cell.state));
        let negotiated = Negotiated { lines };
        state.room.negotiated(seat.person, &negotiated, &published, &mut effects).unwrap();
        seat.cell.apply(&mut state, effects, LeaveReason::Left);
    }

    fn published(&self, mid: &str) -> Published {
        let key = TrackKey(self.rooms.key());
        let (mid, name, layers) = (mid.to_owned(), String::new(), Vec::new());
        Published { mid, name, key, opaque: false, music: false, layers }
    }

    /// Somebody sends sound and a picture in a mesh: their tracks.
    fn announce(&self, who: &Seated) -> [String; 2] {
        let tracks = json!({ "tracks": [{ "mid": "audio", "kind": "audio", "name": "microphone" },
            { "mid": "video", "kind": "video", "name": "camera" }] });
        let answer = self.call(who, "room.announce", tracks).unwrap();
        [0, 1].map(|nth| answer["tracks"][nth]["id"].as_str().unwrap().to_owned())
    }

    /// Whether a moderator muted somebody's sound, and picture.
    fn silenced(&self, who: &Seated) -> [bool; 2] {
        let seat = calls::seat(&who.socket).unwrap();
        let state = locked(&seat.cell.state);
        let person = state.room.person(seat.person).unwrap();
        [MediaKind::Audio, MediaKind::Video]
            .map(|kind| person.tracks.iter().any(|track| track.kind == kind && track.silenced))
    }

    fn is_in(&self, who: &Seated) -> bool {
        calls::seat(&who.socket).is_ok()
    }
}

/// What somebody was told since the last look.
fn told(who: &Seated) -> Vec<Event> {
    let frames = who.socket.taken().into_iter();
    let event = |frame: String| {
        let frame: Value = serde_json::from_str(&frame).unwrap();
        let envelope: EventEnvelope =
            serde_json::from_value(frame["data"]["data"].clone()).unwrap();
        envelope.event
    };
    frames.map(event).collect()
}

fn line(mid: &str, codec: Codec, direction: Direction) -> Line {
    Line {
        mid: mid.into(),
        direction,
        codec,
        payload_type: 96,
        rtx_payload_type: None,
        red_payload_type: None,
        red_first: false,
        extensions: Extensions::default(),
        local: None,
        remote: None,
        layers: Vec::new(),
        nack: false,
        transport_cc: false,
        reduced_size: true,
    }
}

fn picture(scene: &Scene) -> Seated {
    let who = scene.join(None, None).unwrap();
    scene.negotiate(&who, vec![line("v", Codec::Vp8, Direction::Receive)], &["v"]);
    who
}

#[test]
fn who_comes_back_is_asked_again_for_the_slots_that_the_room_wants() {
    let scene = Scene::new("small_call");
    let mut viewer = scene.join(None, Some("page")).unwrap();
    let slot = |n: usize| line(&format!("s{n}"), Codec::Vp8, Direction::Send);
    let asked = |events: Vec<Event>| {
        let asked = events.into_iter().filter_map(|event| match event {
            Event::SlotsWanted { audio, video } => Some((audio, video)),
            _ => None,
        });
        asked.collect::<Vec<_>>()
    };
    scene.negotiate(&viewer, vec![slot(0)], &[]);
    let _first = picture(&scene);
    assert_eq!(asked(told(&viewer)), []);
    let mut others = Vec::new();
    let came = scene.resume(&mut viewer, "page", || {
        others.extend([picture(&scene), picture(&scene)]);
    });
    assert_eq!(asked(came), [(0, 9)], "it was asked while the socket was away");
    assert_eq!(asked(scene.resume(&mut viewer, "page", || ())), [(0, 9)], "and is wanted still");
    scene.negotiate(&viewer, (0..9).map(slot).collect(), &[]);
    assert_eq!(asked(scene.resume(&mut viewer, "page", || ())), []);
    others.push(picture(&scene));
    assert_eq!(asked(told(&viewer)), []);
}

#[test]
fn who_comes_back_is_told_what_their_path_carries() {
    let scene = Scene::new("small_call");
    let mut viewer = scene.join(None, Some("page")).unwrap();
    let carries = |events: Vec<Event>| {
        let carries = events.into_iter().filter_map(|event| match event {
            Event::Downlink { estimate_kbps } => Some(estimate_kbps),
            _ => None,
        });
        carries.collect::<Vec<_>>()
    };
    for kbps in [Some(300), None] {
        let seat = calls::seat(&viewer.socket).unwrap();
        let came = scene.resume(&mut viewer, "page", || {
            let (mut effects, mut state) = (Effects::default(), locked(&seat.cell.state));
            let (room, person) = (seat.cell.key, seat.person);
            state.room.report(Report::Downlink { room, person, kbps }, &mut effects);
            seat.cell.apply(&mut state, effects, LeaveReason::Left);
        });
        assert_eq!(carries(came), [kbps]);
    }
}

#[test]
fn what_is_named_twice_is_refused_before_anything_is_changed() {
    let track = |mid: &str, kind: &str| json!({ "mid": mid, "kind": kind, "name": "x" });
    let scene = Scene::new("small_call");
    let who = scene.join(None, Some("page")).unwrap();
    let offer = |tracks: Value| {
        let offer = json!({ "sdp": "v=0", "tracks": tracks, "session": "page" });
        outcome(&scene.rooms, &who.socket, "room.offer", offer)
    };
    let refused = |tracks: Value| {
        let answer = offer(tracks).expect("it is not negotiated first").unwrap_err();
        assert_eq!(answer.code, ErrorCode::BadRequest, "{answer}");
        answer.message
    };
    let three = json!([track("1", "video"), track("1", "video"), track("1", "video")]);
    assert!(refused(three).contains("\"1\""), "the message says which");
    refused(json!([track("1", "audio"), track("0", "video"), track("1", "video")]));
    let layer = json!({ "rid": "q", "width": 320, "height": 180 });
    let mut layered = track("1", "video");
    layered["layers"] = json!([layer, layer]);
    assert!(refused(json!([layered])).contains("\"q\""));
    assert!(offer(json!([track("0", "audio"), track("1", "video")])).is_none(), "each line once");

    scene.negotiate(&who, vec![line("s", Codec::Vp8, Direction::Send)], &[]);
    let want = json!({ "slot": "s", "track": null });
    let shown = json!({ "slot": "s", "width": 320, "height": 180, "pinned": true });
    let slots = |want: Value, shown: Value| {
        scene.call(&who, "room.slots", json!({ "want": want, "shown": shown })).map(|_| ())
    };
    assert_eq!(slots(json!([want, want]), json!([])), Err(ErrorCode::BadRequest));
    assert_eq!(slots(json!([]), json!([shown, shown])), Err(ErrorCode::BadRequest));
    assert_eq!(slots(json!([want]), json!([shown])), Ok(()));

    let mesh = Scene::new("mesh");
    let [one, two] = [0, 1].map(|_| mesh.join(None, None).unwrap());
    for kind in ["audio", "video"] {
        let tracks = json!({ "tracks": [track("a", "audio"), track("a", kind)] });
        assert_eq!(mesh.call(&one, "room.announce", tracks), Err(ErrorCode::BadRequest), "{kind}");
    }
    mesh.announce(&one);
    let line = json!({ "mid": "0", "id": "t-1" });
    let offer = json!({ "to": two.id, "sdp": "v=0\r\n", "tracks": [line, line] });
    for call in ["room.peer_offer", "room.peer_answer"] {
        assert_eq!(mesh.call(&one, call, offer.clone()), Err(ErrorCode::BadRequest));
    }
}

#[test]
fn a_new_kind_of_media_needs_a_token_that_holds_whatever_its_label_is() {
    let scene = Scene::new("small_call");
    let who = scene.join(Some("ada"), Some("page")).unwrap();
    scene.negotiate(&who, vec![line("0", Codec::Opus, Direction::Receive)], &["0"]);
    let seat = calls::seat(&who.socket).unwrap();
    locked(&seat.cell.state).members.get_mut(&seat.person).unwrap().grants.expires_unix_s = Some(1);
    let offer = |kind: &str| {
        let track = json!({ "mid": "0", "kind": kind, "name": "x" });
        let offer = json!({ "sdp": "v=0", "tracks": [track], "session": "page" });
        let answer = outcome(&scene.rooms, &who.socket, "room.offer", offer);
        answer.map(|answer| answer.unwrap_err().code)
    };
    assert_eq!(offer("video"), Some(ErrorCode::BadToken), "it is another track");
    assert_eq!(offer("audio"), None, "what is sent already goes on");
}

#[test]
fn who_is_put_out_goes_with_all_their_seats() {
    let who = [(Some("ada"), None), (None, Some("page"))];
    for ((identity, session), by_http) in who.into_iter().flat_map(|w| [(w, false), (w, true)]) {
        let scene = Scene::new("small_call");
        let moderator = scene.join(Some("root"), None).unwrap();
        let seats = [0, 1, 2].map(|_| scene.join(identity, session).unwrap());
        let others = [(Some("min"), Some("page")), (None, None), (None, Some("other"))];
        let others = others.map(|(identity, session)| scene.join(identity, session).unwrap());
        told(&moderator);
        seats.iter().for_each(|seat| drop(told(seat)));
        let remove = json!({ "participant": seats[1].id });
        match by_http {
            true => RoomDesk::remove(&*scene.rooms, "garden", &seats[1].id, "be kind").unwrap(),
            false => drop(scene.call(&moderator, "room.remove", remove).unwrap()),
        }
        for seat in &seats {
            assert!(!scene.is_in(seat), "{identity:?} {session:?}: one seat is left");
            let events = told(seat);
            assert!(events.iter().any(|event| matches!(event, Event::RoomEnded { .. })));
        }
        assert!(others.iter().all(|other| scene.is_in(other)), "nobody else goes");
        let events = told(&moderator);
        let left = events.iter().filter(|event| {
            let removed = LeaveReason::Removed;
            matches!(event, Event::ParticipantLeft { reason, .. } if *reason == removed)
        });
        assert_eq!(left.count(), 3);
        assert_eq!(scene.rooms.people(), 4);
        assert_eq!(scene.join(identity, session).err(), Some(ErrorCode::NotAllowed));
        // Any of the ids lets them in again.
        let lift = json!({ "participant": seats[2].id, "lift": true });
        scene.call(&moderator, "room.remove", lift.clone()).unwrap();
        assert!(scene.join(identity, session).is_ok());
        assert_eq!(scene.call(&moderator, "room.remove", lift), Err(ErrorCode::UnknownParticipant));
    }
}

#[test]
fn of_guests_without_a_session_one_goes_alone() {
    let scene = Scene::new("small_call");
    let moderator = scene.join(Some("root"), None).unwrap();
    let [one, other] = [0, 1].map(|_| scene.join(None, None).unwrap());
    scene.call(&moderator, "room.remove", json!({ "participant": one.id })).unwrap();
    assert!(!scene.is_in(&one) && scene.is_in(&other), "nothing says that they are the same");
}

#[test]
fn a_muted_kind_is_silent_in_all_seats_of_whoever_it_is() {
    for by_http in [false, true] {
        let scene = Scene::new("mesh");
        let moderator = scene.join(Some("root"), None).unwrap();
        let [one, two] = [0, 1].map(|_| scene.join(Some("ada"), None).unwrap());
        let other = scene.join(Some("min"), None).unwrap();
        let [sound, _] = scene.announce(&one);
        let [its_sound, _] = scene.announce(&two);
        scene.announce(&other);
        let mute = |muted: bool| match by_http {
            true => scene.rooms.silence("garden", &sound, muted).unwrap(),
            false => {
                let mute = json!({ "track": sound, "muted": muted });
                drop(scene.call(&moderator, "room.mute", mute).unwrap());
            }
        };
        told(&moderator);
        mute(true);
        assert_eq!([&one, &two].map(|seat| scene.silenced(seat)), [[true, false]; 2]);
        assert_eq!(scene.silenced(&other), [false; 2]);
        let events = told(&moderator);
        let changed = events.iter().filter(|event| matches!(event, Event::TrackChanged { .. }));
        assert_eq!(changed.count(), 2, "everybody sees both");
        let unmute = json!({ "track": its_sound, "muted": false });
        assert_eq!(scene.call(&two, "room.mute", unmute.clone()), Err(ErrorCode::NotAllowed));
        mute(false);
        assert_eq!([&one, &two].map(|seat| scene.silenced(seat)), [[false; 2]; 2]);
        assert_eq!(scene.call(&two, "room.mute", unmute), Ok(Value::Null));
        // A seat that comes later keeps the decision, and its release reaches all.
        mute(true);
        let third = scene.join(Some("ada"), None).unwrap();
        scene.announce(&third);
        assert_eq!(scene.silenced(&third), [true, false]);
        mute(false);
        assert_eq!(scene.silenced(&third), [false; 2]);
    }
}

#[test]
fn revoked_tokens_of_an_identity_end_all_its_seats() {
    let scene = Scene::new("small_call");
    let seats = [0, 1].map(|_| scene.join(Some("ada"), None).unwrap());
    let other = scene.join(Some("min"), None).unwrap();
    scene.auth.revoke(Target::Identity("ada".into()), None, None).unwrap();
    assert_eq!(scene.rooms.end_revoked(&|grants| scene.auth.is_revoked(grants)), 2);
    assert!(seats.iter().all(|seat| !scene.is_in(seat)) && scene.is_in(&other));
}

#[test]
fn whoever_is_removed_while_their_socket_is_away_is_told_so_when_they_come_back() {
    let scene = Scene::new("small_call");
    let moderator = scene.join(Some("root"), None).unwrap();
    for identity in [Some("ann"), None] {
        let mut ann = scene.join(identity, Some("page")).unwrap();
        ann.socket = scene.connect();
        scene.call(&moderator, "room.remove", json!({ "participant": ann.id })).unwrap();
        let resume =
            json!({ "room": "garden", "participant": ann.id, "session": "page", "seen": 0 });
        assert_eq!(scene.call(&ann, "room.resume", resume.clone()), Err(ErrorCode::NotAllowed));
        let lift = json!({ "participant": ann.id, "lift": true });
        scene.call(&moderator, "room.remove", lift).unwrap();
        assert_eq!(scene.call(&ann, "room.resume", resume), Err(ErrorCode::Gone));
    }
}

#[test]
fn a_further_session_of_an_identity_ends_the_oldest_for_good() {
    // The last seat, too.
    for people in [2, 500] {
        let limits = Limits { participants_per_room: people, ..Limits::default() };
        let scene = Scene::with("small_call", limits);
        let mut ann = scene.join(Some("ann"), Some("page")).unwrap();
        let bob = scene.join(None, Some("bob")).unwrap();
        let again = scene.join(Some("ann"), Some("phone")).unwrap();
        assert!(!scene.is_in(&ann) && scene.is_in(&again) && scene.is_in(&bob));
        let ended = |event: &Event| matches!(event, Event::RoomEnded { reason } if reason == moderation::REPLACED);
        assert!(told(&ann).iter().any(ended), "it is told why");
        let left = |event: &Event| {
            matches!(event, Event::ParticipantLeft { participant, reason: LeaveReason::Replaced, .. }
                if *participant == ann.id)
        };
        assert!(told(&bob).iter().any(left));
        // Its page was away just then: it does not take the seat back.
        ann.socket = scene.connect();
        let resume =
            json!({ "room": "garden", "participant": ann.id, "session": "page", "seen": 0 });
        assert_eq!(scene.call(&ann, "room.resume", resume), Err(ErrorCode::Replaced));
        // Guests are nobody by name.
        let other = scene.join(None, Some("bob"));
        assert_eq!(other.map(drop), if people == 2 { Err(ErrorCode::RoomFull) } else { Ok(()) });
        assert!(scene.is_in(&bob));
    }
}

#[test]
fn seats_and_rooms_are_bounded_by_address_and_identity() {
    let one = Limits { sessions_per_identity: 8, seats_per_identity: 3, ..Limits::default() };
    let scene = Scene::with("small_call", Limits { seats_per_address: 5, ..one });
    let anns: Vec<Seated> = (0..3).map(|_| scene.join(Some("ann"), Some("a")).unwrap()).collect();
    assert_eq!(scene.join(Some("ann"), Some("a")).map(drop), Err(ErrorCode::RoomFull));
    let guests: Vec<Seated> = (0..2).map(|_| scene.join(None, None).unwrap()).collect();
    assert_eq!(scene.join(Some("bob"), None).map(drop), Err(ErrorCode::RoomFull), "the address");
    scene.call(&anns[0], "room.leave", json!({})).unwrap();
    scene.join(Some("ann"), Some("a")).unwrap();
    drop(guests);
    let scene = Scene::with("small_call", Limits { rooms_per_address: 2, ..one });
    let open = |room: &str| {
        let socket = scene.connect();
        let join = json!({ "room": room, "name": "x" });
        let joined = outcome(&scene.rooms, &socket, "room.join", join).unwrap();
        joined.map(|_| socket).map_err(|error| error.to_string())
    };
    let first = open("a").unwrap();
    open("b").unwrap();
    open("a").expect("it is open already");
    let told = open("c").unwrap_err();
    assert!(told.contains("limits.rooms_per_address"), "{told}");
    // Its other guest leaves as well, and the room ends.
    let seat = calls::seat(&first).unwrap();
    scene.rooms.end_room(&seat.cell, "over", LeaveReason::Removed);
    drop((seat, first));
    open("c").unwrap();
    let unbound = Limits { connections_per_address: 10_000, ..Limits::default() }.of_rooms(false);
    assert_eq!(unbound.seats_per_address, u32::MAX, "everybody has a proxy's address");
    assert_eq!(Limits::default().of_rooms(true).rooms_per_address, u32::MAX);
}

#[test]
fn a_seat_that_never_had_media_ends_soon_without_its_socket() {
    let scene = Scene::new("mesh");
    let people: Vec<Seated> = (0..3).map(|_| scene.join(None, None).unwrap()).collect();
    let person = |who: &Seated| calls::seat(&who.socket).unwrap().person;
    let persons: Vec<PersonKey> = people.iter().map(person).collect();
    scene.announce(&people[1]);
    let address = SocketAddr::from(([127, 0, 0, 1], 9)).into();
    scene.rooms.input(RoomInput::Transport(persons[2], Happened::Connected(address)));
    let begin = Instant::now();
    people.iter().for_each(|who| scene.rooms.closed(&who.socket));
    let stay = |seconds| {
        scene.rooms.sweep(begin + std::time::Duration::from_secs(seconds));
        persons.iter().map(|person| scene.rooms.cell_of(*person).is_some()).collect::<Vec<_>>()
    };
    assert_eq!(stay(14), [true, true, true]);
    assert_eq!(stay(16), [false, true, true], "nobody misses who had no media");
    assert_eq!(stay(58), [false, true, true]);
    assert_eq!(stay(62), [false, false, false]);
}
