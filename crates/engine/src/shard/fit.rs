//! Which pictures fit a participant's path. Sound always does; of the pictures, those that come last in order rest first.
//!
//! A picture rests at once. It flows again when the estimate, which a probe may have raised, leaves room for it, and not
//! before it has rested for a while: longer each time that it had to rest again soon.

use super::index::{PersonIndex, Subscription, TrackIndex};
use super::model::Model;
use super::person::Person;
use super::slot::Slot;
use super::track::Track;
use super::turn::Turn;
use crate::limits::WAKING_HEADROOM;
use crate::sink::Sink;
use std::time::Instant;

/// Makes a new estimate of a participant's path, and lets pictures rest or flow by it.
pub(super) fn fit<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>, index: PersonIndex) {
    let now = turn.now.at;
    let Some(person) = model.people[index].as_mut() else { return };
    if !person.path.is_due(now) {
        return;
    }
    let estimates = person.estimates();
    person.path.estimate(now, estimates);
    if let Some(downlink) = person.path.downlink() {
        downlink.tick(now);
    }
    person.wake_empty(turn.reports);
    let sound = person.path.sound_bps(now);
    let room = person.path.estimate_bps().map(|bps| bps.saturating_sub(sound));
    let pictures = pictures(person, &model.tracks, now);
    let all: u64 = pictures.iter().map(|picture| picture.bps).sum();
    let resting: u64 = pictures.iter().filter(|p| p.rests).map(|picture| picture.bps).sum();
    let mut flow = all - resting;
    let next = pictures.iter().find(|picture| picture.rests);
    if room.is_some_and(|room| person.path.is_over(now, flow, room)) {
        for picture in pictures.iter().rev().filter(|picture| !picture.rests) {
            if room.is_some_and(|room| flow > room) {
                flow -= picture.bps;
                rest(model, turn, (index, picture));
            }
        }
    } else if let Some(next) = next {
        flow += wake(model, turn, (index, next), (flow, room));
    }
    let Some(person) = model.people[index].as_mut() else { return };
    person.pace(now, sound + flow, sound + all);
    list_probe(model, index);
}

/// A picture in a slot.
struct Picture {
    slot: usize,
    track: TrackIndex,
    bps: u64,
    rests: bool,
}

/// The pictures of a participant's slots, what comes first in order first.
fn pictures(person: &Person, tracks: &[Option<Track>], now: Instant) -> Vec<Picture> {
    let picture = |(at, slot): (usize, &Slot)| {
        let track = slot.pending.or(slot.current).filter(|_| slot.is_video())?;
        let bps = tracks[track].as_ref()?.encoding.rate.bps(now);
        Some(Picture { slot: at, track, bps, rests: slot.rests.is_some() })
    };
    person.slots.iter().enumerate().filter_map(picture).collect()
}

/// A picture rests from now on.
fn rest<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (index, picture): (PersonIndex, &Picture),
) {
    let Some(person) = model.people[index].as_mut() else { return };
    let slot = &mut person.slots[picture.slot];
    slot.rest(turn.now.at);
    turn.stats.rested += 1;
    let flowed = slot.current;
    let given_up = flowed.is_some() && !slot.hold();
    turn.reports.push(person.rests(picture.slot, true));
    if given_up {
        model.unsubscribe(flowed, Subscription { person: index, slot: picture.slot });
    }
}

/// A picture that rests flows again, if there is room for it. Returns what it adds, in bits
/// a second.
fn wake<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (index, picture): (PersonIndex, &Picture),
    (flow, room): (u64, Option<u64>),
) -> u64 {
    let now = turn.now.at;
    let Some(person) = model.people[index].as_mut() else { return 0 };
    let slot = &mut person.slots[picture.slot];
    if slot.rests.is_some_and(|rest| now < rest.until) {
        return 0;
    }
    let need = ((flow + picture.bps) as f64 * WAKING_HEADROOM) as u64;
    if room.is_none_or(|room| need <= room) {
        slot.wake(now);
        turn.reports.push(person.rests(picture.slot, false));
        if let Some(track) = model.tracks[picture.track].as_mut() {
            track.encoding.keyframe.wait();
        }
        return picture.bps;
    }
    0
}

/// A probe that is planned leaves with the bursts.
fn list_probe(model: &mut Model, index: PersonIndex) {
    let Some(person) = model.people[index].as_mut() else { return };
    if person.path.probe_due().is_some() {
        model.bursts.add(index);
        model.plan_bursts();
    }
}
