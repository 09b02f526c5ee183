//! Starts a server of our own for a run, as a child of the same binary on ports of its own.

use super::cpus;
use crate::base::guard::Guard;
use crate::base::{AS_A_SLOW_CPU, FloorReading, FloorWatch, Quota, SteadyQuota, Url, http};
use crate::clients::login::Login;
use crate::scenario::{MAX_MESH, RoomGroup, Scenario, ServeOptions};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long the server may take to answer after its start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long it may take to end after being asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// An attempt to see whether it is ready may take so long.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// What says that a server is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// It answers `/healthz`.
    Healthy,
    /// It takes connections.
    Listens,
}

/// The server's limits, as wide as the load needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    sockets: u32,
    requests_per_second: u32,
    participants_per_room: u32,
    participants_per_mesh: u32,
    audio_slots: u32,
    video_slots: u32,
    /// Some log in with a token.
    users: bool,
}

impl Limits {
    /// The server's own defaults (docs/serve.md), widened to what the scenario does.
    pub fn of(scenario: &Scenario) -> Self {
        let people: u32 = scenario.bots() + scenario.chromium();
        let asked = |room: &RoomGroup| room.ahead.as_ref().and_then(|ahead| ahead.max_participants);
        let size = |room: &RoomGroup| asked(room).unwrap_or(0).max(room.bots + room.chromium);
        let room = scenario.rooms.iter().map(size).max().unwrap_or(0);
        let sockets: u32 = scenario.sockets.iter().map(|group| group.connections).sum();
        let rate = scenario.sockets.iter().map(|group| group.rate_per_second).fold(0.0, f64::max);
        Self {
            sockets: (sockets + people + 100).max(10_000),
            // Twice the rate: a client that was held up may catch up.
            requests_per_second: ((rate * 2.0) as u32).max(200),
            participants_per_room: room.max(500),
            participants_per_mesh: room.clamp(8, MAX_MESH),
            audio_slots: room.clamp(16, 64),
            video_slots: room.clamp(64, 256),
            users: scenario.browsers_churn(),
        }
    }
}

/// A server of our own.
#[derive(Debug)]
pub struct OwnServer {
    child: Child,
    pid: u32,
    /// Kept while the server runs: if the lab is killed, the guard ends the server.
    _guard: Guard,
    /// Holds its quota, which is removed when the server has ended.
    floor: Option<FloorWatch>,
    /// How its users log in.
    pub login: Option<Arc<Login>>,
    /// Where it answers.
    pub url: Url,
}

impl OwnServer {
    /// Starts `exe serve --config …` and waits until it answers. Its configuration and its output
    /// are `server.yaml` and `server.log` in `dir`.
    ///
    /// # Errors
    /// It cannot be started, ends at once or does not answer in time. The error has the end of its log.
    pub async fn start(
        exe: &Path,
        options: &ServeOptions,
        limits: Limits,
        cpus: &[usize],
        dir: &Path,
    ) -> io::Result<Self> {
        let login = limits.users.then(|| Login::new(exe.to_owned())).transpose()?.map(Arc::new);
        let keys = login.as_ref().map(|login| login.settings()).unwrap_or_default();
        let http_port = free_port()?;
        let media_port = free_media_ports(options.shards)?;
        let config = dir.join("server.yaml");
        fs::write(&config, configuration(options, limits, http_port, media_port) + &keys)?;
        let mut command = Command::new(exe);
        command.arg("serve").arg("--config").arg(&config);
        if let Some(fault) = &options.fault {
            command.args(["--for-tests", "--fault", fault]);
        }
        let url = Url { host: "127.0.0.1".into(), port: http_port };
        let log = dir.join("server.log");
        let mut server = Self::run(command, (url, Ready::Healthy), cpus, &log).await?;
        let quota =
            options.quota_cores.map(|cores| Quota::new(cores, AS_A_SLOW_CPU)).transpose()?;
        if let Some(quota) = &quota {
            quota.take(server.pid)?;
        }
        if quota.is_some() || options.floor {
            let mut quota = quota.map(SteadyQuota::new);
            let follow =
                move |floor_ms| quota.as_mut().map_or(Ok(()), |quota| quota.follow(floor_ms));
            server.floor = Some(FloorWatch::start(cpus.to_vec(), follow)?);
        }
        Ok(Self { login, ..server })
    }

    /// Runs any server that answers at an address of this machine, and waits until it is ready.
    ///
    /// # Errors
    /// As [`OwnServer::start`].
    pub(crate) async fn run(
        mut command: Command,
        (url, ready): (Url, Ready),
        cpus: &[usize],
        log_path: &Path,
    ) -> io::Result<Self> {
        let log = File::create(log_path)?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A group of its own: Ctrl-C is for the lab, which ends the server after the report.
            .process_group(0)
            .kill_on_drop(true);
        let mut guard = Guard::start(None)?;
        let exe = command.as_std().get_program().to_owned();
        let child = cpus::with_cpus(cpus, || command.spawn())
            .map_err(|error| io::Error::other(format!("{}: {error}", exe.display())))?;
        let pid = child.id().ok_or_else(|| io::Error::other("the server ended at once"))?;
        guard.watch(pid)?;
        let (floor, login) = (None, None);
        let mut server = Self { child, pid, _guard: guard, floor, login, url };
        match server.wait_ready(ready).await {
            Ok(()) => Ok(server),
            Err(error) => {
                server.stop().await;
                let log = fs::read_to_string(log_path).unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(5).collect();
                let tail: Vec<&str> = lines.into_iter().rev().collect();
                Err(io::Error::other(format!("{error}; its log ends:\n{}", tail.join("\n"))))
            }
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What a fixed piece of work costs on its CPUs, if that is measured.
    pub(crate) fn floor(&self) -> Option<FloorReading> {
        self.floor.as_ref().map(FloorWatch::reading)
    }

    async fn wait_ready(&mut self, ready: Ready) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the server ended at its start ({status})")));
            }
            let is_ready = match ready {
                Ready::Healthy => http::get(&self.url, "/healthz", READY_TIMEOUT).await.is_ok(),
                Ready::Listens => {
                    let connected =
                        timeout(READY_TIMEOUT, TcpStream::connect(self.url.authority()));
                    connected.await.is_ok_and(|connected| connected.is_ok())
                }
            };
            if is_ready {
                return Ok(());
            }
            if begin.elapsed() > START_TIMEOUT {
                return Err(io::Error::other("the server did not answer in time"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether it has ended by itself, and how.
    pub fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// Ends it: asks first, then kills.
    pub async fn stop(&mut self) {
        let group = self.child.id().and_then(|id| Pid::from_raw(id as i32));
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::INT);
        }
        if timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
        // Children of its own that ignored SIGINT, as what a shell runs with `&` does.
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// A port of 127.0.0.1 that nobody has.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A base port whose neighbours (one a shard) are free for UDP and TCP.
fn free_media_ports(shards: u16) -> io::Result<u16> {
    for _ in 0..50 {
        let base = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let Some(last) = base.checked_add(shards) else { continue };
        let free = |port: u16| {
            UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
                && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
        };
        if (base..last).all(free) {
            return Ok(base);
        }
    }
    Err(io::Error::other("no free ports for media"))
}

fn configuration(
    options: &ServeOptions,
    limits: Limits,
    http_port: u16,
    media_port: u16,
) -> String {
    let Limits {
        sockets,
        requests_per_second,
        participants_per_room,
        participants_per_mesh,
        audio_slots,
        video_slots,
        users: _,
    } = limits;
    let together = options.keep_together.map(|people| format!(", keep_together: {people}"));
    let together = together.unwrap_or_default();
    format!(
        "http: {{ bind: \"127.0.0.1:{http_port}\" }}\nguests: all\n\
         admin: {{ bind: \"127.0.0.1:{http_port}\" }}\n\
         media: {{ bind: [127.0.0.1], port: {media_port}, shards: {}{together} }}\n\
         limits: {{ sockets: {sockets}, connections_per_address: 1000000, requests_per_second: {requests_per_second}, \
         participants_per_room: {participants_per_room}, participants_per_mesh: {participants_per_mesh}, audio_slots: {audio_slots}, \
         video_slots: {video_slots} }}\n",
        options.shards
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn limits() -> Limits {
        let text = "name: x\nserve: {}\nduration: 5s\n\
                    sockets: [{ connections: 18000, arrival_per_second: 9000, rate_per_second: 425 }]\n";
        Limits::of(&Scenario::parse(text, "x.yaml").expect("valid"))
    }

    fn cpus() -> Vec<usize> {
        net::thread::current_thread_cpus().expect("cpus")
    }

    /// A stand-in for the binary: a script in place of `moim serve --config FILE`.
    fn script(dir: &Path, text: &str) -> std::path::PathBuf {
        let path = dir.join("moim");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
        path
    }

    #[tokio::test]
    async fn a_server_that_ends_at_its_start_is_told_with_its_log() {
        let dir = tempfile::tempdir().expect("tempdir");
        let exe = script(dir.path(), "echo \"$1 $2\"; echo the reason >&2; exit 3");
        let options = ServeOptions { shards: 2, ..ServeOptions::default() };
        let error = OwnServer::start(&exe, &options, limits(), &cpus(), dir.path())
            .await
            .expect_err("ended");
        let text = error.to_string();
        assert!(text.contains("ended at its start") && text.contains("serve --config"), "{text}");
        assert!(text.contains("the reason"), "{text}");
        let config = fs::read_to_string(dir.path().join("server.yaml")).expect("config");
        assert!(config.contains("sockets: 18100") && config.contains("per_second: 850"));
        assert!(config.contains("shards: 2") && config.contains("http: { bind: \"127.0.0.1:"));
        let missing =
            OwnServer::start(Path::new("/nowhere/moim"), &options, limits(), &cpus(), dir.path())
                .await;
        assert!(missing.expect_err("missing").to_string().contains("/nowhere/moim"));
    }

    #[test]
    fn a_room_may_be_made_larger_than_those_who_come() {
        let text = "name: x\nserve: {}\nduration: 60s\n\
                    rooms: [{ preset: large_room_for_audio_only, create: api, max_participants: 800, people: { bot: 450 } }]\n\
                    media: { video: none }\n";
        let limits = Limits::of(&Scenario::parse(text, "x.yaml").expect("valid"));
        assert_eq!(limits.participants_per_room, 800);
    }

    #[test]
    fn a_mesh_of_sixteen_finds_room() {
        let text = "name: x\nserve: {}\nduration: 5s\n\
                    rooms: [{ audio: mesh, video: mesh, people: { bot: 16 } }]\n";
        let limits = Limits::of(&Scenario::parse(text, "x.yaml").expect("valid"));
        let settings = configuration(&ServeOptions::default(), limits, 1, 2);
        assert!(settings.contains("participants_per_mesh: 16"), "{settings}");
    }

    #[tokio::test]
    async fn a_server_that_answers_is_ended_with_its_children() {
        let dir = tempfile::tempdir().expect("tempdir");
        let program = "const fs = require('fs'), http = require('http');
const port = +/127\\.0\\.0\\.1:([0-9]+)/.exec(fs.readFileSync(process.argv[2], 'utf8'))[1];
const answer = (_, to) => to.writeHead(200, { connection: 'close' }).end('ok');
http.createServer(answer).listen(port, '127.0.0.1');";
        fs::write(dir.path().join("server.cjs"), program).expect("write");
        let exe = script(dir.path(), "node \"$(dirname \"$0\")/server.cjs\" \"$3\"");
        let options = ServeOptions::default();
        let mut server =
            OwnServer::start(&exe, &options, limits(), &cpus(), dir.path()).await.expect("starts");
        assert_eq!(server.ended(), None);
        let text = http::get(&server.url, "/healthz", Duration::from_secs(5)).await.expect("get");
        assert_eq!(text, "ok");
        server.stop().await;
        assert!(server.ended().is_some());
        assert!(http::get(&server.url, "/", Duration::from_secs(1)).await.is_err(), "all gone");
    }
}
