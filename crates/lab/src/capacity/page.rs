//! The answer of a search in a sentence, as tables and as pictures.

use super::scalability::Fit;
use super::search::{Found, Outcome};
use super::{Search, Trial};
use crate::base::{mean, short};
use crate::judge::summary::{self, exit};
use crate::observe::proc;
use crate::record::{self, About, Cell, Meta, Plot, Row, SCHEMA, Table, TargetMeta};
use crate::report;
use std::io;
use std::path::Path;

/// Writes the record's page and prints the answer.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write(
    search: &Search,
    found: &Found,
    dir: &Path,
    interrupted: bool,
) -> io::Result<()> {
    let what = search.vary.as_str();
    let fit = Fit::of(&delivered(search));
    let tables = Tables::new(what);
    let mut about = About::new(
        &format!("Capacity: how many {what}?"),
        "The same scenario again and again with another number, until an interval holds the answer: growth by fours, \
         then each trial where it tells most. A trial may be wrong now and then, so what the answer hangs on is \
         tried twice.",
        tables.all(),
    );
    about.ours = sentence(search, found);
    let mut rows = vec![answer(search, found, &tables.answer)];
    rows.extend(costs(search, &tables.costs));
    rows.extend(search.trials.iter().zip(1..).map(|(trial, at)| trial_row(trial, at, &tables)));
    rows.push(forecast(fit.as_ref(), &tables.forecast));
    about.plots = plots(search, fit.as_ref());
    about.sessions = search.trials.iter().map(|trial| trial.record.clone()).collect();
    if interrupted {
        about.not_shown.push("The search was interrupted and can go on.".into());
    }
    let meta = Meta {
        fault: None,
        schema: SCHEMA,
        name: dir.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        started_at: search.started_at.clone(),
        duration_s: search.spent_s,
        target: TargetMeta { adapter: "moim".into(), url: "as in the scenario".into() },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        scenario: search.scenario.clone(),
        people: Vec::new(),
        machine: proc::machine(),
        cpus: None,
    };
    let mut summary = summary::of_study(&meta, &[], search.spent_s);
    if interrupted {
        summary.exit_code = exit::INTERRUPTED;
    }
    summary.people = search.trials.iter().map(|trial| trial.people).max().unwrap_or(0);
    println!("{}", about.ours);
    (summary.study, summary.study_about) = (Some(rows), Some(about));
    record::write_meta(dir, &meta)?;
    record::write_summary(dir, &summary)?;
    println!("report: {}", report::render(dir)?.display());
    Ok(())
}

struct Tables {
    answer: Table,
    costs: Table,
    trials: Table,
    forecast: Table,
}

impl Tables {
    fn new(what: &str) -> Self {
        let answer = [
            ("low", "carried", 0),
            ("high", "too many", 0),
            ("sure_pct", "sure %", 0),
            ("broke", "what broke first", 0),
            ("trials", "trials", 0),
            ("minutes", "minutes", 1),
        ];
        let costs = [
            ("server_mcpu", "server mCPU", 2),
            ("server_kib", "server KiB", 1),
            ("generator_mcpu", "generator mCPU", 2),
        ];
        let trials = [
            ("value", what, 0),
            ("outcome", "outcome", 0),
            ("broke", "what broke first", 0),
            ("delivered", "delivered/s", 0),
            ("server_cores", "server cores", 2),
            ("generator_cores", "generator cores", 2),
        ];
        let forecast = [
            ("sigma_pct", "waits for others %", 3),
            ("kappa_ppm", "owed to each other one, in millionths", 3),
            ("peak", "delivers most at", 0),
            ("residual_pct", "largest difference from a trial %", 1),
            ("measured_to", "measured to", 0),
        ];
        Self {
            answer: Table::new(
                "answer",
                "The answer",
                "How sure it is, if one trial of twenty says the wrong thing.",
                &answer,
            ),
            costs: Table::new(
                "costs",
                "What one more costs",
                "The slope of a line through the trials that held.",
                &costs,
            ),
            trials: Table::new("trials", "Trials", "Each has a report of its own.", &trials),
            forecast: Table::new(
                "forecast",
                "How it scales",
                "The universal scalability law (Gunther 2007) through what the trials that held delivered. Beyond what \
                 was measured it is a forecast.",
                &forecast,
            ),
        }
    }

    fn all(&self) -> Vec<Table> {
        [&self.answer, &self.costs, &self.trials, &self.forecast].into_iter().cloned().collect()
    }
}

/// The answer in a sentence.
fn sentence(search: &Search, found: &Found) -> String {
    let what = search.vary.as_str();
    let sure = format!("{:.0} % sure", (100.0 * found.sure).floor());
    let broke = broke(search, found);
    match (found.low, found.high) {
        _ if search.trials.is_empty() => "Nothing was tried.".into(),
        (0, Some(_)) => format!("Not even one of {what} is carried ({sure}): {broke}."),
        (low, Some(high)) => {
            format!("{low} {what} are carried and {high} are too many ({sure}); {broke}.")
        }
        (low, None) => {
            let limited = search.trials.iter().find(|one| one.outcome == Outcome::Generator);
            let why = match limited {
                Some(trial) => format!(
                    "the generator was at its limit with {}: {}",
                    trial.value,
                    trial.failures.join("; ")
                ),
                None => format!("{} is the most that may be tried", search.bounds.most),
            };
            format!("At least {low} {what} are carried ({sure}); {why}.")
        }
    }
}

/// What broke at the edge, in words: of the three trials nearest to it, what most say.
fn broke(search: &Search, found: &Found) -> String {
    let broken = search.broken(found);
    let named: Vec<&str> =
        broken.iter().take(3).filter_map(|trial| trial.bottleneck.as_deref()).collect();
    let count = |name: &str| named.iter().filter(|other| **other == name).count();
    let Some(first) = named.iter().rev().max_by_key(|name| count(name)) else {
        return "what breaks first is not known".into();
    };
    let proof = match &search.proof {
        Some((what, true)) => format!(", proven: with {what} all holds"),
        Some((what, false)) => format!(", not proven: with {what} it does not hold either"),
        None => ", suspected".into(),
    };
    format!("what breaks first is {first}{proof}")
}

fn answer(search: &Search, found: &Found, table: &Table) -> Row {
    let high = found.high.map(f64::from);
    Row::new("answer", search.vary.as_str())
        .cell("low", Cell::number(found.low.into()))
        .cell("high", Cell::or(high, "no limit of the server was found"))
        .cell("sure_pct", Cell::number(100.0 * found.sure))
        .cell("broke", Cell::word(broke(search, found)))
        .cell("trials", Cell::number(search.trials.len() as f64))
        .cell("minutes", Cell::number(search.spent_s / 60.0))
        .rest(table, "not searched")
}

/// The slope of a line through points; none with fewer than two different x.
fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<f64> {
    let x = mean(points.clone().map(|(x, _)| x))?;
    let y = mean(points.clone().map(|(_, y)| y))?;
    let (up, along) = points.fold((0.0, 0.0), |(up, along), (px, py)| {
        (up + (px - x) * (py - y), along + (px - x) * (px - x))
    });
    (along > 0.0).then(|| up / along)
}

fn costs(search: &Search, table: &Table) -> Vec<Row> {
    let held = || search.trials.iter().filter(|trial| trial.outcome == Outcome::Holds);
    let slope_of = |pick: fn(&Trial) -> Option<f64>| {
        let points: Vec<_> =
            held().filter_map(|trial| Some((f64::from(trial.value), pick(trial)?))).collect();
        slope(points.into_iter())
    };
    let row = Row::new("costs", format!("one more of {}", search.vary.as_str()))
        .measured("server_mcpu", slope_of(|one| one.server_cores).map(|cores| cores * 1000.0))
        .measured("server_kib", slope_of(|one| one.server_mib).map(|mib| mib * 1024.0))
        .measured(
            "generator_mcpu",
            slope_of(|one| Some(one.generator_cores)).map(|cores| cores * 1000.0),
        );
    vec![row.rest(table, "fewer than two numbers held")]
}

fn trial_row(trial: &Trial, number: usize, tables: &Tables) -> Row {
    let outcome = match trial.outcome {
        Outcome::Holds => "holds",
        Outcome::Breaks => "does not hold",
        Outcome::Generator => "generator",
    };
    let row = Row::new("trials", format!("{number}."))
        .cell("value", Cell::number(trial.value.into()))
        .cell("outcome", Cell::word(outcome))
        .cell("broke", Cell::word(trial.bottleneck.clone().unwrap_or("not judged".into())))
        .measured("delivered", trial.delivered_per_s)
        .measured("server_cores", trial.server_cores)
        .cell("generator_cores", Cell::number(trial.generator_cores))
        .rest(&tables.trials, "not measured");
    trial.failures.iter().take(2).fold(row, |row, why| row.note(why.clone()))
}

/// What the trials that held delivered.
fn delivered(search: &Search) -> Vec<(f64, f64)> {
    let held = search.trials.iter().filter(|trial| trial.outcome == Outcome::Holds);
    held.filter_map(|trial| Some((f64::from(trial.value), trial.delivered_per_s?))).collect()
}

fn forecast(fit: Option<&Fit>, table: &Table) -> Row {
    let row = Row::new("forecast", "fit");
    let Some(fit) = fit else {
        return row.rest(table, "fewer than four numbers held");
    };
    let row = row
        .cell("sigma_pct", Cell::number(100.0 * fit.sigma))
        .cell("kappa_ppm", Cell::number(1e6 * fit.kappa))
        .cell("peak", Cell::or(fit.peak(), "it grows without end"))
        .cell("residual_pct", Cell::number(100.0 * fit.residual))
        .cell("measured_to", Cell::number(fit.measured_to));
    let beyond = 2.0 * fit.measured_to;
    row.note(format!(
        "with {} it would deliver {}/s, twice as many as was measured, if nothing broke",
        short(beyond),
        short(fit.at(beyond))
    ))
}

/// Numbers across, and what was delivered and used.
fn plots(search: &Search, fit: Option<&Fit>) -> Vec<Plot> {
    let what = search.vary.as_str();
    let across = |pick: &dyn Fn(&Trial) -> Vec<Option<f64>>| {
        search.trials.iter().map(|trial| (f64::from(trial.value), pick(trial))).collect()
    };
    vec![
        Plot::new(
            ("What was delivered, and the fit", "/s", what),
            &["delivered", "fit"],
            across(&|trial| {
                vec![trial.delivered_per_s, fit.map(|fit| fit.at(f64::from(trial.value)))]
            }),
        ),
        Plot::new(
            ("CPU", "cores", what),
            &["server", "generator"],
            across(&|trial| vec![trial.server_cores, Some(trial.generator_cores)]),
        ),
        Plot::new(
            ("Trials that held (1) and that did not (0)", "", what),
            &["held"],
            across(&|trial| {
                vec![match trial.outcome {
                    Outcome::Holds => Some(1.0),
                    Outcome::Breaks => Some(0.0),
                    Outcome::Generator => None,
                }]
            }),
        ),
    ]
}
