//! How a room's changes become events: numbered, kept for those who resume, sent to everyone.

use super::{Cell, State};
use crate::socket::Publication;
use engine::room::{Change, Effects, Notice, Person, Room, SlotChange, Topology, Track};
use engine::{PersonKey, TrackKey};
use rtp::negotiated::Kind;
use std::collections::VecDeque;
use wire::event::{LeaveReason, PauseReason, Speaker};
use wire::room::{MediaKind, ParticipantInfo, TrackInfo};
use wire::{Event, EventEnvelope};

/// Events kept for those who resume.
const KEPT: usize = 1024;

/// The id of a participant on the wire.
pub(super) fn participant_id(person: PersonKey) -> String {
    format!("p-{}", person.0)
}

/// The id of a track on the wire.
pub(super) fn track_id(track: TrackKey) -> String {
    format!("t-{}", track.0)
}

/// The track of an id on the wire.
pub(super) fn track_key(id: &str) -> Option<TrackKey> {
    id.strip_prefix("t-")?.parse().ok().map(TrackKey)
}

/// The participant of an id on the wire.
pub(super) fn person_key(id: &str) -> Option<PersonKey> {
    id.strip_prefix("p-")?.parse().ok().map(PersonKey)
}

/// A kind of media on the wire.
pub(super) fn media_kind(kind: Kind) -> MediaKind {
    match kind {
        Kind::Audio => MediaKind::Audio,
        Kind::Video => MediaKind::Video,
    }
}

/// A kind of media of the wire.
pub(super) fn kind_of(kind: MediaKind) -> Kind {
    match kind {
        MediaKind::Audio => Kind::Audio,
        MediaKind::Video => Kind::Video,
    }
}

fn track_info(track: &Track) -> TrackInfo {
    TrackInfo {
        id: track_id(track.key),
        kind: media_kind(track.kind),
        name: track.name.clone(),
        muted: track.muted,
        silenced: track.silenced,
    }
}

/// A participant as the others see them.
pub(super) fn participant_info(person: &Person) -> ParticipantInfo {
    ParticipantInfo {
        id: participant_id(person.key),
        name: person.name.clone(),
        tracks: person.tracks.iter().map(track_info).collect(),
        hand: person.hand,
    }
}

/// The numbered events of a room, the last [`KEPT`] of them.
#[derive(Debug, Default)]
pub(super) struct Log {
    epoch: u64,
    kept: VecDeque<EventEnvelope>,
}

impl Log {
    /// Number of the last event.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    fn number(&mut self, event: Event) -> EventEnvelope {
        self.epoch += 1;
        let envelope = EventEnvelope { epoch: self.epoch, event };
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(envelope.clone());
        envelope
    }

    /// What came after `seen`; None if some of it is no longer kept.
    pub(super) fn after(&self, seen: u64) -> Option<Vec<EventEnvelope>> {
        let missed = self.epoch.checked_sub(seen)? as usize;
        let from = self.kept.len().checked_sub(missed)?;
        Some(self.kept.range(from..).cloned().collect())
    }
}

impl Cell {
    /// Hands on the effects of a call to the room: commands to threads, notices to people. `reason` is why someone left,
    /// if anybody did.
    pub(super) fn apply(&self, state: &mut State, effects: Effects, reason: LeaveReason) {
        for (shard, command) in effects.commands {
            self.shard(shard).media.send(command);
        }
        for (shard, command) in effects.mixers {
            self.shard(shard).mix.send(command);
        }
        for notice in effects.notices {
            match notice {
                Notice::All(change) => {
                    if let Some(event) = self.numbered(state, change, reason) {
                        self.tell_all(state, event);
                    }
                }
                Notice::Audience { joined } => state.audience.note(joined),
                Notice::Speakers(_) => self.tell_now(state, speakers_event(&state.room)),
                Notice::Slots { person, changes } => {
                    self.tell_one(state, person, slots_event(changes));
                }
                Notice::Paused { person, track, paused } => {
                    let event = Event::TrackPaused { track: track_id(track), paused };
                    self.tell_one(state, person, event);
                }
                Notice::Layers { person, track, layer } => {
                    let event = Event::TrackLayers { track: track_id(track), layer };
                    self.tell_one(state, person, event);
                }
                Notice::Downlink { person, kbps } => {
                    self.tell_one(state, person, Event::Downlink { estimate_kbps: kbps });
                }
                Notice::SlotsWanted { person, audio, video } => {
                    self.tell_one(state, person, Event::SlotsWanted { audio, video });
                }
            }
        }
    }

    /// Numbers an event and sends it to everyone.
    pub(super) fn tell_all(&self, state: &mut State, event: Event) {
        let envelope = state.log.number(event);
        self.deliver(state, &self.publication(&envelope));
    }

    /// Sends an event without a number to everyone.
    pub(super) fn tell_now(&self, state: &State, event: Event) {
        self.deliver(state, &self.unnumbered(state, event));
    }

    /// Sends an event without a number to one participant.
    pub(super) fn tell_one(&self, state: &State, person: PersonKey, event: Event) {
        let publication = self.unnumbered(state, event);
        let member = state.members.get(&person);
        if let Some(socket) = member.and_then(|member| member.socket.as_ref()) {
            socket.deliver(&publication);
        }
    }

    /// Sends an event of another participant, unless too much waits for the receiver already; false then. Without a
    /// socket the receiver misses it.
    pub(super) fn pass_on(&self, state: &State, person: PersonKey, event: Event) -> bool {
        let publication = self.unnumbered(state, event);
        let member = state.members.get(&person);
        let Some(socket) = member.and_then(|member| member.socket.as_ref()) else { return true };
        let fits = socket.has_room_for(&publication);
        if fits {
            socket.deliver(&publication);
        }
        fits
    }

    /// Tells a participant who resumed which of their own pictures rest, because nobody has them in a slot, and which
    /// layers are wanted.
    fn tell_paused(&self, state: &State, person: PersonKey) {
        let Some(known) = state.room.person(person) else { return };
        if state.room.topology(Kind::Video) != Topology::Sfu {
            return;
        }
        for track in known.tracks.iter().filter(|track| track.kind == Kind::Video) {
            let event = Event::TrackPaused { track: track_id(track.key), paused: track.paused };
            self.tell_one(state, person, event);
            if let Some(layer) = track.layer {
                let event = Event::TrackLayers { track: track_id(track.key), layer };
                self.tell_one(state, person, event);
            }
        }
    }

    /// Tells a participant who resumed what may have been lost with their socket and concerns them alone, or has no number.
    pub(super) fn tell_state(&self, state: &State, person: PersonKey) {
        self.tell_slots(state, person);
        if let Some((audio, video)) = state.room.slots_wanted(person) {
            self.tell_one(state, person, Event::SlotsWanted { audio, video });
        }
        if let Some(known) = state.room.person(person) {
            self.tell_one(state, person, Event::Downlink { estimate_kbps: known.downlink });
        }
        self.tell_paused(state, person);
        self.tell_one(state, person, speakers_event(&state.room));
        let (count, joined, left) = (state.count(), 0, 0);
        self.tell_one(state, person, Event::People { count, joined, left });
    }

    /// Tells a participant who resumed what all their slots carry.
    fn tell_slots(&self, state: &State, person: PersonKey) {
        let Some(known) = state.room.person(person) else { return };
        let owner = |track: TrackKey| state.room.owner_of(track).map(|owner| (owner, track));
        let changes = [Kind::Audio, Kind::Video]
            .into_iter()
            .flat_map(|kind| known.slot_contents(kind))
            .map(|(mid, track)| SlotChange {
                mid: mid.to_owned(),
                content: track.and_then(owner),
                mix: known.mix_slot() == Some(mid),
                rests: known.rests(mid),
                rtp_timestamp: None,
            })
            .collect();
        self.tell_one(state, person, slots_event(changes));
    }

    fn unnumbered(&self, state: &State, event: Event) -> Publication {
        self.publication(&EventEnvelope { epoch: state.log.epoch(), event })
    }

    fn numbered(&self, state: &State, change: Change, reason: LeaveReason) -> Option<Event> {
        Some(match change {
            Change::Joined(person) | Change::Named(person) => Event::ParticipantJoined {
                participant: participant_info(state.room.person(person)?),
                count: state.count(),
                from_audience: matches!(change, Change::Named(_)),
            },
            Change::Changed(person) => Event::ParticipantChanged {
                participant: participant_info(state.room.person(person)?),
            },
            Change::Left(person) => Event::ParticipantLeft {
                participant: participant_id(person),
                reason,
                count: state.count(),
            },
            Change::TrackAdded(person, track) => {
                Event::TrackAdded { participant: participant_id(person), track: track_info(&track) }
            }
            Change::TrackChanged(person, track) => Event::TrackChanged {
                participant: participant_id(person),
                track: track_info(&track),
            },
            Change::Room => Event::RoomChanged { room: self.info(&state.room) },
            Change::TrackRemoved(person, track) => {
                Event::TrackRemoved { participant: participant_id(person), track: track_id(track) }
            }
        })
    }

    fn publication(&self, envelope: &EventEnvelope) -> Publication {
        // Strings, numbers and lists of them: there is nothing that JSON cannot hold.
        let data = serde_json::to_string(envelope).unwrap_or_default();
        Publication::new(&self.channel, &data)
    }

    fn deliver(&self, state: &State, publication: &Publication) {
        for person in state.room.people() {
            let member = state.members.get(&person.key);
            if let Some(socket) = member.and_then(|member| member.socket.as_ref()) {
                socket.deliver(publication);
            }
        }
    }
}

/// Who speaks; people of the audience with their names, which the others were not told.
pub(super) fn speakers_event(room: &Room) -> Event {
    let speakers = room.speaking().map(|(person, level_dbov)| {
        let unknown = room.person(person).filter(|_| !room.is_named(person));
        let name = unknown.map(|person| person.name.clone());
        Speaker { id: participant_id(person), level_dbov, name }
    });
    Event::ActiveSpeakers { speakers: speakers.collect() }
}

fn slots_event(changes: Vec<SlotChange>) -> Event {
    let slots = changes
        .into_iter()
        .map(|change| wire::event::SlotChange {
            slot: change.mid,
            participant: change.content.map(|(person, _)| participant_id(person)),
            track: change.content.map(|(_, track)| track_id(track)),
            mix: change.mix,
            paused: change.rests.then_some(PauseReason::Bandwidth),
            rtp_timestamp: change.rtp_timestamp,
        })
        .collect();
    Event::Slots { slots }
}
