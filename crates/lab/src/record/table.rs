//! Rows of a study and the tables they stand in, as `summary.json` holds them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A number or a word, or why there is none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The number.
    pub value: Option<f64>,
    /// The word, if it is no number: a bottleneck's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Cell {
    /// A number; one that is not finite is none.
    pub fn number(value: f64) -> Self {
        Self::or(Some(value), "the measurement gave no number")
    }

    /// Why there is none.
    pub fn none(reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::default() }
    }

    /// A word.
    pub fn word(word: impl Into<String>) -> Self {
        Self { word: Some(word.into()), ..Self::default() }
    }

    /// What stands in a table.
    pub fn shown(&self, digits: u8) -> Option<String> {
        self.word
            .clone()
            .or_else(|| self.value.map(|value| format!("{value:.*}", usize::from(digits))))
    }

    /// A number if one was measured, otherwise why not.
    pub fn or(value: Option<f64>, reason: impl Into<String>) -> Self {
        match value.filter(|value| value.is_finite()) {
            Some(value) => Self { value: Some(value), ..Self::default() },
            None => Self::none(reason),
        }
    }
}

/// A row: our figures, and under `reference` the study's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The id of its table.
    pub table: String,
    /// What it is about.
    pub name: String,
    /// Our figures, by column.
    pub cells: BTreeMap<String, Cell>,
    /// The study's figures, by column. If the study has none, the column is left out.
    pub reference: BTreeMap<String, f64>,
    /// What else is to be said, such as whose limit it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Row {
    /// A row without figures.
    pub fn new(table: &str, name: impl Into<String>) -> Self {
        Self { table: table.into(), name: name.into(), ..Self::default() }
    }

    /// Adds a figure of ours.
    pub fn cell(mut self, column: &str, cell: Cell) -> Self {
        self.cells.insert(column.into(), cell);
        self
    }

    /// Adds a figure of ours, if one was measured.
    pub fn measured(self, column: &str, value: Option<f64>) -> Self {
        self.cell(column, Cell::or(value, "nobody could measure it in this session"))
    }

    /// Adds figures of the study's own.
    pub fn reference<const N: usize>(mut self, figures: [(&str, f64); N]) -> Self {
        self.reference.extend(figures.map(|(column, value)| (column.to_owned(), value)));
        self
    }

    /// The number in a column, if there is one.
    pub fn value(&self, column: &str) -> Option<f64> {
        self.cells.get(column)?.value
    }

    /// Adds a note.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// What stands in a row of a table, of all rows of a study; a dash if there is no figure.
    pub fn shown(rows: &[Self], table: &str, name: &str, column: &str, digits: u8) -> String {
        let row = rows.iter().find(|row| row.table == table && row.name == name);
        let cell = row.and_then(|row| row.cells.get(column));
        cell.and_then(|cell| cell.shown(digits)).unwrap_or_else(|| "–".to_owned())
    }

    /// Gives all columns of a table that have no figure yet the same reason.
    pub fn rest(mut self, table: &Table, reason: &str) -> Self {
        for column in &table.columns {
            self.cells.entry(column.key.clone()).or_insert_with(|| Cell::none(reason));
        }
        self
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The key of its cells; the unit is in it.
    pub key: String,
    /// Its head.
    pub title: String,
    /// Digits after the point.
    pub digits: u8,
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Its id.
    pub id: String,
    /// Its head.
    pub title: String,
    /// What to know when reading it.
    pub hint: String,
    /// Its columns.
    pub columns: Vec<Column>,
}

impl Table {
    /// A table of columns (key, title, digits).
    pub fn new(id: &str, title: &str, hint: &str, columns: &[(&str, &str, u8)]) -> Self {
        let columns = columns.iter().map(|&(key, title, digits)| Column {
            key: key.into(),
            title: title.into(),
            digits,
        });
        Self { id: id.into(), title: title.into(), hint: hint.into(), columns: columns.collect() }
    }
}

/// A line of a plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub label: String,
    /// Its values, one for each of the plot's `x`.
    pub values: Vec<Option<f64>>,
}

/// A plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Its head.
    pub title: String,
    /// What the lines' values are in.
    pub unit: String,
    /// What `x` is.
    pub x_title: String,
    /// Rising.
    pub x: Vec<f64>,
    /// The lines.
    pub lines: Vec<Line>,
}

impl Plot {
    /// A plot of points (x, values of each line), in order of x.
    pub fn new(
        (title, unit, x_title): (&str, &str, &str),
        labels: &[&str],
        mut points: Vec<(f64, Vec<Option<f64>>)>,
    ) -> Self {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by(|a, b| a.0 == b.0);
        let line = |(index, label): (usize, &&str)| Line {
            label: (*label).into(),
            values: points.iter().map(|(_, values)| values.get(index).copied().flatten()).collect(),
        };
        Self {
            title: title.into(),
            unit: unit.into(),
            x_title: x_title.into(),
            lines: labels.iter().enumerate().map(line).collect(),
            x: points.iter().map(|(x, _)| *x).collect(),
        }
    }
}

/// What belongs to a study's rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Its title.
    pub title: String,
    /// What was tested and how, in a few sentences.
    pub text: String,
    /// What the study found, in a sentence.
    #[serde(default)]
    pub theirs: String,
    /// What this run found, in a sentence.
    #[serde(default)]
    pub ours: String,
    /// Small and short: its figures mean little.
    pub quick: bool,
    /// The tables.
    pub tables: Vec<Table>,
    /// The plots.
    pub plots: Vec<Plot>,
    /// What this machine could show.
    pub shown: Vec<String>,
    /// What it could not show, and why.
    pub not_shown: Vec<String>,
    /// Directories of the sessions' records.
    pub sessions: Vec<String>,
}

impl About {
    /// A study of this title, what it tests in a few sentences, and its tables.
    pub fn new(title: &str, text: &str, tables: Vec<Table>) -> Self {
        Self { title: title.into(), text: text.into(), tables, ..Self::default() }
    }

    /// The same with what the study found, in a sentence.
    pub fn found(self, theirs: &str) -> Self {
        Self { theirs: theirs.into(), ..self }
    }

    /// What is missing: the sentence of what was found, rows without a table, tables without rows, cells without number or reason.
    pub fn gaps(&self, rows: &[Row]) -> Vec<String> {
        let mut gaps = Vec::new();
        if self.theirs.is_empty() || self.ours.is_empty() {
            gaps.push("no sentence that says what was found".into());
        }
        for table in &self.tables {
            if !rows.iter().any(|row| row.table == table.id) {
                gaps.push(format!("table {} has no rows", table.id));
            }
        }
        for row in rows {
            let Some(table) = self.tables.iter().find(|table| table.id == row.table) else {
                gaps.push(format!("row {} has no table", row.name));
                continue;
            };
            for column in &table.columns {
                let whole = row.cells.get(&column.key).is_some_and(|cell| {
                    cell.shown(0).is_some() || cell.reason.as_ref().is_some_and(|r| !r.is_empty())
                });
                if !whole {
                    gaps.push(format!("{}, {}: no {}", table.id, row.name, column.key));
                }
            }
        }
        gaps
    }
}
