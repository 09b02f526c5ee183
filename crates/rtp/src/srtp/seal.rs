//! Sealing what leaves. No (SSRC, index) is ever sealed twice under one key.

use super::cipher::Cipher;
use super::open::MAX_STREAMS;
use super::replay::{Seen, Window, estimate_index};
use super::{MasterKey, SrtpError};
use crate::header::FIXED_LEN;

/// The last index of SRTP: 32 bits of rollover counter, 16 of sequence number.
const LAST_RTP_INDEX: u64 = (1 << 48) - 1;
/// The last index of SRTCP (RFC 3711 §3.4).
const LAST_RTCP_INDEX: u32 = (1 << 31) - 1;

/// Seals SRTP and SRTCP of one transport.
pub struct Sealer {
    rtp: Cipher,
    rtcp: Cipher,
    next_rtcp_index: u32,
    /// SSRCs given out, sorted: a second stream of one SSRC would use its indices again.
    ssrcs: Vec<u32>,
}

/// The index space of one outgoing SSRC. It comes from [`Sealer::stream`] and can be neither
/// copied nor made anew, and it refuses an index that it has sealed.
#[derive(Debug)]
pub struct SealStream {
    ssrc: u32,
    window: Option<Window>,
}

impl SealStream {
    /// The SSRC that this stream seals.
    #[inline]
    pub fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// The highest index sealed: `ROC << 16 | SEQ`.
    pub fn highest_index(&self) -> Option<u64> {
        self.window.as_ref().map(Window::highest)
    }

    /// Takes the index of `sequence`, once.
    #[inline]
    fn take(&mut self, sequence: u16) -> Result<u64, SrtpError> {
        let Some(window) = &mut self.window else {
            self.window = Some(Window::new(u64::from(sequence)));
            return Ok(u64::from(sequence));
        };
        let index = estimate_index(window.highest(), sequence).ok_or(SrtpError::IndexReused)?;
        if index > LAST_RTP_INDEX {
            return Err(SrtpError::IndexExhausted);
        }
        if window.check(index) != Seen::New {
            return Err(SrtpError::IndexReused);
        }
        window.mark(index);
        Ok(index)
    }
}

impl Sealer {
    /// A sealer of the local side's master key.
    pub fn new(key: &MasterKey) -> Self {
        Self::of(key.rtp_cipher(), key.rtcp_cipher())
    }

    pub(super) fn of(rtp: Cipher, rtcp: Cipher) -> Self {
        Self { rtp, rtcp, next_rtcp_index: 0, ssrcs: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn set_next_rtcp_index(&mut self, index: u32) {
        self.next_rtcp_index = index;
    }

    /// The index space of an outgoing SSRC, given out once in this sealer's life. Start its
    /// sequence below 2^15, so that losing the first packets cannot hide a rollover.
    ///
    /// # Errors
    /// [`SrtpError::StreamExists`], [`SrtpError::TooManyStreams`].
    pub fn stream(&mut self, ssrc: u32) -> Result<SealStream, SrtpError> {
        let Err(at) = self.ssrcs.binary_search(&ssrc) else {
            return Err(SrtpError::StreamExists);
        };
        if self.ssrcs.len() >= MAX_STREAMS {
            return Err(SrtpError::TooManyStreams);
        }
        self.ssrcs.insert(at, ssrc);
        Ok(SealStream { ssrc, window: None })
    }

    /// Seals the RTP packet `buf[..len]` in place, whose header is `header_len` long, and appends
    /// the tag; returns the new length. The index follows from the header's sequence number.
    ///
    /// # Errors
    /// [`SrtpError::IndexReused`], [`SrtpError::WrongSsrc`], [`SrtpError::BufferTooSmall`] and
    /// [`SrtpError::TooShort`]; the packet is unchanged then and no index is taken.
    #[inline]
    pub fn seal_rtp(
        &self,
        stream: &mut SealStream,
        buf: &mut [u8],
        header_len: usize,
        len: usize,
    ) -> Result<usize, SrtpError> {
        if header_len < FIXED_LEN || len < header_len {
            return Err(SrtpError::TooShort);
        }
        if buf.len() < len + self.rtp.tag_len() {
            return Err(SrtpError::BufferTooSmall);
        }
        if buf[8..12] != stream.ssrc.to_be_bytes() {
            return Err(SrtpError::WrongSsrc);
        }
        let index = stream.take(u16::from_be_bytes([buf[2], buf[3]]))?;
        self.rtp.seal_rtp(stream.ssrc, index, buf, header_len, len)
    }

    /// Seals the compound RTCP packet `buf[..len]` in place, appends tag and index, and returns
    /// the new length. Indices count up over all SSRCs of this sealer.
    ///
    /// # Errors
    /// [`SrtpError::TooShort`], [`SrtpError::BufferTooSmall`], [`SrtpError::IndexExhausted`].
    pub fn seal_rtcp(&mut self, buf: &mut [u8], len: usize) -> Result<usize, SrtpError> {
        let index = self.next_rtcp_index;
        if index > LAST_RTCP_INDEX {
            return Err(SrtpError::IndexExhausted);
        }
        let sealed = self.rtcp.seal_rtcp(index, buf, len)?;
        self.next_rtcp_index += 1;
        Ok(sealed)
    }
}
