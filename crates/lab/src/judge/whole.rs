//! A whole record, read again with its summary. The record of a run that was killed gets its summary here.

use super::summary::{Summary, of_killed_run};
use crate::record::{EventRecord, Level, MachineRecord, Meta, SampleRecord};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

const SAMPLES: &str = "samples.jsonl";
const MACHINE: &str = "machine.jsonl";
const EVENTS: &str = "events.jsonl";

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
/// The directory has no readable `meta.json`, or a file cannot be read. A line that cannot be is left out, and told in an event.
pub fn read(dir: &Path) -> io::Result<Record> {
    let (meta, summary) = head(dir)?;
    let (samples, broken_samples) = lines(&dir.join(SAMPLES))?;
    let (machine, broken_machine) = machine(dir)?;
    let events = events(dir, (broken_samples, broken_machine))?;
    Ok(Record { meta, summary, samples, machine, events })
}

/// What was run, and how it came out; otherwise as [`read`].
///
/// # Errors
/// As [`read`].
pub fn head(dir: &Path) -> io::Result<(Meta, Summary)> {
    let meta: Meta = read_json(&dir.join("meta.json"))?;
    let path = dir.join("summary.json");
    let summary = match path.exists() {
        true => read_json(&path)?,
        false => {
            of_killed_run(&meta, &lines::<SampleRecord>(&dir.join(SAMPLES))?.0, &machine(dir)?.0)
        }
    };
    Ok((meta, summary))
}

/// Hands on the samples of a record, one by one: there may be more than fit into memory. Gives how many lines cannot be read.
///
/// # Errors
/// As [`read`].
pub fn each_sample(dir: &Path, each: impl FnMut(SampleRecord)) -> io::Result<usize> {
    each_line(&dir.join(SAMPLES), each)
}

/// What was seen of the machine, and how many lines cannot be read.
///
/// # Errors
/// As [`read`].
pub fn machine(dir: &Path) -> io::Result<(Vec<MachineRecord>, usize)> {
    lines(&dir.join(MACHINE))
}

/// What happened, and how many lines of the record cannot be read: so many of the samples and of the machine, and those here.
///
/// # Errors
/// As [`read`].
pub fn events(
    dir: &Path,
    (of_samples, of_machine): (usize, usize),
) -> io::Result<Vec<EventRecord>> {
    let (mut events, broken) = lines::<EventRecord>(&dir.join(EVENTS))?;
    let t_ms = events.last().map_or(0, |event| event.t_ms);
    for (file, count) in [(SAMPLES, of_samples), (MACHINE, of_machine), (EVENTS, broken)] {
        if count > 0 {
            let text = format!("{count} lines of {file} cannot be read, and are left out");
            events.push(EventRecord { t_ms, text, person: None, level: Level::Warn });
        }
    }
    Ok(events)
}

fn named(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let bytes = fs::read(path).map_err(|error| named(path, error))?;
    serde_json::from_slice(&bytes).map_err(|error| named(path, error))
}

/// All that can be read, and how many lines cannot.
fn lines<T: DeserializeOwned>(path: &Path) -> io::Result<(Vec<T>, usize)> {
    let mut values = Vec::new();
    let broken = each_line(path, |value| values.push(value))?;
    Ok((values, broken))
}

/// Reads JSON lines. A last line that was cut off by a kill is left out; a missing file is empty. Others that cannot be read, as
/// after a full disk, are left out too: gives how many.
fn each_line<T: DeserializeOwned>(path: &Path, mut each: impl FnMut(T)) -> io::Result<usize> {
    let mut file = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(named(path, error)),
    };
    let (mut line, mut broken) = (Vec::new(), 0);
    loop {
        line.clear();
        if file.read_until(b'\n', &mut line).map_err(|error| named(path, error))? == 0 {
            return Ok(broken);
        }
        match serde_json::from_slice(&line) {
            Ok(value) => each(value),
            Err(_) => broken += usize::from(line.last() == Some(&b'\n')),
        }
    }
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
        let record = read(writer.dir()).expect("a broken line costs no other");
        assert_eq!(record.samples, [sample(6_000)]);
        let told = record.events.last().map(|event| event.text.as_str());
        assert_eq!(told, Some("1 lines of samples.jsonl cannot be read, and are left out"));
    }
}
