//! The word for how good a run was.

use super::input::Input;
use super::usage::{GeneratorSummary, ServerSummary};
use crate::judge::quality::Quality;
use crate::observe::metrics::Reduced;
use std::collections::BTreeMap;

/// The word of a run; None if the generator was the limit: the run proves nothing.
pub(super) fn judge(
    input: &Input<'_>,
    generator: &GeneratorSummary,
    by_figures: Option<Quality>,
) -> Option<Quality> {
    if !generator.healthy {
        return None;
    }
    // Media that stopped altogether does not show as packet loss.
    if !input.subscriptions.is_empty() {
        return Some(Quality::Danger);
    }
    by_figures
}

/// The CPUs that the server was given, or all.
pub(super) fn server_cpus(input: &Input<'_>) -> usize {
    let meta = input.meta;
    meta.cpus.as_ref().map_or(meta.machine.cores, |sets| sets.server.len()).max(1)
}

/// The word that figures alone give.
pub(super) fn by_figures(
    input: &Input<'_>,
    metrics: &BTreeMap<String, Option<Reduced>>,
    server: Option<&ServerSummary>,
) -> Option<Quality> {
    let loss_pct = metrics.get("loss_pct").and_then(|loss| Some(loss.as_ref()?.user_p95));
    let cores = server.and_then(|server| server.cpu_cores);
    Quality::of(loss_pct, cores.map(|cores| cores * 100.0 / server_cpus(input) as f64))
}
