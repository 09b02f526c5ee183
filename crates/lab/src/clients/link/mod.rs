//! The link: a network path that the lab makes itself, with delay, jitter, loss and a limited rate.
//!
//! One seeded model ([`model`]) has two faces: the virtual network of the tests, and a relay on real
//! sockets ([`relay`]), which stands between people and any server because the candidates in the SDP
//! are rewritten ([`sdp`]). It counts what it really did; truth tests compare with that count.

pub mod model;
pub mod networks;
mod own;
pub mod relay;
pub mod sdp;

pub use model::{Counts, Fate, LinkSpec, Loss, Path, Queue};
pub use networks::{Network, Networks};
pub use relay::{Leg, Relay};
pub use sdp::told;
