//! The HTTP of WHIP and WHEP: an offer is posted, the answer comes back, and a DELETE of its resource ends the connection.

use super::paths::{NAME, Paths};
use crate::base::{Url, http};
use crate::clients::link::told;
use crate::clients::seat::{CALL_TIMEOUT, SignalingError};
use futures_util::future::join_all;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A stream that is not there yet is asked for again after so long.
const AGAIN: Duration = Duration::from_millis(100);

/// Somebody's connections at a server.
pub(super) struct Resources {
    pub(super) target: Url,
    paths: Paths,
    /// Whether a link stands before them.
    linked: bool,
    /// Paths of the connections that were made.
    made: Mutex<Vec<String>>,
}

/// Why there is no answer.
enum Refused {
    /// The stream is not there, or not yet.
    Absent(SignalingError),
    Other(SignalingError),
}

impl From<Refused> for SignalingError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Absent(error) | Refused::Other(error) => error,
        }
    }
}

impl Resources {
    pub(super) fn new(target: &Url, paths: &Paths, linked: bool) -> Self {
        let (target, paths) = (target.clone(), paths.clone());
        Self { target, paths, linked, made: Mutex::default() }
    }

    /// Sends a stream (WHIP); the SDP answer.
    pub(super) async fn publish(
        &self,
        stream: &str,
        offer: &str,
    ) -> Result<String, SignalingError> {
        Ok(self.post("WHIP", &self.paths.publish.replace(NAME, stream), offer).await?)
    }

    /// Asks for a stream (WHEP), again while it is not there and `wanted` holds; the SDP answer.
    pub(super) async fn play(
        &self,
        stream: &str,
        offer: &str,
        wanted: impl Fn() -> bool,
    ) -> Result<String, SignalingError> {
        let (path, begin) = (self.paths.play.replace(NAME, stream), Instant::now());
        loop {
            match self.post("WHEP", &path, offer).await {
                Err(Refused::Absent(_)) if wanted() && begin.elapsed() < CALL_TIMEOUT => {
                    sleep(AGAIN).await;
                }
                done => return Ok(done?),
            }
        }
    }

    async fn post(&self, what: &str, path: &str, offer: &str) -> Result<String, Refused> {
        let offer = told(offer, self.linked);
        let answer =
            http::post(&self.target, path, ("application/sdp", &offer), CALL_TIMEOUT).await;
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::TimedOut => SignalingError::Timeout(format!("{what} {path}")),
            _ => SignalingError::Connect(error.to_string()),
        };
        let answer = answer.map_err(|error| Refused::Other(failed(error)))?;
        let code: u64 = answer.status.parse().unwrap_or(0);
        let text = format!("{what} {path}: {}", answer.body.trim());
        match code {
            201 => {}
            404 => return Err(Refused::Absent(SignalingError::Foreign { code, text })),
            _ => return Err(Refused::Other(SignalingError::Foreign { code, text })),
        }
        let made = answer.header("location").map(|location| resolved(path, location));
        self.made.lock().unwrap_or_else(PoisonError::into_inner).extend(made);
        Ok(answer.body)
    }

    /// Ends all connections.
    pub(super) async fn end(&self) {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = made.iter().map(|path| http::delete(&self.target, path, CALL_TIMEOUT));
        // The server ends what nobody sends checks for, too.
        let _ = join_all(ended).await;
    }
}

/// The path of a resource by its `Location` (RFC 3986, section 5): a whole URL, a path, or one relative to what was asked for.
pub(super) fn resolved(asked: &str, location: &str) -> String {
    if location.starts_with('/') {
        return location.to_owned();
    }
    if let Some((_, after)) = location.split_once("://") {
        return after.find('/').map_or_else(|| "/".into(), |at| after[at..].to_owned());
    }
    let asked = asked.split('?').next().unwrap_or(asked);
    let folder = asked.rfind('/').map_or("/", |at| &asked[..=at]);
    format!("{folder}{location}")
}
