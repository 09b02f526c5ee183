//! The contract between the server, the SDK, bots and browsers.
//!
//! [`frame`] is the socket protocol (SocketCluster protocol 2), [`room`] the calls of a room,
//! [`event`] what a room tells its people, [`quality`] the sample that everyone who receives media
//! posts, [`console`] what the server keeps of them, [`error`] the codes of what can go wrong, [`bound`] how long a
//! request's strings may be. Every message has an example in `fixtures/`,
//! decoded by the tests of this crate and by those of the TypeScript SDK.

pub mod bound;
pub mod console;
pub mod error;
pub mod event;
pub mod frame;
pub mod quality;
pub mod room;

pub use error::{ErrorCode, RoomError};
pub use event::{Event, EventEnvelope, MediaFault};
pub use quality::QualitySample;
