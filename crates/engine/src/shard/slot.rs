//! A slot: a line that a participant receives on, with its own SSRC, whatever track it carries.

use super::again::SentAgain;
use super::index::TrackIndex;
use super::packet::Opened;
use super::rewrite::Rewrite;
use super::scalable::UpTo;
use crate::clock::Now;
use crate::limits::{
    KEYFRAME_WISH_INTERVAL, LAYER_FAILED_TIMES, LAYER_LEAST, LAYER_MOST, LAYER_MOST_LARGEST,
    LAYER_SETTLED, REST_LEAST, REST_MOST, SETTLED,
};
use crate::sink::Priority;
use rtp::negotiated::{Codec, Kind, Line, MOST_LAYERS};
use rtp::red::Recent;
use rtp::srtp::{SealStream, Sealer};
use std::time::{Duration, Instant};

/// How much of a picture a slot gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Level(u8);

impl Level {
    /// Nothing: the path does not carry it.
    pub const REST: Self = Self(0);
    /// The smallest layer, without its highest frame rate.
    pub const FEWER_FRAMES: Self = Self(1);
    /// The smallest layer, whole.
    pub const SMALLEST: Self = Self::layer(0);

    /// The layer with this number, 0 being the smallest, whole.
    pub const fn layer(layer: u8) -> Self {
        Self(layer + 2)
    }

    /// The highest layer that it may have, by number.
    pub fn wish(self) -> u8 {
        self.0.saturating_sub(2)
    }

    /// The level below; None if there is none.
    pub fn below(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// The level above.
    pub fn above(self) -> Self {
        Self(self.0 + 1)
    }
}

/// How long a slot waits until it gets more again, after the path did not carry what it had: longer each time that it
/// got more and had to fall again soon.
#[derive(Debug, Clone, Copy, Default)]
struct Patience {
    /// How long it waited last, and until when.
    last: Option<(Duration, Instant)>,
    /// The level that did not fit, and when it was given up: a lower one need not wait as long.
    failed: Option<(Level, Instant)>,
    /// When it got more.
    rose: Option<Instant>,
}

impl Patience {
    /// It fell from a level to the next, or it `rests`. `spread`: who shares a path waits for so many times as long as others, so
    /// that not all try again at once.
    fn fell(&mut self, from: Level, rests: bool, spread: f32, now: Instant) {
        let (least, most, times, settled) = match rests {
            true => (REST_LEAST, REST_MOST, 2, SETTLED),
            false => {
                let largest = usize::from(from.wish()) + 1 == MOST_LAYERS;
                let most = if largest { LAYER_MOST_LARGEST } else { LAYER_MOST };
                (LAYER_LEAST, most, LAYER_FAILED_TIMES, LAYER_SETTLED)
            }
        };
        // One fall goes over several steps.
        let falling = self.last.is_some_and(|(_, until)| now < until);
        let soon = |at: Instant| now.saturating_duration_since(at) < settled;
        let failed = self.rose.take().is_some_and(soon);
        let wait = match self.last {
            Some((last, _)) if failed => times * last,
            Some((last, _)) if falling => last,
            _ => least.mul_f32(spread),
        };
        let wait = wait.min(most);
        let known = self.failed.filter(|_| falling);
        self.failed = Some(known.map_or((from, now), |(highest, _)| (highest.max(from), now)));
        self.last = Some((wait, now + wait));
    }

    /// Whether it may get to this level.
    fn is_over(&self, to: Level, now: Instant) -> bool {
        // The estimate must have seen what it got last.
        let lately = |at: Instant| now.saturating_duration_since(at) < LAYER_LEAST;
        let lower = self.failed.is_some_and(|(failed, at)| to < failed && !lately(at));
        let over = lower || self.last.is_none_or(|(_, until)| now >= until);
        over && !self.rose.is_some_and(lately)
    }
}

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
    patience: Patience,
    pub rewrite: Rewrite,
    /// Its last packets of sound, while each packet repeats some of those before it (RED).
    pub recent: Option<Box<Recent>>,
    /// The newest number that the receiver's reports told of.
    reported: u32,
    /// What was sent again lately.
    pub sent_again: SentAgain,
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
            patience: Patience::default(),
            sent_again: SentAgain::default(),
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

    /// A packet left.
    #[inline]
    pub(super) fn count(&mut self, payload: usize, timestamp: u32, now: Now) {
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(payload as u32);
        self.last_timestamp = Some((timestamp, now.at));
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

    /// The path does not carry what it has: it gets less.
    pub(super) fn fall(&mut self, to: Level, now: Instant) {
        let from = std::mem::replace(&mut self.level, to);
        // From 0.75 to 1.25.
        let spread = 0.75 + (self.ssrc().wrapping_mul(0x9E37_79B9) >> 16) as f32 / 131_072.0;
        self.patience.fell(from, self.rests(), spread, now);
    }

    /// Whether it may get to this level.
    pub(super) fn may_rise(&self, to: Level, now: Instant) -> bool {
        self.patience.is_over(to, now)
    }

    /// It gets more. If it rested, its picture flows again.
    pub(super) fn rise(&mut self, to: Level, now: Instant) {
        self.level = to;
        self.patience.rose = Some(now);
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

    /// A report of the receiver reaches to this number. Returns how many packets it tells of.
    pub(super) fn reported(&mut self, highest: u32) -> u32 {
        let before = std::mem::replace(&mut self.reported, highest);
        highest.saturating_sub(before)
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
