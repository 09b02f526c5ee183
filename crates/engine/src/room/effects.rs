//! What follows from a call to a room: commands for shards and mixers, notices for people.

use super::track::Track;
use crate::command::{Command, PersonKey, ShardIndex, TrackKey};
use crate::mix::MixCommand;

/// What a room does in answer to a call.
#[derive(Debug, Default)]
pub struct Effects {
    /// For shards, each in this order.
    pub commands: Vec<(ShardIndex, Command)>,
    /// For the mixers of shards, each in this order.
    pub mixers: Vec<(ShardIndex, MixCommand)>,
    /// For people.
    pub notices: Vec<Notice>,
}

/// What people are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Everyone, numbered.
    All(Change),
    /// Everyone, now and then: how many people are here. Somebody came or left whom nobody knows by name.
    Audience {
        /// Whether they came.
        joined: bool,
    },
    /// Everyone, without a number: who speaks.
    Speakers(Vec<(PersonKey, u8)>),
    /// One participant: what their slots carry from now on.
    Slots {
        /// Whose slots.
        person: PersonKey,
        /// The changes.
        changes: Vec<SlotChange>,
    },
    /// One participant: nobody has a track of theirs in a slot, so that they need not send it; or
    /// somebody has again.
    Paused {
        /// Whose track.
        person: PersonKey,
        /// Which.
        track: TrackKey,
        /// Whether it rests.
        paused: bool,
    },
    /// One participant: the highest layer of a track of theirs that somebody wants.
    Layers {
        /// Whose track.
        person: PersonKey,
        /// Which.
        track: TrackKey,
        /// The layer, from 0 for the smallest picture.
        layer: u8,
    },
    /// One participant: what the way to them is estimated to carry, if that is little.
    Downlink {
        /// Who.
        person: PersonKey,
        /// In kbit/s; None: all that goes there, with ease.
        kbps: Option<u32>,
    },
    /// One participant: the room has more tracks than they have slots.
    SlotsWanted {
        /// Who.
        person: PersonKey,
        /// Audio slots in all.
        audio: u32,
        /// Video slots in all.
        video: u32,
    },
}

/// A numbered change of the room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Someone came in.
    Joined(PersonKey),
    /// Someone who was among the audience is known by name from now on.
    Named(PersonKey),
    /// Someone who was known by name is gone.
    Left(PersonKey),
    /// Someone raised or lowered their hand.
    Changed(PersonKey),
    /// Someone publishes a track.
    TrackAdded(PersonKey, Track),
    /// A track was muted or unmuted.
    TrackChanged(PersonKey, Track),
    /// A track ended.
    TrackRemoved(PersonKey, TrackKey),
    /// The room was locked or opened, or its limit changed.
    Room,
}

/// What a slot carries from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotChange {
    /// The slot's line.
    pub mid: String,
    /// Whose track, and which; none for an empty slot and for the mix.
    pub content: Option<(PersonKey, TrackKey)>,
    /// The room's mix.
    pub mix: bool,
    /// Its picture rests: the path to the participant does not carry it.
    pub rests: bool,
    /// The first RTP timestamp of the new content, where known.
    pub rtp_timestamp: Option<u32>,
}

impl SlotChange {
    /// A slot carries this track from now on, or nothing.
    pub(super) fn now(mid: &str, content: Option<(PersonKey, TrackKey)>) -> Self {
        Self { mid: mid.to_owned(), content, mix: false, rests: false, rtp_timestamp: None }
    }
}

impl Effects {
    /// Tells a participant what their slots carry, if anything changed.
    pub(super) fn tell_slots(&mut self, person: PersonKey, changes: Vec<SlotChange>) {
        if !changes.is_empty() {
            self.notices.push(Notice::Slots { person, changes });
        }
    }
}
