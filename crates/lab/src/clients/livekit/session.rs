//! Somebody's socket at a LiveKit server: requests, the answers that belong to them, and what comes by itself.
//! Protocol buffers in binary frames, as of signal protocol `/rtc`.

use super::messages::{
    AddTrackRequest, DisconnectReason, JoinResponse, LeaveRequest, Ping, Request, RequestResponse,
    Response, SessionDescription, SignalRequest, SignalResponse, StreamStateInfo, Track,
    TrickleRequest,
};
use super::token::ApiKey;
use crate::base::Url;
use crate::clients::seat::{CALL_TIMEOUT, CONNECT_TIMEOUT, SignalingError};
use futures_util::{SinkExt, StreamExt};
use prost::Message as _;
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message, protocol::WebSocketConfig};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

/// The signal protocol's version: tokens and offers as here; 16 and later say how people move between rooms.
const PROTOCOL: u32 = 15;
/// Where a server does not say how often it wants to hear something.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Requests that wait to be written.
const MAX_REQUESTS: usize = 64;
/// Notices that wait to be taken; with more the connection is given up.
const MAX_NOTICES: usize = 256;
/// Longest message that is taken.
const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// `RequestResponse.Reason`: it was done, it waits.
const DONE: [i32; 2] = [0, 4];

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;
type Pending<T> = oneshot::Sender<Result<T, SignalingError>>;

/// What comes without being asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Notice {
    /// An offer of the connection that subscribes.
    Offer(SessionDescription),
    /// An address of the server's.
    Candidate(TrickleRequest),
    /// Tracks that begin or cease to flow.
    Streams(Vec<StreamStateInfo>),
    /// The connection is gone: the cause. Nothing comes after it.
    Closed(String),
}

enum Command {
    Say(Request),
    Publish(AddTrackRequest, Pending<Track>),
    Offer(SessionDescription, Pending<SessionDescription>),
}

/// A socket of somebody in a room. It ends with this.
#[derive(Debug)]
pub(super) struct Session {
    commands: mpsc::Sender<Command>,
}

impl Session {
    /// Connects, and enters the room that the token of `key` is for; what the server says to that.
    pub(super) async fn open(
        target: &Url,
        key: &ApiKey,
        room: &str,
        name: &str,
    ) -> Result<(Self, JoinResponse, mpsc::Receiver<Notice>), SignalingError> {
        let token = key.token(room, name)?;
        let address = format!(
            "ws://{}/rtc?access_token={token}&auto_subscribe=1&protocol={PROTOCOL}&sdk=moim",
            target.authority()
        );
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES))
            .read_buffer_size(4 << 10);
        let opened = connect_async_with_config(address, Some(config), true);
        let connect = |cause: String| SignalingError::Connect(cause);
        let (mut socket, _) = match timeout(CONNECT_TIMEOUT, opened).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(SocketError::Http(answer))) => {
                let why = answer.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                return Err(key.refused(answer.status().as_u16(), &why, &token));
            }
            Ok(Err(error)) => return Err(connect(error.to_string())),
            Err(_) => return Err(connect("no answer in time".into())),
        };
        let joined = timeout(CALL_TIMEOUT, join_response(&mut socket))
            .await
            .map_err(|_| SignalingError::Timeout("LiveKit's join".into()))??;
        let (commands, from_commands) = mpsc::channel(MAX_REQUESTS);
        let (notices, to_user) = mpsc::channel(MAX_NOTICES);
        let seconds = u64::try_from(joined.ping_interval).unwrap_or(0);
        let ping = if seconds == 0 { PING_INTERVAL } else { Duration::from_secs(seconds) };
        let connection = Connection { socket, tracks: HashMap::new(), answer: None, notices };
        tokio::spawn(connection.run(from_commands, ping));
        Ok((Self { commands }, joined, to_user))
    }

    /// Announces a track that the next offer has; the server's name for it.
    pub(super) async fn publish(&self, track: AddTrackRequest) -> Result<Track, SignalingError> {
        self.ask("add_track", |pending| Command::Publish(track, pending)).await
    }

    /// Offers what is published; the SDP of the answer.
    pub(super) async fn offer(&self, sdp: String) -> Result<String, SignalingError> {
        let offer = SessionDescription { kind: "offer".into(), sdp, id: 0 };
        Ok(self.ask("offer", |pending| Command::Offer(offer, pending)).await?.sdp)
    }

    /// Answers an offer of the connection that subscribes.
    pub(super) async fn answer(&self, sdp: String, id: u32) -> Result<(), SignalingError> {
        let answer = SessionDescription { kind: "answer".into(), sdp, id };
        self.send(Command::Say(Request::Answer(answer))).await
    }

    pub(super) async fn leave(&self) -> Result<(), SignalingError> {
        let reason = DisconnectReason::ClientInitiated.into();
        self.send(Command::Say(Request::Leave(LeaveRequest { reason }))).await
    }

    async fn ask<T>(
        &self,
        what: &str,
        command: impl FnOnce(Pending<T>) -> Command,
    ) -> Result<T, SignalingError> {
        let (pending, answered) = oneshot::channel();
        self.send(command(pending)).await?;
        match timeout(CALL_TIMEOUT, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(SignalingError::Timeout(format!("LiveKit's {what}"))),
        }
    }

    async fn send(&self, command: Command) -> Result<(), SignalingError> {
        self.commands.send(command).await.map_err(|_| gone())
    }
}

fn gone() -> SignalingError {
    SignalingError::Closed("the connection to LiveKit is gone".into())
}

/// The first message, which lets one in or not.
async fn join_response(socket: &mut Socket) -> Result<JoinResponse, SignalingError> {
    loop {
        let message = match socket.next().await {
            None => return Err(SignalingError::Closed("ended by LiveKit".into())),
            Some(Err(error)) => return Err(SignalingError::Closed(error.to_string())),
            Some(Ok(message)) => message,
        };
        match read(message).map_err(SignalingError::Closed)? {
            None => {}
            Some(Response::Join(joined)) => return Ok(joined),
            Some(Response::Leave(leave)) => return Err(SignalingError::Closed(put_out(&leave))),
            Some(other) => {
                let text = format!("LiveKit's first message is no join: {other:?}");
                return Err(SignalingError::Malformed(text));
            }
        }
    }
}

/// What a frame says; None: nothing that is needed here.
fn read(message: Message) -> Result<Option<Response>, String> {
    match message {
        Message::Binary(bytes) => {
            let response = SignalResponse::decode(bytes)
                .map_err(|error| format!("a message that is no SignalResponse: {error}"))?;
            Ok(response.message)
        }
        Message::Close(_) => Err("closed by LiveKit".into()),
        _ => Ok(None),
    }
}

fn put_out(leave: &LeaveRequest) -> String {
    let reason = DisconnectReason::try_from(leave.reason)
        .map_or_else(|_| format!("reason {}", leave.reason), |reason| format!("{reason:?}"));
    format!("LiveKit put them out: {reason}")
}

/// The task that owns the socket.
struct Connection {
    socket: Socket,
    /// Who waits for a track to be known to the server, by its `cid`…
    tracks: HashMap<String, Pending<Track>>,
    /// …and for the answer to an offer.
    answer: Option<Pending<SessionDescription>>,
    notices: mpsc::Sender<Notice>,
}

impl Connection {
    /// Serves the socket until it ends. Who waits then sees that their senders are gone.
    async fn run(mut self, mut commands: mpsc::Receiver<Command>, ping: Duration) {
        let cause = self.serve(&mut commands, ping).await;
        let _ = self.notices.try_send(Notice::Closed(cause));
        let _ = timeout(Duration::from_secs(1), self.socket.close(None)).await;
    }

    /// Runs until the connection ends; the cause.
    async fn serve(&mut self, commands: &mut mpsc::Receiver<Command>, ping: Duration) -> String {
        let mut alive = interval_at(Instant::now() + ping, ping);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.command(command).await,
                    None => Err("closed by this side".into()),
                },
                message = self.socket.next() => match message {
                    None => Err("ended by LiveKit".into()),
                    Some(Err(error)) => Err(error.to_string()),
                    Some(Ok(message)) => match read(message) {
                        Ok(Some(response)) => self.take(response),
                        Ok(None) => Ok(()),
                        Err(cause) => Err(cause),
                    },
                },
                _ = alive.tick() => {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    let timestamp = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
                    self.write(Request::Ping(Ping { timestamp })).await
                }
            };
            if let Err(cause) = done {
                return cause;
            }
        }
    }

    async fn command(&mut self, command: Command) -> Result<(), String> {
        let request = match command {
            Command::Say(request) => request,
            Command::Publish(track, pending) => {
                self.tracks.insert(track.cid.clone(), pending);
                Request::AddTrack(track)
            }
            Command::Offer(offer, pending) => {
                self.answer = Some(pending);
                Request::Offer(offer)
            }
        };
        self.write(request).await
    }

    async fn write(&mut self, request: Request) -> Result<(), String> {
        let bytes = SignalRequest { message: Some(request) }.encode_to_vec();
        self.socket.send(Message::binary(bytes)).await.map_err(|error| error.to_string())
    }

    fn take(&mut self, response: Response) -> Result<(), String> {
        match response {
            Response::Join(_) => Ok(()),
            Response::Answer(answer) => {
                if let Some(pending) = self.answer.take() {
                    let _ = pending.send(Ok(answer));
                }
                Ok(())
            }
            Response::TrackPublished(published) => {
                let pending = self.tracks.remove(&published.cid);
                if let (Some(pending), Some(track)) = (pending, published.track) {
                    let _ = pending.send(Ok(track));
                }
                Ok(())
            }
            Response::Request(response) => {
                self.refused(response);
                Ok(())
            }
            Response::Offer(offer) => self.tell(Notice::Offer(offer)),
            Response::Trickle(candidate) => self.tell(Notice::Candidate(candidate)),
            Response::StreamState(update) => self.tell(Notice::Streams(update.stream_states)),
            Response::Leave(leave) => Err(put_out(&leave)),
        }
    }

    /// A track that was refused gets no other answer.
    fn refused(&mut self, response: RequestResponse) {
        let RequestResponse { reason, message, add_track } = response;
        let track = add_track.filter(|_| !DONE.contains(&reason));
        if let Some(pending) = track.and_then(|track| self.tracks.remove(&track.cid)) {
            let code = u64::try_from(reason).unwrap_or(0);
            let text = format!("LiveKit refused a track: {message}");
            let _ = pending.send(Err(SignalingError::Foreign { code, text }));
        }
    }

    fn tell(&self, notice: Notice) -> Result<(), String> {
        let full = format!("more than {MAX_NOTICES} messages of LiveKit wait to be taken");
        self.notices.try_send(notice).map_err(|_| full)
    }
}
