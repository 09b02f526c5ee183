//! Step 4: control packets in both directions (RFC 3550, RFC 4585, transport-wide feedback).

use super::person::{Person, PersonIndex, TrackIndex};
use super::resend::round_trip;
use super::slot::Slot;
use super::track::{Origin, Track};
use super::{Handled, Inbound, RelayControl, Shard};
use crate::drops::InDrop;
use crate::limits::MAX_PACKET;
use crate::sink::{Now, Priority, Sink};
use rtp::report::{Ntp, rtt_ms};
use rtp::rtcp::{self, Packet, ReportBlock, SenderInfo, SenderReport};
use std::time::Duration;

/// The SSRC that our control packets come from; media has others.
const CONTROL_SSRC: u32 = 1;
/// Control packets are cut into datagrams of about this many bytes.
const COMPOUND_BYTES: usize = 1100;
/// The canonical name in our source descriptions.
const CNAME: &str = "moim";

impl Shard {
    pub(super) fn handle_rtcp(
        &mut self,
        now: Now,
        datagram: &Inbound<'_>,
        sink: &mut impl Sink,
    ) -> Result<Handled, InDrop> {
        self.stats.rtcp_in += 1;
        let index = *self.person_by_address.get(&datagram.source).ok_or(InDrop::UnknownSource)?;
        let person = self.people[index].as_mut().ok_or(InDrop::UnknownSource)?;
        let secure = person.secure.as_mut().ok_or(InDrop::NoKeys)?;
        let mut plain = std::mem::take(&mut self.plain);
        plain.resize(MAX_PACKET, 0);
        let outcome = secure
            .opener
            .open_rtcp(datagram.data, &mut plain)
            .map_err(InDrop::from)
            .and_then(|len| self.read_compound(index, &plain[..len], now, datagram, sink));
        self.plain = plain;
        outcome.map(|()| Handled::Rtcp)
    }

    fn read_compound(
        &mut self,
        from: PersonIndex,
        compound: &[u8],
        now: Now,
        datagram: &Inbound<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), InDrop> {
        for packet in rtcp::parse(compound) {
            match packet.map_err(|_| InDrop::MalformedRtcp)? {
                Packet::SenderReport(report) => {
                    self.sender_report(from, &report, now, datagram, sink);
                    self.report_blocks(from, report.blocks(), now);
                }
                Packet::ReceiverReport(report) => self.report_blocks(from, report.blocks(), now),
                Packet::Nack(nack) => self.asked_again(from, &nack, now, sink),
                Packet::Pli { media, .. } => self.want_keyframe(from, media, now, sink),
                Packet::Fir(fir) => {
                    for (media, _) in fir.requests() {
                        self.want_keyframe(from, media, now, sink);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn sender_report(
        &mut self,
        from: PersonIndex,
        report: &SenderReport<'_>,
        now: Now,
        datagram: &Inbound<'_>,
        sink: &mut impl Sink,
    ) {
        let Some(person) = self.people[from].as_mut() else { return };
        let Some(super::Source::Media(track)) = person.source(report.ssrc) else { return };
        let Some(track) = self.tracks[track].as_mut() else { return };
        // Each one that counts goes to all shards that have the track.
        if !track.hears_report(now.at) {
            self.stats.in_drops.add(InDrop::ReportTooSoon);
            return;
        }
        track.receive.on_sender_report(report.info.ntp, datagram.arrival);
        if let Some(theirs) = report.info.ntp.to_unix() {
            let offset = now.unix.as_nanos() as i128 - theirs.as_nanos() as i128;
            // The least offset seen holds the least delay: both tracks of a person share it.
            let least = person.clock_offset_ns.map_or(offset, |old| old.min(offset));
            person.clock_offset_ns = Some(least);
            let (rtp_timestamp, at_ns) =
                (report.info.rtp_timestamp, theirs.as_nanos() as i128 + least);
            track.reference = Some((rtp_timestamp, at_ns));
            for export in &track.exports {
                let track = track.key;
                sink.relay_control(export.to, RelayControl::Clock { track, rtp_timestamp, at_ns });
            }
        }
    }

    fn report_blocks(
        &mut self,
        from: PersonIndex,
        blocks: impl Iterator<Item = ReportBlock>,
        now: Now,
    ) {
        let Some(person) = self.people[from].as_mut() else { return };
        for block in blocks {
            if person.slot_by_ssrc(block.ssrc).is_some()
                && let Some(rtt) = rtt_ms(&block, Ntp::from_unix(now.unix))
            {
                person.rtt_ms = Some(rtt);
            }
        }
    }

    /// A subscriber needs a keyframe of what flows in a slot; an empty slot needs none. Only the
    /// publisher of that track is asked: this costs the same however many tracks there are.
    fn want_keyframe(&mut self, from: PersonIndex, media: u32, now: Now, sink: &mut impl Sink) {
        let Some(person) = self.people[from].as_mut() else { return };
        let Some(slot) = person.slot_by_ssrc(media) else { return };
        let slot = &mut person.slots[slot];
        let Some(index) = slot.current.filter(|_| slot.is_video()) else { return };
        if !slot.hears_wish(now.at) {
            self.stats.keyframe_requests_refused += 1;
            return;
        }
        if let Some(track) = self.tracks[index].as_mut() {
            track.keyframe.want();
            self.ask_publisher(index, now, sink);
        }
    }

    /// Asks publishers for keyframes and for packets that are missing. Says whether there is more to ask for soon.
    pub(super) fn ask_publishers(&mut self, now: Now, sink: &mut impl Sink) -> bool {
        let mut more = false;
        for at in 0..self.pictures.len() {
            more |= self.ask_publisher(self.pictures[at], now, sink);
        }
        more
    }

    /// The same for one track of pictures.
    fn ask_publisher(&mut self, index: TrackIndex, now: Now, sink: &mut impl Sink) -> bool {
        let Some(track) = self.tracks[index].as_mut() else { return false };
        // Who waits for a track that a moderator muted waits until it is released, and who may
        // get no pictures now waits for none yet.
        let mut waits = false;
        if !track.silenced && track.keyframe.looks(now.at) {
            waits = self.begin_with_kept(index, now, sink);
        }
        let Some(track) = self.tracks[index].as_mut() else { return false };
        if !track.silenced {
            track.keyframe.waited(waits);
        }
        let publisher = match track.origin {
            Origin::Person(person) => person,
            Origin::Relay(shard) => {
                if track.keyframe.ask(now.at, waits) {
                    let track = track.key;
                    sink.relay_control(shard, RelayControl::Keyframe { track });
                }
                return track.keyframe.is_wanted();
            }
        };
        let Some(ids) = track.ids else { return false };
        let Some(person) = self.people[publisher].as_mut() else { return false };
        if !person.reachable() {
            return false;
        }
        self.rtcp.clear();
        self.sequences.clear();
        if track.line.nack {
            track.missing.set_rtt(round_trip(person.rtt_ms));
            track.forget_superseded();
            track.missing.due(now.at, &mut self.sequences);
            let count = self.sequences.len() as u64;
            rtcp::nack(&mut self.rtcp, CONTROL_SSRC, ids.ssrc, self.sequences.iter().copied());
            self.stats.nacked += count;
            if track.missing.take_keyframe_needed()
                && !(track.subscriptions.is_empty() && track.exports.is_empty())
            {
                track.keyframe.want();
            }
        }
        if !track.silenced && track.keyframe.ask(now.at, waits) {
            rtcp::pli(&mut self.rtcp, CONTROL_SSRC, ids.ssrc);
            self.stats.keyframes_asked += 1;
        }
        if !self.rtcp.is_empty() {
            let sent = send_rtcp(person, &self.rtcp, sink);
            self.stats.count_rtcp(sent);
        }
        let keyframe = track.keyframe.is_wanted() && !track.silenced;
        keyframe || track.missing.missing_count() > 0
    }

    /// Sends the reports and the feedback that are due to the people whose turn this tick is, one of so many.
    pub(super) fn send_reports(&mut self, turns: usize, now: Now, sink: &mut impl Sink) {
        for index in (self.ticks % turns..self.people.len()).step_by(turns) {
            let Some(person) = self.people[index].as_mut() else { continue };
            if !person.reachable() {
                continue;
            }
            let since_last = now.at.saturating_duration_since(person.feedback_at);
            if person.arrivals.is_due(since_last) {
                person.feedback_at = now.at;
                self.send_feedback(index, sink);
            }
            let Some(person) = self.people[index].as_mut() else { continue };
            if person.reports_due(now.at) {
                person.reported_at = Some(now.at);
                person.resends.fill(person.pacer.media(), now.at);
                self.receiver_report(index, now, sink);
                self.sender_reports(index, now, sink);
            }
        }
    }

    /// Which of a person's packets have come, and when.
    fn send_feedback(&mut self, index: PersonIndex, sink: &mut impl Sink) {
        let Some(person) = self.people[index].as_mut() else { return };
        let media = person.sources.first().map_or(0, |(ssrc, _)| *ssrc);
        loop {
            self.rtcp.clear();
            if !person.arrivals.build(CONTROL_SSRC, media, &mut self.rtcp) {
                return;
            }
            let sent = send_rtcp(person, &self.rtcp, sink);
            self.stats.count_rtcp(sent);
        }
    }

    /// What came of his tracks, for the publisher.
    fn receiver_report(&mut self, index: PersonIndex, now: Now, sink: &mut impl Sink) {
        let Some(person) = self.people[index].as_mut() else { return };
        let mut blocks = Vec::new();
        for track in &person.tracks {
            let track = self.tracks[*track].as_mut();
            blocks.extend(track.and_then(|track| track.receive.report_block(now.at)));
        }
        if blocks.is_empty() {
            return;
        }
        self.rtcp.clear();
        rtcp::receiver_report(&mut self.rtcp, CONTROL_SSRC, &blocks);
        rtcp::sdes_cname(&mut self.rtcp, CONTROL_SSRC, CNAME);
        let sent = send_rtcp(person, &self.rtcp, sink);
        self.stats.count_rtcp(sent);
    }

    /// What his slots sent, on the server's clock, so that sound and picture stay together.
    fn sender_reports(&mut self, index: PersonIndex, now: Now, sink: &mut impl Sink) {
        self.rtcp.clear();
        let count = self.people[index].as_ref().map_or(0, |person| person.slots.len());
        let mut last_ssrc = None;
        for slot_index in 0..count {
            let Some(person) = self.people[index].as_ref() else { return };
            let slot = &person.slots[slot_index];
            if let Some(rtp_timestamp) = self.slot_timestamp(slot, now) {
                let info = SenderInfo {
                    ntp: Ntp::from_unix(now.unix),
                    rtp_timestamp,
                    packet_count: slot.packets,
                    octet_count: slot.octets,
                };
                last_ssrc = Some(slot.ssrc());
                rtcp::sender_report(&mut self.rtcp, slot.ssrc(), &info, &[]);
            }
            let full = self.rtcp.len() > COMPOUND_BYTES || slot_index + 1 == count;
            if let Some(ssrc) = last_ssrc.filter(|_| full) {
                rtcp::sdes_cname(&mut self.rtcp, ssrc, CNAME);
                let Some(person) = self.people[index].as_mut() else { return };
                let sent = send_rtcp(person, &self.rtcp, sink);
                self.stats.count_rtcp(sent);
                self.rtcp.clear();
                last_ssrc = None;
            }
        }
    }

    /// The timestamp of what leaves a slot at this moment; none where nothing has left yet.
    fn slot_timestamp(&self, slot: &Slot, now: Now) -> Option<u32> {
        if slot.packets == 0 {
            return None;
        }
        if slot.mix_tick.is_some() {
            let (timestamp, at) = slot.last_timestamp?;
            let passed = now.at.saturating_duration_since(at).as_micros() as u64;
            return Some(timestamp.wrapping_add((passed * 48 / 1000) as u32));
        }
        let timestamp = self.source_timestamp(slot.current?, now)?;
        Some(timestamp.wrapping_add(slot.rewrite.timestamp_offset()))
    }

    /// The publisher's timestamp at this moment of the server's clock.
    fn source_timestamp(&self, track: TrackIndex, now: Now) -> Option<u32> {
        let track = self.tracks[track].as_ref()?;
        let (timestamp, at_ns) = track.reference.or_else(|| arrived(track))?;
        let passed_ns = now.unix.as_nanos() as i128 - at_ns;
        let ticks = passed_ns * i128::from(track.line.codec.clock_rate()) / 1_000_000_000;
        Some(timestamp.wrapping_add(ticks as u32))
    }
}

/// Before the publisher's first report: by when its newest packet came.
fn arrived(track: &Track) -> Option<(u32, i128)> {
    let (timestamp, at): (u32, Duration) = track.newest?;
    Some((timestamp, at.as_nanos() as i128))
}

impl super::Stats {
    fn count_rtcp(&mut self, sent: bool) {
        if sent {
            self.rtcp_out += 1;
        } else {
            self.rtcp_not_sent += 1;
        }
    }
}

/// Seals a compound into the send buffer; says whether there was room.
fn send_rtcp(person: &mut Person, compound: &[u8], sink: &mut impl Sink) -> bool {
    let Some(secure) = person.secure.as_mut() else { return false };
    let Some(buffer) = sink.slot(secure.remote, Priority::High) else { return false };
    let Some(place) = buffer.get_mut(..compound.len()) else { return false };
    place.copy_from_slice(compound);
    match secure.sealer.seal_rtcp(buffer, compound.len()) {
        Ok(len) => {
            sink.commit(len);
            true
        }
        Err(_) => false,
    }
}
