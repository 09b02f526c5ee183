//! What a room tells its people, numbered by `epoch`.
//!
//! On the socket an event is a `#publish` on `room:<id>`, whose `data` is an [`EventEnvelope`].
//! Events for one participant only (`slots`, `slots_wanted`, `track_paused`, `track_layers`, `downlink`, `media_failed`) and
//! those of the moment (`active_speakers`, `people`) carry the number of the last event of the room: they take none of their own, so no
//! one sees a gap. They are not kept: whoever comes back by `room.resume` is told what holds then.
//!
//! In a room of many (`limits.roster` of the server) most people are an audience: others are told their number, and of a
//! participant only once they publish something that others receive by itself, or raise their hand, or a moderator mutes
//! them. All events and answers name only participants that the receiver was told of, but `active_speakers`, which says
//! the name, and `room.people`.

use crate::room::{AnsweredTrack, ParticipantInfo, RoomInfo, TrackInfo};
use serde::{Deserialize, Serialize};

/// An event with its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventEnvelope {
    /// The room's event counter, from 1.
    pub epoch: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Why a media connection came to nothing, or is not up yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaFault {
    /// The client's DTLS certificate is of a kind that the server does not take: it has to be of ECDSA.
    CertificateKind,
    /// The client's DTLS certificate is not the one whose fingerprint stands in its SDP.
    Fingerprint,
    /// The DTLS handshake failed for another reason.
    Handshake,
    /// The server gave up on the connection.
    Internal,
    /// After 15 s no check of ICE had come from the client. It may still come.
    Unreachable,
    /// After 15 s checks of ICE had come, and no DTLS handshake was over. It may still be.
    Unfinished,
}

impl MediaFault {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::CertificateKind,
        Self::Fingerprint,
        Self::Handshake,
        Self::Internal,
        Self::Unreachable,
        Self::Unfinished,
    ];

    /// As it stands in messages and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CertificateKind => "certificate_kind",
            Self::Fingerprint => "fingerprint",
            Self::Handshake => "handshake",
            Self::Internal => "internal",
            Self::Unreachable => "unreachable",
            Self::Unfinished => "unfinished",
        }
    }

    /// What the client is told to do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::CertificateKind => {
                "the client's DTLS certificate is of a kind that is not taken here: give it one of ECDSA (docs/clients.md says how)"
            }
            Self::Fingerprint => {
                "the client's DTLS certificate is not the one whose fingerprint stands in its SDP: offer with the certificate that it uses"
            }
            Self::Handshake => {
                "the DTLS handshake failed: the server's log says why; it takes DTLS 1.2 with certificates of ECDSA"
            }
            Self::Internal => "the server gave up on the media connection: join again",
            Self::Unreachable => {
                "nothing came to the server's media ports within 15 s. A firewall may block them, or the client does not use the candidates in the answer"
            }
            Self::Unfinished => {
                "checks of ICE came, but no handshake of DTLS was over within 15 s. A firewall may block what the server sends, or the client's credentials or role (a=setup) are not those in its SDP"
            }
        }
    }
}

/// What happened. On the wire: `{"epoch": 7, "type": "participant_left", …}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// Someone came in, or who was among the audience is known by name from now on.
    ParticipantJoined {
        /// Who.
        participant: ParticipantInfo,
        /// How many people are here now.
        count: u32,
        /// They were among the audience before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        from_audience: bool,
    },
    /// Someone raised or lowered their hand.
    ParticipantChanged {
        /// Who, as they are now.
        participant: ParticipantInfo,
    },
    /// Someone is gone.
    ParticipantLeft {
        /// Who.
        participant: String,
        /// Why.
        reason: LeaveReason,
        /// How many people are here now.
        count: u32,
    },
    /// How many people are here: after people of the audience came or left, at most twice a second, and after a resume. Takes
    /// no number of its own.
    People {
        /// How many people are here now, the receiver included.
        count: u32,
        /// How many of the audience came since the last such event, the receiver perhaps among them.
        joined: u32,
        /// How many of the audience left since then.
        left: u32,
    },
    /// Someone publishes a track.
    TrackAdded {
        /// Who.
        participant: String,
        /// What.
        track: TrackInfo,
    },
    /// A track was muted or unmuted.
    TrackChanged {
        /// Whose.
        participant: String,
        /// The track as it is now.
        track: TrackInfo,
    },
    /// A track ended.
    TrackRemoved {
        /// Whose.
        participant: String,
        /// Which.
        track: String,
    },
    /// Who speaks, loudest first; at most 5 a second. Takes no number of its own.
    ActiveSpeakers {
        /// The speakers.
        speakers: Vec<Speaker>,
    },
    /// What is in the receiver's slots from now on. Takes no number of its own.
    Slots {
        /// The slots that changed.
        slots: Vec<SlotChange>,
    },
    /// The room has more tracks than this receiver has slots: offer this many. No number.
    SlotsWanted {
        /// Audio slots in all.
        audio: u32,
        /// Video slots in all.
        video: u32,
    },
    /// To the publisher of a track of pictures: nobody has it in a slot, so that nothing of it need be
    /// sent; or somebody has again, and waits for a keyframe. It may come before the answer that names
    /// the track. No number.
    TrackPaused {
        /// Which of their tracks.
        track: String,
        /// Whether it rests.
        paused: bool,
    },
    /// To the publisher of a track with layers: the highest layer that anybody wants, from 0 for the smallest picture.
    /// Higher layers need not be sent. Before the first such event, all are wanted. No number.
    TrackLayers {
        /// Which of their tracks.
        track: String,
        /// The layer.
        layer: u8,
    },
    /// What the server estimates that the way to this receiver carries, sound and pictures together. Told when it changes by a
    /// tenth, once a second at most. No number.
    Downlink {
        /// In kbit/s; null: it carries all that is sent there with ease.
        estimate_kbps: Option<u32>,
    },
    /// The media connection of this receiver came to nothing, and why. They are out of the room with it. No number.
    MediaFailed {
        /// What kind of failure it was.
        cause: MediaFault,
        /// What to do about it.
        message: String,
    },
    /// The room was locked or opened, or its limits changed.
    RoomChanged {
        /// The room as it is now.
        room: RoomInfo,
    },
    /// Mesh: another member offers a connection. To the one concerned; no number.
    PeerOffer {
        /// Who offers.
        from: String,
        /// The SDP.
        sdp: String,
        /// Which line sends which announced track of theirs.
        #[serde(default)]
        tracks: Vec<AnsweredTrack>,
    },
    /// Mesh: the answer to an own offer. No number.
    PeerAnswer {
        /// Who answers.
        from: String,
        /// The SDP.
        sdp: String,
        /// Which line sends which announced track of theirs.
        #[serde(default)]
        tracks: Vec<AnsweredTrack>,
    },
    /// Mesh: a candidate of another member. No number.
    PeerCandidate {
        /// Whose.
        from: String,
        /// `RTCIceCandidate.candidate`; empty: there are no more.
        candidate: String,
        /// `RTCIceCandidate.sdpMid`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mid: Option<String>,
    },
    /// The room ended.
    RoomEnded {
        /// Why, for people.
        reason: String,
    },
}

/// Why someone left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaveReason {
    /// By their own wish.
    Left,
    /// Their socket was lost and did not come back in time.
    SignalingLost,
    /// No packet of theirs came for too long.
    MediaLost,
    /// A moderator put them out.
    Removed,
    /// They came in again from another page or device, with a token of the same identity.
    Replaced,
    /// The server ends.
    ServerShutdown,
}

/// Someone who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speaker {
    /// The participant's id.
    pub id: String,
    /// Level in −dBov: 0 is loudest, 127 silence (RFC 6464).
    pub level_dbov: u8,
    /// The name of a participant of the audience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Why a picture does not flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseReason {
    /// The path to the receiver does not carry it.
    Bandwidth,
}

/// A slot's new content; `participant` and `track` are null for an empty slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotChange {
    /// The slot: its line's `a=mid`.
    pub slot: String,
    /// Whose track it carries.
    pub participant: Option<String>,
    /// The track it carries.
    pub track: Option<String>,
    /// The room's mix flows here (MCU): the sum of those who are heard, without the receiver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mix: bool,
    /// Why its picture does not flow at the moment, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PauseReason>,
    /// First RTP timestamp of the new content, where already known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtp_timestamp: Option<u32>,
}
