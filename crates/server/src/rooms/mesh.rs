//! A mesh: members say what they send, and their descriptions and candidates are passed on. No
//! media comes through the server.

use super::calls::{Answered, answer, check_tracks, refused, seat};
use super::naming::check_once;
use super::notices::{kind_of, participant_id, person_key, track_id};
use super::{Rooms, locked};
use crate::socket::Socket;
use engine::TrackKey;
use engine::room::{Effects, Published};
use rtp::negotiated::Kind;
use std::sync::Arc;
use wire::event::LeaveReason;
use wire::room::{
    Announce, Announced, AnsweredTrack, AudioTopology, PeerCandidate, PeerDescription,
    VideoTopology,
};
use wire::{ErrorCode, Event, RoomError};

/// Longest candidate line passed on, in bytes.
const CANDIDATE_BYTES: usize = 1024;

impl Rooms {
    /// A member says what they send.
    pub(super) fn announce(&self, socket: &Arc<Socket>, announce: &Announce) -> Answered {
        let seat = seat(socket)?;
        let announced: Vec<(Published, Kind)> = announce
            .tracks
            .iter()
            .map(|track| {
                let published = Published {
                    mid: track.mid.chars().take(64).collect(),
                    name: track.name.chars().take(64).collect(),
                    key: TrackKey(self.key()),
                    layers: Vec::new(),
                    opaque: false,
                    music: false,
                };
                (published, kind_of(track.kind))
            })
            .collect();
        let mut state = locked(&seat.cell.state);
        check_tracks(&seat, &mut state, &announce.tracks)?;
        let mut effects = Effects::default();
        let keys = state.room.announce(seat.person, &announced, &mut effects).map_err(refused)?;
        let published = announced.iter().map(|(published, _)| published);
        seat.cell.keep_silent(&mut state, seat.person, published, &mut effects);
        seat.cell.apply(&mut state, effects, LeaveReason::Left);
        drop(state);
        let tracks = announced.into_iter().zip(keys);
        let tracks =
            tracks.map(|((track, _), key)| AnsweredTrack { mid: track.mid, id: track_id(key) });
        answer(&Announced { tracks: tracks.collect() })
    }

    pub(super) fn peer_offer(&self, socket: &Arc<Socket>, offer: PeerDescription) -> Answered {
        let PeerDescription { to, sdp, tracks } = offer;
        self.check_description(&sdp, &tracks)?;
        let bytes = sdp.len();
        self.pass_on(socket, &to, bytes, |from| Event::PeerOffer { from, sdp, tracks })
    }

    pub(super) fn peer_answer(&self, socket: &Arc<Socket>, answer: PeerDescription) -> Answered {
        let PeerDescription { to, sdp, tracks } = answer;
        self.check_description(&sdp, &tracks)?;
        let bytes = sdp.len();
        self.pass_on(socket, &to, bytes, |from| Event::PeerAnswer { from, sdp, tracks })
    }

    pub(super) fn peer_candidate(
        &self,
        socket: &Arc<Socket>,
        candidate: PeerCandidate,
    ) -> Answered {
        let PeerCandidate { to, candidate, mid } = candidate;
        if candidate.len() > CANDIDATE_BYTES {
            let text = format!("a candidate has at most {CANDIDATE_BYTES} bytes");
            return Err(RoomError::new(ErrorCode::BadRequest, text));
        }
        let bytes = candidate.len();
        self.pass_on(socket, &to, bytes, |from| Event::PeerCandidate { from, candidate, mid })
    }

    fn check_description(&self, sdp: &str, tracks: &[AnsweredTrack]) -> Result<(), RoomError> {
        check_once("in tracks the mid", tracks.iter().map(|track| track.mid.as_str()))?;
        if sdp.len() <= self.limits.sdp_bytes {
            return Ok(());
        }
        let text =
            format!("the SDP has {} bytes, at most {} pass", sdp.len(), self.limits.sdp_bytes);
        Err(RoomError::new(ErrorCode::BadSdp, text))
    }

    /// Passes an event of this member on to another one. It is refused if this member passes on too much, or if the
    /// other one reads too slowly to have room for it: nobody's socket is closed for what others send them. `bytes`: its
    /// length.
    fn pass_on(
        &self,
        socket: &Arc<Socket>,
        to: &str,
        bytes: usize,
        event: impl FnOnce(String) -> Event,
    ) -> Answered {
        let seat = seat(socket)?;
        let cell = &seat.cell;
        if cell.audio != AudioTopology::Mesh && cell.video != VideoTopology::Mesh {
            let text = format!("room {} is no mesh: offer the server with room.offer", cell.id);
            return Err(RoomError::new(ErrorCode::KindConflict, text));
        }
        let state = locked(&cell.state);
        let grants = state.members.get(&seat.person).map(|member| &member.grants);
        if !grants.is_some_and(|grants| grants.can_publish || grants.can_subscribe) {
            let text = "the token allows neither to send nor to receive: ask for another";
            return Err(RoomError::new(ErrorCode::NotAllowed, text));
        }
        let other = person_key(to)
            .filter(|other| *other != seat.person && state.members.contains_key(other));
        let Some(other) = other else {
            let text = format!("{:?} is not in this room any more", shorten(to));
            return Err(RoomError::new(ErrorCode::UnknownParticipant, text));
        };
        self.passing.take(socket.id(), bytes)?;
        if !cell.pass_on(&state, other, event(participant_id(seat.person))) {
            let text =
                "too much waits for this participant, who reads slowly: send it again in a second";
            return Err(RoomError::new(ErrorCode::TooFast, text));
        }
        Ok(None)
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(32).collect()
}
