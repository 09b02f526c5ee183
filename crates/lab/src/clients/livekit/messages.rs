//! The messages of LiveKit's signal protocol that the adapter needs, with the fields that it needs: the rest is skipped.
//! <https://github.com/livekit/protocol>, `protobufs/livekit_rtc.proto` and `livekit_models.proto`.

use prost::{Message, Oneof};

/// What a client says.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SignalRequest {
    #[prost(oneof = "Request", tags = "1, 2, 4, 8, 16")]
    pub(super) message: Option<Request>,
}

/// The kinds of that.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Request {
    /// Of the connection that publishes.
    #[prost(message, tag = "1")]
    Offer(SessionDescription),
    /// Of the connection that subscribes.
    #[prost(message, tag = "2")]
    Answer(SessionDescription),
    #[prost(message, tag = "4")]
    AddTrack(AddTrackRequest),
    #[prost(message, tag = "8")]
    Leave(LeaveRequest),
    #[prost(message, tag = "16")]
    Ping(Ping),
}

/// What the server says.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SignalResponse {
    #[prost(oneof = "Response", tags = "1, 2, 3, 4, 6, 8, 13, 22")]
    pub(super) message: Option<Response>,
}

/// The kinds of that.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Response {
    #[prost(message, tag = "1")]
    Join(JoinResponse),
    /// Of the connection that publishes.
    #[prost(message, tag = "2")]
    Answer(SessionDescription),
    /// Of the connection that subscribes.
    #[prost(message, tag = "3")]
    Offer(SessionDescription),
    #[prost(message, tag = "4")]
    Trickle(TrickleRequest),
    #[prost(message, tag = "6")]
    TrackPublished(TrackPublishedResponse),
    #[prost(message, tag = "8")]
    Leave(LeaveRequest),
    #[prost(message, tag = "13")]
    StreamState(StreamStateUpdate),
    #[prost(message, tag = "22")]
    Request(RequestResponse),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionDescription {
    /// `offer` or `answer`.
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) sdp: String,
    /// Of an offer, and of the answer to it.
    #[prost(uint32, tag = "3")]
    pub(super) id: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AddTrackRequest {
    /// Under which the client's offer has it: the track of the line's `a=msid`.
    #[prost(string, tag = "1")]
    pub(super) cid: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(enumeration = "TrackType", tag = "3")]
    pub(super) kind: i32,
    #[prost(uint32, tag = "4")]
    pub(super) width: u32,
    #[prost(uint32, tag = "5")]
    pub(super) height: u32,
    #[prost(enumeration = "TrackSource", tag = "8")]
    pub(super) source: i32,
    #[prost(message, repeated, tag = "9")]
    pub(super) layers: Vec<VideoLayer>,
    #[prost(bool, tag = "13")]
    pub(super) disable_red: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub(super) enum TrackType {
    Audio = 0,
    Video = 1,
    Data = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub(super) enum TrackSource {
    Unknown = 0,
    Camera = 1,
    Microphone = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct VideoLayer {
    /// 0: low, 1: medium, 2: high.
    #[prost(int32, tag = "1")]
    pub(super) quality: i32,
    #[prost(uint32, tag = "2")]
    pub(super) width: u32,
    #[prost(uint32, tag = "3")]
    pub(super) height: u32,
    #[prost(string, tag = "7")]
    pub(super) rid: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrickleRequest {
    /// `RTCIceCandidateInit` as JSON.
    #[prost(string, tag = "1")]
    pub(super) candidate_init: String,
    #[prost(enumeration = "SignalTarget", tag = "2")]
    pub(super) target: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub(super) enum SignalTarget {
    Publisher = 0,
    Subscriber = 1,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct JoinResponse {
    #[prost(message, optional, tag = "2")]
    pub(super) participant: Option<Participant>,
    #[prost(message, repeated, tag = "3")]
    pub(super) other_participants: Vec<Participant>,
    /// Seconds.
    #[prost(int32, tag = "11")]
    pub(super) ping_interval: i32,
}

/// `ParticipantInfo` there.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Participant {
    #[prost(string, tag = "1")]
    pub(super) sid: String,
    #[prost(message, repeated, tag = "4")]
    pub(super) tracks: Vec<Track>,
    #[prost(string, tag = "9")]
    pub(super) name: String,
}

/// `TrackInfo` there.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Track {
    #[prost(string, tag = "1")]
    pub(super) sid: String,
    #[prost(enumeration = "TrackType", tag = "2")]
    pub(super) kind: i32,
    #[prost(bool, tag = "4")]
    pub(super) muted: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackPublishedResponse {
    #[prost(string, tag = "1")]
    pub(super) cid: String,
    #[prost(message, optional, tag = "2")]
    pub(super) track: Option<Track>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaveRequest {
    #[prost(enumeration = "DisconnectReason", tag = "2")]
    pub(super) reason: i32,
}

/// Why somebody leaves or has to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub(super) enum DisconnectReason {
    UnknownReason = 0,
    ClientInitiated = 1,
    DuplicateIdentity = 2,
    ServerShutdown = 3,
    ParticipantRemoved = 4,
    RoomDeleted = 5,
    StateMismatch = 6,
    JoinFailure = 7,
    Migration = 8,
    SignalClose = 9,
    RoomClosed = 10,
    ConnectionTimeout = 14,
    MediaFailure = 15,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StreamStateUpdate {
    #[prost(message, repeated, tag = "1")]
    pub(super) stream_states: Vec<StreamStateInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StreamStateInfo {
    #[prost(string, tag = "2")]
    pub(super) track_sid: String,
    /// 0: active, 1: paused.
    #[prost(int32, tag = "3")]
    pub(super) state: i32,
}

/// What became of a request that had no answer of its own.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestResponse {
    /// 0: it was done, 4: it waits.
    #[prost(int32, tag = "2")]
    pub(super) reason: i32,
    #[prost(string, tag = "3")]
    pub(super) message: String,
    #[prost(message, optional, tag = "5")]
    pub(super) add_track: Option<AddTrackRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ping {
    /// Milliseconds since 1970.
    #[prost(int64, tag = "1")]
    pub(super) timestamp: i64,
}
