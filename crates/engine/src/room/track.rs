//! A published track as people are told of it.

use crate::command::TrackKey;
use rtp::negotiated::Kind;

/// A published track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// The track.
    pub key: TrackKey,
    /// Audio or video.
    pub kind: Kind,
    /// Its line at the publisher; in a mesh the publisher's label for it.
    pub mid: String,
    /// What the publisher calls it.
    pub name: String,
    /// Whether the publisher muted it.
    pub muted: bool,
    /// Whether a moderator muted it: nothing of it is passed on.
    pub silenced: bool,
    /// Whether its publisher was told that nobody has it in a slot.
    pub paused: bool,
    /// The highest layer that somebody wants, as its publisher was told; None: all are.
    pub layer: Option<u8>,
    /// Its payloads are encrypted end to end: nothing in them is read or changed.
    pub opaque: bool,
    /// It is music: where it is mixed, its level stays as it is.
    pub music: bool,
}

impl Track {
    /// Whether it shows a screen: its publisher, or the token that lets them send it, calls it so.
    pub fn is_screen(&self) -> bool {
        self.kind == Kind::Video && ["screen", "screen_share"].contains(&self.name.as_str())
    }
}
