//! The command line of moim.

use clap::{Parser, Subcommand};
use lab::capacity::{CapacityOptions, Vary};
use lab::compare::CompareOptions;
use lab::report::Format;
use lab::study::StudyOptions;
use lab::{LoadOptions, errln, outln};
use server::auth::{Secret, TokenRequest};
use server::config::Config;
use server::faults::Faults;
use std::path::{Path, PathBuf};
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
        /// Media threads, each with people, a port, a mixer and a control thread of its own; a
        /// room's people may be on several. Wins over media.shards of the settings.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
        shards: Option<u16>,
        /// So many people of a room share a media thread, those who come after them go where the
        /// fewest are. Wins over media.keep_together of the settings.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
        keep_together: Option<u16>,
        /// Settings of a server that hosts nobody: faults may be made as in development mode.
        #[arg(long, requires = "config", hide_short_help = true)]
        for_tests: bool,
        /// A fault made on purpose, in development mode or with --for-tests: hot_thread=40us,
        /// stalled_signaling=800ms/3s, receive_buffer=4096, mixer_backlog=1s, tcp_backlog=2097152,
        /// panic=media or stall=media/5s (media, control or mix). May be given again.
        #[arg(long, value_name = "FAULT", hide_short_help = true)]
        fault: Vec<String>,
    },
    /// Run a scenario: people come, talk and are measured; a report is written.
    ///
    /// In a terminal it shows how everyone fares on the way; q or Ctrl-C ends the run early, with a
    /// full report.
    ///
    /// Exit codes: 0 passed, 99 a threshold or a check failed, 104 bad scenario, 105 interrupted,
    /// 110 the load generator was the limit (inconclusive), 111 the target is not there, 113
    /// browsers and bots disagree about the same media (inconclusive), 114 it passed, but its record could
    /// not be written as a whole.
    Load {
        /// The scenario, such as scenarios/first-room.yaml.
        #[arg(required_unless_present = "schema")]
        scenario: Option<PathBuf>,
        /// Where records go, each into a directory of its own.
        #[arg(long, value_name = "DIR", default_value = "runs")]
        runs: PathBuf,
        /// Only read the scenario and tell what is wrong with it.
        #[arg(long)]
        check: bool,
        /// Run once more with the first bottleneck's resource changed by a fifth (a quota, a link
        /// limited by tbf, open files; of a server that runs already): what is delivered must
        /// follow, and turns the bottleneck from suspected to proven. Needs root.
        #[arg(long)]
        prove: bool,
        /// Plain lines while it runs, instead of the view that a terminal gets.
        #[arg(long)]
        plain: bool,
        /// A fault made on purpose, for tests of the lab itself: freeze_counter (bots count no
        /// freezes), busy_thread=lab (its threads have no time left) or busy_thread=bots (the first thread of bots has none).
        /// The record says so.
        #[arg(long, value_name = "FAULT", hide_short_help = true)]
        fault: Option<lab::record::Fault>,
        /// Print the JSON Schema of scenarios, for editors, and do nothing else.
        #[arg(long)]
        schema: bool,
    },
    /// Run one of the four reference studies and put our figures beside its own.
    ///
    /// Starts the server itself, on CPUs and ports of its own, runs one session after the other
    /// (up to 20 minutes; --quick about one) and writes one report. Exit codes: 0 the report is
    /// complete, 99 rows, cells or people are missing, 105 interrupted.
    Study {
        /// sfu, sockets, mesh-vs-sfu or audio-room.
        #[arg(value_parser = lab::study::Name::parse)]
        name: lab::study::Name,
        /// Small and short: shows that everything works, not how fast it is.
        #[arg(long)]
        quick: bool,
        /// audio-room alone: one person a second and minutes a step, as the study did in two hours.
        #[arg(long, conflicts_with = "quick")]
        like_the_study: bool,
        /// Of sfu: one more session, in which perf tells where the server's media thread spends its
        /// time. Needs perf on PATH (Debian: linux-perf).
        #[arg(long)]
        profile: bool,
        /// Where the record goes, in a directory of its own.
        #[arg(long, value_name = "DIR", default_value = "runs")]
        out: PathBuf,
        /// Puts another server beside moim, on the same CPUs and in turn: janus (sfu, audio-room), livekit (sfu) or
        /// socketcluster (sockets); may be given again. The lab starts it: FILE is its binary, if it is not on PATH, or
        /// the script of a SocketCluster server (scripts/socketcluster.mjs; needs node). Janus needs root.
        #[arg(long, value_name = "SERVER[=FILE]", value_parser = lab::study::Beside::parse)]
        beside: Vec<lab::study::Beside>,
    },
    /// Find how much a server carries: run a scenario again and again with another number.
    ///
    /// Growth by fours, then bisection, until an interval holds the answer; what was at its end there is named. The
    /// scenario says by its thresholds what is too much (`thresholds: default` is a set for its kind of rooms). Exit
    /// codes: 0 the answer is as narrow as asked for, 99 it is not, 104 bad scenario, 105 interrupted (--resume goes on), 110 the
    /// load generator was the limit: at least so many.
    Capacity {
        /// The scenario, such as scenarios/capacity-mixed.yaml.
        #[arg(required_unless_present_any = ["resume", "repeat"], conflicts_with_all = ["resume", "repeat"])]
        scenario: Option<PathBuf>,
        /// What is varied: people (bots of the only room), rooms, senders, connections or rate (pings a second of each
        /// socket).
        #[arg(long, value_parser = Vary::parse, default_value = "people")]
        vary: Vary,
        /// The first number.
        #[arg(long, default_value_t = 10)]
        from: u32,
        /// The largest number.
        #[arg(long)]
        to: Option<u32>,
        /// Width of the answer, in percent.
        #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
        within: f64,
        /// Trials at most.
        #[arg(long, default_value_t = 40)]
        trials: u32,
        /// No trial begins after so long, such as 1h.
        #[arg(long, value_name = "DURATION", value_parser = lab::capacity::parse_duration)]
        until: Option<std::time::Duration>,
        /// Where the record goes, in a directory of its own.
        #[arg(long, value_name = "DIR", default_value = "runs")]
        runs: PathBuf,
        /// Go on with the search in this directory, as it was begun.
        #[arg(long, value_name = "DIR", conflicts_with_all = ["vary", "from", "to", "within", "runs"])]
        resume: Option<PathBuf>,
        /// Make the search in this directory again, from the interval that it found.
        #[arg(long, value_name = "DIR", conflicts_with_all = ["vary", "from", "to", "within", "resume"])]
        repeat: Option<PathBuf>,
    },
    /// Put records of one scenario side by side: of two builds, two servers, two kinds of machine.
    ///
    /// Each metric with its difference, and whether the repeats support it. Record each side three times or more, in turn,
    /// with `serve: { floor: true }` in the scenario: then the server's CPU time counts beside what a fixed piece of work
    /// costs meanwhile. Exit codes: 0 no side is worse, 112 one is worse than the first by more than the margin, 104 they
    /// cannot be compared.
    Compare {
        /// Records, or directories of such; each is compared with the first.
        #[arg(required = true, num_args = 2..)]
        records: Vec<PathBuf>,
        /// A smaller difference is none.
        #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
        margin: f64,
        /// Where the record goes, in a directory of its own.
        #[arg(long, value_name = "DIR", default_value = "runs")]
        runs: PathBuf,
    },
    /// Make the report of an old run again, from its record, or print its summary for other programs.
    Report {
        /// The record's directory, such as runs/20261121T100000Z-first-room.
        run: PathBuf,
        /// What is made: the page, or text that is printed. Markdown is what GitHub shows of `>> $GITHUB_STEP_SUMMARY`.
        #[arg(long, value_enum, default_value_t = ReportFormat::Html)]
        format: ReportFormat,
    },
    /// Say what this machine allows: namespaces, limited links, quotas, batches, browsers.
    ///
    /// Each is tried out, with what it is for. Nothing is changed.
    Doctor,
    /// Make a token (JWT) with which someone may join, and print it.
    ///
    /// The key's name and secret are those under `keys` in moim.yaml.
    Token(TokenArguments),
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ReportFormat {
    /// report.html in the record's directory.
    Html,
    /// A row a metric.
    Csv,
    /// A test case for each threshold and check, for build servers.
    Junit,
    /// Gauges in Prometheus' text format.
    Prometheus,
    /// A summary for people.
    Markdown,
}

#[derive(clap::Args)]
struct TokenArguments {
    /// The key's name.
    #[arg(long)]
    key: String,
    /// The environment variable that holds the key's secret.
    #[arg(long, value_name = "VARIABLE", default_value = "MOIM_SECRET")]
    secret_env: String,
    /// Who it is for.
    #[arg(long)]
    identity: String,
    /// The name that others see.
    #[arg(long)]
    name: Option<String>,
    /// The only room it is for; without it any.
    #[arg(long)]
    room: Option<String>,
    /// May moderate and list rooms, and use the whole HTTP API.
    #[arg(long)]
    admin: bool,
    /// Channels that may be subscribed to, such as `news` or `chat.*`; may be given again.
    #[arg(long, value_name = "PATTERN")]
    subscribe: Vec<String>,
    /// Channels that may be published on; may be given again.
    #[arg(long, value_name = "PATTERN")]
    publish: Vec<String>,
    /// The server that it is for, where its settings have an `audience`.
    #[arg(long)]
    audience: Option<String>,
    /// Print the invitation to --room on this server in place of the bare token, such as
    /// https://call.example.org. The token is in the fragment, which stands in no log.
    #[arg(long, value_name = "URL", requires = "room")]
    link: Option<String>,
    /// How long it holds, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 6 * 3600)]
    ttl: u64,
}

/// Exit code for settings or a scenario that cannot be used.
const BAD_CONFIGURATION: u8 = 104;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve { config, shards, keep_together, for_tests, fault } => {
            serve(config, (shards, keep_together), for_tests, &fault)
        }
        Command::Doctor => {
            lab::doctor::print();
            ExitCode::SUCCESS
        }
        // The command line requires a scenario unless there is --schema.
        Command::Load { schema: true, .. } | Command::Load { scenario: None, .. } => {
            lab::print_schema().into()
        }
        Command::Load { scenario: Some(scenario), check: true, .. } => lab::check(&scenario).into(),
        Command::Load { scenario: Some(scenario), runs, prove, plain, fault, .. } => {
            let runs_dir = runs;
            let options = LoadOptions { scenario, runs_dir, server_exe: None, prove, plain, fault };
            lab::load(&options).into()
        }
        Command::Study { name, quick, like_the_study, profile, out, beside } => {
            let options = StudyOptions {
                name,
                quick,
                like_the_study,
                profile,
                beside,
                runs_dir: out,
                server_exe: None,
            };
            lab::study::study(&options).into()
        }
        Command::Capacity {
            scenario,
            vary,
            from,
            to,
            within,
            trials,
            until,
            runs,
            resume,
            repeat,
        } => {
            let options = CapacityOptions {
                scenario,
                vary,
                from,
                to,
                within_pct: within,
                trials,
                until,
                runs_dir: runs,
                resume,
                repeat,
                server_exe: None,
            };
            lab::capacity::capacity(&options).into()
        }
        Command::Compare { records, margin, runs } => {
            let options = CompareOptions { records, margin_pct: margin, runs_dir: runs };
            lab::compare::compare(&options).into()
        }
        Command::Report { run, format } => report(&run, format).into(),
        Command::Token(arguments) => token(arguments),
    }
}

fn report(run: &Path, format: ReportFormat) -> u8 {
    let format = match format {
        ReportFormat::Html => return lab::render(run),
        ReportFormat::Csv => Format::Csv,
        ReportFormat::Junit => Format::Junit,
        ReportFormat::Prometheus => Format::Prometheus,
        ReportFormat::Markdown => Format::Markdown,
    };
    lab::print_summary(run, format)
}

fn serve(
    path: Option<PathBuf>,
    (shards, keep_together): (Option<u16>, Option<u16>),
    for_tests: bool,
    faults: &[String],
) -> ExitCode {
    let mut config = match Config::load(path.as_deref()) {
        Ok(config) => config,
        Err(problems) => {
            errln!("{problems}");
            return BAD_CONFIGURATION.into();
        }
    };
    config.for_tests = for_tests;
    if let Some(shards) = shards {
        config.media.shards = shards.into();
    }
    if let Some(people) = keep_together {
        config.media.keep_together = people.into();
    }
    match faults.iter().try_fold(Faults::default(), |known, text| known.with(text)) {
        Ok(faults) => config.faults = faults,
        Err(why) => {
            errln!("moim: {why}");
            return BAD_CONFIGURATION.into();
        }
    }
    server::logging::init(&config.log);
    match server::serve::run(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            errln!("moim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn token(arguments: TokenArguments) -> ExitCode {
    let made = std::env::var(&arguments.secret_env)
        .map_err(|_| format!("the environment variable {} is not set", arguments.secret_env))
        .and_then(|secret| Secret::new(&secret))
        .and_then(|secret| {
            let request = TokenRequest {
                audience: arguments.audience,
                identity: arguments.identity,
                name: arguments.name,
                room: arguments.room.clone(),
                admin: arguments.admin,
                subscribe: arguments.subscribe,
                publish: arguments.publish,
                ttl_s: arguments.ttl,
            };
            server::auth::issue(&arguments.key, &secret, &request)
        });
    match made {
        Ok(token) => {
            match (arguments.link, arguments.room) {
                (Some(url), Some(room)) => {
                    outln!("{}/room/{room}#token={token}", url.trim_end_matches('/'));
                }
                _ => outln!("{token}"),
            }
            ExitCode::SUCCESS
        }
        Err(why) => {
            errln!("moim: {why}");
            BAD_CONFIGURATION.into()
        }
    }
}
