//! Send-side bandwidth estimation: how many bits a second the path to one receiver carries.
//!
//! 1. Each packet gets a transport-wide sequence number and is noted in a [`log`].
//! 2. The receiver's feedback (transport-wide congestion control) says which of them came, and when. [`arrivals`] puts
//!    these times on our own clock.
//! 3. [`Downlink`] hands both to Google congestion control as libwebrtc runs it (the `goog_cc` port of its source): a
//!    trend of the delay, a model of the losses, and probes. What comes out is a rate to send at.
//!    A [`ceiling`] bounds it: by what a probe really found, and where a queue stands.
//! 4. [`Prober`] says when a probe's packets are due: short bursts at a higher rate, which tell whether more fits.
//!
//! Nothing here reads a clock or owns a socket: time is an argument. Noting a packet does not allocate. Rates are in bits
//! a second (`_bps`) and count whole datagrams without IP and UDP headers.
#![forbid(unsafe_code)]

mod answer;
mod arrivals;
mod burst;
mod ceiling;
mod controller;
mod delays;
mod downlink;
mod log;
mod prober;
mod probes;

pub use controller::Limits;
pub use downlink::{Downlink, TooMuchTold};
pub use log::{IP_UDP_BYTES, Kind};
pub use prober::Prober;
