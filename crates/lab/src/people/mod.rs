//! The people of a run at work, and what they share.

pub(crate) mod person;
pub mod sockets;
pub(crate) mod stage;
