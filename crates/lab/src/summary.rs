//! The summary of a run: its verdict, and the figures that other programs read.

mod quality;

use crate::bot::hearing::MixWindows;
pub use crate::bottleneck::Bottleneck;
use crate::bottleneck::{self, GeneratorHealth, Join};
use crate::checks::Expected;
use crate::link::networks::NetworkSummary;
use crate::metrics::{Collector, Reduced, percentile};
use crate::record::{MachineMeta, MachineRecord, Meta, PersonKind, SCHEMA, SampleRecord};
use crate::roster::Churn;
use crate::sockets::SocketsSummary;
use crate::study;
use crate::threshold::{Threshold, ThresholdResult};
pub use quality::Quality;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Timer lag of the generator (99th percentile, ms) above which a run proves nothing.
pub const TIMER_LAG_LIMIT_MS: f64 = 5.0;
/// Timers so late (ms) explain even media that was gone for a whole window.
const LAG_THAT_EXPLAINS_MS: f64 = 100.0;
/// Share of throttled periods from which on a quota on the generator makes a run prove nothing.
const THROTTLED_LIMIT: f64 = 0.05;
/// Share of a core of one generator thread from which on a run proves nothing.
pub const THREAD_LIMIT_CORES: f64 = 0.95;
/// At most so many failures are listed.
const MAX_FAILURES: usize = 200;

/// How a run ends, as the exit code of the command.
pub mod exit {
    /// All thresholds and checks hold.
    pub const PASS: u8 = 0;
    /// A threshold or a check failed.
    pub const FAIL: u8 = 99;
    /// The scenario is bad.
    pub const BAD_CONFIGURATION: u8 = 104;
    /// Interrupted; the record is complete up to then.
    pub const INTERRUPTED: u8 = 105;
    /// The generator was the limit: inconclusive.
    pub const GENERATOR_LIMIT: u8 = 110;
    /// The target does not answer.
    pub const TARGET_UNREACHABLE: u8 = 111;
}

/// How a run came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything held.
    Pass,
    /// Something did not hold.
    Fail,
    /// The run proves nothing.
    Inconclusive,
}

impl Verdict {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// A built-in check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// Whether it holds.
    pub ok: bool,
    /// In words.
    pub detail: String,
}

/// The server over the whole run (after the first window).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSummary {
    /// Mean CPU cores.
    pub cpu_cores: Option<f64>,
    /// Server CPU per packet sent, in µs.
    pub us_per_packet_out: Option<f64>,
    /// Mean CPU cores by thread name.
    pub threads: BTreeMap<String, f64>,
    /// Discarded over the run, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Largest memory, in MiB.
    pub rss_mib: Option<f64>,
    /// What the mixers did over the run, by the name of the counter.
    #[serde(default)]
    pub mix: BTreeMap<String, u64>,
}

/// What people received in the second half of a run, when everybody is there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// Datagrams a second that came to the bots, those sent again included; of people without bots
    /// the packets of their tracks.
    pub packets_per_s: f64,
    /// Share of what was sent to them that did not come, 0 to 1.
    pub missing_share: f64,
}

/// The generator over the whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorSummary {
    /// Whether it was not the limit.
    pub healthy: bool,
    /// Mean CPU cores, browsers included.
    pub cpu_cores: f64,
    /// How late a 10 ms timer fires: 99th percentile over the run, in milliseconds.
    pub timer_lag_ms_p99: f64,
    /// Mean CPU cores by thread name.
    pub threads: BTreeMap<String, f64>,
    /// Datagrams a second that its bots sent and received; null where it has none.
    #[serde(default)]
    pub packets_per_s: Option<f64>,
    /// CPU time of the bots' threads for each of these, in µs, all that bots do included.
    #[serde(default)]
    pub us_per_packet: Option<f64>,
    /// Why it was the limit.
    #[serde(default)]
    pub reasons: Vec<String>,
}

/// What came of people who come and go.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChurnSummary {
    /// Visits that lasted as long as they were to.
    pub loops: u64,
    /// Visits that failed, by reason.
    pub failures: BTreeMap<String, u64>,
    /// People who came at a rate; null where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u64>,
    /// Those of them for whom no place was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// From asking to join until the first audio packet: median over all visits.
    pub join_to_first_audio_ms_p50: Option<f64>,
    /// The same: largest.
    pub join_to_first_audio_ms_max: Option<f64>,
}

/// What other programs read; keys are stable, more may be added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: u32,
    /// How it came out.
    pub verdict: Verdict,
    /// The command's exit code, one of [`exit`].
    pub exit_code: u8,
    /// How good it was; null where that was not measured, or where the generator was the limit.
    #[serde(default)]
    pub quality: Option<Quality>,
    /// Which threshold ended the run early, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<String>,
    /// People who joined.
    pub people: usize,
    /// Tracks received at once, over all people.
    pub subscriptions: usize,
    /// How long the run really lasted, in seconds.
    pub duration_s: f64,
    /// By name; a metric that nobody could measure is null.
    pub metrics: BTreeMap<String, Option<Reduced>>,
    /// The scenario's thresholds.
    pub thresholds: Vec<ThresholdResult>,
    /// The first bottleneck.
    pub bottleneck: Bottleneck,
    /// What came through once everybody had joined; null where nobody received anything.
    #[serde(default)]
    pub delivery: Option<Delivery>,
    /// The server; null for a remote target.
    pub server: Option<ServerSummary>,
    /// The generator.
    pub generator: GeneratorSummary,
    /// Where the load was made.
    pub machine: MachineMeta,
    /// Built-in checks.
    pub checks: Vec<Check>,
    /// All that failed, in words.
    pub failures: Vec<String>,
    /// Windows of a mix that listeners judged; null where nobody did.
    #[serde(default)]
    pub mix_windows: Option<u64>,
    /// Those of them in which somebody was missing, or was heard who should not be.
    #[serde(default)]
    pub mix_windows_wrong: Option<u64>,
    /// People who came and went; null where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub churn: Option<ChurnSummary>,
    /// Groups of sockets without a room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketsSummary>,
    /// What the links before people did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkSummary>,
    /// The rows of a study, each with the study's own figures beside ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study: Option<Vec<study::Row>>,
    /// The tables and plots that a study's rows belong to, and what was shown and not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study_about: Option<study::About>,
}

/// All that a summary is made from.
#[derive(Debug)]
pub struct Input<'a> {
    /// What was run.
    pub meta: &'a Meta,
    /// All samples, each person's in order.
    pub samples: &'a [SampleRecord],
    /// Usage of the machine.
    pub machine: &'a [MachineRecord],
    /// Timer lag over the whole run, 99th percentile in milliseconds.
    pub timer_lag_ms_p99: f64,
    /// Everyone whose media was connected.
    pub joins: &'a [Join],
    /// The scenario's thresholds.
    pub thresholds: &'a [Threshold],
    /// Everything that went wrong outside of samples: people who could not join, for example.
    pub faults: &'a [String],
    /// The first of them, and when it was seen, in milliseconds since the start of the run.
    pub first_fault: Option<&'a (u64, String)>,
    /// Subscriptions that were not alive.
    pub subscriptions: &'a [crate::checks::Failure],
    /// How long the run really lasted, in seconds.
    pub duration_s: f64,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Which threshold ended it early, and when.
    pub aborted: Option<String>,
    /// Groups of sockets without a room.
    pub sockets: &'a [SocketsSummary],
    /// What the links before people did.
    pub networks: Vec<NetworkSummary>,
    /// What was expected and heard; none where nobody was watched.
    pub expected: Option<&'a Expected>,
}

/// Makes the summary and with it the verdict.
pub fn summarize(input: &Input<'_>) -> Summary {
    let mut collector = Collector::default();
    for record in input.samples {
        collector.add(&record.person, &record.sample);
    }
    for join in input.joins {
        collector.value(&join.person, "join_to_connected_ms", Some(join.took_ms));
    }
    let metrics = collector.reduce();
    let thresholds: Vec<ThresholdResult> =
        input.thresholds.iter().map(|threshold| threshold.judge(&metrics)).collect();
    let people = input.meta.people.iter().filter(|p| p.participant.is_some()).count();
    let checks = checks(input, people);
    let health = generator_health(input);
    let generator = generator(input, &health);

    let mut failures: Vec<String> = input.faults.to_vec();
    failures.extend(input.subscriptions.iter().map(|failure| failure.text.clone()));
    if people < input.meta.people.len() && input.faults.is_empty() {
        failures.push(format!("{} of {} joined", people, input.meta.people.len()));
    }
    let checks_failed = !failures.is_empty();
    failures.extend(input.aborted.clone());
    for threshold in thresholds.iter().filter(|threshold| !threshold.ok) {
        failures.push(match threshold.value {
            Some(value) => format!("{} does not hold: it was {}", threshold.expr, short(value)),
            None => format!("{} does not hold: nobody could measure it", threshold.expr),
        });
    }
    let more = failures.len().saturating_sub(MAX_FAILURES);
    failures.truncate(MAX_FAILURES);
    if more > 0 {
        failures.push(format!("and {more} more"));
    }
    let failed = !failures.is_empty();
    let server = server(input.machine);
    let quality = quality::judge(input, &metrics, &generator, server.as_ref());
    let (verdict, exit_code) = verdict(input, &health, checks_failed, failed);
    let bottleneck = bottleneck(input, &health, &thresholds, failed);
    Summary {
        schema: SCHEMA,
        verdict,
        exit_code,
        quality,
        aborted: input.aborted.clone(),
        people,
        subscriptions: usual_subscriptions(input.samples),
        duration_s: input.duration_s,
        metrics,
        thresholds,
        bottleneck,
        delivery: delivery(input),
        server,
        generator,
        machine: input.meta.machine.clone(),
        checks,
        failures,
        mix_windows: mix_windows(input, |heard| heard.windows),
        mix_windows_wrong: mix_windows(input, |heard| heard.wrong),
        churn: input.expected.and_then(|expected| churn(&expected.churn)),
        sockets: input.sockets.to_vec(),
        networks: input.networks.clone(),
        study: None,
        study_about: None,
    }
}

/// Sum over all listeners who judged a mix; none where nobody did.
fn mix_windows(input: &Input<'_>, pick: impl Fn(&MixWindows) -> u64) -> Option<u64> {
    let mixes = &input.expected?.mixes;
    (!mixes.is_empty()).then(|| mixes.values().map(pick).sum())
}

fn churn(churn: &Churn) -> Option<ChurnSummary> {
    let nobody = churn.arrived == 0 && churn.loops == 0 && churn.failures.is_empty();
    if nobody && churn.join_to_first_audio_ms.is_empty() {
        return None;
    }
    let arrived = |count: u64| (churn.arrived > 0).then_some(count);
    let mut ms = churn.join_to_first_audio_ms.clone();
    ms.sort_by(f64::total_cmp);
    Some(ChurnSummary {
        loops: churn.loops,
        failures: churn.failures.clone(),
        arrived: arrived(churn.arrived),
        dropped: arrived(churn.dropped),
        join_to_first_audio_ms_p50: percentile(&ms, 50.0),
        join_to_first_audio_ms_max: percentile(&ms, 100.0),
    })
}

/// What broke first, and when quality broke.
fn bottleneck(
    input: &Input<'_>,
    health: &GeneratorHealth,
    results: &[ThresholdResult],
    failed: bool,
) -> Bottleneck {
    if input.machine.is_empty() {
        return Bottleneck::default();
    }
    let pairs = input.thresholds.iter().zip(results);
    let thresholds: Vec<_> = pairs.filter(|(_, result)| !result.ok).map(|(one, _)| one).collect();
    let broke = failed.then(|| {
        let (samples, joins) = (input.samples, input.joins);
        bottleneck::first_break(samples, joins, &thresholds, input.first_fault, input.subscriptions)
    });
    bottleneck::judge(input.machine, health, broke.flatten().as_ref())
}

/// The verdict. A generator at its limit proves nothing, with one exception: timers that were a
/// little late do not explain media that was gone for a whole window, so failed checks stand.
fn verdict(
    input: &Input<'_>,
    generator: &GeneratorHealth,
    checks_failed: bool,
    failed: bool,
) -> (Verdict, u8) {
    let a_little_late = generator.only_late_timers && input.timer_lag_ms_p99 < LAG_THAT_EXPLAINS_MS;
    let saturated = !generator.reasons.is_empty() && !a_little_late;
    if input.interrupted {
        let verdict = if checks_failed { Verdict::Fail } else { Verdict::Inconclusive };
        (verdict, exit::INTERRUPTED)
    } else if checks_failed && !saturated {
        (Verdict::Fail, exit::FAIL)
    } else if !generator.reasons.is_empty() {
        (Verdict::Inconclusive, exit::GENERATOR_LIMIT)
    } else if failed {
        (Verdict::Fail, exit::FAIL)
    } else {
        (Verdict::Pass, exit::PASS)
    }
}

fn checks(input: &Input<'_>, people: usize) -> Vec<Check> {
    let all = input.meta.people.len();
    let missing = input.subscriptions.len();
    let alive = if missing == 0 {
        "every expected subscription was alive in every window".to_owned()
    } else {
        format!("{missing} failures")
    };
    vec![
        Check {
            name: "all joined".into(),
            ok: people == all,
            detail: format!("{people} of {all} joined"),
        },
        Check { name: "all subscriptions alive".into(), ok: missing == 0, detail: alive },
        Check {
            name: "no faults".into(),
            ok: input.faults.is_empty(),
            detail: match input.faults {
                [] => "nobody failed on the way".into(),
                [first, rest @ ..] => format!("{first}{}", others(rest.len())),
            },
        },
    ]
}

fn others(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" (and {count} more)") }
}

/// A number with few digits, for people.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Tracks received at once: the median over each person's samples, added up. (The most would count
/// what was shown one after the other in a window.)
fn usual_subscriptions(samples: &[SampleRecord]) -> usize {
    let mut alive: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for record in samples {
        let tracks = record.sample.received.iter().filter(|row| row.packets_received > 0).count();
        alive.entry(&record.person).or_default().push(tracks);
    }
    alive
        .values_mut()
        .map(|counts| {
            counts.sort_unstable();
            counts[counts.len() / 2]
        })
        .sum()
}

fn delivery(input: &Input<'_>) -> Option<Delivery> {
    let half_ms = (input.duration_s * 500.0) as u64;
    let late = input.samples.iter().filter(|record| record.t_ms > half_ms);
    let rows = late.flat_map(|record| &record.sample.received);
    let (received, lost) = rows.fold((0, 0), |(received, lost), row| {
        (received + row.packets_received, lost + row.packets_lost)
    });
    let windows = input.machine.iter().filter(|record| record.t_ms > half_ms);
    let came = mean(windows.filter_map(|record| record.generator.packets_in_per_s));
    let tracks = received as f64 / (input.duration_s / 2.0);
    (received > 0).then(|| Delivery {
        packets_per_s: came.filter(|came| *came > 0.0).unwrap_or(tracks),
        missing_share: lost as f64 / (received + lost) as f64,
    })
}

/// The windows in steady state: all but the first, if there are more.
fn steady(machine: &[MachineRecord]) -> &[MachineRecord] {
    if machine.len() > 1 { &machine[1..] } else { machine }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), v| (sum + v, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Mean by thread name; a thread that was not there in a window counts 0 in it.
fn mean_threads<'a>(
    windows: impl Iterator<Item = &'a BTreeMap<String, f64>>,
) -> BTreeMap<String, f64> {
    let (mut sums, mut count) = (BTreeMap::<String, f64>::new(), 0u32);
    for threads in windows {
        count += 1;
        for (name, cores) in threads {
            *sums.entry(name.clone()).or_default() += cores;
        }
    }
    sums.values_mut().for_each(|sum| *sum /= f64::from(count.max(1)));
    sums
}

fn server(machine: &[MachineRecord]) -> Option<ServerSummary> {
    let all: Vec<_> = machine.iter().filter_map(|record| record.server.as_ref()).collect();
    let steady: Vec<_> =
        steady(machine).iter().filter_map(|record| record.server.as_ref()).collect();
    if all.is_empty() {
        return None;
    }
    let mut drops = BTreeMap::new();
    for (reason, count) in all.iter().flat_map(|server| &server.drops) {
        *drops.entry(reason.clone()).or_default() += count;
    }
    let cpu_cores = mean(steady.iter().filter_map(|server| server.cpu_cores));
    let packets = mean(steady.iter().filter_map(|server| server.packets_out_per_s));
    Some(ServerSummary {
        cpu_cores,
        us_per_packet_out: match (cpu_cores, packets) {
            (Some(cores), Some(packets)) if packets > 0.0 => Some(cores * 1e6 / packets),
            _ => None,
        },
        threads: mean_threads(steady.iter().map(|server| &server.threads)),
        drops,
        rss_mib: all.iter().filter_map(|server| server.rss_mib).reduce(f64::max),
        mix: all.iter().flat_map(|server| &server.mix).fold(BTreeMap::new(), |mut sums, row| {
            *sums.entry(row.0.clone()).or_default() += row.1;
            sums
        }),
    })
}

fn busiest_thread(machine: &[MachineRecord]) -> Option<(&str, f64)> {
    let busiest = steady(machine).iter().filter_map(|r| r.generator.busiest_thread.as_ref());
    busiest.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, cores)| (name.as_str(), *cores))
}

/// The generator's health: its own threads, timer, quota and sockets. Browsers are shown, not
/// judged: they share the machine's cores with everyone.
fn generator_health(input: &Input<'_>) -> GeneratorHealth {
    let mut reasons = Vec::new();
    if let Some((name, cores)) = busiest_thread(input.machine)
        && cores >= THREAD_LIMIT_CORES
    {
        reasons.push(format!("thread {name} of the generator was busy {:.0} %", cores * 100.0));
    }
    let kernel = steady(input.machine).iter().filter_map(|r| r.generator.kernel.as_ref());
    let quotas = kernel.clone().filter_map(|kernel| kernel.quota.as_ref());
    let (throttled, periods) =
        quotas.fold((0, 0), |(t, p), quota| (t + quota.throttled, p + quota.periods));
    let share = throttled as f64 / periods.max(1) as f64;
    if share > THROTTLED_LIMIT {
        reasons.push(format!("a CPU quota held it back in {:.0} % of the periods", share * 100.0));
    }
    let dropped: u64 = kernel.filter_map(|kernel| kernel.udp_drops).sum();
    if dropped > 0 {
        reasons.push(format!("its sockets' receive buffers were full for {dropped} datagrams"));
    }
    let only_late_timers = reasons.is_empty();
    if input.timer_lag_ms_p99 > TIMER_LAG_LIMIT_MS {
        let lag = short(input.timer_lag_ms_p99);
        reasons.push(format!("timers of the generator fired {lag} ms late (99th percentile)"));
    }
    let late = input.networks.iter().filter_map(|network| network.late_ms_p99).fold(0.0, f64::max);
    if late > TIMER_LAG_LIMIT_MS {
        let late = short(late);
        reasons.push(format!("the link sent packets on {late} ms late (99th percentile)"));
    }
    GeneratorHealth { only_late_timers: only_late_timers && !reasons.is_empty(), reasons }
}

fn generator(input: &Input<'_>, health: &GeneratorHealth) -> GeneratorSummary {
    let windows = steady(input.machine);
    let threads = mean_threads(windows.iter().map(|record| &record.generator.threads));
    let bots = threads.iter().filter(|(name, _)| name.starts_with("bots-"));
    let bots_cores: f64 = bots.map(|(_, cores)| cores).sum();
    let packets = windows.iter().filter_map(|record| {
        Some(record.generator.packets_out_per_s? + record.generator.packets_in_per_s?)
    });
    let packets_per_s = mean(packets);
    GeneratorSummary {
        packets_per_s,
        us_per_packet: packets_per_s.filter(|rate| *rate > 0.0).map(|r| bots_cores * 1e6 / r),
        healthy: health.reasons.is_empty(),
        cpu_cores: mean(windows.iter().map(|record| record.generator.cpu_cores)).unwrap_or(0.0),
        timer_lag_ms_p99: input.timer_lag_ms_p99,
        threads,
        reasons: health.reasons.clone(),
    }
}

/// The summary of a run that was killed: the metrics of what there is, and no verdict.
pub fn of_killed_run(meta: &Meta, samples: &[SampleRecord], machine: &[MachineRecord]) -> Summary {
    let last_ms = samples.iter().map(|record| record.t_ms).max().unwrap_or(0);
    let lag = machine.iter().map(|record| record.generator.timer_lag_ms_p99).fold(0.0, f64::max);
    let mut summary = summarize(&Input {
        meta,
        samples,
        machine,
        timer_lag_ms_p99: lag,
        joins: &[],
        first_fault: None,
        thresholds: &[],
        faults: &[
            "the run was killed: it ended before its summary was written, and nothing was judged"
                .into(),
        ],
        subscriptions: &[],
        duration_s: last_ms as f64 / 1000.0,
        interrupted: true,
        aborted: None,
        sockets: &[],
        networks: Vec::new(),
        expected: None,
    });
    (summary.verdict, summary.quality) = (Verdict::Inconclusive, None);
    summary.checks.clear();
    summary
}

/// The summary of a study, whose rows are not in it yet: it passes when nothing is missing.
pub fn of_study(meta: &Meta, faults: &[String], duration_s: f64) -> Summary {
    summarize(&Input {
        meta,
        samples: &[],
        machine: &[],
        timer_lag_ms_p99: 0.0,
        joins: &[],
        first_fault: None,
        thresholds: &[],
        faults,
        subscriptions: &[],
        duration_s,
        interrupted: false,
        aborted: None,
        sockets: &[],
        networks: Vec::new(),
        expected: None,
    })
}

/// The summary as an aligned table for a terminal.
pub fn table(summary: &Summary, meta: &Meta) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    let bots = meta.people.iter().filter(|p| p.kind == PersonKind::Bot).count();
    let people = format!(
        "{} of {} joined ({bots} bots, {} chromium)",
        summary.people,
        meta.people.len(),
        meta.people.len() - bots
    );
    rows.push(("people".into(), people));
    rows.push(("subscriptions".into(), summary.subscriptions.to_string()));
    rows.push(("duration".into(), format!("{:.0} s", summary.duration_s)));
    rows.push(("quality".into(), summary.quality.map_or("unknown", Quality::as_str).into()));
    for (label, name, unit) in [
        ("loss", "loss_pct", "%"),
        ("jitter", "jitter_ms", "ms"),
        ("rtt", "rtt_ms", "ms"),
        ("mouth to ear", "mouth_to_ear_ms", "ms"),
        ("frames", "frames_per_second", "fps"),
        ("freeze ratio", "freeze_ratio", ""),
        ("MOS-LQ", "mos_lq", ""),
        ("MOS-CQ", "mos_cq", ""),
        ("join to audio", "join_to_first_audio_ms", "ms"),
        ("join to frame", "join_to_first_frame_ms", "ms"),
    ] {
        let text = match summary.metrics.get(name).and_then(Option::as_ref) {
            None => "not measured".to_owned(),
            Some(m) => format!(
                "median {}  p95 {}  max {}  people p5 {}  p95 {}  {unit}{}",
                short(m.p50),
                short(m.p95),
                short(m.max),
                short(m.user_p5),
                short(m.user_p95),
                m.delay.as_ref().map_or(String::new(), |delay| format!("(delay {delay})"))
            ),
        };
        rows.push((label.into(), text.trim_end().into()));
    }
    for network in &summary.networks {
        for (way, did) in [("up", &network.up), ("down", &network.down)] {
            let (Some(loss_pct), Some(delay_ms)) = (did.loss_pct, did.delay_ms) else { continue };
            let jitter_ms = did.jitter_ms.map_or("none".to_owned(), short);
            let text = format!(
                "{} {way}: {} packets, {} % lost, {} ms delay, {jitter_ms} ms jitter made",
                network.name,
                did.packets,
                short(loss_pct),
                short(delay_ms)
            );
            rows.push(("network".into(), text));
        }
    }
    if let Some(churn) = &summary.churn {
        let arrived = churn.arrived.map_or(String::new(), |arrived| {
            format!("{arrived} arrived, {} dropped  ", churn.dropped.unwrap_or(0))
        });
        let failed: u64 = churn.failures.values().sum();
        rows.push(("visits".into(), format!("{arrived}{} whole, {failed} failed", churn.loops)));
    }
    rows.extend(usage_rows(summary));
    rows.extend(bottleneck_rows(&summary.bottleneck));
    for threshold in &summary.thresholds {
        let value = threshold.value.map_or("not measured".to_owned(), short);
        let mark = if threshold.ok { "ok" } else { "FAILED" };
        rows.push(("threshold".into(), format!("{mark}  {}  ({value})", threshold.expr)));
    }
    for check in &summary.checks {
        let mark = if check.ok { "ok" } else { "FAILED" };
        rows.push(("check".into(), format!("{mark}  {}: {}", check.name, check.detail)));
    }
    let width = rows.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (label, value) in rows {
        text.push_str(&format!("{label:<width$}  {value}\n"));
    }
    text.push_str(&format!(
        "\nverdict: {} (exit {})\n",
        summary.verdict.as_str(),
        summary.exit_code
    ));
    for failure in &summary.failures {
        text.push_str(&format!("  - {failure}\n"));
    }
    text
}

/// What broke first, in the table.
fn bottleneck_rows(found: &Bottleneck) -> Vec<(String, String)> {
    let Some(first) = &found.first else { return Vec::new() };
    let second = found.second.as_ref().map_or(String::new(), |id| format!(", then {id}"));
    let state = found.state.as_ref().map_or(String::new(), |state| format!(" ({state})"));
    let mut rows = vec![("bottleneck".to_owned(), format!("{first}{state}{second}"))];
    rows.extend(found.evidence.iter().map(|text| ("  evidence".to_owned(), text.clone())));
    rows
}

/// Server and generator in the table.
fn usage_rows(summary: &Summary) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let threads = |threads: &BTreeMap<String, f64>| {
        let mut threads: Vec<_> = threads.iter().collect();
        threads.sort_by(|a, b| b.1.total_cmp(a.1));
        let shown: Vec<String> =
            threads.iter().take(6).map(|(n, c)| format!("{n} {:.1} %", **c * 100.0)).collect();
        shown.join("  ")
    };
    match &summary.server {
        None => rows.push(("server".into(), "not on this machine".into())),
        Some(server) => {
            let known = |v: Option<f64>| v.map_or("unknown".to_owned(), short);
            let text = format!(
                "{} cores  {} µs a packet out  {} MiB",
                known(server.cpu_cores),
                known(server.us_per_packet_out),
                known(server.rss_mib)
            );
            rows.push(("server".into(), text));
            rows.push(("  threads".into(), threads(&server.threads)));
            for (reason, count) in &server.drops {
                rows.push(("  dropped".into(), format!("{count} {reason}")));
            }
        }
    }
    let generator = &summary.generator;
    let health = if generator.healthy { "healthy" } else { "at its limit" };
    let text = format!(
        "{health}  {} cores  timer lag p99 {} ms",
        short(generator.cpu_cores),
        short(generator.timer_lag_ms_p99)
    );
    rows.push(("generator".into(), text));
    if let (Some(rate), Some(us)) = (generator.packets_per_s, generator.us_per_packet) {
        let text = format!("{} packets/s at {} µs each", short(rate), short(us));
        rows.push(("  bots".into(), text));
    }
    rows.push(("  threads".into(), threads(&generator.threads)));
    rows.extend(generator.reasons.iter().map(|reason| ("  limit".into(), reason.clone())));
    rows
}

#[cfg(test)]
pub(crate) mod tests;
