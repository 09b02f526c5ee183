//! The layers of a track (simulcast, RFC 8853, or the spatial layers within one stream): which of them somebody wants, here or
//! on another shard, and what that means for its publisher and for what crosses.
//!
//! A slot wants the layer of its wish, and all below. The publisher's shard tells the room the highest one that anybody
//! wants, upwards at once, downwards after a while. On other shards the first layer speaks for all: it tells the
//! publisher's shard which layers cross, and learns from it which ones are sent.

use super::index::TrackIndex;
use super::model::Model;
use super::track::{Origin, Told};
use super::turn::Turn;
use crate::clock::Now;
use crate::command::{Report, ShardIndex, TrackKey};
use crate::limits::{LAYER_KEPT, LAYERS_INTERVAL, LAYERS_TOLD_INTERVAL};
use crate::relay::RelayControl;
use crate::sink::Sink;
use rtp::negotiated::MOST_LAYERS;
use std::time::Instant;

/// What the slots of a shard want of a track.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Wanted {
    /// The layers that they carry or wait for: bit N for layer N.
    carried: u8,
    /// The highest layer that one would carry if it came; None if no slot has the track.
    wish: Option<u8>,
}

/// Looks at the tracks with layers that are due: tells rooms and other shards what is wanted of them.
pub(super) fn settle<S: Sink>(model: &mut Model, turn: &mut Turn<'_, S>, here: ShardIndex) {
    let now = turn.now.at;
    for at in 0..model.pictures.len() {
        let index = model.pictures[at];
        let Some(track) = model.tracks[index].as_mut() else { continue };
        let due = track.told.due.is_none_or(|due| now >= due);
        let layered = track.is_layered() || track.encoding.inner.count() > 1;
        if !due || track.key.layer > 0 || !layered {
            continue;
        }
        track.told.due = Some(now + LAYERS_INTERVAL);
        let (key, origin) = (track.key.track, track.origin);
        let wanted = wanted_here(model, key);
        match origin {
            Origin::Person(_) => tell_room(model, turn, index, wanted),
            Origin::Relay(publisher) => {
                tell_publisher(model, turn, (index, publisher), here, wanted);
            }
        }
    }
}

/// What the slots of this shard want of a track.
fn wanted_here(model: &Model, track: TrackKey) -> Wanted {
    let mut wanted = Wanted::default();
    for (layer, stream) in model.layers(track).enumerate() {
        let Some(track) = model.tracks[stream].as_ref() else { continue };
        for to in &track.subscriptions {
            let slot = model.people[to.person].as_ref().map(|person| &person.slots[to.slot]);
            if let Some(slot) = slot.filter(|slot| !slot.is_hidden()) {
                wanted.carried |= 1 << layer;
                wanted.wish = wanted.wish.max(Some(slot.level.wish().max(layer as u8)));
            }
        }
    }
    wanted
}

/// Tells the room the highest layer that is wanted, if that changed, and the other shards what each layer brings.
fn tell_room<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    index: TrackIndex,
    wanted: Wanted,
) {
    let Some(track) = model.tracks[index].as_mut() else { return };
    let key = track.key.track;
    let exports: Vec<(ShardIndex, u8)> = track.exports.iter().map(|e| (e.to, e.wish)).collect();
    let within = track.encoding.inner.count();
    let most = track.encoding.line.layers.len().max(within).saturating_sub(1) as u8;
    let there = exports.iter().map(|(_, wish)| *wish);
    let highest = there.chain(wanted.wish).max().map(|layer| layer.min(most));
    if let Some(layer) = news(&mut track.told, highest, most, turn.now.at)
        && let Some(room) = track.publisher().and_then(|p| Some(model.people[p].as_ref()?.room))
    {
        turn.reports.push(Report::Layers { room, track: key, layer });
    }
    let Some(track) = model.tracks[index].as_mut() else { return };
    if !exports.is_empty() && is_due(&mut track.told.crossed, turn.now.at) {
        let bps = match track.is_layered() {
            true => rates(model, key, turn.now),
            false => track.encoding.inner.known(turn.now.at).bps.map(|bps| bps as u32),
        };
        for (to, _) in exports {
            turn.sink.relay_control(to, RelayControl::Rates { track: key, bps });
        }
    }
}

/// The layer that the room is to be told: a higher one at once, a lower one after a while. What nobody has in a slot
/// rests as a whole, which the room sees by itself.
fn news(told: &mut Told, highest: Option<u8>, most: u8, now: Instant) -> Option<u8> {
    let highest = highest?;
    let known = told.layer.unwrap_or(most);
    if highest >= known {
        told.lower_since = None;
    } else if now.saturating_duration_since(*told.lower_since.get_or_insert(now)) < LAYER_KEPT {
        return None;
    }
    if highest == known {
        return None;
    }
    (told.layer, told.lower_since) = (Some(highest), None);
    Some(highest)
}

/// What each layer brings, in bits a second; 0 if it is not sent.
fn rates(model: &mut Model, track: TrackKey, now: Now) -> [u32; MOST_LAYERS] {
    let mut bps = [0; MOST_LAYERS];
    let streams: Vec<TrackIndex> = model.layers(track).collect();
    for (bps, stream) in bps.iter_mut().zip(streams) {
        if let Some(track) = model.tracks[stream].as_mut().filter(|track| track.is_alive(now)) {
            *bps = u32::try_from(track.bps(now).max(1)).unwrap_or(u32::MAX);
        }
    }
    bps
}

/// Tells the publisher's shard which layers are to cross: at once if that changed, and each second.
fn tell_publisher<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (index, publisher): (TrackIndex, ShardIndex),
    to: ShardIndex,
    Wanted { carried, wish }: Wanted,
) {
    let Some(track) = model.tracks[index].as_mut() else { return };
    let changed = std::mem::replace(&mut track.told.carried, carried) != carried;
    if is_due(&mut track.told.crossed, turn.now.at) || changed {
        let (track, wish) = (track.key.track, wish.unwrap_or(0));
        turn.sink.relay_control(publisher, RelayControl::Layers { track, to, carried, wish });
    }
}

fn is_due(last: &mut Option<Instant>, now: Instant) -> bool {
    let lately = |at: Instant| now.saturating_duration_since(at) < LAYERS_TOLD_INTERVAL;
    let due = !last.is_some_and(lately);
    if due {
        *last = Some(now);
    }
    due
}

/// Another shard wants these layers of a track that is published here.
pub(super) fn wanted_there(
    model: &mut Model,
    track: TrackKey,
    to: ShardIndex,
    (carried, wish): (u8, u8),
) {
    let streams: Vec<TrackIndex> = model.layers(track).collect();
    for (layer, stream) in streams.into_iter().enumerate() {
        let Some(track) = model.tracks[stream].as_mut() else { continue };
        match carried & (1 << layer) {
            // One stream crosses whole.
            _ if !track.is_layered() => {}
            0 => track.not_asked_by(to),
            _ => track.asked_by(to),
        }
        track.exports.iter_mut().filter(|export| export.to == to).for_each(|e| e.wish = wish);
    }
}

/// The publisher's shard tells what each layer of a track brings.
pub(super) fn told(model: &mut Model, track: TrackKey, all: [u32; MOST_LAYERS]) {
    let streams: Vec<TrackIndex> = model.layers(track).collect();
    for (stream, bps) in streams.into_iter().zip(all) {
        if let Some(track) = model.tracks[stream].as_mut().filter(|track| track.is_layered()) {
            track.told_bps = bps;
        }
    }
    if let Some(one) = model.track(track.stream()).filter(|track| !track.is_layered()) {
        one.encoding.inner.told(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_higher_layer_is_told_at_once_and_a_lower_one_after_a_while() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut told = Told::default();
        assert_eq!(news(&mut told, Some(2), 2, at(0)), None, "all are wanted at first");
        assert_eq!(news(&mut told, Some(0), 2, at(1000)), None);
        assert_eq!(news(&mut told, Some(1), 2, at(3900)), None, "not yet");
        assert_eq!(news(&mut told, Some(2), 2, at(3950)), None, "wanted again");
        assert_eq!(news(&mut told, Some(0), 2, at(4000)), None);
        assert_eq!(news(&mut told, Some(0), 2, at(7000)), Some(0));
        assert_eq!(news(&mut told, None, 2, at(20_000)), None, "nobody has it: it rests");
        assert_eq!(news(&mut told, Some(1), 2, at(20_100)), Some(1));
    }
}
