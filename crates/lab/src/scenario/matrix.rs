//! The `matrix` of a scenario: the same load by each transport and over each network, one after the other.

use crate::clients::link::networks::Network;
use rtp::Protocol;
use settings::{Section, list_of, one_of, text};

/// What the packets of bots go by.
pub(super) const PROTOCOLS: [(&str, Protocol); 2] =
    [("udp", Protocol::Udp), ("tcp", Protocol::Tcp)];

/// The network that is none.
const FREE: &str = "free";

/// What is combined; what is not asked for is as the scenario says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Matrix {
    /// What the packets of bots go by.
    pub transports: Vec<Protocol>,
    /// Names of the scenario's networks, each for all that its share says; `free`: none.
    pub networks: Vec<String>,
}

impl Matrix {
    /// What is combined: a transport and a network, or none where that is as the scenario says.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (Option<Protocol>, Option<&str>)> {
        let or_none = |count: usize| 0..count.max(1);
        or_none(self.transports.len()).flat_map(move |transport| {
            let transport = self.transports.get(transport).copied();
            let name = |at: usize| self.networks.get(at).map(String::as_str);
            or_none(self.networks.len()).map(move |network| (transport, name(network)))
        })
    }
}

pub(super) fn decode(matrix: &mut Section<'_>) -> Option<Matrix> {
    let transports = matrix.read("transport", list_of(one_of(&PROTOCOLS), 1..=2)).or(vec![]);
    let networks = matrix.read("network", list_of(text(1..=40), 1..=16)).or(vec![]);
    matrix.at_least_one(&["transport", "network"], "write `transport: [udp, tcp]`");
    let mut twice = |key: &str, is: bool| {
        if is {
            matrix.fault(key, "one of them stands there twice", "write each once");
        }
    };
    twice("transport", (1..transports.len()).any(|at| transports[..at].contains(&transports[at])));
    twice("network", (1..networks.len()).any(|at| networks[..at].contains(&networks[at])));
    Some(Matrix { transports, networks })
}

/// What only the whole can tell.
pub(super) fn check(root: &mut Section<'_>, matrix: &Matrix, networks: &[Network]) {
    let known: Vec<&str> = networks.iter().map(|network| network.name.as_str()).collect();
    if known.contains(&FREE) {
        let cure = "give it another name";
        root.fault("networks", "`free` is what a matrix calls no network at all", cure);
    }
    let unknown = |name: &&String| **name != FREE && !known.contains(&name.as_str());
    for name in matrix.networks.iter().filter(unknown) {
        let cure = match known.is_empty() {
            true => "add `networks: [{ name: mobile, delay: 60ms, loss_pct: 1 }]`".into(),
            false => format!("write free or one of {}", known.join(", ")),
        };
        root.fault("matrix", format!("{name:?} is none of the scenario's networks"), cure);
    }
}
