//! Rooms that mix: Janus' AudioBridge plugin. <https://janus.conf.meetecho.com/docs/audiobridge.html>
//!
//! Somebody's one connection has one line, both ways: their voice goes, the mix of all others comes.

use super::entrance::{Entrance, left, number_of, tell};
use super::session::Notice;
use crate::base::Url;
use crate::clients::seat::{Asked, Incoming, Seat, SignalingError, joined};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::event::{Event, SlotChange};
use wire::room::{Answer, Join, Joined, Offer, ParticipantInfo, PeerDescription};

const PLUGIN: &str = "janus.plugin.audiobridge";
/// The plugin's error code for a room that exists already.
const ROOM_EXISTS: u64 = 486;
/// What the mix is coded with, as moim codes its own: bits a second, and the loss that in-band FEC is for.
const BITRATE_BPS: u32 = 32_000;
const EXPECTED_LOSS_PCT: u32 = 8;

/// Who else is in the room, by number.
type Others = Arc<Mutex<BTreeSet<u64>>>;

/// Somebody in a room of the AudioBridge plugin.
pub(super) struct AudioBridge {
    entrance: Entrance,
    /// The own number, once a room was entered.
    own: AtomicU64,
    others: Others,
    /// Takes what Janus says by itself.
    listening: JoinHandle<()>,
}

impl Drop for AudioBridge {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl AudioBridge {
    /// Connects to Janus' WebSocket and attaches to the plugin.
    ///
    /// # Errors
    /// No connection, or Janus has no AudioBridge.
    pub(super) async fn connect(
        target: &Url,
        linked: bool,
    ) -> Result<(Self, mpsc::Receiver<Incoming>), SignalingError> {
        let (entrance, notices, to_user) = Entrance::open(target, PLUGIN, linked).await?;
        let (incoming, others) = (entrance.incoming.clone(), Others::default());
        let listening = tokio::spawn(listen(notices, incoming, Arc::clone(&others)));
        Ok((Self { entrance, own: AtomicU64::new(0), others, listening }, to_user))
    }

    async fn enter(&self, join: &Join) -> Result<Joined, SignalingError> {
        let room = number_of(&join.room);
        let create = json!({
            "request": "create", "room": room, "sampling_rate": 48_000,
            "default_bitrate": BITRATE_BPS, "default_expectedloss": EXPECTED_LOSS_PCT,
        });
        let request = json!({ "request": "join", "room": room, "display": join.name });
        let (own, data) = self.entrance.enter(create, ROOM_EXISTS, request).await?;
        self.own.store(own, Ordering::Relaxed);
        lock(&self.others).extend(people(&data).map(|(id, _)| id));
        Ok(joined(join, own.to_string(), people(&data).map(|(_, info)| info).collect()))
    }

    /// Offers the line. The mix comes by it as soon as it is connected.
    async fn configure(&self, offer: &Offer) -> Result<Answer, SignalingError> {
        let own = self.own.load(Ordering::Relaxed);
        let request = json!({ "request": "configure", "muted": false });
        let answer = self.entrance.offer(request, offer, own).await?;
        let mix = |mid: &str| SlotChange {
            slot: mid.to_owned(),
            participant: None,
            track: None,
            mix: true,
            paused: None,
            rtp_timestamp: None,
        };
        let mids = answer.sdp.lines().filter_map(|line| line.strip_prefix("a=mid:"));
        tell(&self.entrance.incoming, Event::Slots { slots: mids.map(mix).collect() });
        Ok(answer)
    }
}

impl Seat for AudioBridge {
    fn join<'a>(&'a self, join: &'a Join) -> Asked<'a, Joined> {
        Box::pin(self.enter(join))
    }
    fn offer<'a>(&'a self, offer: &'a Offer) -> Asked<'a, Answer> {
        Box::pin(self.configure(offer))
    }
    fn peer_answer<'a>(&'a self, _: &'a PeerDescription) -> Asked<'a, ()> {
        Box::pin(async { Err(SignalingError::Malformed("an AudioBridge offers nothing".into())) })
    }
    fn leave(&self) -> Asked<'_, ()> {
        Box::pin(self.entrance.leave())
    }
}

/// Takes what Janus says by itself until the connection ends.
async fn listen(
    mut notices: mpsc::Receiver<Notice>,
    incoming: mpsc::Sender<Incoming>,
    others: Others,
) {
    while let Some(notice) = notices.recv().await {
        let data = match notice {
            Notice::Closed(cause) => {
                let _ = incoming.try_send(Incoming::Closed(cause));
                return;
            }
            Notice::Said(said) => said.data,
        };
        let mut others = lock(&others);
        // It tells again of those whose state changes.
        for (id, participant) in people(&data) {
            if others.insert(id) {
                let count = others.len() as u32 + 1;
                let event = Event::ParticipantJoined { participant, count, from_audience: false };
                tell(&incoming, event);
            }
        }
        if let Some(gone) = data["leaving"].as_u64() {
            others.remove(&gone);
            tell(&incoming, left(gone, others.len() + 1));
        }
    }
}

fn lock(others: &Others) -> MutexGuard<'_, BTreeSet<u64>> {
    others.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The people that Janus tells of. It does not say what they send.
fn people(data: &Value) -> impl Iterator<Item = (u64, ParticipantInfo)> {
    let people = data["participants"].as_array().into_iter().flatten();
    people.filter_map(|person| {
        let id = person["id"].as_u64()?;
        let name = person["display"].as_str().unwrap_or_default().to_owned();
        Some((id, ParticipantInfo { id: id.to_string(), name, tracks: Vec::new(), hand: false }))
    })
}
