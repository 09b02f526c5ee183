//! A participant as a shard knows them: keys, lines, what they publish, what their slots carry.

use super::consent::Checks;
use super::index::TrackIndex;
use super::intake::Intake;
use super::slot::Slot;
use crate::command::{PersonKey, Report, RoomKey};
use crate::egress::{Egress, Level};
use crate::limits::{MAX_TRACKS_EACH, REPORT_INTERVAL, REPORT_INTERVAL_LISTENING};
use rtp::TransportAddress;
use rtp::negotiated::{Direction, Line, Negotiated};
use rtp::srtp::{KeyPair, Opener, Sealer};
use rtp::stun::Responder;
use rtp::twcc::FeedbackBuilder;
use std::time::{Duration, Instant};

/// A participant's SRTP session, both ways.
pub(super) struct Secure {
    pub opener: Opener,
    pub sealer: Sealer,
    pub remote: TransportAddress,
    /// The participant receives there.
    pub reached: bool,
    /// When something authentic came from there last.
    pub heard_at: Instant,
    /// The address that they nominated and that has not answered yet.
    pub nominated: Option<TransportAddress>,
    /// The other side has its keys too.
    pub begun: bool,
    /// The participant may be gone: nothing goes to them.
    pub lost: bool,
    /// Answers their connectivity checks, once the credentials are known.
    pub checks: Option<Checks>,
}

impl Secure {
    /// Whether nothing authentic came from the address in use for so long.
    pub(super) fn is_silent(&self, now: Instant, span: Duration) -> bool {
        now.saturating_duration_since(self.heard_at) >= span
    }
}

/// What an incoming SSRC is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A track's media.
    Media(TrackIndex),
    /// A track's retransmissions.
    Rtx(TrackIndex),
}

impl Source {
    /// The track.
    pub(super) fn track(self) -> TrackIndex {
        let (Self::Media(track) | Self::Rtx(track)) = self;
        track
    }
}

/// An SSRC that a participant used on a line, found by what its packets said of themselves.
pub(super) struct Learned {
    mid: String,
    layer: u8,
    ssrc: u32,
    rtx: bool,
}

/// A participant's session.
pub(super) struct Person {
    pub key: PersonKey,
    pub room: RoomKey,
    pub secure: Option<Secure>,
    /// How much they may send.
    pub intake: Intake,
    /// Lines that the participant sends on.
    pub sending: Vec<Line>,
    /// Lines that the participant receives on.
    pub slots: Vec<Slot>,
    /// (SSRC of a slot, its index), sorted.
    slot_by_ssrc: Vec<(u32, usize)>,
    /// (SSRC that comes in, what it is): few, searched in order.
    pub sources: Vec<(u32, Source)>,
    /// SSRCs of tracks that ended. If a line sends again, its client goes on with them. By then RTCP reports have told the
    /// client that the server knows an SSRC, so it no longer sends its MID and RTP stream id (RFC 8843 §9.2, RFC 8852 §3).
    learned: Vec<Learned>,
    pub tracks: Vec<TrackIndex>,
    /// When each of their packets came, for transport-wide feedback.
    pub arrivals: FeedbackBuilder,
    /// When feedback was sent last.
    pub feedback_at: Instant,
    /// What leaves to the participant, and when.
    pub egress: Egress,
    /// Control packets may leave alone (RFC 5506). Else each datagram begins with a report.
    pub reduced_size: bool,
    /// How many packets of before a packet of sound holds.
    copies: usize,
    /// When the last reports went to the participant.
    pub reported_at: Option<Instant>,
    /// Server clock less publisher clock in nanoseconds: the least seen.
    pub clock_offset_ns: Option<i128>,
    /// The longest round-trip time lately, from their reports on what they receive.
    pub rtt_ms: Option<f64>,
}

impl Person {
    /// `start_bps`: what their path is taken to carry at first, in bits a second.
    pub(super) fn new(key: PersonKey, room: RoomKey, now: Instant, start_bps: u64) -> Self {
        Self {
            key,
            room,
            secure: None,
            intake: Intake::new(),
            sending: Vec::new(),
            slots: Vec::new(),
            slot_by_ssrc: Vec::new(),
            sources: Vec::new(),
            learned: Vec::new(),
            tracks: Vec::new(),
            arrivals: FeedbackBuilder::new(),
            feedback_at: now,
            egress: Egress::new(now, start_bps),
            reduced_size: false,
            copies: 0,
            reported_at: None,
            clock_offset_ns: None,
            rtt_ms: None,
        }
    }

    /// Adds lines that are new. Known lines stay as they are.
    pub(super) fn add_lines(&mut self, negotiated: &Negotiated) {
        for line in &negotiated.lines {
            match line.direction {
                Direction::Receive | Direction::Both => {
                    let known = self.sending.iter().any(|old| old.mid == line.mid);
                    if !known && self.sending.len() < MAX_TRACKS_EACH {
                        self.sending.push(line.clone());
                    }
                }
                Direction::Send if line.local.is_some() && self.slot(&line.mid).is_none() => {
                    self.slots.push(Slot::new(line.clone()));
                    if self.slots.last().is_some_and(Slot::gives_feedback) {
                        self.egress.begin();
                    }
                }
                _ => {}
            }
        }
        // All lines share the path, and say the same (RFC 8859, section 5.8).
        self.reduced_size = negotiated.lines.iter().all(|line| line.reduced_size);
        // Most have one slot of sound, and a `Vec` that grows first reserves four.
        self.slots.shrink_to_fit();
        self.sending.shrink_to_fit();
        if let Some(secure) = &mut self.secure {
            self.slots.iter_mut().for_each(|slot| slot.connect(&mut secure.sealer));
        }
        self.slots.iter_mut().for_each(|slot| slot.repeat(self.copies));
        self.slot_by_ssrc.clear();
        self.slot_by_ssrc.extend(self.slots.iter().enumerate().map(|(i, slot)| (slot.ssrc(), i)));
        self.slot_by_ssrc.sort_unstable();
    }

    /// A track of theirs that is a layer of a line ends: its SSRCs are remembered, in place of older ones.
    pub(super) fn forget_track(&mut self, index: TrackIndex, mid: &str, layer: u8) {
        self.tracks.retain(|track| *track != index);
        let (ended, others): (Vec<_>, Vec<_>) =
            self.sources.drain(..).partition(|(_, source)| source.track() == index);
        self.sources = others;
        for (ssrc, source) in ended {
            let rtx = matches!(source, Source::Rtx(_));
            self.learned.retain(|one| one.mid != mid || one.layer != layer || one.rtx != rtx);
            self.learned.push(Learned { mid: mid.to_owned(), layer, ssrc, rtx });
        }
    }

    /// The SSRCs of the last track that was this layer of a line: of its media, and of retransmissions.
    pub(super) fn recall(&self, mid: &str, layer: u8) -> [Option<u32>; 2] {
        [false, true].map(|rtx| {
            let known = |one: &&Learned| one.mid == mid && one.layer == layer && one.rtx == rtx;
            self.learned.iter().find(known).map(|one| one.ssrc)
        })
    }

    /// Keys are there: packets can be opened, and sealed once the other side has its keys too and is `reached`. Keys in use stay.
    pub(super) fn install(
        &mut self,
        keys: &KeyPair,
        (remote, reached): (TransportAddress, bool),
        now: Instant,
    ) {
        if self.secure.is_some() {
            return;
        }
        let mut sealer = Sealer::new(&keys.local);
        self.slots.iter_mut().for_each(|slot| slot.connect(&mut sealer));
        let opener = Opener::new(&keys.remote);
        self.secure = Some(Secure {
            opener,
            sealer,
            remote,
            reached,
            heard_at: now,
            nominated: Some(remote).filter(|_| !reached),
            begun: false,
            lost: false,
            checks: None,
        });
    }

    /// New credentials come with each ICE restart. None if there are no keys yet.
    pub(super) fn credentials(&mut self, responder: Responder) -> Option<()> {
        self.secure.as_mut()?.checks = Some(Checks::new(responder));
        Some(())
    }

    /// A report tells of a slot: how far its packets came, and how many of 256 were lost.
    pub(super) fn reported(&mut self, slot: usize, highest: u32, lost: u8, now: Instant) {
        let told = self.slots[slot].reported(highest);
        if self.egress.reported(now, told, lost).is_some() {
            self.repeat(self.egress.copies(now, self.copies));
        }
    }

    /// Sound repeats itself no more often than the path allows by now.
    pub(super) fn repeat_sound(&mut self, now: Instant) {
        if self.copies > 0 {
            self.repeat(self.egress.copies(now, self.copies));
        }
    }

    fn repeat(&mut self, copies: usize) {
        if copies != self.copies {
            self.copies = copies;
            self.slots.iter_mut().for_each(|slot| slot.repeat(copies));
        }
    }

    /// Reads what a packet to this slot needs, while another one is sealed. So it comes from memory at once, and not piece by piece
    /// when it is needed. The value itself means nothing.
    #[inline]
    pub(super) fn ahead(&self, slot: usize) -> u64 {
        let known = self.slots.get(slot).map_or(0, Slot::ahead);
        known ^ u64::from(self.egress.number().unwrap_or(0)) ^ u64::from(self.reachable())
    }

    /// Whether packets can be sent to the participant.
    #[inline]
    pub(super) fn reachable(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.begun && secure.reached && !secure.lost)
    }

    /// A report of what the participant is to be told of the path, in kbit/s.
    pub(super) fn told(&self, kbps: Option<u32>) -> Report {
        Report::Downlink { person: self.key, room: self.room, kbps }
    }

    /// A slot that carries nothing does not rest.
    pub(super) fn wake_empty(&mut self, reports: &mut Vec<Report>) {
        let idle = |slot: &Slot| slot.rests() && slot.current.or(slot.pending).is_none();
        while let Some(at) = self.slots.iter().position(idle) {
            self.slots[at].level = Level::SMALLEST;
            reports.push(self.rests(at, false));
        }
    }

    /// A report that a slot's picture rests, or flows again.
    pub(super) fn rests(&self, slot: usize, rests: bool) -> Report {
        let mid = self.slots[slot].line.mid.clone();
        Report::Rests { person: self.key, room: self.room, mid, rests }
    }

    /// Whether the path to the participant can be estimated: pictures go there by UDP, and they give feedback on packets.
    pub(super) fn estimates(&self) -> bool {
        let carries = |slot: &Slot| slot.current.or(slot.pending).is_some();
        self.is_by_udp() && self.slots.iter().any(|slot| slot.gives_feedback() && carries(slot))
    }

    fn is_by_udp(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| !secure.remote.is_tcp())
    }

    /// The participant estimates that the path carries so much, in bits a second. Where feedback on packets was agreed on,
    /// that counts instead.
    pub(super) fn receiver_told(&mut self, now: Instant, bps: u64) {
        if self.is_by_udp() && !self.slots.iter().any(Slot::gives_feedback) {
            self.egress.receiver_told(now, bps);
        }
    }

    /// Whether reports to the participant are due. They are due often if the participant publishes, or sees pictures that
    /// must stay with their sound.
    pub(super) fn reports_due(&self, now: Instant) -> bool {
        let Some(last) = self.reported_at else { return true };
        let since = now.saturating_duration_since(last);
        let sees = |slot: &Slot| slot.is_video() && slot.current.is_some();
        let often = || !self.tracks.is_empty() || self.slots.iter().any(sees);
        since >= REPORT_INTERVAL_LISTENING || (since >= REPORT_INTERVAL && often())
    }

    /// Index of the slot on this line.
    pub(super) fn slot(&self, mid: &str) -> Option<usize> {
        self.slots.iter().position(|slot| slot.line.mid == mid)
    }

    /// Index of the slot that sends with this SSRC.
    pub(super) fn slot_by_ssrc(&self, ssrc: u32) -> Option<usize> {
        let at = self.slot_by_ssrc.binary_search_by_key(&ssrc, |(ssrc, _)| *ssrc).ok()?;
        Some(self.slot_by_ssrc[at].1)
    }

    /// What this SSRC of the participant is.
    #[inline]
    pub(super) fn source(&self, ssrc: u32) -> Option<Source> {
        self.sources.iter().find(|(known, _)| *known == ssrc).map(|(_, source)| *source)
    }
}
