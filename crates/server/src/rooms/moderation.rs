//! What moderators may do: put someone out, lock the room, change its limit. Muting others is in
//! `calls`, beside muting oneself.

use super::calls::{Answered, seat};
use super::notices::person_key;
use super::{Rooms, State, locked};
use crate::socket::Socket;
use engine::PersonKey;
use engine::room::Effects;
use std::sync::Arc;
use wire::event::LeaveReason;
use wire::room::{Limit, Lock, Remove};
use wire::{ErrorCode, Event, RoomError};

/// Whether someone may moderate.
pub(super) fn may_moderate(state: &State, person: PersonKey) -> Result<(), RoomError> {
    if state.members.get(&person).is_some_and(|member| member.grants.can_moderate) {
        return Ok(());
    }
    let text = "only a moderator may: ask for a token with video.roomAdmin";
    Err(RoomError::new(ErrorCode::NotAllowed, text))
}

impl Rooms {
    /// Puts someone out.
    pub(super) fn remove(&self, socket: &Arc<Socket>, remove: &Remove) -> Answered {
        let seat = seat(socket)?;
        let state = locked(&seat.cell.state);
        may_moderate(&state, seat.person)?;
        let gone = person_key(&remove.participant);
        let Some(gone) = gone.filter(|person| state.members.contains_key(person)) else {
            let text = "no such participant in this room: see the latest events";
            return Err(RoomError::new(ErrorCode::UnknownParticipant, text));
        };
        // He is told like everyone, before he is out.
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
        may_moderate(&state, seat.person)?;
        let mut effects = Effects::default();
        state.room.lock(lock.locked, &mut effects);
        seat.cell.apply(&mut state, effects, LeaveReason::Left);
        Ok(None)
    }

    /// Changes how many may be in the room.
    pub(super) fn limit(&self, socket: &Arc<Socket>, limit: &Limit) -> Answered {
        let seat = seat(socket)?;
        let mut state = locked(&seat.cell.state);
        may_moderate(&state, seat.person)?;
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
