//! What one media thread runs: the way of a packet.
//!
//! 1. [`demux`]: a datagram is STUN or DTLS (handed up to the control thread where [`transports`] knows whose it
//!    is; a check that only asks whether we are still here is answered by [`consent`]), SRTP or SRTCP; its source
//!    address tells whose it is.
//! 2. [`incoming`]: it is opened once with the sender's keys into plaintext; its SSRC tells the
//!    track; retransmissions become the original again; arrivals, losses and levels are noted.
//! 3. [`queue`]: the packets of a batch wait in plaintext, and then go to one subscriber after the
//!    other ([`forward`]): for each subscription of the track the slot decides (make before break: a video
//!    slot switches with a keyframe), [`rewrite`] continues the slot's own counters, and the packet
//!    is built and sealed in the buffer that the sink lends. Of pictures only so much leaves at once as [`pacer`] lets.
//!    Where its track is mixed, [`mixing`] hands it to the mixer instead, and brings the mixed
//!    packets to their listeners; [`relay`] is the way to and from the other shards.
//! 4. [`history`] keeps video in plaintext once a publisher; [`resend`] answers who asks again, within bounds;
//!    [`feedback`] sends what both sides must know: reports, missing packets, keyframe wishes, arrivals.
//! 5. [`speaker`] tells who speaks ([`claim`]: if that is true), [`lately`] keeps how he began where slots are short; [`stats`] and [`crate::drops`] count everything.

mod claim;
mod consent;
mod demux;
mod feedback;
mod forward;
mod history;
mod incoming;
mod lately;
mod level;
mod mixing;
mod pacer;
mod person;
mod queue;
mod relay;
mod resend;
mod rewrite;
mod shortage;
mod slot;
mod speaker;
mod stats;
mod track;
mod transports;

pub use demux::Handled;
use relay::Imported;
pub use relay::{RelayContent, RelayControl, RelayPacket};
pub use stats::Stats;

use crate::command::{Command, PersonKey, Report, RoomKey, ShardIndex, TrackKey};
use crate::limits::{FEEDBACK_TICKS, SPEAKER_INTERVAL, TICK, TICK_CALM, VOICE_LASTS};
use crate::sink::{Now, Sink};
use claim::Sampler;
use foldhash::HashMap;
use lately::Lately;
use person::{Person, PersonIndex, Source, TrackIndex};
use queue::Queue;
use rtp::TransportAddress;
use shortage::Shortage;
use speaker::Speakers;
use std::time::Instant;
use track::{Origin, Subscription, Track};
use transports::Transports;

/// A datagram that came in.
#[derive(Debug)]
pub struct Inbound<'a> {
    /// Who sent it.
    pub source: TransportAddress,
    /// Its bytes.
    pub data: &'a [u8],
    /// When it arrived, as exactly as known.
    pub arrival: Instant,
}

/// The people, tracks and subscriptions of one media thread.
#[derive(Default)]
pub struct Shard {
    index: ShardIndex,
    shards: u16,
    people: Vec<Option<Person>>,
    tracks: Vec<Option<Track>>,
    // Looked up, never iterated over: a seed must repeat byte for byte.
    person_by_key: HashMap<PersonKey, PersonIndex>,
    person_by_address: HashMap<TransportAddress, PersonIndex>,
    track_by_key: HashMap<TrackKey, TrackIndex>,
    /// Whose STUN and DTLS goes up.
    transports: Transports,
    free_people: Vec<PersonIndex>,
    free_tracks: Vec<TrackIndex>,
    /// Tracks of pictures: these alone are asked for keyframes and for what is missing.
    pictures: Vec<TrackIndex>,
    /// Who receives a room's mix here, and in which slot.
    listeners: HashMap<RoomKey, Vec<Subscription>>,
    speakers: Speakers,
    sampler: Sampler,
    shortage: Shortage,
    reports: Vec<Report>,
    queue: Queue,
    plain: Vec<u8>,
    rtcp: Vec<u8>,
    sequences: Vec<u16>,
    next_tick: Option<Instant>,
    /// When the last tick was.
    ticked: Option<Instant>,
    ticks: usize,
    /// Who waits for the next burst of pictures, and when the first of them may have it.
    paced: Vec<PersonIndex>,
    pace_due: Option<Instant>,
    speakers_due: Option<Instant>,
    /// Somebody began to speak: that is told with the next tick.
    voices_began: bool,
    /// Tracks of sound from other shards of which nothing has come yet.
    imported: Vec<Imported>,
    stats: Stats,
}

impl Shard {
    /// An empty shard, one of `shards`.
    pub fn new(index: ShardIndex, shards: u16) -> Self {
        Self { index, shards, ..Self::default() }
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Takes what is to be reported to rooms.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// When [`Shard::handle_timeout`] wants to run next; never where nobody is here, once that was told.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.next_tick.into_iter().chain(self.pace_due).min()
    }

    /// How many people, tracks and subscriptions are here.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let subscriptions =
            self.tracks.iter().flatten().map(|track| track.subscriptions.len()).sum();
        (self.person_by_key.len(), self.track_by_key.len(), subscriptions)
    }

    /// What is kept of people, tracks and rooms, by name: nothing, when everybody has left and that was told.
    pub fn kept(&self) -> [(&'static str, usize); 12] {
        [
            ("people", self.people.iter().flatten().count()),
            ("people by key", self.person_by_key.len()),
            ("people by address", self.person_by_address.len()),
            ("tracks", self.tracks.iter().flatten().count()),
            ("tracks by key", self.track_by_key.len()),
            ("tracks of pictures", self.pictures.len()),
            ("transports", self.transports.kept()),
            ("listeners of mixes", self.listeners.len()),
            ("speakers", self.speakers.kept()),
            ("people who wait for a burst", self.paced.len()),
            ("imported tracks", self.imported.len()),
            ("opened packets", self.queue.len()),
        ]
    }

    /// The round-trip time to a person in milliseconds, where his reports told it.
    pub fn rtt_ms(&self, person: PersonKey) -> Option<f64> {
        self.people[*self.person_by_key.get(&person)?].as_ref()?.rtt_ms
    }

    /// A batch of datagrams came in.
    pub fn handle_batch<'a>(
        &mut self,
        now: Now,
        batch: impl IntoIterator<Item = Inbound<'a>>,
        sink: &mut impl Sink,
        mut handled: impl FnMut(&Inbound<'_>, Handled),
    ) {
        let mut first = true;
        for datagram in batch {
            if std::mem::take(&mut first) {
                // The oldest of the batch: how long packets wait until they are read.
                self.waited(now, datagram.arrival);
            }
            let outcome = self.handle_datagram(now, &datagram, sink);
            handled(&datagram, outcome);
        }
        self.flush(now, sink);
    }

    /// The periodic work that is due.
    pub fn handle_timeout(&mut self, now: Now, sink: &mut impl Sink) {
        self.pace(now, sink);
        if self.next_tick.is_none_or(|at| now.at < at) {
            return;
        }
        self.ticked = Some(now.at);
        self.ticks = self.ticks.wrapping_add(1);
        let calm = !self.ask_publishers(now, sink);
        self.next_tick = Some(now.at + if calm { TICK_CALM } else { TICK });
        // Calm ticks are few: with pictures, each is everybody's.
        let turns = if calm && !self.pictures.is_empty() { 1 } else { FEEDBACK_TICKS };
        self.send_reports(turns, now, sink);
        let due = self.speakers_due.is_none_or(|at| now.at >= at);
        if due {
            self.speakers_due = Some(now.at + SPEAKER_INTERVAL);
        }
        self.ask_for_imported(due, sink);
        if due || self.voices_began {
            self.voices_began = self.tell_speakers(now, sink);
        }
        // That somebody who spoke has left is still to be told.
        if self.person_by_key.is_empty() && self.speakers.kept() == 0 {
            self.next_tick = None;
        }
    }

    /// Tells who speaks; says whether some of it must wait because the last was told just now.
    fn tell_speakers(&mut self, now: Now, sink: &mut impl Sink) -> bool {
        let speaking = self.tracks.iter().flatten().filter_map(|track| {
            // Who stopped sending altogether says nothing of his silence.
            let (_, last) = track.newest?;
            let lasts = now.unix.saturating_sub(last) < VOICE_LASTS;
            let level = track.voice.level_dbov().filter(|_| lasts && !track.silenced)?;
            let person = self.people[track.publisher()?].as_ref()?;
            Some((person.room, person.key, level))
        });
        self.speakers.spoke(speaking.collect());
        let (index, shards) = (self.index, self.shards);
        self.speakers.tell((index, shards), now.at, &mut self.reports, |home, room, speakers| {
            sink.relay_control(home, RelayControl::Speaking { room, from: index, speakers });
        })
    }

    /// Something is missing or wanted: the next tick comes soon.
    #[inline]
    fn hurry(&mut self) {
        let soon = self.ticked.map(|at| at + TICK);
        self.next_tick = self.next_tick.map(|at| soon.map_or(at, |soon| at.min(soon)));
    }

    /// A room's command.
    pub fn command(&mut self, command: Command, now: Now) {
        let done = match command {
            Command::Lines { person, room, negotiated } => {
                let index = self.person_entry(person, room, now);
                self.people[index].as_mut().map(|person| person.add_lines(&negotiated))
            }
            Command::Expect { person, responder } => {
                self.transports.expect(person, *responder, now.at);
                Some(())
            }
            Command::Forget { person } => self.transports.forget(person),
            Command::Install { person, keys, remote } => self.install(person, &keys, remote),
            Command::Begin { person } => self.begin(person),
            Command::Suspend { person } => self.suspend_person(person),
            Command::Credentials { person, responder } => self.credentials(person, *responder),
            Command::Move { person, remote } => self.move_person(person, remote),
            Command::AddTrack { track, person, mid, mixed, opaque } => {
                self.add_track(track, person, &mid, (mixed, opaque))
            }
            Command::Import { track, from, line, opaque, .. } => {
                self.import(track, from, line, opaque)
            }
            Command::Export { track, to, on } => self.export(track, to, on),
            Command::Keep { track, on } => self.keep(track, on),
            Command::Silence { track, on } => self.silence(track, on),
            Command::MapMix { person, mid } => self.map_mix(person, &mid),
            Command::RemoveTrack { track } => self.remove_track(track),
            Command::Map { person, mid, track } => self.map_slot(person, &mid, track),
            Command::Remove { person } => self.remove_person(person),
        };
        if done.is_none() {
            self.stats.stale_commands += 1;
        }
        self.hurry();
    }

    fn person_entry(&mut self, key: PersonKey, room: crate::RoomKey, now: Now) -> PersonIndex {
        if let Some(index) = self.person_by_key.get(&key) {
            return *index;
        }
        let person = Some(Person::new(key, room, now.at));
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
        self.next_tick.get_or_insert(now.at + TICK);
        index
    }

    fn install(
        &mut self,
        person: PersonKey,
        keys: &rtp::srtp::KeyPair,
        remote: TransportAddress,
    ) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        let person = self.people[index].as_mut()?;
        person.install(keys, remote);
        // An address can be taken over: NAT gives a port of someone gone to someone new.
        self.person_by_address.insert(remote, index);
        Some(())
    }

    fn begin(&mut self, person: PersonKey) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        let person = self.people[index].as_mut()?;
        let secure = person.secure.as_mut()?;
        (secure.begun, secure.lost) = (true, false);
        for slot in &person.slots {
            let wanted = slot.pending.filter(|_| slot.is_video());
            if let Some(track) = wanted.and_then(|track| self.tracks[track].as_mut()) {
                track.keyframe.wait();
            }
        }
        Some(())
    }

    fn suspend_person(&mut self, person: PersonKey) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        self.people[index].as_mut()?.secure.as_mut()?.lost = true;
        Some(())
    }

    fn move_person(&mut self, person: PersonKey, remote: TransportAddress) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        let secure = self.people[index].as_mut()?.secure.as_mut()?;
        let old = std::mem::replace(&mut secure.remote, remote);
        if self.person_by_address.get(&old) == Some(&index) {
            self.person_by_address.remove(&old);
        }
        self.person_by_address.insert(remote, index);
        Some(())
    }

    fn add_track(
        &mut self,
        key: TrackKey,
        person: PersonKey,
        mid: &str,
        (mixed, opaque): (bool, bool),
    ) -> Option<()> {
        let publisher = *self.person_by_key.get(&person)?;
        let person = self.people[publisher].as_mut()?;
        let line = person.sending.iter().find(|line| line.mid == mid)?.clone();
        let mut track = Track::new(key, Origin::Person(publisher), line);
        (track.mixed, track.opaque) = (mixed, opaque);
        let ids = track.ids;
        let index = self.place_track(track);
        let person = self.people[publisher].as_mut()?;
        person.tracks.push(index);
        if let Some(ids) = ids {
            person.sources.push((ids.ssrc, Source::Media(index)));
            person.sources.extend(ids.rtx.map(|rtx| (rtx, Source::Rtx(index))));
        }
        Some(())
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

    fn keep(&mut self, key: TrackKey, on: bool) -> Option<()> {
        let track = self.tracks[*self.track_by_key.get(&key)?].as_mut()?;
        match (on, &track.lately) {
            (true, None) => track.lately = Some(Lately::new()),
            (true, Some(_)) => {}
            (false, _) => track.lately = None,
        }
        Some(())
    }

    fn silence(&mut self, key: TrackKey, on: bool) -> Option<()> {
        let index = *self.track_by_key.get(&key)?;
        let track = self.tracks[index].as_mut()?;
        track.silenced = on;
        track.newest_keyframe = None;
        if on {
            self.suspend(index);
        } else if track.is_video() {
            track.keyframe.want();
        }
        Some(())
    }

    /// Nothing of a track flows until something of it may again: its slots then go on as after a
    /// switch, pictures from a keyframe.
    pub(super) fn suspend(&mut self, index: TrackIndex) {
        let Some(track) = self.tracks[index].as_mut() else { return };
        track.lately.iter_mut().for_each(Lately::forget);
        track.newest_keyframe = None;
        let (people, key) = (&mut self.people, track.key);
        track.subscriptions.retain(|subscription| {
            let Some(person) = people[subscription.person].as_mut() else { return false };
            person.pacer.forget(key);
            let slot = &mut person.slots[subscription.slot];
            if slot.current.take_if(|current| *current == index).is_none() {
                return true;
            }
            *slot.pending.get_or_insert(index) == index
        });
    }

    fn remove_track(&mut self, key: TrackKey) -> Option<()> {
        let index = self.track_by_key.remove(&key)?;
        let track = self.tracks[index].take()?;
        self.imported.retain(|imported| imported.key != key);
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
            publisher.tracks.retain(|track| *track != index);
            publisher.sources.retain(|(_, source)| {
                !matches!(source, Source::Media(track) | Source::Rtx(track) if *track == index)
            });
        }
        Some(())
    }

    fn map_slot(&mut self, person: PersonKey, mid: &str, track: Option<TrackKey>) -> Option<()> {
        let index = *self.person_by_key.get(&person)?;
        let slot_index = self.people[index].as_ref()?.slot(mid)?;
        let wanted = match track {
            Some(key) => Some(*self.track_by_key.get(&key)?),
            None => None,
        };
        let subscription = Subscription { person: index, slot: slot_index };
        let slot = &mut self.people[index].as_mut()?.slots[slot_index];
        if wanted.is_some() && (slot.pending == wanted || slot.current == wanted) {
            // Back to what flows: a pending switch is called off.
            if slot.current == wanted {
                let called_off = slot.pending.take();
                self.unsubscribe(called_off, subscription);
            }
            return Some(());
        }
        let video = slot.is_video();
        let (mut dropped, current) = (slot.pending.take(), slot.current);
        match wanted {
            None => {
                slot.current = None;
                self.unsubscribe(current, subscription);
            }
            // Make before break: the old picture flows until the new one can be decoded. Sound
            // needs no keyframe: its first packet switches.
            Some(new) => {
                slot.pending = Some(new);
                let track = self.tracks[new].as_mut()?;
                track.subscriptions.push(subscription);
                if video {
                    track.keyframe.wait();
                }
                dropped = dropped.filter(|old| *old != new);
            }
        }
        self.unsubscribe(dropped, subscription);
        Some(())
    }

    fn unsubscribe(&mut self, track: Option<TrackIndex>, subscription: Subscription) {
        if let Some(track) = track.and_then(|index| self.tracks[index].as_mut()) {
            track.subscriptions.retain(|known| *known != subscription);
        }
    }

    fn remove_person(&mut self, key: PersonKey) -> Option<()> {
        let index = *self.person_by_key.get(&key)?;
        let tracks = self.people[index].as_ref()?.tracks.clone();
        for track in tracks {
            let key = self.tracks[track].as_ref()?.key;
            self.remove_track(key);
        }
        let person = self.people[index].take()?;
        for (slot_index, slot) in person.slots.iter().enumerate() {
            let subscription = Subscription { person: index, slot: slot_index };
            self.unsubscribe(slot.current, subscription);
            self.unsubscribe(slot.pending, subscription);
        }
        if let Some(listeners) = self.listeners.get_mut(&person.room) {
            listeners.retain(|listener| listener.person != index);
            if listeners.is_empty() {
                self.listeners.remove(&person.room);
            }
        }
        if let Some(secure) = person.secure
            && self.person_by_address.get(&secure.remote) == Some(&index)
        {
            self.person_by_address.remove(&secure.remote);
        }
        self.person_by_key.remove(&key);
        self.free_people.push(index);
        self.paced.retain(|paced| *paced != index);
        self.plan_bursts();
        Some(())
    }
}
