//! A published track: what it is, who gets it, and its incoming stream. With simulcast each layer of a track is one of
//! these, and [`super::layers`] knows what they have in common.

use super::bar::Glances;
use super::encoding::{Encoding, Fate};
use super::index::{PersonIndex, Subscription};
use super::intake::Sound;
use crate::clock::Now;
use crate::command::{Precedence, ShardIndex, StreamKey};
use crate::relay::RelayContent;
use rtp::negotiated::Line;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Without a packet for so long, a layer is not sent.
const ALIVE: Duration = Duration::from_secs(1);

/// Where a track's packets come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A person of this shard.
    Person(PersonIndex),
    /// Another shard, over the relay.
    Relay(ShardIndex),
}

/// Another shard that gets a track's packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Export {
    pub to: ShardIndex,
    /// The other shard knows the track: packets go there.
    pub begun: bool,
    /// It begins with the next packet: the speech so far goes before that. A layer begins anew there.
    pub replay: bool,
    /// The highest layer that somebody there would carry if it came. On the first layer alone.
    pub wish: u8,
    /// Numbers that did not get into the media lane, the oldest first: they go before all others once it has room.
    pub missed: VecDeque<(u64, RelayContent)>,
}

impl Export {
    fn new(to: ShardIndex, begun: bool, replay: bool) -> Self {
        Self { to, begun, replay, wish: 0, missed: VecDeque::new() }
    }
}

/// A track on this shard, or one of its layers.
pub(super) struct Track {
    pub key: StreamKey,
    pub origin: Origin,
    /// It goes to the mixer, not to slots.
    pub mixed: bool,
    /// Which of its packets are opened, if it is mixed.
    pub glances: Glances,
    /// How much it may bring, if it is sound.
    pub sound: Sound,
    /// A moderator muted it.
    pub silenced: bool,
    /// Its place in the order of pictures.
    pub precedence: Precedence,
    /// The incoming stream.
    pub encoding: Encoding,
    pub subscriptions: Vec<Subscription>,
    /// Other shards that get its packets.
    pub exports: Vec<Export>,
    /// Other shards that asked for it before the room said that they get it.
    asked: Vec<ShardIndex>,
    /// What it brings at its publisher's shard, as that told, in bits a second.
    pub told_bps: u32,
    /// What it brought when it was sent last, in bits a second; 0 if it never was.
    known_bps: u64,
    /// What was told of its layers. Of the first layer alone.
    pub told: Told,
}

/// What was told of a track's layers, by the first of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    /// When it is looked at next.
    pub due: Option<Instant>,
    /// The highest layer that is wanted, as the room or the publisher's shard was told; None: all are.
    pub layer: Option<u8>,
    /// Since when only lower layers are wanted.
    pub lower_since: Option<Instant>,
    /// When the other shards were told last.
    pub crossed: Option<Instant>,
    /// Which layers cross, as the publisher's shard was told.
    pub carried: u8,
}

impl Track {
    /// `opaque`: its payloads are encrypted end to end.
    pub(super) fn new(key: StreamKey, origin: Origin, line: Line, opaque: bool) -> Self {
        let here = matches!(origin, Origin::Person(_));
        Self {
            key,
            origin,
            mixed: false,
            glances: Glances::default(),
            sound: Sound::new(),
            silenced: false,
            precedence: Precedence::default(),
            encoding: Encoding::new(key, line, opaque, here),
            subscriptions: Vec::new(),
            exports: Vec::new(),
            asked: Vec::new(),
            told_bps: 0,
            known_bps: 0,
            told: Told::default(),
        }
    }

    /// What becomes of its packets.
    #[inline]
    pub(super) fn fate(&self) -> Fate {
        Fate { silenced: self.silenced, mixed: self.mixed }
    }

    /// Whether its track has layers.
    #[inline]
    pub(super) fn is_layered(&self) -> bool {
        !self.encoding.line.layers.is_empty()
    }

    /// Whether its pictures come by fits and starts, with no smaller layer to fall to: a screen.
    pub(super) fn is_uneven(&self) -> bool {
        self.precedence.screen && !self.is_layered() && self.encoding.inner.count() < 2
    }

    /// Its RTP stream id, if it is a layer.
    pub(super) fn rid(&self) -> Option<&str> {
        let layer = self.encoding.line.layers.get(usize::from(self.key.layer))?;
        Some(layer.rid.as_str())
    }

    /// Whether its publisher sends it at the moment.
    pub(super) fn is_alive(&self, now: Now) -> bool {
        match self.origin {
            Origin::Relay(_) if self.is_layered() => self.told_bps > 0,
            _ => self.encoding.newest.is_some_and(|(_, at)| now.unix.saturating_sub(at) < ALIVE),
        }
    }

    /// What it brings, in bits a second. Of a layer that is not sent: what it brought last, 0 if it never was.
    pub(super) fn bps(&mut self, now: Now) -> u64 {
        let bps = match self.origin {
            // One that is sent, but was not measured yet, is told as 1.
            Origin::Relay(_) if self.is_layered() && self.told_bps > 1 => u64::from(self.told_bps),
            Origin::Relay(_) if self.is_layered() => 0,
            _ => self.encoding.rate.bps(now.at),
        };
        if bps > 0 || !self.is_layered() {
            self.known_bps = bps;
        }
        self.known_bps
    }

    /// The person of this shard who publishes it.
    pub(super) fn publisher(&self) -> Option<PersonIndex> {
        match self.origin {
            Origin::Person(person) => Some(person),
            Origin::Relay(_) => None,
        }
    }

    #[inline]
    pub(super) fn is_video(&self) -> bool {
        self.encoding.is_video()
    }

    /// Whether somebody gets it, here or on another shard.
    pub(super) fn is_wanted(&self) -> bool {
        !self.subscriptions.is_empty() || self.exports.iter().any(|e| e.begun || !self.is_layered())
    }

    /// Whether another shard gets its packets. If the last packets of a voice are kept, that shard must
    /// ask first: a packet that comes there before it knows the track would be lost. Of layers, only those cross that it
    /// asks for.
    pub(super) fn export(&mut self, to: ShardIndex, on: bool) {
        if !on {
            self.exports.retain(|export| export.to != to);
            self.asked.retain(|shard| *shard != to);
        } else if !self.exports.iter().any(|export| export.to == to) {
            let asked = self.asked.extract_if(.., |shard| *shard == to).count() > 0;
            let on_demand = self.encoding.lately.is_some() || self.is_layered();
            let (begun, replay) = (asked || !on_demand, asked && on_demand);
            self.exports.push(Export::new(to, begun, replay));
        }
    }

    /// Another shard knows the track and asks for it, before or after the room says that it gets it.
    pub(super) fn asked_by(&mut self, to: ShardIndex) {
        match self.exports.iter_mut().find(|export| export.to == to) {
            Some(export) if !export.begun => (export.begun, export.replay) = (true, true),
            Some(_) => {}
            None if self.asked.contains(&to) => {}
            None => self.asked.push(to),
        }
    }

    /// Another shard does not need this layer at the moment.
    pub(super) fn not_asked_by(&mut self, to: ShardIndex) {
        self.asked.retain(|shard| *shard != to);
        for export in self.exports.iter_mut().filter(|export| export.to == to) {
            export.begun = false;
            export.missed.clear();
        }
    }
}

#[cfg(test)]
pub(super) fn voice_line() -> Line {
    use rtp::negotiated::{Codec, Direction, Extensions, StreamIds};
    Line {
        mid: "a".into(),
        direction: Direction::Receive,
        codec: Codec::Opus,
        payload_type: 111,
        rtx_payload_type: None,
        red_payload_type: None,
        red_first: false,
        extensions: Extensions::default(),
        local: None,
        remote: Some(StreamIds { ssrc: 1, rtx: None }),
        layers: Vec::new(),
        nack: false,
        transport_cc: false,
        reduced_size: true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::lately::Lately;
    use super::*;
    use crate::command::TrackKey;

    #[test]
    fn a_kept_voice_goes_to_another_shard_once_room_and_shard_have_said_so() {
        let there = ShardIndex(1);
        let begun = |track: &Track| track.exports.iter().any(|export| export.begun);
        let mut track = Track::new(TrackKey(1).stream(), Origin::Person(0), voice_line(), false);
        track.export(there, true);
        assert!(begun(&track), "nothing is kept: at once");
        track.export(there, false);
        track.encoding.lately = Some(Lately::new());
        for asked_first in [true, false] {
            for step in 0..2 {
                assert!(!begun(&track), "one of them is missing");
                match (step == 0) == asked_first {
                    true => track.asked_by(there),
                    false => track.export(there, true),
                }
            }
            assert_eq!(track.exports, [Export::new(there, true, true)]);
            track.exports[0].replay = false;
            track.asked_by(there);
            track.export(there, true);
            assert!(!track.exports[0].replay, "told once");
            track.export(there, false);
        }
    }
}
