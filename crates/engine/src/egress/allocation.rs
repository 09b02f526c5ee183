//! Which pictures fit a path, and in which layer. Sound always does.
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
//! A screen comes by fits and starts: much when a page turns, and little while it is read. What it takes in the long run
//! counts, and as long as what waits of it leaves soon, it does not rest.
//!
//! A slot has a level: the highest layer that it may carry, or the smallest one without its highest frame rate, or nothing.
//! It carries the highest layer up to that which its publisher sends, be it a stream of its own or a part of one.

use super::level::{Fall, Level, Patience};
use super::path::Path;
use crate::limits::{
    LAYER_HEADROOM, LAYER_INTERVAL, REST_AFTER, REST_SOON, RISE_INTERVAL, SETTLED, STILL_LEAST,
    WAKING_AT_ONCE, WAKING_HEADROOM,
};
use rtp::negotiated::MOST_LAYERS;
use std::time::Instant;

/// A picture in a slot.
#[derive(Debug, Clone)]
pub struct Picture {
    /// The slot, by index.
    pub slot: usize,
    /// How much of it flows: what the allocation changes.
    pub level: Level,
    /// The highest layer that the slot needs.
    pub most: usize,
    /// What there is of it.
    pub layers: Layers,
    /// So many times as long as others the slot waits until it gets more again.
    pub spread: f32,
    /// It comes by fits and starts, and has no smaller layer: what it takes at the moment, in bits a second.
    pub calm_bps: Option<u64>,
    /// It just got less.
    fell: bool,
    may_rise: bool,
}

/// The layers of a picture.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layers {
    /// The smallest first.
    pub each: [Layer; MOST_LAYERS],
    /// How many there are.
    pub count: usize,
    /// They are within one stream.
    pub inner: bool,
    /// The smallest layer without its highest frame rate: its highest temporal layer then, and what it takes.
    pub fewer_frames: Option<(u8, u64)>,
}

/// A layer of a picture: a stream, or a part of one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layer {
    /// Its stream, by the caller's name for it.
    pub stream: usize,
    /// What it takes of the path, or would take, in bits a second.
    pub bps: u64,
    /// Its publisher sends it.
    pub alive: bool,
    /// How large its pictures are; 0 if that is not known.
    pub pixels: u32,
}

/// What changes for a slot beside its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Its picture rests.
    Rests(usize),
    /// Its picture rested, and flows again.
    Flows(usize),
}

impl Picture {
    /// The picture of a slot that has this level of it.
    pub fn new(slot: usize, level: Level, most: usize, layers: Layers, spread: f32) -> Self {
        let level = level.min(Level::layer(most as u8));
        let (fell, may_rise) = (false, false);
        Self { slot, level, most, layers, spread, calm_bps: None, fell, may_rise }
    }

    /// The number of the layer that it carries: the highest that is sent.
    pub fn carried(&self) -> usize {
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

    /// Whether it comes by fits and starts.
    fn is_uneven(&self) -> bool {
        self.calm_bps.is_some()
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
        let bps = || self.calm_bps.filter(|_| self.rests()).unwrap_or(self.layers.each[layer].bps);
        (layer <= self.most).then(|| (above, bps()))
    }
}

/// What pictures take of a path, in bits a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Takes {
    /// What flows.
    pub flow: u64,
    /// What would flow if the path carried all that they need.
    pub all: u64,
    /// Some of them rest.
    pub rest: bool,
}

impl Takes {
    /// That of these pictures.
    pub(super) fn of(pictures: &[Picture]) -> Self {
        Self {
            flow: flow(pictures),
            all: pictures.iter().map(Picture::most_bps).sum(),
            rest: pictures.iter().any(Picture::rests),
        }
    }
}

fn flow(pictures: &[Picture]) -> u64 {
    pictures.iter().map(Picture::bps).sum()
}

/// More flows than there is room for.
#[derive(Debug, Clone, Copy)]
struct Excess {
    /// Twice as much, or more.
    far: bool,
    /// Smallest pictures may rest.
    rest: bool,
    /// Those may that do not come by fits and starts.
    even_rest: bool,
}

/// One look at the pictures of a receiver.
pub(super) struct Allocation<'a> {
    pub now: Instant,
    pub path: &'a mut Path,
    /// What waits leaves soon.
    pub keeps_up: bool,
    /// That of each slot.
    pub patience: &'a mut Vec<Patience>,
    pub changes: &'a mut Vec<Change>,
}

impl Allocation<'_> {
    /// Lets pictures fall, rest or rise, where the path has room for `room` bits a second; None if nothing is known of it. The
    /// pictures are in order, what comes first of them first.
    pub(super) fn make(&mut self, pictures: &mut [Picture], room: Option<u64>) {
        for picture in pictures.iter_mut() {
            let (now, known) = (self.now, *self.known(picture.slot));
            picture.may_rise = picture.above().is_some_and(|(to, _)| known.is_over(to, now));
        }
        match room {
            Some(room) if self.path.is_over(self.now, flow(pictures), room) => {
                self.lower(pictures, room);
            }
            _ => {
                self.take_place(pictures, room);
                self.rise(pictures, room);
            }
        }
    }

    fn known(&mut self, slot: usize) -> &mut Patience {
        if slot >= self.patience.len() {
            self.patience.resize(slot + 1, Patience::default());
        }
        &mut self.patience[slot]
    }

    /// Pictures fall until what flows has room: each by one layer at a time, unless that is far too much. The estimate dips
    /// below what the path carries while a queue goes down.
    fn lower(&mut self, pictures: &mut [Picture], room: u64) {
        if self.path.may_fall(self.now) {
            let flows = flow(pictures);
            let (soon, times) = REST_SOON;
            let much = flows as f64 > times * room as f64;
            let rest = self.path.is_over_for(self.now, REST_AFTER);
            let even_rest = rest || (much && self.path.is_over_for(self.now, soon));
            let excess = Excess { far: flows > 2 * room, rest, even_rest };
            while flow(pictures) > room && self.fall(excess, pictures) {}
        }
    }

    /// The largest picture falls by a layer, of those that did not yet if it is not far too much. If all are smallest, the
    /// last one in order rests, if it may. Says whether one did.
    fn fall(&mut self, excess: Excess, pictures: &mut [Picture]) -> bool {
        let keeps_up = self.keeps_up;
        let able = |picture: &&mut Picture| {
            let stays = keeps_up && picture.is_uneven();
            let fell = picture.fell && !excess.far;
            !(picture.rests() || fell || stays)
        };
        let flowing = pictures.iter_mut().filter(able);
        // One that could only rest comes last. Of several, the last in order.
        let size = |picture: &&mut Picture| match picture.below() {
            (_, Some(Level::REST)) => Level::REST,
            (level, _) => level,
        };
        let Some(picture) = flowing.max_by_key(size) else { return false };
        let may = if picture.is_uneven() { excess.rest } else { excess.even_rest };
        let Some(to) = picture.below().1.filter(|to| *to != Level::REST || may) else {
            return false;
        };
        self.path.fell(self.now);
        picture.fell = true;
        self.give_up(picture, to);
        true
    }

    /// A picture falls to a level, or rests.
    fn give_up(&mut self, picture: &mut Picture, to: Level) {
        let from = std::mem::replace(&mut picture.level, to);
        let (now, rests) = (self.now, picture.rests());
        let fall = Fall { from, rests, uneven: picture.is_uneven(), spread: picture.spread };
        self.known(picture.slot).fell(fall, now);
        if rests {
            self.changes.push(Change::Rests(picture.slot));
        }
    }

    /// The first picture in order that rests takes the place of the last that flow in their smallest layer, if it comes before
    /// them and has done so for a while.
    fn take_place(&mut self, pictures: &mut [Picture], room: Option<u64>) {
        let smallest = |picture: &Picture| !picture.rests() && picture.level <= Level::SMALLEST;
        let first = pictures.iter().position(Picture::rests);
        let first = first.filter(|first| pictures[*first..].iter().any(smallest));
        let waited = self.path.is_passed_over(self.now, first.map(|first| pictures[first].slot));
        let (Some(room), Some(first), true) = (room, first, waited) else { return };
        let needs = pictures[first].above().map_or(0, |(_, bps)| bps);
        let (mut need, mut from) = (flow(pictures) + needs, pictures.len());
        while from == pictures.len() || need > room {
            let Some(last) = pictures[first..from].iter().rposition(smallest) else { return };
            from = first + last;
            need -= pictures[from].bps();
        }
        if !self.path.may_rise(self.now, need, SETTLED) {
            return;
        }
        // Nobody got more: it is not to be given back.
        self.path.fell(self.now);
        let giving = pictures[from..].iter_mut().filter(|picture| smallest(picture));
        giving.for_each(|picture| self.give_up(picture, Level::REST));
        self.wake(&mut pictures[first]);
    }

    /// A picture that rested flows again.
    fn wake(&mut self, picture: &mut Picture) {
        let Some((level, _)) = picture.above() else { return };
        self.give(picture, level);
        self.changes.push(Change::Flows(picture.slot));
    }

    fn give(&mut self, picture: &mut Picture, level: Level) {
        picture.level = level;
        let now = self.now;
        self.known(picture.slot).rose(now);
    }

    /// The smallest picture that needs more gets its next layer if there is room; those that rest come first. On a path that
    /// carries all with ease, what flows may double in each step; if no path is estimated, all get what they need at once.
    fn rise(&mut self, pictures: &mut [Picture], room: Option<u64>) {
        let all: u64 = pictures.iter().map(Picture::most_bps).sum();
        let ample = room.is_none_or(|room| room >= 2 * all);
        loop {
            let flow = flow(pictures);
            // A layer waits until it is known what it takes, and nobody waits for it.
            let known = |picture: &Picture, bps| picture.rests() || bps > 0 || room.is_none();
            let able =
                |picture: &&Picture| picture.above().is_some_and(|(_, bps)| known(picture, bps));
            let first = pictures.iter().filter(able).map(|picture| picture.level).min();
            let next = |picture: &&Picture| able(picture) && Some(picture.level) == first;
            // Who fell from a layer keeps all others of their size from it, too: the path is the same, whoever comes first.
            let patient = pictures.iter().filter(next).all(|picture| picture.may_rise);
            let Some(picture) = pictures.iter_mut().find(|picture| next(&&**picture)) else {
                return;
            };
            let Some((level, bps)) = picture.above() else { return };
            let need = flow - picture.bps() + bps;
            let fits = |times: f64| room.is_none_or(|room| need as f64 * times <= room as f64);
            // Each step brings a keyframe: the estimate must see what it does.
            let starved = picture.rests() && self.known(picture.slot).is_starved(room);
            let now = self.now;
            let lacks = picture.rests() && self.known(picture.slot).wants_still(now);
            let still = lacks && flow == 0 && self.keeps_up;
            let (may, headroom, interval) = match picture.rests() {
                true => {
                    let at_once = !starved && fits(WAKING_AT_ONCE);
                    (picture.may_rise || at_once, WAKING_HEADROOM, RISE_INTERVAL)
                }
                false => (patient, LAYER_HEADROOM, LAYER_INTERVAL),
            };
            let rises = match (room, ample) {
                (None, _) => true,
                // Its keyframe alone, whatever comes after it: nothing else flows.
                _ if still => self.path.may_rise(now, flow, STILL_LEAST),
                _ if picture.rests() && picture.is_uneven() => {
                    // It flows again once it is calm. Now and then a keyframe shows what it has become.
                    let calm = self.known(picture.slot).has_rested(now) && fits(headroom);
                    let still = picture.may_rise.then_some(flow);
                    let need = still.or(calm.then_some(need));
                    need.is_some_and(|need| self.path.may_rise(now, need, interval))
                }
                (_, true) if starved && !may => false,
                (_, true) => self.path.may_step(self.now, flow, need),
                _ if may && fits(headroom) => self.path.may_rise(self.now, need, interval),
                _ => patient && self.path.may_try(self.now, flow, need),
            };
            // Who must wait makes those after them wait too.
            if !rises {
                return;
            }
            if picture.rests() {
                self.wake(picture);
            } else {
                self.give(picture, level);
            }
            if !ample {
                return;
            }
        }
    }
}
