//! When quality broke: the first fault, the first window in which a threshold that failed over the
//! whole run fails, or the first window whose word is `danger` if the whole run's is.

use crate::base::short;
use crate::judge::expected::Failure;
use crate::judge::quality::Quality;
use crate::judge::sockets as of_sockets;
use crate::judge::threshold::Threshold;
use crate::observe::metrics::Collector;
use crate::observe::sockets;
use crate::record::{Join, MachineRecord, SampleRecord, SocketsSummary};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::quality::SAMPLE_INTERVAL_MS;

/// Who joins waits for so many round trips at least: one of ICE, two of DTLS.
const JOIN_ROUND_TRIPS: f64 = 3.0;

/// The moment in which quality broke.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Break {
    /// In milliseconds since the start of the run.
    pub t_ms: u64,
    /// What broke.
    pub why: String,
    /// Whom it concerns; empty if that is not known.
    pub people: Vec<String>,
    /// Pictures were paused or too small, for these people if it is known for whom: it may be that their paths do not carry
    /// more.
    pub limited: bool,
    /// It took too long, and the way there and back is a part of that: what a round trip could take at most if nothing else
    /// took any time, in ms.
    pub allowed_ms: Option<f64>,
}

impl Break {
    fn new(t_ms: u64, why: String) -> Self {
        Self { t_ms, why, ..Self::default() }
    }
}

/// All that may tell when quality broke.
#[derive(Debug, Clone, Copy, Default)]
pub struct Signs<'a> {
    /// All samples, each person's in order.
    pub samples: &'a [SampleRecord],
    /// Everyone whose media was connected.
    pub joins: &'a [Join],
    /// The thresholds that do not hold.
    pub failed: &'a [&'a Threshold],
    /// The first fault, and when it was seen.
    pub first_fault: Option<&'a (u64, String)>,
    /// Subscriptions that were not alive.
    pub subscriptions: &'a [Failure],
    /// Groups of sockets without a room.
    pub sockets: &'a [SocketsSummary],
    /// Set if the run's word is `danger` by its figures: what finds the first such window.
    pub danger: Option<Danger<'a>>,
}

/// What the word of a window needs besides samples.
#[derive(Debug, Clone, Copy)]
pub struct Danger<'a> {
    /// Usage of the machine.
    pub machine: &'a [MachineRecord],
    /// How many CPUs the server was given.
    pub cpus: usize,
}

/// When quality broke first; None if it held.
pub fn first_break(signs: &Signs<'_>) -> Option<Break> {
    let fault = signs.first_fault.map(|(t_ms, why)| Break::new(*t_ms, why.clone()));
    let silent = signs.subscriptions.iter().min_by_key(|failure| failure.since_ms).map(|failure| {
        let people = failure.listeners.iter().chain(&failure.publisher).cloned().collect();
        Break { people, ..Break::new(failure.since_ms, failure.text.clone()) }
    });
    let lost = of_sockets::first_lost(signs.sockets).map(|(t_ms, why)| Break::new(t_ms, why));
    let thresholds = signs.failed.iter().filter_map(|threshold| {
        if sockets::NAMES.contains(&threshold.metric) {
            let (t_ms, why) = of_sockets::broke(signs.sockets, threshold)?;
            return Some(Break::new(t_ms, why));
        }
        let broke = first_window(threshold, &by_window(signs, threshold.from));
        Some(match threshold.metric {
            "paused_ratio" => paused(signs.samples, broke),
            "frame_height" => Break { limited: true, ..broke },
            "rtt_ms" | "mouth_to_ear_ms" => {
                Break { allowed_ms: threshold.condition.most(), ..broke }
            }
            metric if metric.starts_with("join_to_") => {
                let most_ms = threshold.condition.most();
                Break { allowed_ms: most_ms.map(|ms| ms / JOIN_ROUND_TRIPS), ..broke }
            }
            _ => broke,
        })
    });
    let danger = signs
        .danger
        .and_then(|danger| first_danger(danger, signs.samples, &by_window(signs, Duration::ZERO)));
    // Of two at the same moment the first counts: the one that says whom it concerns tells more.
    let all = [silent, danger, fault, lost].into_iter().flatten().chain(thresholds);
    all.min_by_key(|broke| broke.t_ms)
}

/// The first window whose own word is `danger`; the last window if only the whole run's is.
fn first_danger(
    danger: Danger<'_>,
    samples: &[SampleRecord],
    windows: &[(u64, Collector)],
) -> Option<Break> {
    let is = |loss_pct, cpu_pct| Quality::of(loss_pct, cpu_pct) == Some(Quality::Danger);
    let lossy = windows.iter().find_map(|(t_ms, collector)| {
        let metrics = collector.reduce();
        let loss_pct = metrics.get("loss_pct")?.as_ref()?.user_p95;
        let why = || format!("danger: {} % lost (95th percentile of people)", short(loss_pct));
        let people = || who_loses(samples, *t_ms);
        is(Some(loss_pct), None).then(|| Break { people: people(), ..Break::new(*t_ms, why()) })
    });
    let busy = danger.machine.iter().find_map(|record| {
        let cores = record.server.as_ref()?.cpu_cores?;
        let pct = cores * 100.0 / danger.cpus.max(1) as f64;
        let why = || format!("danger: the server used {pct:.0} % of its CPUs");
        is(None, Some(pct)).then(|| Break::new(record.t_ms, why()))
    });
    let first = [lossy, busy].into_iter().flatten().min_by_key(|broke| broke.t_ms);
    let last = || Some(Break::new(windows.last()?.0, "danger over the whole run".into()));
    first.or_else(last)
}

/// Who loses dangerously much in a window.
fn who_loses(samples: &[SampleRecord], window_ms: u64) -> Vec<String> {
    let within = samples.iter().filter(|record| window(record.t_ms) == window_ms);
    let loses = within.filter(|record| {
        let rows = record.sample.received.iter();
        let (lost, received) = rows.fold((0, 0), |(lost, received), row| {
            (lost + row.packets_lost, received + row.packets_received)
        });
        lost as f64 * 100.0 > Quality::DANGEROUS_LOSS_PCT * (lost + received) as f64
    });
    loses.map(|record| record.person.clone()).collect()
}

/// Whose pictures were paused when that was too much, and since when.
fn paused(samples: &[SampleRecord], broke: Break) -> Break {
    let is = |record: &&SampleRecord| {
        record.sample.received.iter().any(|row| row.paused_ratio.is_some_and(|share| share > 0.0))
    };
    let before = samples.iter().filter(is).filter(|record| record.t_ms <= broke.t_ms);
    let t_ms = before.clone().map(|record| window(record.t_ms)).min().unwrap_or(broke.t_ms);
    let people: BTreeSet<String> = before.map(|record| record.person.clone()).collect();
    Break { t_ms, people: people.into_iter().collect(), limited: true, ..broke }
}

/// The end of the window that a moment belongs to.
fn window(t_ms: u64) -> u64 {
    t_ms.div_ceil(SAMPLE_INTERVAL_MS) * SAMPLE_INTERVAL_MS
}

/// A collector a window, with the window's end, of all that began from a moment on.
fn by_window(signs: &Signs<'_>, from: Duration) -> Vec<(u64, Collector)> {
    let mut windows: BTreeMap<u64, Collector> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for record in signs.samples {
        if record.began() < from {
            known.insert(&record.person);
            continue;
        }
        let collector = windows.entry(window(record.t_ms)).or_default();
        // The first sample of each is warm-up here as in the whole.
        if known.insert(&record.person) {
            collector.add(&record.person, &record.sample);
        } else {
            collector.add_warm(&record.person, &record.sample);
        }
    }
    for join in signs.joins.iter().filter(|join| Duration::from_millis(join.t_ms) >= from) {
        let collector = windows.entry(window(join.t_ms)).or_default();
        collector.join(join);
    }
    windows.into_iter().collect()
}

/// The first window in which a threshold fails; the last one if it fails in none by itself.
fn first_window(threshold: &Threshold, windows: &[(u64, Collector)]) -> Break {
    let fails = |collector: &Collector| {
        let result = threshold.judge(collector);
        (!result.ok).then_some(result.value).flatten()
    };
    let found = windows.iter().find_map(|(t_ms, one)| Some((*t_ms, fails(one)?)));
    let t_ms = found.or(windows.last().map(|(t_ms, _)| (*t_ms, f64::NAN)));
    let (t_ms, value) = t_ms.unwrap_or((0, f64::NAN));
    let why = match value.is_nan() {
        true => format!("{threshold} does not hold over the whole run"),
        false => format!("{threshold} does not hold: it was {}", short(value)),
    };
    Break::new(t_ms, why)
}
