//! Error codes, one meaning each, with what the client should do about it.

use serde::{Deserialize, Serialize};

/// Why a request was refused. The doc of each code says what the client should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The room has as many people as its limit allows. Tell the user; try again later.
    RoomFull,
    /// A moderator lets nobody new in. Tell the user; try again later.
    RoomLocked,
    /// The room exists with other topologies than those asked for, or has none for what was sent.
    /// Join without `audio`/`video`; send no video where the room has none.
    KindConflict,
    /// This server does not offer that topology. Choose another.
    KindUnsupported,
    /// The token or the server's mode does not allow this. Ask for another token.
    NotAllowed,
    /// The token could not be verified or is expired. Fetch a fresh one and join again.
    BadToken,
    /// No such track in this room. Refresh from the latest events.
    UnknownTrack,
    /// No such slot. Offer more `recvonly` lines first.
    UnknownSlot,
    /// No such participant in this room.
    UnknownParticipant,
    /// No such event or procedure on this server. Check the name.
    UnknownEvent,
    /// The SDP could not be parsed or negotiated; the message says which line. Offer again.
    BadSdp,
    /// An offer for another session of this participant came in between. Join again.
    OfferConflict,
    /// The request's shape is wrong; the message says which key. Mend the client.
    BadRequest,
    /// The room is not joined on this socket. Call `room.join` first.
    NotJoined,
    /// The message is longer than the server takes; the message says how long it may be. Send less.
    TooLarge,
    /// Too many requests in a short time, or the server is behind its work. Wait a second and try again.
    TooFast,
    /// The participant or the events asked for are no longer kept. Join anew.
    Gone,
    /// Another session of the same identity took this participant's place. Do not come back by yourself: that would take it
    /// away again.
    Replaced,
    /// The server is ending and takes no new people. Connect to another or retry later.
    Draining,
    /// A fault of the server's own. Try again; the log has the reason.
    Internal,
}

impl ErrorCode {
    /// The code as it stands on the wire, for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RoomFull => "room_full",
            Self::RoomLocked => "room_locked",
            Self::KindConflict => "kind_conflict",
            Self::KindUnsupported => "kind_unsupported",
            Self::NotAllowed => "not_allowed",
            Self::BadToken => "bad_token",
            Self::UnknownTrack => "unknown_track",
            Self::UnknownSlot => "unknown_slot",
            Self::UnknownParticipant => "unknown_participant",
            Self::UnknownEvent => "unknown_event",
            Self::BadSdp => "bad_sdp",
            Self::OfferConflict => "offer_conflict",
            Self::BadRequest => "bad_request",
            Self::NotJoined => "not_joined",
            Self::TooLarge => "too_large",
            Self::TooFast => "too_fast",
            Self::Gone => "gone",
            Self::Replaced => "replaced",
            Self::Draining => "draining",
            Self::Internal => "internal",
        }
    }
}

/// Longest message of a [`RoomError`], in bytes. Some quote what the client sent, and an answer must not grow with it.
pub const MAX_MESSAGE_BYTES: usize = 512;

/// The error of an answer: `{"name": "RoomError", "code": …, "message": …}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomError {
    /// Always `RoomError`: the SocketCluster client makes an error object of this name.
    pub name: String,
    /// What is wrong, for programs.
    pub code: ErrorCode,
    /// What is wrong and what helps, for people.
    pub message: String,
}

impl RoomError {
    /// An error with its code and a sentence that names cause and cure, cut to [`MAX_MESSAGE_BYTES`].
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MAX_MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES - '…'.len_utf8()));
            message.push('…');
            message.shrink_to_fit();
        }
        Self { name: "RoomError".into(), code, message }
    }
}

impl std::fmt::Display for RoomError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

impl std::error::Error for RoomError {}
