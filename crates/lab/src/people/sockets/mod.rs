//! A load of sockets: many SocketCluster connections on one thread. Pings are due at times fixed
//! beforehand (open loop), and latency counts from the moment each was due.

mod by_hand;
mod connection;
mod counts;
pub mod frame;
mod load;

pub use by_hand::ping_by_hand;
pub use counts::{Counted, Now};
pub use load::{DRAIN, Load};

#[cfg(test)]
mod tests;
