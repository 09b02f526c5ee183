//! A server behind a link of its own: in a network namespace beside this one, reached over a veth pair whose far
//! side `tbf` limits, and under a CPU quota where asked. Needs root.

use super::pair::Pair;
use crate::base::{AS_CONTAINERS, Quota, Url, http};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PORT: u16 = 7880;
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
    pair: Pair,
    server: Option<Child>,
    quota: Option<Quota>,
    /// Where the server answers.
    pub url: Url,
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
        let pair = Pair::new().await?;
        let rate = format!("{}kbit", (limits.mbit_per_s * 1000.0).round());
        pair.run_there(&[
            "tc",
            "qdisc",
            "add",
            "dev",
            &pair.far(),
            "root",
            "tbf",
            "rate",
            &rate,
            "burst",
            "32k",
            "latency",
            "50ms",
        ])?;
        let url = Url { host: pair.far_address(), port: PORT };
        let mut this = Self { pair, server: None, quota: None, url };
        if let Some(cores) = limits.cores {
            this.quota = Some(Quota::new(cores, AS_CONTAINERS).map_err(|error| error.to_string())?);
        }
        this.serve(exe, (cpu, limits.fault), dir)?;
        this.wait_ready(dir).await?;
        Ok(this)
    }

    fn serve(
        &mut self,
        exe: &Path,
        (cpu, fault): (usize, Option<&str>),
        dir: &Path,
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
        let mut line = self.pair.there().to_vec();
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
        command.process_group(self.pair.group() as i32);
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
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
