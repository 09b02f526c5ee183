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
    /// May administer sockets, call them, publish on the channel, list rooms.
    may: [bool; 4],
}

const ADMIN: usize = 0;
const CALL: usize = 1;
const PUBLISH: usize = 2;
const LIST: usize = 3;

fn signed(issuer: &str, secret: &str, exp: u64, rights: &Value) -> String {
    let claims = json!({ "iss": issuer, "sub": "who", "exp": exp,
        "video": rights["video"], "sockets": rights["sockets"] });
    let key = EncodingKey::from_secret(secret.as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
}

fn everybody() -> Vec<Who> {
    let everything = json!({
        "video": { "roomJoin": true, "roomAdmin": true, "roomList": true },
        "sockets": { "admin": true, "call": true, "publish": ["*"], "subscribe": ["*"] },
    });
    let (later, other) = (unix_s() + 600, "another secret of the same length");
    let bad = |name, token| Who { name, token: Some(token), holds: Holds::No, may: [false; 4] };
    let good = |name, video: Value, sockets: Value, may| {
        let token = signed("ours", SECRET, later, &json!({ "video": video, "sockets": sockets }));
        Who { name, token: Some(token), holds: Holds::Yes, may }
    };
    vec![
        Who { name: "nobody", token: None, holds: Holds::Nothing, may: [false; 4] },
        bad("expired", signed("ours", SECRET, unix_s() - 1, &everything)),
        bad("forged", signed("ours", other, later, &everything)),
        bad("of a foreign key", signed("theirs", other, later, &everything)),
        bad("junk", "a.b.c".into()),
        good("plain", json!({ "roomJoin": true }), json!({}), [false; 4]),
        good(
            "of a moderator",
            json!({ "roomAdmin": true }),
            json!({}),
            [false, false, false, true],
        ),
        good("that lists", json!({ "roomList": true }), json!({}), [false, false, false, true]),
        good("that calls", json!({}), json!({ "call": true }), [false, true, false, false]),
        good(
            "that publishes",
            json!({}),
            json!({ "publish": ["ne*"], "subscribe": ["*"] }),
            [false, false, true, false],
        ),
        good(
            "that publishes elsewhere",
            json!({}),
            json!({ "publish": ["olds"], "subscribe": ["*"] }),
            [false; 4],
        ),
        good("of an administrator", json!({}), json!({ "admin": true }), [true, true, true, false]),
    ]
}

/// The right that a route needs, a body for it, and what those get who have it.
fn rule(route: &str) -> (Option<usize>, &'static str, u16) {
    match route {
        "get /v1/openapi.json" => (None, "", 200),
        "get /v1/sockets" => (Some(ADMIN), "", 200),
        // There is no such socket: that is for those to know who may ask.
        "post /v1/sockets/{id}/invocations" => (Some(CALL), r#"{"event":"x"}"#, 404),
        "post /v1/sockets/{id}/messages" => (Some(CALL), r#"{"event":"x"}"#, 404),
        "put /v1/sockets/{id}/token" => (Some(ADMIN), r#"{"token":"x"}"#, 404),
        "delete /v1/channels/{channel}/subscribers/{id}" => (Some(ADMIN), "", 404),
        "post /v1/channels/{channel}/messages" => (Some(PUBLISH), r#"{"data":1}"#, 200),
        "post /v1/revocations" => (Some(ADMIN), r#"{"jti":"x"}"#, 200),
        "get /v1/rooms" | "get /v1/quality" => (Some(LIST), "", 200),
        _ => panic!("{route} has no rule: say who may ask for it"),
    }
}

/// The status of an answer.
fn ask(server: &Server, route: &str, token: Option<&str>, body: &str) -> u16 {
    let (method, path) = route.split_once(' ').unwrap();
    let path = path.replace("{id}", "nobody").replace("{channel}", CHANNEL);
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
    assert!(routes.len() >= 9, "{routes:?}");
    let mut wrong = Vec::new();
    for route in &routes {
        let (right, body, status) = rule(route);
        for who in &everybody {
            let expected = match (right, who.holds) {
                (None, _) => status,
                (Some(_), Holds::Nothing | Holds::No) => 401,
                (Some(right), Holds::Yes) if who.may[right] => status,
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
