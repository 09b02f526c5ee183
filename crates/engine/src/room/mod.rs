//! A room: who is there, what they publish, what their slots carry. A pure state machine that
//! runs once a room, wherever its people's packets go.
//!
//! Each call takes what happened and appends what follows to `Effects`: commands for shards and
//! mixers, in order, and notices for people. `publish` is what people send, [`slots`] what they
//! receive where, `spread` what crosses from shard to shard for it.

mod publish;
mod slots;
mod spread;

use crate::command::{Command, PersonKey, Report, RoomKey, ShardIndex, TrackKey};
use crate::mix::MixCommand;
use rtp::negotiated::{Kind, Line};
use slots::SlotPool;
use spread::Spread;
use std::collections::BTreeMap;

pub use publish::Published;
pub(crate) use spread::home_of;

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
    /// Everyone, without a number: who speaks.
    Speakers(Vec<(PersonKey, u8)>),
    /// One person: what his slots carry from now on.
    Slots {
        /// Whose slots.
        person: PersonKey,
        /// The changes.
        changes: Vec<SlotChange>,
    },
    /// One person: nobody has a track of his in a slot, so that he need not send it; or somebody has
    /// again.
    Paused {
        /// Whose track.
        person: PersonKey,
        /// Which.
        track: TrackKey,
        /// Whether it rests.
        paused: bool,
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
    /// Its line at the publisher; in a mesh the publisher's label for it.
    pub mid: String,
    /// What the publisher calls it.
    pub name: String,
    /// Whether the publisher muted it.
    pub muted: bool,
    /// Whether a moderator muted it: nothing of it is passed on.
    pub silenced: bool,
    /// Whether its publisher was told that nobody has it in a slot.
    pub paused: bool,
    /// Its payloads are encrypted end to end: nothing in them is read or changed.
    pub opaque: bool,
}

/// A participant.
#[derive(Debug)]
pub struct Person {
    /// The participant.
    pub key: PersonKey,
    /// The name that others see.
    pub name: String,
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

/// The way of a kind of media through a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Topology {
    /// There is none of it.
    None,
    /// From person to person, not through this server.
    Mesh,
    /// Forwarded track by track.
    #[default]
    Sfu,
    /// Mixed into one (sound only).
    Mcu,
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

/// What a room is made as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomSetup {
    /// The way of sound.
    pub audio: Topology,
    /// The way of pictures.
    pub video: Topology,
    /// How many are heard at once where sound is mixed.
    pub loudest: u8,
    /// How many shards there are.
    pub shards: u16,
    /// Its limits.
    pub limits: RoomLimits,
}

/// What a call asked for cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The room has as many people as it may.
    Full,
    /// A moderator lets nobody new in.
    Locked,
    /// Nobody of that key is here.
    UnknownPerson,
    /// No such track, or not his, or of the other kind than the slot.
    UnknownTrack,
    /// No such slot.
    UnknownSlot,
    /// More tracks than one may publish.
    TooManyTracks,
    /// The room has no such media, or it goes another way.
    OtherTopology,
    /// A moderator muted the track.
    Silenced,
    /// What is encrypted end to end cannot be mixed.
    Opaque,
}

/// One room's state.
#[derive(Debug)]
pub struct Room {
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

impl Room {
    /// An empty room.
    pub fn new(key: RoomKey, setup: RoomSetup) -> Self {
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

    /// The way of a kind of media.
    pub fn topology(&self, kind: Kind) -> Topology {
        match kind {
            Kind::Audio => self.setup.audio,
            Kind::Video => self.setup.video,
        }
    }

    /// Whether nobody new comes in.
    pub fn locked(&self) -> bool {
        self.locked
    }

    /// The limits as they are now.
    pub fn limits(&self) -> RoomLimits {
        self.setup.limits
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

    /// Someone comes in; his packets are this shard's. Errors: [`Refusal::Full`],
    /// [`Refusal::Locked`].
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
        if self.people.len() >= self.setup.limits.people {
            return Err(Refusal::Full);
        }
        self.people.push(Person {
            key,
            name,
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
    pub fn leave(&mut self, key: PersonKey, effects: &mut Effects) -> Result<(), Refusal> {
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
    pub fn report(&mut self, report: Report, effects: &mut Effects) {
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

    /// The line that the mix goes to.
    pub fn mix_slot(&self) -> Option<&str> {
        self.mix.as_deref()
    }
}
