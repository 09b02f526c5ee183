//! Everybody who is here, what their slots carry, and the index that follows from that. What changes somebody's slots
//! or tracks refreshes the index.

use super::effects::{Effects, Notice};
use super::index::Index;
use super::order;
use super::person::Person;
use super::setup::{KINDS, RoomLimits, RoomSetup, Topology};
use super::spread::Source;
use crate::command::{PersonKey, TrackKey};
use rtp::negotiated::Line;
use std::collections::{BTreeMap, BTreeSet};

/// Everybody who is here.
#[derive(Debug, Default)]
pub(super) struct People {
    pub all: BTreeMap<PersonKey, Person>,
    pub index: Index,
    /// Who was given slots as a speaker last, where nothing changed since: giving again changes nothing.
    pub preferred: Option<Vec<PersonKey>>,
}

impl People {
    /// A participant changed: so does what follows from them.
    pub(super) fn refresh(&mut self, key: PersonKey, limits: RoomLimits) {
        if let Some(person) = self.all.get(&key) {
            self.index.refresh(person, limits);
        }
    }

    /// Tracks are gone, and with them what slots carried. Returns whose slots of which kind may be
    /// filled with others.
    pub(super) fn empty_slots(
        &mut self,
        ended: &[TrackKey],
        limits: RoomLimits,
        effects: &mut Effects,
    ) -> [BTreeSet<PersonKey>; 2] {
        let carriers =
            |kind| ended.iter().flat_map(|track| self.index.carriers(kind, *track)).collect();
        let open: [BTreeSet<PersonKey>; 2] = KINDS.map(carriers);
        for &key in open[0].union(&open[1]) {
            let Some(person) = self.all.get_mut(&key) else { continue };
            let mut changes = Vec::new();
            for kind in KINDS {
                let at = (key, person.shard, kind);
                changes.extend(person.pool_mut(kind).ended(at, ended, effects));
            }
            effects.tell_slots(key, changes);
            self.refresh(key, limits);
        }
        open
    }

    /// Free slots of these people get tracks that they do not carry yet; who has too few slots is
    /// asked for more.
    pub(super) fn fill_slots(
        &mut self,
        setup: &RoomSetup,
        open: [BTreeSet<PersonKey>; 2],
        effects: &mut Effects,
    ) {
        for kind in setup.forwarded() {
            for &key in &open[kind as usize] {
                let Some(person) = self.all.get_mut(&key) else { continue };
                let at = (key, person.shard, kind);
                if person.pool_mut(kind).fill(at, self.index.ranked(kind), effects) {
                    self.refresh(key, setup.limits);
                }
            }
        }
        self.preferred = None;
        self.ask_for_slots(setup, effects);
    }

    /// How many slots of each kind a participant should have, so that each track of others has one.
    pub(super) fn wanted_slots(&self, setup: &RoomSetup, person: &Person) -> [u32; 2] {
        KINDS.map(|kind| {
            let is_forwarded = setup.topology(kind) == Topology::Sfu;
            let all = if is_forwarded { self.index.count(kind) } else { 0 };
            let need = all.saturating_sub(person.tracks_of(kind).count()) as u32;
            person.pool(kind).wanted(need, setup.limits.slots(kind))
        })
    }

    fn ask_for_slots(&mut self, setup: &RoomSetup, effects: &mut Effects) {
        let asks = setup.forwarded().flat_map(|kind| self.index.asks(kind));
        let asked: BTreeSet<PersonKey> = asks.collect();
        for key in asked {
            let Some(person) = self.all.get(&key) else { continue };
            let [audio, video] = self.wanted_slots(setup, person);
            let Some(person) = self.all.get_mut(&key) else { continue };
            if person.audio.is_news(audio) || person.video.is_news(video) {
                person.audio.asked(audio);
                person.video.asked(video);
                effects.notices.push(Notice::SlotsWanted { person: key, audio, video });
                self.refresh(key, setup.limits);
            }
        }
    }

    /// Where slots are short, who speaks takes the place of who was silent longest. Nothing is
    /// decoded for it: the levels that clients send tell who speaks (RFC 6464).
    pub(super) fn prefer_speakers(
        &mut self,
        setup: &RoomSetup,
        speakers: &[(PersonKey, u8)],
        effects: &mut Effects,
    ) {
        let who: Vec<PersonKey> = speakers.iter().map(|(speaker, _)| *speaker).collect();
        if self.preferred.as_ref() == Some(&who) {
            return;
        }
        for kind in setup.forwarded() {
            let loud: Vec<(PersonKey, TrackKey)> = who
                .iter()
                .filter_map(|speaker| self.all.get(speaker))
                .flat_map(|person| person.tracks_of(kind).map(|track| (person.key, track.key)))
                .collect();
            if !loud.iter().any(|(owner, track)| self.index.is_lacked(kind, *owner, *track)) {
                continue;
            }
            for key in self.index.filled(kind).collect::<Vec<_>>() {
                let Some(person) = self.all.get(&key) else { continue };
                let carried = person.pool(kind).carried();
                let spoke: BTreeMap<TrackKey, u64> =
                    carried.map(|track| (track, self.spoke(track))).collect();
                let when = |track| spoke.get(&track).copied().unwrap_or(0);
                let at = (key, person.shard, kind);
                let Some(person) = self.all.get_mut(&key) else { continue };
                if person.pool_mut(kind).prefer(at, &loud, when, effects) {
                    self.refresh(key, setup.limits);
                }
            }
        }
        self.preferred = Some(who);
    }

    /// When the owner of a track spoke last.
    fn spoke(&self, track: TrackKey) -> u64 {
        let owner = self.index.owner(track).and_then(|owner| self.all.get(&owner));
        owner.map_or(0, |owner| owner.spoke)
    }

    /// Where a track comes from; none if it is gone.
    pub(super) fn source<'a>(
        &self,
        track: TrackKey,
        lines: &'a BTreeMap<TrackKey, Line>,
    ) -> Option<Source<'a>> {
        let person = self.all.get(&self.index.owner(track)?)?;
        let known = person.tracks.iter().find(|known| known.key == track)?;
        let line = lines.get(&track);
        let precedence = order::precedence(person.spoke, known);
        Some(Source {
            shard: person.shard,
            kind: known.kind,
            opaque: known.opaque,
            precedence,
            line,
        })
    }
}
