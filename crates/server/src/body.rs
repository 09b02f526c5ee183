//! Bodies of requests: read once it is known that the one who asks may ask, within bounds of length, time and memory.

use crate::memory::{Holder, Holding, Memory};
use crate::places::network;
use axum::body::{Body, HttpBody};
use axum::extract::{ConnectInfo, FromRequest, Request};
use futures_util::StreamExt;
use serde::Deserialize;
use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Longest body that holds a message for others, in bytes.
pub(crate) const MESSAGE: usize = 256 << 10;
/// Longest body of all other requests, in bytes: a token has at most 16 KiB.
pub(crate) const ORDER: usize = 20 << 10;
/// Bodies of all requests together, until each is answered.
pub(crate) const BODIES: u64 = 32 << 20;
/// So much of a body that is too long is read and forgotten, in bytes.
const FORGOTTEN: usize = 1 << 20;
/// A body must be whole so long after its request's head.
const WHOLE: Duration = Duration::from_secs(15);

/// Why a body was not taken.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It is longer than so many bytes.
    TooLong(usize),
    /// All bodies together, or those of the address or the identity, take too much now.
    Full,
    /// It was not whole in time.
    TooSlow,
    /// The connection, or the way in which the body came, broke.
    Broken(axum::Error),
    /// It is JSON of another form.
    Form(serde_json::Error),
}

impl Unread {
    /// The reason under which it is counted.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::TooLong(_) => "body_too_long",
            Self::Full => "bodies_full",
            Self::TooSlow => "body_too_slow",
            Self::Broken(_) => "body_broken",
            Self::Form(_) => "body_form",
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(most) => write!(f, "the body of this request has at most {most} bytes"),
            Self::Full => write!(
                f,
                "bodies of requests take {} MiB in all, and those of an address or an identity a share of it: \
                 send again when others are answered",
                BODIES >> 20
            ),
            Self::TooSlow => {
                write!(f, "the body was not whole {} s after its request", WHOLE.as_secs())
            }
            Self::Broken(error) => write!(f, "the body broke off: {error}"),
            Self::Form(error) => write!(f, "the body is JSON of another form: {error}"),
        }
    }
}

/// A request's body before anything of it is read.
pub(crate) struct Given {
    body: Body,
    address: IpAddr,
}

impl<S: Sync> FromRequest<S> for Given {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Infallible> {
        let from = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let address = from.map_or(Ipv4Addr::UNSPECIFIED.into(), |ConnectInfo(from)| from.ip());
        Ok(Self { body: request.into_body(), address: network(address) })
    }
}

/// A whole body; it counts as held until it is dropped.
#[derive(Debug)]
pub(crate) struct Whole {
    bytes: Vec<u8>,
    _holding: Holding,
}

impl Given {
    /// Reads at most `most` bytes for whoever was found to have the right.
    pub(crate) async fn read(
        self,
        bodies: &Arc<Memory>,
        identity: Option<&str>,
        most: usize,
    ) -> Result<Whole, Unread> {
        let holding = bodies.hold(self.address, Holder::of(identity));
        tokio::time::timeout(WHOLE, collect(self.body, holding, most))
            .await
            .unwrap_or(Err(Unread::TooSlow))
    }
}

async fn collect(body: Body, mut holding: Holding, most: usize) -> Result<Whole, Unread> {
    let told = body.size_hint().lower();
    let mut stream = body.into_data_stream();
    if told > most as u64 {
        // A client that is still sending would find its connection reset in place of the answer.
        let mut left = FORGOTTEN;
        while left > 0
            && let Some(Ok(part)) = stream.next().await
        {
            left = left.saturating_sub(part.len());
        }
        return Err(Unread::TooLong(most));
    }
    let mut bytes = Vec::new();
    while let Some(part) = stream.next().await {
        let part = part.map_err(Unread::Broken)?;
        if bytes.len() + part.len() > most {
            return Err(Unread::TooLong(most));
        }
        // A vector may have twice the room that it needs.
        if !holding.grow(2 * part.len() as u64) {
            return Err(Unread::Full);
        }
        bytes.extend_from_slice(&part);
    }
    Ok(Whole { bytes, _holding: holding })
}

impl Whole {
    /// What it says.
    pub(crate) fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Unread> {
        serde_json::from_slice(&self.bytes).map_err(Unread::Form)
    }
}
