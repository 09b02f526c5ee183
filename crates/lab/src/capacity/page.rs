//! The answer of a search in a sentence, as tables and as pictures.

use super::scalability::Fit;
use super::search::{Found, Outcome};
use super::state::Search;
use super::trial::Trial;
use crate::base::{mean, short};
use crate::observe::proc;
use crate::record::{About, Cell, Meta, Plot, Row, Table};
use crate::report;
use std::io;
use std::path::Path;

/// Writes the record's page and prints the answer; `code`: the command's exit code.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write(search: &Search, dir: &Path, code: u8) -> io::Result<()> {
    let found = search.found();
    let fit = Fit::of(&held(search, |trial| trial.delivered_per_s));
    let tables = Tables::new(search.vary.unit());
    let mut about = About::new(
        &format!("Capacity: how many {}?", search.vary.unit()),
        "The same scenario again and again with another number, until an interval holds the answer: growth by fours, \
         then each trial where it tells most. A trial may be wrong now and then, so what the answer hangs on is \
         tried twice.",
        tables.all(),
    );
    about.ours = sentence(search, &found);
    let mut rows = vec![answer(search, &found), costs(search)];
    rows.extend(search.trials.iter().zip(1..).map(|(trial, at)| trial_row(trial, at)));
    rows.push(forecast(fit.as_ref(), &tables.forecast));
    about.plots = plots(search, fit.as_ref());
    about.sessions = search.trials.iter().map(|trial| trial.record.clone()).collect();
    if !found.complete {
        about.not_shown.push("The search is not over, and can go on.".into());
    }
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let started_at = search.started_at.clone();
    let meta = Meta {
        duration_s: search.spent_s,
        machine: proc::machine(),
        ..Meta::of_study(name, started_at, "as in the scenario", &search.scenario)
    };
    outln!("{}", about.ours);
    let people = search.trials.iter().map(|trial| trial.people).max().unwrap_or(0);
    let path = report::write_tables(dir, &meta, (rows, about), (code, people))?;
    outln!("report: {}", path.display());
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
    let unit = search.vary.unit();
    let sure = format!("{:.0} % sure", (100.0 * found.sure).floor());
    let broke = broke(search);
    match (found.low, found.high) {
        _ if search.trials.is_empty() => "Nothing was tried.".into(),
        (0, Some(high)) => format!("Fewer than {high} {unit} are carried ({sure}): {broke}."),
        (low, Some(high)) => {
            format!("{low} {unit} are carried and {high} are too many ({sure}); {broke}.")
        }
        (low, None) => {
            let why = match search.limited() {
                Some(trial) => format!(
                    "the generator was at its limit with {}: {}",
                    trial.value,
                    trial.failures.join("; ")
                ),
                None if found.complete => {
                    format!("{} is the most that may be tried", search.bounds.most)
                }
                None => "the search is not over".into(),
            };
            format!("At least {low} {unit} are carried ({sure}); {why}.")
        }
    }
}

/// What broke at the edge, in words.
fn broke(search: &Search) -> String {
    let Some(first) = search.first_break() else {
        return "what breaks first is not known".into();
    };
    let proof = match &search.proof {
        None => ", suspected".into(),
        Some(proof) => match proof.outcome {
            Outcome::Holds => format!(", proven: with {} all holds", proof.what),
            Outcome::Breaks => format!(", not proven: with {} it does not hold either", proof.what),
            Outcome::Generator => {
                format!(", not proven: with {} the generator was the limit", proof.what)
            }
        },
    };
    format!("what breaks first is {first}{proof}")
}

/// The same in a word; the sentence above the tables says the rest.
fn broke_word(search: &Search) -> String {
    let Some(first) = search.first_break() else { return "not known".into() };
    let how = match search.proof.as_ref().map(|proof| proof.outcome) {
        None => "suspected",
        Some(Outcome::Holds) => "proven",
        Some(_) => "not proven",
    };
    format!("{first}, {how}")
}

fn answer(search: &Search, found: &Found) -> Row {
    let high = found.high.map(f64::from);
    Row::new("answer", search.vary.as_str())
        .cell("low", Cell::number(found.low.into()))
        .cell("high", Cell::or(high, "no limit of the server was found"))
        .cell("sure_pct", Cell::number(100.0 * found.sure))
        .cell("broke", Cell::word(broke_word(search)))
        .cell("trials", Cell::number(search.trials.len() as f64))
        .cell("minutes", Cell::number(search.spent_s / 60.0))
}

/// The slope of a line through points; none with fewer than two different x.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let x = mean(points.iter().map(|(x, _)| *x))?;
    let y = mean(points.iter().map(|(_, y)| *y))?;
    let (up, along) = points.iter().fold((0.0, 0.0), |(up, along), (px, py)| {
        (up + (px - x) * (py - y), along + (px - x) * (px - x))
    });
    (along > 0.0).then(|| up / along)
}

fn costs(search: &Search) -> Row {
    let slope_of = |pick: fn(&Trial) -> Option<f64>| slope(&held(search, pick));
    let why = "fewer than two numbers held, or nobody measured it";
    let mcpu = |cores: Option<f64>| Cell::or(cores.map(|cores| cores * 1000.0), why);
    let row = Row::new("costs", format!("one more of {}", search.vary.unit()));
    let row = search.plan().into_iter().fold(row, Row::note);
    row.cell("server_mcpu", mcpu(slope_of(|one| one.server_cores)))
        .cell("server_kib", Cell::or(slope_of(|one| one.server_mib).map(|mib| mib * 1024.0), why))
        .cell("generator_mcpu", mcpu(slope_of(|one| Some(one.generator_cores))))
}

fn trial_row(trial: &Trial, number: usize) -> Row {
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
        .cell("generator_cores", Cell::number(trial.generator_cores));
    trial.failures.iter().take(2).fold(row, |row, why| row.note(why.clone()))
}

/// The numbers that held, each with a figure of its trial, where that was measured.
fn held(search: &Search, pick: fn(&Trial) -> Option<f64>) -> Vec<(f64, f64)> {
    let held = search.trials.iter().filter(|trial| trial.outcome == Outcome::Holds);
    held.filter_map(|trial| Some((f64::from(trial.value), pick(trial)?))).collect()
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

/// A figure of a trial.
type Pick<'a> = &'a dyn Fn(&Trial) -> Option<f64>;

/// Numbers across, and what was delivered and used, in the mean over the trials of a number.
fn plots(search: &Search, fit: Option<&Fit>) -> Vec<Plot> {
    let unit = search.vary.unit();
    let mut numbers: Vec<u32> = search.trials.iter().map(|trial| trial.value).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let over = |pick: Pick<'_>, value: u32| {
        mean(search.trials.iter().filter(|trial| trial.value == value).filter_map(pick))
    };
    let across = |picks: &[Pick<'_>]| {
        let point = |value: &u32| {
            (f64::from(*value), picks.iter().map(|pick| over(pick, *value)).collect())
        };
        numbers.iter().map(point).collect::<Vec<(f64, Vec<Option<f64>>)>>()
    };
    let held = |trial: &Trial| match trial.outcome {
        Outcome::Holds => Some(100.0),
        Outcome::Breaks => Some(0.0),
        Outcome::Generator => None,
    };
    vec![
        Plot::new(
            ("What was delivered, and the fit", "/s", unit),
            &["delivered", "fit"],
            across(&[&|one| one.delivered_per_s, &|one| Some(fit?.at(f64::from(one.value)))]),
        ),
        Plot::new(
            ("CPU", "cores", unit),
            &["server", "generator"],
            across(&[&|one| one.server_cores, &|one| Some(one.generator_cores)]),
        ),
        Plot::new(("Trials that held", "%", unit), &["held"], across(&[&held])),
    ]
}
