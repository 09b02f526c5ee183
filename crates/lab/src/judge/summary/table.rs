//! The summary as text for a terminal.

use super::{Bottleneck, Quality, Summary, short};
use crate::record::{Meta, PersonKind};
use std::collections::BTreeMap;

/// At most so many void windows are listed.
const MAX_VOID: usize = 5;

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
        ("picture delay", "camera_to_screen_ms", "ms"),
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
    for (label, name, unit) in [
        ("pong", "pong_ms", "ms"),
        ("connect", "connect_ms", "ms"),
        ("answered", "answered_pct", "%"),
    ] {
        let Some(m) = summary.metrics.get(name).and_then(Option::as_ref) else { continue };
        let (p50, p99, max) = (short(m.p50), short(m.p99), short(m.max));
        let (p5, p95) = (short(m.user_p5), short(m.user_p95));
        let text =
            format!("median {p50}  p99 {p99}  max {max}  connections p5 {p5}  p95 {p95}  {unit}");
        rows.push((label.into(), text));
    }
    for group in &summary.sockets {
        let lost: u64 = group.closed.values().chain(group.failed.values()).sum();
        let why = group.failed.keys().next().map(|why| format!(": {why}")).unwrap_or_default();
        let text = format!("{} of {} live, {lost} lost{why}", group.live, group.connections);
        rows.push(("sockets".into(), text));
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
    for (churn, whose) in
        [(&summary.churn, "visits"), (&summary.browsers_churn, "browsers' visits")]
    {
        let Some(churn) = churn else { continue };
        let arrived = churn.arrived.map_or(String::new(), |arrived| {
            format!("{arrived} arrived, {} dropped  ", churn.dropped.unwrap_or(0))
        });
        let failed: u64 = churn.failures.values().sum();
        rows.push((whose.into(), format!("{arrived}{} whole, {failed} failed", churn.loops)));
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
    if !summary.not_judged.is_empty() {
        text.push_str(&format!("not judged: {}\n", summary.not_judged.join("; ")));
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
    rows.extend(generator.void.iter().take(MAX_VOID).map(|void| {
        let [from, until] = [void.from_ms, void.until_ms].map(|ms| ms as f64 / 1000.0);
        ("  void".into(), format!("{from} to {until} s: {}", void.why))
    }));
    let more = generator.void.len().saturating_sub(MAX_VOID);
    rows.extend((more > 0).then(|| ("  void".into(), format!("and {more} more windows"))));
    rows
}
