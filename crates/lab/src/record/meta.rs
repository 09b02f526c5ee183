//! What was run, where and by whom: `meta.json`.

use super::fault::Fault;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// The planned duration, in seconds.
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
    /// The CPUs of server and generator; null if the server is not on this machine.
    #[serde(default)]
    pub cpus: Option<CpuSets>,
    /// The fault that the lab made on purpose (`--fault`): no figure of such a run can be believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

impl Meta {
    /// Of a record that is no run by itself, but made from runs: a study, a search, a comparison. `target`: what they tested,
    /// in words; `command`: what made it.
    pub fn of_study(name: String, started_at: String, target: &str, command: &str) -> Self {
        Self {
            schema: SCHEMA,
            name,
            started_at,
            duration_s: 0.0,
            target: TargetMeta { adapter: "moim".into(), url: target.into() },
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: command.into(),
            people: Vec::new(),
            machine: MachineMeta::default(),
            cpus: None,
            fault: None,
        }
    }
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
    /// The participant's role, if the room's bots have roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The index of the scenario's network that the participant is on; none: no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<usize>,
    /// The participant id; none if the participant could not join.
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

/// The CPUs of server and generator in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSets {
    /// The server's.
    pub server: Vec<usize>,
    /// The generator's.
    pub generator: Vec<usize>,
    /// Whether no CPU is in both.
    pub disjoint: bool,
}

impl std::fmt::Display for CpuSets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |cpus: &[usize]| {
            let words: Vec<String> = cpus.iter().map(ToString::to_string).collect();
            words.join(",")
        };
        let (server, generator) = (list(&self.server), list(&self.generator));
        let shared = if self.disjoint { "" } else { " (shared)" };
        write!(f, "server on CPU {server}, generator on CPU {generator}{shared}")
    }
}
