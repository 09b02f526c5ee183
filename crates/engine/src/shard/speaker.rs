//! Who speaks, by the levels that publishers send along (RFC 6464), read after authentication.

use crate::command::{PersonKey, Report, RoomKey, ShardIndex};
use crate::room::home_of;
use std::collections::BTreeMap;

/// Louder than this many −dBov counts as voice.
const VOICE_DBOV: u8 = 50;
/// Voice packets less silent ones that make a speaker.
const SPEAKS_FROM: i32 = 8;
/// As many silent packets (20 ms each) it takes to fall silent from full.
const FULL: i32 = 40;

/// Loudness of one audio track.
#[derive(Debug, Default)]
pub(crate) struct Voice {
    score: i32,
    speaking: bool,
    level_dbov: f32,
}

impl Voice {
    /// A packet came with this level.
    pub(crate) fn heard(&mut self, level_dbov: u8) {
        let loud = level_dbov < VOICE_DBOV;
        self.score = (self.score + if loud { 3 } else { -1 }).clamp(0, FULL);
        if loud {
            let before = if self.level_dbov == 0.0 { 127.0 } else { self.level_dbov };
            self.level_dbov = before + (f32::from(level_dbov) - before) * 0.2;
        }
        self.speaking = if self.speaking { self.score > 0 } else { self.score >= SPEAKS_FROM };
    }

    /// The smoothed level of who speaks, in −dBov; none of who is silent.
    pub(crate) fn level_dbov(&self) -> Option<u8> {
        self.speaking.then_some(self.level_dbov as u8)
    }
}

/// People who speak, loudest first, with their level in −dBov.
type Speaking = Vec<(PersonKey, u8)>;

/// Who speaks in each room: told by the room's home shard, which the others tell.
#[derive(Debug, Default)]
pub(crate) struct Speakers {
    /// Who speaks, by room and shard.
    now: BTreeMap<(RoomKey, ShardIndex), Speaking>,
    /// Whom this shard told for itself: to the room, or to its home.
    told: BTreeMap<RoomKey, Vec<PersonKey>>,
    here: BTreeMap<RoomKey, Speaking>,
}

impl Speakers {
    /// Who speaks on this shard now: room, person, level; any order.
    pub(crate) fn spoke(&mut self, mut speaking: Vec<(RoomKey, PersonKey, u8)>) {
        speaking.sort_unstable_by_key(|(room, person, level)| (*room, *level, *person));
        self.here.clear();
        for (room, person, level) in speaking {
            self.here.entry(room).or_default().push((person, level));
        }
    }

    /// Who speaks on another shard.
    pub(crate) fn elsewhere(&mut self, room: RoomKey, from: ShardIndex, speakers: Speaking) {
        if speakers.is_empty() {
            self.now.remove(&(room, from));
        } else {
            self.now.insert((room, from), speakers);
        }
    }

    /// Reports the rooms in which it changed who speaks; those whose home is another shard go to
    /// `home` instead.
    pub(crate) fn tell(
        &mut self,
        index: ShardIndex,
        shards: u16,
        reports: &mut Vec<Report>,
        mut home: impl FnMut(ShardIndex, RoomKey, Speaking),
    ) {
        let mut rooms = std::mem::take(&mut self.here);
        for ((room, _), speakers) in &self.now {
            rooms.entry(*room).or_default().extend_from_slice(speakers);
        }
        for room in self.told.keys() {
            rooms.entry(*room).or_default();
        }
        for (room, mut speakers) in rooms {
            speakers.sort_unstable_by_key(|(person, level)| (*level, *person));
            let mut people: Vec<PersonKey> = speakers.iter().map(|(person, _)| *person).collect();
            people.sort_unstable();
            if self.told.get(&room).map_or(people.is_empty(), |told| *told == people) {
                continue;
            }
            if people.is_empty() {
                self.told.remove(&room);
            } else {
                self.told.insert(room, people);
            }
            match home_of(room, shards) {
                at if at == index => reports.push(Report::Speakers { room, speakers }),
                at => home(at, room, speakers),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_click_is_no_speech_and_a_pause_is_no_silence() {
        let mut voice = Voice::default();
        voice.heard(10);
        assert_eq!(voice.level_dbov(), None);
        (0..10).for_each(|_| voice.heard(20));
        assert!(voice.level_dbov().is_some_and(|level| (18..40).contains(&level)));
        (0..15).for_each(|_| voice.heard(127));
        assert!(voice.level_dbov().is_some(), "300 ms of pause");
        (0..40).for_each(|_| voice.heard(127));
        assert_eq!(voice.level_dbov(), None);
    }

    #[test]
    fn only_changes_are_told() {
        let (room, ada, min) = (RoomKey(1), PersonKey(1), PersonKey(2));
        let mut speakers = Speakers::default();
        let mut reports = Vec::new();
        let mut tell = |speakers: &mut Speakers, here| {
            speakers.spoke(here);
            speakers.tell(ShardIndex(1), 2, &mut reports, |_, _, _| panic!("home is here"));
            std::mem::take(&mut reports)
        };
        let told = tell(&mut speakers, vec![(room, ada, 30), (room, min, 20)]);
        assert_eq!(told, [Report::Speakers { room, speakers: vec![(min, 20), (ada, 30)] }]);
        assert_eq!(tell(&mut speakers, vec![(room, ada, 10), (room, min, 20)]), []);
        speakers.elsewhere(room, ShardIndex(0), vec![(PersonKey(7), 5)]);
        let told = tell(&mut speakers, vec![(room, ada, 10)]);
        let both = vec![(PersonKey(7), 5), (ada, 10)];
        assert_eq!(told, [Report::Speakers { room, speakers: both }]);
        speakers.elsewhere(room, ShardIndex(0), vec![]);
        assert_eq!(tell(&mut speakers, vec![]), [Report::Speakers { room, speakers: vec![] }]);
        assert_eq!(tell(&mut speakers, vec![]), []);
    }

    #[test]
    fn the_home_shard_is_told_by_the_others() {
        let (room, ada) = (RoomKey(1), PersonKey(1));
        let mut speakers = Speakers::default();
        let (mut reports, mut told) = (Vec::new(), Vec::new());
        for here in [vec![(room, ada, 30)], vec![(room, ada, 20)], vec![]] {
            speakers.spoke(here);
            speakers.tell(ShardIndex(0), 2, &mut reports, |home, _, who| told.push((home, who)));
        }
        assert_eq!(reports, []);
        assert_eq!(told, [(ShardIndex(1), vec![(ada, 30)]), (ShardIndex(1), vec![])]);
    }
}
