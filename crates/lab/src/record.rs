//! The record of a run: a directory written line by line as things happen, so that a run that was
//! killed still renders.
//!
//! `scenario.yaml`, `meta.json`, `samples.jsonl`, `machine.jsonl`, `events.jsonl` and, at the end,
//! `summary.json` and `report.html`; a server of our own writes `server.log` beside them.

mod usage;

use crate::fault::Fault;
use crate::summary::Summary;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;
pub use usage::{
    GeneratorUsage, KernelUsage, LinkUsage, MachineRecord, PersonLinkUsage, QuotaUsage,
    ServerUsage, ThreadUsage, Way,
};
use wire::QualitySample;

/// Version of the record's shape.
pub const SCHEMA: u32 = 1;

/// What kind of participant someone is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PersonKind {
    /// A native bot.
    Bot,
    /// A page in a real browser.
    Chromium,
}

/// What was run, where and by whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub name: String,
    /// When the run began (RFC 3339, UTC).
    pub started_at: String,
    /// How long it was to last, in seconds.
    pub duration_s: f64,
    /// What was tested.
    pub target: TargetMeta,
    /// Version of moim.
    pub version: String,
    /// The scenario's text.
    pub scenario: String,
    /// Everyone who took part.
    pub people: Vec<PersonMeta>,
    /// Where the load was made.
    pub machine: MachineMeta,
    /// Who ran on which CPUs; null for a server that was not started for the run.
    #[serde(default)]
    pub cpus: Option<crate::cpus::CpuSets>,
    /// What the lab did wrong on purpose (`--fault`): nothing that it says here can be believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// What was tested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetMeta {
    /// What kind of server.
    pub adapter: String,
    /// Its address.
    pub url: String,
}

/// Someone who took part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PersonMeta {
    /// The name, as in samples and events.
    pub name: String,
    /// Bot or browser.
    pub kind: PersonKind,
    /// The room's id.
    pub room: String,
    /// What he was there for, where the room's bots have roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Which of the scenario's networks is before him, from 0; none: no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<usize>,
    /// The participant id; none for one who could not join.
    pub participant: Option<String>,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineMeta {
    /// The processor's name.
    pub cpu: String,
    /// Logical CPUs that this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Load average over 1, 5 and 15 minutes at the start.
    pub load_average: Vec<f64>,
    /// Versions of what took part, by name.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
}

/// A sample of a person; a line of `samples.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleRecord {
    /// End of the interval, in milliseconds since the start of the run.
    pub t_ms: u64,
    /// Who.
    pub person: String,
    /// Bot or browser.
    pub kind: PersonKind,
    /// What he saw.
    pub sample: QualitySample,
}

/// How grave an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It happened.
    Info,
    /// It should be looked at.
    Warn,
    /// It failed.
    Error,
}

/// Something that happened; a line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// When, in milliseconds since the start of the run.
    pub t_ms: u64,
    /// What, in words.
    pub text: String,
    /// Who, if someone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// How grave.
    pub level: Level,
}

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

/// Reads a record. One that was killed has no summary: it is made from what there is, and says so.
///
/// # Errors
/// The directory has no readable `meta.json`, or a line (not the last) cannot be read.
pub fn read(dir: &Path) -> io::Result<Record> {
    let meta: Meta = read_json(&dir.join("meta.json"))?;
    let samples: Vec<SampleRecord> = read_lines(&dir.join("samples.jsonl"))?;
    let machine: Vec<MachineRecord> = read_lines(&dir.join("machine.jsonl"))?;
    let events = read_lines(&dir.join("events.jsonl"))?;
    let path = dir.join("summary.json");
    let summary = if path.exists() {
        read_json(&path)?
    } else {
        crate::summary::of_killed_run(&meta, &samples, &machine)
    };
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

/// Writes the summary of a record, or writes it again.
///
/// # Errors
/// The file cannot be written.
pub fn write_summary(dir: &Path, summary: &Summary) -> io::Result<()> {
    write_json(dir, "summary.json", summary)
}

fn write_json<T: Serialize>(dir: &Path, name: &str, value: &T) -> io::Result<()> {
    let (part, path) = (dir.join(format!("{name}.part")), dir.join(name));
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    fs::write(&part, text).map_err(|error| named(&part, error))?;
    fs::rename(&part, &path).map_err(|error| named(&path, error))
}

/// Writes a record. Methods take `&self`: everyone in a run shares one writer.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    files: Mutex<Files>,
}

#[derive(Debug)]
struct Files {
    samples: File,
    machine: File,
    events: File,
    /// The first fault of writing: told once, at the end.
    fault: Option<io::Error>,
}

impl Writer {
    /// Makes `runs_dir/<when>-<name>/` with the scenario in it.
    ///
    /// # Errors
    /// The directory cannot be made or written.
    pub fn create(runs_dir: &Path, name: &str, at: SystemTime, scenario: &str) -> io::Result<Self> {
        let when = humantime::format_rfc3339_seconds(at).to_string().replace([':', '-'], "");
        fs::create_dir_all(runs_dir).map_err(|error| named(runs_dir, error))?;
        let mut dir = runs_dir.join(format!("{when}-{name}"));
        for copy in 2..1000 {
            match fs::create_dir(&dir) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    dir = runs_dir.join(format!("{when}-{name}-{copy}"));
                }
                Err(error) => return Err(named(&dir, error)),
            }
        }
        fs::write(dir.join("scenario.yaml"), scenario)?;
        let open = |file: &str| File::create(dir.join(file)).map_err(|error| named(&dir, error));
        let files = Files {
            samples: open("samples.jsonl")?,
            machine: open("machine.jsonl")?,
            events: open("events.jsonl")?,
            fault: None,
        };
        Ok(Self { dir, files: Mutex::new(files) })
    }

    /// The record's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds a sample.
    pub fn sample(&self, record: &SampleRecord) {
        self.line(|files| &mut files.samples, record);
    }

    /// Adds what server and generator used.
    pub fn machine(&self, record: &MachineRecord) {
        self.line(|files| &mut files.machine, record);
    }

    /// Adds an event.
    pub fn event(&self, record: &EventRecord) {
        self.line(|files| &mut files.events, record);
    }

    fn line<T: Serialize>(&self, file: impl Fn(&mut Files) -> &mut File, value: &T) {
        let Ok(mut line) = serde_json::to_vec(value) else { return };
        line.push(b'\n');
        let mut files = self.files.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(error) = file(&mut files).write_all(&line) {
            files.fault.get_or_insert(error);
        }
    }

    /// Writes `meta.json`, in one step, so that it is whole at any time.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn meta(&self, meta: &Meta) -> io::Result<()> {
        self.json("meta.json", meta)
    }

    /// Writes `summary.json`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn summary(&self, summary: &Summary) -> io::Result<()> {
        write_summary(&self.dir, summary)
    }

    fn json<T: Serialize>(&self, name: &str, value: &T) -> io::Result<()> {
        write_json(&self.dir, name, value)
    }

    /// The first fault of writing lines, if there was one.
    pub fn take_fault(&self) -> Option<io::Error> {
        self.files.lock().unwrap_or_else(std::sync::PoisonError::into_inner).fault.take()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn meta() -> Meta {
        Meta {
            schema: SCHEMA,
            name: "first-room".into(),
            started_at: "2026-01-02T03:04:05Z".into(),
            duration_s: 60.0,
            target: TargetMeta { adapter: "moim".into(), url: "http://127.0.0.1:7880".into() },
            version: "0.1.0".into(),
            scenario: "name: first-room\n".into(),
            people: vec![PersonMeta {
                name: "bot-1".into(),
                kind: PersonKind::Bot,
                room: "r".into(),
                role: None,
                network: None,
                participant: None,
            }],
            machine: MachineMeta { cores: 2, ..Default::default() },
            cpus: None,
            fault: None,
        }
    }

    pub(crate) fn sample(t_ms: u64) -> SampleRecord {
        let sample = QualitySample { rtt_ms: Some(1.5), interval_ms: 3_000, ..Default::default() };
        SampleRecord { t_ms, person: "bot-1".into(), kind: PersonKind::Bot, sample }
    }

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
        assert_eq!(record.summary.verdict, crate::summary::Verdict::Inconclusive);
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

    #[test]
    fn two_runs_of_one_second_have_two_directories() {
        let runs = tempfile::tempdir().expect("tempdir");
        let at = SystemTime::UNIX_EPOCH;
        let one = Writer::create(runs.path(), "x", at, "").expect("create");
        let two = Writer::create(runs.path(), "x", at, "").expect("create");
        assert_ne!(one.dir(), two.dir());
        assert!(one.take_fault().is_none());
    }
}
