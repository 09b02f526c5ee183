//! What a bot makes of a datagram: opened, or read by its header.

use super::{BotMedia, Dropped, FEEDBACK_INTERVAL, MAX_RECEIVED, MAX_WINDOWS, Place};
use crate::bot::hearing::Hearing;
use crate::bot::marks::Ears;
use crate::bot::slot::Heard;
use rtp::RtpHeader;
use rtp::negotiated::Kind;
use rtp::report::Ntp;
use rtp::twcc::{FEEDBACK_LONGEST, FEEDBACK_PACKETS};
use std::time::{Duration, Instant};

/// Longest time under way that is believed.
const MAX_TRANSIT: Duration = Duration::from_secs(60);

/// A bot that opens in turn does so for this time.
const TURN: Duration = Duration::from_secs(3);

/// Which packets of sound a bot opens. Pictures are always opened: whether a frame is whole stands
/// in its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// All.
    All,
    /// In one turn of `of` those of everyone whose `place` it is; of the rest the headers, which
    /// tell loss, jitter and delay. What a bot listens to is always opened.
    InTurn {
        /// Its place among those who take turns, from 0.
        place: u32,
        /// How many turns there are (at least 1).
        of: u32,
    },
}

impl BotMedia {
    /// Takes an SRTP or SRTCP datagram that arrived at `now`. Errors: why it was dropped; it is
    /// counted.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) -> Result<(), Dropped> {
        let taken = self.take_datagram(now, datagram);
        if let Err(dropped) = taken {
            *self.counters.drops.entry(dropped.as_str()).or_default() += 1;
        }
        taken
    }

    fn take_datagram(&mut self, now: Instant, datagram: &[u8]) -> Result<(), Dropped> {
        if datagram.len() > MAX_RECEIVED {
            return Err(Dropped::TooLong);
        }
        if let Some(taken) = self.take_closed(now, datagram) {
            return taken;
        }
        let secured = self.secured.as_mut().ok_or(Dropped::NoKeys)?;
        let mut buffer = [0; MAX_RECEIVED];
        if datagram.get(1).is_some_and(|byte| rtp::header::is_rtcp(*byte)) {
            let len = secured.opener.open_rtcp(datagram, &mut buffer).map_err(Dropped::Srtp)?;
            self.urgent = true;
            return self.on_rtcp(now, &buffer[..len]);
        }
        let opened = secured.opener.open_rtp(datagram, &mut buffer).map_err(Dropped::Srtp)?;
        let header = opened.header;
        let packet = &buffer[..opened.len];
        let place = match self.place(header.ssrc) {
            Some(place) => place,
            None => self.place_by_mid(&header, packet).ok_or(Dropped::UnknownSource)?,
        };
        let transit = self.note_arrival(place, &header, packet, now);
        let slot = &mut self.slots[place.slot];
        self.urgent |= slot.line.codec.kind() == Kind::Video;
        let heard = if place.rtx {
            self.counters.received_rtx += 1;
            let (Some(ssrc), payload_type) = (slot.ssrc, slot.line.payload_type) else {
                return Err(Dropped::UnknownSource);
            };
            let unwrapped = rtp::rtx::unwrap(&mut buffer, opened.len, ssrc, payload_type);
            let Some(len) = unwrapped.map_err(|_| Dropped::Malformed)? else { return Ok(()) };
            let header = RtpHeader::parse(&buffer[..len]).map_err(|_| Dropped::Malformed)?;
            slot.on_repaired(&header, &buffer[header.header_len..len], now)
        } else {
            self.counters.received += 1;
            let payload = header.payload_range(packet).map_err(|_| Dropped::Malformed)?;
            let heard = slot.on_packet(&header, &packet[payload.clone()], now);
            transit.into_iter().for_each(|transit| slot.note_transit(transit));
            if slot.is_mix() {
                self.hear(&header, &packet[payload], now);
            }
            heard
        };
        self.note(heard.map_err(|_| Dropped::Malformed)?, now);
        Ok(())
    }

    /// Takes a packet of sound by its header alone, where that is enough; None where it must be
    /// opened.
    fn take_closed(&mut self, now: Instant, datagram: &[u8]) -> Option<Result<(), Dropped>> {
        let Opening::InTurn { place, of } = self.config.opening else { return None };
        let turn =
            now.saturating_duration_since(self.config.clock.origin).as_secs() / TURN.as_secs();
        if (turn + u64::from(place)).is_multiple_of(u64::from(of.max(1))) {
            return None;
        }
        if datagram.len() < rtp::header::FIXED_LEN || rtp::header::is_rtcp(datagram[1]) {
            return None;
        }
        let ssrc = u32::from_be_bytes([datagram[8], datagram[9], datagram[10], datagram[11]]);
        let place = self.place(ssrc)?;
        let slot = &self.slots[place.slot];
        if place.rtx || slot.line.codec.kind() != Kind::Audio {
            return None;
        }
        if slot.is_mix() {
            if self.listens(now) {
                return None;
            }
            (self.hearing, self.ears) = (None, None);
        }
        let noted = match self.secured.as_mut()?.opener.note_rtp(datagram) {
            Ok(noted) => noted?,
            Err(error) => return Some(Err(Dropped::Srtp(error))),
        };
        let (header, packet) = (noted.header, &datagram[..noted.len]);
        let transit = self.note_arrival(place, &header, packet, now);
        self.counters.received += 1;
        self.counters.received_closed += 1;
        // Padding is told by its last byte, which is closed: bots and servers send none with sound.
        let payload = &packet[header.header_len..];
        let slot = &mut self.slots[place.slot];
        let heard = slot.on_packet(&header, payload, now);
        transit.into_iter().for_each(|transit| slot.note_transit(transit));
        Some(heard.map(|heard| self.note(heard, now)).map_err(|_| Dropped::Malformed))
    }

    /// What a packet's header says, whatever is in it; how long it was under way, where it is marked.
    fn note_arrival(
        &mut self,
        place: Place,
        header: &RtpHeader,
        packet: &[u8],
        now: Instant,
    ) -> Option<Duration> {
        let line = &self.slots[place.slot].line;
        let sequence = (line.extensions.transport_sequence)
            .filter(|_| line.transport_cc)
            .and_then(|id| rtp::header::transport_sequence(header.find_extension(packet, id)?));
        let captured =
            line.extensions.capture_time.filter(|_| !place.rtx).and_then(|id| {
                rtp::header::parse_abs_capture_time(header.find_extension(packet, id)?)
            });
        if let Some(sequence) = sequence {
            let few = self.feedback.pending() < FEEDBACK_PACKETS;
            self.feedback.record(sequence, now);
            self.last_media_ssrc = header.ssrc;
            // Many packets are told of soon after the first, few later.
            let begun = *self.feedback_begun.get_or_insert(now);
            let many = few && self.feedback.pending() >= FEEDBACK_PACKETS;
            if self.feedback_due.is_none() || many {
                let wait = if many { FEEDBACK_INTERVAL } else { FEEDBACK_LONGEST };
                self.feedback_due = Some(now.max(begun + wait));
                self.urgent = true;
            }
        }
        // A mark of a clock that is not ours tells nothing: it lies ahead, or far behind.
        let transit = self.config.clock.unix_at(now).checked_sub(Ntp(captured?).to_unix()?)?;
        (transit < MAX_TRANSIT).then_some(transit)
    }

    /// Whether it is its turn to check what it hears of a mix.
    fn listens(&self, now: Instant) -> bool {
        let tone = self.tone.as_ref().filter(|tone| tone.role.listens);
        tone.is_some_and(|tone| tone.role.plan.listens(tone.role.place, tone.at(now)))
            || self.marks.as_ref().is_some_and(|marks| marks.listens(now))
    }

    fn note(&mut self, heard: Heard, now: Instant) {
        self.counters.received_unmapped += u64::from(heard.unmapped);
        if heard.audio {
            self.first_audio.get_or_insert(now);
        }
        if heard.frame {
            self.first_frame.get_or_insert(now);
        }
    }

    /// A sender that announced no SSRC is known by the `mid` extension (RFC 9143 §9.2).
    fn place_by_mid(&mut self, header: &RtpHeader, packet: &[u8]) -> Option<Place> {
        let (index, rtx) = self.slots.iter().enumerate().find_map(|(index, slot)| {
            let value = header.find_extension(packet, slot.line.extensions.mid?)?;
            let rtx = Some(header.payload_type) == slot.line.rtx_payload_type;
            (rtp::header::text(value) == Some(&slot.line.mid)).then_some((index, rtx))
        })?;
        let slot = &mut self.slots[index];
        match (rtx, slot.ssrc) {
            (false, None) => slot.bind(header.ssrc, slot.rtx_ssrc),
            (true, _) if slot.rtx_ssrc.is_none() => slot.rtx_ssrc = Some(header.ssrc),
            _ => return None,
        }
        let place = Place { slot: index, rtx };
        self.set_place(header.ssrc, place);
        Some(place)
    }

    /// A packet of the room's mix, for the ears of those whose turn it is.
    fn hear(&mut self, header: &RtpHeader, payload: &[u8], now: Instant) {
        if !self.listens(now) {
            (self.hearing, self.ears) = (None, None);
            return;
        }
        if self.marks.is_some() {
            if self.ears.is_none() {
                self.ears = Ears::new(now).ok();
            }
            if let Some(ears) = &mut self.ears {
                ears.packet(header.sequence, payload, now);
            }
            return;
        }
        if let (None, Some(tone)) = (&self.hearing, &self.tone) {
            self.hearing = Hearing::new(tone.origin).ok();
        }
        let Some(hearing) = &mut self.hearing else { return };
        hearing.packet(header.sequence, header.timestamp, payload, now);
        let windows = hearing.take_windows();
        if self.windows.len() < MAX_WINDOWS {
            self.windows.extend(windows);
        }
    }
}
