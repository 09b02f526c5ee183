//! Who speaks, by the levels that publishers send along (RFC 6464), read after authentication.

use crate::command::{PersonKey, Report, RoomKey};
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

/// Who spoke in each room when it was last told.
#[derive(Debug, Default)]
pub(crate) struct Speakers {
    told: BTreeMap<RoomKey, Vec<PersonKey>>,
}

impl Speakers {
    /// Compares who speaks now (`speaking`: room, person, level; any order) with what was told,
    /// and reports the rooms in which that changed.
    pub(crate) fn changes(
        &mut self,
        mut speaking: Vec<(RoomKey, PersonKey, u8)>,
        reports: &mut Vec<Report>,
    ) {
        speaking.sort_unstable_by_key(|(room, person, level)| (*room, *level, *person));
        let mut rooms: BTreeMap<RoomKey, Vec<(PersonKey, u8)>> = BTreeMap::new();
        for (room, person, level) in speaking {
            rooms.entry(room).or_default().push((person, level));
        }
        for room in self.told.keys() {
            rooms.entry(*room).or_default();
        }
        for (room, speakers) in rooms {
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
            reports.push(Report::Speakers { room, speakers });
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
        speakers.changes(vec![(room, ada, 30), (room, min, 20)], &mut reports);
        let speakers_now = vec![(min, 20), (ada, 30)];
        assert_eq!(reports, [Report::Speakers { room, speakers: speakers_now }]);
        speakers.changes(vec![(room, ada, 10), (room, min, 20)], &mut reports);
        assert_eq!(reports.len(), 1, "the same people");
        speakers.changes(vec![], &mut reports);
        assert_eq!(reports[1], Report::Speakers { room, speakers: vec![] });
        speakers.changes(vec![], &mut reports);
        assert_eq!(reports.len(), 2);
    }
}
