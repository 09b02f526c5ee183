//! What comes in on a media connection.

use crate::proxy_protocol;
use net::framing::{Decoder, FrameError};
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Arc;

/// Reads of one connection in a row.
const READS: usize = 8;

/// What comes in on a connection.
pub(crate) struct Reader {
    stream: Arc<TcpStream>,
    decoder: Decoder,
}

/// Why a connection is read no more.
#[derive(Debug)]
pub(crate) enum ReadEnd {
    /// The other side closed it, or it broke.
    Closed,
    /// What came is no packet: nothing after it can be told apart.
    BadFrame(FrameError),
    /// It is a proxy's header, of who is no trusted proxy.
    ProxyHeader,
}

/// What came on a connection in one turn.
#[derive(Debug, Default)]
pub(crate) struct Come {
    pub(super) packets: u64,
    /// One of them was shown to come from a participant.
    pub(super) authentic: bool,
    pub(super) end: Option<ReadEnd>,
}

impl Reader {
    /// Reads packets of at most `longest` bytes.
    pub(super) fn new(stream: Arc<TcpStream>, longest: usize) -> Self {
        Self { stream, decoder: Decoder::new(longest) }
    }

    /// What came before it was read for the first time.
    pub(super) fn begin_with(&mut self, early: &[u8]) {
        // It is less than the longest frame, and nothing is there yet.
        if let Some(spare) = self.decoder.spare().get_mut(..early.len()) {
            spare.copy_from_slice(early);
            self.decoder.advance(early.len());
        }
    }

    /// Reads what is there, in a few rounds, and shows each packet; `packet` says whether it was authentic.
    pub(crate) fn read(&mut self, mut packet: impl FnMut(&[u8]) -> bool) -> Come {
        let mut come = Come::default();
        come.end = match self.read_into(&mut come, &mut packet).err() {
            Some(ReadEnd::BadFrame(_)) if proxy_protocol::has_signature(self.decoder.pending()) => {
                Some(ReadEnd::ProxyHeader)
            }
            end => end,
        };
        come
    }

    fn read_into(
        &mut self,
        come: &mut Come,
        packet: &mut impl FnMut(&[u8]) -> bool,
    ) -> Result<(), ReadEnd> {
        self.take_frames(come, packet)?;
        for _ in 0..READS {
            match (&*self.stream).read(self.decoder.spare()) {
                Ok(0) => return Err(ReadEnd::Closed),
                Ok(count) => self.decoder.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(ReadEnd::Closed),
            }
            self.take_frames(come, packet)?;
        }
        Ok(())
    }

    fn take_frames(
        &mut self,
        come: &mut Come,
        packet: &mut impl FnMut(&[u8]) -> bool,
    ) -> Result<(), ReadEnd> {
        while let Some(frame) = self.decoder.next_frame().map_err(ReadEnd::BadFrame)? {
            come.packets += 1;
            come.authentic |= packet(frame);
        }
        Ok(())
    }
}
