//! A participant: what they publish, and their slots.

use super::pool::SlotPool;
use super::track::Track;
use crate::command::{PersonKey, ShardIndex, TrackKey};
use rtp::negotiated::Kind;

/// A participant.
#[derive(Debug)]
pub struct Person {
    /// The participant.
    pub key: PersonKey,
    /// The name that others see.
    pub name: String,
    /// The shard of their packets.
    pub shard: ShardIndex,
    /// What they publish, in order.
    pub tracks: Vec<Track>,
    /// Whether they raise their hand.
    pub hand: bool,
    /// What the way to them is estimated to carry, if that is little, in kbit/s: as they were told last.
    pub downlink: Option<u32>,
    pub(super) audio: SlotPool,
    pub(super) video: SlotPool,
    /// The line that the mix goes to.
    pub(super) mix: Option<String>,
    /// When they spoke last, as a count of speaker reports.
    pub(super) spoke: u64,
}

impl Person {
    /// Somebody who publishes nothing yet and has no slots.
    pub(super) fn new(key: PersonKey, name: String, shard: ShardIndex) -> Self {
        Self {
            key,
            name,
            shard,
            tracks: Vec::new(),
            hand: false,
            downlink: None,
            audio: SlotPool::default(),
            video: SlotPool::default(),
            mix: None,
            spoke: 0,
        }
    }

    pub(super) fn pool(&self, kind: Kind) -> &SlotPool {
        match kind {
            Kind::Audio => &self.audio,
            Kind::Video => &self.video,
        }
    }

    pub(super) fn pool_mut(&mut self, kind: Kind) -> &mut SlotPool {
        match kind {
            Kind::Audio => &mut self.audio,
            Kind::Video => &mut self.video,
        }
    }

    /// What they publish of a kind, in order.
    pub(super) fn tracks_of(&self, kind: Kind) -> impl Iterator<Item = &Track> {
        self.tracks.iter().filter(move |track| track.kind == kind)
    }

    /// What they publish of a kind on a line. The kind counts, too: if only one kind passes the server, a label of the mesh
    /// may equal a line of the offer.
    pub fn track_on(&self, mid: &str, kind: Kind) -> Option<&Track> {
        self.tracks_of(kind).find(|track| track.mid == mid)
    }

    /// How many audio and video slots they have.
    pub fn slot_counts(&self) -> (usize, usize) {
        (self.audio.len(), self.video.len())
    }

    /// What their slots of a kind carry: line and track.
    pub fn slot_contents(&self, kind: Kind) -> impl Iterator<Item = (&str, Option<TrackKey>)> {
        self.pool(kind).contents()
    }

    /// Whether the picture in a slot rests, because the path to the participant does not carry it.
    pub fn rests(&self, mid: &str) -> bool {
        self.video.is_resting(mid)
    }

    /// The line that the mix goes to.
    pub fn mix_slot(&self) -> Option<&str> {
        self.mix.as_deref()
    }
}
