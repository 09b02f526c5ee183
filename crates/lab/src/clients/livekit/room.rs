//! Somebody in a room of a LiveKit server.
//!
//! They have two connections: one that they offer, for what they send, and one that the server offers, and offers again
//! as tracks of others come and go. The others' tracks stand in its lines: `a=msid:PA_…|… TR_…` tells whose and which.

use super::messages::{
    AddTrackRequest, Participant, SignalTarget, StreamStateInfo, TrackSource, TrackType,
    TrickleRequest, VideoLayer,
};
use super::session::{Notice, Session};
use super::token::ApiKey;
use crate::base::Url;
use crate::clients::link::told;
use crate::clients::sdp::{self, Line};
use crate::clients::seat::{Asked, Incoming, OFFERED, Seat, SignalingError, joined};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;
use wire::event::{Event, EventEnvelope, PauseReason, SlotChange};
use wire::room::{
    Answer, AnsweredTrack, Join, Joined, MediaKind, Offer, OfferedTrack, ParticipantInfo,
    PeerDescription, TrackInfo,
};

/// Events that wait to be taken.
const MAX_EVENTS: usize = 64;

/// A place in a room; the connection is made with the room's token, when it is entered.
pub(super) struct Room {
    target: Url,
    key: ApiKey,
    /// Whether the server is told no address of theirs: it would send checks there, past the link. It then finds those
    /// from which checks come to it. (Without a link it is told all: it waits 1 s before it trusts one that it found.)
    linked: bool,
    session: OnceLock<Session>,
    incoming: mpsc::Sender<Incoming>,
    /// Number of the newest offer that came: the answer bears it.
    offered: Arc<AtomicU32>,
}

/// `RTCIceCandidateInit`.
#[derive(Deserialize)]
struct CandidateInit {
    candidate: String,
}

impl Room {
    pub(super) fn new(target: &Url, key: ApiKey, linked: bool) -> (Self, mpsc::Receiver<Incoming>) {
        let (incoming, to_user) = mpsc::channel(MAX_EVENTS);
        let (session, offered) = (OnceLock::new(), Arc::default());
        (Self { target: target.clone(), key, linked, session, incoming, offered }, to_user)
    }

    fn session(&self) -> Result<&Session, SignalingError> {
        let none = || SignalingError::Closed("nobody has entered a room of LiveKit".into());
        self.session.get().ok_or_else(none)
    }

    async fn enter(&self, join: &Join) -> Result<Joined, SignalingError> {
        let opened = Session::open(&self.target, &self.key, &join.room, &join.name).await?;
        let (session, response, notices) = opened;
        let own = response.participant.map(|own| own.sid).filter(|sid| !sid.is_empty());
        let own = own.ok_or_else(|| SignalingError::Malformed("no id in LiveKit's join".into()))?;
        let others = response.other_participants.into_iter().map(info).collect();
        let joined = joined(join, own, others);
        let _ = self.session.set(session);
        let listener = Listener {
            incoming: self.incoming.clone(),
            offered: Arc::clone(&self.offered),
            lines: BTreeMap::new(),
        };
        // It ends with the session.
        tokio::spawn(listener.listen(notices));
        Ok(joined)
    }

    /// LiveKit wants to know of each track before it is offered.
    async fn publish(&self, offer: &Offer) -> Result<Answer, SignalingError> {
        let session = self.session()?;
        let lines = sdp::lines(&offer.sdp);
        let mut tracks = Vec::new();
        for track in &offer.tracks {
            let msid =
                lines.iter().find(|line| line.mid == track.mid).and_then(|line| line.msid.clone());
            let missing = || SignalingError::Malformed(format!("no a=msid of line {}", track.mid));
            let (_, cid) = msid.ok_or_else(missing)?;
            let published = session.publish(add_track(track, cid)).await?;
            tracks.push(AnsweredTrack { mid: track.mid.clone(), id: published.sid });
        }
        let sdp = session.offer(told(&offer.sdp, self.linked)).await?;
        Ok(Answer { sdp, tracks })
    }

    async fn start(&self, answer: &PeerDescription) -> Result<(), SignalingError> {
        let id = self.offered.load(Ordering::Relaxed);
        self.session()?.answer(told(&answer.sdp, self.linked), id).await
    }

    async fn end(&self) -> Result<(), SignalingError> {
        self.session()?.leave().await
    }
}

impl Seat for Room {
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
        Box::pin(self.end())
    }
}

/// Makes events of what the server says by itself.
struct Listener {
    incoming: mpsc::Sender<Incoming>,
    offered: Arc<AtomicU32>,
    /// Whose track is on which line: participant and track, by mid.
    lines: BTreeMap<String, (String, String)>,
}

impl Listener {
    async fn listen(mut self, mut notices: mpsc::Receiver<Notice>) {
        while let Some(notice) = notices.recv().await {
            match notice {
                Notice::Offer(offer) => {
                    self.offered.store(offer.id, Ordering::Relaxed);
                    let slots = self.changes(&offer.sdp);
                    let (from, tracks) = (OFFERED.to_owned(), Vec::new());
                    self.tell(Event::PeerOffer { from, sdp: offer.sdp, tracks }).await;
                    self.tell(Event::Slots { slots }).await;
                }
                Notice::Candidate(candidate) => {
                    if let Some(event) = candidate_event(&candidate) {
                        self.tell(event).await;
                    }
                }
                Notice::Streams(states) => {
                    let slots = states.iter().filter_map(|state| self.paused(state)).collect();
                    self.tell(Event::Slots { slots }).await;
                }
                Notice::Closed(cause) => return self.close(cause).await,
            }
        }
        self.close("more came from LiveKit than was taken".into()).await;
    }

    /// Waits for a place: meanwhile notices wait too, and with too many of them the connection is given up.
    async fn tell(&self, event: Event) {
        let envelope = EventEnvelope { epoch: 0, event };
        let _ = self.incoming.send(Incoming::Event(String::new(), envelope)).await;
    }

    async fn close(&self, cause: String) {
        let _ = self.incoming.send(Incoming::Closed(cause)).await;
    }

    /// What an offer changes in its lines.
    fn changes(&mut self, offer: &str) -> Vec<SlotChange> {
        let mut changes = Vec::new();
        for Line { mid, msid, .. } in sdp::lines(offer) {
            let now = msid.map(|(stream, track)| (participant(&stream).to_owned(), track));
            if self.lines.get(&mid) == now.as_ref() {
                continue;
            }
            changes.push(change(&mid, now.as_ref()));
            match now {
                Some(now) => drop(self.lines.insert(mid, now)),
                None => drop(self.lines.remove(&mid)),
            }
        }
        changes
    }

    /// A track that the server begins or ceases to send, as what the line's content is now.
    fn paused(&self, state: &StreamStateInfo) -> Option<SlotChange> {
        let known = self.lines.iter().find(|(_, (_, track))| *track == state.track_sid)?;
        let paused = (state.state == 1).then_some(PauseReason::Bandwidth);
        Some(SlotChange { paused, ..change(known.0, Some(known.1)) })
    }
}

/// An address of the server's; what cannot be read is none.
fn candidate_event(trickle: &TrickleRequest) -> Option<Event> {
    let init: CandidateInit = serde_json::from_str(&trickle.candidate_init).ok()?;
    let from = match SignalTarget::try_from(trickle.target).ok()? {
        SignalTarget::Publisher => "",
        SignalTarget::Subscriber => OFFERED,
    };
    Some(Event::PeerCandidate { from: from.to_owned(), candidate: init.candidate, mid: None })
}

/// The participant of a stream that LiveKit names `PA_…|…`.
fn participant(stream: &str) -> &str {
    stream.split('|').next().unwrap_or(stream)
}

fn change(mid: &str, content: Option<&(String, String)>) -> SlotChange {
    let (participant, track) = content.cloned().unzip();
    let slot = mid.to_owned();
    SlotChange { slot, participant, track, mix: false, paused: None, rtp_timestamp: None }
}

/// A track that will be offered as `cid`.
pub(super) fn add_track(track: &OfferedTrack, cid: String) -> AddTrackRequest {
    let (kind, source) = match track.kind {
        MediaKind::Audio => (TrackType::Audio, TrackSource::Microphone),
        MediaKind::Video => (TrackType::Video, TrackSource::Camera),
    };
    let layer = |(quality, layer): (i32, &wire::room::OfferedLayer)| VideoLayer {
        quality,
        width: layer.width,
        height: layer.height,
        rid: layer.rid.clone(),
    };
    let layers: Vec<VideoLayer> = (0..).zip(&track.layers).map(layer).collect();
    let (width, height) = layers.last().map_or((0, 0), |layer| (layer.width, layer.height));
    let name = track.name.clone();
    // A bot repeats its sound where losses ask for it, at any server; here that would be all the time.
    let disable_red = track.kind == MediaKind::Audio;
    AddTrackRequest {
        cid,
        name,
        kind: kind.into(),
        width,
        height,
        source: source.into(),
        layers,
        disable_red,
    }
}

fn info(participant: Participant) -> ParticipantInfo {
    let track = |track: super::messages::Track| {
        let kind = match TrackType::try_from(track.kind).ok()? {
            TrackType::Audio => MediaKind::Audio,
            TrackType::Video => MediaKind::Video,
            TrackType::Data => return None,
        };
        let (id, muted) = (track.sid, track.muted);
        Some(TrackInfo { id, kind, name: String::new(), muted, silenced: false })
    };
    ParticipantInfo {
        id: participant.sid,
        name: participant.name,
        tracks: participant.tracks.into_iter().filter_map(track).collect(),
        hand: false,
    }
}
