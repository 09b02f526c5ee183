//! Sessions of a study: a scenario run, with its record read back.

use super::beside::{Beside, Running};
use super::limited::{Limited, Limits};
use super::name::Name;
use super::options::StudyOptions;
use crate::base::{self, mean};
use crate::clients::canary;
use crate::judge::generator::THREAD_CORES;
use crate::judge::summary::{Summary, exit};
use crate::judge::whole::{self, Record};
use crate::observe::metrics::Reduced;
use crate::record::{
    CpuSets, Level, LinkUsage, MachineRecord, Meta, PersonKind, Row, SampleRecord, SocketsSummary,
    ThreadUsage,
};
use crate::run::{self, Leader, LoadOptions};
use crate::scenario::{Executor, Scenario};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A finished session.
#[derive(Debug)]
pub struct Session {
    /// What was run.
    pub meta: Meta,
    /// How it came out.
    pub summary: Summary,
    /// All samples.
    pub samples: Vec<SampleRecord>,
    /// Usage of the machine.
    pub machine: Vec<MachineRecord>,
    /// Load average over the last minute at its end, of the whole machine.
    pub load_average: Option<f64>,
}

impl Session {
    /// Whether the generator was its limit.
    pub fn generator_was_limit(&self) -> bool {
        !self.summary.generator.healthy
    }

    /// Whether a thread of the generator had no time left.
    pub fn generator_was_saturated(&self) -> bool {
        let steady = self.machine.iter().skip(1);
        let threads = steady.filter_map(|record| record.generator.fullest_thread.as_ref());
        threads.map(ThreadUsage::wanted).fold(0.0, f64::max) >= THREAD_CORES
    }

    /// A metric's reductions.
    pub fn metric(&self, name: &str) -> Option<&Reduced> {
        self.summary.metrics.get(name)?.as_ref()
    }

    /// The only group of sockets.
    pub fn sockets(&self) -> Option<&SocketsSummary> {
        self.summary.sockets.first()
    }

    /// Server CPU, in cores.
    pub fn server_cores(&self) -> Option<f64> {
        self.summary.server.as_ref()?.cpu_cores
    }

    /// What the server spends on a packet of media that comes to somebody, in µs, in the second half: of any server, since
    /// the bots who get the packets count them.
    pub fn us_per_packet_came(&self) -> Option<f64> {
        let half_s = self.summary.duration_s / 2.0;
        let cores = self.mean_from(half_s, |record| record.server.as_ref()?.cpu_cores)?;
        let per_s = self.bots_together(half_s, |record| {
            let rows = record.sample.received.iter();
            let packets: u64 = rows.map(|row| row.packets_received).sum();
            1000.0 * packets as f64 / record.sample.interval_ms.max(1) as f64
        });
        (per_s > 0.0).then(|| 1e6 * cores / per_s)
    }

    /// What all bots together have in the mean over windows that end at `from_s` or later, `pick` of each sample counted by
    /// its length. For bursts, of which a median knows nothing.
    pub fn bots_together(&self, from_s: f64, pick: impl Fn(&SampleRecord) -> f64) -> f64 {
        let mut people = BTreeMap::<&str, (f64, f64)>::new();
        let bots = self.samples.iter().filter(|record| record.kind == PersonKind::Bot);
        for record in bots.filter(|record| record.t_ms as f64 / 1000.0 >= from_s) {
            let ms = record.sample.interval_ms as f64;
            let (sum, all_ms) = people.entry(&record.person).or_default();
            (*sum, *all_ms) = (*sum + pick(record) * ms, *all_ms + ms);
        }
        people.into_values().map(|(sum, ms)| sum / ms.max(1.0)).sum()
    }

    /// How often the server's signaling loop was over 5 ms late, and how late at worst, in ms; none where it does
    /// not tell.
    pub fn signaling_delay(&self) -> Option<(u64, f64)> {
        let told = self.machine.iter().filter_map(|r| r.server.as_ref()?.signaling_delay);
        told.reduce(|(sum, worst), (over, now)| (sum + over, now.max(worst)))
    }

    /// Mean of a figure over the windows that end at `from_s` or later.
    pub fn mean_from(
        &self,
        from_s: f64,
        pick: impl Fn(&MachineRecord) -> Option<f64>,
    ) -> Option<f64> {
        let windows = self.machine.iter().filter(|record| record.t_ms as f64 / 1000.0 >= from_s);
        mean(windows.filter_map(pick))
    }

    /// How much of its limited link the server used, in percent, over the windows that end at `from_s` or later.
    pub fn link_used_pct(&self, from_s: f64) -> Option<f64> {
        self.mean_from(from_s, |record| {
            let links = &record.server.as_ref()?.kernel.as_ref()?.links;
            let used = |link: &LinkUsage| Some(100.0 * link.mbit_per_s / link.limit_mbit_per_s?);
            links.iter().filter_map(used).reduce(f64::max)
        })
    }

    /// Mean of the busiest server thread, in cores, over windows that end in `[from_s, to_s)`.
    pub fn busiest_server_thread(&self, from_s: f64, to_s: f64) -> Option<f64> {
        self.server_threads(from_s, to_s, |_| true)
    }

    /// The largest mean, in cores, of a server thread whose name is wanted, over windows that end
    /// in `[from_s, to_s)`. Threads of one name are one.
    pub fn server_threads(
        &self,
        from_s: f64,
        to_s: f64,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<f64> {
        let (mut sums, mut windows) = (BTreeMap::<&str, f64>::new(), 0u32);
        for record in &self.machine {
            let t_s = record.t_ms as f64 / 1000.0;
            let Some(server) = record.server.as_ref().filter(|_| (from_s..to_s).contains(&t_s))
            else {
                continue;
            };
            windows += 1;
            for (name, cores) in server.threads.iter().filter(|(name, _)| wanted(name)) {
                *sums.entry(name).or_default() += cores;
            }
        }
        sums.into_values().reduce(f64::max).map(|most| most / f64::from(windows))
    }
}

/// Says in a row where the generator was the limit of its session.
pub(super) fn limits(mut row: Row, session: &Session) -> Row {
    for reason in &session.summary.generator.reasons {
        row = row.note(format!("lower bound only: {reason}"));
    }
    row
}

/// Runs sessions and keeps what the study's own record needs of them.
#[derive(Debug)]
pub struct Sessions {
    /// Which study.
    pub name: Name,
    /// Small and short.
    pub quick: bool,
    /// What was asked for.
    pub(super) asked: StudyOptions,
    options: LoadOptions,
    /// What broke first is to be proven.
    prove: bool,
    names: Vec<String>,
    missing: Vec<String>,
    people: usize,
    interrupted: bool,
    load_average_before: Vec<f64>,
    versions: BTreeMap<String, String>,
    cpus: Option<CpuSets>,
}

impl Sessions {
    /// Sessions whose records go into `dir`.
    pub fn new(options: &StudyOptions, dir: &Path) -> Self {
        Self {
            name: options.name,
            quick: options.quick,
            asked: options.clone(),
            options: LoadOptions {
                scenario: PathBuf::new(),
                runs_dir: dir.to_owned(),
                server_exe: options.server_exe.clone(),
                fault: None,
                prove: false,
                // Lines of many sessions stay readable one after the other.
                plain: true,
            },
            prove: false,
            names: Vec::new(),
            missing: Vec::new(),
            people: 0,
            interrupted: false,
            load_average_before: crate::observe::proc::machine().load_average,
            versions: BTreeMap::new(),
            cpus: None,
        }
    }

    /// The line of a scenario that starts the server on the first half of the CPUs, the generator
    /// on the rest; shared where there is one CPU only.
    pub fn serve(&self, shards: u32) -> String {
        self.serve_with(shards, "")
    }

    /// The same with more of what `serve` takes, such as `, quota_cores: 0.5`.
    pub(super) fn serve_with(&self, shards: u32, more: &str) -> String {
        let (all, cpus) =
            (net::thread::current_thread_cpus().unwrap_or_default(), Self::server_cpus());
        match all.len() {
            0 | 1 => format!("serve: {{ shards: {shards}, cpus: shared{more} }}\n"),
            _ => format!("serve: {{ shards: {shards}, cpus: {cpus:?}{more} }}\n"),
        }
    }

    /// The CPUs of servers that the study starts: the first half, or the only one.
    pub(super) fn server_cpus() -> Vec<usize> {
        let mut all = net::thread::current_thread_cpus().unwrap_or_default();
        all.truncate((all.len() / 2).max(1));
        all
    }

    /// Where the records of the sessions go.
    pub(super) fn dir(&self) -> &Path {
        &self.options.runs_dir
    }

    /// The binary that servers and further labs are started of.
    pub(super) fn exe(&self) -> std::io::Result<PathBuf> {
        self.options.server_exe.clone().map_or_else(std::env::current_exe, Ok)
    }

    /// Notes what the study lacks.
    pub(super) fn lacks(&mut self, what: String) {
        self.missing.push(what);
    }

    /// Whether there is a browser on this machine.
    pub fn has_chromium(&self) -> bool {
        self.no_chromium().is_none()
    }

    /// Why there is no browser on this machine, and what helps; none: there is one.
    pub(super) fn no_chromium(&self) -> Option<String> {
        let found = canary::find("chromium", &std::env::var_os("PATH").unwrap_or_default());
        found.is_none().then(|| format!("there is no chromium on PATH: {}", canary::INSTALL))
    }

    /// Runs a scenario; `text` is all of it but its name. One whose generator was its limit is run again, once,
    /// where there is the time.
    ///
    /// # Errors
    /// Why there is no such session: a reason for the cells of its row. It counts as missing.
    pub async fn run(&mut self, name: &str, text: &str) -> Result<Session, String> {
        let mut result = self.try_run(name, text, None).await;
        if !self.quick && result.as_ref().is_ok_and(Session::generator_was_limit) {
            errln!("  and again: the generator was its limit");
            result = self.try_run(name, text, None).await;
        }
        self.miss(name, &result);
        result
    }

    /// Runs a scenario whose people are led, and who may fail to come in: that is for the leader to judge.
    ///
    /// # Errors
    /// As [`Sessions::run`].
    pub(super) async fn run_led(
        &mut self,
        name: &str,
        text: &str,
        leader: &mut dyn Leader,
    ) -> Result<Session, String> {
        let text =
            format!("# How many people are there is decided on the way, by the study.\n{text}");
        let result = self.try_run(name, &text, Some(leader)).await;
        self.miss(name, &result);
        result
    }

    fn miss(&mut self, name: &str, result: &Result<Session, String>) {
        if let Err(reason) = result {
            self.missing.push(format!("session {name}: {reason}"));
        }
    }

    /// Runs a scenario once, whatever the limit was: for sessions that look for one.
    ///
    /// # Errors
    /// As [`Sessions::run`].
    pub(super) async fn run_once(&mut self, name: &str, text: &str) -> Result<Session, String> {
        let result = self.try_run(name, text, None).await;
        self.miss(name, &result);
        result
    }

    /// Starts a server that is to stand beside moim, once, to see that it can be; its name, with its version.
    ///
    /// # Errors
    /// Why it cannot. It counts as missing.
    pub(super) async fn meet(&mut self, beside: &Beside) -> Result<String, String> {
        let server = self.start(beside).await?;
        self.versions.insert(server.program(), server.version.clone());
        let name = server.name();
        server.stop().await;
        Ok(name)
    }

    /// Runs a scenario once at a server of our own, or at one beside it, which is started for it; `text`: all but name
    /// and target.
    ///
    /// # Errors
    /// As [`Sessions::run`], and where the server cannot be started. Who could not come in at a server of others is not
    /// missing: that says something of the server.
    pub(super) async fn run_at(
        &mut self,
        beside: Option<&Beside>,
        name: &str,
        text: &str,
    ) -> Result<Session, String> {
        let Some(beside) = beside else {
            let text = self.serve(1) + text;
            return self.run_once(name, &text).await;
        };
        let server = self.start(beside).await?;
        let missing = self.missing.len();
        let result = self.try_run(name, &format!("{}{text}", server.target()), None).await;
        server.stop().await;
        self.missing.truncate(missing);
        self.miss(name, &result);
        result
    }

    async fn start(&mut self, beside: &Beside) -> Result<Running, String> {
        if self.interrupted {
            return Err("the study was interrupted before".into());
        }
        let started = beside.start(&Self::server_cpus(), self.dir()).await;
        started.inspect_err(|reason| self.missing.push(reason.clone()))
    }

    /// Runs a scenario against a server behind a link of its own; with `prove` once more, to prove what broke first.
    /// `text`: all but name and target.
    ///
    /// # Errors
    /// As [`Sessions::run`], and where there can be no such link.
    pub(super) async fn run_limited(
        &mut self,
        name: &str,
        (limits, prove): (Limits, bool),
        text: &str,
    ) -> Result<Session, String> {
        let cpu = net::thread::current_thread_cpus().unwrap_or_default().first().copied();
        let (exe, dir) = (self.exe(), self.options.runs_dir.clone());
        let started = match exe {
            Ok(exe) => Limited::start(&exe, limits, cpu.unwrap_or(0), &dir).await,
            Err(error) => Err(format!("this binary is not to be found: {error}")),
        };
        let result = match started {
            Err(reason) => Err(reason),
            Ok(server) => {
                let text = format!("target: {{ url: \"{}\" }}\n{text}", server.url);
                self.prove = prove;
                let ran = self.try_run(name, &text, None).await;
                self.prove = false;
                ran
            }
        };
        self.miss(name, &result);
        result
    }

    async fn try_run(
        &mut self,
        name: &str,
        text: &str,
        leader: Option<&mut dyn Leader>,
    ) -> Result<Session, String> {
        if self.interrupted {
            return Err("the study was interrupted before".into());
        }
        errln!("--- session {name}");
        let text = format!("name: {name}\n{text}");
        let read = Scenario::parse(&text, name);
        let mut scenario = read.map_err(|problems| problems.to_string())?;
        let led = leader.is_some();
        if led {
            scenario.rooms.iter_mut().for_each(|room| room.executor = Executor::Led);
        }
        let ran = run::run_scenario(
            &scenario,
            &self.options,
            run::bots_of_this_build(&self.options),
            base::asked_to_end(),
            leader,
        )
        .await;
        let ran = ran.and_then(run::Run::whole);
        let mut ran = ran.map_err(|no_run| no_run.to_string())?;
        if self.prove {
            let path = self.options.runs_dir.join(format!("{name}.yaml"));
            std::fs::write(&path, &text).map_err(|error| error.to_string())?;
            let options = LoadOptions { scenario: path, ..self.options.clone() };
            run::prove(&mut ran, &options).await;
        }
        let missing = self.missing.len();
        let session = self.take(name, &ran.dir);
        if led {
            // Who could not come in is for the leader to judge.
            self.missing.truncate(missing);
        }
        session
    }

    /// Takes up a session that has just ended, by its record.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(super) fn take(&mut self, name: &str, dir: &Path) -> Result<Session, String> {
        let load_average = crate::observe::proc::machine().load_average.first().copied();
        let Record { meta, summary, samples, machine, events } =
            whole::read(dir).map_err(|error| error.to_string())?;
        self.interrupted |= summary.exit_code == exit::INTERRUPTED;
        self.people += summary.people;
        if dir.join("report.html").exists() {
            self.names.push(dir.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        if summary.people < meta.people.len() {
            let all = meta.people.len();
            self.missing.push(format!("session {name}: {} of {all} people joined", summary.people));
        }
        for event in events.iter().filter(|event| event.level == Level::Error).take(3) {
            errln!("  {}", event.text);
        }
        self.versions.extend(meta.machine.versions.clone());
        self.cpus = meta.cpus.clone().or(self.cpus.take());
        Ok(Session { meta, summary, samples, machine, load_average })
    }

    /// No other session is run.
    pub(super) fn interrupt(&mut self) {
        self.interrupted = true;
    }

    /// Directories of the records that have a report, in order.
    pub fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Sessions that could not be run, and people who did not join.
    pub fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    /// People who joined, over all sessions.
    pub fn people(&self) -> usize {
        self.people
    }

    /// Whether a session was interrupted: no other is run then.
    pub fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// Load average of the machine before the first session.
    pub fn load_average_before(&self) -> Vec<f64> {
        self.load_average_before.clone()
    }

    /// Versions of what took part.
    pub fn versions(&self) -> BTreeMap<String, String> {
        self.versions.clone()
    }

    /// Who ran on which CPUs, in the last session of a server of its own.
    pub fn cpus(&self) -> Option<CpuSets> {
        self.cpus.clone()
    }
}
