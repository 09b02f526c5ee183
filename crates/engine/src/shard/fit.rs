//! A participant's pictures as their egress sees them, and what becomes of them: the slots carry the layers that it chose.

use super::forward::give_up;
use super::index::{PersonIndex, Subscription, TrackIndex};
use super::model::Model;
use super::scalable::{Known, UpTo};
use super::slot::Slot;
use super::track::Track;
use super::turn::Turn;
use crate::clock::Now;
use crate::egress::{Change, Layer, Layers, Level, Picture};
use crate::limits::LAYER_GROWTH;
use crate::sink::Sink;
use rtp::negotiated::MOST_LAYERS;
use std::cmp::Reverse;

/// Makes a new estimate of a participant's path, and lets pictures fall, rest or rise by it.
pub(super) fn fit<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>, index: PersonIndex) {
    let now = turn.now.at;
    let Some(person) = model.people[index].as_mut() else { return };
    if !person.egress.is_due(now) {
        return;
    }
    let estimates = person.estimates();
    person.egress.estimate(now, estimates);
    let mut cut = Vec::new();
    person.egress.drop_torn(&mut cut);
    person.wake_empty(turn.reports);
    give_up(turn, &model.tracks, &model.track_by_key, &cut);
    let mut pictures = pictures(model, index, turn.now);
    let Some(person) = model.people[index].as_mut() else { return };
    let mut changes = Vec::new();
    let news = person.egress.allocate(now, &mut pictures, &mut changes);
    turn.reports.extend(news.map(|kbps| person.told(kbps)));
    person.repeat_sound(now);
    for change in changes {
        match change {
            Change::Rests(slot) => rest(model, turn, index, slot),
            Change::Flows(slot) => wake(model, turn, index, slot, &pictures),
        }
    }
    for picture in &pictures {
        aim(model, turn, index, picture);
    }
    list_probe(model, index);
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
        let mut layers = layers(model, stream, now)?;
        let known = &model.people[index].as_ref()?.slots[slot];
        let most = needed(&layers, known.shown).min(largest(&layers, known));
        let track = model.tracks[stream].as_ref()?;
        let rates = track.is_uneven().then(|| track.encoding.rate.uneven_bps(now.at));
        if let Some((bps, _)) = rates {
            layers.each[0].bps = bps;
        }
        let mut picture = Picture::new(slot, known.level, most, layers, known.spread());
        picture.calm_bps = rates.map(|(_, calm)| calm);
        Some(picture)
    });
    described.collect()
}

/// The layers of the track that a stream belongs to.
fn layers(model: &mut Model, stream: TrackIndex, now: Now) -> Option<Layers> {
    let track = model.tracks[stream].as_mut()?;
    if !track.is_layered() {
        return Some(within(track, stream, now));
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

/// The layers within one stream.
fn within(track: &mut Track, stream: TrackIndex, now: Now) -> Layers {
    let Known { bps, pixels, count, fewer_frames } = track.encoding.inner.known(now.at);
    let mut layers =
        Layers { count: count.max(1), inner: count > 1, fewer_frames, ..Layers::default() };
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
fn largest(layers: &Layers, slot: &Slot) -> usize {
    if layers.inner { usize::from(slot.decodes(UpTo::ALL).spatial()) } else { MOST_LAYERS }
}

/// The layer that a picture of so many pixels needs: the smallest that is not enlarged by more than a fifth each way.
fn needed(layers: &Layers, shown: Option<u32>) -> usize {
    let Some(shown) = shown else { return layers.count - 1 };
    let fits =
        |layer: &Layer| layer.pixels == 0 || u64::from(layer.pixels) * 3 >= u64::from(shown) * 2;
    layers.each[..layers.count].iter().position(fits).unwrap_or(layers.count - 1)
}

/// The path does not carry a slot's picture: it rests, once the frame that has begun to leave has left, and the keyframe
/// that waits.
pub(super) fn rest<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    slot_index: usize,
) {
    let Model { people, tracks, track_by_key, .. } = model;
    let Some(person) = people[index].as_mut() else { return };
    let mut cut = Vec::new();
    let waits = person.egress.stop(slot_index, &mut cut);
    give_up(turn, tracks, track_by_key, &cut);
    let slot = &mut person.slots[slot_index];
    slot.level = Level::REST;
    turn.stats.rested += 1;
    let flowed = slot.current;
    let given_up = !waits && flowed.is_some() && !slot.hold();
    turn.reports.push(person.rests(slot_index, true));
    if given_up {
        model.unsubscribe(flowed, Subscription { person: index, slot: slot_index });
    }
}

/// A picture that rested flows again.
fn wake<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: PersonIndex,
    slot: usize,
    pictures: &[Picture],
) {
    let Some(person) = model.people[index].as_mut() else { return };
    let Some(picture) = pictures.iter().find(|picture| picture.slot == slot) else { return };
    person.slots[slot].level = picture.level;
    turn.reports.push(person.rests(slot, false));
    let stream = picture.layers.each[picture.carried()].stream;
    if let Some(track) = model.tracks[stream].as_mut() {
        track.encoding.keyframe.wait();
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
    if person.egress.probe_due().is_some() {
        model.bursts.add(index);
        model.plan_bursts();
    }
}
