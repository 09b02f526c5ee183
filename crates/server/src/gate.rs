//! What every HTTP connection passes, sockets included, before TLS: a place of its address, and deadlines.
//!
//! A connection of a trusted proxy has a place of no address. What it says of its client counts instead. A PROXY header says it for
//! the whole connection. A request's headers say it for that request, and for the socket that it opens.
//!
//! An address that opens connections faster than it may waits with each until that is earned.
//!
//! A stream that is past its deadline ends with an error, whatever it waits for: a request that never ends, an
//! answer that nobody reads, a client that has nothing more to ask. What becomes a socket has periods of its own;
//! there the bytes of messages that are not whole yet are bounded: each socket's, those of an address and of an identity, and
//! all together.

mod messages;
mod pace;
mod shared;

use crate::memory::{Holder, Holding};
use crate::metrics::Metrics;
use crate::places::{Full, Places, network};
use crate::proxies::Proxies;
use crate::proxy_protocol;
use axum::Extension;
use axum::extract::{ConnectInfo, Request};
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{AddExtension, Next};
use axum::response::{IntoResponse, Response};
use axum_server::accept::Accept;
pub(crate) use messages::Counting;
pub(crate) use pace::Pace;
use shared::{Count, Shared};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, timeout};
use tower_layer::Layer;

/// The first request's head must be here so long after the connection (with TLS: its handshake, too).
const HEAD: Duration = Duration::from_secs(10);
/// A request's body and the answer to it; the pause until the next request's head. Longer than the API waits for the
/// client that a call goes to.
const EACH: Duration = Duration::from_secs(75);
/// A socket's message must be whole so long after its first byte.
const MESSAGE: Duration = Duration::from_secs(30);
/// So much of a message is read of anybody, with what frames add; of a socket without rights no more.
const SHORT: u64 = 16 << 10;
/// So much is read at a time of a socket whose messages are not taken any more, and for so long after its end.
const DISCARD: usize = 8 << 10;
const LINGER: Duration = Duration::from_secs(2);
/// How long a connection of the reserve may last: it is for one question.
const RESERVED: Duration = Duration::from_secs(2);
/// Of a deadline: there is none.
const NEVER: u64 = u64::MAX;

/// Lets connections in while there are places.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Shared>);

impl Gate {
    /// With whether TLS is spoken, and the path that all others begin with.
    pub(crate) fn new(
        places: (Places, Pace),
        proxies: Proxies,
        (tls, base): (bool, &str),
        metrics: &Metrics,
    ) -> Self {
        Self(Arc::new(Shared::new(places, proxies, (tls, base), metrics)))
    }

    async fn enter(self, stream: TcpStream) -> io::Result<(Timed, Arc<Visit>)> {
        let shared = self.0;
        stream.set_nodelay(true)?;
        let peer = stream.peer_addr()?;
        let begun = Instant::now();
        let proxied = shared.proxies.trust(peer.ip());
        let (mut place, mut full) =
            if proxied { shared.place_of_proxy(peer)? } else { shared.place(peer)? };
        let (mut client, mut early) = (peer, Vec::new());
        if proxied {
            let until = begun + if full.is_some() { RESERVED } else { HEAD };
            let told;
            (told, early) = shared.proxy_header(&stream, peer, until).await?;
            client = told.unwrap_or(peer);
        }
        // Headers of requests count where a proxy sends them, and it may send them for another one.
        let proxied = shared.proxies.trust(client.ip());
        if !proxied && client != peer {
            match Count::of(&shared.places, client.ip()) {
                Ok(count) if full.is_none() => place.count = Some(count),
                // It is one of its client's reserve, not of the proxy's.
                _ => (place, full) = shared.place(client)?,
            }
        }
        if !proxied && full.is_none() {
            // With its place held: what waits is bounded, too.
            let wait = shared.pace.wait(network(client.ip()), begun.into_std());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
        let begun = Instant::now();
        let head = if full.is_some() { RESERVED } else { HEAD };
        let holding = shared.messages.hold(network(client.ip()), Holder::of(None));
        let visit = Arc::new(Visit {
            gate: shared,
            begun,
            until_ms: AtomicU64::new(head.as_millis() as u64),
            client,
            proxied,
            full,
            handing_over: Mutex::default(),
            is_handing_over: AtomicBool::new(false),
            message: AtomicU64::new(0),
            message_since_ms: AtomicU64::new(0),
            long: AtomicBool::new(false),
            holding: Mutex::new(holding),
            refused: OnceLock::new(),
        });
        let timer = Box::pin(tokio::time::sleep_until(begun + head));
        let known = visit.clone();
        let fresh = !proxied && client == peer;
        let (timer, place) = (Some(timer), Some(place));
        Ok((Timed { stream, early, fresh, visit, timer, place }, known))
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for Gate {
    type Stream = Timed;
    type Service = AddExtension<S, Arc<Visit>>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    /// An error closes the connection at once.
    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let entered = self.clone().enter(stream);
        Box::pin(async move {
            let (stream, visit) = entered.await?;
            Ok((stream, Extension(visit).layer(service)))
        })
    }
}

/// A request that a trusted proxy passes on, as it counts for its client: whoever holds it goes on counting.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted(Option<Arc<Count>>);

/// How long a connection may go on as it is.
#[derive(Debug)]
pub(crate) struct Visit {
    gate: Arc<Shared>,
    begun: Instant,
    /// Since `begun`.
    until_ms: AtomicU64,
    /// Who connected, or whom the proxy told that did.
    client: SocketAddr,
    /// A trusted proxy sends the requests: their headers tell for whom.
    proxied: bool,
    /// Of the reserve: why it is there.
    full: Option<Full>,
    /// Requests whose answers are not written yet.
    handing_over: Mutex<Vec<Counted>>,
    is_handing_over: AtomicBool,
    /// Of a socket: bytes that came since the last whole message, and when the first of them came, since `begun`.
    message: AtomicU64,
    message_since_ms: AtomicU64,
    /// Whether messages may be longer than [`SHORT`].
    long: AtomicBool,
    /// Of a socket: what is beyond [`SHORT`] of its message.
    holding: Mutex<Holding>,
    /// Why nothing more is taken of it.
    refused: OnceLock<Unfinished>,
}

/// Why a message that is not whole yet is not read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// It is too long for a socket without rights.
    WithoutRights,
    /// Those of its address, of its identity, or of all take too much.
    TooMany,
    /// It was not whole in time.
    TooSlow,
}

impl Visit {
    /// From now on it is a socket, which has periods of its own.
    pub(crate) fn is_socket(&self) {
        self.until_ms.store(NEVER, Relaxed);
    }

    /// From now on messages may be long.
    pub(crate) fn may_be_long(&self) {
        self.long.store(true, Relaxed);
    }

    /// From now on its messages are of this identity, or of nobody by name.
    pub(crate) fn belongs_to(&self, identity: Option<&str>) {
        self.holding().pass_to(Holder::of(identity));
    }

    /// Why nothing more is taken, if so: what comes from now on is discarded.
    pub(crate) fn refused(&self) -> Option<Unfinished> {
        self.refused.get().copied()
    }

    /// All that came belongs to messages that are whole. A little more may have come: it is not counted.
    pub(crate) fn message_is_whole(&self) {
        if self.message.swap(0, Relaxed) > SHORT {
            self.holding().shrink(u64::MAX);
        }
    }

    /// So much of what came was a ping or its answer, which may come amid a message.
    pub(crate) fn was_ping(&self, bytes: usize) {
        let message = self.message.load(Relaxed);
        let left = message - message.min(bytes as u64);
        self.message.store(left, Relaxed);
        if message > SHORT {
            let mut holding = self.holding();
            let beyond = holding.bytes().saturating_sub(left.saturating_sub(SHORT));
            holding.shrink(beyond);
        }
    }

    /// For whom a request is; of a trusted proxy it counts for that address, unless it only asks how the server is.
    fn admit(&self, request: &Request, asks: bool) -> Result<(SocketAddr, Counted), Denied> {
        let gate = &self.gate;
        if !self.proxied {
            return Ok((self.client, Counted::default()));
        }
        let client = match gate.proxies.client(self.client, request.headers()) {
            Ok(client) => client,
            Err(_) if asks => self.client,
            Err(why) => {
                gate.refuse_request(&why, self.client.ip());
                return Err(Denied(StatusCode::BAD_REQUEST, format!("{why}\n")));
            }
        };
        // Proxies themselves have no limit of an address.
        if asks || self.full.is_some() || gate.proxies.trust(client.ip()) {
            return Ok((client, Counted::default()));
        }
        match Count::of(&gate.places, client.ip()) {
            Ok(count) => Ok((client, Counted(Some(Arc::new(count))))),
            Err(full) => {
                gate.tell(full, client.ip());
                gate.count(full);
                Err(no_place(full, gate.most_each))
            }
        }
    }

    /// A request was answered: it counts until the answer is written.
    fn answered(&self, counted: Counted) {
        if counted.0.is_some() {
            self.handing_over.lock().unwrap_or_else(PoisonError::into_inner).push(counted);
            self.is_handing_over.store(true, Relaxed);
        }
    }

    /// All answers so far are written.
    fn handed_over(&self) {
        if self.is_handing_over.load(Relaxed) && self.is_handing_over.swap(false, Relaxed) {
            self.handing_over.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// More came on a socket; an error where its message takes too much or too long.
    fn came(&self, bytes: u64) -> Result<(), Unfinished> {
        let now = self.begun.elapsed().as_millis() as u64;
        let message = self.message.fetch_add(bytes, Relaxed) + bytes;
        if message == bytes {
            self.message_since_ms.store(now, Relaxed);
        }
        let since = now - self.message_since_ms.load(Relaxed);
        if since > MESSAGE.as_millis() as u64 {
            return Err(Unfinished::TooSlow);
        }
        if message <= SHORT {
            return Ok(());
        }
        if !self.long.load(Relaxed) {
            return Err(Unfinished::WithoutRights);
        }
        let mut holding = self.holding();
        let more = (message - SHORT).saturating_sub(holding.bytes());
        if holding.grow(more) { Ok(()) } else { Err(Unfinished::TooMany) }
    }

    /// Whether so many bytes more are taken. If not, nothing is any more, and what came is held until the socket has ended.
    fn takes(&self, bytes: u64) -> bool {
        if self.deadline().is_some() {
            return true;
        }
        if self.refused().is_none()
            && let Err(why) = self.came(bytes)
        {
            self.gate.unfinished.inc();
            let _ = self.refused.set(why);
        }
        self.refused().is_none()
    }

    /// Its requests are of this address, although a proxy sends them.
    fn is_of(&self, client: IpAddr) {
        let holding = self.gate.messages.hold(network(client), Holder::of(None));
        *self.holding() = holding;
    }

    fn holding(&self) -> MutexGuard<'_, Holding> {
        self.holding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn goes_on(&self) {
        if self.full.is_some() {
            return;
        }
        let until = (self.begun.elapsed() + EACH).as_millis() as u64;
        self.until_ms.store(until, Relaxed);
    }

    /// None: there is none.
    fn deadline(&self) -> Option<Instant> {
        let until = self.until_ms.load(Relaxed);
        (until != NEVER).then(|| self.begun + Duration::from_millis(until))
    }
}

/// Gives a request its client, its time, and its answer.
pub(crate) async fn each_request(
    Extension(visit): Extension<Arc<Visit>>,
    mut request: Request,
    next: Next,
) -> Response {
    visit.goes_on();
    let asks = visit.gate.is_answered(request.uri().path());
    let mut response = match visit.admit(&request, asks) {
        Err(denied) => denied.into_response(),
        Ok((client, counted)) => {
            if visit.proxied {
                visit.is_of(client.ip());
            }
            request.extensions_mut().insert(ConnectInfo(client));
            request.extensions_mut().insert(counted.clone());
            match visit.full {
                Some(full) if !asks => {
                    visit.gate.count(full);
                    no_place(full, visit.gate.most_each).into_response()
                }
                _ => {
                    let response = next.run(request).await;
                    visit.answered(counted);
                    response
                }
            }
        }
    };
    visit.goes_on();
    if visit.full.is_some() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Why a request is not looked at.
struct Denied(StatusCode, String);

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let Self(status, why) = self;
        match status {
            StatusCode::BAD_REQUEST => (status, why).into_response(),
            _ => (status, [(RETRY_AFTER, "10")], why).into_response(),
        }
    }
}

/// Says that there is no place, why, and what helps.
fn no_place(full: Full, most_each: usize) -> Denied {
    match full {
        Full::All => Denied(
            StatusCode::SERVICE_UNAVAILABLE,
            "no more connections are taken now: try again later\n".to_owned(),
        ),
        Full::Address => Denied(
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "your address has {most_each} connections here, as many as limits.connections_per_address allows: \
                 close some. If it is a reverse proxy's address, list it under http.trusted_proxies\n"
            ),
        ),
    }
}

/// A connection with its place and its deadline.
#[derive(Debug)]
pub(crate) struct Timed {
    stream: TcpStream,
    /// What came with a proxy's header.
    early: Vec<u8>,
    /// Nothing was read yet of who is no trusted proxy.
    fresh: bool,
    visit: Arc<Visit>,
    /// None of a socket.
    timer: Option<Pin<Box<Sleep>>>,
    /// None once it is given up.
    place: Option<shared::Place>,
}

impl Drop for Timed {
    /// A refused socket's memory is free at once; the rest of what it sends is read by a task without any. If something unread
    /// is left when a connection is closed, the system resets it. Then the client may never see the close frame.
    fn drop(&mut self) {
        if self.visit.refused().is_none() {
            return;
        }
        let (copy, place) = (self.stream.as_fd().try_clone_to_owned(), self.place.take());
        if let (Ok(copy), Ok(runtime)) = (copy, Handle::try_current()) {
            runtime.spawn(async move {
                // It fails only where the connection is gone.
                let _ = timeout(LINGER, drain(copy)).await;
                drop(place);
            });
        }
    }
}

async fn drain(connection: OwnedFd) -> io::Result<()> {
    let mut stream = TcpStream::from_std(connection.into())?;
    stream.shutdown().await?;
    let mut memory = [0; DISCARD];
    while stream.read(&mut memory).await? > 0 {}
    Ok(())
}

impl Timed {
    /// An error once the deadline is over; else wakes the task then.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(timer) = &mut self.timer else { return Ok(()) };
        let Some(deadline) = self.visit.deadline() else {
            self.timer = None;
            return Ok(());
        };
        // Moved on when it fires: a request takes no new timer.
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                self.visit.gate.late.inc();
                self.timer = None;
                self.visit.until_ms.store(NEVER, Relaxed);
                return Err(io::ErrorKind::TimedOut.into());
            }
            timer.as_mut().reset(deadline);
        }
        Ok(())
    }
}

impl Timed {
    /// Reads what comes and forgets it, until the close frame is written.
    fn discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut memory = [0; DISCARD];
        let mut buffer = ReadBuf::new(&mut memory);
        if Pin::new(&mut self.stream).poll_read(cx, &mut buffer)?.is_pending() {
            return Poll::Pending;
        }
        if buffer.filled().is_empty() {
            return Poll::Ready(Ok(()));
        }
        // Others have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        if self.visit.refused().is_some() {
            return self.discard(cx);
        }
        if !self.early.is_empty() {
            let count = self.early.len().min(buffer.remaining());
            buffer.put_slice(&self.early[..count]);
            self.early.drain(..count);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before && std::mem::take(&mut self.fresh) {
            let visit = &self.visit;
            if proxy_protocol::has_signature(&buffer.filled()[before..]) {
                return Poll::Ready(Err(visit.gate.refuse_untrusted(&self.stream, visit.client)));
            }
        }
        read
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.visit.handed_over();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }
}
