//! The media core, sans-IO: no clock, no socket, no JSON, no str0m.
//!
//! [`room`] is the pure state machine that runs once a room: roster, tracks, slots. [`shard`] is
//! what one media thread runs: packets. `egress` decides what leaves to one receiver. Commands travel from room to shard ([`command`]), reports
//! back; datagrams come in batches and leave through a [`Sink`] that lends its send buffer.
#![forbid(unsafe_code)]

mod bucket;
mod clock;
pub mod command;
pub mod drops;
mod egress;
pub mod limits;
pub mod mix;
mod outbox;
mod relay;
pub mod room;
pub mod shard;
mod sink;

pub use bucket::Bucket;
pub use clock::Now;
pub use command::{
    Command, PersonKey, Precedence, Report, RoomKey, ShardIndex, Shown, StreamKey, Subject,
    TrackKey,
};
pub use outbox::Outbox;
pub use shard::{Handled, Shard};
pub use sink::{Priority, Sink};
