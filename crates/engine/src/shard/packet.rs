//! An opened packet: what was read of it once, for all who receive it.

use super::rewrite::Counters;
use super::scalable::Frame;
use rtp::RtpHeader;
use rtp::header::{self, AudioLevel};
use rtp::negotiated::{Extensions, Line};
use std::ops::Range;

/// An opened packet of a track, on its way to the subscribers.
pub(super) struct Opened {
    pub header: RtpHeader,
    pub payload: Range<usize>,
    /// If the payload is RED (RFC 2198): its primary block. Empty if it is opaque or cannot be read.
    pub primary: Option<Range<usize>>,
    /// The payload is encrypted end to end: nothing in it is read or added.
    pub opaque: bool,
    pub counters: Counters,
    /// The header extensions that go on.
    pub passed: Passed,
    /// The layers of its frame, if its stream tells of layers.
    pub frame: Option<Frame>,
    /// From where to where in the packet its dependency descriptor is, if it has one.
    pub dependency: Option<(u16, u16)>,
    /// The packet begins a keyframe; sound is always a beginning.
    pub begins: bool,
    /// It came as a retransmission: too late to switch to.
    pub repaired: bool,
    pub audio: bool,
    /// How loud it is, in −dBov: as its publisher claims, or as it was measured if that says nothing.
    pub level_dbov: u8,
}

impl Opened {
    /// The Opus packet in it, if it is sound that can be read.
    pub(super) fn opus<'a>(&self, plain: &'a [u8]) -> &'a [u8] {
        &plain[self.primary.as_ref().unwrap_or(&self.payload).clone()]
    }

    /// The payload for a slot, and its type. Of RED it is the primary block: what a participant loses differs from what the
    /// server lost. RED that cannot be read goes on as it is to participants who agreed on it; None for all others.
    #[inline]
    pub(super) fn payload_for<'a>(&self, line: &Line, plain: &'a [u8]) -> Option<(u8, &'a [u8])> {
        let (payload_type, range) = match &self.primary {
            None => (line.payload_type, &self.payload),
            Some(primary) if primary.is_empty() => (line.red_payload_type?, &self.payload),
            Some(primary) => (line.payload_type, primary),
        };
        Some((payload_type, &plain[range.clone()]))
    }
}

/// Header extensions that reach subscribers, found once for each packet: level, orientation, capture time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Passed {
    level: Option<[u8; 1]>,
    orientation: Option<[u8; 1]>,
    /// With its length: 8 bytes, or 16 with the clock's offset.
    capture: Option<([u8; 16], u8)>,
}

impl Passed {
    /// Those of a packet whose extensions have these ids.
    pub(super) fn of(ids: &Extensions, packet: &[u8], header: &RtpHeader) -> Self {
        let mut passed = Self::default();
        header.extensions(packet).for_each(|(id, value)| passed.find(ids, id, value));
        passed
    }

    /// A level alone.
    pub(super) fn level(level_dbov: u8) -> Self {
        Self { level: Some([level_dbov & 0x7F]), ..Self::default() }
    }

    /// What still holds of a packet that is sent again: how the picture is turned.
    pub(super) fn again(self) -> Self {
        Self { level: None, capture: None, ..self }
    }

    /// Those of a packet that was captured so many ticks of a clock earlier, as far as they are known.
    pub(super) fn earlier(self, ticks: u32, clock_rate: u32) -> Self {
        let earlier = |(mut value, len): ([u8; 16], u8)| {
            let captured = header::parse_abs_capture_time(&value)?;
            // 32.32 bits of seconds.
            let before = (u64::from(ticks) << 32) / u64::from(clock_rate);
            value[..8].copy_from_slice(&captured.wrapping_sub(before).to_be_bytes());
            Some((value, len))
        };
        Self { capture: self.capture.and_then(earlier), ..Self::default() }
    }

    /// How loud the packet is, in −dBov (RFC 6464).
    #[inline]
    pub(super) fn level_dbov(&self) -> Option<u8> {
        Some(AudioLevel::parse(&self.level?)?.level_dbov)
    }

    /// Takes an extension that came with an id, if it is one of these.
    #[inline]
    pub(super) fn find(&mut self, ids: &Extensions, id: u8, value: &[u8]) {
        let id = Some(id);
        if id == ids.audio_level {
            self.level = value.first_chunk().copied();
        } else if id == ids.orientation {
            self.orientation = value.first_chunk().copied();
        } else if id == ids.capture_time && matches!(value.len(), 8 | 16) {
            let mut capture = [0; 16];
            capture[..value.len()].copy_from_slice(value);
            self.capture = Some((capture, value.len() as u8));
        }
    }

    /// Puts those that the receiver has ids for into `places`; returns how many.
    #[inline]
    pub(super) fn write<'a>(&'a self, ids: &Extensions, places: &mut [(u8, &'a [u8]); 4]) -> usize {
        let capture = self.capture.as_ref().map(|(value, len)| &value[..usize::from(*len)]);
        let mut count = 0;
        for (id, value) in [
            (ids.audio_level, self.level.as_ref().map(<[u8; 1]>::as_slice)),
            (ids.orientation, self.orientation.as_ref().map(<[u8; 1]>::as_slice)),
            (ids.capture_time, capture),
        ] {
            if let (Some(id), Some(value)) = (id, value) {
                places[count] = (id, value);
                count += 1;
            }
        }
        count
    }
}
