//! Judging a run by its record: checks, thresholds, whether browsers and bots agree, what broke first, the summary.

pub mod agreement;
pub mod bottleneck;
pub mod checks;
pub mod expected;
pub mod generator;
pub mod quality;
pub mod roster;
mod sockets;
pub mod summary;
pub mod threshold;
pub mod whole;
