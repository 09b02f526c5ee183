//! Observing: what `/proc` and the kernel say of server and generator, how the server answers, and what samples are
//! reduced to.

pub mod metrics;
pub mod monitor;
pub mod mos;
pub mod proc;
mod reduced;
pub mod rows;
pub mod sockets;
