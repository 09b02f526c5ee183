//! When which media is sent: speech, silence or a tone every 20 ms, frames at the clip's rate, their packets
//! spread.

use super::fixtures::{Clip, OpusPacket, Voice};
use super::marks::Marks;
use super::packets::{Ids, Piece, cut};
use super::talk::Talk;
use super::tones::Tone;
use crate::base::SplitMix;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Duration of an Opus packet.
const PACKET_TIME: Duration = Duration::from_millis(20);
/// A source that is this late skips what it missed instead of catching up.
const LATE: Duration = Duration::from_millis(200);
/// Shortest time between two keyframes that were asked for.
pub(super) const KEYFRAME_SPACING: Duration = Duration::from_millis(300);
/// No further frame goes out, but a keyframe, where packets of the ones before wait for longer.
const MOST_WAIT: Duration = Duration::from_millis(400);
/// Time between two bursts of a frame's packets.
const SPREAD: Duration = Duration::from_millis(1);

/// RTP timestamps of a stream: wall clock from a random start.
#[derive(Debug, Clone, Copy)]
struct Timeline {
    start: Instant,
    offset: u32,
    clock_rate: u32,
}

impl Timeline {
    fn at(&self, time: Instant) -> u32 {
        let passed = time.saturating_duration_since(self.start).as_nanos();
        let units = passed * u128::from(self.clock_rate) / 1_000_000_000;
        self.offset.wrapping_add(units as u32)
    }
}

/// What is said.
#[derive(Debug)]
enum Said {
    /// Speech in a loop, and the packet that comes next.
    Speech(Arc<Voice>, usize),
    /// Speech, with marks in it.
    Marked(Arc<Voice>, usize, Marks),
    /// A tone, with whether it is loud in the plan's period that was last looked at.
    Tone(Tone, Option<(u64, bool)>),
}

/// A packet every 20 ms.
#[derive(Debug)]
pub(super) struct AudioSource {
    said: Said,
    /// Where it speaks for a part of the time only.
    talk: Option<Talk>,
    timeline: Timeline,
    next: Instant,
}

impl AudioSource {
    pub(super) fn speech(voice: Arc<Voice>, random: &mut SplitMix, now: Instant) -> Self {
        let position = random.below(voice.packets.len() as u64) as usize;
        Self::new(Said::Speech(voice, position), random, now)
    }

    pub(super) fn marked(
        voice: Arc<Voice>,
        marks: Marks,
        random: &mut SplitMix,
        now: Instant,
    ) -> Self {
        let position = random.below(voice.packets.len() as u64) as usize;
        Self::new(Said::Marked(voice, position, marks), random, now)
    }

    pub(super) fn tone(tone: Tone, random: &mut SplitMix, now: Instant) -> Self {
        Self::new(Said::Tone(tone, None), random, now)
    }

    fn new(said: Said, random: &mut SplitMix, now: Instant) -> Self {
        let phase = Duration::from_micros(random.below(PACKET_TIME.as_micros() as u64));
        let next = now + phase;
        let timeline = Timeline { start: next, offset: random.next() as u32, clock_rate: 48_000 };
        Self { said, talk: None, timeline, next }
    }

    /// The same, for one who speaks for a part of the time only.
    pub(super) fn with_talk(self, talk: Option<Talk>) -> Self {
        Self { talk, ..self }
    }

    pub(super) fn next_due(&self) -> Instant {
        self.next
    }

    /// The RTP timestamp of what is said at `time`.
    pub(super) fn timestamp_at(&self, time: Instant) -> u32 {
        self.timeline.at(time)
    }

    /// Reads what is likely said next, ahead of [`Self::pop`].
    pub(super) fn warm(&self) -> u64 {
        match &self.said {
            Said::Speech(voice, position) | Said::Marked(voice, position, _) => {
                let packet = &voice.packets[*position % voice.packets.len()];
                packet.data.iter().step_by(64).fold(0, |sum, byte| sum + u64::from(*byte))
            }
            Said::Tone(..) => 0,
        }
    }

    /// The next packet, with its timestamp, where it is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(u32, &OpusPacket)> {
        if self.next > now {
            return None;
        }
        let late = now.saturating_duration_since(self.next);
        let mut missed = 0;
        if late > LATE {
            missed = (late.as_nanos() / PACKET_TIME.as_nanos()) as u32;
            self.next += PACKET_TIME * missed;
        }
        let at = self.next;
        self.next += PACKET_TIME;
        let silence = self.talk.as_mut().and_then(|talk| match talk.speaks(at) {
            true => None,
            false => Some(&*talk.silence),
        });
        let packet = match &mut self.said {
            Said::Speech(voice, position) => {
                let now = (*position + missed as usize) % voice.packets.len();
                *position = now + 1;
                silence.unwrap_or(&voice.packets[now])
            }
            Said::Marked(voice, position, marks) => {
                let place = (*position + missed as usize) % voice.packets.len();
                *position = place + 1;
                // A mark is said in silence too: the delay is measured all the time.
                marks.packet(at).or(silence).unwrap_or(&voice.packets[place])
            }
            Said::Tone(tone, known) => {
                let (plan, time) = (tone.role.plan, tone.at(at));
                let period = plan.period(time);
                let loud = match *known {
                    Some((last, loud)) if last == period => loud,
                    _ => plan.loud_in(period).contains(&tone.role.place),
                };
                *known = Some((period, loud));
                tone.voice.packet(time, loud)
            }
        };
        Some((self.timeline.at(at), packet))
    }
}

/// Time between two frames of a clip.
fn interval(clip: &Clip) -> Duration {
    let (rate, scale) = clip.rate;
    Duration::from_secs(1) * scale / rate.max(1)
}

/// Where within a frame's time its source begins: not all at once.
fn phase(clip: &Clip, random: &mut SplitMix) -> Duration {
    Duration::from_micros(random.below(interval(clip).as_micros() as u64))
}

/// A clip in a loop. When a keyframe is asked for, it jumps to the next one, or sends one of those that the clip has for that.
#[derive(Debug)]
pub(super) struct VideoSource {
    clip: Arc<Clip>,
    position: usize,
    timeline: Timeline,
    interval: Duration,
    next: Instant,
    ids: Ids,
    queue: VecDeque<(Instant, Piece)>,
    last_keyframe: Option<Instant>,
    keyframe_wanted: bool,
    /// Which of the clip's own keyframes goes out in place of the next frame.
    asked: Option<usize>,
    /// Which of the frames that refine that keyframe is next; as many as there are: none.
    refining: usize,
    /// Nobody sees it: no frame begins.
    rests: bool,
}

impl VideoSource {
    pub(super) fn new(clip: Arc<Clip>, random: &mut SplitMix, now: Instant) -> Self {
        let begin = now + phase(&clip, random);
        Self::beginning(clip, random, begin)
    }

    /// What a camera shows in so many layers, the smallest picture first: all begin at once.
    pub(super) fn of_layers(
        clip: &Arc<Clip>,
        layers: usize,
        random: &mut SplitMix,
        now: Instant,
    ) -> Vec<Self> {
        let begin = now + phase(clip, random);
        let clips = clip.layers().take(layers);
        clips.map(|clip| Self::beginning(clip.clone(), random, begin)).collect()
    }

    fn beginning(clip: Arc<Clip>, random: &mut SplitMix, next: Instant) -> Self {
        let from = random.below(clip.frames.len() as u64) as usize;
        let asked = !clip.keyframes.is_empty();
        Self {
            position: if asked { from } else { clip.keyframe_from(from) },
            interval: interval(&clip),
            clip,
            timeline: Timeline { start: next, offset: random.next() as u32, clock_rate: 90_000 },
            next,
            ids: Ids {
                picture_id: random.next() as u16 & 0x7FFF,
                tl0_picture_index: random.next() as u8,
                keyframes: 0,
                since_keyframe: 0,
            },
            queue: VecDeque::new(),
            last_keyframe: None,
            keyframe_wanted: asked,
            asked: None,
            refining: usize::MAX,
            rests: false,
        }
    }

    pub(super) fn clip(&self) -> &Arc<Clip> {
        &self.clip
    }

    /// Keyframes begun, in all.
    pub(super) fn keyframes(&self) -> u64 {
        self.ids.keyframes
    }

    /// Someone cannot decode: the next keyframe goes out at once, or as soon as the last one is
    /// [`KEYFRAME_SPACING`] ago.
    pub(super) fn want_keyframe(&mut self) {
        self.keyframe_wanted = true;
    }

    /// The RTP timestamp of what is shown at `time`.
    pub(super) fn timestamp_at(&self, time: Instant) -> u32 {
        self.timeline.at(time)
    }

    /// Begins no more frames, or again some, with a keyframe first.
    pub(super) fn rest(&mut self, rests: bool) {
        if self.rests && !rests {
            // At once, however short the rest was: who shows the picture again has nothing to go on with.
            self.keyframe_wanted = true;
            self.last_keyframe = None;
            self.next = self.timeline.start;
        }
        self.rests = rests;
    }

    fn keyframe_due(&self) -> Option<Instant> {
        if !self.keyframe_wanted {
            return None;
        }
        let Some(last) = self.last_keyframe else { return Some(self.next) };
        // What is left of the one before goes first.
        let sent = self.queue.back().map_or(last, |(due, _)| *due);
        Some(sent.max(last + KEYFRAME_SPACING))
    }

    /// When there is a packet to send next; none while it rests.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let frame = self.keyframe_due().map_or(self.next, |due| due.min(self.next));
        let frame = (!self.rests).then_some(frame);
        self.queue.front().map(|(due, _)| *due).into_iter().chain(frame).min()
    }

    /// The next packet that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Piece> {
        loop {
            if self.queue.front().is_some_and(|(due, _)| *due <= now) {
                return self.queue.pop_front().map(|(_, piece)| piece);
            }
            if self.rests {
                return None;
            }
            if self.keyframe_due().is_some_and(|due| due <= now) {
                match self.clip.keyframes.len() as u64 {
                    0 => self.position = self.clip.keyframe_from(self.position),
                    count => {
                        let from = u64::from(self.timeline.offset);
                        self.asked = Some(((from + self.ids.keyframes) % count) as usize);
                    }
                }
                self.begin_frame(now);
            } else if self.next <= now {
                let late = now.saturating_duration_since(self.next);
                if late > LATE {
                    self.next +=
                        self.interval * (late.as_nanos() / self.interval.as_nanos()) as u32;
                }
                self.begin_frame(self.next);
            } else {
                return None;
            }
        }
    }

    /// Which frame goes out: a keyframe that was asked for, or what refines it, or the next one of the loop.
    fn next_frame(&mut self) -> usize {
        let Clip { frames, keyframes, refining, .. } = &*self.clip;
        if let Some(nth) = self.asked.take() {
            self.refining = 0;
            return frames.len() + nth;
        }
        let Some(frame) = refining.get(self.refining) else { return self.position };
        let nth = self.refining;
        self.refining += 1;
        let larger = frame.data.len() > frames[self.position].data.len();
        if larger { frames.len() + keyframes.len() + nth } else { self.position }
    }

    /// Queues the packets of the next frame, captured at `at`.
    fn begin_frame(&mut self, at: Instant) {
        let index = self.next_frame();
        let frame = self.clip.frame(index);
        self.position = (self.position + 1) % self.clip.frames.len();
        self.next = at + self.interval;
        // As an encoder does, it leaves out frames while many packets wait.
        let waits = self.queue.back().is_some_and(|(due, _)| *due > at + MOST_WAIT);
        if frame.data.is_empty() || (waits && !frame.keyframe) {
            return;
        }
        if frame.keyframe {
            self.last_keyframe = Some(at);
            self.keyframe_wanted = false;
        }
        self.ids.next(frame.keyframe);
        let timestamp = self.timeline.at(at);
        let count = frame.data.len().div_ceil(self.clip.max_payload) as u32;
        let bursts = count.div_ceil(self.clip.burst);
        let step = match self.clip.pace_kbps {
            None => SPREAD.min(self.interval / 2 / bursts),
            Some(kbps) => {
                let micros = frame.data.len() as u64 * 8000 / u64::from(kbps.max(1));
                Duration::from_micros(micros) / bursts
            }
        };
        // What is left of the frame before goes first.
        let gap = self.clip.pace_kbps.map_or(Duration::ZERO, |_| step);
        let begin = self.queue.back().map_or(at, |(due, _)| at.max(*due + gap));
        for (nth, piece) in (0_u32..).zip(cut(&self.clip, index, self.ids, timestamp)) {
            self.queue.push_back((begin + step * (nth / self.clip.burst), piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames that leave in so many milliseconds: when their last packet did, their bytes, and whether they are keyframes.
    fn frames(video: &mut VideoSource, from: Instant, ms: u64) -> Vec<(u64, usize, bool)> {
        let (mut frames, mut bytes) = (Vec::new(), 0);
        for at in 0..ms {
            while let Some(piece) = video.pop(from + Duration::from_millis(at)) {
                bytes += piece.payload(&video.clip).1.len();
                if piece.last {
                    frames.push((at, bytes, video.clip.frame(piece.frame as usize).keyframe));
                    bytes = 0;
                }
            }
        }
        frames
    }

    #[test]
    fn a_keyframe_that_is_asked_for_is_one_of_the_clips_own_and_frames_go_on_behind_it() {
        let sizes: Vec<(usize, bool)> = (0..60).map(|nth| (1000 + nth, false)).collect();
        let clip = Clip::of_sizes(&sizes, &[60_000, 70_000], 30, (1280, 720));
        let clip = Arc::new(Clip { pace_kbps: Some(5000), ..clip });
        let (now, mut random) = (Instant::now(), SplitMix(5));
        let mut video = VideoSource::new(clip, &mut random, now);
        let begun = frames(&mut video, now, 2000);
        let keyframes: Vec<_> = begun.iter().filter(|frame| frame.2).collect();
        assert_eq!((keyframes.len(), begun[0].2), (1, true));
        // At 5 Mbit/s a keyframe takes about 100 ms, and what comes behind it waits for its turn.
        assert!((90..150).contains(&begun[0].0), "{begun:?}");
        assert!(begun[2..].windows(2).all(|pair| pair[1].1 == 1000 + (pair[0].1 - 999) % 60));
        video.want_keyframe();
        let later = frames(&mut video, now + Duration::from_millis(2000), 500);
        let asked = later.iter().position(|frame| frame.2).unwrap();
        assert!(asked <= 1 && later[asked].1 != begun[0].1, "{later:?}");
        assert!(later[asked].1 >= 60_000 && later.len() > 10);
        assert!(later[asked + 1..].iter().all(|frame| !frame.2 && frame.1 < 2000));
    }

    #[test]
    fn a_keyframe_that_was_asked_for_is_refined_by_larger_frames() {
        let clip = Clip::of_sizes(&[(1000, false); 9], &[60_000], 10, (1280, 720));
        let clip = Arc::new(clip.refined_by(&[30_000, 500, 20_000]));
        let (now, mut random) = (Instant::now(), SplitMix(5));
        let mut video = VideoSource::new(clip, &mut random, now);
        for from in [0, 2000] {
            video.want_keyframe();
            let sent = frames(&mut video, now + Duration::from_millis(from), 2000);
            let first = sent.iter().position(|frame| frame.2).unwrap();
            let sizes: Vec<usize> = sent[first..].iter().map(|frame| frame.1).collect();
            assert_eq!(sizes[..6], [60_000, 30_000, 1000, 20_000, 1000, 1000], "{from}");
        }
    }

    #[test]
    fn frames_that_the_encoder_left_out_are_not_sent_and_few_wait() {
        let clip = Clip::of_sizes(&[(0, false), (20_000, false)], &[20_000], 10, (640, 360));
        let (now, mut random) = (Instant::now(), SplitMix(5));
        let mut video = VideoSource::new(Arc::new(clip.clone()), &mut random, now);
        let sent = frames(&mut video, now, 4000).len();
        assert!((20..=21).contains(&sent), "half of 40, and a keyframe: {sent}");
        // 0.8 Mbit/s of pictures at a pace of 0.4: half of them go, and what waits stays below a second.
        let clip = Arc::new(Clip { pace_kbps: Some(400), ..clip });
        let mut video = VideoSource::new(clip, &mut random, now);
        let sent = frames(&mut video, now, 8000);
        assert!((17..=21).contains(&sent.len()), "{sent:?}");
        let last = video.queue.back().unwrap().0;
        assert!(last < now + Duration::from_millis(9000));
    }
}
