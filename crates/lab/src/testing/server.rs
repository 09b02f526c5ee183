//! A server in miniature: sockets with rooms but no media, `/healthz` and `/metrics`. It passes on
//! what the members of a mesh say to each other, and gives everyone of a mixed room a mix.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Message;

/// What the server knows; tests look into it.
#[derive(Debug, Default)]
pub struct World {
    /// Samples posted.
    pub samples: Vec<Value>,
    /// Calls seen, by name.
    pub calls: Vec<String>,
    /// Names that are refused at joining.
    pub refuse: Vec<String>,
    /// Sockets to cut at their next sample or leave, by participant.
    pub cut: Vec<String>,
    /// Heartbeats answered.
    pub heartbeats: usize,
    rooms: BTreeMap<String, Room>,
    participants: usize,
}

#[derive(Debug, Default)]
struct Room {
    audio: Value,
    video: Value,
    epoch: u64,
    log: Vec<Value>,
    people: BTreeMap<String, Person>,
}

#[derive(Debug)]
struct Person {
    name: String,
    tracks: Vec<Value>,
    slots: u32,
    mix: bool,
    socket: mpsc::UnboundedSender<String>,
}

/// A running server.
#[derive(Debug, Clone)]
pub struct FakeServer {
    pub port: u16,
    pub world: Arc<Mutex<World>>,
}

impl FakeServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        let world = Arc::new(Mutex::new(World::default()));
        let shared = Arc::clone(&world);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { port, world }
    }

    pub fn socket(&self) -> String {
        format!("ws://127.0.0.1:{}/socketcluster/", self.port)
    }

    pub fn with<T>(&self, work: impl FnOnce(&mut World) -> T) -> T {
        work(&mut self.world.lock().expect("world"))
    }
}

async fn serve(mut stream: TcpStream, world: Arc<Mutex<World>>) {
    let mut head = [0u8; 64];
    let n = stream.peek(&mut head).await.unwrap_or(0);
    if !head[..n].starts_with(b"GET /socketcluster/") {
        let _ = stream.read(&mut [0u8; 1024]).await;
        let text = "HTTP/1.1 200 OK\r\n\r\nmoim_media_packets_out_total{thread=\"media-0\"} 9\n";
        let _ = stream.write_all(text.as_bytes()).await;
        return;
    }
    let Ok(socket) = accept_async(stream).await else { return };
    let (mut sink, mut source) = socket.split();
    let (sender, mut outbox) = mpsc::unbounded_channel::<String>();
    let mut me: Option<(String, String)> = None;
    loop {
        let packet: Value = tokio::select! {
            text = outbox.recv() => {
                if sink.send(Message::text(text.expect("own sender"))).await.is_err() { return }
                continue;
            }
            message = source.next() => match message {
                Some(Ok(Message::Text(text))) if text.is_empty() => {
                    world.lock().expect("world").heartbeats += 1;
                    continue;
                }
                Some(Ok(Message::Text(text))) => serde_json::from_str(&text).expect("JSON"),
                _ => return,
            },
        };
        let answer = {
            let mut world = world.lock().expect("world");
            let event = packet["event"].as_str();
            let cut = me.as_ref().is_some_and(|(_, id)| world.cut.contains(id))
                && matches!(event, Some("quality.sample" | "room.leave"));
            if cut {
                world.cut.retain(|id| Some(id) != me.as_ref().map(|(_, id)| id));
                return;
            }
            world.packet(&packet, &mut me, &sender)
        };
        if let Some(cid) = packet["cid"].as_u64() {
            let mut frame = match answer {
                Ok(data) => json!({ "rid": cid, "data": data }),
                Err(code) => {
                    let error =
                        json!({ "name": "RoomError", "code": code, "message": "on purpose" });
                    json!({ "rid": cid, "error": error })
                }
            };
            if frame["data"].is_null() {
                frame.as_object_mut().expect("object").remove("data");
            }
            let _ = sender.send(frame.to_string());
        }
    }
}

impl World {
    fn packet(
        &mut self,
        packet: &Value,
        me: &mut Option<(String, String)>,
        socket: &mpsc::UnboundedSender<String>,
    ) -> Result<Value, &'static str> {
        let event = packet["event"].as_str().expect("event").to_owned();
        let data = &packet["data"];
        self.calls.push(event.clone());
        match event.as_str() {
            "#handshake" => {
                let _ = socket.send(String::new());
                let id = "abcdefghijklmnopqrst";
                Ok(json!({ "id": id, "pingTimeout": 30000, "isAuthenticated": false }))
            }
            "room.join" => self.join(data, me, socket),
            "room.offer" => {
                let (room, id) = me.clone().ok_or("not_joined")?;
                Ok(self.offer(&room, &id, data))
            }
            "room.announce" => {
                let (room, id) = me.clone().ok_or("not_joined")?;
                Ok(self.announce(&room, &id, data))
            }
            "room.peer_offer" | "room.peer_answer" | "room.peer_candidate" => {
                let (room, id) = me.clone().ok_or("not_joined")?;
                let mut event = data.clone();
                event["type"] = packet["event"].as_str().expect("event")["room.".len()..].into();
                event["from"] = id.into();
                let to = data["to"].as_str().expect("to");
                if !self.rooms[&room].people.contains_key(to) {
                    return Err("unknown_participant");
                }
                self.tell(&room, to, event);
                Ok(Value::Null)
            }
            "room.resume" => {
                let id = data["participant"].as_str().expect("participant").to_owned();
                let room_id = data["room"].as_str().expect("room").to_owned();
                let room = self.rooms.get_mut(&room_id).ok_or("gone")?;
                let person = room.people.get_mut(&id).ok_or("gone")?;
                person.socket = socket.clone();
                let seen = data["seen"].as_u64().expect("seen") as usize;
                *me = Some((room_id, id));
                Ok(json!({ "epoch": room.epoch, "events": room.log[seen..] }))
            }
            "room.leave" => {
                let (room, id) = me.clone().ok_or("not_joined")?;
                let people = &mut self.rooms.get_mut(&room).expect("room").people;
                people.remove(&id);
                let left = json!({ "type": "participant_left", "participant": id, "reason": "left",
                    "count": people.len() });
                self.publish(&room, left);
                Ok(Value::Null)
            }
            "quality.sample" => {
                self.samples.push(data.clone());
                Ok(Value::Null)
            }
            _ => Err("unknown_event"),
        }
    }

    fn join(
        &mut self,
        data: &Value,
        me: &mut Option<(String, String)>,
        socket: &mpsc::UnboundedSender<String>,
    ) -> Result<Value, &'static str> {
        let name = data["name"].as_str().expect("name").to_owned();
        if self.refuse.contains(&name) {
            return Err("room_full");
        }
        self.participants += 1;
        let id = format!("p{}", self.participants);
        let room_id = data["room"].as_str().expect("room").to_owned();
        let kind = |name: &str| data[name].as_str().unwrap_or("sfu").into();
        let room = self.rooms.entry(room_id.clone()).or_insert_with(|| Room {
            audio: kind("audio"),
            video: kind("video"),
            ..Room::default()
        });
        let (audio, video) = (room.audio.clone(), room.video.clone());
        let others: Vec<Value> = room
            .people
            .iter()
            .map(|(id, p)| json!({ "id": id, "name": p.name, "tracks": p.tracks }))
            .collect();
        let epoch = room.epoch + 1;
        let joined = json!({ "id": id, "name": name, "tracks": [] });
        let count = others.len() + 1;
        let joined = json!({ "type": "participant_joined", "participant": joined, "count": count });
        self.publish(&room_id, joined);
        let person = Person { name, tracks: vec![], slots: 0, mix: false, socket: socket.clone() };
        self.rooms.entry(room_id.clone()).or_default().people.insert(id.clone(), person);
        *me = Some((room_id.clone(), id.clone()));
        let limits =
            json!({ "max_participants": 50, "max_audio_slots": 16, "max_video_slots": 64 });
        Ok(json!({
            "participant": id,
            "epoch": epoch,
            "room": { "id": room_id, "audio": audio, "video": video, "video_codec": "vp8", "limits": limits },
            "you": { "can_publish": true, "can_subscribe": true },
            "count": count,
            "participants": others,
            "ice_servers": [],
        }))
    }

    /// Gives ids to what goes by the mesh, and tells everyone.
    fn announce(&mut self, room_id: &str, id: &str, data: &Value) -> Value {
        let mut announced = Vec::new();
        for track in data["tracks"].as_array().expect("tracks") {
            let kind = track["kind"].as_str().expect("kind");
            let track_id = format!("{id}-{kind}");
            announced.push(json!({ "mid": track["mid"], "id": track_id }));
            let info = json!({ "id": track_id, "kind": kind, "name": "x", "muted": false });
            self.person(room_id, id).tracks.push(info.clone());
            let added = json!({ "type": "track_added", "participant": id, "track": info });
            self.publish(room_id, added);
        }
        json!({ "tracks": announced })
    }

    /// Answers with track ids, tells everyone, and fills slots: everyone gets every track.
    fn offer(&mut self, room_id: &str, id: &str, data: &Value) -> Value {
        let tracks = data["tracks"].as_array().expect("tracks").clone();
        let mixed = self.rooms[room_id].audio == json!("mcu");
        if mixed && !std::mem::replace(&mut self.person(room_id, id).mix, true) {
            let mix = json!({ "slot": "0", "participant": null, "track": null, "mix": true });
            self.tell(room_id, id, json!({ "type": "slots", "slots": [mix] }));
        }
        let mut answered = Vec::new();
        for track in &tracks {
            let kind = track["kind"].as_str().expect("kind");
            let track_id = format!("{id}-{kind}");
            answered.push(json!({ "mid": track["mid"], "id": track_id }));
            let person = self.person(room_id, id);
            if person.tracks.iter().any(|t| t["id"] == json!(track_id)) {
                continue;
            }
            let info = json!({ "id": track_id, "kind": kind, "name": "x", "muted": false });
            person.tracks.push(info.clone());
            self.publish(
                room_id,
                json!({ "type": "track_added", "participant": id, "track": info }),
            );
            let others: Vec<String> = self.rooms[room_id].people.keys().cloned().collect();
            for other in others.iter().filter(|other| *other != id && !(mixed && kind == "audio")) {
                self.slot(room_id, other, id, &track_id);
            }
        }
        let room = &self.rooms[room_id];
        let there: Vec<(String, String)> = room
            .people
            .iter()
            .filter(|(other, _)| *other != id)
            .flat_map(|(other, p)| {
                p.tracks.iter().map(|t| (other.clone(), t["id"].as_str().expect("id").to_owned()))
            })
            .collect();
        if self.person(room_id, id).slots == 0 {
            for (other, track) in there {
                self.slot(room_id, id, &other, &track);
            }
            let wanted = json!({ "type": "slots_wanted", "audio": 8, "video": 12 });
            self.tell(room_id, id, wanted);
        }
        json!({ "sdp": "v=0\r\n", "tracks": answered })
    }

    fn person(&mut self, room: &str, id: &str) -> &mut Person {
        self.rooms.get_mut(room).and_then(|r| r.people.get_mut(id)).expect("person")
    }

    fn slot(&mut self, room: &str, listener: &str, participant: &str, track: &str) {
        let person = self.person(room, listener);
        person.slots += 1;
        let slot = person.slots.to_string();
        let change = json!({ "slot": slot, "participant": participant, "track": track });
        self.tell(room, listener, json!({ "type": "slots", "slots": [change] }));
    }

    /// An event for one, which repeats the room's number.
    fn tell(&mut self, room: &str, id: &str, mut event: Value) {
        event["epoch"] = self.rooms[room].epoch.into();
        let data = json!({ "channel": format!("room:{room}"), "data": event });
        let _ = self
            .person(room, id)
            .socket
            .send(json!({ "event": "#publish", "data": data }).to_string());
    }

    /// An event for all, with a number of its own; in an array, as servers may send them.
    pub fn publish(&mut self, room_id: &str, mut event: Value) {
        let room = self.rooms.entry(room_id.to_owned()).or_default();
        room.epoch += 1;
        event["epoch"] = room.epoch.into();
        room.log.push(event.clone());
        let data = json!({ "channel": format!("room:{room_id}"), "data": event });
        let frame = json!([{ "event": "#publish", "data": data }]).to_string();
        for person in room.people.values() {
            let _ = person.socket.send(frame.clone());
        }
    }
}
