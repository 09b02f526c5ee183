//! The settings of docs/serve.md for nginx, Caddy and HAProxy, each run as it stands there but for ports and files.

use crate::by_tcp::Reader;
use crate::raw::Raw;
use crate::target::{
    FREE_PORTS, HOST, Server, Socket, Wire, connect_from, eventually, over_tls, use_tls,
};
use rtp::HeaderWriter;
use rtp::negotiated::Kind;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::Lacks;

const PAGE: &str = include_str!("../../docs/serve.md");
/// The proxy's settings of the server.
const BEHIND: &str = "http: { bind: \"127.0.0.1:7880\", trusted_proxies: [127.0.0.1] }\n";
/// Connections of one address.
const MOST: usize = 3;

/// The blocks of the page with this language, in order.
fn blocks(language: &str) -> Vec<&'static str> {
    // Its mark follows the language (tests/examples.rs).
    let begin = format!("\n```{language} ");
    let blocks = PAGE.split(begin.as_str()).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().split_once('\n').unwrap().1).collect()
}

fn replaced(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in\n{text}");
        text.replace(from, to)
    })
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A proxy that runs; dropping it ends it.
struct Proxy {
    child: Child,
    log: PathBuf,
    /// Where it takes connections.
    at: SocketAddr,
    client: Option<Arc<rustls::ClientConfig>>,
}

impl Proxy {
    /// Starts a program whose log goes into a directory; none where it is not installed.
    fn start(
        command: &mut Command,
        directory: &Path,
        port: u16,
        client: Option<Arc<rustls::ClientConfig>>,
    ) -> Option<Self> {
        let log = directory.join("proxy.log");
        let file = File::create(&log).unwrap();
        let child = command
            .env("HOME", directory)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let program = command.get_program().display();
                eprintln!(
                    "{program} is not installed: its settings were not tried (scripts/deps.sh)"
                );
                return None;
            }
            Err(error) => panic!("{command:?}: {error}"),
        };
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let mut proxy = Self { child, log, at, client };
        eventually("a connection to the proxy", || {
            let ended = proxy.child.try_wait().unwrap();
            assert!(ended.is_none(), "the proxy ended: {}", proxy.log());
            TcpStream::connect(at).ok()
        });
        Some(proxy)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn wire(&self, from: [u8; 4]) -> Box<dyn Wire> {
        let stream = connect_from(from, self.at).unwrap();
        match &self.client {
            Some(client) => over_tls(client, stream),
            None => Box::new(stream),
        }
    }

    fn get(&self, server: &Server, from: [u8; 4], path: &str) -> String {
        let host = format!("Host: {HOST}\r\n");
        let answer = server.get_over(self.wire(from), path, &host);
        answer.unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.log()))
    }

    fn socket(&self, from: [u8; 4]) -> Result<Socket, String> {
        // What a client claims itself is not believed.
        let claims = [("x-forwarded-for", "198.51.100.1"), ("forwarded", "for=198.51.100.2")];
        Socket::try_over(self.wire(from), HOST, &claims)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server of the page behind its proxy, without and with TLS.
fn server(tls: &str) -> Server {
    let shown = blocks("yaml").into_iter().find(|block| block.contains("trusted_proxies"));
    let settings = replaced(shown.unwrap(), &[("127.0.0.1:7880", "127.0.0.1:0")]);
    assert!(shown.unwrap().contains(BEHIND.trim_end()));
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("moim.yaml");
    let (_, others) = FREE_PORTS.split_once('\n').unwrap();
    let limits = format!("limits: {{ connections_per_address: {MOST} }}\n");
    std::fs::write(&config, format!("{settings}{others}{limits}{tls}")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_moim"));
    command.args(["serve", "--config"]).arg(config);
    Server::launch(command, directory)
}

fn of_log(server: &Server, address: &str, text: &str) -> usize {
    let log = server.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let fits = |line: &Value| {
        line["address"] == address && line["message"].as_str().is_some_and(|m| m.contains(text))
    };
    lines.filter(fits).count()
}

/// A page, the health and sockets, which count for those who open them.
fn carries(proxy: &Proxy, server: &Server) {
    let page = proxy.get(server, [127, 0, 0, 30], "/");
    assert!(page.contains(" 200 ") && page.contains("<html"), "{page}");
    let join = |from| {
        let mut socket = proxy.socket(from).unwrap_or_else(|why| panic!("{why}\n{}", proxy.log()));
        socket.ask("room.join", json!({ "room": "a", "name": "a" }));
        socket
    };
    // More people than one address may have connections, one of them as often as that.
    let mut held: Vec<Socket> = (31..=31 + 2 * MOST as u8).map(|n| join([127, 0, 0, n])).collect();
    held.extend((1..MOST).map(|_| join([127, 0, 0, 31])));
    let refused = proxy.socket([127, 0, 0, 31]).err().unwrap();
    assert!(refused.starts_with("429 "), "{refused}\n{}", server.log());
    assert_eq!(of_log(server, "127.0.0.31", "limits.connections_per_address"), 1);
    assert_eq!(of_log(server, "127.0.0.1", ""), 0, "{}", server.log());
    let health =
        || Some(proxy.get(server, [127, 0, 0, 31], "/healthz")).filter(|a| a.ends_with("ok\n"));
    eventually("an answer of /healthz to who is at the limit", health);
}

/// A directory with a certificate: `cert.pem`, `key.pem`, and both in one.
fn certificate() -> (tempfile::TempDir, Arc<rustls::ClientConfig>) {
    let directory = tempfile::tempdir().unwrap();
    let (_, client) = use_tls(&directory);
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let both = format!("{}{}", read("cert.pem"), read("key.pem"));
    std::fs::write(directory.path().join("both.pem"), both).unwrap();
    (directory, client)
}

#[test]
fn nginx_carries_pages_and_sockets_with_the_settings_of_the_docs() {
    let (server, (directory, client), port) = (server(""), certificate(), free_port());
    let at = directory.path().to_str().unwrap();
    let shown = blocks("nginx");
    let conf = replaced(
        shown[0],
        &[
            ("listen 443 ssl", &format!("listen 127.0.0.1:{port} ssl")),
            ("/etc/ssl/call.example.org", at),
            ("127.0.0.1:7880", &server.http.to_string()),
        ],
    );
    let temporary = ["client_body", "proxy", "fastcgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {at}/{name};\n")).concat();
    let own = format!(
        "daemon off;\nmaster_process off;\npid {at}/pid;\nerror_log stderr;\nevents {{}}\n"
    );
    let whole = format!("{own}http {{\naccess_log off;\n{temporary}{conf}}}\n");
    let file = directory.path().join("nginx.conf");
    std::fs::write(&file, whole).unwrap();
    let mut command = Command::new("nginx");
    command.args(["-e", "stderr", "-p", at, "-c"]).arg(file);
    let Some(proxy) = Proxy::start(&mut command, directory.path(), port, Some(client)) else {
        return;
    };
    carries(&proxy, &server);
}

#[test]
fn caddy_carries_pages_and_sockets_with_the_settings_of_the_docs() {
    let (server, (directory, client), port) = (server(""), certificate(), free_port());
    let at = directory.path().to_str().unwrap();
    let shown = blocks("caddy");
    let site = replaced(
        shown[0],
        &[
            ("call.example.org {", &format!("call.example.org:{port} {{")),
            ("/etc/ssl/call.example.org", at),
            ("127.0.0.1:7880", &server.http.to_string()),
        ],
    );
    let own = "{\n\tadmin off\n\tauto_https disable_redirects\n\tdefault_bind 127.0.0.1\n}\n";
    let file = directory.path().join("Caddyfile");
    std::fs::write(&file, format!("{own}{site}")).unwrap();
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
    let Some(proxy) = Proxy::start(&mut command, directory.path(), port, Some(client)) else {
        return;
    };
    carries(&proxy, &server);
}

/// HAProxy with settings of the page.
fn haproxy(settings: &str, directory: &Path) -> Command {
    let file = directory.join("haproxy.cfg");
    std::fs::write(&file, settings).unwrap();
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(file);
    command
}

#[test]
fn haproxy_carries_pages_and_sockets_with_the_settings_of_the_docs() {
    let (server, (directory, client), port) = (server(""), certificate(), free_port());
    let at = directory.path().to_str().unwrap();
    let shown = blocks("haproxy");
    let settings = replaced(
        shown[0],
        &[
            ("bind :443", &format!("bind 127.0.0.1:{port}")),
            ("/etc/ssl/call.example.org", at),
            ("127.0.0.1:7880", &server.http.to_string()),
        ],
    );
    let mut command = haproxy(&settings, directory.path());
    let Some(proxy) = Proxy::start(&mut command, directory.path(), port, Some(client)) else {
        return;
    };
    carries(&proxy, &server);
    assert!(!proxy.log().contains("is DOWN"), "its checks are answered: {}", proxy.log());
}

#[test]
fn haproxy_passes_connections_on_with_the_settings_of_the_docs() {
    let certificates = tempfile::tempdir().unwrap();
    let (tls, client) = use_tls(&certificates);
    let (server, directory) = (server(&tls), tempfile::tempdir().unwrap());
    let (port, media) = (free_port(), free_port());
    let shown = blocks("haproxy");
    let settings = replaced(
        shown[1],
        &[
            ("bind :443", &format!("bind 127.0.0.1:{port}")),
            ("bind :7882", &format!("bind 127.0.0.1:{media}")),
            ("127.0.0.1:7880", &server.http.to_string()),
            ("127.0.0.1:7882", &server.media.to_string()),
        ],
    );
    let mut command = haproxy(&settings, directory.path());
    let Some(proxy) = Proxy::start(&mut command, directory.path(), port, Some(client)) else {
        return;
    };
    carries(&proxy, &server);
    // A client has as many media connections as one address may; more are closed, and others get in.
    let media = SocketAddr::from(([127, 0, 0, 1], media));
    let open = |last| {
        let mut stream = connect_from([127, 0, 0, last], media).unwrap();
        stream.write_all(b"\x00\x04junk").unwrap();
        stream
    };
    let is_closed = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let read = (&*stream).read(&mut [0; 64]);
        !read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let held: Vec<TcpStream> = (0..=MOST).map(|_| open(40)).collect();
    eventually("the end of one of them", || held.iter().any(is_closed).then_some(()));
    assert_eq!(held.iter().filter(|stream| is_closed(stream)).count(), 1);
    assert_eq!(of_log(&server, "127.0.0.40", "media connections on TCP"), 1, "{}", server.log());
    let others: Vec<TcpStream> = (41..=41 + MOST as u8).map(open).collect();
    assert!(!others.iter().any(is_closed));
    hears_by_tcp(&proxy, &server, media);
    assert!(!proxy.log().contains("is DOWN"), "its checks are answered: {}", proxy.log());
}

/// Somebody whose media goes by TCP through the proxy hears somebody else.
fn hears_by_tcp(proxy: &Proxy, server: &Server, media: SocketAddr) {
    let socket = |from| proxy.socket(from).unwrap_or_else(|why| panic!("{why}"));
    let [from, there] = [50, 51].map(|last| [127, 0, 0, last]);
    let mut sockets = [from, there].map(socket);
    let sends = &[Kind::Audio];
    let mut speaker = Raw::enter(&mut sockets[0], (from, "tcp"), sends, (0, 0), Lacks::default());
    let mut reader = Reader::join(&mut sockets[1], there, "tcp", Some(media));
    let (mut sequence, mut due) = (0_u16, Instant::now());
    eventually("sound by TCP through the proxy", || {
        speaker.step();
        reader.step(usize::MAX);
        assert!(!reader.ended, "the connection lives on: {}", server.log());
        if speaker.is_connected() && due <= Instant::now() {
            due = Instant::now() + Duration::from_millis(20);
            let line = speaker.line(Kind::Audio);
            let (payload_type, ssrc) = (line.payload_type, line.local.unwrap().ssrc);
            sequence += 1;
            let timestamp = u32::from(sequence) * 960;
            let header =
                HeaderWriter { payload_type, sequence, timestamp, ssrc, ..HeaderWriter::default() };
            speaker.send_rtp(&header, &[0xFC; 80]);
        }
        (reader.media > 50).then_some(())
    });
}
