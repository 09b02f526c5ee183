//! What server and generator used over a run, and whether the generator was at its limit.

use super::input::Input;
use crate::base::mean;
use crate::judge::bottleneck::GeneratorHealth;
use crate::judge::generator::{self, Limit};
use crate::record::MachineRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Memory of the lab itself at its most, in MiB; null if it was not read.
    #[serde(default)]
    pub rss_mib: Option<f64>,
    /// Datagrams a second that its bots sent and received; null if it has no bots.
    #[serde(default)]
    pub packets_per_s: Option<f64>,
    /// CPU time of the bots' threads for each of these, in µs, all that bots do included.
    #[serde(default)]
    pub us_per_packet: Option<f64>,
    /// Why it was the limit.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// Windows in which it was at its limit: what was seen there may be its doing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub void: Vec<Void>,
}

/// The windows in steady state: all but the first, if there are more.
fn steady(machine: &[MachineRecord]) -> &[MachineRecord] {
    if machine.len() > 1 { &machine[1..] } else { machine }
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

pub(super) fn server(machine: &[MachineRecord]) -> Option<ServerSummary> {
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

/// The generator's health: what it lacked over the whole run, and in which windows it was at its limit. The first window counts
/// too. Such windows are void. A run of which more than one and more than a tenth are is inconclusive.
pub(super) fn generator_health(input: &Input<'_>) -> (GeneratorHealth, Vec<Void>) {
    let void = void_windows(input.machine);
    let most = (input.machine.len() as f64 * VOID_SHARE).max(1.0);
    let all = input.machine.iter().map(|record| &record.generator);
    let mut limits = match void.len() as f64 > most {
        true => reasons(input, &void),
        false => generator::of_all(all),
    };
    let late = input.networks.iter().filter_map(|network| network.late_ms_p99).fold(0.0, f64::max);
    limits.extend((late > generator::LATE_MS).then_some(Limit::Link(late)));
    let error = input.networks.iter().find_map(|network| network.socket_error.clone());
    limits.extend(error.map(Limit::LinkSocket));
    let late = input.sockets.iter().filter_map(|group| group.late_ms_p99).fold(0.0, f64::max);
    limits.extend((late > generator::LATE_INPUTS_MS).then_some(Limit::Late(late)));
    (health(&limits), void)
}

/// The share of a run's windows that may be void.
const VOID_SHARE: f64 = 0.1;

/// A window in which the generator could have done what was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Void {
    /// Its begin, in milliseconds since the start of the run.
    pub from_ms: u64,
    /// Its end.
    pub until_ms: u64,
    /// What the generator lacked.
    pub why: String,
}

impl Void {
    /// Whether it has a moment or a part of a stretch in common with this one.
    pub(super) fn overlaps(&self, from_ms: u64, until_ms: u64) -> bool {
        from_ms < self.until_ms && until_ms > self.from_ms
    }
}

fn void_windows(machine: &[MachineRecord]) -> Vec<Void> {
    let mut from_ms = 0;
    let window = |record: &MachineRecord| {
        let (usage, begin_ms) = (&record.generator, from_ms);
        from_ms = record.t_ms;
        let limits = generator::limits(std::iter::once(usage), usage.timer_lag_ms_p99);
        let why = limits.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        (!limits.is_empty()).then_some(Void { from_ms: begin_ms, until_ms: record.t_ms, why })
    };
    machine.iter().filter_map(window).collect()
}

/// What the generator lacked in void windows, at its worst.
fn reasons(input: &Input<'_>, void: &[Void]) -> Vec<Limit> {
    let is_void = |record: &&MachineRecord| void.iter().any(|one| one.until_ms == record.t_ms);
    let usages = input.machine.iter().filter(is_void).map(|record| &record.generator);
    let lag = usages.clone().map(|usage| usage.timer_lag_ms_p99).fold(0.0, f64::max);
    generator::limits(usages, lag)
}

fn health(limits: &[Limit]) -> GeneratorHealth {
    GeneratorHealth {
        only_late_timers: !limits.is_empty() && limits.iter().all(Limit::is_lateness),
        reasons: limits.iter().map(ToString::to_string).collect(),
    }
}

/// The health of a generator that could have done what broke: that lies in its void windows.
pub(super) fn broke_in_void(input: &Input<'_>, void: &[Void]) -> GeneratorHealth {
    health(&reasons(input, void))
}

pub(super) fn generator(
    input: &Input<'_>,
    health: &GeneratorHealth,
    void: Vec<Void>,
) -> GeneratorSummary {
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
        rss_mib: windows.iter().filter_map(|record| record.generator.rss_mib).reduce(f64::max),
        reasons: health.reasons.clone(),
        void,
    }
}
