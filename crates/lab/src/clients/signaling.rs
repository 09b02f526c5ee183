//! A client of the realtime socket: SocketCluster protocol 2 over WebSocket.

use super::seat::{Asked, CALL_TIMEOUT, CONNECT_TIMEOUT, Incoming, Seat, SignalingError};
use futures_util::{SinkExt, StreamExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes, protocol::WebSocketConfig};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};
use wire::frame::{Handshake, HandshakeAnswer, PING_TIMEOUT_MS, Request};
use wire::room::{
    self, Announce, Announced, Answer, Join, Joined, Offer, PeerCandidate, PeerDescription, Resume,
    Resumed,
};
use wire::{EventEnvelope, QualitySample};

/// So many events may wait to be taken; with more the socket is given up, and resumed.
const MAX_EVENTS: usize = 4096;
/// So many calls may wait to be written.
const MAX_COMMANDS: usize = 64;
/// Longest message that is taken.
const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// So many bytes of events a second in the long run: far more than any room tells one person…
const EVENT_BYTES_PER_S: f64 = (1 << 20) as f64;
/// …and so many at once. Otherwise events that wait could take all memory.
const EVENT_BYTES_AT_ONCE: f64 = (32 << 20) as f64;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;
/// What an answer holds; None: nothing.
type Answered = Option<Box<RawValue>>;
type Pending = oneshot::Sender<Result<Answered, SignalingError>>;

/// Events that nothing here depends on. In a large room they are most of what comes, so they are not read.
const UNREAD: [&str; 2] = ["active_speakers", "people"];

struct Command {
    event: String,
    data: Box<RawValue>,
    answer: Option<Pending>,
}

/// A packet of the server. What it holds is read when it is known whether it is needed.
#[derive(Deserialize)]
struct Packet<'a> {
    rid: Option<u64>,
    /// Empty: it is an answer.
    #[serde(borrow, default)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// A message on a channel.
#[derive(Deserialize)]
struct Published<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// Of an event, what it is.
#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

/// A connected socket. Dropping it closes the connection.
#[derive(Debug)]
pub struct Signaling {
    commands: mpsc::Sender<Command>,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.event)
    }
}

impl Signaling {
    /// Connects to `ws://…/socketcluster/` and shakes hands. The receiver gives what comes without
    /// being asked for; when it ends, the connection is gone.
    ///
    /// # Errors
    /// No connection or no handshake in time.
    pub async fn connect(
        address: &str,
    ) -> Result<(Self, mpsc::Receiver<Incoming>), SignalingError> {
        let connect = |error: &dyn fmt::Display| SignalingError::Connect(error.to_string());
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES))
            // The default of 128 KiB would be 128 MiB for 1000 bots.
            .read_buffer_size(4 << 10);
        let opened = connect_async_with_config(address, Some(config), true);
        let (socket, _) = timeout(CONNECT_TIMEOUT, opened)
            .await
            .map_err(|_| connect(&"no answer in time"))?
            .map_err(|error| connect(&error))?;
        let (commands, from_commands) = mpsc::channel(MAX_COMMANDS);
        let (incoming, to_user) = mpsc::channel(MAX_EVENTS);
        let events = Allowance { bytes: EVENT_BYTES_AT_ONCE, at: Instant::now() };
        let connection = Connection { socket, pending: HashMap::new(), cid: 0, incoming, events };
        tokio::spawn(connection.run(from_commands));
        let signaling = Self { commands };
        let _: HandshakeAnswer = signaling.call("#handshake", &Handshake::default()).await?;
        Ok((signaling, to_user))
    }

    /// Calls a procedure and waits for its answer.
    ///
    /// # Errors
    /// Refused, no answer in time, closed, or another shape than expected.
    pub async fn call<A: Serialize, R: DeserializeOwned>(
        &self,
        event: &str,
        data: &A,
    ) -> Result<R, SignalingError> {
        let answer = self.invoke(event, data).await?;
        serde_json::from_str(answer.as_deref().map_or("null", RawValue::get))
            .map_err(|error| SignalingError::Malformed(format!("answer to {event}: {error}")))
    }

    /// Calls a procedure whose answer holds nothing.
    async fn order<A: Serialize>(&self, event: &str, data: &A) -> Result<(), SignalingError> {
        self.invoke(event, data).await.map(drop)
    }

    async fn invoke<A: Serialize>(
        &self,
        event: &str,
        data: &A,
    ) -> Result<Answered, SignalingError> {
        let (answer, answered) = oneshot::channel();
        self.send(event, data, Some(answer)).await?;
        match timeout(CALL_TIMEOUT, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(closed()),
            Err(_) => Err(SignalingError::Timeout(event.to_owned())),
        }
    }

    async fn send<A: Serialize>(
        &self,
        event: &str,
        data: &A,
        answer: Option<Pending>,
    ) -> Result<(), SignalingError> {
        let data = to_raw_value(data)
            .map_err(|error| SignalingError::Malformed(format!("{event}: {error}")))?;
        let command = Command { event: event.to_owned(), data, answer };
        self.commands.send(command).await.map_err(|_| closed())
    }

    /// Enters a room.
    ///
    /// # Errors
    /// As [`Signaling::call`].
    pub async fn join(&self, join: &Join) -> Result<Joined, SignalingError> {
        self.call(room::JOIN, join).await
    }

    /// Negotiates media.
    ///
    /// # Errors
    /// As [`Signaling::call`].
    pub async fn offer(&self, offer: &Offer) -> Result<Answer, SignalingError> {
        self.call(room::OFFER, offer).await
    }

    /// Says what is sent where media does not pass the server.
    ///
    /// # Errors
    /// As [`Signaling::call`].
    pub async fn announce(&self, announce: &Announce) -> Result<Announced, SignalingError> {
        self.call(room::ANNOUNCE, announce).await
    }

    /// Offers a connection to another member of a mesh.
    ///
    /// # Errors
    /// As [`Signaling::call`].
    pub async fn peer_offer(&self, offer: &PeerDescription) -> Result<(), SignalingError> {
        self.order(room::PEER_OFFER, offer).await
    }

    /// Answers the offer of another member of a mesh.
    ///
    /// # Errors
    /// As [`Signaling::call`].
    pub async fn peer_answer(&self, answer: &PeerDescription) -> Result<(), SignalingError> {
        self.order(room::PEER_ANSWER, answer).await
    }

    /// Tells another member of a mesh a candidate, without waiting for an answer.
    ///
    /// # Errors
    /// The connection is gone.
    pub async fn peer_candidate(&self, candidate: &PeerCandidate) -> Result<(), SignalingError> {
        self.send(room::PEER_CANDIDATE, candidate, None).await
    }

    /// Takes up a participant whose socket was lost.
    ///
    /// # Errors
    /// As [`Signaling::call`].
    pub async fn resume(&self, resume: &Resume) -> Result<Resumed, SignalingError> {
        self.call(room::RESUME, resume).await
    }

    /// Chooses what is received where.
    ///
    /// # Errors
    /// As [`Signaling::call`].
    pub async fn slots(&self, slots: &room::Slots) -> Result<(), SignalingError> {
        self.order(room::SLOTS, slots).await
    }

    /// Mutes or unmutes an own track.
    ///
    /// # Errors
    /// As [`Signaling::call`].
    pub async fn mute(&self, mute: &room::Mute) -> Result<(), SignalingError> {
        self.order(room::MUTE, mute).await
    }

    /// Leaves the room.
    ///
    /// # Errors
    /// As [`Signaling::call`].
    pub async fn leave(&self) -> Result<(), SignalingError> {
        self.order(room::LEAVE, &serde_json::json!({})).await
    }

    /// Posts a quality sample, without waiting for an answer.
    ///
    /// # Errors
    /// The connection is gone.
    pub async fn quality_sample(&self, sample: &QualitySample) -> Result<(), SignalingError> {
        self.send(room::QUALITY_SAMPLE, sample, None).await
    }
}

fn closed() -> SignalingError {
    SignalingError::Closed("it is gone".into())
}

/// What events may take now.
struct Allowance {
    bytes: f64,
    at: Instant,
}

impl Allowance {
    /// Whether an event of so many bytes may come now.
    fn takes(&mut self, bytes: usize) -> bool {
        let now = Instant::now();
        let more = now.saturating_duration_since(self.at).as_secs_f64() * EVENT_BYTES_PER_S;
        self.bytes = (self.bytes + more).min(EVENT_BYTES_AT_ONCE) - bytes as f64;
        self.at = now;
        self.bytes >= 0.0
    }
}

/// The task that owns the socket.
struct Connection {
    socket: Socket,
    pending: HashMap<u64, Pending>,
    cid: u64,
    incoming: mpsc::Sender<Incoming>,
    events: Allowance,
}

impl Connection {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let cause = self.serve(&mut commands).await;
        for (_, pending) in self.pending.drain() {
            let _ = pending.send(Err(SignalingError::Closed(cause.clone())));
        }
        // If the queue is full its user sees that it ends; waiting here could last for ever.
        let _ = self.incoming.try_send(Incoming::Closed(cause));
        let _ = timeout(Duration::from_secs(1), self.socket.close(None)).await;
    }

    /// Runs until the connection ends; the cause.
    async fn serve(&mut self, commands: &mut mpsc::Receiver<Command>) -> String {
        let silence = Duration::from_millis(PING_TIMEOUT_MS);
        let mut deadline = Instant::now() + silence;
        loop {
            tokio::select! {
                command = commands.recv() => {
                    let Some(command) = command else { return "closed by this side".into() };
                    if let Err(error) = self.write(command).await {
                        return error;
                    }
                }
                message = self.socket.next() => {
                    deadline = Instant::now() + silence;
                    match message {
                        None => return "ended by the server".into(),
                        Some(Err(error)) => return error.to_string(),
                        Some(Ok(message)) => {
                            if let Err(cause) = self.take(message).await {
                                return cause;
                            }
                        }
                    }
                }
                () = tokio::time::sleep_until(deadline) => return "the server fell silent".into(),
            }
        }
    }

    async fn write(&mut self, command: Command) -> Result<(), String> {
        let Command { event, data, answer } = command;
        let cid = answer.map(|answer| {
            self.cid += 1;
            // An answer that nobody waits for any more need not be kept.
            self.pending.retain(|_, pending| !pending.is_closed());
            self.pending.insert(self.cid, answer);
            self.cid
        });
        let data = (data.get() != "null").then_some(data);
        let text =
            serde_json::to_string(&Request { event, data, cid }).map_err(|e| e.to_string())?;
        self.put(text).await
    }

    /// Sends a text. A server that does not read must not hold this up for ever.
    async fn put(&mut self, text: impl Into<Utf8Bytes>) -> Result<(), String> {
        let sent = timeout(CALL_TIMEOUT, self.socket.send(Message::text(text))).await;
        sent.map_err(|_| "the server reads nothing".to_owned())?.map_err(|error| error.to_string())
    }

    async fn take(&mut self, message: Message) -> Result<(), String> {
        match message {
            Message::Text(text) if text.is_empty() => self.put("").await,
            Message::Text(text) if text.starts_with('[') => {
                let packets: Vec<Packet<'_>> = serde_json::from_str(&text).map_err(bad_frame)?;
                packets.into_iter().try_for_each(|packet| self.packet(packet))
            }
            Message::Text(text) => self.packet(serde_json::from_str(&text).map_err(bad_frame)?),
            Message::Close(Some(frame)) => {
                Err(format!("code {} {}", u16::from(frame.code), frame.reason))
            }
            Message::Close(None) => Err("closed by the server".into()),
            _ => Ok(()),
        }
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), String> {
        let Packet { rid, event, data, error } = packet;
        if let Some(rid) = rid {
            let Some(pending) = self.pending.remove(&rid) else { return Ok(()) };
            let answer = match error {
                None => Ok(data.map(RawValue::to_owned)),
                Some(error) => Err(match serde_json::from_str(error.get()) {
                    Ok(error) => SignalingError::Refused(error),
                    Err(_) => SignalingError::Malformed(format!("an unknown error: {error}")),
                }),
            };
            let _ = pending.send(answer);
            return Ok(());
        }
        if event != "#publish" {
            return Ok(());
        }
        let bad = |error: serde_json::Error| format!("a bad #publish: {error}");
        let published = data.map_or("null", RawValue::get);
        let Published { channel, data } = serde_json::from_str(published).map_err(bad)?;
        if !channel.starts_with("room:") {
            return Ok(());
        }
        let event = data.map_or("null", RawValue::get);
        let typed: Result<Typed<'_>, _> = serde_json::from_str(event);
        if typed.is_ok_and(|Typed { kind }| UNREAD.contains(&&*kind)) {
            return Ok(());
        }
        if !self.events.takes(event.len()) {
            return Err("the server tells far more than happens in a room".into());
        }
        let event: EventEnvelope = serde_json::from_str(event)
            .map_err(|error| format!("an event that the contract does not know: {error}"))?;
        self.incoming
            .try_send(Incoming::Event(channel.into_owned(), event))
            .map_err(|_| format!("more than {MAX_EVENTS} events wait to be taken"))
    }
}

fn bad_frame(error: serde_json::Error) -> String {
    format!("a frame that is not JSON: {error}")
}

impl Seat for Signaling {
    fn join<'a>(&'a self, join: &'a Join) -> Asked<'a, Joined> {
        Box::pin(self.join(join))
    }
    fn offer<'a>(&'a self, offer: &'a Offer) -> Asked<'a, Answer> {
        Box::pin(self.offer(offer))
    }
    fn peer_answer<'a>(&'a self, answer: &'a PeerDescription) -> Asked<'a, ()> {
        Box::pin(self.peer_answer(answer))
    }
    fn leave(&self) -> Asked<'_, ()> {
        Box::pin(self.leave())
    }
    fn announce<'a>(&'a self, announce: &'a Announce) -> Asked<'a, Announced> {
        Box::pin(self.announce(announce))
    }
    fn peer_offer<'a>(&'a self, offer: &'a PeerDescription) -> Asked<'a, ()> {
        Box::pin(self.peer_offer(offer))
    }
    fn resume<'a>(&'a self, resume: &'a Resume) -> Asked<'a, Resumed> {
        Box::pin(self.resume(resume))
    }
    fn quality_sample<'a>(&'a self, sample: &'a QualitySample) -> Asked<'a, ()> {
        Box::pin(self.quality_sample(sample))
    }
}

#[cfg(test)]
mod tests;
