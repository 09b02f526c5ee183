//! A side of a comparison: the records of its repeats, reduced to figures of people and runs.

use super::metric::{DELIVERED, SERVER_MIB, SERVER_US};
use crate::base::mean;
use crate::judge::summary::exit;
use crate::judge::whole::{self, Record};
use crate::observe::metrics::{Collector, NAMES};
use crate::observe::sockets;
use crate::record::ServerUsage;
use crate::scenario::Scenario;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The repeats of one side.
#[derive(Debug, Clone, Default)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) runs: Vec<RunFigures>,
    /// Runs that say nothing, and why.
    pub(super) left_out: Vec<String>,
    /// The scenario of the first.
    scenario: String,
}

/// What is compared of a run: by metric a figure a person, or the run's only one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RunFigures {
    pub(super) figures: BTreeMap<&'static str, Vec<f64>>,
    /// What a fixed piece of work cost on the server's CPUs, in ms; none: that was not measured.
    pub(super) floor_ms: Option<f64>,
}

impl Group {
    /// Reads a record, or all records in a directory.
    ///
    /// # Errors
    /// There is none that says anything; they are of different scenarios.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let mut group = Self { name: path.display().to_string(), ..Self::default() };
        for dir in records(path)? {
            let record = whole::read(&dir).map_err(|error| error.to_string())?;
            let name = dir.display();
            let why = match record.summary.exit_code {
                _ if record.summary.study.is_some() => "it is a study, not a run",
                exit::GENERATOR_LIMIT => "the generator was its limit",
                exit::INTERRUPTED => "it was interrupted",
                exit::DISAGREEMENT => "browsers and bots disagree",
                _ => "",
            };
            if !why.is_empty() {
                group.left_out.push(format!("{name} is left out: {why}"));
                continue;
            }
            if group.runs.is_empty() {
                group.scenario = record.meta.scenario.clone();
            } else {
                same(&group.scenario, &record.meta.scenario).map_err(|why| {
                    format!("{name} is of another scenario than those before it: {why}")
                })?;
            }
            group.runs.push(RunFigures::of(&record));
        }
        match group.runs.is_empty() {
            true => Err(format!(
                "{}: no run there says anything. {}",
                group.name,
                group.left_out.join(". ")
            )),
            false => Ok(group),
        }
    }

    /// Whether another one is of the same scenario.
    ///
    /// # Errors
    /// What differs, in words.
    pub(super) fn same_as(&self, other: &Self) -> Result<(), String> {
        same(&self.scenario, &other.scenario).map_err(|why| {
            format!("{} and {} are of different scenarios: {why}", self.name, other.name)
        })
    }

    /// What a piece of work cost, mean over the runs; none unless each of them measured it.
    pub(super) fn floor_ms(&self) -> Option<f64> {
        let all: Option<Vec<f64>> = self.runs.iter().map(|run| run.floor_ms).collect();
        mean(all?.into_iter())
    }

    /// The figures of a metric, run by run; runs without are left out.
    pub(super) fn figures(&self, metric: &str) -> Vec<Vec<f64>> {
        let all = self.runs.iter().filter_map(|run| run.figures.get(metric));
        all.filter(|figures| !figures.is_empty()).cloned().collect()
    }

    /// Brings the server's CPU time to what it would be where a piece of work costs this.
    pub(super) fn scale_to(&mut self, floor_ms: f64) {
        for run in &mut self.runs {
            let Some(own_ms) = run.floor_ms else { continue };
            let of_server = run.figures.get_mut(SERVER_US);
            of_server.into_iter().flatten().for_each(|us| *us *= floor_ms / own_ms);
        }
    }
}

/// The directory itself if it is a record, or those in it, by name.
fn records(path: &Path) -> Result<Vec<PathBuf>, String> {
    let is_record = |path: &Path| path.join("meta.json").exists();
    if is_record(path) {
        return Ok(vec![path.to_owned()]);
    }
    let told = |error| format!("{}: {error}", path.display());
    let entries = fs::read_dir(path).map_err(told)?;
    let mut dirs: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_record(path)).collect();
    dirs.sort();
    match dirs.is_empty() {
        true => Err(format!(
            "{}: neither the record of a run nor a directory of such (no meta.json there)",
            path.display()
        )),
        false => Ok(dirs),
    }
}

/// Whether two scenarios are the same load: the target, the server's settings, the name and what must hold may differ.
fn same(first: &str, second: &str) -> Result<(), String> {
    if first == second {
        return Ok(());
    }
    let read = |text| {
        Scenario::parse(text, "scenario").map_err(|_| "one of them is not readable any more")
    };
    let (a, b) = (read(first)?, read(second)?);
    let parts = [
        ("duration", a.duration == b.duration),
        ("rooms", a.rooms == b.rooms),
        ("sockets", a.sockets == b.sockets),
        ("media", a.media == b.media && a.protocol == b.protocol),
        ("networks", a.networks == b.networks),
        ("join", a.join_per_second == b.join_per_second),
        ("canary", a.canary == b.canary),
        ("events", a.events == b.events),
        // Records of a matrix keep its text whole: two of one combination have the same.
        ("their combination of a matrix", a.matrix.is_none() && b.matrix.is_none()),
    ];
    let differ: Vec<&str> = parts.iter().filter(|part| !part.1).map(|part| part.0).collect();
    match differ.is_empty() {
        true => Ok(()),
        false => Err(format!("they differ in {}", differ.join(", "))),
    }
}

impl RunFigures {
    fn of(record: &Record) -> Self {
        let mut collector = Collector::default();
        for one in &record.samples {
            collector.add(&one.person, &one.sample);
        }
        let of_people = NAMES.iter().map(|name| (*name, collector.people(name)));
        let mut figures: BTreeMap<&'static str, Vec<f64>> = of_people.collect();
        let summary = &record.summary;
        let of_sockets = |name: &str| summary.metrics.get(name)?.as_ref();
        for (name, value) in [
            (SERVER_US, server_us(record)),
            (SERVER_MIB, summary.server.as_ref().and_then(|server| server.rss_mib)),
            (DELIVERED, summary.delivery.as_ref().map(|delivery| delivery.packets_per_s)),
            (sockets::PONG_MS, of_sockets(sockets::PONG_MS).map(|pong| pong.p95)),
            (sockets::CONNECT_MS, of_sockets(sockets::CONNECT_MS).map(|connect| connect.p95)),
            (sockets::ANSWERED_PCT, of_sockets(sockets::ANSWERED_PCT).map(|answered| answered.p50)),
            (sockets::LOST, of_sockets(sockets::LOST).map(|lost| lost.max)),
        ] {
            figures.insert(name, value.into_iter().collect());
        }
        let floor_ms = mean(settled(record).filter_map(|server| server.floor_ms));
        Self { figures, floor_ms }
    }
}

/// What the server used in the second half of a run, when everybody is there.
fn settled(record: &Record) -> impl Iterator<Item = &ServerUsage> {
    let half_ms = record.machine.last().map_or(0, |last| last.t_ms / 2);
    let windows = record.machine.iter().filter(move |window| window.t_ms > half_ms);
    windows.filter_map(|window| window.server.as_ref())
}

/// Server CPU a packet then, in µs.
fn server_us(record: &Record) -> Option<f64> {
    let (mut cores, mut packets) = (0.0, 0.0);
    for server in settled(record) {
        cores += server.cpu_cores?;
        packets += server.packets_in_per_s? + server.packets_out_per_s?;
    }
    (packets > 0.0).then(|| cores * 1e6 / packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: &str = "name: x\nserve: {}\nduration: 5s\nrooms: [{ people: { bot: 2 } }]\n";

    #[test]
    fn the_server_may_differ_and_the_load_may_not() {
        let other_server = LOAD.replace("serve: {}", "serve: { shards: 2, fault: hot_thread=1us }");
        assert_eq!(same(LOAD, &other_server), Ok(()));
        let more = LOAD.replace("bot: 2", "bot: 3").replace("5s", "6s");
        assert_eq!(same(LOAD, &more), Err("they differ in duration, rooms".into()));
        assert!(same(LOAD, "nonsense").is_err());
    }

    #[test]
    fn what_is_no_record_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let why = Group::read(dir.path()).unwrap_err();
        assert!(why.contains("neither the record of a run"), "{why}");
        let nowhere = Group::read(Path::new("/nowhere")).unwrap_err();
        assert!(nowhere.starts_with("/nowhere: "), "{nowhere}");
    }

    #[test]
    fn cpu_time_is_brought_to_one_floor() {
        let run = |us: f64, floor_ms| RunFigures {
            figures: [(SERVER_US, vec![us]), (SERVER_MIB, vec![40.0])].into(),
            floor_ms: Some(floor_ms),
        };
        let mut group = Group { runs: vec![run(4.0, 1.0), run(6.0, 1.5)], ..Group::default() };
        assert_eq!(group.floor_ms(), Some(1.25));
        group.scale_to(1.0);
        assert_eq!(group.figures(SERVER_US), [[4.0], [4.0]]);
        assert_eq!(group.figures(SERVER_MIB), [[40.0], [40.0]]);
        group.runs[0].floor_ms = None;
        assert_eq!(group.floor_ms(), None);
    }
}
