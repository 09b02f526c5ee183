//! Rooms: who is in which, and the way between sockets, control threads and shards.
//!
//! Each room is an [`engine::room::Room`] behind one lock, with what the shell adds: names on the wire,
//! sockets, the log of events. Effects are handed on under that lock, so that every shard and every
//! person sees a room's changes in one order.
//!
//! `calls` is what sockets ask for, `inbox` what media and control threads report (it also takes people out who were
//! lost for too long), and `notices` how changes become events. `offers` bounds how much SDP a socket may have
//! negotiated, `audience` counts the participants whose names the others are not told, `mesh` passes descriptions on between
//! members, `moderation` is what some may do to others, `decisions` what holds of that after the seat is gone, `desk` what
//! an application's own server does with rooms, and `quality` how good the media is for everybody. `naming` says what ids and names may be, `claims` bounds seats and rooms by address and identity.

mod audience;
mod calls;
mod claims;
mod decisions;
mod desk;
mod inbox;
#[cfg(test)]
mod matrix;
mod mesh;
mod moderation;
mod naming;
mod notices;
mod offers;
mod quality;
#[cfg(test)]
mod scenes;
#[cfg(test)]
mod tests;

use crate::auth::{Auth, Grants};
use crate::config::{Limits, MixConfig};
use crate::lane::ControlHandle;
use crate::media::MediaHandle;
use crate::metrics::{Histogram, Metrics};
use crate::mix::MixHandle;
use crate::socket::Socket;
use claims::{Claim, Shares};
use decisions::Subject;
use engine::mix::Hear;
use engine::room::{Effects, Room, RoomLimits, RoomSetup, Topology};
use engine::{PersonKey, Report, RoomKey, ShardIndex};
use notices::Log;
use rtp::TransportAddress;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use wire::MediaFault;
use wire::event::LeaveReason;
use wire::room::{AudioTopology, Join, Preset, RoomInfo, VideoCodec, VideoTopology};
use wire::{ErrorCode, RoomError};

/// Inputs from media and control threads that may wait for the rooms.
pub(crate) const INPUTS: usize = 16_384;

/// What media and control threads tell the rooms.
#[derive(Debug)]
pub(crate) enum RoomInput {
    /// A shard reports.
    Report(Report),
    /// Something happened to a participant's transport.
    Transport(PersonKey, Happened),
}

/// What happened to a transport.
#[derive(Debug)]
pub(crate) enum Happened {
    /// ICE and DTLS are up, at this address.
    Connected(TransportAddress),
    /// Its address changed.
    Moved(TransportAddress),
    /// It gives no sign of life.
    MediaLost,
    /// It does again.
    MediaBack,
    /// It ended with an error: what kind, and the library's words.
    Failed(MediaFault, String),
    /// It is not up yet, and should be.
    NotUp(MediaFault),
}

/// What something that happened is about. Only the latest of each matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum About {
    /// Where the participant is.
    Address,
    /// Whether they give signs of life.
    Life,
    /// That the transport ended.
    End,
}

impl Happened {
    /// What it is about.
    pub(crate) fn about(&self) -> About {
        match self {
            Self::Connected(_) | Self::Moved(_) => About::Address,
            Self::MediaLost | Self::MediaBack => About::Life,
            Self::Failed(..) | Self::NotUp(_) => About::End,
        }
    }
}

/// A shard as rooms see it.
#[derive(Debug, Clone)]
pub(crate) struct ShardHandle {
    pub media: MediaHandle,
    pub mix: MixHandle,
    pub control: ControlHandle,
}

/// All rooms of a server.
#[derive(Debug)]
pub(crate) struct Rooms {
    table: Mutex<Table>,
    shards: Arc<[ShardHandle]>,
    /// People on each shard.
    placed: Vec<AtomicUsize>,
    /// Up to so many people of a room share a shard.
    keep_together: usize,
    auth: Arc<Auth>,
    limits: Limits,
    mix: MixConfig,
    metrics: Arc<Metrics>,
    budgets: offers::Budgets,
    passing: offers::Passing,
    shares: Shares,
    next_key: AtomicU64,
    draining: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<String, Arc<Cell>>,
    by_key: HashMap<RoomKey, Arc<Cell>>,
    by_person: HashMap<PersonKey, Arc<Cell>>,
}

/// A room with what the shell adds.
#[derive(Debug)]
struct Cell {
    key: RoomKey,
    id: String,
    audio: AudioTopology,
    video: VideoTopology,
    video_codec: VideoCodec,
    channel: String,
    shards: Arc<[ShardHandle]>,
    /// MOS-LQ of samples in all rooms of this kind.
    mos_lq: Histogram,
    /// Of the shares of whoever opened it; none of a room that the HTTP API made.
    _opened: Option<Claim>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    room: Room,
    log: Log,
    audience: audience::Audience,
    members: HashMap<PersonKey, Member>,
    history: quality::History,
    decisions: decisions::Decisions,
    /// What the application notes of it.
    metadata: Option<Box<RawValue>>,
    /// Until when a room that the HTTP API made waits for its first participant.
    reserved_until: Option<Instant>,
    /// Nobody may come in any more: the room is about to leave the table, or has left it.
    ended: bool,
}

#[derive(Debug)]
struct Member {
    /// What they may do.
    grants: Grants,
    /// Where their packets go.
    shard: ShardIndex,
    /// What proves that a resume comes from the same page or bot.
    session: Option<String>,
    socket: Option<Arc<Socket>>,
    socket_lost: Option<Instant>,
    media_lost: Option<Instant>,
    last_sample: Option<quality::Sample>,
    /// Whether their media connection was up at some time.
    had_media: bool,
    /// Of the shares of their address and identity.
    _claim: Claim,
}

impl Member {
    /// Whether a live socket holds the seat, or a deadline ends it. Otherwise the seat would stay for ever.
    fn is_held(&self, person: PersonKey) -> bool {
        let holds = |socket: &Arc<Socket>| {
            socket.state_of::<Seat>().is_some_and(|seat| seat.person == person)
        };
        self.socket.as_ref().map_or(self.socket_lost.is_some(), holds)
    }

    /// Replaces an expired token by a fresh one that the same participant sent by `#authenticate`, if there is one.
    fn renew(&mut self, room: &str) {
        if !self.grants.is_expired() {
            return;
        }
        let fresh = self.socket.as_ref().and_then(|socket| socket.grants());
        let same = |fresh: &Arc<Grants>| {
            fresh.can_join && fresh.holds_in(room) && fresh.identity == self.grants.identity
        };
        if let Some(fresh) = fresh.filter(|fresh| !fresh.is_expired()).filter(same) {
            self.grants = (*fresh).clone();
        }
    }
}

impl State {
    /// The seats of whoever has this one: all of the same identity, or of the same page where a token names none. Nothing
    /// tells a guest without a session from other guests: they have this one.
    fn seats_of(&self, person: PersonKey) -> Vec<PersonKey> {
        let subject = self.members.get(&person).and_then(Subject::of);
        let theirs = |member: &Member| subject.is_some() && Subject::of(member) == subject;
        let mut seats: Vec<PersonKey> = self
            .members
            .iter()
            .filter(|(key, member)| **key == person || theirs(member))
            .map(|(key, _)| *key)
            .collect();
        seats.sort_unstable();
        seats
    }

    /// The oldest seats of this identity that are one too many with another.
    fn too_many_of(&self, grants: &Grants, most: u32) -> Vec<PersonKey> {
        let is_theirs = |member: &Member| {
            grants.identity.is_some() && member.grants.identity == grants.identity
        };
        let seats = self.members.iter().filter(|(_, member)| is_theirs(member));
        let mut seats: Vec<PersonKey> = seats.map(|(person, _)| *person).collect();
        seats.sort_unstable();
        seats.truncate((seats.len() + 1).saturating_sub(most as usize));
        seats
    }

    /// How many people are here.
    fn count(&self) -> u32 {
        self.room.people().len() as u32
    }
}

/// A socket's participant.
#[derive(Debug)]
struct Seat {
    cell: Arc<Cell>,
    person: PersonKey,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rooms {
    /// No rooms yet, to be spread over these shards.
    pub(crate) fn new(
        shards: Vec<ShardHandle>,
        keep_together: usize,
        limits: Limits,
        mix: MixConfig,
        auth: Arc<Auth>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            table: Mutex::default(),
            placed: shards.iter().map(|_| AtomicUsize::new(0)).collect(),
            shards: shards.into(),
            keep_together,
            auth,
            limits,
            mix,
            shares: Shares::new(limits, metrics.clone()),
            metrics,
            budgets: offers::Budgets::default(),
            passing: offers::Passing::default(),
            next_key: AtomicU64::new(1),
            draining: AtomicBool::new(false),
        }
    }

    fn key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// People now, in all rooms.
    pub(crate) fn people(&self) -> usize {
        locked(&self.table).by_person.len()
    }

    /// No one new comes in from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// The shard of the next person of a room. A small room stays together, so that its packets need
    /// not cross, unless its shard has many more people than another. The next person of a larger room
    /// goes to where the fewest people are.
    fn place(&self, room: &Room) -> ShardIndex {
        let people = |shard: usize| self.placed[shard].load(Ordering::Relaxed);
        let least = (0..self.placed.len()).min_by_key(|shard| people(*shard)).unwrap_or_default();
        let own = room.people().next().map(|person| usize::from(person.shard.0));
        let together = own.filter(|shard| {
            let some = self.keep_together;
            room.people().len() < some && people(*shard) < people(least) + some
        });
        let shard = together.unwrap_or(least);
        self.placed[shard].fetch_add(1, Ordering::Relaxed);
        ShardIndex(shard as u16)
    }

    fn unplace(&self, shard: ShardIndex) {
        self.placed[usize::from(shard.0)].fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a thread is so far behind its commands that calls that add work are refused.
    fn is_behind(&self) -> bool {
        self.shards.iter().any(|shard| shard.media.is_behind() || shard.mix.is_behind())
    }

    /// The room of this id. If there is none, it is made, of the kind that this join asks for.
    fn open(&self, wanted: &Join, grants: &Grants, from: IpAddr) -> Result<Arc<Cell>, RoomError> {
        let mut table = locked(&self.table);
        if let Some(cell) = table.by_id.get(&wanted.room) {
            return Ok(cell.clone());
        }
        if !grants.can_create {
            let text = format!("there is no room {}, and the token may open none", wanted.room);
            return Err(RoomError::new(ErrorCode::NotAllowed, text));
        }
        let opened = self.shares.room(from, grants.identity.as_deref())?;
        self.make(&mut table, &wanted.room, &Kind::of(wanted), Some(opened))
    }

    /// The room of this id, if there is one.
    fn named(&self, id: &str) -> Option<Arc<Cell>> {
        locked(&self.table).by_id.get(id).cloned()
    }

    /// Makes a room; its id is free.
    fn make(
        &self,
        table: &mut Table,
        id: &str,
        kind: &Kind,
        opened: Option<Claim>,
    ) -> Result<Arc<Cell>, RoomError> {
        if self.draining.load(Ordering::Relaxed) {
            let text = "the server is ending: connect to another, or again later";
            return Err(RoomError::new(ErrorCode::Draining, text));
        }
        if table.by_id.len() >= self.limits.rooms as usize {
            let text = format!("this server has its {} rooms: try again later", self.limits.rooms);
            return Err(RoomError::new(ErrorCode::RoomFull, text));
        }
        let key = RoomKey(self.key());
        let Kind { audio, video, video_codec, max_participants } = *kind;
        let mut setup = self.setup(audio, video);
        if let Some(most) = max_participants {
            setup.limits.people = setup.limits.people.min(most as usize);
        }
        let cell = Arc::new(Cell {
            key,
            id: id.to_owned(),
            audio,
            video,
            video_codec,
            channel: wire::frame::room_channel(id),
            shards: self.shards.clone(),
            mos_lq: self.metrics.mos_lq(audio, video),
            _opened: opened,
            state: Mutex::new(State {
                room: Room::new(key, setup),
                log: Log::default(),
                audience: audience::Audience::default(),
                members: HashMap::new(),
                history: quality::History::default(),
                decisions: decisions::Decisions::default(),
                metadata: None,
                reserved_until: None,
                ended: false,
            }),
        });
        table.by_id.insert(id.to_owned(), cell.clone());
        table.by_key.insert(key, cell.clone());
        self.metrics.rooms.set(table.by_id.len() as i64);
        tracing::info!(room = id, ?audio, ?video, "room opened");
        Ok(cell)
    }

    fn setup(&self, audio: AudioTopology, video: VideoTopology) -> RoomSetup {
        let mut people = self.limits.participants_per_room;
        if audio == AudioTopology::Mesh || video == VideoTopology::Mesh {
            people = people.min(self.limits.participants_per_mesh);
        }
        let limits = RoomLimits {
            people: people as usize,
            roster: self.limits.roster as usize,
            audio_slots: self.limits.audio_slots,
            video_slots: self.limits.video_slots,
        };
        RoomSetup {
            audio: match audio {
                AudioTopology::Mesh => Topology::Mesh,
                AudioTopology::Sfu => Topology::Sfu,
                AudioTopology::Mcu => Topology::Mcu,
            },
            video: match video {
                VideoTopology::None => Topology::None,
                VideoTopology::Mesh => Topology::Mesh,
                VideoTopology::Sfu => Topology::Sfu,
            },
            hear: match self.mix.everyone {
                true => Hear::Everyone,
                false => Hear::Loudest(self.limits.loudest),
            },
            mix_packet: self.mix.packet,
            shards: self.shards.len() as u16,
            limits,
        }
    }

    fn cell_of(&self, person: PersonKey) -> Option<Arc<Cell>> {
        locked(&self.table).by_person.get(&person).cloned()
    }

    fn enter(&self, person: PersonKey, cell: &Arc<Cell>) {
        let mut table = locked(&self.table);
        table.by_person.insert(person, cell.clone());
        self.metrics.participants.set(table.by_person.len() as i64);
    }

    /// Takes someone out of their room. The last one ends it.
    fn leave(&self, cell: &Arc<Cell>, person: PersonKey, reason: LeaveReason) {
        let mut state = locked(&cell.state);
        let mut effects = Effects::default();
        if state.room.leave(person, &mut effects).is_err() {
            return;
        }
        let member = state.members.remove(&person);
        let shard = member.as_ref().map_or(ShardIndex(0), |member| member.shard);
        if let Some(socket) = member.and_then(|member| member.socket) {
            socket.clear_state();
        }
        cell.apply(&mut state, effects, reason);
        let empty = state.members.is_empty();
        state.ended |= empty;
        drop(state);
        self.unplace(shard);
        // This comes after all their offers, which are handed over under the room's lock while they are in it.
        cell.shard(shard).control.close(person);
        let mut table = locked(&self.table);
        table.by_person.remove(&person);
        self.metrics.participants.set(table.by_person.len() as i64);
        if empty {
            self.forget(&mut table, cell);
        }
        drop(table);
        let (room, participant) = (&cell.id, notices::participant_id(person));
        tracing::info!(room, participant, ?reason, "participant left");
        if empty {
            tracing::info!(room, "room ended");
        }
    }

    /// Ends a room that somebody opened who then did not come in, unless somebody else has.
    fn end_if_empty(&self, cell: &Cell) {
        let mut state = locked(&cell.state);
        if !state.members.is_empty() || state.reserved_until.is_some() || state.ended {
            return;
        }
        state.ended = true;
        drop(state);
        self.forget(&mut locked(&self.table), cell);
    }

    /// Takes a room that has ended out of the table. Another of its id may stand there by now.
    fn forget(&self, table: &mut Table, cell: &Cell) {
        if table.by_id.get(&cell.id).is_some_and(|known| known.key == cell.key) {
            table.by_id.remove(&cell.id);
        }
        table.by_key.remove(&cell.key);
        self.metrics.rooms.set(table.by_id.len() as i64);
    }

    /// Ends a room, and tells everyone why; false if it has ended already. Who asks for its id meanwhile opens another.
    fn end_room(&self, cell: &Arc<Cell>, why: &str, reason: LeaveReason) -> bool {
        let people: Vec<PersonKey> = {
            let mut state = locked(&cell.state);
            if std::mem::replace(&mut state.ended, true) {
                return false;
            }
            cell.tell_all(&mut state, wire::Event::RoomEnded { reason: why.to_owned() });
            state.room.people().map(|person| person.key).collect()
        };
        self.forget(&mut locked(&self.table), cell);
        for person in people {
            self.leave(cell, person, reason);
        }
        true
    }

    /// Ends all rooms, and tells everyone why.
    pub(crate) fn end_all(&self, why: &str) {
        let cells: Vec<Arc<Cell>> = locked(&self.table).by_id.values().cloned().collect();
        for cell in cells {
            self.end_room(&cell, why, LeaveReason::ServerShutdown);
        }
    }
}

/// The kind of a room that is to be made.
struct Kind {
    audio: AudioTopology,
    video: VideoTopology,
    video_codec: VideoCodec,
    /// Its own limit of people.
    max_participants: Option<u32>,
}

impl Kind {
    /// Of the room that this join would open.
    fn of(join: &Join) -> Self {
        Self::named(join.preset, join.audio, join.video, join.video_codec)
    }

    /// A preset, and what is said beside it.
    fn named(
        preset: Option<Preset>,
        audio: Option<AudioTopology>,
        video: Option<VideoTopology>,
        video_codec: Option<VideoCodec>,
    ) -> Self {
        let topologies = preset.map_or_else(Default::default, Preset::topologies);
        Self {
            audio: audio.unwrap_or(topologies.0),
            video: video.unwrap_or(topologies.1),
            video_codec: video_codec.unwrap_or_default(),
            max_participants: preset.and_then(Preset::max_participants),
        }
    }
}

impl Cell {
    fn shard(&self, index: ShardIndex) -> &ShardHandle {
        &self.shards[usize::from(index.0)]
    }

    /// The room as its people see it now.
    fn info(&self, room: &Room) -> RoomInfo {
        let limits = room.limits();
        RoomInfo {
            id: self.id.clone(),
            audio: self.audio,
            video: self.video,
            video_codec: self.video_codec,
            locked: room.locked(),
            limits: wire::room::RoomLimits {
                max_participants: limits.people as u32,
                max_audio_slots: limits.audio_slots,
                max_video_slots: limits.video_slots,
            },
        }
    }

    /// The video format of the room's transports, if video passes through the server.
    fn format(&self) -> Option<transport::VideoFormat> {
        match (self.video, self.video_codec) {
            (VideoTopology::None | VideoTopology::Mesh, _) => None,
            (_, VideoCodec::Vp8) => Some(transport::VideoFormat::Vp8),
            (_, VideoCodec::H264) => Some(transport::VideoFormat::H264),
            (_, VideoCodec::Vp9) => Some(transport::VideoFormat::Vp9),
            (_, VideoCodec::Av1) => Some(transport::VideoFormat::Av1),
        }
    }
}
