//! Sound of mixed rooms: packets of publishers go to the mixer, mixed packets go to the listeners.

use super::deliver::{Number, Outgoing, deliver};
use super::model::{Mix, Model};
use super::packet::{Opened, Passed};
use super::person::Person;
use super::pictures::Pictures;
use super::rewrite::Counters;
use super::track::Track;
use super::turn::Turn;
use crate::drops::{InDrop, OutDrop};
use crate::limits::MIX_COPIES_AT_ONCE;
use crate::mix::{MixFor, MixFrame, MixedPacket, Payload, TICK_SAMPLES};
use crate::sink::{Priority, Sink};
use std::time::Instant;

/// Hands a packet of sound to the mixer, unless nobody would hear it.
///
/// # Errors
/// It cannot be read, is too long to be mixed, or the mixer's queue is full.
pub(super) fn hand_to_mixer<S: Sink>(
    turn: &mut Turn<'_, S>,
    track: &Track,
    opened: &Opened,
    plain: &[u8],
    arrival: Instant,
) -> Result<(), InDrop> {
    if !track.glances.is_open(arrival) {
        turn.stats.unheard += 1;
        return Ok(());
    }
    // The mixer gets the primary block alone: redundant blocks are for receivers that lost packets.
    let payload = opened.opus(plain);
    if payload.is_empty() {
        return Err(InDrop::Malformed);
    }
    let frame = MixFrame {
        track: track.key.track,
        index: opened.counters.index,
        timestamp: opened.counters.timestamp,
        arrival,
        level_dbov: opened.level_dbov,
        payload: Payload::new(payload).ok_or(InDrop::TooLong)?,
    };
    if !turn.sink.mix(&frame) {
        return Err(InDrop::MixerFull);
    }
    turn.stats.mix_in += 1;
    Ok(())
}

/// The mixer made a packet; the first slice leaves.
pub(super) fn mixed<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>, packet: &MixedPacket) {
    if model.spreading.is_full() {
        finish(model, turn);
    }
    model.spreading.push(*packet, turn.now.at);
    spread(model, turn);
}

/// The next slice leaves.
pub(super) fn spread<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>) {
    let mut left = MIX_COPIES_AT_ONCE;
    while left > 0
        && let Some((packet, from)) = model.spreading.take()
    {
        let copies = turn.stats.copies;
        let Model { mixes, people, person_by_key, .. } = &mut *model;
        // A room's mix may come out while its last listener leaves.
        let Some(Mix { listeners, .. }) = mixes.get(&packet.room) else { continue };
        match &packet.to {
            MixFor::Everyone { except } => {
                let end = listeners.len().min(from + left);
                for listener in listeners.get(from..end).unwrap_or_default() {
                    let Some(person) = people[listener.person].as_mut() else { continue };
                    let own = person.slots[listener.slot].mix_tick;
                    if own.is_none_or(|last| last < packet.tick)
                        && !except.contains(&Some(person.key))
                    {
                        send(turn, person, listener.slot, &packet);
                    }
                }
                left = left.saturating_sub(end.saturating_sub(from).max(1));
                if end < listeners.len() {
                    model.spreading.put_back(packet, end);
                }
            }
            MixFor::One(key) => {
                left -= 1;
                let Some(index) = person_by_key.get(key) else { continue };
                let listener = listeners.iter().find(|listener| listener.person == *index);
                let Some(listener) = listener else { continue };
                let Some(person) = people[*index].as_mut() else { continue };
                send(turn, person, listener.slot, &packet);
            }
        }
        stayed(turn, &packet, turn.stats.copies - copies);
    }
}

/// Counts how long what is in the packet had been here when these copies of it left.
fn stayed<S: Sink>(turn: &mut Turn<'_, S>, packet: &MixedPacket, copies: u64) {
    let Some(since) = packet.since else { return };
    let stayed = turn.now.at.saturating_duration_since(since);
    turn.stats.mix_residence.add(u32::try_from(stayed.as_millis()).unwrap_or(u32::MAX), copies);
}

/// All that waits leaves.
pub(super) fn finish<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>) {
    while model.spreading.due().is_some() {
        spread(model, turn);
    }
}

/// Sends the packet to one listener, if they are connected.
fn send<S: Sink>(
    turn: &mut Turn<'_, S>,
    person: &mut Person,
    slot_index: usize,
    packet: &MixedPacket,
) {
    if !person.reachable() {
        turn.stats.waiting += 1;
        return;
    }
    let Some(secure) = person.secure.as_ref() else { return };
    let slot = &mut person.slots[slot_index];
    if slot.mix_tick.is_some_and(|last| packet.tick <= last) {
        return turn.drop_copy(OutDrop::SameTick);
    }
    let counters = Counters {
        index: u64::from(slot.packets),
        timestamp: (packet.tick.wrapping_mul(TICK_SAMPLES as u64)) as u32,
        picture_id: None,
        tl0: None,
    };
    if slot.mix_tick.is_none() {
        slot.rewrite.switch(counters, None, turn.now.at);
    }
    // If it is not sent, no other packet of these ticks takes its place: they would hear themselves.
    slot.mix_tick = Some(packet.tick + u64::from(packet.ticks.max(1)) - 1);
    if secure.remote.is_tcp() && !turn.sink.has_room(secure.remote, Priority::High) {
        return turn.drop_copy(OutDrop::ConnectionBehind);
    }
    let outgoing = Outgoing {
        number: Number::Next(counters),
        marker: false,
        payload_type: slot.line.payload_type,
        passed: Passed::level(packet.level_dbov),
        payload: packet.payload.bytes(),
        padding: 0,
        pictures: Pictures::Uncounted,
        frame: None,
        repeats: true,
    };
    _ = deliver(turn, &outgoing, person, slot_index);
}
