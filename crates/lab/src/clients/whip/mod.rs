//! The adapter for servers that speak WHIP (RFC 9725) to take streams and WHEP (draft-ietf-wish-whep) to give them: real
//! WebRTC, one HTTP request for each connection. They know streams and no rooms, so the lab itself tells its people of each
//! other (`lobby.rs`): everybody sends one stream, and has a connection for each stream of the others.

mod lobby;
mod paths;
mod resource;
mod stream;

use crate::base::{Url, http};
use crate::clients::seat::{CONNECT_TIMEOUT, Incoming, Seat, SignalingError};
pub use paths::{NAME, Paths};
use resource::Resources;
use stream::Stream;
use tokio::sync::mpsc;

/// A place in a room that is not entered yet: there is no connection before something is sent or asked for.
/// `linked`: a link stands before who takes it.
pub fn take_seat(
    target: &Url,
    paths: &Paths,
    linked: bool,
) -> (Box<dyn Seat>, mpsc::Receiver<Incoming>) {
    let (stream, incoming) = Stream::new(Resources::new(target, paths, linked));
    (Box::new(stream), incoming)
}

/// Checks that something answers HTTP there; it has no stream to ask for yet.
///
/// # Errors
/// No connection, or no HTTP.
pub async fn reach(target: &Url) -> Result<(), SignalingError> {
    let answer = http::answer(target, "/", CONNECT_TIMEOUT).await;
    answer.map(drop).map_err(|error| SignalingError::Connect(error.to_string()))
}

#[cfg(test)]
mod tests;
