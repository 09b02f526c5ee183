//! A published track: what comes in of it, who gets it, which keyframes are wanted.

use super::claim::Sampler;
use super::history::History;
use super::incoming::Opened;
use super::lately::{Lately, Past};
use super::person::PersonIndex;
use super::rewrite::Inbound as Counters;
use super::speaker::Voice;
use crate::command::{ShardIndex, TrackKey};
use crate::limits::{KEYFRAME_INTERVAL, KEYFRAME_LASTS, KEYFRAME_RETRY, REPORT_HEARD_INTERVAL};
use rtp::extended::SequenceUnwrapper;
use rtp::h264::KeyframeStart;
use rtp::nack::NackGenerator;
use rtp::negotiated::{Kind, Line, StreamIds};
use rtp::report::ReceiveStream;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A subscription: a slot of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub person: PersonIndex,
    pub slot: usize,
}

/// When a keyframe was asked for and whether one is still wanted.
#[derive(Debug, Default)]
pub(crate) struct KeyframeWish {
    wanted: bool,
    asked: Option<Instant>,
    /// When somebody was last looked for who waits.
    looked: Option<Instant>,
    /// A slot began to wait: it is to get what is kept, else one is wanted.
    waited_for: bool,
    /// One may be whole now that was not when it came.
    repaired: bool,
}

/// The newest keyframe that began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewestKeyframe {
    /// The number of its first packet.
    first: u64,
    timestamp: u32,
    at: Instant,
}

impl KeyframeWish {
    /// Somebody needs a keyframe.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// A slot waits for one from now on.
    pub(crate) fn wait(&mut self) {
        self.waited_for = true;
    }

    /// Of slots that began to wait, some could not be given what is kept, or all could.
    pub(crate) fn waited(&mut self, still: bool) {
        self.wanted |= std::mem::take(&mut self.waited_for) && still;
    }

    /// Whether one is still to be asked for.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether one was asked for since somebody wished for it.
    pub(crate) fn is_asked(&self) -> bool {
        !self.wanted && self.asked.is_some()
    }

    /// One came.
    pub(crate) fn came(&mut self) {
        self.wanted = false;
    }

    /// Whether it is time to look for somebody who waits: now and then, since who begins to wait says so.
    pub(crate) fn looks(&mut self, now: Instant) -> bool {
        let lately = |at: Option<Instant>| {
            at.is_some_and(|at| now.saturating_duration_since(at) < KEYFRAME_RETRY)
        };
        let now_and_then = !self.wanted && !lately(self.asked) && !lately(self.looked);
        let looks = now_and_then || self.waited_for || std::mem::take(&mut self.repaired);
        if looks {
            self.looked = Some(now);
        }
        looks
    }

    /// Whether to ask the publisher now: not too often, and again where none came.
    pub(crate) fn ask(&mut self, now: Instant, someone_waits: bool) -> bool {
        let since = self.asked.map(|at| now.saturating_duration_since(at));
        let due = match since {
            None => self.wanted || someone_waits,
            Some(since) if self.wanted => since >= KEYFRAME_INTERVAL,
            Some(since) => someone_waits && since >= KEYFRAME_RETRY,
        };
        if due {
            self.wanted = false;
            self.asked = Some(now);
        }
        due
    }
}

/// Where a track's packets come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A person of this shard.
    Person(PersonIndex),
    /// Another shard, over the relay.
    Relay(ShardIndex),
}

/// Another shard that gets a track's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Export {
    pub to: ShardIndex,
    /// The other shard knows the track: packets go there.
    pub begun: bool,
    /// What was said before the next packet goes there first.
    pub replay: bool,
}

/// A track on this shard.
pub(crate) struct Track {
    pub key: TrackKey,
    pub origin: Origin,
    /// It goes to the mixer, not to slots.
    pub mixed: bool,
    /// A moderator muted it.
    pub silenced: bool,
    /// Its payloads are encrypted end to end.
    pub opaque: bool,
    /// The number of the newest packet with a marker: a frame ended.
    frame_end: Option<u64>,
    /// Other shards that get its packets.
    pub exports: Vec<Export>,
    /// Other shards that asked for it before the room said that they get it.
    asked: Vec<ShardIndex>,
    /// What was sent lately, where slots are short.
    pub lately: Option<Lately>,
    pub line: Line,
    pub ids: Option<StreamIds>,
    pub subscriptions: Vec<Subscription>,
    pub receive: ReceiveStream,
    unwrapper: SequenceUnwrapper,
    /// The SSRC of the stream before the present one.
    retired: Option<u32>,
    pub missing: NackGenerator,
    pub history: History,
    pub keyframe: KeyframeWish,
    /// None where the payload is not read, or where nothing may flow of it any more.
    pub newest_keyframe: Option<NewestKeyframe>,
    pub voice: Voice,
    /// Its timestamp at a moment of the server's wall clock (ns), by the publisher's reports.
    pub reference: Option<(u32, i128)>,
    /// When its publisher's last report that counts came.
    reported: Option<Instant>,
    /// Timestamp of the newest packet and when it came (wall clock).
    pub newest: Option<(u32, Duration)>,
}

impl Track {
    pub(crate) fn new(key: TrackKey, origin: Origin, line: Line) -> Self {
        let clock_rate = line.codec.clock_rate();
        let line_ssrc = line.remote.map_or(0, |ids| ids.ssrc);
        Self {
            key,
            origin,
            mixed: false,
            silenced: false,
            opaque: false,
            frame_end: None,
            exports: Vec::new(),
            asked: Vec::new(),
            lately: None,
            ids: line.remote,
            line,
            subscriptions: Vec::new(),
            receive: ReceiveStream::new(line_ssrc, clock_rate),
            unwrapper: SequenceUnwrapper::new(),
            retired: None,
            missing: NackGenerator::new(),
            history: History::default(),
            keyframe: KeyframeWish::default(),
            newest_keyframe: None,
            voice: Voice::default(),
            reference: None,
            reported: None,
            newest: None,
        }
    }

    /// The person of this shard who publishes it.
    pub(crate) fn publisher(&self) -> Option<PersonIndex> {
        match self.origin {
            Origin::Person(person) => Some(person),
            Origin::Relay(_) => None,
        }
    }

    /// Whether a sender report counts: so soon after the last one it does not.
    pub(crate) fn hears_report(&mut self, now: Instant) -> bool {
        let lately = |at: Instant| now.saturating_duration_since(at) < REPORT_HEARD_INTERVAL;
        let hears = !self.reported.is_some_and(lately);
        if hears {
            self.reported = Some(now);
        }
        hears
    }

    /// Notes how loud an opened packet of sound is, and keeps it where that is wanted; says whether
    /// speech began with it.
    pub(crate) fn hear(
        &mut self,
        opened: &Opened,
        arrival: Instant,
        plain: &[u8],
        sampler: &mut Sampler,
    ) -> bool {
        if !opened.audio {
            return false;
        }
        let Counters { index, timestamp, .. } = opened.counters;
        if let Some(lately) = self.lately.as_mut().filter(|_| !self.silenced) {
            lately.keep(index, arrival, &plain[..opened.payload.end]);
        }
        let Some(claimed) = opened.kept.level_dbov() else { return false };
        if !self.opaque {
            let opus = opened.primary.as_ref().unwrap_or(&opened.payload).clone();
            sampler.hear(arrival, self.key, &mut self.voice, claimed, &plain[opus]);
        }
        let level = self.voice.believed(claimed, arrival);
        self.voice.heard(level, index, timestamp)
    }

    /// Notes where a frame ended, and that a keyframe came.
    pub(crate) fn note_frame(&mut self, opened: &Opened, at: Instant) {
        let Counters { index: first, timestamp, .. } = opened.counters;
        if opened.begins && !opened.audio {
            match &mut self.newest_keyframe {
                _ if self.opaque => {}
                Some(newest) if newest.timestamp == timestamp => {
                    newest.first = newest.first.min(first);
                }
                Some(newest) if first < newest.first => {}
                newest => *newest = Some(NewestKeyframe { first, timestamp, at }),
            }
            // Nobody switches to what was repaired, when it comes.
            if !opened.repaired {
                self.keyframe.came();
            }
        }
        self.keyframe.repaired |= opened.repaired;
        if opened.header.marker {
            self.frame_end = self.frame_end.max(Some(opened.counters.index));
        }
    }

    /// Whether a packet of H.264 begins a keyframe: the parameter sets do, or else the first slice; slices that follow
    /// either in the same picture do not.
    pub(crate) fn begins_h264(&self, payload: &[u8], timestamp: u32) -> bool {
        match rtp::h264::keyframe_start(payload) {
            Some(KeyframeStart::ParameterSet) => true,
            Some(KeyframeStart::FirstSlice) => {
                self.newest_keyframe.is_none_or(|newest| newest.timestamp != timestamp)
            }
            None => false,
        }
    }

    /// What is missing from before a keyframe that is whole is not asked for any more.
    pub(crate) fn forget_superseded(&mut self) {
        if self.missing.missing_count() > 0
            && let Some(NewestKeyframe { first, .. }) = self.newest_keyframe
            && self.history.frame_end(first).is_some()
        {
            self.missing.clear_before(first as u16);
        }
    }

    /// What a slot that waits can begin with at once: the newest keyframe and all since, where
    /// that is whole and costs no more than another keyframe would.
    pub(crate) fn beginning(&self, now: Instant) -> Option<Range<u64>> {
        let NewestKeyframe { first, at, .. } = self.newest_keyframe.filter(|_| !self.silenced)?;
        if now.saturating_duration_since(at) > KEYFRAME_LASTS {
            return None;
        }
        let end = self.history.frame_end(first)?;
        let all = self.history.since(first)?;
        let since = self.history.bytes(end + 1..all.end);
        (since <= self.history.bytes(first..end + 1)).then_some(all)
    }

    /// Whether slots may switch to an opaque track with the packet of this number: the first of a
    /// frame since a keyframe was asked for. Which frame that keyframe is cannot be seen; it is this
    /// one or one after it, so that it comes to who switched.
    pub(crate) fn begins_frame(&self, index: u64) -> bool {
        self.frame_end.is_some_and(|end| index == end + 1) && self.keyframe.is_asked()
    }

    /// What is kept of the speech that began lately.
    pub(crate) fn speech(&self) -> impl Iterator<Item = Past<'_>> {
        let kept = self.lately.as_ref().zip(self.voice.speech());
        kept.into_iter().flat_map(|(lately, speech)| lately.speech(speech))
    }

    /// Whether another shard gets its packets. Where the last half second is kept, they wait until
    /// that shard has asked: what comes there before it knows the track would be lost.
    pub(crate) fn export(&mut self, to: ShardIndex, on: bool) {
        if !on {
            self.exports.retain(|export| export.to != to);
            self.asked.retain(|shard| *shard != to);
        } else if !self.exports.iter().any(|export| export.to == to) {
            let asked = self.asked.extract_if(.., |shard| *shard == to).count() > 0;
            let kept = self.lately.is_some();
            self.exports.push(Export { to, begun: asked || !kept, replay: asked && kept });
        }
    }

    /// Another shard knows the track and asks for it; room and shard may come in any order.
    pub(crate) fn asked_by(&mut self, to: ShardIndex) {
        match self.exports.iter_mut().find(|export| export.to == to) {
            Some(export) if !export.begun => (export.begun, export.replay) = (true, true),
            Some(_) => {}
            None if self.asked.contains(&to) => {}
            None => self.asked.push(to),
        }
    }

    pub(crate) fn is_video(&self) -> bool {
        self.line.codec.kind() == Kind::Video
    }

    /// The sequence number with its rollovers: the track's own count, retransmissions included.
    pub(crate) fn unwrap(&mut self, sequence: u16) -> u64 {
        self.unwrapper.unwrap(sequence)
    }

    /// The SSRC that the publisher really uses. Where another was in use before, a new stream begins: its sequence numbers,
    /// timestamps and losses have nothing to do with the old one's. Slots and voices see that by its numbers, which lie far
    /// beyond all before.
    pub(crate) fn adopt(&mut self, ssrc: u32) {
        let rtx = self.ids.and_then(|ids| ids.rtx);
        if self.unwrapper.highest().is_some() {
            self.retired = self.ids.map(|ids| ids.ssrc);
            self.unwrapper.restart();
            self.missing.restart();
            (self.reference, self.reported, self.newest) = (None, None, None);
            self.keyframe.want();
        }
        self.ids = Some(StreamIds { ssrc, rtx });
        self.newest_keyframe = None;
        self.receive = ReceiveStream::new(ssrc, self.line.codec.clock_rate());
    }

    /// Whether this is the SSRC of the stream before the present one: a packet of it comes late.
    pub(crate) fn is_retired(&self, ssrc: u32) -> bool {
        self.retired == Some(ssrc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtp::negotiated::{Codec, Direction, Extensions};

    #[test]
    fn a_kept_voice_goes_to_another_shard_once_room_and_shard_have_said_so() {
        let there = ShardIndex(1);
        let begun = |track: &Track| track.exports.iter().any(|export| export.begun);
        let mut track = Track::new(TrackKey(1), Origin::Person(0), voice_line());
        track.export(there, true);
        assert!(begun(&track), "nothing is kept: at once");
        track.export(there, false);
        track.lately = Some(Lately::new());
        for asked_first in [true, false] {
            for step in 0..2 {
                assert!(!begun(&track), "one of them is missing");
                match (step == 0) == asked_first {
                    true => track.asked_by(there),
                    false => track.export(there, true),
                }
            }
            assert_eq!(track.exports, [Export { to: there, begun: true, replay: true }]);
            track.exports[0].replay = false;
            track.asked_by(there);
            track.export(there, true);
            assert!(!track.exports[0].replay, "told once");
            track.export(there, false);
        }
    }

    fn voice_line() -> Line {
        Line {
            mid: "a".into(),
            direction: Direction::Receive,
            codec: Codec::Opus,
            payload_type: 111,
            rtx_payload_type: None,
            red_payload_type: None,
            extensions: Extensions::default(),
            local: None,
            remote: Some(StreamIds { ssrc: 1, rtx: None }),
            nack: false,
            transport_cc: false,
        }
    }

    #[test]
    fn a_picture_of_h264_begins_once() {
        let line = Line { codec: Codec::H264, ..voice_line() };
        let mut track = Track::new(TrackKey(1), Origin::Person(0), line);
        let (sps, first, later) = ([0x67, 0x42], [0x65, 0x88], [0x65, 0x48]);
        let mut begins = |payload: &[u8], timestamp| {
            let begins = track.begins_h264(payload, timestamp);
            if begins {
                let at = Instant::now();
                track.newest_keyframe = Some(NewestKeyframe { first: 0, timestamp, at });
            }
            begins
        };
        assert!(begins(&sps, 0), "with its parameter sets");
        assert!(!begins(&first, 0) && !begins(&later, 0), "not again with its slices");
        assert!(begins(&first, 3000), "or with its first slice");
        assert!(!begins(&later, 3000) && !begins(&later, 6000), "never with a later one");
    }

    #[test]
    fn keyframes_are_asked_for_at_once_then_seldom_and_again_where_none_comes() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut wish = KeyframeWish::default();
        assert!(!wish.ask(at(0), false), "nobody wants one");
        wish.want();
        assert!(wish.ask(at(0), true));
        wish.want();
        assert!(!wish.ask(at(100), true), "throttled");
        assert!(wish.ask(at(300), true), "kept for later");
        assert!(!wish.ask(at(900), true));
        assert!(wish.ask(at(1000), true), "none came");
        wish.came();
        assert!(!wish.ask(at(5000), false));
    }
}
