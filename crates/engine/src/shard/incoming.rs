//! Opens each packet once with its sender's keys, and notes what it tells.

use super::claim::Sampler;
use super::datagram::Datagram;
use super::encoding::{Arrival, Arrived};
use super::forward::flush;
use super::index::{PersonIndex, TrackIndex};
use super::model::Model;
use super::packet::Passed;
use super::person::{Person, Source};
use super::relay::{pass_on, relay};
use super::restore::{Carrier, restore};
use super::track::Track;
use super::turn::Turn;
use crate::drops::InDrop;
use crate::relay::{RelayContent, RelayPacket};
use crate::sink::Sink;
use rtp::RtpHeader;
use rtp::header;
use rtp::negotiated::Line;
use rtp::srtp::SrtpError;
use std::time::Instant;

/// The bit of an RTP header that says that padding follows the payload.
const PADDING: u8 = 0x20;

/// What a packet was, and what it changes beside its track.
pub(super) struct Received {
    pub audio: bool,
    /// Speech began with it.
    pub speech_began: bool,
    /// A packet is missing, or one was repaired: the next tick is to come soon.
    pub hurry: bool,
    /// It was noted, but does not go on.
    pub dropped: Option<InDrop>,
}

impl From<SrtpError> for InDrop {
    fn from(error: SrtpError) -> Self {
        match error {
            SrtpError::Replayed => Self::Replayed,
            SrtpError::TooOld => Self::TooOld,
            SrtpError::TooManyStreams => Self::TooManyStreams,
            SrtpError::AuthenticationFailed => Self::AuthenticationFailed,
            SrtpError::BufferTooSmall => Self::TooLong,
            _ => Self::Malformed,
        }
    }
}

/// An SRTP datagram came in. It goes to the mixer, or into the queue and to the other shards that want it.
///
/// # Errors
/// Why it was discarded.
pub(super) fn handle_rtp<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    datagram: &Datagram<'_>,
    sampler: &mut Sampler,
) -> Result<Received, InDrop> {
    if model.queue.is_full() {
        flush(model, turn);
    }
    let Model { people, tracks, person_by_address, queue, mixes, .. } = &mut *model;
    let plain = queue.lend().ok_or(InDrop::TooLong)?;
    let index = *person_by_address.get(&datagram.source).ok_or(InDrop::UnknownSource)?;
    let person = people[index].as_mut().ok_or(InDrop::UnknownSource)?;
    let (track_index, arrival) = open((index, person), tracks, datagram, plain)?;
    let track = tracks[track_index].as_mut().ok_or(InDrop::UnknownSsrc)?;
    if track.mixed {
        let told = mixes.get(&person.room).map(|mix| mix.told).unwrap_or_default();
        let (at, level) = (datagram.arrival, arrival.passed.level_dbov());
        track.glances.opened(at, level, told.bar_dbov(at));
    }
    if let Some(carrier) = Carrier::of(track, &arrival, plain) {
        // What it repeats goes before it.
        restore(model, turn, (track_index, &carrier), sampler);
        if model.queue.is_full() {
            flush(model, turn);
        }
        carrier.put_back(model.queue.lend().ok_or(InDrop::TooLong)?);
    }
    let Model { tracks, queue, .. } = &mut *model;
    let track = tracks[track_index].as_mut().ok_or(InDrop::UnknownSsrc)?;
    let plain: &[u8] = queue.lend().ok_or(InDrop::TooLong)?;
    let (number, repaired) = (arrival.number, arrival.repaired);
    let missing =
        |track: &Track| track.encoding.reception.as_ref().is_some_and(|it| it.missing.is_pending());
    let arrived = track.encoding.arrive(arrival, plain, track.fate(), turn.now, sampler)?;
    let hurry = repaired || missing(track);
    let key = track.key;
    if track.mixed && (track.encoding.is_measured() || sampler.doubts_silence(key)) {
        track.glances.open_for(datagram.arrival);
    }
    let (opened, speech_began) = match arrived {
        Arrived::Media(opened, speech_began) => (opened, speech_began),
        Arrived::Nothing(reason) => {
            // It takes no number, here and on other shards. The packets queued before it get theirs first.
            flush(model, turn);
            model.leave_out(track_index, number);
            let track = model.tracks[track_index].as_mut().ok_or(InDrop::UnknownSsrc)?;
            relay(track, turn, &RelayPacket::empty(key, number, RelayContent::Padding));
            return Err(reason);
        }
    };
    let audio = opened.audio;
    let dropped = pass_on(track, turn, &opened, plain, datagram.arrival).err();
    if !track.mixed && dropped.is_none() {
        queue.push(track_index, opened);
    }
    Ok(Received { audio, speech_began, hurry, dropped })
}

/// Opens a packet of a person; a retransmission becomes the original again.
fn open(
    (index, person): (PersonIndex, &mut Person),
    tracks: &mut [Option<Track>],
    datagram: &Datagram<'_>,
    plain: &mut [u8],
) -> Result<(TrackIndex, Arrival), InDrop> {
    let known = header::ssrc(datagram.data).and_then(|ssrc| person.source(ssrc));
    admit((person, known), tracks, datagram).ok_or(InDrop::SenderShare)?;
    let secure = person.secure.as_mut().ok_or(InDrop::NoKeys)?;
    let opened = secure.opener.open_rtp(datagram.data, plain)?;
    secure.heard_at = datagram.arrival;
    let source =
        known.or_else(|| adopt(person, tracks, index, (&opened.header, datagram.arrival), plain));
    let Some(source) = source else {
        note_arrival_of_unknown(person, &opened.header, plain, datagram);
        return Err(InDrop::UnknownSsrc);
    };
    let track = tracks[source.track()].as_mut().ok_or(InDrop::UnknownSsrc)?;
    let passed = note_extensions(person, track, &opened.header, plain, datagram);
    let repaired = matches!(source, Source::Rtx(_));
    if repaired && Some(opened.header.payload_type) != track.encoding.line.rtx_payload_type {
        return Err(InDrop::UnknownPayloadType);
    }
    let (header, len) =
        if repaired { unwrap_rtx(track, plain, opened.len)? } else { (opened.header, opened.len) };
    let payload = header.payload_range(&plain[..len]).map_err(|_| InDrop::Malformed)?;
    // The history and other shards get it without its padding.
    plain[0] &= !PADDING;
    let reception = track.encoding.reception.as_mut().ok_or(InDrop::UnknownSsrc)?;
    let number = if repaired {
        reception.number_of_repaired(header.sequence)
    } else {
        reception.number(opened.index)
    };
    let at = datagram.arrival;
    Ok((source.track(), Arrival { number, header, payload, passed, repaired, at }))
}

/// Whether a participant and their track may send one more packet, which was not opened yet.
#[inline]
fn admit(
    (person, source): (&mut Person, Option<Source>),
    tracks: &mut [Option<Track>],
    datagram: &Datagram<'_>,
) -> Option<()> {
    let (intake, bytes, now) = (&mut person.intake, datagram.data.len(), datagram.arrival);
    let may = match source.and_then(|source| tracks[source.track()].as_mut()) {
        None => intake.takes_unknown(now),
        Some(track) if track.encoding.is_video() => {
            let may = intake.takes_picture(bytes, now);
            if !may {
                // Whoever sends too much is not asked for more, and nothing is sent in place of what was dropped.
                track.encoding.gaps.forget();
                track.encoding.reception.iter_mut().for_each(|it| it.missing.give_up());
            }
            may
        }
        Some(track) => intake.takes_sound(&mut track.sound, bytes, now),
    };
    may.then_some(())
}

/// Finds the line of an SSRC that is not known: the line announced none, or its publisher changed it. The packet's mid tells the
/// line. Without a mid, its payload type does, if only one line has that (RFC 8843 §9.2). The packet's RTP stream id tells the
/// layer (RFC 8852). All this is done after authentication.
fn adopt(
    person: &mut Person,
    tracks: &mut [Option<Track>],
    index: PersonIndex,
    (header, at): (&RtpHeader, Instant),
    plain: &[u8],
) -> Option<Source> {
    let payload_type = header.payload_type;
    let takes =
        |line: &Line| line.takes(payload_type) || line.rtx_payload_type == Some(payload_type);
    let alone = || person.sending.iter().filter(|line| takes(line)).count() == 1;
    let found = person.tracks.iter().copied().find(|track| {
        let Some(track) = tracks[*track].as_ref() else { return false };
        let line = &track.encoding.line;
        let text = |id: Option<u8>| {
            id.and_then(|id| header.find_extension(plain, id)).and_then(header::text)
        };
        let reception = track.encoding.reception.as_ref();
        let late = reception.is_some_and(|reception| reception.is_retired(header.ssrc, at));
        let ids = line.extensions;
        let layer = track
            .rid()
            .is_none_or(|rid| text(ids.rid) == Some(rid) || text(ids.repaired_rid) == Some(rid));
        let named = text(ids.mid).map_or_else(alone, |mid| mid == line.mid);
        track.publisher() == Some(index) && takes(line) && named && layer && !late
    })?;
    let encoding = &mut tracks[found].as_mut()?.encoding;
    let source = if Some(payload_type) == encoding.line.rtx_payload_type {
        Source::Rtx(found)
    } else {
        encoding.adopt(header.ssrc, at);
        Source::Media(found)
    };
    person.sources.retain(|(_, known)| *known != source);
    person.sources.push((header.ssrc, source));
    Some(source)
}

/// Notes what the packet's header extensions tell, each packet once; returns those that go on.
fn note_extensions(
    person: &mut Person,
    track: &Track,
    header: &RtpHeader,
    plain: &[u8],
    datagram: &Datagram<'_>,
) -> Passed {
    let line = &track.encoding.line;
    let mut passed = Passed::default();
    for (id, value) in header.extensions(plain) {
        passed.find(&line.extensions, id, value);
        if Some(id) == line.extensions.transport_sequence
            && line.transport_cc
            && let Some(sequence) = header::transport_sequence(value)
        {
            person.arrivals.record(sequence, datagram.arrival);
        }
    }
    passed
}

/// A packet of an unknown stream did arrive. If feedback said that it was lost, its sender would lower its estimate of the
/// path. All lines of a participant have the same ids of extensions, since they share the path (RFC 8843 §9).
fn note_arrival_of_unknown(
    person: &mut Person,
    header: &RtpHeader,
    plain: &[u8],
    datagram: &Datagram<'_>,
) {
    let line = person.sending.iter().find(|line| line.transport_cc);
    let id = line.and_then(|line| line.extensions.transport_sequence);
    let value = id.and_then(|id| header.find_extension(plain, id));
    if let Some(sequence) = value.and_then(header::transport_sequence) {
        person.arrivals.record(sequence, datagram.arrival);
    }
}

/// A retransmission becomes the original again (RFC 4588).
fn unwrap_rtx(track: &Track, plain: &mut [u8], len: usize) -> Result<(RtpHeader, usize), InDrop> {
    let ids = track.encoding.reception.as_ref().and_then(|reception| reception.ids);
    let ssrc = ids.map_or(0, |ids| ids.ssrc);
    let len = rtp::rtx::unwrap(plain, len, ssrc, track.encoding.line.payload_type)
        .map_err(|_| InDrop::Malformed)?
        .ok_or(InDrop::PaddingOnly)?;
    let header = RtpHeader::parse(&plain[..len]).map_err(|_| InDrop::Malformed)?;
    Ok((header, len))
}
