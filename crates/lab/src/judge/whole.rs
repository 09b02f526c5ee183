//! A whole record, read again with its summary. The record of a run that was killed gets its summary here.

use super::summary::{Summary, of_killed_run};
use crate::record::{EventRecord, MachineRecord, Meta, SampleRecord};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::{fs, io};

/// A whole record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was run.
    pub meta: Meta,
    /// How it came out.
    pub summary: Summary,
    /// All samples.
    pub samples: Vec<SampleRecord>,
    /// Usage of the machine.
    pub machine: Vec<MachineRecord>,
    /// What happened.
    pub events: Vec<EventRecord>,
}

/// Reads a record. A run that was killed left no summary: it is made from what there is, and says so.
///
/// # Errors
/// The directory has no readable `meta.json`, or a line (not the last) cannot be read.
pub fn read(dir: &Path) -> io::Result<Record> {
    let meta: Meta = read_json(&dir.join("meta.json"))?;
    let samples: Vec<SampleRecord> = read_lines(&dir.join("samples.jsonl"))?;
    let machine: Vec<MachineRecord> = read_lines(&dir.join("machine.jsonl"))?;
    let events = read_lines(&dir.join("events.jsonl"))?;
    let path = dir.join("summary.json");
    let summary =
        if path.exists() { read_json(&path)? } else { of_killed_run(&meta, &samples, &machine) };
    Ok(Record { meta, summary, samples, machine, events })
}

fn named(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let bytes = fs::read(path).map_err(|error| named(path, error))?;
    serde_json::from_slice(&bytes).map_err(|error| named(path, error))
}

/// Reads JSON lines. A last line that was cut off by a kill is left out; a missing file is empty.
fn read_lines<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(named(path, error)),
    };
    let whole = text.ends_with('\n');
    let mut lines = text.lines().enumerate().peekable();
    let mut values = Vec::new();
    while let Some((index, line)) = lines.next() {
        match serde_json::from_str(line) {
            Ok(value) => values.push(value),
            Err(_) if lines.peek().is_none() && !whole => {}
            Err(error) => return Err(named(path, format!("line {}: {error}", index + 1))),
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::summary::Verdict;
    use crate::record::{Level, Writer};
    use crate::testing::{meta, sample};
    use std::time::SystemTime;

    #[test]
    fn a_killed_run_reads_up_to_its_last_whole_line() {
        let runs = tempfile::tempdir().expect("tempdir");
        let at = SystemTime::UNIX_EPOCH;
        let writer = Writer::create(runs.path(), "x", at, "name: x\n").expect("create");
        assert!(writer.dir().ends_with("19700101T000000Z-x"));
        writer.meta(&meta()).expect("meta");
        for t_ms in [3_000, 6_000] {
            writer.sample(&sample(t_ms));
        }
        let event =
            EventRecord { t_ms: 5, text: "joined".into(), person: None, level: Level::Info };
        writer.event(&event);
        let path = writer.dir().join("samples.jsonl");
        let mut text = fs::read_to_string(&path).expect("read");
        text.push_str("{\"t_ms\": 9000, \"pers");
        fs::write(&path, &text).expect("write");

        let record = read(writer.dir()).expect("a cut last line is no fault");
        assert_eq!(record.samples, [sample(3_000), sample(6_000)]);
        assert_eq!(record.events, [event]);
        assert_eq!(record.meta, meta());
        assert_eq!(record.summary.verdict, Verdict::Inconclusive);
        assert!(
            record.summary.failures[0].contains("ended before"),
            "{:?}",
            record.summary.failures
        );
        assert!(record.summary.metrics["rtt_ms"].is_some(), "metrics of what there is");

        fs::write(&path, text.replacen("3000", "x", 1)).expect("write");
        let error = read(writer.dir()).expect_err("a broken line inside is a fault").to_string();
        assert!(error.contains("samples.jsonl: line 1"), "{error}");
    }
}
