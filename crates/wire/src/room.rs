//! The calls of a room: arguments and answers. The names of the calls are the constants.

use crate::bound;
use serde::{Deserialize, Serialize};

/// Enter a room: [`Join`] → [`Joined`].
pub const JOIN: &str = "room.join";
/// Negotiate media: [`Offer`] → [`Answer`].
pub const OFFER: &str = "room.offer";
/// Choose what is received where: [`Slots`] → nothing.
pub const SLOTS: &str = "room.slots";
/// Mute or unmute an own track; a moderator also silences and releases others' tracks: [`Mute`] →
/// nothing.
pub const MUTE: &str = "room.mute";
/// Say what is sent where media does not pass the server (mesh): [`Announce`] → [`Announced`].
pub const ANNOUNCE: &str = "room.announce";
/// Offer a connection to another member of a mesh: [`PeerDescription`] → nothing.
pub const PEER_OFFER: &str = "room.peer_offer";
/// Answer such an offer: [`PeerDescription`] → nothing.
pub const PEER_ANSWER: &str = "room.peer_answer";
/// Tell another member of a mesh a candidate: [`PeerCandidate`] → nothing.
pub const PEER_CANDIDATE: &str = "room.peer_candidate";
/// Put someone out of the room, or let them in again (moderators): [`Remove`] → nothing.
pub const REMOVE: &str = "room.remove";
/// Let nobody new in, or again somebody (moderators): [`Lock`] → nothing.
pub const LOCK: &str = "room.lock";
/// Change how many may be in the room (moderators): [`Limit`] → nothing.
pub const LIMIT: &str = "room.limit";
/// Raise or lower the own hand: [`Hand`] → nothing.
pub const HAND: &str = "room.hand";
/// Read who is in the room, page by page: [`People`] → [`PeoplePage`].
pub const PEOPLE: &str = "room.people";
/// Leave the room: `{}` → nothing.
pub const LEAVE: &str = "room.leave";
/// Take up a participant whose socket was lost: [`Resume`] → [`Resumed`]. Events for this participant only, and those of
/// the moment, follow as they are now.
pub const RESUME: &str = "room.resume";
/// Post a quality sample: [`crate::QualitySample`] → nothing.
pub const QUALITY_SAMPLE: &str = "quality.sample";
/// Heartbeat of applications: anything → [`Pong`].
pub const PING: &str = "ping";

/// What each call costs the server and the others in its room, beside the packet: a participant may spend 200 a
/// second in the long run, 400 at once.
pub const COSTS: &[(&str, u32)] = &[
    (JOIN, 20),
    (OFFER, 40),
    (SLOTS, 2),
    // Everybody may have to be told.
    (MUTE, 20),
    (ANNOUNCE, 20),
    (PEER_OFFER, 5),
    (PEER_ANSWER, 5),
    (PEER_CANDIDATE, 1),
    (REMOVE, 20),
    (LOCK, 20),
    (LIMIT, 20),
    (HAND, 20),
    // A page is some 10 kB.
    (PEOPLE, 20),
    (LEAVE, 10),
    (RESUME, 20),
    (QUALITY_SAMPLE, 1),
    (PING, 0),
];

/// The cost of a call in [`COSTS`]; what is none of a room's costs nothing beside the packet.
pub fn cost(call: &str) -> u32 {
    let known = COSTS.iter().find(|(name, _)| *name == call);
    known.map_or(0, |(_, cost)| *cost)
}

/// Way of a room's audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AudioTopology {
    /// Everyone sends to everyone.
    Mesh,
    /// The server forwards each voice.
    #[default]
    Sfu,
    /// The server mixes all voices into one.
    Mcu,
}

impl AudioTopology {
    /// `mesh`, `sfu` or `mcu`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mesh => "mesh",
            Self::Sfu => "sfu",
            Self::Mcu => "mcu",
        }
    }
}

/// Way of a room's video.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VideoTopology {
    /// No video.
    None,
    /// Everyone sends to everyone.
    Mesh,
    /// The server forwards each picture.
    #[default]
    Sfu,
}

impl VideoTopology {
    /// `none`, `mesh` or `sfu`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Mesh => "mesh",
            Self::Sfu => "sfu",
        }
    }
}

/// A pair of topologies with a name, for those who do not want to think about topologies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// A call of a few: everyone's sound and picture is forwarded (audio sfu, video sfu).
    SmallCall,
    /// A few people without a server between them (audio mesh, video mesh).
    Mesh,
    /// Many people who hear one mix (audio mcu, no video).
    AudioRoom,
    /// Many people who hear one mix and see a few cameras (audio mcu, video sfu).
    AudioMixWithCameras,
    /// Up to 25 people who hear one mix (audio mcu, no video).
    LargeRoomForAudioOnly,
    /// Up to 6 people whose sound and picture is forwarded (audio sfu, video sfu).
    SmallRoomForVideo,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 6] = [
        Self::SmallCall,
        Self::Mesh,
        Self::AudioRoom,
        Self::AudioMixWithCameras,
        Self::LargeRoomForAudioOnly,
        Self::SmallRoomForVideo,
    ];

    /// Its topologies.
    pub fn topologies(self) -> (AudioTopology, VideoTopology) {
        match self {
            Self::SmallCall | Self::SmallRoomForVideo => (AudioTopology::Sfu, VideoTopology::Sfu),
            Self::Mesh => (AudioTopology::Mesh, VideoTopology::Mesh),
            Self::AudioRoom | Self::LargeRoomForAudioOnly => {
                (AudioTopology::Mcu, VideoTopology::None)
            }
            Self::AudioMixWithCameras => (AudioTopology::Mcu, VideoTopology::Sfu),
        }
    }

    /// Its own limit of people, at most the server's.
    pub fn max_participants(self) -> Option<u32> {
        match self {
            Self::LargeRoomForAudioOnly => Some(25),
            Self::SmallRoomForVideo => Some(6),
            Self::SmallCall | Self::Mesh | Self::AudioRoom | Self::AudioMixWithCameras => None,
        }
    }
}

/// A room's one video codec: every slot of video speaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VideoCodec {
    /// VP8 (RFC 7741).
    #[default]
    Vp8,
    /// H.264 constrained baseline, packetization mode 1 (RFC 6184).
    H264,
    /// VP9, profile 0 (RFC 9628).
    Vp9,
    /// AV1, main profile (RTP Payload Format For AV1, Alliance for Open Media).
    Av1,
}

/// Kind of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaKind {
    /// Sound.
    Audio,
    /// Pictures.
    Video,
}

impl MediaKind {
    /// `audio` or `video`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }
}

/// Argument of [`JOIN`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The room's id: 1 to 64 of `A–Z a–z 0–9 - _ .`
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub room: String,
    /// The name that others see, 1 to 64 characters.
    #[serde(deserialize_with = "bound::text::<{ bound::NAME_BYTES }, _>")]
    pub name: String,
    /// The audio topology; the first who joins decides, later ones may leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<AudioTopology>,
    /// The video topology, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub video: Option<VideoTopology>,
    /// A name for both topologies; `audio` and `video` beside it win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// The video codec, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub video_codec: Option<VideoCodec>,
    /// A JWT with grants; without it the one that the socket was authenticated with counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "bound::optional::<{ bound::TOKEN_BYTES }, _>")]
    pub token: Option<String>,
    /// A random id of this page or bot: a reload is a new session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "bound::optional::<{ bound::SESSION_BYTES }, _>")]
    pub session: Option<String>,
}

/// Answer to [`JOIN`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Joined {
    /// The own participant id.
    pub participant: String,
    /// Number of the last event that this answer already includes.
    pub epoch: u64,
    /// The room.
    pub room: RoomInfo,
    /// What the token allows.
    pub you: Permissions,
    /// How many people are here now, this one included.
    pub count: u32,
    /// Everybody else who is known by name, in order of joining: all, unless the room has an audience (see
    /// [`crate::event`]).
    pub participants: Vec<ParticipantInfo>,
    /// `RTCIceServer` entries; empty where the server itself is reachable.
    pub ice_servers: Vec<IceServer>,
}

/// A room as its people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomInfo {
    /// The room's id.
    pub id: String,
    /// Its audio topology.
    pub audio: AudioTopology,
    /// Its video topology.
    pub video: VideoTopology,
    /// Its video codec.
    pub video_codec: VideoCodec,
    /// Nobody new comes in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
    /// Its limits.
    pub limits: RoomLimits,
}

/// Limits of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomLimits {
    /// Most people at once.
    pub max_participants: u32,
    /// Most audio slots a participant may have.
    pub max_audio_slots: u32,
    /// Most video slots a participant may have.
    pub max_video_slots: u32,
}

/// What a participant may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// May send media.
    pub can_publish: bool,
    /// May receive media.
    pub can_subscribe: bool,
    /// May mute and remove others, lock the room and change its limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_moderate: bool,
}

/// A participant as the others see them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParticipantInfo {
    /// The participant's id.
    pub id: String,
    /// The participant's name.
    pub name: String,
    /// What they publish.
    pub tracks: Vec<TrackInfo>,
    /// Whether they raise their hand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hand: bool,
}

/// A published track.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackInfo {
    /// The track's id, unique in the room.
    pub id: String,
    /// Audio or video.
    pub kind: MediaKind,
    /// What the publisher calls it, such as `camera`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Whether nothing is to be heard or seen of it: its publisher muted it, or a moderator did.
    pub muted: bool,
    /// A moderator muted it: the server passes nothing of it on, and its publisher cannot unmute.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silenced: bool,
}

/// An `RTCIceServer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IceServer {
    /// `stun:` and `turn:` addresses.
    pub urls: Vec<String>,
    /// TURN user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// TURN password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}

/// Argument of [`OFFER`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The SDP offer: what is sent, and a pool of `recvonly` lines, the slots.
    #[serde(deserialize_with = "bound::text::<{ bound::SDP_BYTES }, _>")]
    pub sdp: String,
    /// Which line sends which track. Lines that send and are missing here are ignored.
    pub tracks: Vec<OfferedTrack>,
    /// The same session id as in [`Join`], if one was given there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "bound::optional::<{ bound::SESSION_BYTES }, _>")]
    pub session: Option<String>,
}

/// A track in an [`Offer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedTrack {
    /// The m-line's `a=mid`. A line carries one track: naming it twice in a call is `bad_request`.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub mid: String,
    /// Audio or video.
    pub kind: MediaKind,
    /// What the publisher calls it, such as `camera`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[serde(deserialize_with = "bound::text::<{ bound::NAME_BYTES }, _>")]
    pub name: String,
    /// Its payloads are encrypted end to end: the server passes them on byte for byte and reads
    /// nothing of them. What is mixed cannot be opaque.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub opaque: bool,
    /// What is in it, for sound that is mixed.
    #[serde(default, skip_serializing_if = "ContentHint::is_speech")]
    pub content_hint: ContentHint,
    /// With simulcast: the layers, by the names that the SDP gives them, the smallest picture first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<OfferedLayer>,
}

/// What a track of sound holds, as in `MediaStreamTrack.contentHint` (W3C mst-content-hint).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentHint {
    /// A voice: a mixed room brings it to the level of the others.
    #[default]
    Speech,
    /// Music: a mixed room leaves its level as it is.
    Music,
}

impl ContentHint {
    fn is_speech(&self) -> bool {
        *self == Self::Speech
    }
}

/// A layer of a track that is sent with simulcast (RFC 8853).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedLayer {
    /// Its RTP stream id: the `a=rid` of the line.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub rid: String,
    /// Width of its pictures, in pixels.
    pub width: u32,
    /// Height of its pictures, in pixels.
    pub height: u32,
}

/// Answer to [`OFFER`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The SDP answer.
    pub sdp: String,
    /// The id that each published line got.
    pub tracks: Vec<AnsweredTrack>,
}

/// A track in an [`Answer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnsweredTrack {
    /// The m-line's `a=mid`.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub mid: String,
    /// The track's id in the room.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub id: String,
}

/// Argument of [`SLOTS`]. A slot is named by the `a=mid` of its `recvonly` line, once in each list.
///
/// Once a participant has wanted something for a slot of video, all their video slots are their own
/// to fill; the same for audio. Until then the server fills them, those who speak first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// What is wanted where; slots left out stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub want: Vec<SlotWant>,
    /// How slots are shown; slots left out stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<SlotShown>,
}

/// The size that a slot's picture is shown at, which decides what layer flows there, and whether it is pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotShown {
    /// The slot: its line's `a=mid`.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub slot: String,
    /// Width in pixels of the screen (not of the page); 0 if it is not visible.
    pub width: u32,
    /// Height in pixels of the screen; 0 if it is not visible.
    pub height: u32,
    /// Whether its picture comes before all that are not pinned where the path does not carry all. If the server fills the
    /// slots, nobody who speaks takes a pinned one. A slot stays pinned until this is told anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

/// One entry of [`Slots`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotWant {
    /// The slot: its line's `a=mid`.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub slot: String,
    /// The track to show, or null for an empty slot.
    #[serde(default, deserialize_with = "bound::optional::<{ bound::ID_BYTES }, _>")]
    pub track: Option<String>,
    /// Width it is shown at, in pixels of the screen, as in [`SlotShown`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Height it is shown at, in pixels of the screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
}

/// Argument of [`MUTE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mute {
    /// A track's id: an own one, or anyone's for a moderator. A moderator's word also holds for what its publisher sends
    /// of that kind from other seats of the same identity or session.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub track: String,
    /// The new state.
    pub muted: bool,
}

/// Argument of [`ANNOUNCE`]: all that is sent from now on; what was announced before and is missing
/// here ends. A line here names a track once: `mid` is the sender's own label, such as `audio`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announce {
    /// The tracks.
    pub tracks: Vec<OfferedTrack>,
}

/// Answer to [`ANNOUNCE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// The id that each announced track got, by its label.
    pub tracks: Vec<AnsweredTrack>,
}

/// Argument of [`PEER_OFFER`] and [`PEER_ANSWER`]; arrives as an event with `from`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerDescription {
    /// The other member.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub to: String,
    /// The SDP.
    #[serde(deserialize_with = "bound::text::<{ bound::SDP_BYTES }, _>")]
    pub sdp: String,
    /// Which line of this connection sends which announced track.
    #[serde(default)]
    pub tracks: Vec<AnsweredTrack>,
}

/// Argument of [`PEER_CANDIDATE`]; arrives as an event with `from`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerCandidate {
    /// The other member.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub to: String,
    /// `RTCIceCandidate.candidate`; empty: there are no more.
    #[serde(deserialize_with = "bound::text::<{ bound::CANDIDATE_BYTES }, _>")]
    pub candidate: String,
    /// `RTCIceCandidate.sdpMid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "bound::optional::<{ bound::ID_BYTES }, _>")]
    pub mid: Option<String>,
}

/// Argument of [`REMOVE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remove {
    /// Who shall go, with all their seats: those of the same identity, or of the same session where a token names none. They
    /// stay out of the room until a moderator lifts that or the room ends.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub participant: String,
    /// Lets them in again, named by a participant that they were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lift: bool,
}

/// Argument of [`LOCK`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// The new state.
    pub locked: bool,
}

/// Argument of [`LIMIT`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Most people at once, up to the server's own limit; who is in the room stays.
    pub max_participants: u32,
}

/// Argument of [`HAND`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hand {
    /// The new state.
    pub raised: bool,
}

/// Most people on a page of [`PEOPLE`].
pub const PEOPLE_A_PAGE: u32 = 100;

/// Argument of [`PEOPLE`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct People {
    /// The last participant of the page before; left out for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "bound::optional::<{ bound::ID_BYTES }, _>")]
    pub after: Option<String>,
    /// How many at most, up to [`PEOPLE_A_PAGE`], which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Answer to [`PEOPLE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeoplePage {
    /// How many people are here now.
    pub count: u32,
    /// Some of them, in order of joining. The page after the last one is empty.
    pub people: Vec<ParticipantInfo>,
}

/// Argument of [`RESUME`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The room's id.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub room: String,
    /// The participant to take up.
    #[serde(deserialize_with = "bound::text::<{ bound::ID_BYTES }, _>")]
    pub participant: String,
    /// The session id given at [`Join`]: proof that this is the same page or bot.
    #[serde(deserialize_with = "bound::text::<{ bound::SESSION_BYTES }, _>")]
    pub session: String,
    /// Number of the last event seen.
    pub seen: u64,
}

/// Answer to [`RESUME`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resumed {
    /// Number of the last event.
    pub epoch: u64,
    /// What was missed, oldest first.
    pub events: Vec<crate::EventEnvelope>,
}

/// Answer to [`PING`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// How many pings this signaling thread has answered.
    pub count: u64,
}
