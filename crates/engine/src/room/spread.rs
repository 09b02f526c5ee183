//! A room over several shards: a track crosses to a shard while somebody there has it in a slot, the
//! beginning of speech is kept where slots are short, and the mixers know which shards talk and listen.

use super::effects::Effects;
use super::index::Index;
use super::setup::{RoomSetup, Topology, home_of};
use crate::command::{Command, Precedence, RoomKey, ShardIndex, TrackKey};
use crate::mix::MixCommand;
use rtp::negotiated::{Kind, Line};
use std::collections::{BTreeMap, BTreeSet};

/// What was told to shards about each other.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// (track, shard that gets it from the publisher's).
    exports: BTreeSet<(TrackKey, ShardIndex)>,
    /// (track, shard that keeps its last half second).
    kept: BTreeSet<(TrackKey, ShardIndex)>,
    /// Whether the beginnings of speech are kept.
    keeping: bool,
    /// Which shards talk and listen, bit N for shard N, and ticks in a packet; and all shards that were told so far.
    mix: (u64, u64, u8),
    told: u64,
}

/// Where a call's own effects begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    commands: usize,
    mixers: usize,
}

impl Mark {
    /// The effects that follow begin here.
    pub(super) fn here(effects: &Effects) -> Self {
        Self { commands: effects.commands.len(), mixers: effects.mixers.len() }
    }
}

/// A track as its publisher's shard has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// The publisher's shard.
    pub shard: ShardIndex,
    /// Audio or video.
    pub kind: Kind,
    /// Nothing in its payloads is read or changed.
    pub opaque: bool,
    /// Its place in the order of pictures.
    pub precedence: Precedence,
    /// Its line, if it passes the server.
    pub line: Option<&'a Line>,
}

/// The shards of a mask.
fn shards_of(mask: u64) -> impl Iterator<Item = ShardIndex> {
    (0..64).filter(move |bit| mask & (1 << bit) != 0).map(ShardIndex)
}

/// The part of a set of (track, shard) that is about one track.
fn of(set: &BTreeSet<(TrackKey, ShardIndex)>, track: TrackKey) -> impl Iterator<Item = ShardIndex> {
    set.range((track, ShardIndex(0))..=(track, ShardIndex(u16::MAX))).map(|(_, shard)| *shard)
}

impl Spread {
    /// Tracks changed: they are imported where they are wanted now, and nowhere else. The tracks
    /// that are gone have no source.
    pub(super) fn settle_tracks(
        &mut self,
        room: RoomKey,
        changed: &BTreeMap<TrackKey, Option<Source<'_>>>,
        index: &Index,
        mark: Mark,
        effects: &mut Effects,
    ) {
        let mut first = Vec::new();
        for (&track, source) in changed {
            let passes = source.and_then(|source| Some((source, source.line?)));
            let wanted: BTreeSet<ShardIndex> = passes
                .map(|(source, _)| index.wanted(track).filter(|to| *to != source.shard).collect())
                .unwrap_or_default();
            let exported: BTreeSet<ShardIndex> = of(&self.exports, track).collect();
            if let Some((Source { shard: from, opaque, precedence, .. }, line)) = passes {
                for &to in wanted.difference(&exported) {
                    // The other shard knows the track before a slot there is mapped to it.
                    let line = line.clone();
                    first.push((
                        to,
                        Command::Import { track, room, from, line, opaque, precedence },
                    ));
                    effects.commands.push((from, Command::Export { track, to, on: true }));
                    self.exports.insert((track, to));
                }
            }
            for &to in exported.difference(&wanted) {
                effects.commands.push((to, Command::RemoveTrack { track }));
                // A track that ended took its exports along.
                if let Some(source) = source {
                    let command = Command::Export { track, to, on: false };
                    effects.commands.push((source.shard, command));
                }
                self.exports.remove(&(track, to));
            }
        }
        effects.commands.splice(mark.commands..mark.commands, first);
    }

    /// Whether the beginnings of speech are kept from now on; true if that is new, so that every
    /// voice is concerned.
    pub(super) fn keep(&mut self, on: bool) -> bool {
        std::mem::replace(&mut self.keeping, on) != on
    }

    /// Where somebody has fewer slots than there are voices, the beginning of speech is kept on every
    /// shard that has the voice's track.
    pub(super) fn settle_kept(
        &mut self,
        track: TrackKey,
        source: Option<Source<'_>>,
        effects: &mut Effects,
    ) {
        let here: BTreeSet<ShardIndex> = source
            .filter(|source| source.kind == Kind::Audio)
            .map(|source| of(&self.exports, track).chain([source.shard]).collect())
            .unwrap_or_default();
        let keep = if self.keeping { here.clone() } else { BTreeSet::new() };
        let kept: BTreeSet<ShardIndex> = of(&self.kept, track).collect();
        for &shard in keep.difference(&kept) {
            effects.commands.push((shard, Command::Keep { track, on: true }));
            self.kept.insert((track, shard));
        }
        for &shard in kept.difference(&keep) {
            self.kept.remove(&(track, shard));
            // A track that is gone took what was kept of it along.
            if here.contains(&shard) {
                effects.commands.push((shard, Command::Keep { track, on: false }));
            }
        }
    }

    /// The mixers learn where somebody talks and listens.
    pub(super) fn settle_mixers(
        &mut self,
        room: RoomKey,
        setup: &RoomSetup,
        (people, index): (usize, &Index),
        mark: Mark,
        effects: &mut Effects,
    ) {
        let (talking, listening) = index.mixing();
        let nobody = talking | listening == 0;
        let packet_ticks = if nobody { 0 } else { setup.mix_packet.ticks(people) };
        let mix = (talking, listening, packet_ticks);
        if setup.audio != Topology::Mcu || self.mix == mix {
            return;
        }
        self.mix = mix;
        let home = home_of(room, setup.shards);
        let all = self.told | talking | listening | (1 << home.0);
        if nobody {
            effects.mixers.extend(shards_of(all).map(|shard| (shard, MixCommand::End { room })));
            self.told = 0;
            return;
        }
        self.told = all;
        let hear = setup.hear;
        let told = MixCommand::Room { room, home, talking, listening, hear, packet_ticks };
        let first: Vec<_> = shards_of(all).map(|shard| (shard, told)).collect();
        effects.mixers.splice(mark.mixers..mark.mixers, first);
    }
}
