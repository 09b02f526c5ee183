//! The HTTP API, `/v1/…`: what an application's own server does with sockets, channels and rooms.
//!
//! Who asks shows a token as `Authorization: Bearer …` (see [`crate::auth`]); without one they are a
//! guest. Errors are `application/problem+json` (RFC 9457). `openapi.json` describes it all; `rooms` has what is about rooms.

mod rooms;

use crate::auth::{self, Grants, Refused, Target, TokenError};
use crate::body::{Given, MESSAGE, ORDER, Unread, Whole};
use crate::http::Shared;
use crate::socket::{Application, InvokeError, Socket, check_channel_name};
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post, put};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// How long a call to a client waits unless it says otherwise, in milliseconds.
const INVOKE_TIMEOUT_MS: u64 = 10_000;
/// The longest that it may wait, in milliseconds.
const INVOKE_TIMEOUT_MOST_MS: u64 = 60_000;
/// Sockets on a page of the list.
const PAGE: usize = 100;
/// Most sockets on a page of the list.
const PAGE_MOST: usize = 1000;

/// The code where bodies take all the memory that they may.
const BODIES_FULL: &str = "bodies_full";

/// The description of the routes below.
const OPENAPI: &str = include_str!("openapi.json");

/// An error as RFC 9457 has it, with a code for programs.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: Cow<'static, str>,
    /// What a client answered with.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Box<RawValue>>,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        let (kind, status, detail) = ("about:blank", status.as_u16(), detail.into());
        Self { kind, title, status, code, detail, error: None }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, json(&self)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        if status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
        }
        if self.code == BODIES_FULL {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}

impl From<InvokeError> for Problem {
    fn from(error: InvokeError) -> Self {
        let detail = error.to_string();
        match error {
            InvokeError::Timeout => Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail),
            InvokeError::Closed => Self::new(StatusCode::NOT_FOUND, "socket_gone", detail),
            InvokeError::Busy => Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", detail),
            InvokeError::Client(error) => {
                let detail = "the client answered with an error";
                let problem = Self::new(StatusCode::BAD_GATEWAY, "client_error", detail);
                Self { error: Some(error), ..problem }
            }
        }
    }
}

impl From<Unread> for Problem {
    fn from(unread: Unread) -> Self {
        let (status, code) = match unread {
            Unread::TooLong(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_long"),
            Unread::Full => (StatusCode::SERVICE_UNAVAILABLE, BODIES_FULL),
            Unread::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too_slow"),
            Unread::Broken(_) | Unread::Form(_) => (StatusCode::BAD_REQUEST, "bad_request"),
        };
        Self::new(status, code, unread.to_string())
    }
}

fn json(value: &impl Serialize) -> Response {
    // Our own types have string keys and no failing serializers.
    let text = serde_json::to_string(value).unwrap_or_default();
    let kind = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, HeaderValue::from_static("no-store"))], text)
        .into_response()
}

type Shares<A> = State<Arc<Shared<A>>>;
type Answered = Result<Response, Problem>;

/// All routes.
pub(crate) fn router<A: Application>() -> Router<Arc<Shared<A>>> {
    let openapi = async |State(shared): State<Arc<Shared<A>>>| {
        ([(CONTENT_TYPE, "application/json")], described_below(&shared.base))
    };
    Router::new()
        .route("/v1/sockets", get(sockets::<A>))
        .route("/v1/sockets/{id}/invocations", post(invoke::<A>))
        .route("/v1/sockets/{id}/messages", post(transmit::<A>))
        .route("/v1/sockets/{id}/token", put(renew::<A>))
        .route("/v1/channels/{channel}/messages", post(publish::<A>))
        .route("/v1/channels/{channel}/subscribers/{id}", delete(kick_out::<A>))
        .route("/v1/revocations", post(revoke::<A>))
        .merge(rooms::router::<A>())
        .route("/v1/openapi.json", get(openapi))
        .method_not_allowed_fallback(async || {
            let detail = "this path has no such method: GET /v1/openapi.json lists them";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail)
        })
        .route(
            "/v1/{*rest}",
            any(async || {
                let detail = "no such path: GET /v1/openapi.json lists them";
                Problem::new(StatusCode::NOT_FOUND, "path", detail)
            }),
        )
}

/// The description, with where its paths begin.
fn described_below(base: &str) -> String {
    // Its paths begin with a slash.
    let url = if base == "/" { base } else { base.trim_end_matches('/') };
    let servers = format!("{{\n  \"servers\": [{{ \"url\": {url:?} }}],");
    OPENAPI.replacen('{', &servers, 1)
}

/// What the one who asks may do.
fn grants<A: Application>(shared: &Shared<A>, headers: &HeaderMap) -> Result<Arc<Grants>, Problem> {
    let auth = shared.sockets.auth();
    let Some(header) = headers.get(AUTHORIZATION) else { return Ok(auth.guest()) };
    let unauthorized = |text: String| Problem::new(StatusCode::UNAUTHORIZED, "bad_token", text);
    let header = header.to_str().unwrap_or_default();
    let token = header.split_once(' ').filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
    let Some((_, token)) = token else {
        return Err(unauthorized("Authorization takes `Bearer` and a JWT".into()));
    };
    auth.verify(token.trim()).map(Arc::new).map_err(|error| unauthorized(error.to_string()))
}

/// [`grants`], if they are enough.
fn allowed<A: Application>(
    shared: &Shared<A>,
    headers: &HeaderMap,
    what: &'static str,
    enough: impl FnOnce(&Grants) -> bool,
) -> Result<Arc<Grants>, Problem> {
    let grants = grants(shared, headers)?;
    if enough(&grants) {
        return Ok(grants);
    }
    let detail = format!("this needs a token with {what}");
    Err(match headers.contains_key(AUTHORIZATION) {
        true => Problem::new(StatusCode::FORBIDDEN, "not_allowed", detail),
        false => Problem::new(StatusCode::UNAUTHORIZED, "not_allowed", detail),
    })
}

/// The body of a request whose sender has the right to it: nothing of it is read before. The right may end while it comes.
async fn read<A: Application>(
    shared: &Shared<A>,
    given: Given,
    grants: &Grants,
    most: usize,
) -> Result<Whole, Problem> {
    let whole = given.read(&shared.bodies, grants.identity.as_deref(), most).await;
    let whole = whole.map_err(|unread| {
        shared.metrics.dropped("http", unread.reason());
        Problem::from(unread)
    })?;
    let ended = match () {
        () if shared.sockets.auth().is_revoked(grants) => TokenError::Revoked,
        () if grants.is_expired() => TokenError::Expired,
        () => return Ok(whole),
    };
    Err(Problem::new(StatusCode::UNAUTHORIZED, "bad_token", ended.to_string()))
}

fn find<A: Application>(shared: &Shared<A>, id: &str) -> Result<Arc<Socket>, Problem> {
    shared.sockets.find(id).ok_or_else(|| {
        let detail = "no socket has this id now: GET /v1/sockets lists them";
        Problem::new(StatusCode::NOT_FOUND, "unknown_socket", detail)
    })
}

/// What stands behind the `?`, or what is wrong with it.
type Asked<T> = Result<Query<T>, QueryRejection>;

fn query<T: DeserializeOwned>(query: Asked<T>) -> Result<T, Problem> {
    query
        .map(|Query(query)| query)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, "bad_request", error.body_text()))
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    after: String,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct SocketRow {
    id: String,
    identity: Option<String>,
    channels: Vec<String>,
}

#[derive(Serialize)]
struct SocketList {
    count: usize,
    sockets: Vec<SocketRow>,
    /// What to write as `after` for the next page; null at the end.
    next: Option<String>,
}

async fn sockets<A: Application>(
    State(shared): Shares<A>,
    headers: HeaderMap,
    page: Asked<Page>,
) -> Answered {
    allowed(&shared, &headers, "sockets.admin", |grants| grants.sockets.admin)?;
    let page = query(page)?;
    let limit = page.limit.unwrap_or(PAGE).clamp(1, PAGE_MOST);
    let (count, mut found) = shared.sockets.list(&page.after, limit + 1);
    let more = found.len() > limit;
    found.truncate(limit);
    let sockets: Vec<SocketRow> = found
        .iter()
        .map(|socket| SocketRow {
            id: socket.public_id().to_owned(),
            identity: socket.grants().and_then(|grants| grants.identity.clone()),
            channels: socket.channel_names(),
        })
        .collect();
    let next = sockets.last().filter(|_| more).map(|row| row.id.clone());
    Ok(json(&SocketList { count, sockets, next }))
}

#[derive(Deserialize)]
struct Invocation<'a> {
    event: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    timeout_ms: Option<u64>,
}

impl Invocation<'_> {
    /// The protocol's own events are the server's to send.
    fn check(&self) -> Result<(), Problem> {
        if !self.event.is_empty() && !self.event.starts_with('#') {
            return Ok(());
        }
        let detail = "an event has a name, and not one that begins with #";
        Err(Problem::new(StatusCode::BAD_REQUEST, "bad_request", detail))
    }
}

const CALL: &str = "sockets.call or sockets.admin";

fn may_call(grants: &Grants) -> bool {
    grants.sockets.call || grants.sockets.admin
}

async fn invoke<A: Application>(
    State(shared): Shares<A>,
    Path(id): Path<String>,
    headers: HeaderMap,
    given: Given,
) -> Answered {
    let grants = allowed(&shared, &headers, CALL, may_call)?;
    let body = read(&shared, given, &grants, MESSAGE).await?;
    let invocation: Invocation<'_> = body.json()?;
    invocation.check()?;
    let socket = find(&shared, &id)?;
    let wait = invocation.timeout_ms.unwrap_or(INVOKE_TIMEOUT_MS).min(INVOKE_TIMEOUT_MOST_MS);
    let wait = Duration::from_millis(wait);
    #[derive(Serialize)]
    struct Result {
        data: Option<Box<RawValue>>,
    }
    let data = socket.invoke(&invocation.event, invocation.data, wait).await?;
    Ok(json(&Result { data }))
}

async fn transmit<A: Application>(
    State(shared): Shares<A>,
    Path(id): Path<String>,
    headers: HeaderMap,
    given: Given,
) -> Answered {
    let grants = allowed(&shared, &headers, CALL, may_call)?;
    let body = read(&shared, given, &grants, MESSAGE).await?;
    let message: Invocation<'_> = body.json()?;
    message.check()?;
    if find(&shared, &id)?.transmit(&message.event, message.data) {
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    Err(InvokeError::Closed.into())
}

async fn renew<A: Application>(
    State(shared): Shares<A>,
    Path(id): Path<String>,
    headers: HeaderMap,
    given: Given,
) -> Answered {
    let grants = allowed(&shared, &headers, "sockets.admin", |grants| grants.sockets.admin)?;
    #[derive(Deserialize)]
    struct Renewal {
        token: String,
    }
    let body = read(&shared, given, &grants, ORDER).await?;
    let renewal: Renewal = body.json()?;
    let renewed = find(&shared, &id)?.set_auth_token(&renewal.token);
    renewed.map_err(|error| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_token", error.to_string())
    })?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn publish<A: Application>(
    State(shared): Shares<A>,
    Path(channel): Path<String>,
    headers: HeaderMap,
    given: Given,
) -> Answered {
    let may = |grants: &Grants| grants.sockets.admin || grants.sockets.may_publish(&channel);
    let needs = "sockets.publish for this channel, or sockets.admin";
    let grants = allowed(&shared, &headers, needs, may)?;
    let bad = |text: String| Problem::new(StatusCode::BAD_REQUEST, "bad_request", text);
    check_channel_name(&channel).map_err(|error| bad(error.message))?;
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        data: &'a RawValue,
    }
    let body = read(&shared, given, &grants, MESSAGE).await?;
    let message: Message<'_> = body.json()?;
    let (length, most) = (message.data.get().len(), shared.sockets.options().message_bytes);
    if length > most {
        return Err(bad(format!("the message has {length} of at most {most} bytes")));
    }
    #[derive(Serialize)]
    struct Delivered {
        delivered: usize,
    }
    // A frame holds its JSON as it came: line ends in it are as good as spaces.
    Ok(json(&Delivered { delivered: shared.sockets.publish(&channel, message.data.get()) }))
}

#[derive(Deserialize)]
struct Reason {
    reason: Option<String>,
}

impl Reason {
    /// The reason that is told.
    fn or(self, otherwise: &str) -> String {
        let reason = self.reason.unwrap_or_else(|| otherwise.to_owned());
        reason.chars().take(200).collect()
    }
}

async fn kick_out<A: Application>(
    State(shared): Shares<A>,
    Path((channel, id)): Path<(String, String)>,
    headers: HeaderMap,
    reason: Asked<Reason>,
) -> Answered {
    allowed(&shared, &headers, "sockets.admin", |grants| grants.sockets.admin)?;
    let reason = query(reason)?.or("removed by an administrator");
    let socket = find(&shared, &id)?;
    if shared.sockets.kick_out(&socket, &channel, &reason) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let detail = "the socket is not subscribed to this channel";
    Err(Problem::new(StatusCode::NOT_FOUND, "not_subscribed", detail))
}

/// Takes tokens no more, and closes what they opened.
async fn revoke<A: Application>(
    State(shared): Shares<A>,
    headers: HeaderMap,
    given: Given,
) -> Answered {
    let grants = allowed(&shared, &headers, "sockets.admin", |grants| grants.sockets.admin)?;
    /// Names as in tokens; times in seconds since the Unix epoch.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Revocation {
        jti: Option<String>,
        sub: Option<String>,
        /// Of `sub`: only tokens issued before; without it those issued until now.
        issued_before: Option<u64>,
        /// When the last of these tokens ends by itself.
        exp: Option<u64>,
    }
    #[derive(Serialize)]
    struct Revoked {
        sockets: usize,
        participants: usize,
        remembered_until: u64,
    }
    let bad = |text: String| Problem::new(StatusCode::BAD_REQUEST, "bad_request", text);
    let body = read(&shared, given, &grants, ORDER).await?;
    let Revocation { jti, sub, issued_before, exp } = body.json()?;
    let target = match (jti, sub) {
        (Some(jti), None) if issued_before.is_none() => Target::Token(jti),
        (None, Some(sub)) => Target::Identity(sub),
        _ => {
            return Err(
                bad("write {\"jti\": …}, or {\"sub\": …} and perhaps issued_before".into()),
            );
        }
    };
    let remembered_until = shared.sockets.auth().revoke(target, issued_before, exp).map_err(|why| {
        match why {
            Refused::Name => bad(format!("jti and sub have 1 to {} bytes", auth::NAME_BYTES)),
            Refused::Full => {
                let most = auth::REVOCATIONS;
                let text = format!(
                    "{most} revocations are remembered, and none is over yet: say exp with each, issue tokens for \
                     a shorter time, or replace the key"
                );
                Problem::new(StatusCode::INSUFFICIENT_STORAGE, "full", text)
            }
        }
    })?;
    let (sockets, participants) = shared.sockets.end_revoked();
    tracing::info!(sockets, participants, "tokens revoked");
    Ok(json(&Revoked { sockets, participants, remembered_until }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// Every route of `router`, read from this file, stands in the description, and no other.
    #[test]
    fn the_description_has_every_route() {
        let source = include_str!("api.rs");
        let own = &source[..source.find("#[cfg(test)]").unwrap()];
        let source = [own, include_str!("api/rooms.rs")].concat();
        let mut routed = BTreeSet::new();
        for part in source.split(".route(\"").skip(1) {
            let (path, rest) = part.split_once("\", ").unwrap();
            let method = rest.split('(').next().unwrap();
            if method != "any" {
                routed.insert(format!("{method} {path}"));
            }
        }
        let openapi: Value = serde_json::from_str(&described_below("/calls/")).unwrap();
        assert_eq!(openapi["servers"][0]["url"], "/calls");
        let mut described = BTreeSet::new();
        for (path, methods) in openapi["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                if method != "parameters" {
                    described.insert(format!("{method} {path}"));
                    assert!(operation["summary"].is_string(), "{method} {path}");
                }
            }
        }
        assert_eq!(routed, described);
        assert_eq!(routed.len(), 18);
    }
}
