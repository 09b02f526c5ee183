//! The IO shell: HTTP, sockets, threads.
//!
//! [`serve::run`] puts it together. A socket's way: `http` → `socket` → `rooms`; a packet's:
//! `media` (a thread a shard) → [`engine`]; ICE, DTLS and SDP: `control` (a thread a shard);
//! mixing: `mix` (a thread a shard). `relay` and `lane` are what runs between threads, `health` whether they do;
//! `places` bounds connections, `gate` is where HTTP's come in; `proxies` and `proxy_protocol` tell who stands behind a proxy. `certificate` is what TLS shows. `memory` bounds and
//! shares out what strangers have the server hold, `body` reads what requests bring.

mod access;
mod api;
mod assets;
pub mod auth;
mod body;
mod certificate;
mod commands;
pub mod config;
mod control;
mod delays;
pub mod desk;
pub mod faults;
mod gate;
pub mod health;
pub mod http;
mod lane;
pub mod logging;
mod media;
mod memory;
pub mod metrics;
mod mix;
mod names;
mod places;
pub mod private;
mod process;
pub mod proxies;
mod proxy_protocol;
mod relay;
mod reload;
mod rooms;
mod seldom;
pub mod serve;
pub mod socket;
mod tcp;
