//! What every HTTP connection passes, sockets included, before TLS: a place of its address, and deadlines.
//!
//! A stream that is past its deadline ends with an error, whatever it waits for: a request that never ends, an
//! answer that nobody reads, a client that has nothing more to ask. What becomes a socket has periods of its own.

use crate::metrics::{Counter, Metrics};
use crate::places::{Full, Places};
use axum::Extension;
use axum::extract::Request;
use axum::middleware::{AddExtension, Next};
use axum::response::Response;
use axum_server::accept::Accept;
use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tower_layer::Layer;

/// The first request's head must be here so long after the connection (with TLS: its handshake, too).
const HEAD: Duration = Duration::from_secs(10);
/// A request's body and the answer to it; the pause until the next request's head. Longer than the API waits for the
/// client that a call goes to.
const EACH: Duration = Duration::from_secs(75);
/// Of a deadline: there is none.
const NEVER: u64 = u64::MAX;

/// Lets connections in while there are places.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    places: Arc<Mutex<Places>>,
    full: Counter,
    of_address: Counter,
    late: Counter,
}

impl Gate {
    pub(crate) fn new(places: Places, metrics: &Metrics) -> Self {
        Self {
            places: Arc::new(Mutex::new(places)),
            full: metrics.drops("http", "too_many_connections"),
            of_address: metrics.drops("http", "too_many_of_address"),
            late: metrics.drops("http", "too_slow"),
        }
    }

    fn enter(&self, stream: TcpStream) -> io::Result<(Timed, Arc<Visit>)> {
        stream.set_nodelay(true)?;
        let address = stream.peer_addr()?.ip();
        let taken = self.places.lock().unwrap_or_else(PoisonError::into_inner).take(address);
        taken.map_err(|full| {
            match full {
                Full::All => self.full.inc(),
                Full::Address => self.of_address.inc(),
            }
            io::Error::from(io::ErrorKind::ConnectionRefused)
        })?;
        let place = Place { places: self.places.clone(), address };
        let begun = Instant::now();
        let visit = Arc::new(Visit { begun, until_ms: AtomicU64::new(HEAD.as_millis() as u64) });
        let timer = Box::pin(tokio::time::sleep_until(begun + HEAD));
        let (late, known) = (self.late.clone(), visit.clone());
        Ok((Timed { stream, visit, timer: Some(timer), late, _place: place }, known))
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
}

impl Visit {
    /// From now on it is a socket, which has periods of its own.
    pub(crate) fn is_socket(&self) {
        self.until_ms.store(NEVER, Relaxed);
    }

    fn goes_on(&self) {
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
    let response = next.run(request).await;
    visit.goes_on();
    response
}

/// A connection with its place and its deadline.
#[derive(Debug)]
pub(crate) struct Timed {
    stream: TcpStream,
    visit: Arc<Visit>,
    /// None where nothing is waited for any more.
    timer: Option<Pin<Box<Sleep>>>,
    late: Counter,
    _place: Place,
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

impl AsyncRead for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
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
