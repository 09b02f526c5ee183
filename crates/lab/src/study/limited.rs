//! A server behind a link of its own: in a network namespace beside this one, reached over a veth pair whose far
//! side `tbf` limits, and under a CPU quota where asked. Needs root.

use crate::base::guard::Guard;
use crate::base::{AS_CONTAINERS, Quota, Url, http};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The networks for documentation of RFC 5737: the link takes one that this machine has no address in.
const NETS: [&str; 3] = ["192.0.2", "198.51.100", "203.0.113"];
const PORT: u16 = 7880;
/// The namespace ends by itself after so many seconds.
const LONGEST: &str = "1800";
/// The server has so long to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the server has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Of its link, to the people.
    pub mbit_per_s: f64,
    /// Of CPU; none: all of it.
    pub cores: Option<f64>,
    /// A fault that it makes on purpose, as `moim serve --fault` takes it.
    pub fault: Option<&'static str>,
}

/// A server behind its link; dropping it ends both.
#[derive(Debug)]
pub(super) struct Limited {
    holder: Child,
    server: Option<Child>,
    near: String,
    quota: Option<Quota>,
    /// Where the server answers.
    pub url: Url,
    _guard: Guard,
}

impl Limited {
    /// Starts `exe serve` behind a link of its own, on one CPU; its settings and its log go into `dir`.
    ///
    /// # Errors
    /// What could not be made, in words: no root, no namespaces, no `tbf`.
    pub(super) async fn start(
        exe: &Path,
        limits: Limits,
        cpu: usize,
        dir: &Path,
    ) -> Result<Self, String> {
        let near = format!("moim-a{}", std::process::id());
        let far = format!("moim-b{}", std::process::id());
        let mut guard = Guard::start(None).map_err(|error| error.to_string())?;
        let holder = Command::new("unshare")
            .args(["-n", "sleep", LONGEST])
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let group = holder.id();
        guard.watch(group).map_err(|error| error.to_string())?;
        let net = free_net()?;
        let url = Url { host: format!("{net}.2"), port: PORT };
        let mut this = Self { holder, server: None, near, quota: None, url, _guard: guard };
        // Until the child has its namespace.
        tokio::time::sleep(Duration::from_millis(300)).await;
        this.link(&far, net, limits.mbit_per_s)?;
        if let Some(cores) = limits.cores {
            this.quota = Some(Quota::new(cores, AS_CONTAINERS).map_err(|error| error.to_string())?);
        }
        this.serve(exe, (cpu, limits.fault), dir, group)?;
        this.wait_ready(dir).await?;
        Ok(this)
    }

    fn inside(&self) -> Vec<String> {
        vec!["nsenter".into(), format!("--net=/proc/{}/ns/net", self.holder.id())]
    }

    fn link(&self, far: &str, net: &str, mbit_per_s: f64) -> Result<(), String> {
        let near = self.near.as_str();
        let holder = self.holder.id().to_string();
        let inside = self.inside();
        let inside = |line: &[&str]| {
            let line = line.iter().map(|word| (*word).to_owned());
            inside.iter().cloned().chain(line).collect::<Vec<_>>()
        };
        let rate = format!("{}kbit", (mbit_per_s * 1000.0).round());
        let outside = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect();
        let lines: [Vec<String>; 7] = [
            outside(&["ip", "link", "add", near, "type", "veth", "peer", "name", far]),
            outside(&["ip", "link", "set", far, "netns", &holder]),
            outside(&["ip", "address", "add", &format!("{net}.1/30"), "dev", near]),
            outside(&["ip", "link", "set", near, "up"]),
            inside(&["ip", "address", "add", &format!("{net}.2/30"), "dev", far]),
            inside(&["ip", "link", "set", far, "up"]),
            inside(&[
                "tc", "qdisc", "add", "dev", far, "root", "tbf", "rate", &rate, "burst", "32k",
                "latency", "50ms",
            ]),
        ];
        lines.iter().try_for_each(|line| must(line))
    }

    fn serve(
        &mut self,
        exe: &Path,
        (cpu, fault): (usize, Option<&str>),
        dir: &Path,
        group: u32,
    ) -> Result<(), String> {
        let config = dir.join("limited.yaml");
        let host = &self.url.host;
        let text = format!(
            "http: {{ bind: \"{host}:{PORT}\" }}\nadmin: {{ bind: \"{host}:{PORT}\" }}\nmedia: {{ bind: [{host}] }}\nguests: all\n\
             limits: {{ participants_per_room: 500, connections_per_address: 4096 }}\n"
        );
        let written =
            fs::write(&config, text).and_then(|()| fs::File::create(dir.join("limited.log")));
        let log = written.map_err(|error| format!("{}: {error}", dir.display()))?;
        let mut line = self.inside();
        if let Some(quota) = &self.quota {
            let enter = format!("echo $$ > {} && exec \"$@\"", quota.procs().display());
            line.extend(["sh".into(), "-c".into(), enter, "sh".into()]);
        }
        line.extend(["taskset".into(), "-c".into(), cpu.to_string()]);
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).arg(exe).args(["serve", "--config"]).arg(&config);
        if let Some(fault) = fault {
            command.args(["--for-tests", "--fault", fault]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.process_group(group as i32);
        self.server = Some(command.spawn().map_err(|error| format!("{}: {error}", line[0]))?);
        Ok(())
    }

    async fn wait_ready(&mut self, dir: &Path) -> Result<(), String> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if http::get(&self.url, "/healthz", Duration::from_secs(1)).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let log = fs::read_to_string(dir.join("limited.log")).unwrap_or_default();
        let last = log.lines().next_back().unwrap_or_default();
        Err(format!("the server behind the link did not answer; its log ends: {last}"))
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        for child in self.server.iter_mut().chain([&mut self.holder]) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Where the far end is gone already, so is this one.
        let _ =
            Command::new("ip").args(["link", "delete", &self.near]).stderr(Stdio::null()).status();
    }
}

/// The first of [`NETS`] that no interface here has an address in.
pub(super) fn free_net() -> Result<&'static str, String> {
    let shown = Command::new("ip").args(["-4", "-o", "address"]).output();
    let shown = shown.map_err(|error| format!("ip: {error}"))?;
    let taken = String::from_utf8_lossy(&shown.stdout);
    let free = NETS.into_iter().find(|net| !taken.contains(&format!(" {net}.")));
    free.ok_or_else(|| format!("no address for the link: this machine has some in {NETS:?}"))
}

/// Runs a command line, which must succeed.
pub(super) fn must(line: &[String]) -> Result<(), String> {
    let output = Command::new(&line[0]).args(&line[1..]).output();
    let output = output.map_err(|error| format!("{}: {error}", line[0]))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` failed: {} (links need root)", line.join(" "), why.trim()))
}
