//! What a room tells a shard and what a shard reports back.

use rtp::TransportAddress;
use rtp::challenge::Challenger;
use rtp::negotiated::{Line, Negotiated};
use rtp::srtp::KeyPair;
use rtp::stun::Responder;

/// A room, unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoomKey(pub u64);

/// A participant's session, unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PersonKey(pub u64);

/// A published track, unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrackKey(pub u64);

/// A stream of a track. With simulcast a track has several, its layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// The track.
    pub track: TrackKey,
    /// Which layer, from 0 for the smallest picture. 0 without simulcast.
    pub layer: u8,
}

impl TrackKey {
    /// The stream of one of its layers.
    pub const fn layer(self, layer: u8) -> StreamKey {
        StreamKey { track: self, layer }
    }

    /// Its only stream, or its smallest picture.
    pub const fn stream(self) -> StreamKey {
        self.layer(0)
    }
}

/// A track's place in the order of pictures: on a path that does not carry all of them, the greatest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Precedence {
    /// It shows a screen.
    pub screen: bool,
    /// When its publisher spoke last, as a count that grows; 0 if they never did.
    pub spoke: u64,
}

/// How a participant sees a slot's picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// How many pixels it has on the screen; 0 if it is not visible. It gets no layer larger than that needs.
    pub pixels: u32,
    /// Whether it comes before all that are not pinned, and nobody who speaks takes its slot; None: as before.
    pub pinned: Option<bool>,
}

/// A shard: a media thread and its mixer, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ShardIndex(pub u16);

/// What a shard is told. Most commands come from the room, in the order in which it decided. `Install`, `Begin`,
/// `Suspend`, `Credentials` and `Move` come from the control thread, after the lines they belong to. `Expect` and
/// `Forget` are the control thread's too: the first and the last of a participant's transport.
#[derive(Debug, Clone)]
pub enum Command {
    /// The lines a person agreed on; the first time this makes the person, later it adds lines.
    Lines {
        /// Whose.
        person: PersonKey,
        /// In which room.
        room: RoomKey,
        /// All lines, old and new.
        negotiated: Negotiated,
    },
    /// An offer was answered: checks signed with these credentials of this side are a participant's, and DTLS from
    /// where they came. An ICE restart changes the credentials.
    Expect {
        /// Whose checks.
        person: PersonKey,
        /// Tells which are authentic.
        responder: Box<Responder>,
        /// Asks addresses whether they are the participant's.
        challenger: Box<Challenger>,
    },
    /// A participant's transport is gone: nothing is expected of them any more.
    Forget {
        /// Who.
        person: PersonKey,
    },
    /// ICE and DTLS are up on this side: media can be received.
    Install {
        /// Whose.
        person: PersonKey,
        /// SRTP keys, seen from this side.
        keys: Box<KeyPair>,
        /// Where media goes and comes from.
        remote: TransportAddress,
        /// Whether the handshake showed that they receive there. Else nothing goes there until that address has answered.
        reached: bool,
    },
    /// The last flight of the handshake is on its way: what is sent from now on finds keys at the
    /// other side. Sooner, a slot's first keyframe could come before them and be lost.
    Begin {
        /// To whom.
        person: PersonKey,
    },
    /// A person has given no sign of life for so long that nothing may be sent to them any more (consent, RFC 7675);
    /// [`Command::Begin`] says that they are back.
    Suspend {
        /// Who.
        person: PersonKey,
    },
    /// The ICE credentials of this side: connectivity checks with them that change nothing are answered where
    /// media arrives.
    Credentials {
        /// Whose checks.
        person: PersonKey,
        /// Answers them.
        responder: Box<Responder>,
    },
    /// A person nominated another address. Media goes there once it has answered.
    Move {
        /// Whose.
        person: PersonKey,
        /// The address.
        remote: TransportAddress,
    },
    /// A line that a person sends on is a track from now on.
    AddTrack {
        /// The track.
        track: TrackKey,
        /// Who publishes it.
        person: PersonKey,
        /// On which line.
        mid: String,
        /// It goes to the mixer, not to slots.
        mixed: bool,
        /// Its payloads are encrypted end to end: nothing in them is read or changed.
        opaque: bool,
        /// Its place in the order of pictures.
        precedence: Precedence,
    },
    /// A track of another shard that somebody here wants: its packets come over the relay.
    Import {
        /// The track.
        track: TrackKey,
        /// In which room.
        room: RoomKey,
        /// Where it is published.
        from: ShardIndex,
        /// Its line at the publisher.
        line: Line,
        /// Nothing in its payloads is read or changed.
        opaque: bool,
        /// Its place in the order of pictures.
        precedence: Precedence,
    },
    /// A track of pictures comes before others from now on: its publisher speaks.
    Precedence {
        /// The track.
        track: TrackKey,
        /// Its place in the order of pictures.
        precedence: Precedence,
    },
    /// Whether the packets of a track published here go to another shard too.
    Export {
        /// The track.
        track: TrackKey,
        /// The other shard.
        to: ShardIndex,
        /// Whether they go there.
        on: bool,
    },
    /// Whether the last packets of a track of sound are kept: somebody may get the track into a slot only
    /// when its publisher speaks already.
    Keep {
        /// The track.
        track: TrackKey,
        /// Whether it is kept.
        on: bool,
    },
    /// A moderator muted a track, or released it: meanwhile nothing of it is passed on.
    Silence {
        /// The track.
        track: TrackKey,
        /// Whether it is muted.
        on: bool,
    },
    /// A slot carries the room's mix from now on.
    MapMix {
        /// Whose slot.
        person: PersonKey,
        /// The slot's line.
        mid: String,
    },
    /// A track ended; slots that carry it fall silent.
    RemoveTrack {
        /// Which.
        track: TrackKey,
    },
    /// What a slot carries from now on.
    Map {
        /// Whose slot.
        person: PersonKey,
        /// The slot's line.
        mid: String,
        /// The track, or none for an empty slot.
        track: Option<TrackKey>,
    },
    /// How a slot's picture is shown.
    Show {
        /// Whose slot.
        person: PersonKey,
        /// The slot's line.
        mid: String,
        /// How large, and whether it is pinned.
        shown: Shown,
    },
    /// A person is gone with their tracks and slots.
    Remove {
        /// Who.
        person: PersonKey,
    },
}

/// What a shard reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// A slot switched to its new track with this packet. The room has a use for it only if it is a video slot.
    Switched {
        /// Whose slot.
        person: PersonKey,
        /// In which room.
        room: RoomKey,
        /// The slot's line.
        mid: String,
        /// The track.
        track: TrackKey,
        /// The first RTP timestamp of the new content, as the subscriber sees it.
        rtp_timestamp: u32,
    },
    /// A slot's picture rests, because the path to its participant does not carry it; or it flows again with the next
    /// keyframe.
    Rests {
        /// Whose slot.
        person: PersonKey,
        /// In which room.
        room: RoomKey,
        /// The slot's line.
        mid: String,
        /// Whether it rests.
        rests: bool,
    },
    /// The highest layer of a track that somebody wants, on any shard: its publisher need not send higher ones.
    Layers {
        /// In which room.
        room: RoomKey,
        /// The track.
        track: TrackKey,
        /// The layer.
        layer: u8,
    },
    /// What the way to a participant is estimated to carry, if that is little.
    Downlink {
        /// Whose way.
        person: PersonKey,
        /// In which room.
        room: RoomKey,
        /// In kbit/s; None: all that goes there, with ease.
        kbps: Option<u32>,
    },
    /// Who speaks in a room, loudest first; at most 5 a second.
    Speakers {
        /// Which room.
        room: RoomKey,
        /// Who, with the level in −dBov.
        speakers: Vec<(PersonKey, u8)>,
    },
}

/// What a report is about: the latest one says all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A slot: whose, and its line.
    Slot(PersonKey, String),
    /// Whether a slot rests: whose, and its line.
    Rests(PersonKey, String),
    /// Which layers of a track are wanted.
    Layers(TrackKey),
    /// What the way to a participant carries.
    Downlink(PersonKey),
    /// Who speaks in a room.
    Speakers(RoomKey),
}

impl Report {
    /// What it is about.
    pub fn subject(&self) -> Subject {
        match self {
            Self::Switched { person, mid, .. } => Subject::Slot(*person, mid.clone()),
            Self::Rests { person, mid, .. } => Subject::Rests(*person, mid.clone()),
            Self::Layers { track, .. } => Subject::Layers(*track),
            Self::Downlink { person, .. } => Subject::Downlink(*person),
            Self::Speakers { room, .. } => Subject::Speakers(*room),
        }
    }
}
