//! Who may do what: tokens (JWT, HS256, RFC 7519) and what people without one may do.
//!
//! The claims have LiveKit's names, so that tools people have make tokens for moim too: `iss` is
//! the key's name, `sub` the identity, `video` the grants of rooms. `sockets` is moim's own: what
//! an application's sockets and its servers may do with channels and calls.

mod revocations;
mod token;

pub use revocations::{MOST as REVOCATIONS, NAME_BYTES, Refused, Target};
pub use token::{TokenRequest, issue};

use crate::config::Config;
use crate::socket::Socket;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use jsonwebtoken::DecodingKey;
use revocations::Revocations;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};
use token::Keys;
use wire::frame::NamedError;
use wire::room::MediaKind;
use wire::{ErrorCode, RoomError};

/// Fewest characters of a key's secret.
pub const SECRET_CHARS: usize = 32;

/// A key's secret; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret.
    ///
    /// # Errors
    /// It has fewer than [`SECRET_CHARS`] characters. The text does not hold the secret.
    pub fn new(secret: &str) -> Result<Self, String> {
        match secret.chars().count() {
            chars if chars < SECRET_CHARS => {
                Err(format!("the secret has {chars} of at least {SECRET_CHARS} characters"))
            }
            _ => Ok(Self(secret.to_owned())),
        }
    }

    /// Compares without telling by its time how much of it is right.
    fn is(&self, shown: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differs = own.iter().zip(shown).fold(0, |differs, (a, b)| differs | (a ^ b));
        own.len() == shown.len() && std::hint::black_box(differs) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What people without a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guests {
    /// Nothing but to connect: a token is needed.
    None,
    /// Join any room, send and receive there; no moderation, no channels of applications.
    Join,
    /// Everything, moderation and the HTTP API too: for development.
    All,
}

/// What someone may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Who it is (`sub`); none for guests.
    pub identity: Option<String>,
    /// The name that others see (`name`), where the token gives one.
    pub name: Option<String>,
    /// The only room that these grants are for (`video.room`); none: any.
    pub room: Option<String>,
    /// May enter the room (`video.roomJoin`).
    pub can_join: bool,
    /// May enter a room that is not there yet (`video.roomCreate`; as in LiveKit, whoever may join
    /// may, unless the token says false).
    pub can_create: bool,
    /// May make rooms before anyone comes, and end rooms, by the HTTP API (`video.roomCreate: true`).
    pub makes_rooms: bool,
    /// May send media (`video.canPublish`).
    pub can_publish: bool,
    /// The only names of tracks that may be sent (`video.canPublishSources`: `camera`,
    /// `microphone`, …); none: all.
    pub publish_sources: Option<Vec<String>>,
    /// May receive media (`video.canSubscribe`).
    pub can_subscribe: bool,
    /// May mute and remove others, lock the room and change its limit (`video.roomAdmin`).
    pub can_moderate: bool,
    /// May see which rooms there are, and how good it is in them (`video.roomList`).
    pub can_list: bool,
    /// Channels and calls (`sockets`).
    pub sockets: SocketGrants,
    /// The token's own id (`jti`).
    pub token_id: Option<String>,
    /// When it was issued (`iat`, else `nbf`), in seconds since the Unix epoch.
    pub issued_unix_s: Option<u64>,
    /// When all this ends (`exp`), in seconds since the Unix epoch; none for guests.
    pub expires_unix_s: Option<u64>,
}

/// The claim `sockets`. A pattern is a channel's name, or a beginning of names with `*` after it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketGrants {
    /// Channels that may be subscribed to.
    pub subscribe: Vec<String>,
    /// Channels that may be published on.
    pub publish: Vec<String>,
    /// May call sockets by the HTTP API.
    pub call: bool,
    /// May do everything of the HTTP API's sockets and channels.
    pub admin: bool,
}

impl SocketGrants {
    /// Everything.
    fn all() -> Self {
        let any = vec!["*".to_owned()];
        Self { subscribe: any.clone(), publish: any, call: true, admin: true }
    }

    /// Whether the channel may be subscribed to.
    pub fn may_subscribe(&self, channel: &str) -> bool {
        matches(&self.subscribe, channel)
    }

    /// Whether the channel may be published on.
    pub fn may_publish(&self, channel: &str) -> bool {
        matches(&self.publish, channel)
    }
}

fn matches(patterns: &[String], channel: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => channel.starts_with(beginning),
        None => pattern == channel,
    })
}

impl Grants {
    /// Everything, for ever.
    pub fn all() -> Self {
        Self {
            makes_rooms: true,
            can_moderate: true,
            can_list: true,
            sockets: SocketGrants::all(),
            ..Self::join()
        }
    }

    /// Any room, without moderation.
    fn join() -> Self {
        Self {
            can_join: true,
            can_create: true,
            can_publish: true,
            can_subscribe: true,
            ..Self::default()
        }
    }

    /// Whether a track of this name and kind may be sent. A list of sources names devices, and a device has a kind: a
    /// picture that calls itself `microphone` is none.
    pub fn may_publish_track(&self, name: &str, kind: MediaKind) -> bool {
        let of_kind = match name {
            "camera" | "screen_share" => kind == MediaKind::Video,
            "microphone" | "screen_share_audio" => kind == MediaKind::Audio,
            _ => true,
        };
        let listed = |list: &Vec<String>| of_kind && list.iter().any(|source| source == name);
        self.can_publish && self.publish_sources.as_ref().is_none_or(listed)
    }

    /// Whether these grants are for this room.
    pub fn holds_in(&self, room: &str) -> bool {
        self.room.as_deref().is_none_or(|only| only == room)
    }

    /// Whether they are over.
    pub fn is_expired(&self) -> bool {
        self.expires_unix_s.is_some_and(|end| unix_s() >= end)
    }
}

/// Why a token is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenError {
    /// Its time is over: fetch a fresh one.
    Expired,
    /// Its time has not come.
    NotYet,
    /// It was revoked before its time was over.
    Revoked,
    /// It is no token of one of this server's keys; the text says why.
    Invalid(String),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("the token is expired: fetch a fresh one"),
            Self::NotYet => f.write_str(
                "the token's time (nbf, iat) has not come: compare the machines' clocks",
            ),
            Self::Revoked => f.write_str("the token was revoked: ask for another"),
            Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for TokenError {}

impl TokenError {
    /// The error object that SocketCluster's client knows.
    pub fn named(&self) -> NamedError {
        let name = match self {
            Self::Expired => "AuthTokenExpiredError",
            Self::NotYet => "AuthTokenNotBeforeError",
            Self::Revoked | Self::Invalid(_) => "AuthTokenInvalidError",
        };
        NamedError { name: name.into(), message: self.to_string() }
    }
}

impl From<TokenError> for RoomError {
    fn from(error: TokenError) -> Self {
        Self::new(ErrorCode::BadToken, error.to_string())
    }
}

/// What is taken from the settings: all of it can be replaced while the server runs.
#[derive(Debug)]
struct Rules {
    keys: Keys,
    guests: Guests,
    guest: Arc<Grants>,
    /// What `aud` must name.
    audience: Option<String>,
    admin_token: Option<Secret>,
}

impl Rules {
    fn new<'a>(keys: impl IntoIterator<Item = (&'a str, &'a Secret)>, guests: Guests) -> Self {
        let decoding = |(name, secret): (&str, &Secret)| {
            (name.to_owned(), DecodingKey::from_secret(secret.0.as_bytes()))
        };
        let guest = Arc::new(match guests {
            Guests::None => Grants::default(),
            Guests::Join => Grants::join(),
            Guests::All => Grants::all(),
        });
        let keys = keys.into_iter().map(decoding).collect();
        Self { keys, guests, guest, audience: None, admin_token: None }
    }
}

impl From<&Config> for Rules {
    fn from(config: &Config) -> Self {
        let keys = config.keys.iter().map(|(name, secret)| (name.as_str(), secret));
        Self {
            audience: config.audience.clone(),
            admin_token: config.admin.token.clone(),
            ..Self::new(keys, config.guests)
        }
    }
}

/// The server's keys, what guests may do, and which tokens are revoked.
#[derive(Debug)]
pub struct Auth {
    rules: RwLock<Arc<Rules>>,
    revocations: Revocations,
}

impl Auth {
    /// Keys by their names, and what holds without a token.
    pub fn new<'a>(keys: impl IntoIterator<Item = (&'a str, &'a Secret)>, guests: Guests) -> Self {
        Self::of(Rules::new(keys, guests))
    }

    /// What the settings say.
    pub fn from_config(config: &Config) -> Self {
        Self::of(config.into())
    }

    /// No keys, and everything is allowed.
    pub fn development() -> Self {
        Self::new([], Guests::All)
    }

    fn of(rules: Rules) -> Self {
        Self { rules: RwLock::new(Arc::new(rules)), revocations: Revocations::default() }
    }

    /// Replaces keys, audience, admin token and what guests may do. What sockets were granted before stays theirs
    /// until their tokens end.
    pub fn reload(&self, config: &Config) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config.into());
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What guests may do.
    pub fn guests(&self) -> Guests {
        self.rules().guests
    }

    /// The grants of someone without a token.
    pub fn guest(&self) -> Arc<Grants> {
        self.rules().guest.clone()
    }

    /// Whether metrics and console want `admin.token`.
    pub(crate) fn wants_admin_token(&self) -> bool {
        self.rules().admin_token.is_some()
    }

    /// Whether a request shows `admin.token`: as `Bearer`, or as the password of `Basic`, which browsers ask for.
    pub(crate) fn shows_admin_token(&self, headers: &HeaderMap) -> bool {
        let rules = self.rules();
        let header = headers.get(AUTHORIZATION).and_then(|header| header.to_str().ok());
        let parts = header.and_then(|header| header.split_once(' '));
        let (Some(wanted), Some((kind, shown))) = (&rules.admin_token, parts) else { return false };
        if kind.eq_ignore_ascii_case("bearer") {
            return wanted.is(shown.trim().as_bytes());
        }
        let decoded = data_encoding::BASE64.decode(shown.trim().as_bytes()).unwrap_or_default();
        let password = decoded.iter().position(|byte| *byte == b':').map(|at| &decoded[at + 1..]);
        kind.eq_ignore_ascii_case("basic") && password.is_some_and(|password| wanted.is(password))
    }

    /// Verifies a token: signature, key, audience, times, and that it is not revoked.
    ///
    /// # Errors
    /// [`TokenError`], never with the token in it.
    pub fn verify(&self, token: &str) -> Result<Grants, TokenError> {
        let rules = self.rules();
        let grants = token::verify(token, &rules.keys, rules.audience.as_deref(), unix_s())?;
        if self.is_revoked(&grants) {
            return Err(TokenError::Revoked);
        }
        Ok(grants)
    }

    /// Whether the token that gave these grants was revoked meanwhile.
    pub fn is_revoked(&self, grants: &Grants) -> bool {
        self.revocations.cover(grants, unix_s())
    }

    /// Takes tokens no more from now on: the one of a `jti`, or those of a `sub` issued before a time (none: until
    /// now), in seconds since the Unix epoch; `until`: when the last of them ends by itself. Tells until when it is
    /// remembered. Who uses such a token is not looked for here.
    ///
    /// # Errors
    /// The list is full, or the name cannot be one.
    pub(crate) fn revoke(
        &self,
        target: Target,
        issued_before: Option<u64>,
        until: Option<u64>,
    ) -> Result<u64, revocations::Refused> {
        let now = unix_s();
        // Those of this second, too.
        let issued_before = issued_before.unwrap_or(now + 1);
        self.revocations.add(target, issued_before, until, now)
    }

    /// What someone may do in the room they ask for: by the token in their `room.join`, else by the
    /// one their socket was authenticated with, else as a guest.
    ///
    /// # Errors
    /// `bad_token` where the token does not hold, `not_allowed` where it does and does not let them
    /// in. Whether a new room may be opened is in [`Grants::can_create`].
    pub fn for_join(
        &self,
        token: Option<&str>,
        socket: &Socket,
        room: &str,
    ) -> Result<Grants, RoomError> {
        let grants = match token {
            Some(token) => self.verify(token)?,
            None => match socket.grants() {
                Some(grants) if grants.is_expired() => return Err(TokenError::Expired.into()),
                Some(grants) if self.is_revoked(&grants) => return Err(TokenError::Revoked.into()),
                Some(grants) => (*grants).clone(),
                None => (*self.guest()).clone(),
            },
        };
        let refused = |text: String| Err(RoomError::new(ErrorCode::NotAllowed, text));
        if !grants.can_join {
            return refused(match grants.expires_unix_s {
                None => "this server lets nobody in without a token: send one in room.join".into(),
                Some(_) => "the token has no video.roomJoin: ask for another".into(),
            });
        }
        if !grants.holds_in(room) {
            let only = grants.room.as_deref().unwrap_or_default();
            return refused(format!("the token is for room {only}: join that, or ask for another"));
        }
        Ok(grants)
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonwebtoken::{Algorithm, EncodingKey, Header};
    use serde_json::json;
    use token::TOKEN_BYTES;

    const SECRET: &str = "a secret that is long enough for HS256";

    fn auth() -> Auth {
        let (one, two) = (Secret::new(SECRET).unwrap(), Secret::new(&SECRET.repeat(2)).unwrap());
        Auth::new([("one", &one), ("two", &two)], Guests::None)
    }

    fn signed(claims: serde_json::Value, secret: &str) -> String {
        let key = EncodingKey::from_secret(secret.as_bytes());
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
    }

    #[test]
    fn a_livekit_token_is_read() {
        let claims = json!({
            "iss": "one", "sub": "ada", "name": "Ada", "exp": unix_s() + 60, "nbf": unix_s(),
            "video": {"room": "garden", "roomJoin": true, "canPublish": true, "hidden": false,
                "canPublishSources": ["MICROPHONE"]},
            "metadata": "x", "sockets": {"subscribe": ["chat.*", "news"], "publish": ["chat.*"]},
        });
        let grants = auth().verify(&signed(claims, SECRET)).unwrap();
        assert_eq!(grants.identity.as_deref(), Some("ada"));
        assert_eq!(grants.name.as_deref(), Some("Ada"));
        assert!(grants.can_join && grants.can_create && grants.can_publish && grants.can_subscribe);
        assert!(!grants.can_moderate && !grants.can_list && !grants.sockets.admin);
        assert!(grants.may_publish_track("microphone", MediaKind::Audio));
        assert!(!grants.may_publish_track("microphone", MediaKind::Video));
        assert!(!grants.may_publish_track("camera", MediaKind::Video));
        assert!(grants.holds_in("garden") && !grants.holds_in("cellar"));
        let sockets = &grants.sockets;
        assert!(sockets.may_subscribe("chat.a") && sockets.may_subscribe("news"));
        assert!(!sockets.may_subscribe("newsroom") && !sockets.may_subscribe("chat"));
        assert!(sockets.may_publish("chat.") && !sockets.may_publish("news"));
        assert!(!grants.is_expired());
    }

    #[test]
    fn what_is_wrong_with_a_token_is_told() {
        let auth = auth();
        let now = unix_s();
        let good = || json!({"iss": "one", "sub": "ada", "exp": now + 60});
        assert!(auth.verify(&signed(good(), SECRET)).is_ok());
        let with = |key: &str, value: serde_json::Value| {
            let mut claims = good();
            claims[key] = value;
            signed(claims, SECRET)
        };
        let none_algorithm = {
            let token = signed(good(), SECRET);
            let body = token.split('.').nth(1).unwrap().to_owned();
            format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{body}.")
        };
        let other_algorithm = {
            let key = EncodingKey::from_secret(SECRET.as_bytes());
            jsonwebtoken::encode(&Header::new(Algorithm::HS512), &good(), &key).unwrap()
        };
        for (token, expected) in [
            (with("exp", json!(now - 1)), "AuthTokenExpiredError"),
            (with("nbf", json!(now + 60)), "AuthTokenNotBeforeError"),
            (with("iss", json!("nobody")), "AuthTokenInvalidError"),
            (with("iss", json!("two")), "AuthTokenInvalidError"),
            (with("exp", json!(null)), "AuthTokenInvalidError"),
            (signed(good(), "another secret"), "AuthTokenInvalidError"),
            (none_algorithm, "AuthTokenInvalidError"),
            (other_algorithm, "AuthTokenInvalidError"),
            ("x.y.z".into(), "AuthTokenInvalidError"),
            (String::new(), "AuthTokenInvalidError"),
            ("a".repeat(TOKEN_BYTES + 1), "AuthTokenInvalidError"),
        ] {
            assert_eq!(auth.verify(&token).unwrap_err().named().name, expected, "{token}");
        }
    }

    #[test]
    fn issued_tokens_are_taken() {
        let secret = Secret::new(SECRET).unwrap();
        let request = TokenRequest {
            identity: "root".into(),
            room: Some("garden".into()),
            admin: true,
            ttl_s: 60,
            ..TokenRequest::default()
        };
        let grants = auth().verify(&issue("one", &secret, &request).unwrap()).unwrap();
        assert!(grants.can_moderate && grants.can_list && grants.sockets.admin);
        let request = TokenRequest { identity: "ann".into(), ttl_s: 60, ..request };
        let plain = TokenRequest { admin: false, ..request };
        let grants = auth().verify(&issue("one", &secret, &plain).unwrap()).unwrap();
        assert!(grants.can_join && !grants.can_moderate && !grants.sockets.call);
    }

    #[test]
    fn secrets_are_long_and_never_shown() {
        let told = Secret::new("short-secret").unwrap_err();
        assert!(told.contains("12 of at least 32") && !told.contains("short-secret"), "{told}");
        let secret = Secret::new(SECRET).unwrap();
        assert!(!format!("{secret:?} {:?}", auth()).contains("long enough"));
    }
}
