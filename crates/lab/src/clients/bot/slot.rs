//! One slot: a stream that the server fills with the tracks of others, one after the other, and
//! the statistics of each of them.

use super::frames::{Assembler, Frame, Part};
use super::marks::Outcome;
use super::row::Row;
use crate::record::MIX;
use rtp::extended::{SequenceUnwrapper, timestamp_diff};
use rtp::nack::NackGenerator;
use rtp::negotiated::{Codec, Kind, Line};
use rtp::red::Came;
use rtp::report::ReceiveStream;
use rtp::rtcp::ReportBlock;
use std::time::{Duration, Instant};
use wire::quality::ReceivedTrack;

/// A keyframe of a new track is on its way by itself: the server asks for it at the switch.
const ASK_AFTER_SWITCH: Duration = Duration::from_millis(100);
/// A gap that nothing can close is waited for so long: a packet may be late…
const ASK_AFTER_GAP: Duration = Duration::from_millis(200);
/// …and one that retransmissions can close so long. (libwebrtc waits 3 s, or until it gives up a packet.)
const ASK_AFTER_REPAIR: Duration = Duration::from_secs(1);
/// Wait before asking again, doubled each time up to the bound.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(1));
/// A keyframe this fresh may be the new track's, where the switch has no timestamp.
const FRESH_KEYFRAME: Duration = Duration::from_millis(500);
/// A switch whose first packet does not come is taken as done after this time.
const SWITCH_LIMIT: Duration = Duration::from_secs(2);
/// Most rows of tracks that left the slot in one interval.
const MAX_RETIRED: usize = 64;

/// Why a keyframe is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    NewTrack,
    Gap,
}

#[derive(Debug, Clone, Copy)]
struct KeyframeWait {
    why: Wait,
    ask_at: Instant,
    again: Duration,
}

/// The last keyframe of a slot.
#[derive(Debug, Clone, Copy)]
struct Keyframe {
    at: Instant,
    timestamp: u32,
    /// Whether it was taken for a change of the picture's height.
    switched: bool,
}

impl Keyframe {
    /// Whether it belongs to the track that begins at this timestamp, or, where none is told, now.
    fn begins(&self, first: Option<u32>, now: Instant) -> bool {
        match first {
            Some(first) => timestamp_diff(self.timestamp, first) >= 0,
            None => self.at + FRESH_KEYFRAME > now,
        }
    }
}

/// What a packet was for a person in front of the slot.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Heard {
    /// A packet of a mapped audio track.
    pub(super) audio: bool,
    /// A complete frame of a mapped video track.
    pub(super) frame: bool,
    /// No track is mapped.
    pub(super) unmapped: bool,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) line: Line,
    pub(super) ssrc: Option<u32>,
    pub(super) rtx_ssrc: Option<u32>,
    stats: Option<ReceiveStream>,
    /// Whether something came since the last report.
    to_report: bool,
    nack: Option<NackGenerator>,
    /// Which packets of sound came, or copies of them.
    came: (SequenceUnwrapper, Came),
    assembler: Option<Assembler>,
    size: Option<(u16, u16)>,
    last_keyframe: Option<Keyframe>,
    last_timestamp: Option<u32>,
    row: Option<Row>,
    /// The track that comes next, with its first timestamp and the time of the message.
    next: Option<(Row, u32)>,
    retired: Vec<Row>,
    wait: Option<KeyframeWait>,
    completed: Vec<Frame>,
}

impl Slot {
    pub(super) fn new(line: &Line) -> Self {
        let video = line.codec.kind() == Kind::Video;
        let repaired = video && line.nack;
        let mut slot = Self {
            line: line.clone(),
            ssrc: None,
            rtx_ssrc: None,
            stats: None,
            to_report: false,
            nack: repaired.then(NackGenerator::new),
            came: Default::default(),
            assembler: matches!(line.codec, Codec::Vp8 | Codec::H264).then(Assembler::default),
            size: None,
            last_keyframe: None,
            last_timestamp: None,
            row: None,
            next: None,
            retired: Vec::new(),
            wait: None,
            completed: Vec::new(),
        };
        if let Some(ids) = line.remote {
            slot.bind(ids.ssrc, ids.rtx);
        }
        slot
    }

    /// Reads what a packet of sound will need.
    pub(super) fn warm(&self) -> u64 {
        let row = self
            .row
            .as_ref()
            .map_or(0, |row| row.transits_ms.len() as u64 + u64::from(row.last_packet.is_some()));
        let received = self.stats.as_ref().map_or(0, ReceiveStream::received);
        row + received + u64::from(self.to_report) + u64::from(self.line.transport_cc)
    }

    /// Learns the SSRCs of the slot.
    pub(super) fn bind(&mut self, ssrc: u32, rtx: Option<u32>) {
        self.ssrc = Some(ssrc);
        self.rtx_ssrc = rtx;
        self.stats = Some(ReceiveStream::new(ssrc, self.line.codec.clock_rate()));
    }

    /// The other side sends with other SSRCs from now on: a stream of its own, that begins with nothing known.
    pub(super) fn renew(&mut self, line: &Line, now: Instant) {
        let content = self.row.as_ref().map(|row| (row.participant.clone(), row.track.clone()));
        self.switch(None, None, now);
        let retired = std::mem::take(&mut self.retired);
        *self = Self { retired, ..Self::new(line) };
        self.map(content, None, now);
    }

    /// What is in the slot from `now` on, or from the RTP timestamp on where one is told.
    pub(super) fn map(
        &mut self,
        content: Option<(String, String)>,
        rtp_timestamp: Option<u32>,
        now: Instant,
    ) {
        self.next = None;
        let Some((participant, track)) = content else {
            self.switch(None, rtp_timestamp, now);
            return;
        };
        if self.row.as_ref().is_some_and(|row| row.track == track) {
            return;
        }
        let row = Row::new(participant, track, now);
        match (rtp_timestamp, self.last_timestamp) {
            (Some(first), Some(last)) if self.row.is_some() && timestamp_diff(last, first) < 0 => {
                self.next = Some((row, first));
            }
            _ => self.switch(Some(row), rtp_timestamp, now),
        }
    }

    /// The server says that what is in the slot is paused, or flows again.
    pub(super) fn pause(&mut self, paused: bool, now: Instant) {
        let row = self.next.as_mut().map(|(row, _)| row).or(self.row.as_mut());
        let Some(row) = row else { return };
        row.pause(paused, now);
        if paused {
            self.wait = None;
        }
    }

    /// Whether the room's mix flows here.
    pub(super) fn is_mix(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.participant.is_empty() && row.track == MIX)
    }

    /// Another track is in the slot from the timestamp `first` on, or from now on.
    fn switch(&mut self, row: Option<Row>, first: Option<u32>, now: Instant) {
        let ended = self.stats.as_mut().map(ReceiveStream::interval).unwrap_or_default();
        // The message is often behind the new track's first keyframe.
        let overtaken = self.last_keyframe.filter(|keyframe| keyframe.begins(first, now));
        if let Some(mut before) = self.row.take() {
            before.absorb(ended);
            before.until = Some(now);
            if overtaken.is_some_and(|keyframe| keyframe.switched) {
                before.switches = before.switches.saturating_sub(1);
            }
            if self.retired.len() < MAX_RETIRED {
                self.retired.push(before);
            }
        }
        self.wait = None;
        if row.is_some()
            && let Some(assembler) = &self.assembler
        {
            let fresh = self.last_keyframe.is_some_and(|last| last.at + FRESH_KEYFRAME > now);
            if !fresh || assembler.blocked_since().is_some() {
                self.ask_for_keyframe(Wait::NewTrack, now + ASK_AFTER_SWITCH);
            }
        }
        self.row = row;
        if let Some(row) = &mut self.row {
            row.height = self.size.filter(|_| overtaken.is_some()).map(|size| size.1);
        }
    }

    fn ask_for_keyframe(&mut self, why: Wait, ask_at: Instant) {
        self.wait = Some(KeyframeWait { why, ask_at, again: ASK_AGAIN.0 });
    }

    /// Whether what was lost comes again as it was, on the slot's own SSRC: there is no RTX.
    pub(super) fn resends_as_it_was(&self) -> bool {
        self.nack.is_some() && self.line.rtx_payload_type.is_none()
    }

    /// Whether a packet of the slot's own SSRC was sent again, since it was asked for.
    fn came_again(&self, sequence: u16) -> bool {
        let nack = self.nack.as_ref().filter(|_| self.resends_as_it_was());
        nack.is_some_and(|nack| nack.was_asked_for(sequence))
    }

    /// A packet of the slot's own SSRC.
    pub(super) fn on_packet(
        &mut self,
        header: &rtp::RtpHeader,
        payload: &[u8],
        now: Instant,
    ) -> Result<Heard, rtp::ParseError> {
        if self.came_again(header.sequence) {
            return self.on_repaired(header, payload, now);
        }
        // Read first, so that what cannot be read changes nothing.
        let part = match &self.assembler {
            Some(_) => Some(Part::read(self.line.codec, payload, header.marker, header.timestamp)?),
            None => None,
        };
        let reached = self.next.as_ref().is_some_and(|(row, first)| {
            timestamp_diff(header.timestamp, *first) >= 0 || row.since + SWITCH_LIMIT < now
        });
        if reached && let Some((mut row, first)) = self.next.take() {
            row.since = now;
            self.switch(Some(row), Some(first), now);
        }
        self.last_timestamp = Some(header.timestamp);
        self.to_report = true;
        if let Some(stats) = &mut self.stats {
            stats.push(header.sequence, header.timestamp, payload.len(), now);
        }
        if let Some(nack) = &mut self.nack {
            nack.push(header.sequence, now);
        }
        let mut heard = Heard { unmapped: self.row.is_none(), ..Heard::default() };
        if let Some(row) = &mut self.row {
            heard.audio = self.line.codec.kind() == Kind::Audio;
            row.last_packet = Some(now);
            if heard.audio {
                row.gaps.came(header.sequence, header.timestamp, row.track == MIX, now);
            }
        }
        if let Some(part) = part {
            heard.frame = self.on_part(header.sequence, part, now);
        }
        Ok(heard)
    }

    /// Whether a packet of this type is RED (RFC 2198).
    pub(super) fn is_red(&self, payload_type: u8) -> bool {
        Some(payload_type) == self.line.red_payload_type
    }

    /// A packet of sound came, with this payload if it is RED: packets that did not come may be copied in it. `transit`: how
    /// long it was under way. Returns the blocks of those.
    pub(super) fn recover(
        &mut self,
        header: &rtp::RtpHeader,
        red: Option<&[u8]>,
        transit: Option<Duration>,
    ) -> Vec<rtp::red::Block> {
        let mut copies = Vec::new();
        if self.line.red_payload_type.is_none() {
            return copies;
        }
        let (unwrapper, came) = &mut self.came;
        let number = unwrapper.unwrap(header.sequence);
        let first = came.take(number);
        if !first && let Some(row) = &mut self.row {
            // It was only late.
            row.recovered = row.recovered.saturating_sub(1);
        }
        for block in red.into_iter().flat_map(rtp::red::redundant) {
            let Some(copied) = number.checked_sub(block.packets_back) else { continue };
            if !self.came.1.lacks(copied) {
                continue;
            }
            self.came.1.take(copied);
            if let Some(row) = &mut self.row {
                row.recovered += 1;
            }
            let older = Duration::from_secs_f64(f64::from(block.offset) / 48_000.0);
            transit.into_iter().for_each(|transit| self.note_transit(transit + older));
            copies.push(block);
        }
        copies
    }

    /// How long the packet that was just taken had been under way, by its sender's mark.
    pub(super) fn note_transit(&mut self, transit: Duration) {
        if let Some(row) = &mut self.row {
            row.note_transit(transit);
        }
    }

    /// What became of marks in the mix: how long each was under way, or none where it was not found.
    pub(super) fn note_marks(&mut self, marks: &[Outcome]) {
        if let Some(row) = &mut self.row {
            row.note_marks(marks);
        }
    }

    /// A packet that was sent again, unwrapped if it came by RTX: it repairs, and counts nowhere else. An empty one says that
    /// nothing else comes with its number.
    pub(super) fn on_repaired(
        &mut self,
        header: &rtp::RtpHeader,
        payload: &[u8],
        now: Instant,
    ) -> Result<Heard, rtp::ParseError> {
        let mut heard = Heard::default();
        if let Some(nack) = &mut self.nack {
            nack.push(header.sequence, now);
        }
        if payload.is_empty() {
            return Ok(heard);
        }
        if self.assembler.is_some() {
            let part = Part::read(self.line.codec, payload, header.marker, header.timestamp)?;
            heard.frame = self.on_part(header.sequence, part, now);
        }
        if let Some(row) = &mut self.row {
            row.retransmitted += 1;
        }
        Ok(heard)
    }

    /// Whether a frame of a mapped track was completed.
    fn on_part(&mut self, sequence: u16, part: Part, now: Instant) -> bool {
        let Some(assembler) = &mut self.assembler else { return false };
        assembler.push(sequence, part, now, &mut self.completed);
        let mut seen = false;
        for frame in self.completed.drain(..) {
            if frame.keyframe {
                self.size = frame.size.or(self.size);
                let timestamp = frame.timestamp;
                self.last_keyframe = Some(Keyframe { at: now, timestamp, switched: false });
                if let Some(nack) = &mut self.nack {
                    nack.clear_before(frame.first);
                }
            }
            if frame.keyframe || self.wait.is_some_and(|wait| wait.why == Wait::Gap) {
                self.wait = None;
            }
            let new_track = self.wait.is_some_and(|wait| wait.why == Wait::NewTrack);
            if let Some(row) = self.row.as_mut().filter(|_| !new_track) {
                let switched = row.show(frame.size.map(|size| size.1), now);
                if let Some(keyframe) = self.last_keyframe.as_mut().filter(|_| switched) {
                    keyframe.switched = true;
                }
                seen = true;
            }
        }
        seen
    }

    /// How long a gap is waited for.
    fn gap_lasts(&self) -> Duration {
        if self.nack.is_some() { ASK_AFTER_REPAIR } else { ASK_AFTER_GAP }
    }

    /// Looks whether a keyframe must be asked for; true where that is now.
    pub(super) fn keyframe_request_due(&mut self, now: Instant) -> bool {
        if self.row.is_none() {
            return false;
        }
        let gave_up = self.nack.as_mut().is_some_and(NackGenerator::take_keyframe_needed);
        let blocked = self.assembler.as_ref().and_then(Assembler::blocked_since);
        if self.wait.is_none()
            && let Some(since) = blocked
        {
            let ask_at = if gave_up { now } else { since + self.gap_lasts() };
            self.ask_for_keyframe(Wait::Gap, ask_at);
        }
        // A gap that retransmissions closed before its time came.
        if blocked.is_none() && self.wait.is_some_and(|wait| wait.why == Wait::Gap) {
            self.wait = None;
        }
        let Some(wait) = self.wait.as_mut().filter(|wait| wait.ask_at <= now) else {
            return false;
        };
        wait.ask_at = now + wait.again;
        wait.again = (wait.again * 2).min(ASK_AGAIN.1);
        if let Some(row) = &mut self.row {
            row.keyframe_requests += 1;
        }
        true
    }

    /// Appends the packets to ask for again.
    pub(super) fn nacks_due(&mut self, now: Instant, out: &mut Vec<u16>) {
        if let Some(nack) = &mut self.nack {
            nack.due(now, out);
        }
    }

    /// When there is something to ask for next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let nack = self.nack.as_ref().and_then(NackGenerator::next_due);
        let keyframe = self.row.as_ref().and_then(|_| match (&self.wait, &self.assembler) {
            (Some(wait), _) => Some(wait.ask_at),
            (None, Some(assembler)) => assembler.blocked_since().map(|at| at + self.gap_lasts()),
            (None, None) => None,
        });
        nack.into_iter().chain(keyframe).min()
    }

    pub(super) fn set_rtt(&mut self, rtt: Duration) {
        if let Some(nack) = &mut self.nack {
            nack.set_rtt(rtt);
        }
    }

    pub(super) fn on_sender_report(&mut self, ntp: rtp::report::Ntp, now: Instant) {
        if let Some(stats) = &mut self.stats {
            stats.on_sender_report(ntp, now);
        }
    }

    /// The block for the next report, where something came since the last one.
    pub(super) fn report_block(&mut self, now: Instant) -> Option<ReportBlock> {
        if !std::mem::take(&mut self.to_report) {
            return None;
        }
        self.stats.as_mut()?.report_block(now)
    }

    /// The block for a report that goes before feedback on what the slot receives; before the first packet it is empty.
    pub(super) fn block_of_feedback(&mut self, now: Instant) -> Option<ReportBlock> {
        let known = self.stats.as_mut().and_then(|stats| stats.report_block(now));
        known.or(self.ssrc.map(|ssrc| ReportBlock { ssrc, ..ReportBlock::default() }))
    }

    /// Whether feedback may go without a report.
    pub(super) fn takes_reduced_size(&self) -> bool {
        self.line.reduced_size
    }

    /// The rows of the interval that ends here, those of tracks that left first.
    pub(super) fn sample(&mut self, begin: Instant, now: Instant, out: &mut Vec<ReceivedTrack>) {
        let ended = self.stats.as_mut().map(ReceiveStream::interval).unwrap_or_default();
        if let Some(row) = &mut self.row {
            row.absorb(ended);
        }
        for mut row in self.retired.drain(..) {
            out.push(row.take(&self.line, self.assembler.is_some(), None, (begin, now)));
        }
        if let Some(row) = &mut self.row {
            let size = self.size.filter(|_| row.frames.last().is_some());
            out.push(row.take(&self.line, self.assembler.is_some(), size, (begin, now)));
        }
    }
}
