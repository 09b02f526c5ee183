//! Who sends streams in a room. WHIP and WHEP leave it to an application to tell people of each other; here it is the lab.

use crate::clients::seat::Incoming;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use wire::event::{Event, EventEnvelope, LeaveReason};
use wire::room::{MediaKind, ParticipantInfo, TrackInfo};

/// Everybody in a room, by the name of their stream.
type Room = BTreeMap<String, Member>;

/// All rooms of this process, by server and name.
static ROOMS: Mutex<BTreeMap<String, Room>> = Mutex::new(BTreeMap::new());

struct Member {
    name: String,
    incoming: mpsc::Sender<Incoming>,
    /// What they send; none: nothing yet.
    sends: Option<Vec<MediaKind>>,
}

/// Somebody's presence in a room. Dropping it is leaving.
pub(super) struct Presence {
    room: String,
    /// The name of their stream.
    pub(super) own: String,
}

fn rooms() -> MutexGuard<'static, BTreeMap<String, Room>> {
    ROOMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The track of a kind in a stream, by a name that all of the room know it by.
pub(super) fn track_id(stream: &str, kind: MediaKind) -> String {
    match kind {
        MediaKind::Audio => format!("{stream}/audio"),
        MediaKind::Video => format!("{stream}/video"),
    }
}

/// Streams that were named so far: who comes again sends another one.
static STREAMS: AtomicU64 = AtomicU64::new(0);

/// The name of a stream in a URL's path.
fn stream_name(room: &str, person: &str) -> String {
    let known = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let number = STREAMS.fetch_add(1, Relaxed);
    format!("{room}-{person}-{number}").chars().map(known).collect()
}

impl Presence {
    /// Enters a room of a server; those who send there already.
    pub(super) fn enter(
        server: &str,
        room: &str,
        person: &str,
        incoming: mpsc::Sender<Incoming>,
    ) -> (Self, Vec<ParticipantInfo>) {
        let (room_key, own) = (format!("{server} {room}"), stream_name(room, person));
        let mut rooms = rooms();
        let members = rooms.entry(room_key.clone()).or_default();
        let senders = members.iter().filter_map(|(stream, member)| info(stream, member));
        let senders = senders.collect();
        members.insert(own.clone(), Member { name: person.to_owned(), incoming, sends: None });
        (Self { room: room_key, own }, senders)
    }

    /// The own stream is there: the others may ask for it.
    pub(super) fn sends(&self, kinds: Vec<MediaKind>) {
        let mut rooms = rooms();
        let Some(members) = rooms.get_mut(&self.room) else { return };
        if let Some(own) = members.get_mut(&self.own) {
            own.sends = Some(kinds);
            tell_others(members, &self.own, || Incoming::Call(self.own.clone()));
        }
    }

    /// Whether somebody is still there.
    pub(super) fn has(&self, stream: &str) -> bool {
        rooms().get(&self.room).is_some_and(|members| members.contains_key(stream))
    }

    /// Leaves, once.
    pub(super) fn leave(&self) {
        let mut rooms = rooms();
        let Some(members) = rooms.get_mut(&self.room) else { return };
        if members.remove(&self.own).is_none() {
            return;
        }
        let count = members.len() as u32;
        tell_others(members, &self.own, || {
            let (participant, reason) = (self.own.clone(), LeaveReason::Left);
            let event = Event::ParticipantLeft { participant, reason, count };
            Incoming::Event(String::new(), EventEnvelope { epoch: 0, event })
        });
        if count == 0 {
            rooms.remove(&self.room);
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.leave();
    }
}

fn tell_others(members: &Room, own: &str, what: impl Fn() -> Incoming) {
    for (_, member) in members.iter().filter(|(stream, _)| *stream != own) {
        // Where the queue is full they lack a stream, and the checks of the run say so.
        let _ = member.incoming.try_send(what());
    }
}

fn info(stream: &str, member: &Member) -> Option<ParticipantInfo> {
    let track = |kind: &MediaKind| TrackInfo {
        id: track_id(stream, *kind),
        kind: *kind,
        name: String::new(),
        muted: false,
        silenced: false,
    };
    Some(ParticipantInfo {
        id: stream.to_owned(),
        name: member.name.clone(),
        tracks: member.sends.as_ref()?.iter().map(track).collect(),
        hand: false,
    })
}
