//! Rooms by HTTP: made before anyone comes, seen, changed and ended, and moderated without being in them.

use super::{Answered, Asked, Problem, Reason, Shares, allowed, json, query, read};
use crate::access::Entrance;
use crate::auth::Grants;
use crate::body::{Given, ORDER};
use crate::desk::{RoomChange, RoomDesk, Unmet};
use crate::http::Shared;
use crate::socket::Application;
use axum::extract::{Path, State};
use axum::http::header::{AUTHORIZATION, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{delete, get, patch, post};
use axum::{Extension, Router};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use wire::ErrorCode;
use wire::room::{PEOPLE_A_PAGE, ParticipantInfo, People};

/// The routes of rooms.
pub(super) fn router<A: Application>() -> Router<Arc<Shared<A>>> {
    Router::new()
        .route("/v1/quality", get(quality::<A>))
        .route("/v1/rooms", get(rooms::<A>))
        .route("/v1/rooms", post(create::<A>))
        .route("/v1/rooms/{id}", get(room::<A>))
        .route("/v1/rooms/{id}", patch(change::<A>))
        .route("/v1/rooms/{id}", delete(end::<A>))
        .route("/v1/rooms/{id}/participants", get(participants::<A>))
        .route("/v1/rooms/{id}/participants/{participant}", delete(remove::<A>))
        .route("/v1/rooms/{id}/removals/{participant}", delete(readmit::<A>))
        .route("/v1/rooms/{id}/tracks/{track}", patch(mute::<A>))
}

impl From<Unmet> for Problem {
    fn from(unmet: Unmet) -> Self {
        let error = match unmet {
            Unmet::UnknownRoom => {
                let detail = "no room has this id now: GET /v1/rooms lists them";
                return Self::new(StatusCode::NOT_FOUND, "unknown_room", detail);
            }
            Unmet::RoomExists => {
                let detail = "a room of this id is open: choose another id, or leave it out";
                return Self::new(StatusCode::CONFLICT, "room_exists", detail);
            }
            Unmet::Refused(error) => error,
        };
        let status = match error.code {
            ErrorCode::UnknownParticipant | ErrorCode::UnknownTrack => StatusCode::NOT_FOUND,
            ErrorCode::RoomFull | ErrorCode::Draining | ErrorCode::TooFast => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.code.as_str(), error.message)
    }
}

const LIST: &str = "video.roomList or video.roomAdmin";
const MODERATE: &str = "video.roomAdmin for this room";

fn may_list(grants: &Grants) -> bool {
    grants.can_list || grants.can_moderate
}

/// Who lists sees all rooms; who only moderates a room sees that one.
fn sees(grants: &Grants, room: &str) -> bool {
    grants.can_list || grants.holds_in(room)
}

/// Who may see the console sees all rooms; everybody else needs the grant for it.
fn lister<A: Application>(
    shared: &Shared<A>,
    entrance: Entrance,
    headers: &HeaderMap,
) -> Result<Arc<Grants>, Problem> {
    let has_own =
        headers.contains_key(AUTHORIZATION) && !shared.sockets.auth().shows_admin_token(headers);
    // A development server's guests may see them anyway.
    if !has_own && !shared.access.is_development() && shared.check_admin(entrance, headers).is_ok()
    {
        return Ok(Arc::new(Grants { can_list: true, ..Grants::default() }));
    }
    allowed(shared, headers, LIST, may_list)
}

/// [`lister`], if they see this room.
fn seer<A: Application>(
    shared: &Shared<A>,
    entrance: Entrance,
    headers: &HeaderMap,
    room: &str,
) -> Result<(), Problem> {
    if sees(&*lister(shared, entrance, headers)?, room) {
        return Ok(());
    }
    let detail = "this needs a token with video.roomList, or with video.roomAdmin for this room";
    Err(Problem::new(StatusCode::FORBIDDEN, "not_allowed", detail))
}

fn moderator<A: Application>(
    shared: &Shared<A>,
    headers: &HeaderMap,
    room: &str,
) -> Result<Arc<Grants>, Problem> {
    let may = |grants: &Grants| grants.can_moderate && grants.holds_in(room);
    allowed(shared, headers, MODERATE, may)
}

fn desk<A: Application>(shared: &Shared<A>) -> Result<&dyn RoomDesk, Unmet> {
    shared.sockets.application().desk().ok_or(Unmet::UnknownRoom)
}

async fn rooms<A: Application>(
    State(shared): Shares<A>,
    Extension(entrance): Extension<Entrance>,
    headers: HeaderMap,
) -> Answered {
    let grants = lister(&shared, entrance, &headers)?;
    let mut rooms = shared.sockets.application().rooms();
    rooms.retain(|row| sees(&grants, &row.room.id));
    #[derive(Serialize)]
    struct Rooms<T> {
        rooms: Vec<T>,
    }
    Ok(json(&Rooms { rooms }))
}

async fn quality<A: Application>(
    State(shared): Shares<A>,
    Extension(entrance): Extension<Entrance>,
    headers: HeaderMap,
) -> Answered {
    let grants = lister(&shared, entrance, &headers)?;
    let mut quality = shared.sockets.application().quality();
    quality.rooms.retain(|room| sees(&grants, &room.id));
    Ok(json(&quality))
}

async fn create<A: Application>(
    State(shared): Shares<A>,
    headers: HeaderMap,
    given: Given,
) -> Answered {
    let needs = "video.roomCreate: true";
    let grants = allowed(&shared, &headers, needs, |grants| grants.makes_rooms)?;
    let body = read(&shared, given, &grants, ORDER).await?;
    let wanted: crate::desk::NewRoom = body.json()?;
    if grants.room.is_some() && grants.room != wanted.id {
        let detail = "the token is for another room: leave video.room out of it, or make that one";
        return Err(Problem::new(StatusCode::FORBIDDEN, "not_allowed", detail));
    }
    let made = desk(&shared)?.create(wanted)?;
    let mut answer = (StatusCode::CREATED, json(&made)).into_response();
    // An id has letters that may stand in a header.
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/rooms/{}", made.row.room.id)) {
        answer.headers_mut().insert(LOCATION, place);
    }
    Ok(answer)
}

async fn room<A: Application>(
    State(shared): Shares<A>,
    Extension(entrance): Extension<Entrance>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Answered {
    seer(&shared, entrance, &headers, &id)?;
    Ok(json(&desk(&shared)?.room(&id)?))
}

async fn change<A: Application>(
    State(shared): Shares<A>,
    Path(id): Path<String>,
    headers: HeaderMap,
    given: Given,
) -> Answered {
    let grants = moderator(&shared, &headers, &id)?;
    let body = read(&shared, given, &grants, ORDER).await?;
    let change: RoomChange = body.json()?;
    Ok(json(&desk(&shared)?.change(&id, change)?))
}

async fn end<A: Application>(
    State(shared): Shares<A>,
    Path(id): Path<String>,
    headers: HeaderMap,
    reason: Asked<Reason>,
) -> Answered {
    let may = |grants: &Grants| (grants.makes_rooms || grants.can_moderate) && grants.holds_in(&id);
    allowed(&shared, &headers, "video.roomCreate: true, or video.roomAdmin for this room", may)?;
    let reason = query(reason)?.or("an administrator ended the room");
    desk(&shared)?.end(&id, &reason)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn participants<A: Application>(
    State(shared): Shares<A>,
    Extension(entrance): Extension<Entrance>,
    Path(id): Path<String>,
    headers: HeaderMap,
    page: Asked<People>,
) -> Answered {
    seer(&shared, entrance, &headers, &id)?;
    let page = query(page)?;
    let found = desk(&shared)?.people(&id, &page)?;
    #[derive(Serialize)]
    struct Participants {
        count: u32,
        participants: Vec<ParticipantInfo>,
        /// What to write as `after` for the next page, which may be empty; null at the end.
        next: Option<String>,
    }
    let is_full = found.people.len() == page.limit.unwrap_or(PEOPLE_A_PAGE) as usize;
    let next = found.people.last().filter(|_| is_full).map(|last| last.id.clone());
    Ok(json(&Participants { count: found.count, participants: found.people, next }))
}

async fn remove<A: Application>(
    State(shared): Shares<A>,
    Path((id, participant)): Path<(String, String)>,
    headers: HeaderMap,
    reason: Asked<Reason>,
) -> Answered {
    moderator(&shared, &headers, &id)?;
    let reason = query(reason)?.or("an administrator removed you");
    desk(&shared)?.remove(&id, &participant, &reason)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn readmit<A: Application>(
    State(shared): Shares<A>,
    Path((id, participant)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answered {
    moderator(&shared, &headers, &id)?;
    desk(&shared)?.readmit(&id, &participant)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn mute<A: Application>(
    State(shared): Shares<A>,
    Path((id, track)): Path<(String, String)>,
    headers: HeaderMap,
    given: Given,
) -> Answered {
    let grants = moderator(&shared, &headers, &id)?;
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Muted {
        muted: bool,
    }
    let body = read(&shared, given, &grants, ORDER).await?;
    let Muted { muted } = body.json()?;
    desk(&shared)?.silence(&id, &track, muted)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
