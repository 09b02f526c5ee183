//! The record of a run: a directory written line by line as things happen, so that a run that was killed still renders.
//!
//! `scenario.yaml`, `meta.json`, `samples.jsonl`, `machine.jsonl`, `events.jsonl` and, at the end, `summary.json` and
//! `report.html`; a server that the lab started writes `server.log` beside them. What stands in these files is declared
//! here and imports nothing of the lab. [`crate::judge::whole`] reads them again.

mod fault;
mod heard;
mod lines;
mod machine;
mod meta;
mod networks;
mod sockets;
mod table;
mod writer;

pub use fault::Fault;
pub use heard::{MAX_EXAMPLES, MixWindows, Wrong};
pub use lines::{EventRecord, Join, Level, MIX, SampleRecord, Span};
pub use machine::{
    FULL_LINK, GeneratorUsage, KernelUsage, LOADED_LINK, LinkLimit, LinkUsage, MachineRecord,
    PersonLinkUsage, QuotaUsage, ServerUsage, ThreadUsage, Way,
};
pub use meta::{CpuSets, MachineMeta, Meta, PersonKind, PersonMeta, SCHEMA, TargetMeta};
pub use networks::{DirectionSummary, NetworkSummary};
pub use sockets::{ByHand, Latency, Phase, Second, SocketsSummary};
pub use table::{About, Cell, Column, Line, Plot, Row, Table};
pub use writer::{Writer, write_json, write_summary, write_whole};
