//! Counts what comes of a socket's messages that are not whole yet: as frames, so that what TLS adds does not count.

use super::{Gate, Timed, Visit};
use axum_server::accept::Accept;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection whose visit is known.
pub(crate) trait Visited {
    /// How long it may go on, and what it may send.
    fn visit(&self) -> &Arc<Visit>;
}

impl Visited for Timed {
    fn visit(&self) -> &Arc<Visit> {
        &self.visit
    }
}

impl Visited for TlsStream<Timed> {
    fn visit(&self) -> &Arc<Visit> {
        &self.get_ref().0.visit
    }
}

/// Lets in whom [`Gate`] lets in, with TLS or without, and counts what comes.
#[derive(Debug, Clone)]
pub(crate) struct Counting<A = Gate>(pub A);

impl<A, S> Accept<TcpStream, S> for Counting<A>
where
    A: Accept<TcpStream, S, Stream: Visited, Future: Send + 'static>,
{
    type Stream = Plain<A::Stream>;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let accepted = self.0.accept(stream, service);
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            let visit = stream.visit().clone();
            Ok((Plain { stream, visit }, service))
        })
    }
}

/// A connection as requests and frames are read of it.
#[derive(Debug)]
pub(crate) struct Plain<S> {
    stream: S,
    visit: Arc<Visit>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Plain<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = (buffer.filled().len() - before) as u64;
        if bytes == 0 || self.visit.takes(bytes) {
            return read;
        }
        // What TLS had opened already is forgotten, as all that comes from now on. Others have their turn.
        buffer.set_filled(before);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Plain<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }
}
