//! SRTP and SRTCP (RFC 3711, RFC 7714): keys, opening what arrives, sealing what leaves.
//!
//! One [`Opener`] and one [`Sealer`] serve one transport. Session keys are derived once; there is
//! no re-derivation (key derivation rate 0) and no MKI, as in WebRTC.

mod cipher;
mod keys;
mod open;
mod replay;
mod seal;

#[cfg(test)]
mod tests;

pub use keys::{KeyPair, MasterKey, Profile};
pub use open::{MAX_STREAMS, OpenedRtp, Opener};
pub use replay::WINDOW;
pub use seal::{SealStream, Sealer};

use crate::error::ParseError;
use std::fmt;

/// Why a packet was not opened or sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SrtpError {
    /// The packet cannot hold a header and a tag.
    TooShort,
    /// The header is not one of RTP or RTCP.
    Malformed(ParseError),
    /// The tag does not fit: forged, damaged, or sealed with another key or rollover counter.
    AuthenticationFailed,
    /// The SRTCP packet is authenticated only (E bit clear); WebRTC encrypts all of them.
    NotEncrypted,
    /// This index was opened before.
    Replayed,
    /// The index lies before the replay window.
    TooOld,
    /// The limit of sources is reached ([`MAX_STREAMS`]).
    TooManyStreams,
    /// This index was sealed before, or lies before the window and may have been.
    IndexReused,
    /// The index space of this key is used up.
    IndexExhausted,
    /// The packet's SSRC is not the one of the stream it is sealed with.
    WrongSsrc,
    /// This sealer has given out a stream of this SSRC before.
    StreamExists,
    /// The buffer cannot hold the result.
    BufferTooSmall,
    /// Key or salt does not have the profile's length.
    BadKeyLength,
}

impl fmt::Display for SrtpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => return error.fmt(f),
            Self::TooShort => "packet is too short",
            Self::AuthenticationFailed => "authentication failed",
            Self::NotEncrypted => "packet is not encrypted",
            Self::Replayed => "packet is replayed",
            Self::TooOld => "packet is older than the replay window",
            Self::TooManyStreams => "too many streams",
            Self::IndexReused => "index was sealed before",
            Self::IndexExhausted => "index space is exhausted",
            Self::WrongSsrc => "packet is not of this stream",
            Self::StreamExists => "stream of this SSRC exists",
            Self::BufferTooSmall => "buffer is too small",
            Self::BadKeyLength => "key or salt has the wrong length",
        }
        .fmt(f)
    }
}

impl std::error::Error for SrtpError {}

impl From<ParseError> for SrtpError {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::TooShort => Self::TooShort,
            other => Self::Malformed(other),
        }
    }
}
