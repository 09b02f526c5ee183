//! A room: who is there, what they publish, what their slots carry. A pure state machine that
//! runs once a room, wherever its people's packets go.
//!
//! Each call takes what happened and appends what follows to `Effects`: commands for shards, in
//! order, and notices for people. [`slots`] decides what is received where.

mod slots;

use crate::command::{Command, PersonKey, Report, RoomKey, TrackKey};
use crate::limits::MAX_TRACKS_EACH;
use rtp::negotiated::{Direction, Kind, Negotiated};
use slots::SlotPool;

/// What a room does in answer to a call.
#[derive(Debug, Default)]
pub struct Effects {
    /// For the shard of the person each names.
    pub commands: Vec<Command>,
    /// For people.
    pub notices: Vec<Notice>,
}

/// What people are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Everyone, numbered.
    All(Change),
    /// Everyone, without a number: who speaks.
    Speakers(Vec<(PersonKey, u8)>),
    /// One person: what his slots carry from now on.
    Slots {
        /// Whose slots.
        person: PersonKey,
        /// The changes.
        changes: Vec<SlotChange>,
    },
    /// One person: the room has more tracks than he has slots.
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
    /// Someone is gone.
    Left(PersonKey),
    /// Someone publishes a track.
    TrackAdded(PersonKey, Track),
    /// A track was muted or unmuted.
    TrackChanged(PersonKey, Track),
    /// A track ended.
    TrackRemoved(PersonKey, TrackKey),
}

/// What a slot carries from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotChange {
    /// The slot's line.
    pub mid: String,
    /// Whose track, and which; none for an empty slot.
    pub content: Option<(PersonKey, TrackKey)>,
    /// The first RTP timestamp of the new content, where known.
    pub rtp_timestamp: Option<u32>,
}

/// A published track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// The track.
    pub key: TrackKey,
    /// Audio or video.
    pub kind: Kind,
    /// Its line at the publisher.
    pub mid: String,
    /// What the publisher calls it.
    pub name: String,
    /// Whether the publisher muted it.
    pub muted: bool,
}

/// A participant.
#[derive(Debug)]
pub struct Person {
    /// The participant.
    pub key: PersonKey,
    /// The name that others see.
    pub name: String,
    /// What he publishes, in order.
    pub tracks: Vec<Track>,
    audio: SlotPool,
    video: SlotPool,
    /// When he spoke last, as a count of speaker reports.
    spoke: u64,
}

/// Limits of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomLimits {
    /// Most people at once.
    pub people: usize,
    /// Most audio slots a person may have.
    pub audio_slots: u32,
    /// Most video slots a person may have.
    pub video_slots: u32,
}

/// What a call asked for cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The room has as many people as it may.
    Full,
    /// Nobody of that key is here.
    UnknownPerson,
    /// No such track, or not his, or of the other kind than the slot.
    UnknownTrack,
    /// No such slot.
    UnknownSlot,
    /// More tracks than one may publish.
    TooManyTracks,
}

/// A track that an offer announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Its line.
    pub mid: String,
    /// What the publisher calls it.
    pub name: String,
    /// The key that it gets if it is new.
    pub key: TrackKey,
}

/// One room's state.
#[derive(Debug)]
pub struct Room {
    key: RoomKey,
    limits: RoomLimits,
    /// In order of joining.
    people: Vec<Person>,
    speaker_reports: u64,
}

impl Room {
    /// An empty room.
    pub fn new(key: RoomKey, limits: RoomLimits) -> Self {
        Self { key, limits, people: Vec::new(), speaker_reports: 0 }
    }

    /// Everybody, in order of joining.
    pub fn people(&self) -> &[Person] {
        &self.people
    }

    /// The participant of this key.
    pub fn person(&self, key: PersonKey) -> Option<&Person> {
        self.people.iter().find(|person| person.key == key)
    }

    fn person_mut(&mut self, key: PersonKey) -> Result<&mut Person, Refusal> {
        self.people.iter_mut().find(|person| person.key == key).ok_or(Refusal::UnknownPerson)
    }

    /// Someone comes in. Errors: [`Refusal::Full`].
    pub fn join(
        &mut self,
        key: PersonKey,
        name: String,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if self.people.len() >= self.limits.people {
            return Err(Refusal::Full);
        }
        self.people.push(Person {
            key,
            name,
            tracks: Vec::new(),
            audio: SlotPool::default(),
            video: SlotPool::default(),
            spoke: 0,
        });
        effects.notices.push(Notice::All(Change::Joined(key)));
        Ok(())
    }

    /// Someone goes, with all that is his.
    pub fn leave(&mut self, key: PersonKey, effects: &mut Effects) -> Result<(), Refusal> {
        let at = self.people.iter().position(|p| p.key == key).ok_or(Refusal::UnknownPerson)?;
        let gone = self.people.remove(at);
        effects.commands.push(Command::Remove { person: key });
        for track in &gone.tracks {
            effects.notices.push(Notice::All(Change::TrackRemoved(key, track.key)));
        }
        effects.notices.push(Notice::All(Change::Left(key)));
        let ended: Vec<TrackKey> = gone.tracks.iter().map(|track| track.key).collect();
        self.tracks_ended(&ended, effects);
        Ok(())
    }

    /// Someone agreed on lines: slots are there, tracks are published. Returns the key of each
    /// announced track, in order.
    pub fn negotiated(
        &mut self,
        key: PersonKey,
        negotiated: &Negotiated,
        published: &[Published],
        effects: &mut Effects,
    ) -> Result<Vec<TrackKey>, Refusal> {
        let (room, limits) = (self.key, self.limits);
        let person = self.person_mut(key)?;
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
            if let Some(track) = person.tracks.iter().find(|known| known.mid == track.mid) {
                keys.push(track.key);
                continue;
            }
            keys.push(track.key);
            added.push(Track {
                key: track.key,
                kind: line.codec.kind(),
                mid: track.mid.clone(),
                name: track.name.clone(),
                muted: false,
            });
        }
        for line in &negotiated.lines {
            if line.direction == Direction::Send {
                person.pool(line.codec.kind()).add(&line.mid);
            }
        }
        let sends = |mid: &str| {
            let line = negotiated.line(mid);
            line.is_some_and(|l| matches!(l.direction, Direction::Receive | Direction::Both))
        };
        let gone: Vec<Track> = person.tracks.extract_if(.., |track| !sends(&track.mid)).collect();
        effects.commands.push(Command::Lines { person: key, room, negotiated });
        let ended: Vec<TrackKey> = gone.iter().map(|track| track.key).collect();
        for track in ended.iter().copied() {
            effects.commands.push(Command::RemoveTrack { track });
            effects.notices.push(Notice::All(Change::TrackRemoved(key, track)));
        }
        for track in added {
            effects.commands.push(Command::AddTrack {
                track: track.key,
                person: key,
                mid: track.mid.clone(),
            });
            person.tracks.push(track.clone());
            effects.notices.push(Notice::All(Change::TrackAdded(key, track)));
        }
        self.tracks_ended(&ended, effects);
        Ok(keys)
    }

    /// Someone mutes or unmutes a track of his.
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
        if track.muted != muted {
            track.muted = muted;
            effects.notices.push(Notice::All(Change::TrackChanged(key, track.clone())));
        }
        Ok(())
    }

    /// A shard reports.
    pub fn report(&mut self, report: Report, effects: &mut Effects) {
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

    /// How many audio and video slots he has.
    pub fn slot_counts(&self) -> (usize, usize) {
        (self.audio.len(), self.video.len())
    }

    /// What his slots of a kind carry: line and track.
    pub fn slot_contents(&self, kind: Kind) -> impl Iterator<Item = (&str, Option<TrackKey>)> {
        match kind {
            Kind::Audio => &self.audio,
            Kind::Video => &self.video,
        }
        .contents()
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
