//! What one track in a slot gave: its figures since the last sample, and the row that they make.

use super::frames::FrameStats;
use super::gaps::Gaps;
use super::marks::Outcome;
use rtp::negotiated::{Kind, Line};
use rtp::report::Interval;
use std::time::{Duration, Instant};
use wire::quality::{HeardMark, Outage, ReceivedTrack};
use wire::room::MediaKind;

/// Packets of an interval whose time under way is kept.
const MAX_TRANSITS: usize = 4096;
/// What a packet of sound lasts.
const FRAME_MS: f64 = 20.0;
/// Of a packet of sound: what it lasts, and what Opus looks ahead.
const PACKET_MS: f64 = FRAME_MS + 6.5;
/// A jitter buffer lets so many percent of the packets come in time.
const IN_TIME: f64 = 97.0;

/// How many packets came too late for a buffer that waits for [`IN_TIME`], by their times under way (ms, sorted). The buffer
/// holds whole packets.
fn too_late(transits_ms: &[f64]) -> u64 {
    let Some((first, slowest)) =
        transits_ms.first().zip(crate::base::percentile(transits_ms, IN_TIME))
    else {
        return 0;
    };
    let played_ms = first + FRAME_MS * ((slowest - first) / FRAME_MS).ceil().max(1.0);
    transits_ms.iter().filter(|transit| **transit > played_ms).count() as u64
}

/// A track in a slot.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) participant: String,
    pub(super) track: String,
    pub(super) since: Instant,
    pub(super) until: Option<Instant>,
    interval: Interval,
    total: (u64, u64),
    pub(super) frames: FrameStats,
    pub(super) last_packet: Option<Instant>,
    pub(super) gaps: Gaps,
    /// Since when its picture is paused, and how long it was before in this interval.
    paused: Option<Instant>,
    paused_for: Duration,
    pub(super) keyframe_requests: u64,
    /// Packets that came as retransmissions.
    pub(super) retransmitted: u64,
    /// Packets that did not come, but whose sound came as a copy in a later one.
    pub(super) recovered: u64,
    /// Height of the picture that was shown last, and how often it changed in the interval.
    pub(super) height: Option<u16>,
    pub(super) switches: u64,
    /// How long packets of the interval were under way, in ms.
    pub(super) transits_ms: Vec<f32>,
    /// Marks of a mix that should have been found.
    marks: u64,
    /// Those that were.
    heard: Vec<HeardMark>,
}

impl Row {
    pub(super) fn new(participant: String, track: String, now: Instant) -> Self {
        Self {
            participant,
            track,
            since: now,
            until: None,
            interval: Interval::default(),
            total: (0, 0),
            frames: FrameStats::default(),
            last_packet: None,
            gaps: Gaps::default(),
            paused: None,
            paused_for: Duration::ZERO,
            keyframe_requests: 0,
            retransmitted: 0,
            recovered: 0,
            height: None,
            switches: 0,
            transits_ms: Vec::new(),
            marks: 0,
            heard: Vec::new(),
        }
    }

    /// The server says that the picture is paused, or flows again.
    pub(super) fn pause(&mut self, paused: bool, now: Instant) {
        if paused != self.paused.is_some() {
            self.frames.break_off(paused, now);
        }
        if paused {
            self.paused.get_or_insert(now);
        } else if let Some(since) = self.paused.take() {
            self.paused_for += now.saturating_duration_since(since);
        }
    }

    /// How long it was paused in the interval that ends now.
    fn take_paused(&mut self, now: Instant) -> Duration {
        let going_on = self.paused.replace(now).map(|since| now.saturating_duration_since(since));
        if going_on.is_none() {
            self.paused = None;
        }
        std::mem::take(&mut self.paused_for) + going_on.unwrap_or_default()
    }

    /// The longest time in the interval in which nothing was there that was due. The row ended at `until`, its interval ends now.
    fn take_outage(&mut self, video: bool, until: Instant, now: Instant) -> Option<Outage> {
        let longest = match video {
            true => self.frames.take_longest(until),
            false => self.gaps.take(until),
        };
        let ended_ms = 1e3 * now.saturating_duration_since(until).as_secs_f64();
        longest.map(|one| Outage { ago_ms: one.ago_ms + ended_ms, ..one })
    }

    /// A frame is shown; of this height, if it says so. Whether that is another one than before.
    pub(super) fn show(&mut self, height: Option<u16>, now: Instant) -> bool {
        self.frames.push(now);
        let Some(height) = height else { return false };
        let switched = self.height.replace(height).is_some_and(|before| before != height);
        self.switches += u64::from(switched);
        switched
    }

    pub(super) fn absorb(&mut self, more: Interval) {
        self.interval.expected += more.expected;
        self.interval.received += more.received;
        self.interval.lost += more.lost;
        self.interval.bytes += more.bytes;
        self.interval.jitter_ms = more.jitter_ms.or(self.interval.jitter_ms);
        self.total.0 += more.received;
        self.total.1 += more.lost;
    }

    /// How long a packet was under way.
    pub(super) fn note_transit(&mut self, transit: Duration) {
        if self.transits_ms.len() < MAX_TRANSITS {
            self.transits_ms.push((transit.as_secs_f64() * 1000.0) as f32);
        }
    }

    /// What became of marks in a mix.
    pub(super) fn note_marks(&mut self, marks: &[Outcome]) {
        self.marks += marks.len() as u64;
        for Outcome { speaker, said, way } in marks {
            let Some(way) = way else { continue };
            self.note_transit(*way);
            if self.heard.len() < MAX_TRANSITS {
                let ms = |time: &Duration| time.as_secs_f64() * 1000.0;
                let (speaker, said_ms) = (*speaker, ms(said));
                self.heard.push(HeardMark { speaker, said_ms, transit_ms: ms(way) });
            }
        }
    }

    /// What the interval that ends now had, and begins the next.
    ///
    /// `counts_frames`: whole frames are looked for, not packets alone. `size`: of the picture, if it is known.
    pub(super) fn take(
        &mut self,
        line: &Line,
        counts_frames: bool,
        size: Option<(u16, u16)>,
        (begin, now): (Instant, Instant),
    ) -> ReceivedTrack {
        let until = self.until.unwrap_or(now);
        let seconds =
            until.saturating_duration_since(begin.max(self.since)).as_secs_f64().max(1e-3);
        let whole = now.saturating_duration_since(begin).as_secs_f64();
        let mapped = (seconds / whole.max(1e-3)).min(1.0);
        let interval = std::mem::take(&mut self.interval);
        let video = line.codec.kind() == Kind::Video;
        let outage = self.take_outage(video, until, now);
        let paused = self.take_paused(until).as_secs_f64() / seconds;
        let shown = (seconds * (1.0 - paused)).max(0.0);
        let last = if counts_frames { self.frames.last() } else { self.last_packet };
        let since_last = until.saturating_duration_since(last.unwrap_or(self.since));
        let frames = counts_frames.then_some(&self.frames);
        let mut transits: Vec<f64> = self.transits_ms.drain(..).map(f64::from).collect();
        transits.sort_by(f64::total_cmp);
        let (found, marks) = (transits.len() as u64, std::mem::take(&mut self.marks));
        let marked = interval.received.min(MAX_TRANSITS as u64);
        let expected = if marks > 0 || found == 0 { marks } else { marked };
        // A mark in a mix has been through the codecs already.
        let ahead_ms = if marks > 0 { FRAME_MS } else { PACKET_MS };
        let transit = |percent| crate::base::percentile(&transits, percent);
        // A buffer that waits for the slowest packets in time holds the others back for so long.
        let held_ms = transit(IN_TIME).zip(transit(50.0)).map(|(slowest, usual)| slowest - usual);
        let received = ReceivedTrack {
            participant: self.participant.clone(),
            track: self.track.clone(),
            kind: if video { MediaKind::Video } else { MediaKind::Audio },
            codec: Some(line.codec.as_str().to_owned()),
            packets_received: interval.received,
            packets_lost: interval.lost,
            loss_pct: interval.loss_pct(),
            total_packets_received: Some(self.total.0),
            total_packets_lost: Some(self.total.1),
            jitter_ms: interval.jitter_ms,
            packets_discarded: (!video && found > 0).then(|| too_late(&transits)),
            gap_ms: (!video && interval.received > 0)
                .then(|| outage.map_or(0.0, |outage| outage.ms)),
            outage,
            mapped_ratio: Some(mapped),
            jitter_buffer_ms: held_ms.filter(|_| !video),
            transit_ms: transit(50.0),
            transit_p95_ms: transit(95.0),
            marks_expected: (expected > 0).then_some(expected),
            marks_found: (expected > 0).then_some(found),
            marks: std::mem::take(&mut self.heard),
            // What a buffer would hold back is as long as the slowest packets that it waits for.
            camera_to_screen_ms: None,
            mouth_to_ear_ms: transit(IN_TIME).filter(|_| !video).map(|slowest| ahead_ms + slowest),
            bitrate_kbps: interval.bytes as f64 * 8.0 / seconds / 1000.0,
            concealed_pct: None,
            silent_concealed_pct: None,
            audio_level: None,
            frames_per_second: frames
                .filter(|frames| shown > 0.1 || frames.frames > 0)
                .map(|frames| frames.frames as f64 / shown.max(0.1)),
            paused_ratio: video.then_some(paused.min(1.0)),
            frame_width: size.map(|size| u32::from(size.0)),
            frame_height: size.map(|size| u32::from(size.1)),
            freezes: frames.map(|frames| frames.freezes),
            freeze_ratio: frames.and_then(FrameStats::freeze_ratio),
            since_last_ms: Some(since_last.as_secs_f64() * 1000.0),
            keyframe_requests: video.then_some(self.keyframe_requests),
            packets_recovered: line.red_payload_type.map(|_| self.recovered),
            retransmitted_packets_received: video.then_some(self.retransmitted),
            resolution_switches: counts_frames.then_some(self.switches),
            mos_lq: None,
            mos_cq: None,
            mos_sdk: None,
        };
        self.frames.reset_interval();
        (self.keyframe_requests, self.retransmitted, self.switches, self.recovered) = (0, 0, 0, 0);
        received
    }
}
