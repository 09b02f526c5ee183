//! What an application's own server asks of rooms by the HTTP API: to make them before anyone comes, to change and to end
//! them, and to act there as a moderator does. `api/rooms.rs` reads the requests and checks the grants, `rooms/desk.rs`
//! does it.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use wire::RoomError;
use wire::room::{AudioTopology, People, PeoplePage, Preset, RoomInfo, VideoCodec, VideoTopology};

/// Longest metadata of a room, in bytes of JSON.
pub const METADATA_BYTES: usize = 4096;

/// A room that is to be. What is left out is as in a room that the first participant opens.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewRoom {
    /// Its id: 1 to 64 of `A–Z a–z 0–9 - _ .`; left out, the server chooses one.
    pub id: Option<String>,
    /// A name for both topologies, with a limit; `audio`, `video` and `limits` beside it win.
    pub preset: Option<Preset>,
    /// The audio topology.
    pub audio: Option<AudioTopology>,
    /// The video topology.
    pub video: Option<VideoTopology>,
    /// The video codec.
    pub video_codec: Option<VideoCodec>,
    /// Its limits.
    #[serde(default)]
    pub limits: NewLimits,
    /// What the application notes of it, at most [`METADATA_BYTES`]: for those who may list or moderate rooms by HTTP.
    pub metadata: Option<Box<RawValue>>,
}

/// Limits that are to be.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewLimits {
    /// Most people at once, up to the server's own limit.
    pub max_participants: Option<u32>,
}

/// What is to be different in a room; what is left out stays.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoomChange {
    /// Nobody new comes in.
    pub locked: Option<bool>,
    /// Its limits.
    #[serde(default)]
    pub limits: NewLimits,
    /// What the application notes of it; `null`: nothing any more.
    #[serde(default, deserialize_with = "given")]
    pub metadata: Option<Box<RawValue>>,
}

/// What is there, also if it is `null`.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// A room in the answer of `GET /v1/rooms`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoomRow {
    /// The room.
    #[serde(flatten)]
    pub room: RoomInfo,
    /// People now.
    pub people: u32,
}

/// A room, with what the application notes of it.
#[derive(Debug, Serialize)]
pub struct RoomDetails {
    /// The room.
    #[serde(flatten)]
    pub row: RoomRow,
    /// What the application notes of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<RawValue>>,
}

/// Why a wish was not met.
#[derive(Debug)]
pub enum Unmet {
    /// No room has this id now.
    UnknownRoom,
    /// A room has this id already.
    RoomExists,
    /// Another reason, as participants are told it.
    Refused(RoomError),
}

impl From<RoomError> for Unmet {
    fn from(error: RoomError) -> Self {
        Self::Refused(error)
    }
}

/// The desk. Who may ask for what was checked before.
pub trait RoomDesk {
    /// Makes a room. It waits for its first participant for ten minutes.
    ///
    /// # Errors
    /// The id is taken or none, a limit is out of its range, or the server has no place for another room.
    fn create(&self, wanted: NewRoom) -> Result<RoomDetails, Unmet>;

    /// A room.
    ///
    /// # Errors
    /// There is none. So it is with all methods below.
    fn room(&self, room: &str) -> Result<RoomDetails, Unmet>;

    /// Changes a room: all of it, or nothing.
    ///
    /// # Errors
    /// A limit is out of its range, or the metadata is too long.
    fn change(&self, room: &str, change: RoomChange) -> Result<RoomDetails, Unmet>;

    /// Ends a room, and tells its participants why.
    ///
    /// # Errors
    /// See [`room`](Self::room).
    fn end(&self, room: &str, reason: &str) -> Result<(), Unmet>;

    /// A page of those who are in a room.
    ///
    /// # Errors
    /// The page begins after no id of a participant, or has too many.
    fn people(&self, room: &str, page: &People) -> Result<PeoplePage, Unmet>;

    /// Puts a participant out for good, with all seats of the same identity or session, and tells them why.
    ///
    /// # Errors
    /// There is no such participant.
    fn remove(&self, room: &str, participant: &str, reason: &str) -> Result<(), Unmet>;

    /// Lets somebody in again who was put out, named by a participant that they were.
    ///
    /// # Errors
    /// Nobody was put out under this id.
    fn readmit(&self, room: &str, participant: &str) -> Result<(), Unmet>;

    /// Silences a track for everybody, and what its publisher sends of that kind from other seats, or lifts that.
    ///
    /// # Errors
    /// There is no such track, or the server is behind its work.
    fn silence(&self, room: &str, track: &str, on: bool) -> Result<(), Unmet>;
}
