//! Several rows of one kind as one: their median, and how far apart they are.

use crate::base::{percentile_of, sorted};
use crate::record::{Cell, Row, Table};
use std::collections::BTreeSet;

/// The median of each column; of words, those there are.
pub(super) fn median(table: &Table, name: &str, rows: &[Row]) -> Row {
    let of_all = |row: Row, key: &str| {
        let middle = percentile_of(values(rows, key), 50.0);
        let cells = rows.iter().filter_map(|row| row.cells.get(key));
        let words: BTreeSet<&str> = cells.filter_map(|cell| cell.word.as_deref()).collect();
        let words = words.into_iter().collect::<Vec<_>>().join(", ");
        row.cell(key, if words.is_empty() { figure(middle) } else { Cell::word(words) })
    };
    table.columns.iter().fold(Row::new(&table.id, name), |row, column| of_all(row, &column.key))
}

/// Least and most of each column.
pub(super) fn spread(table: &Table, name: &str, rows: &[Row]) -> Row {
    let mut spread = Row::new(&table.id, name);
    for column in &table.columns {
        let values = sorted(values(rows, &column.key));
        let digits = usize::from(column.digits);
        let ends = values.first().zip(values.last());
        let cell =
            ends.map(|(least, most)| Cell::word(format!("{least:.digits$}–{most:.digits$}")));
        spread = spread.cell(&column.key, cell.unwrap_or_else(|| figure(None)));
    }
    spread
}

fn values(rows: &[Row], key: &str) -> impl Iterator<Item = f64> {
    rows.iter().filter_map(move |row| row.value(key))
}

fn figure(value: Option<f64>) -> Cell {
    Cell::or(value, "no run gave a figure")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_spread_are_of_the_runs_that_were() {
        let columns =
            [("cpu_pct", "CPU %", 1), ("jitter_ms", "jitter ms", 2), ("first", "first", 0)];
        let table = Table::new("t", "Its table", "A hint.", &columns);
        let run = |cpu, first: &str| {
            let row = Row::new("t", "run").cell("cpu_pct", Cell::number(cpu));
            row.cell("first", Cell::word(first))
        };
        let rows = [run(44.0, "none"), run(46.5, "cpu"), run(40.25, "none")];
        let failed = Row::new("t", "run").rest(&table, "no server");
        let rows = [&rows[..], &[failed]].concat();
        let (median, spread) = (median(&table, "median", &rows), spread(&table, "ends", &rows));
        assert_eq!(median.cells["cpu_pct"].value, Some(44.0));
        assert_eq!(median.cells["first"].word.as_deref(), Some("cpu, none"));
        assert!(median.cells["jitter_ms"].reason.is_some(), "no run gave it");
        assert_eq!(spread.cells["cpu_pct"].word.as_deref(), Some("40.2–46.5"));
        assert!(spread.cells["jitter_ms"].reason.is_some(), "no run gave it");
    }
}
