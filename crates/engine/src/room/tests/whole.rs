//! A room that counts everything anew after each call: slow and plain, it is what [`Room`] must be
//! equal to. What concerns one participant alone (their slots, their offer) is the room's own code.

use super::super::publish::{offered, within};
use super::super::*;
use crate::command::Precedence;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// (track, shard).
type Places = BTreeSet<(TrackKey, ShardIndex)>;

/// The room.
#[derive(Debug)]
pub(super) struct Whole {
    key: RoomKey,
    setup: RoomSetup,
    /// In order of joining.
    people: Vec<Person>,
    named: BTreeSet<PersonKey>,
    lines: BTreeMap<TrackKey, Line>,
    exports: Places,
    kept: Places,
    /// Which shards talk and listen; and all that were told so far.
    mix: [BTreeSet<ShardIndex>; 2],
    packet_ticks: u8,
    told: BTreeSet<ShardIndex>,
    speaker_reports: u64,
    spoke_last: BTreeSet<PersonKey>,
    told_to_speak: BTreeSet<PersonKey>,
}

impl Whole {
    pub(super) fn new(key: RoomKey, setup: RoomSetup) -> Self {
        Self {
            key,
            setup,
            people: Vec::new(),
            named: BTreeSet::new(),
            lines: BTreeMap::new(),
            exports: Places::new(),
            kept: Places::new(),
            mix: Default::default(),
            packet_ticks: 0,
            told: BTreeSet::new(),
            speaker_reports: 0,
            spoke_last: BTreeSet::new(),
            told_to_speak: BTreeSet::new(),
        }
    }

    pub(super) fn person(&self, key: PersonKey) -> Option<&Person> {
        self.people.iter().find(|person| person.key == key)
    }

    fn person_mut(&mut self, key: PersonKey) -> Result<&mut Person, Refusal> {
        self.people.iter_mut().find(|person| person.key == key).ok_or(Refusal::UnknownPerson)
    }

    /// Every track with its owner.
    fn tracks(&self, kind: Kind) -> impl Iterator<Item = (&Person, &Track)> {
        let people = self.people.iter();
        people.flat_map(move |person| person.tracks_of(kind).map(move |track| (person, track)))
    }

    fn owner(&self, track: TrackKey) -> Option<(&Person, &Track)> {
        let mut all = KINDS.into_iter().flat_map(|kind| self.tracks(kind));
        all.find(|(_, known)| known.key == track)
    }

    pub(super) fn join(
        &mut self,
        key: PersonKey,
        name: String,
        shard: ShardIndex,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if self.people.len() >= self.setup.limits.people {
            return Err(Refusal::Full);
        }
        self.people.push(Person::new(key, name, shard));
        effects.notices.push(match self.people.len() <= self.setup.limits.roster {
            true => {
                self.named.insert(key);
                Notice::All(Change::Joined(key))
            }
            false => Notice::Audience { joined: true },
        });
        Ok(())
    }

    pub(super) fn leave(&mut self, key: PersonKey, effects: &mut Effects) -> Result<(), Refusal> {
        let at = self.people.iter().position(|p| p.key == key).ok_or(Refusal::UnknownPerson)?;
        let gone = self.people.remove(at);
        effects.commands.push((gone.shard, Command::Remove { person: key }));
        if gone.mix.is_some() {
            effects.mixers.push((gone.shard, MixCommand::Unlisten { person: key }));
        }
        self.forget(key, gone.shard, &gone.tracks, effects);
        effects.notices.push(match self.named.remove(&key) {
            true => Notice::All(Change::Left(key)),
            false => Notice::Audience { joined: false },
        });
        self.name_those_whom_all_know(effects);
        self.ended(&gone.tracks, effects);
        Ok(())
    }

    pub(super) fn report(&mut self, report: Report, effects: &mut Effects) {
        match report {
            Report::Switched { person, mid, track, rtp_timestamp, .. } => {
                let Some(owner) = self.owner(track).map(|(owner, _)| owner.key) else { return };
                let Ok(viewer) = self.person_mut(person) else { return };
                let at = (person, viewer.shard, Kind::Video);
                if let Some(change) = viewer.video.switched(at, &mid, (owner, track), effects) {
                    let rtp_timestamp = Some(rtp_timestamp);
                    effects.tell_slots(person, vec![SlotChange { rtp_timestamp, ..change }]);
                }
            }
            Report::Rests { .. } | Report::Layers { .. } | Report::Downlink { .. } => {}
            Report::Speakers { mut speakers, .. } => {
                speakers.retain(|(person, _)| self.person(*person).is_some());
                self.speaker_reports += 1;
                let now = self.speaker_reports;
                for (speaker, _) in &speakers {
                    self.person_mut(*speaker).unwrap().spoke = now;
                }
                let who: BTreeSet<PersonKey> =
                    speakers.iter().map(|(speaker, _)| *speaker).collect();
                if self.setup.video == Topology::Sfu && !who.is_empty() && who != self.spoke_last {
                    self.spoke_last = who.clone();
                    self.tell_order(&who, effects);
                }
                self.prefer_speakers(&speakers, effects);
                if who != std::mem::replace(&mut self.told_to_speak, who.clone()) {
                    effects.notices.push(Notice::Speakers(speakers));
                }
            }
        }
        self.settle(effects);
    }

    pub(super) fn negotiated(
        &mut self,
        key: PersonKey,
        negotiated: &Negotiated,
        published: &[Published],
        effects: &mut Effects,
    ) -> Result<Vec<TrackKey>, Refusal> {
        let (room, setup) = (self.key, self.setup);
        let person = self.person_mut(key)?;
        let (shard, spoke) = (person.shard, person.spoke);
        let negotiated = within(negotiated, setup.limits);
        let Agreed { keys, added, gone } = offered(person, &setup, &negotiated, published)?;
        for line in negotiated.lines.iter().filter(|line| line.direction == Direction::Send) {
            if setup.topology(line.codec.kind()).passes() {
                person.pool_mut(line.codec.kind()).add(&line.mid);
            }
        }
        let is_gone = |track: &mut Track| gone.contains(&track.key);
        let gone: Vec<Track> = person.tracks.extract_if(.., is_gone).collect();
        person.tracks.extend(added.iter().map(|(track, _)| track.clone()));
        let hears = setup.audio == Topology::Mcu && person.mix.is_none();
        let mix = person.audio.contents().next().filter(|_| hears).map(|(mid, _)| mid.to_owned());
        person.mix = person.mix.take().or(mix.clone());
        effects.commands.push((shard, Command::Lines { person: key, room, negotiated }));
        for track in &gone {
            effects.commands.push((shard, Command::RemoveTrack { track: track.key }));
        }
        self.forget(key, shard, &gone, effects);
        for (known, line) in added {
            let (track, mid, opaque) = (known.key, known.mid.clone(), known.opaque);
            let mixed = setup.topology(known.kind) == Topology::Mcu;
            let precedence = Precedence { screen: known.is_screen(), spoke };
            let add = Command::AddTrack { track, person: key, mid, mixed, opaque, precedence };
            effects.commands.push((shard, add));
            if mixed {
                let music = known.music;
                let add = MixCommand::AddTrack { room, person: key, track, music };
                effects.mixers.push((shard, add));
            }
            self.lines.insert(track, line.unwrap());
            if self.named.contains(&key) {
                effects.notices.push(Notice::All(Change::TrackAdded(key, known)));
            }
        }
        self.name_those_whom_all_know(effects);
        if let Some(mid) = mix {
            effects.commands.push((shard, Command::MapMix { person: key, mid: mid.clone() }));
            effects.mixers.push((shard, MixCommand::Listen { room, person: key }));
            effects.tell_slots(key, vec![SlotChange { mix: true, ..SlotChange::now(&mid, None) }]);
        }
        self.ended(&gone, effects);
        Ok(keys)
    }

    pub(super) fn want(
        &mut self,
        key: PersonKey,
        (mid, track): (&str, Option<TrackKey>),
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let person = self.person(key).ok_or(Refusal::UnknownPerson)?;
        let has = |kind: &Kind| person.slot_contents(*kind).any(|(slot, _)| slot == mid);
        let kind = KINDS.into_iter().find(has).ok_or(Refusal::UnknownSlot)?;
        if self.setup.topology(kind) != Topology::Sfu {
            return Err(Refusal::OtherTopology);
        }
        let to = match track {
            None => None,
            Some(track) => {
                let known = self.owner(track).filter(|(owner, _)| owner.key != key);
                let known = known.filter(|(_, known)| known.kind == kind);
                Some(known.map(|(owner, _)| (owner.key, track)).ok_or(Refusal::UnknownTrack)?)
            }
        };
        let person = self.person_mut(key)?;
        let at = (key, person.shard, kind);
        let changes = person.pool_mut(kind).choose(at, mid, to, effects);
        effects.tell_slots(key, changes);
        self.settle(effects);
        Ok(())
    }

    fn forget(&mut self, key: PersonKey, shard: ShardIndex, gone: &[Track], effects: &mut Effects) {
        for track in gone {
            self.lines.remove(&track.key);
            if track.kind == Kind::Audio && self.setup.audio == Topology::Mcu {
                effects.mixers.push((shard, MixCommand::RemoveTrack { track: track.key }));
            }
            if self.named.contains(&key) {
                effects.notices.push(Notice::All(Change::TrackRemoved(key, track.key)));
            }
        }
    }

    /// All of few people are known by name, and whoever has published something that is forwarded.
    fn name_those_whom_all_know(&mut self, effects: &mut Effects) {
        let few = self.people.len() <= self.setup.limits.roster;
        for person in &self.people {
            let mut kinds = person.tracks.iter().map(|track| track.kind);
            let forwarded = kinds.any(|kind| self.setup.topology(kind) == Topology::Sfu);
            if (few || forwarded) && self.named.insert(person.key) {
                effects.notices.push(Notice::All(Change::Named(person.key)));
            }
        }
    }

    /// Tracks are gone: everybody's slots are looked at.
    fn ended(&mut self, gone: &[Track], effects: &mut Effects) {
        let ended: Vec<TrackKey> = gone.iter().map(|track| track.key).collect();
        for person in &mut self.people {
            let (key, shard, mut changes) = (person.key, person.shard, Vec::new());
            for kind in KINDS {
                let at = (key, shard, kind);
                changes.extend(person.pool_mut(kind).ended(at, &ended, effects));
            }
            effects.tell_slots(key, changes);
        }
        self.fill_slots(effects);
        self.ask_for_slots(effects);
        self.settle(effects);
    }

    fn fill_slots(&mut self, effects: &mut Effects) {
        for kind in self.setup.forwarded() {
            let mut tracks: Vec<(u64, PersonKey, TrackKey)> = self
                .tracks(kind)
                .map(|(owner, track)| (owner.spoke, owner.key, track.key))
                .collect();
            // Who spoke last comes first; of those who never did, who came first.
            tracks.sort_by_key(|(spoke, ..)| Reverse(*spoke));
            for person in &mut self.people {
                let at = (person.key, person.shard, kind);
                let tracks = tracks.iter().map(|(_, owner, track)| (*owner, *track));
                person.pool_mut(kind).fill(at, tracks, effects);
            }
        }
    }

    fn ask_for_slots(&mut self, effects: &mut Effects) {
        let limits = self.setup.limits;
        let forwarded: Vec<Kind> = self.setup.forwarded().collect();
        let counts = KINDS.map(|kind| match forwarded.contains(&kind) {
            true => self.tracks(kind).count(),
            false => 0,
        });
        for person in &mut self.people {
            let [audio, video] = KINDS.map(|kind| {
                let own = person.tracks_of(kind).count();
                let need = counts[kind as usize].saturating_sub(own) as u32;
                person.pool(kind).wanted(need, limits.slots(kind))
            });
            if person.audio.is_news(audio) || person.video.is_news(video) {
                person.audio.asked(audio);
                person.video.asked(video);
                effects.notices.push(Notice::SlotsWanted { person: person.key, audio, video });
            }
        }
    }

    /// Every shard where the pictures of these people are is told that they come first.
    fn tell_order(&self, who: &BTreeSet<PersonKey>, effects: &mut Effects) {
        for (owner, known) in self.tracks(Kind::Video).filter(|(owner, _)| who.contains(&owner.key))
        {
            let (track, spoke) = (known.key, owner.spoke);
            let precedence = Precedence { screen: known.is_screen(), spoke };
            let others = self.exports.iter().filter(|(there, _)| *there == track);
            let shards = others.map(|(_, shard)| *shard).chain([owner.shard]);
            effects
                .commands
                .extend(shards.map(|shard| (shard, Command::Precedence { track, precedence })));
        }
    }

    fn prefer_speakers(&mut self, speakers: &[(PersonKey, u8)], effects: &mut Effects) {
        let owners = KINDS.into_iter().flat_map(|kind| self.tracks(kind));
        let spoke: BTreeMap<TrackKey, u64> =
            owners.map(|(owner, track)| (track.key, owner.spoke)).collect();
        for kind in self.setup.forwarded() {
            let of = |(who, _): &(PersonKey, u8)| {
                let tracks = self.tracks(kind).filter(move |(owner, _)| owner.key == *who);
                tracks.map(|(owner, track)| (owner.key, track.key)).collect::<Vec<_>>()
            };
            let loud: Vec<(PersonKey, TrackKey)> = speakers.iter().flat_map(of).collect();
            for person in &mut self.people {
                let at = (person.key, person.shard, kind);
                let pool = person.pool_mut(kind);
                if pool.is_filled_by_room() {
                    let when = |track| spoke.get(&track).copied().unwrap_or(0);
                    pool.prefer(at, &loud, when, effects);
                }
            }
        }
    }

    /// Whether somebody has fewer slots than there are voices, and leaves it to the room whom they hear.
    fn voices_wait(&self) -> bool {
        let all = self.tracks(Kind::Audio).count();
        let short = |person: &Person| {
            let others = all - person.tracks_of(Kind::Audio).count();
            person.audio.is_filled_by_room() && person.audio.len() < others
        };
        self.setup.audio == Topology::Sfu && self.people.iter().any(short)
    }

    fn settle(&mut self, effects: &mut Effects) {
        self.settle_mixers(effects);
        self.settle_tracks(effects);
        self.settle_kept(effects);
        if self.setup.video == Topology::Sfu {
            self.settle_paused(effects);
        }
    }

    fn settle_tracks(&mut self, effects: &mut Effects) {
        let mut demand = Places::new();
        for person in &self.people {
            for track in person.audio.carried().chain(person.video.carried()) {
                if self.owner(track).is_some_and(|(owner, _)| owner.shard != person.shard) {
                    demand.insert((track, person.shard));
                }
            }
        }
        for &(track, to) in demand.difference(&self.exports) {
            let (owner, known) = self.owner(track).unwrap();
            let (room, from, opaque) = (self.key, owner.shard, known.opaque);
            let precedence = Precedence { screen: known.is_screen(), spoke: owner.spoke };
            let line = self.lines[&track].clone();
            let import = Command::Import { track, room, from, line, opaque, precedence };
            effects.commands.push((to, import));
            effects.commands.push((from, Command::Export { track, to, on: true }));
        }
        for &(track, to) in self.exports.difference(&demand) {
            effects.commands.push((to, Command::RemoveTrack { track }));
            if let Some((owner, _)) = self.owner(track) {
                effects.commands.push((owner.shard, Command::Export { track, to, on: false }));
            }
        }
        self.exports = demand;
    }

    fn settle_kept(&mut self, effects: &mut Effects) {
        let voices = self.tracks(Kind::Audio).map(|(owner, track)| (track.key, owner.shard));
        let mut here: Places = voices.collect();
        let is_voice = |track| self.owner(track).is_some_and(|(_, it)| it.kind == Kind::Audio);
        here.extend(self.exports.iter().filter(|(track, _)| is_voice(*track)));
        let keep = if self.voices_wait() { here.clone() } else { Places::new() };
        for &(track, shard) in keep.difference(&self.kept) {
            effects.commands.push((shard, Command::Keep { track, on: true }));
        }
        for &(track, shard) in self.kept.difference(&keep).filter(|it| here.contains(*it)) {
            effects.commands.push((shard, Command::Keep { track, on: false }));
        }
        self.kept = keep;
    }

    fn settle_paused(&mut self, effects: &mut Effects) {
        let carried: BTreeSet<TrackKey> =
            self.people.iter().flat_map(|person| person.video.carried()).collect();
        for person in &mut self.people {
            let key = person.key;
            for track in person.tracks.iter_mut().filter(|track| track.kind == Kind::Video) {
                let paused = !carried.contains(&track.key);
                if std::mem::replace(&mut track.paused, paused) != paused {
                    effects.notices.push(Notice::Paused { person: key, track: track.key, paused });
                }
            }
        }
    }

    fn settle_mixers(&mut self, effects: &mut Effects) {
        let talking = self.tracks(Kind::Audio).map(|(owner, _)| owner.shard).collect();
        let hearing = self.people.iter().filter(|person| person.mix.is_some());
        let mix = [talking, hearing.map(|person| person.shard).collect()];
        let nobody = mix.iter().all(BTreeSet::is_empty);
        let packet_ticks = if nobody { 0 } else { self.setup.mix_packet.ticks(self.people.len()) };
        if self.setup.audio != Topology::Mcu
            || (&self.mix, self.packet_ticks) == (&mix, packet_ticks)
        {
            return;
        }
        self.packet_ticks = packet_ticks;
        let (room, home) = (self.key, home_of(self.key, self.setup.shards));
        self.told.extend(mix.iter().flatten().copied().chain([home]));
        let [talking, listening] =
            mix.each_ref().map(|shards| shards.iter().fold(0, |mask, shard| mask | 1 << shard.0));
        self.mix = mix;
        let hear = self.setup.hear;
        let told = MixCommand::Room { room, home, talking, listening, hear, packet_ticks };
        let told = if nobody { MixCommand::End { room } } else { told };
        effects.mixers.extend(self.told.iter().map(|shard| (*shard, told)));
        if nobody {
            self.told.clear();
        }
    }
}
