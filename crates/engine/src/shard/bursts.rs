//! Sends waiting pictures in bursts, and lets slots that wait for a picture begin with what the history keeps.

use super::deliver::{OVERHEAD, Outgoing, deliver};
use super::forward::{Way, flush, give_up, offer, paces, starve};
use super::index::{PersonIndex, Subscription, TrackIndex};
use super::keyframe::Waits;
use super::model::Model;
use super::packet::Opened;
use super::person::Person;
use super::repeat::repeat;
use super::resend::send_again;
use super::slot::Slot;
use super::turn::Turn;
use crate::command::StreamKey;
use crate::drops::OutDrop;
use crate::egress::{Admission, Brings, Egress, Stands, Waiting, WaitingPacket};
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
    if egress(model, index).is_some_and(|egress| egress.turn(turn.now.at)) {
        while let Some(next) = egress(model, index).and_then(Egress::next) {
            send_waiting(model, turn, index, next);
        }
    }
    probe(model, turn, index);
    egress(model, index).is_some_and(|egress| egress.due().is_some())
}

/// Sends the packets of a probe that are due: what waits for a burst, then padding.
fn probe<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>, index: PersonIndex) {
    let Some(mut left) = egress(model, index).map(|egress| egress.probe(turn.now.at)) else {
        return;
    };
    while left > 0 {
        let Some(person) = model.people[index].as_mut() else { return };
        let before = person.egress.numbered_bytes();
        let next = person.egress.next_at_once();
        let padding = next.is_none();
        match next {
            Some(next) => send_waiting(model, turn, index, next),
            None => pad(turn, person),
        }
        let Some(egress) = egress(model, index) else { return };
        let sent = (egress.numbered_bytes() - before) as usize;
        if padding && sent == 0 {
            // Nothing leaves that could tell something.
            return egress.end_probe();
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

fn egress(model: &mut Model, person: PersonIndex) -> Option<&mut Egress> {
    Some(&mut model.people[person].as_mut()?.egress)
}

/// Lets slots that wait for a track of pictures begin with what is kept of it, if that is whole. Says who still
/// waits; a slot that may get no pictures at the moment does not count.
pub(super) fn begin_with_kept<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: TrackIndex,
) -> Waits {
    // The queued packets are in the history already, and would leave twice.
    flush(model, turn);
    let Some(track) = model.tracks[index].as_ref() else { return Waits::Nobody };
    let (key, beginning) = (track.key, track.encoding.beginning(turn.now.at));
    let highest = track.encoding.inner.highest(turn.now.at);
    let mut still = Waits::Nobody;
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
        let dear = person.egress.is_limited(turn.now.at);
        let waiting = if dear { Waits::Dear } else { Waits::Somebody };
        if grows {
            still = still.max(waiting);
            continue;
        }
        let brings = person.egress.brings(to.slot, key);
        let able = person.reachable() && !brings;
        match &beginning {
            Some(all) if able && begin_slot(model, turn, (index, key), to, all.clone()) => {}
            _ if brings => {}
            _ => still = still.max(waiting),
        }
    }
    still
}

/// Gives a slot these packets as if they came now. Says whether it begins with them.
fn begin_slot<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (index, track): (TrackIndex, StreamKey),
    to: Subscription,
    numbers: Range<u64>,
) -> bool {
    let (first, packets) = (numbers.start, (numbers.end - numbers.start) as usize);
    for number in numbers.clone() {
        let Model { people, tracks, track_by_key, bursts, .. } = &mut *model;
        let Some(from) = tracks[index].as_ref() else { return true };
        let Some(person) = people[to.person].as_mut() else { return true };
        let history = &from.encoding.history;
        let packet = history.get(number).and_then(|bytes| {
            let (begins, len) = (number == first, bytes.len() + OVERHEAD);
            let header = rtp::RtpHeader::parse(bytes).ok()?;
            let (ends, timestamp) = (header.marker, header.timestamp);
            let (repaired, padding) = (false, 0);
            let keyframe = from.encoding.is_keyframe(timestamp);
            Some(WaitingPacket { begins, repaired, keyframe, ends, timestamp, padding, len })
        });
        let brings = packet.map_or(Brings::Nothing, Brings::Packet);
        let next = Waiting { track, slot: to.slot, index: number, brings };
        if !paces(person, from, Priority::Low) {
            send_waiting(model, turn, to.person, next);
            continue;
        }
        let all = history.bytes(numbers.clone()) + OVERHEAD * packets;
        if number == first && !person.egress.has_room(packets, all) {
            return false;
        }
        if !person.egress.is_waiting() {
            person.egress.turn(turn.now.at);
            bursts.add(to.person);
        }
        let Some(packet) = packet else {
            person.egress.pass(track, to.slot, number);
            continue;
        };
        let mut cut = Vec::new();
        let admission = person.egress.offer(next, packet, Stands::Waits, &mut cut);
        match admission {
            Admission::Waits => {
                history.hold(number);
                turn.stats.paced += 1;
            }
            Admission::Stops | Admission::Refused => starve(turn, person, (to.slot, from)),
            Admission::NotTaken => {}
        }
        give_up(turn, tracks, track_by_key, &cut);
        if admission != Admission::Waits {
            model.plan_bursts();
            return number != first;
        }
    }
    model.plan_bursts();
    true
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
        Brings::Stop => return stop(model, turn, index, next),
    };
    let Model { people, tracks, track_by_key, .. } = model;
    let Some(person) = people[index].as_mut() else { return };
    let slot = &mut person.slots[next.slot];
    let known = track_by_key.get(&next.track).copied();
    let track = known.and_then(|at| Some((at, tracks[at].as_ref()?)));
    if let Some((_, track)) = track.filter(|_| packet.is_some()) {
        track.encoding.history.release(next.index, turn.now.at);
    }
    let carries = |track: &TrackIndex| [slot.current, slot.pending].contains(&Some(*track));
    let Some((track_index, track)) = track.filter(|(at, _)| carries(at)) else {
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
    let opened = kept.and_then(|kept| Some((kept, encoding.reopen(next.index, kept)?)));
    let held = turn.held(person, index, next.slot);
    // What was let in leaves.
    let held = held.filter(|reason| *reason != OutDrop::Bandwidth);
    let way = Way { track: (track_index, track), slot: next.slot, held };
    let superseded = match opened {
        Some((bytes, opened)) => {
            let opened = Opened { begins, repaired, ..opened };
            offer(turn, &way, (&opened, bytes, padding), |_| false, person)
        }
        // The picture lacks a part: it goes on with a keyframe, so that the numbers show no gap.
        None => {
            turn.drop_copy(OutDrop::NotKept);
            let slot = &mut person.slots[next.slot];
            (flows && !slot.hold()).then_some(track_index)
        }
    };
    model.unsubscribe(superseded, Subscription { person: index, slot: next.slot });
}

/// A slot's picture stops until a keyframe comes. If it is paused, nothing shows that the last packet of its still was lost: it
/// goes once more.
fn stop<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>, index: PersonIndex, next: Waiting) {
    let Some(at) = model.track_by_key.get(&next.track).copied() else { return };
    let Model { people, tracks, .. } = model;
    let Some((person, track)) = people[index].as_mut().zip(tracks[at].as_ref()) else { return };
    let slot = &person.slots[next.slot];
    if let Some(last) = slot.rewrite.last_sequence().filter(|_| slot.rests()) {
        repeat(turn, track, (person, next.slot), last);
    }
    let slot = &mut person.slots[next.slot];
    if slot.current == Some(at) && !slot.hold() {
        model.unsubscribe(Some(at), Subscription { person: index, slot: next.slot });
    }
}
