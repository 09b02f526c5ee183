//! A room that counts everything anew after each call: slow and plain, it is what [`super::Room`] must
//! be equal to (`tests.rs`).

use super::super::{
    Change, Effects, Notice, Published, Refusal, RoomLimits, RoomSetup, SlotChange, Topology,
    Track, home_of,
};
use crate::command::{Command, PersonKey, Report, RoomKey, ShardIndex, TrackKey};
use crate::limits::{MAX_TRACKS_EACH, SLOT_STEP};
use crate::mix::MixCommand;
use rtp::negotiated::{Direction, Kind, Line, Negotiated};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A participant.
#[derive(Debug)]
pub(super) struct Person {
    /// The participant.
    pub key: PersonKey,
    /// The shard of his packets.
    pub shard: ShardIndex,
    /// What he publishes, in order.
    pub tracks: Vec<Track>,
    audio: SlotPool,
    video: SlotPool,
    /// The line that the mix goes to.
    mix: Option<String>,
    /// When he spoke last, as a count of speaker reports.
    spoke: u64,
}

/// One room's state.
#[derive(Debug)]
pub(super) struct Whole {
    key: RoomKey,
    setup: RoomSetup,
    locked: bool,
    /// In order of joining.
    people: Vec<Person>,
    /// The lines of tracks that pass the server.
    lines: BTreeMap<TrackKey, Line>,
    spread: Spread,
    speaker_reports: u64,
}

impl Whole {
    /// An empty room.
    pub(super) fn new(key: RoomKey, setup: RoomSetup) -> Self {
        Self {
            key,
            setup,
            locked: false,
            people: Vec::new(),
            lines: BTreeMap::new(),
            spread: Spread::default(),
            speaker_reports: 0,
        }
    }

    /// The participant of this key.
    pub(super) fn person(&self, key: PersonKey) -> Option<&Person> {
        self.people.iter().find(|person| person.key == key)
    }

    fn person_mut(&mut self, key: PersonKey) -> Result<&mut Person, Refusal> {
        self.people.iter_mut().find(|person| person.key == key).ok_or(Refusal::UnknownPerson)
    }

    /// The way of a kind of media.
    pub(super) fn topology(&self, kind: Kind) -> Topology {
        match kind {
            Kind::Audio => self.setup.audio,
            Kind::Video => self.setup.video,
        }
    }

    /// Someone comes in; his packets are this shard's. Errors: [`Refusal::Full`],
    /// [`Refusal::Locked`].
    pub(super) fn join(
        &mut self,
        key: PersonKey,
        _name: String,
        shard: ShardIndex,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if self.locked {
            return Err(Refusal::Locked);
        }
        if self.people.len() >= self.setup.limits.people {
            return Err(Refusal::Full);
        }
        self.people.push(Person {
            key,
            shard,
            tracks: Vec::new(),
            audio: SlotPool::default(),
            video: SlotPool::default(),
            mix: None,
            spoke: 0,
        });
        effects.notices.push(Notice::All(Change::Joined(key)));
        Ok(())
    }

    /// Someone goes, with all that is his.
    pub(super) fn leave(&mut self, key: PersonKey, effects: &mut Effects) -> Result<(), Refusal> {
        let mark = self.mark(effects);
        let at = self.people.iter().position(|p| p.key == key).ok_or(Refusal::UnknownPerson)?;
        let gone = self.people.remove(at);
        effects.commands.push((gone.shard, Command::Remove { person: key }));
        if gone.mix.is_some() {
            effects.mixers.push((gone.shard, MixCommand::Unlisten { person: key }));
        }
        for track in &gone.tracks {
            self.forget(track, gone.shard, effects);
            effects.notices.push(Notice::All(Change::TrackRemoved(key, track.key)));
        }
        effects.notices.push(Notice::All(Change::Left(key)));
        let ended: Vec<TrackKey> = gone.tracks.iter().map(|track| track.key).collect();
        self.tracks_ended(&ended, effects);
        self.settle(mark, effects);
        Ok(())
    }

    /// A shard reports.
    pub(super) fn report(&mut self, report: Report, effects: &mut Effects) {
        let mark = self.mark(effects);
        match report {
            Report::Switched { person, mid, track, rtp_timestamp, .. } => {
                self.switched(person, &mid, track, rtp_timestamp, effects);
            }
            Report::Speakers { mut speakers, .. } => {
                speakers.retain(|(person, _)| self.person(*person).is_some());
                self.speaker_reports += 1;
                for (speaker, _) in &speakers {
                    let now = self.speaker_reports;
                    if let Ok(person) = self.person_mut(*speaker) {
                        person.spoke = now;
                    }
                }
                self.prefer_speakers(&speakers, effects);
                effects.notices.push(Notice::Speakers(speakers));
            }
        }
        self.settle(mark, effects);
    }

    /// Whose track this is.
    fn owner(&self, track: TrackKey) -> Option<(&Person, &Track)> {
        self.people.iter().find_map(|person| {
            person.tracks.iter().find(|known| known.key == track).map(|known| (person, known))
        })
    }
}

impl Person {
    fn pool(&mut self, kind: Kind) -> &mut SlotPool {
        match kind {
            Kind::Audio => &mut self.audio,
            Kind::Video => &mut self.video,
        }
    }

    /// What his slots of a kind carry: line and track.
    pub(super) fn slot_contents(
        &self,
        kind: Kind,
    ) -> impl Iterator<Item = (&str, Option<TrackKey>)> {
        match kind {
            Kind::Audio => &self.audio,
            Kind::Video => &self.video,
        }
        .contents()
    }
}

impl Whole {
    /// Someone agreed on lines: slots are there, tracks are published. Returns the key of each
    /// announced track, in order.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub(super) fn negotiated(
        &mut self,
        key: PersonKey,
        negotiated: &Negotiated,
        published: &[Published],
        effects: &mut Effects,
    ) -> Result<Vec<TrackKey>, Refusal> {
        let mark = self.mark(effects);
        let (room, limits) = (self.key, self.setup.limits);
        let ways = [self.topology(Kind::Audio), self.topology(Kind::Video)];
        let passes = |kind: Kind| matches!(ways[kind as usize], Topology::Sfu | Topology::Mcu);
        let person = self.person_mut(key)?;
        let shard = person.shard;
        let known = |mid: &str| person.tracks.iter().find(|track| track.mid == mid);
        let new = published.iter().filter(|track| known(&track.mid).is_none()).count();
        if person.tracks.len() + new > MAX_TRACKS_EACH {
            return Err(Refusal::TooManyTracks);
        }
        let negotiated = within(negotiated, limits);
        let mut keys = Vec::new();
        let mut added = Vec::new();
        for track in published {
            let line = negotiated
                .line(&track.mid)
                .filter(|line| matches!(line.direction, Direction::Receive | Direction::Both));
            let line = line.ok_or(Refusal::UnknownTrack)?;
            if !passes(line.codec.kind()) {
                return Err(Refusal::OtherTopology);
            }
            if track.opaque && ways[line.codec.kind() as usize] == Topology::Mcu {
                return Err(Refusal::Opaque);
            }
            if let Some(track) = known(&track.mid) {
                keys.push(track.key);
                continue;
            }
            keys.push(track.key);
            added.push((new_track(track, line.codec.kind()), line.clone()));
        }
        for line in &negotiated.lines {
            if line.direction == Direction::Send && passes(line.codec.kind()) {
                person.pool(line.codec.kind()).add(&line.mid);
            }
        }
        let sends = |mid: &str| {
            let line = negotiated.line(mid);
            line.is_some_and(|l| matches!(l.direction, Direction::Receive | Direction::Both))
        };
        let gone: Vec<Track> = person
            .tracks
            .extract_if(.., |track| passes(track.kind) && !sends(&track.mid))
            .collect();
        effects.commands.push((shard, Command::Lines { person: key, room, negotiated }));
        self.end_tracks(key, shard, &gone, effects);
        for (track, line) in added {
            let mixed = self.topology(track.kind) == Topology::Mcu;
            let mid = track.mid.clone();
            let (person, opaque) = (key, track.opaque);
            let command = Command::AddTrack { track: track.key, person, mid, mixed, opaque };
            effects.commands.push((shard, command));
            if mixed {
                let add = MixCommand::AddTrack { room, person: key, track: track.key };
                effects.mixers.push((shard, add));
            }
            self.lines.insert(track.key, line);
            self.publish(key, track, effects);
        }
        self.listen(key, effects);
        let ended: Vec<TrackKey> = gone.iter().map(|track| track.key).collect();
        self.tracks_ended(&ended, effects);
        self.settle(mark, effects);
        Ok(keys)
    }

    fn publish(&mut self, key: PersonKey, track: Track, effects: &mut Effects) {
        if let Ok(person) = self.person_mut(key) {
            person.tracks.push(track.clone());
        }
        effects.notices.push(Notice::All(Change::TrackAdded(key, track)));
    }

    fn end_tracks(
        &mut self,
        key: PersonKey,
        shard: ShardIndex,
        gone: &[Track],
        effects: &mut Effects,
    ) {
        for track in gone {
            if self.lines.contains_key(&track.key) {
                effects.commands.push((shard, Command::RemoveTrack { track: track.key }));
            }
            self.forget(track, shard, effects);
            effects.notices.push(Notice::All(Change::TrackRemoved(key, track.key)));
        }
    }

    /// A track is no longer here: nothing of it is kept, the mixer forgets it.
    pub(super) fn forget(&mut self, track: &Track, shard: ShardIndex, effects: &mut Effects) {
        self.lines.remove(&track.key);
        if track.kind == Kind::Audio && self.topology(Kind::Audio) == Topology::Mcu {
            effects.mixers.push((shard, MixCommand::RemoveTrack { track: track.key }));
        }
    }

    /// Where sound is mixed, the first audio slot gets the mix.
    fn listen(&mut self, key: PersonKey, effects: &mut Effects) {
        if self.topology(Kind::Audio) != Topology::Mcu {
            return;
        }
        let room = self.key;
        let Ok(person) = self.person_mut(key) else { return };
        if person.mix.is_some() {
            return;
        }
        let Some(mid) = person.audio.contents().next().map(|(mid, _)| mid.to_owned()) else {
            return;
        };
        person.mix = Some(mid.clone());
        let shard = person.shard;
        effects.commands.push((shard, Command::MapMix { person: key, mid: mid.clone() }));
        effects.mixers.push((shard, MixCommand::Listen { room, person: key }));
        let change = SlotChange { mid, content: None, mix: true, rtp_timestamp: None };
        effects.notices.push(Notice::Slots { person: key, changes: vec![change] });
    }
}

fn new_track(published: &Published, kind: Kind) -> Track {
    Track {
        key: published.key,
        kind,
        mid: published.mid.clone(),
        name: published.name.clone(),
        muted: false,
        silenced: false,
        paused: false,
        opaque: published.opaque,
    }
}

/// The lines within the room's limits: slots beyond them are agreed on but never used.
fn within(negotiated: &Negotiated, limits: RoomLimits) -> Negotiated {
    let (mut audio, mut video) = (0, 0);
    let lines = negotiated.lines.iter().filter(|line| {
        if line.direction != Direction::Send {
            return true;
        }
        let (count, most) = match line.codec.kind() {
            Kind::Audio => (&mut audio, limits.audio_slots),
            Kind::Video => (&mut video, limits.video_slots),
        };
        *count += 1;
        *count <= most
    });
    Negotiated { lines: lines.cloned().collect() }
}

/// A person's slots of one kind.
#[derive(Debug, Default)]
pub(super) struct SlotPool {
    slots: Vec<Slot>,
    /// The person fills them himself.
    manual: bool,
    /// How many slots were asked for last.
    asked: u32,
}

#[derive(Debug)]
struct Slot {
    mid: String,
    /// What the person was told it carries.
    content: Option<TrackKey>,
    /// What it shall carry from its next keyframe on.
    next: Option<TrackKey>,
}

impl Slot {
    fn target(&self) -> Option<TrackKey> {
        self.next.or(self.content)
    }
}

impl SlotPool {
    /// Adds a slot, once.
    pub(super) fn add(&mut self, mid: &str) {
        if !self.slots.iter().any(|slot| slot.mid == mid) {
            self.slots.push(Slot { mid: mid.to_owned(), content: None, next: None });
        }
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
}

/// A slot gets another content; says what the person is told at once.
fn map(
    (person, shard): (PersonKey, ShardIndex),
    slot: &mut Slot,
    kind: Kind,
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
    // A picture is replaced when its keyframe is there: told then. All else is told now.
    if kind == Kind::Video && track.is_some() && slot.content.is_some() {
        slot.next = track;
        return None;
    }
    slot.content = track;
    slot.next = None;
    Some(SlotChange { mid: slot.mid.clone(), content: to, mix: false, rtp_timestamp: None })
}

const KINDS: [Kind; 2] = [Kind::Audio, Kind::Video];

impl Whole {
    /// A person says what he wants where: (line of the slot, track or none). Errors: no such slot
    /// or track; nothing is changed then.
    pub(super) fn want(
        &mut self,
        key: PersonKey,
        want: &[(String, Option<TrackKey>)],
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let mark = self.mark(effects);
        let person = self.person(key).ok_or(Refusal::UnknownPerson)?;
        let mut moves = Vec::new();
        for (mid, track) in want {
            let kind = *KINDS
                .iter()
                .find(|kind| person.slot_contents(**kind).any(|(slot, _)| slot == mid))
                .ok_or(Refusal::UnknownSlot)?;
            if self.topology(kind) != Topology::Sfu {
                return Err(Refusal::OtherTopology);
            }
            let to = match track {
                None => None,
                Some(track) => {
                    let (owner, known) = self.owner(*track).ok_or(Refusal::UnknownTrack)?;
                    if known.kind != kind || owner.key == key {
                        return Err(Refusal::UnknownTrack);
                    }
                    Some((owner.key, *track))
                }
            };
            moves.push((kind, mid, to));
        }
        let person = self.person_mut(key)?;
        let at = (key, person.shard);
        let mut changes = Vec::new();
        for (kind, mid, to) in moves {
            let pool = person.pool(kind);
            pool.manual = true;
            // A track is in one slot at most: it moves there.
            for slot in &mut pool.slots {
                let take_away = to.is_some_and(|(_, track)| slot.target() == Some(track));
                if slot.mid == *mid {
                    changes.extend(map(at, slot, kind, to, effects));
                } else if take_away {
                    changes.extend(map(at, slot, kind, None, effects));
                }
            }
        }
        tell(key, changes, effects);
        self.settle(mark, effects);
        Ok(())
    }

    /// Puts tracks that have no slot yet into free ones, for everyone, and asks for more slots
    /// where they are short.
    pub(super) fn fill_slots(&mut self, effects: &mut Effects) {
        for kind in self.forwarded() {
            let mut speakers: Vec<&Person> = self.people.iter().collect();
            // Who spoke last comes first; of those who never did, who came first.
            speakers.sort_by_key(|person| Reverse(person.spoke));
            let tracks: Vec<(PersonKey, TrackKey)> = speakers
                .iter()
                .flat_map(|person| {
                    let of_kind = person.tracks.iter().filter(|track| track.kind == kind);
                    of_kind.map(|track| (person.key, track.key))
                })
                .collect();
            for person in &mut self.people {
                let key = person.key;
                let at = (key, person.shard);
                let pool = person.pool(kind);
                if pool.manual {
                    continue;
                }
                let mut changes = Vec::new();
                let mut free = pool.slots.iter().filter(|slot| slot.target().is_none()).count();
                for &(owner, track) in tracks.iter().filter(|(owner, _)| *owner != key) {
                    if free == 0 {
                        break;
                    }
                    if pool.carries(track) {
                        continue;
                    }
                    let slot = pool.slots.iter_mut().find(|slot| slot.target().is_none());
                    let Some(slot) = slot else { break };
                    changes.extend(map(at, slot, kind, Some((owner, track)), effects));
                    free -= 1;
                }
                tell(key, changes, effects);
            }
        }
        self.ask_for_slots(effects);
    }

    /// Whether somebody has fewer slots than there are voices, and leaves it to the room whom he hears.
    pub(super) fn voices_wait(&self) -> bool {
        let voices = |person: &Person| {
            person.tracks.iter().filter(|track| track.kind == Kind::Audio).count()
        };
        let all: usize = self.people.iter().map(voices).sum();
        let short = |person: &Person| {
            let pool = &person.audio;
            !pool.manual && !pool.slots.is_empty() && pool.slots.len() < all - voices(person)
        };
        self.topology(Kind::Audio) == Topology::Sfu && self.people.iter().any(short)
    }

    /// The kinds that are forwarded track by track.
    fn forwarded(&self) -> Vec<Kind> {
        KINDS.into_iter().filter(|kind| self.topology(*kind) == Topology::Sfu).collect()
    }

    fn ask_for_slots(&mut self, effects: &mut Effects) {
        let ways = self.forwarded();
        let count = |kind| {
            if !ways.contains(&kind) {
                return 0;
            }
            let tracks = self.people.iter().flat_map(|person| &person.tracks);
            tracks.filter(|track| track.kind == kind).count() as u32
        };
        let (audio, video) = (count(Kind::Audio), count(Kind::Video));
        let limits = self.setup.limits;
        for person in &mut self.people {
            if person.audio.slots.is_empty() && person.video.slots.is_empty() {
                continue; // He has not offered yet, or only sends.
            }
            let wanted = |person: &Person, kind, all: u32, most: u32| {
                let own = person.tracks.iter().filter(|track| track.kind == kind).count() as u32;
                let pool = if kind == Kind::Audio { &person.audio } else { &person.video };
                let (need, have) = (all.saturating_sub(own), pool.slots.len() as u32);
                if pool.manual || need <= have || have == 0 {
                    return have;
                }
                (have + (need - have).next_multiple_of(SLOT_STEP)).min(most).max(have)
            };
            let a = wanted(person, Kind::Audio, audio, limits.audio_slots);
            let v = wanted(person, Kind::Video, video, limits.video_slots);
            let more_audio = a > (person.audio.slots.len() as u32).max(person.audio.asked);
            let more_video = v > (person.video.slots.len() as u32).max(person.video.asked);
            if more_audio || more_video {
                (person.audio.asked, person.video.asked) = (a, v);
                let wanted = Notice::SlotsWanted { person: person.key, audio: a, video: v };
                effects.notices.push(wanted);
            }
        }
    }

    /// Tracks are gone: their slots are empty, and may be filled with others.
    pub(super) fn tracks_ended(&mut self, ended: &[TrackKey], effects: &mut Effects) {
        for person in &mut self.people {
            let (mut changes, key, shard) = (Vec::new(), person.key, person.shard);
            for kind in KINDS {
                for slot in &mut person.pool(kind).slots {
                    let called_off = slot.next.take_if(|next| ended.contains(next)).is_some();
                    let stays = slot.content.filter(|content| !ended.contains(content));
                    if let Some(track) = stays.filter(|_| called_off) {
                        // It was given up for what ended, where it had not begun to flow.
                        let (person, mid) = (key, slot.mid.clone());
                        let command = Command::Map { person, mid, track: Some(track) };
                        effects.commands.push((shard, command));
                    }
                    if slot.content.take_if(|content| ended.contains(content)).is_some() {
                        // The shard emptied it with the track; what was to come is told now.
                        let change = SlotChange {
                            mid: slot.mid.clone(),
                            content: None,
                            mix: false,
                            rtp_timestamp: None,
                        };
                        changes.push(change);
                    }
                }
            }
            tell(key, changes, effects);
        }
        self.fill_slots(effects);
    }

    /// A video slot switched.
    pub(super) fn switched(
        &mut self,
        key: PersonKey,
        mid: &str,
        track: TrackKey,
        rtp_timestamp: u32,
        effects: &mut Effects,
    ) {
        let Some(owner) = self.owner(track).map(|(owner, _)| owner.key) else { return };
        let Ok(person) = self.person_mut(key) else { return };
        let slot = person.video.slots.iter_mut().find(|slot| slot.mid == mid);
        // A report on its way while the slot got something else again says nothing any more.
        let Some(slot) = slot.filter(|slot| slot.next == Some(track)) else { return };
        slot.content = slot.next.take();
        let change = SlotChange {
            mid: slot.mid.clone(),
            content: Some((owner, track)),
            mix: false,
            rtp_timestamp: Some(rtp_timestamp),
        };
        tell(key, vec![change], effects);
    }

    /// Where slots are short, who speaks takes the place of who was silent longest.
    pub(super) fn prefer_speakers(&mut self, speakers: &[(PersonKey, u8)], effects: &mut Effects) {
        let spoke: Vec<(TrackKey, u64)> = self
            .people
            .iter()
            .flat_map(|person| person.tracks.iter().map(|track| (track.key, person.spoke)))
            .collect();
        let when = |track: TrackKey| spoke.iter().find(|(t, _)| *t == track).map_or(0, |(_, n)| *n);
        for kind in self.forwarded() {
            let loud: Vec<(PersonKey, TrackKey)> = speakers
                .iter()
                .filter_map(|(speaker, _)| self.person(*speaker))
                .flat_map(|person| {
                    let of_kind = person.tracks.iter().filter(|track| track.kind == kind);
                    of_kind.map(|track| (person.key, track.key))
                })
                .collect();
            for person in &mut self.people {
                let key = person.key;
                let at = (key, person.shard);
                let pool = person.pool(kind);
                if pool.manual {
                    continue;
                }
                let mut changes = Vec::new();
                for &(owner, track) in loud.iter().filter(|(owner, _)| *owner != key) {
                    if pool.carries(track) {
                        continue;
                    }
                    let silent = pool
                        .slots
                        .iter_mut()
                        .filter(|slot| {
                            slot.target().is_none_or(|t| !loud.iter().any(|(_, l)| *l == t))
                        })
                        .min_by_key(|slot| slot.target().map_or(0, |track| 1 + when(track)));
                    let Some(slot) = silent else { break };
                    changes.extend(map(at, slot, kind, Some((owner, track)), effects));
                }
                tell(key, changes, effects);
            }
        }
    }
}

fn tell(person: PersonKey, changes: Vec<SlotChange>, effects: &mut Effects) {
    if !changes.is_empty() {
        effects.notices.push(Notice::Slots { person, changes });
    }
}

/// What was told to shards about each other.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// (track, shard that gets it from the publisher's).
    exports: BTreeSet<(TrackKey, ShardIndex)>,
    /// (track, shard that keeps its last half second).
    kept: BTreeSet<(TrackKey, ShardIndex)>,
    /// Which shards talk and listen, bit N for shard N; and all that were told so far.
    mix: (u64, u64),
    told: u64,
}

/// Where a call's own effects begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    commands: usize,
    mixers: usize,
}

/// The shards of a mask.
fn shards_of(mask: u64) -> impl Iterator<Item = ShardIndex> {
    (0..64).filter(move |bit| mask & (1 << bit) != 0).map(ShardIndex)
}

impl Whole {
    /// The shard that ranks who is loud and tells who speaks.
    pub(super) fn home(&self) -> ShardIndex {
        home_of(self.key, self.setup.shards)
    }

    pub(super) fn mark(&self, effects: &Effects) -> Mark {
        Mark { commands: effects.commands.len(), mixers: effects.mixers.len() }
    }

    /// After a change: what shards need from each other follows it.
    pub(super) fn settle(&mut self, mark: Mark, effects: &mut Effects) {
        self.settle_mixers(mark, effects);
        if self.setup.shards > 1 {
            self.settle_tracks(mark, effects);
        }
        self.settle_kept(effects);
        self.settle_paused(effects);
    }

    /// A picture that nobody has in a slot, on any shard, rests at its publisher's; it is sent again
    /// as soon as somebody gets it. Sound goes on: without its level nobody could be chosen.
    fn settle_paused(&mut self, effects: &mut Effects) {
        if self.topology(Kind::Video) != Topology::Sfu {
            return;
        }
        let carried: BTreeSet<TrackKey> =
            self.people.iter().flat_map(|person| person.video.carried()).collect();
        for person in &mut self.people {
            for track in person.tracks.iter_mut().filter(|track| track.kind == Kind::Video) {
                let paused = !carried.contains(&track.key);
                if track.paused != paused {
                    track.paused = paused;
                    let (person, track) = (person.key, track.key);
                    effects.notices.push(Notice::Paused { person, track, paused });
                }
            }
        }
    }

    /// Where somebody has fewer slots than there are voices, the beginning of speech is kept on every
    /// shard that has its track.
    fn settle_kept(&mut self, effects: &mut Effects) {
        let here: BTreeSet<(TrackKey, ShardIndex)> = self
            .people
            .iter()
            .flat_map(|person| person.tracks.iter().map(|track| (track, person.shard)))
            .filter(|(track, _)| track.kind == Kind::Audio)
            .flat_map(|(track, shard)| {
                let exports = (track.key, ShardIndex(0))..=(track.key, ShardIndex(u16::MAX));
                self.spread.exports.range(exports).copied().chain([(track.key, shard)])
            })
            .collect();
        let keep = if self.voices_wait() { here.clone() } else { BTreeSet::new() };
        for &(track, shard) in keep.difference(&self.spread.kept) {
            effects.commands.push((shard, Command::Keep { track, on: true }));
        }
        // A track that is gone took what was kept of it along.
        for &(track, shard) in self.spread.kept.difference(&keep).filter(|it| here.contains(*it)) {
            effects.commands.push((shard, Command::Keep { track, on: false }));
        }
        self.spread.kept = keep;
    }

    fn settle_tracks(&mut self, mark: Mark, effects: &mut Effects) {
        let mut owners: BTreeMap<TrackKey, ShardIndex> = BTreeMap::new();
        for person in &self.people {
            owners.extend(person.tracks.iter().map(|track| (track.key, person.shard)));
        }
        let mut demand: BTreeSet<(TrackKey, ShardIndex)> = BTreeSet::new();
        for person in &self.people {
            for track in person.audio.carried().chain(person.video.carried()) {
                if owners.get(&track).is_some_and(|owner| *owner != person.shard) {
                    demand.insert((track, person.shard));
                }
            }
        }
        // The other shard knows the track before a slot there is mapped to it.
        let mut first = Vec::new();
        for &(track, to) in demand.difference(&self.spread.exports) {
            let (Some(line), Some(from)) = (self.lines.get(&track), owners.get(&track)) else {
                continue;
            };
            let line = line.clone();
            let opaque = self.owner(track).is_some_and(|(_, known)| known.opaque);
            let import = Command::Import { track, room: self.key, from: *from, line, opaque };
            first.push((to, import));
            effects.commands.push((*from, Command::Export { track, to, on: true }));
        }
        for &(track, to) in self.spread.exports.difference(&demand) {
            effects.commands.push((to, Command::RemoveTrack { track }));
            // A track that ended took its exports along.
            if let Some(from) = owners.get(&track) {
                effects.commands.push((*from, Command::Export { track, to, on: false }));
            }
        }
        effects.commands.splice(mark.commands..mark.commands, first);
        self.spread.exports = demand;
    }

    fn settle_mixers(&mut self, mark: Mark, effects: &mut Effects) {
        if self.setup.audio != Topology::Mcu {
            return;
        }
        let (mut talking, mut listening) = (0u64, 0u64);
        for person in &self.people {
            let bit = 1 << person.shard.0;
            if person.tracks.iter().any(|track| track.kind == Kind::Audio) {
                talking |= bit;
            }
            if person.mix.is_some() {
                listening |= bit;
            }
        }
        if self.spread.mix == (talking, listening) {
            return;
        }
        self.spread.mix = (talking, listening);
        let (room, home) = (self.key, self.home());
        let all = self.spread.told | talking | listening | (1 << home.0);
        if talking | listening == 0 {
            effects.mixers.extend(shards_of(all).map(|shard| (shard, MixCommand::End { room })));
            self.spread.told = 0;
            return;
        }
        self.spread.told = all;
        let loudest = self.setup.loudest;
        let told = MixCommand::Room { room, home, talking, listening, loudest };
        let first: Vec<_> = shards_of(all).map(|shard| (shard, told)).collect();
        effects.mixers.splice(mark.mixers..mark.mixers, first);
    }
}
