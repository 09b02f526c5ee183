//! A published track: what it is, who gets it, and its incoming stream.

use super::encoding::Encoding;
use super::index::{PersonIndex, Subscription};
use crate::command::{ShardIndex, TrackKey};
use rtp::negotiated::Line;

/// Where a track's packets come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A person of this shard.
    Person(PersonIndex),
    /// Another shard, over the relay.
    Relay(ShardIndex),
}

/// Another shard that gets a track's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Export {
    pub to: ShardIndex,
    /// The other shard knows the track: packets go there.
    pub begun: bool,
    /// The speech so far goes there before the next packet.
    pub replay: bool,
}

/// A track on this shard.
pub(super) struct Track {
    pub key: TrackKey,
    pub origin: Origin,
    /// It goes to the mixer, not to slots.
    pub mixed: bool,
    /// A moderator muted it.
    pub silenced: bool,
    /// The incoming stream. With layers of a picture (simulcast) there will be several.
    pub encoding: Encoding,
    pub subscriptions: Vec<Subscription>,
    /// Other shards that get its packets.
    pub exports: Vec<Export>,
    /// Other shards that asked for it before the room said that they get it.
    asked: Vec<ShardIndex>,
}

impl Track {
    /// `opaque`: its payloads are encrypted end to end.
    pub(super) fn new(key: TrackKey, origin: Origin, line: Line, opaque: bool) -> Self {
        let here = matches!(origin, Origin::Person(_));
        Self {
            key,
            origin,
            mixed: false,
            silenced: false,
            encoding: Encoding::new(key, line, opaque, here),
            subscriptions: Vec::new(),
            exports: Vec::new(),
            asked: Vec::new(),
        }
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
        !(self.subscriptions.is_empty() && self.exports.is_empty())
    }

    /// Whether another shard gets its packets. If the last packets of a voice are kept, that shard must
    /// ask first: a packet that comes there before it knows the track would be lost.
    pub(super) fn export(&mut self, to: ShardIndex, on: bool) {
        if !on {
            self.exports.retain(|export| export.to != to);
            self.asked.retain(|shard| *shard != to);
        } else if !self.exports.iter().any(|export| export.to == to) {
            let asked = self.asked.extract_if(.., |shard| *shard == to).count() > 0;
            let kept = self.encoding.lately.is_some();
            self.exports.push(Export { to, begun: asked || !kept, replay: asked && kept });
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
        extensions: Extensions::default(),
        local: None,
        remote: Some(StreamIds { ssrc: 1, rtx: None }),
        nack: false,
        transport_cc: false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::lately::Lately;
    use super::*;

    #[test]
    fn a_kept_voice_goes_to_another_shard_once_room_and_shard_have_said_so() {
        let there = ShardIndex(1);
        let begun = |track: &Track| track.exports.iter().any(|export| export.begun);
        let mut track = Track::new(TrackKey(1), Origin::Person(0), voice_line(), false);
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
            assert_eq!(track.exports, [Export { to: there, begun: true, replay: true }]);
            track.exports[0].replay = false;
            track.asked_by(there);
            track.export(there, true);
            assert!(!track.exports[0].replay, "told once");
            track.export(there, false);
        }
    }
}
