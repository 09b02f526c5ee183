//! HTTP: the call page, sockets, metrics; TLS where configured.

use crate::access::{Access, Entrance, Hidden};
use crate::api;
use crate::assets::{self, Pages};
use crate::auth::Guests;
use crate::body::BODIES;
use crate::certificate::{self, Certificate};
use crate::config::{Config, Limits, TlsConfig};
use crate::gate::{Counted, Counting, Gate, Pace, Visit, each_request};
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::places::{self, Places};
use crate::proxies::Proxies;
use crate::seldom::Seldom;
use crate::socket::{Application, Sockets};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, Path, RawQuery, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use axum_server::{Handle, Server};
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio::task::JoinSet;

/// Connections that may wait to be accepted; the system bounds it too (`net.core.somaxconn`). The standard library asks for
/// 128: when thousands come back after an outage, the system drops what is beyond and each of those waits for a second.
const BACKLOG: i32 = 4096;
/// How long a request in work may take once the server ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Bytes that a socket's read buffer starts with: the default of 128 KiB would be what an idle
/// socket costs.
const READ_BUFFER_BYTES: usize = 2 << 10;
/// A write is begun at the latest when this many bytes are joined.
const WRITE_BUFFER_BYTES: usize = 32 << 10;

/// Longest head of a request, in bytes: a token of 16 KiB and what browsers and proxies add.
const HEAD_BYTES: u32 = 32 << 10;
/// Most header lines of a request.
const HEADERS: usize = 100;
/// HTTP/2: requests of a connection at once, and those that may be taken back before they are looked at.
const STREAMS: u32 = 32;
/// HTTP/2: bytes of one request, and of a connection, that may be under way before any is read.
const STREAM_WINDOW: u32 = 32 << 10;
const CONNECTION_WINDOW: u32 = 64 << 10;
/// HTTP/2: longest frame that is read, in bytes.
const FRAME_BYTES: u32 = 16 << 10;
/// HTTP/2: bytes of an answer that wait for a client that does not read.
const SEND_BYTES: usize = 16 << 10;

/// Why HTTP cannot be served.
#[derive(Debug)]
pub enum HttpError {
    /// An address cannot be bound.
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        error: io::Error,
    },
    /// Certificate or key cannot be used.
    Tls {
        /// The files.
        files: TlsConfig,
        /// The reason.
        error: io::Error,
    },
    /// Accepting connections failed.
    Serve(io::Error),
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { address, error } => {
                write!(f, "cannot listen on {address}: {error}; ")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => write!(
                        f,
                        "another process has this port: end it, or set http.bind to another \
                         (port 0 takes a free one)"
                    ),
                    io::ErrorKind::PermissionDenied => write!(
                        f,
                        "ports below 1024 need the capability CAP_NET_BIND_SERVICE: grant it, \
                         or set http.bind to a higher port"
                    ),
                    io::ErrorKind::AddrNotAvailable => {
                        write!(f, "this machine has no such address: mend http.bind")
                    }
                    _ => write!(f, "mend http.bind"),
                }
            }
            Self::Tls { files, error } => f.write_str(&certificate::unusable(files, error)),
            Self::Serve(error) => write!(f, "cannot accept connections: {error}"),
        }
    }
}

impl std::error::Error for HttpError {}

/// Bound addresses, not yet served.
#[derive(Debug)]
pub struct Http {
    listeners: Vec<(TcpListener, Entrance)>,
    addresses: Vec<SocketAddr>,
    admin_addresses: Vec<SocketAddr>,
    tls: Option<TlsConfig>,
    certificate: Certificate,
    access: Access,
    places: Places,
    pace: Pace,
    proxies: Proxies,
    base: String,
}

impl Http {
    /// Binds all of `http.bind` and `admin.bind`.
    ///
    /// # Errors
    /// [`HttpError::Bind`] for the first address that cannot be bound.
    pub fn bind(config: &Config) -> Result<Self, HttpError> {
        let (mut listeners, mut addresses, mut admin_addresses) = (vec![], vec![], vec![]);
        let public = &config.http.bind;
        let admin_only = config.admin.bind.iter().filter(|address| !public.contains(address));
        let all: Vec<SocketAddr> = public.iter().chain(admin_only).copied().collect();
        for &address in &all {
            // Where IPv4 has an address of its own, IPv6 leaves its port to it.
            let beside = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
            let bound = net::stream::listen(address, BACKLOG, all.iter().any(beside))
                .and_then(|listener| Ok((listener.local_addr()?, listener)));
            let (bound, listener) = bound.map_err(|error| HttpError::Bind { address, error })?;
            let admin = config.admin.bind.contains(&address);
            if public.contains(&address) {
                addresses.push(bound);
            }
            if admin {
                admin_addresses.push(bound);
            }
            listeners.push((listener, Entrance { admin }));
        }
        let access = Access::new(config, &addresses);
        let most = places::shares(config.limits.sockets, config.media.shards).http;
        let Limits { sockets, connections_per_address, .. } = config.limits;
        // Only this machine reaches a development server: one address is everybody.
        let each = if config.development {
            most
        } else {
            places::each(most, connections_per_address, sockets)
        };
        let places = Places::new(most, each);
        let bounded = !config.limits.have_one_address(config.development);
        let pace = Pace::new(bounded.then_some(each));
        let tls = config.tls.clone();
        let certificate = Certificate::default();
        let proxies = Proxies::new(&config.http.trusted_proxies);
        let base = config.http.base_path.clone();
        Ok(Self {
            base,
            listeners,
            addresses,
            admin_addresses,
            tls,
            certificate,
            access,
            places,
            pace,
            proxies,
        })
    }

    /// The bound addresses, with the ports that port 0 got.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Those at which metrics and console are answered, if only some are.
    pub fn admin_addresses(&self) -> &[SocketAddr] {
        &self.admin_addresses
    }

    /// What can replace the certificate while this is served.
    pub(crate) fn certificate(&self) -> Certificate {
        self.certificate.clone()
    }

    /// Serves until `shutdown` is ready: then it stops accepting, closes the sockets with
    /// [`wire::frame::close::DRAINING`] and returns when all are gone or the grace is over.
    ///
    /// # Errors
    /// [`HttpError::Tls`] and [`HttpError::Serve`].
    pub async fn serve<A: Application>(
        self,
        sockets: Arc<Sockets<A>>,
        metrics: Arc<Metrics>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), HttpError> {
        let tls = match self.tls {
            None => None,
            Some(files) => match self.certificate.begin(&files, &metrics).await {
                Ok(tls) => Some(tls),
                Err(error) => return Err(HttpError::Tls { files, error }),
            },
        };
        if self.access.is_development() {
            tracing::info!(
                "development mode (no --config): this machine only, pages of loopback hosts only; \
                 everything is allowed without a token"
            );
        } else {
            match sockets.auth().guests() {
                Guests::None => tracing::info!("tokens are needed to join"),
                Guests::Join => tracing::warn!("anyone may join without a token: see keys, guests"),
                Guests::All => tracing::warn!(
                    "anyone may do anything without a token, moderation and the API too: see guests"
                ),
            }
        }
        let gate = Gate::new(
            (self.places, self.pace),
            self.proxies,
            (tls.is_some(), &self.base),
            &metrics,
        );
        let router = router(sockets.clone(), metrics, self.access, self.base);
        let mut servers = JoinSet::new();
        let mut handles = Vec::new();
        for (listener, entrance) in self.listeners {
            let handle = Handle::new();
            handles.push(handle.clone());
            let router = router.clone().layer(Extension(entrance));
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            match tls.clone() {
                None => {
                    let server = axum_server::from_tcp(listener)
                        .acceptor(Counting(gate.clone()))
                        .handle(handle);
                    servers.spawn(bounded(server).serve(service));
                }
                Some(tls) => {
                    let gate = gate.clone();
                    let server = axum_server::from_tcp_rustls(listener, tls)
                        .map(|acceptor| Counting(acceptor.acceptor(gate)))
                        .handle(handle);
                    servers.spawn(bounded(server).serve(service));
                }
            }
        }
        tokio::select! {
            () = shutdown => {}
            Some(ended) = servers.join_next() => {
                // None of them ends unasked but by an error.
                let error = ended.map_err(io::Error::other).and_then(|result| result).err();
                return Err(HttpError::Serve(error.unwrap_or_else(|| io::Error::other("ended"))));
            }
        }
        tracing::info!("ending: no new connections, sockets are closed");
        for handle in &handles {
            handle.graceful_shutdown(Some(SHUTDOWN_GRACE));
        }
        sockets.drain().await;
        while servers.join_next().await.is_some() {}
        Ok(())
    }
}

/// What a connection may have the HTTP library hold. Its defaults are for few connections of friends: 1 MiB of what came and
/// 200 requests at once each.
fn bounded<A>(mut server: Server<A>) -> Server<A> {
    let builder = server.http_builder();
    builder.http1().max_buf_size(HEAD_BYTES as usize).max_headers(HEADERS);
    builder
        .http2()
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(STREAMS as usize)
        .max_local_error_reset_streams(STREAMS as usize)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .max_header_list_size(HEAD_BYTES)
        .max_send_buf_size(SEND_BYTES);
    server
}

pub(crate) struct Shared<A> {
    pub(crate) sockets: Arc<Sockets<A>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access: Access,
    /// The path that all others begin with.
    pub(crate) base: String,
    pages: Pages,
    /// Lines of the log that tell of too many sockets.
    full_told: Seldom,
    /// Bodies of requests that are not answered yet.
    pub(crate) bodies: Arc<Memory>,
}

impl<A: Application> Shared<A> {
    /// Whether metrics and console may be seen by this request.
    pub(crate) fn check_admin(
        &self,
        entrance: Entrance,
        headers: &HeaderMap,
    ) -> Result<(), Hidden> {
        self.access.check_admin(entrance, headers, self.sockets.auth())
    }
}

fn router<A: Application>(
    sockets: Arc<Sockets<A>>,
    metrics: Arc<Metrics>,
    access: Access,
    base: String,
) -> Router {
    let pages = Pages::below(&base);
    let full_told = Seldom::default();
    let bodies = Memory::new(BODIES);
    let shared = Arc::new(Shared { sockets, metrics, access, base, pages, full_told, bodies });
    let inner = Router::new()
        .route("/", get(index::<A>))
        .route("/room/{name}", get(index::<A>))
        .route(
            "/assets/{*path}",
            get(async |Path(path): Path<String>| assets::file(&format!("assets/{path}"))),
        )
        .route("/{file}", get(async |Path(file): Path<String>| assets::file(&file)))
        .route("/metrics", get(render_metrics::<A>))
        .route("/console", get(console::<A>))
        .merge(api::router::<A>().route_layer(from_fn_with_state(shared.clone(), own_pages::<A>)))
        .route(wire::frame::SOCKET_PATH, any(open_socket::<A>))
        .layer(from_fn_with_state(shared.clone(), own_names::<A>))
        // Whoever looks whether it runs knows it by any name.
        .route("/healthz", get(health::<A>));
    below(&shared, inner)
        .layer(from_fn_with_state(shared.clone(), one_host::<A>))
        .layer(map_response(harden))
        .layer(from_fn(each_request))
        .with_state(shared)
}

/// Everything under the base path; besides it only the question how the server is.
fn below<A: Application>(
    shared: &Shared<A>,
    inner: Router<Arc<Shared<A>>>,
) -> Router<Arc<Shared<A>>> {
    let base = shared.base.clone();
    if base == "/" {
        return inner;
    }
    let page = base.clone();
    let to_page = async move |RawQuery(query): RawQuery| match query {
        Some(query) => Redirect::permanent(&format!("{page}?{query}")),
        None => Redirect::permanent(&page),
    };
    Router::new()
        .nest(&base, inner)
        .route(base.trim_end_matches('/'), get(to_page))
        .route("/healthz", get(health::<A>))
        .fallback(async move || {
            (StatusCode::NOT_FOUND, format!("not found: this server's paths begin with {base}\n"))
        })
}

async fn index<A: Application>(State(shared): State<Arc<Shared<A>>>) -> Response {
    shared.pages.index()
}

async fn render_metrics<A: Application>(
    State(shared): State<Arc<Shared<A>>>,
    Extension(entrance): Extension<Entrance>,
    headers: HeaderMap,
) -> Result<Response, Hidden> {
    shared.check_admin(entrance, &headers)?;
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(CONTENT_TYPE, content_type)], shared.metrics.render()).into_response())
}

async fn console<A: Application>(
    State(shared): State<Arc<Shared<A>>>,
    Extension(entrance): Extension<Entrance>,
    headers: HeaderMap,
) -> Result<Response, Hidden> {
    shared.check_admin(entrance, &headers)?;
    Ok(shared.pages.console())
}

/// A word for everybody; which threads are late is for those who may see metrics.
async fn health<A: Application>(
    State(shared): State<Arc<Shared<A>>>,
    Extension(entrance): Extension<Entrance>,
    headers: HeaderMap,
) -> Response {
    let late = shared.metrics.health.late();
    if !late.is_empty() {
        let tell = |(name, silent): &(String, std::time::Duration)| {
            format!("{name} has not come round for {} s\n", silent.as_secs())
        };
        let text = match shared.check_admin(entrance, &headers) {
            Ok(()) => late.iter().map(tell).collect(),
            Err(_) => "late\n".to_owned(),
        };
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    } else if shared.sockets.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response()
    } else {
        "ok\n".into_response()
    }
}

/// A request with two `Host` lines is none (RFC 9112 section 3.2): a proxy in front may have looked at the other one.
async fn one_host<A: Application>(
    State(shared): State<Arc<Shared<A>>>,
    request: Request,
    next: Next,
) -> Response {
    if request.headers().get_all(HOST).iter().nth(1).is_none() {
        return next.run(request).await;
    }
    shared.metrics.dropped("http", "hosts");
    let why = "the request has more than one Host: send one";
    api::Problem::new(StatusCode::BAD_REQUEST, "hosts", why).into_response()
}

/// Nothing is answered to names that are not this server's.
async fn own_names<A: Application>(
    State(shared): State<Arc<Shared<A>>>,
    request: Request,
    next: Next,
) -> Response {
    match shared.access.check_host(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => {
            shared.metrics.dropped("http", "host");
            api::Problem::new(StatusCode::MISDIRECTED_REQUEST, "host", why).into_response()
        }
    }
}

/// The API is for programs and for this server's own pages.
async fn own_pages<A: Application>(
    State(shared): State<Arc<Shared<A>>>,
    request: Request,
    next: Next,
) -> Response {
    match shared.access.origins.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => {
            shared.metrics.dropped("http", "origin");
            api::Problem::new(StatusCode::FORBIDDEN, "origin", why).into_response()
        }
    }
}

async fn open_socket<A: Application>(
    State(shared): State<Arc<Shared<A>>>,
    ConnectInfo(remote): ConnectInfo<SocketAddr>,
    (Extension(visit), Extension(counted)): (Extension<Arc<Visit>>, Extension<Counted>),
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    if let Err(why) = shared.access.origins.check(&headers) {
        shared.metrics.dropped("http", "origin");
        tracing::warn!(%remote, origin = ?headers.get(ORIGIN), "socket refused: {why}");
        return (StatusCode::FORBIDDEN, format!("{why}\n")).into_response();
    }
    let Some(place) = shared.sockets.reserve() else {
        shared.metrics.dropped("http", "sockets_full");
        if let Some(times) = shared.full_told.happens(std::time::Instant::now()) {
            let most = shared.sockets.options().sockets;
            tracing::warn!(address = %remote.ip(), most, times, "a socket is refused: there are as many as limits.sockets allows");
        }
        let why = "no more sockets are taken now: try again later\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "10")], why).into_response();
    };
    let sockets = shared.sockets.clone();
    let unreadable_bytes = sockets.options().unreadable_bytes;
    upgrade
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(unreadable_bytes)
        .max_frame_size(unreadable_bytes)
        .on_upgrade(move |stream| {
            visit.is_socket();
            let run = sockets.run(place, stream, remote, visit);
            async move {
                run.await;
                drop(counted);
            }
        })
}

/// Headers that every answer carries: pages load and reach nothing but this server, are in no
/// frame, and tell no one which room they were in.
async fn harden(mut response: Response) -> Response {
    const HEADERS: [(&str, &str); 6] = [
        (
            "content-security-policy",
            "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
             media-src 'self' blob: mediastream:; connect-src 'self'; worker-src 'self' blob:; \
             object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        (
            "permissions-policy",
            "camera=(self), microphone=(self), display-capture=(self), autoplay=(self), \
             geolocation=()",
        ),
    ];
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
