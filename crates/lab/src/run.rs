//! A run from the scenario to the report.

mod abort;
mod ahead;
mod cpus;
mod house;
mod lead;
mod options;
mod plan;
mod prove;
mod serve;
mod watch;

pub(crate) use lead::{Leader, Seen};
pub use options::LoadOptions;
pub(crate) use options::NoRun;
pub(crate) use serve::{OwnServer, Ready, free_port};

use crate::base::{Url, asked_to_end, busy::keep_busy, words};
use crate::clients::bot::driver;
use crate::clients::bot::spec::{BotDriver, BotError};
use crate::clients::link::networks::Networks;
use crate::clients::seat::Adapter;
use crate::clients::{self, Server, canary};
use crate::judge::checks;
use crate::judge::summary::{self, Input, Summary, exit};
use crate::judge::threshold::socket_moments;
use crate::observe::monitor::Monitor;
use crate::observe::proc;
use crate::people::sockets;
use crate::people::stage::{Stage, Told};
use crate::progress::{About, Phase, Progress};
use crate::record::{self, ByHand, Fault, Level, MachineRecord, Meta, SocketsSummary, Writer};
use crate::report;
use crate::scenario::{Scenario, Target};
use house::House;
use plan::{Planned, invite, meta, plan};
pub(crate) use prove::Changed;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;
use watch::{End, Watch};
use wire::room::AudioTopology;

/// How long people may take to leave at the end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the target may take to answer at all.
const REACH_TIMEOUT: Duration = Duration::from_secs(4);

/// A finished run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) dir: PathBuf,
    pub(crate) meta: Meta,
    pub(crate) summary: Summary,
    pub(crate) machine: Vec<MachineRecord>,
    /// Why its record or report is not whole, if it is not.
    pub(crate) record_fault: Option<String>,
}

impl Run {
    /// How the command ends that made it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.summary.exit_code {
            exit::PASS if self.record_fault.is_some() => exit::RECORD,
            code => code,
        }
    }

    /// The run, for those who read its record.
    ///
    /// # Errors
    /// Its record is not whole.
    pub(crate) fn whole(self) -> Result<Self, NoRun> {
        match &self.record_fault {
            None => Ok(self),
            Some(fault) => {
                Err(NoRun::new(exit::RECORD, format!("the record is not whole: {fault}")))
            }
        }
    }
}

/// Runs a scenario; `interrupt` ends it early, with a full report.
pub(crate) async fn run<D: BotDriver>(
    options: &LoadOptions,
    start_bots: impl FnOnce(&Server, u32) -> Result<D, BotError>,
    interrupt: impl Future<Output = ()>,
) -> Result<Run, NoRun> {
    let scenario = Scenario::read(&options.scenario)
        .map_err(|problems| NoRun::new(exit::BAD_CONFIGURATION, problems.to_string()))?;
    run_scenario(&scenario, options, start_bots, interrupt, None).await
}

/// Runs a scenario that was read or made already; `options.scenario` is not looked at. A run with a leader writes no
/// report of its own: the record of thousands over many minutes is no page that a browser opens.
pub(crate) async fn run_scenario<D: BotDriver>(
    scenario: &Scenario,
    options: &LoadOptions,
    start_bots: impl FnOnce(&Server, u32) -> Result<D, BotError>,
    interrupt: impl Future<Output = ()>,
    leader: Option<&mut dyn Leader>,
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
        let audio = scenario.rooms.first().map(|room| room.audio).unwrap_or_default();
        reach(&scenario.server(url), audio).await?;
    }
    let started_at = SystemTime::now();
    let writer = Writer::create(&options.runs_dir, &scenario.name, started_at, &scenario.text)?;
    let mut house = House::open(scenario, options, writer.dir(), start_bots).await?;
    let plan = plan(scenario, started_at);
    if let Err(error) = ahead::make_rooms(&house.url, &plan).await {
        house.close().await;
        return Err(error);
    }
    let meta = Meta { fault: options.fault, ..meta(scenario, &house, &plan, started_at) };
    let result = match writer.meta(&meta) {
        Ok(()) => {
            let progress = Progress::start(About::of(scenario, &house.url), options.plain);
            let play = Play { plan, meta, writer, progress, leader };
            act(scenario, &mut house, play, interrupt).await
        }
        Err(error) => Err(error.into()),
    };
    house.close().await;
    result
}

/// Checks that the target speaks its adapter's protocol. The error says what is wrong and what helps.
async fn reach(server: &Server, audio: AudioTopology) -> Result<(), NoRun> {
    let error = match timeout(REACH_TIMEOUT, clients::reach(server, audio)).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => words(&error.to_string()),
        Err(_) => "no answer in time".to_owned(),
    };
    let cure = match server.adapter {
        Adapter::Moim => {
            "start it with `moim serve`, check `target.url` in the scenario, or write `serve: {}` \
             instead of `target`"
        }
        Adapter::Janus => {
            "start Janus with its WebSocket transport and its plugins VideoRoom (for rooms that \
             forward) and AudioBridge (for those that mix), and check that `target.url` is \
             that WebSocket's (port 8188 by default)"
        }
        Adapter::LiveKit => {
            "start LiveKit (`livekit-server --dev` for a try) and check that `target.url` is its \
             port for signaling (7880 by default)"
        }
        Adapter::Whip => {
            "start a server that takes streams by WHIP and gives them by WHEP, such as MediaMTX, and \
             check that `target.url` is its address for them (port 8889 by default)"
        }
        Adapter::SocketCluster => {
            "start a SocketCluster server of protocol 2 whose path is /socketcluster/, such as \
             `node scripts/socketcluster.mjs PORT`, and check that `target.url` is its address"
        }
    };
    let url = &server.url;
    let text = format!("the target {url} does not answer ({error}); {cure}");
    Err(NoRun::new(exit::TARGET_UNREACHABLE, text))
}

/// What a run takes from its start.
struct Play<'a> {
    plan: Vec<Planned>,
    meta: Meta,
    writer: Writer,
    progress: Progress,
    leader: Option<&'a mut dyn Leader>,
}

/// The load itself: people come, stay and leave. Then come the verdict and the report, also after an interrupt.
async fn act<D: BotDriver>(
    scenario: &Scenario,
    house: &mut House<D>,
    play: Play<'_>,
    interrupt: impl Future<Output = ()>,
) -> Result<Run, NoRun> {
    let Play { plan, mut meta, writer, progress, leader } = play;
    let led = leader.is_some();
    let dir = writer.dir().to_owned();
    let mut monitor = Monitor::start(
        house.url.clone(),
        house.server_pid(),
        house.browser().map(|browser| browser.pid()),
    )
    .await?
    .with_link_limit(scenario.link_limit)
    .with_floor(house.server.as_ref().and_then(OwnServer::floor));
    let networks = Networks::start(&scenario.networks)?;
    let stage = Stage::new(scenario.server(&house.url), writer, meta.people.clone());
    let login = house.server.as_ref().and_then(|server| server.login.clone());
    let stage = stage.with_networks(networks).with_login(login);
    let stage = Arc::new(stage);
    if let Some(Err(cause)) = &house.bots {
        stage.fault(None, format!("no bots: {cause}"));
    }
    if let Some(Err(cause)) = &house.browser {
        stage.fault(None, format!("no browser: {cause}"));
    }
    let socket_loads = sockets_begin(scenario, house, &stage)?;
    let rss_before_mib = house.server_pid().and_then(proc::rss_mib);
    let by_hand = by_hand(scenario, house, &stage);
    let _busy = (meta.fault == Some(Fault::BusyLab)).then(keep_busy);
    let mut tasks = invite(scenario, house, &stage, plan);
    let _changing = stage.change_networks(&scenario.networks);
    let bots = house.bots.as_ref().and_then(|bots| bots.as_ref().ok()).cloned();
    let ended_by_key = progress.ended_by_key();
    let mut watch = Watch {
        datagrams: &|| bots.as_ref()?.datagrams(),
        lag_ms: &|| bots.as_ref()?.take_timer_lag_ms_p99(),
        scenario,
        stage: &stage,
        monitor: &mut monitor,
        server: house.server.as_mut(),
        machine: Vec::new(),
        meta: &mut meta,
        sockets: &socket_loads,
        progress,
        told: Told::default(),
        ending: None,
        leader: leader.map(|leader| leader as &mut dyn Leader),
        led: Told::default(),
    };
    let interrupt = async {
        tokio::select! { () = interrupt => {}, () = ended_by_key => {} }
    };
    let end = watch.until_the_end(interrupt).await;
    let end_ms = stage.now_ms();
    watch.record(end_ms).await;
    stage.finish();
    watch.show(Phase::Leaving);
    let (machine, progress) = (watch.machine, watch.progress);
    let rss_mib = house.server_pid().and_then(proc::rss_mib);
    let (mut socket_figures, socket_counts) =
        sockets_end(&stage, socket_loads, (rss_before_mib, rss_mib)).await;
    if let (Some(task), Some(first)) = (by_hand, socket_figures.first_mut()) {
        first.by_hand = task.await.ok().flatten();
    }
    let left = timeout(LEAVE_TIMEOUT, async { while tasks.join_next().await.is_some() {} }).await;
    if left.is_err() {
        tasks.shutdown().await;
    }
    progress.finish();

    let outcome = stage.outcome(end_ms, end != End::Time);
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
        interrupted: end == End::Interrupted,
        aborted: match end {
            End::Aborted(why) => Some(why),
            _ => None,
        },
        sockets: &socket_figures,
        socket_counts: &socket_counts,
        expected: Some(&outcome.expected),
        networks: stage.networks.as_ref().map(Networks::summaries).unwrap_or_default(),
    });
    for failure in &failures {
        stage.event(Level::Error, None, failure.text.clone());
    }
    // What was found is not lost where it cannot be written.
    let written = stage.writer.meta(&meta).and_then(|()| stage.writer.summary(&summary));
    let lines = stage.writer.take_fault().map_or(Ok(()), Err);
    let rendered = if led { Ok(()) } else { report::render(&dir).map(drop) };
    let record_fault = lines.and(written).and(rendered).err().map(|error| error.to_string());
    Ok(Run { dir, meta, summary, machine, record_fault })
}

/// Starts the loads of sockets, a thread each.
fn sockets_begin<D: BotDriver>(
    scenario: &Scenario,
    house: &House<D>,
    stage: &Arc<Stage>,
) -> Result<Vec<sockets::Load>, NoRun> {
    let (mut loads, from) = (Vec::new(), socket_moments(&scenario.thresholds));
    for (index, group) in scenario.sockets.iter().enumerate() {
        let (host, length) = (house.url.authority(), scenario.duration);
        let addresses = addresses_of(&house.url)?;
        let load = sockets::Load::start(index, addresses, host, *group, length, &from)?;
        let text =
            format!("{} sockets come, {} a second", group.connections, group.arrival_per_second);
        stage.event(Level::Info, None, text);
        loads.push(load);
    }
    Ok(loads)
}

/// Ends the loads of sockets. The last argument is the server's memory in MiB: before them, with all of them.
async fn sockets_end(
    stage: &Stage,
    loads: Vec<sockets::Load>,
    (before_mib, with_mib): (Option<f64>, Option<f64>),
) -> (Vec<SocketsSummary>, sockets::Counted) {
    let (mut figures, mut all) = (Vec::new(), sockets::Now::default());
    for load in loads {
        if let (1.., Some(first)) = load.failed() {
            stage.event(
                Level::Warn,
                None,
                format!("sockets were lost or did not come up: {first}"),
            );
        }
        let ended = tokio::task::spawn_blocking(|| load.finish()).await;
        let (summary, counts) = ended.unwrap_or_default();
        figures.push(summary);
        all.add(sockets::Now { counts, ..sockets::Now::default() });
    }
    // The memory is the whole server's: it tells what a connection costs only if there is one group.
    if let ([only], Some(before), Some(with)) = (&mut figures[..], before_mib, with_mib) {
        only.server_rss_before_mib = Some(before);
        only.server_rss_mib = Some(with);
        only.kib_per_connection =
            (only.live > 0).then(|| (with - before) * 1024.0 / f64::from(only.live));
    }
    (figures, all.counts)
}

/// The browser that stays connected and pings by hand, if a group of sockets has one.
fn by_hand<D: BotDriver>(
    scenario: &Scenario,
    house: &House<D>,
    stage: &Arc<Stage>,
) -> Option<tokio::task::JoinHandle<Option<ByHand>>> {
    let pages = scenario.sockets.iter().map(|group| group.chromium).sum();
    let (browser, stage) = (house.browser()?.clone(), Arc::clone(stage));
    if pages == 0 {
        return None;
    }
    Some(tokio::spawn(async move {
        let seen = sockets::ping_by_hand(&stage, &browser, &stage.server.url, pages).await;
        seen.map_err(|cause| stage.event(Level::Error, None, cause)).ok()
    }))
}

/// Runs the scenario once more with the resource behind the first bottleneck changed by a fifth. The
/// first run's summary then says whether that proves the bottleneck, or why it could not be tried.
pub(crate) async fn prove(run: &mut Run, options: &LoadOptions) {
    let tried = tried(run, options).await;
    let (proven, text) = tried.unwrap_or_else(|why| (false, format!("not proven: {why}")));
    if proven {
        run.summary.bottleneck.state = Some("proven".into());
    }
    run.summary.bottleneck.evidence.push(text);
    let written = record::write_summary(&run.dir, &run.summary);
    if let Err(error) = written.and_then(|()| report::render(&run.dir).map(drop)) {
        errln!("the report does not show it: {error}");
    }
}

/// Whether runs with more or less of a resource prove a bottleneck, and a sentence that says so; or why there are none.
async fn tried(run: &Run, options: &LoadOptions) -> Result<(bool, String), String> {
    let changed = Changed::new(&run.summary, &run.machine)?;
    errln!("once more, with {}", changed.what);
    let second = once_more(options).await?;
    let mut judged = changed.judge(&[&run.summary], &[&second.summary]);
    if !judged.0 {
        // A machine that drifts may hide a fifth. In reverse order a steady drift cancels out.
        errln!("not clear: so again, and then as it was");
        match in_reverse(&changed, options).await {
            Ok((third, fourth)) => {
                let as_it_was = [&run.summary, &fourth.summary];
                judged = changed.judge(&as_it_was, &[&second.summary, &third.summary]);
            }
            Err(why) => errln!("the first two runs stand: {why}"),
        }
    }
    let (proven, text) = judged;
    Ok((proven, format!("{text}, see {}", second.dir.display())))
}

/// A run with the resource changed, and one with it as it was.
async fn in_reverse(changed: &Changed, options: &LoadOptions) -> Result<(Run, Run), String> {
    let third = once_more(options).await?;
    changed.put_back().map_err(|error| error.to_string())?;
    Ok((third, once_more(options).await?))
}

/// A run that is compared with others. If its generator was at its limit it proves nothing, and is
/// played again once.
///
/// # Errors
/// Why it proves nothing, in words.
async fn once_more(options: &LoadOptions) -> Result<Run, String> {
    let play = async || {
        let run = self::run(options, bots_of_this_build(options), asked_to_end()).await;
        run.map_err(|error| format!("another run failed: {error}"))
    };
    let mut run = play().await?;
    if run.summary.exit_code == exit::GENERATOR_LIMIT {
        errln!("and again: the generator was at its limit");
        run = play().await?;
    }
    match run.summary.exit_code {
        exit::GENERATOR_LIMIT => {
            let why = run.summary.generator.reasons.join("; ");
            Err(format!("the generator of another run was its limit: {why}"))
        }
        exit::INTERRUPTED => Err("another run was interrupted".into()),
        _ => Ok(run),
    }
}

/// Starts the bots of this build, on the address of this machine that reaches the target.
pub(crate) fn bots_of_this_build(
    options: &LoadOptions,
) -> impl FnOnce(&Server, u32) -> Result<driver::Driver, BotError> + use<> {
    let fault = options.fault;
    move |server, bots| {
        let target = address_of(&server.url).map_err(|error| BotError::new(error.to_string()))?;
        driver::start_for(target, bots, server.adapter.forwards_red(), fault)
    }
}

/// The first address of a server.
fn address_of(target: &Url) -> io::Result<SocketAddr> {
    addresses_of(target).map(|addresses| addresses[0])
}

/// All addresses of a server: at least one.
fn addresses_of(target: &Url) -> io::Result<Vec<SocketAddr>> {
    let host = target.host.trim_start_matches('[').trim_end_matches(']');
    let named = |cause: String| io::Error::other(format!("{host} has no address{cause}"));
    let found =
        (host, target.port).to_socket_addrs().map_err(|error| named(format!(": {error}")))?;
    let mut addresses = Vec::new();
    for address in found {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err(named(String::new())) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests;
