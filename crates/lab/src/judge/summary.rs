//! The summary of a run: its verdict, and the figures that other programs read.

mod input;
mod quality;
mod table;
mod usage;

use crate::base::{mean, percentile, short};
use crate::judge::agreement::{self, Agreement};
pub use crate::judge::bottleneck::Bottleneck;
use crate::judge::bottleneck::{self, Danger, GeneratorHealth, Signs};
pub use crate::judge::expected::Check;
use crate::judge::expected::{Churn, Failure};
pub use crate::judge::quality::Quality;
use crate::judge::sockets as of_sockets;
use crate::judge::threshold::{Threshold, ThresholdResult, Windows};
use crate::observe::metrics::{Collector, Reduced};
use crate::observe::sockets;
use crate::record::{
    About, Join, MachineMeta, MachineRecord, Meta, MixWindows, NetworkSummary, Row, SCHEMA,
    SampleRecord, SocketsSummary,
};
pub use input::Input;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
pub use table::table;
pub use usage::{GeneratorSummary, ServerSummary, Void};
use usage::{generator, generator_health, server};
use wire::room::MediaKind;

/// At most so many failures are listed.
const MAX_FAILURES: usize = 200;

/// How a run ends, as the exit code of the command.
pub mod exit {
    /// All thresholds and checks hold.
    pub const PASS: u8 = 0;
    /// A threshold or a check failed.
    pub const FAIL: u8 = 99;
    /// The scenario is bad, or there is no place for the record.
    pub const BAD_CONFIGURATION: u8 = 104;
    /// Interrupted; the record is complete up to then.
    pub const INTERRUPTED: u8 = 105;
    /// The generator was the limit: inconclusive.
    pub const GENERATOR_LIMIT: u8 = 110;
    /// The target does not answer.
    pub const TARGET_UNREACHABLE: u8 = 111;
    /// A side of a comparison is worse than the first by more than the margin.
    pub const WORSE: u8 = 112;
    /// Browsers and bots disagree: neither can be believed.
    pub const DISAGREEMENT: u8 = 113;
    /// It passed, but its record could not be written as a whole.
    pub const RECORD: u8 = 114;
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

impl Summary {
    /// It ended with this exit code, and the verdict follows from that: of what is made from several runs.
    pub fn end(&mut self, code: u8) {
        self.exit_code = code;
        self.verdict = match code {
            exit::PASS => Verdict::Pass,
            exit::FAIL | exit::WORSE => Verdict::Fail,
            _ => Verdict::Inconclusive,
        };
    }
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

/// What came of people who come and go.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChurnSummary {
    /// Visits that lasted as long as they were to.
    pub loops: u64,
    /// Visits that failed, by reason.
    pub failures: BTreeMap<String, u64>,
    /// People who came at a rate; null if nobody did.
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
    /// How good it was; null if that was not measured, or if the generator was the limit.
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
    /// What came through in the second half of the run; null if nobody received anything.
    #[serde(default)]
    pub delivery: Option<Delivery>,
    /// The server; null if it is not on this machine and tells no metrics.
    pub server: Option<ServerSummary>,
    /// The generator.
    pub generator: GeneratorSummary,
    /// Where the load was made.
    pub machine: MachineMeta,
    /// Built-in checks.
    pub checks: Vec<Check>,
    /// All that failed, in words.
    pub failures: Vec<String>,
    /// What the verdict says nothing of, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_judged: Vec<String>,
    /// How browsers and bots agreed; null if they shared no room and network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<Agreement>,
    /// Windows of a mix that listeners judged; null if nobody did.
    #[serde(default)]
    pub mix_windows: Option<u64>,
    /// Those of them in which somebody was missing, or was heard who should not be.
    #[serde(default)]
    pub mix_windows_wrong: Option<u64>,
    /// Bots who came and went; null if nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub churn: Option<ChurnSummary>,
    /// Browsers that came and went; null if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub browsers_churn: Option<ChurnSummary>,
    /// Groups of sockets without a room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketsSummary>,
    /// What the links before people did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkSummary>,
    /// The rows of a study, each with the study's own figures beside ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study: Option<Vec<Row>>,
    /// The tables and plots that a study's rows belong to, and what was shown and not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study_about: Option<About>,
}

/// Makes the summary and with it the verdict.
pub fn summarize(input: &Input<'_>) -> Summary {
    let mut collector = Collector::default();
    for record in input.samples {
        collector.add(&record.person, &record.sample);
    }
    input.joins.iter().for_each(|join| collector.join(join));
    let mut metrics = collector.reduce();
    if let Some(all) = input.socket_counts.get(&Duration::ZERO) {
        let of_sockets = sockets::NAMES.iter().map(|name| ((*name).to_owned(), all.reduce(name)));
        metrics.extend(of_sockets);
    }
    let thresholds = thresholds(input);
    let people = input.meta.people.iter().filter(|p| p.participant.is_some()).count();
    let agreement = agreement::compare(input.meta, input.samples);
    let checks = checks(input, people, agreement.as_ref());
    let (mut health, void) = generator_health(input);
    let (mut failures, checks_failed) = failures(input, people, &thresholds);
    let failed = !failures.is_empty();
    if failed
        && health.reasons.is_empty()
        && !void.is_empty()
        && !fails_outside(input, people, &void)
    {
        health = usage::broke_in_void(input, &void);
    }
    let generator = generator(input, &health, void);
    let disagreements = agreement.iter().flat_map(|agreement| agreement.disagreements.clone());
    failures.extend(disagreements);
    let disagree = agreement.as_ref().is_some_and(|one| !one.disagreements.is_empty());
    let server = server(input.machine);
    let by_figures = quality::by_figures(input, &metrics, server.as_ref());
    let quality = quality::judge(input, &generator, by_figures);
    let (verdict, exit_code) = match verdict(input, &health, checks_failed, failed) {
        // One of them is wrong, and nobody knows which. A failed check does not depend on what they read: people could
        // not join, or received nothing.
        (_, exit::PASS | exit::FAIL) if disagree && !checks_failed => {
            (Verdict::Inconclusive, exit::DISAGREEMENT)
        }
        other => other,
    };
    let not_judged = not_judged(input, &metrics, server.as_ref());
    let danger = (by_figures == Some(Quality::Danger)).then(|| quality::server_cpus(input));
    let bottleneck = bottleneck(input, &health, &thresholds, failed, danger);
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
        not_judged,
        agreement,
        mix_windows: mix_windows(input, |heard| heard.windows),
        mix_windows_wrong: mix_windows(input, |heard| heard.wrong),
        churn: input.expected.and_then(|expected| churn(&expected.churn)),
        browsers_churn: input.expected.and_then(|expected| churn(&expected.browsers_churn)),
        sockets: input.sockets.to_vec(),
        networks: input.networks.clone(),
        study: None,
        study_about: None,
    }
}

/// How the scenario's thresholds came out.
fn thresholds(input: &Input<'_>) -> Vec<ThresholdResult> {
    let mut windows = Windows::new(input.thresholds);
    input.samples.iter().for_each(|record| windows.add(record));
    input.joins.iter().for_each(|join| windows.join(join));
    windows.sockets(input.socket_counts.clone());
    input.thresholds.iter().map(|threshold| windows.judge(threshold)).collect()
}

/// All that failed, in words, and whether a check is among it.
fn failures(
    input: &Input<'_>,
    people: usize,
    thresholds: &[ThresholdResult],
) -> (Vec<String>, bool) {
    let mut failures: Vec<String> = input.faults.to_vec();
    failures.extend(input.subscriptions.iter().map(|failure| failure.text.clone()));
    let checks = of_sockets::checks(input.sockets, input.thresholds).into_iter();
    failures.extend(checks.filter(|check| !check.ok).map(|check| check.detail));
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
    (failures, checks_failed)
}

/// Whether something fails that lies in no void window.
fn fails_outside(input: &Input<'_>, people: usize, void: &[Void]) -> bool {
    let valid =
        |from_ms: u64, until_ms: u64| !void.iter().any(|one| one.overlaps(from_ms, until_ms));
    let samples: Vec<SampleRecord> = (input.samples.iter())
        .filter(|record| valid(record.began().as_millis() as u64, record.t_ms))
        .cloned()
        .collect();
    let came = |join: &&Join| valid(join.t_ms.saturating_sub(join.took_ms as u64), join.t_ms + 1);
    let joins: Vec<Join> = input.joins.iter().filter(came).cloned().collect();
    // What lasts beyond a void window is judged.
    let within = |from_ms: u64, until_ms: u64| {
        void.iter().any(|one| one.from_ms <= from_ms && until_ms <= one.until_ms)
    };
    let alive = |failure: &&Failure| {
        let until_ms = failure.until_ms.unwrap_or(u64::MAX);
        !within(failure.since_ms, until_ms)
    };
    let subscriptions: Vec<Failure> = input.subscriptions.iter().filter(alive).cloned().collect();
    let first_in_void = input.first_fault.is_some_and(|(t_ms, _)| within(*t_ms, *t_ms));
    let faults = if first_in_void && input.faults.len() == 1 { &[] } else { input.faults };
    let sockets: Vec<SocketsSummary> =
        input.sockets.iter().map(|group| group.outside(valid)).collect();
    let rest = Input {
        samples: &samples,
        joins: &joins,
        subscriptions: &subscriptions,
        faults,
        sockets: &sockets,
        networks: Vec::new(),
        aborted: None,
        ..*input
    };
    let of_sockets = |threshold: &Threshold| sockets::NAMES.contains(&threshold.metric);
    let results = thresholds(&rest);
    let judged = input.thresholds.iter().zip(results).map(|(threshold, result)| {
        // Their counts cannot be taken apart, but their seconds can. What nobody measured now was measured in void windows alone.
        let ok = match of_sockets(threshold) {
            true => result.ok || !of_sockets::breaks_in_a_second(&sockets, threshold),
            false => result.ok || result.value.is_none(),
        };
        ThresholdResult { ok, ..result }
    });
    !failures(&rest, people, &judged.collect::<Vec<_>>()).0.is_empty()
}

/// What can stand behind a bad call, and that this run could not see or was not asked to judge.
fn not_judged(
    input: &Input<'_>,
    metrics: &BTreeMap<String, Option<Reduced>>,
    server: Option<&ServerSummary>,
) -> Vec<String> {
    let mut all = Vec::new();
    if input.thresholds.is_empty() {
        all.push("no thresholds: only checks were judged".to_owned());
    }
    let rows = || input.samples.iter().flat_map(|record| &record.sample.received);
    let seen = |kind: MediaKind| rows().any(|row| row.kind == kind);
    for (of, metric, what) in [
        (MediaKind::Audio, "mouth_to_ear_ms", "the delay from mouth to ear"),
        (MediaKind::Video, "camera_to_screen_ms", "the delay from camera to screen"),
    ] {
        if seen(of) && metrics.get(metric).is_none_or(Option::is_none) {
            all.push(format!("{what}: nobody measured it"));
        }
    }
    if server.is_none_or(|server| server.cpu_cores.is_none()) {
        all.push("the server's CPU: nobody measured it".into());
    }
    all
}

/// Sum over all listeners who judged a mix; None if nobody did.
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

/// What broke first, and when quality broke. `danger`: how many CPUs the server has, if the run's
/// figures are dangerous.
fn bottleneck(
    input: &Input<'_>,
    health: &GeneratorHealth,
    results: &[ThresholdResult],
    failed: bool,
    danger: Option<usize>,
) -> Bottleneck {
    if input.machine.is_empty() {
        return Bottleneck::default();
    }
    let pairs = input.thresholds.iter().zip(results);
    let thresholds: Vec<_> = pairs.filter(|(_, result)| !result.ok).map(|(one, _)| one).collect();
    let broke = (failed || danger.is_some()).then(|| {
        bottleneck::first_break(&Signs {
            samples: input.samples,
            joins: input.joins,
            failed: &thresholds,
            first_fault: input.first_fault,
            subscriptions: input.subscriptions,
            sockets: input.sockets,
            danger: danger.map(|cpus| Danger { machine: input.machine, cpus }),
        })
    });
    bottleneck::judge(input.machine, health, broke.flatten().as_ref())
}

/// The verdict. A generator at its limit proves nothing, whatever else failed.
fn verdict(
    input: &Input<'_>,
    generator: &GeneratorHealth,
    checks_failed: bool,
    failed: bool,
) -> (Verdict, u8) {
    if input.interrupted {
        let verdict = if checks_failed { Verdict::Fail } else { Verdict::Inconclusive };
        (verdict, exit::INTERRUPTED)
    } else if !generator.reasons.is_empty() {
        (Verdict::Inconclusive, exit::GENERATOR_LIMIT)
    } else if failed {
        (Verdict::Fail, exit::FAIL)
    } else {
        (Verdict::Pass, exit::PASS)
    }
}

fn checks(input: &Input<'_>, people: usize, agreement: Option<&Agreement>) -> Vec<Check> {
    let all = input.meta.people.len();
    let missing = input.subscriptions.len();
    let alive = if missing == 0 {
        "every expected subscription was alive in every window".to_owned()
    } else {
        format!("{missing} failures")
    };
    let mut checks = vec![
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
    ];
    checks.extend(of_sockets::checks(input.sockets, input.thresholds));
    checks.extend(agreement.map(|agreement| Check {
        name: "browsers and bots agree".into(),
        ok: agreement.disagreements.is_empty(),
        detail: agreement.to_string(),
    }));
    checks
}

fn others(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" (and {count} more)") }
}

/// Tracks received at once: the median over each person's samples, added up. (The maximum would also
/// count tracks that were shown one after the other in a window.)
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

/// The summary of a run that was killed: the metrics of what there is, and no verdict.
pub fn of_killed_run(meta: &Meta, samples: &[SampleRecord], machine: &[MachineRecord]) -> Summary {
    let ends = samples.iter().map(|record| record.t_ms);
    let last_ms = ends.chain(machine.iter().map(|record| record.t_ms)).max().unwrap_or(0);
    let lag = machine.iter().map(|record| record.generator.timer_lag_ms_p99).fold(0.0, f64::max);
    let mut summary = summarize(&Input {
        samples,
        machine,
        timer_lag_ms_p99: lag,
        faults: &[
            "the run was killed: it ended before its summary was written, and nothing was judged"
                .into(),
        ],
        duration_s: last_ms as f64 / 1000.0,
        interrupted: true,
        sockets: &sockets_of_killed_run(machine),
        ..Input::of(meta)
    });
    (summary.verdict, summary.quality) = (Verdict::Inconclusive, None);
    summary.checks.clear();
    summary.not_judged.clear();
    summary
}

/// The groups of sockets of a run that was killed, as far as its windows tell.
fn sockets_of_killed_run(machine: &[MachineRecord]) -> Vec<SocketsSummary> {
    let groups = machine.iter().map(|record| record.sockets.len()).max().unwrap_or(0);
    let of_group = |at: usize| {
        let seconds = machine.iter().filter_map(|record| record.sockets.get(at)).flatten();
        let seconds: Vec<_> = seconds.copied().collect();
        let most = seconds.iter().map(|second| second.live).max().unwrap_or(0);
        let live = seconds.last().map_or(0, |second| second.live);
        SocketsSummary { connections: most, connected: most, live, seconds, ..Default::default() }
    };
    (0..groups).map(of_group).collect()
}

/// The summary of a study or a search: its rows, with the tables that they belong to. It passes when nothing is missing.
pub fn of_study(meta: &Meta, faults: &[String], (rows, about): (Vec<Row>, About)) -> Summary {
    let duration_s = meta.duration_s;
    let summary = summarize(&Input { faults, duration_s, ..Input::of(meta) });
    // It judges nothing.
    let not_judged = Vec::new();
    Summary { not_judged, study: Some(rows), study_about: Some(about), ..summary }
}

#[cfg(test)]
pub(crate) mod tests;
