//! Tokens as such: reading them, and making them.

use super::{Grants, Secret, SocketGrants, TokenError, unix_s};
use crate::names;
use crate::socket::random_id;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Longest token that is looked at, in bytes.
pub(super) const TOKEN_BYTES: usize = 8 << 10;
/// How much earlier than its `nbf` or `iat` a token is taken, in seconds: clocks differ.
const EARLY_S: u64 = 10;
/// The longest that a token may hold, in seconds: ten years. What is further away is a mistake, such as milliseconds.
pub(super) const LONGEST_S: u64 = 3653 * 24 * 3600;

/// Keys by their names.
pub(super) type Keys = BTreeMap<String, DecodingKey>;

/// A NumericDate (RFC 7519 section 2): seconds since the Unix epoch; a fraction is cut off.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(transparent)]
struct Seconds(u64);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Seconds;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in seconds since 1970, a number without quotes")
            }
            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Seconds, E> {
                Ok(Seconds(seconds))
            }
            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Seconds, E> {
                // What is too large for the type stays too large.
                match seconds >= 0.0 {
                    true => Ok(Seconds(seconds as u64)),
                    false => Err(E::invalid_value(de::Unexpected::Float(seconds), &self)),
                }
            }
        }
        deserializer.deserialize_any(Number)
    }
}

/// The claim `aud` (RFC 7519 section 4.1.3).
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "aud is a text or a list of texts")]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn names(&self, wanted: &str) -> bool {
        match self {
            Self::One(name) => name == wanted,
            Self::Many(names) => names.iter().any(|name| name == wanted),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    iss: String,
    #[serde(default)]
    sub: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    exp: Seconds,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbf: Option<Seconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iat: Option<Seconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aud: Option<Audience>,
    #[serde(default)]
    video: Video,
    #[serde(default)]
    sockets: SocketGrants,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Video {
    #[serde(skip_serializing_if = "Option::is_none")]
    room: Option<String>,
    room_join: bool,
    room_admin: bool,
    room_list: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    room_create: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    can_publish: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    can_subscribe: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    can_publish_sources: Option<Vec<String>>,
}

impl From<Claims> for Grants {
    fn from(claims: Claims) -> Self {
        let video = claims.video;
        let sources = video.can_publish_sources.filter(|sources| !sources.is_empty());
        Self {
            identity: Some(claims.sub).filter(|identity| !identity.is_empty()),
            name: claims.name.filter(|name| !name.is_empty()),
            room: video.room.filter(|room| !room.is_empty()),
            can_join: video.room_join,
            can_create: video.room_create.unwrap_or(video.room_join),
            makes_rooms: video.room_create == Some(true),
            can_publish: video.can_publish.unwrap_or(true),
            publish_sources: sources
                .map(|list| list.into_iter().map(|name| name.to_ascii_lowercase()).collect()),
            can_subscribe: video.can_subscribe.unwrap_or(true),
            can_moderate: video.room_admin,
            can_list: video.room_list,
            sockets: claims.sockets,
            token_id: claims.jti.filter(|id| !id.is_empty()),
            issued_unix_s: claims.iat.or(claims.nbf).map(|at| at.0),
            expires_unix_s: Some(claims.exp.0),
        }
    }
}

/// Verifies a token at a time, in seconds since the Unix epoch: signature, key, audience, times.
pub(super) fn verify(
    token: &str,
    keys: &Keys,
    audience: Option<&str>,
    now: u64,
) -> Result<Grants, TokenError> {
    let invalid = |why: &str| TokenError::Invalid(why.to_owned());
    if keys.is_empty() {
        return Err(invalid("this server has no keys to verify tokens with: send none"));
    }
    if token.len() > TOKEN_BYTES {
        return Err(invalid("the token is longer than 8 KiB"));
    }
    #[derive(Deserialize)]
    struct Issuer {
        iss: String,
    }
    let shape = "the token is no JWT with iss (the key's name) and exp";
    let issuer: Issuer =
        jsonwebtoken::dangerous::insecure_decode_claims(token).map_err(|_| invalid(shape))?;
    // The same text whether key or signature is wrong: names of keys are not to be guessed.
    let wrong = "the token is not signed by a key of this server";
    let key = keys.get(&issuer.iss).ok_or_else(|| invalid(wrong))?;
    let mut validation = Validation::new(Algorithm::HS256);
    validation.validate_exp = false; // Below: without leeway.
    validation.validate_aud = false; // Below: with a text that says what helps.
    validation.required_spec_claims.clear();
    let decoded = jsonwebtoken::decode::<Claims>(token, key, &validation).map_err(|error| {
        match error.kind() {
            ErrorKind::InvalidSignature => invalid(wrong),
            ErrorKind::InvalidAlgorithm => invalid("the token must be signed with HS256"),
            ErrorKind::Json(error) => TokenError::Invalid(format!("the token's claims: {error}")),
            _ => invalid(shape),
        }
    })?;
    if decoded.header.crit.is_some() {
        // RFC 7515 section 4.1.11: who does not understand all that is listed must refuse it.
        return Err(invalid("the token's header has crit, and no extension is understood here"));
    }
    let claims = decoded.claims;
    check_times(&claims, now)?;
    match (audience, &claims.aud) {
        (Some(wanted), Some(aud)) if !aud.names(wanted) => {
            Err(invalid("the token is for another audience (aud) than this server's"))
        }
        (Some(_), None) => {
            Err(invalid("the token names no audience (aud), and this server wants its own"))
        }
        _ => Ok(claims.into()),
    }
}

fn check_times(claims: &Claims, now: u64) -> Result<(), TokenError> {
    let times = [("exp", Some(claims.exp)), ("nbf", claims.nbf), ("iat", claims.iat)];
    for (name, at) in times {
        if at.is_some_and(|at| at.0 > now.saturating_add(LONGEST_S)) {
            return Err(TokenError::Invalid(format!(
                "the token's {name} is more than ten years away: it is in seconds since 1970, not in \
                 milliseconds"
            )));
        }
    }
    if claims.exp.0 <= now {
        return Err(TokenError::Expired);
    }
    let early = |at: Option<Seconds>| at.is_some_and(|at| at.0 > now + EARLY_S);
    if early(claims.nbf) || early(claims.iat) {
        return Err(TokenError::NotYet);
    }
    Ok(())
}

/// What a token is to say.
#[derive(Debug, Clone, Default)]
pub struct TokenRequest {
    /// The identity.
    pub identity: String,
    /// The name that others see.
    pub name: Option<String>,
    /// The only room; none: any.
    pub room: Option<String>,
    /// May moderate rooms, make and list them, and use the whole HTTP API.
    pub admin: bool,
    /// Patterns of channels that may be subscribed to.
    pub subscribe: Vec<String>,
    /// Patterns of channels that may be published on.
    pub publish: Vec<String>,
    /// The server that it is for (`aud`), where that wants it.
    pub audience: Option<String>,
    /// How long it holds, in seconds.
    pub ttl_s: u64,
}

/// Makes a token of a key.
///
/// # Errors
/// The text says why it could not be signed.
pub fn issue(key: &str, secret: &Secret, request: &TokenRequest) -> Result<String, String> {
    if request.ttl_s > LONGEST_S {
        return Err("a token holds for ten years at most: ask for a shorter time".into());
    }
    if let Some(room) = &request.room {
        names::check_room(room)?;
    }
    if let Some(name) = &request.name {
        names::check("the name", name)?;
    }
    let now = unix_s();
    let claims = Claims {
        iss: key.to_owned(),
        sub: request.identity.clone(),
        name: request.name.clone(),
        exp: Seconds(now + request.ttl_s),
        nbf: Some(Seconds(now)),
        iat: Some(Seconds(now)),
        jti: Some(random_id()),
        aud: request.audience.clone().map(Audience::One),
        video: Video {
            room: request.room.clone(),
            room_join: true,
            room_admin: request.admin,
            room_list: request.admin,
            room_create: request.admin.then_some(true),
            ..Video::default()
        },
        sockets: SocketGrants {
            subscribe: request.subscribe.clone(),
            publish: request.publish.clone(),
            call: request.admin,
            admin: request.admin,
        },
    };
    let key = EncodingKey::from_secret(secret.0.as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key)
        .map_err(|error| format!("the token could not be signed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Auth, Guests};
    use super::*;
    use serde_json::{Value, json};

    const SECRET: &str = "a secret that is long enough for HS256";
    const NOW: u64 = 1_800_000_000;

    fn keys() -> Keys {
        BTreeMap::from([("one".to_owned(), DecodingKey::from_secret(SECRET.as_bytes()))])
    }

    fn signed(header: &Header, claims: &Value) -> String {
        jsonwebtoken::encode(header, claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
    }

    fn with(change: Value) -> String {
        let mut claims = json!({ "iss": "one", "sub": "ada", "exp": NOW + 60 });
        claims.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        signed(&Header::new(Algorithm::HS256), &claims)
    }

    /// What is said of a token with these claims besides the usual ones.
    fn said(change: Value, audience: Option<&str>) -> String {
        let verified = verify(&with(change), &keys(), audience, NOW);
        verified.map_or_else(|error| error.to_string(), |_| "taken".into())
    }

    #[test]
    fn times_that_cannot_be_meant_are_refused_with_the_reason() {
        for (claims, expected) in [
            (json!({ "exp": NOW + 60 }), "taken"),
            (json!({ "exp": NOW as f64 + 60.5 }), "taken"),
            (json!({ "exp": NOW + LONGEST_S }), "taken"),
            (json!({ "exp": NOW + LONGEST_S + 1 }), "exp is more than ten years away"),
            (json!({ "exp": (NOW + 60) * 1000 }), "not in milliseconds"),
            (json!({ "exp": u64::MAX }), "exp is more than ten years away"),
            (json!({ "exp": 1e300 }), "exp is more than ten years away"),
            (json!({ "exp": -1 }), "seconds since 1970"),
            (json!({ "exp": -0.5 }), "seconds since 1970"),
            (json!({ "exp": (NOW + 60).to_string() }), "a number without quotes"),
            (json!({ "exp": "NaN" }), "a number without quotes"),
            (json!({ "exp": null }), "seconds since 1970"),
            (json!({ "exp": [NOW + 60] }), "seconds since 1970"),
            (json!({ "nbf": u64::MAX }), "nbf is more than ten years away"),
            (json!({ "nbf": "0" }), "a number without quotes"),
            (json!({ "nbf": NOW + 11 }), "has not come"),
            (json!({ "iat": NOW + 10 }), "taken"),
            (json!({ "iat": NOW + 11 }), "has not come"),
            (json!({ "iat": NOW * 1000 }), "iat is more than ten years away"),
            (json!({ "iat": -5 }), "seconds since 1970"),
        ] {
            let told = said(claims.clone(), None);
            assert!(told.contains(expected), "{claims}: {told}");
        }
        // JSON has no such number at all.
        let claims = format!(r#"{{"iss":"one","sub":"ada","exp":{}}}"#, "1e999");
        assert!(serde_json::from_str::<Claims>(&claims).is_err());
    }

    #[test]
    fn an_audience_is_checked_where_the_server_has_one() {
        let ours = Some("call.example.org");
        for (claims, audience, expected) in [
            (json!({}), None, "taken"),
            (json!({ "aud": "other" }), None, "taken"),
            (json!({ "aud": "call.example.org" }), ours, "taken"),
            (json!({ "aud": ["other", "call.example.org"] }), ours, "taken"),
            (json!({ "aud": "other" }), ours, "another audience"),
            (json!({ "aud": [] }), ours, "another audience"),
            (json!({ "aud": "call.example.org.evil" }), ours, "another audience"),
            (json!({}), ours, "names no audience"),
            (json!({ "aud": 7 }), None, "a text or a list of texts"),
        ] {
            let told = said(claims.clone(), audience);
            assert!(told.contains(expected), "{claims}: {told}");
        }
    }

    #[test]
    fn a_token_with_critical_extensions_is_refused() {
        let claims = json!({ "iss": "one", "sub": "ada", "exp": NOW + 60 });
        for crit in [vec!["exp".to_owned()], vec!["b64".to_owned()], vec![]] {
            let header = Header { crit: Some(crit), ..Header::new(Algorithm::HS256) };
            let told = verify(&signed(&header, &claims), &keys(), None, NOW).unwrap_err();
            assert!(told.to_string().contains("header has crit"), "{told}");
        }
    }

    #[test]
    fn issued_tokens_can_be_revoked_and_end_within_ten_years() {
        let secret = Secret::new(SECRET).unwrap();
        let auth = Auth::new([("one", &secret)], Guests::None);
        let request = TokenRequest { identity: "ada".into(), ttl_s: 60, ..TokenRequest::default() };
        let issued = || auth.verify(&issue("one", &secret, &request).unwrap()).unwrap();
        let (one, two) = (issued(), issued());
        assert!(one.issued_unix_s.is_some() && one.token_id.is_some());
        assert_ne!(one.token_id, two.token_id);
        let long = TokenRequest { ttl_s: LONGEST_S + 1, ..request.clone() };
        assert!(issue("one", &secret, &long).unwrap_err().contains("ten years"));
        for room in ["a b", "a#b", "", ".", "모임", &"a".repeat(65)] {
            let nowhere = TokenRequest { room: Some(room.into()), ..request.clone() };
            let why = issue("one", &secret, &nowhere).unwrap_err();
            assert!(why.contains("A-Z a-z 0-9"), "{room}: {why}");
        }
    }
}
