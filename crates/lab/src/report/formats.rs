//! The summary of a run for other programs: CSV, JUnit XML, Prometheus text, Markdown. Pure functions of it.

use crate::base::markdown::inline;
use crate::judge::summary::{Summary, Verdict};
use crate::observe::metrics::Reduced;
use crate::record::Meta;
use std::fmt::Write;

/// The reductions that are written, by their names.
const REDUCTIONS: [&str; 8] = ["p50", "p95", "p99", "max", "user_p1", "user_p5", "user_p95", "n"];

/// What a record is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A row a metric (RFC 4180).
    Csv,
    /// A test case for each threshold and check, as build servers read it.
    Junit,
    /// Gauges in Prometheus' text format 0.0.4, such as its node exporter's textfile collector takes.
    Prometheus,
    /// A page such as GitHub shows if it is appended to `$GITHUB_STEP_SUMMARY`.
    Markdown,
}

/// A summary in a format.
pub fn write(format: Format, meta: &Meta, summary: &Summary) -> String {
    match format {
        Format::Csv => csv(summary),
        Format::Junit => junit(meta, summary),
        Format::Prometheus => prometheus(meta, summary),
        Format::Markdown => markdown(meta, summary),
    }
}

/// The metrics that somebody measured.
fn measured(summary: &Summary) -> impl Iterator<Item = (&String, &Reduced)> {
    summary.metrics.iter().filter_map(|(name, reduced)| Some((name, reduced.as_ref()?)))
}

/// A metric that nobody measured has empty fields.
fn csv(summary: &Summary) -> String {
    let mut text = format!("metric,{}\r\n", REDUCTIONS.join(","));
    for (name, reduced) in &summary.metrics {
        let value = |one| reduced.as_ref().and_then(|reduced| reduced.get(one));
        let fields =
            REDUCTIONS.map(|one| value(one).map_or(String::new(), |value| value.to_string()));
        let _ = write!(text, "{name},{}\r\n", fields.join(","));
    }
    text
}

/// What can hold or not: its group, its name, and why it does not hold.
fn cases(summary: &Summary) -> Vec<(&'static str, &str, Option<String>)> {
    let thresholds = summary.thresholds.iter().map(|one| {
        let was =
            one.value.map_or("nobody could measure it".into(), |value| format!("it was {value}"));
        ("threshold", one.expr.as_str(), (!one.ok).then_some(was))
    });
    let checks = summary.checks.iter();
    let checks =
        checks.map(|one| ("check", one.name.as_str(), (!one.ok).then(|| one.detail.clone())));
    thresholds.chain(checks).collect()
}

fn junit(meta: &Meta, summary: &Summary) -> String {
    let cases = cases(summary);
    // Where nothing can be said a build must not pass: an error is no failure of what was tested.
    let error = (summary.verdict == Verdict::Inconclusive).then(|| summary.failures.join("; "));
    let failed = cases.iter().filter(|(.., why)| why.is_some()).count();
    // What failed and is neither threshold nor check, such as a run that was ended early.
    let other =
        (summary.verdict == Verdict::Fail && failed == 0).then(|| summary.failures.join("; "));
    let failures = failed + usize::from(other.is_some());
    let (name, seconds) = (escaped(&meta.name), summary.duration_s);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{name}\" tests=\"{}\" \
         failures=\"{failures}\" errors=\"{}\" time=\"{seconds:.3}\" timestamp=\"{}\">\n",
        cases.len() + 1,
        usize::from(error.is_some()),
        escaped(&meta.started_at)
    );
    let mut case = |group: &str, what: &str, element: &str, why: Option<&str>| {
        let _ = write!(text, "<testcase classname=\"{name}.{group}\" name=\"{}\"", escaped(what));
        let _ = match why {
            None => writeln!(text, "/>"),
            Some(why) => writeln!(text, "><{element} message=\"{}\"/></testcase>", escaped(why)),
        };
    };
    match &error {
        Some(_) => case("run", "conclusive", "error", error.as_deref()),
        None => case("run", "conclusive", "failure", other.as_deref()),
    }
    cases.iter().for_each(|(group, what, why)| case(group, what, "failure", why.as_deref()));
    text.push_str("</testsuite>\n</testsuites>\n");
    text
}

/// Text inside of an element or attribute of XML or HTML. Characters that XML 1.0 has no place for are left out.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars().filter(|char| !char.is_control() || char.is_whitespace()) {
        match char {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

fn prometheus(meta: &Meta, summary: &Summary) -> String {
    let mut text = String::new();
    let run = label(&meta.name);
    let mut gauge = |name: &str, help: &str, rows: &[(String, f64)]| {
        let _ = writeln!(text, "# HELP moim_run_{name} {help}\n# TYPE moim_run_{name} gauge");
        for (labels, value) in rows {
            let _ = writeln!(text, "moim_run_{name}{{run=\"{run}\"{labels}}} {value}");
        }
    };
    let one = |value: f64| [(String::new(), value)];
    gauge(
        "passed",
        "1 if all thresholds and checks held.",
        &one(f64::from(u8::from(summary.verdict == Verdict::Pass))),
    );
    gauge("exit_code", "Exit code of the run.", &one(f64::from(summary.exit_code)));
    gauge("people", "People who joined.", &one(summary.people as f64));
    gauge("duration_seconds", "How long the run lasted.", &one(summary.duration_s));
    let metrics = measured(summary).flat_map(|(name, reduced)| {
        REDUCTIONS.iter().filter_map(move |one| {
            Some((format!(",metric=\"{name}\",reduction=\"{one}\""), reduced.get(one)?))
        })
    });
    gauge("metric", "A metric of the run, reduced.", &metrics.collect::<Vec<_>>());
    let holds = cases(summary).into_iter().map(|(group, what, why)| {
        (format!(",kind=\"{group}\",name=\"{}\"", label(what)), f64::from(u8::from(why.is_none())))
    });
    gauge("holds", "1 if a threshold or check held.", &holds.collect::<Vec<_>>());
    text
}

/// A label's value.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn markdown(meta: &Meta, summary: &Summary) -> String {
    let mark = match summary.verdict {
        Verdict::Pass => "✅",
        Verdict::Fail => "❌",
        Verdict::Inconclusive => "⚠️",
    };
    let (name, verdict, seconds) =
        (inline(&meta.name), summary.verdict.as_str(), summary.duration_s);
    let mut text =
        format!("## {mark} {name}: {verdict}\n\n{} people, {seconds:.0} s", summary.people);
    if let Some(first) = summary.bottleneck.first.as_ref().filter(|first| *first != "none") {
        let state =
            summary.bottleneck.state.as_ref().map_or(String::new(), |state| format!(" ({state})"));
        let _ = write!(text, "; first limit: {}", inline(&format!("{first}{state}")));
    }
    text.push_str(".\n");
    summary.failures.iter().for_each(|failure| {
        let _ = write!(text, "\n- {}", inline(failure));
    });
    text.push_str("\n\n| | | |\n|---|---|---|\n");
    for (group, what, why) in cases(summary) {
        let holds = if why.is_none() { "✓" } else { "✗" };
        let _ = writeln!(
            text,
            "| {holds} | {group} | {}{} |",
            inline(what),
            why.map_or(String::new(), |why| format!(": {}", inline(&why)))
        );
    }
    text.push_str(
        "\n| metric | median | p95 | people p5 | people p95 |\n|---|---:|---:|---:|---:|\n",
    );
    for (name, reduced) in measured(summary) {
        let shown =
            [reduced.p50, reduced.p95, reduced.user_p5, reduced.user_p95].map(crate::base::short);
        let _ = writeln!(text, "| {} | {} |", inline(name), shown.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::summary::Check;
    use crate::judge::threshold::ThresholdResult;
    use crate::testing::{meta, sample};

    fn made() -> (Meta, Summary) {
        let mut meta = meta();
        meta.name = "a \"run\" | <b>".into();
        let mut summary =
            crate::judge::summary::of_killed_run(&meta, &[sample(3_000), sample(6_000)], &[]);
        summary.verdict = Verdict::Fail;
        summary.exit_code = 99;
        summary.failures = vec!["too much & too late".into()];
        let expr = "loss_pct p95 < 1".to_owned();
        summary.thresholds = vec![ThresholdResult { expr, ok: false, value: Some(4.5) }];
        summary.checks =
            vec![Check { name: "all joined".into(), ok: true, detail: "1 of 1".into() }];
        summary.metrics.insert("camera_to_screen_ms".into(), None);
        (meta, summary)
    }

    #[test]
    fn csv_has_a_row_a_metric_and_nothing_where_nobody_measured() {
        let (meta, summary) = made();
        let text = write(Format::Csv, &meta, &summary);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(rows[0].len(), 9);
        assert!(rows.iter().all(|row| row.len() == 9), "{text}");
        assert_eq!(rows.len(), 1 + summary.metrics.len());
        assert!(text.contains("camera_to_screen_ms,,,,,,,,\r\n"), "{text}");
        let rtt = rows.iter().find(|row| row[0] == "rtt_ms").expect("measured");
        assert!(rtt[1].parse::<f64>().is_ok());
    }

    #[test]
    fn junit_has_a_case_each_and_is_well_formed() {
        let (meta, mut summary) = made();
        let text = write(Format::Junit, &meta, &summary);
        assert!(text.contains("tests=\"3\" failures=\"1\" errors=\"0\""), "{text}");
        assert!(
            text.contains(
                "name=\"loss_pct p95 &lt; 1\"><failure message=\"it was 4.5\"/></testcase>"
            )
        );
        assert!(text.contains("<testsuite name=\"a &quot;run&quot; | &lt;b&gt;\""));
        summary.thresholds.clear();
        let text = write(Format::Junit, &meta, &summary);
        assert!(text.contains("failures=\"1\""), "no run that failed is all green: {text}");
        summary.verdict = Verdict::Inconclusive;
        let text = write(Format::Junit, &meta, &summary);
        assert!(
            text.contains("errors=\"1\"")
                && text.contains("<error message=\"too much &amp; too late\"/>")
        );
    }

    #[test]
    fn prometheus_reads_each_line() {
        let (meta, summary) = made();
        let text = write(Format::Prometheus, &meta, &summary);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(series.starts_with("moim_run_") && series.ends_with('}'), "{line}");
            assert!(series.contains("run=\"a \\\"run\\\" | <b>\""), "{line}");
        }
        assert!(
            text.contains("name=\"loss_pct p95 < 1\"} 0\n")
                && text.contains("name=\"all joined\"} 1\n")
        );
        assert!(!text.contains("camera_to_screen_ms"), "nobody measured it");
    }

    #[test]
    fn markdown_keeps_names_out_of_its_marks() {
        let (meta, summary) = made();
        let text = write(Format::Markdown, &meta, &summary);
        assert!(text.starts_with("## ❌ a \"run\" \\| &lt;b>: fail\n"), "{text}");
        assert!(text.contains("| ✗ | threshold | loss_pct p95 &lt; 1: it was 4.5 |"), "{text}");
        assert!(text.contains("\n| rtt_ms | "), "{text}");
        let rows = text.lines().count();
        let (mut meta, mut summary) = made();
        meta.name = "a\n\n# `b`\r| c".into();
        summary.failures = vec!["x\n- y".into()];
        summary.thresholds[0].expr = "1 | 2\n| 3 | `4` \\| 5 |".into();
        let text = write(Format::Markdown, &meta, &summary);
        assert_eq!(text.lines().count(), rows, "{text}");
        assert!(
            text.contains("| threshold | 1 \\| 2 \\| 3 \\| \\`4\\` \\\\\\| 5 \\|: it"),
            "{text}"
        );
    }
}
