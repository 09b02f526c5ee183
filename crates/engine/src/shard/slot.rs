//! A slot: a line that a participant receives on, with its own SSRC, whatever track it carries.

use super::gaps::Filled;
use super::index::TrackIndex;
use super::packet::Opened;
use super::rewrite::Rewrite;
use super::scalable::UpTo;
use crate::clock::Now;
use crate::egress::{Level, SentAgain};
use crate::limits::{FIRST_REPEATED, KEYFRAME_WISH_INTERVAL, ON_THE_WAY_BYTES};
use crate::sink::Priority;
use rtp::negotiated::{Codec, Kind, Line};
use rtp::red::Recent;
use rtp::srtp::{SealStream, Sealer};
use std::time::Instant;

/// A slot of a participant.
pub(super) struct Slot {
    pub line: Line,
    /// The index space of its media SSRC.
    pub stream: Option<SealStream>,
    /// The index space of its RTX SSRC.
    pub rtx_stream: Option<SealStream>,
    rtx_sequence: u16,
    /// The track that flows.
    pub current: Option<TrackIndex>,
    /// The track that is to flow from its next keyframe on; from its next packet on if it is sound.
    pub pending: Option<TrackIndex>,
    /// How much of its picture it may carry.
    pub level: Level,
    /// How many pixels it has on the screen; None if that was not told.
    pub shown: Option<u32>,
    /// It comes before all that are not.
    pub pinned: bool,
    pub rewrite: Rewrite,
    /// Its last packets of sound, while each packet repeats some of those before it (RED).
    pub recent: Option<Box<Recent>>,
    /// The newest number that the receiver's reports told of, and the packets and bytes that had left then.
    reported: u32,
    left_then: (u32, u32),
    /// Bytes of a packet on the way, in the mean of those that left between the last two reports.
    mean_bytes: u32,
    /// What was sent again lately.
    pub sent_again: SentAgain,
    /// Where nothing is missing in it.
    pub filled: Filled,
    /// The first packet that leaves here is still to go once more.
    repeats_first: bool,
    /// When the receiver's last keyframe request was heard.
    wished: Option<Instant>,
    pub packets: u32,
    pub octets: u32,
    /// Timestamp of the newest packet as it left, and when.
    pub last_timestamp: Option<(u32, Instant)>,
    /// The newest tick of the mix that left here, in a slot that carries the mix.
    pub mix_tick: Option<u64>,
}

impl Slot {
    pub(super) fn new(line: Line) -> Self {
        // Below 2^15, so that losing the first packets cannot hide a rollover (RFC 3711 §3.3.1).
        let first = (line.local.map_or(0, |ids| ids.ssrc) & 0x7FFF) as u16;
        Self {
            rewrite: Rewrite::new(line.codec.clock_rate(), first),
            repeats_first: line.codec.kind() == Kind::Video,
            recent: line.red_first.then(|| Box::new(Recent::new(1))),
            reported: u32::from(first.wrapping_sub(1)),
            line,
            stream: None,
            rtx_stream: None,
            rtx_sequence: first,
            current: None,
            pending: None,
            level: Level::SMALLEST,
            shown: None,
            pinned: false,
            left_then: (0, 0),
            mean_bytes: 0,
            sent_again: SentAgain::default(),
            filled: None,
            wished: None,
            packets: 0,
            octets: 0,
            last_timestamp: None,
            mix_tick: None,
        }
    }

    /// SSRC that the slot sends with.
    pub(super) fn ssrc(&self) -> u32 {
        self.line.local.map_or(0, |ids| ids.ssrc)
    }

    /// Reads what the next packet needs: see [`super::person::Person::ahead`].
    #[inline]
    pub(super) fn ahead(&self) -> u64 {
        let sealed = self.stream.as_ref().and_then(SealStream::highest_index).unwrap_or(0);
        let known = u32::from(self.line.payload_type) ^ self.packets;
        self.rewrite.ahead() ^ sealed ^ u64::from(known) ^ self.current.unwrap_or(0) as u64
    }

    /// A packet left.
    #[inline]
    pub(super) fn count(&mut self, payload: usize, timestamp: u32, now: Now) {
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(payload as u32);
        self.last_timestamp = Some((timestamp, now.at));
    }

    /// Whether it is time for the first packet of all to go once more: the number that it left with. If it was lost, its
    /// receiver's numbers begin with the next one. They would not ask for it, and its keyframe would never be whole.
    #[inline]
    pub(super) fn repeats_first(&mut self) -> Option<u16> {
        if !self.repeats_first || self.packets < FIRST_REPEATED {
            return None;
        }
        self.repeats_first = false;
        Some(self.rewrite.first_sequence())
    }

    #[inline]
    pub(super) fn is_video(&self) -> bool {
        self.line.codec.kind() == Kind::Video
    }

    /// Which packets go first when the way to the participant is behind.
    #[inline]
    pub(super) fn priority(&self) -> Priority {
        if self.is_video() { Priority::Low } else { Priority::High }
    }

    /// Stops the picture until a keyframe comes: of the track that was to replace it, or else of the track that flowed.
    /// Says whether the slot waits for the track that flowed.
    pub(super) fn hold(&mut self) -> bool {
        let Some(held) = self.current.take() else { return false };
        *self.pending.get_or_insert(held) == held
    }

    /// Takes its index spaces from the participant's sealer, once.
    pub(super) fn connect(&mut self, sealer: &mut Sealer) {
        if self.stream.is_none() {
            self.stream = sealer.stream(self.ssrc()).ok();
        }
        if self.rtx_stream.is_none() && self.line.rtx_payload_type.is_some() {
            let rtx = self.line.local.and_then(|ids| ids.rtx);
            self.rtx_stream = rtx.and_then(|ssrc| sealer.stream(ssrc).ok());
        }
    }

    /// Whether the receiver gives transport-wide feedback on its pictures.
    pub(super) fn gives_feedback(&self) -> bool {
        let line = &self.line;
        self.is_video() && line.transport_cc && line.extensions.transport_sequence.is_some()
    }

    /// Whether its packets may be asked for again.
    #[inline]
    pub(super) fn resends(&self) -> bool {
        self.line.nack && self.rtx_stream.is_some()
    }

    /// Nobody sees it at the moment.
    #[inline]
    pub(super) fn is_hidden(&self) -> bool {
        self.shown == Some(0)
    }

    /// The path does not carry its picture at the moment.
    #[inline]
    pub(super) fn rests(&self) -> bool {
        self.level == Level::REST
    }

    /// So many times as long as others it waits until it gets more again: from 0.75 to 1.25.
    pub(super) fn spread(&self) -> f32 {
        0.75 + (self.ssrc().wrapping_mul(0x9E37_79B9) >> 16) as f32 / 131_072.0
    }

    /// It is to get these layers of `stream`, which flows or is to flow, as far as its receiver can decode them. Says whether a
    /// stream that flows has to change.
    pub(super) fn want(&mut self, stream: TrackIndex, up_to: UpTo) -> bool {
        let up_to = self.decodes(up_to);
        if self.current == Some(stream) {
            return self.rewrite.selection.want(up_to);
        }
        self.rewrite.selection.want_next(up_to);
        false
    }

    /// What its receiver can decode of these layers: AV1 with spatial layers needs dependency descriptors, the smallest picture
    /// alone does not.
    pub(super) fn decodes(&self, up_to: UpTo) -> UpTo {
        match (self.line.codec, self.line.extensions.dependency) {
            (Codec::Av1, None) => UpTo::new(0, up_to.temporal()),
            _ => up_to,
        }
    }

    /// Whether it gets a packet of what flows. If not, the packet is left out: the next one takes its number. `begins`: it is
    /// the first of a keyframe.
    #[inline]
    pub(super) fn takes(&mut self, packet: &Opened, begins: bool) -> bool {
        let (Some(frame), counters) = (&packet.frame, packet.counters) else { return true };
        let rewrite = &mut self.rewrite;
        if !rewrite.is_newest(counters.index)
            || rewrite.selection.takes(frame, begins, counters.timestamp)
        {
            return true;
        }
        match self.line.codec {
            Codec::Vp8 => rewrite.drop_frame(counters),
            _ => rewrite.skip(counters.index),
        }
        false
    }

    /// Whether a keyframe request of the receiver counts. One that comes too soon after the last does not.
    pub(super) fn hears_wish(&mut self, now: Instant) -> bool {
        let lately = |at: Instant| now.saturating_duration_since(at) < KEYFRAME_WISH_INTERVAL;
        let hears = !self.wished.is_some_and(lately);
        if hears {
            self.wished = Some(now);
        }
        hears
    }

    /// Each packet of sound repeats so many of those before it from now on, if the receiver agreed on RED.
    pub(super) fn repeat(&mut self, copies: usize) {
        let copies = if self.line.red_first { copies.max(1) } else { copies };
        let agreed = self.line.red_payload_type.is_some();
        Recent::repeat(&mut self.recent, if agreed { copies } else { 0 });
    }

    /// A report of the receiver reaches to this number. Returns how many packets it tells of, and about how many bytes each of
    /// them has on the way.
    pub(super) fn reported(&mut self, highest: u32) -> (u32, u32) {
        let before = std::mem::replace(&mut self.reported, highest);
        let (packets, octets) = std::mem::replace(&mut self.left_then, (self.packets, self.octets));
        let left = self.packets.wrapping_sub(packets);
        if let Some(mean) = self.octets.wrapping_sub(octets).checked_div(left) {
            self.mean_bytes = mean + ON_THE_WAY_BYTES as u32;
        }
        (highest.saturating_sub(before), self.mean_bytes)
    }

    /// The next sequence number of the RTX stream.
    pub(super) fn next_rtx_sequence(&mut self) -> u16 {
        let sequence = self.rtx_sequence;
        self.rtx_sequence = sequence.wrapping_add(1);
        sequence
    }

    #[inline]
    pub(super) fn codec(&self) -> Codec {
        self.line.codec
    }
}
