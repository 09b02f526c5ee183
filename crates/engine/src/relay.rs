//! What shards tell each other: a media lane that may drop, counted, and a control lane that does not.

use crate::command::{PersonKey, RoomKey, ShardIndex, TrackKey};

/// A packet on the media lane.
#[derive(Debug, Clone, Copy)]
pub struct RelayPacket<'a> {
    /// Its track.
    pub track: TrackKey,
    /// Its sequence number, unwrapped by the publisher's shard.
    pub index: u64,
    /// What it brings.
    pub content: RelayContent,
    /// The whole RTP packet in plaintext; empty where nothing of it is passed on.
    pub bytes: &'a [u8],
}

impl<'a> RelayPacket<'a> {
    /// A number that brings nothing.
    pub(crate) fn empty(track: TrackKey, index: u64, content: RelayContent) -> Self {
        Self { track, index, content, bytes: &[] }
    }
}

/// What a number of a track brings to another shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayContent {
    /// A packet as it came.
    Original,
    /// A packet that came as a retransmission.
    Repaired,
    /// Nothing but padding: the next packet takes its number.
    Padding,
    /// Nothing that may be passed on: a moderator muted the track.
    Silenced,
}

/// A message on the control lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayControl {
    /// To the publisher's shard: somebody needs a keyframe.
    Keyframe {
        /// Of which track.
        track: TrackKey,
    },
    /// To the publisher's shard: a track of sound is known here and wanted.
    Wanted {
        /// Which track.
        track: TrackKey,
        /// By which shard.
        to: ShardIndex,
    },
    /// To shards that get a track: its clock.
    Clock {
        /// Which track.
        track: TrackKey,
        /// A timestamp of it,
        rtp_timestamp: u32,
        /// and when that was on the server's wall clock, in nanoseconds since the Unix epoch.
        at_ns: i128,
    },
    /// To a room's home shard: who speaks here.
    Speaking {
        /// In which room.
        room: RoomKey,
        /// On which shard.
        from: ShardIndex,
        /// Who, with the level in −dBov.
        speakers: Vec<(PersonKey, u8)>,
    },
}
