//! Rooms are made, changed, moderated and ended by HTTP while people come and go in them: nothing breaks, nobody else
//! waits, and nothing is left.

use crate::target::{AtEnd, Server, Socket, eventually};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::scope;

/// Ids that all of them use.
const ROOMS: usize = 10;
/// Rounds of each who makes rooms, and how many they are.
const ROUNDS: usize = 150;
const MAKERS: usize = 2;
/// Who come and go.
const GUESTS: usize = 3;
/// A join in another room is answered before so many further requests of makers and guests are.
const FAIR: usize = 100;
/// Memory that may be held in the end beyond that of the beginning.
const MORE: u64 = 32 << 20;
const PRESETS: [&str; 5] =
    ["mesh", "small_room_for_video", "large_room_for_audio_only", "small_call", "audio_room"];

/// What all of them share.
struct Load<'a> {
    server: &'a Server,
    /// Requests and calls that were answered.
    answered: AtomicUsize,
    makers: AtomicUsize,
}

/// Numbers that are the same in each run (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((z ^ (z >> 27)) % bound as u64) as usize
    }
}

impl Load<'_> {
    /// A request that may be refused, and must not break anything.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let headers = "Content-Type: application/json\r\n";
        let (status, _, answer) =
            self.server.request(method, self.server.http, path, headers, &text);
        assert!(status < 500, "{method} {path} {body}: {status} {answer}");
        self.answered.fetch_add(1, SeqCst);
        serde_json::from_str(&answer).unwrap_or(Value::Null)
    }

    fn make(&self, nth: usize) {
        let _ready = AtEnd(|| _ = self.makers.fetch_sub(1, SeqCst));
        let mut random = Random(nth as u64);
        for _ in 0..ROUNDS {
            let id = format!("m-{}", random.below(ROOMS));
            let (room, preset) = (format!("/v1/rooms/{id}"), PRESETS[random.below(PRESETS.len())]);
            self.ask(
                "POST",
                "/v1/rooms",
                &json!({ "id": id, "preset": preset, "metadata": { "of": nth } }),
            );
            let change = json!({ "locked": random.below(4) == 0, "metadata": "x".repeat(random.below(4000)),
                "limits": { "max_participants": 1 + random.below(6) } });
            self.ask("PATCH", &room, &change);
            let people = self.ask("GET", &format!("{room}/participants"), &Value::Null);
            for person in people["participants"].as_array().into_iter().flatten() {
                let who = person["id"].as_str().unwrap();
                for track in person["tracks"].as_array().into_iter().flatten() {
                    let track = format!("{room}/tracks/{}", track["id"].as_str().unwrap());
                    self.ask("PATCH", &track, &json!({ "muted": random.below(2) == 0 }));
                }
                if random.below(3) == 0 {
                    self.ask("DELETE", &format!("{room}/participants/{who}"), &Value::Null);
                    self.ask("DELETE", &format!("{room}/removals/{who}"), &Value::Null);
                }
            }
            if random.below(2) == 0 {
                self.ask("DELETE", &room, &Value::Null);
            }
        }
    }

    /// Comes and goes as long as rooms are made.
    fn visit(&self, nth: usize) {
        let (mut random, mut came) = (Random(100 + nth as u64), 0);
        while self.makers.load(SeqCst) > 0 {
            let mut socket = Socket::connect_from([127, 0, 0, 20 + nth as u8], self.server);
            for _ in 0..3 {
                let room = format!("m-{}", random.below(ROOMS));
                let join = json!({ "room": room, "name": "x", "session": format!("s-{nth}-{}", random.below(9)) });
                let joined = socket.try_call("room.join", &join);
                self.answered.fetch_add(1, SeqCst);
                match joined {
                    Ok(Ok(_)) => came += 1,
                    Ok(Err(error)) => {
                        assert_ne!(error["code"], "internal", "{error}");
                        continue;
                    }
                    Err(code) => panic!("closed with {code}"),
                }
                let tracks = json!({ "tracks": [{ "mid": "a", "kind": "audio" }] });
                let announced = socket.try_call("room.announce", &tracks);
                assert!(announced.is_ok(), "{announced:?}");
                // By leaving, or with the connection.
                if random.below(3) == 0 {
                    break;
                }
                assert!(socket.try_call("room.leave", &json!({})).is_ok());
            }
        }
        assert!(came > 10, "{came} times in a room");
    }

    /// Somebody else joins and leaves meanwhile; the most that others were answered during one join.
    fn bystand(&self, over: &AtomicBool) -> usize {
        let mut worst = 0;
        while !over.load(SeqCst) {
            let mut socket = Socket::connect_from([127, 0, 0, 2], self.server);
            for _ in 0..5 {
                let before = self.answered.load(SeqCst);
                socket.ask("room.join", json!({ "room": "quiet", "name": "x", "session": "s" }));
                worst = worst.max(self.answered.load(SeqCst) - before);
                socket.ask("room.leave", json!({}));
            }
        }
        worst
    }
}

#[test]
fn rooms_made_and_ended_by_http_while_people_come_and_go_leave_nothing() {
    let server = Server::with("guests: all\n");
    // What is allocated once is there.
    let mut first = Socket::connect(&server);
    first.ask("room.join", json!({ "room": "first", "name": "x" }));
    first.ask("room.leave", json!({}));
    drop(first);
    let before = server.resident_bytes();
    let load =
        Load { server: &server, answered: AtomicUsize::new(0), makers: AtomicUsize::new(MAKERS) };
    let over = AtomicBool::new(false);
    let worst = scope(|all| {
        let bystander = all.spawn(|| load.bystand(&over));
        let ready = AtEnd(|| over.store(true, SeqCst));
        scope(|busy| {
            let load = &load;
            (0..MAKERS).for_each(|nth| drop(busy.spawn(move || load.make(nth))));
            (0..GUESTS).for_each(|nth| drop(busy.spawn(move || load.visit(nth))));
        });
        drop(ready);
        bystander.join().unwrap()
    });
    let answered = load.answered.load(SeqCst);
    eprintln!("{answered} requests and calls; at most {worst} of them during a join elsewhere");
    assert!(answered > 4 * MAKERS * ROUNDS, "{answered} answers");
    assert!(worst <= FAIR, "a join elsewhere waited for {worst} others");
    (0..ROOMS)
        .for_each(|nth| drop(load.ask("DELETE", &format!("/v1/rooms/m-{nth}"), &Value::Null)));
    // The rest are seats whose sockets were lost.
    eventually("no room is left", || {
        let rooms = load.ask("GET", "/v1/rooms", &Value::Null);
        rooms["rooms"].as_array().unwrap().is_empty().then_some(())
    });
    for gauge in ["moim_rooms", "moim_participants"] {
        assert_eq!(server.metric(gauge), 0.0, "{gauge}");
    }
    eventually("no socket is left", || (server.metric("moim_sockets") == 0.0).then_some(()));
    assert_eq!(server.dropped("rooms", "seat_not_held"), 0);
    let more = server.resident_bytes().saturating_sub(before);
    eprintln!("{} KiB more", more >> 10);
    assert!(more <= MORE, "{} MiB more", more >> 20);
}
