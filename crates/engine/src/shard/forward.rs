//! Step 3: one plaintext packet becomes a sealed packet for each subscriber.

use super::incoming::Opened;
use super::person::{Person, TrackIndex};
use super::slot::Sent;
use super::track::Subscription;
use super::{Shard, Stats};
use crate::command::{Report, TrackKey};
use crate::drops::OutDrop;
use crate::sink::{Now, Sink};
use rtp::header::HeaderWriter;
use rtp::negotiated::{Codec, Extensions};

impl Shard {
    pub(super) fn forward(
        &mut self,
        now: Now,
        track_index: TrackIndex,
        opened: &Opened,
        plain: &[u8],
        sink: &mut impl Sink,
    ) {
        let Some(track) = self.tracks[track_index].as_ref() else { return };
        let from = track.line.extensions;
        let mut superseded: Vec<(TrackIndex, Subscription)> = Vec::new();
        for subscription in &track.subscriptions {
            let Some(person) = self.people[subscription.person].as_mut() else { continue };
            let connected = person.reachable();
            let slot = &mut person.slots[subscription.slot];
            let begins = opened.begins && !opened.repaired && connected;
            if slot.pending == Some(track_index) && begins {
                if let Some(old) = slot.current.replace(track_index) {
                    superseded.push((old, *subscription));
                }
                slot.pending = None;
                slot.rewrite.switch(opened.counters, now.at);
                let timestamp =
                    opened.header.timestamp.wrapping_add(slot.rewrite.timestamp_offset());
                self.reports.push(switched(person, subscription.slot, track.key, timestamp));
            }
            if person.slots[subscription.slot].current != Some(track_index) {
                self.stats.waiting += 1;
                continue;
            }
            self.stats.copies += 1;
            let copy = Copy { opened, plain, from, track: track_index };
            match copy.to(person, subscription.slot, now, sink) {
                Ok(len) => sent(&mut self.stats, len),
                Err(reason) => self.stats.out_drops.add(reason),
            }
        }
        for (old, subscription) in superseded {
            self.unsubscribe(Some(old), subscription);
        }
    }

    /// Sends a packet again that left a slot with this sequence number (RFC 4588).
    pub(super) fn resend(
        &mut self,
        person: usize,
        slot_index: usize,
        sequence: u16,
        now: Now,
        sink: &mut impl Sink,
    ) {
        let Some(person) = self.people[person].as_mut() else { return };
        let slot = &mut person.slots[slot_index];
        if !slot.resends() {
            return;
        }
        let Some(again) = slot.asked_again(sequence, now.at) else { return };
        self.stats.copies += 1;
        let kept = self.tracks[again.track]
            .as_ref()
            .and_then(|track| Some((track.history.get(again.index)?, track.line.extensions)));
        let outcome = match kept {
            Some((packet, from)) => resend_one(person, slot_index, &again, packet, from, sink),
            None => Err(OutDrop::NotKept),
        };
        match outcome {
            Ok(len) => {
                self.stats.resent += 1;
                sent(&mut self.stats, len);
            }
            Err(reason) => self.stats.out_drops.add(reason),
        }
    }
}

fn sent(stats: &mut Stats, len: usize) {
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

/// A packet and where it comes from.
struct Copy<'a> {
    opened: &'a Opened,
    plain: &'a [u8],
    from: Extensions,
    track: TrackIndex,
}

impl Copy<'_> {
    /// Rewrites and seals the packet into the slot's stream; returns the datagram's length.
    fn to(
        &self,
        person: &mut Person,
        slot_index: usize,
        now: Now,
        sink: &mut impl Sink,
    ) -> Result<usize, OutDrop> {
        let secure = person.secure.as_ref().ok_or(OutDrop::NotConnected)?;
        let slot = &mut person.slots[slot_index];
        let out = slot.rewrite.apply(self.opened.counters, now.at)?;
        let resends = slot.resends();
        let stream = slot.stream.as_mut().ok_or(OutDrop::NotConnected)?;
        let buffer = sink.slot(secure.remote).ok_or(OutDrop::SendBufferFull)?;
        let payload = &self.plain[self.opened.payload.clone()];
        let writer = HeaderWriter {
            marker: self.opened.header.marker,
            payload_type: slot.line.payload_type,
            sequence: out.sequence,
            timestamp: out.timestamp,
            ssrc: stream.ssrc(),
            extensions: &[],
        };
        let kept = passed_on(self, slot.line.extensions);
        let header_len = kept.write(writer, buffer)?;
        let len = put(buffer, header_len, payload)?;
        if slot.line.codec == Codec::Vp8 {
            // The descriptor was parsed when the packet was opened; a broken one goes as it is.
            let _ =
                rtp::vp8::rewrite_in_place(&mut buffer[header_len..len], out.picture_id, out.tl0);
        }
        let sealed = secure
            .sealer
            .seal_rtp(stream, buffer, header_len, len)
            .map_err(|_| OutDrop::SealRefused)?;
        sink.commit(sealed);
        if resends {
            let mut sent =
                Sent::new(out.sequence, self.track, self.opened.counters.index, out.timestamp);
            (sent.picture_id, sent.tl0) = (out.picture_id, out.tl0);
            slot.remember(sent);
        }
        slot.count(payload.len(), out.timestamp, now);
        Ok(sealed)
    }
}

/// Header extensions that reach the subscriber, under his ids: level, orientation, capture time.
struct Kept<'a>([Option<(u8, &'a [u8])>; 3]);

fn passed_on<'a>(copy: &'a Copy<'_>, to: Extensions) -> Kept<'a> {
    let find = |from: Option<u8>, to: Option<u8>| {
        Some((to?, copy.opened.header.find_extension(copy.plain, from?)?))
    };
    let from = copy.from;
    Kept([
        find(from.audio_level, to.audio_level),
        find(from.orientation, to.orientation),
        find(from.capture_time, to.capture_time),
    ])
}

impl Kept<'_> {
    fn write(&self, writer: HeaderWriter<'_>, buffer: &mut [u8]) -> Result<usize, OutDrop> {
        let mut extensions: [(u8, &[u8]); 3] = [(0, &[]); 3];
        let mut count = 0;
        for kept in self.0.iter().flatten() {
            extensions[count] = *kept;
            count += 1;
        }
        let writer = HeaderWriter { extensions: &extensions[..count], ..writer };
        writer.write(buffer).map_err(|_| OutDrop::TooLong)
    }
}

fn put(buffer: &mut [u8], at: usize, payload: &[u8]) -> Result<usize, OutDrop> {
    let end = at + payload.len();
    buffer.get_mut(at..end).ok_or(OutDrop::TooLong)?.copy_from_slice(payload);
    Ok(end)
}

/// Builds the retransmission: the original as it left, its sequence number before the payload.
fn resend_one(
    person: &mut Person,
    slot_index: usize,
    again: &Sent,
    packet: &[u8],
    from: Extensions,
    sink: &mut impl Sink,
) -> Result<usize, OutDrop> {
    let secure = person.secure.as_ref().ok_or(OutDrop::NotConnected)?;
    let slot = &mut person.slots[slot_index];
    let header = rtp::RtpHeader::parse(packet).map_err(|_| OutDrop::NotKept)?;
    let range = header.payload_range(packet).map_err(|_| OutDrop::NotKept)?;
    let buffer = sink.slot(secure.remote).ok_or(OutDrop::SendBufferFull)?;
    let sequence = slot.next_rtx_sequence();
    let extensions = slot.line.extensions;
    let payload_type = slot.line.rtx_payload_type.ok_or(OutDrop::NotKept)?;
    let vp8 = slot.codec() == Codec::Vp8;
    let stream = slot.rtx_stream.as_mut().ok_or(OutDrop::NotConnected)?;
    let writer = HeaderWriter {
        marker: header.marker,
        payload_type,
        sequence,
        timestamp: again.timestamp,
        ssrc: stream.ssrc(),
        extensions: &[],
    };
    let orientation = from
        .orientation
        .and_then(|id| header.find_extension(packet, id))
        .and_then(|value| Some((extensions.orientation?, value)));
    let header_len = Kept([None, orientation, None]).write(writer, buffer)?;
    let body = put(buffer, header_len, &again.sequence.to_be_bytes())?;
    let len = put(buffer, body, &packet[range])?;
    if vp8 {
        let _ = rtp::vp8::rewrite_in_place(&mut buffer[body..len], again.picture_id, again.tl0);
    }
    let sealed = secure
        .sealer
        .seal_rtp(stream, buffer, header_len, len)
        .map_err(|_| OutDrop::SealRefused)?;
    sink.commit(sealed);
    Ok(sealed)
}
