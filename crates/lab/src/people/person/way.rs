//! The ways of a bot to a server through the network that it is on.

use super::place::Place;
use crate::clients::link::Leg;
use crate::people::stage::Stage;
use std::net::SocketAddr;

/// The links to the server's addresses, from one answer to the next.
#[derive(Default)]
pub(super) struct Way {
    /// Whose.
    person: String,
    legs: Vec<(SocketAddr, Leg)>,
}

impl Way {
    /// None yet.
    pub(super) fn of(person: &str) -> Self {
        Self { person: person.to_owned(), ..Self::default() }
    }

    /// The server's SDP as someone at a place gets it.
    pub(super) fn through(&mut self, stage: &Stage, place: &Place, sdp: &str) -> String {
        match (&stage.networks, place.network) {
            (Some(networks), Some(network)) => {
                networks.through(network, &self.person, sdp, &mut self.legs)
            }
            _ => sdp.to_owned(),
        }
    }

    /// An address of the server's that comes by itself, likewise; empty where nobody at the place may send to it.
    pub(super) fn candidate(&mut self, stage: &Stage, place: &Place, candidate: String) -> String {
        if stage.networks.is_none() || place.network.is_none() {
            return candidate;
        }
        let line = self.through(stage, place, &format!("a={candidate}\r\n"));
        line.trim_end().strip_prefix("a=").unwrap_or_default().to_owned()
    }
}
