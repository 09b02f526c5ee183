//! The native bot: a participant without a browser.
//!
//! [`media`] is the core, sans-IO and in virtual time alike: what a bot sends ([`fixtures`],
//! [`tones`], [`talk`], `source`, `outgoing`) and what it makes of what it receives (`slot`, `frames`, and
//! [`hearing`] for a room's mix). [`driver`] is
//! its runtime: the threads that own the bots' sockets, ICE and DTLS.

mod blank;
mod clip;
pub mod driver;
pub mod fixtures;
mod frames;
mod gaps;
pub mod hearing;
pub mod marks;
pub mod media;
mod outgoing;
mod packets;
mod padding;
mod pictures;
mod row;
mod rtcp;
mod slot;
mod source;
pub mod spec;
pub mod talk;
#[cfg(test)]
mod tests;
pub mod tones;
pub mod words;
