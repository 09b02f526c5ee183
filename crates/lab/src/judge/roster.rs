//! Who is in which room with which tracks, as the rooms tell it. The checks are based on it.

use crate::judge::expected::{Churn, Expected, Listener, Track};
use crate::record::{MixWindows, Span};
use std::collections::{BTreeMap, BTreeSet};
use wire::event::{Event, EventEnvelope};
use wire::room::{Joined, MediaKind, ParticipantInfo, TrackInfo};

/// What all rooms of a run have told so far.
#[derive(Debug, Default)]
pub struct Roster {
    rooms: BTreeMap<String, Room>,
    listeners: Vec<Listener>,
    /// When people of this run were connected, by participant id.
    connected: BTreeMap<String, u64>,
    /// What listeners heard of mixes, by name.
    mixes: BTreeMap<String, MixWindows>,
    churn: Churn,
    browsers_churn: Churn,
}

#[derive(Debug, Default)]
struct Room {
    /// Number of the last event taken: each is told to everyone, and taken once.
    epoch: u64,
    /// Most slots of audio and of video that one may have here, once it is known.
    most_slots: Option<(u32, u32)>,
    names: BTreeMap<String, String>,
    /// By track id.
    tracks: BTreeMap<String, Track>,
    /// Participants who said that they send no more, or are gone: who joins before the server knows is still told of them.
    left: BTreeSet<String>,
}

impl Room {
    fn participant(&mut self, room: &str, info: &ParticipantInfo, t_ms: u64) {
        self.names.insert(info.id.clone(), info.name.clone());
        for track in &info.tracks {
            self.track(room, &info.id, track, t_ms);
        }
    }

    fn track(&mut self, room: &str, participant: &str, info: &TrackInfo, t_ms: u64) {
        let publisher = self.names.get(participant).map_or(participant, String::as_str).to_owned();
        let track = self.tracks.entry(info.id.clone()).or_insert_with(|| Track {
            room: room.to_owned(),
            publisher,
            participant: participant.to_owned(),
            track: info.id.clone(),
            kind: info.kind,
            on_air: Vec::new(),
        });
        let open = track.on_air.last_mut().filter(|span| span.until_ms.is_none());
        match (open, info.muted) {
            (None, false) if self.left.contains(participant) => {}
            (None, false) => track.on_air.push(Span { from_ms: t_ms, until_ms: None }),
            (Some(span), true) => span.until_ms = Some(t_ms),
            _ => {}
        }
    }

    /// Nothing is expected of a participant any more.
    fn ends(&mut self, participant: &str, t_ms: u64) {
        self.off_air(t_ms, |track| track.participant == participant);
        self.left.insert(participant.to_owned());
    }

    fn off_air(&mut self, t_ms: u64, which: impl Fn(&Track) -> bool) {
        for track in self.tracks.values_mut().filter(|track| which(track)) {
            if let Some(span) = track.on_air.last_mut() {
                span.until_ms.get_or_insert(t_ms);
            }
        }
    }
}

impl Roster {
    /// Takes the answer to a join.
    pub fn joined(&mut self, joined: &Joined, name: &str, t_ms: u64) {
        let room = self.rooms.entry(joined.room.id.clone()).or_default();
        room.names.insert(joined.participant.clone(), name.to_owned());
        let limits = joined.room.limits;
        room.most_slots = Some((limits.max_audio_slots, limits.max_video_slots));
        if joined.epoch < room.epoch {
            return; // others have told more
        }
        room.epoch = joined.epoch;
        for participant in &joined.participants {
            room.participant(&joined.room.id, participant, t_ms);
        }
    }

    /// Takes an event of a room, whichever member it was told to.
    pub fn event(&mut self, room_id: &str, envelope: &EventEnvelope, t_ms: u64) {
        let room = self.rooms.entry(room_id.to_owned()).or_default();
        if !numbered(&envelope.event) || envelope.epoch <= room.epoch {
            return;
        }
        room.epoch = envelope.epoch;
        match &envelope.event {
            Event::ParticipantJoined { participant, .. }
            | Event::ParticipantChanged { participant } => {
                room.participant(room_id, participant, t_ms);
            }
            Event::ParticipantLeft { participant, .. } => {
                room.off_air(t_ms, |track| track.participant == *participant);
            }
            Event::TrackAdded { participant, track }
            | Event::TrackChanged { participant, track } => {
                room.track(room_id, participant, track, t_ms);
            }
            Event::TrackRemoved { track, .. } => room.off_air(t_ms, |t| t.track == *track),
            Event::RoomEnded { .. } => room.off_air(t_ms, |_| true),
            Event::ActiveSpeakers { .. }
            | Event::People { .. }
            | Event::Slots { .. }
            | Event::SlotsWanted { .. }
            | Event::TrackPaused { .. }
            | Event::TrackLayers { .. }
            | Event::Downlink { .. }
            | Event::MediaFailed { .. }
            | Event::RoomChanged { .. }
            | Event::PeerOffer { .. }
            | Event::PeerAnswer { .. }
            | Event::PeerCandidate { .. } => {}
        }
    }

    /// Takes a track that a person says they send: some rooms have no events, and large ones do not tell of everybody.
    pub fn sends(
        &mut self,
        room_id: &str,
        who: (&str, &str),
        track: &str,
        kind: MediaKind,
        t_ms: u64,
    ) {
        let (participant, name) = who;
        let room = self.rooms.entry(room_id.to_owned()).or_default();
        room.names.entry(participant.to_owned()).or_insert_with(|| name.to_owned());
        if !room.tracks.contains_key(track) {
            let info = TrackInfo {
                id: track.into(),
                kind,
                name: String::new(),
                muted: false,
                silenced: false,
            };
            room.track(room_id, participant, &info, t_ms);
        }
    }

    /// The person said that they send it no more.
    pub fn sends_no_more(&mut self, room_id: &str, participant: &str, t_ms: u64) {
        if let Some(room) = self.rooms.get_mut(room_id) {
            room.ends(participant, t_ms);
        }
    }

    /// A listener checked what they hear of a mix.
    pub fn heard(&mut self, person: &str, windows: MixWindows) {
        self.mixes.entry(person.to_owned()).or_default().absorb(windows);
    }

    /// What came so far of bots who come and go.
    pub fn churn(&mut self) -> &mut Churn {
        &mut self.churn
    }

    /// What came so far of browsers that come and go.
    pub fn browsers_churn(&mut self) -> &mut Churn {
        &mut self.browsers_churn
    }

    /// A person of this run is connected: from now on they should receive and be received.
    pub fn connected(&mut self, listener: Listener) {
        self.connected.insert(listener.participant.clone(), listener.present.from_ms);
        if let Some(room) = self.rooms.get_mut(&listener.room) {
            room.left.remove(&listener.participant);
        }
        self.listeners.push(listener);
    }

    /// A person of this run left or failed: nothing is expected of them any more. Says whether they were connected until
    /// now.
    pub fn gone(&mut self, participant: &str, t_ms: u64) -> bool {
        let present =
            |l: &&mut Listener| l.participant == participant && l.present.until_ms.is_none();
        let listener = self.listeners.iter_mut().find(present);
        let connected = listener.is_some();
        if let Some(listener) = listener {
            listener.present.until_ms = Some(t_ms);
            // Some servers tell nobody that they left, and where browsers alone are nobody takes it down.
            if let Some(room) = self.rooms.get_mut(&listener.room) {
                room.ends(participant, t_ms);
            }
        }
        connected
    }

    /// What should have been received until `end_ms`. Tracks of people of this run count from when
    /// they were connected; tracks of those who never were, and of strangers, are not expected.
    pub fn expected(&self, end_ms: u64) -> Expected {
        let mut tracks = Vec::new();
        for track in self.rooms.values().flat_map(|room| room.tracks.values()) {
            let Some(connected_ms) = self.connected.get(&track.participant) else { continue };
            let mut track = track.clone();
            for span in &mut track.on_air {
                span.from_ms = span.from_ms.max(*connected_ms);
            }
            tracks.push(track);
        }
        let mut listeners = self.listeners.clone();
        for listener in &mut listeners {
            listener.present.until_ms.get_or_insert(end_ms);
            // If there are more tracks than slots they get some of them; a track in nobody's slot is not even sent.
            let room = self.rooms.get(&listener.room);
            if let Some((audio, video)) = room.and_then(|room| room.most_slots) {
                listener.max_audio = Some(listener.max_audio.map_or(audio, |max| max.min(audio)));
                listener.max_video = Some(listener.max_video.map_or(video, |max| max.min(video)));
            }
        }
        let (mixes, cuts) = (self.mixes.clone(), BTreeMap::new());
        let (churn, browsers_churn) = (self.churn.clone(), self.browsers_churn.clone());
        Expected { tracks, listeners, mixes, churn, browsers_churn, cuts, end_ms }
    }
}

/// Whether an event has a number of its own; the others repeat the last one's.
pub fn numbered(event: &Event) -> bool {
    !matches!(
        event,
        Event::ActiveSpeakers { .. }
            | Event::People { .. }
            | Event::Slots { .. }
            | Event::SlotsWanted { .. }
            | Event::TrackPaused { .. }
            | Event::TrackLayers { .. }
            | Event::Downlink { .. }
            | Event::MediaFailed { .. }
            | Event::PeerOffer { .. }
            | Event::PeerAnswer { .. }
            | Event::PeerCandidate { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::event::LeaveReason;
    use wire::room::{AudioTopology, Permissions, RoomInfo, RoomLimits, VideoCodec, VideoTopology};

    fn joined(participant: &str, epoch: u64, participants: Vec<ParticipantInfo>) -> Joined {
        Joined {
            participant: participant.into(),
            epoch,
            room: RoomInfo {
                id: "r".into(),
                audio: AudioTopology::Sfu,
                video: VideoTopology::Sfu,
                video_codec: VideoCodec::Vp8,
                locked: false,
                limits: RoomLimits { max_participants: 9, max_audio_slots: 9, max_video_slots: 9 },
            },
            you: Permissions { can_publish: true, can_subscribe: true, can_moderate: false },
            count: participants.len() as u32 + 1,
            participants,
            ice_servers: vec![],
        }
    }

    fn track(id: &str, muted: bool) -> TrackInfo {
        TrackInfo {
            id: id.into(),
            kind: MediaKind::Video,
            name: String::new(),
            muted,
            silenced: false,
        }
    }

    fn listener(name: &str, participant: &str, from_ms: u64) -> Listener {
        Listener {
            room: "r".into(),
            person: name.into(),
            participant: participant.into(),
            present: Span { from_ms, until_ms: None },
            mix: false,
            max_audio: None,
            max_video: None,
        }
    }

    fn event(epoch: u64, event: Event) -> EventEnvelope {
        EventEnvelope { epoch, event }
    }

    #[test]
    fn the_same_event_told_to_many_counts_once_and_late_copies_not_at_all() {
        let mut roster = Roster::default();
        roster.joined(&joined("p1", 1, vec![]), "bot-1", 0);
        roster.connected(listener("bot-1", "p1", 400));
        let added =
            event(2, Event::TrackAdded { participant: "p1".into(), track: track("t", false) });
        let removed = event(3, Event::TrackRemoved { participant: "p1".into(), track: "t".into() });
        roster.event("r", &added, 500);
        roster.event("r", &removed, 9_000);
        roster.event("r", &added, 9_100);
        roster.event("r", &removed, 9_200);
        let expected = roster.expected(30_000);
        assert_eq!(expected.tracks.len(), 1);
        assert_eq!(expected.tracks[0].publisher, "bot-1");
        assert_eq!(expected.tracks[0].on_air, [Span { from_ms: 500, until_ms: Some(9_000) }]);
        assert_eq!(expected.listeners[0].present.until_ms, Some(30_000));
    }

    #[test]
    fn who_left_is_not_brought_back_by_those_who_join_before_the_server_knows() {
        let mut roster = Roster::default();
        roster.joined(&joined("p1", 0, vec![]), "bot-1", 0);
        roster.connected(listener("bot-1", "p1", 0));
        roster.sends("r", ("p1", "bot-1"), "t", MediaKind::Video, 100);
        roster.sends_no_more("r", "p1", 5_000);
        let info = ParticipantInfo {
            id: "p1".into(),
            name: "bot-1".into(),
            tracks: vec![track("t", false)],
            hand: false,
        };
        roster.joined(&joined("p2", 0, vec![info]), "bot-2", 5_010);
        let on_air = roster.expected(30_000).tracks[0].on_air.clone();
        assert_eq!(on_air, [Span { from_ms: 100, until_ms: Some(5_000) }]);
    }

    #[test]
    fn nothing_is_expected_of_who_is_gone_where_nobody_tells_of_it() {
        let mut roster = Roster::default();
        for (participant, track) in [("p1", "t"), ("p2", "u")] {
            roster.connected(listener(participant, participant, 0));
            roster.sends("r", (participant, participant), track, MediaKind::Video, 100);
        }
        assert!(roster.gone("p1", 7_000));
        let until =
            roster.expected(30_000).tracks.iter().map(|t| t.on_air[0].until_ms).collect::<Vec<_>>();
        assert_eq!(until, [Some(7_000), None]);
    }

    #[test]
    fn muting_by_announcement_takes_off_the_air_and_unmuting_brings_back() {
        let mut roster = Roster::default();
        let info = ParticipantInfo {
            id: "p1".into(),
            name: "bot-1".into(),
            tracks: vec![track("t", false)],
            hand: false,
        };
        roster.joined(&joined("p2", 4, vec![info]), "bot-2", 100);
        roster.connected(listener("bot-1", "p1", 1_000));
        for (epoch, muted, t_ms) in [(5, true, 5_000), (6, false, 7_000)] {
            let changed =
                Event::TrackChanged { participant: "p1".into(), track: track("t", muted) };
            roster.event("r", &event(epoch, changed), t_ms);
        }
        let (participant, reason) = ("p1".into(), LeaveReason::Left);
        let left = Event::ParticipantLeft { participant, reason, count: 1 };
        roster.event("r", &event(7, left), 9_000);
        roster.gone("p1", 9_000);
        let expected = roster.expected(30_000);
        let spans = [
            Span { from_ms: 1_000, until_ms: Some(5_000) },
            Span { from_ms: 7_000, until_ms: Some(9_000) },
        ];
        assert_eq!(expected.tracks[0].on_air, spans);
        assert_eq!(expected.listeners[0].present.until_ms, Some(9_000));
    }

    #[test]
    fn what_one_participant_alone_is_told_has_no_number() {
        let mut roster = Roster::default();
        roster.joined(&joined("p1", 1, vec![]), "bot-1", 0);
        roster.connected(listener("bot-1", "p1", 10));
        roster.event("r", &event(2, Event::TrackLayers { track: "t".into(), layer: 1 }), 400);
        let added = Event::TrackAdded { participant: "p1".into(), track: track("t", false) };
        roster.event("r", &event(2, added), 500);
        assert_eq!(roster.expected(30_000).tracks.len(), 1);
    }

    #[test]
    fn nobody_is_expected_to_get_more_than_the_room_has_slots() {
        let mut roster = Roster::default();
        roster.joined(&joined("p1", 1, vec![]), "bot-1", 0);
        roster.connected(listener("bot-1", "p1", 10));
        roster.connected(Listener { max_video: Some(4), ..listener("chromium-1", "p2", 10) });
        let most = |roster: &Roster| -> Vec<_> {
            let listeners = roster.expected(30_000).listeners;
            listeners.iter().map(|l| (l.max_audio, l.max_video)).collect()
        };
        assert_eq!(most(&roster), [(Some(9), Some(9)), (Some(9), Some(4))]);
    }

    #[test]
    fn strangers_and_people_who_never_connected_are_not_expected() {
        let mut roster = Roster::default();
        let info = ParticipantInfo {
            id: "px".into(),
            name: "guest".into(),
            tracks: vec![track("t", false)],
            hand: false,
        };
        roster.joined(&joined("p1", 1, vec![info]), "bot-1", 0);
        roster.connected(listener("bot-1", "p1", 10));
        assert_eq!(roster.expected(30_000).tracks, []);
    }

    #[test]
    fn of_an_audience_the_senders_own_word_counts() {
        let mut roster = Roster::default();
        roster.joined(&joined("p1", 7, vec![]), "bot-1", 0);
        roster.sends("r", ("p1", "bot-1"), "t", MediaKind::Audio, 3_000);
        roster.connected(listener("bot-1", "p1", 2_000));
        roster.sends_no_more("r", "p1", 9_000);
        roster.sends("r", ("p1", "bot-1"), "t", MediaKind::Audio, 9_001);
        let expected = roster.expected(30_000);
        assert_eq!(expected.tracks[0].on_air, [Span { from_ms: 3_000, until_ms: Some(9_000) }]);
    }

    #[test]
    fn where_nobody_hears_events_the_senders_own_word_counts() {
        let mut roster = Roster::default();
        roster.sends("r", ("p1", "chromium-1"), "t", MediaKind::Video, 3_000);
        roster.sends("r", ("p1", "chromium-1"), "t", MediaKind::Video, 6_000);
        roster.connected(listener("chromium-1", "p1", 2_000));
        let expected = roster.expected(30_000);
        assert_eq!(expected.tracks[0].on_air, [Span { from_ms: 3_000, until_ms: None }]);
        assert_eq!(expected.tracks[0].publisher, "chromium-1");
    }
}
