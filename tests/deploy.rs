//! What `deploy/` says, as far as a machine without an init system and a container engine can tell.

use crate::target::{FREE_PORTS, Server, Socket, use_tls};
use serde_json::json;
use server::config::Config;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

const UNIT: &str = include_str!("../deploy/moim.service");
const IMAGE: &str = include_str!("../deploy/Containerfile");

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The values of a directive, in order.
fn directive<'a>(name: &str) -> Vec<&'a str> {
    UNIT.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

/// What a line of the Containerfile says.
fn instruction(name: &str) -> &'static str {
    let line = IMAGE.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in the Containerfile"))
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn join_and_leave(server: &Server) {
    let mut socket = Socket::connect(server);
    socket.ask("room.join", json!({ "room": "a", "name": "a" }));
    socket.ask("room.leave", json!({}));
}

#[test]
fn the_unit_is_one_that_systemd_takes_and_asks_for_no_privilege() {
    assert_eq!(directive("CapabilityBoundingSet"), [""]);
    assert_eq!(directive("NoNewPrivileges"), ["yes"]);
    assert_eq!(directive("ProtectSystem"), ["strict"]);
    assert_eq!(directive("User"), ["moim"]);
    assert!(directive("ExecReload")[0].contains("kill -HUP $MAINPID"));
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("no systemd-analyze here: what systemd says of the unit was not asked");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("moim.service");
    // It looks for the binary, which is somewhere else here.
    let text = UNIT.replace("/usr/local/bin/moim", env!("CARGO_BIN_EXE_moim"));
    std::fs::write(&unit, text).unwrap();
    let verified = output(Command::new("systemd-analyze").arg("verify").arg(&unit));
    let told = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && told.trim().is_empty(), "{told}");
    // 20 stands for an exposure of 2.0 of 10.
    let judged = output(
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--threshold=20", "--no-pager"])
            .arg(&unit),
    );
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
}

#[test]
fn the_server_runs_within_the_limits_of_its_unit() {
    if !root() {
        eprintln!("not root: the unit's user and limits cannot be taken on");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = directory.path().join("moim.yaml");
    std::fs::write(&config, FREE_PORTS).unwrap();
    let files: u64 = directive("LimitNOFILE")[0].parse().unwrap();
    // A nice value of -10 is a resource limit of 30 (getrlimit(2)).
    let nice = 20 - directive("LimitNICE")[0].parse::<i32>().unwrap();
    // A container's root may not raise every limit.
    let may = |limit: &str| output(Command::new("prlimit").args([limit, "true"])).status.success();
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let files = files.min(most.unwrap_or(u64::MAX));
    let nice = Some(format!("--nice={nice}:{nice}")).filter(|nice| may(nice));
    let start = directive("ExecStart")[0].strip_prefix("/usr/local/bin/moim ").unwrap();
    // Only root may raise a hard limit: before the user changes.
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--nofile={files}:{files}"))
        .args(&nice)
        .args([
            "setpriv",
            "--reuid",
            "65533",
            "--regid",
            "65533",
            "--clear-groups",
            "--no-new-privs",
        ])
        .args(["--bounding-set", "-all", "--inh-caps", "-all", env!("CARGO_BIN_EXE_moim")])
        .args(start.replace("/etc/moim/moim.yaml", config.to_str().unwrap()).split(' '));
    let mut server = Server::launch(command, directory);
    join_and_leave(&server);
    let log = server.log();
    match nice {
        Some(_) => assert!(!log.contains("no right to a higher priority"), "LimitNICE: {log}"),
        None => eprintln!("LimitNICE cannot be tried here"),
    }
    assert!(!log.contains("runs as root"), "{log}");
    server.terminate();
    assert!(server.wait().success());
}

#[test]
fn the_image_has_all_that_the_server_needs_and_no_root() {
    assert_eq!(instruction("FROM"), "scratch");
    assert_eq!(instruction("COPY"), "dist/rootfs/ /");
    if !root() {
        eprintln!("not root: the image's files cannot be run by chroot");
        return;
    }
    let user = instruction("USER");
    let list = |name| serde_json::from_str::<Vec<String>>(instruction(name)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (stripped, rootfs) = (directory.path().join("moim"), directory.path().join("rootfs"));
    let strip = output(
        Command::new("strip")
            .args(["--strip-debug", "-o"])
            .arg(&stripped)
            .arg(env!("CARGO_BIN_EXE_moim")),
    );
    assert!(strip.status.success());
    let most = 40_000_000;
    let bytes = std::fs::metadata(&stripped).unwrap().len();
    assert!(bytes < most, "the binary for others has {bytes} of at most {most} bytes");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/rootfs.sh");
    let made = output(Command::new(script).arg(&stripped).arg(&rootfs));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let config = rootfs.join("etc/moim/moim.yaml");
    std::fs::write(&config, FREE_PORTS).unwrap();
    chown(&config, Some(65532), Some(65532)).unwrap();
    let mut command = Command::new("chroot");
    command.arg(format!("--userspec={user}")).arg("--groups=").arg(&rootfs);
    command.args(list("ENTRYPOINT")).args(list("CMD"));
    let mut server = Server::launch(command, directory);
    assert_eq!(server.get("/healthz", "").2, "ok\n");
    join_and_leave(&server);
    assert_eq!(instruction("STOPSIGNAL"), "SIGTERM");
    server.terminate();
    assert!(server.wait().success());
}

#[test]
fn the_settings_to_start_from_start_as_they_stand_for_ipv4_and_ipv6() {
    let directory = tempfile::tempdir().unwrap();
    drop(use_tls(&directory));
    std::fs::rename(directory.path().join("cert.pem"), directory.path().join("fullchain.pem"))
        .unwrap();
    std::fs::rename(directory.path().join("key.pem"), directory.path().join("privkey.pem"))
        .unwrap();
    let secret = directory.path().join("app.key");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = include_str!("../deploy/moim.yaml");
    let config = Config::parse(text, "moim.yaml", directory.path());
    let config = config.unwrap_or_else(|problems| panic!("{problems}"));
    assert!(
        config.tls.is_some() && config.keys.len() == 1 && config.admin.bind[0].ip().is_loopback()
    );
    // Its ports are those of everybody: in a network of its own.
    let mut command = Command::new("unshare");
    command.args(if root() { ["-n"].as_slice() } else { ["-r", "-n"].as_slice() });
    let started = "ip link set lo up && exec \"$0\" serve --config \"$1\"";
    let path = directory.path().join("moim.yaml");
    std::fs::write(&path, text).unwrap();
    command.args(["sh", "-c", started, env!("CARGO_BIN_EXE_moim")]).arg(&path);
    let mut server = Server::launch(command, directory);
    let listening = |family: &str, address: &str| {
        let table =
            std::fs::read_to_string(format!("/proc/{}/net/{family}", server.pid())).unwrap();
        // 0A: it listens (include/net/tcp_states.h).
        table.lines().any(|line| line.contains(&format!("{address} ")) && line.contains(" 0A "))
    };
    assert!(listening("tcp", "00000000:1EC8"), "0.0.0.0:7880");
    assert!(listening("tcp6", "00000000000000000000000000000000:1EC8"), "[::]:7880");
    assert!(listening("tcp", "0100007F:238C"), "127.0.0.1:9100");
    server.terminate();
    assert!(server.wait().success());
}
