//! Opening what arrives.

use super::cipher::Cipher;
use super::replay::{Seen, Window, estimate_index};
use super::{MasterKey, SrtpError};
use crate::header::{RtpHeader, is_rtcp};

/// Most sources of RTP, and most of RTCP, that one opener keeps a replay window for.
pub const MAX_STREAMS: usize = 2048;

/// An opened RTP packet; its bytes are in the output buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedRtp {
    /// Length of header and plaintext payload (with its padding, if any).
    pub len: usize,
    /// Rollover counter and sequence number: `ROC << 16 | SEQ`.
    pub index: u64,
    /// The packet's header.
    pub header: RtpHeader,
}

/// Opens SRTP and SRTCP of one transport. State is made by authenticated packets alone.
pub struct Opener {
    rtp: Cipher,
    rtcp: Cipher,
    rtp_streams: Streams,
    rtcp_streams: Streams,
}

impl Opener {
    /// An opener of the remote side's master key.
    pub fn new(key: &MasterKey) -> Self {
        Self::of(key.rtp_cipher(), key.rtcp_cipher())
    }

    pub(super) fn of(rtp: Cipher, rtcp: Cipher) -> Self {
        Self { rtp, rtcp, rtp_streams: Streams::default(), rtcp_streams: Streams::default() }
    }

    /// Opens an SRTP packet into `out`, which must hold the packet without its tag.
    ///
    /// # Errors
    /// Any [`SrtpError`] of opening; `out` may have been written to.
    #[inline]
    pub fn open_rtp(&mut self, packet: &[u8], out: &mut [u8]) -> Result<OpenedRtp, SrtpError> {
        let (place, opened) = self.decrypt_rtp(packet, out)?;
        self.rtp_streams.mark(place, opened.header.ssrc, opened.index);
        Ok(opened)
    }

    #[inline]
    fn decrypt_rtp(&self, packet: &[u8], out: &mut [u8]) -> Result<(Place, OpenedRtp), SrtpError> {
        let header = RtpHeader::parse(packet)?;
        let place = self.rtp_streams.find(header.ssrc)?;
        let index = match place {
            // Nothing lies before index 0, so what seems to can only lie ahead.
            Ok(at) => estimate_index(self.rtp_streams.window(at).highest(), header.sequence)
                .unwrap_or(u64::from(header.sequence)),
            Err(_) => u64::from(header.sequence),
        };
        self.rtp_streams.check(place, index)?;
        let mut open =
            |index| self.rtp.open_rtp(header.ssrc, index, packet, header.header_len, out);
        let (len, index) = match open(index) {
            // A source may begin right before a rollover, and all packets before it may be lost.
            Err(SrtpError::AuthenticationFailed) if place.is_err() => {
                let index = index | 1 << 16;
                (open(index)?, index)
            }
            opened => (opened?, index),
        };
        Ok((place, OpenedRtp { len, index, header }))
    }

    /// Takes note of an SRTP packet by its header, which travels in the clear, and leaves the
    /// payload closed: for measuring clients that know their sender. Copies are refused and
    /// rollovers counted as if it had been opened, but nothing is authenticated. None for the first
    /// packet of a source: that one has to be opened. `len` of the result counts header and payload
    /// without the tag.
    ///
    /// # Errors
    /// [`SrtpError`] of a malformed, short or repeated packet.
    #[inline]
    pub fn note_rtp(&mut self, packet: &[u8]) -> Result<Option<OpenedRtp>, SrtpError> {
        let header = RtpHeader::parse(packet)?;
        let place = self.rtp_streams.find(header.ssrc)?;
        let Ok(at) = place else { return Ok(None) };
        let index = estimate_index(self.rtp_streams.window(at).highest(), header.sequence)
            .unwrap_or(u64::from(header.sequence));
        self.rtp_streams.check(place, index)?;
        let len = self.len_of(packet, &header)?;
        self.rtp_streams.mark(place, header.ssrc, index);
        Ok(Some(OpenedRtp { len, index, header }))
    }

    /// Looks at the header of an SRTP packet and remembers nothing of it: neither window nor
    /// rollover counter moves. None if the packet is not at most `ahead` after the newest one of
    /// its source that was opened, in the same cycle of sequence numbers: such a packet has to be
    /// opened. With the result comes the index of that newest one. `len` counts header and payload
    /// without the tag. Nothing is authenticated.
    #[inline]
    pub fn look_at_rtp(
        &self,
        packet: &[u8],
        header: RtpHeader,
        ahead: u64,
    ) -> Option<(OpenedRtp, u64)> {
        let at = self.rtp_streams.ssrcs.binary_search(&header.ssrc).ok()?;
        let opened = self.rtp_streams.window(at).highest();
        let index = (opened & !0xFFFF) | u64::from(header.sequence);
        let near = index > opened && index - opened <= ahead;
        let len = self.len_of(packet, &header).ok().filter(|_| near)?;
        Some((OpenedRtp { len, index, header }, opened))
    }

    /// The length of header and payload of a packet, without the tag.
    fn len_of(&self, packet: &[u8], header: &RtpHeader) -> Result<usize, SrtpError> {
        let len = packet.len().checked_sub(self.rtp.tag_len()).ok_or(SrtpError::TooShort)?;
        if len < header.header_len { Err(SrtpError::TooShort) } else { Ok(len) }
    }

    /// Opens an SRTCP packet into `out`; returns the length of the compound packet.
    ///
    /// # Errors
    /// Any [`SrtpError`] of opening; `out` may have been written to.
    pub fn open_rtcp(&mut self, packet: &[u8], out: &mut [u8]) -> Result<usize, SrtpError> {
        let (place, (ssrc, index), len) = self.decrypt_rtcp(packet, out)?;
        self.rtcp_streams.mark(place, ssrc, u64::from(index));
        Ok(len)
    }

    fn decrypt_rtcp(
        &self,
        packet: &[u8],
        out: &mut [u8],
    ) -> Result<(Place, (u32, u32), usize), SrtpError> {
        let (ssrc, index) = self.rtcp.rtcp_index(packet)?;
        // Each source counts its own SRTCP index (RFC 3711 §3.4).
        let place = self.rtcp_streams.find(ssrc)?;
        self.rtcp_streams.check(place, u64::from(index))?;
        let len = self.rtcp.open_rtcp(packet, out)?;
        Ok((place, (ssrc, index), len))
    }

    /// Whether a source of an SRTP or SRTCP packet is known: some packet of it was opened.
    pub fn knows_source(&self, packet: &[u8]) -> bool {
        let rtcp = packet.get(1).is_some_and(|second| is_rtcp(*second));
        let at = if rtcp { 4..8 } else { 8..12 };
        let Some(ssrc) = packet.get(at).and_then(|ssrc| ssrc.try_into().ok()) else { return false };
        let streams = if rtcp { &self.rtcp_streams } else { &self.rtp_streams };
        streams.find(u32::from_be_bytes(ssrc)).is_ok_and(|place| place.is_ok())
    }

    /// Whether an SRTP or SRTCP packet was sealed with these keys, and was not opened before. Nothing of it is remembered: it can
    /// still be opened. `out` is as for [`Opener::open_rtp`].
    pub fn authenticates(&self, packet: &[u8], out: &mut [u8]) -> bool {
        match packet.get(1).is_some_and(|second| is_rtcp(*second)) {
            true => self.decrypt_rtcp(packet, out).is_ok(),
            false => self.decrypt_rtp(packet, out).is_ok(),
        }
    }

    /// Reads the state of the first two sources, for callers whose next packets each meet another
    /// opener: read side by side ahead of them, the misses of the cache overlap.
    #[inline]
    pub fn warm(&self) -> u64 {
        let streams = &self.rtp_streams;
        let first = streams.ssrcs.first().map_or(0, |ssrc| u64::from(*ssrc));
        streams.windows.iter().take(2).fold(first, |sum, window| sum ^ window.highest())
    }

    /// How many sources of RTP have been authenticated.
    pub fn stream_count(&self) -> usize {
        self.rtp_streams.ssrcs.len()
    }
}

/// Replay windows by SSRC: a sorted list and its windows side by side.
#[derive(Default)]
struct Streams {
    ssrcs: Vec<u32>,
    windows: Vec<Window>,
}

/// Where a source is, or where it would be inserted.
type Place = Result<usize, usize>;

impl Streams {
    fn find(&self, ssrc: u32) -> Result<Place, SrtpError> {
        let place = self.ssrcs.binary_search(&ssrc);
        if place.is_err() && self.ssrcs.len() >= MAX_STREAMS {
            return Err(SrtpError::TooManyStreams);
        }
        Ok(place)
    }

    fn window(&self, at: usize) -> &Window {
        &self.windows[at]
    }

    fn check(&self, place: Place, index: u64) -> Result<(), SrtpError> {
        let Ok(at) = place else { return Ok(()) };
        match self.windows[at].check(index) {
            Seen::New => Ok(()),
            Seen::Before => Err(SrtpError::Replayed),
            Seen::TooOld => Err(SrtpError::TooOld),
        }
    }

    /// Only after authentication.
    fn mark(&mut self, place: Place, ssrc: u32, index: u64) {
        match place {
            Ok(at) => self.windows[at].mark(index),
            Err(at) => {
                self.ssrcs.insert(at, ssrc);
                self.windows.insert(at, Window::new(index));
            }
        }
    }
}
