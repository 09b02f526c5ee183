//! RTP and RTCP: views, rewriting, SRTP and the state machines around a stream.
//!
//! Nothing here reads a clock or owns a socket: time is an argument. The paths that run once a
//! packet ([`header`], [`srtp`]) do not allocate.
#![forbid(unsafe_code)]

pub mod address;
pub mod av1;
mod bits;
pub mod challenge;
pub mod dependency;
pub mod error;
pub mod extended;
pub mod h264;
pub mod header;
pub mod losses;
pub mod nack;
pub mod negotiated;
mod ntp;
mod picture_ids;
pub mod red;
pub mod report;
pub mod rtcp;
pub mod rtx;
pub mod srtp;
pub mod stun;
pub mod twcc;
pub mod vp8;
pub mod vp9;

#[cfg(test)]
pub(crate) mod testing;

pub use address::{Protocol, TransportAddress};
pub use error::{ParseError, WriteError};
pub use header::{HeaderWriter, RtpHeader};
