//! The state of a search, as its directory keeps it: what is looked for, and what was tried.

use super::search::{Bounds, Found, Outcome, answer, limit};
use super::trial::Trial;
use super::vary::Vary;
use crate::record::write_json;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::{fs, io};

/// The file.
const NAME: &str = "search.json";

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
    /// What was tried to prove what broke first.
    pub proof: Option<Proof>,
}

/// What was too much, once more with more of what was at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// The number.
    pub value: u32,
    /// What was changed.
    pub what: String,
    /// How it went.
    pub outcome: Outcome,
}

impl Search {
    /// Reads the one in a directory.
    ///
    /// # Errors
    /// There is none, or it is none of ours.
    pub fn read(dir: &Path) -> Result<Self, String> {
        let path = dir.join(NAME);
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| format!("{} is no search: {error}", path.display()))
    }

    /// Writes it into its directory.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        write_json(dir, NAME, self)
    }

    /// The trials as the search sees them.
    pub fn outcomes(&self) -> Vec<(u32, Outcome)> {
        self.trials.iter().map(|trial| (trial.value, trial.outcome)).collect()
    }

    /// What is known now.
    pub fn found(&self) -> Found {
        answer(&self.bounds, &self.outcomes())
    }

    /// What one costs by the first trial, and how many the generator carries here, in words.
    pub fn plan(&self) -> Option<String> {
        self.trials.first()?.plan(self.vary.unit(), self.vary.alike(), self.bounds.most)
    }

    /// The last trial at the generator's limit.
    pub fn limited(&self) -> Option<&Trial> {
        let limit = limit(&self.outcomes())?;
        self.trials.iter().rfind(|trial| trial.value == limit)
    }

    /// What broke first at the edge: of the three trials that broke nearest to it, what most say.
    pub fn first_break(&self) -> Option<&str> {
        let found = self.found();
        let edge = found.high.unwrap_or(found.low);
        let broken = self.trials.iter().filter(|trial| trial.outcome == Outcome::Breaks);
        let mut broken: Vec<&Trial> = broken.collect();
        broken.sort_by_key(|trial| (trial.value < edge, trial.value.abs_diff(edge)));
        let named: Vec<&str> =
            broken.iter().take(3).filter_map(|trial| trial.bottleneck.as_deref()).collect();
        let count = |name: &&&str| named.iter().filter(|other| other == name).count();
        // Of equals the nearest.
        named.iter().rev().max_by_key(count).copied()
    }
}
