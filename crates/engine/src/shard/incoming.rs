//! Step 2: a packet is opened once, and what it tells is noted.

use super::forward::Kept;
use super::lately::Lately;
use super::pacer::{Brings, Waiting};
use super::person::{Person, PersonIndex, Source, TrackIndex};
use super::rewrite::Inbound as Counters;
use super::track::{Subscription, Track};
use super::{Handled, Inbound, RelayContent, RelayPacket, Shard};
use crate::drops::InDrop;
use crate::sink::{Now, Sink};
use rtp::RtpHeader;
use rtp::header;
use rtp::nack::Pushed;
use rtp::negotiated::{Codec, Line};
use rtp::srtp::SrtpError;
use std::ops::Range;

/// The bit of an RTP header that says that padding follows the payload.
const PADDING: u8 = 0x20;

/// An opened packet of a track, on its way to the subscribers.
pub(super) struct Opened {
    pub header: RtpHeader,
    pub payload: Range<usize>,
    /// Where the payload is RED (RFC 2198): its primary block. Empty where it is opaque.
    pub primary: Option<Range<usize>>,
    pub counters: Counters,
    /// What of its header goes on.
    pub kept: Kept,
    /// The packet begins a keyframe; sound is always a beginning.
    pub begins: bool,
    /// It came as a retransmission: too late to switch to.
    pub repaired: bool,
    pub audio: bool,
}

impl Opened {
    /// Whether nothing can be told of its blocks, where it is RED.
    #[inline]
    pub(super) fn opaque(&self) -> bool {
        self.primary.as_ref().is_some_and(Range::is_empty)
    }

    /// The payload for a slot: RED goes on to whoever agreed on it, all others get what it is about.
    /// None where that cannot be told.
    #[inline]
    pub(super) fn payload_for<'a>(&self, line: &Line, plain: &'a [u8]) -> Option<(u8, &'a [u8])> {
        let (payload_type, range) = match (&self.primary, line.red_payload_type) {
            (None, _) => (line.payload_type, &self.payload),
            (Some(_), Some(red)) => (red, &self.payload),
            (Some(_), None) if self.opaque() => return None,
            (Some(primary), None) => (line.payload_type, primary),
        };
        Some((payload_type, &plain[range.clone()]))
    }
}

/// What became of a packet that came in.
enum Taken {
    /// It goes to its track's subscribers.
    Forward(TrackIndex, Opened),
    /// The mixer has it.
    Mixed,
    /// It is nothing but padding, with this unwrapped sequence number.
    Padding(TrackIndex, u64),
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
        if self.queue.is_full() {
            self.flush(now, sink);
        }
        let mut queue = std::mem::take(&mut self.queue);
        let handled = match queue.lend() {
            Some(plain) => self.take_rtp(now, datagram, plain, sink),
            None => Err(InDrop::TooLong),
        };
        let taken = match handled {
            Ok(Taken::Forward(track, opened)) => {
                let audio = opened.audio;
                queue.push(track, opened);
                Ok(audio)
            }
            Ok(Taken::Mixed) => Ok(true),
            Ok(Taken::Padding(track, index)) => {
                self.queue = queue;
                self.skip(now, track, index, sink);
                return Err(InDrop::PaddingOnly);
            }
            Err(reason) => Err(reason),
        };
        self.queue = queue;
        taken.map(|audio| if audio { Handled::Audio } else { Handled::Video })
    }

    /// Opens a packet; it then goes to the mixer or on to the queue, and to slots on other shards.
    fn take_rtp(
        &mut self,
        now: Now,
        datagram: &Inbound<'_>,
        plain: &mut [u8],
        sink: &mut impl Sink,
    ) -> Result<Taken, InDrop> {
        let taken = self.open(now, datagram, plain)?;
        let Taken::Forward(index, opened) = taken else { return Ok(taken) };
        let Some(track) = self.tracks[index].as_ref() else { return Err(InDrop::UnknownSsrc) };
        let (key, mixed, silenced) = (track.key, track.mixed, track.silenced);
        let number = opened.counters.index;
        if silenced {
            let content = RelayContent::Silenced;
            let nothing = RelayPacket { track: key, index: number, content, bytes: &[] };
            self.relay(index, &nothing, sink);
            return Err(InDrop::Silenced);
        }
        if mixed {
            self.hand_to_mixer(index, &opened, plain, datagram.arrival, sink)?;
            return Ok(Taken::Mixed);
        }
        let bytes = &plain[..opened.payload.end];
        let content = if opened.repaired { RelayContent::Repaired } else { RelayContent::Original };
        let packet = RelayPacket { track: key, index: number, content, bytes };
        self.relay(index, &packet, sink);
        Ok(Taken::Forward(index, opened))
    }

    /// A packet without content takes no number, here and on other shards.
    fn skip(&mut self, now: Now, track: TrackIndex, index: u64, sink: &mut impl Sink) {
        // Those that came before it have numbers of their own.
        self.flush(now, sink);
        self.skip_copies(track, index);
        if let Some(key) = self.tracks[track].as_ref().map(|track| track.key) {
            let content = RelayContent::Padding;
            let skipped = RelayPacket { track: key, index, content, bytes: &[] };
            self.relay(track, &skipped, sink);
        }
    }

    fn open(
        &mut self,
        now: Now,
        datagram: &Inbound<'_>,
        plain: &mut [u8],
    ) -> Result<Taken, InDrop> {
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
        let kept = note_arrival(person, track, &opened.header, plain, datagram);
        let repaired = matches!(source, Source::Rtx(_));
        let (header, len) = if repaired {
            unwrap_rtx(track, plain, opened.len)?
        } else {
            (opened.header, opened.len)
        };
        let payload = header.payload_range(&plain[..len]).map_err(|_| InDrop::Malformed)?;
        // What is kept of it, or crosses to another shard, ends with its payload.
        plain[0] &= !PADDING;
        let pushed = track.line.nack.then(|| track.missing.push(header.sequence, datagram.arrival));
        // One that is newer than all before is media like any other: nothing else will bring it.
        if repaired && !matches!(pushed, Some(Pushed::Recovered | Pushed::New)) {
            return Err(InDrop::Duplicate);
        }
        if payload.is_empty() {
            if !repaired {
                track.receive.push_padding(header.sequence);
            }
            return Ok(Taken::Padding(track_index, track.unwrap(header.sequence)));
        }
        let missing = track.missing.missing_count() > 0;
        let number = track.unwrap(header.sequence);
        let mut opened = describe(track, number, header, payload, plain, repaired);
        opened.kept = kept;
        track.note_frame(&opened, datagram.arrival);
        if !repaired {
            track.receive.push(
                header.sequence,
                header.timestamp,
                opened.payload.len(),
                datagram.arrival,
            );
            track.newest = Some((header.timestamp, now.unix));
            self.voices_began |= track.hear(&opened, datagram.arrival, plain, &mut self.sampler);
        }
        if track.line.nack {
            track.history.keep(opened.counters.index, &plain[..opened.payload.end]);
        }
        if missing || repaired {
            self.hurry();
        }
        Ok(Taken::Forward(track_index, opened))
    }

    /// A packet without content takes no number of the subscribers'.
    pub(super) fn skip_copies(&mut self, track_index: TrackIndex, index: u64) {
        let Some(track) = self.tracks[track_index].as_mut() else { return };
        // What came before it has other numbers than what follows.
        track.lately.iter_mut().for_each(Lately::forget);
        let pictures = track.is_video();
        if pictures && track.line.nack {
            track.history.pass(index);
        }
        for subscription in &track.subscriptions {
            if let Some(person) = self.people[subscription.person].as_mut() {
                let slot = &mut person.slots[subscription.slot];
                if pictures && person.pacer.is_waiting() {
                    // In its turn. Where too much waits, the number stays free.
                    let Subscription { slot, .. } = *subscription;
                    let brings = Brings::Nothing;
                    let nothing = Waiting { track: track.key, slot, index, brings };
                    person.pacer.wait(nothing);
                } else if slot.current == Some(track_index) {
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
        let late = track.is_retired(header.ssrc);
        track.publisher() == Some(index) && mid == Some(track.line.mid.as_str()) && !late
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

/// Notes what the packet's header extensions tell, each packet once; returns those that go on.
fn note_arrival(
    person: &mut Person,
    track: &Track,
    header: &RtpHeader,
    plain: &[u8],
    datagram: &Inbound<'_>,
) -> Kept {
    let extensions = track.line.extensions;
    let mut kept = Kept::default();
    for (id, value) in header.extensions(plain) {
        kept.find(&extensions, id, value);
        if Some(id) == extensions.transport_sequence
            && track.line.transport_cc
            && let Some(sequence) = header::transport_sequence(value)
        {
            person.arrivals.record(sequence, datagram.arrival);
        }
    }
    kept
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
    track: &Track,
    index: u64,
    header: RtpHeader,
    payload: Range<usize>,
    plain: &[u8],
    repaired: bool,
) -> Opened {
    let mut counters = Counters { index, timestamp: header.timestamp, picture_id: None, tl0: None };
    let begins = match track.line.codec {
        Codec::Opus => true,
        // Nothing in the payload is read: it goes on as it came.
        Codec::Vp8 | Codec::H264 if track.opaque => track.begins_frame(index),
        Codec::H264 => track.begins_h264(&plain[payload.clone()], header.timestamp),
        Codec::Vp8 => match rtp::vp8::Descriptor::parse(&plain[payload.clone()]) {
            Ok(descriptor) => {
                counters.picture_id = descriptor.picture_id;
                counters.tl0 = descriptor.tl0_picture_index;
                descriptor.keyframe
            }
            Err(_) => false,
        },
    };
    let primary = (Some(header.payload_type) == track.line.red_payload_type)
        .then(|| if track.opaque { 0..0 } else { primary_of(&payload, plain) });
    let (kept, audio) = (Kept::default(), !track.is_video());
    Opened { header, payload, primary, counters, kept, begins, repaired, audio }
}

/// Where the primary block of a RED payload is; empty where it cannot be read.
fn primary_of(payload: &Range<usize>, plain: &[u8]) -> Range<usize> {
    let found = rtp::red::primary(&plain[payload.clone()]).unwrap_or_default();
    payload.start + found.start..payload.start + found.end
}
