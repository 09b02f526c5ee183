//! Step 3: plaintext packets become sealed packets for each subscriber.

use super::incoming::{Opened, describe};
use super::lately::Past;
use super::level::{Padding, pad};
use super::pacer::{Brings, Waiting, WaitingPacket, paces};
use super::person::{Person, PersonIndex, Secure, TrackIndex};
use super::queue::Queue;
use super::rewrite::Origin;
use super::shortage::Shortage;
use super::slot::Slot;
use super::track::{Subscription, Track};
use super::{Shard, Stats};
use crate::command::{Report, TrackKey};
use crate::drops::OutDrop;
use crate::sink::{Now, Priority, Sink};
use rtp::RtpHeader;
use rtp::header::{AudioLevel, HeaderWriter};
use rtp::negotiated::{Codec, Extensions};

impl Shard {
    /// Forwards what [`Shard::handle_relayed`] queued. To be called before the next command.
    pub fn flush(&mut self, now: Now, sink: &mut impl Sink) {
        if self.queue.is_empty() {
            return;
        }
        let mut queue = std::mem::take(&mut self.queue);
        queue.by_track(|track, run| self.forward(now, track, (&queue, run), sink));
        queue.clear();
        self.queue = queue;
    }

    /// Packets of one track go to its subscribers, one after the other, so that what goes to the
    /// same address leaves as one message.
    fn forward(
        &mut self,
        now: Now,
        track_index: TrackIndex,
        (queue, run): (&Queue, &[u8]),
        sink: &mut impl Sink,
    ) {
        let Some(track) = self.tracks[track_index].as_ref() else { return };
        let mut superseded: Vec<(TrackIndex, Subscription)> = Vec::new();
        let padding = padding(queue, run);
        // What waits in the queue goes in its turn.
        let waits =
            |index| run.iter().any(|at| queue.packet((*at).into()).0.counters.index == index);
        let mut begin_to_wait = false;
        for subscription in &track.subscriptions {
            let Some(person) = self.people[subscription.person].as_mut() else { continue };
            let Subscription { person: person_index, slot } = *subscription;
            let priority = person.slots[slot].priority();
            let held = held(person, person_index, priority, &self.shortage, sink);
            let mut way = Way { track: (track_index, track), slot, held };
            let paced = held.is_none() && paces(person, track, priority);
            if paced && !person.pacer.is_waiting() {
                person.pacer.turn(now.at);
            }
            for (nth, at) in run.iter().enumerate() {
                let (opened, plain) = queue.packet(usize::from(*at));
                if paced && person.pacer.is_full() {
                    let first = !person.pacer.is_waiting();
                    if person.pacer.wait(way.waiting(opened, padding.get(nth))) {
                        self.stats.paced += 1;
                        if first {
                            self.paced.push(person_index);
                            begin_to_wait = true;
                        }
                        continue;
                    }
                    way.held = Some(OutDrop::PacerFull);
                }
                let counted = (&mut self.stats, &mut self.reports);
                let packet = (opened, plain, padding.get(nth));
                let old = give(&way, packet, waits, person, counted, now, sink);
                superseded.extend(old.map(|old| (old, *subscription)));
            }
        }
        if begin_to_wait {
            self.plan_bursts();
        }
        for (old, subscription) in superseded {
            self.unsubscribe(Some(old), subscription);
        }
    }
}

/// What header extensions, padding and the cipher's tag add to a packet, in bytes, at most.
pub(super) const OVERHEAD: usize = 48;

/// From a track to a slot that shall have it.
pub(super) struct Way<'a> {
    pub track: (TrackIndex, &'a Track),
    pub slot: usize,
    /// Why nothing may go there at the moment, if so.
    pub held: Option<OutDrop>,
}

impl Way<'_> {
    /// A packet that waits until there is place in a burst.
    fn waiting(&self, opened: &Opened, padding: u8) -> Waiting {
        let Opened { begins, repaired, .. } = *opened;
        let len = opened.payload.end + OVERHEAD;
        let packet = WaitingPacket { begins, repaired, padding, len };
        let index = opened.counters.index;
        let (track, brings) = (self.track.1.key, Brings::Packet(packet));
        Waiting { track, slot: self.slot, index, brings }
    }
}

/// Gives a packet, with so many bytes of padding, to a slot: it switches there, leaves, is left out, or is not
/// taken. `waits` tells which others of the track come in their turn. Returns the track that the slot waits for no
/// more, if so.
#[inline]
pub(super) fn give(
    way: &Way<'_>,
    (opened, plain, padding): (&Opened, &[u8], u8),
    waits: impl Fn(u64) -> bool,
    person: &mut Person,
    (stats, reports): (&mut Stats, &mut Vec<Report>),
    now: Now,
    sink: &mut impl Sink,
) -> Option<TrackIndex> {
    let (track_index, track) = way.track;
    let begins = opened.begins && !opened.repaired && person.reachable();
    let slot = &mut person.slots[way.slot];
    let (flows, is_next) = (slot.current == Some(track_index), slot.pending == Some(track_index));
    if let Some(reason) = way.held
        && (flows || is_next)
    {
        stats.copies += 1;
        stats.out_drops.add(reason);
        // Sound goes on with what comes next, a picture only with a keyframe.
        if flows && slot.priority() == Priority::High {
            slot.rewrite.skip(opened.counters.index);
        } else if flows && !slot.hold() {
            return Some(track_index);
        }
        return None;
    }
    let mut superseded = None;
    if begins && is_next {
        superseded = slot.current.replace(track_index);
        let missed = track.speech().filter(|past| !waits(past.index));
        let to = (&mut *person, way.slot);
        let timestamp = switch((track, opened), missed, to, (now, &mut *stats), sink);
        reports.push(switched(person, way.slot, track.key, timestamp));
    } else if !flows {
        stats.waiting += 1;
        return None;
    } else if slot.rewrite.is_another_stream(opened.counters.index) {
        // The publisher began anew: sound goes on with this packet, a picture with the next keyframe.
        if !begins {
            stats.waiting += 1;
            return (!slot.hold()).then_some(track_index);
        }
        slot.rewrite.switch(opened.counters, Some(track.key), now.at);
    }
    let Person { secure, slots, .. } = &mut *person;
    stats.copies += 1;
    let packet = (opened, plain, padding);
    match copy(packet, secure.as_ref(), &mut slots[way.slot], now, sink) {
        Ok(len) => {
            sent(stats, len);
            if !opened.audio {
                person.pacer.count(len);
            }
        }
        Err(reason) => {
            stats.out_drops.add(reason);
            let slot = &mut slots[way.slot];
            match (reason, opened.audio) {
                (OutDrop::SendBufferFull, true) => slot.rewrite.skip(opened.counters.index),
                // The picture lacks a part now, which no number tells: it goes on with a keyframe.
                (OutDrop::SendBufferFull, false) if !slot.hold() => return Some(track_index),
                _ => {}
            }
        }
    }
    superseded
}

/// A slot switches to a track with this packet. What was missed of a speech that began before goes
/// first: he is heard from his first syllable on. Returns the first timestamp, as the subscriber
/// sees it.
fn switch<'a>(
    (track, opened): (&Track, &Opened),
    missed: impl Iterator<Item = Past<'a>>,
    (person, slot): (&mut Person, usize),
    (now, stats): (Now, &mut Stats),
    sink: &mut impl Sink,
) -> u32 {
    let Person { secure, slots, .. } = person;
    let slot = &mut slots[slot];
    slot.pending = None;
    let mut first = None;
    for past in missed {
        let Some(again) = reopen(track, past.index, past.bytes) else { continue };
        if first.is_none() {
            first = Some(again.counters.timestamp);
            slot.rewrite.switch(again.counters, Some(track.key), past.arrival);
        }
        stats.copies += 1;
        stats.replayed += 1;
        match copy((&again, past.bytes, 0), secure.as_ref(), slot, now, sink) {
            Ok(len) => sent(stats, len),
            Err(reason) => stats.out_drops.add(reason),
        }
    }
    if first.is_none() {
        slot.rewrite.switch(opened.counters, Some(track.key), now.at);
    }
    let first = first.unwrap_or(opened.counters.timestamp);
    first.wrapping_add(slot.rewrite.timestamp_offset())
}

/// A packet that was kept, as it was when it was opened.
pub(super) fn reopen(track: &Track, index: u64, bytes: &[u8]) -> Option<Opened> {
    let header = RtpHeader::parse(bytes).ok()?;
    let payload = header.payload_range(bytes).ok()?;
    let kept = Kept::of(track, bytes, &header);
    Some(Opened { kept, ..describe(track, index, header, payload, bytes, false) })
}

#[inline]
pub(super) fn sent(stats: &mut Stats, len: usize) {
    stats.rtp_out += 1;
    stats.rtp_out_bytes += len as u64;
}

fn switched(person: &Person, slot: usize, track: TrackKey, rtp_timestamp: u32) -> Report {
    Report::Switched {
        person: person.key,
        room: person.room,
        mid: person.slots[slot].line.mid.clone(),
        track,
        rtp_timestamp,
    }
}

/// Why packets of this priority may not go to somebody at the moment, if so.
#[inline]
pub(super) fn held(
    person: &Person,
    index: PersonIndex,
    priority: Priority,
    shortage: &Shortage,
    sink: &impl Sink,
) -> Option<OutDrop> {
    let secure = person.secure.as_ref()?;
    if secure.lost {
        return Some(OutDrop::NoConsent);
    }
    if priority == Priority::Low && shortage.holds(index) {
        return Some(OutDrop::CpuShort);
    }
    let tcp = secure.remote.is_tcp();
    let behind = !sink.has_room(secure.remote, priority);
    behind.then_some(if tcp { OutDrop::ConnectionBehind } else { OutDrop::SendBufferFull })
}

/// What makes the packets of a picture alike.
#[inline]
fn padding(queue: &Queue, run: &[u8]) -> Padding {
    let packet = |at: &u8| queue.packet(usize::from(*at)).0;
    match run.first().map(packet) {
        Some(first) if run.len() > 1 && !first.audio => {
            Padding::of(run.iter().map(|at| packet(at).payload.len()))
        }
        _ => Padding::NONE,
    }
}

/// Rewrites and seals a packet, with so many bytes of padding, into the slot's stream; returns the
/// datagram's length.
#[inline]
fn copy(
    (opened, plain, padding): (&Opened, &[u8], u8),
    secure: Option<&Secure>,
    slot: &mut Slot,
    now: Now,
    sink: &mut impl Sink,
) -> Result<usize, OutDrop> {
    let secure = secure.ok_or(OutDrop::NotConnected)?;
    let Some((payload_type, payload)) = opened.payload_for(&slot.line, plain) else {
        slot.rewrite.skip(opened.counters.index);
        return Err(OutDrop::NotNegotiated);
    };
    let priority = slot.priority();
    let stream = slot.stream.as_mut().ok_or(OutDrop::NotConnected)?;
    // Room first, then a number: a number that never leaves would look like loss.
    let buffer = sink.slot(secure.remote, priority).ok_or(OutDrop::SendBufferFull)?;
    let out = slot.rewrite.apply(opened.counters, now.at)?;
    let writer = HeaderWriter {
        marker: opened.header.marker,
        payload_type,
        sequence: out.sequence,
        timestamp: out.timestamp,
        ssrc: stream.ssrc(),
        extensions: &[],
    };
    let header_len = opened.kept.write(writer, slot.line.extensions, buffer)?;
    let len = put(buffer, header_len, payload)?;
    if slot.line.codec == Codec::Vp8 {
        // The descriptor was parsed when the packet was opened; a broken one goes as it is.
        let _ = rtp::vp8::rewrite_in_place(&mut buffer[header_len..len], out.picture_id, out.tl0);
    }
    if Some(payload_type) == slot.line.red_payload_type && !opened.opaque() {
        rtp::red::relabel(&mut buffer[header_len..len], slot.line.payload_type);
    }
    let len = pad(buffer, len, padding)?;
    let sealed = secure
        .sealer
        .seal_rtp(stream, buffer, header_len, len)
        .map_err(|_| OutDrop::SealRefused)?;
    sink.commit(sealed);
    slot.count(payload.len(), out.timestamp, now);
    Ok(sealed)
}

/// Header extensions that reach subscribers, found once a packet: level, orientation, capture time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kept {
    level: Option<[u8; 1]>,
    orientation: Option<[u8; 1]>,
    /// With its length: 8 bytes, or 16 with the clock's offset.
    capture: Option<([u8; 16], u8)>,
}

impl Kept {
    /// Those of a packet of a track.
    pub(super) fn of(track: &Track, packet: &[u8], header: &RtpHeader) -> Self {
        let mut kept = Self::default();
        let from = track.line.extensions;
        header.extensions(packet).for_each(|(id, value)| kept.find(&from, id, value));
        kept
    }

    /// How loud the packet is, in −dBov (RFC 6464).
    #[inline]
    pub(super) fn level_dbov(&self) -> Option<u8> {
        Some(AudioLevel::parse(&self.level?)?.level_dbov)
    }

    /// Takes an extension that came with an id, if it is one of these.
    #[inline]
    pub(super) fn find(&mut self, from: &Extensions, id: u8, value: &[u8]) {
        let id = Some(id);
        if id == from.audio_level {
            self.level = value.first_chunk().copied();
        } else if id == from.orientation {
            self.orientation = value.first_chunk().copied();
        } else if id == from.capture_time && matches!(value.len(), 8 | 16) {
            let mut capture = [0; 16];
            capture[..value.len()].copy_from_slice(value);
            self.capture = Some((capture, value.len() as u8));
        }
    }

    /// Writes a header with those that the receiver has ids for.
    #[inline]
    fn write(
        &self,
        writer: HeaderWriter<'_>,
        to: Extensions,
        buffer: &mut [u8],
    ) -> Result<usize, OutDrop> {
        let mut extensions: [(u8, &[u8]); 3] = [(0, &[]); 3];
        let mut count = 0;
        let capture = self.capture.as_ref().map(|(value, len)| &value[..usize::from(*len)]);
        for (id, value) in [
            (to.audio_level, self.level.as_ref().map(<[u8; 1]>::as_slice)),
            (to.orientation, self.orientation.as_ref().map(<[u8; 1]>::as_slice)),
            (to.capture_time, capture),
        ] {
            if let (Some(id), Some(value)) = (id, value) {
                extensions[count] = (id, value);
                count += 1;
            }
        }
        let writer = HeaderWriter { extensions: &extensions[..count], ..writer };
        writer.write(buffer).map_err(|_| OutDrop::TooLong)
    }
}

#[inline]
fn put(buffer: &mut [u8], at: usize, payload: &[u8]) -> Result<usize, OutDrop> {
    let end = at + payload.len();
    buffer.get_mut(at..end).ok_or(OutDrop::TooLong)?.copy_from_slice(payload);
    Ok(end)
}

/// Builds the retransmission: the original as it left, its sequence number before the payload.
pub(super) fn resend_one(
    person: &mut Person,
    slot_index: usize,
    (original, again): (u16, &Origin),
    (packet, (from, opaque)): (&[u8], (Extensions, bool)),
    sink: &mut impl Sink,
) -> Result<usize, OutDrop> {
    let secure = person.secure.as_ref().ok_or(OutDrop::NotConnected)?;
    let slot = &mut person.slots[slot_index];
    let header = rtp::RtpHeader::parse(packet).map_err(|_| OutDrop::NotKept)?;
    let range = header.payload_range(packet).map_err(|_| OutDrop::NotKept)?;
    let buffer = sink.slot(secure.remote, slot.priority()).ok_or(OutDrop::SendBufferFull)?;
    let sequence = slot.next_rtx_sequence();
    let extensions = slot.line.extensions;
    let payload_type = slot.line.rtx_payload_type.ok_or(OutDrop::NotKept)?;
    let descriptor = match slot.codec() {
        Codec::Vp8 if !opaque => rtp::vp8::Descriptor::parse(&packet[range.clone()]).ok(),
        _ => None,
    };
    let (picture_id, tl0) =
        descriptor.map_or((None, None), |found| (found.picture_id, found.tl0_picture_index));
    let (timestamp, picture_id, tl0) = again.counters(header.timestamp, picture_id, tl0);
    let stream = slot.rtx_stream.as_mut().ok_or(OutDrop::NotConnected)?;
    let writer = HeaderWriter {
        marker: header.marker,
        payload_type,
        sequence,
        timestamp,
        ssrc: stream.ssrc(),
        extensions: &[],
    };
    let mut kept = Kept::default();
    header.extensions(packet).for_each(|(id, value)| kept.find(&from, id, value));
    let kept = Kept { level: None, capture: None, ..kept };
    let header_len = kept.write(writer, extensions, buffer)?;
    let body = put(buffer, header_len, &original.to_be_bytes())?;
    let len = put(buffer, body, &packet[range])?;
    if descriptor.is_some() {
        let _ = rtp::vp8::rewrite_in_place(&mut buffer[body..len], picture_id, tl0);
    }
    let sealed = secure
        .sealer
        .seal_rtp(stream, buffer, header_len, len)
        .map_err(|_| OutDrop::SealRefused)?;
    sink.commit(sealed);
    Ok(sealed)
}
