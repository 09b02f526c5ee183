//! Socket frames: SocketCluster protocol 2 over WebSocket text frames.
//!
//! A frame is empty (heartbeat), one packet, or an array of packets. `D` is the type of `data`:
//! a parsed value or a raw slice, as the user of this crate likes.

use crate::bound;
use crate::error::RoomError;
use serde::{Deserialize, Serialize};

/// Path of the WebSocket endpoint.
pub const SOCKET_PATH: &str = "/socketcluster/";
/// The server's heartbeat period, in milliseconds.
pub const PING_INTERVAL_MS: u64 = 8_000;
/// Silence after which a peer is taken for dead, in milliseconds.
pub const PING_TIMEOUT_MS: u64 = 30_000;
/// Time in which the handshake must arrive, in milliseconds.
pub const HANDSHAKE_TIMEOUT_MS: u64 = 10_000;

/// WebSocket close codes of the protocol.
pub mod close {
    /// The client saw no ping of the server.
    pub const NO_PING: u16 = 4000;
    /// The server saw no sign of life.
    pub const NO_PONG: u16 = 4001;
    /// The handshake did not come in time.
    pub const HANDSHAKE_TIMEOUT: u16 = 4005;
    /// The handshake was rejected.
    pub const HANDSHAKE_REJECTED: u16 = 4008;
    /// Something came before the handshake.
    pub const BEFORE_HANDSHAKE: u16 = 4009;
    /// The client reads too slowly: its outbox reached its bound.
    pub const SLOW_CONSUMER: u16 = 4101;
    /// The server is ending; reconnect elsewhere or later.
    pub const DRAINING: u16 = 4102;
    /// The token that the client came in with was revoked.
    pub const REVOKED: u16 = 4104;
}

/// A packet that asks or tells: with `cid` an invoke that wants an answer, without it a transmit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request<D> {
    /// Name of the procedure or event; built-ins begin with `#`.
    pub event: String,
    /// The argument, left out when undefined.
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    pub data: Option<D>,
    /// Call id, counted from 1 by each side for itself.
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    pub cid: Option<u64>,
}

/// A packet that answers an invoke.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response<D, E> {
    /// The `cid` of the invoke that this answers.
    pub rid: u64,
    /// The result, left out when there is none.
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    pub data: Option<D>,
    /// The error, left out when the call succeeded.
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    pub error: Option<E>,
}

fn none<T>() -> Option<T> {
    None
}

/// Argument of `#handshake`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handshake {
    /// A JWT that the client kept, or null.
    #[serde(default)]
    #[serde(deserialize_with = "bound::optional::<{ bound::TOKEN_BYTES }, _>")]
    pub auth_token: Option<String>,
}

/// Answer to `#handshake`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandshakeAnswer {
    /// The socket's id, 20 characters.
    pub id: String,
    /// How long either side waits for a sign of life, in milliseconds.
    pub ping_timeout: u64,
    /// Whether the token was accepted.
    pub is_authenticated: bool,
    /// Why the token was not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_error: Option<NamedError>,
}

/// An error object as the SocketCluster client rebuilds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedError {
    /// The error's class name, such as `AuthTokenInvalidError`.
    pub name: String,
    /// A sentence for people.
    pub message: String,
}

/// The event that publishes a message on a channel.
pub const PUBLISH: &str = "#publish";

/// Argument of `#publish` in both directions: a message on a channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Publish<D> {
    /// The channel's name.
    #[serde(deserialize_with = "bound::text::<{ bound::CHANNEL_BYTES }, _>")]
    pub channel: String,
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    pub data: Option<D>,
}

/// The event that tells a client of its publications that nobody got.
pub const PUBLISH_LOST: &str = "publish.lost";

/// Argument of [`PUBLISH_LOST`]. Publications without a call id have no answer: this is told in its place, once a second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishLost {
    /// How many, since this was told last.
    pub lost: u64,
    /// Why the last of them was not taken.
    pub error: RoomError,
}

/// The heartbeat of a server to clients of protocol 1, and their answer. Those of protocol 2 have empty frames for both.
pub const PING_OF_1: &str = "#1";
/// See [`PING_OF_1`].
pub const PONG_OF_1: &str = "#2";

/// Argument of `#subscribe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribe {
    /// The channel's name.
    #[serde(deserialize_with = "bound::text::<{ bound::CHANNEL_BYTES }, _>")]
    pub channel: String,
}

/// Argument of `#kickOut`: the receiver is no longer subscribed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KickOut {
    /// The channel's name.
    pub channel: String,
    /// Why, for people.
    pub message: String,
}

/// Answer to `#authenticate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authenticated {
    /// Whether the socket is authenticated now.
    pub is_authenticated: bool,
    /// Why not; null where it is.
    pub auth_error: Option<NamedError>,
}

/// Argument of `#setAuthToken`: the client keeps the token for its next handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAuthToken {
    /// A JWT.
    pub token: String,
}

/// The channel on which a room's events travel to its people.
pub fn room_channel(room_id: &str) -> String {
    format!("room:{room_id}")
}
