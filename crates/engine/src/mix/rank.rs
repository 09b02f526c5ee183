//! Who is loudest: levels smoothed tick by tick, and the choice of those who are heard.

use super::message::MAX_LOUDEST;
use crate::command::{ShardIndex, TrackKey};
use audio::level::SILENCE_DBOV;

/// Quieter than this many −dBov is never heard.
pub(crate) const QUIETEST_DBOV: u8 = 60;
/// Ticks without a frame after which a track is silent: 200 ms.
const GONE_TICKS: u64 = 10;
/// By how many dB another must be louder to take the place of one who is heard.
const HYSTERESIS_DB: u8 = 3;
/// A frame that is so many dB louder than what came before begins speech.
const ONSET_DB: u8 = 10;

/// How far the level of somebody silent falls until a bar made of it is in force: 1 dB a tick.
const FALLS_DB: u8 = 2;

/// A shard's loudest tracks, loudest first, padded with none.
pub(crate) type Top = [Option<(TrackKey, u8)>; MAX_LOUDEST];

/// The bit of a shard in a mask.
pub(crate) fn bit(shard: ShardIndex) -> u64 {
    1_u64.checked_shl(u32::from(shard.0)).unwrap_or(0)
}

/// The shards of a mask, ascending.
pub(crate) fn shards(mask: u64) -> impl Iterator<Item = ShardIndex> {
    (0..64_u16).map(ShardIndex).filter(move |shard| mask & bit(*shard) != 0)
}

/// Loudness of one track: rises at once, falls by 1 dB a tick so that the gaps between syllables
/// do not end it.
#[derive(Debug)]
pub(crate) struct Level {
    dbov: u8,
    loudest_now: Option<u8>,
    last_frame: u64,
}

impl Default for Level {
    fn default() -> Self {
        Self { dbov: SILENCE_DBOV, loudest_now: None, last_frame: 0 }
    }
}

impl Level {
    /// A frame of this level (−dBov) came.
    pub(crate) fn frame(&mut self, dbov: u8) {
        self.loudest_now = Some(self.loudest_now.map_or(dbov, |loudest| loudest.min(dbov)));
    }

    /// Whether speech begins with a frame of this level (−dBov): it is loud enough to be heard, and
    /// much louder than all before it.
    pub(crate) fn rises_with(&self, dbov: u8) -> bool {
        let loudest = self.loudest_now.map_or(self.dbov, |loudest| loudest.min(self.dbov));
        audible(dbov).is_some() && dbov + ONSET_DB <= loudest
    }

    /// All frames before `tick` have come.
    pub(crate) fn tick(&mut self, tick: u64) {
        self.dbov = (self.dbov + 1).min(SILENCE_DBOV);
        if let Some(dbov) = self.loudest_now.take() {
            self.dbov = self.dbov.min(dbov);
            self.last_frame = tick;
        } else if tick.saturating_sub(self.last_frame) >= GONE_TICKS {
            self.dbov = SILENCE_DBOV;
        }
    }

    /// Forgets what it heard.
    pub(crate) fn silence(&mut self) {
        *self = Self { last_frame: self.last_frame, ..Self::default() };
    }

    /// The level in −dBov.
    pub(crate) fn dbov(&self) -> u8 {
        self.dbov
    }
}

/// A level in −dBov where it is loud enough to be heard.
pub(crate) fn audible(dbov: u8) -> Option<u8> {
    (dbov <= QUIETEST_DBOV).then_some(dbov)
}

/// The loudest of `levels`; reorders them.
pub(crate) fn top(levels: &mut [(TrackKey, u8)]) -> Top {
    levels.sort_unstable_by_key(|(track, dbov)| (*dbov, *track));
    let mut top = [None; MAX_LOUDEST];
    for (place, level) in top.iter_mut().zip(levels) {
        *place = Some(*level);
    }
    top
}

/// Who is heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ranked {
    /// Loudest first, padded with none.
    pub(crate) tracks: [Option<TrackKey>; MAX_LOUDEST],
    /// The shards that have one of them.
    pub(crate) shards: u64,
}

impl Ranked {
    /// Whether `track` is heard.
    pub(crate) fn has(&self, track: TrackKey) -> bool {
        self.tracks.contains(&Some(track))
    }

    /// Whether the same tracks are heard, in whatever order.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let sorted = |ranked: &Self| {
            let mut tracks = ranked.tracks;
            tracks.sort_unstable();
            tracks
        };
        self.shards == other.shards && sorted(self) == sorted(other)
    }

    /// How much louder a track counts than it is: who is heard stays before others that are less than 3 dB louder.
    fn ahead_db(&self, track: TrackKey) -> u8 {
        if self.has(track) { HYSTERESIS_DB } else { 0 }
    }

    /// The quietest level (−dBov) with which a track may come among the `count` loudest of `levels` in the next ticks: who
    /// is quieter need not be looked at.
    pub(crate) fn bar(&self, count: usize, levels: &[(TrackKey, u8)]) -> u8 {
        let count = count.clamp(1, MAX_LOUDEST);
        let mut loudest = [QUIETEST_DBOV; MAX_LOUDEST];
        // Who falls silent within these ticks holds no place.
        for (track, dbov) in levels.iter().filter(|(_, dbov)| dbov + FALLS_DB <= QUIETEST_DBOV) {
            let counts_as = dbov.saturating_sub(self.ahead_db(*track));
            let place = loudest.partition_point(|other| *other <= counts_as);
            if place < count {
                loudest[place..count].rotate_right(1);
                loudest[place] = counts_as;
            }
        }
        (loudest[count - 1] + FALLS_DB).min(QUIETEST_DBOV)
    }

    /// The `count` loudest of `candidates` (track, level, shard), which it reorders. Among equals the lower key is first.
    pub(crate) fn choose(
        &self,
        count: usize,
        candidates: &mut [(TrackKey, u8, ShardIndex)],
    ) -> Self {
        candidates.sort_unstable_by_key(|(track, dbov, _)| {
            (i16::from(*dbov) - i16::from(self.ahead_db(*track)), *track)
        });
        let mut chosen = Self::default();
        for (place, (track, _, shard)) in
            chosen.tracks.iter_mut().zip(candidates.iter()).take(count)
        {
            *place = Some(*track);
            chosen.shards |= bit(*shard);
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: ShardIndex = ShardIndex(0);

    fn chosen(now: &Ranked, count: usize, levels: &[(u64, u8)]) -> Vec<u64> {
        let mut all: Vec<_> = levels.iter().map(|(k, l)| (TrackKey(*k), *l, HERE)).collect();
        now.choose(count, &mut all).tracks.iter().flatten().map(|track| track.0).collect()
    }

    #[test]
    fn a_level_rises_at_once_and_falls_slowly() {
        let mut level = Level::default();
        assert_eq!(audible(level.dbov()), None);
        level.frame(127);
        level.frame(20);
        level.tick(100);
        assert_eq!(audible(level.dbov()), Some(20));
        for tick in 101..=109 {
            level.frame(90);
            level.tick(tick);
        }
        assert_eq!(audible(level.dbov()), Some(29));
        (110..=118).for_each(|tick| level.tick(tick));
        assert_eq!(audible(level.dbov()), Some(38), "180 ms without a frame");
        level.tick(119);
        assert_eq!(audible(level.dbov()), None, "200 ms");
        level.frame(61);
        level.tick(120);
        assert_eq!(audible(level.dbov()), None, "too quiet");
    }

    #[test]
    fn speech_begins_with_what_is_much_louder_than_before() {
        let mut level = Level::default();
        assert!(!level.rises_with(61), "too quiet");
        assert!(level.rises_with(60) && level.rises_with(30));
        level.frame(30);
        assert!(!level.rises_with(25), "in the same tick");
        level.tick(1);
        assert!(!level.rises_with(21) && level.rises_with(20));
        // A pause of ten ticks with packets, and then noise.
        for tick in 2..12 {
            level.frame(127);
            level.tick(tick);
        }
        assert!(level.rises_with(30));
        for tick in 12..200 {
            level.frame(55);
            level.tick(tick);
        }
        assert!(!level.rises_with(50) && level.rises_with(45));
    }

    #[test]
    fn equals_do_not_flip_and_louder_ones_take_over() {
        let none = Ranked::default();
        assert_eq!(chosen(&none, 2, &[(9, 30), (7, 30), (8, 30)]), [7, 8]);
        let now = Ranked {
            tracks: {
                let mut t = none.tracks;
                t[0] = Some(TrackKey(9));
                t
            },
            shards: 1,
        };
        assert_eq!(chosen(&now, 1, &[(7, 28), (9, 30)]), [9], "2 dB louder is not enough");
        assert_eq!(chosen(&now, 1, &[(7, 26), (9, 30)]), [7], "4 dB is");
        assert_eq!(chosen(&now, 3, &[]), [0; 0]);
    }

    #[test]
    fn whoever_may_be_chosen_reaches_the_bar() {
        let mut seed = 3_u64;
        let mut below = |end: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % end
        };
        let (mut closed, mut rounds) = (0, 0);
        for _ in 0..5_000 {
            let (count, people) = (1 + below(8) as usize, 1 + below(20));
            let mut levels: Vec<_> =
                (0..people).map(|n| (TrackKey(n), 20 + below(60) as u8, HERE)).collect();
            levels.retain(|one| audible(one.1).is_some());
            let now = Ranked::default().choose(count, &mut levels);
            let known: Vec<_> = levels.iter().map(|(track, dbov, _)| (*track, *dbov)).collect();
            let bar = now.bar(count, &known);
            // Two ticks later everybody has fallen silent, and one of those who are not heard says something.
            let says = (TrackKey(below(people)), 20 + below(60) as u8, HERE);
            if now.has(says.0) {
                continue;
            }
            levels.retain(|one| one.0 != says.0);
            levels.iter_mut().for_each(|one| one.1 += FALLS_DB);
            levels.push(says);
            levels.retain(|one| audible(one.1).is_some());
            let chosen = now.choose(count, &mut levels).has(says.0);
            assert!(!chosen || says.1 <= bar, "{says:?} is chosen below {bar}");
            (closed, rounds) = (closed + u32::from(says.1 > bar), rounds + 1);
        }
        assert!(closed * 3 > rounds, "{closed} of {rounds} stay closed");
        let all_alike: Vec<_> = (0..9).map(|n| (TrackKey(n), 30)).collect();
        let mut now = Ranked::default();
        now.tracks[..3].copy_from_slice(&[1, 2, 3].map(|n| Some(TrackKey(n))));
        assert_eq!(
            now.bar(3, &all_alike),
            29,
            "who is as loud as those who are heard stays closed"
        );
        assert_eq!(now.bar(4, &all_alike), 32, "if a place is left they do not");
        assert_eq!(now.bar(3, &all_alike[..2]), QUIETEST_DBOV);
    }

    #[test]
    fn sameness_knows_no_order() {
        let (mut one, mut other) = (Ranked::default(), Ranked::default());
        (one.tracks[0], one.tracks[1]) = (Some(TrackKey(1)), Some(TrackKey(2)));
        (other.tracks[0], other.tracks[1]) = (Some(TrackKey(2)), Some(TrackKey(1)));
        assert!(one.same(&other));
        other.shards = 2;
        assert!(!one.same(&other));
    }

    #[test]
    fn masks_hold_64_shards() {
        assert_eq!(shards(0b101).collect::<Vec<_>>(), [ShardIndex(0), ShardIndex(2)]);
        assert_eq!((bit(ShardIndex(63)), bit(ShardIndex(64))), (1 << 63, 0));
    }
}
