//! A bot's connections with the other members of a mesh, one each.
//!
//! A member who joins makes offers to those who are there, and answers those who come later. The
//! candidates of a bot are in its SDP; those of browsers come one by one.

use crate::clients::bot::spec::{BotCommand, BotDriver, BotHandle, BotSpec, Link};
use crate::clients::bot::words::{AudioSource, Media, VideoSource};
use crate::clients::seat::{Seat, SignalingError};
use crate::observe::rows::{add_sent, most};
use crate::scenario::RoomGroup;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use wire::room::{
    Announce, Answer, AnsweredTrack, AudioTopology, MediaKind, OfferedTrack, PeerDescription,
    VideoTopology,
};
use wire::{ErrorCode, QualitySample};

/// Kinds of a room that go by the mesh.
pub(super) fn kinds(group: &RoomGroup) -> Vec<MediaKind> {
    let audio = (group.audio == AudioTopology::Mesh).then_some(MediaKind::Audio);
    let video = (group.video == VideoTopology::Mesh).then_some(MediaKind::Video);
    audio.into_iter().chain(video).collect()
}

/// The part of `media` that is of these kinds.
pub(super) fn only(media: Media, kinds: &[MediaKind]) -> Media {
    Media {
        audio: if kinds.contains(&MediaKind::Audio) { media.audio } else { AudioSource::None },
        video: if kinds.contains(&MediaKind::Video) { media.video } else { VideoSource::None },
    }
}

/// A connection under way: gives with whom, and whether it came up.
pub(super) type Connecting = BoxFuture<'static, (String, Result<(), String>)>;

/// All connections of one bot.
pub(super) struct Mesh<D: BotDriver> {
    driver: Arc<D>,
    spec: BotSpec,
    joined: Instant,
    kinds: Vec<MediaKind>,
    /// Whether its connections only receive.
    receives_only: bool,
    /// What it sends, as announced.
    own: Vec<(MediaKind, String)>,
    links: BTreeMap<String, Arc<D::Handle>>,
    sampled: Instant,
    /// Whether the first audio and the first frame have been told.
    told: (bool, bool),
}

impl<D: BotDriver> Mesh<D> {
    /// Announces what the bot sends by the mesh; nobody is connected yet.
    pub(super) async fn announce(
        driver: Arc<D>,
        spec: &BotSpec,
        kinds: Vec<MediaKind>,
        joined: Instant,
        signaling: &dyn Seat,
    ) -> Result<Self, SignalingError> {
        let media = only(spec.media, &kinds);
        let audio =
            (media.audio != AudioSource::None).then_some(("audio", MediaKind::Audio, "microphone"));
        let video = (media.video != VideoSource::None).then_some((
            "video",
            MediaKind::Video,
            media.video.track_name(),
        ));
        let labels: Vec<_> = audio.into_iter().chain(video).collect();
        let tracks = labels.iter().map(|(mid, kind, name)| OfferedTrack {
            mid: (*mid).to_owned(),
            kind: *kind,
            name: (*name).to_owned(),
            opaque: false,
            content_hint: wire::room::ContentHint::Speech,
            layers: Vec::new(),
        });
        let announced = signaling.announce(&Announce { tracks: tracks.collect() }).await?;
        let mut own = Vec::new();
        for (label, kind, _) in labels {
            let found = announced.tracks.iter().find(|track| track.mid == label);
            let missing = || SignalingError::Malformed(format!("no id for the announced {label}"));
            own.push((kind, found.ok_or_else(missing)?.id.clone()));
        }
        let spec = BotSpec { media, ..spec.clone() };
        let links = BTreeMap::new();
        Ok(Self {
            driver,
            spec,
            joined,
            kinds,
            receives_only: false,
            own,
            links,
            sampled: joined,
            told: (false, false),
        })
    }

    /// For a server that gives what others send on a connection for each of them, or on one for all: the bot only
    /// receives on these. `kinds`: what it asks for, if it makes the offers.
    pub(super) fn of_server(
        driver: Arc<D>,
        spec: &BotSpec,
        kinds: Vec<MediaKind>,
        joined: Instant,
    ) -> Self {
        Self {
            driver,
            spec: BotSpec { media: only(spec.media, &[]), ..spec.clone() },
            joined,
            kinds,
            receives_only: true,
            own: Vec::new(),
            links: BTreeMap::new(),
            sampled: joined,
            told: (false, false),
        }
    }

    fn link(&self, other: &str) -> Result<Arc<D::Handle>, String> {
        let link = Link {
            other: other.to_owned(),
            kinds: self.kinds.clone(),
            receives_only: self.receives_only,
            own: self.own.clone(),
            joined: self.joined,
        };
        let spec = BotSpec { link: Some(link), ..self.spec.clone() };
        self.driver.add(spec).map(Arc::new).map_err(|error| error.to_string())
    }

    /// What a connection sends, with the announced ids.
    fn described(&self, to: &str, sdp: String, tracks: &[OfferedTrack]) -> PeerDescription {
        let id = |kind| self.own.iter().find(|(own, _)| *own == kind);
        let tracks = tracks.iter().filter_map(|track| {
            let (_, id) = id(track.kind)?;
            Some(AnsweredTrack { mid: track.mid.clone(), id: id.clone() })
        });
        PeerDescription { to: to.to_owned(), sdp, tracks: tracks.collect() }
    }

    /// Makes an offer to a member who is there. None if they have left meanwhile.
    pub(super) async fn call(
        &mut self,
        other: &str,
        signaling: &dyn Seat,
    ) -> Result<Option<Connecting>, String> {
        let link = self.link(other)?;
        let offer = link.offer().await.map_err(|error| format!("no offer: {error}"))?;
        let offer = self.described(other, offer.sdp, &offer.tracks);
        if !told(signaling.peer_offer(&offer).await, "room.peer_offer")? {
            return Ok(None);
        }
        self.links.insert(other.to_owned(), Arc::clone(&link));
        Ok(Some(connecting(other, link)))
    }

    /// Answers an offer of a member who came later, or who offers again.
    pub(super) async fn offered(
        &mut self,
        from: &str,
        offer: Answer,
        signaling: &dyn Seat,
    ) -> Result<Option<Connecting>, String> {
        let known = self.links.get(from).cloned();
        let link = match &known {
            Some(link) => Arc::clone(link),
            None => self.link(from)?,
        };
        let answer = link.accept(offer).await;
        let answer = answer.map_err(|error| format!("the offer of {from}: {error}"))?;
        let answer = self.described(from, answer.sdp, &answer.tracks);
        if !told(signaling.peer_answer(&answer).await, "room.peer_answer")? {
            self.links.remove(from);
            return Ok(None);
        }
        self.links.insert(from.to_owned(), Arc::clone(&link));
        Ok(known.is_none().then(|| connecting(from, link)))
    }

    /// Takes the answer to an own offer. An answer of somebody who is gone is ignored.
    pub(super) async fn answered(&self, from: &str, answer: Answer) -> Result<(), String> {
        let Some(link) = self.links.get(from) else { return Ok(()) };
        let taken = link.answer(answer).await;
        taken.map_err(|error| format!("the answer of {from}: {error}"))
    }

    /// Takes a candidate of another member.
    pub(super) fn candidate(&self, from: &str, candidate: String) {
        if let Some(link) = self.links.get(from) {
            link.candidate(candidate);
        }
    }

    /// Somebody left.
    pub(super) fn gone(&mut self, participant: &str) {
        if let Some(link) = self.links.remove(participant) {
            // This also answers those who still wait for the connection.
            link.command(BotCommand::Leave);
        }
    }

    /// Whether there is a connection with somebody.
    pub(super) fn has(&self, participant: &str) -> bool {
        self.links.contains_key(participant)
    }

    /// The connection with somebody.
    pub(super) fn with(&self, participant: &str) -> Option<&Arc<D::Handle>> {
        self.links.get(participant)
    }

    /// All connections.
    pub(super) fn links(&self) -> impl Iterator<Item = &Arc<D::Handle>> {
        self.links.values()
    }

    /// One sample of all connections, added to that of the connection with the server if there is
    /// one: rows of everyone, what is sent summed up by track, and the longest round-trip time (each
    /// row's scores come from that of its own connection).
    pub(super) async fn sample(
        &mut self,
        server: Option<QualitySample>,
    ) -> Result<QualitySample, String> {
        let now = Instant::now();
        let mut whole = server.unwrap_or_else(|| QualitySample {
            at_ms: now.saturating_duration_since(self.joined).as_millis() as u64,
            interval_ms: now.saturating_duration_since(self.sampled).as_millis() as u64,
            ..QualitySample::default()
        });
        self.sampled = now;
        for (other, link) in &self.links {
            let sample = link.sample().await.map_err(|error| format!("with {other}: {error}"))?;
            merge(&mut whole, sample);
        }
        // Each connection tells its own first ones; the bot's are the first of all.
        let first = |told: &mut bool, value: &mut Option<f64>| {
            *value = value.filter(|_| !*told);
            *told |= value.is_some();
        };
        first(&mut self.told.0, &mut whole.join_to_first_audio_ms);
        first(&mut self.told.1, &mut whole.join_to_first_frame_ms);
        Ok(whole)
    }
}

fn connecting<H: BotHandle>(other: &str, link: Arc<H>) -> Connecting {
    let other = other.to_owned();
    Box::pin(async move {
        let connected = link.connected().await;
        (other, connected.map_err(|error| error.to_string()))
    })
}

/// Whether it arrived; a participant who is gone needs it no more.
fn told(sent: Result<(), SignalingError>, call: &str) -> Result<bool, String> {
    match sent {
        Ok(()) => Ok(true),
        Err(SignalingError::Refused(error)) if error.code == ErrorCode::UnknownParticipant => {
            Ok(false)
        }
        Err(error) => Err(format!("{call}: {error}")),
    }
}

/// Adds the sample of one connection to that of all.
fn merge(whole: &mut QualitySample, link: QualitySample) {
    let least = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    whole.rtt_ms = most(whole.rtt_ms, link.rtt_ms);
    whole.srtp_cipher = whole.srtp_cipher.take().or(link.srtp_cipher);
    whole.join_to_first_audio_ms = least(whole.join_to_first_audio_ms, link.join_to_first_audio_ms);
    whole.join_to_first_frame_ms = least(whole.join_to_first_frame_ms, link.join_to_first_frame_ms);
    whole.received.extend(link.received);
    link.sent.into_iter().for_each(|sent| add_sent(&mut whole.sent, sent));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::audio_row;
    use wire::quality::SentTrack;

    fn sent(track: &str, packets_sent: u64, bitrate_kbps: f64, loss: f64) -> SentTrack {
        SentTrack {
            track: track.into(),
            kind: MediaKind::Audio,
            codec: None,
            packets_sent,
            retransmitted_packets_sent: None,
            bitrate_kbps,
            remote_loss_pct: Some(loss),
            frames_per_second: None,
            keyframe_requests: None,
            cpu_limited_ratio: None,
            bandwidth_limited_ratio: None,
        }
    }

    #[test]
    fn connections_make_one_sample() {
        let link = |other: &str, rtt_ms: f64, packets: u64, first_ms: Option<f64>| QualitySample {
            rtt_ms: Some(rtt_ms),
            join_to_first_audio_ms: first_ms,
            sent: vec![sent("t-1", packets, 30.0, rtt_ms)],
            received: vec![audio_row(other, &format!("of-{other}"), packets)],
            ..QualitySample::default()
        };
        let mut whole = QualitySample { interval_ms: 3000, ..QualitySample::default() };
        merge(&mut whole, link("a", 1.0, 150, None));
        merge(&mut whole, link("b", 5.0, 140, Some(80.0)));
        merge(&mut whole, link("c", 2.0, 10, Some(60.0)));
        assert_eq!((whole.rtt_ms, whole.join_to_first_audio_ms), (Some(5.0), Some(60.0)));
        assert_eq!(whole.received.len(), 3);
        let [row] = &whole.sent[..] else { panic!("one track: {:?}", whole.sent) };
        assert_eq!((row.packets_sent, row.bitrate_kbps), (300, 90.0));
        assert_eq!((row.remote_loss_pct, row.retransmitted_packets_sent), (Some(5.0), None));
    }

    #[test]
    fn media_goes_its_own_way_by_kind() {
        let media = Media { audio: AudioSource::Speech, video: VideoSource::P480 };
        let none = Media { audio: AudioSource::None, video: VideoSource::None };
        assert_eq!(only(media, &[MediaKind::Audio, MediaKind::Video]), media);
        assert_eq!(only(media, &[MediaKind::Video]), Media { video: VideoSource::P480, ..none });
        assert_eq!(only(media, &[]), none);
    }
}
