//! A room over several shards: a track crosses to a shard while somebody there has it in a slot,
//! and the mixers know which shards talk and listen.

use super::{Effects, Notice, Room, Topology};
use crate::command::{Command, ShardIndex, TrackKey};
use crate::mix::MixCommand;
use rtp::negotiated::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// What was told to shards about each other.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// (track, shard that gets it from the publisher's).
    exports: BTreeSet<(TrackKey, ShardIndex)>,
    /// (track, shard that keeps its last half second).
    kept: BTreeSet<(TrackKey, ShardIndex)>,
    /// Which shards talk and listen, bit N for shard N; and all that were told so far.
    mix: (u64, u64),
    told: u64,
}

/// Where a call's own effects begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    commands: usize,
    mixers: usize,
}

/// The shards of a mask.
fn shards_of(mask: u64) -> impl Iterator<Item = ShardIndex> {
    (0..64).filter(move |bit| mask & (1 << bit) != 0).map(ShardIndex)
}

impl Room {
    /// The shard that ranks who is loud and tells who speaks.
    pub fn home(&self) -> ShardIndex {
        home_of(self.key, self.setup.shards)
    }

    pub(super) fn mark(&self, effects: &Effects) -> Mark {
        Mark { commands: effects.commands.len(), mixers: effects.mixers.len() }
    }

    /// After a change: what shards need from each other follows it.
    pub(super) fn settle(&mut self, mark: Mark, effects: &mut Effects) {
        self.settle_mixers(mark, effects);
        if self.setup.shards > 1 {
            self.settle_tracks(mark, effects);
        }
        self.settle_kept(effects);
        self.settle_paused(effects);
    }

    /// A picture that nobody has in a slot, on any shard, rests at its publisher's; it is sent again
    /// as soon as somebody gets it. Sound goes on: without its level nobody could be chosen.
    fn settle_paused(&mut self, effects: &mut Effects) {
        if self.topology(Kind::Video) != Topology::Sfu {
            return;
        }
        let carried: BTreeSet<TrackKey> =
            self.people.iter().flat_map(|person| person.video.carried()).collect();
        for person in &mut self.people {
            for track in person.tracks.iter_mut().filter(|track| track.kind == Kind::Video) {
                let paused = !carried.contains(&track.key);
                if track.paused != paused {
                    track.paused = paused;
                    let (person, track) = (person.key, track.key);
                    effects.notices.push(Notice::Paused { person, track, paused });
                }
            }
        }
    }

    /// Where somebody has fewer slots than there are voices, the beginning of speech is kept on every
    /// shard that has its track.
    fn settle_kept(&mut self, effects: &mut Effects) {
        let here: BTreeSet<(TrackKey, ShardIndex)> = self
            .people
            .iter()
            .flat_map(|person| person.tracks.iter().map(|track| (track, person.shard)))
            .filter(|(track, _)| track.kind == Kind::Audio)
            .flat_map(|(track, shard)| {
                let exports = (track.key, ShardIndex(0))..=(track.key, ShardIndex(u16::MAX));
                self.spread.exports.range(exports).copied().chain([(track.key, shard)])
            })
            .collect();
        let keep = if self.voices_wait() { here.clone() } else { BTreeSet::new() };
        for &(track, shard) in keep.difference(&self.spread.kept) {
            effects.commands.push((shard, Command::Keep { track, on: true }));
        }
        // A track that is gone took what was kept of it along.
        for &(track, shard) in self.spread.kept.difference(&keep).filter(|it| here.contains(*it)) {
            effects.commands.push((shard, Command::Keep { track, on: false }));
        }
        self.spread.kept = keep;
    }

    fn settle_tracks(&mut self, mark: Mark, effects: &mut Effects) {
        let mut owners: BTreeMap<TrackKey, ShardIndex> = BTreeMap::new();
        for person in &self.people {
            owners.extend(person.tracks.iter().map(|track| (track.key, person.shard)));
        }
        let mut demand: BTreeSet<(TrackKey, ShardIndex)> = BTreeSet::new();
        for person in &self.people {
            for track in person.audio.carried().chain(person.video.carried()) {
                if owners.get(&track).is_some_and(|owner| *owner != person.shard) {
                    demand.insert((track, person.shard));
                }
            }
        }
        // The other shard knows the track before a slot there is mapped to it.
        let mut first = Vec::new();
        for &(track, to) in demand.difference(&self.spread.exports) {
            let (Some(line), Some(from)) = (self.lines.get(&track), owners.get(&track)) else {
                continue;
            };
            let line = line.clone();
            let opaque = self.owner(track).is_some_and(|(_, known)| known.opaque);
            let import = Command::Import { track, room: self.key, from: *from, line, opaque };
            first.push((to, import));
            effects.commands.push((*from, Command::Export { track, to, on: true }));
        }
        for &(track, to) in self.spread.exports.difference(&demand) {
            effects.commands.push((to, Command::RemoveTrack { track }));
            // A track that ended took its exports along.
            if let Some(from) = owners.get(&track) {
                effects.commands.push((*from, Command::Export { track, to, on: false }));
            }
        }
        effects.commands.splice(mark.commands..mark.commands, first);
        self.spread.exports = demand;
    }

    fn settle_mixers(&mut self, mark: Mark, effects: &mut Effects) {
        if self.setup.audio != Topology::Mcu {
            return;
        }
        let (mut talking, mut listening) = (0u64, 0u64);
        for person in &self.people {
            let bit = 1 << person.shard.0;
            if person.tracks.iter().any(|track| track.kind == Kind::Audio) {
                talking |= bit;
            }
            if person.mix.is_some() {
                listening |= bit;
            }
        }
        if self.spread.mix == (talking, listening) {
            return;
        }
        self.spread.mix = (talking, listening);
        let (room, home) = (self.key, self.home());
        let all = self.spread.told | talking | listening | (1 << home.0);
        if talking | listening == 0 {
            effects.mixers.extend(shards_of(all).map(|shard| (shard, MixCommand::End { room })));
            self.spread.told = 0;
            return;
        }
        self.spread.told = all;
        let loudest = self.setup.loudest;
        let told = MixCommand::Room { room, home, talking, listening, loudest };
        let first: Vec<_> = shards_of(all).map(|shard| (shard, told)).collect();
        effects.mixers.splice(mark.mixers..mark.mixers, first);
    }
}

/// The home shard of a room.
pub(crate) fn home_of(room: crate::RoomKey, shards: u16) -> ShardIndex {
    ShardIndex((room.0 % u64::from(shards.max(1))) as u16)
}
