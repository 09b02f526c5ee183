//! The IO shell: HTTP, sockets, threads.
//!
//! [`serve::run`] puts it together. A socket's way: `http` → `socket` → `rooms`; a packet's:
//! `media` (a thread a shard) → [`engine`]; ICE, DTLS and SDP: `control` (a thread a shard).

mod assets;
pub mod config;
mod control;
pub mod http;
pub mod logging;
mod media;
pub mod metrics;
mod rooms;
pub mod serve;
pub mod socket;
