//! The adapter for LiveKit (1.x): real WebRTC, in the words of its signal protocol. Rooms that forward; they are made by
//! whoever comes first. Tokens are signed with the key of `LIVEKIT_API_KEY` and `LIVEKIT_API_SECRET`.

mod messages;
mod room;
mod session;
mod token;

use crate::base::Url;
use crate::base::http::{self, Answer};
use crate::clients::seat::{CONNECT_TIMEOUT, Incoming, Seat, SignalingError};
use room::Room;
use token::ApiKey;
use tokio::sync::mpsc;

/// A place in a room that is not entered yet: only then there is a connection, by a token for that room. `linked`: a link
/// stands before who takes it.
pub fn take_seat(target: &Url, linked: bool) -> (Box<dyn Seat>, mpsc::Receiver<Incoming>) {
    let (room, incoming) = Room::new(target, ApiKey::from_env(), linked);
    (Box::new(room), incoming)
}

/// The keys of a LiveKit server that takes the lab's tokens, as its settings have them.
pub fn keys() -> String {
    ApiKey::from_env().as_settings()
}

/// Checks that a LiveKit server answers, and that it takes the key's tokens.
///
/// # Errors
/// No connection, or it refuses the token.
pub async fn reach(target: &Url) -> Result<(), SignalingError> {
    let key = ApiKey::from_env();
    let token = key.token("reach", "lab")?;
    let path = format!("/rtc/validate?access_token={token}");
    let answer = http::answer(target, &path, CONNECT_TIMEOUT).await;
    match answer.map_err(|error| SignalingError::Connect(error.to_string()))? {
        Answer { status, .. } if status == "200" => Ok(()),
        Answer { status, body, .. } => Err(key.refused(status.parse().unwrap_or(0), &body, &token)),
    }
}

#[cfg(test)]
mod tests;
