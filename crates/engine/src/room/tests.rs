//! A room's rules, and that it is equal to a room that counts everything anew.

mod whole;

use super::*;
use crate::command::Shown;
use rtp::negotiated::{Codec, Extensions, Layer, StreamIds};
use std::fmt::Debug;
use whole::Whole;

/// A line with these layers.
pub(super) fn line_with(layers: Vec<Layer>) -> Line {
    Line { layers, ..line("v".into(), Codec::Vp8, Direction::Receive) }
}

/// A track on a line.
pub(super) fn published(mid: &str, key: TrackKey) -> Published {
    Published {
        mid: mid.into(),
        name: String::new(),
        key,
        opaque: false,
        music: false,
        layers: Vec::new(),
    }
}

fn line(mid: String, codec: Codec, direction: Direction) -> Line {
    Line {
        mid,
        direction,
        codec,
        payload_type: 96,
        rtx_payload_type: None,
        red_payload_type: None,
        red_first: false,
        extensions: Extensions::default(),
        local: Some(StreamIds { ssrc: 1, rtx: None }),
        remote: None,
        layers: Vec::new(),
        nack: false,
        transport_cc: false,
        reduced_size: true,
    }
}

/// A person's lines: sound and picture sent, and some slots of each.
fn lines(audio_slots: usize, video_slots: usize) -> Negotiated {
    let mut lines = vec![
        line("a".into(), Codec::Opus, Direction::Receive),
        line("v".into(), Codec::Vp8, Direction::Receive),
    ];
    let audio = (0..audio_slots).map(|i| (format!("a{i}"), Codec::Opus));
    let video = (0..video_slots).map(|i| (format!("v{i}"), Codec::Vp8));
    let slots = audio.chain(video).map(|(mid, codec)| line(mid, codec, Direction::Send));
    lines.extend(slots);
    Negotiated { lines }
}

fn room(people: u64, audio_slots: usize, video_slots: usize) -> (Room, Effects) {
    let limits = RoomLimits { people: 10, roster: 10, audio_slots: 4, video_slots: 20 };
    let setup = RoomSetup::new(Topology::Sfu, Topology::Sfu, limits);
    let mut room = Room::new(RoomKey(1), setup);
    let mut effects = Effects::default();
    for number in 1..=people {
        let person = PersonKey(number);
        room.join(person, String::new(), ShardIndex(0), &mut effects).unwrap();
        let track = |mid: &str, key| published(mid, TrackKey(key));
        let tracks = [track("a", number * 10), track("v", number * 10 + 1)];
        let lines = lines(audio_slots, video_slots);
        room.negotiated(person, &lines, &tracks, &mut effects).unwrap();
    }
    (room, effects)
}

fn shown(room: &Room, person: u64, kind: Kind) -> Vec<u64> {
    let contents = room.person(PersonKey(person)).unwrap().slot_contents(kind);
    let mut tracks: Vec<u64> = contents.filter_map(|(_, track)| Some(track?.0)).collect();
    tracks.sort_unstable();
    tracks
}

#[test]
fn who_speaks_takes_the_slot_of_who_was_silent_longest() {
    let (mut room, _) = room(5, 2, 2);
    assert_eq!(shown(&room, 1, Kind::Audio), [20, 30], "the first who came");
    let speak = |room: &mut Room, who: u64| {
        let speakers = vec![(PersonKey(who), 20)];
        room.report(Report::Speakers { room: RoomKey(1), speakers }, &mut Effects::default());
    };
    speak(&mut room, 3);
    speak(&mut room, 5);
    assert_eq!(shown(&room, 1, Kind::Audio), [30, 50], "2 never spoke");
    assert_eq!(shown(&room, 1, Kind::Video), [31, 51]);
    assert_eq!(shown(&room, 5, Kind::Audio), [20, 30], "nobody gets his own voice");
    speak(&mut room, 4);
    assert_eq!(shown(&room, 1, Kind::Audio), [40, 50], "3 spoke before 5");
}

#[test]
fn nobody_who_speaks_takes_a_pinned_slot() {
    let (mut room, _) = room(5, 2, 2);
    let viewer = PersonKey(1);
    let pin = |room: &mut Room, mid: &str, pinned| {
        let shown = [(mid.to_owned(), Shown { pixels: 1, pinned: Some(pinned) })];
        let mut effects = Effects::default();
        room.show(viewer, &shown, &mut effects).map(|()| effects.commands.len())
    };
    let speak = |room: &mut Room, who: u64| {
        let speakers = vec![(PersonKey(who), 20)];
        room.report(Report::Speakers { room: RoomKey(1), speakers }, &mut Effects::default());
    };
    assert_eq!(shown(&room, 1, Kind::Video), [21, 31]);
    assert_eq!(pin(&mut room, "v0", true), Ok(1), "its shard is told");
    assert_eq!(pin(&mut room, "a0", true), Ok(0), "sound is not pinned");
    assert_eq!(pin(&mut room, "v9", true), Err(Refusal::UnknownSlot));
    for who in [4, 5] {
        speak(&mut room, who);
        assert_eq!(shown(&room, 1, Kind::Video), [21, who * 10 + 1], "2 was silent longest");
        assert!(shown(&room, 1, Kind::Audio).contains(&(who * 10)));
    }
    assert_eq!(
        pin(&mut room, "v1", true),
        Ok(2),
        "4 was to have this slot: it keeps what it shows"
    );
    assert_eq!(shown(&room, 1, Kind::Video), [21, 31]);
    speak(&mut room, 4);
    assert_eq!(shown(&room, 1, Kind::Video), [21, 31]);
    pin(&mut room, "v0", false).unwrap();
    speak(&mut room, 4);
    assert_eq!(shown(&room, 1, Kind::Video), [31, 41], "the same speaker has it at once");
}

/// An empty room of mixed sound that tells two people by name.
fn hall(video: Topology) -> Room {
    let limits = RoomLimits { people: 10, roster: 2, audio_slots: 4, video_slots: 20 };
    Room::new(RoomKey(1), RoomSetup::new(Topology::Mcu, video, limits))
}

#[test]
fn in_large_rooms_the_packets_of_a_mix_grow_longer() {
    let ticks = |packet: MixPacket| [2, 200, 201, 999, 1000].map(|people| packet.ticks(people));
    assert_eq!(ticks(MixPacket::Auto), [1, 1, 2, 2, 3]);
    assert_eq!(ticks(MixPacket::Ms20), [1; 5]);
    assert_eq!(ticks(MixPacket::Ms60), [3; 5]);
    let limits = RoomLimits { people: 300, roster: 2, audio_slots: 4, video_slots: 0 };
    let setup = RoomSetup::new(Topology::Mcu, Topology::None, limits);
    let mut room = Room::new(RoomKey(1), setup);
    let mut told = Vec::new();
    let mut note = |effects: Effects| {
        told.extend(effects.mixers.iter().filter_map(|(_, command)| match command {
            MixCommand::Room { packet_ticks, .. } => Some(*packet_ticks),
            _ => None,
        }));
    };
    for key in 1..=201 {
        let mut effects = Effects::default();
        room.join(PersonKey(key), String::new(), ShardIndex(0), &mut effects).unwrap();
        room.negotiated(PersonKey(key), &lines(1, 0), &[], &mut effects).unwrap();
        note(effects);
    }
    let mut effects = Effects::default();
    room.leave(PersonKey(7), &mut effects).unwrap();
    note(effects);
    assert_eq!(told, [1, 2, 1]);
}

#[test]
fn a_mixer_is_told_what_is_music() {
    let mut room = hall(Topology::Sfu);
    for (key, music) in [(1, false), (2, true)] {
        let mut effects = Effects::default();
        room.join(PersonKey(key), String::new(), ShardIndex(0), &mut effects).unwrap();
        let track = Published { music, ..published("a", TrackKey(key * 10)) };
        room.negotiated(PersonKey(key), &lines(1, 0), &[track], &mut effects).unwrap();
        let told = effects.mixers.iter().find_map(|(_, command)| match command {
            MixCommand::AddTrack { music, .. } => Some(*music),
            _ => None,
        });
        assert_eq!(told, Some(music));
    }
}

#[test]
fn of_an_audience_the_number_is_told_and_who_does_something_by_name() {
    let mut room = hall(Topology::Sfu);
    let told = |work: &mut dyn FnMut(&mut Effects)| {
        let mut effects = Effects::default();
        work(&mut effects);
        effects.notices.retain(|n| matches!(n, Notice::All(_) | Notice::Audience { .. }));
        effects.notices
    };
    let joined = |key: u64| Notice::All(Change::Joined(PersonKey(key)));
    let name = |key: u64| Notice::All(Change::Named(PersonKey(key)));
    let audience = |joined| Notice::Audience { joined };
    let mut come = |key: u64| {
        told(&mut |effects| {
            room.join(PersonKey(key), String::new(), ShardIndex(0), effects).unwrap();
        })
    };
    let came: Vec<_> = (1..=5).flat_map(&mut come).collect();
    assert_eq!(came, [joined(1), joined(2), audience(true), audience(true), audience(true)]);
    let mut offer = |key: u64, mids: &[(&str, u64)]| {
        let tracks: Vec<_> = mids.iter().map(|(mid, key)| published(mid, TrackKey(*key))).collect();
        told(&mut |effects| {
            room.negotiated(PersonKey(key), &lines(1, 2), &tracks, effects).unwrap();
        })
    };
    assert_eq!(offer(3, &[("a", 30)]), [], "a voice that is mixed");
    assert_eq!(offer(4, &[("a", 40), ("v", 41)]), [name(4)], "a picture");
    let mut mute = |track: u64, owner| {
        told(&mut |effects| room.mute(PersonKey(owner), TrackKey(track), true, effects).unwrap())
    };
    assert_eq!(mute(30, 3), []);
    assert!(matches!(mute(40, 4)[..], [Notice::All(Change::TrackChanged(PersonKey(4), _))]));
    let silenced = told(&mut |effects| {
        room.silence(TrackKey(30), true, effects).unwrap();
    });
    assert_eq!(silenced.len(), 2, "a moderator's decision, with whom it is about: {silenced:?}");
    let raised = told(&mut |effects| room.hand(PersonKey(5), true, effects).unwrap());
    assert_eq!(raised, [name(5)]);
    let lowered = told(&mut |effects| room.hand(PersonKey(5), false, effects).unwrap());
    assert_eq!(lowered, [Notice::All(Change::Changed(PersonKey(5)))]);
    assert_eq!(room.named().len(), 5);
    let page = |after| room.people_after(after, 2).map(|person| person.key.0).collect::<Vec<_>>();
    assert_eq!((page(None), page(Some(PersonKey(4)))), (vec![1, 2], vec![5]));
}

#[test]
fn the_audience_is_told_by_name_once_few_are_left() {
    let mut room = hall(Topology::None);
    let mut effects = Effects::default();
    for key in 1..=4 {
        room.join(PersonKey(key), String::new(), ShardIndex(0), &mut effects).unwrap();
    }
    let mut leave = |key: u64| {
        let mut effects = Effects::default();
        room.leave(PersonKey(key), &mut effects).unwrap();
        effects.notices
    };
    let left = |key: u64| Notice::All(Change::Left(PersonKey(key)));
    assert_eq!(leave(1), [left(1)]);
    assert_eq!(
        leave(4),
        [Notice::Audience { joined: false }, Notice::All(Change::Named(PersonKey(3)))]
    );
    assert_eq!(leave(3), [left(3)]);
}

#[test]
fn more_slots_are_asked_for_in_steps_and_within_the_limit() {
    let (_, effects) = room(4, 1, 1);
    let wanted = effects.notices.iter().filter_map(|notice| match notice {
        Notice::SlotsWanted { person: PersonKey(1), audio, video } => Some((*audio, *video)),
        _ => None,
    });
    assert_eq!(wanted.collect::<Vec<_>>(), [(4, 9)], "once, and no more than 4 for sound");
}

#[test]
fn who_chose_keeps_what_he_chose_and_a_track_is_in_one_slot_only() {
    let (mut room, _) = room(4, 2, 3);
    let viewer = PersonKey(1);
    let want = |room: &mut Room, mid: &str, track: Option<u64>| {
        let mut effects = Effects::default();
        let want = [(mid.to_owned(), track.map(TrackKey))];
        let done = room.want(viewer, &want, &mut effects);
        done.map(|()| effects.notices)
    };
    want(&mut room, "v1", None).unwrap();
    assert_eq!(shown(&room, 1, Kind::Video), [21, 41]);
    let moved = want(&mut room, "v1", Some(21)).unwrap();
    let Notice::Slots { changes, .. } = &moved[0] else { panic!("{moved:?}") };
    let told: Vec<_> = changes.iter().map(|c| (c.mid.as_str(), c.content)).collect();
    assert_eq!(told, [("v0", None), ("v1", Some((PersonKey(2), TrackKey(21))))]);
    assert_eq!(want(&mut room, "v9", None), Err(Refusal::UnknownSlot));
    assert_eq!(want(&mut room, "v1", Some(20)), Err(Refusal::UnknownTrack), "a voice");
    assert_eq!(want(&mut room, "v1", Some(11)), Err(Refusal::UnknownTrack), "his own");
    let speakers = vec![(PersonKey(3), 20)];
    room.report(Report::Speakers { room: RoomKey(1), speakers }, &mut Effects::default());
    assert_eq!(shown(&room, 1, Kind::Video), [21, 41], "his choice stays");
}

#[test]
fn a_replaced_picture_is_told_when_it_switches() {
    let (mut room, _) = room(3, 2, 1);
    let viewer = PersonKey(1);
    let mut effects = Effects::default();
    room.want(viewer, &[("v0".into(), Some(TrackKey(31)))], &mut effects).unwrap();
    let wakes = Notice::Paused { person: PersonKey(3), track: TrackKey(31), paused: false };
    assert_eq!(
        effects.notices,
        std::slice::from_ref(&wakes),
        "the old picture flows until the keyframe"
    );
    assert_eq!(effects.commands.len(), 1);
    let report = Report::Switched {
        person: viewer,
        room: RoomKey(1),
        mid: "v0".into(),
        track: TrackKey(31),
        rtp_timestamp: 77,
    };
    room.report(report.clone(), &mut effects);
    let change = SlotChange {
        mid: "v0".into(),
        content: Some((PersonKey(3), TrackKey(31))),
        mix: false,
        rests: false,
        rtp_timestamp: Some(77),
    };
    let told = Notice::Slots { person: viewer, changes: vec![change] };
    let rests = Notice::Paused { person: PersonKey(2), track: TrackKey(21), paused: true };
    assert_eq!(effects.notices, [wakes, told, rests], "nobody has the old one any more");
    room.report(report, &mut effects);
    assert_eq!(effects.notices.len(), 3, "told once");
}

#[test]
fn a_picture_that_was_given_up_comes_back_when_the_one_chosen_instead_ends() {
    let (mut room, _) = room(3, 2, 1);
    let (viewer, other) = (PersonKey(1), PersonKey(3));
    room.want(viewer, &[("v0".into(), Some(TrackKey(31)))], &mut Effects::default()).unwrap();
    let mut effects = Effects::default();
    room.leave(other, &mut effects).unwrap();
    let back = |command: &(ShardIndex, Command)| {
        matches!(&command.1, Command::Map { person, mid, track: Some(TrackKey(21)) }
                if *person == viewer && mid == "v0")
    };
    assert!(effects.commands.iter().any(back), "{:?}", effects.commands);
}

/// A seeded source of choices (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// The room and one that counts everything anew, called alike.
struct Both {
    seed: u64,
    random: Random,
    room: Room,
    whole: Whole,
    people: Vec<PersonKey>,
    next: u64,
    /// Pictures that slots were told to carry: a shard may report that one of them does.
    mapped: Vec<(PersonKey, String, TrackKey)>,
    /// Whom and which of their tracks everybody knows, by what was told.
    told: BTreeMap<PersonKey, Vec<TrackKey>>,
}

fn sorted(items: &[impl Debug]) -> Vec<String> {
    let mut lines: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
    lines.sort_unstable();
    lines
}

impl Both {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let roster = random.below(13) as usize;
        let limits = RoomLimits { people: 12, roster, audio_slots: 11, video_slots: 20 };
        let audio = [Topology::Sfu, Topology::Sfu, Topology::Mcu][random.below(3) as usize];
        let video = [Topology::Sfu, Topology::Sfu, Topology::None][random.below(3) as usize];
        let shards = 1 + random.below(3) as u16;
        let setup = RoomSetup { shards, ..RoomSetup::new(audio, video, limits) };
        let (room, whole) = (Room::new(RoomKey(7), setup), Whole::new(RoomKey(7), setup));
        let (people, mapped, told) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { seed, random, room, whole, people, next: 1, mapped, told }
    }

    fn key(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn join(&mut self, effects: &mut [Effects; 2]) {
        let key = PersonKey(self.key());
        let shard = ShardIndex(self.random.below(self.room.setup.shards.into()) as u16);
        let joined = self.room.join(key, String::new(), shard, &mut effects[0]);
        assert_eq!(joined, self.whole.join(key, String::new(), shard, &mut effects[1]));
        if joined.is_ok() {
            self.people.push(key);
        }
    }

    /// An offer with some of three lines to send on, and never fewer slots than before.
    fn offer(&mut self, key: PersonKey, effects: &mut [Effects; 2]) {
        let (audio, video) = self.room.person(key).map_or((0, 0), Person::slot_counts);
        let more = |random: &mut Random, had: usize| had + random.below(4) as usize;
        let slots = (more(&mut self.random, audio), more(&mut self.random, video));
        let mut lines = lines(slots.0, slots.1);
        let mut second = lines.lines[1].clone();
        second.mid = "w".into();
        lines.lines.push(second);
        for mid in ["a", "v", "w"] {
            if self.random.below(4) == 0 {
                lines.lines.retain(|line| line.mid != mid);
            }
        }
        let no_video = self.room.topology(Kind::Video) == Topology::None;
        let mids: Vec<String> = lines
            .lines
            .iter()
            .filter(|line| line.direction == Direction::Receive)
            .filter(|line| line.codec.kind() == Kind::Audio || !no_video)
            .map(|line| line.mid.clone())
            .collect();
        let mut published = Vec::new();
        for mid in mids.into_iter().filter(|_| self.random.below(5) > 0).collect::<Vec<_>>() {
            let key = TrackKey(self.key());
            published.push(self::published(&mid, key));
        }
        let agreed = self.room.negotiated(key, &lines, &published, &mut effects[0]);
        assert_eq!(agreed, self.whole.negotiated(key, &lines, &published, &mut effects[1]));
    }

    fn want(&mut self, key: PersonKey, effects: &mut [Effects; 2]) {
        let tracks: Vec<TrackKey> =
            self.room.people.index.ranked(Kind::Video).map(|(_, it)| it).collect();
        let track = match self.random.below(tracks.len() as u64 + 1) as usize {
            at if at < tracks.len() => Some(tracks[at]),
            _ => None,
        };
        let mid = format!("v{}", self.random.below(4));
        let wanted = self.room.want(key, &[(mid.clone(), track)], &mut effects[0]);
        assert_eq!(wanted, self.whole.want(key, (&mid, track), &mut effects[1]));
    }

    fn report(&mut self, effects: &mut [Effects; 2]) {
        let room = RoomKey(7);
        let report = if self.mapped.is_empty() || self.random.below(2) == 0 {
            let count = 1 + self.random.below(4);
            let mut speakers: Vec<(PersonKey, u8)> = Vec::new();
            for _ in 0..count {
                let who = self.people[self.random.below(self.people.len() as u64) as usize];
                if speakers.iter().all(|(known, _)| *known != who) {
                    speakers.push((who, 20));
                }
            }
            Report::Speakers { room, speakers }
        } else {
            let at = self.random.below(self.mapped.len() as u64) as usize;
            let (person, mid, track) = self.mapped.swap_remove(at);
            Report::Switched { person, room, mid, track, rtp_timestamp: 1 }
        };
        // The same speakers are often reported again.
        for _ in 0..=self.random.below(2) {
            self.room.report(report.clone(), &mut effects[0]);
            self.whole.report(report.clone(), &mut effects[1]);
        }
    }

    fn step(&mut self) {
        let mut effects = <[Effects; 2]>::default();
        let count = self.people.len() as u64;
        let who = self.random.below(count.max(1)) as usize;
        match self.random.below(12) {
            0..3 if count < 12 => self.join(&mut effects),
            _ if count == 0 => self.join(&mut effects),
            3 => {
                let who = self.people.swap_remove(who);
                self.room.leave(who, &mut effects[0]).unwrap();
                self.whole.leave(who, &mut effects[1]).unwrap();
            }
            4..7 => self.offer(self.people[who], &mut effects),
            7 => self.want(self.people[who], &mut effects),
            _ => self.report(&mut effects),
        }
        self.compare(&effects);
    }

    fn compare(&mut self, [ours, whole]: &[Effects; 2]) {
        let seed = self.seed;
        assert_eq!(sorted(&ours.commands), sorted(&whole.commands), "seed {seed}");
        assert_eq!(sorted(&ours.mixers), sorted(&whole.mixers), "seed {seed}");
        assert_eq!(sorted(&ours.notices), sorted(&whole.notices), "seed {seed}");
        for key in &self.people {
            for kind in KINDS {
                let slots = self.room.person(*key).unwrap().slot_contents(kind);
                let all: Vec<_> = self.whole.person(*key).unwrap().slot_contents(kind).collect();
                assert_eq!(slots.collect::<Vec<_>>(), all, "seed {seed}: {kind:?} of {key:?}");
            }
        }
        for (_, command) in &ours.commands {
            if let Command::Map { person, mid, track: Some(track) } = command {
                self.mapped.push((*person, mid.clone(), *track));
            }
        }
        ours.notices.iter().for_each(|notice| self.tell(notice));
        let tracks = |person: &Person| person.tracks.iter().map(|track| track.key).collect();
        let named = self.room.named().map(|person| (person.key, tracks(person)));
        assert_eq!(self.told, named.collect(), "seed {seed}");
    }

    /// What a participant who hears everything makes of a notice.
    fn tell(&mut self, notice: &Notice) {
        match notice {
            Notice::All(Change::Joined(key) | Change::Named(key)) => {
                let person = self.room.person(*key);
                let tracks = person.map_or(&[][..], |person| &person.tracks);
                self.told.insert(*key, tracks.iter().map(|track| track.key).collect());
            }
            Notice::All(Change::Left(key)) => drop(self.told.remove(key).unwrap()),
            Notice::All(Change::TrackAdded(key, track)) => {
                let tracks = self.told.get_mut(key).unwrap();
                // A participant who has just come is told with their tracks.
                tracks.retain(|known| *known != track.key);
                tracks.push(track.key);
            }
            Notice::All(Change::TrackRemoved(key, track)) => {
                self.told.get_mut(key).unwrap().retain(|known| known != track);
            }
            _ => {}
        }
    }
}

/// `MOIM_SEEDS` says how many seeds (100), `MOIM_SEED` runs one alone.
#[test]
fn a_room_that_follows_what_changed_equals_one_that_counts_everything_anew() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("MOIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("MOIM_SEEDS").unwrap_or(100) + 1,
    };
    for seed in seeds {
        let mut both = Both::new(seed);
        (0..300).for_each(|_| both.step());
        let mut effects = <[Effects; 2]>::default();
        for key in std::mem::take(&mut both.people) {
            both.room.leave(key, &mut effects[0]).unwrap();
            both.whole.leave(key, &mut effects[1]).unwrap();
        }
        both.compare(&effects);
        assert!(both.room.people.index.is_empty(), "seed {seed}: {:?}", both.room.people.index);
    }
}

#[test]
fn a_line_carries_one_track() {
    let (mut room, _) = room(2, 1, 1);
    let (viewer, mut effects) = (PersonKey(1), Effects::default());
    let before = room.person(viewer).unwrap().tracks.clone();
    let [first, again] = [50, 51].map(|key| published("w", TrackKey(key)));
    let mut offered = lines(1, 1);
    offered.lines.push(line("w".into(), Codec::Vp8, Direction::Receive));
    let tracks = [first.clone(), again.clone(), again.clone()];
    let refused = room.negotiated(viewer, &offered, &tracks, &mut effects);
    assert_eq!(refused, Err(Refusal::LineTwice));
    let known = [published("v", TrackKey(52)), published("v", TrackKey(53))];
    let refused = room.negotiated(viewer, &offered, &known, &mut effects);
    assert_eq!(refused, Err(Refusal::LineTwice), "one that is known already");
    assert_eq!(room.person(viewer).unwrap().tracks, before);
    assert!(effects.commands.is_empty() && effects.notices.is_empty());
    let once = room.negotiated(viewer, &offered, &[first], &mut effects);
    assert_eq!(once, Ok(vec![TrackKey(50)]));
    let later = room.negotiated(viewer, &offered, &[again], &mut effects);
    assert_eq!(later, Ok(vec![TrackKey(50)]), "in a later offer it is the same track");
}

#[test]
fn a_label_of_a_mesh_names_one_track_and_no_line_of_an_offer() {
    let limits = RoomLimits { people: 10, roster: 10, audio_slots: 4, video_slots: 20 };
    let setup = RoomSetup::new(Topology::Mesh, Topology::Sfu, limits);
    let (mut room, mut effects) = (Room::new(RoomKey(1), setup), Effects::default());
    let person = PersonKey(1);
    room.join(person, String::new(), ShardIndex(0), &mut effects).unwrap();
    let label = |key| (published("v", TrackKey(key)), Kind::Audio);
    let twice = room.announce(person, &[label(1), label(2)], &mut effects);
    assert_eq!(twice, Err(Refusal::LineTwice));
    assert_eq!(room.announce(person, &[label(1)], &mut effects), Ok(vec![TrackKey(1)]));
    assert_eq!(room.announce(person, &[label(2)], &mut effects), Ok(vec![TrackKey(1)]), "known");
    let picture = [published("v", TrackKey(3))];
    let keys = room.negotiated(person, &lines(0, 1), &picture, &mut effects);
    assert_eq!(keys, Ok(vec![TrackKey(3)]), "a picture of its own");
    let known = |room: &Room| {
        let tracks = room.person(person).unwrap().tracks.iter();
        tracks.map(|track| (track.key.0, track.kind)).collect::<Vec<_>>()
    };
    assert_eq!(known(&room), [(1, Kind::Audio), (3, Kind::Video)]);
    let keys = room.negotiated(person, &lines(0, 1), &picture, &mut effects);
    assert_eq!(keys, Ok(vec![TrackKey(3)]));
    room.announce(person, &[], &mut effects).unwrap();
    assert_eq!(known(&room), [(3, Kind::Video)], "an announcement ends no line");
}

#[test]
fn a_line_that_carries_another_kind_from_now_on_carries_another_track() {
    let (mut room, _) = room(2, 1, 1);
    let (person, mut effects) = (PersonKey(1), Effects::default());
    let mut offered = lines(1, 1);
    offered.lines[0].codec = Codec::Vp8;
    let picture = [published("a", TrackKey(50))];
    let keys = room.negotiated(person, &offered, &picture, &mut effects);
    assert_eq!(keys, Ok(vec![TrackKey(50)]));
    let tracks = &room.person(person).unwrap().tracks;
    let tracks: Vec<_> = tracks.iter().map(|track| (track.key.0, track.kind)).collect();
    assert_eq!(tracks, [(11, Kind::Video), (50, Kind::Video)], "its sound has ended");
}
