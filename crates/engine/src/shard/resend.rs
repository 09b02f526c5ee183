//! Packets that receivers ask for again (RFC 4588): which are refused, and how the others leave. They wait in the pacer
//! with the pictures.

use super::deliver::OVERHEAD;
use super::forward::paces;
use super::index::PersonIndex;
use super::model::Model;
use super::repeat::once_more;
use super::turn::Turn;
use crate::drops::OutDrop;
use crate::egress::{Brings, Waiting};
use crate::sink::{Priority, Sink};
use rtp::rtcp::Nack;

/// A receiver asks for packets of a slot again.
pub(super) fn asked_again<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    nack: &Nack<'_>,
) {
    let Some(person) = model.people[index].as_mut() else { return };
    let Some(slot) = person.slot_by_ssrc(nack.media) else { return };
    if !person.slots[slot].resends() {
        return;
    }
    let asked = nack.count();
    let allowed = person.egress.asked_again(asked, turn.now.at);
    let refused = (asked - allowed) as u64;
    turn.stats.copies += refused;
    turn.stats.out_drops.add_many(OutDrop::ResendBudget, refused);
    for sequence in nack.lost().take(allowed) {
        if let Err(reason) = resend(model, turn, (index, slot), sequence) {
            turn.drop_copy(reason);
        }
    }
}

/// Sends a packet again that left a slot with this sequence number, or lets it wait for the
/// next burst.
///
/// # Errors
/// Why it is refused.
fn resend<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (index, slot_index): (PersonIndex, usize),
    sequence: u16,
) -> Result<(), OutDrop> {
    let Model { people, tracks, track_by_key, .. } = model;
    let person = people[index].as_mut().ok_or(OutDrop::NotConnected)?;
    let slot = &mut person.slots[slot_index];
    if slot.sent_again.is_too_soon(sequence, turn.now.at) {
        return Err(OutDrop::ResendTooSoon);
    }
    let left = slot.rewrite.left(sequence).ok_or(OutDrop::NotKept)?;
    let track = track_by_key.get(&left.track).ok_or(OutDrop::NotKept)?;
    let track = tracks[*track].as_ref().ok_or(OutDrop::NotKept)?;
    let kept = track.encoding.history.get(left.index).ok_or(OutDrop::NotKept)?;
    let len = kept.len() + OVERHEAD;
    // The still of a picture that rests is repaired all the same.
    let held = turn.held(person, index, slot_index);
    if let Some(reason) = held.filter(|reason| *reason != OutDrop::Bandwidth) {
        return Err(reason);
    }
    let paced = paces(person, track, Priority::Low);
    if paced && !person.egress.is_waiting() {
        person.egress.turn(turn.now.at);
    }
    let first = !person.egress.is_waiting();
    let waits = paced && person.egress.is_full();
    if waits && !person.egress.has_room(2, 2 * len) {
        return Err(OutDrop::PacerFull);
    }
    let still = person.slots[slot_index].rests();
    let twice = person.egress.may_send_again(len, paced, still).ok_or(OutDrop::ResendBudget)?;
    let interval = person.egress.again_after();
    person.slots[slot_index].sent_again.note(sequence, turn.now.at, interval);
    let brings = Brings::Again { sequence, len };
    let again = Waiting { track: left.track, slot: slot_index, index: left.index, brings };
    // Where many packets are lost, those that are sent again are as well: each goes twice, at a distance.
    let waiting = usize::from(waits) + usize::from(twice);
    if !waits {
        send_again(model, turn, (index, slot_index), sequence);
    }
    let Some(person) = model.people[index].as_mut() else { return Ok(()) };
    for _ in 0..waiting {
        turn.stats.paced += 1;
        person.egress.again(again);
    }
    if first && waiting > 0 {
        model.bursts.add(index);
        model.plan_bursts();
    }
    Ok(())
}

/// A packet that was asked for again leaves now.
pub(super) fn send_again<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (index, slot): (PersonIndex, usize),
    sequence: u16,
) {
    let Model { people, tracks, track_by_key, .. } = model;
    let Some(person) = people[index].as_mut() else { return };
    let left = person.slots[slot].rewrite.left(sequence);
    let track = left.and_then(|left| tracks[*track_by_key.get(&left.track)?].as_ref());
    if !track.is_some_and(|track| once_more(turn, track, (person, slot), sequence)) {
        turn.drop_copy(OutDrop::NotKept);
    }
}
