//! What people send: tracks on agreed lines, tracks announced in a mesh, muting.

use super::{Change, Effects, Notice, Refusal, Room, RoomLimits, SlotChange, Topology, Track};
use crate::command::{Command, PersonKey, ShardIndex, TrackKey};
use crate::limits::MAX_TRACKS_EACH;
use crate::mix::MixCommand;
use rtp::negotiated::{Direction, Kind, Negotiated};

/// A track that an offer announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Its line.
    pub mid: String,
    /// What the publisher calls it.
    pub name: String,
    /// Its payloads are encrypted end to end: nothing in them may be read or changed.
    pub opaque: bool,
    /// The key that it gets if it is new.
    pub key: TrackKey,
}

impl Room {
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

    /// Someone says what he sends where media does not pass the server: (what, kind). Returns the
    /// key of each, in order; what he announced before and is missing now ends.
    pub fn announce(
        &mut self,
        key: PersonKey,
        announced: &[(Published, Kind)],
        effects: &mut Effects,
    ) -> Result<Vec<TrackKey>, Refusal> {
        if announced.iter().any(|(_, kind)| self.topology(*kind) != Topology::Mesh) {
            return Err(Refusal::OtherTopology);
        }
        let ways = [self.topology(Kind::Audio), self.topology(Kind::Video)];
        let person = self.person_mut(key)?;
        let shard = person.shard;
        let others = person.tracks.iter().filter(|t| ways[t.kind as usize] != Topology::Mesh);
        if others.count() + announced.len() > MAX_TRACKS_EACH {
            return Err(Refusal::TooManyTracks);
        }
        let still = |track: &Track| {
            announced.iter().any(|(new, kind)| new.mid == track.mid && *kind == track.kind)
        };
        let gone: Vec<Track> = person
            .tracks
            .extract_if(.., |track| ways[track.kind as usize] == Topology::Mesh && !still(track))
            .collect();
        self.end_tracks(key, shard, &gone, effects);
        let mut keys = Vec::new();
        for (new, kind) in announced {
            let person = self.person_mut(key)?;
            if let Some(track) =
                person.tracks.iter().find(|track| track.mid == new.mid && track.kind == *kind)
            {
                keys.push(track.key);
                continue;
            }
            keys.push(new.key);
            self.publish(key, new_track(new, *kind), effects);
        }
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

    /// Someone mutes or unmutes a track of his.
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
        let person = self.person_mut(key)?;
        let track =
            person.tracks.iter_mut().find(|t| t.key == track).ok_or(Refusal::UnknownTrack)?;
        if track.silenced && !muted {
            return Err(Refusal::Silenced);
        }
        if track.muted != muted {
            track.muted = muted;
            effects.notices.push(Notice::All(Change::TrackChanged(key, track.clone())));
        }
        Ok(())
    }

    /// A moderator mutes anyone's track, or releases it: nothing of it is passed on meanwhile. Returns its kind.
    pub fn silence(
        &mut self,
        track: TrackKey,
        on: bool,
        effects: &mut Effects,
    ) -> Result<Kind, Refusal> {
        let owner = self.owner(track).map(|(owner, _)| owner.key).ok_or(Refusal::UnknownTrack)?;
        let passes = self.lines.contains_key(&track);
        let mixed = self.setup.audio == Topology::Mcu;
        let person = self.person_mut(owner)?;
        let shard = person.shard;
        let known =
            person.tracks.iter_mut().find(|t| t.key == track).ok_or(Refusal::UnknownTrack)?;
        if known.silenced == on {
            return Ok(known.kind);
        }
        // Released, it stays muted until its publisher wants to be heard again.
        known.silenced = on;
        known.muted = true;
        if passes {
            effects.commands.push((shard, Command::Silence { track, on }));
            if mixed && known.kind == Kind::Audio {
                effects.mixers.push((shard, MixCommand::Silence { track, on }));
            }
        }
        let kind = known.kind;
        effects.notices.push(Notice::All(Change::TrackChanged(owner, known.clone())));
        Ok(kind)
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
