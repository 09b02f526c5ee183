//! What all HTTP connections have in common: their places, and what is counted and told of those that find none.

use super::pace::Pace;
use crate::memory::Memory;
use crate::metrics::{Counter, Metrics};
use crate::places::{Full, Places, RESERVE};
use crate::proxies::{Proxies, Unclear};
use crate::proxy_protocol::{self, Beginning};
use crate::seldom::Seldom;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// The questions that are answered even when all places are taken.
const ANSWERED: [&str; 2] = ["/healthz", "/metrics"];

/// Bytes of the unfinished messages of all sockets together, without the first ones of each.
const UNFINISHED: u64 = 32 << 20;

/// Most KiB of what a refused connection sent already that are read before it is answered.
const UNREAD: usize = 8;

/// What all connections have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) places: Arc<Mutex<Places>>,
    pub(super) pace: Pace,
    /// When an address has no place: some for each, to ask how the server is.
    reserve: Arc<Mutex<Places>>,
    /// The same for trusted proxies, which ask for everybody.
    reserve_of_proxies: Arc<Mutex<Places>>,
    pub(super) most_each: usize,
    pub(super) proxies: Proxies,
    /// The path before all others, without its last slash.
    base: String,
    /// Whether what comes is TLS: then nothing can be said before it stands.
    tls: bool,
    full: Counter,
    of_address: Counter,
    pub(super) late: Counter,
    pub(super) unfinished: Counter,
    untrusted: Counter,
    bad_proxy_header: Counter,
    told: Told,
    /// Unfinished messages of all sockets.
    pub(super) messages: Arc<Memory>,
}

/// Lines of the log, one a minute each.
#[derive(Debug, Default)]
struct Told {
    full: Seldom,
    of_address: Seldom,
    untrusted: Seldom,
    bad_proxy_header: Seldom,
}

impl Shared {
    pub(super) fn new(
        (places, pace): (Places, Pace),
        proxies: Proxies,
        (tls, base): (bool, &str),
        metrics: &Metrics,
    ) -> Self {
        Self {
            base: base.trim_end_matches('/').to_owned(),
            most_each: places.most_each(),
            places: Arc::new(Mutex::new(places)),
            reserve: Arc::new(Mutex::new(Places::new(RESERVE, ANSWERED.len()))),
            reserve_of_proxies: Arc::new(Mutex::new(Places::new(RESERVE, RESERVE))),
            pace,
            proxies,
            tls,
            full: metrics.drops("http", "too_many_connections"),
            of_address: metrics.drops("http", "too_many_of_address"),
            late: metrics.drops("http", "too_slow"),
            unfinished: metrics.drops("signaling", "unfinished_message"),
            untrusted: metrics.drops("http", "untrusted_proxy"),
            bad_proxy_header: metrics.drops("http", "bad_proxy_header"),
            told: Told::default(),
            messages: Memory::new(UNFINISHED),
        }
    }

    /// Whether a path is answered even when all places are taken.
    pub(super) fn is_answered(&self, path: &str) -> bool {
        let below = path.strip_prefix(self.base.as_str());
        ANSWERED.iter().any(|asked| path == *asked || below == Some(*asked))
    }

    /// A place for a client, or one of the reserve and why.
    pub(super) fn place(&self, client: SocketAddr) -> io::Result<(Place, Option<Full>)> {
        let address = client.ip();
        let full = match Place::take(&self.places, address) {
            Ok(place) => return Ok((place, None)),
            Err(full) => full,
        };
        self.tell(full, address);
        match Place::take(&self.reserve, address) {
            Ok(place) => Ok((place, Some(full))),
            Err(_) => Err(self.refused(full)),
        }
    }

    /// The same for a trusted proxy.
    pub(super) fn place_of_proxy(&self, proxy: SocketAddr) -> io::Result<(Place, Option<Full>)> {
        let full = match Place::take_for_proxy(&self.places) {
            Ok(place) => return Ok((place, None)),
            Err(full) => full,
        };
        self.tell(full, proxy.ip());
        match Place::take_for_proxy(&self.reserve_of_proxies) {
            Ok(place) => Ok((place, Some(full))),
            Err(_) => Err(self.refused(full)),
        }
    }

    fn refused(&self, full: Full) -> io::Error {
        self.count(full);
        io::ErrorKind::ConnectionRefused.into()
    }

    pub(super) fn count(&self, full: Full) {
        match full {
            Full::All => self.full.inc(),
            Full::Address => self.of_address.inc(),
        }
    }

    /// Names the limit that was hit, and who hit it.
    pub(super) fn tell(&self, full: Full, address: IpAddr) {
        let now = std::time::Instant::now();
        match full {
            Full::All => {
                if let Some(times) = self.told.full.happens(now) {
                    tracing::warn!(
                        %address, times,
                        "all places for HTTP connections are taken, or few are left and this address has its share: \
                         raise the limit of open files (ulimit -n, LimitNOFILE) and limits.sockets"
                    );
                }
            }
            Full::Address => {
                if let Some(times) = self.told.of_address.happens(now) {
                    let most = self.most_each;
                    tracing::warn!(
                        %address, most, times,
                        "an address has as many connections as limits.connections_per_address allows: raise it, or \
                         list the address under http.trusted_proxies if it is a reverse proxy"
                    );
                }
            }
        }
    }

    /// What a trusted proxy says before anything else: the client, if it tells, and what came after that.
    pub(super) async fn proxy_header(
        &self,
        stream: &TcpStream,
        peer: SocketAddr,
        until: Instant,
    ) -> io::Result<(Option<SocketAddr>, Vec<u8>)> {
        let mut data = Vec::new();
        loop {
            match proxy_protocol::read(&data) {
                Ok(Beginning::Other) => return Ok((None, data)),
                Ok(Beginning::Header { bytes, client }) => {
                    data.drain(..bytes);
                    return Ok((client, data));
                }
                Ok(Beginning::More) => {}
                Err(why) => {
                    self.bad_proxy_header.inc();
                    if let Some(times) =
                        self.told.bad_proxy_header.happens(std::time::Instant::now())
                    {
                        tracing::warn!(address = %peer.ip(), times, "a trusted proxy is refused: {why}");
                    }
                    self.answer_bad(stream, &format!("{why}\n"));
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            let Ok(ready) = tokio::time::timeout_at(until, stream.readable()).await else {
                self.late.inc();
                return Err(io::ErrorKind::TimedOut.into());
            };
            ready?;
            let mut more = [0; 1024];
            match stream.try_read(&mut more) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => data.extend_from_slice(&more[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A trusted proxy's headers do not tell for whom a request is.
    pub(super) fn refuse_request(&self, why: &Unclear, proxy: IpAddr) {
        self.bad_proxy_header.inc();
        if let Some(times) = self.told.bad_proxy_header.happens(std::time::Instant::now()) {
            tracing::warn!(address = %proxy, times, "a request of a trusted proxy is refused: {why}");
        }
    }

    /// A PROXY header of who is no trusted proxy.
    pub(super) fn refuse_untrusted(&self, stream: &TcpStream, peer: SocketAddr) -> io::Error {
        self.untrusted.inc();
        let why = "a PROXY header came from an address that is not under http.trusted_proxies";
        if let Some(times) = self.told.untrusted.happens(std::time::Instant::now()) {
            tracing::warn!(address = %peer.ip(), times, "{why}: list it there if it is a reverse proxy");
        }
        self.answer_bad(stream, &format!("{why}: {}\n", peer.ip()));
        io::ErrorKind::InvalidData.into()
    }

    /// What cannot be read as HTTP is answered at once, as far as the system takes it at once.
    fn answer_bad(&self, stream: &TcpStream, why: &str) {
        if !self.tls {
            // What stays unread would have the system cut the answer off.
            let mut rest = [0; 1024];
            for _ in 0..UNREAD {
                if !stream.try_read(&mut rest).is_ok_and(|count| count > 0) {
                    break;
                }
            }
            let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close";
            let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{why}", why.len());
            let _ = stream.try_write(answer.as_bytes());
        }
    }
}

/// A connection's place; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Mutex<Places>>,
    /// None of a trusted proxy.
    address: Option<IpAddr>,
    /// Of the client of a trusted proxy.
    pub(super) count: Option<Count>,
}

impl Place {
    fn take(places: &Arc<Mutex<Places>>, address: IpAddr) -> Result<Self, Full> {
        lock(places).take(address)?;
        Ok(Self { places: places.clone(), address: Some(address), count: None })
    }

    fn take_for_proxy(places: &Arc<Mutex<Places>>) -> Result<Self, Full> {
        lock(places).take_for_proxy()?;
        Ok(Self { places: places.clone(), address: None, count: None })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match self.address {
            Some(address) => lock(&self.places).give_back(address),
            None => lock(&self.places).give_back_of_proxy(),
        }
    }
}

/// One that counts for an address without a connection of its own. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Count {
    places: Arc<Mutex<Places>>,
    address: IpAddr,
}

impl Count {
    pub(super) fn of(places: &Arc<Mutex<Places>>, address: IpAddr) -> Result<Self, Full> {
        lock(places).count(address)?;
        Ok(Self { places: places.clone(), address })
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        lock(&self.places).uncount(self.address);
    }
}

fn lock(places: &Mutex<Places>) -> MutexGuard<'_, Places> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}
