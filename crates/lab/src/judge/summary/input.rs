//! What a summary is made from.

use crate::judge::expected::{Expected, Failure};
use crate::judge::threshold::Threshold;
use crate::observe::sockets::SocketCounts;
use crate::record::{Join, MachineRecord, Meta, NetworkSummary, SampleRecord, SocketsSummary};
use std::collections::BTreeMap;
use std::time::Duration;

/// All that a summary is made from.
#[derive(Debug)]
pub struct Input<'a> {
    /// What was run.
    pub meta: &'a Meta,
    /// All samples, each person's in order.
    pub samples: &'a [SampleRecord],
    /// Usage of the machine.
    pub machine: &'a [MachineRecord],
    /// Timer lag over the whole run, 99th percentile in milliseconds.
    pub timer_lag_ms_p99: f64,
    /// Everyone whose media was connected.
    pub joins: &'a [Join],
    /// The scenario's thresholds.
    pub thresholds: &'a [Threshold],
    /// Everything that went wrong outside of samples: people who could not join, for example.
    pub faults: &'a [String],
    /// The first of them, and when it was seen, in milliseconds since the start of the run.
    pub first_fault: Option<&'a (u64, String)>,
    /// Subscriptions that were not alive.
    pub subscriptions: &'a [Failure],
    /// How long the run really lasted, in seconds.
    pub duration_s: f64,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Which threshold ended it early, and when.
    pub aborted: Option<String>,
    /// Groups of sockets without a room.
    pub sockets: &'a [SocketsSummary],
    /// What all of them came to, by the moment from which on it counts: at least from the start.
    pub socket_counts: &'a BTreeMap<Duration, SocketCounts>,
    /// What the links before people did.
    pub networks: Vec<NetworkSummary>,
    /// What was expected and heard; None if nobody was watched.
    pub expected: Option<&'a Expected>,
}

impl<'a> Input<'a> {
    /// A run of which nothing else is known.
    pub fn of(meta: &'a Meta) -> Self {
        static NONE: BTreeMap<Duration, SocketCounts> = BTreeMap::new();
        Self {
            meta,
            samples: &[],
            machine: &[],
            timer_lag_ms_p99: 0.0,
            joins: &[],
            thresholds: &[],
            faults: &[],
            first_fault: None,
            subscriptions: &[],
            duration_s: 0.0,
            interrupted: false,
            aborted: None,
            sockets: &[],
            socket_counts: &NONE,
            networks: Vec::new(),
            expected: None,
        }
    }
}
