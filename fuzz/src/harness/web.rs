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

/// A PING after what a client sends, and its answer: whoever gets that has all before it read.
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0read all";
const PONG: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0read all";
/// Where no PING is read any more, nothing comes after so long.
const QUIET: Duration = Duration::from_millis(5);

/// HTTP/2 (RFC 9113) of a client that may do everything: whatever it sends, its connection ends once it is through, and the
/// next one is answered. The first byte says whether the rest is sent as it is, or as frames of the right lengths.
pub fn http2(data: &[u8]) {
    let [form, rest @ ..] = data else { return };
    let sent = if form % 2 == 0 { rest.to_vec() } else { frames(rest) };
    let mut stream = connect(QUIET);
    // Who is refused may be told so before all is sent.
    let _ = stream.write_all(&[PREFACE, &sent, PING].concat());
    let mut came = Vec::new();
    let answered = |came: &[u8]| came.windows(PONG.len()).any(|part| part == PONG);
    while !answered(&came) && read(&mut stream, &mut came) {}
    let _ = stream.shutdown(Shutdown::Write);
    assert!(is_closed(&mut stream), "the connection stays open after its client is through");
    let mut stream = connect(PATIENCE);
    stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").expect("it is there");
    let mut answer = Vec::new();
    while read(&mut stream, &mut answer) {}
    assert!(answer.starts_with(b"HTTP/1.0 200 "), "{}", String::from_utf8_lossy(&answer));
    assert!(!PANICKED.load(Relaxed), "the server's thread panicked");
}

fn connect(patience: Duration) -> TcpStream {
    let stream = TcpStream::connect(*SERVER).expect("it listens");
    stream.set_read_timeout(Some(patience)).expect("a time");
    stream
}

/// Reads a part of what comes; false where nothing comes in time, or nothing more.
fn read(stream: &mut TcpStream, came: &mut Vec<u8>) -> bool {
    let mut memory = [0; 4096];
    let count = stream.read(&mut memory).unwrap_or(0);
    came.extend_from_slice(&memory[..count]);
    count > 0
}

/// Whether a connection ends in time.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    match stream.read_to_end(&mut Vec::new()) {
        // A reset ends it as well.
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        Ok(_) => true,
    }
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
