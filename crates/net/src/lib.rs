//! Batched UDP for Linux, the waiting that goes with it, and packets on TCP (RFC 4571).
//!
//! A media thread or a bot thread owns one [`UdpBatchSocket`] (or many), one [`RecvBatch`] and one
//! [`SendBatch`], and sleeps in a [`Poller`]:
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! use net::{Poller, Events, RecvBatch, SendBatch, SocketOptions, UdpBatchSocket};
//! let socket = UdpBatchSocket::bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default())?;
//! let (mut inbox, mut outbox) = (RecvBatch::new(32), SendBatch::new(1024));
//! let (poller, mut events) = (Poller::new()?, Events::with_capacity(16));
//! poller.add(&socket, 7)?;
//! loop {
//!     poller.wait(&mut events, None)?;
//!     while socket.recv(&mut inbox)? > 0 {
//!         for datagram in inbox.datagrams() {
//!             outbox.push(datagram.src, datagram.data); // false: full, flush first
//!         }
//!         outbox.flush(&socket);
//!     }
//! }
//! # }
//! ```
//!
//! All `unsafe` code of this crate is in the `sys` module, behind safe functions.
#![deny(unsafe_code)]

pub mod framing;
pub mod memory;
mod poll;
mod recv;
mod send;
mod socket;
pub mod stream;
mod sys;
pub mod thread;

pub use poll::{Event, Events, PollFd, Poller, Waker, wait};
pub use recv::{Datagram, RecvBatch};
pub use send::{FlushReport, MAX_DATAGRAM, SendBatch, Slot};
pub use socket::{SocketOptions, UdpBatchSocket};
