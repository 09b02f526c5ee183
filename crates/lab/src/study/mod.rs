//! The four studies: each starts the server itself, runs its sessions one after the other and
//! writes one report in which every table of the study stands with our figures beside it.
//!
//! A session is an ordinary scenario and leaves an ordinary record; the study's own record holds
//! rows made from them.

mod audio_room;
mod limited;
mod mesh_vs_sfu;
mod session;
mod sfu;
mod sockets;
mod table;

pub use session::{Session, Sessions};
pub use table::{About, Cell, Column, Line, Plot, Row, Table};

use crate::record::{Meta, SCHEMA, TargetMeta, Writer};
use crate::summary::{self, exit};
use crate::{proc, report};
use std::io;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

/// Which study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// An SFU on a small box.
    Sfu,
    /// Realtime sockets.
    Sockets,
    /// Mesh against SFU.
    MeshVsSfu,
    /// An audio-only room.
    AudioRoom,
}

impl Name {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sfu, Self::Sockets, Self::MeshVsSfu, Self::AudioRoom];

    /// The word of the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sfu => "sfu",
            Self::Sockets => "sockets",
            Self::MeshVsSfu => "mesh-vs-sfu",
            Self::AudioRoom => "audio-room",
        }
    }

    /// Reads the word of the command line.
    ///
    /// # Errors
    /// A sentence that names those there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|name| name.as_str() == text);
        known.ok_or_else(|| "the studies are sfu, sockets, mesh-vs-sfu and audio-room".into())
    }
}

/// What `moim study` is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StudyOptions {
    /// Which study.
    pub name: Name,
    /// Small and short, to see that all of it works; its figures mean little.
    pub quick: bool,
    /// Where the record goes, in a directory of its own.
    pub runs_dir: PathBuf,
    /// The binary whose `serve` is started; none: this one.
    pub server_exe: Option<PathBuf>,
}

/// Runs a study; the exit code: 0 when its report is complete, 99 when rows, cells or people are
/// missing, 105 when it was interrupted.
pub fn study(options: &StudyOptions) -> u8 {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("lab")
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(options)),
        Err(error) => Err(error),
    };
    result.unwrap_or_else(|error| {
        eprintln!("no study: {error}");
        exit::BAD_CONFIGURATION
    })
}

async fn run(options: &StudyOptions) -> io::Result<u8> {
    let (started_at, begin) = (SystemTime::now(), Instant::now());
    let name = format!("study-{}", options.name.as_str());
    let command = format!(
        "# moim study {}{}\n# Each session's scenario stands in its own directory here.\n",
        options.name.as_str(),
        if options.quick { " --quick" } else { "" }
    );
    let writer = Writer::create(&options.runs_dir, &name, started_at, &command)?;
    let mut sessions = Sessions::new(options, writer.dir());
    let (rows, mut about) = match options.name {
        Name::Sockets => sockets::run(&mut sessions).await,
        Name::Sfu => sfu::run(&mut sessions).await,
        Name::MeshVsSfu => mesh_vs_sfu::run(&mut sessions).await,
        Name::AudioRoom => audio_room::run(&mut sessions).await,
    };
    about.sessions = sessions.names();
    about.quick = options.quick;
    let mut machine = proc::machine();
    machine.load_average = sessions.load_average_before();
    machine.versions = sessions.versions();
    let meta = Meta {
        fault: None,
        schema: SCHEMA,
        name,
        started_at: humantime::format_rfc3339_seconds(started_at).to_string(),
        duration_s: begin.elapsed().as_secs_f64(),
        target: TargetMeta { adapter: "moim".into(), url: "a server of its own a session".into() },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        scenario: command,
        people: Vec::new(),
        machine,
        cpus: sessions.cpus(),
    };
    let mut faults = sessions.missing();
    if rows.is_empty() {
        faults.push("the study has no rows".into());
    }
    faults.extend(about.gaps(&rows));
    let mut summary = summary::of_study(&meta, &faults, begin.elapsed().as_secs_f64());
    if sessions.interrupted() {
        summary.exit_code = exit::INTERRUPTED;
    }
    summary.people = sessions.people();
    let text = table::text(&about, &rows);
    let markdown = table::markdown(&about, &rows, &meta);
    (summary.study, summary.study_about) = (Some(rows), Some(about));
    writer.meta(&meta)?;
    writer.summary(&summary)?;
    std::fs::write(writer.dir().join("study.md"), markdown)?;
    let path = report::render(writer.dir())?;
    print!("{text}");
    for fault in &faults {
        println!("missing: {fault}");
    }
    println!("report: {}", path.display());
    Ok(summary.exit_code)
}

#[cfg(test)]
mod tests;
