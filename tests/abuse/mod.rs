//! Attacks on the release binary, one program for each way in: each shows that one hostile participant or
//! address gets no more than an honest one, and that nobody else loses anything by it.

mod amplification;
mod bodies;
mod budgets;
mod connections;
mod figures;
mod forged;
mod frames;
mod ghosts;
mod grants;
mod matrix;
mod memory;
mod offers;
mod passing;
mod reflection;
mod revocation;
mod revocation_races;
mod rooms_load;
mod seats;
mod silence;
mod slow_reader;
mod together;
mod told_rates;

use crate::target::Server;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// The secret of the key `ours` of [`server_with_keys`].
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Whether nothing else runs on this machine, and the server has a CPU for itself. Then figures are held to what was
/// promised; else to what a busy machine leaves of that.
fn is_quiet() -> bool {
    crate::target::own_cpu().is_some()
}

/// A server that wants tokens of the key `ours`.
fn server_with_keys() -> Server {
    Server::with(&format!("keys: {{ ours: \"{SECRET}\" }}\n"))
}

/// Seconds since the Unix epoch.
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A token of an identity with these grants of rooms, that holds so many seconds.
fn token(identity: &str, video: Value, seconds: u64) -> String {
    let mut claims =
        json!({ "iss": "ours", "sub": identity, "exp": unix_s() + seconds, "video": video });
    claims["video"]["roomJoin"] = json!(true);
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
}
