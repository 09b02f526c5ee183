//! What shards tell each other: a media lane that may drop, counted, and a control lane that does not.

use crate::command::{PersonKey, RoomKey, ShardIndex, StreamKey, TrackKey};
use rtp::negotiated::MOST_LAYERS;

/// A packet on the media lane.
#[derive(Debug, Clone, Copy)]
pub struct RelayPacket<'a> {
    /// Its stream.
    pub stream: StreamKey,
    /// Its sequence number, unwrapped by the publisher's shard.
    pub index: u64,
    /// What it brings.
    pub content: RelayContent,
    /// The whole RTP packet in plaintext; empty where nothing of it is passed on.
    pub bytes: &'a [u8],
}

impl<'a> RelayPacket<'a> {
    /// A number that brings nothing.
    pub(crate) fn empty(stream: StreamKey, index: u64, content: RelayContent) -> Self {
        Self { stream, index, content, bytes: &[] }
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
    /// Nothing that may be passed on: a moderator muted the track, or a layer begins to cross anew. Its slots wait.
    Silenced,
}

/// A message on the control lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayControl {
    /// To the publisher's shard: somebody needs a keyframe.
    Keyframe {
        /// Of which stream.
        stream: StreamKey,
    },
    /// To the publisher's shard: which layers of a track are wanted here. It is told again each second.
    Layers {
        /// Which track.
        track: TrackKey,
        /// By which shard.
        to: ShardIndex,
        /// The layers that slots carry or wait for: bit N for layer N. These cross.
        carried: u8,
        /// The highest layer that a slot would carry if it came.
        wish: u8,
    },
    /// To shards that get a track: what each of its layers brings at the publisher's, in bits a second; 0 if it is not sent.
    Rates {
        /// Which track.
        track: TrackKey,
        /// By layer.
        bps: [u32; MOST_LAYERS],
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
        /// Which stream.
        stream: StreamKey,
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
