//! Frames out of packets, and freezes out of frames.

use super::gaps::Longest;
use rtp::error::ParseError;
use rtp::extended::SequenceUnwrapper;
use rtp::negotiated::Codec;
use rtp::{h264, vp8};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use wire::quality::Outage;

/// Most sequence numbers that are looked at around a gap.
const MAX_SPAN: usize = 2048;
/// Packets from before the first one that may still come.
const FIRST_REORDER: u64 = 32;
/// Frames that the mean duration is taken over, and how many it needs (libwebrtc's
/// `VideoQualityObserver`; the window is W3C's).
const WINDOW: usize = 30;
const MIN_FRAMES: usize = 5;

/// What a packet says about its place in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    start: bool,
    end: bool,
    /// Carries nothing of a frame.
    padding: bool,
    keyframe: bool,
    size: Option<(u16, u16)>,
    timestamp: u32,
}

impl Part {
    /// Reads an RTP payload of H.264, or of VP8.
    pub(super) fn read(
        codec: Codec,
        payload: &[u8],
        marker: bool,
        timestamp: u32,
    ) -> Result<Self, ParseError> {
        if payload.is_empty() {
            let (start, end, keyframe, size) = (false, false, false, None);
            return Ok(Self { start, end, padding: true, keyframe, size, timestamp });
        }
        if codec == Codec::H264 {
            let start = h264::is_picture_start(payload);
            let keyframe = h264::keyframe_start(payload).is_some();
            let size = h264::size(payload);
            return Ok(Self { start, end: marker, padding: false, keyframe, size, timestamp });
        }
        let descriptor = vp8::Descriptor::parse(payload)?;
        let size = match descriptor.keyframe {
            true => vp8::frame_header(&payload[descriptor.header_len..])?.size,
            false => None,
        };
        Ok(Self {
            start: descriptor.start && descriptor.partition == 0,
            end: marker,
            padding: false,
            keyframe: descriptor.keyframe,
            size,
            timestamp,
        })
    }
}

/// A complete frame that a decoder could show: every frame since a keyframe was complete, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) keyframe: bool,
    /// Told by keyframes.
    pub(super) size: Option<(u16, u16)>,
    pub(super) timestamp: u32,
    /// Sequence number of its first packet.
    pub(super) first: u16,
}

/// Puts frames together, in order, gaps respected. A complete keyframe after a gap ends the wait
/// for what is missing, as it does in a decoder.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    unwrapper: SequenceUnwrapper,
    /// Parts from `next` on; None where nothing has come.
    parts: VecDeque<Option<Part>>,
    next: u64,
    /// How many parts from `next` on are there without a gap.
    frontier: usize,
    /// Whether the frame that `next` begins could be decoded.
    chain: bool,
    /// Sequence numbers of keyframes' first packets.
    key_starts: VecDeque<u64>,
    blocked_since: Option<Instant>,
}

impl Assembler {
    /// Since when nothing can be decoded for want of a packet or a keyframe.
    pub(super) fn blocked_since(&self) -> Option<Instant> {
        self.blocked_since
    }

    /// Takes a packet, also one that was sent again; appends the frames that it completes.
    pub(super) fn push(&mut self, sequence: u16, part: Part, now: Instant, out: &mut Vec<Frame>) {
        let fresh = self.unwrapper.highest().is_none();
        let sequence = self.unwrapper.unwrap(sequence);
        if fresh || (sequence >= self.next && sequence - self.next >= MAX_SPAN as u64) {
            self.restart(sequence);
        }
        let Some(at) = sequence.checked_sub(self.next).map(|at| at as usize) else { return };
        if at >= self.parts.len() {
            self.parts.resize(at + 1, None);
        }
        if self.parts[at].is_some() {
            return;
        }
        self.parts[at] = Some(part);
        if part.start && part.keyframe {
            self.key_starts.push_back(sequence);
        }
        let before = out.len();
        while self.take_frame(out) || self.jump() {}
        // What is missing now is another packet than before.
        if out.len() > before {
            self.blocked_since = None;
        }
        let gap = self.parts.len() > self.frontier;
        if self.chain && !gap {
            self.blocked_since = None;
        } else {
            self.blocked_since.get_or_insert(now);
        }
    }

    fn restart(&mut self, sequence: u64) {
        self.parts.clear();
        self.key_starts.clear();
        self.next = sequence.saturating_sub(FIRST_REORDER);
        self.frontier = 0;
        self.chain = false;
    }

    fn drop_front(&mut self, count: usize) {
        self.parts.drain(..count);
        self.next += count as u64;
        self.frontier = 0;
        let next = self.next;
        self.key_starts.retain(|start| *start >= next);
    }

    /// Takes the next frame where it is complete; true where it is worth trying again.
    fn take_frame(&mut self, out: &mut Vec<Frame>) -> bool {
        if !self.chain {
            return false;
        }
        while let Some(Some(part)) = self.parts.get(self.frontier) {
            let first = self.frontier == 0;
            if first && part.padding {
                self.drop_front(1);
                continue;
            }
            if first && !part.start {
                // The frame's first packet was never sent to us: what follows hangs in the air.
                self.chain = false;
                return true;
            }
            self.frontier += 1;
            if part.end {
                let Some(Some(start)) = self.parts.front() else { return false };
                out.push(Frame {
                    keyframe: start.keyframe,
                    size: start.size,
                    timestamp: start.timestamp,
                    first: self.next as u16,
                });
                self.drop_front(self.frontier);
                return true;
            }
        }
        false
    }

    /// Goes on at a complete keyframe, if there is one beyond a gap.
    fn jump(&mut self) -> bool {
        let blocked = !self.chain || self.parts.len() > self.frontier;
        let Some(start) = self.key_starts.iter().copied().filter(|_| blocked).find(|start| {
            let from = (start - self.next) as usize;
            let parts = self.parts.iter().skip(from);
            parts.map_while(|part| *part).any(|part| part.end)
        }) else {
            return false;
        };
        if self.chain && start == self.next {
            return false;
        }
        self.drop_front((start - self.next) as usize);
        self.chain = true;
        true
    }
}

/// What the frames of one track were in an interval (W3C webrtc-stats).
#[derive(Debug, Default)]
pub(super) struct FrameStats {
    pub(super) frames: u64,
    pub(super) freezes: u64,
    freeze: Duration,
    between: Duration,
    last: Option<Instant>,
    /// Durations of the last frames.
    window: VecDeque<Duration>,
    /// Since when the picture stands still, and for how long it did at most.
    still_since: Option<Instant>,
    longest: Longest,
}

impl FrameStats {
    /// A frame was shown.
    pub(super) fn push(&mut self, now: Instant) {
        self.frames += 1;
        self.note_still(now);
        self.still_since = Some(now);
        let Some(last) = self.last.replace(now) else { return };
        let duration = now.saturating_duration_since(last);
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(duration);
        self.between += duration;
        if self.window.len() >= MIN_FRAMES {
            let mean = self.window.iter().sum::<Duration>() / self.window.len() as u32;
            if duration >= (mean * 3).max(mean + Duration::from_millis(150)) {
                self.freezes += 1;
                self.freeze += duration;
            }
        }
    }

    pub(super) fn last(&self) -> Option<Instant> {
        self.last
    }

    /// The longest time without a new frame in the interval that ends now. Before the first one and while the picture is
    /// paused, none is due.
    pub(super) fn take_longest(&mut self, now: Instant) -> Option<Outage> {
        self.note_still(now);
        self.longest.take(now)
    }

    fn note_still(&mut self, now: Instant) {
        if let Some(since) = self.still_since {
            self.longest.note(now.saturating_duration_since(since), now);
        }
    }

    /// Δ freeze duration / Δ inter-frame delay; None where no frame followed another.
    pub(super) fn freeze_ratio(&self) -> Option<f64> {
        let between = self.between.as_secs_f64();
        (between > 0.0).then(|| self.freeze.as_secs_f64() / between)
    }

    /// The picture is paused, or flows again: the next frame does not follow the last one.
    pub(super) fn break_off(&mut self, paused: bool, now: Instant) {
        self.note_still(now);
        self.still_since = (!paused).then_some(now);
        self.last = None;
    }

    /// Begins a new interval; the window goes on.
    pub(super) fn reset_interval(&mut self) {
        self.frames = 0;
        self.freezes = 0;
        self.freeze = Duration::ZERO;
        self.between = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: bool, end: bool, keyframe: bool, timestamp: u32) -> Part {
        let size = keyframe.then_some((640, 360));
        Part { start, end, padding: false, keyframe: keyframe && start, size, timestamp }
    }

    /// Packets of `frames` frames of three, a keyframe every tenth; sequence numbers from 65530.
    fn stream(frames: u32) -> Vec<(u16, Part)> {
        (0..frames * 3)
            .map(|nth| {
                let (frame, at) = (nth / 3, nth % 3);
                let part = part(at == 0, at == 2, frame % 10 == 0, frame);
                (65_530_u16.wrapping_add(nth as u16), part)
            })
            .collect()
    }

    fn frames_of(packets: impl IntoIterator<Item = (u16, Part)>) -> (Vec<u32>, Assembler) {
        let now = Instant::now();
        let mut assembler = Assembler::default();
        let mut frames = Vec::new();
        for (sequence, part) in packets {
            assembler.push(sequence, part, now, &mut frames);
        }
        (frames.iter().map(|frame| frame.timestamp).collect(), assembler)
    }

    #[test]
    fn whole_streams_give_every_frame_in_order() {
        let (frames, assembler) = frames_of(stream(40));
        assert_eq!(frames, (0..40).collect::<Vec<_>>());
        assert_eq!(assembler.blocked_since(), None);
        // Neighbours swapped, the very first ones too, and every packet twice.
        let mut packets = stream(40);
        packets.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
        let twice = packets.iter().flat_map(|packet| [*packet, *packet]);
        assert_eq!(frames_of(twice).0, (0..40).collect::<Vec<_>>());
    }

    #[test]
    fn a_gap_holds_until_it_is_filled_or_a_keyframe_is_complete() {
        let mut packets = stream(30);
        let missing = packets.remove(4); // of frame 1
        let (frames, assembler) = frames_of(packets[..20].iter().copied());
        assert_eq!(frames, [0]);
        assert!(assembler.blocked_since().is_some());
        // Repaired late: all that waited come at once.
        let mut repaired = packets[..20].to_vec();
        repaired.push(missing);
        let (frames, assembler) = frames_of(repaired);
        assert_eq!(frames, (0..7).collect::<Vec<_>>());
        assert_eq!(assembler.blocked_since(), None);
        // Never repaired: the next keyframe goes on, 1 to 9 are not shown.
        let (frames, assembler) = frames_of(packets.iter().copied());
        assert_eq!(frames, [0].into_iter().chain(10..30).collect::<Vec<_>>());
        assert_eq!(assembler.blocked_since(), None);
    }

    #[test]
    fn a_gap_counts_from_the_last_frame_that_was_whole() {
        let packets = stream(30);
        let (start, mut frames) = (Instant::now(), Vec::new());
        let at = |ms| start + Duration::from_millis(ms);
        let mut assembler = Assembler::default();
        let lost = [4, 10];
        for (nth, (sequence, part)) in packets[..15].iter().enumerate() {
            if !lost.contains(&nth) {
                assembler.push(*sequence, *part, at(nth as u64), &mut frames);
            }
        }
        assert_eq!((frames.len(), assembler.blocked_since()), (1, Some(at(5))));
        assembler.push(packets[4].0, packets[4].1, at(100), &mut frames);
        assert_eq!((frames.len(), assembler.blocked_since()), (3, Some(at(100))));
        assembler.push(packets[10].0, packets[10].1, at(120), &mut frames);
        assert_eq!((frames.len(), assembler.blocked_since()), (5, None));
    }

    #[test]
    fn nothing_is_shown_before_a_keyframe_and_after_a_jump() {
        let packets = stream(30);
        let (frames, _) = frames_of(packets[3..].iter().copied());
        assert_eq!(frames, (10..30).collect::<Vec<_>>());
        let far = packets[33..].iter().map(|(s, p)| (s.wrapping_add(10_000), *p));
        let (frames, _) = frames_of(packets[..9].iter().copied().chain(far));
        assert_eq!(frames, [0, 1, 2].into_iter().chain(20..30).collect::<Vec<_>>());
    }

    #[test]
    fn padding_belongs_to_no_frame() {
        let padding = Part::read(Codec::Vp8, &[], false, 0).unwrap();
        let mut packets = stream(20);
        for at in [33, 12] {
            packets.insert(at, (0, padding));
        }
        let numbered = packets.iter().enumerate().map(|(nth, (_, part))| (nth as u16, *part));
        let (frames, assembler) = frames_of(numbered);
        assert_eq!(frames, (0..20).collect::<Vec<_>>());
        assert_eq!(assembler.blocked_since(), None);
    }

    #[test]
    fn freezes_follow_the_rule() {
        let start = Instant::now();
        let mut stats = FrameStats::default();
        let mut at = start;
        for _ in 0..40 {
            stats.push(at);
            at += Duration::from_millis(50);
        }
        assert_eq!((stats.frames, stats.freezes, stats.freeze_ratio()), (40, 0, Some(0.0)));
        // 50 + 150 ms is not reached, though the mean of the last 30 holds the long one as well.
        stats.push(at + Duration::from_millis(130));
        assert_eq!(stats.freezes, 0);
        at += Duration::from_millis(130 + 250);
        stats.push(at);
        assert_eq!(stats.freezes, 1);
        stats.reset_interval();
        at += Duration::from_millis(300);
        stats.push(at);
        at += Duration::from_millis(100);
        stats.push(at);
        assert_eq!(stats.freezes, 1);
        assert!((stats.freeze_ratio().unwrap() - 0.75).abs() < 1e-9);
        // A stream that is dead shows nothing but the time since its last frame.
        stats.reset_interval();
        assert_eq!((stats.freezes, stats.freeze_ratio(), stats.last()), (0, None, Some(at)));
    }

    #[test]
    fn payloads_are_read() {
        let frame = [0x10, 0, 0, 0x9d, 1, 0x2a, 0x80, 2, 0x68, 1, 0, 0];
        let chunk = vp8::packetize(&frame, 1000, 1, 1).next().unwrap();
        let mut payload = [0; 100];
        let len = chunk.write(&mut payload).unwrap();
        let part = Part::read(Codec::Vp8, &payload[..len], true, 9).unwrap();
        assert_eq!((part.start, part.end, part.keyframe), (true, true, true));
        assert_eq!(part.size, Some((640, 360)));
        assert!(Part::read(Codec::Vp8, &payload[..len - 5], true, 9).is_err());
    }
}
