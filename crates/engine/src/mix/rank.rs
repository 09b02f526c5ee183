//! Who is loudest: levels smoothed tick by tick, and the choice of those who are heard.

use super::message::MAX_LOUDEST;
use crate::command::{ShardIndex, TrackKey};
use audio::level::SILENCE_DBOV;

/// Quieter than this many −dBov is never heard.
const QUIETEST_DBOV: u8 = 60;
/// Ticks without a frame after which a track is silent: 200 ms.
const GONE_TICKS: u64 = 10;
/// By how many dB another must be louder to take the place of one who is heard.
const HYSTERESIS_DB: u8 = 3;

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

    /// The `count` loudest of `candidates` (track, level, shard), which it reorders. Who is heard
    /// now stays before others that are less than 3 dB louder; among equals the lower key is first.
    pub(crate) fn choose(
        &self,
        count: usize,
        candidates: &mut [(TrackKey, u8, ShardIndex)],
    ) -> Self {
        candidates.sort_unstable_by_key(|(track, dbov, _)| {
            let ahead = if self.has(*track) { HYSTERESIS_DB } else { 0 };
            (i16::from(*dbov) - i16::from(ahead), *track)
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
