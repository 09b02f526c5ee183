//! What moderators may do: put someone out, lock the room, change its limit. Muting others is in
//! `calls`, beside muting oneself.

use super::calls::{Answered, seat};
use super::decisions::Subject;
use super::notices::person_key;
use super::{Rooms, Seat, State, locked};
use crate::socket::Socket;
use engine::room::Effects;
use std::sync::Arc;
use wire::event::LeaveReason;
use wire::room::{Limit, Lock, Remove};
use wire::{ErrorCode, Event, RoomError};

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
        let unknown = |text| Err(RoomError::new(ErrorCode::UnknownParticipant, text));
        let gone = person_key(&remove.participant);
        if remove.lift {
            return match gone.is_some_and(|person| state.decisions.readmit(person)) {
                true => Ok(None),
                false => unknown("nobody was removed under this id: see participant_left"),
            };
        }
        let member = gone.and_then(|person| Some((person, state.members.get(&person)?)));
        let Some((gone, subject)) = member.map(|(key, member)| (key, Subject::of(member))) else {
            return unknown("no such participant in this room: see the latest events");
        };
        if state.decisions.remove(subject, gone) {
            self.metrics.dropped("rooms", "decision_forgotten");
        }
        // They are told like everyone, before they are out.
        let reason = "a moderator removed you".to_owned();
        seat.cell.tell_one(&state, gone, Event::RoomEnded { reason });
        drop(state);
        self.leave(&seat.cell, gone, LeaveReason::Removed);
        Ok(None)
    }

    /// Lets nobody new in, or again somebody.
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
        let most = self.setup(seat.cell.audio, seat.cell.video).limits.people as u32;
        if !(1..=most).contains(&limit.max_participants) {
            let text = format!("max_participants is 1 to {most} here");
            return Err(RoomError::new(ErrorCode::BadRequest, text));
        }
        let mut effects = Effects::default();
        state.room.limit(limit.max_participants as usize, &mut effects);
        seat.cell.apply(&mut state, effects, LeaveReason::Left);
        Ok(None)
    }
}
