//! Who speaks, by the levels that publishers send along (RFC 6464), read after authentication, or by what was measured if they send
//! none ([`super::meter`]).

use crate::command::{PersonKey, Report, RoomKey, ShardIndex};
use crate::limits::{CLAIM_DOUBTED, CLAIM_SAMPLED, SPEAKER_INTERVAL};
use crate::room::home_of;
use rtp::extended::ANOTHER_STREAM;
use std::collections::BTreeMap;
use std::time::Instant;

/// Louder than this many −dBov counts as voice.
const VOICE_DBOV: u8 = 50;
/// Score from which somebody speaks. A loud packet counts 3, a silent one −1.
const SPEAKS_FROM: i32 = 8;
/// Highest score: so many silent packets (20 ms each) end any speech.
const FULL: i32 = 40;

/// Length of a usual packet (20 ms), and of the longest that Opus has (120 ms), in ticks of 48 kHz.
const PACKET: u32 = 960;
const LONGEST: u32 = 6 * PACKET;

/// What may be wrong with a voice's claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// They are louder than its sound.
    Loud,
    /// They are silent although its sound is not.
    Silent,
}

/// Loudness of one audio track.
#[derive(Debug, Default)]
pub(crate) struct Voice {
    score: i32,
    speaking: bool,
    level_dbov: f32,
    /// The first loud packet since all was silent, and the one by which it was known as speech.
    speech: (u64, u64),
    /// Number and timestamp of the newest packet.
    last: Option<(u64, u32)>,
    /// When its sound was last measured.
    sampled: Option<Instant>,
    /// By how many dB its levels count less, and until when: they were false.
    doubt: Option<(u8, Instant)>,
    /// When it last claimed to be loud.
    claimed_loud: Option<Instant>,
    /// It was loud while it claimed to be silent, and has not claimed to be loud since: its claims say nothing.
    denied: bool,
}

impl Voice {
    /// Whether its sound is to be measured from now on. It was not lately. One that counts as speech may be too quiet.
    /// One that did not claim to be loud for long may be too loud.
    pub(crate) fn begin_sample(&mut self, now: Instant, doubt: Doubt) -> bool {
        let ago = |at: Option<Instant>, least| {
            at.is_none_or(|at| now.saturating_duration_since(at) >= least)
        };
        let asked = match doubt {
            Doubt::Loud => self.speaking,
            Doubt::Silent => ago(self.claimed_loud, CLAIM_DOUBTED),
        };
        let begins = asked && ago(self.sampled, CLAIM_SAMPLED);
        if begins {
            self.sampled = Some(now);
        }
        begins
    }

    /// A packet came with this level (−dBov), as its sender claims. Says whether that tells how loud it is.
    pub(crate) fn tells(&mut self, claimed_dbov: u8, now: Instant) -> bool {
        if claimed_dbov < VOICE_DBOV {
            (self.claimed_loud, self.denied) = (Some(now), false);
        }
        !self.denied
    }

    /// It has this level (−dBov) while it claims to be silent: if that is speech, its claims say nothing.
    pub(crate) fn deny(&mut self, level_dbov: u8) {
        self.denied = level_dbov < VOICE_DBOV;
    }

    /// Its levels are false: they count `excess_db` less until then, and the present speech ends.
    pub(crate) fn doubt(&mut self, excess_db: u8, until: Instant) {
        (self.score, self.speaking) = (0, false);
        self.doubt = Some((excess_db, until));
    }

    /// What a claimed level counts as.
    pub(crate) fn believed(&mut self, level_dbov: u8, now: Instant) -> u8 {
        self.doubt = self.doubt.filter(|(_, until)| now < *until);
        self.doubt.map_or(level_dbov, |(excess_db, _)| level_dbov.saturating_add(excess_db))
    }

    /// The packet with this unwrapped sequence number and this timestamp came with this level. Says
    /// whether speech began with it.
    pub(crate) fn heard(&mut self, level_dbov: u8, index: u64, timestamp: u32) -> bool {
        let loud = level_dbov < VOICE_DBOV;
        if self.last.is_some_and(|(newest, _)| index >= newest + ANOTHER_STREAM) {
            // Timestamps of a new stream say nothing about the time since the old one.
            let Self { sampled, doubt, claimed_loud, denied, .. } = *self;
            *self = Self { sampled, doubt, claimed_loud, denied, ..Self::default() };
        }
        let passed = self.last.map_or(PACKET, |(_, last)| timestamp.wrapping_sub(last));
        if passed > u32::MAX / 2 {
            return false; // It was overtaken.
        }
        self.last = Some((index, timestamp));
        // Time without packets was silent (discontinuous transmission).
        if passed > LONGEST {
            let silent = (passed / PACKET - 1).min(FULL as u32) as i32;
            self.score = (self.score - silent).max(0);
        }
        if loud && self.score == 0 {
            self.speech.0 = index;
        }
        self.score = (self.score + if loud { 3 } else { -1 }).clamp(0, FULL);
        if loud {
            let before = if self.level_dbov == 0.0 { 127.0 } else { self.level_dbov };
            self.level_dbov = before + (f32::from(level_dbov) - before) * 0.2;
        }
        let before = self.speaking;
        self.speaking = if before { self.score > 0 } else { self.score >= SPEAKS_FROM };
        let begins = self.speaking && !before;
        if begins {
            self.speech.1 = index;
        }
        begins
    }

    /// The smoothed level in −dBov while they speak; None while they are silent.
    pub(crate) fn level_dbov(&self) -> Option<u8> {
        self.speaking.then_some(self.level_dbov as u8)
    }

    /// The packet with which the present speech began, and the packet with which it was known as speech.
    pub(crate) fn speech(&self) -> Option<(u64, u64)> {
        self.speaking.then_some(self.speech)
    }
}

/// People who speak, loudest first, with their level in −dBov.
type Speaking = Vec<(PersonKey, u8)>;

/// Who speaks in each room. The other shards tell the room's home shard, which tells the room.
#[derive(Debug, Default)]
pub(crate) struct Speakers {
    /// Who speaks on other shards, by room and shard.
    now: BTreeMap<(RoomKey, ShardIndex), Speaking>,
    /// Whom this shard told of last, and when: to the room, or to its home shard.
    told: BTreeMap<RoomKey, (Vec<PersonKey>, Instant)>,
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

    /// Of how many rooms something is kept.
    pub(crate) fn kept(&self) -> usize {
        self.now.len() + self.told.len()
    }

    /// Who speaks on another shard.
    pub(crate) fn elsewhere(&mut self, room: RoomKey, from: ShardIndex, speakers: Speaking) {
        if speakers.is_empty() {
            self.now.remove(&(room, from));
        } else {
            self.now.insert((room, from), speakers);
        }
    }

    /// Reports the rooms whose speakers changed; those whose home is another shard go to `home`
    /// instead. Says whether a room must wait because its last report was too recent.
    pub(crate) fn tell(
        &mut self,
        (index, shards): (ShardIndex, u16),
        now: Instant,
        reports: &mut Vec<Report>,
        mut home: impl FnMut(ShardIndex, RoomKey, Speaking),
    ) -> bool {
        let mut rooms = std::mem::take(&mut self.here);
        for ((room, _), speakers) in &self.now {
            rooms.entry(*room).or_default().extend_from_slice(speakers);
        }
        for room in self.told.keys() {
            rooms.entry(*room).or_default();
        }
        let mut waits = false;
        for (room, mut speakers) in rooms {
            speakers.sort_unstable_by_key(|(person, level)| (*level, *person));
            let mut people: Vec<PersonKey> = speakers.iter().map(|(person, _)| *person).collect();
            people.sort_unstable();
            let told = self.told.get(&room);
            let lately = told.is_some_and(|(_, at)| now < *at + SPEAKER_INTERVAL);
            if told.map_or(people.is_empty(), |(told, _)| *told == people) {
                if people.is_empty() && !lately {
                    self.told.remove(&room);
                }
                continue;
            }
            if lately {
                waits = true;
                continue;
            }
            self.told.insert(room, (people, now));
            match home_of(room, shards) {
                at if at == index => reports.push(Report::Speakers { room, speakers }),
                at => home(at, room, speakers),
            }
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// What a voice makes of packets in a row, of these levels.
    fn say(voice: &mut Voice, first: u64, levels: &[u8]) -> Vec<u64> {
        let packets = (first..).zip(levels);
        let begins = packets.filter(|(n, level)| voice.heard(**level, *n, *n as u32 * PACKET));
        begins.map(|(n, _)| n).collect()
    }

    #[test]
    fn a_click_is_no_speech_and_a_pause_is_no_silence() {
        let mut voice = Voice::default();
        assert_eq!(say(&mut voice, 0, &[10]), []);
        assert_eq!(voice.level_dbov(), None);
        assert_eq!(say(&mut voice, 1, &[20; 10]), [2]);
        assert!(voice.level_dbov().is_some_and(|level| (18..40).contains(&level)));
        assert_eq!(say(&mut voice, 11, &[127; 15]), []);
        assert!(voice.level_dbov().is_some(), "300 ms of pause");
        say(&mut voice, 26, &[127; 40]);
        assert_eq!(voice.level_dbov(), None);
    }

    #[test]
    fn speech_begins_with_its_first_loud_packet() {
        let mut voice = Voice::default();
        say(&mut voice, 0, &[127; 50]);
        assert_eq!(voice.speech(), None);
        assert_eq!(say(&mut voice, 50, &[30, 30, 127, 30, 30]), [53]);
        assert_eq!(voice.speech(), Some((50, 53)));
        say(&mut voice, 55, &[127; 50]);
        assert_eq!(say(&mut voice, 105, &[127, 30, 30, 30]), [108]);
        assert_eq!(voice.speech(), Some((106, 108)));
    }

    #[test]
    fn what_is_not_sent_is_silence() {
        let mut voice = Voice::default();
        say(&mut voice, 0, &[20; 50]);
        assert!(voice.level_dbov().is_some());
        // Comfort noise every 400 ms, with sequence numbers that follow each other.
        voice.heard(127, 50, 50 * PACKET + 20 * PACKET);
        assert!(voice.level_dbov().is_some(), "400 ms of pause");
        voice.heard(127, 51, 50 * PACKET + 40 * PACKET);
        assert_eq!(voice.level_dbov(), None);
        assert!(!voice.heard(20, 49, 49 * PACKET), "overtaken");
    }

    /// What a shard tells by and by.
    struct Telling {
        speakers: Speakers,
        now: Instant,
        reports: Vec<Report>,
    }

    impl Telling {
        /// What is told of who speaks here, so long after the last time, and whether some of it waits.
        fn tell(&mut self, ms: u64, here: Speaking) -> (Vec<Report>, bool) {
            self.now += Duration::from_millis(ms);
            self.speakers.spoke(here.into_iter().map(|(who, n)| (RoomKey(1), who, n)).collect());
            let (now, reports) = (self.now, &mut self.reports);
            let here = (ShardIndex(1), 2);
            let home = |_, _, _| panic!("home is here");
            let waits = self.speakers.tell(here, now, reports, home);
            (std::mem::take(&mut self.reports), waits)
        }
    }

    #[test]
    fn only_changes_are_told_at_once_and_not_more_than_five_a_second() {
        let (room, ada, min) = (RoomKey(1), PersonKey(1), PersonKey(2));
        let now = Instant::now();
        let mut telling = Telling { speakers: Speakers::default(), now, reports: Vec::new() };
        let report = |speakers| (vec![Report::Speakers { room, speakers }], false);
        let told = telling.tell(0, vec![(ada, 30), (min, 20)]);
        assert_eq!(told, report(vec![(min, 20), (ada, 30)]));
        assert_eq!(telling.tell(10, vec![(ada, 10), (min, 20)]), (vec![], false));
        telling.speakers.elsewhere(room, ShardIndex(0), vec![(PersonKey(7), 5)]);
        assert_eq!(telling.tell(10, vec![(ada, 10)]), (vec![], true), "it must wait");
        assert_eq!(telling.tell(180, vec![(ada, 10)]), report(vec![(PersonKey(7), 5), (ada, 10)]));
        telling.speakers.elsewhere(room, ShardIndex(0), vec![]);
        assert_eq!(telling.tell(200, vec![]), report(vec![]));
        assert_eq!(telling.tell(10, vec![(ada, 10)]), (vec![], true), "silence counts, too");
        assert_eq!(telling.tell(190, vec![(ada, 10)]), report(vec![(ada, 10)]));
        assert_eq!(telling.tell(200, vec![]), report(vec![]));
        assert_eq!(telling.tell(200, vec![]), (vec![], false));
        assert!(telling.speakers.told.is_empty(), "nothing stays");
    }

    #[test]
    fn the_home_shard_is_told_by_the_others() {
        let (room, ada) = (RoomKey(1), PersonKey(1));
        let mut speakers = Speakers::default();
        let (mut reports, mut told) = (Vec::new(), Vec::new());
        let mut now = Instant::now();
        for here in [vec![(room, ada, 30)], vec![(room, ada, 20)], vec![]] {
            speakers.spoke(here);
            now += SPEAKER_INTERVAL;
            let home = |home, _, who| told.push((home, who));
            speakers.tell((ShardIndex(0), 2), now, &mut reports, home);
        }
        assert_eq!(reports, []);
        assert_eq!(told, [(ShardIndex(1), vec![(ada, 30)]), (ShardIndex(1), vec![])]);
    }
}
