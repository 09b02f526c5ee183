//! A `moim serve` of a test's own, and a plain realtime socket to it.

use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error as WebError;
use tokio_tungstenite::tungstenite::handshake::HandshakeError;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};
use wire::event::EventEnvelope;
use wire::frame::SOCKET_PATH;
use wire::{ErrorCode, Event, RoomError};

/// What should come at once may take so long on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `look` finds something; panics with `what` after [`PATIENCE`].
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Does something when it is dropped: also where a test fails, so that its threads end.
pub struct AtEnd<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Connects from an address of this machine, such as 127.0.0.66.
///
/// # Errors
/// What the system says.
pub fn connect_from(source: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((source, 0)))?;
        socket.connect(to).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The CPU that servers have for themselves, as `make evidence-attacks` gives them one.
pub fn own_cpu() -> Option<String> {
    std::env::var("MOIM_SERVER_CPU").ok()
}

/// What a client reads and writes, with TLS or without.
pub trait Wire: Read + Write + Send {
    /// The connection below.
    fn tcp(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Wire for rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref()
    }
}

/// The name that certificates of tests are for.
pub const HOST: &str = "call.example.org";

/// A certificate or a key in PEM.
pub fn pem(what: &str, der: &[u8]) -> String {
    let text = data_encoding::BASE64.encode(der);
    format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n")
}

/// A certificate that signs itself, and its key, in PEM; and a client that trusts it.
fn certificate() -> (String, String, Arc<rustls::ClientConfig>) {
    let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
    let der = made.cert.der().to_vec();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(der.clone())).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let key = pem("PRIVATE KEY", &made.signing_key.serialize_der());
    (pem("CERTIFICATE", &der), key, Arc::new(client))
}

/// Settings of a server on free ports of the loopback, which its log tells.
pub const FREE_PORTS: &str = "http: { bind: \"127.0.0.1:0\" }\nmedia: { bind: 127.0.0.1, port: 0 }\n\
                              log: { format: json }\n";

/// Settings of a server whose metrics are where its pages are.
const OWN_METRICS: &str = "admin: { bind: \"127.0.0.1:0\" }\n";

/// [`FREE_PORTS`] with more under `http`.
pub fn free_ports_with(http: &str) -> String {
    FREE_PORTS.replacen(" }", &format!(", {http} }}"), 1)
}

/// TLS over a connection, to who shows the certificate that the client trusts.
pub fn over_tls(client: &Arc<rustls::ClientConfig>, stream: TcpStream) -> Box<dyn Wire> {
    let name = ServerName::try_from(HOST).unwrap();
    let client = rustls::ClientConnection::new(client.clone(), name).unwrap();
    Box::new(rustls::StreamOwned::new(client, stream))
}

/// All that comes until the connection ends.
///
/// # Errors
/// What the system says, such as that the connection was closed.
pub fn read_all(wire: &mut dyn Wire) -> std::io::Result<String> {
    let mut answer = String::new();
    match wire.read_to_string(&mut answer) {
        // Of TLS, some servers leave the closing alert out.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        read => drop(read?),
    }
    Ok(answer)
}

/// Makes a certificate: the settings that name it, and a client that trusts it.
pub fn use_tls(directory: &tempfile::TempDir) -> (String, Arc<rustls::ClientConfig>) {
    let (certificate, key, client) = certificate();
    std::fs::write(directory.path().join("cert.pem"), certificate).unwrap();
    let of_key = directory.path().join("key.pem");
    std::fs::write(&of_key, key).unwrap();
    std::fs::set_permissions(&of_key, Permissions::from_mode(0o600)).unwrap();
    let at = directory.path().display();
    (format!("tls: {{ cert: {at}/cert.pem, key: {at}/key.pem }}\n"), client)
}

/// A server on free ports of the loopback; dropping it ends it.
pub struct Server {
    /// What clients trust, where it is served over TLS.
    tls: Option<Arc<rustls::ClientConfig>>,
    child: Child,
    directory: tempfile::TempDir,
    /// Where pages, sockets and metrics are.
    pub http: SocketAddr,
    /// Where media goes.
    pub media: SocketAddr,
}

impl Server {
    /// Starts one with these `limits`, in YAML's braces.
    pub fn start(limits: &str) -> Self {
        Self::with(&format!("limits: {limits}\n"))
    }

    /// Starts one with these settings besides addresses and log; its metrics are where its pages are.
    pub fn with(settings: &str) -> Self {
        Self::without_metrics(&format!("{OWN_METRICS}{settings}"))
    }

    /// Starts one whose metrics nobody may see, unless the settings say so; over TLS if `MOIM_TLS` is set.
    pub fn without_metrics(settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        if std::env::var_os("MOIM_TLS").is_none() {
            return Self::begin(settings, directory, None);
        }
        let (tls, client) = use_tls(&directory);
        Self::begin(&format!("{tls}{settings}"), directory, Some(client))
    }

    /// The same as [`with`](Self::with), with more under `http` than the address.
    pub fn with_http(http: &str, settings: &str) -> Self {
        let config = format!("{}{OWN_METRICS}{settings}", free_ports_with(http));
        Self::begin_as(&config, tempfile::tempdir().unwrap(), None)
    }

    /// The same as [`with`](Self::with) over TLS.
    pub fn with_tls(settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (tls, client) = use_tls(&directory);
        let settings = format!("{OWN_METRICS}{tls}{settings}");
        Self::begin(&settings, directory, Some(client))
    }

    /// The same as [`with_http`](Self::with_http) over TLS.
    pub fn with_http_and_tls(http: &str, settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (tls, client) = use_tls(&directory);
        let config = format!("{}{OWN_METRICS}{tls}{settings}", free_ports_with(http));
        Self::begin_as(&config, directory, Some(client))
    }

    fn begin(
        settings: &str,
        directory: tempfile::TempDir,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Self {
        Self::begin_as(&format!("{FREE_PORTS}{settings}"), directory, tls)
    }

    fn begin_as(
        settings: &str,
        directory: tempfile::TempDir,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Self {
        let config = directory.path().join("moim.yaml");
        std::fs::write(&config, settings).unwrap();
        std::fs::set_permissions(&config, Permissions::from_mode(0o600)).unwrap();
        // The same tests hold over several shards.
        let shards = std::env::var("MOIM_SHARDS").unwrap_or_else(|_| "1".into());
        let mut command = Command::new(env!("CARGO_BIN_EXE_moim"));
        if let Some(cpu) = own_cpu() {
            command = Command::new("taskset");
            command.args(["-c", &cpu, env!("CARGO_BIN_EXE_moim")]);
        }
        command
            .args(["serve", "--shards", &shards, "--keep-together", "1", "--config"])
            .arg(&config);
        Self::run(command, directory, tls)
    }

    /// Starts one by a command whose settings begin with [`FREE_PORTS`]; its log goes into the directory.
    pub fn launch(command: Command, directory: tempfile::TempDir) -> Self {
        Self::run(command, directory, None)
    }

    fn run(
        mut command: Command,
        directory: tempfile::TempDir,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Self {
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let child = command
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { tls, child, directory, http: unknown, media: unknown };
        (server.http, server.media) = eventually("the server's addresses in its log", || {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended at its start: {}", server.log());
            server.addresses()
        });
        server
    }

    /// Port 0 took free ports: the log tells which.
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.logged_url("open")?, *self.media_of_all().first()?))
    }

    /// Where each of its media threads gets media.
    pub fn media_of_all(&self) -> Vec<SocketAddr> {
        self.logged("udp").iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// The address in the first URL of the log that follows this text.
    pub fn logged_url(&self, before: &str) -> Option<SocketAddr> {
        self.logged("message").iter().find_map(|message| {
            let (_, url) = message.split_once(&format!("{before} http"))?;
            url.trim_start_matches('s').strip_prefix("://")?.split('/').next()?.parse().ok()
        })
    }

    /// The texts of this field of the log's lines.
    fn logged(&self, field: &str) -> Vec<String> {
        let log = self.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter_map(|line| Some(line[field].as_str()?.to_owned())).collect()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// CPU time that the server's threads have used so far, as exactly as the scheduler counts it.
    pub fn cpu(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let ran = tasks.filter_map(|task| {
            // A thread may end between the two.
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(ran.sum())
    }

    /// Memory that the server holds now, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// A gauge or counter of `/metrics` by its whole series name; 0 where nothing is told.
    pub fn metric(&self, series: &str) -> f64 {
        let metrics = self.metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// The sum of all series of a name, such as one for each media thread.
    pub fn metric_of_all(&self, name: &str) -> f64 {
        let metrics = self.metrics();
        let series = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        series.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// A connection for requests and sockets from an address of this machine; its handshake, if there is one, comes
    /// with the first bytes.
    ///
    /// # Errors
    /// What the system says.
    pub fn wire_from(&self, source: [u8; 4]) -> std::io::Result<Box<dyn Wire>> {
        self.wire_after(source, b"")
    }

    /// The same, where something stands before all that, such as what a proxy says.
    ///
    /// # Errors
    /// What the system says.
    pub fn wire_after(&self, source: [u8; 4], first: &[u8]) -> std::io::Result<Box<dyn Wire>> {
        let mut stream = connect_from(source, self.http)?;
        stream.write_all(first)?;
        Ok(self.secure(stream))
    }

    /// With TLS, if this server speaks it.
    pub fn secure(&self, stream: TcpStream) -> Box<dyn Wire> {
        match &self.tls {
            None => Box::new(stream),
            Some(tls) => over_tls(tls, stream),
        }
    }

    /// The answer to a request for a path from an address of this machine, its head included.
    ///
    /// # Errors
    /// What the system says, such as that the connection was closed.
    pub fn get_from(&self, source: [u8; 4], path: &str) -> std::io::Result<String> {
        self.get_over(self.wire_from(source)?, path, "")
    }

    /// The same over a connection that is there, with more headers, which end with a line end each.
    ///
    /// # Errors
    /// What the system says, such as that the connection was closed.
    pub fn get_over(
        &self,
        mut wire: Box<dyn Wire>,
        path: &str,
        headers: &str,
    ) -> std::io::Result<String> {
        let own = format!("Host: {}\r\n", self.http);
        let host = if headers.contains("Host:") { "" } else { &own };
        write!(wire, "GET {path} HTTP/1.0\r\n{host}{headers}\r\n")?;
        wire.flush()?;
        read_all(&mut *wire)
    }

    /// The text of `/metrics`.
    pub fn metrics(&self) -> String {
        let answer = self.get_from([127, 0, 0, 1], "/metrics").unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{head}");
        body.to_owned()
    }

    /// Gets a page: status, head and body. `headers` end with a line end each; there is a `Host` unless they bring one.
    pub fn get(&self, path: &str, headers: &str) -> (u16, String, String) {
        self.request("GET", self.http, path, headers, "")
    }

    /// Any request, to any address of the server.
    pub fn request(
        &self,
        method: &str,
        to: SocketAddr,
        path: &str,
        headers: &str,
        body: &str,
    ) -> (u16, String, String) {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut wire = self.secure(stream);
        let own = format!("Host: {to}\r\n");
        let host = if headers.contains("Host:") { "" } else { &own };
        let length = body.len();
        write!(
            wire,
            "{method} {path} HTTP/1.0\r\n{host}{headers}Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let answer = read_all(&mut *wire).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{head}")), head.to_owned(), body.to_owned())
    }

    /// What was discarded so far at a place for a reason; 0 where nothing is told.
    pub fn dropped(&self, place: &str, reason: &str) -> u64 {
        let series = format!("moim_dropped_total{{where=\"{place}\",reason=\"{reason}\"}} ");
        let metrics = self.metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
        line.map_or(0, |count| count.parse().unwrap())
    }

    /// How many lines of the log tell of a refusal with this code.
    pub fn refusals(&self, code: &str) -> usize {
        let log = self.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let told = |line: &Value| {
            line["message"].as_str().is_some_and(|text| text.starts_with("refused"))
                && line["code"] == code
        };
        lines.filter(told).count()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Replaces a text in its settings, and has it read them again.
    pub fn reload(&self, from: &str, to: &str) {
        let config = self.directory.path().join("moim.yaml");
        let text = std::fs::read_to_string(&config).unwrap();
        assert!(text.contains(from), "{from} is not in {text}");
        std::fs::write(&config, text.replace(from, to)).unwrap();
        self.hang_up();
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the server's end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(20)..];
            eprintln!("the server's log ends:\n{}", tail.join("\n"));
        }
    }
}

/// A realtime socket, with nothing between the test and the frames.
pub struct Socket {
    web: WebSocket<Box<dyn Wire>>,
    cid: u64,
    events: VecDeque<EventEnvelope>,
}

impl Socket {
    /// Connects and shakes hands.
    pub fn connect(server: &Server) -> Self {
        Self::connect_from([127, 0, 0, 1], server)
    }

    /// The same from another address of this machine.
    pub fn connect_from(source: [u8; 4], server: &Server) -> Self {
        Self::over(server.wire_from(source).unwrap(), server)
    }

    /// The same over a connection that is there.
    pub fn over(wire: Box<dyn Wire>, server: &Server) -> Self {
        Self::try_over(wire, &server.http.to_string(), &[])
            .unwrap_or_else(|error| panic!("no socket: {error}"))
    }

    /// The same for any `Host`, and with headers.
    ///
    /// # Errors
    /// The status and the text of the answer, or what the connection says.
    pub fn try_over(
        wire: Box<dyn Wire>,
        host: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, String> {
        let address = format!("ws://{host}{SOCKET_PATH}");
        let mut request = address.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let (web, _) = client(request, wire).map_err(|error| match error {
            HandshakeError::Failure(WebError::Http(answer)) => {
                let body = answer.body().as_deref().map(String::from_utf8_lossy);
                format!("{} {}", answer.status().as_u16(), body.unwrap_or_default())
            }
            error => error.to_string(),
        })?;
        let mut socket = Self { web, cid: 0, events: VecDeque::new() };
        socket.call("#handshake", json!({})).unwrap();
        Ok(socket)
    }

    /// Sends a frame as it is.
    pub fn send(&mut self, text: &str) {
        self.web.send(Message::text(text)).unwrap();
    }

    /// The next packet that is no event; the close code where the server closed.
    pub fn packet(&mut self) -> Result<Value, u16> {
        loop {
            let text = match self.web.read() {
                Ok(Message::Text(text)) if text.is_empty() => {
                    self.send(""); // The heartbeat.
                    continue;
                }
                Ok(Message::Text(text)) => text,
                Ok(Message::Close(frame)) => return Err(frame.map_or(0, |frame| frame.code.into())),
                Ok(_) => continue,
                Err(WebError::ConnectionClosed | WebError::AlreadyClosed) => return Err(0),
                Err(error) => panic!("nothing to read: {error}"),
            };
            let mut packet: Value = serde_json::from_str(&text).unwrap();
            if packet["event"] != "#publish" {
                return Ok(packet);
            }
            let event = packet["data"]["data"].take();
            self.events.push_back(serde_json::from_value(event).unwrap());
        }
    }

    /// Sends a frame as it is to a server that may have closed the socket.
    pub fn try_send(&mut self, text: &str) {
        let _ = self.web.send(Message::text(text));
    }

    /// The next packet as it is, a publication too; the close code where the socket ended, however it did.
    pub fn any_packet(&mut self) -> Result<Value, u16> {
        loop {
            match self.web.read() {
                Ok(Message::Text(text)) if text.is_empty() => {
                    drop(self.web.send(Message::text("")))
                }
                Ok(Message::Text(text)) => return Ok(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(frame)) => return Err(frame.map_or(0, |frame| frame.code.into())),
                Ok(_) => {}
                Err(_) => return Err(0),
            }
        }
    }

    /// Calls a procedure of a socket that may be closed meanwhile: then the close code. Publications are read over.
    pub fn try_call(&mut self, event: &str, data: &Value) -> Result<Result<Value, Value>, u16> {
        self.cid += 1;
        let packet = json!({ "event": event, "data": data, "cid": self.cid });
        // Where that fails, what the server said before it closed can still be read.
        let _ = self.web.send(Message::text(packet.to_string()));
        loop {
            let mut answer = self.any_packet()?;
            if answer["rid"] == self.cid {
                let error = answer.get_mut("error").map(Value::take);
                return Ok(error.map_or_else(|| Ok(answer["data"].take()), Err));
            }
        }
    }

    /// Calls a procedure.
    pub fn call(&mut self, event: &str, data: Value) -> Result<Value, RoomError> {
        self.cid += 1;
        self.send(&json!({ "event": event, "data": data, "cid": self.cid }).to_string());
        let mut answer = self.packet().unwrap_or_else(|code| panic!("{event}: closed with {code}"));
        assert_eq!(answer["rid"], self.cid, "{event}: {answer}");
        match answer.get_mut("error") {
            Some(error) => Err(serde_json::from_value(error.take()).unwrap()),
            None => Ok(answer["data"].take()),
        }
    }

    /// The same, again and again while there were too many calls before.
    pub fn call_patiently(&mut self, event: &str, data: &Value) -> Result<Value, RoomError> {
        eventually("the end of too_fast", || match self.call(event, data.clone()) {
            Err(error) if error.code == ErrorCode::TooFast => None,
            answered => Some(answered),
        })
    }

    /// Calls a procedure that must succeed.
    pub fn ask(&mut self, event: &str, data: Value) -> Value {
        self.call(event, data).unwrap_or_else(|error| panic!("{event}: {error}"))
    }

    /// The events since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        self.envelopes().into_iter().map(|envelope| envelope.event).collect()
    }

    /// The same with their numbers. A ping's answer comes after all that was told before it.
    pub fn envelopes(&mut self) -> Vec<EventEnvelope> {
        self.call("ping", Value::Null).unwrap();
        self.events.drain(..).collect()
    }
}
