//! How a server is run: as whom, and with which files.

use crate::target::{FREE_PORTS, Server, Socket, eventually, pem};
use serde_json::{Value, json};
use server::auth::{Secret, TokenRequest, issue};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const OLD: &str = "0123456789abcdef0123456789abcdef";
const NEW: &str = "fedcba9876543210fedcba9876543210";

fn join(secret: &str) -> Value {
    let request = TokenRequest { identity: "ada".into(), ttl_s: 600, ..TokenRequest::default() };
    let token = issue("ours", &Secret::new(secret).unwrap(), &request).unwrap();
    json!({ "room": "hall", "name": "ada", "token": token, "preset": "mesh" })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_server_that_runs_as_root_says_what_that_means_and_what_helps() {
    let server = Server::with("");
    let warned = server.log().contains("the server runs as root");
    assert_eq!(warned, is_root(), "{}", server.log());
}

#[test]
fn a_server_becomes_another_user_once_its_ports_are_bound() {
    if !is_root() {
        // Who is not root can become nobody else.
        let user = "run_as: \"65533:65533\"\n";
        let refused = std::panic::catch_unwind(|| Server::with(user)).err();
        let told = refused.and_then(|panic| panic.downcast::<String>().ok());
        assert!(told.is_some_and(|told| told.contains("only root may become another user")));
        return;
    }
    let server = Server::with("run_as: \"65533:65532\"\n");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let mut threads = 0;
    for task in tasks {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(field("Uid:"), ["65533"; 4], "{status}");
        assert_eq!(field("Gid:"), ["65532"; 4], "{status}");
        assert_eq!(field("Groups:"), ["65532"], "{status}");
        for set in ["CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(field(set), ["0000000000000000"], "{set} of {status}");
        }
        threads += 1;
    }
    assert!(threads >= 4, "media, control, mixer and signaling run by now: {threads}");
    Socket::connect(&server).ask("room.join", json!({ "room": "a", "name": "a" }));
    assert!(!server.log().contains("runs as root"), "{}", server.log());
}

#[test]
fn a_key_is_replaced_without_losing_anybody_and_a_mistake_changes_nothing() {
    let keys = format!("keys: {{ ours: \"{OLD}\" }}\n");
    let server = Server::with(&format!("{keys}limits: {{ sessions_per_identity: 9 }}\n"));
    let mut seated = Socket::connect(&server);
    seated.ask("room.join", join(OLD));
    let told = |what: &str, times: usize| {
        eventually(what, || (server.log().matches(what).count() >= times).then_some(()));
    };
    server.reload(OLD, NEW);
    told("are read again", 1);
    let mut socket = Socket::connect(&server);
    assert!(socket.call("room.join", join(OLD)).is_err(), "the old key is none any more");
    socket.ask("room.join", join(NEW));
    seated.ask("room.announce", json!({ "tracks": [{ "mid": "a", "kind": "audio" }] }));
    server.reload("keys:", "kyes:");
    told("nothing was changed", 1);
    assert!(server.log().contains("unknown key; did you mean"), "{}", server.log());
    Socket::connect(&server).ask("room.join", join(NEW));
    seated.ask("ping", Value::Null);
}

/// A certificate of this name, and its key.
fn certificate(directory: &Path, name: &str) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args([
            "-days",
            "2",
            "-subj",
            &format!("/CN={name}"),
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
        ])
        .current_dir(directory)
        .stderr(Stdio::null())
        .status();
    assert!(made.unwrap().success());
}

/// A client that stays connected.
struct Tls {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Tls {
    fn connect(server: &Server) -> Self {
        let mut child = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", &server.http.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, to, from: BufReader::new(from) }
    }

    /// The first line of an answer, on the same connection each time.
    fn ask(&mut self) -> String {
        self.to.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut head = String::new();
        self.from.read_line(&mut head).unwrap();
        let mut line = String::new();
        while line != "ok\n" && self.from.read_line(&mut line).unwrap() > 0 {
            if line != "ok\n" {
                line.clear();
            }
        }
        head
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whose certificate a new connection gets.
fn shown(server: &Server) -> String {
    let script = format!(
        "openssl s_client -connect {} </dev/null 2>/dev/null | openssl x509 -noout -subject",
        server.http
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_certificate_is_replaced_under_open_connections_and_a_bad_one_is_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    certificate(directory.path(), "first");
    let (cert, key) = (at("cert.pem"), at("key.pem"));
    let settings = format!("tls: {{ cert: {}, key: {} }}\n", cert.display(), key.display());
    let server = Server::without_metrics(&settings);
    let told = |what: &str, times: usize| {
        eventually(what, || (server.log().matches(what).count() >= times).then_some(()));
    };
    let mut open = Tls::connect(&server);
    assert!(open.ask().contains(" 200 "));
    assert!(shown(&server).contains("first"));
    certificate(directory.path(), "second");
    server.hang_up();
    told("are read again", 1);
    assert!(shown(&server).contains("second"));
    assert!(open.ask().contains(" 200 "), "the connection from before goes on");
    // A certificate without its key, no certificate at all, and a key that everybody may read.
    let own = std::fs::read(&cert).unwrap();
    let own_key = std::fs::read(&key).unwrap();
    certificate(directory.path(), "third");
    std::fs::write(&key, own_key).unwrap();
    server.hang_up();
    told("nothing was changed", 1);
    std::fs::write(&cert, "no certificate").unwrap();
    server.hang_up();
    told("nothing was changed", 2);
    std::fs::write(&cert, own).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    server.hang_up();
    told("nothing was changed", 3);
    assert!(server.log().contains("chmod 600"), "{}", server.log());
    assert!(shown(&server).contains("second"));
    assert!(open.ask().contains(" 200 "));
}

/// Makes a certificate that ends an hour before so many days from now; when that is, in seconds since the Unix epoch.
fn ends_in(directory: &Path, days: i64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let ends = now.checked_add_signed(days * 24 * 3600 - 3600).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut made = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    made.not_before = rcgen::date_time_ymd(2020, 1, 1);
    made.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(ends);
    let made = made.self_signed(&key).unwrap();
    let at = |name: &str| directory.join(name);
    std::fs::write(at("cert.pem"), pem("CERTIFICATE", made.der())).unwrap();
    std::fs::write(at("key.pem"), pem("PRIVATE KEY", &key.serialize_der())).unwrap();
    std::fs::set_permissions(at("key.pem"), std::fs::Permissions::from_mode(0o600)).unwrap();
    ends
}

#[test]
fn a_certificate_that_ends_is_warned_of_at_start_and_when_it_is_read_again_and_stands_in_a_metric()
{
    let directory = tempfile::tempdir().unwrap();
    let first = ends_in(directory.path(), -3);
    let at = directory.path().display();
    let admin = "admin: { bind: \"127.0.0.1:0\" }\n";
    let config = directory.path().join("moim.yaml");
    let tls = format!("tls: {{ cert: {at}/cert.pem, key: {at}/key.pem }}\n");
    std::fs::write(&config, format!("{FREE_PORTS}{admin}{tls}")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_moim"));
    command.args(["serve", "--config"]).arg(&config);
    let server = Server::launch(command, directory);
    let at = config.parent().unwrap();
    let told = |what: &str| {
        eventually(what, || server.log().contains(what).then_some(()));
    };
    let ends = || {
        let script = format!("curl -ks https://{}/metrics", server.http);
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let metrics = String::from_utf8(output.stdout).unwrap();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("moim_certificate_not_after_seconds "));
        line.and_then(|value| value.parse::<u64>().ok()).unwrap_or_else(|| panic!("{metrics}"))
    };
    told("has expired");
    assert_eq!(ends(), first);
    let second = ends_in(at, 10);
    server.hang_up();
    told("ends in 9 days");
    assert_eq!(ends(), second);
    let third = ends_in(at, 90);
    server.hang_up();
    eventually("the third", || (ends() == third).then_some(()));
    assert_eq!(server.log().matches("the certificate ").count(), 2, "{}", server.log());
}

#[test]
fn settings_with_a_secret_that_others_may_read_start_no_server() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("moim.yaml");
    std::fs::write(&config, format!("{FREE_PORTS}keys: {{ ours: \"{OLD}\" }}\n")).unwrap();
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o644)).unwrap();
    // One that starts would run for ever.
    let mut command = Command::new("timeout");
    command.args(["20", env!("CARGO_BIN_EXE_moim"), "serve", "--config"]).arg(&config);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(104), "{told}");
    assert!(told.contains("run `chmod 600 ") && !told.contains(OLD), "{told}");
}
