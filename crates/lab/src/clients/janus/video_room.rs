//! Rooms that forward: Janus' VideoRoom plugin. <https://janus.conf.meetecho.com/docs/videoroom.html>
//!
//! Who publishes has one connection for it; what they receive comes by one connection a publisher,
//! which Janus offers, as in its own demo.

use super::entrance::{Entrance, left, number_of, tell, track_id};
use super::session::{Notice, Session};
use crate::base::Url;
use crate::clients::seat::{Asked, Incoming, MAX_PEOPLE, Seat, SignalingError, joined};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::event::Event;
use wire::room::{
    Answer, AnsweredTrack, Join, Joined, MediaKind, Offer, ParticipantInfo, PeerDescription,
    TrackInfo, VideoCodec,
};

const PLUGIN: &str = "janus.plugin.videoroom";
/// The plugin's error codes for a room that exists already, and for a publisher who is gone.
const ROOM_EXISTS: u64 = 427;
const NO_SUCH_FEED: u64 = 428;

/// Somebody in a room of the VideoRoom plugin.
pub(super) struct VideoRoom {
    entrance: Entrance,
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
    pub(super) async fn connect(
        target: &Url,
        linked: bool,
    ) -> Result<(Self, mpsc::Receiver<Incoming>), SignalingError> {
        let (entrance, notices, to_user) = Entrance::open(target, PLUGIN, linked).await?;
        let incoming = entrance.incoming.clone();
        let shared = Arc::new(Shared { incoming, entered: Mutex::default() });
        let listening = tokio::spawn(listen(entrance.session.clone(), notices, shared.clone()));
        Ok((Self { entrance, shared, listening }, to_user))
    }

    async fn enter(&self, join: &Join) -> Result<Joined, SignalingError> {
        let room = number_of(&join.room);
        let create = json!({
            "request": "create", "room": room, "publishers": MAX_PEOPLE, "bitrate": 0,
            "audiocodec": "opus", "videocodec": codec(join.video_codec),
        });
        self.shared.entered().room = room;
        let request = json!({
            "request": "join", "ptype": "publisher", "room": room, "display": join.name,
        });
        let (own, data) = self.entrance.enter(create, ROOM_EXISTS, request).await?;
        self.shared.entered().own = own;
        subscribe_to(&self.entrance.session, &self.shared, &data);
        Ok(joined(join, own.to_string(), published(&data)))
    }

    async fn publish(&self, offer: &Offer) -> Result<Answer, SignalingError> {
        let own = self.shared.entered().own;
        self.entrance.offer(json!({ "request": "publish" }), offer, own).await
    }

    async fn start(&self, answer: &PeerDescription) -> Result<(), SignalingError> {
        let feed = answer.to.parse::<u64>().ok();
        let handle = feed.and_then(|feed| self.shared.entered().feeds.get(&feed).copied()?);
        // Who left meanwhile needs no answer.
        let Some(handle) = handle else { return Ok(()) };
        let jsep = self.entrance.described("answer", &answer.sdp);
        let request = json!({ "request": "start" });
        self.entrance.session.message(handle, request, Some(jsep)).await.map(drop)
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
        Box::pin(self.entrance.leave())
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
    let count = shared.entered().feeds.len() + 1;
    tell(&shared.incoming, left(feed, count));
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
    tell(&shared.incoming, Event::PeerOffer { from: feed.to_string(), sdp, tracks });
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

fn codec(codec: Option<VideoCodec>) -> &'static str {
    match codec {
        Some(VideoCodec::H264) => "h264",
        Some(VideoCodec::Vp9) => "vp9",
        Some(VideoCodec::Av1) => "av1",
        Some(VideoCodec::Vp8) | None => "vp8",
    }
}
