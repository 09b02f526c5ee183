//! What a room is made as, and why it refuses a call.

use crate::command::{RoomKey, ShardIndex};
use crate::mix::Hear;
use rtp::negotiated::Kind;

/// The way of a kind of media through a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Topology {
    /// There is none of it.
    None,
    /// From person to person, not through this server.
    Mesh,
    /// Forwarded track by track.
    #[default]
    Sfu,
    /// Mixed into one (sound only).
    Mcu,
}

impl Topology {
    /// Whether media of this kind passes the server.
    pub(super) fn passes(self) -> bool {
        matches!(self, Self::Sfu | Self::Mcu)
    }
}

/// Limits of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomLimits {
    /// Most people at once.
    pub people: usize,
    /// Up to so many people are told by name, whatever they do. Of more, those who publish something that others receive
    /// by itself are.
    pub roster: usize,
    /// Most audio slots a person may have.
    pub audio_slots: u32,
    /// Most video slots a person may have.
    pub video_slots: u32,
}

impl RoomLimits {
    /// Most slots of a kind that a person may have.
    pub(super) fn slots(self, kind: Kind) -> u32 {
        match kind {
            Kind::Audio => self.audio_slots,
            Kind::Video => self.video_slots,
        }
    }
}

/// How long the packets of a mix are for listeners who are not heard. Whoever is heard gets packets of 20 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixPacket {
    /// 20 ms.
    Ms20,
    /// 40 ms.
    Ms40,
    /// 60 ms.
    Ms60,
    /// 20 ms up to 200 people, 40 ms up to 999, then 60 ms.
    Auto,
}

impl MixPacket {
    /// Ticks of 20 ms in a packet, in a room of so many people.
    pub(super) fn ticks(self, people: usize) -> u8 {
        match (self, people) {
            (Self::Ms20, _) | (Self::Auto, 0..=200) => 1,
            (Self::Ms40, _) | (Self::Auto, 201..=999) => 2,
            (Self::Ms60, _) | (Self::Auto, _) => 3,
        }
    }
}

/// What a room is made as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomSetup {
    /// The way of sound.
    pub audio: Topology,
    /// The way of pictures.
    pub video: Topology,
    /// Who is heard where sound is mixed.
    pub hear: Hear,
    /// How long the packets of a mix are for listeners who are not heard.
    pub mix_packet: MixPacket,
    /// How many shards there are.
    pub shards: u16,
    /// Its limits.
    pub limits: RoomLimits,
}

impl RoomSetup {
    /// A room on one shard, in whose mix the loudest three are heard, in packets by the room's size.
    pub fn new(audio: Topology, video: Topology, limits: RoomLimits) -> Self {
        let (hear, mix_packet) = (Hear::Loudest(3), MixPacket::Auto);
        Self { audio, video, hear, mix_packet, shards: 1, limits }
    }

    /// The way of a kind of media.
    pub(super) fn topology(&self, kind: Kind) -> Topology {
        match kind {
            Kind::Audio => self.audio,
            Kind::Video => self.video,
        }
    }

    /// The kinds that are forwarded track by track.
    pub(super) fn forwarded(&self) -> impl Iterator<Item = Kind> + use<> {
        let setup = *self;
        KINDS.into_iter().filter(move |kind| setup.topology(*kind) == Topology::Sfu)
    }
}

/// Both kinds of media, in the order in which slots are filled.
pub(super) const KINDS: [Kind; 2] = [Kind::Audio, Kind::Video];

/// What a call asked for cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The room has as many people as it may.
    Full,
    /// A moderator lets nobody new in.
    Locked,
    /// Nobody of that key is here.
    UnknownPerson,
    /// There is no such track, or another participant owns it, or it is of another kind than the slot.
    UnknownTrack,
    /// No such slot.
    UnknownSlot,
    /// More tracks than one may publish.
    TooManyTracks,
    /// A line, or a label of a mesh, is named for two tracks.
    LineTwice,
    /// The room has no such media, or it goes another way.
    OtherTopology,
    /// A moderator muted the track.
    Silenced,
    /// What is encrypted end to end cannot be mixed.
    Opaque,
}

/// The home shard of a room: it ranks who is loud and tells who speaks.
pub(crate) fn home_of(room: RoomKey, shards: u16) -> ShardIndex {
    ShardIndex((room.0 % u64::from(shards.max(1))) as u16)
}
