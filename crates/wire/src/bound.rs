//! How long the strings of requests may be, checked where they are read: what a client sends may be kept for as
//! long as its participant is there.

use serde::de::{Deserialize, Deserializer, Error};

/// Longest id of a room, participant, track, slot or line, and longest name of a codec or cipher, in bytes.
pub const ID_BYTES: usize = 64;
/// Longest name of a participant or track, in bytes: 64 characters of four.
pub const NAME_BYTES: usize = 256;
/// Longest session id, in bytes.
pub const SESSION_BYTES: usize = 128;
/// Longest token, in bytes.
pub const TOKEN_BYTES: usize = 16 << 10;
/// Longest SDP, in bytes; the server's `limits.sdp_bytes` is below.
pub const SDP_BYTES: usize = 256 << 10;
/// Longest ICE candidate, in bytes.
pub const CANDIDATE_BYTES: usize = 1024;
/// Longest name of a channel that is read at all, in bytes; the server takes less.
pub const CHANNEL_BYTES: usize = 1024;

/// Reads a string of at most `MOST` bytes.
pub(crate) fn text<'de, const MOST: usize, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<String, D::Error> {
    check::<MOST, _>(String::deserialize(deserializer)?)
}

/// The same where there may be none.
pub(crate) fn optional<'de, const MOST: usize, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(deserializer)?.map(check::<MOST, _>).transpose()
}

fn check<const MOST: usize, E: Error>(text: String) -> Result<String, E> {
    if text.len() > MOST {
        let length = text.len();
        return Err(E::custom(format_args!(
            "a string of {length} bytes, at most {MOST} are taken"
        )));
    }
    Ok(text)
}
