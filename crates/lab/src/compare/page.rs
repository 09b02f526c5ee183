//! A comparison as a page: what was found, each metric, and the distributions one over the other.

use super::difference::Is;
use super::group::Group;
use super::metric::{Metric, SERVER_US, Whose};
use super::pair::{Compared, Pair};
use crate::base::{percentile, short, sorted};
use crate::observe::proc;
use crate::record::{About, Cell, Meta, Plot, Row, Table};
use crate::report;
use std::io;
use std::path::Path;

/// A distribution is drawn by a value at each so many percent of the people.
const STEP_PCT: usize = 5;

pub(super) struct Page<'a> {
    pub(super) groups: &'a [Group],
    pub(super) pairs: &'a [Pair],
    pub(super) margin_pct: f64,
    /// Whether CPU time is in multiples of the floor.
    pub(super) scaled: bool,
}

impl Page<'_> {
    /// Writes it and prints what was found; `code`: the command's exit code.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn write(
        &self,
        dir: &Path,
        started_at: String,
        command: &str,
        code: u8,
    ) -> io::Result<()> {
        let mut about = About::new(
            "Comparison",
            "Runs of one scenario side by side. A difference is a share of the first side's figure, or of what somebody would \
             notice where that is larger. It counts if it is over the margin and the repeats support it.",
            self.tables(),
        );
        let sentences = self.pairs.iter().map(|pair| pair.sentence(self.margin_pct));
        about.ours = sentences.collect::<Vec<String>>().join(" ");
        about.plots = self.plots();
        about.shown.push(match self.scaled {
            true => "The server's CPU time is brought to the floor of the first side: what a fixed piece of work cost in each run.",
            false => "Not each run measured the machine's floor (`serve: { floor: true }`): the server's CPU time also \
                      follows how fast the machine just was.",
        }.into());
        about.not_shown = self.groups.iter().flat_map(|group| group.left_out.clone()).collect();
        outln!("{}", about.ours);
        let rows = self.rows();
        self.print(&rows);
        let meta = Meta {
            machine: proc::machine(),
            ..Meta::of_study("compare".into(), started_at, "as in the records", command)
        };
        let path = report::write_tables(dir, &meta, (rows, about), (code, 0))?;
        outln!("report: {}", path.display());
        Ok(())
    }

    /// Prints what is not alike, metric by metric; the page has them all.
    fn print(&self, rows: &[Row]) {
        let same = Is::Same.as_str();
        for (at, pair) in self.pairs.iter().enumerate() {
            let table = format!("pair-{at}");
            let other = |row: &&Row| row.table == table && word(row, "is") != same;
            let mut lines = rows.iter().filter(other).peekable();
            if lines.peek().is_some() {
                let Pair { first, second, .. } = pair;
                outln!("\n{second} against {first}: first, second, change, 98 % sure");
            }
            lines.for_each(|row| outln!("{}", line(row)));
        }
    }

    fn tables(&self) -> Vec<Table> {
        let sides = [("runs", "runs", 0), ("floor_ms", "a piece of work, ms", 3)];
        let sides =
            Table::new("sides", "The sides", "A piece of work is the machine's floor.", &sides);
        let metrics = [
            ("first", "first", 3),
            ("second", "second", 3),
            ("change_pct", "change %", 1),
            ("between", "98 % sure", 0),
            ("is", "so it is", 0),
        ];
        let of_pair = |(at, pair): (usize, &Pair)| {
            let title = format!("{} against {}", pair.second, pair.first);
            let hint = format!(
                "Mean over the runs. Under {} % is no difference; “not clear” needs more repeats.",
                self.margin_pct
            );
            Table::new(&format!("pair-{at}"), &title, &hint, &metrics)
        };
        std::iter::once(sides).chain(self.pairs.iter().enumerate().map(of_pair)).collect()
    }

    fn rows(&self) -> Vec<Row> {
        let side = |group: &Group| {
            let why = "not each run measured it";
            Row::new("sides", group.name.clone())
                .cell("runs", Cell::number(group.runs.len() as f64))
                .cell("floor_ms", Cell::or(group.floor_ms(), why))
        };
        let of_pair = |(at, pair): (usize, &Pair)| {
            let mut metrics: Vec<&Compared> = pair.metrics.iter().collect();
            // What was found comes first.
            metrics.sort_by_key(|(_, found)| match found.as_ref().map(|found| found.is) {
                Some(Is::Worse) => 0,
                Some(Is::Better) => 1,
                Some(Is::Differs) => 2,
                Some(Is::Unclear | Is::Unknown) => 3,
                Some(Is::Same) => 4,
                None => 5,
            });
            let table = format!("pair-{at}");
            metrics.into_iter().map(|one| metric_row(&table, one)).collect::<Vec<Row>>()
        };
        let pairs = self.pairs.iter().enumerate().flat_map(of_pair);
        self.groups.iter().map(side).chain(pairs).collect()
    }

    fn plots(&self) -> Vec<Plot> {
        let labels: Vec<&str> = self.groups.iter().map(|group| group.name.as_str()).collect();
        let mut plots = Vec::new();
        let cpu: Vec<Vec<Vec<f64>>> =
            self.groups.iter().map(|group| group.figures(SERVER_US)).collect();
        let most = cpu.iter().map(Vec::len).max().unwrap_or(0);
        if most > 1 {
            let run = |at: usize| {
                let of = |runs: &Vec<Vec<f64>>| runs.get(at).and_then(|run| run.first().copied());
                (at as f64 + 1.0, cpu.iter().map(of).collect())
            };
            let title = ("Server CPU a packet, run by run", "µs", "run");
            plots.push(Plot::new(title, &labels, (0..most).map(run).collect()));
        }
        for metric in Metric::all().iter().filter(|metric| metric.whose == Whose::Half) {
            let people: Vec<Vec<f64>> = self
                .groups
                .iter()
                .map(|group| sorted(group.figures(metric.name).into_iter().flatten()))
                .collect();
            let all = || people.iter().flatten();
            let is_flat = all().all(|value| Some(value) == all().next());
            if is_flat || people.iter().any(|people| people.len() < 3) {
                continue;
            }
            let at = |percent: usize| {
                let percent = percent as f64;
                (percent, people.iter().map(|people| percentile(people, percent)).collect())
            };
            plots.push(Plot::new(
                (&format!("{} over people", metric.name), "", "percent of people who have less"),
                &labels,
                (0..=100).step_by(STEP_PCT).map(at).collect(),
            ));
        }
        plots
    }
}

fn metric_row(table: &str, (metric, found): &Compared) -> Row {
    let row = Row::new(table, metric.title());
    let Some(found) = found else {
        let why = "one side did not measure it";
        let none = ["first", "second", "change_pct", "between", "is"];
        return none.into_iter().fold(row, |row, column| row.cell(column, Cell::none(why)));
    };
    let between = match found.between {
        Some((low, high)) => Cell::word(format!("{:+.1} to {:+.1}", 100.0 * low, 100.0 * high)),
        None => Cell::none("a side has a single run"),
    };
    row.cell("first", Cell::number(found.first))
        .cell("second", Cell::number(found.second))
        .cell("change_pct", Cell::number(100.0 * found.change))
        .cell("between", between)
        .cell("is", Cell::word(found.is.as_str()))
}

fn word(row: &Row, column: &str) -> String {
    let word = row.cells.get(column).and_then(|cell| cell.word.clone());
    word.unwrap_or_else(|| "–".into())
}

/// A row as a line of text.
fn line(row: &Row) -> String {
    let number = |column: &str| row.value(column).map_or_else(|| "–".into(), short);
    let change = row.value("change_pct").map_or_else(|| "–".into(), |pct| format!("{pct:+.1} %"));
    format!(
        "{:<50} {:>9} {:>9} {change:>9}  {:<18} {}",
        row.name,
        number("first"),
        number("second"),
        word(row, "between"),
        word(row, "is")
    )
}
