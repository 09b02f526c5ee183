//! A whole HTTP server, as strangers reach it.

use serde_json::value::RawValue;
use server::auth::Auth;
use server::config::Config;
use server::http::Http;
use server::metrics::Metrics;
use server::socket::{Application, Socket, SocketOptions, Sockets};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;
use wire::{ErrorCode, RoomError};

/// The server's thread: its panics are the inputs' faults.
const NAME: &str = "fuzzed-http";
static PANICKED: AtomicBool = AtomicBool::new(false);
/// A connection whose client is through is closed long before.
const PATIENCE: Duration = Duration::from_secs(8);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static SERVER: LazyLock<SocketAddr> = LazyLock::new(|| {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if thread::current().name() == Some(NAME) {
            PANICKED.store(true, Relaxed);
        }
        before(info);
    }));
    let mut config = Config::development();
    config.http.bind = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let http = Http::bind(&config).expect("a free port");
    let address = http.addresses()[0];
    thread::Builder::new().name(NAME.into()).spawn(move || serve(http, &config)).expect("a thread");
    address
});

fn serve(http: Http, config: &Config) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let metrics = Arc::new(Metrics::new());
        let (options, auth) = (SocketOptions::from(&config.limits), Arc::new(Auth::development()));
        let sockets = Sockets::new(Arc::new(Nothing), options, auth, metrics.clone());
        http.serve(sockets, metrics, std::future::pending()).await.expect("it is served");
    });
}

/// An application without calls.
struct Nothing;

impl Application for Nothing {
    async fn call(
        &self,
        _: &Arc<Socket>,
        event: &str,
        _: Option<&RawValue>,
    ) -> Result<Option<Box<RawValue>>, RoomError> {
        Err(RoomError::new(ErrorCode::UnknownEvent, event))
    }

    fn closed(&self, _: &Arc<Socket>) {}

    fn may_subscribe(&self, _: &Arc<Socket>, _: &str) -> bool {
        false
    }
}

/// HTTP/2 (RFC 9113) of a client that may do everything: whatever it sends, its connection ends once it is through, and the
/// next one is answered. The first byte says whether the rest is sent as it is, or as frames of the right lengths.
pub fn http2(data: &[u8]) {
    let [form, rest @ ..] = data else { return };
    let sent = if form % 2 == 0 { rest.to_vec() } else { frames(rest) };
    let (connection, _) = exchange(&[PREFACE, &sent].concat());
    connection.unwrap_or_else(|error| panic!("the connection stays open: {error}"));
    let question = b"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n";
    let (connection, answer) = exchange(question);
    connection.expect("the next request is answered");
    assert!(answer.starts_with(b"HTTP/1.0 200 "), "{}", String::from_utf8_lossy(&answer));
    assert!(!PANICKED.load(Relaxed), "the server's thread panicked");
}

/// Sends all and then nothing more; what came until the connection ended.
fn exchange(sent: &[u8]) -> (std::io::Result<()>, Vec<u8>) {
    let mut stream = TcpStream::connect(*SERVER).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut came = Vec::new();
    // Who is refused may be told so before all is sent.
    let _ = stream.write_all(sent);
    let _ = stream.shutdown(Shutdown::Write);
    let ended = match stream.read_to_end(&mut came) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Err(error)
        }
        _ => Ok(()),
    };
    (ended, came)
}

/// Frames by a shorter form: kind, flags, stream and length take a byte each.
fn frames(mut data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let [kind, flags, stream, length, rest @ ..] = data {
        let (payload, rest) = rest.split_at(rest.len().min((*length).into()));
        out.extend([0, 0, payload.len() as u8, *kind, *flags, 0, 0, 0, *stream]);
        out.extend(payload);
        data = rest;
    }
    out
}
