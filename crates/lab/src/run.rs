//! A run from the scenario to the report.

use crate::bots::{self, BotCommand, BotDriver, BotError, BotSpec, Media, SlotPool, VideoSource};
use crate::canary::{self, Browser};
use crate::checks;
use crate::cpus::{self, CpuSets};
use crate::kernel;
use crate::link::networks::{Networks, network_of};
use crate::monitor::Monitor;
use crate::person::{self, Place};
use crate::proc;
use crate::progress::{About, Phase, Progress};
use crate::prove::Changed;
use crate::record::{
    self, Level, MachineRecord, Meta, PersonKind, PersonMeta, SCHEMA, TargetMeta, Writer,
};
use crate::report;
use crate::scenario::{Scenario, Target, Url};
use crate::serve::{Limits, OwnServer};
use crate::signaling::Signaling;
use crate::sockets::{self, SocketsSummary};
use crate::stage::{Stage, Told};
use crate::summary::{self, Input, Summary, exit};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use wire::quality::SAMPLE_INTERVAL_MS;
use wire::room::VideoTopology;

/// People have so long to leave at the end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// The target has so long to answer at all.
const REACH_TIMEOUT: Duration = Duration::from_secs(4);
/// How often the progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// What `moim load` is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// The scenario file.
    pub scenario: PathBuf,
    /// Where records go.
    pub runs_dir: PathBuf,
    /// The binary whose `serve` is started for `serve:` scenarios; none: this one.
    pub server_exe: Option<PathBuf>,
    /// Whether the scenario runs once more with the first bottleneck's resource changed.
    pub prove: bool,
    /// Plain lines on stderr, even where it is a terminal.
    pub plain: bool,
}

/// Why there is no run at all.
#[derive(Debug)]
pub(crate) struct NoRun {
    code: u8,
    text: String,
}

impl NoRun {
    fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for NoRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<io::Error> for NoRun {
    fn from(error: io::Error) -> Self {
        Self::new(exit::BAD_CONFIGURATION, error.to_string())
    }
}

/// A finished run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) dir: PathBuf,
    pub(crate) meta: Meta,
    pub(crate) summary: Summary,
    pub(crate) machine: Vec<MachineRecord>,
}

/// Runs a scenario; `interrupt` ends it early, with a full report.
pub(crate) async fn run<D: BotDriver>(
    options: &LoadOptions,
    start_bots: impl FnOnce(&Url) -> Result<D, BotError>,
    interrupt: impl Future<Output = ()>,
) -> Result<Run, NoRun> {
    let scenario = Scenario::read(&options.scenario)
        .map_err(|problems| NoRun::new(exit::BAD_CONFIGURATION, problems.to_string()))?;
    run_scenario(&scenario, options, start_bots, interrupt).await
}

/// Runs a scenario that was read or made already; `options.scenario` is not looked at.
pub(crate) async fn run_scenario<D: BotDriver>(
    scenario: &Scenario,
    options: &LoadOptions,
    start_bots: impl FnOnce(&Url) -> Result<D, BotError>,
    interrupt: impl Future<Output = ()>,
) -> Result<Run, NoRun> {
    if scenario.browsers() > 0 {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if canary::find("chromium", &path).is_none() {
            let text = format!(
                "the scenario has chromium people, and there is no chromium on PATH: {}",
                canary::INSTALL
            );
            return Err(NoRun::new(exit::BAD_CONFIGURATION, text));
        }
    }
    if let Target::Running(url) = &scenario.target {
        reach(url).await?;
    }
    let started_at = SystemTime::now();
    let writer = Writer::create(&options.runs_dir, &scenario.name, started_at, &scenario.text)?;
    let mut house = House::open(scenario, options, writer.dir(), start_bots).await?;
    let plan = plan(scenario, started_at);
    let meta = meta(scenario, &house, &plan, started_at);
    writer.meta(&meta)?;
    let progress = Progress::start(About::of(scenario, &house.url), options.plain);
    let result = act(scenario, &mut house, plan, meta, writer, progress, interrupt).await;
    house.close().await;
    result
}

/// Whether the target speaks our protocol; else what is wrong and what helps.
async fn reach(url: &Url) -> Result<(), NoRun> {
    let error = match timeout(REACH_TIMEOUT, Signaling::connect(&url.socket())).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer in time".to_owned(),
    };
    let text = format!(
        "the target {url} does not answer ({error}); start it with `moim serve`, check `target.url` \
         in the scenario, or write `serve: {{}}` instead of `target`"
    );
    Err(NoRun::new(exit::TARGET_UNREACHABLE, text))
}

/// What is started for a run and ended after it.
struct House<D> {
    url: Url,
    server: Option<OwnServer>,
    /// None where the scenario has none, or why they are missing.
    bots: Option<Result<Arc<D>, String>>,
    browser: Option<Result<Arc<Browser>, String>>,
    /// Where the server is on this machine.
    cpus: Option<CpuSets>,
    /// What this process might use before.
    all_cpus: Vec<usize>,
}

impl<D: BotDriver> House<D> {
    async fn open(
        scenario: &Scenario,
        options: &LoadOptions,
        dir: &Path,
        start_bots: impl FnOnce(&Url) -> Result<D, BotError>,
    ) -> Result<Self, NoRun> {
        let all_cpus = net::thread::current_thread_cpus()?;
        let (url, server, cpus) = match &scenario.target {
            Target::Running(url) => {
                let pid = proc::listener(&url.host, url.port);
                let server = pid.map(kernel::affinity).unwrap_or_default();
                let sets = cpus::beside(&all_cpus, server, scenario.browsers() > 0);
                if let Some(sets) = &sets {
                    if sets.disjoint {
                        cpus::pin_process(&sets.generator);
                    }
                    eprintln!("{sets}");
                }
                (url.clone(), None, sets)
            }
            Target::Serve(serve) => {
                let sets = cpus::divide(&all_cpus, &serve.cpus, scenario.browsers() > 0)?;
                let exe = options.server_exe.clone().map_or_else(std::env::current_exe, Ok)?;
                sockets::raise_file_limit();
                let server =
                    OwnServer::start(&exe, serve, Limits::of(scenario), &sets.server, dir).await;
                let server = server.map_err(|error| {
                    let text = format!("the server could not be started: {error}");
                    NoRun::new(exit::TARGET_UNREACHABLE, text)
                })?;
                if sets.disjoint {
                    cpus::pin_process(&sets.generator);
                }
                eprintln!("{sets}");
                (server.url.clone(), Some(server), Some(sets))
            }
        };
        let bots = (scenario.bots() > 0)
            .then(|| start_bots(&url).map(Arc::new).map_err(|error| error.to_string()));
        let browser = match scenario.browsers() {
            0 => None,
            _ => Some(Browser::launch().await.map(Arc::new).map_err(|error| error.to_string())),
        };
        Ok(Self { url, server, bots, browser, cpus, all_cpus })
    }

    fn server_pid(&self) -> Option<u32> {
        let own = self.server.as_ref().map(OwnServer::pid);
        own.or_else(|| proc::listener(&self.url.host, self.url.port))
    }

    /// How late the bots' own timers were (p99), in ms.
    fn bots_lag_ms(&self) -> f64 {
        let bots = self.bots.as_ref().and_then(|bots| bots.as_ref().ok());
        bots.and_then(|bots| bots.timer_lag_ms_p99()).unwrap_or(0.0)
    }

    fn browser(&self) -> Option<&Arc<Browser>> {
        self.browser.as_ref()?.as_ref().ok()
    }

    async fn close(self) {
        if let Some(Ok(browser)) = self.browser
            && let Some(mut browser) = Arc::into_inner(browser)
        {
            browser.stop().await;
        }
        if let Some(mut server) = self.server {
            server.stop().await;
        }
        if self.cpus.is_some_and(|sets| sets.disjoint) {
            cpus::pin_process(&self.all_cpus);
        }
    }
}

/// One person of the plan.
#[derive(Debug, Clone)]
struct Planned {
    name: String,
    kind: PersonKind,
    /// Number among its kind, from 1.
    index: u32,
    place: Place,
}

/// Everyone in the order of joining: in each room browsers first, since a page takes longest.
fn plan(scenario: &Scenario, started_at: SystemTime) -> Vec<Planned> {
    // Two runs on one server must not meet in a room.
    let since_epoch = started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mark = since_epoch.as_millis() as u32 & 0xff_ffff;
    let everyone = scenario.bots() + scenario.chromium();
    let (mut people, mut rooms, mut bots, mut pages) = (Vec::new(), 0u32, 0u32, 0u32);
    for group in &scenario.rooms {
        for _ in 0..group.count {
            rooms += 1;
            let room = format!("{}-{rooms}-{mark:06x}", scenario.name);
            let senders = group.senders.unwrap_or(u32::MAX);
            let before = people.len() as u32;
            let place = |number| {
                let (sends_video, index) = (number < senders, before + number);
                let network = network_of(&scenario.networks, index, everyone);
                Place { room: room.clone(), group: group.clone(), sends_video, network }
            };
            for number in 0..group.chromium {
                pages += 1;
                let name = format!("chromium-{pages}");
                let (kind, place) = (PersonKind::Chromium, place(number));
                people.push(Planned { name, kind, index: pages, place });
            }
            for number in 0..group.bots {
                bots += 1;
                let (name, place) = (format!("bot-{bots}"), place(group.chromium + number));
                people.push(Planned { name, kind: PersonKind::Bot, index: bots, place });
            }
        }
    }
    people
}

fn meta<D: BotDriver>(
    scenario: &Scenario,
    house: &House<D>,
    plan: &[Planned],
    started_at: SystemTime,
) -> Meta {
    let mut machine = proc::machine();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    machine.versions.insert("moim".into(), version.clone());
    if let Some(browser) = house.browser() {
        machine.versions.insert("chromium".into(), browser.version().to_owned());
    }
    let people = plan.iter().map(|planned| PersonMeta {
        name: planned.name.clone(),
        kind: planned.kind,
        room: planned.place.room.clone(),
        participant: None,
    });
    Meta {
        schema: SCHEMA,
        name: scenario.name.clone(),
        started_at: humantime::format_rfc3339_seconds(started_at).to_string(),
        duration_s: scenario.duration.as_secs_f64(),
        target: TargetMeta { adapter: "moim".into(), url: house.url.to_string() },
        version,
        scenario: scenario.text.clone(),
        people: people.collect(),
        machine,
        cpus: house.cpus.clone(),
    }
}

/// The load itself: people come, stay and leave; then the verdict and the report.
async fn act<D: BotDriver>(
    scenario: &Scenario,
    house: &mut House<D>,
    plan: Vec<Planned>,
    mut meta: Meta,
    writer: Writer,
    progress: Progress,
    interrupt: impl Future<Output = ()>,
) -> Result<Run, NoRun> {
    let dir = writer.dir().to_owned();
    let mut monitor = Monitor::start(
        house.url.clone(),
        house.server_pid(),
        house.browser().map(|browser| browser.pid()),
    )
    .await?;
    let networks = Networks::start(&scenario.networks)?;
    let stage = Stage::new(house.url.clone(), writer, meta.people.clone());
    let stage = Arc::new(stage.with_networks(networks));
    if let Some(Err(cause)) = &house.bots {
        stage.fault(None, format!("no bots: {cause}"));
    }
    if let Some(Err(cause)) = &house.browser {
        stage.fault(None, format!("no browser: {cause}"));
    }
    let socket_loads = sockets_begin(scenario, house, &stage)?;
    let rss_before_mib = house.server_pid().and_then(proc::rss_mib);
    let by_hand = by_hand(scenario, house, &stage);
    let (mut tasks, commands) = invite(scenario, house, &stage, plan);
    let _changing = stage.change_networks(&scenario.networks);
    let bots = house.bots.as_ref().and_then(|bots| bots.as_ref().ok()).cloned();
    let ended_by_key = progress.ended_by_key();
    let mut watch = Watch {
        datagrams: &|| bots.as_ref()?.datagrams(),
        scenario,
        stage: &stage,
        monitor: &mut monitor,
        server: house.server.as_mut(),
        commands,
        machine: Vec::new(),
        meta: &mut meta,
        sockets: &socket_loads,
        progress,
        told: Told::default(),
    };
    let interrupt = async {
        tokio::select! { () = interrupt => {}, () = ended_by_key => {} }
    };
    let interrupted = watch.until_the_end(interrupt).await;
    let end_ms = stage.now_ms();
    watch.record(end_ms).await;
    stage.finish();
    watch.show(Phase::Leaving);
    let (machine, progress) = (watch.machine, watch.progress);
    let rss_mib = house.server_pid().and_then(proc::rss_mib);
    let mut socket_figures = sockets_end(&stage, socket_loads, (rss_before_mib, rss_mib)).await;
    if let (Some(task), Some(first)) = (by_hand, socket_figures.first_mut()) {
        first.by_hand = task.await.ok().flatten();
    }
    let left = timeout(LEAVE_TIMEOUT, async { while tasks.join_next().await.is_some() {} }).await;
    if left.is_err() {
        tasks.shutdown().await;
    }
    progress.finish();

    let outcome = stage.outcome(end_ms);
    let failures = checks::subscriptions(&outcome.expected, &outcome.samples);
    meta.people = outcome.people;
    let summary = summary::summarize(&Input {
        meta: &meta,
        samples: &outcome.samples,
        machine: &machine,
        timer_lag_ms_p99: monitor.timer_lag_ms_p99().max(house.bots_lag_ms()),
        joins: &outcome.joins,
        first_fault: outcome.first_fault.as_ref(),
        thresholds: &scenario.thresholds,
        faults: &outcome.faults,
        subscriptions: &failures,
        duration_s: end_ms as f64 / 1000.0,
        interrupted,
        sockets: &socket_figures,
        expected: Some(&outcome.expected),
        networks: stage.networks.as_ref().map(Networks::summaries).unwrap_or_default(),
    });
    for failure in &failures {
        stage.event(Level::Error, None, failure.text.clone());
    }
    stage.writer.meta(&meta)?;
    stage.writer.summary(&summary)?;
    if let Some(fault) = stage.writer.take_fault() {
        return Err(NoRun::new(
            exit::BAD_CONFIGURATION,
            format!("the record is not whole: {fault}"),
        ));
    }
    report::render(&dir)?;
    Ok(Run { dir, meta, summary, machine })
}

/// Starts the loads of sockets, a thread each.
fn sockets_begin<D: BotDriver>(
    scenario: &Scenario,
    house: &House<D>,
    stage: &Arc<Stage>,
) -> Result<Vec<sockets::Load>, NoRun> {
    let mut loads = Vec::new();
    for (index, group) in scenario.sockets.iter().enumerate() {
        let (host, length) = (house.url.authority(), scenario.duration);
        let load = sockets::Load::start(index, address_of(&house.url)?, host, *group, length)?;
        let text =
            format!("{} sockets come, {} a second", group.connections, group.arrival_per_second);
        stage.event(Level::Info, None, text);
        loads.push(load);
    }
    Ok(loads)
}

/// Ends the loads of sockets; memory of the server is (before, with all of them), in MiB.
async fn sockets_end(
    stage: &Stage,
    loads: Vec<sockets::Load>,
    (before_mib, with_mib): (Option<f64>, Option<f64>),
) -> Vec<SocketsSummary> {
    let mut figures = Vec::new();
    for load in loads {
        if let (1.., Some(first)) = load.failed() {
            stage.event(
                Level::Warn,
                None,
                format!("sockets were lost or did not come up: {first}"),
            );
        }
        let ended = tokio::task::spawn_blocking(|| load.finish()).await;
        figures.push(ended.unwrap_or_default());
    }
    // Memory is the whole server's: what a connection costs can be told of one group alone.
    if let ([only], Some(before), Some(with)) = (&mut figures[..], before_mib, with_mib) {
        only.server_rss_before_mib = Some(before);
        only.server_rss_mib = Some(with);
        only.kib_per_connection =
            (only.live > 0).then(|| (with - before) * 1024.0 / f64::from(only.live));
    }
    figures
}

/// The browser that stays connected and pings by hand, where a group of sockets has one.
fn by_hand<D: BotDriver>(
    scenario: &Scenario,
    house: &House<D>,
    stage: &Arc<Stage>,
) -> Option<tokio::task::JoinHandle<Option<sockets::ByHand>>> {
    let pages = scenario.sockets.iter().map(|group| group.chromium).sum();
    let (browser, stage) = (house.browser()?.clone(), Arc::clone(stage));
    if pages == 0 {
        return None;
    }
    Some(tokio::spawn(async move {
        let seen = sockets::ping_by_hand(&stage, &browser, &stage.target, pages).await;
        seen.map_err(|cause| stage.event(Level::Error, None, cause)).ok()
    }))
}

/// Starts everyone's task at his time; the bots take commands by their number.
fn invite<D: BotDriver>(
    scenario: &Scenario,
    house: &House<D>,
    stage: &Arc<Stage>,
    plan: Vec<Planned>,
) -> (JoinSet<()>, BTreeMap<u32, mpsc::Sender<BotCommand>>) {
    let mut tasks = JoinSet::new();
    let mut commands = BTreeMap::new();
    let begin = Instant::now();
    for (position, planned) in plan.into_iter().enumerate() {
        let at = begin + Duration::from_secs_f64(position as f64 / scenario.join_per_second);
        let stage = Arc::clone(stage);
        let Planned { name, kind, index, place } = planned;
        match kind {
            PersonKind::Bot => {
                let Some(Ok(driver)) = house.bots.clone() else { continue };
                let (sender, receiver) = mpsc::channel(8);
                commands.insert(index, sender);
                let silent = !place.sends_video || place.group.video == VideoTopology::None;
                let video = if silent { VideoSource::None } else { scenario.media.video };
                let spec = BotSpec {
                    name,
                    index,
                    media: Media { video, ..scenario.media },
                    video_codec: place.group.video_codec,
                    slots: SlotPool::default(),
                    ..BotSpec::default()
                };
                tasks.spawn(async move {
                    sleep_until(at).await;
                    match place.group.churn {
                        Some(stay) => person::churn(stage, driver, spec, place, stay).await,
                        None => person::bot(stage, driver, spec, place, receiver).await,
                    }
                });
            }
            PersonKind::Chromium => {
                let Some(browser) = house.browser().cloned() else { continue };
                let show = scenario.canary_show;
                tasks.spawn(async move {
                    sleep_until(at).await;
                    person::canary(stage, browser, name, place, show).await;
                });
            }
        }
    }
    (tasks, commands)
}

/// Watches the run: machine, progress, the scenario's events, and its end.
struct Watch<'a> {
    /// What the bots have sent and received so far.
    datagrams: &'a (dyn Fn() -> Option<(u64, u64)> + Sync),
    scenario: &'a Scenario,
    stage: &'a Stage,
    monitor: &'a mut Monitor,
    server: Option<&'a mut OwnServer>,
    commands: BTreeMap<u32, mpsc::Sender<BotCommand>>,
    machine: Vec<MachineRecord>,
    meta: &'a mut Meta,
    sockets: &'a [sockets::Load],
    progress: Progress,
    told: Told,
}

impl Watch<'_> {
    /// Whether it was interrupted.
    async fn until_the_end(&mut self, interrupt: impl Future<Output = ()>) -> bool {
        let begin = Instant::now();
        let end = begin + self.scenario.duration;
        let mut interrupt = std::pin::pin!(interrupt);
        let mut events = self.scenario.events.iter().peekable();
        let mut next_record = begin + Duration::from_millis(SAMPLE_INTERVAL_MS);
        let mut next_progress = begin;
        loop {
            let next_event = events.peek().map_or(end, |event| begin + event.at);
            let wake = end.min(next_record).min(next_progress).min(next_event);
            tokio::select! {
                () = &mut interrupt => {
                    self.stage.event(Level::Warn, None, "interrupted");
                    return true;
                }
                () = sleep_until(wake) => {}
            }
            let now = Instant::now();
            if now >= next_progress {
                self.show(Phase::Under);
                next_progress = now + PROGRESS_EVERY;
            }
            while let Some(event) = events.next_if(|event| begin + event.at <= now) {
                self.command(event.bot, event.what);
            }
            // The last window is recorded by itself, at the end.
            if now >= next_record && now < end {
                self.record(self.stage.now_ms()).await;
                next_record += Duration::from_millis(SAMPLE_INTERVAL_MS);
            }
            if let Some(status) = self.server.as_mut().and_then(|server| server.ended()) {
                self.stage.fault(None, format!("the server ended in the middle ({status})"));
                self.show(Phase::Under);
                return false;
            }
            if now >= end {
                self.show(Phase::Under);
                return false;
            }
        }
    }

    fn show(&mut self, phase: Phase) {
        let sockets = self.sockets.iter().map(sockets::Load::live).sum();
        let news = self.stage.news(&mut self.told);
        self.progress.update(Duration::from_millis(self.stage.now_ms()), phase, sockets, news);
    }

    fn command(&mut self, bot: u32, what: BotCommand) {
        let sent = self.commands.get(&bot).map(|commands| commands.try_send(what));
        if !matches!(sent, Some(Ok(()))) {
            let text = format!("{what:?} could not be done: the bot is not there");
            self.stage.fault(Some(&format!("bot-{bot}")), text);
        }
    }

    async fn record(&mut self, t_ms: u64) {
        let record = self.monitor.record(t_ms, (self.datagrams)()).await;
        self.stage.writer.machine(&record);
        self.progress.machine(&record);
        self.machine.push(record);
        // A run that is killed should know who had joined.
        let people = self.stage.people();
        if people != self.meta.people {
            self.meta.people = people;
            if let Err(error) = self.stage.writer.meta(self.meta) {
                self.stage.event(Level::Error, None, format!("meta.json: {error}"));
            }
        }
    }
}

/// Runs the scenario once more with the resource behind the first bottleneck changed by a fifth;
/// whether that proves it, or why it could not be tried, goes into the first run's summary.
pub(crate) async fn prove(run: &mut Run, options: &LoadOptions) {
    let (proven, text) = match Changed::new(&run.summary, &run.machine) {
        Err(why) => (false, format!("not proven: {why}")),
        Ok(changed) => {
            eprintln!("once more, with {}", changed.what);
            match self::run(options, bots_of_this_build, interrupted()).await {
                Ok(second) => {
                    let (proven, text) = changed.judge(&run.summary, &second.summary);
                    (proven, format!("{text}, see {}", second.dir.display()))
                }
                Err(error) => (false, format!("not proven: the second run failed: {error}")),
            }
        }
    };
    if proven {
        run.summary.bottleneck.state = Some("proven".into());
    }
    run.summary.bottleneck.evidence.push(text);
    let written = record::write_summary(&run.dir, &run.summary);
    if let Err(error) = written.and_then(|()| report::render(&run.dir).map(drop)) {
        eprintln!("the report does not show it: {error}");
    }
}

/// Ctrl-C, or being asked to end.
pub(crate) async fn interrupted() {
    let terminated = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

/// Starts the bots of this build, on the own address that reaches the target.
pub(crate) fn bots_of_this_build(target: &Url) -> Result<bots::Driver, BotError> {
    bots::start_for(address_of(target).map_err(|error| BotError::new(error.to_string()))?)
}

/// The first address of a server.
fn address_of(target: &Url) -> io::Result<SocketAddr> {
    let host = target.host.trim_start_matches('[').trim_end_matches(']');
    let named = |cause: String| io::Error::other(format!("{host} has no address{cause}"));
    let mut found =
        (host, target.port).to_socket_addrs().map_err(|error| named(format!(": {error}")))?;
    found.next().ok_or_else(|| named(String::new()))
}

#[cfg(test)]
mod tests;
