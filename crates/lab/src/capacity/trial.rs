//! A trial of a search: the scenario run once with one number, and what came of it.

use super::search::Outcome;
use crate::base::short;
use crate::judge::summary::{Summary, exit};
use crate::record::{Meta, Phase};
use serde::{Deserialize, Serialize};

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The number that was tried.
    pub value: u32,
    /// How it went.
    pub outcome: Outcome,
    /// Directory of its record, in the search's.
    pub record: String,
    /// What did not hold, in words.
    pub failures: Vec<String>,
    /// What broke first (see [`crate::judge::bottleneck`]).
    pub bottleneck: Option<String>,
    /// What speaks for that.
    pub evidence: Vec<String>,
    /// People who came.
    pub people: usize,
    /// What people and sockets received: packets or answers a second.
    pub delivered_per_s: Option<f64>,
    /// Cores of the server; none if it is not on this machine.
    pub server_cores: Option<f64>,
    /// Its memory in MiB; likewise.
    pub server_mib: Option<f64>,
    /// Payload that a person receives, in kbit/s: the median.
    #[serde(default)]
    pub received_kbps: Option<f64>,
    /// Memory that the generator took for it, in MiB; none: it had some of trials before.
    #[serde(default)]
    pub generator_mib: Option<f64>,
    /// Cores of the generator.
    pub generator_cores: f64,
    /// CPUs that the generator has; none: not known.
    #[serde(default)]
    pub generator_cpus: Option<usize>,
}

/// Up to so much of its CPUs a generator is used: its threads are late from there on.
const USABLE: f64 = 0.85;

impl Trial {
    /// Of a run. None if it says nothing: interrupted, or browsers and bots disagree.
    pub fn of(value: u32, record: String, meta: &Meta, summary: &Summary) -> Option<Self> {
        let outcome = match summary.exit_code {
            exit::PASS => Outcome::Holds,
            exit::FAIL => Outcome::Breaks,
            exit::GENERATOR_LIMIT => Outcome::Generator,
            _ => return None,
        };
        let server = summary.server.as_ref();
        let phases =
            summary.sockets.iter().map(|group| group.steady.as_ref().unwrap_or(&group.whole));
        let answers: f64 = phases.filter_map(Phase::answered_per_s).sum();
        let packets = summary.delivery.as_ref().map(|delivery| delivery.packets_per_s);
        let received = summary.metrics.get("received_kbps").and_then(Option::as_ref);
        let failures = match outcome {
            Outcome::Generator => summary.generator.reasons.clone(),
            _ => summary.failures.clone(),
        };
        Some(Self {
            value,
            outcome,
            record,
            failures,
            bottleneck: summary.bottleneck.first.clone(),
            evidence: summary.bottleneck.evidence.clone(),
            people: summary.people,
            delivered_per_s: packets.or((answers > 0.0).then_some(answers)),
            server_cores: server.and_then(|server| server.cpu_cores),
            server_mib: server.and_then(|server| server.rss_mib),
            received_kbps: received.map(|kbps| kbps.p50),
            generator_mib: None,
            generator_cores: summary.generator.cpu_cores,
            generator_cpus: meta.cpus.as_ref().map(|sets| sets.generator.len()),
        })
    }

    /// What one costs on average, and how many the generator carries here by that, in words: said after the first trial,
    /// before the search goes on. `alike`: another one costs as much as those before it. None: nothing was measured.
    pub fn plan(&self, what: &str, alike: bool, most: u32) -> Option<String> {
        let each = self.generator_cores / f64::from(self.value);
        let cpus = self.generator_cpus.filter(|_| each > 0.0)?;
        let carries = (USABLE * cpus as f64 / each).floor().max(1.0);
        let of_each = |all: f64| short(all / f64::from(self.value));
        let memory = self.generator_mib.map(|mib| format!(" and {} KiB", of_each(1024.0 * mib)));
        let server = self
            .server_cores
            .map(|cores| format!(" and {} mCPU of the server", of_each(1000.0 * cores)));
        let received =
            self.received_kbps.map(|kbps| format!("; a person receives {} kbit/s", short(kbps)));
        let costs = format!(
            "with {} {what} each costs {} mCPU{} of the generator{}{}",
            self.value,
            of_each(1000.0 * self.generator_cores),
            memory.unwrap_or_default(),
            server.unwrap_or_default(),
            received.unwrap_or_default()
        );
        if !alike {
            return Some(format!("{costs}; each costs more as they become more"));
        }
        let machines = (f64::from(most) / carries).ceil();
        let more = match machines > 1.0 {
            true => format!("; {most} would take about {machines} such machines"),
            false => String::new(),
        };
        Some(format!("{costs}: its {cpus} CPU(s) carry about {carries} here{more}"))
    }

    /// How it went, in a line.
    pub fn said(&self, what: &str) -> String {
        let why = self.failures.first().map(|first| format!(": {first}")).unwrap_or_default();
        let how = match self.outcome {
            Outcome::Holds => {
                let server =
                    self.server_cores.map(|cores| format!(", server {} cores", short(cores)));
                format!("all holds{}", server.unwrap_or_default())
            }
            Outcome::Breaks => format!("does not hold{why}"),
            Outcome::Generator => format!("the generator is at its limit{why}"),
        };
        format!("{} {what}: {how}", self.value)
    }
}
