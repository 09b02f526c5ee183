//! What the links between participants and the server did.

use serde::{Deserialize, Serialize};

/// What a direction of a network did with media, summed over its participants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionSummary {
    /// Packets of media that came to the link.
    pub packets: u64,
    /// Packets of these that it delivered.
    pub delivered: u64,
    /// Share that it did not deliver, in percent; null if nothing came.
    pub loss_pct: Option<f64>,
    /// Mean delay that it added, in milliseconds.
    pub delay_ms: Option<f64>,
    /// Jitter that it added (RFC 3550: mean |difference| of the delays of packets that follow each
    /// other in a stream), in milliseconds.
    pub jitter_ms: Option<f64>,
}

/// What a network did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkSummary {
    /// Its name.
    pub name: String,
    /// Connections that went by it.
    pub legs: usize,
    /// From people to the server.
    pub up: DirectionSummary,
    /// From the server to people.
    pub down: DirectionSummary,
    /// How much later than the model said the relay of all links sent packets on: 95th percentile, in
    /// milliseconds. No reading of a link can be more exact.
    #[serde(default)]
    pub late_ms_p95: Option<f64>,
    /// The same, 99th percentile.
    #[serde(default)]
    pub late_ms_p99: Option<f64>,
    /// Packets that the relay had no room for, or that belonged to nobody.
    #[serde(default)]
    pub relay_dropped: u64,
    /// Why the relay could not open a socket for someone, if that happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_error: Option<String>,
}
