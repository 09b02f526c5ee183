//! The adapter for Janus' VideoRoom plugin (1.x): real WebRTC, in Janus' own words.
//! <https://janus.conf.meetecho.com/docs/videoroom.html>
//!
//! Who publishes has one connection for it; what they receive comes by one connection a publisher,
//! which Janus offers, as in its own demo. Rooms are made by whoever comes first.

mod session;

use crate::base::Url;
use crate::clients::seat::{Asked, Incoming, Seat, SignalingError};
use serde_json::{Value, json};
use session::{Notice, Said, Session};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::event::{Event, EventEnvelope, LeaveReason};
use wire::room::{
    Answer, AnsweredTrack, Join, Joined, MediaKind, Offer, ParticipantInfo, PeerDescription,
    Permissions, RoomInfo, RoomLimits, TrackInfo, VideoCodec,
};

/// Events that wait to be taken.
const MAX_EVENTS: usize = 4096;
/// People that a room may have: more than a scenario has.
const MAX_PEOPLE: u32 = 10_000;
/// The plugin's error codes for a room that exists already, and for a publisher who is gone.
const ROOM_EXISTS: u64 = 427;
const NO_SUCH_FEED: u64 = 428;

/// Somebody in a room of the VideoRoom plugin.
pub struct VideoRoom {
    session: Session,
    /// The handle that enters, and publishes.
    handle: u64,
    shared: Arc<Shared>,
    /// Takes what Janus says by itself.
    listening: JoinHandle<()>,
}

/// What the tasks of one person share.
struct Shared {
    incoming: mpsc::Sender<Incoming>,
    entered: Mutex<Entered>,
}

#[derive(Default)]
struct Entered {
    room: u64,
    own: u64,
    /// Handles of subscriptions by publisher; none while one is being made.
    feeds: BTreeMap<u64, Option<u64>>,
}

impl Shared {
    fn entered(&self) -> MutexGuard<'_, Entered> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: Event) {
        let envelope = EventEnvelope { epoch: 0, event };
        // Where the queue is full they lack a publisher, and the checks of the run say so.
        let _ = self.incoming.try_send(Incoming::Event(String::new(), envelope));
    }
}

impl Drop for VideoRoom {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl VideoRoom {
    /// Connects to Janus' WebSocket and attaches to the plugin.
    ///
    /// # Errors
    /// No connection, or Janus has no VideoRoom.
    pub async fn connect(target: &Url) -> Result<(Self, mpsc::Receiver<Incoming>), SignalingError> {
        let address = format!("ws://{}/", target.authority());
        let (session, notices) = Session::open(&address).await?;
        let handle = session.attach().await?;
        let (incoming, to_user) = mpsc::channel(MAX_EVENTS);
        let shared = Arc::new(Shared { incoming, entered: Mutex::default() });
        let listening = tokio::spawn(listen(session.clone(), notices, Arc::clone(&shared)));
        Ok((Self { session, handle, shared, listening }, to_user))
    }

    async fn enter(&self, join: &Join) -> Result<Joined, SignalingError> {
        let room = number_of(&join.room);
        let create = json!({
            "request": "create", "room": room, "publishers": MAX_PEOPLE, "bitrate": 0,
            "audiocodec": "opus", "videocodec": codec(join.video_codec),
        });
        match self.session.message(self.handle, create, None).await {
            Err(SignalingError::Foreign { code: ROOM_EXISTS, .. }) | Ok(_) => {}
            Err(error) => return Err(error),
        }
        self.shared.entered().room = room;
        let request = json!({
            "request": "join", "ptype": "publisher", "room": room, "display": join.name,
        });
        let Said { data, .. } = self.session.message(self.handle, request, None).await?;
        let own = data["id"].as_u64();
        let own = own.ok_or_else(|| SignalingError::Malformed(format!("no id in {data}")))?;
        self.shared.entered().own = own;
        let participants = published(&data);
        subscribe_to(&self.session, &self.shared, &data);
        Ok(Joined {
            participant: own.to_string(),
            epoch: 0,
            room: RoomInfo {
                id: join.room.clone(),
                audio: join.audio.unwrap_or_default(),
                video: join.video.unwrap_or_default(),
                video_codec: join.video_codec.unwrap_or_default(),
                locked: false,
                limits: RoomLimits {
                    max_participants: MAX_PEOPLE,
                    max_audio_slots: MAX_PEOPLE,
                    max_video_slots: MAX_PEOPLE,
                },
            },
            you: Permissions { can_publish: true, can_subscribe: true, can_moderate: false },
            count: participants.len() as u32 + 1,
            participants,
            ice_servers: Vec::new(),
        })
    }

    async fn publish(&self, offer: &Offer) -> Result<Answer, SignalingError> {
        let own = self.shared.entered().own;
        let jsep = json!({ "type": "offer", "sdp": offer.sdp });
        let request = json!({ "request": "publish" });
        let said = self.session.message(self.handle, request, Some(jsep)).await?;
        let sdp = said.sdp.ok_or_else(|| SignalingError::Malformed("no SDP answer".into()))?;
        let id = |mid: &str| AnsweredTrack { mid: mid.to_owned(), id: track_id(own, mid) };
        Ok(Answer { sdp, tracks: offer.tracks.iter().map(|track| id(&track.mid)).collect() })
    }

    async fn start(&self, answer: &PeerDescription) -> Result<(), SignalingError> {
        let feed = answer.to.parse::<u64>().ok();
        let handle = feed.and_then(|feed| self.shared.entered().feeds.get(&feed).copied()?);
        // Who left meanwhile needs no answer.
        let Some(handle) = handle else { return Ok(()) };
        let jsep = json!({ "type": "answer", "sdp": answer.sdp });
        let said = self.session.message(handle, json!({ "request": "start" }), Some(jsep)).await;
        said.map(drop)
    }
}

impl Seat for VideoRoom {
    fn join<'a>(&'a self, join: &'a Join) -> Asked<'a, Joined> {
        Box::pin(self.enter(join))
    }
    fn offer<'a>(&'a self, offer: &'a Offer) -> Asked<'a, Answer> {
        Box::pin(self.publish(offer))
    }
    fn peer_answer<'a>(&'a self, answer: &'a PeerDescription) -> Asked<'a, ()> {
        Box::pin(self.start(answer))
    }
    fn leave(&self) -> Asked<'_, ()> {
        Box::pin(async {
            let request = json!({ "request": "leave" });
            self.session.message(self.handle, request, None).await.map(drop)
        })
    }
}

/// Takes what Janus says by itself until the connection ends.
async fn listen(session: Session, mut notices: mpsc::Receiver<Notice>, shared: Arc<Shared>) {
    while let Some(notice) = notices.recv().await {
        match notice {
            Notice::Closed(cause) => {
                let _ = shared.incoming.try_send(Incoming::Closed(cause));
                return;
            }
            Notice::Said(said) => {
                subscribe_to(&session, &shared, &said.data);
                let gone = ["unpublished", "leaving"].map(|key| said.data[key].as_u64());
                for feed in gone.into_iter().flatten() {
                    ended(&session, &shared, feed).await;
                }
            }
        }
    }
}

/// Somebody publishes no more.
async fn ended(session: &Session, shared: &Shared, feed: u64) {
    let known = shared.entered().feeds.remove(&feed);
    let Some(handle) = known else { return };
    if let Some(handle) = handle {
        session.detach(handle).await;
    }
    // Janus tells of publishers alone.
    let count = shared.entered().feeds.len() as u32 + 1;
    let (participant, reason) = (feed.to_string(), LeaveReason::Left);
    shared.tell(Event::ParticipantLeft { participant, reason, count });
}

/// Begins to subscribe to each publisher that Janus tells of and that is not known yet.
fn subscribe_to(session: &Session, shared: &Arc<Shared>, data: &Value) {
    for publisher in data["publishers"].as_array().into_iter().flatten() {
        let Some(feed) = publisher["id"].as_u64() else { continue };
        let mut entered = shared.entered();
        if feed == entered.own || entered.feeds.contains_key(&feed) {
            continue;
        }
        entered.feeds.insert(feed, None);
        let room = entered.room;
        drop(entered);
        let (session, shared) = (session.clone(), Arc::clone(shared));
        tokio::spawn(async move {
            match subscribe(&session, &shared, room, feed).await {
                Ok(()) => {}
                Err(SignalingError::Foreign { code: NO_SUCH_FEED, .. }) => {
                    ended(&session, &shared, feed).await;
                }
                Err(error) => {
                    let cause = format!("no subscription to {feed}: {error}");
                    let _ = shared.incoming.try_send(Incoming::Closed(cause));
                }
            }
        });
    }
}

/// Has Janus offer a publisher's tracks.
async fn subscribe(
    session: &Session,
    shared: &Shared,
    room: u64,
    feed: u64,
) -> Result<(), SignalingError> {
    let handle = session.attach().await?;
    let request = json!({
        "request": "join", "ptype": "subscriber", "room": room, "streams": [{ "feed": feed }],
    });
    let said = session.message(handle, request, None).await?;
    let sdp = said.sdp.ok_or_else(|| SignalingError::Malformed("no SDP offer".into()))?;
    match shared.entered().feeds.get_mut(&feed) {
        Some(known) => *known = Some(handle),
        None => return Ok(()), // gone meanwhile
    }
    let tracks = said.data["streams"].as_array().into_iter().flatten().filter_map(|stream| {
        let of = stream["feed_mid"].as_str()?;
        Some(AnsweredTrack { mid: stream["mid"].as_str()?.to_owned(), id: track_id(feed, of) })
    });
    let tracks = tracks.collect();
    shared.tell(Event::PeerOffer { from: feed.to_string(), sdp, tracks });
    Ok(())
}

/// The publishers that Janus tells of.
fn published(data: &Value) -> Vec<ParticipantInfo> {
    let publishers = data["publishers"].as_array().into_iter().flatten();
    let info = publishers.filter_map(|publisher| {
        let feed = publisher["id"].as_u64()?;
        let streams = publisher["streams"].as_array().into_iter().flatten();
        let tracks = streams.filter_map(|stream| {
            let kind = match stream["type"].as_str()? {
                "audio" => MediaKind::Audio,
                "video" => MediaKind::Video,
                _ => return None,
            };
            let id = track_id(feed, stream["mid"].as_str()?);
            Some(TrackInfo { id, kind, name: String::new(), muted: false, silenced: false })
        });
        Some(ParticipantInfo {
            id: feed.to_string(),
            name: publisher["display"].as_str().unwrap_or_default().to_owned(),
            tracks: tracks.collect(),
            hand: false,
        })
    });
    info.collect()
}

/// A publisher's line, by a name that all of the room know it by.
fn track_id(feed: u64, mid: &str) -> String {
    format!("{feed}/{mid}")
}

/// Janus numbers its rooms: FNV-1a of the id, in the bits that JavaScript's numbers have.
fn number_of(room: &str) -> u64 {
    let hash = room.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash & ((1 << 52) - 1)).max(1)
}

fn codec(codec: Option<VideoCodec>) -> &'static str {
    match codec {
        Some(VideoCodec::H264) => "h264",
        Some(VideoCodec::Vp9) => "vp9",
        Some(VideoCodec::Av1) => "av1",
        Some(VideoCodec::Vp8) | None => "vp8",
    }
}

#[cfg(test)]
mod tests;
