//! One socket from its handshake to its end.

use super::bucket::Budget;
use super::frame::{self, Bad, Incoming, Packet, reason};
use super::lost::Lost;
use super::outbox::{Batch, Close};
use super::{
    Application, CLOSE_BAD_FRAMES, CLOSE_NOT_UTF8, CLOSE_TOO_BIG, CLOSE_TOO_FAST, CLOSE_TOO_SLOW,
    CLOSE_TRY_LATER, PLACE, Socket, Sockets,
};
use crate::auth::{Guests, TokenError};
use crate::gate::{Unfinished, Visit};
use crate::metrics::Metrics;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::value::RawValue;
use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time::{MissedTickBehavior, interval_at, timeout};
use wire::frame::{Handshake, HandshakeAnswer, PONG_OF_1, PUBLISH, PUBLISH_LOST, close};
use wire::room::PING;
use wire::{ErrorCode, RoomError};

/// Bytes of a ping or its answer besides its data.
const CONTROL_FRAME_BYTES: usize = 6;
/// Frames that are read before the writer has its turn.
const FRAMES_A_TURN: u32 = 64;

/// Most answers to the packets of a frame that is too large.
const ANSWERS: usize = 16;

/// Deadlines that are so far away…
const FAR: Duration = Duration::from_secs(2);
/// …come at multiples of this.
const TOGETHER: Duration = Duration::from_millis(250);

/// A token that lasts longer is looked at again after this.
const LONGEST_TIMER: Duration = Duration::from_secs(24 * 3600);

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
    visit: Arc<Visit>,
) {
    let socket = sockets.new_socket(remote);
    let (mut sink, stream) = stream.split();
    let mut session = Session {
        sockets: sockets.clone(),
        socket: socket.clone(),
        stream,
        greeted: None,
        bad: 0,
        budget: Budget::new(sockets.options.requests_per_second, Instant::now()),
        visit,
        long: false,
        rights: 0,
        pings: PINGS.with(Arc::clone),
        refused: false,
        lost: Lost::default(),
        expiry: None,
    };
    let grace = sockets.options.close_grace;
    let mut draining = sockets.draining.subscribe();
    let closed_by_us = {
        let mut reader = pin!(session.read());
        let mut writer = pin!(write(&mut sink, sockets, &socket));
        let mut drained = pin!(async {
            // An error would mean that `sockets` is gone, but we hold it.
            let _ = draining.wait_for(|draining| *draining).await;
        });
        loop {
            // The reader first: what it answers is written in the same turn.
            tokio::select! {
                biased;
                end = &mut reader => {
                    let End::Close(code, why) = end else { break false };
                    socket.close(code, why);
                    // The writer still sends what waits, and the close frame.
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
    sockets.shared.closed.add(socket.outbox.abandon());
    drop(session.greeted.take());
    // What a refused socket goes on sending is read where it holds no memory.
    if closed_by_us && session.visit.refused().is_none() {
        let rest = async { while let Some(Ok(_)) = session.stream.next().await {} };
        let _ = timeout(grace, rest).await;
    }
}

/// Tells the application of the end, even if a call panics.
struct Greeted<A: Application> {
    sockets: Arc<Sockets<A>>,
    socket: Arc<Socket>,
}

impl<A: Application> Drop for Greeted<A> {
    fn drop(&mut self) {
        self.sockets.metrics.sockets.add(-1);
        self.sockets.table().remove(&self.socket.public_id);
        self.sockets.shared.hub.leave(&self.socket);
        self.socket.end_calls();
        self.sockets.application.closed(&self.socket);
        self.socket.clear_state();
    }
}

thread_local! {
    /// Pings answered on the sockets that began on this signaling thread.
    static PINGS: Arc<AtomicU64> = Arc::default();
}

pub(super) struct Session<A: Application> {
    pub(super) sockets: Arc<Sockets<A>>,
    pub(super) socket: Arc<Socket>,
    stream: SplitStream<WebSocket>,
    greeted: Option<Greeted<A>>,
    bad: u32,
    budget: Budget,
    visit: Arc<Visit>,
    /// Its messages may be long.
    long: bool,
    /// How often [`Socket::rights`] had changed when they were looked at last.
    rights: u64,
    pings: Arc<AtomicU64>,
    /// A refusal of this socket is in the log already.
    refused: bool,
    /// Publications that nobody got, and that it is not told yet.
    lost: Lost,
    /// When its token expires.
    pub(super) expiry: Option<tokio::time::Instant>,
}

impl<A: Application> Session<A> {
    async fn read(&mut self) -> End {
        let sockets = self.sockets.clone();
        let options = &sockets.options;
        // One timer for the socket, which is set to the newest deadline when it fires: a new timer for
        // each frame would cost more than the frame.
        let mut deadline = tokio::time::Instant::now() + options.handshake_timeout;
        let mut timer = pin!(tokio::time::sleep_until(deadline));
        let mut frames = 0u32;
        loop {
            let next = tokio::select! {
                biased;
                next = self.stream.next() => next,
                // Only reading finds it out, which was just now.
                why = poll_fn(|_| self.visit.refused().map_or(Poll::Pending, Poll::Ready)) => {
                    return unfinished(why);
                }
                () = &mut timer => {
                    let now = tokio::time::Instant::now();
                    if self.expiry.is_some_and(|at| at <= now) {
                        self.expire();
                        self.note_expiry();
                    }
                    self.tell_lost();
                    if now < deadline {
                        timer.as_mut().reset(self.next_timer(deadline));
                        continue;
                    }
                    return match self.greeted {
                        None => End::Close(close::HANDSHAKE_TIMEOUT, "no #handshake came in time"),
                        Some(_) => End::Close(close::NO_PONG, "no sign of life"),
                    };
                }
            };
            let end = match next {
                Some(Ok(Message::Text(text))) => {
                    self.visit.message_is_whole();
                    match self.text(&text).await {
                        None => self.pause(text.len()).await,
                        end => end,
                    }
                }
                Some(Ok(Message::Binary(_))) => {
                    self.visit.message_is_whole();
                    self.count_bad(reason::BINARY)
                }
                Some(Ok(Message::Ping(data) | Message::Pong(data))) => {
                    self.visit.was_ping(data.len() + CONTROL_FRAME_BYTES);
                    None
                }
                // The next read answers the close.
                Some(Ok(Message::Close(_))) => None,
                Some(Err(error)) => Some(self.unreadable(&error)),
                None => Some(End::Gone),
            };
            if let Some(end) = end {
                return end;
            }
            if self.greeted.is_some() {
                deadline = together(options.ping_timeout);
                // Reading comes before the timer, and may have no end.
                self.tell_lost();
                let next = self.next_timer(deadline);
                if timer.deadline() > next {
                    timer.as_mut().reset(next);
                }
            }
            frames = (frames + 1) % FRAMES_A_TURN;
            if frames == 0 {
                // A client that sends without a pause must not keep the writer from writing.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads nothing for a while if the client sends too much. A client that does not stop is closed.
    async fn pause(&mut self, bytes: usize) -> Option<End> {
        self.note_rights();
        let pause = self.budget.pause(bytes, Instant::now())?;
        if self.budget.is_flood(Instant::now()) {
            let why = "the client sends too much: see the refusals with too_fast";
            return Some(End::Close(CLOSE_TOO_FAST, why));
        }
        tokio::time::sleep(pause).await;
        None
    }

    /// Its messages may be long once the client shook hands and has rights: a token's, or a guest's. They count as those of
    /// the token's identity.
    fn note_rights(&mut self) {
        let changes = self.socket.rights.changes();
        if changes != self.rights {
            self.rights = changes;
            let grants = self.socket.grants();
            let shown = grants.as_ref().and_then(|grants| grants.identity.clone());
            self.visit.belongs_to(shown.or(self.socket.rights.joined_as()).as_deref());
        }
        if self.long || self.greeted.is_none() {
            return;
        }
        let has_token = || self.socket.grants().is_some() || self.socket.rights.has_joined();
        if self.sockets.shared.auth.guests() != Guests::None || has_token() {
            self.long = true;
            self.visit.may_be_long();
        }
    }

    async fn text(&mut self, text: &str) -> Option<End> {
        self.sockets.metrics.socket_bytes_in.add(text.len() as u64);
        if text.is_empty() || text == PONG_OF_1 {
            // The client's heartbeat: like every frame it moves the deadline, in `read`.
            self.socket.hears_pings(if text.is_empty() { 2 } else { 1 });
            self.expire();
            return None;
        }
        if text.len() > self.sockets.options.frame_bytes {
            return self.too_large(text);
        }
        let packets = match frame::packets(text) {
            Ok(packets) => packets,
            Err(bad) => return self.bad_packet(&bad),
        };
        for packet in packets {
            if self.socket.outbox.is_closing() {
                // Its answer would go nowhere, and its rights may be over.
                self.sockets.shared.closed.inc();
                continue;
            }
            self.sockets.metrics.socket_packets_in.inc();
            let end = match packet {
                Ok(Packet::Request(request)) if self.greeted.is_none() => self.greet(&request),
                Ok(Packet::Request(request)) => {
                    self.request(request).await;
                    None
                }
                Ok(Packet::Answer { .. }) if self.greeted.is_none() => Some(before_handshake()),
                Ok(Packet::Answer { rid, result }) => {
                    if self.budget.answer(Instant::now()) {
                        self.socket.answered(rid, result);
                    } else {
                        self.sockets.metrics.dropped(PLACE, reason::TOO_FAST);
                    }
                    None
                }
                Err(bad) => self.bad_packet(&bad),
            };
            if end.is_some() {
                return end;
            }
        }
        None
    }

    /// Nothing of a frame that is too large is taken. Whoever waits for an answer gets one.
    fn too_large(&mut self, text: &str) -> Option<End> {
        if self.greeted.is_some() {
            let most = self.sockets.options.frame_bytes;
            let message =
                format!("the frame has {} of at most {most} bytes: send less", text.len());
            let packets = frame::packets(text).into_iter().flatten().take(ANSWERS);
            for packet in packets {
                if let Ok(Packet::Request(request)) = packet {
                    self.answer(&request, Err(RoomError::new(ErrorCode::TooLarge, &*message)));
                }
            }
        }
        self.count_bad(reason::TOO_LARGE)
    }

    /// The first packet must be the handshake.
    fn greet(&mut self, request: &Incoming<'_>) -> Option<End> {
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
        sockets.table().insert(self.socket.public_id.clone(), self.socket.clone());
        self.greeted = Some(Greeted { sockets: sockets.clone(), socket: self.socket.clone() });
        let token = handshake.auth_token.as_deref();
        let auth_error = token.and_then(|token| self.socket.authenticate(token).err());
        let answer = HandshakeAnswer {
            id: self.socket.public_id.clone(),
            ping_timeout: sockets.options.ping_timeout.as_millis() as u64,
            is_authenticated: token.is_some() && auth_error.is_none(),
            auth_error: auth_error.as_ref().map(TokenError::named),
        };
        if let Some(cid) = request.cid {
            let data = serde_json::value::to_raw_value(&answer).ok();
            self.socket.send(frame::answer(cid, data.as_deref()));
        }
        if auth_error.is_some() {
            self.socket.transmit("#removeAuthToken", None);
        }
        self.note_expiry();
        None
    }

    async fn request(&mut self, request: Incoming<'_>) {
        if !self.budget.call(&request.event, Instant::now()) {
            self.sockets.metrics.dropped(PLACE, reason::TOO_FAST);
            let error = RoomError::new(
                ErrorCode::TooFast,
                format!(
                    "too many packets (at most {} a second) or too many costly calls: wait a second and \
                     try again",
                    self.sockets.options.requests_per_second
                ),
            );
            self.answer(&request, Err(error));
            return;
        }
        self.expire();
        if request.event == PING {
            let count = self.pings.fetch_add(1, Relaxed) + 1;
            self.socket.send(frame::pong(request.cid, count));
        } else if request.event.starts_with('#') {
            self.builtin(&request);
        } else {
            let since = Instant::now();
            let application = &self.sockets.application;
            // Boxed: otherwise each idle socket would take the memory that a running call needs.
            let call = Box::pin(application.call(&self.socket, &request.event, request.data));
            let result = call.await;
            self.sockets.metrics.call_seconds.observe(since.elapsed().as_secs_f64());
            let outcome = result.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok");
            self.sockets.metrics.call_ended(outcome);
            self.answer(&request, result);
        }
    }

    /// The token is another one than before, or was looked at. It is looked at again when it expires, whatever the client sends until
    /// then.
    pub(super) fn note_expiry(&mut self) {
        let expires = self.socket.grants().and_then(|grants| grants.expires_unix_s);
        self.expiry = expires.map(|expires_s| {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let left = Duration::from_secs(expires_s).saturating_sub(unix);
            // It is not looked at a moment before its time.
            tokio::time::Instant::now() + left.min(LONGEST_TIMER) + Duration::from_millis(1)
        });
    }

    /// Takes away a token whose time is over.
    fn expire(&self) {
        if self.socket.grants().is_some_and(|grants| grants.is_expired()) {
            tracing::debug!(socket = self.socket.public_id(), "the token is expired");
            self.socket.deauthenticate();
            self.socket.transmit("#removeAuthToken", None);
        }
    }

    /// Answers an invoke; the outcome of a transmit goes nowhere. Logs the first refusal of a
    /// socket.
    pub(super) fn answer(
        &mut self,
        request: &Incoming<'_>,
        result: Result<Option<Box<RawValue>>, RoomError>,
    ) {
        if let Err(error) = &result
            && !std::mem::replace(&mut self.refused, true)
        {
            let (socket, event) = (self.socket.public_id(), shorten(&request.event));
            tracing::info!(socket, event, code = error.code.as_str(), "refused: {}", error.message);
        }
        let Some(cid) = request.cid else {
            if let Err(error) = result
                && request.event == PUBLISH
            {
                self.lost.add(error, tokio::time::Instant::now());
                self.tell_lost();
            }
            return;
        };
        self.socket.send(match result {
            Ok(data) => frame::answer(cid, data.as_deref()),
            Err(error) => frame::failure(cid, &error),
        });
    }

    /// Tells the client of publications that nobody got, if it is time.
    fn tell_lost(&mut self) {
        // After nearly all frames there is nothing, and the clock need not be read.
        if self.lost.due().is_none() {
            return;
        }
        if let Some(told) = self.lost.take(tokio::time::Instant::now()) {
            let data = serde_json::value::to_raw_value(&told).ok();
            self.socket.transmit(PUBLISH_LOST, data.as_deref());
        }
    }

    /// What the timer is set to, where this is the end of its patience.
    fn next_timer(&self, deadline: tokio::time::Instant) -> tokio::time::Instant {
        [self.expiry, self.lost.due()].into_iter().flatten().fold(deadline, Ord::min)
    }

    fn bad_packet(&mut self, bad: &Bad) -> Option<End> {
        if self.greeted.is_some() {
            let error = RoomError::new(ErrorCode::BadRequest, &bad.message);
            if let Some(cid) = bad.cid {
                self.socket.send(frame::failure(cid, &error));
            }
        }
        self.count_bad(bad.reason)
    }

    /// The connection gave an error. After some errors a close frame can still be sent.
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
    let mut heartbeat = interval_at(together(options.ping_interval), options.ping_interval);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut beats = 0_u32;
    loop {
        let batch = tokio::select! {
            batch = socket.outbox.take() => batch,
            _ = heartbeat.tick() => {
                beats += 1;
                Batch { frames: socket.pings(beats), bytes: 0, close: None }
            }
        };
        let mut frames = batch.frames.into_iter();
        let result = match batch.close {
            None => tokio::select! {
                biased;
                result = write_all(sink, &mut frames, None, &sockets.metrics) => result.ok(),
                // A client that does not read would block the write for ever.
                overflowed = socket.outbox.given_up(options.close_grace) => {
                    if overflowed {
                        sockets.shared.slow_consumer.add(frames.len() as u64);
                    }
                    overflowed.then_some(())
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
            sockets.shared.closed.add(frames.len() as u64);
            return;
        }
    }
}

/// `span` from now, or a little later: far deadlines of all sockets come together, since one wake-up for
/// many costs less than one for each.
fn together(span: Duration) -> tokio::time::Instant {
    static BEGUN: LazyLock<tokio::time::Instant> = LazyLock::new(tokio::time::Instant::now);
    let at = tokio::time::Instant::now() + span;
    let past = at.saturating_duration_since(*BEGUN).as_nanos() as u64 % TOGETHER.as_nanos() as u64;
    let far = span >= FAR && past > 0;
    if far { at + TOGETHER - Duration::from_nanos(past) } else { at }
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

fn unfinished(why: Unfinished) -> End {
    match why {
        Unfinished::WithoutRights => {
            let why = "without a token a message has at most 16 KiB: show one in #handshake or room.join first";
            End::Close(CLOSE_TOO_BIG, why)
        }
        Unfinished::TooMany => {
            let why = "too many unfinished messages of this address or identity: come back, and send fewer at once";
            End::Close(CLOSE_TRY_LATER, why)
        }
        Unfinished::TooSlow => {
            End::Close(CLOSE_TOO_SLOW, "a message must be whole 30 s after its first byte")
        }
    }
}

fn before_handshake() -> End {
    End::Close(close::BEFORE_HANDSHAKE, "#handshake must come first")
}

pub(super) fn shorten(name: &str) -> String {
    format!("{:?}", name.chars().take(40).collect::<String>())
}
