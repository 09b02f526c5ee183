//! A participant's slots of one kind. Until the participant says what they want, the room fills
//! them: as long as they suffice each track has one; then those who spoke last have them, sound and
//! picture alike. Who speaks keeps their slot until they are silent and another speaks.

use super::effects::{Effects, SlotChange};
use crate::command::{Command, PersonKey, ShardIndex, TrackKey};
use crate::limits::SLOT_STEP;
use rtp::negotiated::Kind;

/// A participant's slots of one kind.
#[derive(Debug, Default)]
pub(super) struct SlotPool {
    slots: Vec<Slot>,
    /// The participant fills them; else the room does.
    manual: bool,
    /// How many slots were asked for last.
    asked: u32,
}

#[derive(Debug)]
struct Slot {
    mid: String,
    /// What the participant was told it carries.
    content: Option<TrackKey>,
    /// What it shall carry from its next keyframe on.
    next: Option<TrackKey>,
    /// Its picture rests: the path to the participant does not carry it.
    rests: bool,
    /// Nobody who speaks takes it.
    pinned: bool,
}

impl Slot {
    fn target(&self) -> Option<TrackKey> {
        self.next.or(self.content)
    }
}

/// Whose slots change, where their packets go, and of which kind the slots are.
pub(super) type Place = (PersonKey, ShardIndex, Kind);

impl SlotPool {
    /// Adds a slot, once.
    pub(super) fn add(&mut self, mid: &str) {
        if !self.slots.iter().any(|slot| slot.mid == mid) {
            self.slots.push(Slot {
                mid: mid.to_owned(),
                content: None,
                next: None,
                rests: false,
                pinned: false,
            });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the room decides what these slots carry, and there are any.
    pub(super) fn is_filled_by_room(&self) -> bool {
        !self.manual && !self.slots.is_empty()
    }

    /// Slots that carry nothing.
    pub(super) fn free(&self) -> usize {
        self.slots.iter().filter(|slot| slot.target().is_none()).count()
    }

    pub(super) fn contents(&self) -> impl Iterator<Item = (&str, Option<TrackKey>)> {
        self.slots.iter().map(|slot| (slot.mid.as_str(), slot.target()))
    }

    /// Every track that may flow in one of them, the one that is being replaced included.
    pub(super) fn carried(&self) -> impl Iterator<Item = TrackKey> {
        self.slots.iter().flat_map(|slot| slot.content.into_iter().chain(slot.next))
    }

    fn carries(&self, track: TrackKey) -> bool {
        self.slots.iter().any(|slot| slot.target() == Some(track))
    }

    /// Free slots get tracks that have none yet, the first ones first. Says whether one did.
    pub(super) fn fill(
        &mut self,
        at: Place,
        tracks: impl Iterator<Item = (PersonKey, TrackKey)>,
        effects: &mut Effects,
    ) -> bool {
        let (mut changes, before) = (Vec::new(), effects.commands.len());
        let mut free = if self.manual { 0 } else { self.free() };
        for (owner, track) in tracks {
            if free == 0 {
                break;
            }
            if owner == at.0 || self.carries(track) {
                continue;
            }
            let slot = self.slots.iter_mut().find(|slot| slot.target().is_none());
            let Some(slot) = slot else { break };
            changes.extend(map(at, slot, Some((owner, track)), effects));
            free -= 1;
        }
        effects.tell_slots(at.0, changes);
        effects.commands.len() > before
    }

    /// A slot is pinned from now on, or no more (None: as before). What was to replace its picture is called off: the
    /// participant saw that picture when they pinned it. Says whether the slot is no longer pinned; None: there is no such
    /// slot.
    pub(super) fn pin(
        &mut self,
        (person, shard, _): Place,
        mid: &str,
        pinned: Option<bool>,
        effects: &mut Effects,
    ) -> Option<bool> {
        let slot = self.slots.iter_mut().find(|slot| slot.mid == mid)?;
        let was = slot.pinned;
        slot.pinned = pinned.unwrap_or(was);
        if slot.pinned
            && !was
            && !self.manual
            && slot.content.is_some()
            && slot.next.take().is_some()
        {
            let command = Command::Map { person, mid: slot.mid.clone(), track: slot.content };
            effects.commands.push((shard, command));
        }
        Some(was && !slot.pinned)
    }

    /// Those who speak take the slots, if these are not pinned, of those who were silent longest; `when` tells when the
    /// owner of a track spoke last. Says whether a slot got something else.
    pub(super) fn prefer(
        &mut self,
        at: Place,
        loud: &[(PersonKey, TrackKey)],
        when: impl Fn(TrackKey) -> u64,
        effects: &mut Effects,
    ) -> bool {
        let (mut changes, before) = (Vec::new(), effects.commands.len());
        for &(owner, track) in loud.iter().filter(|(owner, _)| *owner != at.0) {
            if self.carries(track) {
                continue;
            }
            let speaks = |track| loud.iter().any(|(_, loud)| *loud == track);
            let silent = self
                .slots
                .iter_mut()
                .filter(|slot| slot.target().is_none_or(|track| !slot.pinned && !speaks(track)))
                .min_by_key(|slot| slot.target().map_or(0, |track| 1 + when(track)));
            let Some(slot) = silent else { break };
            changes.extend(map(at, slot, Some((owner, track)), effects));
        }
        effects.tell_slots(at.0, changes);
        effects.commands.len() > before
    }

    /// The participant says what a slot carries: from now on, the room fills none of them. A track
    /// is in one slot at most: it moves there.
    pub(super) fn choose(
        &mut self,
        at: Place,
        mid: &str,
        to: Option<(PersonKey, TrackKey)>,
        effects: &mut Effects,
    ) -> Vec<SlotChange> {
        self.manual = true;
        let mut changes = Vec::new();
        for slot in &mut self.slots {
            let take_away = to.is_some_and(|(_, track)| slot.target() == Some(track));
            if slot.mid == mid {
                changes.extend(map(at, slot, to, effects));
            } else if take_away {
                changes.extend(map(at, slot, None, effects));
            }
        }
        changes
    }

    /// Tracks are gone: their slots are empty, which is told at once.
    pub(super) fn ended(
        &mut self,
        (person, shard, _): Place,
        ended: &[TrackKey],
        effects: &mut Effects,
    ) -> Vec<SlotChange> {
        let mut changes = Vec::new();
        for slot in &mut self.slots {
            let called_off = slot.next.take_if(|next| ended.contains(next)).is_some();
            let stays = slot.content.filter(|content| !ended.contains(content));
            if let Some(track) = stays.filter(|_| called_off) {
                // The new picture ended before it began to flow: the old one stays.
                let command = Command::Map { person, mid: slot.mid.clone(), track: Some(track) };
                effects.commands.push((shard, command));
            }
            // The shard emptied it together with the track.
            if slot.content.take_if(|content| ended.contains(content)).is_some() {
                changes.push(SlotChange::now(&slot.mid, None));
            }
        }
        changes
    }

    /// A slot switched to this track: what the shard reports is what flows, even where the slot got something else since
    /// then. That follows, or the slot is emptied once more. Says what the participant is told.
    pub(super) fn switched(
        &mut self,
        (person, shard, _): Place,
        mid: &str,
        (owner, track): (PersonKey, TrackKey),
        effects: &mut Effects,
    ) -> Option<SlotChange> {
        let slot = self.slots.iter_mut().find(|slot| slot.mid == mid)?;
        let Some(target) = slot.target() else {
            let command = Command::Map { person, mid: slot.mid.clone(), track: None };
            effects.commands.push((shard, command));
            return None;
        };
        slot.next = Some(target).filter(|target| *target != track);
        let told = slot.content.replace(track);
        (told != Some(track)).then(|| SlotChange::now(mid, Some((owner, track))))
    }

    /// A slot's picture rests, or flows again. Says what the participant is told.
    pub(super) fn rests(
        &mut self,
        mid: &str,
        rests: bool,
        owner: impl Fn(TrackKey) -> Option<(PersonKey, TrackKey)>,
    ) -> Option<SlotChange> {
        let slot = self.slots.iter_mut().find(|slot| slot.mid == mid)?;
        let changed = std::mem::replace(&mut slot.rests, rests) != rests;
        let content = slot.content.or(slot.next).and_then(owner)?;
        changed.then(|| SlotChange { rests, ..SlotChange::now(mid, Some(content)) })
    }

    /// Whether a slot's picture rests.
    pub(super) fn is_resting(&self, mid: &str) -> bool {
        self.slots.iter().any(|slot| slot.mid == mid && slot.rests)
    }

    /// How many slots the participant should have, so that each of `need` tracks has one.
    pub(super) fn wanted(&self, need: u32, most: u32) -> u32 {
        let have = self.slots.len() as u32;
        if self.manual || need <= have || have == 0 {
            return have;
        }
        (have + (need - have).next_multiple_of(SLOT_STEP)).min(most).max(have)
    }

    /// Whether `wanted` slots are more than there are and more than were asked for.
    pub(super) fn is_news(&self, wanted: u32) -> bool {
        wanted > (self.slots.len() as u32).max(self.asked)
    }

    /// So many slots were asked for.
    pub(super) fn asked(&mut self, slots: u32) {
        self.asked = slots;
    }

    /// From how many tracks of others on there is something to ask for: the smallest `need` whose
    /// [`SlotPool::wanted`] is news.
    pub(super) fn asks_from(&self, most: u32) -> Option<u32> {
        let have = self.slots.len() as u32;
        let known = have.max(self.asked);
        if self.manual || have == 0 || most <= known {
            return None;
        }
        Some(have + (known - have) / SLOT_STEP * SLOT_STEP + 1)
    }
}

/// A slot gets another content; says what the participant is told at once.
fn map(
    (person, shard, kind): Place,
    slot: &mut Slot,
    to: Option<(PersonKey, TrackKey)>,
    effects: &mut Effects,
) -> Option<SlotChange> {
    let track = to.map(|(_, track)| track);
    if slot.target() == track {
        return None;
    }
    effects.commands.push((shard, Command::Map { person, mid: slot.mid.clone(), track }));
    if track.is_some() && track == slot.content {
        slot.next = None;
        return None;
    }
    // A picture is replaced when its keyframe is there, and told then. All else is told now.
    if kind == Kind::Video && track.is_some() && slot.content.is_some() {
        slot.next = track;
        return None;
    }
    slot.content = track;
    slot.next = None;
    Some(SlotChange::now(&slot.mid, to))
}
