//! Calls of the server to a client, with call ids of the server's own.

use super::frame::{self, reason};
use super::{PLACE, Socket};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Calls of one socket that may wait for their answers.
pub const OPEN_CALLS: usize = 64;

/// What a client gave: data, or its error.
type Given = Result<Option<Box<RawValue>>, Box<RawValue>>;

/// The calls that wait for answers.
#[derive(Debug, Default)]
pub(super) struct Calls {
    last: u64,
    open: BTreeMap<u64, oneshot::Sender<Given>>,
    ended: bool,
}

/// Why a call to a client has no result.
#[derive(Debug, Clone)]
pub enum InvokeError {
    /// No answer in time: the client may have no procedure of that name.
    Timeout,
    /// The socket is gone, or went before the answer.
    Closed,
    /// [`OPEN_CALLS`] calls wait already: wait for one of them.
    Busy,
    /// The client answered with this error, a JSON value.
    Client(Box<RawValue>),
}

impl fmt::Display for InvokeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the client did not answer in time"),
            Self::Closed => f.write_str("the socket is gone"),
            Self::Busy => {
                write!(f, "{OPEN_CALLS} calls to this socket wait already: wait for one of them")
            }
            Self::Client(error) => write!(f, "the client answered with an error: {}", error.get()),
        }
    }
}

impl std::error::Error for InvokeError {}

/// Takes a call out of the list when its future is dropped.
struct Open<'a> {
    socket: &'a Socket,
    cid: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.socket.calls().open.remove(&self.cid);
    }
}

impl Socket {
    /// Calls a procedure of the client and waits for its answer; `data` is JSON. Must not be awaited
    /// within a call of the same socket: the answer is read only after that call.
    ///
    /// # Errors
    /// [`InvokeError`]; an answer that comes too late is counted as `late_answer`.
    pub async fn invoke(
        &self,
        event: &str,
        data: Option<&RawValue>,
        timeout: Duration,
    ) -> Result<Option<Box<RawValue>>, InvokeError> {
        let result = self.call(event, data, timeout).await;
        self.shared.metrics.invocation_ended(match &result {
            Ok(_) => "ok",
            Err(InvokeError::Timeout) => "timeout",
            Err(InvokeError::Closed) => "closed",
            Err(InvokeError::Busy) => "busy",
            Err(InvokeError::Client(_)) => "error",
        });
        result
    }

    async fn call(
        &self,
        event: &str,
        data: Option<&RawValue>,
        timeout: Duration,
    ) -> Result<Option<Box<RawValue>>, InvokeError> {
        let (sender, answered) = oneshot::channel();
        let cid = {
            let mut calls = self.calls();
            if calls.ended {
                return Err(InvokeError::Closed);
            }
            if calls.open.len() >= OPEN_CALLS {
                return Err(InvokeError::Busy);
            }
            calls.last += 1;
            let cid = calls.last;
            calls.open.insert(cid, sender);
            // Under the lock: call ids reach the client in their order.
            self.send(frame::invoke(event, data, cid));
            cid
        };
        let _open = Open { socket: self, cid };
        match tokio::time::timeout(timeout, answered).await {
            Ok(Ok(given)) => given.map_err(InvokeError::Client),
            Ok(Err(_)) => Err(InvokeError::Closed),
            Err(_) => Err(InvokeError::Timeout),
        }
    }

    /// Tells the client something; `data` is JSON. False: the socket is closing.
    pub fn transmit(&self, event: &str, data: Option<&RawValue>) -> bool {
        self.send(frame::event(event, data))
    }

    /// An answer came.
    pub(super) fn answered(&self, rid: u64, result: Result<Option<&RawValue>, &RawValue>) {
        let waiting = self.calls().open.remove(&rid);
        let given = result.map(|data| data.map(ToOwned::to_owned)).map_err(ToOwned::to_owned);
        if waiting.is_none_or(|waiting| waiting.send(given).is_err()) {
            self.shared.metrics.dropped(PLACE, reason::LATE_ANSWER);
        }
    }

    /// Ends all calls that wait for an answer.
    pub(super) fn end_calls(&self) {
        let mut calls = self.calls();
        calls.ended = true;
        calls.open.clear();
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
