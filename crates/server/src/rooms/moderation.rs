//! What moderators may do: put someone out, lock the room, change its limit, silence others. A further session of the same identity
//! puts an older one out, too.

use super::calls::{Answered, refused, seat};
use super::decisions::Subject;
use super::notices::person_key;
use super::{Cell, Rooms, Seat, State, locked};
use crate::auth::{Grants, TokenError};
use crate::socket::{REVOKED, Socket};
use engine::room::{Effects, Refusal};
use engine::{PersonKey, TrackKey};
use std::sync::{Arc, MutexGuard};
use wire::event::LeaveReason;
use wire::frame::close;
use wire::room::{AudioTopology, Limit, Lock, Remove, VideoTopology};
use wire::{ErrorCode, Event, RoomError};

/// What an older session is told.
pub(super) const REPLACED: &str = "you came in again from another page or device";

/// What who was removed is told when they come back.
pub(super) const REMOVED: &str =
    "a moderator removed you from this room: ask one to let you in again";

/// Whether it was decided that this participant does not come back: their page must not do so by itself.
pub(super) fn check_decisions(state: &State, person: PersonKey) -> Result<(), RoomError> {
    if state.decisions.was_replaced(person) {
        return Err(RoomError::new(ErrorCode::Replaced, REPLACED));
    }
    if state.decisions.was_removed(person) {
        return Err(RoomError::new(ErrorCode::NotAllowed, REMOVED));
    }
    Ok(())
}

/// Whether this participant may moderate now: their token says so, and its time is not over.
pub(super) fn may_moderate(seat: &Seat, state: &mut State) -> Result<(), RoomError> {
    let member = state.members.get_mut(&seat.person);
    let text = match member {
        Some(member) if member.grants.can_moderate => {
            member.renew(&seat.cell.id);
            if !member.grants.is_expired() && member.grants.can_moderate {
                return Ok(());
            }
            "the token with video.roomAdmin is expired: send a fresh one by #authenticate"
        }
        _ => "only a moderator may: ask for a token with video.roomAdmin",
    };
    Err(RoomError::new(ErrorCode::NotAllowed, text))
}

impl Rooms {
    /// Puts someone out, or lets them in again.
    pub(super) fn remove(&self, socket: &Arc<Socket>, remove: &Remove) -> Answered {
        let seat = seat(socket)?;
        let mut state = locked(&seat.cell.state);
        may_moderate(&seat, &mut state)?;
        if remove.lift {
            seat.cell.readmit(&mut state, &remove.participant)?;
        } else {
            self.put_one_out(&seat.cell, state, &remove.participant, "a moderator removed you")?;
        }
        Ok(None)
    }

    /// Puts a participant of a room out for good, with all other seats of theirs, and tells them why.
    pub(super) fn put_one_out(
        &self,
        cell: &Arc<Cell>,
        mut state: MutexGuard<'_, State>,
        participant: &str,
        why: &str,
    ) -> Result<(), RoomError> {
        let person = person_key(participant);
        let Some(gone) = person.filter(|person| state.members.contains_key(person)) else {
            let text = "no such participant in this room: see room.people";
            return Err(RoomError::new(ErrorCode::UnknownParticipant, text));
        };
        let subject = state.members.get(&gone).and_then(Subject::of);
        let seats = state.seats_of(gone);
        if state.decisions.remove(subject, &seats) {
            self.metrics.dropped("rooms", "decision_forgotten");
        }
        // They are told before they are out: later no event reaches them.
        for seat in &seats {
            cell.tell_one(&state, *seat, Event::RoomEnded { reason: why.to_owned() });
        }
        drop(state);
        seats.into_iter().for_each(|seat| self.leave(cell, seat, LeaveReason::Removed));
        Ok(())
    }

    /// Ends older sessions of somebody who came in again: their pages are told, and do not come back by themselves.
    pub(super) fn replace(&self, cell: &Arc<Cell>, older: &[PersonKey]) {
        for person in older {
            let mut state = locked(&cell.state);
            state.decisions.replace(*person);
            cell.tell_one(&state, *person, Event::RoomEnded { reason: REPLACED.to_owned() });
            drop(state);
            self.leave(cell, *person, LeaveReason::Replaced);
        }
    }

    /// Whether a seat may be taken up again. Somebody who was put out keeps theirs for a moment after the decision.
    pub(super) fn check_stays(&self, state: &State, person: PersonKey) -> Result<(), RoomError> {
        check_decisions(state, person)?;
        let Some(member) = state.members.get(&person) else { return Ok(()) };
        if self.auth.is_revoked(&member.grants) {
            return Err(TokenError::Revoked.into());
        }
        if state.decisions.is_removed(Subject::of(member).as_ref()) {
            return Err(RoomError::new(ErrorCode::NotAllowed, REMOVED));
        }
        if state.ended {
            return Err(refused(Refusal::UnknownPerson));
        }
        Ok(())
    }

    /// Puts everybody whose token is revoked out of all rooms. Returns how many they were.
    pub(super) fn put_out(&self, is_revoked: &dyn Fn(&Grants) -> bool) -> usize {
        let cells: Vec<Arc<Cell>> = locked(&self.table).by_id.values().cloned().collect();
        let mut count = 0;
        for cell in cells {
            let state = locked(&cell.state);
            let mut gone = Vec::new();
            for (person, member) in &state.members {
                if is_revoked(&member.grants) {
                    cell.tell_one(&state, *person, Event::RoomEnded { reason: REVOKED.to_owned() });
                    gone.push((*person, member.socket.clone()));
                }
            }
            drop(state);
            count += gone.len();
            for (person, socket) in gone {
                self.leave(&cell, person, LeaveReason::Removed);
                if let Some(socket) = socket {
                    socket.close(close::REVOKED, REVOKED);
                }
            }
        }
        count
    }

    /// Locks the room against new participants, or unlocks it.
    pub(super) fn lock(&self, socket: &Arc<Socket>, lock: &Lock) -> Answered {
        let seat = seat(socket)?;
        let mut state = locked(&seat.cell.state);
        may_moderate(&seat, &mut state)?;
        let mut effects = Effects::default();
        state.room.lock(lock.locked, &mut effects);
        seat.cell.apply(&mut state, effects, LeaveReason::Left);
        Ok(None)
    }

    /// Changes how many may be in the room.
    pub(super) fn limit(&self, socket: &Arc<Socket>, limit: &Limit) -> Answered {
        let seat = seat(socket)?;
        let mut state = locked(&seat.cell.state);
        may_moderate(&seat, &mut state)?;
        let most = self.check_limit(seat.cell.audio, seat.cell.video, limit.max_participants)?;
        let mut effects = Effects::default();
        state.room.limit(most, &mut effects);
        seat.cell.apply(&mut state, effects, LeaveReason::Left);
        Ok(None)
    }

    /// Whether a room of this kind may let so many people in.
    pub(super) fn check_limit(
        &self,
        audio: AudioTopology,
        video: VideoTopology,
        people: u32,
    ) -> Result<usize, RoomError> {
        let most = self.setup(audio, video).limits.people;
        if (1..=most).contains(&(people as usize)) {
            return Ok(people as usize);
        }
        let text = format!("max_participants is 1 to {most} here");
        Err(RoomError::new(ErrorCode::BadRequest, text))
    }

    /// A moderator, or the application, silences a track for everybody, or lifts that. It holds for what its publisher
    /// sends of that kind from other seats, too.
    pub(super) fn silence_track(
        &self,
        state: &mut State,
        track: TrackKey,
        on: bool,
        effects: &mut Effects,
    ) -> Result<(), RoomError> {
        let owner = state.room.owner_of(track).ok_or(Refusal::UnknownTrack).map_err(refused)?;
        let kind = state.room.silence(track, on, effects).map_err(refused)?;
        let others = state.seats_of(owner).into_iter().filter(|seat| *seat != owner);
        let sent = others.filter_map(|seat| state.room.person(seat)).flat_map(|person| {
            person.tracks.iter().filter(|track| track.kind == kind).map(|track| track.key)
        });
        for track in sent.collect::<Vec<_>>() {
            state.room.silence(track, on, effects).map_err(refused)?;
        }
        let subject = state.members.get(&owner).and_then(Subject::of);
        if state.decisions.silence(subject, kind, on) {
            self.metrics.dropped("rooms", "decision_forgotten");
        }
        Ok(())
    }
}

impl Cell {
    /// Lets somebody in again who was put out.
    pub(super) fn readmit(&self, state: &mut State, participant: &str) -> Result<(), RoomError> {
        if person_key(participant).is_some_and(|person| state.decisions.readmit(person)) {
            return Ok(());
        }
        let text = "nobody was removed under this id: use the id that was removed";
        Err(RoomError::new(ErrorCode::UnknownParticipant, text))
    }
}
