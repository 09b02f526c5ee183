//! The people and tracks of a shard, and who gets what: plain state, which commands change.

use super::bar::Told;
use super::index::{PersonIndex, Subscription, TrackIndex};
use super::nearby::Nearby;
use super::person::{Person, Secure, Source};
use super::queue::Queue;
use super::scalable::UpTo;
use super::spreading::Spreading;
use super::track::{Origin, Track};
use crate::clock::Now;
use crate::command::{PersonKey, Precedence, RoomKey, ShardIndex, Shown, StreamKey, TrackKey};
use crate::egress::{Brings, Level};
use crate::limits::DOWNLINK_START_BPS;
use foldhash::HashMap;
use rtp::TransportAddress;
use rtp::negotiated::{Line, MOST_LAYERS};
use rtp::srtp::KeyPair;
use rtp::stun::Responder;
use std::time::Instant;

/// All that a shard knows of people and tracks.
#[derive(Default)]
pub(super) struct Model {
    pub people: Vec<Option<Person>>,
    pub tracks: Vec<Option<Track>>,
    // Looked up, never iterated over: a seed must repeat byte for byte.
    pub person_by_key: HashMap<PersonKey, PersonIndex>,
    pub person_by_address: HashMap<TransportAddress, PersonIndex>,
    pub nearby: Nearby,
    pub track_by_key: HashMap<StreamKey, TrackIndex>,
    free_people: Vec<PersonIndex>,
    free_tracks: Vec<TrackIndex>,
    /// Tracks of pictures: only these are asked for keyframes and for missing packets.
    pub pictures: Vec<TrackIndex>,
    pub mixes: HashMap<RoomKey, Mix>,
    /// Mixed packets that not all listeners have got.
    pub spreading: Spreading,
    /// Opened packets that are not forwarded yet.
    pub queue: Queue,
    pub bursts: Bursts,
    /// What a path is taken to carry at first, in bits a second, if that is not [`DOWNLINK_START_BPS`].
    pub start_bps: Option<u64>,
}

/// A room whose sound is mixed, and that somebody listens to here.
#[derive(Default)]
pub(super) struct Mix {
    /// Who receives the mix, and in which slot.
    pub listeners: Vec<Subscription>,
    /// What the mixer told of it last.
    pub told: Told,
}

/// Who waits for the next burst of pictures, and when the first of them may have it.
#[derive(Default)]
pub(super) struct Bursts {
    pub waiting: Vec<PersonIndex>,
    pub due: Option<Instant>,
}

impl Bursts {
    /// Something waits for a person's bursts.
    pub fn add(&mut self, person: PersonIndex) {
        if !self.waiting.contains(&person) {
            self.waiting.push(person);
        }
    }
}

impl Model {
    pub(super) fn person(&mut self, key: PersonKey) -> Option<&mut Person> {
        self.people[*self.person_by_key.get(&key)?].as_mut()
    }

    pub(super) fn track(&mut self, key: StreamKey) -> Option<&mut Track> {
        self.tracks[*self.track_by_key.get(&key)?].as_mut()
    }

    /// The layers of a track, the smallest first. Without simulcast, its only stream.
    pub(super) fn layers(&self, track: TrackKey) -> impl Iterator<Item = TrackIndex> + use<'_> {
        let of = move |layer| self.track_by_key.get(&track.layer(layer)).copied();
        (0..MOST_LAYERS as u8).map_while(of)
    }

    /// How much is kept, by name: all is 0 once everybody has left.
    pub(super) fn kept(&self) -> [(&'static str, usize); 11] {
        [
            ("people", self.people.iter().flatten().count()),
            ("people by key", self.person_by_key.len()),
            ("people by address", self.person_by_address.len()),
            ("IP addresses", self.nearby.kept()),
            ("tracks", self.tracks.iter().flatten().count()),
            ("tracks by key", self.track_by_key.len()),
            ("tracks of pictures", self.pictures.len()),
            ("mixes", self.mixes.len()),
            ("people who wait for a burst", self.bursts.waiting.len()),
            ("opened packets", self.queue.len()),
            ("mixed packets", self.spreading.len()),
        ]
    }

    /// The index of a person. A new person is added.
    pub(super) fn person_entry(&mut self, key: PersonKey, room: RoomKey, now: Now) -> PersonIndex {
        if let Some(index) = self.person_by_key.get(&key) {
            return *index;
        }
        let start_bps = self.start_bps.unwrap_or(DOWNLINK_START_BPS);
        let person = Some(Person::new(key, room, now.at, start_bps));
        let index = match self.free_people.pop() {
            Some(index) => {
                self.people[index] = person;
                index
            }
            None => {
                self.people.push(person);
                self.people.len() - 1
            }
        };
        self.person_by_key.insert(key, index);
        index
    }

    pub(super) fn install(
        &mut self,
        person: PersonKey,
        keys: &KeyPair,
        (remote, reached): (TransportAddress, bool),
        now: Instant,
    ) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        self.people[index].as_mut()?.install(keys, (remote, reached), now);
        self.open_next(index);
        // The address may have been somebody else's: NAT gives the port of someone who left to someone new.
        self.person_by_address.insert(remote, index);
        self.nearby.add(remote, index, now);
        Some(())
    }

    /// The session of the participant whose address this is.
    pub(super) fn secure_at(&mut self, address: TransportAddress) -> Option<&mut Secure> {
        self.people[*self.person_by_address.get(&address)?].as_mut()?.secure.as_mut()
    }

    /// The participant receives at the address in use.
    pub(super) fn reached(&mut self, person: PersonKey) -> Option<()> {
        let secure = self.person(person)?.secure.as_mut()?;
        secure.reached = true;
        if secure.begun && !secure.lost { self.begin(person) } else { Some(()) }
    }

    pub(super) fn begin(&mut self, person: PersonKey) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        let person = self.people[index].as_mut()?;
        let secure = person.secure.as_mut()?;
        (secure.begun, secure.lost) = (true, false);
        for slot in &person.slots {
            let wanted = slot.pending.filter(|_| slot.is_video());
            if let Some(track) = wanted.and_then(|track| self.tracks[track].as_mut()) {
                track.encoding.keyframe.wait();
            }
        }
        Some(())
    }

    pub(super) fn suspend_person(&mut self, person: PersonKey) -> Option<()> {
        self.person(person)?.secure.as_mut()?.lost = true;
        Some(())
    }

    pub(super) fn credentials(&mut self, person: PersonKey, responder: Responder) -> Option<()> {
        self.person(person)?.credentials(responder)
    }

    pub(super) fn move_person(
        &mut self,
        person: PersonKey,
        remote: TransportAddress,
        now: Instant,
    ) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        let moving = self.people[index].as_mut()?;
        let old = std::mem::replace(&mut moving.secure.as_mut()?.remote, remote);
        if old != remote {
            moving.egress.moved(now);
        }
        self.open_next(index);
        self.release(old, index);
        self.person_by_address.insert(remote, index);
        self.nearby.add(remote, index, now);
        self.reached(person)
    }

    /// The next packet of each of the person's tracks is opened, so that it is authenticated.
    fn open_next(&mut self, index: PersonIndex) {
        for track in self.people[index].iter().flat_map(|person| &person.tracks) {
            self.tracks[*track].iter_mut().for_each(|track| track.glances.forget());
        }
    }

    /// Forgets an address that a person no longer uses, unless it is somebody else's by now.
    fn release(&mut self, address: TransportAddress, person: PersonIndex) {
        if self.person_by_address.get(&address) == Some(&person) {
            self.person_by_address.remove(&address);
        }
        self.nearby.remove(address, person);
    }

    pub(super) fn remove_person(&mut self, key: PersonKey) -> Option<()> {
        let index = *self.person_by_key.get(&key)?;
        let tracks = self.people[index].as_ref()?.tracks.clone();
        for track in tracks {
            if let Some(key) = self.tracks[track].as_ref().map(|track| track.key) {
                self.remove_stream(key);
            }
        }
        let mut person = self.people[index].take()?;
        for waiting in person.egress.clear() {
            let known = self.track_by_key.get(&waiting.track);
            let track = known.and_then(|track| self.tracks[*track].as_ref());
            if let Some(track) = track.filter(|_| matches!(waiting.brings, Brings::Packet(_))) {
                track.encoding.history.let_go(waiting.index);
            }
        }
        for (slot_index, slot) in person.slots.iter().enumerate() {
            let subscription = Subscription { person: index, slot: slot_index };
            self.unsubscribe(slot.current, subscription);
            self.unsubscribe(slot.pending, subscription);
        }
        if let Some(mix) = self.mixes.get_mut(&person.room) {
            mix.listeners.retain(|listener| listener.person != index);
            if mix.listeners.is_empty() {
                self.mixes.remove(&person.room);
            }
        }
        if let Some(secure) = person.secure {
            self.release(secure.remote, index);
        }
        self.person_by_key.remove(&key);
        self.free_people.push(index);
        self.bursts.waiting.retain(|waiting| *waiting != index);
        self.plan_bursts();
        Some(())
    }

    /// Adds a track of a person of this shard. `mixed`: it goes to the mixer; `opaque`: its payloads are encrypted end to
    /// end.
    pub(super) fn add_track(
        &mut self,
        key: TrackKey,
        person: PersonKey,
        mid: &str,
        (mixed, opaque): (bool, bool),
        now: Instant,
    ) -> Option<()> {
        let publisher = *self.person_by_key.get(&person)?;
        let person = self.people[publisher].as_mut()?;
        let line = person.sending.iter().find(|line| line.mid == mid)?.clone();
        let ids = line.remote;
        for layer in layers_of(&line) {
            let origin = Origin::Person(publisher);
            let mut track = Track::new(key.layer(layer), origin, line.clone(), opaque);
            track.mixed = mixed;
            let known = self.people[publisher].as_ref()?.recall(mid, layer);
            let [media, rtx] = ids.map_or(known, |ids| [Some(ids.ssrc), ids.rtx]);
            if let Some(ssrc) = media.filter(|_| ids.is_none()) {
                track.encoding.adopt(ssrc, now);
            }
            let index = self.place_track(track);
            let person = self.people[publisher].as_mut()?;
            person.tracks.push(index);
            person.sources.extend(media.map(|ssrc| (ssrc, Source::Media(index))));
            person.sources.extend(rtx.map(|ssrc| (ssrc, Source::Rtx(index))));
        }
        Some(())
    }

    /// Adds a track of another shard.
    pub(super) fn import(&mut self, key: TrackKey, from: ShardIndex, line: Line, opaque: bool) {
        if self.track_by_key.contains_key(&key.stream()) {
            return;
        }
        for layer in layers_of(&line) {
            let origin = Origin::Relay(from);
            self.place_track(Track::new(key.layer(layer), origin, line.clone(), opaque));
        }
    }

    fn place_track(&mut self, track: Track) -> TrackIndex {
        let (key, pictures) = (track.key, track.is_video());
        let index = match self.free_tracks.pop() {
            Some(index) => {
                self.tracks[index] = Some(track);
                index
            }
            None => {
                self.tracks.push(Some(track));
                self.tracks.len() - 1
            }
        };
        self.track_by_key.insert(key, index);
        if pictures {
            self.pictures.push(index);
        }
        index
    }

    /// A track is gone with all its layers.
    pub(super) fn remove_track(&mut self, key: TrackKey) -> Option<()> {
        let streams: Vec<TrackIndex> = self.layers(key).collect();
        (0..streams.len() as u8).for_each(|layer| _ = self.remove_stream(key.layer(layer)));
        (!streams.is_empty()).then_some(())
    }

    fn remove_stream(&mut self, key: StreamKey) -> Option<()> {
        let index = self.track_by_key.remove(&key)?;
        let track = self.tracks[index].take()?;
        self.free_tracks.push(index);
        self.pictures.retain(|known| *known != index);
        for subscription in &track.subscriptions {
            let Some(person) = self.people[subscription.person].as_mut() else { continue };
            let slot = &mut person.slots[subscription.slot];
            slot.current.take_if(|current| *current == index);
            slot.pending.take_if(|pending| *pending == index);
        }
        let publisher = track.publisher().and_then(|person| self.people[person].as_mut());
        if let Some(publisher) = publisher {
            publisher.forget_track(index, &track.encoding.line.mid, key.layer);
        }
        Some(())
    }

    /// The place of a track in the order of pictures.
    pub(super) fn precede(&mut self, key: TrackKey, precedence: Precedence) -> Option<()> {
        let streams: Vec<TrackIndex> = self.layers(key).collect();
        for index in &streams {
            self.tracks[*index].as_mut()?.precedence = precedence;
        }
        (!streams.is_empty()).then_some(())
    }

    /// A moderator mutes a track, or releases it. (A track that its publisher mutes is only marked in the room.)
    pub(super) fn silence(&mut self, key: TrackKey, on: bool) -> Option<()> {
        let streams: Vec<TrackIndex> = self.layers(key).collect();
        for index in &streams {
            self.tracks[*index].as_mut()?.silenced = on;
            if on {
                self.suspend(*index);
                continue;
            }
            let encoding = &mut self.tracks[*index].as_mut()?.encoding;
            encoding.suspend();
            if encoding.is_video() {
                encoding.keyframe.want();
            }
        }
        (!streams.is_empty()).then_some(())
    }

    /// Stops a track in all slots that it flows in. They wait for its next packet, or keyframe, and then go on as
    /// after a switch. A slot that waits for another track gives this one up.
    pub(super) fn suspend(&mut self, index: TrackIndex) {
        let Some(track) = self.tracks[index].as_mut() else { return };
        track.encoding.suspend();
        let (people, key, history) = (&mut self.people, track.key, &track.encoding.history);
        track.subscriptions.retain(|subscription| {
            let Some(person) = people[subscription.person].as_mut() else { return false };
            let mut cut = Vec::new();
            person.egress.withdraw(key, &mut cut);
            cut.iter().for_each(|waiting| history.let_go(waiting.index));
            let slot = &mut person.slots[subscription.slot];
            if slot.current.take_if(|current| *current == index).is_none() {
                return true;
            }
            *slot.pending.get_or_insert(index) == index
        });
    }

    /// A number of a track brought only padding: the subscribers' slots use no number for it.
    pub(super) fn leave_out(&mut self, index: TrackIndex, number: u64) {
        let Some(track) = self.tracks[index].as_mut() else { return };
        let (people, key, pictures) = (&mut self.people, track.key, track.is_video());
        track.subscriptions.retain(|subscription| {
            let Some(person) = people[subscription.person].as_mut() else { return true };
            let slot = &mut person.slots[subscription.slot];
            let flows = slot.current == Some(index);
            if pictures && person.egress.is_waiting_in(subscription.slot) {
                // In its turn. If too much waits, the picture stops until a keyframe: no gap is of our making.
                let waits = !person.egress.brings(subscription.slot, key)
                    || person.egress.pass(key, subscription.slot, number);
                return waits || !flows || slot.hold();
            }
            if flows {
                slot.rewrite.skip(number);
            }
            true
        });
    }

    /// A slot carries a room's mix from now on.
    pub(super) fn map_mix(&mut self, person: PersonKey, mid: &str) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        let person = self.people[index].as_mut()?;
        let subscription = Subscription { person: index, slot: person.slot(mid)? };
        let listeners = &mut self.mixes.entry(person.room).or_default().listeners;
        if !listeners.contains(&subscription) {
            listeners.push(subscription);
        }
        Some(())
    }

    /// What a slot carries from now on.
    pub(super) fn map_slot(
        &mut self,
        person: PersonKey,
        mid: &str,
        track: Option<TrackKey>,
    ) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        let slot_index = self.people[index].as_ref()?.slot(mid)?;
        let subscription = Subscription { person: index, slot: slot_index };
        let Some(wanted) = track else {
            let slot = &mut self.people[index].as_mut()?.slots[slot_index];
            let (current, pending) = (slot.current.take(), slot.pending.take());
            self.unsubscribe(current, subscription);
            self.unsubscribe(pending, subscription);
            return Some(());
        };
        let first = *self.track_by_key.get(&wanted.stream())?;
        let tracks = &self.tracks;
        let carries = |stream: Option<TrackIndex>| {
            let stream = stream.and_then(|stream| tracks[stream].as_ref());
            stream.is_some_and(|stream| stream.key.track == wanted)
        };
        let slot = &mut self.people[index].as_mut()?.slots[slot_index];
        if carries(slot.pending) {
            return Some(());
        }
        if carries(slot.current) {
            // The slot stays with what flows: a pending switch is called off.
            let called_off = slot.pending.take();
            self.unsubscribe(called_off, subscription);
            return Some(());
        }
        slot.level = slot.level.min(Level::SMALLEST);
        slot.rewrite.selection.want_next(UpTo::SMALLEST);
        self.people[index].as_mut()?.egress.reconsider();
        self.aim(subscription, first);
        Some(())
    }

    /// A slot switches to this stream as soon as it can.
    ///
    /// Make before break: the old picture flows until the new one can be decoded. Sound needs no keyframe: its first
    /// packet switches.
    pub(super) fn aim(&mut self, subscription: Subscription, stream: TrackIndex) {
        let Some(person) = self.people[subscription.person].as_mut() else { return };
        let slot = &mut person.slots[subscription.slot];
        if slot.current == Some(stream) {
            let called_off = slot.pending.take();
            return self.unsubscribe(called_off, subscription);
        }
        if slot.pending == Some(stream) {
            return;
        }
        let dropped = slot.pending.replace(stream);
        self.unsubscribe(dropped, subscription);
        let Some(track) = self.tracks[stream].as_mut() else { return };
        debug_assert_ne!(
            track.publisher(),
            Some(subscription.person),
            "nobody receives themselves"
        );
        track.subscriptions.push(subscription);
        if track.is_video() {
            track.encoding.keyframe.wait();
        }
    }

    /// How a slot is shown.
    pub(super) fn show(&mut self, person: PersonKey, mid: &str, shown: Shown) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        let person = self.people[index].as_mut()?;
        let slot_index = person.slot(mid)?;
        person.egress.reconsider();
        let slot = &mut person.slots[slot_index];
        let was_hidden = slot.is_hidden();
        slot.shown = Some(shown.pixels);
        slot.pinned = shown.pinned.unwrap_or(slot.pinned);
        if slot.is_hidden() == was_hidden {
            return Some(());
        }
        let stream = slot.current.or(slot.pending);
        if was_hidden {
            if let Some(track) = stream.and_then(|stream| self.tracks[stream].as_mut()) {
                track.encoding.keyframe.wait();
            }
        } else if slot.current.is_some() && !slot.hold() {
            self.unsubscribe(stream, Subscription { person: index, slot: slot_index });
        }
        Some(())
    }

    pub(super) fn unsubscribe(&mut self, track: Option<TrackIndex>, subscription: Subscription) {
        if let Some(track) = track.and_then(|index| self.tracks[index].as_mut()) {
            track.subscriptions.retain(|known| *known != subscription);
        }
    }

    /// When the next of all bursts is due.
    pub(super) fn plan_bursts(&mut self) {
        let Self { bursts, people, .. } = self;
        let due = |person: &PersonIndex| people[*person].as_ref()?.egress.due();
        bursts.due = bursts.waiting.iter().filter_map(due).min();
    }
}

/// The layers of a line: 0 alone without simulcast.
fn layers_of(line: &Line) -> std::ops::Range<u8> {
    0..line.layers.len().clamp(1, MOST_LAYERS) as u8
}
