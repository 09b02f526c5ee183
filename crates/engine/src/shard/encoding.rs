//! One received stream of a track: what its packets bring, and what is kept of them.

use super::claim::Sampler;
use super::gaps::Gaps;
use super::history::History;
use super::keyframe::{KeyframeWish, NewestKeyframe};
use super::lately::{Lately, Past};
use super::meter::Meter;
use super::packet::{Opened, Passed};
use super::reception::Reception;
use super::rewrite::Counters;
use super::scalable::{Frame, Inner};
use super::speaker::Voice;
use crate::clock::Now;
use crate::command::StreamKey;
use crate::drops::InDrop;
use crate::egress::{Counted, Rate};
use crate::limits::{KEYFRAME_LASTS, ON_THE_WAY_BYTES, REPORT_HEARD_INTERVAL};
use audio::level::SILENCE_DBOV;
use rtp::RtpHeader;
use rtp::av1::Aggregation;
use rtp::dependency::{Descriptor, Head, Structure};
use rtp::h264::KeyframeStart;
use rtp::negotiated::{Codec, Kind, Line};
use std::ops::Range;
use std::time::{Duration, Instant};

/// A packet that arrived: opened here, or on its publisher's shard. Its bytes are elsewhere.
pub(super) struct Arrival {
    /// Its number, as [`Reception::number`] gives it.
    pub number: u64,
    pub header: RtpHeader,
    /// Its payload without padding: empty if there is only padding.
    pub payload: Range<usize>,
    pub passed: Passed,
    /// It came as a retransmission.
    pub repaired: bool,
    pub at: Instant,
}

/// What becomes of a track's packets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fate {
    /// A moderator muted it.
    pub silenced: bool,
    /// It goes to the mixer.
    pub mixed: bool,
}

/// What a packet brought.
pub(super) enum Arrived {
    /// Media, and whether speech began with it.
    Media(Opened, bool),
    /// Nothing that goes on: it takes no number.
    Nothing(InDrop),
}

/// A stream that comes in, from a publisher or from another shard.
pub(super) struct Encoding {
    key: StreamKey,
    pub line: Line,
    /// Its payloads are encrypted end to end: nothing in them is read.
    pub opaque: bool,
    /// None if another shard receives it.
    pub reception: Option<Reception>,
    /// What it brings, in bits a second.
    pub rate: Rate,
    /// The layers that it has inside.
    pub inner: Inner,
    /// The templates of its dependency descriptors. None if its codec has none.
    structure: Option<Box<Structure>>,
    pub history: History,
    /// What is missing before its newest keyframe. Nothing if its payload is not read.
    pub gaps: Gaps,
    /// The last packets of a voice, if slots are short.
    pub lately: Option<Lately>,
    pub keyframe: KeyframeWish,
    /// The newest keyframe that slots may begin with. Always None if the payload is not read.
    newest_keyframe: Option<NewestKeyframe>,
    /// The number of the newest packet with a marker: a frame ended.
    frame_end: Option<u64>,
    pub voice: Voice,
    /// Measures how loud it is, if its publisher does not tell it.
    meter: Option<Box<Meter>>,
    /// Its timestamp at a moment of the server's wall clock (ns), by the publisher's reports.
    pub reference: Option<(u32, i128)>,
    /// When the publisher's last report that counts came.
    reported: Option<Instant>,
    /// Timestamp of the newest packet and when it came (wall clock).
    pub newest: Option<(u32, Duration)>,
}

impl Encoding {
    pub(super) fn new(key: StreamKey, line: Line, opaque: bool, here: bool) -> Self {
        Self {
            key,
            opaque,
            reception: here.then(|| Reception::new(&line)),
            structure: (line.codec == Codec::Av1).then(Box::default),
            line,
            rate: Rate::default(),
            inner: Inner::default(),
            history: History::default(),
            gaps: Gaps::default(),
            lately: None,
            keyframe: KeyframeWish::default(),
            newest_keyframe: None,
            frame_end: None,
            voice: Voice::default(),
            meter: None,
            reference: None,
            reported: None,
            newest: None,
        }
    }

    #[inline]
    pub(super) fn is_video(&self) -> bool {
        self.line.codec.kind() == Kind::Video
    }

    /// Whether its packets are kept for receivers who lose some. Their publisher need not send any again.
    #[inline]
    pub(super) fn keeps_history(&self) -> bool {
        self.is_video() || self.line.nack
    }

    /// A packet arrived, with these bytes: media, a retransmission or padding. If its track is silenced, `lately` does not keep it.
    ///
    /// # Errors
    /// [`InDrop::Duplicate`]: a retransmission of what had come already.
    pub(super) fn arrive(
        &mut self,
        arrival: Arrival,
        plain: &[u8],
        fate: Fate,
        now: Now,
        sampler: &mut Sampler,
    ) -> Result<Arrived, InDrop> {
        let Arrival { number, header, repaired, at, .. } = arrival;
        if let Some(reception) = &mut self.reception {
            reception.note(number, &header, arrival.payload.len(), repaired, at)?;
        }
        let bytes = arrival.payload.end + ON_THE_WAY_BYTES;
        let nothing = match arrival.payload.is_empty() {
            true => Some(InDrop::PaddingOnly),
            false if !self.line.takes(header.payload_type) => Some(InDrop::UnknownPayloadType),
            false => None,
        };
        if let Some(reason) = nothing {
            self.rate.count(at, Counted::Other(bytes));
            self.pass(number, at);
            return Ok(Arrived::Nothing(reason));
        }
        let mut opened = self.describe(number, header, arrival.payload, plain);
        (opened.passed, opened.repaired) = (arrival.passed, repaired);
        opened.level_dbov = opened.passed.level_dbov().unwrap_or(SILENCE_DBOV);
        self.note_frame(&opened, at);
        let newest = self.newest_keyframe.filter(|newest| newest.timestamp == header.timestamp);
        let counted = match newest.map(|newest| newest.asked) {
            None => Counted::Other(bytes),
            Some(false) => Counted::Keyframe(bytes),
            Some(true) => Counted::Asked(bytes, header.timestamp),
        };
        self.rate.count(at, counted);
        if let Some(frame) = &opened.frame {
            self.inner.note(frame, at, counted);
            if opened.begins {
                self.note_sizes(&opened, plain);
            }
        }
        let mut began = false;
        if !repaired {
            self.newest = Some((header.timestamp, now.unix));
            began = self.hear(&mut opened, at, plain, fate, sampler);
        }
        if self.keeps_history() {
            self.history.keep(number, &plain[..opened.payload.end], at);
        }
        if self.is_video() {
            self.note_gaps(number, header.timestamp);
        }
        Ok(Arrived::Media(opened, began))
    }

    /// Notes what is missing. Once a keyframe is whole, that before it will not come.
    #[inline]
    fn note_gaps(&mut self, number: u64, timestamp: u32) {
        self.gaps.came(number);
        if self.gaps.is_open()
            && let Some(newest) = self.newest_keyframe.filter(|it| it.timestamp == timestamp)
            && let Some(end) = self.history.frame_end(newest.first)
        {
            self.gaps.close((newest.first, end), &self.history);
        }
    }

    /// This number brought nothing that goes on.
    pub(super) fn pass(&mut self, number: u64, at: Instant) {
        // It gets no number in a slot. A replay across it would leave a gap there.
        self.lately.iter_mut().for_each(Lately::forget);
        if self.is_video() {
            self.history.pass(number, at);
            self.gaps.came(number);
        }
    }

    /// Describes a kept packet as when it was opened.
    pub(super) fn reopen(&self, number: u64, plain: &[u8]) -> Option<Opened> {
        let header = RtpHeader::parse(plain).ok()?;
        let payload = header.payload_range(plain).ok()?;
        let passed = Passed::of(&self.line.extensions, plain, &header);
        Some(Opened { passed, ..self.describe(number, header, payload, plain) })
    }

    /// What forwarding needs to know of a packet with this number.
    fn describe(
        &self,
        index: u64,
        header: RtpHeader,
        payload: Range<usize>,
        plain: &[u8],
    ) -> Opened {
        let timestamp = header.timestamp;
        let mut counters = Counters { index, timestamp, picture_id: None, tl0: None };
        let (mut dependency, mut frame) = (None, None);
        let begins = match self.line.codec {
            Codec::Opus => true,
            // Layers and references stand outside the payload.
            Codec::Av1 => {
                let described = self.dependency(plain, &header);
                let head = described.as_ref().map(|(head, ..)| *head);
                (dependency, frame) =
                    described.map_or((None, None), |(_, at, frame)| (Some(at), frame));
                counters.picture_id = head.map(|head| head.frame_number);
                self.begins_av1(index, &plain[payload.clone()], head)
            }
            // Nothing in the payload is read: it goes on as it came.
            Codec::Vp8 | Codec::H264 | Codec::Vp9 if self.opaque => self.begins_frame(index),
            Codec::H264 => self.begins_h264(&plain[payload.clone()], timestamp),
            Codec::Vp8 => match rtp::vp8::Descriptor::parse(&plain[payload.clone()]) {
                Ok(descriptor) => {
                    frame = Frame::vp8(&descriptor);
                    counters.picture_id = descriptor.picture_id;
                    counters.tl0 = descriptor.tl0_picture_index;
                    descriptor.keyframe
                }
                Err(_) => false,
            },
            Codec::Vp9 => match rtp::vp9::Descriptor::parse(&plain[payload.clone()]) {
                Ok(descriptor) => {
                    frame = Frame::vp9(&descriptor);
                    counters.picture_id = descriptor.picture_id;
                    counters.tl0 = descriptor.tl0_picture_index;
                    descriptor.keyframe
                }
                Err(_) => false,
            },
        };
        let primary = (Some(header.payload_type) == self.line.red_payload_type)
            .then(|| if self.opaque { 0..0 } else { primary_of(&payload, plain) });
        let (passed, audio) = (Passed::default(), !self.is_video());
        let opaque = self.opaque;
        Opened {
            header,
            payload,
            primary,
            opaque,
            counters,
            passed,
            frame,
            dependency,
            begins,
            repaired: false,
            audio,
            level_dbov: SILENCE_DBOV,
        }
    }

    /// Notes how loud a packet of sound is, and keeps it if `lately` is on. Says whether speech began with it.
    fn hear(
        &mut self,
        opened: &mut Opened,
        arrival: Instant,
        plain: &[u8],
        fate: Fate,
        sampler: &mut Sampler,
    ) -> bool {
        if !opened.audio {
            return false;
        }
        let Counters { index, timestamp, .. } = opened.counters;
        if let Some(lately) = self.lately.as_mut().filter(|_| !fate.silenced) {
            lately.keep(index, arrival, &plain[..opened.payload.end]);
        }
        let claimed = opened.passed.level_dbov();
        let level = match claimed.filter(|dbov| self.voice.tells(*dbov, arrival)) {
            Some(claimed) => {
                self.meter = None;
                // Who claims silence is heard all the same where slots are enough.
                let short = self.lately.is_some() || fate.mixed;
                if !self.opaque {
                    let heard = (claimed, opened.opus(plain));
                    sampler.hear(arrival, self.key, (&mut self.voice, short), heard);
                }
                self.voice.believed(claimed, arrival)
            }
            None if self.opaque => return false,
            None => {
                let (meter, opus) = (&mut self.meter, opened.opus(plain));
                let level = sampler.meters.measure(arrival, self.key.track, meter, opus);
                opened.level_dbov = level;
                level
            }
        };
        self.voice.heard(level, index, timestamp)
    }

    /// Whether its publisher does not tell how loud it is.
    #[inline]
    pub(super) fn is_measured(&self) -> bool {
        self.meter.is_some()
    }

    /// Whether the frame with this timestamp is the newest keyframe.
    #[inline]
    pub(super) fn is_keyframe(&self, timestamp: u32) -> bool {
        self.newest_keyframe.is_some_and(|newest| newest.timestamp == timestamp)
    }

    /// Notes where a frame ended, and that a keyframe came.
    fn note_frame(&mut self, opened: &Opened, at: Instant) {
        let Counters { index: first, timestamp, .. } = opened.counters;
        if opened.begins && !opened.audio {
            match &mut self.newest_keyframe {
                _ if self.opaque => {}
                Some(newest) if newest.timestamp == timestamp => {
                    newest.first = newest.first.min(first);
                }
                Some(newest) if first < newest.first => {}
                newest => {
                    *newest = Some(NewestKeyframe { first, timestamp, at, asked: false });
                }
            }
            // No slot switches with a retransmission.
            if !opened.repaired
                && self.keyframe.came()
                && let Some(newest) = &mut self.newest_keyframe
            {
                newest.asked = newest.timestamp == timestamp;
            }
        }
        if opened.repaired {
            self.keyframe.repaired();
        }
        if opened.header.marker {
            self.frame_end = self.frame_end.max(Some(first));
        }
    }

    /// Whether a packet of H.264 begins a keyframe. Parameter sets do. The first slice does if no parameter sets came
    /// before it in the same picture. Other slices do not.
    fn begins_h264(&self, payload: &[u8], timestamp: u32) -> bool {
        match rtp::h264::keyframe_start(payload) {
            Some(KeyframeStart::ParameterSet) => true,
            Some(KeyframeStart::FirstSlice) => {
                self.newest_keyframe.is_none_or(|newest| newest.timestamp != timestamp)
            }
            None => false,
        }
    }

    /// The beginning of a packet's dependency descriptor, where the descriptor is, and the layers that it tells of, if the
    /// packet carries one. Layers are told once a keyframe told the structure.
    fn dependency(
        &self,
        plain: &[u8],
        header: &RtpHeader,
    ) -> Option<(Head, (u16, u16), Option<Frame>)> {
        let at = header.locate_extension(plain, self.line.extensions.dependency?)?;
        let value = &plain[at.clone()];
        let head = Head::parse(value).ok()?;
        let known = self.structure.as_deref()?;
        let frame = match value.len() {
            Head::LEN => {
                known.template(head.template_id).ok().map(|it| Frame::described(&head, it))
            }
            _ => Descriptor::read(value, known).ok().map(|it| Frame::described(&head, &it.0.frame)),
        };
        Some((head, (at.start.try_into().ok()?, at.end.try_into().ok()?), frame))
    }

    /// A keyframe may tell which layers there are, and how large their pictures are.
    fn note_sizes(&mut self, opened: &Opened, plain: &[u8]) {
        if let (Some((from, to)), Some(known)) = (opened.dependency, &mut self.structure) {
            let read = Descriptor::read(&plain[from.into()..to.into()], known);
            let Ok((_, Some(attached))) = read else { return };
            let sizes = (0..attached.spatial_layers()).map_while(|at| attached.resolution(at));
            sizes.enumerate().for_each(|(at, (w, h))| self.inner.size(at, w, h));
            **known = attached;
        } else if self.line.codec == Codec::Vp9
            && let Ok(descriptor) = rtp::vp9::Descriptor::parse(&plain[opened.payload.clone()])
            && let Some(structure) = descriptor.structure
            && let Some(sizes) = structure.sizes
        {
            let sizes = sizes.into_iter().take(structure.spatial_layers.into()).enumerate();
            sizes.for_each(|(at, (w, h))| self.inner.size(at, w.into(), h.into()));
        }
    }

    /// Whether a packet of AV1 begins a keyframe, by its payload, or if that is opaque by its dependency descriptor.
    fn begins_av1(&self, number: u64, payload: &[u8], head: Option<Head>) -> bool {
        match head {
            _ if !self.opaque => {
                Aggregation::parse(payload).is_ok_and(|header| header.starts_sequence)
            }
            Some(head) => head.start && head.has_structure,
            None => self.begins_frame(number),
        }
    }

    /// Whether slots may switch to an opaque stream with this packet: it is the first of a frame, and a
    /// keyframe was asked for. Nobody here can see which frame is the keyframe. It is this one or a
    /// later one, so that it reaches those who switched.
    fn begins_frame(&self, number: u64) -> bool {
        self.frame_end.is_some_and(|end| number == end + 1) && self.keyframe.is_asked()
    }

    /// Stops asking for packets from before a keyframe that is whole.
    pub(super) fn forget_superseded(&mut self) {
        let Some(reception) = &mut self.reception else { return };
        if reception.missing.missing_count() > 0
            && let Some(NewestKeyframe { first, .. }) = self.newest_keyframe
            && self.history.frame_end(first).is_some()
        {
            reception.missing.clear_before(first as u16);
        }
    }

    /// What a waiting slot can begin with at once: the newest keyframe and all since. None if a packet
    /// is missing, if the keyframe is too old, or if more bytes came since than the keyframe has.
    pub(super) fn beginning(&self, now: Instant) -> Option<Range<u64>> {
        let NewestKeyframe { first, at, .. } = self.newest_keyframe?;
        if now.saturating_duration_since(at) > KEYFRAME_LASTS {
            return None;
        }
        let end = self.history.frame_end(first)?;
        let all = self.history.since(first)?;
        let since = self.history.bytes(end + 1..all.end);
        (since <= self.history.bytes(first..end + 1)).then_some(all)
    }

    /// The kept packets of the present speech.
    pub(super) fn speech(&self) -> impl Iterator<Item = Past<'_>> {
        let kept = self.lately.as_ref().zip(self.voice.speech());
        kept.into_iter().flat_map(|(lately, speech)| lately.speech(speech))
    }

    /// Whether the last packets of the voice are kept.
    pub(super) fn keep_lately(&mut self, on: bool) {
        match (on, &self.lately) {
            (true, None) => self.lately = Some(Lately::new()),
            (true, Some(_)) => {}
            (false, _) => self.lately = None,
        }
    }

    /// No slot may begin with what came so far.
    pub(super) fn suspend(&mut self) {
        self.lately.iter_mut().for_each(Lately::forget);
        self.newest_keyframe = None;
    }

    /// The publisher uses this SSRC from now on. Where another was in use, a new stream begins.
    pub(super) fn adopt(&mut self, ssrc: u32, at: Instant) {
        let Some(reception) = &mut self.reception else { return };
        if reception.adopt(ssrc, at) {
            (self.reference, self.reported, self.newest) = (None, None, None);
            self.keyframe.want();
        }
        self.newest_keyframe = None;
    }

    /// Whether a sender report counts. One that comes too soon after the last does not.
    pub(super) fn hears_report(&mut self, now: Instant) -> bool {
        let lately = |at: Instant| now.saturating_duration_since(at) < REPORT_HEARD_INTERVAL;
        let hears = !self.reported.is_some_and(lately);
        if hears {
            self.reported = Some(now);
        }
        hears
    }

    /// The publisher's timestamp at this moment of the server's clock: by the publisher's reports, or before the first
    /// report by the arrival of the newest packet. None before the first packet.
    pub(super) fn timestamp_at(&self, now: Now) -> Option<u32> {
        let arrived = || self.newest.map(|(timestamp, at)| (timestamp, at.as_nanos() as i128));
        let (timestamp, at_ns) = self.reference.or_else(arrived)?;
        let passed_ns = now.unix.as_nanos() as i128 - at_ns;
        let ticks = passed_ns * i128::from(self.line.codec.clock_rate()) / 1_000_000_000;
        Some(timestamp.wrapping_add(ticks as u32))
    }
}

/// Where the primary block of a RED payload is; empty if it cannot be read.
fn primary_of(payload: &Range<usize>, plain: &[u8]) -> Range<usize> {
    let found = rtp::red::primary(&plain[payload.clone()]).unwrap_or_default();
    payload.start + found.start..payload.start + found.end
}

#[cfg(test)]
mod tests {
    use super::super::track::voice_line;
    use super::*;
    use crate::command::TrackKey;

    #[test]
    fn a_picture_of_h264_begins_once() {
        let line = Line { codec: Codec::H264, ..voice_line() };
        let mut encoding = Encoding::new(TrackKey(1).stream(), line, false, true);
        let (sps, first, later) = ([0x67, 0x42], [0x65, 0x88], [0x65, 0x48]);
        let mut begins = |payload: &[u8], timestamp| {
            let begins = encoding.begins_h264(payload, timestamp);
            if begins {
                let at = Instant::now();
                encoding.newest_keyframe =
                    Some(NewestKeyframe { first: 0, timestamp, at, asked: false });
            }
            begins
        };
        assert!(begins(&sps, 0), "with its parameter sets");
        assert!(!begins(&first, 0) && !begins(&later, 0), "not again with its slices");
        assert!(begins(&first, 3000), "or with its first slice");
        assert!(!begins(&later, 3000) && !begins(&later, 6000), "never with a later one");
    }
}
