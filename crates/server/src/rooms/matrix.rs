//! Who may call what: every call of the contract, by every kind of token and grant, in every kind of
//! room. A call without a row fails, and so does a cell that differs from its row's rule.

use super::tests::{idle, outcome};
use super::*;
use crate::auth::{Guests, Secret};
use crate::socket::{SocketOptions, Sockets};
use engine::TrackKey;
use engine::room::Published;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rtp::negotiated::{Codec, Direction, Extensions, Line, Negotiated};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::ErrorCode::*;
use wire::room as call;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// The room that the cells are about.
const ROOM: &str = "garden";

type Outcome = Result<(), ErrorCode>;

/// How a token is made.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Token {
    None,
    Good,
    /// Its time was over before it was shown.
    Expired,
    /// Its time was over after its owner had joined.
    Lapsed,
    /// Signed with another secret in the name of our key.
    Forged,
    /// Signed by a key that is not ours.
    Foreign,
}

/// Somebody, and what may be expected of them.
#[derive(Debug)]
struct Who {
    token: Token,
    /// The claim `video`.
    video: Value,
    guests: Guests,
    joins: Outcome,
    creates: bool,
    sends_sound: bool,
    sends_pictures: bool,
    receives: bool,
    moderates: bool,
}

fn who(token: Token, video: Value) -> Who {
    let joins = match token {
        Token::Good | Token::Lapsed => Ok(()),
        Token::None => Err(NotAllowed),
        Token::Expired | Token::Forged | Token::Foreign => Err(BadToken),
    };
    let guests = Guests::None;
    let [creates, sends_sound, sends_pictures, receives] = [true; 4];
    let moderates = false;
    Who { token, video, guests, joins, creates, sends_sound, sends_pictures, receives, moderates }
}

/// Everybody there can be: each grant that a room knows, each fault of a token.
fn everybody() -> Vec<Who> {
    let good = |video: Value| {
        let mut claims = json!({ "roomJoin": true });
        let more = video.as_object().unwrap().clone();
        claims.as_object_mut().unwrap().extend(more);
        who(Token::Good, claims)
    };
    let admin = || json!({ "roomJoin": true, "roomAdmin": true });
    let guest = |guests| Who { guests, joins: Ok(()), ..who(Token::None, Value::Null) };
    let mut all = vec![
        good(json!({})),
        Who { moderates: true, ..good(json!({ "roomAdmin": true })) },
        good(json!({ "roomList": true })),
        good(json!({ "room": ROOM })),
        Who { joins: Err(NotAllowed), ..good(json!({ "room": "cellar", "roomAdmin": true })) },
        Who { joins: Err(NotAllowed), ..good(json!({ "roomJoin": false, "roomAdmin": true })) },
        Who { creates: false, ..good(json!({ "roomCreate": false })) },
        Who { sends_sound: false, sends_pictures: false, ..good(json!({ "canPublish": false })) },
        Who { receives: false, ..good(json!({ "canSubscribe": false })) },
        Who {
            sends_sound: false,
            sends_pictures: false,
            receives: false,
            ..good(json!({ "canPublish": false, "canSubscribe": false }))
        },
        Who { sends_pictures: false, ..good(json!({ "canPublishSources": ["microphone"] })) },
        Who { sends_sound: false, ..good(json!({ "canPublishSources": ["camera"] })) },
        guest(Guests::Join),
        Who { moderates: true, ..guest(Guests::All) },
    ];
    // A token that does not hold gives nothing, whatever it says and whatever guests may.
    for token in [Token::None, Token::Expired, Token::Lapsed, Token::Forged, Token::Foreign] {
        all.push(who(token, admin()));
    }
    for token in [Token::Expired, Token::Forged, Token::Foreign] {
        all.push(Who { guests: Guests::All, ..who(token, admin()) });
    }
    all
}

/// A call, and who may make it.
struct Row {
    call: &'static str,
    what: &'static str,
    /// It is made by a socket that is in no room; otherwise by one that joined if it could.
    outside: bool,
    data: fn(&Cell) -> Value,
    /// For those who are in the room, or for everybody if the call comes from outside.
    rule: fn(&Who, Preset) -> Outcome,
}

/// A room with somebody in it, and the one whose rights are looked at.
struct Cell {
    rooms: Arc<Rooms>,
    token: Option<String>,
    /// The one whom the call may harm: their id, and their track of sound.
    other: String,
    track: String,
    socket: Arc<Socket>,
    outside: Arc<Socket>,
    _sockets: Arc<Sockets<Rooms>>,
}

fn signed(token: Token, video: &Value) -> Option<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let exp = if token == Token::Expired { now - 1 } else { now + 600 };
    let (key, secret) = match token {
        Token::None => return None,
        Token::Forged => ("ours", "another secret of the same length"),
        Token::Foreign => ("theirs", "another secret of the same length"),
        Token::Good | Token::Expired | Token::Lapsed => ("ours", SECRET),
    };
    let claims = json!({ "iss": key, "sub": "who", "exp": exp, "video": video });
    let key = EncodingKey::from_secret(secret.as_bytes());
    Some(jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap())
}

impl Cell {
    fn new(who: &Who, preset: Preset) -> Self {
        let secret = Secret::new(SECRET).unwrap();
        let auth = Arc::new(Auth::new([("ours", &secret)], who.guests));
        // Everybody here is one identity.
        let one = Limits { sessions_per_identity: 1000, ..Limits::default() };
        let limits = Limits { seats_per_identity: 1000, ..one };
        let metrics = Arc::new(Metrics::new());
        let rooms = Arc::new(Rooms::new(
            vec![idle()],
            56,
            limits,
            MixConfig::default(),
            auth.clone(),
            metrics.clone(),
        ));
        let sockets = Sockets::new(rooms.clone(), SocketOptions::from(&limits), auth, metrics);
        let connect = || sockets.new_socket(SocketAddr::from(([127, 0, 0, 1], 9)));
        let (first, socket, outside) = (connect(), connect(), connect());
        let good = signed(Token::Good, &json!({ "roomJoin": true }));
        let join = json!({ "room": ROOM, "name": "first", "preset": preset, "token": good });
        let other = outcome(&rooms, &first, call::JOIN, join).unwrap().unwrap();
        let other = other["participant"].as_str().unwrap().to_owned();
        let track = publish(&rooms, &first);
        let token = signed(who.token, &who.video);
        let mut cell = Self { rooms, token, other, track, socket, outside, _sockets: sockets };
        let joined = cell.call(false, call::JOIN, cell.join(ROOM));
        assert_eq!(joined, who.joins, "{who:?} joins a room of {preset:?}");
        if who.token == Token::Lapsed {
            cell.lapse();
        }
        cell
    }

    fn join(&self, room: &str) -> Value {
        json!({ "room": room, "name": "who", "token": self.token })
    }

    /// The token that somebody joined with is over.
    fn lapse(&mut self) {
        let seat = calls::seat(&self.socket).unwrap();
        let mut state = locked(&seat.cell.state);
        let member = state.members.get_mut(&seat.person).unwrap();
        member.grants.expires_unix_s = Some(1);
    }

    fn call(&self, outside: bool, event: &str, data: Value) -> Outcome {
        let socket = if outside { &self.outside } else { &self.socket };
        match outcome(&self.rooms, socket, event, data) {
            // An offer that was let through waits for the control thread.
            None => Ok(()),
            Some(answer) => answer.map(|_| ()).map_err(|error| error.code),
        }
    }
}

/// Somebody's track of sound, as their offer or announcement makes it.
fn publish(rooms: &Rooms, socket: &Arc<Socket>) -> String {
    let seat = calls::seat(socket).unwrap();
    if seat.cell.audio == AudioTopology::Mesh {
        let tracks = json!([{ "mid": "0", "kind": "audio", "name": "microphone" }]);
        let data = json!({ "tracks": tracks });
        let answer = outcome(rooms, socket, call::ANNOUNCE, data).unwrap().unwrap();
        return answer["tracks"][0]["id"].as_str().unwrap().to_owned();
    }
    let line = Line {
        mid: "0".into(),
        direction: Direction::Receive,
        codec: Codec::Opus,
        payload_type: 111,
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
    };
    let key = TrackKey(rooms.key());
    let published = Published {
        mid: "0".into(),
        name: String::new(),
        key,
        opaque: false,
        music: false,
        layers: Vec::new(),
    };
    let negotiated = Negotiated { lines: vec![line] };
    let mut effects = Effects::default();
    let mut state = locked(&seat.cell.state);
    let keys = state.room.negotiated(seat.person, &negotiated, &[published], &mut effects);
    notices::track_id(keys.unwrap()[0])
}

const SOUND: fn() -> Value = || json!([{ "mid": "0", "kind": "audio", "name": "microphone" }]);
const PICTURE: fn() -> Value = || json!([{ "mid": "0", "kind": "video", "name": "camera" }]);

fn is_mesh(preset: Preset) -> bool {
    preset == Preset::Mesh
}

fn anybody(_: &Who, _: Preset) -> Outcome {
    Ok(())
}

fn moderators(who: &Who, _: Preset) -> Outcome {
    if who.moderates { Ok(()) } else { Err(NotAllowed) }
}

/// Ok if they may; otherwise this error.
fn only(may: bool, otherwise: ErrorCode) -> Outcome {
    if may { Ok(()) } else { Err(otherwise) }
}

/// New tracks need a token that holds, and that allows them.
fn senders(who: &Who, sends: bool) -> Outcome {
    only(who.token != Token::Lapsed, BadToken)?;
    only(sends, NotAllowed)
}

/// Members of a mesh who send or receive.
fn members(who: &Who, preset: Preset) -> Outcome {
    only(is_mesh(preset), KindConflict)?;
    only(who.sends_sound || who.sends_pictures || who.receives, NotAllowed)
}

fn row(
    call: &'static str,
    what: &'static str,
    data: fn(&Cell) -> Value,
    rule: fn(&Who, Preset) -> Outcome,
) -> Row {
    Row { call, what, outside: false, data, rule }
}

fn rows() -> Vec<Row> {
    let description = |cell: &Cell| json!({ "to": cell.other, "sdp": "v=0\r\n" });
    vec![
        Row { outside: true, ..row(call::JOIN, "a room", |c| c.join(ROOM), |who, _| who.joins) },
        Row {
            outside: true,
            ..row(
                call::JOIN,
                "a new room",
                |c| c.join("new"),
                |who, _| {
                    let elsewhere = who.video["room"].is_string();
                    only(who.joins != Err(BadToken), BadToken)?;
                    only(who.joins.is_ok() && !elsewhere && who.creates, NotAllowed)
                },
            )
        },
        row(call::JOIN, "once more", |c| c.join(ROOM), |_, _| Err(BadRequest)),
        row(
            call::OFFER,
            "sound",
            |_| json!({ "sdp": "v=0", "tracks": SOUND() }),
            |who, preset| {
                only(!is_mesh(preset), KindConflict)?;
                senders(who, who.sends_sound)
            },
        ),
        row(
            call::OFFER,
            "pictures",
            |_| json!({ "sdp": "v=0", "tracks": PICTURE() }),
            |who, preset| {
                only(preset.topologies().1 == VideoTopology::Sfu, KindConflict)?;
                senders(who, who.sends_pictures)
            },
        ),
        row(call::OFFER, "nothing", |_| json!({ "sdp": "v=0", "tracks": [] }), anybody),
        row(call::SLOTS, "nothing", |_| json!({ "want": [] }), anybody),
        row(
            call::SLOTS,
            "a line of nobody",
            |c| json!({ "want": [{ "slot": "7", "track": c.track }] }),
            |_, _| Err(UnknownSlot),
        ),
        row(
            call::MUTE,
            "somebody else",
            |c| json!({ "track": c.track, "muted": true }),
            moderators,
        ),
        row(
            call::MUTE,
            "nobody",
            |_| json!({ "track": "t-999999", "muted": true }),
            |_, _| Err(UnknownTrack),
        ),
        row(
            call::ANNOUNCE,
            "sound",
            |_| json!({ "tracks": SOUND() }),
            |who, preset| {
                senders(who, who.sends_sound)?;
                only(is_mesh(preset), KindConflict)
            },
        ),
        row(
            call::ANNOUNCE,
            "pictures",
            |_| json!({ "tracks": PICTURE() }),
            |who, preset| {
                senders(who, who.sends_pictures)?;
                only(is_mesh(preset), KindConflict)
            },
        ),
        row(call::PEER_OFFER, "", description, members),
        row(call::PEER_ANSWER, "", description, members),
        row(call::PEER_CANDIDATE, "", |c| json!({ "to": c.other, "candidate": "" }), members),
        row(call::REMOVE, "", |c| json!({ "participant": c.other }), moderators),
        row(
            call::REMOVE,
            "lifted",
            |c| json!({ "participant": c.other, "lift": true }),
            |who, preset| moderators(who, preset).and(Err(UnknownParticipant)),
        ),
        row(call::LOCK, "", |_| json!({ "locked": true }), moderators),
        row(call::LIMIT, "", |_| json!({ "max_participants": 2 }), moderators),
        row(call::HAND, "", |_| json!({ "raised": true }), anybody),
        row(call::PEOPLE, "", |_| json!({}), anybody),
        row(call::LEAVE, "", |_| json!({}), anybody),
        Row {
            outside: true,
            ..row(
                call::RESUME,
                "without the session",
                |c| json!({ "room": ROOM, "participant": c.other, "session": "", "seen": 0 }),
                |_, _| Err(Gone),
            )
        },
        row(call::QUALITY_SAMPLE, "", |_| json!(wire::QualitySample::default()), anybody),
        // Sockets answer it themselves, before rooms are asked.
        Row { outside: true, ..row(call::PING, "", |_| json!({}), |_, _| Err(UnknownEvent)) },
        Row {
            outside: true,
            ..row("room.nothing", "no call", |_| json!({}), |_, _| Err(UnknownEvent))
        },
    ]
}

#[test]
fn every_call_by_every_token_and_grant_in_every_kind_of_room_ends_as_its_row_says() {
    let (rows, everybody) = (rows(), everybody());
    let told: BTreeSet<&str> = rows.iter().map(|row| row.call).collect();
    for (call, _) in call::COSTS {
        assert!(told.contains(call), "{call} has no row: say who may call it");
    }
    let mut wrong = Vec::new();
    for row in &rows {
        for who in &everybody {
            for preset in Preset::ALL {
                let cell = Cell::new(who, preset);
                let expected = match who.joins {
                    Err(_) if !row.outside => match row.call {
                        call::JOIN => who.joins,
                        _ => Err(NotJoined),
                    },
                    _ => (row.rule)(who, preset),
                };
                let came = cell.call(row.outside, row.call, (row.data)(&cell));
                if came != expected {
                    let Row { call, what, .. } = row;
                    let Who { token, video, guests, .. } = who;
                    wrong.push(format!(
                        "{call} ({what}), {token:?} {video}, guests {guests:?}, {preset:?}: \
                         {came:?} instead of {expected:?}"
                    ));
                }
            }
        }
    }
    let (cells, count) = (rows.len() * everybody.len() * Preset::ALL.len(), wrong.len());
    assert!(wrong.is_empty(), "{count} of {cells} cells:\n{}", wrong.join("\n"));
    println!("{cells} cells");
}
