//! Which pictures fit a participant's path, and in which layer. Sound always does.
//!
//! When the path carries less than what flows, the largest layers fall first. If all pictures flow in their smallest
//! layer, those that come last in order rest. Pictures that rest flow again before others rise. Both wait until the
//! estimate, which a probe may have raised, leaves room, and for a while after a fall: longer each time that a slot had
//! to fall again soon.
//!
//! In order: pinned ones, screens, then whose publishers spoke last, then what is shown large, then by slot. The order
//! alone moves no layer: it decides who falls or rises first. A picture that rested for a while although it comes before
//! some that flow in their smallest layer takes their place.
//!
//! A slot has a level: the highest layer that it may carry, or the smallest one without its highest frame rate, or nothing.
//! It carries the highest layer up to that which its publisher sends, be it a stream of its own or a part of one.

use super::index::{PersonIndex, Subscription, TrackIndex};
use super::model::Model;
use super::scalable::{Known, UpTo};
use super::slot::{Level, Slot};
use super::track::Track;
use super::turn::Turn;
use crate::clock::Now;
use crate::limits::{
    LAYER_GROWTH, LAYER_HEADROOM, LAYER_INTERVAL, REST_AFTER, RISE_INTERVAL, SETTLED,
    WAKING_AT_ONCE, WAKING_HEADROOM,
};
use crate::sink::Sink;
use rtp::negotiated::MOST_LAYERS;
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
    level: Level,
    /// It just got less.
    fell: bool,
    /// The highest layer that the slot needs.
    most: usize,
    may_rise: bool,
    layers: Layers,
}

/// The layers of a picture.
#[derive(Debug, Clone, Copy, Default)]
struct Layers {
    /// The smallest first.
    each: [Layer; MOST_LAYERS],
    count: usize,
    /// They are within one stream.
    inner: bool,
    /// The smallest layer without its highest frame rate: its highest temporal layer then, and what it takes.
    fewer_frames: Option<(u8, u64)>,
}

/// A layer of a picture: a stream, or a part of one.
#[derive(Debug, Clone, Copy, Default)]
struct Layer {
    stream: TrackIndex,
    /// What it takes of the path, or would take.
    bps: u64,
    alive: bool,
    /// How large its pictures are; 0 if that is not known.
    pixels: u32,
}

impl Picture {
    /// The number of the layer that it carries: the highest that is sent.
    fn carried(&self) -> usize {
        let wish = usize::from(self.level.wish()).min(self.layers.count - 1);
        self.layers.each[..=wish].iter().rposition(|layer| layer.alive).unwrap_or(0)
    }

    /// What it takes of the path, in bits a second.
    fn bps(&self) -> u64 {
        match (self.level, self.layers.fewer_frames) {
            (Level::REST, _) => 0,
            (Level::FEWER_FRAMES, Some((_, bps))) => bps,
            _ => self.layers.each[self.carried()].bps,
        }
    }

    /// What the largest picture that it needs would take.
    fn most_bps(&self) -> u64 {
        self.layers.each[self.most].bps
    }

    fn rests(&self) -> bool {
        self.level == Level::REST
    }

    /// The level of what it carries, and the next one down; None if there is none.
    fn below(&self) -> (Level, Option<Level>) {
        let carried = self.level.min(Level::layer(self.carried() as u8));
        match carried.below() {
            Some(Level::FEWER_FRAMES) if self.layers.fewer_frames.is_none() => {
                (carried, Some(Level::REST))
            }
            below => (carried, below),
        }
    }

    /// The next step up: the level, and what it takes.
    fn above(&self) -> Option<(Level, u64)> {
        let above = self.level.above();
        if let (Level::FEWER_FRAMES, Some((_, bps))) = (above, self.layers.fewer_frames) {
            return Some((above, bps));
        }
        let above = above.max(Level::SMALLEST);
        let layer = usize::from(above.wish());
        (layer <= self.most).then(|| (above, self.layers.each[layer].bps))
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
        let order = Reverse((slot.pinned, precedence, slot.shown));
        (slot.is_video() && !slot.is_hidden()).then_some((order, at, stream))
    });
    let mut carried: Vec<_> = carried.collect();
    carried.sort_unstable();
    let described = carried.into_iter().filter_map(|(_, slot, stream)| {
        let layers = layers(model, stream, now)?;
        let known = &model.people[index].as_ref()?.slots[slot];
        let most = layers.needed(known.shown).min(layers.largest(known));
        let level = known.level.min(Level::layer(most as u8));
        let mut picture = Picture { slot, level, fell: false, most, may_rise: false, layers };
        picture.may_rise = picture.above().is_some_and(|(to, _)| known.may_rise(to, now.at));
        Some(picture)
    });
    described.collect()
}

/// The layers of the track that a stream belongs to.
fn layers(model: &mut Model, stream: TrackIndex, now: Now) -> Option<Layers> {
    let track = model.tracks[stream].as_mut()?;
    if !track.is_layered() {
        return Some(Layers::within(track, stream, now));
    }
    let key = track.key.track;
    let mut layers = Layers::default();
    let mut below = 0;
    while let Some(stream) = model.track_by_key.get(&key.layer(layers.count as u8)).copied()
        && layers.count < MOST_LAYERS
    {
        let layer = model.tracks[stream].as_mut()?;
        // What was never sent is taken to be some times as much as the layer below.
        let known = Some(layer.bps(now)).filter(|bps| *bps > 0);
        below = known.unwrap_or(below * LAYER_GROWTH);
        let pixels = layer.encoding.line.layers.get(layers.count).map_or(0, |layer| layer.pixels);
        layers.each[layers.count] =
            Layer { stream, bps: below, alive: layer.is_alive(now), pixels };
        if layers.count == 0 {
            layers.fewer_frames = layer.encoding.inner.known(now.at).fewer_frames;
        }
        layers.count += 1;
    }
    (layers.count > 0).then_some(layers)
}

impl Layers {
    /// Those within one stream.
    fn within(track: &mut Track, stream: TrackIndex, now: Now) -> Self {
        let Known { bps, pixels, count, fewer_frames } = track.encoding.inner.known(now.at);
        let mut layers =
            Self { count: count.max(1), inner: count > 1, fewer_frames, ..Self::default() };
        if !layers.inner {
            layers.each[0] = Layer { stream, bps: track.bps(now), alive: true, pixels: 0 };
            return layers;
        }
        let highest = usize::from(track.encoding.inner.highest(now.at));
        for (at, layer) in layers.each[..count].iter_mut().enumerate() {
            *layer = Layer { stream, bps: bps[at], alive: at <= highest, pixels: pixels[at] };
        }
        layers
    }

    /// The largest layer that a slot's receiver can decode.
    fn largest(&self, slot: &Slot) -> usize {
        if self.inner { usize::from(slot.decodes(UpTo::ALL).spatial()) } else { MOST_LAYERS }
    }

    /// The layer that a picture of so many pixels needs: the smallest that is not enlarged by more than a fifth each way.
    fn needed(&self, shown: Option<u32>) -> usize {
        let Some(shown) = shown else { return self.count - 1 };
        let fits = |layer: &Layer| {
            layer.pixels == 0 || u64::from(layer.pixels) * 3 >= u64::from(shown) * 2
        };
        self.each[..self.count].iter().position(fits).unwrap_or(self.count - 1)
    }
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
    let flowing = pictures.iter_mut().filter(|picture| !picture.rests() && (far || !picture.fell));
    // One that could only rest comes last. Of several, the last in order.
    let size = |picture: &&mut Picture| match picture.below() {
        (_, Some(Level::REST)) => Level::REST,
        (level, _) => level,
    };
    let Some(picture) = flowing.max_by_key(size) else { return false };
    let Some(to) = picture.below().1.filter(|to| *to != Level::REST || rests) else { return false };
    let Some(person) = model.people[index].as_mut() else { return false };
    person.path.fell(turn.now.at);
    picture.fell = true;
    if to == Level::REST {
        rest(model, turn, index, picture);
    } else {
        person.slots[picture.slot].fall(to, turn.now.at);
        picture.level = to;
    }
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
    slot.fall(Level::REST, turn.now.at);
    picture.level = Level::REST;
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
    let smallest = |picture: &Picture| !picture.rests() && picture.level <= Level::SMALLEST;
    let first = pictures.iter().position(Picture::rests);
    let first = first.filter(|first| pictures[*first..].iter().any(smallest));
    let Some(person) = model.people[index].as_mut() else { return };
    let waited = person.path.is_passed_over(turn.now.at, first.map(|first| pictures[first].slot));
    let (Some(room), Some(first), true) = (room, first, waited) else { return };
    let needs = pictures[first].above().map_or(0, |(_, bps)| bps);
    let (mut need, mut from) = (flow(pictures) + needs, pictures.len());
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

/// A picture that rested flows again.
fn wake<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    picture: &mut Picture,
) {
    let Some(person) = model.people[index].as_mut() else { return };
    let Some((level, _)) = picture.above() else { return };
    person.slots[picture.slot].rise(level, turn.now.at);
    picture.level = level;
    turn.reports.push(person.rests(picture.slot, false));
    let stream = picture.layers.each[picture.carried()].stream;
    if let Some(track) = model.tracks[stream].as_mut() {
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
        let known = |picture: &Picture, bps| picture.rests() || bps > 0 || room.is_none();
        let able = |picture: &&Picture| picture.above().is_some_and(|(_, bps)| known(picture, bps));
        let first = pictures.iter().filter(able).map(|picture| picture.level).min();
        let next = |picture: &&Picture| able(picture) && Some(picture.level) == first;
        // Who fell from a layer keeps all others of their size from it, too: the path is the same, whoever comes first.
        let patient = pictures.iter().filter(next).all(|picture| picture.may_rise);
        let Some(picture) = pictures.iter_mut().find(|picture| next(&&**picture)) else { return };
        let Some((level, bps)) = picture.above() else { return };
        let need = flow - picture.bps() + bps;
        let fits = |times: f64| room.is_none_or(|room| need as f64 * times <= room as f64);
        // Each step brings a keyframe: the estimate must see what it does.
        let Some(person) = model.people[index].as_mut() else { return };
        let (may, headroom, interval) = match picture.rests() {
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
        if picture.rests() {
            wake(model, turn, index, picture);
        } else {
            person.slots[picture.slot].rise(level, turn.now.at);
            picture.level = level;
        }
        if !ample {
            return;
        }
    }
}

/// A slot switches to the layer that it is to carry.
fn aim<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>, index: PersonIndex, picture: &Picture) {
    let Picture { level, layers, .. } = picture;
    let stream = layers.each[picture.carried()].stream;
    let Some(person) = model.people[index].as_mut() else { return };
    let slot = &mut person.slots[picture.slot];
    // It wants no more than it needs.
    slot.level = *level;
    let spatial = if layers.inner { level.wish() } else { UpTo::ALL.spatial() };
    let fewer = layers.fewer_frames.filter(|_| *level <= Level::FEWER_FRAMES);
    let temporal = fewer.map_or(UpTo::ALL.temporal(), |(up_to, _)| up_to);
    if slot.want(stream, UpTo::new(spatial, temporal)) {
        turn.stats.layer_switches += 1;
        if let Some(track) = model.tracks[stream].as_mut()
            && slot.rewrite.selection.waits(track.encoding.inner.highest(turn.now.at))
        {
            track.encoding.keyframe.wait();
        }
    }
    let Some(person) = model.people[index].as_ref() else { return };
    let slot = &person.slots[picture.slot];
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
