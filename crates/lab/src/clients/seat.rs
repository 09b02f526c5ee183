//! The boundary to a server's signaling: how somebody enters a room there and gets their media,
//! whatever words that server has for it. A further server is a further [`Seat`] and a further [`Adapter`].

use futures_util::future::BoxFuture;
use std::fmt;
use std::time::Duration;
use wire::room::{
    Announce, Announced, Answer, AudioTopology, Join, Joined, Offer, ParticipantInfo,
    PeerDescription, Permissions, Resume, Resumed, RoomInfo, RoomLimits,
};
use wire::{ErrorCode, EventEnvelope, QualitySample, RoomError};

/// A connection has so long to be made, and a call to be answered.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A call has so long to be answered.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// What a server speaks: by whose words people enter its rooms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Adapter {
    /// Our own realtime socket.
    #[default]
    Moim,
    /// Janus' VideoRoom and AudioBridge plugins, by its WebSocket.
    Janus,
    /// LiveKit's signal protocol.
    LiveKit,
    /// Streams by WHIP and WHEP.
    Whip,
    /// SocketCluster, whose protocol ours is: sockets, and no rooms.
    SocketCluster,
}

impl Adapter {
    /// All of them, by their words.
    pub const ALL: [(&str, Self); 5] = [
        ("moim", Self::Moim),
        ("janus", Self::Janus),
        ("livekit", Self::LiveKit),
        ("whip", Self::Whip),
        ("socketcluster", Self::SocketCluster),
    ];

    /// Its word in scenarios and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Moim => "moim",
            Self::Janus => "janus",
            Self::LiveKit => "livekit",
            Self::Whip => "whip",
            Self::SocketCluster => "socketcluster",
        }
    }

    /// Whether it forwards sound that repeats itself (RED), whenever a bot begins to send it. LiveKit agrees to it, and drops it
    /// for a track that was published without.
    pub fn forwards_red(self) -> bool {
        self == Self::Moim
    }

    /// How what others send comes to a bot in such a room.
    pub fn receiving(self, audio: AudioTopology) -> Receiving {
        match (self, audio) {
            (Self::Moim | Self::SocketCluster, _) | (Self::Janus, AudioTopology::Mcu) => {
                Receiving::Slots
            }
            (Self::Janus, _) => Receiving::Each,
            (Self::LiveKit, _) => Receiving::Offered,
            (Self::Whip, _) => Receiving::Called,
        }
    }

    /// Whether a person's voice goes and the mix comes on one and the same line in such a room.
    pub fn one_line(self, audio: AudioTopology) -> bool {
        self == Self::Janus && audio == AudioTopology::Mcu
    }
}

/// How what others send comes to a bot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiving {
    /// In slots, on the connection that the bot offers.
    Slots,
    /// On a connection for each publisher, which the server offers.
    Each,
    /// On one connection, [`OFFERED`], which the server offers, and offers again as tracks come and go.
    Offered,
    /// On a connection for each publisher, which the bot offers when it is told to by [`Incoming::Call`].
    Called,
}

/// Whom a connection of [`Receiving::Offered`] is with.
pub const OFFERED: &str = "the server";

/// Why a call or a connection failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalingError {
    /// No connection: the cause.
    Connect(String),
    /// The connection is gone: the cause.
    Closed(String),
    /// No answer in time: to which call.
    Timeout(String),
    /// The server refused, with a typed error.
    Refused(RoomError),
    /// Another server refused, with a number of its own.
    Foreign {
        /// The number.
        code: u64,
        /// What was refused and why.
        text: String,
    },
    /// An answer of another shape than the contract says.
    Malformed(String),
}

impl fmt::Display for SignalingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(cause) => write!(f, "no connection: {cause}"),
            Self::Closed(cause) => write!(f, "the socket was closed: {cause}"),
            Self::Timeout(call) => write!(f, "{call} was not answered in time"),
            Self::Refused(error) => write!(f, "{error}"),
            Self::Foreign { code, text } => write!(f, "{text} ({code})"),
            Self::Malformed(what) => write!(f, "malformed: {what}"),
        }
    }
}

impl std::error::Error for SignalingError {}

/// What comes without being asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// An event of a room: its channel and the event.
    Event(String, EventEnvelope),
    /// Somebody sends, and is to be offered a connection ([`Receiving::Called`]): who.
    Call(String),
    /// No connection came of such an offer: with whom, and why.
    Refused(String, SignalingError),
    /// The connection is gone: the cause. Nothing comes after it.
    Closed(String),
}

/// What a call comes to.
pub type Asked<'a, T> = BoxFuture<'a, Result<T, SignalingError>>;

/// Somebody's place at a server. Dropping it closes the connection.
///
/// Where a server has no slots ([`Adapter::receiving`]), the tracks of others come by offers,
/// [`wire::Event::PeerOffer`], which [`Seat::peer_answer`] answers; what its person sends goes by
/// [`Seat::offer`] in all cases. A candidate ([`wire::Event::PeerCandidate`]) of nobody is of the
/// connection that this has made.
///
/// Errors of all calls: refused, no answer in time, closed, or an answer of another shape.
pub trait Seat: Send + Sync {
    /// Enters a room. The others' tracks are in the answer or come as events.
    fn join<'a>(&'a self, join: &'a Join) -> Asked<'a, Joined>;
    /// Negotiates what is sent, and what is received where the server has slots.
    fn offer<'a>(&'a self, offer: &'a Offer) -> Asked<'a, Answer>;
    /// Answers an offer that came as an event.
    fn peer_answer<'a>(&'a self, answer: &'a PeerDescription) -> Asked<'a, ()>;
    /// Leaves the room.
    fn leave(&self) -> Asked<'_, ()>;

    /// Says what is sent where media does not pass the server.
    fn announce<'a>(&'a self, _: &'a Announce) -> Asked<'a, Announced> {
        Box::pin(async { Err(no_mesh()) })
    }
    /// Offers a connection to another member of a mesh, or for what a publisher sends.
    fn peer_offer<'a>(&'a self, _: &'a PeerDescription) -> Asked<'a, ()> {
        Box::pin(async { Err(no_mesh()) })
    }
    /// Takes up a participant whose connection was lost.
    fn resume<'a>(&'a self, _: &'a Resume) -> Asked<'a, Resumed> {
        let gone = RoomError::new(ErrorCode::Gone, "this server keeps no place for whom it lost");
        Box::pin(async move { Err(SignalingError::Refused(gone)) })
    }
    /// Posts a quality sample, where the server takes them.
    fn quality_sample<'a>(&'a self, _: &'a QualitySample) -> Asked<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// People that a room of another server may have: more than a scenario has.
pub const MAX_PEOPLE: u32 = 10_000;

/// What somebody is told who has entered a room of another server.
pub fn joined(join: &Join, own: String, participants: Vec<ParticipantInfo>) -> Joined {
    Joined {
        participant: own,
        epoch: 0,
        room: RoomInfo {
            id: join.room.clone(),
            audio: join.audio.unwrap_or_default(),
            video: join.video.unwrap_or_default(),
            video_codec: join.video_codec.unwrap_or_default(),
            locked: false,
            limits: RoomLimits {
                max_participants: MAX_PEOPLE,
                max_audio_slots: MAX_PEOPLE,
                max_video_slots: MAX_PEOPLE,
            },
        },
        you: Permissions { can_publish: true, can_subscribe: true, can_moderate: false },
        count: participants.len() as u32 + 1,
        participants,
        ice_servers: Vec::new(),
    }
}

fn no_mesh() -> SignalingError {
    SignalingError::Malformed("this server has no mesh".into())
}
