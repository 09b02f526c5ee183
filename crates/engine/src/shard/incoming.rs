//! Step 2: a packet is opened once, and what it tells is noted.

use super::person::{Person, PersonIndex, Source, TrackIndex};
use super::rewrite::Inbound as Counters;
use super::track::Track;
use super::{Handled, Inbound, RelayContent, RelayPacket, Shard};
use crate::drops::InDrop;
use crate::limits::MAX_PACKET;
use crate::sink::{Now, Sink};
use rtp::RtpHeader;
use rtp::header::{self, AudioLevel};
use rtp::nack::Pushed;
use rtp::negotiated::Codec;
use rtp::srtp::SrtpError;
use std::ops::Range;

/// An opened packet of a track, on its way to the subscribers.
pub(super) struct Opened {
    pub header: RtpHeader,
    pub payload: Range<usize>,
    pub counters: Counters,
    /// The packet begins a keyframe; sound is always a beginning.
    pub begins: bool,
    /// It came as a retransmission: too late to switch to.
    pub repaired: bool,
    pub audio: bool,
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

impl Shard {
    pub(super) fn handle_rtp(
        &mut self,
        now: Now,
        datagram: &Inbound<'_>,
        sink: &mut impl Sink,
    ) -> Result<Handled, InDrop> {
        self.stats.rtp_in += 1;
        self.stats.rtp_in_bytes += datagram.data.len() as u64;
        let mut plain = std::mem::take(&mut self.plain);
        plain.resize(MAX_PACKET, 0);
        let opened = self.open(now, datagram, &mut plain, sink);
        let handled = opened.and_then(|(track, opened)| {
            self.pass_on(now, track, &opened, &plain, datagram, sink)?;
            Ok(if opened.audio { Handled::Audio } else { Handled::Video })
        });
        self.plain = plain;
        handled
    }

    /// The opened packet goes to the mixer, or to slots here and on other shards.
    fn pass_on(
        &mut self,
        now: Now,
        index: TrackIndex,
        opened: &Opened,
        plain: &[u8],
        datagram: &Inbound<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), InDrop> {
        let Some(track) = self.tracks[index].as_ref() else { return Ok(()) };
        let (key, mixed, silenced) = (track.key, track.mixed, track.silenced);
        let number = opened.counters.index;
        if silenced {
            let content = RelayContent::Silenced;
            let nothing = RelayPacket { track: key, index: number, content, bytes: &[] };
            self.relay(index, &nothing, sink);
            return Err(InDrop::Silenced);
        }
        if mixed {
            return self.hand_to_mixer(index, opened, plain, datagram.arrival, sink);
        }
        self.forward(now, index, opened, plain, sink);
        let bytes = &plain[..opened.payload.end];
        let content = if opened.repaired { RelayContent::Repaired } else { RelayContent::Original };
        let packet = RelayPacket { track: key, index: number, content, bytes };
        self.relay(index, &packet, sink);
        Ok(())
    }

    fn open(
        &mut self,
        now: Now,
        datagram: &Inbound<'_>,
        plain: &mut [u8],
        sink: &mut impl Sink,
    ) -> Result<(TrackIndex, Opened), InDrop> {
        let index = *self.person_by_address.get(&datagram.source).ok_or(InDrop::UnknownSource)?;
        let person = self.people[index].as_mut().ok_or(InDrop::UnknownSource)?;
        let secure = person.secure.as_mut().ok_or(InDrop::NoKeys)?;
        let opened = secure.opener.open_rtp(datagram.data, plain)?;
        let source = person
            .source(opened.header.ssrc)
            .or_else(|| adopt(person, &mut self.tracks, index, &opened.header, plain))
            .ok_or(InDrop::UnknownSsrc)?;
        let (Source::Media(track_index) | Source::Rtx(track_index)) = source;
        let track = self.tracks[track_index].as_mut().ok_or(InDrop::UnknownSsrc)?;
        note_arrival(person, track, &opened.header, plain, datagram);
        let repaired = matches!(source, Source::Rtx(_));
        let (header, len) = if repaired {
            unwrap_rtx(track, plain, opened.len)?
        } else {
            (opened.header, opened.len)
        };
        let payload = header.payload_range(&plain[..len]).map_err(|_| InDrop::Malformed)?;
        if payload.is_empty() {
            let (track, index) = (track.key, track.unwrap(header.sequence));
            self.skip_copies(track_index, index);
            let content = RelayContent::Padding;
            let skipped = RelayPacket { track, index, content, bytes: &[] };
            self.relay(track_index, &skipped, sink);
            return Err(InDrop::PaddingOnly);
        }
        let pushed = track.line.nack.then(|| track.missing.push(header.sequence, datagram.arrival));
        if repaired && pushed != Some(Pushed::Recovered) {
            return Err(InDrop::Duplicate);
        }
        let number = track.unwrap(header.sequence);
        let opened = describe(track, number, header, payload, plain, repaired);
        if !repaired {
            track.receive.push(
                header.sequence,
                header.timestamp,
                opened.payload.len(),
                datagram.arrival,
            );
            track.newest = Some((header.timestamp, now.unix));
        }
        if track.line.nack {
            track.history.keep(opened.counters.index, &plain[..opened.payload.end]);
        }
        Ok((track_index, opened))
    }

    /// A packet without content takes no number of the subscribers'.
    pub(super) fn skip_copies(&mut self, track_index: TrackIndex, index: u64) {
        let Some(track) = self.tracks[track_index].as_ref() else { return };
        for subscription in &track.subscriptions {
            if let Some(person) = self.people[subscription.person].as_mut() {
                let slot = &mut person.slots[subscription.slot];
                if slot.current == Some(track_index) {
                    slot.rewrite.skip(index);
                }
            }
        }
    }
}

/// A line that announced no SSRC is found by the packet's mid (RFC 8843 §9.2), after
/// authentication.
fn adopt(
    person: &mut Person,
    tracks: &mut [Option<Track>],
    index: PersonIndex,
    header: &RtpHeader,
    plain: &[u8],
) -> Option<Source> {
    let found = person.tracks.iter().copied().find(|track| {
        let Some(track) = tracks[*track].as_ref() else { return false };
        let mid = track
            .line
            .extensions
            .mid
            .and_then(|id| header.find_extension(plain, id))
            .and_then(header::text);
        track.publisher() == Some(index) && mid == Some(track.line.mid.as_str())
    })?;
    let track = tracks[found].as_mut()?;
    let source = if Some(header.payload_type) == track.line.rtx_payload_type {
        Source::Rtx(found)
    } else {
        track.adopt(header.ssrc);
        Source::Media(found)
    };
    person.sources.retain(|(_, known)| *known != source);
    person.sources.push((header.ssrc, source));
    Some(source)
}

/// Notes what the packet's header extensions tell, each packet once.
fn note_arrival(
    person: &mut Person,
    track: &mut Track,
    header: &RtpHeader,
    plain: &[u8],
    datagram: &Inbound<'_>,
) {
    let extensions = track.line.extensions;
    for (id, value) in header.extensions(plain) {
        if Some(id) == extensions.transport_sequence && track.line.transport_cc {
            if let Some(sequence) = header::transport_sequence(value) {
                person.arrivals.record(sequence, datagram.arrival);
            }
        } else if Some(id) == extensions.audio_level
            && let Some(level) = AudioLevel::parse(value)
        {
            track.voice.heard(level.level_dbov);
        }
    }
}

/// A retransmission becomes the original again (RFC 4588).
fn unwrap_rtx(track: &Track, plain: &mut [u8], len: usize) -> Result<(RtpHeader, usize), InDrop> {
    let ssrc = track.ids.map_or(0, |ids| ids.ssrc);
    let len = rtp::rtx::unwrap(plain, len, ssrc, track.line.payload_type)
        .map_err(|_| InDrop::Malformed)?
        .ok_or(InDrop::PaddingOnly)?;
    let header = RtpHeader::parse(&plain[..len]).map_err(|_| InDrop::Malformed)?;
    Ok((header, len))
}

/// What forwarding needs to know of a packet with this unwrapped number.
pub(super) fn describe(
    track: &mut Track,
    index: u64,
    header: RtpHeader,
    payload: Range<usize>,
    plain: &[u8],
    repaired: bool,
) -> Opened {
    let mut counters = Counters { index, timestamp: header.timestamp, picture_id: None, tl0: None };
    let begins = match track.line.codec {
        Codec::Opus => true,
        Codec::H264 => rtp::h264::is_keyframe_start(&plain[payload.clone()]),
        Codec::Vp8 => match rtp::vp8::Descriptor::parse(&plain[payload.clone()]) {
            Ok(descriptor) => {
                counters.picture_id = descriptor.picture_id;
                counters.tl0 = descriptor.tl0_picture_index;
                descriptor.keyframe
            }
            Err(_) => false,
        },
    };
    if begins {
        track.keyframe.came();
    }
    Opened { header, payload, counters, begins, repaired, audio: !track.is_video() }
}
