//! Sends waiting pictures in bursts, and lets slots that wait for a picture begin with what the history keeps.

use super::deliver::{Outgoing, deliver};
use super::forward::{OVERHEAD, Way, flush, offer, paces};
use super::index::{PersonIndex, Subscription, TrackIndex};
use super::model::Model;
use super::pacer::{Brings, Pacer, Waiting, WaitingPacket};
use super::packet::Opened;
use super::person::Person;
use super::resend::send_again;
use super::slot::Slot;
use super::turn::Turn;
use crate::command::StreamKey;
use crate::drops::OutDrop;
use crate::sink::{Priority, Sink};
use std::ops::Range;

/// Sends the bursts that are due.
pub(super) fn pace<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>) {
    if model.bursts.due.is_none_or(|at| turn.now.at < at) {
        return;
    }
    let mut waiting = std::mem::take(&mut model.bursts.waiting);
    waiting.retain(|person| burst(model, turn, *person));
    model.bursts.waiting = waiting;
    model.plan_bursts();
}

/// Sends a person's next burst, if it is due. Says whether something still waits.
fn burst<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>, index: PersonIndex) -> bool {
    if pacer(model, index).is_some_and(|pacer| pacer.turn(turn.now.at)) {
        while let Some(next) = pacer(model, index).and_then(Pacer::next) {
            send_waiting(model, turn, index, next);
        }
    }
    probe(model, turn, index);
    let person = model.people[index].as_ref();
    person.is_some_and(|person| person.pacer.is_waiting() || person.path.probe_due().is_some())
}

/// Sends the packets of a probe that are due: what waits for a burst, then padding.
fn probe<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>, index: PersonIndex) {
    let path = |model: &'_ mut Model| {
        Some(model.people[index].as_mut()?.path.downlink()?.prober().bytes_due(turn.now.at))
    };
    let Some(mut left) = path(model) else { return };
    while left > 0 {
        let Some(person) = model.people[index].as_mut() else { return };
        let Some(downlink) = person.path.downlink() else { return };
        downlink.prober().begin(turn.now.at);
        let before = downlink.sent_bytes();
        let next = person.pacer.next_at_once();
        let padding = next.is_none();
        match next {
            Some(next) => send_waiting(model, turn, index, next),
            None => pad(turn, person),
        }
        let person = model.people[index].as_mut();
        let Some(downlink) = person.and_then(|person| person.path.downlink()) else { return };
        let sent = (downlink.sent_bytes() - before) as usize;
        if padding && sent == 0 {
            // Nothing leaves that could tell something.
            return downlink.prober().end();
        }
        left = left.saturating_sub(sent);
    }
}

/// Sends a packet of padding on the retransmission stream of a slot.
fn pad<S: Sink>(turn: &mut Turn<'_, S>, person: &mut Person) {
    let pads = |slot: &Slot| slot.is_video() && slot.resends();
    let Some(at) = person.slots.iter().position(pads) else { return };
    let slot = &person.slots[at];
    let Some(payload_type) = slot.line.rtx_payload_type else { return };
    let padding = Outgoing::padding(payload_type, slot.last_timestamp.map_or(0, |(at, _)| at));
    if deliver(turn, &padding, person, at).is_ok() {
        turn.stats.probed += 1;
    }
}

fn pacer(model: &mut Model, person: PersonIndex) -> Option<&mut Pacer> {
    Some(&mut model.people[person].as_mut()?.pacer)
}

/// Lets slots that wait for a track of pictures begin with what is kept of it, if that is whole. Says whether some
/// still wait; a slot that may get no pictures at the moment does not count.
pub(super) fn begin_with_kept<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: TrackIndex,
) -> bool {
    // The queued packets are in the history already, and would leave twice.
    flush(model, turn);
    let Some(track) = model.tracks[index].as_ref() else { return false };
    let (key, beginning) = (track.key, track.encoding.beginning(turn.now.at));
    let highest = track.encoding.inner.highest(turn.now.at);
    let mut still = false;
    let mut at = 0;
    while let Some(to) = model.tracks[index].as_ref().and_then(|t| t.subscriptions.get(at)) {
        let to = *to;
        at += 1;
        let Some(person) = model.people[to.person].as_ref() else { continue };
        let slot = &person.slots[to.slot];
        let waits = slot.pending == Some(index);
        let grows = slot.current == Some(index) && slot.rewrite.selection.waits(highest);
        if !(waits || grows) || turn.held(person, to.person, to.slot).is_some() {
            continue;
        }
        if grows {
            still = true;
            continue;
        }
        let able = person.reachable() && !person.pacer.begins(to.slot, key);
        match &beginning {
            Some(all) if able && person.pacer.has_room((all.end - all.start) as usize) => {
                begin_slot(model, turn, (index, key), to, all.clone());
            }
            _ => still |= !person.pacer.begins(to.slot, key),
        }
    }
    still
}

/// Gives a slot these packets as if they came now.
fn begin_slot<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (index, track): (TrackIndex, StreamKey),
    to: Subscription,
    numbers: Range<u64>,
) {
    let first = numbers.start;
    for number in numbers {
        let Some(from) = model.tracks[index].as_ref() else { return };
        let Some(person) = model.people[to.person].as_mut() else { return };
        let packet = |bytes: &[u8]| WaitingPacket {
            begins: number == first,
            repaired: false,
            padding: 0,
            len: bytes.len() + OVERHEAD,
        };
        let kept = from.encoding.history.get(number);
        let brings = kept.map_or(Brings::Nothing, |bytes| Brings::Packet(packet(bytes)));
        let next = Waiting { track, slot: to.slot, index: number, brings };
        if !paces(person, from, Priority::Low) {
            send_waiting(model, turn, to.person, next);
            continue;
        }
        if !person.pacer.is_waiting() {
            person.pacer.turn(turn.now.at);
            model.bursts.add(to.person);
        }
        person.pacer.wait(next);
        turn.stats.paced += 1;
    }
    model.plan_bursts();
}

/// Sends what waited.
fn send_waiting<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    next: Waiting,
) {
    let packet = match next.brings {
        Brings::Packet(packet) => Some(packet),
        Brings::Nothing => None,
        Brings::Again { sequence, .. } => {
            return send_again(model, turn, (index, next.slot), sequence);
        }
        Brings::Withdrawn => return turn.drop_copy(OutDrop::Withdrawn),
    };
    let Model { people, tracks, track_by_key, .. } = model;
    let Some(person) = people[index].as_mut() else { return };
    let slot = &mut person.slots[next.slot];
    let known = track_by_key.get(&next.track).copied();
    let place = known.filter(|track| [slot.current, slot.pending].contains(&Some(*track)));
    let Some((track_index, track)) = place.and_then(|at| Some((at, tracks[at].as_ref()?))) else {
        if packet.is_some() {
            turn.drop_copy(OutDrop::Withdrawn);
        }
        return;
    };
    let flows = slot.current == Some(track_index);
    let Some(WaitingPacket { begins, repaired, padding, .. }) = packet else {
        if flows {
            slot.rewrite.skip(next.index);
        }
        return;
    };
    let encoding = &track.encoding;
    let kept = encoding.history.get(next.index);
    let Some((bytes, opened)) =
        kept.and_then(|kept| Some((kept, encoding.reopen(next.index, kept)?)))
    else {
        return turn.drop_copy(OutDrop::NotKept);
    };
    let opened = Opened { begins, repaired, ..opened };
    let held = turn.held(person, index, next.slot);
    let way = Way { track: (track_index, track), slot: next.slot, held };
    let superseded = offer(turn, &way, (&opened, bytes, padding), |_| false, person);
    model.unsubscribe(superseded, Subscription { person: index, slot: next.slot });
}
