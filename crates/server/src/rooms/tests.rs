//! Random calls of many sockets: every seat has a live socket or a deadline, and nothing is left over.

use super::*;
use crate::control;
use crate::lane::{ControlHandle, Lane};
use crate::socket::{Application, SocketOptions, Sockets};
use serde_json::json;
use serde_json::value::to_raw_value;
use std::net::SocketAddr;
use std::time::Duration;

/// SplitMix64: a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % most as u64) as usize
    }
}

/// A shard whose threads do nothing: nobody reads its queues, which are longer than a run.
pub(super) fn idle() -> ShardHandle {
    let control = ControlHandle::new(Lane::default(), control::queue().0);
    ShardHandle { media: MediaHandle::idle(), mix: MixHandle::idle(), control }
}

/// What a call comes to, null if it has no answer; none if it waits for another thread.
pub(super) fn outcome(
    rooms: &Rooms,
    socket: &Arc<Socket>,
    event: &str,
    data: serde_json::Value,
) -> Option<Result<serde_json::Value, RoomError>> {
    let data = to_raw_value(&data).unwrap();
    let answer = futures_util::FutureExt::now_or_never(rooms.call(socket, event, Some(&data)))?;
    let read = |answer: Box<serde_json::value::RawValue>| serde_json::from_str(answer.get());
    Some(answer.map(|answer| answer.map_or(serde_json::Value::Null, |a| read(a).unwrap())))
}

struct World {
    rooms: Arc<Rooms>,
    sockets: Arc<Sockets<Rooms>>,
    open: Vec<Arc<Socket>>,
    /// Room, participant and session of everybody who ever joined.
    known: Vec<(String, String, String)>,
    now: Instant,
    random: Random,
}

impl World {
    fn new(seed: u64) -> Self {
        Self::of(seed, idle())
    }

    fn of(seed: u64, shard: ShardHandle) -> Self {
        let metrics = Arc::new(Metrics::new());
        let auth = Arc::new(Auth::development());
        let limits = Limits { participants_per_room: 4, rooms: 3, ..Limits::default() };
        let rooms = Rooms::new(
            vec![shard],
            56,
            limits,
            MixConfig::default(),
            auth.clone(),
            metrics.clone(),
        );
        let rooms = Arc::new(rooms);
        let sockets =
            Sockets::new(rooms.clone(), SocketOptions::from(&limits), auth, metrics.clone());
        let (open, known, now) = (Vec::new(), Vec::new(), Instant::now());
        Self { rooms, sockets, open, known, now, random: Random(seed) }
    }

    fn connect(&mut self) -> Arc<Socket> {
        let socket = self.sockets.new_socket(SocketAddr::from(([127, 0, 0, 1], 9)));
        self.open.push(socket.clone());
        socket
    }

    fn close(&mut self, at: usize) {
        // In the order of a session's end.
        let socket = self.open.swap_remove(at);
        self.rooms.closed(&socket);
        socket.clear_state();
    }

    fn call(&self, socket: &Arc<Socket>, event: &str, data: serde_json::Value) -> Option<String> {
        let answer = outcome(&self.rooms, socket, event, data).expect("it waits for nobody");
        answer.ok().filter(|answer| !answer.is_null()).map(|answer| answer.to_string())
    }

    fn step(&mut self) {
        let socket = match self.random.below(self.open.len() + 1) {
            at if at < self.open.len() => self.open[at].clone(),
            _ => self.connect(),
        };
        let some = self.random.below(self.known.len().max(1));
        let known = self.known.get(some).cloned().unwrap_or_default();
        match self.random.below(8) {
            0..=2 => {
                let room = format!("r{}", self.random.below(4));
                let session = format!("s{}", self.random.below(5));
                let join = json!({ "room": room, "name": "x", "session": session });
                if let Some(answer) = self.call(&socket, "room.join", join) {
                    let joined: wire::room::Joined = serde_json::from_str(&answer).unwrap();
                    self.known.push((room, joined.participant, session));
                }
            }
            3..=4 => {
                let (room, participant, session) = known;
                let resume = json!({ "room": room, "participant": participant,
                    "session": session, "seen": self.random.below(3) });
                self.call(&socket, "room.resume", resume);
            }
            5 => {
                self.call(&socket, "room.leave", json!({}));
            }
            6 => {
                let lift = self.random.below(2) == 0;
                let remove = json!({ "participant": known.1, "lift": lift });
                self.call(&socket, "room.remove", remove);
            }
            _ => {
                if let Some(at) = self.open.iter().position(|open| open.id() == socket.id()) {
                    self.close(at);
                }
            }
        }
        self.now += Duration::from_secs(self.random.below(20) as u64);
        self.rooms.sweep(self.now);
    }

    fn check(&self) {
        let cells: Vec<_> = locked(&self.rooms.table).by_id.values().cloned().collect();
        let mut seats = 0;
        for cell in cells {
            let state = locked(&cell.state);
            for (person, member) in &state.members {
                assert!(member.is_held(*person), "{person:?} of {} is a ghost", cell.id);
                let lives =
                    |socket: &Arc<Socket>| self.open.iter().any(|open| open.id() == socket.id());
                assert!(member.socket.as_ref().is_none_or(lives), "{person:?}: a closed socket");
                seats += 1;
            }
            assert_eq!(state.members.len(), state.room.people().len());
        }
        assert_eq!(seats, self.rooms.people());
        assert_eq!(self.rooms.metrics.drops("rooms", "seat_not_held").get(), 0);
    }
}

#[test]
fn every_seat_has_a_live_socket_or_a_deadline_and_nothing_is_left_over() {
    let seeds = std::env::var("MOIM_SEEDS").map_or(50, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let told = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..120 {
                world.step();
                world.check();
            }
            while !world.open.is_empty() {
                world.close(0);
            }
            // A deadline counts from the moment of the loss, on the real clock.
            world.rooms.sweep(world.now.max(Instant::now()) + Duration::from_secs(61));
            assert_eq!(world.rooms.people(), 0, "nobody is left");
            assert!(locked(&world.rooms.table).by_id.is_empty(), "no room is left");
        });
        assert!(told.is_ok(), "seed {seed}");
    }
}

#[test]
fn while_a_thread_is_behind_nobody_gives_it_more_to_do_and_everybody_may_leave() {
    let (media, mut take) = MediaHandle::slow();
    let mut world = World::of(1, ShardHandle { media: media.clone(), ..idle() });
    let [there, newcomer] = [world.connect(), world.connect()];
    let join = json!({ "room": "r", "name": "x" });
    assert!(world.call(&there, "room.join", join.clone()).is_some());
    while !media.is_behind() {
        media.send(engine::Command::Forget { person: PersonKey(99) });
    }
    assert!(!media.send_on_tcp(SocketAddr::from(([127, 0, 0, 1], 9)), Vec::new()));
    for (socket, event) in [(&newcomer, "room.join"), (&there, "room.slots"), (&there, "room.mute")]
    {
        let refused = outcome(&world.rooms, socket, event, join.clone()).unwrap().unwrap_err();
        assert_eq!(refused.code, wire::ErrorCode::TooFast, "{event}: {refused:?}");
    }
    outcome(&world.rooms, &there, "room.leave", json!({})).unwrap().unwrap();
    let waited = std::iter::from_fn(|| take().then_some(())).count();
    assert!(waited > 16_384, "the leave waits as well: {waited}");
    assert!(world.call(&newcomer, "room.join", join).is_some());
}
