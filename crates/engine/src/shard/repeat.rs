//! Packets that left leave once more, by RTX (RFC 4588).

use super::deliver::{OVERHEAD, Outgoing, deliver};
use super::person::Person;
use super::track::Track;
use super::turn::Turn;
use crate::drops::OutDrop;
use crate::sink::Sink;

/// A packet that nobody asked for goes once more, if the budget of what is sent again has room. Its receiver may not know that
/// they lost it.
pub(super) fn repeat<S: Sink>(
    turn: &mut Turn<'_, S>,
    track: &Track,
    (person, slot): (&mut Person, usize),
    sequence: u16,
) {
    let left = person.slots[slot].rewrite.left(sequence).filter(|left| left.track == track.key);
    let kept = left.and_then(|left| track.encoding.history.get(left.index));
    let Some(len) = kept.map(|kept| kept.len() + OVERHEAD) else { return };
    if person.slots[slot].resends() && person.egress.may_send_again(len, false, false).is_some() {
        once_more(turn, track, (person, slot), sequence);
    }
}

/// Sends a packet of a track that left a slot with this number. Says whether it is still kept.
pub(super) fn once_more<S: Sink>(
    turn: &mut Turn<'_, S>,
    track: &Track,
    (person, slot_index): (&mut Person, usize),
    sequence: u16,
) -> bool {
    let slot = &person.slots[slot_index];
    let known = slot.rewrite.left(sequence).zip(slot.line.rtx_payload_type);
    let packet =
        known.and_then(|(left, payload_type)| Outgoing::again(track, left, sequence, payload_type));
    let Some(packet) = packet else { return false };
    if deliver(turn, &packet, person, slot_index).is_ok() {
        turn.stats.resent += 1;
    }
    true
}

/// A packet of a track left a slot. If it is of a keyframe or comes after it, the numbers that nothing brought before leave empty
/// ([`super::gaps`]). Each takes the timestamp of the frame before it, and so adds nothing to any frame.
#[cold]
pub(super) fn fill<S: Sink>(
    turn: &mut Turn<'_, S>,
    (track, number): (&Track, u64),
    (person, slot_index): (&mut Person, usize),
) {
    let gaps = &track.encoding.gaps;
    let keyframe = Some((track.key, gaps.from));
    let slot = &mut person.slots[slot_index];
    let Some(payload_type) = slot.line.rtx_payload_type.filter(|_| slot.resends()) else { return };
    if number < gaps.from || slot.filled == keyframe {
        return;
    }
    slot.filled = keyframe;
    person.egress.fill(turn.now.at);
    for (lost, timestamp) in &gaps.lost {
        let slot = &person.slots[slot_index];
        let Some((sequence, left)) = slot.rewrite.used_for(*lost) else { continue };
        if person.egress.may_send_again(OVERHEAD, false, false).is_none() {
            turn.drop_copy(OutDrop::ResendBudget);
            continue;
        }
        let packet = Outgoing::nothing(left, sequence, payload_type, *timestamp);
        if deliver(turn, &packet, person, slot_index).is_ok() {
            turn.stats.resent += 1;
        }
    }
}
