//! What follows from everybody's tracks and slots, kept up to date: who carries which track, who
//! waits for one, in which order tracks are given to free slots.
//!
//! Nothing is decided here, and all of it could be counted anew from the people. It is there so that
//! a change costs what it changes, not what the room holds: after each change of a participant,
//! [`Index::refresh`] compares them with what was noted of them last.

use super::person::Person;
use super::setup::{KINDS, RoomLimits};
use crate::command::{PersonKey, ShardIndex, TrackKey};
use rtp::negotiated::Kind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A track's place among those that wait for free slots: whose owner spoke last comes first; of those
/// who never spoke, who came first.
type Rank = (Reverse<u64>, PersonKey, usize, TrackKey);

/// The index of a room.
#[derive(Debug, Default)]
pub(super) struct Index {
    kinds: [KindIndex; 2],
    owners: BTreeMap<TrackKey, PersonKey>,
    /// People on a shard who have a track in a slot.
    wanted: BTreeMap<(TrackKey, ShardIndex), u32>,
    /// People on a shard who send sound, and who hear the mix.
    talking: BTreeMap<ShardIndex, u32>,
    listening: BTreeMap<ShardIndex, u32>,
    /// Tracks that came or went, or that a shard began or ceased to want, since they were asked for.
    changed: BTreeSet<TrackKey>,
    noted: BTreeMap<PersonKey, Noted>,
}

/// What concerns one kind of media.
#[derive(Debug, Default)]
struct KindIndex {
    ranked: BTreeSet<Rank>,
    carriers: BTreeMap<TrackKey, BTreeSet<PersonKey>>,
    /// How many people whose slots the room fills have a track in one, or shall have.
    shown: BTreeMap<TrackKey, u32>,
    /// Whose slots the room fills, and whose of them are not all taken.
    filled: BTreeSet<PersonKey>,
    open: BTreeSet<PersonKey>,
    /// From how many tracks in all on somebody is asked for more slots.
    asks: BTreeSet<(usize, PersonKey)>,
    /// For how many tracks in all somebody's slots suffice.
    enough: BTreeSet<(usize, PersonKey)>,
}

/// What was noted of a participant last.
#[derive(Debug, Default, PartialEq, Eq)]
struct Noted {
    shard: ShardIndex,
    talks: bool,
    listens: bool,
    kinds: [NotedKind; 2],
}

#[derive(Debug, Default, PartialEq, Eq)]
struct NotedKind {
    ranks: Vec<Rank>,
    carried: BTreeSet<TrackKey>,
    shown: BTreeSet<TrackKey>,
    filled: bool,
    open: bool,
    asks: Option<usize>,
    enough: Option<usize>,
}

impl Noted {
    fn of(person: &Person, limits: RoomLimits) -> Self {
        Self {
            shard: person.shard,
            talks: person.tracks_of(Kind::Audio).next().is_some(),
            listens: person.mix.is_some(),
            kinds: KINDS.map(|kind| {
                let pool = person.pool(kind);
                let filled = pool.is_filled_by_room();
                let own = person.tracks_of(kind).count();
                let tracks = person.tracks_of(kind).enumerate();
                NotedKind {
                    ranks: tracks
                        .map(|(nth, track)| (Reverse(person.spoke), person.key, nth, track.key))
                        .collect(),
                    carried: pool.carried().collect(),
                    shown: pool.contents().filter_map(|(_, it)| it.filter(|_| filled)).collect(),
                    filled,
                    open: filled && pool.free() > 0,
                    asks: pool.asks_from(limits.slots(kind)).map(|need| own + need as usize),
                    enough: filled.then(|| own + pool.len()),
                }
            }),
        }
    }
}

impl Index {
    /// A participant came, or changed.
    pub(super) fn refresh(&mut self, person: &Person, limits: RoomLimits) {
        let new = Noted::of(person, limits);
        let old = self.noted.remove(&person.key).unwrap_or_default();
        self.replace(person.key, &old, &new);
        self.noted.insert(person.key, new);
    }

    /// A participant is gone.
    pub(super) fn remove(&mut self, person: PersonKey) {
        if let Some(old) = self.noted.remove(&person) {
            self.replace(person, &old, &Noted::default());
        }
    }

    fn replace(&mut self, person: PersonKey, old: &Noted, new: &Noted) {
        for (counts, was, is) in [
            (&mut self.talking, old.talks, new.talks),
            (&mut self.listening, old.listens, new.listens),
        ] {
            if was != is {
                count(counts, if is { new.shard } else { old.shard }, is);
            }
        }
        for (at, (old_kind, new_kind)) in old.kinds.iter().zip(&new.kinds).enumerate() {
            self.replace_tracks(person, at, old_kind, new_kind);
            let kind = &mut self.kinds[at];
            for &track in old_kind.carried.difference(&new_kind.carried) {
                if let Some(carriers) = kind.carriers.get_mut(&track) {
                    carriers.remove(&person);
                    if carriers.is_empty() {
                        kind.carriers.remove(&track);
                    }
                }
                if count(&mut self.wanted, (track, old.shard), false) {
                    self.changed.insert(track);
                }
            }
            for &track in new_kind.carried.difference(&old_kind.carried) {
                kind.carriers.entry(track).or_default().insert(person);
                if count(&mut self.wanted, (track, new.shard), true) {
                    self.changed.insert(track);
                }
            }
            for &track in old_kind.shown.difference(&new_kind.shown) {
                count(&mut kind.shown, track, false);
            }
            for &track in new_kind.shown.difference(&old_kind.shown) {
                count(&mut kind.shown, track, true);
            }
            member(&mut kind.filled, person, old_kind.filled, new_kind.filled);
            member(&mut kind.open, person, old_kind.open, new_kind.open);
            moved(&mut kind.asks, person, old_kind.asks, new_kind.asks);
            moved(&mut kind.enough, person, old_kind.enough, new_kind.enough);
        }
    }

    fn replace_tracks(&mut self, person: PersonKey, at: usize, old: &NotedKind, new: &NotedKind) {
        if old.ranks == new.ranks {
            return;
        }
        let tracks = |noted: &NotedKind| -> BTreeSet<TrackKey> {
            noted.ranks.iter().map(|(.., track)| *track).collect()
        };
        let (before, after) = (tracks(old), tracks(new));
        for track in before.difference(&after) {
            self.owners.remove(track);
        }
        self.owners.extend(after.difference(&before).map(|track| (*track, person)));
        self.changed.extend(before.symmetric_difference(&after));
        let ranked = &mut self.kinds[at].ranked;
        for rank in &old.ranks {
            ranked.remove(rank);
        }
        ranked.extend(&new.ranks);
    }

    /// Who publishes a track.
    pub(super) fn owner(&self, track: TrackKey) -> Option<PersonKey> {
        self.owners.get(&track).copied()
    }

    /// Tracks of a kind in the order in which free slots get them.
    pub(super) fn ranked(&self, kind: Kind) -> impl Iterator<Item = (PersonKey, TrackKey)> {
        self.kinds[kind as usize].ranked.iter().map(|&(_, person, _, track)| (person, track))
    }

    /// How many tracks of a kind there are.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.kinds[kind as usize].ranked.len()
    }

    /// Who has a track in a slot, or shall have it there from its next keyframe on.
    pub(super) fn carriers(&self, kind: Kind, track: TrackKey) -> impl Iterator<Item = PersonKey> {
        self.kinds[kind as usize].carriers.get(&track).into_iter().flatten().copied()
    }

    /// Whose slots the room fills and are not all taken.
    pub(super) fn open(&self, kind: Kind) -> impl Iterator<Item = PersonKey> {
        self.kinds[kind as usize].open.iter().copied()
    }

    /// Whose slots the room fills.
    pub(super) fn filled(&self, kind: Kind) -> impl Iterator<Item = PersonKey> {
        self.kinds[kind as usize].filled.iter().copied()
    }

    /// Whether somebody else than its owner, whose slots the room fills, has this track in none.
    pub(super) fn is_lacked(&self, kind: Kind, owner: PersonKey, track: TrackKey) -> bool {
        let kind = &self.kinds[kind as usize];
        let others = kind.filled.len() - usize::from(kind.filled.contains(&owner));
        let shown = kind.shown.get(&track).copied().unwrap_or(0);
        (shown as usize) < others
    }

    /// Who is to be asked for more slots of a kind.
    pub(super) fn asks(&self, kind: Kind) -> impl Iterator<Item = PersonKey> {
        let all = self.count(kind);
        let asks = self.kinds[kind as usize].asks.iter();
        asks.take_while(move |(from, _)| *from <= all).map(|(_, person)| *person)
    }

    /// Whether somebody whose slots the room fills has fewer of them than others send voices.
    pub(super) fn voices_wait(&self) -> bool {
        let least = self.kinds[Kind::Audio as usize].enough.first();
        least.is_some_and(|(enough, _)| *enough < self.count(Kind::Audio))
    }

    /// The shards where somebody has a track in a slot.
    pub(super) fn wanted(&self, track: TrackKey) -> impl Iterator<Item = ShardIndex> {
        let shards = (track, ShardIndex(0))..=(track, ShardIndex(u16::MAX));
        self.wanted.range(shards).map(|((_, shard), _)| *shard)
    }

    /// The shards where somebody sends sound, and where somebody hears the mix: bit N for shard N.
    pub(super) fn mixing(&self) -> (u64, u64) {
        let mask = |counts: &BTreeMap<ShardIndex, u32>| {
            counts.keys().fold(0, |mask, shard| mask | 1 << shard.0)
        };
        (mask(&self.talking), mask(&self.listening))
    }

    /// Whether nothing is noted of anybody.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let kind = |kind: &KindIndex| {
            kind.ranked.is_empty()
                && kind.carriers.is_empty()
                && kind.shown.is_empty()
                && kind.filled.is_empty()
                && kind.open.is_empty()
                && kind.asks.is_empty()
                && kind.enough.is_empty()
        };
        let counts = self.talking.len() + self.listening.len() + self.wanted.len();
        self.kinds.iter().all(kind)
            && counts + self.owners.len() + self.changed.len() + self.noted.len() == 0
    }

    /// Tracks that came or went, or that a shard began or ceased to want, since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<TrackKey> {
        std::mem::take(&mut self.changed)
    }
}

/// Counts one more or one less; says whether there is now the first one, or none.
fn count<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K, more: bool) -> bool {
    if more {
        let count = counts.entry(key).or_default();
        *count += 1;
        return *count == 1;
    }
    match counts.get_mut(&key) {
        Some(count) if *count > 1 => {
            *count -= 1;
            false
        }
        _ => counts.remove(&key).is_some(),
    }
}

/// A participant enters or leaves a set.
fn member(set: &mut BTreeSet<PersonKey>, person: PersonKey, was: bool, is: bool) {
    if was && !is {
        set.remove(&person);
    } else if is && !was {
        set.insert(person);
    }
}

/// A participant's number in an ordered set changes.
fn moved(
    set: &mut BTreeSet<(usize, PersonKey)>,
    person: PersonKey,
    was: Option<usize>,
    is: Option<usize>,
) {
    if was != is {
        if let Some(was) = was {
            set.remove(&(was, person));
        }
        set.extend(is.map(|is| (is, person)));
    }
}
