//! What goes into a mixer and comes out of it.

use crate::command::{PersonKey, RoomKey, ShardIndex, TrackKey};
use std::time::Instant;

/// Longest Opus payload that is mixed, in bytes: 20 ms at 200 kbit/s.
pub const MAX_PAYLOAD: usize = 512;
/// Samples of a tick (20 ms at 48 kHz, mono).
pub const TICK_SAMPLES: usize = 960;
/// Most ticks in one packet: 60 ms.
pub const MAX_PACKET_TICKS: usize = 3;
/// Most people heard at once in a room where the loudest are heard.
pub const MAX_LOUDEST: usize = 8;

/// Who is heard in a mixed room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hear {
    /// So many of the loudest, at most [`MAX_LOUDEST`].
    Loudest(u8),
    /// All who are loud enough to be heard.
    Everyone,
}

/// A payload in memory of its own: it crosses threads without an allocation.
#[derive(Clone, Copy)]
pub struct Payload {
    len: u16,
    bytes: [u8; MAX_PAYLOAD],
}

impl Payload {
    /// A copy of `bytes`; none where they are too long.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut payload = Self { len: u16::try_from(bytes.len()).ok()?, bytes: [0; MAX_PAYLOAD] };
        payload.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(payload)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} bytes)", self.len)
    }
}

/// What a room tells the mixers of its shards, in order; never dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixCommand {
    /// A room with a mix: first of all, and again whenever something here changes.
    Room {
        /// Which.
        room: RoomKey,
        /// The shard whose mixer ranks.
        home: ShardIndex,
        /// Bit N: shard N has tracks that may be heard.
        talking: u64,
        /// Bit N: shard N has listeners.
        listening: u64,
        /// Who is heard.
        hear: Hear,
        /// Ticks of 20 ms in a packet for listeners who are not heard, at most [`MAX_PACKET_TICKS`].
        packet_ticks: u8,
    },
    /// The room is over.
    End {
        /// Which.
        room: RoomKey,
    },
    /// A person of this shard publishes sound.
    AddTrack {
        /// In which room.
        room: RoomKey,
        /// Whose.
        person: PersonKey,
        /// The track.
        track: TrackKey,
        /// Its level stays as it is.
        music: bool,
    },
    /// The track ended: it is silent from the next tick.
    RemoveTrack {
        /// Which.
        track: TrackKey,
    },
    /// The track is not to be heard, or again.
    Silence {
        /// Which.
        track: TrackKey,
        /// Not to be heard.
        on: bool,
    },
    /// A person of this shard receives the mix.
    Listen {
        /// In which room.
        room: RoomKey,
        /// Who.
        person: PersonKey,
    },
    /// No longer.
    Unlisten {
        /// Who.
        person: PersonKey,
    },
}

/// A packet of sound on its way into the mixer; may be dropped, counted.
#[derive(Debug, Clone, Copy)]
pub struct MixFrame {
    /// Whose.
    pub track: TrackKey,
    /// Sequence number, unwrapped.
    pub index: u64,
    /// RTP timestamp, 48 kHz.
    pub timestamp: u32,
    /// When it arrived.
    pub arrival: Instant,
    /// Level in −dBov: the sender's claim (RFC 6464), or what the shard measured where that says nothing.
    pub level_dbov: u8,
    /// The Opus packet.
    pub payload: Payload,
}

/// For whom a mixed packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixFor {
    /// Every listener of the room on this shard who got no packet of their own for its first tick or a later one.
    Everyone {
        /// Who does not get it: they are heard, but their own packet could not be made or handed over. Padded with none.
        except: [Option<PersonKey>; MAX_LOUDEST],
    },
    /// One who is heard: the mix without their own voice.
    One(PersonKey),
}

/// A mixed packet, for the shard to seal and send: each listener gets each tick exactly once.
#[derive(Debug, Clone, Copy)]
pub struct MixedPacket {
    /// Which room's mix.
    pub room: RoomKey,
    /// For whom.
    pub to: MixFor,
    /// The first tick in it: timestamps advance by [`TICK_SAMPLES`] a tick.
    pub tick: u64,
    /// How many ticks are in it.
    pub ticks: u8,
    /// Level of what is in it, in −dBov.
    pub level_dbov: u8,
    /// Since when the first of what people of this shard say in it had been here, jitter buffers included. None: they say nothing.
    pub since: Option<Instant>,
    /// The Opus packet, 20 ms for each tick.
    pub payload: Payload,
}

/// What mixers tell each other over the relay.
#[derive(Debug, Clone)]
pub enum MixPeer {
    /// Control lane: a shard's loudest tracks of a room up to a tick, for the home mixer.
    Levels {
        /// Which room.
        room: RoomKey,
        /// From which shard.
        shard: ShardIndex,
        /// Up to which tick.
        tick: u64,
        /// Loudest first: (track, level in −dBov), padded with none.
        top: [Option<(TrackKey, u8)>; MAX_LOUDEST],
    },
    /// Control lane: who is heard from a tick on, by the home mixer.
    Rank {
        /// Which room.
        room: RoomKey,
        /// From which tick.
        from_tick: u64,
        /// Loudest first, padded with none.
        tracks: [Option<TrackKey>; MAX_LOUDEST],
        /// Bit N: shard N has one of them, so that its sum is waited for.
        shards: u64,
    },
    /// Media lane: the sum of a shard's people who are heard in a tick.
    Sum {
        /// Which room.
        room: RoomKey,
        /// From which shard.
        shard: ShardIndex,
        /// Which tick.
        tick: u64,
        /// The samples, not limited.
        samples: Box<[f32; TICK_SAMPLES]>,
    },
}

/// What the shard need not open and hand over: packets of tracks that are not heard, of lower levels than the bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    /// In which room.
    pub room: RoomKey,
    /// The quietest level in −dBov with which a track may become heard in one of the next ticks.
    pub dbov: u8,
    /// Who is heard, padded with none.
    pub heard: [Option<TrackKey>; MAX_LOUDEST],
}

/// Where a mixer's output goes.
pub trait MixSink {
    /// How loud a track must be, for the media thread of this shard; once a tick and room. Says whether there was room.
    fn bar(&mut self, bar: Bar) -> bool;
    /// A mixed packet, for the media thread of this shard; says whether there was room.
    fn packet(&mut self, packet: MixedPacket) -> bool;
    /// A message for the mixer of another shard; says whether there was room.
    fn peer(&mut self, shard: ShardIndex, message: MixPeer) -> bool;
}
