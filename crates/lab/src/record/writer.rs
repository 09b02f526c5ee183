//! Writes a record, line by line.

use super::lines::{EventRecord, SampleRecord};
use super::machine::MachineRecord;
use super::meta::Meta;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

fn named(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
}

/// Writes the summary of a record, or writes it again.
///
/// # Errors
/// The file cannot be written.
pub fn write_summary(dir: &Path, summary: &impl Serialize) -> io::Result<()> {
    write_json(dir, "summary.json", summary)
}

/// Writes a file of a record's directory as a whole, or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_json<T: Serialize>(dir: &Path, name: &str, value: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    write_whole(&dir.join(name), &text)
}

/// Writes a file as a whole, or not at all: aside, and then renamed.
///
/// # Errors
/// The file cannot be written; what stood there before stays.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        // What is half there only takes room.
        let _ = fs::remove_file(&part);
        named(path, error)
    })
}

/// Writes a record. Methods take `&self`: everyone in a run shares one writer.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    files: Mutex<Files>,
}

/// A file of lines.
#[derive(Debug)]
struct Lines {
    file: File,
    /// The last line may not be whole: the next one begins behind a line end.
    torn: bool,
}

impl Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.file.write_all(b"\n")?;
        }
        self.torn = true;
        self.file.write_all(line)?;
        self.torn = false;
        Ok(())
    }
}

#[derive(Debug)]
struct Files {
    samples: Lines,
    machine: Lines,
    events: Lines,
    /// The first fault of writing: reported once, at the end.
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
        let open = |file: &str| {
            let file = File::create(dir.join(file)).map_err(|error| named(&dir, error))?;
            Ok::<Lines, io::Error>(Lines { file, torn: false })
        };
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

    fn line<T: Serialize>(&self, file: impl Fn(&mut Files) -> &mut Lines, value: &T) {
        let Ok(mut line) = serde_json::to_vec(value) else { return };
        line.push(b'\n');
        let mut files = self.files.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(error) = file(&mut files).write(&line) {
            files.fault.get_or_insert(error);
        }
    }

    /// Writes `meta.json` in one step, so that it is always whole.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn meta(&self, meta: &Meta) -> io::Result<()> {
        write_json(&self.dir, "meta.json", meta)
    }

    /// Writes `summary.json`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn summary(&self, summary: &impl Serialize) -> io::Result<()> {
        write_summary(&self.dir, summary)
    }

    /// The first fault of writing lines, if there was one.
    pub fn take_fault(&self) -> Option<io::Error> {
        self.files.lock().unwrap_or_else(std::sync::PoisonError::into_inner).fault.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_costs_no_other() {
        let path = tempfile::NamedTempFile::new().expect("a file");
        let file = File::options().append(true).open(path.path()).expect("opened");
        let mut lines = Lines { file, torn: false };
        lines.write(b"one\n").expect("written");
        // As after a disk that was full.
        lines.file.write_all(b"tw").expect("written");
        lines.torn = true;
        lines.write(b"three\n").expect("written");
        lines.write(b"four\n").expect("written");
        assert_eq!(fs::read_to_string(path.path()).expect("read"), "one\ntw\nthree\nfour\n");
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("report.html");
        write_whole(&path, b"whole").expect("written");
        fs::create_dir(dir.path().join("report.html.part")).expect("in the way");
        assert!(write_whole(&path, b"another").is_err());
        assert_eq!(fs::read(&path).expect("read"), b"whole");
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
