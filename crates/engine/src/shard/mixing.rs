//! Where sound is mixed: packets of people go to the mixer, its packets to the listeners.

use super::incoming::Opened;
use super::rewrite::Inbound as Counters;
use super::track::Subscription;
use super::{Shard, TrackIndex};
use crate::command::PersonKey;
use crate::drops::{InDrop, OutDrop};
use crate::mix::{MixFor, MixFrame, MixedPacket, Payload, TICK_SAMPLES};
use crate::sink::{Now, Priority, Sink};
use rtp::header::{AudioLevel, HeaderWriter};
use std::time::Instant;

impl Shard {
    pub(super) fn map_mix(&mut self, person: PersonKey, mid: &str) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        let person = self.people[index].as_mut()?;
        let subscription = Subscription { person: index, slot: person.slot(mid)? };
        let listeners = self.listeners.entry(person.room).or_default();
        if !listeners.contains(&subscription) {
            listeners.push(subscription);
        }
        Some(())
    }

    /// Hands a packet of sound to the mixer.
    pub(super) fn hand_to_mixer(
        &mut self,
        track: TrackIndex,
        opened: &Opened,
        plain: &[u8],
        arrival: Instant,
        sink: &mut impl Sink,
    ) -> Result<(), InDrop> {
        let track = self.tracks[track].as_ref().ok_or(InDrop::UnknownSsrc)?;
        // What is mixed is decoded from what came; redundancy would be for who lost something.
        let payload = opened.primary.as_ref().unwrap_or(&opened.payload);
        if payload.is_empty() {
            return Err(InDrop::Malformed);
        }
        let payload = Payload::new(&plain[payload.clone()]).ok_or(InDrop::TooLong)?;
        let level = track.line.extensions.audio_level;
        let level = level.and_then(|id| opened.header.find_extension(plain, id));
        let frame = MixFrame {
            track: track.key,
            index: opened.counters.index,
            timestamp: opened.counters.timestamp,
            arrival,
            level_dbov: level.and_then(AudioLevel::parse).map(|level| level.level_dbov),
            payload,
        };
        if !sink.mix(&frame) {
            return Err(InDrop::MixerFull);
        }
        self.stats.mix_in += 1;
        Ok(())
    }

    /// The mixer made a packet.
    pub fn handle_mixed(&mut self, now: Now, packet: &MixedPacket, sink: &mut impl Sink) {
        // A room's mix may come out while its last listener leaves.
        let Some(listeners) = self.listeners.get(&packet.room) else { return };
        match &packet.to {
            MixFor::Everyone { except } => {
                for listener in listeners {
                    let Some(person) = self.people[listener.person].as_mut() else { continue };
                    if !except.contains(&Some(person.key)) {
                        let sent = send(person, listener.slot, packet, now, sink);
                        self.stats.count_copy(sent);
                    }
                }
            }
            MixFor::One(key) => {
                let Some(index) = self.person_by_key.get(key) else { return };
                let listener = listeners.iter().find(|listener| listener.person == *index);
                let Some(listener) = listener else { return };
                let Some(person) = self.people[*index].as_mut() else { return };
                let sent = send(person, listener.slot, packet, now, sink);
                self.stats.count_copy(sent);
            }
        }
    }
}

/// Seals the packet for one listener; none where he is not connected yet.
fn send(
    person: &mut super::person::Person,
    slot: usize,
    packet: &MixedPacket,
    now: Now,
    sink: &mut impl Sink,
) -> Option<Result<usize, OutDrop>> {
    person.reachable().then(|| seal(person, slot, packet, now, sink))
}

fn seal(
    person: &mut super::person::Person,
    slot: usize,
    packet: &MixedPacket,
    now: Now,
    sink: &mut impl Sink,
) -> Result<usize, OutDrop> {
    let secure = person.secure.as_ref().ok_or(OutDrop::NotConnected)?;
    let slot = &mut person.slots[slot];
    // He became one who is heard, or no longer, and both mixes came: one packet a tick.
    if slot.mix_tick.is_some_and(|last| packet.tick <= last) {
        return Err(OutDrop::SameTick);
    }
    let counters = Counters {
        index: u64::from(slot.packets),
        timestamp: (packet.tick.wrapping_mul(TICK_SAMPLES as u64)) as u32,
        picture_id: None,
        tl0: None,
    };
    if slot.mix_tick.is_none() {
        slot.rewrite.switch(counters, None, now.at);
    }
    if secure.remote.is_tcp() && !sink.has_room(secure.remote, Priority::High) {
        return Err(OutDrop::ConnectionBehind);
    }
    let out = slot.rewrite.apply(counters, now.at)?;
    let stream = slot.stream.as_mut().ok_or(OutDrop::NotConnected)?;
    let buffer = sink.slot(secure.remote, Priority::High).ok_or(OutDrop::SendBufferFull)?;
    let level = [packet.level_dbov & 0x7F];
    let extension = slot.line.extensions.audio_level.map(|id| (id, &level[..]));
    let writer = HeaderWriter {
        marker: false,
        payload_type: slot.line.payload_type,
        sequence: out.sequence,
        timestamp: out.timestamp,
        ssrc: stream.ssrc(),
        extensions: extension.as_slice(),
    };
    let header_len = writer.write(buffer).map_err(|_| OutDrop::TooLong)?;
    let payload = packet.payload.bytes();
    let end = header_len + payload.len();
    buffer.get_mut(header_len..end).ok_or(OutDrop::TooLong)?.copy_from_slice(payload);
    let sealed = secure
        .sealer
        .seal_rtp(stream, buffer, header_len, end)
        .map_err(|_| OutDrop::SealRefused)?;
    sink.commit(sealed);
    slot.mix_tick = Some(packet.tick);
    slot.count(payload.len(), out.timestamp, now);
    Ok(sealed)
}

impl super::Stats {
    fn count_copy(&mut self, sent: Option<Result<usize, OutDrop>>) {
        let Some(sent) = sent else {
            self.waiting += 1;
            return;
        };
        self.copies += 1;
        match sent {
            Ok(len) => {
                self.rtp_out += 1;
                self.rtp_out_bytes += len as u64;
            }
            Err(reason) => self.out_drops.add(reason),
        }
    }
}
