//! HTTP: the call page, sockets, metrics; TLS where configured.

use crate::auth::Guests;
use crate::config::{Config, TlsConfig};
use crate::gate::{Gate, Visit, each_request};
use crate::metrics::Metrics;
use crate::places::{self, Places};
use crate::socket::{Application, Sockets};
use crate::{api, assets};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use std::future::Future;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio::task::JoinSet;

/// How long a request in work may take once the server ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Bytes that a socket's read buffer starts with: the default of 128 KiB would be what an idle
/// socket costs.
const READ_BUFFER_BYTES: usize = 4 << 10;
/// A write is begun at the latest when this many bytes are joined.
const WRITE_BUFFER_BYTES: usize = 32 << 10;

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
            Self::Tls { files, error } => write!(
                f,
                "cannot use the certificate {} with the key {}: {error}; both must be PEM files \
                 that belong together",
                files.cert.display(),
                files.key.display()
            ),
            Self::Serve(error) => write!(f, "cannot accept connections: {error}"),
        }
    }
}

impl std::error::Error for HttpError {}

/// Bound addresses, not yet served.
#[derive(Debug)]
pub struct Http {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    tls: Option<TlsConfig>,
    origins: Origins,
    places: Places,
}

impl Http {
    /// Binds all of `http.bind`.
    ///
    /// # Errors
    /// [`HttpError::Bind`] for the first address that cannot be bound.
    pub fn bind(config: &Config) -> Result<Self, HttpError> {
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for &address in &config.http.bind {
            let bound = TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok((listener.local_addr()?, listener))
            });
            let (bound, listener) = bound.map_err(|error| HttpError::Bind { address, error })?;
            addresses.push(bound);
            listeners.push(listener);
        }
        let origins = Origins {
            listed: config.origins.clone(),
            development_ports: config
                .development
                .then(|| addresses.iter().map(SocketAddr::port).collect()),
        };
        let most = places::shares(config.limits.sockets, config.media.shards).http;
        // Only this machine reaches a development server: one address is everybody.
        let each = if config.development { most } else { config.limits.connections_per_address };
        let places = Places::new(most, each);
        Ok(Self { listeners, addresses, tls: config.tls.clone(), origins, places })
    }

    /// The bound addresses, with the ports that port 0 got.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
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
            Some(files) => match RustlsConfig::from_pem_file(&files.cert, &files.key).await {
                Ok(tls) => Some(tls),
                Err(error) => return Err(HttpError::Tls { files, error }),
            },
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        if self.origins.development_ports.is_some() {
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
        let gate = Gate::new(self.places, &metrics);
        let router = router(sockets.clone(), metrics, self.origins);
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let mut servers = JoinSet::new();
        let mut handles = Vec::new();
        for (listener, address) in self.listeners.into_iter().zip(self.addresses) {
            tracing::debug!(%address, "listening on {scheme}://{address}/");
            let handle = Handle::new();
            handles.push(handle.clone());
            let service = service.clone();
            match tls.clone() {
                None => {
                    let server =
                        axum_server::from_tcp(listener).acceptor(gate.clone()).handle(handle);
                    servers.spawn(server.serve(service));
                }
                Some(tls) => {
                    let gate = gate.clone();
                    let server = axum_server::from_tcp_rustls(listener, tls)
                        .map(|acceptor| acceptor.acceptor(gate))
                        .handle(handle);
                    servers.spawn(server.serve(service));
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

pub(crate) struct Shared<A> {
    pub(crate) sockets: Arc<Sockets<A>>,
    metrics: Arc<Metrics>,
    origins: Origins,
}

fn router<A: Application>(
    sockets: Arc<Sockets<A>>,
    metrics: Arc<Metrics>,
    origins: Origins,
) -> Router {
    let shared = Arc::new(Shared { sockets, metrics, origins });
    Router::new()
        .route("/", get(async || assets::index()))
        .route("/room/{name}", get(async || assets::index()))
        .route(
            "/assets/{*path}",
            get(async |Path(path): Path<String>| assets::file(&format!("assets/{path}"))),
        )
        .route("/{file}", get(async |Path(file): Path<String>| assets::file(&file)))
        .route("/metrics", get(render_metrics::<A>))
        .route("/healthz", get(health::<A>))
        .route("/console", get(async || assets::file("console.html")))
        .merge(api::router::<A>().route_layer(from_fn_with_state(shared.clone(), own_pages::<A>)))
        .route(wire::frame::SOCKET_PATH, any(open_socket::<A>))
        .layer(map_response(harden))
        .layer(from_fn(each_request))
        .with_state(shared)
}

async fn render_metrics<A: Application>(State(shared): State<Arc<Shared<A>>>) -> Response {
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, content_type)], shared.metrics.render()).into_response()
}

async fn health<A: Application>(State(shared): State<Arc<Shared<A>>>) -> Response {
    let late = shared.metrics.health.late();
    if !late.is_empty() {
        let tell = |(name, silent): &(String, std::time::Duration)| {
            format!("{name} has not come round for {} s\n", silent.as_secs())
        };
        let text: String = late.iter().map(tell).collect();
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    } else if shared.sockets.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response()
    } else {
        "ok\n".into_response()
    }
}

/// The API is for programs and for this server's own pages.
async fn own_pages<A: Application>(
    State(shared): State<Arc<Shared<A>>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let checked = shared.origins.check(headers).and_then(|()| shared.origins.check_host(headers));
    match checked {
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
    Extension(visit): Extension<Arc<Visit>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    if let Err(why) = shared.origins.check(&headers) {
        shared.metrics.dropped("http", "origin");
        tracing::warn!(%remote, origin = ?headers.get(ORIGIN), "socket refused: {why}");
        return (StatusCode::FORBIDDEN, format!("{why}\n")).into_response();
    }
    let Some(place) = shared.sockets.reserve() else {
        shared.metrics.dropped("http", "sockets_full");
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
            sockets.run(place, stream, remote, visit)
        })
}

/// Whose pages may open sockets. A page of another site could otherwise act here in the name of
/// whoever looks at it. Clients that are no browsers send no `Origin`.
#[derive(Debug, Clone)]
struct Origins {
    listed: Vec<String>,
    /// In development mode: the ports of our own pages.
    development_ports: Option<Vec<u16>>,
}

impl Origins {
    fn check(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        if self.listed.contains(&origin) {
            return Ok(());
        }
        let Some((scheme, authority)) = origin.split_once("://") else {
            return Err("this Origin is no page's address");
        };
        match &self.development_ports {
            Some(ports) => {
                let (host, port) = split_port(scheme, authority);
                if is_loopback(host) && port.is_some_and(|port| ports.contains(&port)) {
                    return Ok(());
                }
                Err("in development mode only this server's own pages on loopback hosts may open \
                     sockets: start it with --config and list others under `origins`")
            }
            None => {
                let host = headers.get(HOST).and_then(|host| host.to_str().ok());
                let same = host.is_some_and(|host| {
                    let host = host.to_ascii_lowercase();
                    split_port(scheme, &host) == split_port(scheme, authority)
                });
                if same {
                    return Ok(());
                }
                Err("pages of this Origin may not open sockets: list it under `origins`")
            }
        }
    }

    /// In development mode anybody may do anything, so no name but this machine's own is answered
    /// to: a page of another site can have its name lead here, and then needs no `Origin`.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let (host, _) = split_port("http", host);
        if self.development_ports.is_none() || is_loopback(&host.to_ascii_lowercase()) {
            return Ok(());
        }
        Err("in development mode the API is reached by localhost, 127.0.0.1 or [::1] only")
    }
}

fn split_port<'a>(scheme: &str, authority: &'a str) -> (&'a str, Option<u16>) {
    match authority.rsplit_once(':') {
        // The last colon of `[::1]` is none before a port.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (authority, Some(if scheme == "https" { 443 } else { 80 })),
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(origins: &Origins, origin: &str, host: &str) -> bool {
        let mut headers = HeaderMap::new();
        if !origin.is_empty() {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        headers.insert(HOST, host.parse().unwrap());
        origins.check(&headers).is_ok()
    }

    #[test]
    fn development_takes_loopback_pages_on_our_port() {
        let origins = Origins { listed: Vec::new(), development_ports: Some(vec![7880]) };
        for origin in [
            "",
            "http://localhost:7880",
            "http://127.0.0.1:7880",
            "http://[::1]:7880",
            "HTTP://LOCALHOST:7880",
        ] {
            assert!(check(&origins, origin, "127.0.0.1:7880"), "{origin}");
        }
        for origin in [
            "http://localhost:7881",
            "http://localhost",
            "http://evil.example:7880",
            "http://localhost.evil.example:7880",
            "http://127.0.0.1.evil.example:7880",
            "null",
            "http://localhost:7880@evil.example",
        ] {
            // A rebound name makes Host and Origin the same: in development that is no pass.
            assert!(!check(&origins, origin, "evil.example:7880"), "{origin}");
        }
    }

    #[test]
    fn with_settings_the_own_host_and_listed_origins_are_taken() {
        let listed = vec!["https://call.example.org".to_owned()];
        let origins = Origins { listed, development_ports: None };
        assert!(check(&origins, "https://call.example.org", "sfu.example.org"));
        assert!(check(&origins, "https://sfu.example.org", "sfu.example.org"));
        assert!(check(&origins, "https://sfu.example.org", "SFU.example.org:443"));
        assert!(check(&origins, "http://[2001:db8::1]:80", "[2001:db8::1]"));
        assert!(check(&origins, "", "sfu.example.org"));
        assert!(!check(&origins, "http://sfu.example.org", "sfu.example.org:443"));
        assert!(!check(&origins, "https://other.example.org", "sfu.example.org"));
        assert!(!check(&origins, "https://call.example.org.evil", "sfu.example.org"));
        assert!(!check(&origins, "null", "null"));
    }
}
