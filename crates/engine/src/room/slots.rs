//! What is received where. Until a person says what he wants, the room fills his slots: as long
//! as they suffice each track has one; then those who spoke last have them, sound and picture alike.
//! Who speaks keeps his slot until he is silent and another speaks; nothing is decoded for it, the
//! levels that clients send tell it (RFC 6464).

use super::{Effects, Notice, Person, Refusal, Room, SlotChange, Topology};
use crate::command::{Command, PersonKey, ShardIndex, TrackKey};
use crate::limits::SLOT_STEP;
use rtp::negotiated::Kind;
use std::cmp::Reverse;

/// A person's slots of one kind.
#[derive(Debug, Default)]
pub(super) struct SlotPool {
    slots: Vec<Slot>,
    /// The person fills them himself.
    manual: bool,
    /// How many slots were asked for last.
    asked: u32,
}

#[derive(Debug)]
struct Slot {
    mid: String,
    /// What the person was told it carries.
    content: Option<TrackKey>,
    /// What it shall carry from its next keyframe on.
    next: Option<TrackKey>,
}

impl Slot {
    fn target(&self) -> Option<TrackKey> {
        self.next.or(self.content)
    }
}

impl SlotPool {
    /// Adds a slot, once.
    pub(super) fn add(&mut self, mid: &str) {
        if !self.slots.iter().any(|slot| slot.mid == mid) {
            self.slots.push(Slot { mid: mid.to_owned(), content: None, next: None });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn contents(&self) -> impl Iterator<Item = (&str, Option<TrackKey>)> {
        self.slots.iter().map(|slot| (slot.mid.as_str(), slot.target()))
    }

    /// Every track that may flow in one of them, the one that is being replaced included.
    pub(super) fn carried(&self) -> impl Iterator<Item = TrackKey> {
        self.slots.iter().flat_map(|slot| slot.content.into_iter().chain(slot.next))
    }

    fn carries(&self, track: TrackKey) -> bool {
        self.slots.iter().any(|slot| slot.target() == Some(track))
    }
}

/// A slot gets another content; says what the person is told at once.
fn map(
    (person, shard): (PersonKey, ShardIndex),
    slot: &mut Slot,
    kind: Kind,
    to: Option<(PersonKey, TrackKey)>,
    effects: &mut Effects,
) -> Option<SlotChange> {
    let track = to.map(|(_, track)| track);
    if slot.target() == track {
        return None;
    }
    effects.commands.push((shard, Command::Map { person, mid: slot.mid.clone(), track }));
    if track.is_some() && track == slot.content {
        slot.next = None;
        return None;
    }
    // A picture is replaced when its keyframe is there: told then. All else is told now.
    if kind == Kind::Video && track.is_some() && slot.content.is_some() {
        slot.next = track;
        return None;
    }
    slot.content = track;
    slot.next = None;
    Some(SlotChange { mid: slot.mid.clone(), content: to, mix: false, rtp_timestamp: None })
}

const KINDS: [Kind; 2] = [Kind::Audio, Kind::Video];

impl Room {
    /// A person says what he wants where: (line of the slot, track or none). Errors: no such slot
    /// or track; nothing is changed then.
    pub fn want(
        &mut self,
        key: PersonKey,
        want: &[(String, Option<TrackKey>)],
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let mark = self.mark(effects);
        let person = self.person(key).ok_or(Refusal::UnknownPerson)?;
        let mut moves = Vec::new();
        for (mid, track) in want {
            let kind = *KINDS
                .iter()
                .find(|kind| person.slot_contents(**kind).any(|(slot, _)| slot == mid))
                .ok_or(Refusal::UnknownSlot)?;
            if self.topology(kind) != Topology::Sfu {
                return Err(Refusal::OtherTopology);
            }
            let to = match track {
                None => None,
                Some(track) => {
                    let (owner, known) = self.owner(*track).ok_or(Refusal::UnknownTrack)?;
                    if known.kind != kind || owner.key == key {
                        return Err(Refusal::UnknownTrack);
                    }
                    Some((owner.key, *track))
                }
            };
            moves.push((kind, mid, to));
        }
        let person = self.person_mut(key)?;
        let at = (key, person.shard);
        let mut changes = Vec::new();
        for (kind, mid, to) in moves {
            let pool = person.pool(kind);
            pool.manual = true;
            // A track is in one slot at most: it moves there.
            for slot in &mut pool.slots {
                let take_away = to.is_some_and(|(_, track)| slot.target() == Some(track));
                if slot.mid == *mid {
                    changes.extend(map(at, slot, kind, to, effects));
                } else if take_away {
                    changes.extend(map(at, slot, kind, None, effects));
                }
            }
        }
        tell(key, changes, effects);
        self.settle(mark, effects);
        Ok(())
    }

    /// Puts tracks that have no slot yet into free ones, for everyone, and asks for more slots
    /// where they are short.
    pub(super) fn fill_slots(&mut self, effects: &mut Effects) {
        for kind in self.forwarded() {
            let mut speakers: Vec<&Person> = self.people.iter().collect();
            // Who spoke last comes first; of those who never did, who came first.
            speakers.sort_by_key(|person| Reverse(person.spoke));
            let tracks: Vec<(PersonKey, TrackKey)> = speakers
                .iter()
                .flat_map(|person| {
                    let of_kind = person.tracks.iter().filter(|track| track.kind == kind);
                    of_kind.map(|track| (person.key, track.key))
                })
                .collect();
            for person in &mut self.people {
                let key = person.key;
                let at = (key, person.shard);
                let pool = person.pool(kind);
                if pool.manual {
                    continue;
                }
                let mut changes = Vec::new();
                let mut free = pool.slots.iter().filter(|slot| slot.target().is_none()).count();
                for &(owner, track) in tracks.iter().filter(|(owner, _)| *owner != key) {
                    if free == 0 {
                        break;
                    }
                    if pool.carries(track) {
                        continue;
                    }
                    let slot = pool.slots.iter_mut().find(|slot| slot.target().is_none());
                    let Some(slot) = slot else { break };
                    changes.extend(map(at, slot, kind, Some((owner, track)), effects));
                    free -= 1;
                }
                tell(key, changes, effects);
            }
        }
        self.ask_for_slots(effects);
    }

    /// Whether somebody has fewer slots than there are voices, and leaves it to the room whom he hears.
    pub(super) fn voices_wait(&self) -> bool {
        let voices = |person: &Person| {
            person.tracks.iter().filter(|track| track.kind == Kind::Audio).count()
        };
        let all: usize = self.people.iter().map(voices).sum();
        let short = |person: &Person| {
            let pool = &person.audio;
            !pool.manual && !pool.slots.is_empty() && pool.slots.len() < all - voices(person)
        };
        self.topology(Kind::Audio) == Topology::Sfu && self.people.iter().any(short)
    }

    /// The kinds that are forwarded track by track.
    fn forwarded(&self) -> Vec<Kind> {
        KINDS.into_iter().filter(|kind| self.topology(*kind) == Topology::Sfu).collect()
    }

    fn ask_for_slots(&mut self, effects: &mut Effects) {
        let ways = self.forwarded();
        let count = |kind| {
            if !ways.contains(&kind) {
                return 0;
            }
            let tracks = self.people.iter().flat_map(|person| &person.tracks);
            tracks.filter(|track| track.kind == kind).count() as u32
        };
        let (audio, video) = (count(Kind::Audio), count(Kind::Video));
        let limits = self.setup.limits;
        for person in &mut self.people {
            if person.audio.slots.is_empty() && person.video.slots.is_empty() {
                continue; // He has not offered yet, or only sends.
            }
            let wanted = |person: &Person, kind, all: u32, most: u32| {
                let own = person.tracks.iter().filter(|track| track.kind == kind).count() as u32;
                let pool = if kind == Kind::Audio { &person.audio } else { &person.video };
                let (need, have) = (all.saturating_sub(own), pool.slots.len() as u32);
                if pool.manual || need <= have || have == 0 {
                    return have;
                }
                (have + (need - have).next_multiple_of(SLOT_STEP)).min(most).max(have)
            };
            let a = wanted(person, Kind::Audio, audio, limits.audio_slots);
            let v = wanted(person, Kind::Video, video, limits.video_slots);
            let more_audio = a > (person.audio.slots.len() as u32).max(person.audio.asked);
            let more_video = v > (person.video.slots.len() as u32).max(person.video.asked);
            if more_audio || more_video {
                (person.audio.asked, person.video.asked) = (a, v);
                let wanted = Notice::SlotsWanted { person: person.key, audio: a, video: v };
                effects.notices.push(wanted);
            }
        }
    }

    /// Tracks are gone: their slots are empty, and may be filled with others.
    pub(super) fn tracks_ended(&mut self, ended: &[TrackKey], effects: &mut Effects) {
        for person in &mut self.people {
            let (mut changes, key, shard) = (Vec::new(), person.key, person.shard);
            for kind in KINDS {
                for slot in &mut person.pool(kind).slots {
                    let called_off = slot.next.take_if(|next| ended.contains(next)).is_some();
                    let stays = slot.content.filter(|content| !ended.contains(content));
                    if let Some(track) = stays.filter(|_| called_off) {
                        // It was given up for what ended, where it had not begun to flow.
                        let (person, mid) = (key, slot.mid.clone());
                        let command = Command::Map { person, mid, track: Some(track) };
                        effects.commands.push((shard, command));
                    }
                    if slot.content.take_if(|content| ended.contains(content)).is_some() {
                        // The shard emptied it with the track; what was to come is told now.
                        let change = SlotChange {
                            mid: slot.mid.clone(),
                            content: None,
                            mix: false,
                            rtp_timestamp: None,
                        };
                        changes.push(change);
                    }
                }
            }
            tell(key, changes, effects);
        }
        self.fill_slots(effects);
    }

    /// A video slot switched.
    pub(super) fn switched(
        &mut self,
        key: PersonKey,
        mid: &str,
        track: TrackKey,
        rtp_timestamp: u32,
        effects: &mut Effects,
    ) {
        let Some(owner) = self.owner(track).map(|(owner, _)| owner.key) else { return };
        let Ok(person) = self.person_mut(key) else { return };
        let slot = person.video.slots.iter_mut().find(|slot| slot.mid == mid);
        // A report on its way while the slot got something else again says nothing any more.
        let Some(slot) = slot.filter(|slot| slot.next == Some(track)) else { return };
        slot.content = slot.next.take();
        let change = SlotChange {
            mid: slot.mid.clone(),
            content: Some((owner, track)),
            mix: false,
            rtp_timestamp: Some(rtp_timestamp),
        };
        tell(key, vec![change], effects);
    }

    /// Where slots are short, who speaks takes the place of who was silent longest.
    pub(super) fn prefer_speakers(&mut self, speakers: &[(PersonKey, u8)], effects: &mut Effects) {
        let spoke: Vec<(TrackKey, u64)> = self
            .people
            .iter()
            .flat_map(|person| person.tracks.iter().map(|track| (track.key, person.spoke)))
            .collect();
        let when = |track: TrackKey| spoke.iter().find(|(t, _)| *t == track).map_or(0, |(_, n)| *n);
        for kind in self.forwarded() {
            let loud: Vec<(PersonKey, TrackKey)> = speakers
                .iter()
                .filter_map(|(speaker, _)| self.person(*speaker))
                .flat_map(|person| {
                    let of_kind = person.tracks.iter().filter(|track| track.kind == kind);
                    of_kind.map(|track| (person.key, track.key))
                })
                .collect();
            for person in &mut self.people {
                let key = person.key;
                let at = (key, person.shard);
                let pool = person.pool(kind);
                if pool.manual {
                    continue;
                }
                let mut changes = Vec::new();
                for &(owner, track) in loud.iter().filter(|(owner, _)| *owner != key) {
                    if pool.carries(track) {
                        continue;
                    }
                    let silent = pool
                        .slots
                        .iter_mut()
                        .filter(|slot| {
                            slot.target().is_none_or(|t| !loud.iter().any(|(_, l)| *l == t))
                        })
                        .min_by_key(|slot| slot.target().map_or(0, |track| 1 + when(track)));
                    let Some(slot) = silent else { break };
                    changes.extend(map(at, slot, kind, Some((owner, track)), effects));
                }
                tell(key, changes, effects);
            }
        }
    }
}

fn tell(person: PersonKey, changes: Vec<SlotChange>, effects: &mut Effects) {
    if !changes.is_empty() {
        effects.notices.push(Notice::Slots { person, changes });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Published, RoomLimits, RoomSetup};
    use super::*;
    use crate::command::{Report, RoomKey};
    use rtp::negotiated::{Codec, Direction, Extensions, Line, Negotiated, StreamIds};

    /// A person's lines: sound and picture sent, and some slots of each.
    fn lines(audio_slots: usize, video_slots: usize) -> Negotiated {
        let line = |mid: String, codec: Codec, direction| Line {
            mid,
            direction,
            codec,
            payload_type: 96,
            rtx_payload_type: None,
            red_payload_type: None,
            extensions: Extensions::default(),
            local: Some(StreamIds { ssrc: 1, rtx: None }),
            remote: None,
            nack: false,
            transport_cc: false,
        };
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
        let limits = RoomLimits { people: 10, audio_slots: 4, video_slots: 20 };
        let (audio, video) = (Topology::Sfu, Topology::Sfu);
        let setup = RoomSetup { audio, video, loudest: 3, shards: 1, limits };
        let mut room = Room::new(RoomKey(1), setup);
        let mut effects = Effects::default();
        for number in 1..=people {
            let person = PersonKey(number);
            room.join(person, String::new(), ShardIndex(0), &mut effects).unwrap();
            let track = |mid: &str, key| Published {
                mid: mid.into(),
                name: String::new(),
                key: TrackKey(key),
                opaque: false,
            };
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
}
