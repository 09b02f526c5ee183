//! A whole room in virtual time: the engine's room and shard, the lab's bots, a seeded network
//! between them. No socket, no clock, no handshake; a seed repeats byte for byte.

mod asking_again;
mod behind;
mod bursts;
mod churn;
mod codecs;
mod consent;
mod downlink;
mod formats;
mod hand;
mod keyframes;
mod mcu;
mod order;
mod pausing;
mod pressure;
mod properties;
mod redundancy;
mod remb;
mod reports;
mod rooms;
mod scalable;
mod sharing;
mod simulcast;
mod sinks;
mod speakers;
mod strangers;
mod streams;
mod world;

pub use world::Random;

/// A number that an environment variable holds.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
