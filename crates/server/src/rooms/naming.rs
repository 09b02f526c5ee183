//! What ids and names in calls may be.

use crate::names;
use std::collections::HashSet;
use wire::room::{Join, OfferedTrack};
use wire::{ErrorCode, RoomError};

/// Whether a room may have this id.
pub(super) fn check_id(id: &str) -> Result<(), RoomError> {
    names::check_room(id).map_err(|why| RoomError::new(ErrorCode::BadRequest, why))
}

pub(super) fn check_names(join: &Join) -> Result<(), RoomError> {
    check_id(&join.room)?;
    let length = join.name.trim().chars().count();
    if !(1..=64).contains(&length) {
        let text = "a name is 1 to 64 characters, and not blanks alone";
        return Err(RoomError::new(ErrorCode::BadRequest, text));
    }
    check_name("the name", &join.name)
}

/// Whether a name holds nothing that is hidden.
fn check_name(what: &str, name: &str) -> Result<(), RoomError> {
    names::check(what, name).map_err(|why| RoomError::new(ErrorCode::BadRequest, why))
}

/// Whether each of these is named once. `what` says what they are, and where they stand in the call.
pub(super) fn check_once<'a>(
    what: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<(), RoomError> {
    let mut named = HashSet::new();
    match names.into_iter().find(|name| !named.insert(*name)) {
        None => Ok(()),
        Some(name) => {
            let text = format!("{what} {name:?} is named twice: name each once");
            Err(RoomError::new(ErrorCode::BadRequest, text))
        }
    }
}

/// Whether each line, and each layer of a line, is named once.
pub(super) fn check_lines(tracks: &[OfferedTrack]) -> Result<(), RoomError> {
    check_once("in tracks the mid", tracks.iter().map(|track| track.mid.as_str()))?;
    tracks.iter().try_for_each(|track| check_name("the name of a track", &track.name))?;
    tracks.iter().try_for_each(|track| {
        check_once("in layers the rid", track.layers.iter().map(|layer| layer.rid.as_str()))
    })
}
