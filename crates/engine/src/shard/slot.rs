//! A slot: a line that a participant receives on, with its own SSRC, whatever track it carries.

use super::person::TrackIndex;
use super::rewrite::{Origin, Rewrite};
use crate::limits::RESEND_INTERVAL;
use crate::sink::{Now, Priority};
use rtp::negotiated::{Codec, Kind, Line};
use rtp::srtp::{SealStream, Sealer};
use std::collections::VecDeque;
use std::time::Instant;

/// Packets sent again lately: so many are remembered, so that none is soon sent once more.
const RESENT: usize = 64;

/// A slot of a participant.
pub(crate) struct Slot {
    pub line: Line,
    /// The index space of its media SSRC.
    pub stream: Option<SealStream>,
    /// The index space of its RTX SSRC.
    pub rtx_stream: Option<SealStream>,
    rtx_sequence: u16,
    /// The track that flows.
    pub current: Option<TrackIndex>,
    /// The track that shall flow from its next keyframe on.
    pub pending: Option<TrackIndex>,
    pub rewrite: Rewrite,
    /// Sequence numbers sent again, and when.
    resent: VecDeque<(u16, Instant)>,
    pub packets: u32,
    pub octets: u32,
    /// Newest packet of what flows, as it left.
    pub last_timestamp: Option<(u32, Instant)>,
    /// The newest tick of the mix that left here, in a slot that carries the mix.
    pub mix_tick: Option<u64>,
}

impl Slot {
    pub(crate) fn new(line: Line) -> Self {
        // Below 2^15, so that losing the first packets cannot hide a rollover (RFC 3711 §3.3.1).
        let first = (line.local.map_or(0, |ids| ids.ssrc) & 0x7FFF) as u16;
        Self {
            rewrite: Rewrite::new(line.codec.clock_rate(), first),
            line,
            stream: None,
            rtx_stream: None,
            rtx_sequence: first,
            current: None,
            pending: None,
            resent: VecDeque::new(),
            packets: 0,
            octets: 0,
            last_timestamp: None,
            mix_tick: None,
        }
    }

    /// SSRC that the slot sends with.
    pub(crate) fn ssrc(&self) -> u32 {
        self.line.local.map_or(0, |ids| ids.ssrc)
    }

    /// A packet left.
    #[inline]
    pub(crate) fn count(&mut self, payload: usize, timestamp: u32, now: Now) {
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(payload as u32);
        self.last_timestamp = Some((timestamp, now.at));
    }

    #[inline]
    pub(crate) fn is_video(&self) -> bool {
        self.line.codec.kind() == Kind::Video
    }

    /// What of it goes first where the way to the participant is behind.
    #[inline]
    pub(crate) fn priority(&self) -> Priority {
        if self.is_video() { Priority::Low } else { Priority::High }
    }

    /// Nothing of what flows does any more, until a keyframe of it, or of what shall replace it. Says whether
    /// what flowed is still waited for.
    pub(crate) fn hold(&mut self) -> bool {
        let Some(held) = self.current.take() else { return false };
        *self.pending.get_or_insert(held) == held
    }

    /// Takes its index spaces from the participant's sealer, once.
    pub(crate) fn connect(&mut self, sealer: &mut Sealer) {
        if self.stream.is_none() {
            self.stream = sealer.stream(self.ssrc()).ok();
        }
        if self.rtx_stream.is_none() && self.line.rtx_payload_type.is_some() {
            let rtx = self.line.local.and_then(|ids| ids.rtx);
            self.rtx_stream = rtx.and_then(|ssrc| sealer.stream(ssrc).ok());
        }
    }

    /// Whether its packets may be asked for again.
    #[inline]
    pub(crate) fn resends(&self) -> bool {
        self.line.nack && self.rtx_stream.is_some()
    }

    /// The packet that left with this sequence number, unless it was resent just now.
    pub(crate) fn asked_again(&mut self, sequence: u16, now: Instant) -> Option<Origin> {
        let lately = |at: Instant| now.saturating_duration_since(at) < RESEND_INTERVAL;
        while self.resent.front().is_some_and(|(_, at)| !lately(*at)) {
            self.resent.pop_front();
        }
        if self.resent.iter().any(|(known, _)| *known == sequence) {
            return None;
        }
        let origin = self.rewrite.origin(sequence)?;
        if self.resent.len() == RESENT {
            self.resent.pop_front();
        }
        self.resent.push_back((sequence, now));
        Some(origin)
    }

    /// The next sequence number of the RTX stream.
    pub(crate) fn next_rtx_sequence(&mut self) -> u16 {
        let sequence = self.rtx_sequence;
        self.rtx_sequence = sequence.wrapping_add(1);
        sequence
    }

    #[inline]
    pub(crate) fn codec(&self) -> Codec {
        self.line.codec
    }
}
