//! One ICE/DTLS transport and its SDP, sans-IO.
//!
//! [`IceDtls`] is str0m with the SRTP keys swallowed on their way: str0m does ICE, DTLS and SDP and
//! never owns an SRTP context, so media is this project's own from the key on. [`Fixed`] makes a
//! session from a seed, without any handshake, for virtual time. Nothing outside this crate names
//! a type of str0m.

mod error;
mod fixed;
mod handshake;
mod ice_dtls;
mod lacks;
mod life;
mod nominated;
mod offer;
mod sdp;
mod shared;
mod tap;

pub use error::{HandshakeFault, TransportError};
pub use fixed::{Fixed, FixedPeer};
pub use ice_dtls::{Event, IceDtls, Offer, OfferLine, Output};
pub use lacks::Lacks;
pub use offer::rejected;
pub use sdp::{MAX_SDP_BYTES, MAX_SDP_LINES, as_preferred, negotiated};
pub use shared::{Shared, VideoFormat};
pub use tap::KeysTaken;
