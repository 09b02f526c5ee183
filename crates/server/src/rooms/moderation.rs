//! What moderators may do: put someone out, lock the room, change its limit. Muting others is in
//! `calls`, beside muting oneself.

use super::calls::{Answered, seat};
use super::decisions::Subject;
use super::notices::person_key;
use super::{Cell, Rooms, Seat, State, locked};
use crate::auth::Grants;
use crate::socket::{REVOKED, Socket};
use engine::room::Effects;
use std::sync::Arc;
use wire::event::LeaveReason;
use wire::frame::close;
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
                false => unknown("nobody was removed under this id: use the id that was removed"),
            };
        }
        let member = gone.and_then(|person| Some((person, state.members.get(&person)?)));
        let Some((gone, subject)) = member.map(|(key, member)| (key, Subject::of(member))) else {
            return unknown("no such participant in this room: see room.people");
        };
        if state.decisions.remove(subject, gone) {
            self.metrics.dropped("rooms", "decision_forgotten");
        }
        // They are told before they are out: later no event reaches them.
        let reason = "a moderator removed you".to_owned();
        seat.cell.tell_one(&state, gone, Event::RoomEnded { reason });
        drop(state);
        self.leave(&seat.cell, gone, LeaveReason::Removed);
        Ok(None)
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
