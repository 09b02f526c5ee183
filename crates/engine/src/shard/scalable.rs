//! Layers within one stream: the spatial and temporal layers of VP9 and AV1 (scalable video coding), the temporal layers of
//! VP8. Each packet tells the layers of its frame. A slot gets all frames up to the layers that it chose, since a frame may
//! need any frame of lower layers.
//!
//! Fewer layers flow from the next picture on, so a fall freezes nothing. More spatial layers flow from a keyframe on, and
//! more temporal layers from a frame on after which none needs what was left out.
//!
//! Layers of simulcast are streams of their own, see [`super::layers`]. Each of them may have temporal layers inside.

use crate::egress::{Counted, Rate};
use rtp::dependency::{self, Dependencies, Indication};
use rtp::{vp8, vp9};
use std::time::{Duration, Instant};

/// So many spatial layers are told apart. Higher ones count as the highest of these.
pub(super) const MOST_SPATIAL: usize = rtp::negotiated::MOST_LAYERS;
/// So many temporal layers are told apart.
const MOST_TEMPORAL: usize = 4;
/// Without a packet for so long, a layer is not sent.
const ALIVE: Duration = Duration::from_secs(1);

/// What a packet tells of its frame's layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Spatial layer, 0 being the smallest picture.
    pub spatial: u8,
    /// Temporal layer, 0 being the lowest frame rate.
    pub temporal: u8,
    /// The packet is the last one of its frame.
    pub end: bool,
    /// This frame and later ones of its temporal layer need none that came before of that layer.
    joins: bool,
    /// No later frame of a higher temporal layer needs one of that layer that came before.
    opens: bool,
}

impl Frame {
    /// That of a packet of VP8, which has temporal layers alone (RFC 7741 §4.2).
    pub(super) fn vp8(descriptor: &vp8::Descriptor) -> Option<Self> {
        let (temporal, joins) = (descriptor.temporal_id?, descriptor.layer_sync);
        Some(Self { spatial: 0, temporal: clamp(temporal), end: false, joins, opens: false })
    }

    /// That of a packet of VP9 (RFC 9628 §4.2).
    pub(super) fn vp9(descriptor: &vp9::Descriptor) -> Option<Self> {
        let layer = descriptor.layer?;
        Some(Self {
            spatial: layer.spatial_id.min(MOST_SPATIAL as u8 - 1),
            temporal: clamp(layer.temporal_id),
            end: descriptor.end,
            joins: false,
            opens: layer.switching_up,
        })
    }

    /// That of a packet with this dependency descriptor.
    pub(super) fn described(head: &dependency::Head, frame: &Dependencies) -> Self {
        // The last target that has the frame is the highest: if that can begin here, so can those below.
        let highest = frame.indications().filter(|it| *it != Indication::NotPresent).last();
        Self {
            spatial: frame.spatial_id.min(MOST_SPATIAL as u8 - 1),
            temporal: clamp(frame.temporal_id),
            end: head.end,
            joins: false,
            opens: highest == Some(Indication::Switch),
        }
    }
}

fn clamp(temporal: u8) -> u8 {
    temporal.min(MOST_TEMPORAL as u8 - 1)
}

/// Up to which layers somebody gets a stream. In one byte, since a slot notes it with each number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UpTo(u8);

impl UpTo {
    /// The whole stream.
    pub const ALL: Self = Self(0xFF);

    /// The smallest picture, with all its frames.
    pub const SMALLEST: Self = Self(0x0F);

    /// Up to these layers, both below 16.
    pub(super) const fn new(spatial: u8, temporal: u8) -> Self {
        Self(spatial << 4 | temporal)
    }

    /// The highest spatial layer.
    #[inline]
    pub(super) fn spatial(self) -> u8 {
        self.0 >> 4
    }

    /// The highest temporal layer.
    #[inline]
    pub(super) fn temporal(self) -> u8 {
        self.0 & 0x0F
    }

    /// Whether a frame is among these layers.
    #[inline]
    pub(super) fn holds(self, frame: &Frame) -> bool {
        frame.spatial <= self.spatial() && frame.temporal <= self.temporal()
    }
}

impl Default for UpTo {
    fn default() -> Self {
        Self::ALL
    }
}

/// The layers that a slot gets of the stream that flows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Selection {
    wanted: UpTo,
    carried: UpTo,
    /// What is wanted of the stream that is to flow next.
    next: UpTo,
    /// RTP timestamp of the newest picture, and the spatial layer of its newest packet.
    picture: u32,
    spatial: u8,
}

impl Selection {
    /// The slot is to get these layers of the stream that flows, as soon as it can. Says whether others were wanted before.
    pub(super) fn want(&mut self, up_to: UpTo) -> bool {
        self.next = up_to;
        std::mem::replace(&mut self.wanted, up_to) != up_to
    }

    /// The slot is to get these layers of the stream that is to flow next.
    pub(super) fn want_next(&mut self, up_to: UpTo) {
        self.next = up_to;
    }

    /// Another stream begins.
    pub(super) fn begin(&mut self) {
        (self.wanted, self.carried) = (self.next, self.next);
    }

    /// What flows at the moment.
    #[inline]
    pub(super) fn carried(&self) -> UpTo {
        self.carried
    }

    /// Whether it waits for a keyframe to get a larger picture, if the stream has spatial layers up to `most`.
    pub(super) fn waits(&self, most: u8) -> bool {
        self.carried.spatial() < self.wanted.spatial().min(most)
    }

    /// Whether a frame will most likely be left out, for one that waits.
    #[inline]
    pub(super) fn leaves_out(&self, frame: &Frame) -> bool {
        !self.carried.holds(frame) && !self.wanted.holds(frame)
    }

    /// Whether the slot gets this packet, the newest of its stream. `begins`: it is the first of a keyframe.
    #[inline]
    pub(super) fn takes(&mut self, frame: &Frame, begins: bool, timestamp: u32) -> bool {
        if self.carried != self.wanted {
            self.follow(frame, begins, timestamp);
        }
        (self.picture, self.spatial) = (timestamp, frame.spatial);
        self.carried.holds(frame)
    }

    /// What is carried follows what is wanted, as far as this packet allows it.
    fn follow(&mut self, frame: &Frame, begins: bool, timestamp: u32) {
        if begins {
            self.carried = self.wanted;
            return;
        }
        let (mut spatial, mut temporal) = (self.carried.spatial(), self.carried.temporal());
        let wanted = self.wanted.temporal();
        // Whoever sends all pictures with one timestamp gains nothing.
        if timestamp != self.picture || frame.spatial < self.spatial {
            spatial = spatial.min(self.wanted.spatial());
            temporal = temporal.min(wanted);
        }
        if frame.joins && frame.temporal == temporal + 1 && frame.temporal <= wanted {
            temporal = frame.temporal;
        }
        if frame.opens && frame.temporal <= temporal {
            temporal = temporal.max(wanted);
        }
        self.carried = UpTo::new(spatial, temporal);
    }
}

/// What a layer brings.
#[derive(Debug, Clone, Copy, Default)]
struct Brought {
    rate: Rate,
    /// When its newest packet came.
    newest: Option<Instant>,
    /// What it brought when it was sent last, in bits a second; 0 if it never was.
    known_bps: u64,
    /// How many pixels its pictures have; 0 if that was not told.
    pixels: u32,
}

/// The layers within a stream that comes in, as its packets told.
#[derive(Debug, Default)]
pub(super) struct Inner {
    spatial: [Brought; MOST_SPATIAL],
    /// Frames of the smallest picture alone.
    temporal: [Rate; MOST_TEMPORAL],
    /// It says where higher temporal layers may begin. Otherwise none is left out: it could not come back.
    switches: bool,
}

/// What a stream is known to have inside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// What each spatial layer takes with all below it, in bits a second; what is not measured yet does not count.
    pub bps: [u64; MOST_SPATIAL],
    /// How many pixels each has; 0 if that was not told.
    pub pixels: [u32; MOST_SPATIAL],
    /// How many there are: 0 or 1 without layers.
    pub count: usize,
    /// The temporal layer below the highest one, and what the smallest picture takes up to there.
    pub fewer_frames: Option<(u8, u64)>,
}

impl Inner {
    /// A packet came, of so many bytes.
    #[inline]
    pub(super) fn note(&mut self, frame: &Frame, now: Instant, bytes: Counted) {
        let layer = &mut self.spatial[usize::from(frame.spatial)];
        layer.rate.count(now, bytes);
        layer.newest = Some(now);
        self.switches |= frame.joins || frame.opens;
        if frame.spatial == 0 {
            self.temporal[usize::from(frame.temporal)].count(now, bytes);
        }
    }

    /// A keyframe tells the size of a spatial layer's pictures.
    pub(super) fn size(&mut self, spatial: usize, width: u32, height: u32) {
        if let Some(layer) = self.spatial.get_mut(spatial) {
            layer.pixels = width.saturating_mul(height);
        }
    }

    /// The highest spatial layer that is sent at the moment.
    pub(super) fn highest(&self, now: Instant) -> u8 {
        let sent = |layer: &Brought| {
            layer.newest.is_some_and(|at| now.saturating_duration_since(at) < ALIVE)
        };
        self.spatial.iter().rposition(sent).unwrap_or(0) as u8
    }

    /// How many spatial layers there are, as far as any came or was told of; 0 if none was.
    pub(super) fn count(&self) -> usize {
        let is_known = |layer: &Brought| layer.newest.is_some() || layer.known_bps > 0;
        self.spatial.iter().rposition(is_known).map_or(0, |at| at + 1)
    }

    /// The publisher's shard tells what each layer brings, those below included: here only some of them may come.
    pub(super) fn told(&mut self, bps: [u32; MOST_SPATIAL]) {
        let mut below = 0;
        for (layer, bps) in self.spatial.iter_mut().zip(bps.map(u64::from)) {
            if bps > below && layer.newest.is_none() {
                layer.known_bps = bps - below;
            }
            below = bps.max(below);
        }
    }

    /// What is known of the layers.
    pub(super) fn known(&mut self, now: Instant) -> Known {
        let mut known = Known { count: self.count(), ..Known::default() };
        if known.count == 0 {
            return known;
        }
        let mut below = 0;
        for (at, layer) in self.spatial.iter_mut().enumerate() {
            let bps = layer.rate.bps(now);
            layer.known_bps = if bps > 0 { bps } else { layer.known_bps };
            below += layer.known_bps;
            (known.bps[at], known.pixels[at]) = (below, layer.pixels);
        }
        let rates = self.temporal.map(|rate| rate.bps(now));
        let highest = rates.iter().rposition(|bps| *bps > 0);
        if let Some(highest) = highest.filter(|at| *at > 0 && self.switches) {
            let up_to = rates[..highest].iter().sum();
            known.fewer_frames = Some((highest as u8 - 1, up_to));
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(spatial: u8, temporal: u8) -> Frame {
        Frame { spatial, temporal, end: false, joins: false, opens: false }
    }

    fn selection(carried: UpTo, wanted: UpTo) -> Selection {
        Selection { carried, wanted, next: wanted, picture: 1, spatial: 0 }
    }

    #[test]
    fn fewer_layers_flow_from_the_next_picture_on() {
        let mut chosen = selection(UpTo::ALL, UpTo::new(0, 1));
        assert!(chosen.takes(&frame(2, 2), false, 1), "the picture is sent whole");
        assert!(chosen.takes(&frame(0, 1), false, 2) && !chosen.takes(&frame(1, 1), false, 2));
        assert!(!chosen.takes(&frame(0, 2), false, 3));
        assert_eq!(chosen.carried(), UpTo::new(0, 1));
    }

    #[test]
    fn a_larger_picture_flows_from_a_keyframe_on() {
        let mut chosen = selection(UpTo::new(0, 15), UpTo::new(1, 15));
        assert!(chosen.waits(2) && chosen.waits(1) && !chosen.waits(0), "no such layer is sent");
        let opens = Frame { opens: true, ..frame(0, 0) };
        assert!(chosen.takes(&opens, false, 2) && !chosen.takes(&frame(1, 0), false, 2));
        assert!(!chosen.leaves_out(&frame(1, 0)) && chosen.leaves_out(&frame(2, 0)));
        assert!(chosen.takes(&frame(0, 0), true, 3) && chosen.takes(&frame(1, 0), false, 3));
        assert!(!chosen.takes(&frame(2, 0), false, 3) && !chosen.waits(2));
    }

    #[test]
    fn more_frames_flow_when_none_of_them_needs_what_was_left_out() {
        let mut chosen = selection(UpTo::new(0, 0), UpTo::new(0, 2));
        assert!(!chosen.takes(&frame(0, 1), false, 2), "it may need what was left out");
        let joins = |temporal| Frame { joins: true, ..frame(0, temporal) };
        assert!(!chosen.takes(&joins(2), false, 3), "later ones may need the layer between");
        assert!(chosen.takes(&joins(1), false, 4) && !chosen.takes(&frame(0, 2), false, 5));
        assert!(chosen.takes(&joins(2), false, 6) && chosen.takes(&frame(0, 2), false, 7));

        let mut chosen = selection(UpTo::new(0, 0), UpTo::new(0, 2));
        let opens = |temporal| Frame { opens: true, ..frame(0, temporal) };
        assert!(!chosen.takes(&opens(1), false, 2) && !chosen.takes(&frame(0, 2), false, 3));
        assert!(chosen.takes(&opens(0), false, 4) && chosen.takes(&frame(0, 2), false, 5));
    }

    #[test]
    fn what_layers_bring_is_known_after_a_while_and_stays_known() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut inner = Inner::default();
        assert_eq!(inner.known(start), Known::default());
        for ms in 0..3000 {
            // Temporal layers 0, 2, 1, 2 in turn; 1, 2 and 4 bytes a millisecond.
            let temporal = [0, 2, 1, 2][ms as usize / 50 % 4];
            (0..3).for_each(|s| inner.note(&frame(s, temporal), at(ms), Counted::Other(125 << s)));
        }
        inner.size(1, 640, 360);
        let known = inner.known(at(3000));
        let near = |bps: u64, wanted: u64| bps.abs_diff(wanted) < wanted / 20;
        assert!(near(known.bps[0], 1_000_000) && near(known.bps[2], 7_000_000), "{known:?}");
        assert_eq!((known.count, known.pixels), (3, [0, 640 * 360, 0]));
        assert_eq!(known.fewer_frames, None, "it does not say where frames may begin again");
        inner.note(&Frame { opens: true, ..frame(0, 0) }, at(3000), Counted::Other(1));
        let known = inner.known(at(3000));
        let (up_to, bps) = known.fewer_frames.unwrap();
        assert!(up_to == 1 && near(bps, 500_000), "{known:?}");
        assert_eq!((inner.highest(at(3000)), inner.highest(at(9000))), (2, 0));
        let mut elsewhere = Inner::default();
        elsewhere.note(&frame(0, 0), at(0), Counted::Other(1));
        elsewhere.told([100, 300, 900]);
        let told = elsewhere.known(at(1));
        assert_eq!((told.count, told.bps), (3, [0, 200, 800]), "the first is measured here");
        let later = inner.known(at(9000));
        assert_eq!((later.count, later.bps, later.fewer_frames), (3, known.bps, None));
    }
}
