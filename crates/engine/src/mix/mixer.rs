//! The mixer: its rooms, and which tick is due.

use super::message::{MixCommand, MixFrame, MixPeer, MixSink};
use super::rank::Ranked;
use super::room::{Layout, Room, Turn};
use super::stats::MixStats;
use crate::command::{PersonKey, RoomKey, ShardIndex, TrackKey};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Length of a tick.
pub const TICK: Duration = Duration::from_millis(20);
/// How long into a tick the sums of other shards are waited for.
pub const SUM_WAIT: Duration = Duration::from_millis(10);
/// Most ticks run at once when the thread was late; what is due beyond them is left out.
const CATCH_UP: u64 = 3;
/// Sums of this many ticks ahead are kept: another mixer's thread may be sooner.
const AHEAD: u64 = 4;

/// The mixer of one shard. It has no clock: call [`handle_timeout`](Self::handle_timeout) when
/// [`next_deadline`](Self::next_deadline) has come, which may be in the past.
#[derive(Debug)]
pub struct Mixer {
    shard: ShardIndex,
    epoch: Instant,
    /// How long after its time the work of a tick is done.
    backlog: Duration,
    rooms: BTreeMap<RoomKey, Room>,
    tracks: BTreeMap<TrackKey, RoomKey>,
    listeners: BTreeMap<PersonKey, RoomKey>,
    /// The tick to run next; none before the first room.
    next: Option<u64>,
    /// The tick whose second half is to come in some rooms, and whether one of them has all sums.
    half: Option<u64>,
    complete: bool,
    stats: MixStats,
}

impl Mixer {
    /// The mixer of `shard`. All mixers of a server share `epoch`, the beginning of tick 0.
    pub fn new(shard: ShardIndex, epoch: Instant) -> Self {
        Self {
            shard,
            epoch,
            backlog: Duration::ZERO,
            rooms: BTreeMap::new(),
            tracks: BTreeMap::new(),
            listeners: BTreeMap::new(),
            next: None,
            half: None,
            complete: false,
            stats: MixStats::default(),
        }
    }

    /// The same, always behind by a backlog of ticks that it never catches up, for tests of who
    /// measures it. Frames that came before a tick's time are to be put in before its work is done,
    /// later ones after it.
    pub fn with_backlog(self, backlog: Duration) -> Self {
        Self { backlog, ..self }
    }

    /// The time whose work is done at `now`.
    fn work_at(&self, now: Instant) -> Instant {
        now.checked_sub(self.backlog).unwrap_or(self.epoch)
    }

    /// What it counted.
    pub fn stats(&self) -> &MixStats {
        &self.stats
    }

    fn time_of(&self, tick: u64) -> Instant {
        self.epoch + Duration::from_millis(tick * TICK.as_millis() as u64)
    }

    /// The room tells something.
    pub fn command(&mut self, command: MixCommand) {
        match command {
            MixCommand::Room { room, home, talking, listening, hear, packet_ticks } => {
                let layout = Layout { home, talking, listening, hear, packet_ticks };
                match self.rooms.get_mut(&room) {
                    Some(room) => room.set_layout(layout),
                    None => drop(self.rooms.insert(room, Room::new(room, layout))),
                }
            }
            MixCommand::End { room } => self.end_room(room),
            MixCommand::AddTrack { room, person, track, music } => {
                match self.rooms.get_mut(&room) {
                    Some(known) => {
                        known.add_track(track, person, music);
                        self.tracks.insert(track, room);
                    }
                    None => self.stats.commands_unknown += 1,
                }
            }
            MixCommand::RemoveTrack { track } => {
                let room = self.tracks.remove(&track).and_then(|room| self.rooms.get_mut(&room));
                match room {
                    Some(room) => room.remove_track(track, &mut self.stats),
                    None => self.stats.commands_unknown += 1,
                }
            }
            MixCommand::Silence { track, on } => match find(&self.tracks, &mut self.rooms, track) {
                Some(found) => found.set_silenced(on, &mut self.stats),
                None => self.stats.commands_unknown += 1,
            },
            MixCommand::Listen { room, person } => {
                if self.listeners.get(&person).is_some_and(|old| *old != room) {
                    self.unlisten(person);
                }
                match self.rooms.get_mut(&room) {
                    Some(known) => {
                        known.listen(person);
                        self.listeners.insert(person, room);
                    }
                    None => self.stats.commands_unknown += 1,
                }
            }
            MixCommand::Unlisten { person } => self.unlisten(person),
        }
    }

    fn unlisten(&mut self, person: PersonKey) {
        match self.listeners.remove(&person).and_then(|room| self.rooms.get_mut(&room)) {
            Some(room) => room.unlisten(person),
            None => self.stats.commands_unknown += 1,
        }
    }

    fn end_room(&mut self, room: RoomKey) {
        let Some(mut room) = self.rooms.remove(&room) else {
            self.stats.commands_unknown += 1;
            return;
        };
        room.end(&mut self.stats);
        let (tracks, listeners) = room.people();
        for track in tracks {
            self.tracks.remove(&track);
        }
        for person in listeners {
            self.listeners.remove(&person);
        }
        if self.rooms.is_empty() {
            (self.next, self.half) = (None, None);
        }
    }

    /// A packet of sound came.
    pub fn frame(&mut self, frame: MixFrame) {
        self.stats.frames_in += 1;
        match find(&self.tracks, &mut self.rooms, frame.track) {
            Some(track) => track.put(&frame, &mut self.stats),
            None => self.stats.unknown_track += 1,
        }
    }

    /// Another mixer tells something, at `now`.
    pub fn peer(&mut self, message: MixPeer, now: Instant) {
        let now = self.work_at(now);
        match message {
            MixPeer::Levels { room, shard, tick: _, top } => {
                if let Some(room) = self.rooms.get_mut(&room) {
                    room.take_levels(shard, top);
                }
            }
            MixPeer::Rank { room, from_tick, tracks, shards } => {
                if let Some(room) = self.rooms.get_mut(&room) {
                    room.take_rank(from_tick, Ranked { tracks, shards });
                }
            }
            MixPeer::Sum { room, shard, tick, samples } => {
                self.stats.sums_received += 1;
                let next = self.next.unwrap_or(0);
                let ahead = (next..=next + AHEAD).contains(&tick);
                let waited = self.half == Some(tick) && now < self.time_of(tick) + SUM_WAIT;
                let found = self.rooms.get_mut(&room);
                match found.filter(|room| ahead || (waited && room.is_open())) {
                    Some(room) => {
                        room.take_sum(tick, shard, samples);
                        self.complete |= self.half == Some(tick) && room.is_complete(tick);
                    }
                    None => self.stats.sums_unused += 1,
                }
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next; none without a room.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.rooms.is_empty() {
            return None;
        }
        let time = match (self.half, self.next) {
            (_, None) => self.epoch,
            (Some(half), _) if self.complete => self.time_of(half),
            (Some(half), _) => self.time_of(half) + SUM_WAIT,
            (None, Some(next)) => self.time_of(next),
        };
        Some(time + self.backlog)
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant, sink: &mut impl MixSink) {
        if self.rooms.is_empty() {
            return;
        }
        let (clock, now) = (now, self.work_at(now));
        let since = now.saturating_duration_since(self.epoch);
        let due = (since.as_millis() / TICK.as_millis()) as u64;
        let Some(next) = self.next else {
            self.next = Some(due + 1);
            return;
        };
        self.settle(now, sink);
        if next > due {
            return;
        }
        let first = next.max((due + 1).saturating_sub(CATCH_UP));
        self.stats.ticks_skipped += first - next;
        for tick in first..=due {
            let time = self.time_of(tick);
            self.settle(time + SUM_WAIT, sink);
            self.stats.ticks += 1;
            self.stats.ticks_late += u64::from(clock.saturating_duration_since(time) > TICK);
            (self.next, self.half) = (Some(tick + 1), Some(tick));
            let mut turn = Turn { shard: self.shard, stats: &mut self.stats, sink };
            self.rooms.values_mut().for_each(|room| room.begin(tick, time, &mut turn));
            self.settle(time, sink);
        }
        self.settle(now, sink);
    }

    /// The second halves that can be done at `now`.
    fn settle(&mut self, now: Instant, sink: &mut impl MixSink) {
        let Some(tick) = self.half else { return };
        let over = now >= self.time_of(tick) + SUM_WAIT;
        let mut turn = Turn { shard: self.shard, stats: &mut self.stats, sink };
        let mut open = false;
        for room in self.rooms.values_mut() {
            room.settle(tick, over, &mut turn);
            open |= room.is_open();
        }
        self.half = self.half.filter(|_| open);
        self.complete = false;
    }
}

fn find<'a>(
    tracks: &BTreeMap<TrackKey, RoomKey>,
    rooms: &'a mut BTreeMap<RoomKey, Room>,
    track: TrackKey,
) -> Option<&'a mut super::track::Track> {
    rooms.get_mut(tracks.get(&track)?)?.track(track)
}
