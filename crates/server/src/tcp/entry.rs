//! What a trusted proxy says of a media connection before the client's first byte.

use crate::proxy_protocol::{self, BadHeader, Beginning};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// Read at a time: what comes after the header fits into the decoder.
const CHUNK: usize = 1024;

/// A connection of a trusted proxy that has not said yet for whom it is.
pub(super) struct Entry {
    stream: Arc<TcpStream>,
    data: Vec<u8>,
}

/// How far that has come.
pub(super) enum Entered {
    /// The rest has not come yet.
    Waits,
    /// What the proxy tells of the client, if it does, and what came after that.
    Known(Option<SocketAddr>, Vec<u8>),
    /// The other side closed it, or it broke.
    Closed,
    Bad(BadHeader),
}

impl Entry {
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream, data: Vec::new() }
    }

    /// Reads on.
    pub(super) fn read(&mut self) -> Entered {
        loop {
            let mut chunk = [0; CHUNK];
            match (&*self.stream).read(&mut chunk) {
                Ok(0) => return Entered::Closed,
                Ok(count) => self.data.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Entered::Waits,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Entered::Closed,
            }
            match proxy_protocol::read(&self.data) {
                Ok(Beginning::More) => {}
                Ok(Beginning::Other) => {
                    return Entered::Known(None, std::mem::take(&mut self.data));
                }
                Ok(Beginning::Header { bytes, client }) => {
                    return Entered::Known(client, self.data.split_off(bytes));
                }
                Err(why) => return Entered::Bad(why),
            }
        }
    }
}
