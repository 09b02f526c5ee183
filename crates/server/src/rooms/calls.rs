//! What sockets ask for: the calls of [`wire::room`].

use super::decisions::Subject;
use super::moderation::{REMOVED, check_decisions, may_moderate};
use super::naming::{check_lines, check_names, check_once};
use super::notices::{
    kind_of, media_kind, participant_id, participant_info, person_key, speakers_event, track_id,
    track_key,
};
use super::{Cell, Member, Rooms, Seat, State, locked};
use crate::auth::{Grants, TokenError};
use crate::desk::{RoomDesk, RoomRow};
use crate::lane;
use crate::socket::{Application, Socket};
use engine::room::{Effects, Published, Refusal};
use engine::{PersonKey, Shown, TrackKey};
use rtp::negotiated::{Direction, Negotiated};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use std::sync::Arc;
use std::time::Instant;
use wire::console::Quality;
use wire::event::LeaveReason;
use wire::room::{
    self, Answer, AnsweredTrack, AudioTopology, ContentHint, Hand, Join, Joined, MediaKind, Mute,
    Offer, OfferedLayer, OfferedTrack, PEOPLE_A_PAGE, People, PeoplePage, Permissions, Preset,
    Resume, Resumed, Slots, VideoTopology,
};
use wire::{ErrorCode, RoomError};

/// Calls that give media and mixing threads more to do. They are refused while such a thread is behind its commands.
/// Participants may leave and be removed at any time.
const ADDS_WORK: [&str; 4] = [room::JOIN, room::OFFER, room::SLOTS, room::MUTE];

pub(super) type Answered = Result<Option<Box<RawValue>>, RoomError>;

fn parse<T: DeserializeOwned>(event: &str, data: Option<&RawValue>) -> Result<T, RoomError> {
    let text = data.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|error| {
        RoomError::new(ErrorCode::BadRequest, format!("the argument of {event}: {error}"))
    })
}

pub(super) fn answer<T: Serialize>(value: &T) -> Answered {
    to_raw_value(value)
        .map(Some)
        .map_err(|error| RoomError::new(ErrorCode::Internal, format!("the answer: {error}")))
}

pub(super) fn refused(refusal: Refusal) -> RoomError {
    let (code, text) = match refusal {
        Refusal::Full => (ErrorCode::RoomFull, "the room has as many people as it may: try later"),
        Refusal::Locked => (ErrorCode::RoomLocked, "the room is locked: ask a moderator"),
        Refusal::OtherTopology => {
            let text = "the room has no such media, or it goes another way: see audio and video of \
                        the room";
            (ErrorCode::KindConflict, text)
        }
        Refusal::Silenced => (ErrorCode::NotAllowed, "a moderator muted this track: ask them"),
        Refusal::UnknownPerson => (ErrorCode::Gone, "you are no longer in the room: join again"),
        Refusal::UnknownTrack => {
            (ErrorCode::UnknownTrack, "no such track of that kind here: use the ids of the events")
        }
        Refusal::UnknownSlot => {
            (ErrorCode::UnknownSlot, "no such slot: offer a recvonly line and name it by its mid")
        }
        Refusal::Opaque => {
            let text =
                "sound that is encrypted end to end cannot be mixed: use a room with audio sfu";
            (ErrorCode::KindUnsupported, text)
        }
        Refusal::LineTwice => {
            (ErrorCode::BadRequest, "a line carries one track: name each mid in tracks once")
        }
        Refusal::TooManyTracks => (ErrorCode::NotAllowed, "too many tracks: end one first"),
    };
    RoomError::new(code, text)
}

impl Application for Rooms {
    async fn call(&self, socket: &Arc<Socket>, event: &str, data: Option<&RawValue>) -> Answered {
        if ADDS_WORK.contains(&event) {
            self.check_behind()?;
        }
        match event {
            room::JOIN => self.join(socket, parse(event, data)?),
            room::OFFER => self.offer(socket, parse(event, data)?).await,
            room::SLOTS => self.slots(socket, &parse(event, data)?),
            room::ANNOUNCE => self.announce(socket, &parse(event, data)?),
            room::PEER_OFFER => self.peer_offer(socket, parse(event, data)?),
            room::PEER_ANSWER => self.peer_answer(socket, parse(event, data)?),
            room::PEER_CANDIDATE => self.peer_candidate(socket, parse(event, data)?),
            room::REMOVE => self.remove(socket, &parse(event, data)?),
            room::LOCK => self.lock(socket, &parse(event, data)?),
            room::LIMIT => self.limit(socket, &parse(event, data)?),
            room::MUTE => self.mute(socket, &parse(event, data)?),
            room::HAND => self.hand(socket, &parse(event, data)?),
            room::PEOPLE => self.people_page(socket, &parse(event, data)?),
            room::LEAVE => {
                let seat = seat(socket)?;
                self.leave(&seat.cell, seat.person, LeaveReason::Left);
                Ok(None)
            }
            room::RESUME => self.resume(socket, &parse(event, data)?),
            room::QUALITY_SAMPLE => self.quality_sample(socket, &parse(event, data)?),
            _ => {
                let text = format!("there is no {event} here: check the name");
                Err(RoomError::new(ErrorCode::UnknownEvent, text))
            }
        }
    }

    fn closed(&self, socket: &Arc<Socket>) {
        self.budgets.forget(socket.id());
        self.passing.forget(socket.id());
        let Ok(seat) = seat(socket) else { return };
        let mut state = locked(&seat.cell.state);
        if let Some(member) = state.members.get_mut(&seat.person)
            && member.socket.as_ref().is_some_and(|known| known.id() == socket.id())
        {
            member.socket = None;
            member.socket_lost = Some(Instant::now());
            let (room, participant) = (&seat.cell.id, participant_id(seat.person));
            tracing::info!(room, participant, "socket lost; the participant stays a while");
        }
    }

    fn end_revoked(&self, is_revoked: &dyn Fn(&Grants) -> bool) -> usize {
        self.put_out(is_revoked)
    }

    fn rooms(&self) -> Vec<RoomRow> {
        self.all_rooms()
    }

    fn quality(&self) -> Quality {
        self.all_quality()
    }

    fn desk(&self) -> Option<&dyn RoomDesk> {
        Some(self)
    }

    fn may_subscribe(&self, socket: &Arc<Socket>, channel: &str) -> bool {
        seat(socket).is_ok_and(|seat| seat.cell.channel == channel)
    }
}

fn offer_refused(why: lane::Refused) -> RoomError {
    match why {
        lane::Refused::Waiting => {
            let text = "your last offer has no answer yet: wait for it, then offer again";
            RoomError::new(ErrorCode::TooFast, text)
        }
        lane::Refused::Ended => RoomError::new(ErrorCode::Draining, "the server is ending"),
    }
}

pub(super) fn seat(socket: &Socket) -> Result<Arc<Seat>, RoomError> {
    socket.state_of::<Seat>().ok_or_else(|| {
        RoomError::new(ErrorCode::NotJoined, "this socket is in no room: call room.join first")
    })
}

/// Whether the room is of the kind that a join asks for.
fn check_kind(cell: &Cell, join: &Join) -> Result<(), RoomError> {
    let preset = join.preset.map(Preset::topologies);
    let audio = join.audio.or(preset.map(|(audio, _)| audio));
    let video = join.video.or(preset.map(|(_, video)| video));
    let same = audio.is_none_or(|audio| audio == cell.audio)
        && video.is_none_or(|video| video == cell.video)
        && join.video_codec.is_none_or(|codec| codec == cell.video_codec);
    if same {
        return Ok(());
    }
    let text = format!(
        "room {} is audio {:?}, video {:?} {:?}: leave audio, video, preset and video_codec out to \
         join it as it is",
        cell.id, cell.audio, cell.video, cell.video_codec
    );
    Err(RoomError::new(ErrorCode::KindConflict, text))
}

/// Whether a participant may send these tracks, each on a line of its own. Tracks that they send already go on when their token expires. A new
/// track needs a token whose time is not over.
pub(super) fn check_tracks(
    seat: &Seat,
    state: &mut State,
    tracks: &[OfferedTrack],
) -> Result<(), RoomError> {
    check_lines(tracks)?;
    let person = state.room.person(seat.person).ok_or(Refusal::UnknownPerson).map_err(refused)?;
    let is_new = |track: &OfferedTrack| person.track_on(&track.mid, kind_of(track.kind)).is_none();
    let new = tracks.iter().any(is_new);
    let member = state.members.get_mut(&seat.person).ok_or(Refusal::UnknownPerson);
    let member = member.map_err(refused)?;
    if new {
        member.renew(&seat.cell.id);
        if member.grants.is_expired() {
            let text = "the token is expired: send a fresh one by #authenticate, then offer again";
            return Err(RoomError::new(ErrorCode::BadToken, text));
        }
    }
    let refused = |track: &&OfferedTrack| !member.grants.may_publish_track(&track.name, track.kind);
    match tracks.iter().find(refused) {
        None => Ok(()),
        Some(OfferedTrack { name, kind, .. }) => {
            let kind = kind.as_str();
            let text =
                format!("the token does not allow to send {name:?} as {kind}: ask for another");
            Err(RoomError::new(ErrorCode::NotAllowed, text))
        }
    }
}

/// A layer as the room knows it.
fn layer(layer: &OfferedLayer) -> (String, u32) {
    (layer.rid.clone(), pixels(layer.width, layer.height))
}

fn pixels(width: u32, height: u32) -> u32 {
    width.saturating_mul(height)
}

/// Whether each track is of the kind that its line has: a token allows tracks by kind.
fn check_kinds(tracks: &[OfferedTrack], negotiated: &Negotiated) -> Result<(), RoomError> {
    let differs = |track: &&OfferedTrack| {
        let line = negotiated.line(&track.mid);
        line.is_some_and(|line| media_kind(line.codec.kind()) != track.kind)
    };
    let Some(track) = tracks.iter().find(differs) else { return Ok(()) };
    let (mid, kind) = (&track.mid, track.kind.as_str());
    let text = format!("the line {mid:?} does not carry {kind}: say the kind that its m= line has");
    Err(RoomError::new(ErrorCode::BadSdp, text))
}

/// Whether an offer leaves any line to connect by.
fn check_some(negotiated: &Negotiated, rejected: &[String], cell: &Cell) -> Result<(), RoomError> {
    if !negotiated.lines.is_empty() || rejected.is_empty() {
        return Ok(());
    }
    let text = format!(
        "no line of the offer has a codec that this room takes: offer opus/48000/2, and pictures as {:?}",
        cell.video_codec
    );
    Err(RoomError::new(ErrorCode::BadSdp, text))
}

impl Cell {
    /// A page of those who are here.
    pub(super) fn page(&self, asked: &People) -> Result<PeoplePage, RoomError> {
        let bad = |text: String| RoomError::new(ErrorCode::BadRequest, text);
        let limit = asked.limit.unwrap_or(PEOPLE_A_PAGE);
        if !(1..=PEOPLE_A_PAGE).contains(&limit) {
            return Err(bad(format!(
                "a page has 1 to {PEOPLE_A_PAGE} people: ask with such a limit"
            )));
        }
        let after = asked.after.as_deref().map(|id| {
            let text = "after is the id of a participant: the last one of the page before";
            person_key(id).ok_or_else(|| bad(text.to_owned()))
        });
        let after = after.transpose()?;
        let state = locked(&self.state);
        let people = state.room.people_after(after, limit as usize).map(participant_info);
        Ok(PeoplePage { count: state.count(), people: people.collect() })
    }

    /// Silences new tracks of a kind that a moderator silenced before: a new line, or joining again, undoes no
    /// decision.
    pub(super) fn keep_silent<'a>(
        &self,
        state: &mut State,
        person: PersonKey,
        published: impl Iterator<Item = &'a Published>,
        effects: &mut Effects,
    ) {
        let subject = state.members.get(&person).and_then(Subject::of);
        for Published { key, .. } in published {
            let tracks = state.room.person(person).map_or(&[][..], |person| &person.tracks);
            // A track that was there already has another key.
            let Some(track) = tracks.iter().find(|track| track.key == *key) else { continue };
            if state.decisions.is_silenced(subject.as_ref(), track.kind) {
                // This cannot fail: the track was found just now.
                let _ = state.room.silence(*key, true, effects);
            }
        }
    }

    /// Whether media of these kinds passes through the server here.
    fn check_media(&self, kinds: impl Iterator<Item = MediaKind>) -> Result<(), RoomError> {
        for kind in kinds {
            let text = match (kind, self.audio, self.video) {
                (MediaKind::Audio, AudioTopology::Mesh, _) => "sound goes from person to person",
                (MediaKind::Video, _, VideoTopology::Mesh) => "pictures go from person to person",
                (MediaKind::Video, _, VideoTopology::None) => "there is no video",
                _ => continue,
            };
            let text = format!("in room {} {text}: do not offer it to the server", self.id);
            return Err(RoomError::new(ErrorCode::KindConflict, text));
        }
        Ok(())
    }
}

impl Rooms {
    /// Whether there is time for calls that add work.
    pub(super) fn check_behind(&self) -> Result<(), RoomError> {
        if !self.is_behind() {
            return Ok(());
        }
        self.metrics.dropped("rooms", "behind");
        let text = "the server is behind its work: try again in a second";
        Err(RoomError::new(ErrorCode::TooFast, text))
    }

    fn join(&self, socket: &Arc<Socket>, join: Join) -> Answered {
        check_names(&join)?;
        let grants = self.auth.for_join(join.token.as_deref(), socket, &join.room)?;
        if self.draining.load(std::sync::atomic::Ordering::Relaxed) {
            let text = "the server is ending: connect to another, or again later";
            return Err(RoomError::new(ErrorCode::Draining, text));
        }
        if seat(socket).is_ok() {
            let text = "this socket is in a room already: call room.leave first";
            return Err(RoomError::new(ErrorCode::BadRequest, text));
        }
        let person = PersonKey(self.key());
        let (from, most) = (socket.remote().ip(), self.limits.sessions_per_identity);
        let freed = |cell: Arc<Cell>| locked(&cell.state).too_many_of(&grants, most).len();
        let freed = self.named(&join.room).map_or(0, freed);
        let claim = self.shares.seat(from, grants.identity.as_deref(), freed)?;
        loop {
            let cell = self.open(&join, &grants, from)?;
            check_kind(&cell, &join)?;
            let mut state = locked(&cell.state);
            if state.ended {
                continue; // Its last participant left just now: it is out of the table, or soon will be.
            }
            if self.auth.is_revoked(&grants) {
                // Checked again under the room's lock: a revocation that came meanwhile found no seat of theirs.
                drop(state);
                self.end_if_empty(&cell);
                return Err(TokenError::Revoked.into());
            }
            let subject = Subject::new(grants.identity.as_deref(), join.session.as_deref());
            if state.decisions.is_removed(subject.as_ref()) {
                return Err(RoomError::new(ErrorCode::NotAllowed, REMOVED));
            }
            let older = state.too_many_of(&grants, most);
            if !older.is_empty() && state.room.is_full() && !state.room.locked() {
                drop(state);
                self.replace(&cell, &older);
                continue; // Their seat is free now.
            }
            let mut effects = Effects::default();
            let (name, shard) = (join.name.trim().to_owned(), self.place(&state.room));
            if let Err(refusal) = state.room.join(person, name, shard, &mut effects) {
                self.unplace(shard);
                return Err(refused(refusal));
            }
            let you = Permissions {
                can_publish: grants.can_publish,
                can_subscribe: grants.can_subscribe,
                can_moderate: grants.can_moderate,
            };
            cell.apply(&mut state, effects, LeaveReason::Left);
            if join.token.is_some() {
                socket.joined_with_token(grants.identity.as_deref());
            }
            let member = Member {
                grants,
                shard,
                session: join.session,
                socket: Some(socket.clone()),
                socket_lost: None,
                media_lost: None,
                last_sample: None,
                had_media: false,
                _claim: claim,
            };
            state.members.insert(person, member);
            state.reserved_until = None;
            socket.set_state(Seat { cell: cell.clone(), person });
            if state.room.speaking().next().is_some() {
                // Others are told when that changes.
                cell.tell_one(&state, person, speakers_event(&state.room));
            }
            self.enter(person, &cell);
            let others = state.room.named().filter(|other| other.key != person);
            let joined = Joined {
                participant: participant_id(person),
                epoch: state.log.epoch(),
                room: cell.info(&state.room),
                you,
                count: state.count(),
                participants: others.map(participant_info).collect(),
                ice_servers: Vec::new(),
            };
            drop(state);
            self.replace(&cell, &older);
            let (room, participant) = (&cell.id, &joined.participant);
            tracing::info!(room, participant, name = join.name.trim(), "participant joined");
            return answer(&joined);
        }
    }

    async fn offer(&self, socket: &Arc<Socket>, offer: Offer) -> Answered {
        let seat = seat(socket)?;
        let (cell, person) = (&seat.cell, seat.person);
        cell.check_media(offer.tracks.iter().map(|track| track.kind))?;
        let (answered, can_subscribe) = {
            let mut state = locked(&cell.state);
            check_tracks(&seat, &mut state, &offer.tracks)?;
            let member = state.members.get(&person).ok_or(Refusal::UnknownPerson);
            let member = member.map_err(refused)?;
            if member.session != offer.session {
                let text =
                    "this offer comes from another page than the one that joined: join again";
                return Err(RoomError::new(ErrorCode::OfferConflict, text));
            }
            self.budgets.take(socket.id(), &offer.sdp, &self.limits)?;
            // Under the room's lock: the participant is in the room now, so the end of their transport comes after it.
            let control = &cell.shard(member.shard).control;
            let answered = control.offer(person, offer.sdp, cell.format());
            (answered.map_err(offer_refused)?, member.grants.can_subscribe)
        };
        let (sdp, mut negotiated) = answered
            .await
            .map_err(|_| {
                let left = !locked(&cell.state).members.contains_key(&person);
                if left {
                    refused(Refusal::UnknownPerson)
                } else {
                    offer_refused(lane::Refused::Ended)
                }
            })?
            .map_err(|error| {
                self.metrics.dropped("control", "bad_sdp");
                RoomError::new(ErrorCode::BadSdp, error.to_string())
            })?;
        let rejected = transport::rejected(&sdp);
        check_some(&negotiated, &rejected, cell)?;
        if !can_subscribe {
            negotiated.lines.retain(|line| line.direction != Direction::Send);
        }
        check_kinds(&offer.tracks, &negotiated)?;
        // A line without a codec that the room takes is rejected alone: its track gets no id.
        let accepted = offer.tracks.iter().filter(|track| !rejected.contains(&track.mid));
        let published: Vec<Published> = accepted
            .map(|track| Published {
                mid: track.mid.clone(),
                name: track.name.chars().take(64).collect(),
                key: TrackKey(self.key()),
                opaque: track.opaque,
                music: track.content_hint == ContentHint::Music,
                layers: track.layers.iter().map(layer).collect(),
            })
            .collect();
        let mut state = locked(&cell.state);
        let mut effects = Effects::default();
        let keys = state.room.negotiated(person, &negotiated, &published, &mut effects);
        let keys = keys.map_err(refused)?;
        cell.keep_silent(&mut state, person, published.iter(), &mut effects);
        cell.apply(&mut state, effects, LeaveReason::Left);
        drop(state);
        let tracks = published.into_iter().zip(keys);
        let tracks = tracks.map(|(track, key)| AnsweredTrack { mid: track.mid, id: track_id(key) });
        answer(&Answer { sdp, tracks: tracks.collect() })
    }

    fn slots(&self, socket: &Arc<Socket>, slots: &Slots) -> Answered {
        let seat = seat(socket)?;
        check_once("in want the slot", slots.want.iter().map(|at| at.slot.as_str()))?;
        check_once("in shown the slot", slots.shown.iter().map(|at| at.slot.as_str()))?;
        let mut want = Vec::with_capacity(slots.want.len());
        let mut shown = Vec::with_capacity(slots.shown.len());
        shown.extend(slots.shown.iter().map(|at| {
            let pixels = pixels(at.width, at.height);
            (at.slot.clone(), Shown { pixels, pinned: Some(at.pinned) })
        }));
        for entry in &slots.want {
            if let (Some(width), Some(height)) = (entry.width, entry.height) {
                let pixels = pixels(width, height);
                shown.push((entry.slot.clone(), Shown { pixels, pinned: None }));
            }
            let track = match &entry.track {
                None => None,
                Some(id) => Some(track_key(id).ok_or(refused(Refusal::UnknownTrack))?),
            };
            want.push((entry.slot.clone(), track));
        }
        let mut state = locked(&seat.cell.state);
        let mut effects = Effects::default();
        let done = state.room.show(seat.person, &shown, &mut effects);
        let done = done.and_then(|()| state.room.want(seat.person, &want, &mut effects));
        // What was said of how slots are shown holds although what is wanted was refused.
        seat.cell.apply(&mut state, effects, LeaveReason::Left);
        done.map(|()| None).map_err(refused)
    }

    fn mute(&self, socket: &Arc<Socket>, mute: &Mute) -> Answered {
        let seat = seat(socket)?;
        let track = track_key(&mute.track).ok_or(refused(Refusal::UnknownTrack))?;
        let mut state = locked(&seat.cell.state);
        let mut effects = Effects::default();
        let owner = state.room.owner_of(track).ok_or(Refusal::UnknownTrack).map_err(refused)?;
        if owner == seat.person {
            state.room.mute(owner, track, mute.muted, &mut effects).map_err(refused)?;
        } else {
            may_moderate(&seat, &mut state)?;
            self.silence_track(&mut state, track, mute.muted, &mut effects)?;
        }
        seat.cell.apply(&mut state, effects, LeaveReason::Left);
        Ok(None)
    }

    /// The caller raises their hand, or lowers it.
    fn hand(&self, socket: &Arc<Socket>, hand: &Hand) -> Answered {
        let seat = seat(socket)?;
        let mut state = locked(&seat.cell.state);
        let mut effects = Effects::default();
        state.room.hand(seat.person, hand.raised, &mut effects).map_err(refused)?;
        seat.cell.apply(&mut state, effects, LeaveReason::Left);
        Ok(None)
    }

    /// A page of those who are in the caller's room.
    fn people_page(&self, socket: &Arc<Socket>, asked: &People) -> Answered {
        answer(&seat(socket)?.cell.page(asked)?)
    }

    fn resume(&self, socket: &Arc<Socket>, resume: &Resume) -> Answered {
        let gone = || RoomError::new(ErrorCode::Gone, "that participant is gone: join again");
        let person = person_key(&resume.participant).ok_or_else(gone)?;
        if seat(socket).is_ok_and(|seat| seat.person != person) {
            // Nobody would hold the seat that it has.
            let text = "this socket is in a room already: call room.leave first";
            return Err(RoomError::new(ErrorCode::BadRequest, text));
        }
        if let Some(cell) = self.named(&resume.room) {
            check_decisions(&locked(&cell.state), person)?;
        }
        let cell = self.cell_of(person).filter(|cell| cell.id == resume.room);
        let cell = cell.ok_or_else(gone)?;
        let mut state = locked(&cell.state);
        self.check_stays(&state, person)?;
        let events = state.log.after(resume.seen).ok_or_else(gone)?;
        let epoch = state.log.epoch();
        let member = state.members.get_mut(&person).ok_or_else(gone)?;
        if member.session.as_deref() != Some(resume.session.as_str()) {
            return Err(gone());
        }
        let old = member.socket.replace(socket.clone());
        member.socket_lost = None;
        if let Some(old) = old.filter(|old| old.id() != socket.id()) {
            // A half-open connection of the same page: its participant has moved on.
            old.clear_state();
            old.close(wire::frame::close::NO_PONG, "resumed on another socket");
        }
        socket.set_state(Seat { cell: cell.clone(), person });
        cell.tell_state(&state, person);
        drop(state);
        let (room, participant) = (&cell.id, participant_id(person));
        tracing::info!(room, participant, missed = events.len(), "participant resumed");
        answer(&Resumed { epoch, events })
    }
}
