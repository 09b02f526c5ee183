//! `moim capacity`: how much of something a server carries. The scenario runs again and again with another number
//! ([`vary`]), which the search picks ([`search`]), until an interval holds the answer; then what was at its end there is
//! named, and the costs of one more, and a page shows the trials.
//!
//! A search that was stopped goes on: its state (`search.json`) is written after each trial, and where to look next
//! follows from the trials alone.

mod page;
mod scalability;
mod search;
mod state;
mod trial;
mod vary;

pub use settings::parse_duration;
pub use vary::Vary;

use crate::base;
use crate::judge::summary::exit;
use crate::observe::proc;
use crate::record::Writer;
use crate::run::{self, LoadOptions};
use crate::scenario::Scenario;
use search::{Bounds, next};
use state::{Proof, Search};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use trial::Trial;

/// With so much more of a quota or a link, what was too much must hold: then that is proven to be the limit.
const PROOF: f64 = 1.25;

/// What `moim capacity` is told.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityOptions {
    /// The scenario file; none: a search goes on, or is repeated.
    pub scenario: Option<PathBuf>,
    /// What is varied.
    pub vary: Vary,
    /// The first number.
    pub from: u32,
    /// The largest one; none: as many as a scenario may have.
    pub to: Option<u32>,
    /// Width of the answer, in percent.
    pub within_pct: f64,
    /// Trials at most.
    pub trials: u32,
    /// No trial begins after so long; none: only trials are counted.
    pub until: Option<Duration>,
    /// Where the record goes, in a directory of its own.
    pub runs_dir: PathBuf,
    /// The directory of a search that goes on.
    pub resume: Option<PathBuf>,
    /// The directory of a search to repeat, from the interval that it found.
    pub repeat: Option<PathBuf>,
    /// The binary whose `serve` is started; none: this one.
    pub server_exe: Option<PathBuf>,
}

/// Searches; the exit code: 0 the answer is as narrow as asked for, 99 it is not, 105 interrupted, 110 the generator was
/// the limit, 104 or what a run says where nothing could be searched.
pub fn capacity(options: &CapacityOptions) -> u8 {
    let begun = begin(options).map_err(|error| (exit::BAD_CONFIGURATION, error));
    let result = begun.and_then(|(search, dir)| {
        let searching = Searching { search, dir, options, begun: Instant::now() };
        let runtime = base::runtime().map_err(|error| (exit::BAD_CONFIGURATION, error))?;
        runtime.block_on(searching.run())
    });
    result.unwrap_or_else(|(code, error)| {
        errln!("no capacity: {error}");
        code
    })
}

/// A new search, or one that goes on, and its directory.
fn begin(options: &CapacityOptions) -> Result<(Search, PathBuf), String> {
    if options.trials == 0 {
        return Err("--trials 0 tries nothing: leave it out, or write 40".into());
    }
    if let Some(dir) = &options.resume {
        let search = Search::read(dir)?;
        // More trials may be allowed than before.
        let trials = search.bounds.trials.max(options.trials);
        let bounds = Bounds { trials, ..search.bounds };
        return Ok((Search { bounds, ..search }, dir.clone()));
    }
    let (scenario, vary, bounds) = match &options.repeat {
        Some(dir) => again(dir, options.trials)?,
        None => anew(options)?,
    };
    let at = SystemTime::now();
    let name = format!("capacity-{}", scenario.name);
    let text = scenario.text.clone();
    let writer = Writer::create(&options.runs_dir, &name, at, &text).map_err(|e| e.to_string())?;
    let search = Search {
        scenario: text,
        vary,
        bounds,
        trials: Vec::new(),
        spent_s: 0.0,
        started_at: humantime::format_rfc3339_seconds(at).to_string(),
        proof: None,
    };
    Ok((search, writer.dir().to_owned()))
}

/// What a search looks for that is made again.
fn again(dir: &Path, trials: u32) -> Result<(Scenario, Vary, Bounds), String> {
    let search = Search::read(dir)?;
    let found = search.found();
    let Some(high) = found.high else {
        return Err(format!("{} found no limit to begin from: search anew", dir.display()));
    };
    let scenario = Scenario::parse(&search.scenario, "its scenario")
        .map_err(|problems| problems.to_string())?;
    let before = Some((found.low, high));
    Ok((scenario, search.vary, Bounds { trials, before, ..search.bounds }))
}

/// What a new one looks for.
fn anew(options: &CapacityOptions) -> Result<(Scenario, Vary, Bounds), String> {
    let path = options.scenario.as_ref().ok_or("give a scenario, --resume DIR or --repeat DIR")?;
    let scenario = Scenario::read(path).map_err(|problems| problems.to_string())?;
    if scenario.thresholds.is_empty() {
        return Err("the scenario has no thresholds, so nothing says what is too much: write \
                    `thresholds: default`, or some of your own"
            .into());
    }
    if scenario.matrix.is_some() {
        return Err("the scenario has a `matrix`, which is of moim load: leave it out".into());
    }
    let vary = options.vary;
    let (least, most) = vary.range(&scenario)?;
    let most = options.to.unwrap_or(most).min(most);
    if options.from < least || options.from > most {
        let from = options.from;
        let what = vary.as_str();
        return Err(format!("--from {from}: {what} of this scenario go from {least} to {most}"));
    }
    if !(0.1..=100.0).contains(&options.within_pct) {
        return Err(format!("--within {}: write 0.1 to 100 percent", options.within_pct));
    }
    let (from, within) = (options.from, options.within_pct / 100.0);
    let bounds = Bounds { from, least, most, within, trials: options.trials, before: None };
    Ok((scenario, vary, bounds))
}

/// Why a search ends without an answer: an exit code, and a sentence.
type NoAnswer = (u8, String);

/// A search at work.
struct Searching<'a> {
    search: Search,
    dir: PathBuf,
    options: &'a CapacityOptions,
    begun: Instant,
}

impl Searching<'_> {
    async fn run(mut self) -> Result<u8, NoAnswer> {
        let scenario = Scenario::parse(&self.search.scenario, "the scenario")
            .map_err(|problems| (exit::BAD_CONFIGURATION, problems.to_string()))?;
        let before_s = self.search.spent_s;
        let result = self.try_all(&scenario).await;
        self.search.spent_s = before_s + self.begun.elapsed().as_secs_f64();
        let found = self.search.found();
        let code = match &result {
            Err((code, _)) => *code,
            Ok(false) => exit::INTERRUPTED,
            Ok(true) if !found.complete => exit::FAIL,
            Ok(true) if found.high.is_none() && self.search.limited().is_some() => {
                exit::GENERATOR_LIMIT
            }
            Ok(true) => exit::PASS,
        };
        let told = |error: std::io::Error| (exit::BAD_CONFIGURATION, error.to_string());
        self.search.write(&self.dir).map_err(told)?;
        page::write(&self.search, &self.dir, code).map_err(told)?;
        if !found.complete {
            let dir = self.dir.display();
            errln!("not over: `moim capacity --resume {dir} --trials N` goes on");
        }
        result.map(|_| code)
    }

    /// Tries one number after the other, and then to prove what broke. False: it was interrupted.
    async fn try_all(&mut self, scenario: &Scenario) -> Result<bool, NoAnswer> {
        let before = Duration::from_secs_f64(self.search.spent_s);
        let what = self.search.vary.unit();
        while let Some(value) = next(&self.search.bounds, &self.search.outcomes()) {
            if self.options.until.is_some_and(|until| before + self.begun.elapsed() >= until) {
                errln!("the time is over");
                return Ok(true);
            }
            let number = self.search.trials.len() + 1;
            errln!("--- trial {number}: {value} {what}; so far {}", self.so_far());
            let varied = self.search.vary.with(scenario, value);
            let Some(trial) = self.trial(&varied, value).await? else { return Ok(false) };
            errln!("{}", trial.said(what));
            self.search.trials.push(trial);
            if let Some(plan) = self.search.plan().filter(|_| number == 1) {
                errln!("{plan}");
            }
            self.search.spent_s = (before + self.begun.elapsed()).as_secs_f64();
            let written = self.search.write(&self.dir);
            written.map_err(|error| (exit::BAD_CONFIGURATION, error.to_string()))?;
        }
        self.prove(scenario).await
    }

    /// What is known so far, in words.
    fn so_far(&self) -> String {
        let found = self.search.found();
        let high = found.high.map_or("no limit found".into(), |high| format!("less than {high}"));
        format!("at least {}, {high}", found.low)
    }

    /// Runs the scenario with a number. None: it was interrupted.
    async fn trial(&self, varied: &Scenario, value: u32) -> Result<Option<Trial>, NoAnswer> {
        let load = LoadOptions {
            runs_dir: self.dir.clone(),
            server_exe: self.options.server_exe.clone(),
            plain: true,
            ..LoadOptions::default()
        };
        let mut code = exit::FAIL;
        for _ in 0..2 {
            // Later trials use memory that the first ones took.
            let before_mib = proc::rss_mib(std::process::id());
            let before_mib = before_mib
                .filter(|_| self.search.trials.is_empty() && self.search.vary.takes_memory());
            let bots = run::bots_of_this_build(&load);
            let ran = run::run_scenario(varied, &load, bots, base::asked_to_end(), None).await;
            let ran = ran.and_then(run::Run::whole);
            let ran = ran.map_err(|no_run| (no_run.code(), no_run.to_string()))?;
            let record = ran.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(trial) = Trial::of(value, record, &ran.meta, &ran.summary) {
                let most_mib = ran.summary.generator.rss_mib;
                let took = most_mib.zip(before_mib).map(|(most, before)| most - before);
                return Ok(Some(Trial { generator_mib: took, ..trial }));
            }
            code = ran.summary.exit_code;
            if code == exit::INTERRUPTED {
                return Ok(None);
            }
            errln!("this trial says nothing ({}): once more", ran.summary.failures.join(", "));
        }
        Err((code, "two trials of one number said nothing: see their reports".into()))
    }

    /// Tries what was too much once more with a larger quota, or a faster link, where that is what broke. False: it was
    /// interrupted.
    async fn prove(&mut self, scenario: &Scenario) -> Result<bool, NoAnswer> {
        let found = self.search.found();
        let proven = |value| self.search.proof.as_ref().is_some_and(|proof| proof.value == value);
        let Some(high) = found.high.filter(|high| found.complete && !proven(*high)) else {
            return Ok(true);
        };
        let same = self.search.vary.with(scenario, high);
        // The link is what it was as soon as this is dropped.
        let (varied, what, _wider) = match (self.search.first_break(), vary::quota(scenario)) {
            (Some("cpu_quota"), Some(cores)) => {
                let what = format!("a quota of {:.2} cores instead of {cores}", cores * PROOF);
                (vary::with_quota(&same, cores * PROOF), what, None)
            }
            (Some("network"), _) => match run::Changed::wider_link(PROOF) {
                Ok(wider) => (same, wider.what.clone(), Some(wider)),
                Err(why) => {
                    errln!("not proven: {why}");
                    return Ok(true);
                }
            },
            _ => return Ok(true),
        };
        errln!("--- once more, {high} {}: {what}", self.search.vary.unit());
        let Some(trial) = self.trial(&varied, high).await? else { return Ok(false) };
        errln!("{}", trial.said(self.search.vary.unit()));
        self.search.proof = Some(Proof { value: high, what, outcome: trial.outcome });
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
