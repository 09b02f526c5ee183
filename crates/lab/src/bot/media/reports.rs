//! RTCP of a bot: what the other side says of its streams, and what it says of theirs.

use super::{BotMedia, Dropped};
use crate::bot::outgoing::Outgoing;
use crate::bot::rtcp::Compounds;
use rtp::rtcp::{self, Packet};
use rtp::srtp::SrtpError;
use std::time::{Duration, Instant};

/// Report blocks in one datagram: 576 bytes.
const BLOCKS_PER_COMPOUND: usize = 24;

impl BotMedia {
    pub(super) fn on_rtcp(&mut self, now: Instant, compound: &[u8]) -> Result<(), Dropped> {
        for packet in rtcp::parse(compound) {
            match packet.map_err(|_| Dropped::Malformed)? {
                Packet::SenderReport(report) => {
                    if let Some(place) = self.place(report.ssrc) {
                        self.slots[place.slot].on_sender_report(report.info.ntp, now);
                    }
                    report.blocks().for_each(|block| self.on_block(&block, now));
                }
                Packet::ReceiverReport(report) => {
                    report.blocks().for_each(|block| self.on_block(&block, now));
                }
                Packet::Nack(nack) => {
                    if let Some(outgoing) = self.outgoing(nack.media) {
                        outgoing.on_nack(nack.lost());
                    }
                }
                Packet::Pli { media, .. } => {
                    if let Some(outgoing) = self.outgoing(media) {
                        outgoing.on_keyframe_request(None);
                    }
                }
                Packet::Fir(fir) => {
                    for (media, request) in fir.requests() {
                        if let Some(outgoing) = self.outgoing(media) {
                            outgoing.on_keyframe_request(Some(request));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn outgoing(&mut self, ssrc: u32) -> Option<&mut Outgoing> {
        self.sent.iter_mut().find(|outgoing| outgoing.ssrc == ssrc)
    }

    fn on_block(&mut self, block: &rtcp::ReportBlock, now: Instant) {
        let ntp = self.config.clock.ntp_at(now);
        let Some(outgoing) = self.outgoing(block.ssrc) else { return };
        outgoing.on_report(block);
        if let Some(rtt_ms) = rtp::report::rtt_ms(block, ntp) {
            self.rtt.sum_ms += rtt_ms;
            self.rtt.count += 1;
            let rtt = Duration::from_secs_f64(rtt_ms / 1000.0);
            self.slots.iter_mut().for_each(|slot| slot.set_rtt(rtt));
        }
    }

    fn sender_ssrc(&self) -> u32 {
        self.sent.first().map_or(self.own_ssrc, |outgoing| outgoing.ssrc)
    }

    /// NACKs, keyframe requests and transport-wide feedback, in reduced size (RFC 5506).
    pub(super) fn poll_feedback(
        &mut self,
        now: Instant,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SrtpError> {
        let sender = self.sender_ssrc();
        let Some(secured) = &mut self.secured else { return Ok(()) };
        let mut compounds = Compounds::new(&mut secured.sealer, sink);
        let mut packet = Vec::new();
        let mut lost = Vec::new();
        for index in &self.repaired {
            let slot = &mut self.slots[*index];
            let Some(media) = slot.ssrc else { continue };
            slot.nacks_due(now, &mut lost);
            if !lost.is_empty() {
                self.counters.nacked += lost.len() as u64;
                rtcp::nack(&mut packet, sender, media, lost.drain(..));
            }
            if slot.keyframe_request_due(now) {
                self.counters.keyframes_asked += 1;
                rtcp::pli(&mut packet, sender, media);
            }
            if !packet.is_empty() {
                compounds.add(&packet)?;
                packet.clear();
            }
        }
        if self.feedback_due.is_some_and(|due| due <= now) {
            (self.feedback_due, self.feedback_begun) = (None, None);
            while self.feedback.build(sender, self.last_media_ssrc, &mut packet) {
                compounds.add(&packet)?;
                packet.clear();
            }
        }
        compounds.flush()
    }

    /// Sender and receiver reports with the canonical name (RFC 3550 §6.1).
    pub(super) fn report(
        &mut self,
        now: Instant,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SrtpError> {
        let sender = self.sender_ssrc();
        let ntp = self.config.clock.ntp_at(now);
        let Some(secured) = &mut self.secured else { return Ok(()) };
        let blocks: Vec<_> =
            self.slots.iter_mut().filter_map(|slot| slot.report_block(now)).collect();
        let infos: Vec<_> = self
            .sent
            .iter()
            .filter_map(|sent| Some((sent.ssrc, sent.stats.sender_info(now, ntp)?)))
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
        rtcp::sdes_cname(&mut packet, sender, &self.config.cname);
        for (ssrc, _) in infos.iter().filter(|(ssrc, _)| *ssrc != sender) {
            rtcp::sdes_cname(&mut packet, *ssrc, &self.config.cname);
        }
        compounds.add(&packet)?;
        for more in rest.chunks(BLOCKS_PER_COMPOUND) {
            compounds.flush()?;
            packet.clear();
            rtcp::receiver_report(&mut packet, sender, more);
            rtcp::sdes_cname(&mut packet, sender, &self.config.cname);
            compounds.add(&packet)?;
        }
        compounds.flush()
    }
}
