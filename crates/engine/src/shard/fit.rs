//! Which pictures fit a participant's path, and in which layer. Sound always does.
//!
//! When the path carries less than what flows, the largest layers fall first. If all pictures flow in their smallest
//! layer, those that come last in order rest. Pictures that rest flow again before others rise. Both wait until the
//! estimate, which a probe may have raised, leaves room, and for a while after a fall: longer each time that a slot had
//! to fall again soon.
//!
//! In order: screens, then whose publishers spoke last, then what is shown large, then by slot. The order alone moves no
//! layer: it decides who falls or rises first. A picture that rested for a while although it comes before some that flow in
//! their smallest layer takes their place.
//!
//! A slot has a wish: the highest layer that it may carry. It carries the highest layer up to that which its publisher
//! sends.

use super::index::{PersonIndex, Subscription, TrackIndex};
use super::model::Model;
use super::turn::Turn;
use crate::clock::Now;
use crate::command::TrackKey;
use crate::limits::{
    LAYER_GROWTH, LAYER_HEADROOM, LAYER_INTERVAL, REST_AFTER, RISE_INTERVAL, SETTLED,
    WAKING_AT_ONCE, WAKING_HEADROOM,
};
use crate::sink::Sink;
use rtp::negotiated::{Line, MOST_LAYERS};
use std::cmp::Reverse;

/// Makes a new estimate of a participant's path, and lets pictures fall, rest or rise by it.
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
    let room = person.path.estimate_bps(now).map(|bps| bps.saturating_sub(sound));
    let mut pictures = pictures(model, index, turn.now);
    let flows = flow(&pictures);
    let Some(person) = model.people[index].as_mut() else { return };
    match room {
        Some(room) if person.path.is_over(now, flows, room) => {
            lower(model, turn, index, &mut pictures, room);
        }
        _ => {
            take_place(model, turn, index, &mut pictures, room);
            rise(model, turn, index, &mut pictures, room);
        }
    }
    for picture in &pictures {
        aim(model, turn, index, picture);
    }
    let Some(person) = model.people[index].as_mut() else { return };
    let all: u64 = pictures.iter().map(Picture::most_bps).sum();
    turn.reports.extend(person.pace(now, sound + flow(&pictures), sound + all));
    list_probe(model, index);
}

/// A picture in a slot.
#[derive(Debug, Clone)]
struct Picture {
    slot: usize,
    rests: bool,
    /// It just got a smaller layer.
    fell: bool,
    /// The highest layer that the slot may carry, and the highest that it needs.
    wish: usize,
    most: usize,
    may_rise: bool,
    /// Its layers, the smallest first.
    layers: [Layer; MOST_LAYERS],
    count: usize,
}

/// A layer of a picture.
#[derive(Debug, Clone, Copy, Default)]
struct Layer {
    stream: TrackIndex,
    /// What it takes of the path, or would take.
    bps: u64,
    alive: bool,
}

impl Picture {
    /// The layer that it carries with this wish: the highest that is sent.
    fn carried(&self, wish: usize) -> Layer {
        let up_to = &self.layers[..=wish.min(self.count - 1)];
        up_to.iter().rev().find(|layer| layer.alive).copied().unwrap_or(self.layers[0])
    }

    /// What it takes of the path, in bits a second.
    fn bps(&self) -> u64 {
        if self.rests { 0 } else { self.carried(self.wish).bps }
    }

    /// What the largest picture that it needs would take.
    fn most_bps(&self) -> u64 {
        self.layers[self.most].bps
    }

    /// The next step up: the layer, and what it takes.
    fn next(&self) -> Option<(usize, u64)> {
        let next = if self.rests { 0 } else { self.wish + 1 };
        (next <= self.most).then(|| (next, self.layers[next].bps))
    }
}

/// What all pictures take of the path, in bits a second.
fn flow(pictures: &[Picture]) -> u64 {
    pictures.iter().map(Picture::bps).sum()
}

/// The pictures of a participant's slots, what comes first in order first.
fn pictures(model: &mut Model, index: PersonIndex, now: Now) -> Vec<Picture> {
    let Some(person) = model.people[index].as_ref() else { return Vec::new() };
    let carried = person.slots.iter().enumerate().filter_map(|(at, slot)| {
        let stream = slot.pending.or(slot.current)?;
        let precedence = model.tracks[stream].as_ref()?.precedence;
        let order = Reverse((precedence, slot.shown));
        (slot.is_video() && !slot.is_hidden()).then_some((order, at, stream))
    });
    let mut carried: Vec<_> = carried.collect();
    carried.sort_unstable();
    let described = carried.into_iter().filter_map(|(_, at, stream)| {
        let track = model.tracks[stream].as_ref()?.key.track;
        let (layers, count) = layers(model, (track, stream), now)?;
        let slot = &model.people[index].as_ref()?.slots[at];
        let line = &model.tracks[stream].as_ref()?.encoding.line;
        let most = needed(line, slot.shown).min(count - 1);
        let wish = usize::from(slot.wish).min(most);
        let rests = slot.rests;
        let may_rise = slot.may_rise(if rests { 0 } else { wish as u8 + 1 }, now.at);
        Some(Picture { slot: at, rests, fell: false, wish, most, may_rise, layers, count })
    });
    described.collect()
}

/// The layers of a track, and how many there are.
fn layers(
    model: &mut Model,
    (track, carried): (TrackKey, TrackIndex),
    now: Now,
) -> Option<([Layer; MOST_LAYERS], usize)> {
    let mut layers = [Layer::default(); MOST_LAYERS];
    let (mut count, mut below) = (0, 0);
    let only = model.tracks[carried].as_mut().filter(|track| !track.is_layered());
    if let Some(only) = only {
        layers[0] = Layer { stream: carried, bps: only.bps(now), alive: true };
        return Some((layers, 1));
    }
    while let Some(stream) = model.track_by_key.get(&track.layer(count as u8)).copied()
        && count < MOST_LAYERS
    {
        let layer = model.tracks[stream].as_mut()?;
        // What was never sent is taken to be some times as much as the layer below.
        let known = Some(layer.bps(now)).filter(|bps| *bps > 0);
        below = known.unwrap_or(below * LAYER_GROWTH);
        layers[count] = Layer { stream, bps: below, alive: layer.is_alive(now) };
        count += 1;
    }
    (count > 0).then_some((layers, count))
}

/// The layer that a picture of so many pixels needs: the smallest that is not enlarged by more than a fifth each way.
fn needed(line: &Line, shown: Option<u32>) -> usize {
    let Some(shown) = shown else { return line.layers.len().saturating_sub(1) };
    let fits = |layer: &rtp::negotiated::Layer| {
        layer.pixels == 0 || u64::from(layer.pixels) * 3 >= u64::from(shown) * 2
    };
    line.layers.iter().position(fits).unwrap_or(line.layers.len().saturating_sub(1))
}

/// Pictures fall until what flows has room: each by one layer at a time, unless that is far too much. The estimate dips below
/// what the path carries while a queue goes down.
fn lower<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    pictures: &mut [Picture],
    room: u64,
) {
    let Some(person) = model.people[index].as_ref() else { return };
    if person.path.may_fall(turn.now.at) {
        let rests = person.path.is_over_for(turn.now.at, REST_AFTER);
        let far = flow(pictures) > 2 * room;
        while flow(pictures) > room && fall(model, turn, (index, rests, far), pictures) {}
    }
}

/// The largest picture falls by a layer, of those that did not yet if it is not `far` too much. If all are smallest, the last
/// one in order rests, if it may. Says whether one did.
fn fall<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (index, rests, far): (PersonIndex, bool, bool),
    pictures: &mut [Picture],
) -> bool {
    let layer = |picture: &Picture| {
        let carried = picture.carried(picture.wish).stream;
        picture.layers.iter().position(|layer| layer.stream == carried).unwrap_or(0)
    };
    let flowing = pictures.iter_mut().filter(|picture| !picture.rests && (far || !picture.fell));
    // Of several, the last in order.
    let Some(picture) = flowing.max_by_key(|picture| layer(picture)) else { return false };
    let to = layer(picture).checked_sub(1);
    if to.is_none() && !rests {
        return false;
    }
    let Some(person) = model.people[index].as_mut() else { return false };
    person.path.fell(turn.now.at);
    picture.fell = true;
    let Some(to) = to else {
        rest(model, turn, index, picture);
        return true;
    };
    person.slots[picture.slot].fall(Some(to as u8), turn.now.at);
    picture.wish = to;
    true
}

/// A picture rests.
fn rest<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    picture: &mut Picture,
) {
    let Some(person) = model.people[index].as_mut() else { return };
    let slot = &mut person.slots[picture.slot];
    slot.fall(None, turn.now.at);
    (picture.rests, picture.wish) = (true, 0);
    turn.stats.rested += 1;
    let flowed = slot.current;
    let given_up = flowed.is_some() && !slot.hold();
    turn.reports.push(person.rests(picture.slot, true));
    if given_up {
        model.unsubscribe(flowed, Subscription { person: index, slot: picture.slot });
    }
}

/// The first picture in order that rests takes the place of the last that flow in their smallest layer, if it comes before
/// them and has done so for a while.
fn take_place<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    pictures: &mut [Picture],
    room: Option<u64>,
) {
    let smallest = |picture: &Picture| !picture.rests && picture.wish == 0;
    let first = pictures.iter().position(|picture| picture.rests);
    let first = first.filter(|first| pictures[*first..].iter().any(smallest));
    let Some(person) = model.people[index].as_mut() else { return };
    let waited = person.path.is_passed_over(turn.now.at, first.map(|first| pictures[first].slot));
    let (Some(room), Some(first), true) = (room, first, waited) else { return };
    let (mut need, mut from) = (flow(pictures) + pictures[first].layers[0].bps, pictures.len());
    while from == pictures.len() || need > room {
        let Some(last) = pictures[first..from].iter().rposition(smallest) else { return };
        from = first + last;
        need -= pictures[from].bps();
    }
    if !person.path.may_rise(turn.now.at, need, SETTLED) {
        return;
    }
    // Nobody got more: it is not to be given back.
    person.path.fell(turn.now.at);
    let giving = pictures[from..].iter_mut().filter(|picture| smallest(picture));
    giving.for_each(|picture| rest(model, turn, index, picture));
    wake(model, turn, index, &mut pictures[first]);
}

/// A picture that rested flows again in its smallest layer.
fn wake<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    picture: &mut Picture,
) {
    let Some(person) = model.people[index].as_mut() else { return };
    person.slots[picture.slot].rise(0, turn.now.at);
    (picture.rests, picture.wish) = (false, 0);
    turn.reports.push(person.rests(picture.slot, false));
    if let Some(track) = model.tracks[picture.carried(0).stream].as_mut() {
        track.encoding.keyframe.wait();
    }
}

/// The smallest picture that needs more gets its next layer if there is room; those that rest come first. On a path that
/// carries all with ease, what flows may double in each step; if no path is estimated, all get what they need at once.
fn rise<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    pictures: &mut [Picture],
    room: Option<u64>,
) {
    let all: u64 = pictures.iter().map(Picture::most_bps).sum();
    let ample = room.is_none_or(|room| room >= 2 * all);
    loop {
        let flow = flow(pictures);
        // A layer waits until it is known what it takes, and nobody waits for it.
        let known = |picture: &Picture, bps| picture.rests || bps > 0 || room.is_none();
        let able = |picture: &&Picture| picture.next().is_some_and(|(_, bps)| known(picture, bps));
        let step = |picture: &Picture| (!picture.rests, picture.wish);
        let first = pictures.iter().filter(able).map(step).min();
        // Who fell from a layer keeps all others of their size from it, too: the path is the same, whoever comes first.
        let mut alike =
            pictures.iter().filter(|picture| able(picture) && Some(step(picture)) == first);
        let patient = alike.all(|picture| picture.may_rise);
        let mut able = pictures.iter_mut().filter(|picture| able(&&**picture));
        let Some(picture) = able.find(|picture| Some(step(picture)) == first) else { return };
        let Some((layer, bps)) = picture.next() else { return };
        let need = flow - picture.bps() + bps;
        let fits = |times: f64| room.is_none_or(|room| need as f64 * times <= room as f64);
        // Each step brings a keyframe: the estimate must see what it does.
        let Some(person) = model.people[index].as_mut() else { return };
        let (may, headroom, interval) = match picture.rests {
            true => (picture.may_rise || fits(WAKING_AT_ONCE), WAKING_HEADROOM, RISE_INTERVAL),
            false => (patient, LAYER_HEADROOM, LAYER_INTERVAL),
        };
        let rises = match (room, ample) {
            (None, _) => true,
            (_, true) => person.path.may_step(turn.now.at, flow, need),
            _ if may && fits(headroom) => person.path.may_rise(turn.now.at, need, interval),
            _ => patient && person.path.may_try(turn.now.at, flow, need),
        };
        // Who must wait makes those after them wait too.
        if !rises {
            return;
        }
        if picture.rests {
            wake(model, turn, index, picture);
        } else {
            person.slots[picture.slot].rise(layer as u8, turn.now.at);
            picture.wish = layer;
        }
        if !ample {
            return;
        }
    }
}

/// A slot switches to the layer that it is to carry.
fn aim<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>, index: PersonIndex, picture: &Picture) {
    if picture.count == 1 {
        return;
    }
    let stream = picture.carried(picture.wish).stream;
    let Some(person) = model.people[index].as_mut() else { return };
    let slot = &mut person.slots[picture.slot];
    // It wants no more than it needs.
    slot.wish = picture.wish as u8;
    if slot.pending.or(slot.current) != Some(stream) {
        turn.stats.layer_switches += 1;
        model.aim(Subscription { person: index, slot: picture.slot }, stream);
    }
}

/// A probe that is planned leaves with the bursts.
fn list_probe(model: &mut Model, index: PersonIndex) {
    let Some(person) = model.people[index].as_mut() else { return };
    if person.path.probe_due().is_some() {
        model.bursts.add(index);
        model.plan_bursts();
    }
}
