//! What an application's own server does with rooms: [`RoomDesk`].

use super::calls::refused;
use super::naming::check_id;
use super::notices::track_key;
use super::{Cell, Kind, Rooms, State, locked};
use crate::desk::{METADATA_BYTES, NewRoom, RoomChange, RoomDesk, RoomDetails, RoomRow, Unmet};
use crate::socket::random_id;
use engine::room::{Effects, Refusal};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::event::LeaveReason;
use wire::room::{People, PeoplePage};
use wire::{ErrorCode, RoomError};

/// How long a room waits for its first participant.
pub(super) const UNUSED: Duration = Duration::from_secs(600);

fn bad(text: String) -> RoomError {
    RoomError::new(ErrorCode::BadRequest, text)
}

fn check_metadata(metadata: Option<&RawValue>) -> Result<(), RoomError> {
    let bytes = metadata.map_or(0, |metadata| metadata.get().len());
    if bytes <= METADATA_BYTES {
        return Ok(());
    }
    Err(bad(format!("metadata has {bytes} of at most {METADATA_BYTES} bytes of JSON")))
}

impl Cell {
    /// The room in a list.
    pub(super) fn row(&self, state: &State) -> RoomRow {
        RoomRow { room: self.info(&state.room), people: state.count() }
    }

    fn details(&self, state: &State) -> RoomDetails {
        RoomDetails { row: self.row(state), metadata: state.metadata.clone() }
    }
}

impl Rooms {
    fn known(&self, room: &str) -> Result<Arc<Cell>, Unmet> {
        self.named(room).ok_or(Unmet::UnknownRoom)
    }

    /// Ends a room that nobody came to.
    pub(super) fn end_unused(&self, cell: &Cell) {
        let mut state = locked(&cell.state);
        if state.reserved_until.is_none() {
            return; // Somebody came in just now.
        }
        state.ended = true;
        drop(state);
        self.forget(&mut locked(&self.table), cell);
        tracing::info!(room = cell.id, "room ended: nobody came");
    }
}

impl RoomDesk for Rooms {
    fn create(&self, wanted: NewRoom) -> Result<RoomDetails, Unmet> {
        let NewRoom { id, preset, audio, video, video_codec, limits, metadata } = wanted;
        check_metadata(metadata.as_deref())?;
        let id = id.unwrap_or_else(random_id);
        check_id(&id)?;
        let mut kind = Kind::named(preset, audio, video, video_codec);
        if let Some(people) = limits.max_participants {
            self.check_limit(kind.audio, kind.video, people)?;
            kind.max_participants = Some(people);
        }
        let mut table = locked(&self.table);
        if table.by_id.contains_key(&id) {
            return Err(Unmet::RoomExists);
        }
        let cell = self.make(&mut table, &id, &kind, None)?;
        // Under the table's lock: nobody has found the room yet.
        let mut state = locked(&cell.state);
        (state.metadata, state.reserved_until) = (metadata, Some(Instant::now() + UNUSED));
        Ok(cell.details(&state))
    }

    fn room(&self, room: &str) -> Result<RoomDetails, Unmet> {
        let cell = self.known(room)?;
        let state = locked(&cell.state);
        Ok(cell.details(&state))
    }

    fn change(&self, room: &str, change: RoomChange) -> Result<RoomDetails, Unmet> {
        let RoomChange { locked: lock, limits, metadata } = change;
        check_metadata(metadata.as_deref())?;
        let cell = self.known(room)?;
        let most = limits.max_participants;
        let most = most.map(|most| self.check_limit(cell.audio, cell.video, most)).transpose()?;
        let mut state = locked(&cell.state);
        let mut effects = Effects::default();
        if let Some(locked) = lock {
            state.room.lock(locked, &mut effects);
        }
        if let Some(most) = most {
            state.room.limit(most, &mut effects);
        }
        if let Some(metadata) = metadata {
            state.metadata = Some(metadata).filter(|metadata| metadata.get() != "null");
        }
        cell.apply(&mut state, effects, LeaveReason::Left);
        Ok(cell.details(&state))
    }

    fn end(&self, room: &str, reason: &str) -> Result<(), Unmet> {
        match self.end_room(&self.known(room)?, reason, LeaveReason::Removed) {
            true => Ok(()),
            false => Err(Unmet::UnknownRoom),
        }
    }

    fn people(&self, room: &str, page: &People) -> Result<PeoplePage, Unmet> {
        Ok(self.known(room)?.page(page)?)
    }

    fn remove(&self, room: &str, participant: &str, reason: &str) -> Result<(), Unmet> {
        let cell = self.known(room)?;
        Ok(self.put_one_out(&cell, locked(&cell.state), participant, reason)?)
    }

    fn readmit(&self, room: &str, participant: &str) -> Result<(), Unmet> {
        let cell = self.known(room)?;
        Ok(cell.readmit(&mut locked(&cell.state), participant)?)
    }

    fn silence(&self, room: &str, track: &str, on: bool) -> Result<(), Unmet> {
        self.check_behind()?;
        let cell = self.known(room)?;
        let track = track_key(track).ok_or(Refusal::UnknownTrack).map_err(refused)?;
        let mut state = locked(&cell.state);
        let mut effects = Effects::default();
        self.silence_track(&mut state, track, on, &mut effects)?;
        cell.apply(&mut state, effects, LeaveReason::Left);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{idle, outcome};
    use super::*;
    use crate::auth::Auth;
    use crate::config::{Limits, MixConfig};
    use crate::metrics::Metrics;
    use crate::socket::{SocketOptions, Sockets};
    use serde_json::json;
    use std::net::SocketAddr;

    #[test]
    fn a_room_waits_ten_minutes_for_its_first_participant_and_then_ends_as_any_other() {
        let (metrics, limits) = (Arc::new(Metrics::new()), Limits::default());
        let (auth, mix) = (Arc::new(Auth::development()), MixConfig::default());
        let rooms = Rooms::new(vec![idle()], 56, limits, mix, auth.clone(), metrics.clone());
        let rooms = Arc::new(rooms);
        let sockets =
            Sockets::new(rooms.clone(), SocketOptions::from(&limits), auth, metrics.clone());
        let made = Instant::now();
        for id in ["unused", "used"] {
            let wanted = NewRoom { id: Some(id.to_owned()), ..NewRoom::default() };
            rooms.create(wanted).unwrap();
        }
        let ids = || rooms.all_rooms().into_iter().map(|row| row.room.id).collect::<Vec<_>>();
        let socket = sockets.new_socket(SocketAddr::from(([127, 0, 0, 1], 9)));
        let call = |event, data| outcome(&rooms, &socket, event, data).unwrap().unwrap();
        call("room.join", json!({ "room": "used", "name": "x" }));
        rooms.sweep(made + UNUSED - Duration::from_secs(1));
        assert_eq!(ids(), ["unused", "used"]);
        rooms.sweep(made + UNUSED + Duration::from_secs(1));
        assert_eq!((ids(), metrics.rooms.get()), (vec!["used".to_owned()], 1));
        call("room.leave", json!({}));
        assert_eq!((ids(), metrics.rooms.get()), (vec![], 0));
        assert!(rooms.create(NewRoom { id: Some("unused".into()), ..NewRoom::default() }).is_ok());
    }
}
