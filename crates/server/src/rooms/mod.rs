//! Rooms: who is in which, and the way between sockets, control threads and shards.
//!
//! Each room is [`engine::room::Room`] behind one lock with what the shell adds: names on the wire,
//! sockets, the log of events. Under that lock effects are handed on at once, so that every shard
//! and every person sees a room's changes in one order. `calls` is what sockets ask for, `inbox`
//! what media and control threads tell, `notices` how changes become events.

mod calls;
mod inbox;
mod notices;

use crate::config::Limits;
use crate::control::ControlInput;
use crate::media::MediaHandle;
use crate::metrics::Metrics;
use crate::socket::Socket;
use engine::room::{Effects, Room, RoomLimits};
use engine::{PersonKey, Report, RoomKey};
use notices::Log;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use wire::event::LeaveReason;
use wire::room::{AudioTopology, RoomInfo, VideoCodec, VideoTopology};
use wire::{ErrorCode, QualitySample, RoomError};

/// Inputs from media and control threads that may wait for the rooms.
pub(crate) const INPUTS: usize = 16_384;

/// What media and control threads tell the rooms.
#[derive(Debug)]
pub(crate) enum RoomInput {
    /// A shard reports.
    Report(Report),
    /// Someone's ICE and DTLS are up.
    Connected { person: PersonKey, remote: SocketAddr },
    /// Someone's address changed.
    Moved { person: PersonKey, remote: SocketAddr },
    /// No sign of life on someone's transport.
    MediaLost { person: PersonKey },
    /// It is back.
    MediaBack { person: PersonKey },
    /// Someone's transport ended with an error.
    Failed { person: PersonKey, why: String },
}

/// A shard as rooms see it.
#[derive(Debug, Clone)]
pub(crate) struct ShardHandle {
    pub media: MediaHandle,
    pub control: SyncSender<ControlInput>,
}

/// All rooms of a server.
#[derive(Debug)]
pub(crate) struct Rooms {
    table: Mutex<Table>,
    shards: Vec<ShardHandle>,
    limits: Limits,
    metrics: Arc<Metrics>,
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
    info: RoomInfo,
    channel: String,
    shard: ShardHandle,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    room: Room,
    log: Log,
    members: HashMap<PersonKey, Member>,
    /// Nobody may come in any more: the room is out of the table.
    ended: bool,
}

#[derive(Debug)]
struct Member {
    /// What proves that a resume comes from the same page or bot.
    session: Option<String>,
    socket: Option<Arc<Socket>>,
    socket_lost: Option<Instant>,
    media_lost: Option<Instant>,
    last_sample: Option<QualitySample>,
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
    pub(crate) fn new(shards: Vec<ShardHandle>, limits: Limits, metrics: Arc<Metrics>) -> Self {
        Self {
            table: Mutex::default(),
            shards,
            limits,
            metrics,
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

    /// The room of this id, made if there is none. The first who asks decides its kind.
    fn open(&self, wanted: &wire::room::Join) -> Result<Arc<Cell>, RoomError> {
        let mut table = locked(&self.table);
        if let Some(cell) = table.by_id.get(&wanted.room) {
            return Ok(cell.clone());
        }
        if self.draining.load(Ordering::Relaxed) {
            let text = "the server is ending: connect to another, or again later";
            return Err(RoomError::new(ErrorCode::Draining, text));
        }
        if table.by_id.len() >= self.limits.rooms as usize {
            let text = format!("this server has its {} rooms: try again later", self.limits.rooms);
            return Err(RoomError::new(ErrorCode::RoomFull, text));
        }
        let key = RoomKey(self.key());
        let limits = RoomLimits {
            people: self.limits.participants_per_room as usize,
            audio_slots: self.limits.audio_slots,
            video_slots: self.limits.video_slots,
        };
        let cell = Arc::new(Cell {
            key,
            info: RoomInfo {
                id: wanted.room.clone(),
                audio: wanted.audio.unwrap_or_default(),
                video: wanted.video.unwrap_or_default(),
                video_codec: wanted.video_codec.unwrap_or_default(),
                limits: wire::room::RoomLimits {
                    max_participants: self.limits.participants_per_room,
                    max_audio_slots: self.limits.audio_slots,
                    max_video_slots: self.limits.video_slots,
                },
            },
            channel: wire::frame::room_channel(&wanted.room),
            shard: self.shards[key.0 as usize % self.shards.len()].clone(),
            state: Mutex::new(State {
                room: Room::new(key, limits),
                log: Log::default(),
                members: HashMap::new(),
                ended: false,
            }),
        });
        table.by_id.insert(wanted.room.clone(), cell.clone());
        table.by_key.insert(key, cell.clone());
        self.metrics.rooms.set(table.by_id.len() as i64);
        tracing::info!(room = wanted.room, "room opened");
        Ok(cell)
    }

    fn cell_of(&self, person: PersonKey) -> Option<Arc<Cell>> {
        locked(&self.table).by_person.get(&person).cloned()
    }

    fn enter(&self, person: PersonKey, cell: &Arc<Cell>) {
        let mut table = locked(&self.table);
        table.by_person.insert(person, cell.clone());
        self.metrics.participants.set(table.by_person.len() as i64);
    }

    /// Someone goes; the last one ends the room.
    fn leave(&self, cell: &Arc<Cell>, person: PersonKey, reason: LeaveReason) {
        let mut state = locked(&cell.state);
        let mut effects = Effects::default();
        if state.room.leave(person, &mut effects).is_err() {
            return;
        }
        let member = state.members.remove(&person);
        if let Some(socket) = member.and_then(|member| member.socket) {
            socket.clear_state();
        }
        cell.apply(&mut state, effects, reason);
        let empty = state.members.is_empty();
        state.ended |= empty;
        drop(state);
        let close = ControlInput::Close { person };
        if cell.shard.control.try_send(close).is_err() {
            self.metrics.dropped("rooms", "control_queue_full");
        }
        let mut table = locked(&self.table);
        table.by_person.remove(&person);
        self.metrics.participants.set(table.by_person.len() as i64);
        if empty {
            table.by_id.remove(&cell.info.id);
            table.by_key.remove(&cell.key);
            self.metrics.rooms.set(table.by_id.len() as i64);
        }
        drop(table);
        let (room, participant) = (&cell.info.id, notices::participant_id(person));
        tracing::info!(room, participant, ?reason, "participant left");
        if empty {
            tracing::info!(room, "room ended");
        }
    }

    /// Ends all rooms, and says why to everyone.
    pub(crate) fn end_all(&self, why: &str) {
        let cells: Vec<Arc<Cell>> = locked(&self.table).by_id.values().cloned().collect();
        for cell in cells {
            let people: Vec<PersonKey> = {
                let mut state = locked(&cell.state);
                cell.tell_all(&mut state, wire::Event::RoomEnded { reason: why.to_owned() });
                state.room.people().iter().map(|person| person.key).collect()
            };
            for person in people {
                self.leave(&cell, person, LeaveReason::ServerShutdown);
            }
        }
    }
}

/// The kinds a room can have here.
fn supported(join: &wire::room::Join) -> Result<(), RoomError> {
    let unsupported = |what: &str| {
        let text = format!("{what} rooms are not offered by this version: use sfu");
        Err(RoomError::new(ErrorCode::KindUnsupported, text))
    };
    match (join.audio, join.video) {
        (Some(AudioTopology::Mesh), _) | (_, Some(VideoTopology::Mesh)) => unsupported("mesh"),
        (Some(AudioTopology::Mcu), _) => unsupported("mcu"),
        _ => Ok(()),
    }
}

impl Cell {
    /// The video format of the room's transports, if it has video.
    fn format(&self) -> Option<transport::VideoFormat> {
        match (self.info.video, self.info.video_codec) {
            (VideoTopology::None, _) => None,
            (_, VideoCodec::Vp8) => Some(transport::VideoFormat::Vp8),
            (_, VideoCodec::H264) => Some(transport::VideoFormat::H264),
        }
    }
}
