//! Opened packets go to subscribers: each subscriber's slot decides what becomes of them.

use super::deliver::{OVERHEAD, Outgoing, deliver};
use super::index::{Subscription, TrackIndex};
use super::lately::Past;
use super::level::Padding;
use super::model::Model;
use super::packet::Opened;
use super::person::Person;
use super::queue::Queue;
use super::repeat::{fill, repeat};
use super::scalable::Frame;
use super::slot::Slot;
use super::track::Track;
use super::turn::Turn;
use crate::command::{Report, StreamKey};
use crate::drops::OutDrop;
use crate::egress::{Admission, Brings, Fall, Level, Stands, Waiting, WaitingPacket};
use crate::sink::{Priority, Sink};
use foldhash::HashMap;

/// Forwards what waits in the queue.
pub(super) fn flush<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>) {
    if model.queue.is_empty() {
        return;
    }
    let mut queue = std::mem::take(&mut model.queue);
    queue.by_track(|track, run| forward(model, turn, track, (&queue, run)));
    queue.clear();
    model.queue = queue;
}

/// Sends packets of one track to one subscriber after the other, so that packets to the same
/// address leave as one message.
fn forward<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    track_index: TrackIndex,
    (queue, run): (&Queue, &[u8]),
) {
    let Model { people, tracks, track_by_key, bursts, .. } = model;
    let Some(track) = tracks[track_index].as_ref() else { return };
    let mut superseded: Vec<(TrackIndex, Subscription)> = Vec::new();
    let padding = padding(queue, run);
    let waits = |index| run.iter().any(|at| queue.packet((*at).into()).0.counters.index == index);
    let (mut begin_to_wait, mut cut) = (false, Vec::new());
    let mut next = track.subscriptions.iter().skip(1);
    for subscription in &track.subscriptions {
        let ahead = next.next().and_then(|one| Some(people[one.person].as_ref()?.ahead(one.slot)));
        std::hint::black_box(ahead);
        let Some(person) = people[subscription.person].as_mut() else { continue };
        let Subscription { person: person_index, slot } = *subscription;
        let priority = person.slots[slot].priority();
        let held = turn.held(person, person_index, slot);
        let paces = paces(person, track, priority);
        let waited = person.egress.is_waiting();
        if paces && !waited {
            person.egress.turn(turn.now.at);
        }
        for (nth, at) in run.iter().enumerate() {
            let (opened, plain) = queue.packet(usize::from(*at));
            let held =
                held.filter(|reason| !finishes(person, (track_index, slot), opened, *reason));
            let mut way = Way { track: (track_index, track), slot, held };
            let padding = padding.get(nth);
            if paces && person.egress.is_full() {
                match wait(turn, &way, (opened, padding), person, &mut cut) {
                    Wait::Done => continue,
                    Wait::Stop(reason) => way.held = Some(reason),
                    Wait::Not => {}
                }
            }
            let old = offer(turn, &way, (opened, plain, padding), waits, person);
            superseded.extend(old.map(|old| (old, *subscription)));
        }
        if !waited && person.egress.is_waiting() {
            bursts.add(person_index);
            begin_to_wait = true;
        }
    }
    give_up(turn, tracks, track_by_key, &cut);
    if begin_to_wait {
        model.plan_bursts();
    }
    for (old, subscription) in superseded {
        model.unsubscribe(Some(old), subscription);
    }
}

/// Whether a packet leaves although the path does not carry its picture any more: a part of its frame left already, or waits.
fn finishes(
    person: &Person,
    (track, slot): (TrackIndex, usize),
    opened: &Opened,
    reason: OutDrop,
) -> bool {
    let known = &person.slots[slot];
    let within = || known.current == Some(track) && known.rewrite.is_within(opened.counters);
    reason == OutDrop::Bandwidth
        && (within() || person.egress.completes(slot, opened.counters.timestamp))
}

/// The way from a track to a slot that carries it or waits for it.
pub(super) struct Way<'a> {
    pub track: (TrackIndex, &'a Track),
    pub slot: usize,
    /// Why nothing may go there at the moment, if so.
    pub held: Option<OutDrop>,
}

/// What became of a packet that cannot leave now.
pub(super) enum Wait {
    /// It waits, or it was counted.
    Done,
    /// Its slot stops at once, for this reason.
    Stop(OutDrop),
    /// It is as if nothing waited.
    Not,
}

/// A packet cannot leave now: it waits behind the others, if its frame is let in. What is cut to make room for it is added
/// to `cut`.
pub(super) fn wait<S: Sink>(
    turn: &mut Turn<'_, S>,
    way: &Way<'_>,
    (opened, padding): (&Opened, u8),
    person: &mut Person,
    cut: &mut Vec<Waiting>,
) -> Wait {
    let (track_index, track) = way.track;
    let slot = &person.slots[way.slot];
    let (flows, is_next) = (slot.current == Some(track_index), slot.pending == Some(track_index));
    if let Some(reason) = way.held {
        if !person.egress.is_waiting_in(way.slot) {
            return Wait::Not;
        }
        // What waits of the slot leaves all the same, and then the slot stops.
        if flows || is_next {
            turn.drop_copy(reason);
        }
        if person.egress.brings(way.slot, track.key) {
            person.egress.stop(way.slot, cut);
        }
        return Wait::Done;
    }
    let stands = match flows {
        true => Stands::Flows {
            continues: slot.rewrite.is_within(opened.counters),
            switches: slot.pending.is_some(),
            uneven: track.is_uneven(),
        },
        false => Stands::Waits,
    };
    let (packet, index) = (way.waiting(opened, padding, slot), opened.counters.index);
    let (key, brings) = (track.key, Brings::Packet(packet));
    let waiting = Waiting { track: key, slot: way.slot, index, brings };
    let able = flows || (is_next && person.reachable());
    let admission = match able {
        true => person.egress.offer(waiting, packet, stands, cut),
        false => Admission::NotTaken,
    };
    match admission {
        Admission::Waits => {
            track.encoding.history.hold(index);
            turn.stats.paced += 1;
            return Wait::Done;
        }
        Admission::NotTaken => turn.stats.waiting += 1,
        Admission::Stops => turn.drop_copy(OutDrop::PacerFull),
        Admission::Refused => {
            starve(turn, person, (way.slot, track));
            return Wait::Stop(OutDrop::PacerFull);
        }
    }
    if admission == Admission::Stops {
        starve(turn, person, (way.slot, track));
    }
    Wait::Done
}

/// A slot's keyframe took so long that the frames after it could not follow: its picture rests.
pub(super) fn starve<S: Sink>(
    turn: &mut Turn<'_, S>,
    person: &mut Person,
    (slot, track): (usize, &Track),
) {
    let known = &mut person.slots[slot];
    if known.rests() {
        return;
    }
    let (from, spread, uneven) = (known.level, known.spread(), track.is_uneven());
    known.level = Level::REST;
    person.egress.starved(slot, Fall { from, rests: true, uneven, spread }, turn.now.at);
    turn.stats.rested += 1;
    turn.reports.push(person.rests(slot, true));
}

/// What will not leave is counted, and no longer held.
pub(super) fn give_up<S: Sink>(
    turn: &mut Turn<'_, S>,
    tracks: &[Option<Track>],
    track_by_key: &HashMap<StreamKey, TrackIndex>,
    cut: &[Waiting],
) {
    for waiting in cut {
        turn.drop_copy(OutDrop::PacerFull);
        let track = track_by_key.get(&waiting.track).and_then(|index| tracks[*index].as_ref());
        if let Some(track) = track {
            track.encoding.history.let_go(waiting.index);
        }
    }
}

impl Way<'_> {
    /// A packet that waits until there is place in a burst.
    fn waiting(&self, opened: &Opened, padding: u8, slot: &Slot) -> WaitingPacket {
        let Opened { begins, repaired, .. } = *opened;
        let flows = slot.current == Some(self.track.0);
        let left_out = |frame: &Frame| flows && slot.rewrite.selection.leaves_out(frame);
        let leaves = !opened.frame.as_ref().is_some_and(left_out);
        let len = if leaves { opened.payload.end + OVERHEAD } else { 0 };
        let (ends, timestamp) = (opened.header.marker, opened.counters.timestamp);
        let keyframe = self.track.1.encoding.is_keyframe(timestamp);
        WaitingPacket { begins, repaired, keyframe, ends, timestamp, padding, len }
    }
}

/// Whether a track leaves to a person in bursts: pictures by UDP, if the history keeps their packets. TCP
/// has its own way to hold pictures back.
#[inline]
pub(super) fn paces(person: &Person, track: &Track, priority: Priority) -> bool {
    let by_udp = person.secure.as_ref().is_some_and(|secure| !secure.remote.is_tcp());
    priority == Priority::Low && by_udp && track.encoding.keeps_history()
}

/// Offers a packet to a slot, with so many bytes of padding. The slot switches to its track, sends it, leaves it out, or
/// does not take it. `waits` tells which other packets of the track are queued and come in their turn. Returns the track
/// that the slot gave up, if any: its subscription is to end.
#[inline]
pub(super) fn offer<S: Sink>(
    turn: &mut Turn<'_, S>,
    way: &Way<'_>,
    (opened, plain, padding): (&Opened, &[u8], u8),
    waits: impl Fn(u64) -> bool,
    person: &mut Person,
) -> Option<TrackIndex> {
    let (track_index, track) = way.track;
    let number = opened.counters.index;
    let begins = opened.begins && !opened.repaired && person.reachable();
    let slot = &mut person.slots[way.slot];
    let (flows, is_next) = (slot.current == Some(track_index), slot.pending == Some(track_index));
    if let Some(reason) = way.held
        && (flows || is_next)
    {
        turn.drop_copy(reason);
        // Sound goes on with what comes next, a picture only with a keyframe.
        if flows && slot.priority() == Priority::High {
            slot.rewrite.skip(number);
        } else if flows && !slot.hold() {
            return Some(track_index);
        }
        return None;
    }
    let mut superseded = None;
    if begins && is_next {
        superseded = slot.current.replace(track_index);
        switch(turn, (track, opened), |past| !waits(past.index), (person, way.slot));
    } else if !flows {
        turn.stats.waiting += 1;
        return None;
    } else if slot.rewrite.is_another_stream(number) {
        // The publisher began anew: sound goes on with this packet, a picture with the next keyframe.
        if !begins {
            turn.stats.waiting += 1;
            return (!slot.hold()).then_some(track_index);
        }
        slot.rewrite.switch(opened.counters, Some(track.key), turn.now.at);
    }
    let slot = &mut person.slots[way.slot];
    if !slot.takes(opened, begins) {
        turn.drop_copy(OutDrop::Layer);
        return superseded;
    }
    let Some(outgoing) = Outgoing::of(opened, plain, padding, slot) else {
        slot.rewrite.skip(number);
        turn.drop_copy(OutDrop::NotNegotiated);
        return superseded;
    };
    if deliver(turn, &outgoing, person, way.slot) == Err(OutDrop::SendBufferFull) {
        let slot = &mut person.slots[way.slot];
        if opened.audio {
            slot.rewrite.skip(number);
        } else if !slot.hold() {
            // The picture lacks a part now, but the numbers show no gap: it goes on with a keyframe.
            return Some(track_index);
        }
    } else if let Some(first) = person.slots[way.slot].repeats_first() {
        repeat(turn, track, (person, way.slot), first);
    }
    if !track.encoding.gaps.is_empty() {
        fill(turn, (track, number), (person, way.slot));
    }
    superseded
}

/// Switches a slot to a track with this packet. If speech began before, its kept packets go first: the
/// speaker is heard from their first syllable on.
fn switch<S: Sink>(
    turn: &mut Turn<'_, S>,
    (track, opened): (&Track, &Opened),
    missed: impl Fn(&Past<'_>) -> bool,
    (person, slot_index): (&mut Person, usize),
) {
    person.slots[slot_index].pending = None;
    let mut first = None;
    for past in track.encoding.speech().filter(missed) {
        let Some(again) = track.encoding.reopen(past.index, past.bytes) else { continue };
        let slot = &mut person.slots[slot_index];
        if first.is_none() {
            first = Some(again.counters.timestamp);
            slot.rewrite.switch(again.counters, Some(track.key), past.arrival);
        }
        turn.stats.replayed += 1;
        match Outgoing::of(&again, past.bytes, 0, slot) {
            Some(outgoing) => {
                let _counted = deliver(turn, &outgoing, person, slot_index);
            }
            None => {
                slot.rewrite.skip(past.index);
                turn.drop_copy(OutDrop::NotNegotiated);
            }
        }
    }
    let slot = &mut person.slots[slot_index];
    if first.is_none() {
        slot.rewrite.switch(opened.counters, Some(track.key), turn.now.at);
    }
    let first = first.unwrap_or(opened.counters.timestamp);
    turn.reports.push(Report::Switched {
        person: person.key,
        room: person.room,
        mid: slot.line.mid.clone(),
        track: track.key.track,
        // As the subscriber sees it.
        rtp_timestamp: first.wrapping_add(slot.rewrite.timestamp_offset()),
    });
}

/// The padding that gives the packets of a picture one length.
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
