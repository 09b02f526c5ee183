//! Sockets: SocketCluster protocol 2 over WebSocket, at [`wire::frame::SOCKET_PATH`].
//!
//! `session` runs one socket: a reader whose calls run in order, and a writer. `frame` takes text apart and puts it
//! together. `outbox` holds what waits to be written, and closes a socket whose client reads too slowly. `builtin`
//! answers the protocol's own events (tokens, channels), `hub` knows who is subscribed to what, `calls` are the server's
//! calls to its clients, `bucket` bounds what a client may ask for. The [`Application`] gives the clients' calls their
//! meaning.

mod bucket;
mod builtin;
mod calls;
pub mod frame;
mod hub;
mod lost;
mod outbox;
mod rights;
mod session;

pub(crate) use builtin::check_channel_name;
pub use calls::{InvokeError, OPEN_CALLS};
pub use frame::Publication;

use crate::auth::{Auth, Grants};
use crate::config::Limits;
use crate::desk::{RoomDesk, RoomRow};
use crate::gate::Visit;
use crate::metrics::{Counter, Metrics};
use axum::extract::ws::{Utf8Bytes, WebSocket};
use calls::Calls;
use frame::reason;
use hub::Hub;
use outbox::{Outbox, Pushed};
use rights::Rights;
use serde_json::value::RawValue;
use std::any::Any;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use wire::RoomError;
use wire::console::Quality;
use wire::frame::{HANDSHAKE_TIMEOUT_MS, PING_INTERVAL_MS, PING_OF_1, PING_TIMEOUT_MS, close};

/// Close code for a client that sent too many frames that make no sense: mend the client.
pub const CLOSE_BAD_FRAMES: u16 = 4100;
/// Close code of RFC 6455 for a message that is too big to be read at all.
pub const CLOSE_TOO_BIG: u16 = 1009;
/// Close code of RFC 6455 for text that is not UTF-8.
pub const CLOSE_NOT_UTF8: u16 = 1007;

/// Close code for a client that went on sending faster than it may: wait, and send less.
pub const CLOSE_TOO_FAST: u16 = 4103;

/// Close code of RFC 6455's registry for what would be taken at another time: too many messages are under way.
pub const CLOSE_TRY_LATER: u16 = 1013;
/// Close code for a client whose message was not whole in time.
pub const CLOSE_TOO_SLOW: u16 = 4105;

/// Where what sockets discard is counted: `moim_dropped_total{where="signaling"}`.
const PLACE: &str = "signaling";

/// Why a socket or a seat ends whose token was revoked.
pub(crate) const REVOKED: &str = "the token was revoked";

/// What the sockets are for.
pub trait Application: Send + Sync + 'static {
    /// An invoke or a transmit of a client (the answer of a transmit goes nowhere). The calls of
    /// one socket run one after the other. Events `#…` and `ping` never get here. The future is
    /// dropped where it stands if the socket ends before it.
    fn call(
        &self,
        socket: &Arc<Socket>,
        event: &str,
        data: Option<&RawValue>,
    ) -> impl Future<Output = Result<Option<Box<RawValue>>, RoomError>> + Send;

    /// The socket is gone. Comes after its last call, exactly once for each socket whose handshake
    /// succeeded.
    fn closed(&self, socket: &Arc<Socket>);

    /// May this socket subscribe to the channel of a room (`room:…`)?
    fn may_subscribe(&self, socket: &Arc<Socket>, channel: &str) -> bool;

    /// Ends what was begun with tokens that are revoked. Returns how many seats in rooms that were.
    fn end_revoked(&self, _is_revoked: &dyn Fn(&Grants) -> bool) -> usize {
        0
    }

    /// The rooms with their people, by id, for the HTTP API.
    fn rooms(&self) -> Vec<RoomRow> {
        Vec::new()
    }

    /// How good it is in the rooms, for the HTTP API.
    fn quality(&self) -> Quality {
        Quality { at_unix_ms: 0, rooms: Vec::new() }
    }

    /// Where the HTTP API makes and changes rooms, if there are any.
    fn desk(&self) -> Option<&dyn RoomDesk> {
        None
    }
}

/// Bounds and periods of sockets.
#[derive(Debug, Clone)]
pub struct SocketOptions {
    /// How often the server sends an empty frame.
    pub ping_interval: Duration,
    /// Silence after which a socket is closed.
    pub ping_timeout: Duration,
    /// Time in which the handshake must come.
    pub handshake_timeout: Duration,
    /// How long the last frames and the close may take.
    pub close_grace: Duration,
    /// Longest frame, in bytes; longer ones are discarded and counted.
    pub frame_bytes: usize,
    /// Longest frame that is read at all, in bytes; longer ones close the socket.
    pub unreadable_bytes: usize,
    /// This many bad packets and frames close the socket.
    pub bad_frames: u32,
    /// Most bytes that wait to be written.
    pub outbox_bytes: usize,
    /// Packets a second in the long run; twice as many at once.
    pub requests_per_second: u32,
    /// Most sockets at once.
    pub sockets: usize,
    /// Most channels that one socket may be subscribed to.
    pub channels_per_socket: usize,
    /// Most subscribers of a channel.
    pub channel_subscribers: usize,
    /// Longest message on a channel, in bytes of JSON.
    pub message_bytes: usize,
}

impl From<&Limits> for SocketOptions {
    fn from(limits: &Limits) -> Self {
        Self {
            ping_interval: Duration::from_millis(PING_INTERVAL_MS),
            ping_timeout: Duration::from_millis(PING_TIMEOUT_MS),
            handshake_timeout: Duration::from_millis(HANDSHAKE_TIMEOUT_MS),
            close_grace: Duration::from_secs(2),
            frame_bytes: 256 << 10,
            unreadable_bytes: 1 << 20,
            bad_frames: 20,
            outbox_bytes: limits.outbox_bytes,
            requests_per_second: limits.requests_per_second,
            sockets: limits.sockets,
            channels_per_socket: limits.channels_per_socket,
            channel_subscribers: limits.channel_subscribers,
            message_bytes: limits.message_bytes,
        }
    }
}

/// All sockets of one application.
#[derive(Debug)]
pub struct Sockets<A> {
    application: Arc<A>,
    options: SocketOptions,
    metrics: Arc<Metrics>,
    shared: Arc<Shared>,
    next_id: AtomicU64,
    open: AtomicUsize,
    /// Those whose handshake succeeded, by public id.
    table: Mutex<BTreeMap<String, Arc<Socket>>>,
    /// Told when `open` falls to zero.
    empty: Notify,
    draining: watch::Sender<bool>,
}

/// What all sockets use, whatever their application is.
#[derive(Debug)]
struct Shared {
    auth: Arc<Auth>,
    hub: Hub,
    metrics: Arc<Metrics>,
    /// Discarded because the client reads too slowly.
    slow_consumer: Counter,
    /// Discarded because the socket is closing.
    closed: Counter,
}

impl<A: Application> Sockets<A> {
    /// No sockets yet.
    pub fn new(
        application: Arc<A>,
        options: SocketOptions,
        auth: Arc<Auth>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let shared = Arc::new(Shared {
            auth,
            hub: Hub::new(options.channels_per_socket, options.channel_subscribers),
            slow_consumer: metrics.drops(PLACE, reason::SLOW_CONSUMER),
            closed: metrics.drops(PLACE, reason::CLOSED),
            metrics: metrics.clone(),
        });
        Arc::new(Self {
            application,
            options,
            metrics,
            shared,
            next_id: AtomicU64::new(1),
            open: AtomicUsize::new(0),
            table: Mutex::default(),
            empty: Notify::new(),
            draining: watch::Sender::new(false),
        })
    }

    /// The application.
    pub fn application(&self) -> &A {
        &self.application
    }

    /// The keys and what guests may do.
    pub fn auth(&self) -> &Auth {
        &self.shared.auth
    }

    /// The socket of a public id, from its handshake to its end.
    pub fn find(&self, public_id: &str) -> Option<Arc<Socket>> {
        self.table().get(public_id).cloned()
    }

    /// How many there are after their handshake, and up to `most` of them with ids after `after`,
    /// by id.
    pub fn list(&self, after: &str, most: usize) -> (usize, Vec<Arc<Socket>>) {
        let table = self.table();
        let rest = table.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        (table.len(), rest.take(most).map(|(_, socket)| socket.clone()).collect())
    }

    /// Publishes on an application's channel; `data` is JSON. Tells how many sockets took it.
    pub fn publish(&self, channel: &str, data: &str) -> usize {
        self.shared.publish(channel, data)
    }

    /// Ends a subscription and says so to the client (`#kickOut`); false if there was none.
    pub fn kick_out(&self, socket: &Socket, channel: &str, message: &str) -> bool {
        socket.kick_out(channel, message)
    }

    /// Closes what came in with a token that is revoked by now: sockets, and seats in rooms. Returns how many of each.
    pub fn end_revoked(&self) -> (usize, usize) {
        let is_revoked = |grants: &Grants| self.shared.auth.is_revoked(grants);
        let all: Vec<Arc<Socket>> = self.table().values().cloned().collect();
        let with_token =
            |socket: &&Arc<Socket>| socket.grants().is_some_and(|own| is_revoked(&own));
        let sockets: Vec<&Arc<Socket>> = all.iter().filter(with_token).collect();
        for socket in &sockets {
            // Their writers may take a while to close them.
            socket.disown();
            self.shared.hub.leave(socket);
        }
        // Seats first: their people are told why before their sockets close.
        let seats = self.application.end_revoked(&is_revoked);
        for socket in &sockets {
            socket.close(close::REVOKED, REVOKED);
        }
        (sockets.len(), seats)
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Socket>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bounds.
    pub fn options(&self) -> &SocketOptions {
        &self.options
    }

    /// Whether [`Self::drain`] was called.
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Sockets now, with those still before their handshake.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Takes a place for a socket; `None` if all are taken or the server is ending.
    pub(crate) fn reserve(self: &Arc<Self>) -> Option<Place<A>> {
        if self.is_draining() {
            return None;
        }
        let most = self.options.sockets;
        self.open
            .fetch_update(Relaxed, Relaxed, |open| (open < most).then_some(open + 1))
            .ok()
            .map(|_| Place { sockets: self.clone() })
    }

    /// Runs a socket until it ends.
    pub(crate) async fn run(
        self: Arc<Self>,
        place: Place<A>,
        stream: WebSocket,
        from: SocketAddr,
        visit: Arc<Visit>,
    ) {
        session::run(&self, stream, from, visit).await;
        drop(place);
    }

    /// Refuses new sockets, closes all with [`close::DRAINING`] once what waits for them is
    /// written, and waits until they are gone, at most three times the grace.
    pub async fn drain(&self) {
        self.draining.send_replace(true);
        let gone = async {
            loop {
                let empty = self.empty.notified();
                if self.open() == 0 {
                    return;
                }
                empty.await;
            }
        };
        let _ = tokio::time::timeout(self.options.close_grace * 3, gone).await;
    }

    /// A client's socket before its handshake.
    pub(crate) fn new_socket(&self, remote: SocketAddr) -> Arc<Socket> {
        Arc::new(Socket {
            id: self.next_id.fetch_add(1, Relaxed),
            public_id: random_id(),
            remote,
            outbox: Outbox::new(self.options.outbox_bytes),
            shared: self.shared.clone(),
            state: Mutex::new(None),
            grants: Mutex::new(None),
            rights: Rights::default(),
            channels: Mutex::default(),
            calls: Mutex::default(),
            protocol: AtomicU8::new(0),
        })
    }
}

impl Shared {
    fn publish(&self, channel: &str, data: &str) -> usize {
        let delivered = self.hub.publish(channel, &Publication::new(channel, data));
        self.metrics.publications.inc();
        self.metrics.publications_delivered.add(delivered as u64);
        delivered
    }
}

/// A reserved place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place<A> {
    sockets: Arc<Sockets<A>>,
}

impl<A> Drop for Place<A> {
    fn drop(&mut self) {
        if self.sockets.open.fetch_sub(1, Relaxed) == 1 {
            self.sockets.empty.notify_waiters();
        }
    }
}

/// One client's socket.
#[derive(Debug)]
pub struct Socket {
    id: u64,
    public_id: String,
    remote: SocketAddr,
    outbox: Outbox,
    shared: Arc<Shared>,
    state: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    /// Of the token that the socket was authenticated with.
    grants: Mutex<Option<Arc<Grants>>>,
    rights: Rights,
    /// Channels of applications that it is subscribed to; only the hub changes this.
    channels: Mutex<BTreeSet<Arc<str>>>,
    calls: Mutex<Calls>,
    /// The protocol whose pings it answers; 0: none yet.
    protocol: AtomicU8,
}

impl Socket {
    /// Number of this socket in this process, never used twice.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The id that the client knows: 20 characters, random.
    pub fn public_id(&self) -> &str {
        &self.public_id
    }

    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// It answered a ping of this protocol.
    fn hears_pings(&self, protocol: u8) {
        self.protocol.store(protocol, Relaxed);
    }

    /// The frames of a ping, the how many-th. Protocols 1 and 2 shake hands in the same way: a client that answers nothing is
    /// asked in both, once it had time for the first.
    fn pings(&self, nth: u32) -> Vec<Utf8Bytes> {
        let [one, two] = [PING_OF_1, ""].map(Utf8Bytes::from_static);
        match self.protocol.load(Relaxed) {
            1 => vec![one],
            0 if nth > 1 => vec![two, one],
            _ => vec![two],
        }
    }

    /// Sends a message on a channel, whether or not the client subscribed to it. `data` is JSON.
    /// False: the socket is closing, and the message was discarded and counted.
    pub fn publish(&self, channel: &str, data: &str) -> bool {
        self.deliver(&Publication::new(channel, data))
    }

    /// [`Self::publish`] of a message that was made once for many sockets.
    pub fn deliver(&self, publication: &Publication) -> bool {
        self.send(publication.0.clone())
    }

    /// Whether this leaves half of its outbox free: what other clients have passed on to a socket must not close it.
    pub(crate) fn has_room_for(&self, publication: &Publication) -> bool {
        self.outbox.is_half_free_with(publication.0.len())
    }

    /// Takes what waits, as the writer does.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> Vec<String> {
        let taken = futures_util::FutureExt::now_or_never(self.outbox.take());
        let Some(batch) = taken else { return Vec::new() };
        self.outbox.written(batch.bytes);
        batch.frames.iter().map(ToString::to_string).collect()
    }

    /// Closes the socket once what waits is written. The first reason stands.
    pub fn close(&self, code: u16, reason: impl Into<Cow<'static, str>>) {
        self.outbox.close(code, reason);
    }

    /// Keeps the application's own state with the socket; returns what was kept before.
    pub fn set_state<T: Any + Send + Sync>(&self, state: T) -> Option<Arc<dyn Any + Send + Sync>> {
        self.state().replace(Arc::new(state))
    }

    /// The state that was kept, if it is of this type.
    pub fn state_of<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.state().clone()?.downcast().ok()
    }

    /// Takes the state away.
    pub fn clear_state(&self) {
        self.state().take();
    }

    /// A join with a token of its own was taken: from now on messages may be as long as such a client's.
    pub(crate) fn joined_with_token(&self, identity: Option<&str>) {
        self.rights.joined(identity);
    }

    /// The grants of the token that the socket was authenticated with, if it was.
    pub fn grants(&self) -> Option<Arc<Grants>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Channels of applications that it is subscribed to, by name.
    pub fn channel_names(&self) -> Vec<String> {
        self.channels().iter().map(ToString::to_string).collect()
    }

    fn channels(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, Option<Arc<dyn Any + Send + Sync>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, frame: Utf8Bytes) -> bool {
        match self.outbox.push(frame) {
            Pushed::Queued => true,
            Pushed::Closed => {
                self.shared.closed.inc();
                false
            }
            Pushed::Overflow { discarded } => {
                self.shared.slow_consumer.add(discarded);
                tracing::warn!(
                    socket = self.public_id,
                    remote = %self.remote,
                    code = close::SLOW_CONSUMER,
                    "the client reads too slowly: its socket is closed"
                );
                false
            }
        }
    }
}

/// 20 characters. The standard library's hasher keys are from the system's random source: good
/// for names that must not collide, not for secrets.
pub(crate) fn random_id() -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut id = String::with_capacity(20);
    for part in 0..2u8 {
        let mut bits = RandomState::new().hash_one(part);
        for _ in 0..10 {
            id.push(char::from(ALPHABET[(bits & 31) as usize]));
            bits >>= 5;
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_long_and_differ() {
        let ids: std::collections::HashSet<String> = (0..1000).map(|_| random_id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 20));
    }
}
