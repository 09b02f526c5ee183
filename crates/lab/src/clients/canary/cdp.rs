//! The Chrome DevTools protocol over one WebSocket: calls, and events by session.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Message, protocol::WebSocketConfig};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

/// A call has so long to be answered.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// So many errors of a page are kept until they are taken (every 3 s); more add nothing.
const MAX_EVENTS: usize = 256;
/// Calls that may wait to be written.
const MAX_CALLS: usize = 64;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CdpError {
    /// The browser is gone: the cause.
    Closed(String),
    /// No answer in time: to which call.
    Timeout(String),
    /// The browser refused, or the page threw.
    Failed(String),
    /// An answer of another shape than expected.
    Malformed(String),
}

impl fmt::Display for CdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(cause) => write!(f, "the browser is gone: {cause}"),
            Self::Timeout(call) => write!(f, "{call} was not answered in time"),
            Self::Failed(cause) => f.write_str(cause),
            Self::Malformed(what) => write!(f, "malformed: {what}"),
        }
    }
}

impl std::error::Error for CdpError {}

/// Something that a page told.
#[derive(Debug, Clone, PartialEq)]
pub struct PageEvent {
    method: String,
    params: Value,
}

impl PageEvent {
    /// The text, if it is an error: an exception, `console.error`, or a failure the browser logs.
    pub fn error_text(&self) -> Option<String> {
        let params = &self.params;
        match self.method.as_str() {
            "Runtime.exceptionThrown" => Some(exception_text(&params["exceptionDetails"])),
            "Runtime.consoleAPICalled" if params["type"] == "error" => {
                let args = params["args"].as_array().map_or(&[][..], Vec::as_slice);
                let texts: Vec<String> = args.iter().map(argument).collect();
                Some(texts.join(" "))
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                let entry = &params["entry"];
                let at = entry["url"].as_str().map(|url| format!(" ({url})")).unwrap_or_default();
                Some(format!("{}{at}", entry["text"].as_str().unwrap_or("unknown error")))
            }
            "Inspector.targetCrashed" => Some("the page crashed".into()),
            _ => None,
        }
    }
}

fn argument(value: &Value) -> String {
    match (&value["value"], value["description"].as_str()) {
        (Value::String(text), _) => text.clone(),
        (Value::Null, Some(description)) => description.to_owned(),
        (other, _) => other.to_string(),
    }
}

/// The words of `exceptionDetails`.
pub fn exception_text(details: &Value) -> String {
    let description = details["exception"]["description"].as_str();
    description.or(details["text"].as_str()).unwrap_or("unknown exception").to_owned()
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

#[derive(Debug, Default)]
struct Shared {
    next_id: u64,
    pending: HashMap<u64, oneshot::Sender<Result<Value, CdpError>>>,
    /// Where events of a session go.
    sessions: HashMap<String, mpsc::Sender<PageEvent>>,
    closed: Option<String>,
}

/// A connection to a browser; clones share it.
#[derive(Debug, Clone)]
pub struct Cdp {
    shared: Arc<Mutex<Shared>>,
    outgoing: mpsc::Sender<String>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cdp {
    /// Connects to `ws://…/devtools/browser/…`.
    ///
    /// # Errors
    /// No connection.
    pub async fn connect(address: &str) -> Result<Self, CdpError> {
        // Pictures are large.
        let config = WebSocketConfig::default()
            .max_message_size(Some(256 << 20))
            .max_frame_size(Some(256 << 20));
        let opened = connect_async_with_config(address, Some(config), true);
        let (socket, _) = timeout(CALL_TIMEOUT, opened)
            .await
            .map_err(|_| CdpError::Timeout("connect".into()))?
            .map_err(|error| CdpError::Closed(error.to_string()))?;
        let (outgoing, calls) = mpsc::channel(MAX_CALLS);
        let shared = Arc::new(Mutex::new(Shared::default()));
        tokio::spawn(run(socket, calls, Arc::clone(&shared)));
        Ok(Self { shared, outgoing })
    }

    /// Events of a session from now on.
    pub fn events_of(&self, session: &str) -> mpsc::Receiver<PageEvent> {
        let (sender, receiver) = mpsc::channel(MAX_EVENTS);
        lock(&self.shared).sessions.insert(session.to_owned(), sender);
        receiver
    }

    /// Calls a method, of a page's session or of the browser.
    ///
    /// # Errors
    /// The browser refuses, does not answer in time or is gone.
    pub async fn call(
        &self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, CdpError> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut shared = lock(&self.shared);
            if let Some(cause) = &shared.closed {
                return Err(CdpError::Closed(cause.clone()));
            }
            shared.next_id += 1;
            let id = shared.next_id;
            shared.pending.insert(id, answer);
            id
        };
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let gone = || CdpError::Closed("the connection ended".into());
        self.outgoing.send(message.to_string()).await.map_err(|_| gone())?;
        match timeout(CALL_TIMEOUT, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(gone()),
            Err(_) => {
                lock(&self.shared).pending.remove(&id);
                Err(CdpError::Timeout(method.to_owned()))
            }
        }
    }
}

async fn run(mut socket: Socket, mut calls: mpsc::Receiver<String>, shared: Arc<Mutex<Shared>>) {
    let cause = loop {
        tokio::select! {
            call = calls.recv() => {
                let Some(call) = call else { break "closed by this side".to_owned() };
                if let Err(error) = socket.send(Message::text(call)).await {
                    break error.to_string();
                }
            }
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => take(&text, &shared),
                Some(Ok(_)) => {}
                Some(Err(error)) => break error.to_string(),
                None => break "it ended".to_owned(),
            }
        }
    };
    let mut shared = lock(&shared);
    for (_, pending) in shared.pending.drain() {
        let _ = pending.send(Err(CdpError::Closed(cause.clone())));
    }
    shared.sessions.clear();
    shared.closed = Some(cause);
}

fn take(text: &str, shared: &Mutex<Shared>) {
    let Ok(mut message) = serde_json::from_str::<Value>(text) else { return };
    let mut shared = lock(shared);
    if let Some(id) = message["id"].as_u64() {
        let Some(pending) = shared.pending.remove(&id) else { return };
        let answer = match message["error"]["message"].as_str() {
            Some(error) => Err(CdpError::Failed(error.to_owned())),
            None => Ok(message["result"].take()),
        };
        let _ = pending.send(answer);
        return;
    }
    let (Some(method), Some(session)) = (message["method"].as_str(), message["sessionId"].as_str())
    else {
        return;
    };
    let Some(events) = shared.sessions.get(session) else { return };
    let event = PageEvent { method: method.to_owned(), params: message["params"].clone() };
    // Only errors are of use; the rest would fill the queue.
    if event.error_text().is_some() {
        let _ = events.try_send(event);
    }
}
