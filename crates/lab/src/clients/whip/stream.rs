//! Somebody at a server of streams: theirs, and a connection for each stream of the others.

use super::lobby::{Presence, track_id};
use super::resource::Resources;
use crate::clients::sdp::{self, Line};
use crate::clients::seat::{Asked, Incoming, Seat, SignalingError, joined};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use wire::event::{Event, EventEnvelope};
use wire::room::{Answer, AnsweredTrack, Join, Joined, Offer, PeerDescription};

/// Events that wait to be taken.
const MAX_EVENTS: usize = 4096;

/// A place in a room.
pub(super) struct Stream {
    resources: Arc<Resources>,
    presence: OnceLock<Arc<Presence>>,
    /// Streams that are being asked for.
    asking: Mutex<JoinSet<()>>,
    incoming: mpsc::Sender<Incoming>,
}

impl Stream {
    pub(super) fn new(resources: Resources) -> (Self, mpsc::Receiver<Incoming>) {
        let (incoming, to_user) = mpsc::channel(MAX_EVENTS);
        let (resources, presence) = (Arc::new(resources), OnceLock::new());
        (Self { resources, presence, asking: Mutex::default(), incoming }, to_user)
    }

    fn presence(&self) -> Result<&Arc<Presence>, SignalingError> {
        let none = || SignalingError::Closed("nobody has entered a room".into());
        self.presence.get().ok_or_else(none)
    }

    fn enter(&self, join: &Join) -> Joined {
        let server = self.resources.target.authority();
        let incoming = self.incoming.clone();
        let (presence, senders) = Presence::enter(&server, &join.room, &join.name, incoming);
        for sender in &senders {
            let _ = self.incoming.try_send(Incoming::Call(sender.id.clone()));
        }
        let own = presence.own.clone();
        let _ = self.presence.set(Arc::new(presence));
        joined(join, own, senders)
    }

    async fn publish(&self, offer: &Offer) -> Result<Answer, SignalingError> {
        let presence = self.presence()?;
        let sdp = self.resources.publish(&presence.own, &offer.sdp).await?;
        let tracks = offer.tracks.iter();
        let id = |kind| track_id(&presence.own, kind);
        let tracks =
            tracks.map(|track| AnsweredTrack { mid: track.mid.clone(), id: id(track.kind) });
        presence.sends(offer.tracks.iter().map(|track| track.kind).collect());
        Ok(Answer { sdp, tracks: tracks.collect() })
    }

    /// Asks for somebody's stream; the answer comes as an event.
    fn ask(&self, offer: &PeerDescription) -> Result<(), SignalingError> {
        let presence = Arc::clone(self.presence()?);
        let (resources, incoming) = (Arc::clone(&self.resources), self.incoming.clone());
        let PeerDescription { to: from, sdp: offer, .. } = offer.clone();
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are done.
        while asking.try_join_next().is_some() {}
        asking.spawn(async move {
            let sdp = match resources.play(&from, &offer, || presence.has(&from)).await {
                Ok(sdp) => sdp,
                // Who left meanwhile is asked for nothing.
                Err(_) if !presence.has(&from) => return,
                Err(error) => {
                    let _ = incoming.try_send(Incoming::Refused(from, error));
                    return;
                }
            };
            let sent = sdp::lines(&sdp).into_iter().filter(|line| line.sends);
            let track =
                |line: Line| Some(AnsweredTrack { id: track_id(&from, line.kind?), mid: line.mid });
            let tracks = sent.filter_map(track).collect();
            let event = Event::PeerAnswer { from, sdp, tracks };
            let event = EventEnvelope { epoch: 0, event };
            let _ = incoming.try_send(Incoming::Event(String::new(), event));
        });
        Ok(())
    }
}

impl Stream {
    /// Leaves the room at once; what ends the connections is to be awaited.
    fn end(&self) -> impl Future<Output = ()> + Send + use<> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        self.presence.get().into_iter().for_each(|presence| presence.leave());
        let resources = Arc::clone(&self.resources);
        async move { resources.end().await }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let end = self.end();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(end);
        }
    }
}

impl Seat for Stream {
    fn join<'a>(&'a self, join: &'a Join) -> Asked<'a, Joined> {
        Box::pin(async { Ok(self.enter(join)) })
    }
    fn offer<'a>(&'a self, offer: &'a Offer) -> Asked<'a, Answer> {
        Box::pin(self.publish(offer))
    }
    fn peer_offer<'a>(&'a self, offer: &'a PeerDescription) -> Asked<'a, ()> {
        Box::pin(async { self.ask(offer) })
    }
    /// Nobody offers them a connection.
    fn peer_answer<'a>(&'a self, _: &'a PeerDescription) -> Asked<'a, ()> {
        Box::pin(async { Ok(()) })
    }
    fn leave(&self) -> Asked<'_, ()> {
        Box::pin(async {
            self.end().await;
            Ok(())
        })
    }
}
