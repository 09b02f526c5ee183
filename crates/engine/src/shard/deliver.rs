//! The last step of every packet to a participant: it is numbered, written and sealed in the buffer that the sink lends.
//! Forwarding, what waited, what is sent again and the mix all come through here.

use super::level::pad;
use super::packet::{Opened, Passed};
use super::person::Person;
use super::pictures::Pictures;
use super::rewrite::{Counters, Left, Rewritten};
use super::scalable::{Frame, UpTo};
use super::slot::Slot;
use super::track::Track;
use super::turn::Turn;
use crate::drops::OutDrop;
use crate::egress::Sent;
use crate::limits::{MAX_DATAGRAM, MAX_UDP};
use crate::sink::Sink;
use rtp::TransportAddress;
use rtp::header::HeaderWriter;
use std::time::Instant;

/// What header extensions, padding and the cipher's tag add to a packet, in bytes, at most.
pub(super) const OVERHEAD: usize = 56;

/// The longest tag of a cipher, in bytes.
const TAG: usize = 16;

/// The longest header without a dependency descriptor, in bytes: level, orientation, capture time and transport-wide number.
const HEADER: usize = 48;

/// How long a datagram to there may be, in bytes.
fn longest(to: TransportAddress) -> usize {
    let [v4, v6] = MAX_UDP;
    match to.socket.is_ipv6() {
        _ if to.is_tcp() => MAX_DATAGRAM,
        true => v6,
        false => v4,
    }
}

/// A packet on its way to one slot.
pub(super) struct Outgoing<'a> {
    pub number: Number,
    pub marker: bool,
    pub payload_type: u8,
    pub passed: Passed,
    pub payload: &'a [u8],
    /// Bytes of padding after the payload.
    pub padding: u8,
    /// What counts its pictures: it is rewritten.
    pub pictures: Pictures<'a>,
    /// The layers of its frame, if its stream tells of layers.
    pub frame: Option<Frame>,
    /// It may be repeated with the packet after it, and repeat the one before (RED, RFC 2198).
    pub repeats: bool,
}

/// What a packet is numbered with.
#[derive(Clone, Copy)]
pub(super) enum Number {
    /// A new packet: the slot numbers it.
    Next(Counters),
    /// A packet that left before: its sequence number then, what was added to its counters, and its publisher's counters.
    Again(u16, Left, Counters),
    /// It only probes the path, and leaves with this timestamp.
    Padding(u32),
}

impl<'a> Outgoing<'a> {
    /// A packet of nothing but padding, on a slot's retransmission stream.
    pub(super) fn padding(payload_type: u8, timestamp: u32) -> Self {
        Self {
            number: Number::Padding(timestamp),
            marker: false,
            payload_type,
            passed: Passed::default(),
            payload: &[],
            padding: u8::MAX,
            pictures: Pictures::Uncounted,
            frame: None,
            repeats: false,
        }
    }

    /// A packet of a track for a slot. None if the slot's participant did not agree on its format and it cannot be
    /// converted.
    #[inline]
    pub(super) fn of(opened: &Opened, plain: &'a [u8], padding: u8, slot: &Slot) -> Option<Self> {
        let (payload_type, payload) = opened.payload_for(&slot.line, plain)?;
        Some(Self {
            number: Number::Next(opened.counters),
            marker: opened.header.marker,
            payload_type,
            passed: opened.passed,
            payload,
            padding,
            pictures: Pictures::of(opened, plain, slot.codec()),
            frame: opened.frame,
            repeats: opened.audio && !opened.opaque,
        })
    }

    /// A packet that left a slot with this sequence number, as it left then (RFC 4588). None if it is not kept any more.
    pub(super) fn again(
        track: &'a Track,
        left: Left,
        sequence: u16,
        payload_type: u8,
    ) -> Option<Self> {
        let kept = track.encoding.history.get(left.index)?;
        let opened = track.encoding.reopen(left.index, kept)?;
        Some(Self {
            number: Number::Again(sequence, left, opened.counters),
            marker: opened.header.marker,
            payload_type,
            passed: opened.passed.again(),
            payload: &kept[opened.payload.clone()],
            padding: 0,
            pictures: Pictures::of(&opened, kept, track.encoding.line.codec),
            frame: opened.frame,
            repeats: false,
        })
    }

    /// A number of a slot that nothing will bring: an empty packet, as if it had been lost and left again.
    pub(super) fn nothing(left: Left, sequence: u16, payload_type: u8, timestamp: u32) -> Self {
        let counters = Counters { index: left.index, timestamp, picture_id: None, tl0: None };
        Self {
            number: Number::Again(sequence, left, counters),
            padding: 0,
            ..Self::padding(payload_type, timestamp)
        }
    }

    /// The most bytes that it takes behind its header, with the cipher's tag and without padding.
    fn len(&self) -> usize {
        // A packet that leaves again begins with its number.
        let original = usize::from(matches!(self.number, Number::Again(..))) * 2;
        original + self.payload.len() + TAG
    }

    /// How many bytes of padding it leaves with, in a datagram of at most so many bytes.
    ///
    /// # Errors
    /// [`OutDrop::TooLong`] if it is too long without any.
    #[inline]
    fn padding_within(&self, longest: usize, writer: &HeaderWriter<'_>) -> Result<u8, OutDrop> {
        let described = matches!(self.pictures, Pictures::Dependency(_));
        if !described && HEADER + self.len() + usize::from(self.padding) <= longest {
            return Ok(self.padding);
        }
        let most = longest.checked_sub(writer.len() + self.len()).ok_or(OutDrop::TooLong)?;
        Ok(most.min(self.padding.into()) as u8)
    }

    /// Marker, payload and what counts pictures, where these layers flow. The last packet of the highest spatial layer ends
    /// the picture. A frame of other layers may have a number, if it was missing when that was used: it leaves empty, as
    /// padding does, so that the receiver need not ask for it.
    #[inline]
    fn within(&self, up_to: UpTo) -> (bool, &'a [u8], Pictures<'a>) {
        match &self.frame {
            Some(frame) if !up_to.holds(frame) => (false, &[], Pictures::Uncounted),
            Some(frame) if frame.end && frame.spatial == up_to.spatial() => {
                (true, self.payload, self.pictures)
            }
            _ => (self.marker, self.payload, self.pictures),
        }
    }
}

/// Sends a packet to a participant, and counts the copy: sent, or dropped for a reason.
#[inline]
pub(super) fn deliver<S: Sink>(
    turn: &mut Turn<'_, S>,
    packet: &Outgoing<'_>,
    person: &mut Person,
    slot: usize,
) -> Result<(), OutDrop> {
    turn.stats.copies += 1;
    match seal(turn, packet, person, slot) {
        Ok(len) => {
            turn.stats.rtp_out += 1;
            turn.stats.rtp_out_bytes += len as u64;
            Ok(())
        }
        Err(reason) => {
            turn.stats.out_drops.add(reason);
            Err(reason)
        }
    }
}

/// The sequence number that a packet leaves a slot with, its counters, and the number that it had if it left before.
///
/// # Errors
/// [`OutDrop::BeforeSwitch`] if it has no number.
#[inline]
fn numbered(
    number: Number,
    slot: &mut Slot,
    now: Instant,
) -> Result<(u16, Rewritten, Option<u16>), OutDrop> {
    Ok(match number {
        Number::Next(counters) => {
            let out = slot.rewrite.apply(counters, now)?;
            (out.sequence, out, None)
        }
        Number::Padding(timestamp) => {
            let sequence = slot.next_rtx_sequence();
            let up_to = UpTo::ALL;
            (sequence, Rewritten { sequence, timestamp, picture_id: None, tl0: None, up_to }, None)
        }
        Number::Again(original, left, counters) => {
            let out = left.rewritten(counters, original);
            (slot.next_rtx_sequence(), out, Some(original))
        }
    })
}

/// Writes and seals; returns the datagram's length.
#[inline]
fn seal<S: Sink>(
    turn: &mut Turn<'_, S>,
    packet: &Outgoing<'_>,
    person: &mut Person,
    slot: usize,
) -> Result<usize, OutDrop> {
    let secure = person.secure.as_ref().ok_or(OutDrop::NotConnected)?;
    let slot = &mut person.slots[slot];
    if slot.stream.is_none() {
        return Err(OutDrop::NotConnected);
    }
    let number = person.egress.number().map(u16::to_be_bytes);
    let ids = slot.line.extensions;
    let numbered_at = ids.transport_sequence.zip(number.as_ref());
    let mut extensions: [(u8, &[u8]); 4] = [(0, &[]); 4];
    let mut count = packet.passed.write(&ids, &mut extensions);
    if let Some((id, number)) = numbered_at {
        extensions[count] = (id, number);
        count += 1;
    }
    let described = packet.pictures.place(ids.dependency, &mut extensions, count);
    let writer = HeaderWriter { extensions: &extensions[..described], ..HeaderWriter::default() };
    let padding = packet.padding_within(longest(secure.remote), &writer)?;
    // Room first, then a number: a number that never leaves would look like loss.
    let lent = turn.sink.slot(secure.remote, slot.priority());
    let buffer = lent.ok_or(OutDrop::SendBufferFull)?;
    let (sequence, out, original) = numbered(packet.number, slot, turn.now.at)?;
    let (Slot { stream, rtx_stream, line, recent, .. }, again) =
        (&mut *slot, !matches!(packet.number, Number::Next(_)));
    let (marker, payload, pictures) = packet.within(out.up_to);
    let mut recent = recent.as_deref_mut().filter(|_| packet.repeats);
    let short = packet.payload.len() <= rtp::red::MOST_BYTES;
    let agreed = recent.as_deref().filter(|_| short).zip(line.red_payload_type);
    let repeated = agreed.and_then(|(recent, red)| {
        Some((red, recent.before(line.payload_type, out.sequence, out.timestamp)?))
    });
    let stream = if again { rtx_stream } else { stream }.as_mut().ok_or(OutDrop::NotConnected)?;
    if !matches!(pictures, Pictures::Uncounted) {
        count = described;
    }
    let writer = HeaderWriter {
        marker,
        payload_type: repeated.as_ref().map_or(packet.payload_type, |(red, _)| *red),
        sequence,
        timestamp: out.timestamp,
        ssrc: stream.ssrc(),
        extensions: &extensions[..count],
    };
    let header_len = writer.write(buffer).map_err(|_| OutDrop::TooLong)?;
    let original = original.map(u16::to_be_bytes);
    let mut body = put(buffer, header_len, original.as_ref().map_or(&[], |bytes| &bytes[..]))?;
    if let Some((_, copies)) = &repeated {
        for part in copies.parts() {
            body = put(buffer, body, part)?;
        }
        turn.stats.repeated += 1;
    }
    let mut len = put(buffer, body, payload)?;
    let at = (header_len, body);
    pictures.rewrite(&mut buffer[..len], at, line.extensions.dependency, out);
    if let Some(recent) = &mut recent {
        recent.keep(out.sequence, out.timestamp, packet.payload);
    }
    let payload_len = len - header_len;
    len = pad(buffer, len, padding)?;
    let sealed = secure.sealer.seal_rtp(stream, buffer, header_len, len);
    let sealed = sealed.map_err(|_| OutDrop::SealRefused)?;
    turn.sink.commit(sealed);
    let what = match packet.number {
        Number::Again(..) | Number::Padding(_) => Sent::Again,
        Number::Next(_) if slot.is_video() => Sent::Picture,
        Number::Next(_) => Sent::Sound,
    };
    person.egress.left(turn.now.at, sealed, what, numbered_at.is_some());
    if !again {
        slot.count(payload_len, out.timestamp, turn.now);
    }
    Ok(sealed)
}

#[inline]
fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) -> Result<usize, OutDrop> {
    let end = at + bytes.len();
    buffer.get_mut(at..end).ok_or(OutDrop::TooLong)?.copy_from_slice(bytes);
    Ok(end)
}
