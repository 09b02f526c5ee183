//! `moim capacity`: how much of something a server carries. The scenario runs again and again with another number
//! ([`vary`]), which the search picks ([`search`]), until an interval holds the answer; then what was at its end there is
//! named, and the costs of one more, and a page shows the trials.
//!
//! A search that was stopped goes on: its state (`search.json`) is written after each trial, and where to look next
//! follows from the trials alone.

mod page;
mod scalability;
mod search;
mod trial;
mod vary;

pub use scalability::Fit;
pub use search::{Bounds, Found, Next, Outcome, next};
pub use settings::parse_duration;
pub use trial::Trial;
pub use vary::Vary;

use crate::judge::summary::exit;
use crate::record::Writer;
use crate::run::{self, LoadOptions};
use crate::scenario::Scenario;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};

/// The state of a search, in its directory.
const STATE: &str = "search.json";
/// With so much more of a quota, what was too much must hold: then the quota is proven to be the limit.
const PROOF: f64 = 1.25;

/// What `moim capacity` is told.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityOptions {
    /// The scenario file; none: a search goes on.
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
    /// The binary whose `serve` is started; none: this one.
    pub server_exe: Option<PathBuf>,
}

/// A search: what is looked for, and what was tried. Where to go on follows from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// The scenario's text.
    pub scenario: String,
    /// What is varied.
    pub vary: Vary,
    /// Where it is looked for.
    pub bounds: Bounds,
    /// What was tried.
    pub trials: Vec<Trial>,
    /// Seconds spent so far.
    pub spent_s: f64,
    /// When it began (RFC 3339).
    pub started_at: String,
    /// Once more at the edge with more of what was at its end: what was changed, and whether that helped.
    pub proof: Option<(String, bool)>,
}

impl Search {
    /// The trials as the search sees them.
    fn outcomes(&self) -> Vec<(u32, Outcome)> {
        self.trials.iter().map(|trial| (trial.value, trial.outcome)).collect()
    }

    /// What is known now, if no further trial is made.
    fn found(&self) -> Found {
        let bounds = Bounds { trials: self.trials.len() as u32, ..self.bounds };
        match next(&bounds, &self.outcomes()) {
            Next::Found(found) => found,
            // With no trial left it always ends.
            Next::Try(_) => Found { low: 0, high: None, sure: 0.0 },
        }
    }

    /// The trials that broke at the edge, nearest first.
    fn broken(&self, found: &Found) -> Vec<&Trial> {
        let mut broken: Vec<&Trial> =
            self.trials.iter().filter(|trial| trial.outcome == Outcome::Breaks).collect();
        let edge = found.high.unwrap_or(found.low);
        broken.sort_by_key(|trial| (trial.value < edge, trial.value.abs_diff(edge)));
        broken
    }

    fn write(&self, dir: &Path) -> io::Result<()> {
        let (part, path) = (dir.join(format!("{STATE}.part")), dir.join(STATE));
        fs::write(&part, serde_json::to_vec_pretty(self)?)?;
        fs::rename(part, path)
    }
}

/// Searches; the exit code: 0 the answer is as narrow as asked for, 99 it is not, 105 interrupted, 104 nothing could be
/// searched.
pub fn capacity(options: &CapacityOptions) -> u8 {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("lab")
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => begin(options)
            .and_then(|(search, dir)| runtime.block_on(Searching { search, dir, options }.run())),
        Err(error) => Err(error.to_string()),
    };
    result.unwrap_or_else(|error| {
        eprintln!("no capacity: {error}");
        exit::BAD_CONFIGURATION
    })
}

/// A new search, or one that goes on, and its directory.
fn begin(options: &CapacityOptions) -> Result<(Search, PathBuf), String> {
    if let Some(dir) = &options.resume {
        let path = dir.join(STATE);
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let search: Search = serde_json::from_slice(&bytes)
            .map_err(|error| format!("{} is no search: {error}", path.display()))?;
        // More trials may be allowed than before.
        let trials = search.bounds.trials.max(options.trials);
        let bounds = Bounds { trials, ..search.bounds };
        return Ok((Search { bounds, ..search }, dir.clone()));
    }
    let path = options.scenario.as_ref().ok_or("give a scenario, or --resume DIR")?;
    let scenario = Scenario::read(path).map_err(|problems| problems.to_string())?;
    if scenario.thresholds.is_empty() {
        return Err("the scenario has no thresholds, so nothing says what is too much: write \
                    `thresholds: default`, or some of your own"
            .into());
    }
    let most = options.vary.most(&scenario);
    let most = options.to.unwrap_or(most).min(most);
    let from = options.from.min(most).max(1);
    options.vary.with(&scenario, from)?;
    let at = SystemTime::now();
    let name = format!("capacity-{}", scenario.name);
    let text = scenario.text.clone();
    let writer = Writer::create(&options.runs_dir, &name, at, &text).map_err(|e| e.to_string())?;
    let bounds = Bounds { from, most, within: options.within_pct / 100.0, trials: options.trials };
    let search = Search {
        scenario: text,
        vary: options.vary,
        bounds,
        trials: Vec::new(),
        spent_s: 0.0,
        started_at: humantime::format_rfc3339_seconds(at).to_string(),
        proof: None,
    };
    Ok((search, writer.dir().to_owned()))
}

/// A search at work.
struct Searching<'a> {
    search: Search,
    dir: PathBuf,
    options: &'a CapacityOptions,
}

impl Searching<'_> {
    async fn run(mut self) -> Result<u8, String> {
        let scenario = Scenario::parse(&self.search.scenario, "the scenario")
            .map_err(|problems| problems.to_string())?;
        let begun = Instant::now();
        let before_s = self.search.spent_s;
        let what = self.search.vary.as_str();
        let mut interrupted = false;
        loop {
            let spent = Duration::from_secs_f64(before_s) + begun.elapsed();
            self.search.spent_s = spent.as_secs_f64();
            self.search.write(&self.dir).map_err(|error| error.to_string())?;
            let Next::Try(value) = next(&self.search.bounds, &self.search.outcomes()) else {
                break;
            };
            if self.options.until.is_some_and(|until| spent >= until) {
                eprintln!("the time is over");
                break;
            }
            let number = self.search.trials.len() + 1;
            eprintln!("--- trial {number}: {value} {what}; so far {}", self.so_far());
            let varied = self.search.vary.with(&scenario, value)?;
            match self.trial(&varied, value).await? {
                Some(trial) => {
                    eprintln!("{}", trial.said(what));
                    self.search.trials.push(trial);
                }
                None => {
                    interrupted = true;
                    break;
                }
            }
        }
        let found = self.search.found();
        if !interrupted && self.search.proof.is_none() {
            interrupted = self.prove(&scenario, &found).await?;
            self.search.write(&self.dir).map_err(|error| error.to_string())?;
        }
        let sure = found.sure >= search::SURE;
        page::write(&self.search, &found, &self.dir, interrupted).map_err(|e| e.to_string())?;
        Ok(match (interrupted, sure) {
            (true, _) => {
                eprintln!("interrupted: `moim capacity --resume {}` goes on", self.dir.display());
                exit::INTERRUPTED
            }
            (false, true) => exit::PASS,
            (false, false) => {
                eprintln!(
                    "not sure yet: `moim capacity --resume {} --trials N` goes on",
                    self.dir.display()
                );
                exit::FAIL
            }
        })
    }

    /// What is known so far, in words.
    fn so_far(&self) -> String {
        if self.search.trials.is_empty() {
            return "nothing is known".into();
        }
        let found = self.search.found();
        let high = found.high.map_or("no limit found".into(), |high| format!("less than {high}"));
        format!("at least {}, {high}, with {:.0} %", found.low, 100.0 * found.sure)
    }

    /// Runs the scenario with a number. None: it was interrupted.
    async fn trial(&self, varied: &Scenario, value: u32) -> Result<Option<Trial>, String> {
        let load = LoadOptions {
            runs_dir: self.dir.clone(),
            server_exe: self.options.server_exe.clone(),
            plain: true,
            ..LoadOptions::default()
        };
        for _ in 0..2 {
            let bots = run::bots_of_this_build(&load);
            let ran = run::run_scenario(varied, &load, bots, run::interrupted(), None).await;
            let ran = ran.map_err(|no_run| no_run.to_string())?;
            let record = ran.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(trial) = Trial::of(value, record, &ran.summary) {
                return Ok(Some(trial));
            }
            if ran.summary.exit_code == exit::INTERRUPTED {
                return Ok(None);
            }
            eprintln!("this trial says nothing ({}): once more", ran.summary.failures.join(", "));
        }
        Err("two trials said nothing: see their reports".into())
    }

    /// Tries what was too much once more with a larger quota, where that is what broke. Says whether it was interrupted.
    async fn prove(&mut self, scenario: &Scenario, found: &Found) -> Result<bool, String> {
        let broken = self.search.broken(found);
        let broke = broken.first().and_then(|trial| trial.bottleneck.as_deref());
        let (Some(high), Some(cores), Some("cpu_quota")) =
            (found.high, vary::quota(scenario), broke)
        else {
            return Ok(false);
        };
        let what = format!("a quota of {:.2} cores instead of {cores}", cores * PROOF);
        eprintln!("--- once more, {high} {}: {what}", self.search.vary.as_str());
        let varied = vary::with_quota(&self.search.vary.with(scenario, high)?, cores * PROOF);
        let Some(trial) = self.trial(&varied, high).await? else { return Ok(true) };
        eprintln!("{}", trial.said(self.search.vary.as_str()));
        self.search.proof = Some((what, trial.outcome == Outcome::Holds));
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
