//! RTCP that a bot sends: pieces gathered into compounds that fit a datagram.

use super::outgoing::MAX_DATAGRAM;
use rtp::srtp::{Sealer, SrtpError};

/// A compound that has reached this length leaves.
const FULL: usize = 1000;

/// Gathers RTCP packets, seals and hands over each compound.
pub(super) struct Compounds<'a> {
    sealer: &'a mut Sealer,
    sink: &'a mut dyn FnMut(&[u8]),
    pending: Vec<u8>,
}

impl<'a> Compounds<'a> {
    pub(super) fn new(sealer: &'a mut Sealer, sink: &'a mut dyn FnMut(&[u8])) -> Self {
        Self { sealer, sink, pending: Vec::new() }
    }

    /// Appends packets; what came before leaves first where both do not fit one datagram.
    pub(super) fn add(&mut self, packets: &[u8]) -> Result<(), SrtpError> {
        if self.pending.len() + packets.len() > FULL {
            self.flush()?;
        }
        self.pending.extend_from_slice(packets);
        Ok(())
    }

    /// Sends what is gathered.
    pub(super) fn flush(&mut self) -> Result<(), SrtpError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let len = self.pending.len();
        let mut buffer = [0; MAX_DATAGRAM];
        buffer.get_mut(..len).ok_or(SrtpError::BufferTooSmall)?.copy_from_slice(&self.pending);
        self.pending.clear();
        let sealed = self.sealer.seal_rtcp(&mut buffer, len)?;
        (self.sink)(&buffer[..sealed]);
        Ok(())
    }
}
