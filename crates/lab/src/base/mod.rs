//! What all floors of the lab share, and what imports nothing of it: addresses, HTTP, seeded numbers, figures.

#[macro_use]
mod say;

mod address;
mod asked;
mod belief;
pub(crate) mod busy;
pub mod figures;
pub(crate) mod files;
pub(crate) mod floor;
mod foreign;
pub(crate) mod guard;
pub(crate) mod http;
pub(crate) mod markdown;
pub(crate) mod prompt;
pub(crate) mod quota;
pub(crate) mod random;
pub(crate) mod runtime;
pub mod url;

pub(crate) use address::local_ip;
pub(crate) use asked::asked_to_end;
pub(crate) use belief::Belief;
pub use figures::{mean, percentile, percentile_of, short, sorted, spread};
pub(crate) use floor::{FloorReading, FloorWatch};
pub(crate) use foreign::words;
pub(crate) use prompt::be_prompt;
pub(crate) use quota::{AS_A_SLOW_CPU, AS_CONTAINERS, Quota, SteadyQuota};
pub(crate) use random::SplitMix;
pub(crate) use runtime::runtime;
pub use url::Url;
