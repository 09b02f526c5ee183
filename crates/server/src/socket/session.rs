//! One socket from its handshake to its end.

use super::frame::{self, Bad, Packet, reason};
use super::outbox::{Batch, Close};
use super::{Application, CLOSE_BAD_FRAMES, CLOSE_NOT_UTF8, CLOSE_TOO_BIG, PLACE, Socket, Sockets};
use crate::metrics::Metrics;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::value::RawValue;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio::time::{MissedTickBehavior, interval_at, timeout};
use wire::frame::{Handshake, HandshakeAnswer, NamedError, Request, Subscribe, close};
use wire::room::{PING, Pong};
use wire::{ErrorCode, RoomError};

/// Why a reader ended.
enum End {
    /// The client closed, or the connection is lost.
    Gone,
    /// We close.
    Close(u16, &'static str),
}

pub(super) async fn run<A: Application>(
    sockets: &Arc<Sockets<A>>,
    stream: WebSocket,
    remote: SocketAddr,
) {
    let socket = sockets.new_socket(remote);
    let (mut sink, stream) = stream.split();
    let mut session = Session {
        sockets: sockets.clone(),
        socket: socket.clone(),
        stream,
        greeted: None,
        bad: 0,
        bucket: Bucket::new(sockets.options.requests_per_second),
    };
    let grace = sockets.options.close_grace;
    let mut draining = sockets.draining.subscribe();
    let closed_by_us = {
        let mut reader = pin!(session.read());
        let mut writer = pin!(write(&mut sink, sockets, &socket));
        let mut drained = pin!(async {
            // An error means that `sockets` is gone, which we hold.
            let _ = draining.wait_for(|draining| *draining).await;
        });
        loop {
            tokio::select! {
                end = &mut reader => {
                    let End::Close(code, why) = end else { break false };
                    socket.close(code, why);
                    // What waits, and the close frame.
                    let _ = timeout(grace, &mut writer).await;
                    break true;
                }
                () = &mut writer => break socket.outbox.closing().is_some(),
                () = &mut drained, if socket.outbox.closing().is_none() => {
                    socket.close(close::DRAINING, "the server ends");
                }
            }
        }
    };
    let code = socket.outbox.closing().filter(|_| closed_by_us).map(|closing| closing.code);
    let code = code.map_or("peer".to_owned(), |code| code.to_string());
    sockets.metrics.socket_closed(&code);
    tracing::debug!(socket = socket.public_id(), %remote, code, "socket closed");
    // Senders must not fill an outbox that nobody empties any more.
    socket.close(close::NO_PONG, "the socket is gone");
    sockets.drops.closed.add(socket.outbox.abandon());
    drop(session.greeted.take());
    if closed_by_us {
        let rest = async { while let Some(Ok(_)) = session.stream.next().await {} };
        let _ = timeout(grace, rest).await;
    }
}

/// Tells the application of the end, even where a call panics.
struct Greeted<A: Application> {
    sockets: Arc<Sockets<A>>,
    socket: Arc<Socket>,
}

impl<A: Application> Drop for Greeted<A> {
    fn drop(&mut self) {
        self.sockets.metrics.sockets.add(-1);
        self.sockets.application.closed(&self.socket);
        self.socket.clear_state();
    }
}

struct Session<A: Application> {
    sockets: Arc<Sockets<A>>,
    socket: Arc<Socket>,
    stream: SplitStream<WebSocket>,
    greeted: Option<Greeted<A>>,
    bad: u32,
    bucket: Bucket,
}

impl<A: Application> Session<A> {
    async fn read(&mut self) -> End {
        let sockets = self.sockets.clone();
        let options = &sockets.options;
        let handshake_until = tokio::time::Instant::now() + options.handshake_timeout;
        loop {
            let next = if self.greeted.is_none() {
                let Ok(next) = tokio::time::timeout_at(handshake_until, self.stream.next()).await
                else {
                    return End::Close(close::HANDSHAKE_TIMEOUT, "no #handshake came in time");
                };
                next
            } else {
                let Ok(next) = timeout(options.ping_timeout, self.stream.next()).await else {
                    return End::Close(close::NO_PONG, "no sign of life");
                };
                next
            };
            let end = match next {
                Some(Ok(Message::Text(text))) => self.text(&text).await,
                Some(Ok(Message::Binary(_))) => self.count_bad(reason::BINARY),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => None,
                // Reading on answers the close.
                Some(Ok(Message::Close(_))) => None,
                Some(Err(error)) => Some(self.unreadable(&error)),
                None => Some(End::Gone),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    async fn text(&mut self, text: &str) -> Option<End> {
        let metrics = self.sockets.metrics.clone();
        metrics.socket_bytes_in.add(text.len() as u64);
        if text.is_empty() {
            // The client's heartbeat: reading it has reset the timer.
            return None;
        }
        if text.len() > self.sockets.options.frame_bytes {
            return self.count_bad(reason::TOO_LARGE);
        }
        let packets = match frame::packets(text) {
            Ok(packets) => packets,
            Err(bad) => return self.bad_packet(&bad),
        };
        for packet in packets {
            metrics.socket_packets_in.inc();
            let end = match packet {
                Ok(Packet::Request(request)) if self.greeted.is_none() => self.greet(&request),
                Ok(Packet::Request(request)) => {
                    self.request(request).await;
                    None
                }
                Ok(Packet::Answer) if self.greeted.is_none() => Some(before_handshake()),
                Ok(Packet::Answer) => None,
                Err(bad) => self.bad_packet(&bad),
            };
            if end.is_some() {
                return end;
            }
        }
        None
    }

    /// The first packet must be the handshake.
    fn greet(&mut self, request: &Request<&RawValue>) -> Option<End> {
        if request.event != "#handshake" {
            return Some(before_handshake());
        }
        let handshake = match request.data {
            None => Ok(Handshake::default()),
            Some(data) => serde_json::from_str(data.get()),
        };
        let Ok(handshake) = handshake else {
            let why = "#handshake takes {\"authToken\": null or a JWT}";
            return Some(End::Close(close::HANDSHAKE_REJECTED, why));
        };
        let sockets = &self.sockets;
        sockets.metrics.sockets_opened.inc();
        sockets.metrics.sockets.add(1);
        self.greeted = Some(Greeted { sockets: sockets.clone(), socket: self.socket.clone() });
        let auth_error = handshake.auth_token.is_some().then(token_refused);
        let stale_token = auth_error.is_some();
        let answer = HandshakeAnswer {
            id: self.socket.public_id.clone(),
            ping_timeout: sockets.options.ping_timeout.as_millis() as u64,
            is_authenticated: false,
            auth_error,
        };
        if let Some(cid) = request.cid {
            let data = serde_json::value::to_raw_value(&answer).ok();
            self.socket.send(frame::answer(cid, data.as_deref()));
        }
        if stale_token {
            self.socket.send(frame::event("#removeAuthToken", None));
        }
        None
    }

    async fn request(&mut self, request: Request<&RawValue>) {
        if !self.bucket.take() {
            self.sockets.metrics.dropped(PLACE, reason::TOO_FAST);
            let error = RoomError::new(
                ErrorCode::TooFast,
                format!(
                    "more than {} packets a second: wait a second and try again",
                    self.sockets.options.requests_per_second
                ),
            );
            self.answer(request.cid, Err(error));
            return;
        }
        if request.event == PING {
            self.ping(request.cid);
        } else if request.event.starts_with('#') {
            self.builtin(&request);
        } else {
            let since = Instant::now();
            let application = &self.sockets.application;
            let result = application.call(&self.socket, &request.event, request.data).await;
            self.sockets.metrics.call_seconds.observe(since.elapsed().as_secs_f64());
            let outcome = result.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok");
            self.sockets.metrics.call_ended(outcome);
            self.answer(request.cid, result);
        }
    }

    fn ping(&self, cid: Option<u64>) {
        let count = self.sockets.pings.fetch_add(1, Relaxed) + 1;
        let data = serde_json::value::to_raw_value(&Pong { count }).ok();
        self.socket.send(match cid {
            Some(cid) => frame::answer(cid, data.as_deref()),
            None => frame::event("pong", data.as_deref()),
        });
    }

    /// Events of the protocol itself.
    fn builtin(&self, request: &Request<&RawValue>) {
        let refused = |code, message: &str| Err(RoomError::new(code, message));
        let result = match request.event.as_str() {
            "#subscribe" => self.subscribe(request.data),
            // Nothing is kept of subscriptions: what a socket gets, the application decides.
            "#unsubscribe" | "#removeAuthToken" => Ok(None),
            "#publish" => {
                refused(ErrorCode::NotAllowed, "clients cannot publish on channels: use the calls")
            }
            "#authenticate" => {
                if let Some(cid) = request.cid {
                    let error = Some(token_refused());
                    let answer = wire::frame::Response::<(), _> { rid: cid, data: None, error };
                    self.socket.send(frame::to_text(&answer));
                }
                self.socket.send(frame::event("#removeAuthToken", None));
                return;
            }
            "#handshake" => refused(ErrorCode::BadRequest, "the handshake is done already"),
            other => {
                let message = format!("no such built-in event: {}", shorten(other));
                refused(ErrorCode::UnknownEvent, &message)
            }
        };
        self.answer(request.cid, result);
    }

    fn subscribe(&self, data: Option<&RawValue>) -> Result<Option<Box<RawValue>>, RoomError> {
        let argument = data.and_then(|data| serde_json::from_str::<Subscribe>(data.get()).ok());
        let Some(Subscribe { channel }) = argument else {
            let message = "#subscribe takes {\"channel\": \"…\"}";
            return Err(RoomError::new(ErrorCode::BadRequest, message));
        };
        if self.sockets.application.may_subscribe(&self.socket, &channel) {
            return Ok(None);
        }
        let message = format!("not allowed on channel {}: join its room first", shorten(&channel));
        Err(RoomError::new(ErrorCode::NotAllowed, message))
    }

    /// Answers an invoke; the outcome of a transmit goes nowhere.
    fn answer(&self, cid: Option<u64>, result: Result<Option<Box<RawValue>>, RoomError>) {
        let Some(cid) = cid else { return };
        self.socket.send(match result {
            Ok(data) => frame::answer(cid, data.as_deref()),
            Err(error) => frame::failure(cid, &error),
        });
    }

    fn bad_packet(&mut self, bad: &Bad) -> Option<End> {
        if self.greeted.is_some() {
            let error = RoomError::new(ErrorCode::BadRequest, &bad.message);
            self.answer(bad.cid, Err(error));
        }
        self.count_bad(bad.reason)
    }

    /// The connection gave an error: after some of them a close can still be told.
    fn unreadable(&self, error: &axum::Error) -> End {
        // axum hides the type of the cause; its text is tungstenite's.
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        let (reason, code, why) = if cause.contains("too long") {
            (reason::TOO_LARGE, CLOSE_TOO_BIG, "the frame is too big to be read")
        } else if cause.contains("UTF-8") {
            (reason::NOT_UTF8, CLOSE_NOT_UTF8, "the frame is not UTF-8")
        } else {
            return End::Gone;
        };
        self.sockets.metrics.dropped(PLACE, reason);
        End::Close(code, why)
    }

    fn count_bad(&mut self, reason: &'static str) -> Option<End> {
        self.sockets.metrics.dropped(PLACE, reason);
        if self.greeted.is_none() {
            return Some(before_handshake());
        }
        self.bad += 1;
        tracing::debug!(socket = self.socket.public_id(), reason, count = self.bad, "bad frame");
        (self.bad >= self.sockets.options.bad_frames)
            .then_some(End::Close(CLOSE_BAD_FRAMES, "too many frames that make no sense"))
    }
}

/// Writes what the outbox holds, all of it before each flush, and the heartbeat. Ends when the
/// connection fails or the close is written.
async fn write<A: Application>(
    sink: &mut SplitSink<WebSocket, Message>,
    sockets: &Sockets<A>,
    socket: &Socket,
) {
    let options = &sockets.options;
    let first = tokio::time::Instant::now() + options.ping_interval;
    let mut heartbeat = interval_at(first, options.ping_interval);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let batch = tokio::select! {
            batch = socket.outbox.take() => batch,
            _ = heartbeat.tick() => {
                Batch { frames: vec![Utf8Bytes::from_static("")], bytes: 0, close: None }
            }
        };
        let mut frames = batch.frames.into_iter();
        let result = match batch.close {
            None => tokio::select! {
                biased;
                result = write_all(sink, &mut frames, None, &sockets.metrics) => result.ok(),
                // A client that does not read would hold the write for ever.
                () = socket.outbox.overflowed() => {
                    sockets.drops.slow_consumer.add(frames.len() as u64);
                    Some(())
                }
            },
            Some(close) => {
                let writing = write_all(sink, &mut frames, Some(close), &sockets.metrics);
                let _ = timeout(options.close_grace, writing).await;
                None
            }
        };
        socket.outbox.written(batch.bytes);
        if result.is_none() {
            sockets.drops.closed.add(frames.len() as u64);
            return;
        }
    }
}

async fn write_all(
    sink: &mut SplitSink<WebSocket, Message>,
    frames: &mut std::vec::IntoIter<Utf8Bytes>,
    close: Option<Close>,
    metrics: &Metrics,
) -> Result<(), axum::Error> {
    for frame in frames {
        if !frame.is_empty() {
            metrics.socket_packets_out.inc();
            metrics.socket_bytes_out.add(frame.len() as u64);
        }
        sink.feed(Message::Text(frame)).await?;
    }
    if let Some(Close { code, reason }) = close {
        let reason = Utf8Bytes::from(reason.into_owned());
        sink.feed(Message::Close(Some(CloseFrame { code, reason }))).await?;
    }
    sink.flush().await
}

/// Tokens come with `room.join`; the socket itself verifies none.
fn token_refused() -> NamedError {
    NamedError {
        name: "AuthTokenInvalidError".into(),
        message: "this server takes tokens in room.join, not on the socket".into(),
    }
}

fn before_handshake() -> End {
    End::Close(close::BEFORE_HANDSHAKE, "#handshake must come first")
}

fn shorten(name: &str) -> String {
    format!("{:?}", name.chars().take(40).collect::<String>())
}

/// Token bucket: packets a second in the long run, twice as many at once.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, tokens: per_second * 2.0, filled: Instant::now() }
    }

    fn take(&mut self) -> bool {
        if self.tokens < 1.0 {
            let now = Instant::now();
            let earned = (now - self.filled).as_secs_f64() * self.per_second;
            self.tokens = (self.tokens + earned).min(self.per_second * 2.0);
            self.filled = now;
        }
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}
