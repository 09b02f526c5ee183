//! One room's mix on one shard: both halves of a tick.

use super::gather::{Gather, Longer};
use super::message::{Bar, Hear, MAX_LOUDEST, MixFor, MixPeer, MixSink, MixedPacket, TICK_SAMPLES};
use super::rank::{Ranked, Top, bit, shards, top};
use super::stats::MixStats;
use super::stream::{Encoded, Stream};
use super::track::Track;
use crate::command::{PersonKey, RoomKey, ShardIndex, TrackKey};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

type Samples = Box<[f32; TICK_SAMPLES]>;

/// What a room's work needs of its mixer.
pub(crate) struct Turn<'a> {
    pub(crate) shard: ShardIndex,
    pub(crate) stats: &'a mut MixStats,
    pub(crate) sink: &'a mut dyn MixSink,
}

impl Turn<'_> {
    /// Sends `message`; says whether there was room for it.
    fn tell(&mut self, shard: ShardIndex, message: MixPeer) -> bool {
        let sent = self.sink.peer(shard, message);
        self.stats.peers_refused += u64::from(!sent);
        sent
    }
}

/// Where a room's people are, as the room tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) home: ShardIndex,
    pub(crate) talking: u64,
    pub(crate) listening: u64,
    pub(crate) hear: Hear,
    pub(crate) packet_ticks: u8,
}

impl Layout {
    fn all(&self) -> u64 {
        self.talking | self.listening | bit(self.home)
    }
}

/// Quieter than this in −dBov there is no sound at all, not even the noise of a room.
const SILENT_DBOV: u8 = 100;

/// Listeners who are heard, but got no packet of their own in the last tick.
#[derive(Debug, Default)]
struct Lacking {
    people: [Option<PersonKey>; MAX_LOUDEST],
    count: usize,
}

impl Lacking {
    fn add(&mut self, person: PersonKey) {
        if let Some(place) = self.people.get_mut(self.count) {
            *place = Some(person);
        }
        self.count += 1;
    }

    /// All of them, if there is place for all.
    fn all(&self) -> Option<[Option<PersonKey>; MAX_LOUDEST]> {
        (self.count <= MAX_LOUDEST).then_some(self.people)
    }
}

/// A tick whose second half is to come.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    /// Shards whose sums are waited for.
    waiting: u64,
    /// Listeners have not got their packets.
    packets: bool,
    /// The rank for the next tick is not fixed.
    rank: bool,
}

/// A room.
#[derive(Debug)]
pub(crate) struct Room {
    key: RoomKey,
    layout: Layout,
    tracks: BTreeMap<TrackKey, Track>,
    listeners: BTreeSet<PersonKey>,

    /// Who is heard, and who will be from a tick on.
    rank: Ranked,
    next_rank: Option<(u64, Ranked)>,
    /// At home: the rank last fixed, what the others told, and who does not know the rank yet.
    fixed: Ranked,
    remote: BTreeMap<ShardIndex, Top>,
    untold: u64,
    /// Elsewhere: what home was told last, and whether it has answered. Until then it is told in
    /// each tick: commands and messages come by different ways, so that one of the two may not
    /// have known the room when the other spoke.
    told: Option<Top>,
    answered: bool,

    open: Open,
    /// People of this shard in this tick's sum, ascending.
    heard: Vec<PersonKey>,
    /// Tracks of this shard in this tick's sum, by person.
    sounding: Vec<(PersonKey, TrackKey)>,
    /// Since when the first of them had been here; None where nobody of this shard is in it.
    since: Option<Instant>,
    sum: Samples,
    scratch: Samples,
    sums: BTreeMap<(u64, ShardIndex), Samples>,

    common: Option<Stream>,
    /// Packets of the common stream that wait for those of the next ticks.
    gather: Gather,
    /// The common stream made a packet in the last tick.
    common_live: bool,
    own: BTreeMap<PersonKey, Stream>,
    lacking: Lacking,
    spare: Vec<Stream>,
    candidates: Vec<(TrackKey, u8, ShardIndex)>,
    /// Who is loud enough to be heard in this tick, with their level in −dBov.
    levels: Vec<(TrackKey, u8)>,
}

impl Room {
    pub(crate) fn new(key: RoomKey, layout: Layout) -> Self {
        let silence = || Box::new([0.0; TICK_SAMPLES]);
        Self {
            key,
            layout,
            tracks: BTreeMap::new(),
            listeners: BTreeSet::new(),
            rank: Ranked::default(),
            next_rank: None,
            fixed: Ranked::default(),
            remote: BTreeMap::new(),
            untold: 0,
            told: None,
            answered: false,
            open: Open::default(),
            heard: Vec::new(),
            sounding: Vec::new(),
            since: None,
            sum: silence(),
            scratch: silence(),
            sums: BTreeMap::new(),
            common: None,
            gather: Gather::new(),
            common_live: false,
            own: BTreeMap::new(),
            lacking: Lacking::default(),
            spare: Vec::new(),
            candidates: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// People came to another shard, or left it; or home moved.
    pub(crate) fn set_layout(&mut self, layout: Layout) {
        let before = std::mem::replace(&mut self.layout, layout);
        if before.home != layout.home {
            // The new home knows nothing yet but the rank in force.
            (self.told, self.answered) = (None, false);
            self.fixed = self.rank;
            self.untold = layout.all();
        }
        self.untold = (self.untold | (layout.all() & !before.all())) & layout.all();
        self.remote.retain(|shard, _| layout.all() & bit(*shard) != 0);
    }

    pub(crate) fn add_track(&mut self, track: TrackKey, person: PersonKey, music: bool) {
        self.tracks.entry(track).or_insert_with(|| Track::new(person, music));
    }

    pub(crate) fn track(&mut self, track: TrackKey) -> Option<&mut Track> {
        self.tracks.get_mut(&track)
    }

    pub(crate) fn remove_track(&mut self, track: TrackKey, stats: &mut MixStats) {
        if let Some(mut track) = self.tracks.remove(&track) {
            track.end(stats);
        }
    }

    pub(crate) fn listen(&mut self, person: PersonKey) {
        self.listeners.insert(person);
    }

    pub(crate) fn unlisten(&mut self, person: PersonKey) {
        self.listeners.remove(&person);
        if let Some(stream) = self.own.remove(&person) {
            self.keep_spare(stream);
        }
    }

    /// Everybody in it, for who takes the room down.
    pub(crate) fn people(
        &self,
    ) -> (impl Iterator<Item = TrackKey>, impl Iterator<Item = PersonKey>) {
        (self.tracks.keys().copied(), self.listeners.iter().copied())
    }

    pub(crate) fn end(&mut self, stats: &mut MixStats) {
        self.tracks.values_mut().for_each(|track| track.end(stats));
    }

    /// A shard told home its loudest. It tells changes only: the same again, or the first there is
    /// of it, asks for the rank.
    pub(crate) fn take_levels(&mut self, shard: ShardIndex, top: Top) {
        if self.remote.insert(shard, top).is_none_or(|before| before == top) {
            self.untold |= bit(shard);
        }
    }

    /// Home told who is heard.
    pub(crate) fn take_rank(&mut self, from_tick: u64, rank: Ranked) {
        self.answered = true;
        if self.next_rank.is_none_or(|(tick, _)| tick <= from_tick) {
            self.next_rank = Some((from_tick, rank));
        }
    }

    /// A shard's sum of a tick that is not over here.
    pub(crate) fn take_sum(&mut self, tick: u64, shard: ShardIndex, samples: Samples) {
        self.sums.insert((tick, shard), samples);
    }

    /// Whether the second half of a tick is to come.
    pub(crate) fn is_open(&self) -> bool {
        self.open.packets || self.open.rank
    }

    /// Whether packets can go out: nothing more is waited for in `tick`.
    pub(crate) fn is_complete(&self, tick: u64) -> bool {
        self.open.packets && self.missing(tick) == 0
    }

    fn missing(&self, tick: u64) -> u64 {
        let of_tick = (tick, ShardIndex(0))..=(tick, ShardIndex(u16::MAX));
        self.sums.range(of_tick).fold(self.open.waiting, |left, ((_, from), _)| left & !bit(*from))
    }

    /// The first half of a tick.
    pub(crate) fn begin(&mut self, tick: u64, now: Instant, turn: &mut Turn<'_>) {
        let here = bit(turn.shard);
        let at_home = self.layout.home == turn.shard;
        let alone = self.layout.all() & !here == 0;
        let ranks = self.layout.hear != Hear::Everyone;
        let involved = if ranks { self.apply_rank(tick) } else { self.layout.talking };
        self.levels.clear();
        for (key, track) in &mut self.tracks {
            track.tick(tick);
            let audible = track.audible();
            self.levels.extend(audible.map(|dbov| (*key, dbov)));
            if !ranks {
                track.rank(audible.is_some(), true);
            }
        }
        match (ranks, at_home) {
            (true, true) if alone => self.fix_rank(tick, turn),
            (true, false) => self.tell_levels(tick, turn),
            _ => {}
        }
        self.tell_bar(turn);
        self.sum_up(now, turn.stats);
        let others = self.layout.listening & !here;
        if others != 0 && (involved & here != 0 || !self.sounding.is_empty()) {
            for shard in shards(others) {
                let (room, samples) = (self.key, self.sum.clone());
                let sum = MixPeer::Sum { room, shard: turn.shard, tick, samples };
                turn.stats.sums_sent += u64::from(turn.tell(shard, sum));
            }
        }
        // Who left the room's shards since the rank was fixed sends nothing more.
        let waiting = involved & self.layout.talking & !here;
        let packets = !self.listeners.is_empty();
        self.open = Open { waiting, packets, rank: ranks && at_home && !alone };
        if !packets {
            self.gather.clear();
            self.forget_sums(tick, turn.stats);
        }
    }

    /// Ranks the tracks of this shard for `tick`; returns the shards that have a part in it, with
    /// those where somebody fades out.
    fn apply_rank(&mut self, tick: u64) -> u64 {
        let mut involved = self.rank.shards;
        if let Some((_, rank)) = self.next_rank.take_if(|(from, _)| *from <= tick) {
            let before = std::mem::replace(&mut self.rank, rank);
            involved |= rank.shards;
            for key in before.tracks.into_iter().flatten().filter(|key| !rank.has(*key)) {
                if let Some(track) = self.tracks.get_mut(&key) {
                    track.rank(false, true);
                }
            }
        }
        // In every tick: a track may have been silenced, or have come again, since.
        for key in self.rank.tracks.iter().flatten() {
            if let Some(track) = self.tracks.get_mut(key) {
                track.rank(true, false);
            }
        }
        involved
    }

    /// Home: fixes who is heard from the tick after `tick` on, and tells the others.
    fn fix_rank(&mut self, tick: u64, turn: &mut Turn<'_>) {
        self.candidates.clear();
        for (key, track) in &self.tracks {
            if let Some(dbov) = track.audible() {
                self.candidates.push((*key, dbov, turn.shard));
            }
        }
        let talking = self.layout.talking;
        for (shard, top) in self.remote.iter().filter(|(shard, _)| talking & bit(**shard) != 0) {
            self.candidates.extend(top.iter().flatten().map(|(key, dbov)| (*key, *dbov, *shard)));
        }
        let Hear::Loudest(count) = self.layout.hear else { return };
        let count = usize::from(count).min(MAX_LOUDEST);
        let rank = self.fixed.choose(count, &mut self.candidates);
        let others = self.layout.all() & !bit(turn.shard);
        if !rank.same(&self.fixed) {
            turn.stats.ranks += 1;
            self.fixed = rank;
            self.next_rank = Some((tick + 1, rank));
            self.untold = others;
        }
        for shard in shards(self.untold & others) {
            let (room, from_tick) = (self.key, tick + 1);
            let Ranked { tracks, shards } = self.fixed;
            if turn.tell(shard, MixPeer::Rank { room, from_tick, tracks, shards }) {
                self.untold &= !bit(shard);
            }
        }
    }

    /// Tells the media thread how loud a packet must be to be of use.
    fn tell_bar(&mut self, turn: &mut Turn<'_>) {
        if self.tracks.is_empty() {
            return;
        }
        let rank = self.next_rank.map_or(self.rank, |(_, rank)| rank);
        let dbov = match self.layout.hear {
            Hear::Loudest(count) => rank.bar(count.into(), &self.levels),
            // Whoever is heard must not be cut off in a pause: only silence itself stays closed.
            Hear::Everyone => SILENT_DBOV,
        };
        let bar = Bar { room: self.key, dbov, heard: rank.tracks };
        turn.stats.packets_refused += u64::from(!turn.sink.bar(bar));
    }

    /// Elsewhere: tells home the loudest of this shard where that changed.
    fn tell_levels(&mut self, tick: u64, turn: &mut Turn<'_>) {
        let top = top(&mut self.levels);
        let (room, shard) = (self.key, turn.shard);
        // The levels are of what came before this tick began.
        let tick = tick.saturating_sub(1);
        if (self.told != Some(top) || !self.answered)
            && turn.tell(self.layout.home, MixPeer::Levels { room, shard, tick, top })
        {
            self.told = Some(top);
        }
    }

    /// The sum of the heard tracks of this shard.
    fn sum_up(&mut self, now: Instant, stats: &mut MixStats) {
        self.sum.fill(0.0);
        self.since = None;
        self.heard.clear();
        self.sounding.clear();
        for (key, track) in &mut self.tracks {
            let person = track.person;
            if let Some(pcm) = track.play(now, stats) {
                self.sum.iter_mut().zip(pcm).for_each(|(sum, x)| *sum += x);
                self.sounding.push((person, *key));
                let since = now.checked_sub(track.delay());
                self.since = self.since.map_or(since, |first| Some(first.min(since?)));
            }
        }
        self.sounding.sort_unstable();
        self.heard.extend(self.sounding.iter().map(|(person, _)| *person));
        self.heard.dedup();
    }

    /// What of the second half of `tick` can be done: all where it is `over`, packets too where
    /// all sums are there.
    pub(crate) fn settle(&mut self, tick: u64, over: bool, turn: &mut Turn<'_>) {
        if self.open.packets && (over || self.missing(tick) == 0) {
            self.open.packets = false;
            turn.stats.sums_late += u64::from(self.missing(tick).count_ones());
            self.give_packets(tick, turn);
        }
        if self.open.rank && over {
            self.open.rank = false;
            self.fix_rank(tick, turn);
        }
    }

    /// Forgets sums up to `tick`.
    fn forget_sums(&mut self, tick: u64, stats: &mut MixStats) {
        while let Some(sum) = self.sums.first_entry().filter(|sum| sum.key().0 <= tick) {
            sum.remove();
            stats.sums_unused += 1;
        }
    }

    /// Sums up all shards and gives each listener their packet.
    fn give_packets(&mut self, tick: u64, turn: &mut Turn<'_>) {
        while let Some(entry) = self.sums.first_entry().filter(|entry| entry.key().0 <= tick) {
            let ((of_tick, _), samples) = entry.remove_entry();
            if of_tick == tick {
                self.sum.iter_mut().zip(samples.iter()).for_each(|(sum, x)| *sum += x);
            } else {
                turn.stats.sums_unused += 1;
            }
        }
        let heard = std::mem::take(&mut self.heard);
        let get_their_own = heard.iter().filter(|person| self.listeners.contains(person));
        if get_their_own.ne(self.own.keys()) {
            self.give_gathered(turn);
        }
        self.change_streams(&heard, turn.stats);
        self.heard = heard;
        let own = self.give_own(tick, turn);
        let common = self.give_common(tick, turn);
        turn.stats.silent_ticks += u64::from(!own && !common);
    }

    /// Gives each listener who is heard the mix without their own voice; says whether any was encoded afresh.
    fn give_own(&mut self, tick: u64, turn: &mut Turn<'_>) -> bool {
        let mut fresh = false;
        let mut own = std::mem::take(&mut self.own);
        self.lacking = Lacking::default();
        for (person, stream) in &mut own {
            self.sum_without(*person);
            let Ok(encoded) = stream.next(&mut self.scratch) else {
                turn.stats.codec_failed += 1;
                self.lacking.add(*person);
                continue;
            };
            let Encoded { level_dbov, payload, .. } = encoded;
            let since = self.since;
            let longer = Longer { from_tick: tick, ticks: 1, level_dbov, since, payload };
            if !self.give(MixFor::One(*person), longer, turn) {
                self.lacking.add(*person);
            }
            turn.stats.encodes_own += u64::from(encoded.fresh);
            fresh |= encoded.fresh;
        }
        self.own = own;
        fresh
    }

    /// The sum of a tick without what one of the people said, into `scratch`.
    fn sum_without(&mut self, person: PersonKey) {
        self.scratch.copy_from_slice(&*self.sum);
        let from = self.sounding.partition_point(|(other, _)| *other < person);
        let theirs = self.sounding[from..].iter().take_while(|(other, _)| *other == person);
        for pcm in theirs.filter_map(|(_, key)| self.tracks.get(key)?.pcm()) {
            self.scratch.iter_mut().zip(pcm).for_each(|(mix, x)| *mix -= x);
        }
    }

    /// Encodes the whole sum for all who are not heard, and gives it to them, or gathers it; says whether it was encoded
    /// afresh.
    fn give_common(&mut self, tick: u64, turn: &mut Turn<'_>) -> bool {
        self.common_live = self.listeners.len() > self.own.len();
        if !self.common_live {
            self.give_gathered(turn);
            return false;
        }
        if self.common.is_none() {
            self.common = self.new_stream(turn.stats);
        }
        let Some(stream) = &mut self.common else { return false };
        let Ok(encoded) = stream.next(&mut self.sum) else {
            turn.stats.codec_failed += 1;
            return false;
        };
        if !self.gather.fits(tick, &encoded) {
            self.give_gathered(turn);
        }
        self.gather.add(tick, &encoded, self.since);
        if self.gather.ticks() >= usize::from(self.layout.packet_ticks) {
            self.give_gathered(turn);
        }
        turn.stats.encodes_common += u64::from(encoded.fresh);
        encoded.fresh
    }

    /// Gives those who are not heard what was gathered for them.
    fn give_gathered(&mut self, turn: &mut Turn<'_>) {
        match self.gather.take() {
            None => {}
            Some(Err(_)) => turn.stats.codec_failed += 1,
            Some(Ok(longer)) => match self.lacking.all() {
                Some(except) => _ = self.give(MixFor::Everyone { except }, longer, turn),
                // Somebody would hear themselves: nobody hears this.
                None => {
                    turn.stats.packets += 1;
                    turn.stats.packets_refused += 1;
                }
            },
        }
    }

    /// Hands a packet to the sink; says whether there was room.
    fn give(&self, to: MixFor, longer: Longer, turn: &mut Turn<'_>) -> bool {
        let Longer { from_tick: tick, ticks, level_dbov, since, payload } = longer;
        turn.stats.packets += 1;
        let packet = MixedPacket { room: self.key, to, tick, ticks, level_dbov, since, payload };
        let given = turn.sink.packet(packet);
        turn.stats.packets_refused += u64::from(!given);
        given
    }

    /// Gives listeners who became heard a stream of their own, which goes on as the common one did
    /// until now, and takes it from those who are heard no more.
    fn change_streams(&mut self, heard: &[PersonKey], stats: &mut MixStats) {
        let is_heard = |person: &PersonKey| heard.binary_search(person).is_ok();
        while let Some(person) = self.own.keys().find(|person| !is_heard(person)).copied() {
            let Some(stream) = self.own.remove(&person) else { break };
            // Where all were heard the common stream stood still: it goes on as theirs did.
            if !self.common_live {
                self.common_live = true;
                match &mut self.common {
                    Some(common) => {
                        stats.codec_failed += u64::from(common.continue_from(&stream).is_err());
                    }
                    None => {
                        self.common = Some(stream);
                        continue;
                    }
                }
            }
            self.keep_spare(stream);
        }
        for person in heard {
            if !self.listeners.contains(person) || self.own.contains_key(person) {
                continue;
            }
            if let Some(stream) = self.new_stream(stats) {
                self.own.insert(*person, stream);
            }
        }
    }

    /// A stream that goes on as the common one, where there is one.
    fn new_stream(&mut self, stats: &mut MixStats) -> Option<Stream> {
        let made = match (&self.common, self.spare.pop()) {
            (Some(common), Some(mut spare)) => spare.continue_from(common).map(|()| spare),
            (Some(common), None) => {
                Stream::new().and_then(|mut stream| stream.continue_from(common).map(|()| stream))
            }
            (None, _) => Stream::new(),
        };
        stats.codec_failed += u64::from(made.is_err());
        made.ok()
    }

    fn keep_spare(&mut self, stream: Stream) {
        if self.spare.len() < MAX_LOUDEST {
            self.spare.push(stream);
        }
    }
}

#[cfg(test)]
mod tests;
