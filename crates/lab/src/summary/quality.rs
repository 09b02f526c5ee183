//! A word for how good a run was.

use super::{GeneratorSummary, Input, ServerSummary};
use crate::bottleneck::{self, Break};
use crate::metrics::Reduced;
use crate::threshold::{Condition, Threshold};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Loss (95th percentile over people) and share of the server's CPUs beyond which a run is in danger.
const DANGER_LOSS_PCT: f64 = 5.0;
const DANGER_CPU_PCT: f64 = 90.0;

/// How good a run was, in the words of study A ([`Quality::MEANING`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// Recommended.
    Stable,
    /// Between the two.
    Caution,
    /// Not to be used so.
    Danger,
}

impl Quality {
    /// What the words mean.
    pub const MEANING: &'static str = "stable where loss stays under 1 % for 95 % of people and the server under 50 % of its \
         CPUs, danger where loss is over 5 %, the server over 90 %, or a subscription was dead for a \
         window, caution between";
    /// All, from good to bad.
    pub const ALL: [Self; 3] = [Self::Stable, Self::Caution, Self::Danger];

    /// By loss (95th percentile over people) and the share that the server used of its CPUs, both
    /// in percent; none where what is known does not tell.
    pub(super) fn of(loss_pct: Option<f64>, server_cpu_pct: Option<f64>) -> Option<Self> {
        let lossy = loss_pct.is_some_and(|loss| loss > DANGER_LOSS_PCT);
        if lossy || server_cpu_pct.is_some_and(|cpu| cpu > DANGER_CPU_PCT) {
            return Some(Self::Danger);
        }
        match (loss_pct?, server_cpu_pct?) {
            (loss, cpu) if loss < 1.0 && cpu < 50.0 => Some(Self::Stable),
            _ => Some(Self::Caution),
        }
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Caution => "caution",
            Self::Danger => "danger",
        }
    }
}

/// When the word became `danger` by loss or by the server's CPUs, for `broke` to explain it.
pub(super) fn became_danger(
    input: &Input<'_>,
    metrics: &BTreeMap<String, Option<Reduced>>,
) -> Option<Break> {
    let cpus = server_cpus(input);
    let full = input.machine.iter().find_map(|record| {
        let share = record.server.as_ref()?.cpu_cores? / cpus;
        (share > DANGER_CPU_PCT / 100.0).then(|| {
            let why = format!("the server used {:.0} % of its CPUs", share * 100.0);
            Break::new(record.t_ms, why)
        })
    });
    let loss = Threshold {
        metric: "loss_pct",
        condition: Condition::parse(&format!("user_p95 <= {DANGER_LOSS_PCT}")).ok()?,
        abort: None,
    };
    let lossy = !loss.judge(metrics).ok && loss_pct(metrics).is_some();
    let lost = lossy.then(|| bottleneck::first_break(input.samples, &[], &[&loss], None, &[]));
    let lost = lost.flatten();
    lost.into_iter().chain(full).min_by_key(|broke| broke.t_ms)
}

/// Loss in percent, 95th percentile over people.
fn loss_pct(metrics: &BTreeMap<String, Option<Reduced>>) -> Option<f64> {
    metrics.get("loss_pct").and_then(|loss| Some(loss.as_ref()?.user_p95))
}

/// CPUs that the server was given, or all.
fn server_cpus(input: &Input<'_>) -> f64 {
    let meta = input.meta;
    let cpus = meta.cpus.as_ref().map_or(meta.machine.cores, |sets| sets.server.len());
    cpus.max(1) as f64
}

/// The word of a run; none where the generator was the limit: it proves nothing.
pub(super) fn judge(
    input: &Input<'_>,
    metrics: &BTreeMap<String, Option<Reduced>>,
    generator: &GeneratorSummary,
    server: Option<&ServerSummary>,
) -> Option<Quality> {
    if !generator.healthy {
        return None;
    }
    // Media that is gone is in no loss of packets.
    if !input.subscriptions.is_empty() {
        return Some(Quality::Danger);
    }
    let cores = server.and_then(|server| server.cpu_cores);
    Quality::of(loss_pct(metrics), cores.map(|cores| cores * 100.0 / server_cpus(input)))
}
