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
mod glances;
mod hand;
mod keyframes;
mod lies;
mod mcu;
mod moving;
mod order;
mod pausing;
mod pictures;
mod pressure;
mod properties;
mod redundancy;
mod remb;
mod reports;
mod rooms;
mod scalable;
mod senders;
mod sharing;
mod simulcast;
mod sinks;
mod speakers;
mod strangers;
mod streams;
mod voices;
mod world;

pub use world::Random;

/// The seeds that a test plays: `MOIM_SEED` alone, or so many as `MOIM_SEEDS` says (`count`) and those that `showed_faults`.
fn seeds(count: u64, showed_faults: &[u64]) -> Vec<u64> {
    match number("MOIM_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("MOIM_SEEDS").unwrap_or(count))
            .chain(showed_faults.iter().copied())
            .collect(),
    }
}

/// A number that an environment variable holds.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
