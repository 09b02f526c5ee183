//! RTCP of a bot: what the other side says of its streams, and what it says of theirs.

use super::state::{Dropped, State};
use crate::clients::bot::outgoing::Outgoing;
use crate::clients::bot::rtcp::Compounds;
use crate::clients::bot::slot::Slot;
use rtp::rtcp::{self, Packet};
use rtp::srtp::SrtpError;
use std::time::{Duration, Instant};

/// Report blocks in one datagram: 576 bytes.
const BLOCKS_PER_COMPOUND: usize = 24;

pub(super) fn on_rtcp(state: &mut State, now: Instant, compound: &[u8]) -> Result<(), Dropped> {
    for packet in rtcp::parse(compound) {
        match packet.map_err(|_| Dropped::Malformed)? {
            Packet::SenderReport(report) => {
                if let Some(place) = state.place(report.ssrc) {
                    state.slots[place.slot].on_sender_report(report.info.ntp, now);
                }
                report.blocks().for_each(|block| on_block(state, &block, now));
            }
            Packet::ReceiverReport(report) => {
                report.blocks().for_each(|block| on_block(state, &block, now));
            }
            Packet::Nack(nack) => {
                if let Some(outgoing) = outgoing(state, nack.media) {
                    outgoing.on_nack(nack.lost());
                }
            }
            Packet::Pli { media, .. } => {
                if let Some(outgoing) = outgoing(state, media) {
                    outgoing.on_keyframe_request(None);
                }
            }
            Packet::Fir(fir) => {
                for (media, request) in fir.requests() {
                    if let Some(outgoing) = outgoing(state, media) {
                        outgoing.on_keyframe_request(Some(request));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn outgoing(state: &mut State, ssrc: u32) -> Option<&mut Outgoing> {
    state.sent.iter_mut().find(|outgoing| outgoing.ssrc == ssrc)
}

fn on_block(state: &mut State, block: &rtcp::ReportBlock, now: Instant) {
    let ntp = state.config.clock.ntp_at(now);
    let Some(outgoing) = outgoing(state, block.ssrc) else { return };
    outgoing.on_report(block);
    if let Some(rtt_ms) = rtp::report::rtt_ms(block, ntp) {
        state.rtt.sum_ms += rtt_ms;
        state.rtt.count += 1;
        let longest = rtp::nack::longest_lately(state.longest_rtt_ms, rtt_ms);
        state.longest_rtt_ms = Some(longest);
        let rtt = Duration::from_secs_f64(longest / 1000.0);
        state.slots.iter_mut().for_each(|slot| slot.set_rtt(rtt));
    }
}

fn sender_ssrc(state: &State) -> u32 {
    state.sent.first().map_or(state.own_ssrc, |outgoing| outgoing.ssrc)
}

/// What a bot says at once of what it receives, in reduced size (RFC 5506) where both sides take that. Elsewhere a receiver
/// report of that stream goes first: Janus finds the stream by the report's block, and drops feedback without one.
struct Feedback<'a> {
    compounds: Compounds<'a>,
    sender: u32,
    cname: &'a str,
    now: Instant,
}

impl Feedback<'_> {
    /// Adds packets about a slot, and takes them.
    fn add(&mut self, slot: &mut Slot, packets: &mut Vec<u8>) -> Result<(), SrtpError> {
        if packets.is_empty() {
            return Ok(());
        }
        if slot.takes_reduced_size() {
            self.compounds.add(packets)?;
        } else {
            let mut whole = Vec::new();
            let block = slot.block_of_feedback(self.now);
            rtcp::receiver_report(&mut whole, self.sender, block.as_slice());
            rtcp::sdes_cname(&mut whole, self.sender, self.cname);
            whole.extend_from_slice(packets);
            self.compounds.flush()?;
            self.compounds.add(&whole)?;
            self.compounds.flush()?;
        }
        packets.clear();
        Ok(())
    }
}

/// NACKs, keyframe requests and transport-wide feedback.
pub(super) fn poll_feedback(
    state: &mut State,
    now: Instant,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), SrtpError> {
    let sender = sender_ssrc(state);
    let Some(secured) = &mut state.secured else { return Ok(()) };
    let compounds = Compounds::new(&mut secured.sealer, sink);
    let mut feedback = Feedback { compounds, sender, cname: &state.config.cname, now };
    let (mut packet, mut lost) = (Vec::new(), Vec::new());
    for index in &state.repaired {
        let slot = &mut state.slots[*index];
        let Some(media) = slot.ssrc else { continue };
        slot.nacks_due(now, &mut lost);
        if !lost.is_empty() {
            state.counters.nacked += lost.len() as u64;
            rtcp::nack(&mut packet, sender, media, lost.drain(..));
        }
        if slot.keyframe_request_due(now) {
            state.counters.keyframes_asked += 1;
            rtcp::pli(&mut packet, sender, media);
        }
        feedback.add(slot, &mut packet)?;
    }
    if state.feedback_due.is_some_and(|due| due <= now) {
        (state.feedback_due, state.feedback_begun) = (None, None);
        let last = state.last_media_ssrc;
        while state.feedback.build(sender, last, &mut packet) {
            // It is about all streams: if the last one has left, another one's report does.
            let of = |slot: &Slot| [slot.ssrc, slot.rtx_ssrc].contains(&Some(last));
            let at = state.slots.iter().position(of).unwrap_or(0);
            match state.slots.get_mut(at) {
                Some(slot) => feedback.add(slot, &mut packet)?,
                None => packet.clear(),
            }
        }
    }
    feedback.compounds.flush()
}

/// Sender and receiver reports with the canonical name (RFC 3550 §6.1).
pub(super) fn report(
    state: &mut State,
    now: Instant,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), SrtpError> {
    let sender = sender_ssrc(state);
    let ntp = state.config.clock.ntp_at(now);
    let Some(secured) = &mut state.secured else { return Ok(()) };
    let blocks: Vec<_> = state.slots.iter_mut().filter_map(|slot| slot.report_block(now)).collect();
    let infos: Vec<_> = state
        .sent
        .iter()
        .filter_map(|sent| Some((sent.ssrc, sent.sender_info(now, ntp)?)))
        .collect();
    let mut compounds = Compounds::new(&mut secured.sealer, sink);
    let mut packet = Vec::new();
    let (first, rest) = blocks.split_at(blocks.len().min(BLOCKS_PER_COMPOUND));
    match infos.split_first() {
        Some(((ssrc, info), others)) => {
            rtcp::sender_report(&mut packet, *ssrc, info, first);
            for (ssrc, info) in others {
                rtcp::sender_report(&mut packet, *ssrc, info, &[]);
            }
        }
        None => rtcp::receiver_report(&mut packet, sender, first),
    }
    rtcp::sdes_cname(&mut packet, sender, &state.config.cname);
    for (ssrc, _) in infos.iter().filter(|(ssrc, _)| *ssrc != sender) {
        rtcp::sdes_cname(&mut packet, *ssrc, &state.config.cname);
    }
    compounds.add(&packet)?;
    for more in rest.chunks(BLOCKS_PER_COMPOUND) {
        compounds.flush()?;
        packet.clear();
        rtcp::receiver_report(&mut packet, sender, more);
        rtcp::sdes_cname(&mut packet, sender, &state.config.cname);
        compounds.add(&packet)?;
    }
    compounds.flush()
}
