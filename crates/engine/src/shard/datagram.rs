//! A datagram that came in, and what became of it.

use crate::drops::InDrop;
use rtp::TransportAddress;
use std::time::Instant;

/// A datagram that came in.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub source: TransportAddress,
    /// Its bytes.
    pub data: &'a [u8],
    /// When it arrived, as exactly as known.
    pub arrival: Instant,
}

/// What became of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    /// Handed up to the control thread.
    Control,
    /// A connectivity check, answered.
    Check,
    /// A packet of sound, taken for its subscribers or for the mixer.
    Audio,
    /// A packet of sound that nobody will hear: its header was read, nothing was authenticated.
    Quiet,
    /// A packet of video, taken for its subscribers.
    Video,
    /// A compound of control packets.
    Rtcp,
    /// Discarded and counted.
    Dropped(InDrop),
}

impl Handled {
    /// Whether its tag or its integrity showed that a participant sent it. This is not said of what goes up to the
    /// control thread: nothing here authenticates DTLS.
    pub fn is_authentic(self) -> bool {
        match self {
            Self::Check | Self::Audio | Self::Video | Self::Rtcp => true,
            Self::Control | Self::Quiet | Self::Dropped(_) => false,
        }
    }
}
