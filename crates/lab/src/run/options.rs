//! What a run is told, and why there may be none.

use crate::judge::summary::exit;
use crate::record::Fault;
use std::path::PathBuf;
use std::{fmt, io};

/// What `moim load` is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// The scenario file.
    pub scenario: PathBuf,
    /// Where records go.
    pub runs_dir: PathBuf,
    /// The binary whose `serve` is started for `serve:` scenarios; none: this one.
    pub server_exe: Option<PathBuf>,
    /// Whether the scenario runs once more with the first bottleneck's resource changed.
    pub prove: bool,
    /// Plain lines on stderr, even if it is a terminal.
    pub plain: bool,
    /// What the lab does wrong on purpose.
    pub fault: Option<Fault>,
}

/// Why there is no run at all.
#[derive(Debug)]
pub(crate) struct NoRun {
    code: u8,
    text: String,
}

impl NoRun {
    pub(crate) fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for NoRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<io::Error> for NoRun {
    fn from(error: io::Error) -> Self {
        Self::new(exit::BAD_CONFIGURATION, error.to_string())
    }
}
