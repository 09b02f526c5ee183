//! A session with Janus over WebSocket (subprotocol `janus-protocol`): requests with transactions,
//! handles of plugins, keep-alives. <https://janus.conf.meetecho.com/docs/rest.html>

use crate::clients::seat::{CALL_TIMEOUT, CONNECT_TIMEOUT, SignalingError};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Message, protocol::WebSocketConfig};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

/// Janus ends a session that says nothing for 60 s.
const KEEP_ALIVE: Duration = Duration::from_secs(25);
/// Calls that wait to be written.
const MAX_COMMANDS: usize = 256;
/// Notices that wait to be taken; with more the connection is given up.
const MAX_NOTICES: usize = 4096;
/// Longest message that is taken.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;
type Pending = oneshot::Sender<Result<Value, SignalingError>>;

/// What a plugin says: its data, and an SDP where one belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said {
    pub(super) data: Value,
    pub(super) sdp: Option<String>,
}

/// What comes without being asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Notice {
    /// A plugin's event.
    Said(Said),
    /// The connection is gone: the cause. Nothing comes after it.
    Closed(String),
}

/// A session; its copies share it. It ends with the last of them.
#[derive(Debug, Clone)]
pub(super) struct Session {
    commands: mpsc::Sender<(Value, Option<Pending>)>,
    id: u64,
    /// Whose handles it makes, such as `janus.plugin.videoroom`.
    plugin: &'static str,
}

impl Session {
    /// Connects and begins a session, for handles of a plugin.
    pub(super) async fn open(
        address: &str,
        plugin: &'static str,
    ) -> Result<(Self, mpsc::Receiver<Notice>), SignalingError> {
        let connect = |cause: String| SignalingError::Connect(cause);
        let mut request = address.into_client_request().map_err(|e| connect(e.to_string()))?;
        let protocol = HeaderValue::from_static("janus-protocol");
        request.headers_mut().insert("Sec-WebSocket-Protocol", protocol);
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES))
            .read_buffer_size(4 << 10);
        let opened = connect_async_with_config(request, Some(config), true);
        let (socket, _) = timeout(CONNECT_TIMEOUT, opened)
            .await
            .map_err(|_| connect("no answer in time".into()))?
            .map_err(|error| connect(error.to_string()))?;
        let (commands, from_commands) = mpsc::channel(MAX_COMMANDS);
        let (notices, to_user) = mpsc::channel(MAX_NOTICES);
        let connection = Connection { socket, pending: HashMap::new(), transactions: 0, notices };
        tokio::spawn(connection.run(from_commands));
        let mut session = Self { commands, id: 0, plugin };
        session.id = id_of(&session.ask(json!({ "janus": "create" })).await?)?;
        Ok((session, to_user))
    }

    /// A new handle of the plugin.
    pub(super) async fn attach(&self) -> Result<u64, SignalingError> {
        let request = json!({ "janus": "attach", "session_id": self.id, "plugin": self.plugin });
        id_of(&self.ask(request).await?)
    }

    /// Ends a handle, without waiting for an answer.
    pub(super) async fn detach(&self, handle: u64) {
        let request = json!({ "janus": "detach", "session_id": self.id, "handle_id": handle });
        let _ = self.commands.send((request, None)).await;
    }

    /// A request to the plugin, and what it says to that. An error of the plugin's is an error here.
    pub(super) async fn message(
        &self,
        handle: u64,
        body: Value,
        jsep: Option<Value>,
    ) -> Result<Said, SignalingError> {
        let what = body["request"].as_str().unwrap_or_default().to_owned();
        let mut request = json!({
            "janus": "message", "session_id": self.id, "handle_id": handle, "body": body,
        });
        if let Some(jsep) = jsep {
            request["jsep"] = jsep;
        }
        let said = said(self.ask(request).await?);
        match said.data["error_code"].as_u64() {
            None => Ok(said),
            Some(code) => Err(refused(&what, code, &said.data["error"])),
        }
    }

    async fn ask(&self, request: Value) -> Result<Value, SignalingError> {
        let what = request["janus"].as_str().unwrap_or_default().to_owned();
        let (answer, answered) = oneshot::channel();
        let gone = || SignalingError::Closed("the connection to Janus is gone".into());
        self.commands.send((request, Some(answer))).await.map_err(|_| gone())?;
        match timeout(CALL_TIMEOUT, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(SignalingError::Timeout(format!("Janus' {what}"))),
        }
    }
}

fn refused(what: &str, code: u64, why: &Value) -> SignalingError {
    let why = why.as_str().unwrap_or("no reason given").to_owned();
    SignalingError::Foreign { code, text: format!("Janus refused {what}: {why}") }
}

fn id_of(answer: &Value) -> Result<u64, SignalingError> {
    answer["data"]["id"]
        .as_u64()
        .ok_or_else(|| SignalingError::Malformed(format!("no id in Janus' answer {answer}")))
}

fn said(mut packet: Value) -> Said {
    let sdp = packet["jsep"]["sdp"].as_str().map(str::to_owned);
    Said { data: packet["plugindata"]["data"].take(), sdp }
}

/// The task that owns the socket.
struct Connection {
    socket: Socket,
    pending: HashMap<String, Pending>,
    transactions: u64,
    notices: mpsc::Sender<Notice>,
}

impl Connection {
    async fn run(mut self, mut commands: mpsc::Receiver<(Value, Option<Pending>)>) {
        let cause = self.serve(&mut commands).await;
        for (_, pending) in self.pending.drain() {
            let _ = pending.send(Err(SignalingError::Closed(cause.clone())));
        }
        let _ = self.notices.try_send(Notice::Closed(cause));
        let _ = timeout(Duration::from_secs(1), self.socket.close(None)).await;
    }

    /// Runs until the connection ends; the cause.
    async fn serve(&mut self, commands: &mut mpsc::Receiver<(Value, Option<Pending>)>) -> String {
        let mut alive = interval(KEEP_ALIVE);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut session: Option<Value> = None;
        loop {
            tokio::select! {
                command = commands.recv() => {
                    // Janus ends a session with its socket.
                    let Some((request, answer)) = command else {
                        return "closed by this side".into();
                    };
                    if request.get("session_id").is_some() {
                        session = request.get("session_id").cloned();
                    }
                    if let Err(cause) = self.write(request, answer).await {
                        return cause;
                    }
                }
                message = self.socket.next() => {
                    let taken = match message {
                        None => Err("ended by Janus".into()),
                        Some(Err(error)) => Err(error.to_string()),
                        Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                            Ok(packet) => self.take(packet),
                            Err(error) => Err(format!("a frame that is not JSON: {error}")),
                        },
                        Some(Ok(Message::Close(_))) => Err("closed by Janus".into()),
                        Some(Ok(_)) => Ok(()),
                    };
                    if let Err(cause) = taken {
                        return cause;
                    }
                }
                _ = alive.tick() => {
                    let Some(id) = &session else { continue };
                    let request = json!({ "janus": "keepalive", "session_id": id });
                    if let Err(cause) = self.write(request, None).await {
                        return cause;
                    }
                }
            }
        }
    }

    async fn write(&mut self, mut request: Value, answer: Option<Pending>) -> Result<(), String> {
        self.transactions += 1;
        let transaction = self.transactions.to_string();
        request["transaction"] = Value::from(transaction.clone());
        if let Some(answer) = answer {
            // An answer that nobody waits for any more need not be kept.
            self.pending.retain(|_, pending| !pending.is_closed());
            self.pending.insert(transaction, answer);
        }
        let text = request.to_string();
        self.socket.send(Message::text(text)).await.map_err(|error| error.to_string())
    }

    fn take(&mut self, packet: Value) -> Result<(), String> {
        let kind = packet["janus"].as_str().unwrap_or_default();
        let transaction = packet["transaction"].as_str().unwrap_or_default();
        match kind {
            // What was asked for comes later.
            "ack" => return Ok(()),
            "timeout" => {
                return Err("Janus ended the session: it heard nothing for too long".into());
            }
            _ => {}
        }
        if let Some(pending) = self.pending.remove(transaction) {
            let _ = pending.send(match kind {
                "error" => {
                    let error = &packet["error"];
                    Err(refused("a request", error["code"].as_u64().unwrap_or(0), &error["reason"]))
                }
                _ => Ok(packet),
            });
            return Ok(());
        }
        if kind == "event" {
            self.notices
                .try_send(Notice::Said(said(packet)))
                .map_err(|_| format!("more than {MAX_NOTICES} events of Janus wait to be taken"))?;
        }
        Ok(())
    }
}
