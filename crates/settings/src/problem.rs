//! What is wrong in a document, and where.

use std::fmt;

/// A place in the text, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub line: usize,
    pub column: usize,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1; 0 where the file as a whole is meant (missing, unreadable).
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key's path, such as `rooms[0].audio`; empty for the document itself.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub cure: String,
}

impl Problem {
    pub(crate) fn at(
        at: Position,
        path: &str,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            line: at.line,
            column: at.column,
            path: path.to_owned(),
            what: what.into(),
            cure: cure.into(),
        }
    }
}

/// Everything that is wrong with a document, in the order of its lines. Displayed one a line:
/// `moim.yaml:12:5 rooms[0].audoi: unknown key; did you mean "audio"? …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    source: String,
    list: Vec<Problem>,
}

/// More than this many problems are not kept: nobody reads them.
pub(crate) const MAX_PROBLEMS: usize = 100;

impl Problems {
    pub(crate) fn new(source: &str, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|problem| (problem.line, problem.column));
        Self { source: source.to_owned(), list }
    }

    /// Problems that concern the file as a whole.
    pub(crate) fn of_file(source: &str, what: String, cure: &str) -> Self {
        let problem =
            Problem { line: 0, column: 0, path: String::new(), what, cure: cure.to_owned() };
        Self { source: source.to_owned(), list: vec![problem] }
    }

    /// Name of the document, as given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The problems.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.source)?;
            if problem.line > 0 {
                write!(f, ":{}:{}", problem.line, problem.column)?;
            }
            if problem.path.is_empty() {
                write!(f, ": {}", problem.what)?;
            } else {
                write!(f, " {}: {}", problem.path, problem.what)?;
            }
            if !problem.cure.is_empty() {
                write!(f, "; {}", problem.cure)?;
            }
        }
        if self.list.len() >= MAX_PROBLEMS {
            write!(f, "\n{}: more problems may follow", self.source)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
