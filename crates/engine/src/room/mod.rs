//! A room: who is there, what they publish, what their slots carry. A pure state machine that
//! runs once a room, wherever its people's packets go.
//!
//! Each call takes what happened and appends what follows to `Effects`: commands for shards and
//! mixers, in order, and notices for people. A call costs what it changes: the same in a room of ten
//! and of thousands.
//!
//! `publish` checks what people want to send, `layers` in which sizes, `order` says whose pictures come first, `pool` is
//! what one participant's slots carry, `people` what those of all do, `index` what follows from all of them, `spread` what crosses from shard to shard
//! for it. `names` says who is told to the others by name, and `speakers` of whom who speak.

mod effects;
mod index;
mod layers;
mod names;
mod order;
mod people;
mod person;
mod pool;
mod publish;
mod setup;
mod speakers;
mod spread;
#[cfg(test)]
mod tests;
mod track;

use crate::command::{Command, PersonKey, Report, RoomKey, ShardIndex, Shown, TrackKey};
use crate::mix::{Hear, MixCommand};
use names::Names;
use order::Lately;
use people::People;
use publish::Agreed;
use rtp::negotiated::{Direction, Kind, Line, Negotiated};
use setup::KINDS;
use speakers::Told;
use spread::{Mark, Source, Spread};
use std::collections::BTreeMap;
use std::ops::Bound;

pub use effects::{Change, Effects, Notice, SlotChange};
pub use person::Person;
pub use publish::Published;
pub(crate) use setup::home_of;
pub use setup::{MixPacket, Refusal, RoomLimits, RoomSetup, Topology};
pub use track::Track;

/// One room's state.
#[derive(Debug)]
pub struct Room {
    key: RoomKey,
    setup: RoomSetup,
    locked: bool,
    people: People,
    names: Names,
    /// The lines of tracks that pass the server.
    lines: BTreeMap<TrackKey, Line>,
    spread: Spread,
    speaker_reports: u64,
    lately: Lately,
    told: Told,
}

impl Room {
    /// An empty room.
    pub fn new(key: RoomKey, setup: RoomSetup) -> Self {
        Self {
            key,
            setup,
            locked: false,
            people: People::default(),
            names: Names::default(),
            lines: BTreeMap::new(),
            spread: Spread::default(),
            speaker_reports: 0,
            lately: Lately::default(),
            told: Told::default(),
        }
    }

    /// Everybody, in the order of their keys.
    pub fn people(&self) -> impl ExactSizeIterator<Item = &Person> {
        self.people.all.values()
    }

    /// Those whom everybody was told of by name, in the order of their keys.
    pub fn named(&self) -> impl ExactSizeIterator<Item = &Person> {
        self.names.iter().map(|key| &self.people.all[&key])
    }

    /// Whether everybody was told of a participant by name.
    pub fn is_named(&self, key: PersonKey) -> bool {
        self.names.has(key)
    }

    /// Who speaks, as everybody was told last: loudest first, with levels in −dBov.
    pub fn speaking(&self) -> impl Iterator<Item = (PersonKey, u8)> {
        let here = |(person, _): &(PersonKey, u8)| self.people.all.contains_key(person);
        self.told.last().iter().copied().filter(here)
    }

    /// Up to so many people after this one, in the order of their keys.
    pub fn people_after(
        &self,
        after: Option<PersonKey>,
        limit: usize,
    ) -> impl Iterator<Item = &Person> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.people.all.range((from, Bound::Unbounded)).map(|(_, person)| person).take(limit)
    }

    /// The participant of this key.
    pub fn person(&self, key: PersonKey) -> Option<&Person> {
        self.people.all.get(&key)
    }

    /// Who publishes this track.
    pub fn owner_of(&self, track: TrackKey) -> Option<PersonKey> {
        self.people.index.owner(track)
    }

    /// How many slots for sound and for pictures the room wants a participant to have, if they have too few.
    pub fn slots_wanted(&self, key: PersonKey) -> Option<(u32, u32)> {
        let person = self.people.all.get(&key)?;
        let [audio, video] = self.people.wanted_slots(&self.setup, person);
        let (has_audio, has_video) = person.slot_counts();
        (audio as usize > has_audio || video as usize > has_video).then_some((audio, video))
    }

    /// The way of a kind of media.
    pub fn topology(&self, kind: Kind) -> Topology {
        self.setup.topology(kind)
    }

    /// The shard that ranks who is loud and tells who speaks.
    pub fn home(&self) -> ShardIndex {
        home_of(self.key, self.setup.shards)
    }

    /// Whether nobody new comes in.
    pub fn locked(&self) -> bool {
        self.locked
    }

    /// The limits as they are now.
    pub fn limits(&self) -> RoomLimits {
        self.setup.limits
    }

    /// Whether there are so few people that each is told by name. Members of a mesh need to know each other.
    fn names_everybody(&self) -> bool {
        let meshed = KINDS.iter().any(|kind| self.topology(*kind) == Topology::Mesh);
        meshed || self.people.all.len() <= self.setup.limits.roster
    }

    /// Lets nobody new in, or again somebody.
    pub fn lock(&mut self, locked: bool, effects: &mut Effects) {
        if self.locked != locked {
            self.locked = locked;
            effects.notices.push(Notice::All(Change::Room));
        }
    }

    /// Changes how many may be here; who is here stays.
    pub fn limit(&mut self, people: usize, effects: &mut Effects) {
        if self.setup.limits.people != people {
            self.setup.limits.people = people;
            effects.notices.push(Notice::All(Change::Room));
        }
    }

    /// Someone comes in; their packets are this shard's. Nobody else here has this key.
    ///
    /// # Errors
    /// [`Refusal::Full`], [`Refusal::Locked`].
    pub fn join(
        &mut self,
        key: PersonKey,
        name: String,
        shard: ShardIndex,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if self.locked {
            return Err(Refusal::Locked);
        }
        if self.is_full() {
            return Err(Refusal::Full);
        }
        let before = self.people.all.insert(key, Person::new(key, name, shard));
        debug_assert!(before.is_none(), "{key:?} is here already");
        match self.names_everybody() {
            true => self.names.came(key, effects),
            false => effects.notices.push(Notice::Audience { joined: true }),
        }
        Ok(())
    }

    /// Whether nobody else may come, since as many are here as may be.
    pub fn is_full(&self) -> bool {
        self.people.all.len() >= self.setup.limits.people
    }

    /// Someone goes, with all that is theirs.
    ///
    /// # Errors
    /// [`Refusal::UnknownPerson`].
    pub fn leave(&mut self, key: PersonKey, effects: &mut Effects) -> Result<(), Refusal> {
        let mark = Mark::here(effects);
        let gone = self.people.all.remove(&key).ok_or(Refusal::UnknownPerson)?;
        self.people.index.remove(key);
        effects.commands.push((gone.shard, Command::Remove { person: key }));
        if gone.mix.is_some() {
            effects.mixers.push((gone.shard, MixCommand::Unlisten { person: key }));
        }
        for track in &gone.tracks {
            self.forget(track, gone.shard, effects);
            self.names.tell(key, Change::TrackRemoved(key, track.key), effects);
        }
        self.names.left(key, effects);
        if self.names_everybody() && self.names.iter().len() < self.people.all.len() {
            self.people.all.keys().for_each(|key| self.names.name(*key, effects));
        }
        let ended: Vec<TrackKey> = gone.tracks.iter().map(|track| track.key).collect();
        let open = self.people.empty_slots(&ended, self.setup.limits, effects);
        self.people.fill_slots(&self.setup, open, effects);
        self.settle(mark, effects);
        Ok(())
    }

    /// A shard reports.
    pub fn report(&mut self, report: Report, effects: &mut Effects) {
        let mark = Mark::here(effects);
        match report {
            Report::Switched { person, mid, track, rtp_timestamp, .. } => {
                self.switched(person, &mid, track, rtp_timestamp, effects);
            }
            Report::Rests { person: key, mid, rests, .. } => {
                let owner = |track| Some((self.people.index.owner(track)?, track));
                if let Some(person) = self.people.all.get_mut(&key)
                    && let Some(change) = person.video.rests(&mid, rests, owner)
                {
                    effects.tell_slots(key, vec![change]);
                }
            }
            Report::Layers { track, layer, .. } => {
                let owner = self
                    .people
                    .index
                    .owner(track)
                    .and_then(|owner| self.people.all.get_mut(&owner));
                let notice = owner.and_then(|owner| layers::wanted(owner, track, layer));
                effects.notices.extend(notice);
            }
            Report::Downlink { person, kbps, .. } => {
                if let Some(known) = self.people.all.get_mut(&person) {
                    known.downlink = kbps;
                    effects.notices.push(Notice::Downlink { person, kbps });
                }
            }
            Report::Speakers { mut speakers, .. } => {
                speakers.retain(|(person, _)| self.people.all.contains_key(person));
                self.speaker_reports += 1;
                for (speaker, _) in &speakers {
                    if let Some(person) = self.people.all.get_mut(speaker) {
                        person.spoke = self.speaker_reports;
                    }
                    self.people.refresh(*speaker, self.setup.limits);
                }
                self.tell_order(&speakers, effects);
                self.people.prefer_speakers(&self.setup, &speakers, effects);
                let always_told = match self.setup.hear {
                    Hear::Loudest(count) => count.into(),
                    Hear::Everyone => 0,
                };
                let told = self.told.choose(&speakers, always_told);
                effects.notices.extend(told.map(Notice::Speakers));
            }
        }
        self.settle(mark, effects);
    }

    /// Someone agreed on lines: slots are there, tracks are published. Returns the key of each
    /// announced track, in order.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn negotiated(
        &mut self,
        key: PersonKey,
        negotiated: &Negotiated,
        published: &[Published],
        effects: &mut Effects,
    ) -> Result<Vec<TrackKey>, Refusal> {
        let mark = Mark::here(effects);
        let (room, setup) = (self.key, self.setup);
        let person = self.people.all.get_mut(&key).ok_or(Refusal::UnknownPerson)?;
        let (shard, spoke) = (person.shard, person.spoke);
        let mut negotiated = publish::within(negotiated, setup.limits);
        layers::sizes(&mut negotiated, published);
        let Agreed { keys, added, gone } =
            publish::offered(person, &setup, &negotiated, published)?;
        for line in &negotiated.lines {
            let kind = line.codec.kind();
            if line.direction == Direction::Send && setup.topology(kind).passes() {
                person.pool_mut(kind).add(&line.mid);
            }
        }
        effects.commands.push((shard, Command::Lines { person: key, room, negotiated }));
        self.end_tracks(key, &gone, effects);
        let new = KINDS.map(|kind| added.iter().any(|(track, _)| track.kind == kind));
        let known = self.names.has(key);
        for (track, line) in added {
            let mixed = setup.topology(track.kind) == Topology::Mcu;
            let precedence = order::precedence(spoke, &track);
            let (track_key, mid, opaque) = (track.key, track.mid.clone(), track.opaque);
            let music = track.music;
            let command =
                Command::AddTrack { track: track_key, person: key, mid, mixed, opaque, precedence };
            effects.commands.push((shard, command));
            if mixed {
                let add = MixCommand::AddTrack { room, person: key, track: track_key, music };
                effects.mixers.push((shard, add));
            }
            self.lines.extend(line.map(|line| (track_key, line)));
            self.publish(key, track, known, effects);
        }
        self.listen(key, effects);
        self.people.refresh(key, self.setup.limits);
        let mut open = self.people.empty_slots(&gone, self.setup.limits, effects);
        for kind in KINDS {
            open[kind as usize].insert(key);
            if new[kind as usize] {
                open[kind as usize].extend(self.people.index.open(kind));
            }
        }
        self.people.fill_slots(&self.setup, open, effects);
        self.settle(mark, effects);
        Ok(keys)
    }

    /// Someone says what they send where media does not pass the server: (what, kind). Returns the
    /// key of each, in order; what they announced before and is missing now ends.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn announce(
        &mut self,
        key: PersonKey,
        announced: &[(Published, Kind)],
        effects: &mut Effects,
    ) -> Result<Vec<TrackKey>, Refusal> {
        let person = self.people.all.get(&key).ok_or(Refusal::UnknownPerson)?;
        let Agreed { keys, added, gone } = publish::announced(person, &self.setup, announced)?;
        self.end_tracks(key, &gone, effects);
        for (track, _) in added {
            self.publish(key, track, self.names.has(key), effects);
        }
        self.people.refresh(key, self.setup.limits);
        Ok(keys)
    }

    /// Someone mutes or unmutes a track of theirs.
    ///
    /// # Errors
    /// [`Refusal::Silenced`]: what a moderator muted, its publisher cannot unmute.
    pub fn mute(
        &mut self,
        key: PersonKey,
        track: TrackKey,
        muted: bool,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let person = self.people.all.get_mut(&key).ok_or(Refusal::UnknownPerson)?;
        let track =
            person.tracks.iter_mut().find(|t| t.key == track).ok_or(Refusal::UnknownTrack)?;
        if track.silenced && !muted {
            return Err(Refusal::Silenced);
        }
        if track.muted != muted {
            track.muted = muted;
            self.names.tell(key, Change::TrackChanged(key, track.clone()), effects);
        }
        Ok(())
    }

    /// A moderator mutes anyone's track, or releases it: nothing of it is passed on meanwhile. From then on its publisher
    /// is known by name. Returns its kind.
    ///
    /// # Errors
    /// [`Refusal::UnknownTrack`].
    pub fn silence(
        &mut self,
        track: TrackKey,
        on: bool,
        effects: &mut Effects,
    ) -> Result<Kind, Refusal> {
        let owner = self.people.index.owner(track).ok_or(Refusal::UnknownTrack)?;
        let person = self.people.all.get_mut(&owner).ok_or(Refusal::UnknownTrack)?;
        let shard = person.shard;
        let known =
            person.tracks.iter_mut().find(|t| t.key == track).ok_or(Refusal::UnknownTrack)?;
        let kind = known.kind;
        if known.silenced == on {
            return Ok(kind);
        }
        // After its release it stays muted until its publisher wants to be heard again.
        known.silenced = on;
        known.muted = true;
        self.names.name(owner, effects);
        self.names.tell(owner, Change::TrackChanged(owner, known.clone()), effects);
        if self.lines.contains_key(&track) {
            effects.commands.push((shard, Command::Silence { track, on }));
            if self.is_mixed(kind) {
                effects.mixers.push((shard, MixCommand::Silence { track, on }));
            }
        }
        Ok(kind)
    }

    /// Someone raises their hand, or lowers it: everybody knows them by name from then on.
    ///
    /// # Errors
    /// [`Refusal::UnknownPerson`].
    pub fn hand(
        &mut self,
        key: PersonKey,
        raised: bool,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let person = self.people.all.get_mut(&key).ok_or(Refusal::UnknownPerson)?;
        if std::mem::replace(&mut person.hand, raised) != raised {
            let known = self.names.has(key);
            self.names.name(key, effects);
            if known {
                self.names.tell(key, Change::Changed(key), effects);
            }
        }
        Ok(())
    }

    /// Someone says what they want where: (line of the slot, track or none). From then on the room
    /// fills no slot of that kind for them.
    ///
    /// # Errors
    /// No such slot or track; nothing is changed then.
    pub fn want(
        &mut self,
        key: PersonKey,
        want: &[(String, Option<TrackKey>)],
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let mark = Mark::here(effects);
        let person = self.people.all.get(&key).ok_or(Refusal::UnknownPerson)?;
        let mut moves = Vec::new();
        for (mid, track) in want {
            let has = |kind: &Kind| person.slot_contents(*kind).any(|(slot, _)| slot == mid);
            let kind = KINDS.into_iter().find(has).ok_or(Refusal::UnknownSlot)?;
            if self.topology(kind) != Topology::Sfu {
                return Err(Refusal::OtherTopology);
            }
            let to = track.map(|track| self.chosen(key, kind, track)).transpose()?;
            moves.push((kind, mid, to));
        }
        let Some(person) = self.people.all.get_mut(&key) else { return Ok(()) };
        let mut changes = Vec::new();
        for (kind, mid, to) in moves {
            let at = (key, person.shard, kind);
            changes.extend(person.pool_mut(kind).choose(at, mid, to, effects));
        }
        effects.tell_slots(key, changes);
        self.people.refresh(key, self.setup.limits);
        self.settle(mark, effects);
        Ok(())
    }

    /// Someone says how they see slots: (line of the slot, how).
    ///
    /// # Errors
    /// No such slot; nothing is changed then.
    pub fn show(
        &mut self,
        key: PersonKey,
        shown: &[(String, Shown)],
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let person = self.people.all.get_mut(&key).ok_or(Refusal::UnknownPerson)?;
        let has = |kind, mid: &str| person.slot_contents(kind).any(|(slot, _)| slot == mid);
        if !shown.iter().all(|(mid, _)| KINDS.iter().any(|kind| has(*kind, mid))) {
            return Err(Refusal::UnknownSlot);
        }
        for (mid, shown) in shown {
            // Sound has no size.
            let at = (key, person.shard, Kind::Video);
            let pool = person.pool_mut(Kind::Video);
            let Some(freed) = pool.pin(at, mid, shown.pinned, effects) else { continue };
            if freed {
                // Who speaks may have it now.
                self.people.preferred = None;
            }
            let command = Command::Show { person: key, mid: mid.clone(), shown: *shown };
            effects.commands.push((person.shard, command));
        }
        Ok(())
    }

    /// A track that someone chose for a slot of this kind.
    fn chosen(
        &self,
        viewer: PersonKey,
        kind: Kind,
        track: TrackKey,
    ) -> Result<(PersonKey, TrackKey), Refusal> {
        let owner = self.people.index.owner(track).filter(|owner| *owner != viewer);
        let owner =
            owner.and_then(|owner| self.people.all.get(&owner)).ok_or(Refusal::UnknownTrack)?;
        let fits = owner.tracks_of(kind).any(|known| known.key == track);
        fits.then_some((owner.key, track)).ok_or(Refusal::UnknownTrack)
    }

    fn is_mixed(&self, kind: Kind) -> bool {
        self.topology(kind) == Topology::Mcu
    }

    /// Someone publishes a track; `known`: they were known by name before. A voice that is mixed makes nobody known:
    /// nobody receives it by itself.
    fn publish(&mut self, key: PersonKey, track: Track, known: bool, effects: &mut Effects) {
        let Some(person) = self.people.all.get_mut(&key) else { return };
        let mixed = self.setup.topology(track.kind) == Topology::Mcu;
        person.tracks.push(track.clone());
        if known {
            self.names.tell(key, Change::TrackAdded(key, track), effects);
        } else if !mixed {
            self.names.name(key, effects);
        }
    }

    fn end_tracks(&mut self, key: PersonKey, gone: &[TrackKey], effects: &mut Effects) {
        let Some(person) = self.people.all.get_mut(&key) else { return };
        let shard = person.shard;
        let is_gone = |track: &mut Track| gone.contains(&track.key);
        let ended: Vec<Track> = person.tracks.extract_if(.., is_gone).collect();
        for track in &ended {
            if self.lines.contains_key(&track.key) {
                effects.commands.push((shard, Command::RemoveTrack { track: track.key }));
            }
            self.forget(track, shard, effects);
            self.names.tell(key, Change::TrackRemoved(key, track.key), effects);
        }
    }

    /// A track is no longer here: nothing of it is kept, the mixer forgets it.
    fn forget(&mut self, track: &Track, shard: ShardIndex, effects: &mut Effects) {
        self.lines.remove(&track.key);
        if track.kind == Kind::Audio && self.is_mixed(Kind::Audio) {
            effects.mixers.push((shard, MixCommand::RemoveTrack { track: track.key }));
        }
    }

    /// Where sound is mixed, the first audio slot gets the mix.
    fn listen(&mut self, key: PersonKey, effects: &mut Effects) {
        if !self.is_mixed(Kind::Audio) {
            return;
        }
        let room = self.key;
        let Some(person) = self.people.all.get_mut(&key).filter(|person| person.mix.is_none())
        else {
            return;
        };
        let Some(mid) = person.audio.contents().next().map(|(mid, _)| mid.to_owned()) else {
            return;
        };
        person.mix = Some(mid.clone());
        let shard = person.shard;
        effects.commands.push((shard, Command::MapMix { person: key, mid: mid.clone() }));
        effects.mixers.push((shard, MixCommand::Listen { room, person: key }));
        effects.tell_slots(key, vec![SlotChange { mix: true, ..SlotChange::now(&mid, None) }]);
    }

    /// A video slot switched.
    fn switched(
        &mut self,
        key: PersonKey,
        mid: &str,
        track: TrackKey,
        rtp_timestamp: u32,
        effects: &mut Effects,
    ) {
        let Some(owner) = self.people.index.owner(track) else { return };
        let Some(person) = self.people.all.get_mut(&key) else { return };
        let at = (key, person.shard, Kind::Video);
        if let Some(change) = person.video.switched(at, mid, (owner, track), effects) {
            let change = SlotChange { rtp_timestamp: Some(rtp_timestamp), ..change };
            effects.tell_slots(key, vec![change]);
        }
        self.people.refresh(key, self.setup.limits);
    }

    /// Where pictures are forwarded, those of whom speaks come first on paths that do not carry all.
    fn tell_order(&mut self, speakers: &[(PersonKey, u8)], effects: &mut Effects) {
        if self.topology(Kind::Video) != Topology::Sfu || !self.lately.speak(speakers) {
            return;
        }
        for person in speakers.iter().filter_map(|(speaker, _)| self.people.all.get(speaker)) {
            order::tell(person, &self.people.index, effects);
        }
    }

    /// After a change: what shards need from each other follows it.
    fn settle(&mut self, mark: Mark, effects: &mut Effects) {
        let people = (self.people.all.len(), &self.people.index);
        self.spread.settle_mixers(self.key, &self.setup, people, mark, effects);
        let changed = self.people.index.take_changed();
        let all: BTreeMap<TrackKey, Option<Source<'_>>> = changed
            .into_iter()
            .map(|track| (track, self.people.source(track, &self.lines)))
            .collect();
        self.spread.settle_tracks(self.key, &all, &self.people.index, mark, effects);
        let forwards = self.topology(Kind::Audio) == Topology::Sfu;
        if self.spread.keep(forwards && self.people.index.voices_wait()) {
            for (_, track) in self.people.index.ranked(Kind::Audio) {
                let source = self.people.source(track, &self.lines);
                self.spread.settle_kept(track, source, effects);
            }
        }
        let tracks: Vec<TrackKey> = all.keys().copied().collect();
        for (track, source) in all {
            self.spread.settle_kept(track, source, effects);
        }
        if self.topology(Kind::Video) == Topology::Sfu {
            tracks.into_iter().for_each(|track| self.settle_paused(track, effects));
        }
    }

    /// A picture that nobody has in a slot, on any shard, rests at its publisher's; it is sent again
    /// as soon as somebody gets it. Sound goes on: without its level nobody could be chosen.
    fn settle_paused(&mut self, track: TrackKey, effects: &mut Effects) {
        let paused = self.people.index.wanted(track).next().is_none();
        let Some(owner) = self.people.index.owner(track) else { return };
        let Some(person) = self.people.all.get_mut(&owner) else { return };
        let mut pictures = person.tracks.iter_mut().filter(|known| known.kind == Kind::Video);
        let Some(known) = pictures.find(|known| known.key == track) else { return };
        if known.paused != paused {
            known.paused = paused;
            effects.notices.push(Notice::Paused { person: owner, track, paused });
        }
    }
}
