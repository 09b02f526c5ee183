//! Who leads a run: says on the way how many are there, from what was measured so far.

use crate::record::{MachineRecord, SampleRecord};
use crate::scenario::Crowd;
use std::sync::Arc;

/// What there is to see when a leader looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// Milliseconds since the start of the run.
    pub(crate) t_ms: u64,
    /// People connected now.
    pub(crate) connected: usize,
    /// The samples that came since the last look, each person's in order.
    pub(crate) samples: &'a [Arc<SampleRecord>],
    /// Usage of the machine in the window that ends now.
    pub(crate) machine: &'a MachineRecord,
}

/// Leads a run whose rooms are [`crate::scenario::Executor::Led`].
pub(crate) trait Leader: Send {
    /// Looks, every 3 s; how many are to be there from now on, or none: the run is over.
    fn look(&mut self, seen: &Seen<'_>) -> Option<Crowd>;
}
