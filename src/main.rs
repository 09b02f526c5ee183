//! The command line of moim.

use clap::{Parser, Subcommand};
use lab::LoadOptions;
use server::config::Config;
use std::path::PathBuf;
use std::process::ExitCode;

/// A realtime room server that knows its own limits.
///
/// `moim serve` hosts rooms: open the page it names and talk. `moim load` fills rooms with bots
/// and browsers, measures how good it is for each of them, and writes a report.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Host rooms: the call page, the sockets and the media, in this one process.
    ///
    /// Without --config it is a development server: reachable from this machine only, page and
    /// sockets on http://127.0.0.1:7880, media on UDP port 7882. For other devices write a
    /// moim.yaml (docs/serve.md has one to start from); browsers give a camera only to pages on
    /// HTTPS or localhost. Ctrl-C ends it; SIGTERM lets calls end first, for up to 30 s.
    Serve {
        /// Settings; all errors in it are told at once, and the exit code is 104.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Run a scenario: people come, talk and are measured; a report is written.
    ///
    /// Exit codes: 0 passed, 99 a threshold or a check failed, 104 bad scenario, 105 interrupted,
    /// 110 the load generator was the limit (inconclusive), 111 the target is not there.
    Load {
        /// The scenario, such as scenarios/first-room.yaml.
        scenario: PathBuf,
        /// Where records go, each into a directory of its own.
        #[arg(long, value_name = "DIR", default_value = "runs")]
        runs: PathBuf,
        /// Only read the scenario and tell what is wrong with it.
        #[arg(long)]
        check: bool,
    },
    /// Make the report of an old run again, from its record.
    Report {
        /// The record's directory, such as runs/2026-11-21T10-00-00-first-room.
        run: PathBuf,
    },
}

/// Exit code for settings or a scenario that cannot be used.
const BAD_CONFIGURATION: u8 = 104;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve { config } => serve(config),
        Command::Load { scenario, check: true, .. } => lab::check(&scenario).into(),
        Command::Load { scenario, runs, check: false } => {
            lab::load(&LoadOptions { scenario, runs_dir: runs, server_exe: None }).into()
        }
        Command::Report { run } => lab::render(&run).into(),
    }
}

fn serve(path: Option<PathBuf>) -> ExitCode {
    let config = match Config::load(path.as_deref()) {
        Ok(config) => config,
        Err(problems) => {
            eprintln!("{problems}");
            return BAD_CONFIGURATION.into();
        }
    };
    server::logging::init(&config.log);
    match server::serve::run(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("moim: {error}");
            ExitCode::FAILURE
        }
    }
}
