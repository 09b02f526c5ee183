//! The tables of a study in words: for a terminal and for documents.

use crate::base::markdown::inline;
use crate::base::short;
use crate::record::{About, Meta, Row, Table};
use std::fmt::Write;

fn rows_of<'a>(table: &'a Table, rows: &'a [Row]) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(|row| row.table == table.id)
}

/// For a terminal: every row with its figures, the study's beside them.
pub fn text(about: &About, rows: &[Row]) -> String {
    let mut out = format!("{}\n", about.title);
    let _ = writeln!(out, "the study: {}\nhere: {}", about.theirs, about.ours);
    for table in &about.tables {
        let _ = writeln!(out, "\n{}", table.title);
        for row in rows_of(table, rows) {
            let _ = writeln!(out, "  {}", row.name);
            // Cells that lack a figure for one reason are told together.
            let mut lacks: Vec<(&str, Vec<&str>)> = Vec::new();
            for column in &table.columns {
                let Some(cell) = row.cells.get(&column.key) else { continue };
                let theirs = row.reference.get(&column.key);
                let theirs = theirs.map(|v| format!("  (study: {})", short(*v)));
                let Some(ours) = cell.shown(column.digits) else {
                    let reason = cell.reason.as_deref().unwrap_or("not measured");
                    match lacks.iter_mut().find(|(known, _)| *known == reason) {
                        Some((_, titles)) => titles.push(&column.title),
                        None => lacks.push((reason, vec![&column.title])),
                    }
                    continue;
                };
                let theirs = theirs.unwrap_or_default();
                let _ = writeln!(out, "    {:<28} {ours}{theirs}", column.title);
            }
            for (reason, titles) in lacks {
                let _ = writeln!(out, "    –  {reason}: {}", titles.join(", "));
            }
            for note in &row.notes {
                let _ = writeln!(out, "    {note}");
            }
        }
    }
    out
}

/// For `docs/studies.md`: a section with machine, date, load and every table.
pub fn markdown(about: &About, rows: &[Row], meta: &Meta) -> String {
    let machine = &meta.machine;
    let load: Vec<String> = machine.load_average.iter().map(|v| format!("{v:.2}")).collect();
    let versions: Vec<String> =
        machine.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let cpus = meta.cpus.as_ref().map(|sets| format!("; {sets}")).unwrap_or_default();
    let mut out = format!(
        "## {}\n- **The study:** {}\n- **Here:** {}\n\n{}\n\nRun {} in {:.0} s on {} ({} CPUs, Linux {}), load average before {}{cpus}; \
         {}.\n",
        about.title,
        about.theirs,
        about.ours,
        about.text,
        meta.started_at,
        meta.duration_s,
        machine.cpu,
        machine.cores,
        machine.kernel,
        load.join(", "),
        versions.join(", "),
    );
    for table in &about.tables {
        markdown_table(&mut out, table, rows);
    }
    for (head, list) in
        [("What this run shows", &about.shown), ("What it does not show", &about.not_shown)]
    {
        if !list.is_empty() {
            let _ = write!(out, "\n**{head}**\n");
        }
        for item in list {
            let _ = writeln!(out, "- {item}");
        }
    }
    out
}

fn markdown_table(out: &mut String, table: &Table, rows: &[Row]) {
    let _ = write!(out, "\n### {}\n{}\n\n|  |", table.title, table.hint);
    for column in &table.columns {
        let _ = write!(out, " {} |", column.title);
    }
    let _ = writeln!(out, "\n|---|{}", "---:|".repeat(table.columns.len()));
    // A reason stands below the table, once, with a mark in the cell.
    let mut reasons: Vec<&str> = Vec::new();
    let mut notes = Vec::new();
    for row in rows_of(table, rows) {
        let _ = write!(out, "| {} |", inline(&row.name));
        for column in &table.columns {
            let cell = row.cells.get(&column.key);
            let shown = cell.and_then(|cell| cell.shown(column.digits));
            let reason = cell.and_then(|cell| cell.reason.as_deref()).unwrap_or("not measured");
            let _ = match shown {
                Some(shown) => write!(out, " {} |", inline(&shown)),
                None => {
                    let known = reasons.iter().position(|known| *known == reason);
                    let index = known.unwrap_or_else(|| {
                        reasons.push(reason);
                        reasons.len() - 1
                    });
                    write!(out, " – ({}) |", mark(index))
                }
            };
        }
        out.push('\n');
        if !row.reference.is_empty() {
            let _ = write!(out, "| *the study* |");
            for column in &table.columns {
                let value = row.reference.get(&column.key);
                let _ = write!(
                    out,
                    " {} |",
                    value.map(|v| format!("*{}*", plain(*v))).unwrap_or_default()
                );
            }
            out.push('\n');
        }
        notes.extend(row.notes.iter().map(|note| inline(&format!("{}: {note}", row.name))));
    }
    if !(reasons.is_empty() && notes.is_empty()) {
        out.push('\n');
    }
    for (index, reason) in reasons.iter().enumerate() {
        let _ = writeln!(out, "- ({}) {}", mark(index), inline(reason));
    }
    for note in notes {
        let _ = writeln!(out, "- {note}");
    }
}

/// As the study printed it.
fn plain(value: f64) -> String {
    format!("{value}")
}

/// a, b, c … for notes below a table.
fn mark(index: usize) -> String {
    let letter = char::from(b'a' + (index % 26) as u8);
    if index < 26 { letter.to_string() } else { format!("{letter}{}", index / 26) }
}
