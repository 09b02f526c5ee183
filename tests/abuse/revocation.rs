//! A token that is revoked opens nothing any more, and what it opened is closed.

use super::{SECRET, server_with_keys, unix_s};
use crate::target::{Server, Socket};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use wire::ErrorCode;
use wire::frame::close;

fn token(identity: &str, id: &str, issued: u64) -> String {
    let claims = json!({
        "iss": "ours", "sub": identity, "jti": id, "iat": issued, "exp": issued + 600,
        "video": { "roomJoin": true }, "sockets": { "subscribe": ["news"], "admin": identity == "root" },
    });
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
}

fn revoke(server: &Server, by: &str, body: &Value) -> (u16, Value) {
    let headers = format!(
        "Authorization: Bearer {}\r\nContent-Type: application/json\r\n",
        token(by, "x", unix_s())
    );
    let (status, _, answer) =
        server.request("POST", server.http, "/v1/revocations", &headers, &body.to_string());
    (status, serde_json::from_str(&answer).unwrap_or(Value::Null))
}

fn join(token: &str) -> Value {
    json!({ "room": "hall", "name": "x", "session": "s", "token": token, "preset": "mesh" })
}

/// The close code, after whatever comes before it.
fn closed(mut socket: Socket) -> u16 {
    loop {
        if let Err(code) = socket.packet() {
            return code;
        }
    }
}

#[test]
fn a_revoked_token_closes_its_socket_and_its_seat_and_opens_none_again() {
    let keys = format!("keys: {{ ours: \"{SECRET}\" }}\n");
    let server = Server::with(&format!("{keys}limits: {{ sessions_per_identity: 2 }}\n"));
    let (one, other) = (token("ada", "t1", unix_s()), token("ada", "t2", unix_s()));
    // By room.join, by #authenticate, and another of the same identity.
    let (mut seated, mut subscribed) = (Socket::connect(&server), Socket::connect(&server));
    let mut untouched = Socket::connect(&server);
    let joined = seated.ask("room.join", join(&one));
    subscribed.ask("#authenticate", json!(one));
    subscribed.ask("#subscribe", json!({ "channel": "news" }));
    untouched.ask("room.join", join(&other));
    assert_eq!(revoke(&server, "ada", &json!({ "jti": "t1" })).0, 403, "that needs sockets.admin");
    let (status, answer) = revoke(&server, "root", &json!({ "jti": "t1", "exp": unix_s() + 600 }));
    assert_eq!(
        (status, &answer["sockets"], &answer["participants"]),
        (200, &json!(1), &json!(1)),
        "{answer}"
    );
    assert_eq!(closed(seated), close::REVOKED);
    assert_eq!(closed(subscribed), close::REVOKED);
    let mut again = Socket::connect(&server);
    let error = again.call("room.join", join(&one)).unwrap_err();
    assert_eq!(error.code, ErrorCode::BadToken, "{error}");
    assert!(error.message.contains("revoked"), "{error}");
    let resume = json!({ "room": "hall", "session": "s", "participant": joined["participant"],
        "epoch": joined["epoch"], "seq": 0 });
    assert!(again.call("room.resume", resume).is_err(), "the seat is gone, too");
    again.send(&json!({ "event": "#authenticate", "data": one, "cid": 77 }).to_string());
    assert_eq!(again.packet().unwrap()["error"]["name"], "AuthTokenInvalidError");
    untouched.ask("ping", Value::Null);
    untouched.ask("room.announce", json!({ "tracks": [{ "mid": "a", "kind": "audio" }] }));
}

#[test]
fn tokens_of_an_identity_are_revoked_up_to_a_time() {
    let server = server_with_keys();
    let now = unix_s();
    let mut old = Socket::connect(&server);
    old.ask("room.join", join(&token("ada", "t1", now - 60)));
    let body = json!({ "sub": "ada", "issued_before": now - 30, "exp": now + 600 });
    let (status, answer) = revoke(&server, "root", &body);
    assert_eq!((status, &answer["participants"]), (200, &json!(1)), "{answer}");
    assert_eq!(closed(old), close::REVOKED);
    let mut socket = Socket::connect(&server);
    let error = socket.call("room.join", join(&token("ada", "t2", now - 31))).unwrap_err();
    assert_eq!(error.code, ErrorCode::BadToken, "{error}");
    socket.ask("room.join", join(&token("ada", "t3", now - 30)));
    Socket::connect(&server).ask("room.join", join(&token("bob", "t4", now - 60)));
    for wrong in
        [json!({}), json!({ "jti": "a", "sub": "b" }), json!({ "jti": "" }), json!({ "user": "a" })]
    {
        assert_eq!(revoke(&server, "root", &wrong).0, 400, "{wrong}");
    }
}
