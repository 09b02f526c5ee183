//! What rooms of all plugins have in common: how somebody enters one, and what they are told of it.

use super::session::{Notice, Said, Session};
use crate::base::Url;
use crate::clients::link::told;
use crate::clients::seat::{Incoming, SignalingError};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use wire::event::{Event, EventEnvelope, LeaveReason};
use wire::room::{Answer, AnsweredTrack, Offer};

/// Events that wait to be taken.
const MAX_EVENTS: usize = 4096;
/// The candidate of a bot behind a link: Janus begins only when it knows one. Nobody answers there, and Janus takes the
/// address that checks come from.
const NOBODY: &str = "a=candidate:1 1 udp 1 127.0.0.1 9 typ host\r\n";

/// The handle of a plugin by which somebody enters a room, and sends.
pub(super) struct Entrance {
    pub(super) session: Session,
    handle: u64,
    linked: bool,
    pub(super) incoming: mpsc::Sender<Incoming>,
}

impl Entrance {
    /// Connects to Janus' WebSocket and attaches to the plugin. The receivers: what Janus says by itself, and what the
    /// seat's owner takes.
    pub(super) async fn open(
        target: &Url,
        plugin: &'static str,
        linked: bool,
    ) -> Result<(Self, mpsc::Receiver<Notice>, mpsc::Receiver<Incoming>), SignalingError> {
        let address = format!("ws://{}/", target.authority());
        let (session, notices) = Session::open(&address, plugin).await?;
        let handle = session.attach().await?;
        let (incoming, to_user) = mpsc::channel(MAX_EVENTS);
        Ok((Self { session, handle, linked, incoming }, notices, to_user))
    }

    /// Makes a room, and enters it by the name of `join`; what Janus says to that, and the own number.
    /// `exists`: the plugin's error code for a room that is there already.
    pub(super) async fn enter(
        &self,
        create: Value,
        exists: u64,
        request: Value,
    ) -> Result<(u64, Value), SignalingError> {
        match self.session.message(self.handle, create, None).await {
            Err(SignalingError::Foreign { code, .. }) if code == exists => {}
            made => drop(made?),
        }
        let Said { data, .. } = self.session.message(self.handle, request, None).await?;
        let own = data["id"].as_u64();
        let own = own.ok_or_else(|| SignalingError::Malformed(format!("no id in {data}")))?;
        Ok((own, data))
    }

    /// Offers what `own` sends by a request of the plugin's.
    pub(super) async fn offer(
        &self,
        request: Value,
        offer: &Offer,
        own: u64,
    ) -> Result<Answer, SignalingError> {
        let jsep = self.described("offer", &offer.sdp);
        let said = self.session.message(self.handle, request, Some(jsep)).await?;
        let sdp = said.sdp.ok_or_else(|| SignalingError::Malformed("no SDP answer".into()))?;
        let id = |mid: &str| AnsweredTrack { mid: mid.to_owned(), id: track_id(own, mid) };
        Ok(Answer { sdp, tracks: offer.tracks.iter().map(|track| id(&track.mid)).collect() })
    }

    /// An own SDP as Janus gets it: with all candidates, so that it waits for no others.
    pub(super) fn described(&self, kind: &str, sdp: &str) -> Value {
        let sdp = match self.linked {
            true => told(sdp, true).replacen("a=mid:", &format!("{NOBODY}a=mid:"), 1),
            false => sdp.to_owned(),
        };
        json!({ "type": kind, "sdp": sdp, "trickle": false })
    }

    pub(super) async fn leave(&self) -> Result<(), SignalingError> {
        let request = json!({ "request": "leave" });
        self.session.message(self.handle, request, None).await.map(drop)
    }
}

pub(super) fn tell(incoming: &mpsc::Sender<Incoming>, event: Event) {
    let envelope = EventEnvelope { epoch: 0, event };
    // Where the queue is full they lack a publisher, and the checks of the run say so.
    let _ = incoming.try_send(Incoming::Event(String::new(), envelope));
}

/// Somebody left, and `count` people are here now.
pub(super) fn left(id: u64, count: usize) -> Event {
    let (participant, reason) = (id.to_string(), LeaveReason::Left);
    Event::ParticipantLeft { participant, reason, count: count as u32 }
}

/// Somebody's line, by a name that all of the room know it by.
pub(super) fn track_id(of: u64, mid: &str) -> String {
    format!("{of}/{mid}")
}

/// Janus numbers its rooms: FNV-1a of the id, in the bits that JavaScript's numbers have.
pub(super) fn number_of(room: &str) -> u64 {
    let hash = room.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash & ((1 << 52) - 1)).max(1)
}
