//! `moim load` of a scenario with a `matrix`: a run for each combination, and one page with all of them in front.

use crate::base;
use crate::judge::summary::{self, Summary, exit};
use crate::observe::proc;
use crate::record::{About, Cell, Meta, Row, Table, TargetMeta, Writer};
use crate::report;
use crate::run::{self, LoadOptions, NoRun, Run};
use crate::scenario::Scenario;
use std::path::Path;
use std::time::{Instant, SystemTime};

/// The figures of a combination: column, head, digits, and the metric with its reduction.
const FIGURES: [(&str, &str, u8, &str, &str); 7] = [
    ("loss_pct", "loss % (95 % of people)", 2, "loss_pct", "user_p95"),
    ("rtt_ms", "round trip ms (95 % of people)", 1, "rtt_ms", "user_p95"),
    ("mouth_to_ear_ms", "mouth to ear ms (95 %)", 1, "mouth_to_ear_ms", "p95"),
    ("mos_lq", "MOS-LQ (worst 5 %)", 2, "mos_lq", "user_p5"),
    ("mos_cq", "MOS-CQ (worst 5 %)", 2, "mos_cq", "user_p5"),
    ("frames_per_second", "frames/s (worst 5 %)", 1, "frames_per_second", "user_p5"),
    ("join_ms", "join to first audio ms (50 %)", 0, "join_to_first_audio_ms", "p50"),
];

/// Runs the combinations of a scenario; the worst exit code.
///
/// # Errors
/// The first combination cannot run. If a later one cannot, the page says so, and the matrix ends there.
pub(crate) async fn load(scenario: &Scenario, options: &LoadOptions) -> Result<u8, NoRun> {
    if options.prove {
        let why =
            "--prove is of one run: leave `matrix` out, and write the combination that failed";
        return Err(NoRun::new(exit::BAD_CONFIGURATION, why));
    }
    let (at, begun) = (SystemTime::now(), Instant::now());
    let name = format!("matrix-{}", scenario.name);
    let writer = Writer::create(&options.runs_dir, &name, at, &scenario.text)?;
    let mut about = About::new(
        &format!("Matrix of {}", scenario.name),
        "The same load in each combination, one after the other.",
        vec![table()],
    );
    let (mut rows, mut codes, mut people) = (Vec::new(), Vec::new(), 0);
    let combinations = scenario.combinations();
    for (number, (combination, one)) in combinations.iter().enumerate() {
        let one = match one {
            Ok(one) => one,
            Err(why) => {
                about.not_shown.push(format!("{combination}: {why}"));
                continue;
            }
        };
        errln!("--- {} of {}: {combination}", number + 1, combinations.len());
        let runs_dir = writer.dir().to_owned();
        let load = LoadOptions { runs_dir, ..options.clone() };
        let bots = run::bots_of_this_build(&load);
        let ran = run::run_scenario(one, &load, bots, base::asked_to_end(), None).await;
        let ran = match ran.and_then(Run::whole) {
            Ok(ran) => ran,
            Err(no_run) if rows.is_empty() => return Err(no_run),
            Err(no_run) => {
                errln!("{no_run}");
                about.not_shown.push(format!("{combination}, and what comes after it: {no_run}"));
                codes.push(no_run.code());
                break;
            }
        };
        out!("{}", summary::table(&ran.summary, &ran.meta));
        let record = ran.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        rows.push(row(combination, &ran.summary).note(format!("its report: {record}")));
        about.sessions.push(record);
        codes.push(ran.summary.exit_code);
        people = people.max(ran.summary.people);
        if ran.summary.exit_code == exit::INTERRUPTED {
            about.not_shown.push("Interrupted: what comes after that did not run.".into());
            break;
        }
    }
    let held = codes.iter().filter(|code| **code == exit::PASS).count();
    about.ours = format!("{held} of {} combinations held.", codes.len());
    outln!("{}", about.ours);
    let code = worst(&codes);
    let dir = writer.dir();
    let meta = Meta {
        duration_s: begun.elapsed().as_secs_f64(),
        ..meta(scenario, dir, humantime::format_rfc3339_seconds(at).to_string())
    };
    let path = report::write_tables(dir, &meta, (rows, about), (code, people))?;
    outln!("report: {}", path.display());
    Ok(code)
}

/// What the page of all combinations says of itself.
fn meta(scenario: &Scenario, dir: &Path, started_at: String) -> Meta {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let meta = Meta::of_study(name, started_at, "as in the scenario", &scenario.text);
    let adapter = scenario.adapter.name().into();
    let target = TargetMeta { adapter, ..meta.target };
    Meta { machine: proc::machine(), target, ..meta }
}

/// An interrupt outranks what could not run, that a failure, and a failure an inconclusive run.
fn worst(codes: &[u8]) -> u8 {
    let not_run = [exit::BAD_CONFIGURATION, exit::TARGET_UNREACHABLE, exit::RECORD];
    let mut ranks = [exit::INTERRUPTED].into_iter().chain(not_run).chain([exit::FAIL]);
    let first = ranks.find(|code| codes.contains(code));
    first.unwrap_or_else(|| codes.iter().copied().max().unwrap_or(exit::PASS))
}

fn table() -> Table {
    let words = [("verdict", "verdict", 0), ("broke", "what broke first", 0)];
    let figures = FIGURES.iter().map(|&(key, title, digits, ..)| (key, title, digits));
    let server = [("server_cores", "server cores", 2), ("server_mib", "server MiB", 0)];
    let columns: Vec<_> = words.into_iter().chain(figures).chain(server).collect();
    Table::new("matrix", "The matrix", "Each has a report of its own.", &columns)
}

fn row(combination: &str, summary: &Summary) -> Row {
    let broke = summary.bottleneck.first.clone();
    let mut row = Row::new("matrix", combination)
        .cell("verdict", Cell::word(summary.verdict.as_str()))
        .cell("broke", broke.map_or_else(|| Cell::none("it was not judged"), Cell::word));
    for (key, _, _, metric, reduction) in FIGURES {
        let reduced = summary.metrics.get(metric).and_then(Option::as_ref);
        row = row.measured(key, reduced.and_then(|reduced| reduced.get(reduction)));
    }
    let server = summary.server.as_ref();
    row = row
        .measured("server_cores", server.and_then(|server| server.cpu_cores))
        .measured("server_mib", server.and_then(|server| server.rss_mib));
    summary.failures.iter().take(3).fold(row, |row, failure| row.note(failure.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_all_counts() {
        for (codes, want) in [
            (&[exit::PASS, exit::PASS][..], exit::PASS),
            (&[exit::FAIL, exit::TARGET_UNREACHABLE], exit::TARGET_UNREACHABLE),
            (&[exit::GENERATOR_LIMIT, exit::FAIL, exit::PASS], exit::FAIL),
            (&[exit::PASS, exit::GENERATOR_LIMIT], exit::GENERATOR_LIMIT),
            (&[exit::FAIL, exit::INTERRUPTED], exit::INTERRUPTED),
        ] {
            assert_eq!(worst(codes), want, "{codes:?}");
        }
    }
}
