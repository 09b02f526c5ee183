//! The four studies: each starts the server itself, runs its sessions one after the other and
//! writes one report in which every table of the study stands with our figures beside it.
//!
//! A session is an ordinary scenario and leaves an ordinary record; the study's own record holds
//! rows made from them.

mod audio_room;
mod beside;
mod columns;
mod labs;
mod limited;
mod mesh_vs_sfu;
mod name;
mod options;
mod others;
mod pair;
mod repeated;
mod session;
mod sfu;
mod sockets;
mod text;

pub use crate::record::{About, Cell, Column, Line, Plot, Row, Table};
pub use beside::Beside;
pub use name::Name;
pub use options::StudyOptions;
pub use session::{Session, Sessions};

use crate::base;
use crate::judge::summary::{self, exit};
use crate::observe::proc;
use crate::record::{Meta, Writer};
use crate::report;
use std::io;
use std::time::{Instant, SystemTime};

/// Runs a study; the exit code: 0 when its report is complete, 99 when rows, cells or people are
/// missing, 105 when it was interrupted.
pub fn study(options: &StudyOptions) -> u8 {
    if let Some(why) = options.fault() {
        errln!("{why}");
        return exit::BAD_CONFIGURATION;
    }
    let result = match base::runtime() {
        Ok(runtime) => runtime.block_on(run(options)),
        Err(error) => Err(io::Error::other(error)),
    };
    result.unwrap_or_else(|error| {
        errln!("no study: {error}");
        exit::BAD_CONFIGURATION
    })
}

async fn run(options: &StudyOptions) -> io::Result<u8> {
    let (started_at, begin) = (SystemTime::now(), Instant::now());
    let name = format!("study-{}", options.name.as_str());
    let command = format!(
        "# {}\n# Each session's scenario stands in its own directory here.\n",
        options.command()
    );
    let writer = Writer::create(&options.runs_dir, &name, started_at, &command)?;
    let mut sessions = Sessions::new(options, writer.dir());
    let mut about = match options.name {
        Name::Sockets => sockets::about(),
        Name::Sfu => sfu::about(),
        Name::MeshVsSfu => mesh_vs_sfu::about(),
        Name::AudioRoom => audio_room::about(),
    };
    let rows = match options.name {
        Name::Sockets => sockets::run(&mut sessions, &mut about).await,
        Name::Sfu => sfu::run(&mut sessions, &mut about).await,
        Name::MeshVsSfu => mesh_vs_sfu::run(&mut sessions, &mut about).await,
        Name::AudioRoom => audio_room::run(&mut sessions, &mut about).await,
    };
    about.sessions = sessions.names();
    about.quick = options.quick;
    let mut machine = proc::machine();
    machine.load_average = sessions.load_average_before();
    machine.versions = sessions.versions();
    let started_at = humantime::format_rfc3339_seconds(started_at).to_string();
    let meta = Meta {
        duration_s: begin.elapsed().as_secs_f64(),
        machine,
        cpus: sessions.cpus(),
        ..Meta::of_study(name, started_at, "a server of its own a session", &command)
    };
    let mut faults = sessions.missing();
    if rows.is_empty() {
        faults.push("the study has no rows".into());
    }
    faults.extend(about.gaps(&rows));
    let text = text::text(&about, &rows);
    let markdown = text::markdown(&about, &rows, &meta);
    let mut summary = summary::of_study(&meta, &faults, (rows, about));
    if sessions.interrupted() {
        summary.end(exit::INTERRUPTED);
    }
    summary.people = sessions.people();
    std::fs::write(writer.dir().join("study.md"), markdown)?;
    let path = report::write(writer.dir(), &meta, &summary)?;
    out!("{text}");
    for fault in &faults {
        outln!("missing: {fault}");
    }
    outln!("report: {}", path.display());
    Ok(summary.exit_code)
}

#[cfg(test)]
mod tests;
