//! What every HTTP connection passes, sockets included, before TLS: a place of its address, and deadlines.
//!
//! A stream that is past its deadline ends with an error, whatever it waits for: a request that never ends, an
//! answer that nobody reads, a client that has nothing more to ask. What becomes a socket has periods of its own;
//! there the bytes of messages that are not whole yet are bounded: each socket's, those of an address and of an identity, and
//! all together.

use crate::memory::{Holder, Holding, Memory};
use crate::metrics::{Counter, Metrics};
use crate::places::{Full, Places, RESERVE, network};
use axum::Extension;
use axum::extract::Request;
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{AddExtension, Next};
use axum::response::{IntoResponse, Response};
use axum_server::accept::Accept;
use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
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
/// So much of a message is read of anybody, with what TLS and frames add; of a socket without rights no more.
const SHORT: u64 = 16 << 10;
/// What is beyond [`SHORT`] of the unfinished messages of all sockets together.
const UNFINISHED: u64 = 32 << 20;
/// What is read at a time of a socket whose messages are not taken any more, and how long after its end.
const DISCARD: usize = 8 << 10;
const LINGER: Duration = Duration::from_secs(2);
/// How long a connection of the reserve may last: it is for one question.
const RESERVED: Duration = Duration::from_secs(2);
/// The question that is answered even when all places are taken.
const ANSWERED: [&str; 2] = ["/healthz", "/metrics"];
/// Of a deadline: there is none.
const NEVER: u64 = u64::MAX;

/// Lets connections in while there are places.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    places: Arc<Mutex<Places>>,
    /// When all places are taken: some for each address, to ask how the server is.
    reserve: Arc<Mutex<Places>>,
    full: Counter,
    of_address: Counter,
    late: Counter,
    unfinished: Counter,
    /// Unfinished messages of all sockets.
    messages: Arc<Memory>,
}

impl Gate {
    pub(crate) fn new(places: Places, metrics: &Metrics) -> Self {
        Self {
            places: Arc::new(Mutex::new(places)),
            reserve: Arc::new(Mutex::new(Places::new(RESERVE, ANSWERED.len()))),
            full: metrics.drops("http", "too_many_connections"),
            of_address: metrics.drops("http", "too_many_of_address"),
            late: metrics.drops("http", "too_slow"),
            unfinished: metrics.drops("signaling", "unfinished_message"),
            messages: Memory::new(UNFINISHED),
        }
    }

    fn enter(&self, stream: TcpStream) -> io::Result<(Timed, Arc<Visit>)> {
        stream.set_nodelay(true)?;
        let address = stream.peer_addr()?.ip();
        let place = Place::take(&self.places, address).map(|place| (place, false));
        let place = place.or_else(|full| match full {
            Full::Address => Err(full),
            Full::All => match Place::take(&self.reserve, address) {
                Ok(place) => Ok((place, true)),
                Err(_) => Err(full),
            },
        });
        let (place, reserved) = place.map_err(|full| {
            match full {
                Full::All => self.full.inc(),
                Full::Address => self.of_address.inc(),
            }
            io::Error::from(io::ErrorKind::ConnectionRefused)
        })?;
        let begun = Instant::now();
        let head = if reserved { RESERVED } else { HEAD };
        let visit = Arc::new(Visit {
            begun,
            until_ms: AtomicU64::new(head.as_millis() as u64),
            full: reserved.then(|| self.full.clone()),
            message: AtomicU64::new(0),
            message_since_ms: AtomicU64::new(0),
            long: AtomicBool::new(false),
            holding: Mutex::new(self.messages.hold(network(address), Holder::of(None))),
            refused: OnceLock::new(),
        });
        let timer = Box::pin(tokio::time::sleep_until(begun + head));
        let known = visit.clone();
        let (late, unfinished) = (self.late.clone(), self.unfinished.clone());
        Ok((
            Timed { stream, visit, timer: Some(timer), late, unfinished, place: Some(place) },
            known,
        ))
    }
}

impl<S> Accept<TcpStream, S> for Gate {
    type Stream = Timed;
    type Service = AddExtension<S, Arc<Visit>>;
    type Future = Ready<io::Result<(Self::Stream, Self::Service)>>;

    /// An error closes the connection at once.
    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let entered = self.enter(stream);
        ready(entered.map(|(stream, visit)| (stream, Extension(visit).layer(service))))
    }
}

/// A connection's place; dropping it gives it back.
#[derive(Debug)]
struct Place {
    places: Arc<Mutex<Places>>,
    address: IpAddr,
}

impl Place {
    fn take(places: &Arc<Mutex<Places>>, address: IpAddr) -> Result<Self, Full> {
        places.lock().unwrap_or_else(PoisonError::into_inner).take(address)?;
        Ok(Self { places: places.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.address);
    }
}

/// How long a connection may go on as it is.
#[derive(Debug)]
pub(crate) struct Visit {
    begun: Instant,
    /// Since `begun`.
    until_ms: AtomicU64,
    /// Of the reserve: counts what else is asked there.
    full: Option<Counter>,
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

    /// Takes nothing more. What came is held until the socket has ended.
    fn refuse(&self, why: Unfinished) {
        let _ = self.refused.set(why);
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

/// Gives a request its time, and its answer.
pub(crate) async fn each_request(
    Extension(visit): Extension<Arc<Visit>>,
    request: Request,
    next: Next,
) -> Response {
    visit.goes_on();
    let Some(full) = &visit.full else {
        let response = next.run(request).await;
        visit.goes_on();
        return response;
    };
    let mut response = if ANSWERED.contains(&request.uri().path()) {
        next.run(request).await
    } else {
        full.inc();
        let why = "no more connections are taken now: try again later\n";
        (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "10")], why).into_response()
    };
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A connection with its place and its deadline.
#[derive(Debug)]
pub(crate) struct Timed {
    stream: TcpStream,
    visit: Arc<Visit>,
    /// None of a socket.
    timer: Option<Pin<Box<Sleep>>>,
    late: Counter,
    unfinished: Counter,
    /// None once it is given up.
    place: Option<Place>,
}

impl Drop for Timed {
    /// A refused socket's memory is free at once; the rest of what it sends is read by a task without any. Where something
    /// unread is left when a connection is closed, the system resets it, and the client may never see the close frame with
    /// the reason.
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
                self.late.inc();
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
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = (buffer.filled().len() - before) as u64;
        if bytes > 0
            && self.timer.is_none()
            && let Err(why) = self.visit.came(bytes)
        {
            self.unfinished.inc();
            self.visit.refuse(why);
            buffer.set_filled(before);
            return self.discard(cx);
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
        Pin::new(&mut self.stream).poll_flush(cx)
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
