//! What a bot makes of a datagram: opened, or read by its header.

use super::reports::on_rtcp;
use super::state::{Dropped, Opening, Place, State};
use crate::clients::bot::hearing::Hearing;
use crate::clients::bot::marks::Ears;
use crate::clients::bot::outgoing::Clock;
use crate::clients::bot::padding;
use crate::clients::bot::slot::Heard;
use rtp::RtpHeader;
use rtp::negotiated::Kind;
use rtp::report::Ntp;
use rtp::srtp::SrtpError;
use rtp::twcc::{FEEDBACK_LONGEST, FEEDBACK_PACKETS};
use std::time::{Duration, Instant};

/// Windows of the mix kept until they are taken.
const MAX_WINDOWS: usize = 64;
/// Longest datagram that is opened.
const MAX_RECEIVED: usize = 2048;
/// Time from a packet to the transport-wide feedback that tells of it, where there are many.
const FEEDBACK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time under way that is believed.
const MAX_TRANSIT: Duration = Duration::from_secs(60);

/// A bot that opens in turn does so for this time.
const TURN: Duration = Duration::from_secs(3);

/// Takes an SRTP or SRTCP datagram that arrived at `now`. Errors: why it was dropped; it is
/// counted.
pub(super) fn datagram(media: &mut State, now: Instant, datagram: &[u8]) -> Result<(), Dropped> {
    let taken = take_datagram(media, now, datagram);
    if let Err(dropped) = taken {
        *media.counters.drops.entry(dropped.as_str()).or_default() += 1;
    }
    taken
}

fn take_datagram(media: &mut State, now: Instant, datagram: &[u8]) -> Result<(), Dropped> {
    if datagram.len() > MAX_RECEIVED {
        return Err(Dropped::TooLong);
    }
    if let Some(taken) = take_closed(media, now, datagram) {
        return taken;
    }
    let secured = media.secured.as_mut().ok_or(Dropped::NoKeys)?;
    let mut buffer = [0; MAX_RECEIVED];
    if datagram.get(1).is_some_and(|byte| rtp::header::is_rtcp(*byte)) {
        let len = secured.opener.open_rtcp(datagram, &mut buffer).map_err(Dropped::Srtp)?;
        media.urgent = true;
        return on_rtcp(media, now, &buffer[..len]);
    }
    let opened = match secured.opener.open_rtp(datagram, &mut buffer) {
        Err(SrtpError::Replayed) if may_come_twice(media, datagram) => return Ok(()),
        opened => opened.map_err(Dropped::Srtp)?,
    };
    let header = opened.header;
    let packet = &buffer[..opened.len];
    let place = match media.place(header.ssrc) {
        Some(place) => place,
        None => place_by_mid(media, &header, packet).ok_or(Dropped::UnknownSource)?,
    };
    let transit = note_arrival(media, place, &header, packet, now);
    let clock = media.config.clock;
    let slot = &mut media.slots[place.slot];
    media.urgent |= slot.line.codec.kind() == Kind::Video;
    let heard = if place.rtx {
        media.counters.received_rtx += 1;
        let (Some(ssrc), payload_type) = (slot.ssrc, slot.line.payload_type) else {
            return Err(Dropped::UnknownSource);
        };
        let unwrapped = rtp::rtx::unwrap(&mut buffer, opened.len, ssrc, payload_type);
        let Some(len) = unwrapped.map_err(|_| Dropped::Malformed)? else { return Ok(()) };
        let header = RtpHeader::parse(&buffer[..len]).map_err(|_| Dropped::Malformed)?;
        slot.on_repaired(&header, &buffer[header.header_len..len], now)
    } else {
        media.counters.received += 1;
        let payload = header.payload_range(packet).map_err(|_| Dropped::Malformed)?;
        let payload = &packet[payload];
        let red = slot.is_red(header.payload_type).then_some(payload);
        let sound = match red {
            Some(red) => &red[rtp::red::primary(red).map_err(|_| Dropped::Malformed)?],
            None => payload,
        };
        let heard = slot.on_packet(&header, payload, now);
        let is_sound = slot.line.codec.kind() == Kind::Audio;
        let mark = || padding::mark_in(sound).filter(|_| is_sound);
        let transit = transit.or_else(|| under_way(clock, mark()?, now));
        let copies = slot.recover(&header, red, transit);
        transit.into_iter().for_each(|transit| slot.note_transit(transit));
        if slot.is_mix() {
            for block in copies {
                let bytes = &payload[block.bytes];
                let sequence = header.sequence.wrapping_sub(block.packets_back as u16);
                let timestamp = header.timestamp.wrapping_sub(block.offset);
                hear(media, (sequence, timestamp), bytes, now);
            }
            hear(media, (header.sequence, header.timestamp), sound, now);
        }
        heard
    };
    note(media, heard.map_err(|_| Dropped::Malformed)?, now);
    Ok(())
}

/// Takes a packet of sound by its header alone, where that is enough; None where it must be
/// opened.
fn take_closed(media: &mut State, now: Instant, datagram: &[u8]) -> Option<Result<(), Dropped>> {
    let Opening::InTurn { place, of } = media.config.opening else { return None };
    let turn = now.saturating_duration_since(media.config.clock.origin).as_secs() / TURN.as_secs();
    if (turn + u64::from(place)).is_multiple_of(u64::from(of.max(1))) {
        return None;
    }
    if datagram.len() < rtp::header::FIXED_LEN || rtp::header::is_rtcp(datagram[1]) {
        return None;
    }
    let ssrc = u32::from_be_bytes([datagram[8], datagram[9], datagram[10], datagram[11]]);
    let place = media.place(ssrc)?;
    let slot = &media.slots[place.slot];
    // What a packet of RED repeats stands in its payload.
    let red = slot.is_red(datagram[1] & 0x7F);
    if place.rtx || red || slot.line.codec.kind() != Kind::Audio {
        return None;
    }
    if slot.is_mix() {
        if listens(media, now) {
            return None;
        }
        (media.hearing, media.ears) = (None, None);
    }
    let noted = match media.secured.as_mut()?.opener.note_rtp(datagram) {
        Ok(noted) => noted?,
        Err(error) => return Some(Err(Dropped::Srtp(error))),
    };
    let (header, packet) = (noted.header, &datagram[..noted.len]);
    let transit = note_arrival(media, place, &header, packet, now);
    media.counters.received += 1;
    media.counters.received_closed += 1;
    // Padding is told by its last byte, which is closed: bots and servers send none with sound.
    let payload = &packet[header.header_len..];
    let slot = &mut media.slots[place.slot];
    let heard = slot.on_packet(&header, payload, now);
    slot.recover(&header, None, transit);
    transit.into_iter().for_each(|transit| slot.note_transit(transit));
    Some(heard.map(|heard| note(media, heard, now)).map_err(|_| Dropped::Malformed))
}

/// Whether a packet is of a stream whose lost packets come again as they were: where one is asked for twice, it comes twice.
fn may_come_twice(media: &State, packet: &[u8]) -> bool {
    let ssrc = packet.get(8..12).and_then(|bytes| Some(u32::from_be_bytes(bytes.try_into().ok()?)));
    let place = ssrc.and_then(|ssrc| media.place(ssrc));
    place.is_some_and(|place| media.slots[place.slot].resends_as_it_was())
}

/// What a packet's header says, whatever is in it; how long it was under way, where it is marked.
fn note_arrival(
    media: &mut State,
    place: Place,
    header: &RtpHeader,
    packet: &[u8],
    now: Instant,
) -> Option<Duration> {
    let line = &media.slots[place.slot].line;
    let sequence = (line.extensions.transport_sequence)
        .filter(|_| line.transport_cc)
        .and_then(|id| rtp::header::transport_sequence(header.find_extension(packet, id)?));
    let captured = line
        .extensions
        .capture_time
        .filter(|_| !place.rtx)
        .and_then(|id| rtp::header::parse_abs_capture_time(header.find_extension(packet, id)?));
    if let Some(sequence) = sequence {
        let few = media.feedback.pending() < FEEDBACK_PACKETS;
        media.feedback.record(sequence, now);
        media.last_media_ssrc = header.ssrc;
        // Many packets are told of soon after the first, few later.
        let begun = *media.feedback_begun.get_or_insert(now);
        let many = few && media.feedback.pending() >= FEEDBACK_PACKETS;
        if media.feedback_due.is_none() || many {
            let wait = if many { FEEDBACK_INTERVAL } else { FEEDBACK_LONGEST };
            media.feedback_due = Some(now.max(begun + wait));
            media.urgent = true;
        }
    }
    under_way(media.config.clock, captured?, now)
}

/// How long something was under way that was said at this NTP time. None by a clock that is not ours: such a time lies ahead, or
/// far behind.
fn under_way(clock: Clock, ntp: u64, now: Instant) -> Option<Duration> {
    let transit = clock.unix_at(now).checked_sub(Ntp(ntp).to_unix()?)?;
    (transit < MAX_TRANSIT).then_some(transit)
}

/// Whether it is its turn to check what it hears of a mix.
fn listens(media: &State, now: Instant) -> bool {
    let tone = media.tone.as_ref().filter(|tone| tone.role.listens);
    tone.is_some_and(|tone| tone.role.plan.listens(tone.role.place, tone.at(now)))
        || media.marks.as_ref().is_some_and(|marks| marks.listens(now))
}

fn note(media: &mut State, heard: Heard, now: Instant) {
    media.counters.received_unmapped += u64::from(heard.unmapped);
    if heard.audio {
        media.first_audio.get_or_insert(now);
    }
    if heard.frame {
        media.first_frame.get_or_insert(now);
    }
}

/// A sender that announced no SSRC is known by the `mid` extension (RFC 9143 §9.2).
fn place_by_mid(media: &mut State, header: &RtpHeader, packet: &[u8]) -> Option<Place> {
    let (index, rtx) = media.slots.iter().enumerate().find_map(|(index, slot)| {
        let value = header.find_extension(packet, slot.line.extensions.mid?)?;
        let rtx = Some(header.payload_type) == slot.line.rtx_payload_type;
        (rtp::header::text(value) == Some(&slot.line.mid)).then_some((index, rtx))
    })?;
    let slot = &mut media.slots[index];
    match (rtx, slot.ssrc) {
        (false, None) => slot.bind(header.ssrc, slot.rtx_ssrc),
        (true, _) if slot.rtx_ssrc.is_none() => slot.rtx_ssrc = Some(header.ssrc),
        _ => return None,
    }
    let place = Place { slot: index, rtx };
    media.set_place(header.ssrc, place);
    Some(place)
}

/// A packet of the room's mix, by its sequence number and timestamp, for the ears of those whose turn it is.
fn hear(media: &mut State, (sequence, timestamp): (u16, u32), payload: &[u8], now: Instant) {
    if !listens(media, now) {
        (media.hearing, media.ears) = (None, None);
        return;
    }
    if media.marks.is_some() {
        if media.ears.is_none() {
            media.ears = Ears::new(now).ok();
        }
        if let Some(ears) = &mut media.ears {
            ears.packet(sequence, payload, now);
        }
        return;
    }
    if let (None, Some(tone)) = (&media.hearing, &media.tone) {
        media.hearing = Hearing::new(tone.origin).ok();
    }
    let Some(hearing) = &mut media.hearing else { return };
    hearing.packet(sequence, timestamp, payload, now);
    let windows = hearing.take_windows();
    if media.windows.len() < MAX_WINDOWS {
        media.windows.extend(windows);
    }
}
