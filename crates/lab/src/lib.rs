//! The load lab: scenario → people (bots, browsers) → samples → verdict → report.
//!
//! It measures from outside, as a client does. [`load`] runs a scenario, [`check`] only reads it,
//! [`render`] makes the report of an old run again. All give the exit code of the command
//! ([`judge::summary::exit`]).
//!
//! Its modules are floors, and arrows point down only (`tests/house.rs` holds the table): [`record`] (what stands in a
//! record) and [`base`] import nothing of the lab; [`observe`] reads the machine and reduces samples; [`clients`] sit in
//! servers; [`judge`] reads records alone; [`scenario`], [`people`], runs, [`study`], [`capacity`], [`compare`] and matrices stand on top.

// Its words for the terminal are everywhere.
#[macro_use]
pub mod base;
pub mod capacity;
pub mod clients;
pub mod compare;
pub mod doctor;
pub mod judge;
mod matrix;
pub mod observe;
pub mod people;
mod progress;
pub mod record;
pub mod report;
mod run;
pub mod scenario;
pub mod study;
#[cfg(test)]
mod testing;

pub use clients::bot::{self, spec as bots};
pub use clients::link;
pub use judge::checks;
use judge::summary::{self, exit};
pub use people::sockets;
pub use run::LoadOptions;
use scenario::Scenario;
use std::path::Path;

/// Runs a scenario, prints its summary and writes its record and report.
pub fn load(options: &LoadOptions) -> u8 {
    let runtime = match base::runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            errln!("{error}");
            return exit::GENERATOR_LIMIT;
        }
    };
    let scenario = match Scenario::read(&options.scenario) {
        Ok(scenario) => scenario,
        Err(problems) => {
            errln!("{problems}");
            return exit::BAD_CONFIGURATION;
        }
    };
    if scenario.matrix.is_some() {
        return runtime.block_on(matrix::load(&scenario, options)).unwrap_or_else(|no_run| {
            errln!("{no_run}");
            no_run.code()
        });
    }
    let (bots, interrupt) = (run::bots_of_this_build(options), base::asked_to_end());
    match runtime.block_on(run::run_scenario(&scenario, options, bots, interrupt, None)) {
        Ok(mut run) => {
            if options.prove {
                runtime.block_on(run::prove(&mut run, options));
            }
            out!("{}", summary::table(&run.summary, &run.meta));
            match &run.record_fault {
                None => outln!("report: {}", run.dir.join("report.html").display()),
                Some(fault) => errln!(
                    "the record is not whole: {fault}; free some space, and `moim report {}` makes the report of what is there",
                    run.dir.display()
                ),
            }
            run.exit_code()
        }
        Err(no_run) => {
            errln!("{no_run}");
            no_run.code()
        }
    }
}

/// Reads a scenario and tells all that is wrong with it.
pub fn check(path: &Path) -> u8 {
    match Scenario::read(path) {
        Ok(scenario) => {
            let (bots, chromium) = (scenario.bots(), scenario.chromium());
            let seconds = scenario.duration.as_secs_f64();
            outln!("{}: {bots} bots and {chromium} chromium people for {seconds} s", scenario.name);
            for (combination, one) in scenario.combinations() {
                outln!("{combination}: {}", one.err().unwrap_or("a run of its own"));
            }
            exit::PASS
        }
        Err(problems) => {
            errln!("{problems}");
            exit::BAD_CONFIGURATION
        }
    }
}

/// Prints the JSON Schema of scenarios.
pub fn print_schema() -> u8 {
    outln!("{:#}", Scenario::schema());
    exit::PASS
}

/// Makes the report of a run again from its record.
pub fn render(run_dir: &Path) -> u8 {
    let killed = !run_dir.join("summary.json").exists();
    match report::render(run_dir) {
        Ok(path) => {
            if killed {
                outln!("the run was killed: the report shows its record until then, unjudged");
            }
            outln!("report: {}", path.display());
            exit::PASS
        }
        Err(error) => {
            errln!("no report: {error}");
            exit::BAD_CONFIGURATION
        }
    }
}

/// Prints the summary of a run for other programs.
pub fn print_summary(run_dir: &Path, format: report::Format) -> u8 {
    match report::formatted(run_dir, format) {
        Ok(text) => {
            out!("{text}");
            exit::PASS
        }
        Err(error) => {
            errln!("no summary: {error}");
            exit::BAD_CONFIGURATION
        }
    }
}
