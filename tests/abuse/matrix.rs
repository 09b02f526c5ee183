//! Who may ask the HTTP API for what: every route of its description, by every kind of token and
//! grant. A route without a rule fails. The calls of rooms have theirs beside the rooms.

use super::{SECRET, unix_s};
use crate::target::Server;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use std::io::{Read, Write};

/// The contract.
const OPENAPI: &str = include_str!("../../crates/server/src/openapi.json");
/// A channel that somebody may publish on.
const CHANNEL: &str = "news";

/// What a token is good for here.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Holds {
    /// There is none.
    Nothing,
    /// It is not taken.
    No,
    Yes,
}

/// Who asks.
struct Who {
    name: &'static str,
    token: Option<String>,
    holds: Holds,
    may: &'static [Right],
}

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Right {
    /// Administer sockets.
    Admin,
    /// Call sockets.
    Call,
    /// Publish on the channel.
    Publish,
    /// List rooms.
    List,
    /// See the room.
    See,
    /// Moderate the room.
    Moderate,
    /// Make rooms.
    Make,
    /// End the room.
    End,
}

use Right::{Admin, Call, End, List, Make, Moderate, Publish, See};

/// A room, and a socket, that is not there.
const NOBODY: &str = "nobody";

fn signed(issuer: &str, secret: &str, exp: u64, rights: &Value) -> String {
    let claims = json!({ "iss": issuer, "sub": "who", "exp": exp,
        "video": rights["video"], "sockets": rights["sockets"] });
    let key = EncodingKey::from_secret(secret.as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
}

fn everybody() -> Vec<Who> {
    let everything = json!({
        "video": { "roomJoin": true, "roomAdmin": true, "roomList": true, "roomCreate": true },
        "sockets": { "admin": true, "call": true, "publish": ["*"], "subscribe": ["*"] },
    });
    let (later, other) = (unix_s() + 600, "another secret of the same length");
    let bad = |name, token| Who { name, token: Some(token), holds: Holds::No, may: &[] };
    let good = |name, video: Value, sockets: Value, may| {
        let token = signed("ours", SECRET, later, &json!({ "video": video, "sockets": sockets }));
        Who { name, token: Some(token), holds: Holds::Yes, may }
    };
    let rooms = |name, video, may| good(name, video, json!({}), may);
    let sockets = |name, sockets, may| good(name, json!({}), sockets, may);
    vec![
        Who { name: "nobody", token: None, holds: Holds::Nothing, may: &[] },
        bad("expired", signed("ours", SECRET, unix_s() - 1, &everything)),
        bad("forged", signed("ours", other, later, &everything)),
        bad("of a foreign key", signed("theirs", other, later, &everything)),
        bad("junk", "a.b.c".into()),
        rooms("plain", json!({ "roomJoin": true }), &[]),
        rooms("of a moderator", json!({ "roomAdmin": true }), &[List, See, Moderate, End]),
        rooms(
            "of a moderator of this room",
            json!({ "roomAdmin": true, "room": NOBODY }),
            &[List, See, Moderate, End],
        ),
        rooms(
            "of a moderator of another room",
            json!({ "roomAdmin": true, "room": "garden" }),
            &[List],
        ),
        rooms("that lists", json!({ "roomList": true }), &[List, See]),
        rooms("that makes rooms", json!({ "roomCreate": true }), &[Make, End]),
        rooms("that makes another room", json!({ "roomCreate": true, "room": "garden" }), &[]),
        rooms("that makes none", json!({ "roomJoin": true, "roomCreate": false }), &[]),
        sockets("that calls", json!({ "call": true }), &[Call]),
        sockets("that publishes", json!({ "publish": ["ne*"], "subscribe": ["*"] }), &[Publish]),
        sockets(
            "that publishes elsewhere",
            json!({ "publish": ["olds"], "subscribe": ["*"] }),
            &[],
        ),
        sockets("of an administrator", json!({ "admin": true }), &[Admin, Call, Publish]),
    ]
}

/// The right that a route needs, a body for it, and what those get who have it.
fn rule(route: &str) -> (Option<Right>, &'static str, u16) {
    match route {
        "get /v1/openapi.json" => (None, "", 200),
        "get /v1/sockets" => (Some(Admin), "", 200),
        // There is no such socket: that is for those to know who may ask.
        "post /v1/sockets/{id}/invocations" => (Some(Call), r#"{"event":"x"}"#, 404),
        "post /v1/sockets/{id}/messages" => (Some(Call), r#"{"event":"x"}"#, 404),
        "put /v1/sockets/{id}/token" => (Some(Admin), r#"{"token":"x"}"#, 404),
        "delete /v1/channels/{channel}/subscribers/{id}" => (Some(Admin), "", 404),
        "post /v1/channels/{channel}/messages" => (Some(Publish), r#"{"data":1}"#, 200),
        "post /v1/revocations" => (Some(Admin), r#"{"jti":"x"}"#, 200),
        "get /v1/rooms" | "get /v1/quality" => (Some(List), "", 200),
        "post /v1/rooms" => (Some(Make), "{}", 201),
        // Nor is there such a room.
        "get /v1/rooms/{id}" | "get /v1/rooms/{id}/participants" => (Some(See), "", 404),
        "delete /v1/rooms/{id}" => (Some(End), "", 404),
        "patch /v1/rooms/{id}" => (Some(Moderate), "{}", 404),
        "patch /v1/rooms/{id}/tracks/{track}" => (Some(Moderate), r#"{"muted":true}"#, 404),
        "delete /v1/rooms/{id}/participants/{participant}"
        | "delete /v1/rooms/{id}/removals/{participant}" => (Some(Moderate), "", 404),
        _ => panic!("{route} has no rule: say who may ask for it"),
    }
}

/// The status of an answer.
fn ask(server: &Server, route: &str, token: Option<&str>, body: &str) -> u16 {
    let (method, path) = route.split_once(' ').unwrap();
    let mut path = path.replace("{channel}", CHANNEL);
    for name in ["{id}", "{participant}", "{track}"] {
        path = path.replace(name, NOBODY);
    }
    let method = method.to_ascii_uppercase();
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let mut wire = server.wire_from([127, 0, 0, 1]).unwrap();
    write!(
        wire,
        "{method} {path} HTTP/1.0\r\nHost: {}\r\n{}Content-Length: {}\r\n\r\n{body}",
        server.http,
        authorization.unwrap_or_default(),
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    wire.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn every_route_by_every_token_and_grant_ends_as_its_rule_says() {
    // Where metrics are open to whoever asks, the list of rooms is.
    let server = Server::without_metrics(&format!("keys: {{ ours: \"{SECRET}\" }}\n"));
    let description: Value = serde_json::from_str(OPENAPI).unwrap();
    let paths = description["paths"].as_object().unwrap().iter();
    let routes = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.filter(|m| *m != "parameters").map(move |method| format!("{method} {path}"))
    });
    let (routes, everybody) = (routes.collect::<Vec<_>>(), everybody());
    assert!(routes.len() >= 18, "{routes:?}");
    let mut wrong = Vec::new();
    for route in &routes {
        let (right, body, status) = rule(route);
        for who in &everybody {
            let expected = match (right, who.holds) {
                (None, _) => status,
                (Some(_), Holds::Nothing | Holds::No) => 401,
                (Some(right), Holds::Yes) if who.may.contains(&right) => status,
                (Some(_), Holds::Yes) => 403,
            };
            let came = ask(&server, route, who.token.as_deref(), body);
            if came != expected {
                wrong.push(format!("{route}, a token {}: {came}, not {expected}", who.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} cells", routes.len() * everybody.len());
}
