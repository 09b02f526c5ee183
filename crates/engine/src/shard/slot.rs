//! A slot: a line that a participant receives on, with its own SSRC, whatever track it carries.

use super::person::TrackIndex;
use super::rewrite::Rewrite;
use crate::limits::{HISTORY_PACKETS, RESEND_INTERVAL};
use crate::sink::Now;
use rtp::negotiated::{Codec, Kind, Line};
use rtp::srtp::{SealStream, Sealer};
use std::time::Instant;

/// Which packet left with a sequence number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub sequence: u16,
    pub track: TrackIndex,
    /// Unwrapped sequence number at the publisher.
    pub index: u64,
    pub timestamp: u32,
    pub picture_id: Option<u16>,
    pub tl0: Option<u8>,
    resent: Option<Instant>,
}

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
    sent: Vec<Option<Sent>>,
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
            sent: Vec::new(),
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
    pub(crate) fn count(&mut self, payload: usize, timestamp: u32, now: Now) {
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(payload as u32);
        self.last_timestamp = Some((timestamp, now.at));
    }

    pub(crate) fn is_video(&self) -> bool {
        self.line.codec.kind() == Kind::Video
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
    pub(crate) fn resends(&self) -> bool {
        self.line.nack && self.rtx_stream.is_some()
    }

    /// Remembers which packet left.
    pub(crate) fn remember(&mut self, sent: Sent) {
        if self.sent.is_empty() {
            self.sent.resize(HISTORY_PACKETS, None);
        }
        self.sent[usize::from(sent.sequence) % HISTORY_PACKETS] = Some(sent);
    }

    /// The packet that left with this sequence number, unless it was resent just now.
    pub(crate) fn asked_again(&mut self, sequence: u16, now: Instant) -> Option<Sent> {
        let place = self.sent.get_mut(usize::from(sequence) % HISTORY_PACKETS)?;
        let sent = place.as_mut().filter(|sent| sent.sequence == sequence)?;
        if sent.resent.is_some_and(|at| now.saturating_duration_since(at) < RESEND_INTERVAL) {
            return None;
        }
        sent.resent = Some(now);
        Some(*sent)
    }

    /// The next sequence number of the RTX stream.
    pub(crate) fn next_rtx_sequence(&mut self) -> u16 {
        let sequence = self.rtx_sequence;
        self.rtx_sequence = sequence.wrapping_add(1);
        sequence
    }

    pub(crate) fn codec(&self) -> Codec {
        self.line.codec
    }
}

impl Sent {
    pub(crate) fn new(sequence: u16, track: TrackIndex, index: u64, timestamp: u32) -> Self {
        Self { sequence, track, index, timestamp, picture_id: None, tl0: None, resent: None }
    }
}
