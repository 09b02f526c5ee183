//! Control packets that come in (RFC 3550, RFC 4585): reports of publishers, and what receivers ask for.

use super::datagram::Datagram;
use super::feedback::{Scratch, ask_publisher};
use super::fit::fit;
use super::index::PersonIndex;
use super::model::Model;
use super::person::Source;
use super::resend::asked_again;
use super::turn::Turn;
use crate::drops::InDrop;
use crate::limits::MAX_PACKET;
use crate::relay::RelayControl;
use crate::sink::Sink;
use rtp::report::{Ntp, rtt_ms};
use rtp::rtcp::{self, Packet, ReportBlock, SenderReport};

/// An SRTCP datagram came in.
///
/// # Errors
/// Why it was discarded.
pub(super) fn handle_rtcp<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    datagram: &Datagram<'_>,
    scratch: &mut Scratch,
) -> Result<(), InDrop> {
    let index = *model.person_by_address.get(&datagram.source).ok_or(InDrop::UnknownSource)?;
    let person = model.people[index].as_mut().ok_or(InDrop::UnknownSource)?;
    if !person.intake.takes_control(datagram.arrival) {
        return Err(InDrop::SenderShare);
    }
    let secure = person.secure.as_mut().ok_or(InDrop::NoKeys)?;
    let mut plain = std::mem::take(&mut scratch.plain);
    plain.resize(MAX_PACKET, 0);
    let opened = secure.opener.open_rtcp(datagram.data, &mut plain);
    if opened.is_ok() {
        secure.heard_at = datagram.arrival;
    }
    let outcome = opened
        .map_err(InDrop::from)
        .and_then(|len| read_compound(model, turn, (index, datagram), &plain[..len], scratch));
    scratch.plain = plain;
    outcome
}

fn read_compound<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (from, datagram): (PersonIndex, &Datagram<'_>),
    compound: &[u8],
    scratch: &mut Scratch,
) -> Result<(), InDrop> {
    for packet in rtcp::parse(compound) {
        match packet.map_err(|_| InDrop::MalformedRtcp)? {
            Packet::SenderReport(report) => {
                sender_report(model, turn, from, &report, datagram);
                report_blocks(model, turn, from, report.blocks());
            }
            Packet::ReceiverReport(report) => report_blocks(model, turn, from, report.blocks()),
            Packet::Nack(nack) => asked_again(model, turn, from, &nack),
            Packet::Pli { media, .. } => want_keyframe(model, turn, from, media, scratch),
            Packet::Fir(fir) => {
                for (media, _) in fir.requests() {
                    want_keyframe(model, turn, from, media, scratch);
                }
            }
            Packet::TransportFeedback { fci, .. } => {
                let Some(person) = model.people[from].as_mut() else { continue };
                match person.egress.feedback(turn.now.at, fci) {
                    Ok(true) => fit(model, turn, from),
                    Ok(false) => {}
                    Err(reason) => turn.stats.in_drops.add(reason),
                }
            }
            Packet::Remb(remb) => {
                if let Some(person) = model.people[from].as_mut() {
                    person.receiver_told(turn.now.at, remb.bitrate_bps);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn sender_report<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    from: PersonIndex,
    report: &SenderReport<'_>,
    datagram: &Datagram<'_>,
) {
    let Some(person) = model.people[from].as_mut() else { return };
    let Some(Source::Media(track)) = person.source(report.ssrc) else { return };
    let Some(track) = model.tracks[track].as_mut() else { return };
    let encoding = &mut track.encoding;
    // Each report that counts goes to all shards that have the track, so only some count.
    if !encoding.hears_report(turn.now.at) {
        turn.stats.in_drops.add(InDrop::ReportTooSoon);
        return;
    }
    if let Some(reception) = &mut encoding.reception {
        reception.receive.on_sender_report(report.info.ntp, datagram.arrival);
    }
    if let Some(theirs) = report.info.ntp.to_unix() {
        let offset = turn.now.unix.as_nanos() as i128 - theirs.as_nanos() as i128;
        // The least offset seen holds the least delay: both tracks of a person share it.
        let least = person.clock_offset_ns.map_or(offset, |old| old.min(offset));
        person.clock_offset_ns = Some(least);
        let (rtp_timestamp, at_ns) = (report.info.rtp_timestamp, theirs.as_nanos() as i128 + least);
        encoding.reference = Some((rtp_timestamp, at_ns));
        for export in &track.exports {
            let clock = RelayControl::Clock { stream: track.key, rtp_timestamp, at_ns };
            turn.sink.relay_control(export.to, clock);
        }
    }
}

fn report_blocks<S: Sink>(
    model: &mut Model,
    turn: &Turn<'_, S>,
    from: PersonIndex,
    blocks: impl Iterator<Item = ReportBlock>,
) {
    let Some(person) = model.people[from].as_mut() else { return };
    for block in blocks {
        let Some(slot) = person.slot_by_ssrc(block.ssrc) else { continue };
        person.reported(slot, block.highest_sequence, block.fraction_lost, turn.now.at);
        if let Some(rtt) = rtt_ms(&block, Ntp::from_unix(turn.now.unix)) {
            person.rtt_ms = Some(rtp::nack::longest_lately(person.rtt_ms, rtt));
            person.egress.reported_rtt(turn.now.at, rtt, block.fraction_lost);
        }
    }
}

/// A subscriber needs a keyframe of what flows in a slot. An empty slot needs none. Only the
/// publisher of that track is asked, so the cost does not grow with the number of tracks.
fn want_keyframe<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    from: PersonIndex,
    media: u32,
    scratch: &mut Scratch,
) {
    let Some(person) = model.people[from].as_mut() else { return };
    let Some(slot) = person.slot_by_ssrc(media) else { return };
    // One that waits to leave is what they need.
    let comes = person.egress.brings_keyframe(slot);
    let dear = person.egress.is_limited(turn.now.at);
    let rests = person.slots[slot].rests();
    if !comes {
        person.egress.lacks_keyframe((slot, rests), turn.now.at);
    }
    let slot = &mut person.slots[slot];
    let Some(index) = slot.current.filter(|_| slot.is_video()) else { return };
    if comes || !slot.hears_wish(turn.now.at) {
        turn.stats.keyframe_requests_refused += 1;
        return;
    }
    if let Some(track) = model.tracks[index].as_mut() {
        track.encoding.keyframe.want_for(dear);
        ask_publisher(model, turn, index, scratch);
    }
}
