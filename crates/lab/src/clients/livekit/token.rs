//! Access tokens (JWT, HS256), signed as an application's server signs them.
//! <https://docs.livekit.io/home/get-started/authentication/>

use crate::clients::seat::SignalingError;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;
use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

/// What tells a key's name and its secret: as LiveKit's own tools have it.
const KEY: &str = "LIVEKIT_API_KEY";
const SECRET: &str = "LIVEKIT_API_SECRET";
/// The pair of `livekit-server --dev`.
const DEV: (&str, &str) = ("devkey", "secret");
/// A token is good for so long, in seconds: longer than any run.
const VALID_S: u64 = 48 * 3600;

/// A key of a LiveKit server's.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ApiKey {
    /// Its name.
    pub(super) name: String,
    secret: String,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    name: &'a str,
    nbf: u64,
    exp: u64,
    video: Grants<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Grants<'a> {
    room: &'a str,
    room_join: bool,
    can_publish: bool,
    can_subscribe: bool,
}

impl ApiKey {
    /// The key that the environment tells, or that of a server in development mode.
    pub(super) fn from_env() -> Self {
        Self::told(|name| env::var(name).ok())
    }

    pub(super) fn told(variable: impl Fn(&str) -> Option<String>) -> Self {
        let told = |name, dev: &str| {
            variable(name).filter(|value| !value.is_empty()).unwrap_or_else(|| dev.to_owned())
        };
        Self { name: told(KEY, DEV.0), secret: told(SECRET, DEV.1) }
    }

    /// As a server's settings have it: a line of YAML.
    pub(super) fn as_settings(&self) -> String {
        format!("{{ {:?}: {:?} }}", self.name, self.secret)
    }

    /// A token with which somebody enters a room.
    pub(super) fn token(&self, room: &str, name: &str) -> Result<String, SignalingError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let video = Grants { room, room_join: true, can_publish: true, can_subscribe: true };
        let claims = Claims {
            iss: &self.name,
            sub: name,
            name,
            // A server's clock may be behind.
            nbf: now.saturating_sub(60),
            exp: now + VALID_S,
            video,
        };
        let key = EncodingKey::from_secret(self.secret.as_bytes());
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key)
            .map_err(|error| SignalingError::Connect(format!("no token could be signed: {error}")))
    }

    /// The server refused a token of this key: with what status, and what it says to that.
    pub(super) fn refused(&self, status: u16, why: &str, token: &str) -> SignalingError {
        // The server repeats a token that it does not take.
        let why = why.trim().replace(token, "…");
        let name = &self.name;
        let text = match status {
            401 | 403 => format!(
                "LiveKit refused an access token of the key {name}: {why}; set {KEY} and {SECRET} to a pair of `keys` \
                 in its configuration (without them the lab signs with {} and {}, as of `livekit-server --dev`)",
                DEV.0, DEV.1
            ),
            _ => format!("LiveKit refused the connection: {why}"),
        };
        SignalingError::Foreign { code: status.into(), text }
    }
}
