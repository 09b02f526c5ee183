//! The people of a [`World`]: they come, agree on lines, publish, choose, and leave.

use super::super::sinks::Within;
use super::{SIZES, World};
use engine::room::{Effects, Published};
use engine::{Command, PersonKey, ShardIndex, Shown, TrackKey};
use lab::bot::fixtures::Fixtures;
use lab::bot::media::{BotMedia, Clock, Config, Opening};
use lab::checks::{Expected, Listener, Span, Track};
use lab::link::{Counts, LinkSpec, Path};
use rtp::TransportAddress;
use rtp::negotiated::{Direction, Kind};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use transport::{Fixed, FixedPeer};
use wire::room::MediaKind;

/// What someone does by themselves.
#[derive(Debug, Clone, Copy, Default)]
struct Does {
    /// They speak all the time; else what they say is up to the test.
    speaks: bool,
    /// They show a clip…
    video: bool,
    /// …or a picture of the test's.
    films: bool,
    /// They have no line to send on.
    listens: bool,
}

pub struct Person {
    pub key: PersonKey,
    pub name: String,
    pub media: BotMedia,
    pub address: SocketAddr,
    pub shard: ShardIndex,
    pub(super) session: Fixed,
    /// (track, kind) that they publish.
    pub tracks: Vec<(TrackKey, Kind)>,
}

fn fixtures() -> Arc<Fixtures> {
    static FIXTURES: OnceLock<Arc<Fixtures>> = OnceLock::new();
    FIXTURES.get_or_init(|| Fixtures::embedded().expect("media/ is committed")).clone()
}

const ROOM: &str = "garden";

impl World {
    /// Someone comes in and publishes sound and, if asked, a picture; shards take turns.
    pub fn join(&mut self, video: bool) -> PersonKey {
        let key = self.begin_handshake(video);
        self.finish_handshake(key);
        key
    }

    /// Someone comes in; the server has their keys, they have not yet.
    pub fn begin_handshake(&mut self, video: bool) -> PersonKey {
        self.begin(Does { speaks: true, video, ..Does::default() })
    }

    /// Someone comes in whose sound is made by the test; nothing is expected of it.
    pub fn join_silent(&mut self, video: bool) -> PersonKey {
        self.join_by_hand(Does { video, ..Does::default() })
    }

    /// Someone comes in who only listens.
    pub fn join_listening(&mut self) -> PersonKey {
        self.join_by_hand(Does { listens: true, ..Does::default() })
    }

    /// Someone comes in whose sound and picture are made by the test.
    pub fn join_filming(&mut self) -> PersonKey {
        self.join_by_hand(Does { films: true, ..Does::default() })
    }

    fn join_by_hand(&mut self, does: Does) -> PersonKey {
        let key = self.begin(does);
        let expected = self.expected.clone();
        self.finish_handshake(key);
        self.expected = expected;
        key
    }

    fn begin(&mut self, does: Does) -> PersonKey {
        let shard = ShardIndex((self.next_key / 20 % self.shards.len() as u64) as u16);
        let Does { speaks, video, films, listens } = does;
        let number = self.next_key;
        self.next_key += 10;
        let key = PersonKey(number);
        let name = format!("bot-{number}");
        let session = Fixed {
            seed: self.random.below(u64::MAX),
            video: self.codec,
            send_audio: !listens,
            send_video: video || films,
            layers: self.layers,
            red: self.red,
            red_first: self.red_first,
            feedback: self.feedback,
            resends: self.resends,
            lacks: self.lacks,
            audio_slots: self.room.limits().audio_slots.min(4),
            video_slots: self.room.limits().video_slots.min(12),
        };
        let media = BotMedia::new(Config {
            seed: session.seed,
            cname: name.clone(),
            voice: speaks.then(|| fixtures().voice(number as u32)),
            clip: video
                .then(|| self.pictures.clone().or_else(|| fixtures().clip(self.clip)))
                .flatten(),
            joined: self.now.at,
            clock: Clock { origin: self.origin, unix: Duration::from_secs(1_700_000_000) },
            opening: Opening::All,
        });
        let address = SocketAddr::from(([10, 0, 1, (number / 250) as u8], 1000 + number as u16));

        if self.by_tcp {
            self.on_tcp.insert(address);
        }
        let tracks = Vec::new();
        self.people.push(Person { key, name, media, address, shard, session, tracks });
        let mut effects = Effects::default();
        let name = format!("bot-{number}");
        self.room.join(key, name, shard, &mut effects).unwrap();
        self.apply(effects);
        self.negotiate(key);
        let keys = self.person(key).session.pair().0.keys;
        let remote = if self.by_tcp { TransportAddress::tcp(address) } else { address.into() };
        let install = Command::Install { person: key, keys: Box::new(keys), remote, reached: true };
        self.within(shard, Within::Command(install));
        key
    }

    /// The handshake's last flight arrives: from now on both sides have keys.
    pub fn finish_handshake(&mut self, key: PersonKey) {
        let shard = self.person(key).shard;
        self.within(shard, Within::Command(Command::Begin { person: key }));
        let now = self.now.at;
        let person = self.person(key);
        let keys = person.session.pair().1.keys;
        person.media.install(&keys, now);
        self.expect(key);
    }

    /// Notes what the checks may expect of and for someone who came in now.
    fn expect(&mut self, key: PersonKey) {
        let from_ms = self.elapsed_ms();
        let span = Span { from_ms, until_ms: None };
        let participant = format!("p-{}", key.0);
        let person = self.person(key);
        let (name, tracks) = (person.name.clone(), person.tracks.clone());
        for (track, kind) in tracks {
            self.expected.tracks.push(Track {
                room: ROOM.into(),
                publisher: name.clone(),
                participant: participant.clone(),
                track: format!("t-{}", track.0),
                kind: if kind == Kind::Audio { MediaKind::Audio } else { MediaKind::Video },
                on_air: vec![span],
            });
        }
        self.expected.listeners.push(Listener {
            room: ROOM.into(),
            person: name,
            participant,
            present: span,
            mix: false,
            max_audio: None,
            max_video: None,
        });
    }

    /// A command of the control thread.
    pub fn command(&mut self, person: PersonKey, command: Command) {
        let shard = self.person(person).shard;
        self.command_to(shard, command);
    }

    /// The same, of somebody who may have left.
    pub fn command_to(&mut self, shard: ShardIndex, command: Command) {
        self.within(shard, Within::Command(command));
    }

    pub fn leave(&mut self, key: PersonKey) {
        let mut effects = Effects::default();
        self.room.leave(key, &mut effects).unwrap();
        self.people.retain(|person| person.key != key);
        let until_ms = Some(self.elapsed_ms());
        let id = format!("p-{}", key.0);
        for track in self.expected.tracks.iter_mut().filter(|t| t.participant == id) {
            track.on_air[0].until_ms = until_ms;
        }
        for listener in self.expected.listeners.iter_mut().filter(|l| l.participant == id) {
            listener.present.until_ms = until_ms;
        }
        self.apply(effects);
    }

    /// Drops what the world itself keeps of a run: samples, who should have heard whom, links of people who have left, and
    /// what they were told.
    pub fn forget(&mut self) {
        (self.samples, self.expected) = (Vec::new(), Expected::default());
        let here = |address: &SocketAddr| self.people.iter().any(|p| p.address == *address);
        self.paths.retain(|(_, address), _| here(address));
        let here = |key: &PersonKey| self.people.iter().any(|p| p.key == *key);
        self.told.retain(|(who, _), _| here(who));
        self.paused.retain(|(who, _)| here(who));
        let sent = |track: &TrackKey| self.room.owner_of(*track).is_some();
        self.resting.retain(sent);
        self.wanted.retain(|track, _| sent(track));
    }

    pub fn person(&mut self, key: PersonKey) -> &mut Person {
        self.people.iter_mut().find(|person| person.key == key).expect("they are here")
    }

    /// A person's side of their session.
    pub fn client(&mut self, key: PersonKey) -> FixedPeer {
        self.person(key).session.pair().1
    }

    /// A person is behind this link, both ways, from now on.
    pub fn set_link(&mut self, key: PersonKey, spec: LinkSpec) {
        let address = self.person(key).address;
        for to_server in [true, false] {
            let path = Path::new(spec, self.random.below(u64::MAX));
            self.paths.insert((to_server, address), path);
        }
    }

    /// What comes to a person passes this link from now on, with a queue of its own.
    pub fn set_downlink(&mut self, key: PersonKey, spec: LinkSpec) {
        let address = self.person(key).address;
        match self.paths.get_mut(&(false, address)) {
            Some(path) => path.set(spec),
            None => {
                let path = Path::new(spec, self.random.below(u64::MAX));
                self.paths.insert((false, address), path);
            }
        }
    }

    /// What comes to these people passes one link from now on: they share its rate and its queue.
    pub fn share_downlink(&mut self, keys: &[PersonKey], spec: LinkSpec) {
        for key in keys {
            self.set_downlink(*key, spec);
            let address = self.person(*key).address;
            self.shared.1.insert(address);
        }
    }

    /// What a person's link did with what came to them so far.
    pub fn downlink(&mut self, key: PersonKey) -> Counts {
        let address = self.person(key).address;
        self.paths.get(&(false, address)).map(|path| path.counts().0).unwrap_or_default()
    }

    /// A datagram of a person's leaves for the server.
    pub fn send(&mut self, key: PersonKey, bytes: Vec<u8>) {
        let person = self.person(key);
        let (shard, address) = (person.shard, person.address);
        self.send_up(shard, address, bytes);
    }

    /// A person chooses what a slot carries.
    pub fn want(&mut self, key: PersonKey, mid: &str, track: TrackKey) {
        let mut effects = Effects::default();
        self.room.want(key, &[(mid.to_owned(), Some(track))], &mut effects).unwrap();
        self.apply(effects);
    }

    /// A person sees a slot at this size, in pixels.
    pub fn show(&mut self, key: PersonKey, mid: &str, pixels: u32) {
        self.shown(key, mid, Shown { pixels, pinned: Some(false) });
    }

    /// A person pins a slot, which they see in full size.
    pub fn pin(&mut self, key: PersonKey, mid: &str) {
        self.shown(key, mid, Shown { pixels: u32::MAX, pinned: Some(true) });
    }

    fn shown(&mut self, key: PersonKey, mid: &str, shown: Shown) {
        let mut effects = Effects::default();
        self.room.show(key, &[(mid.to_owned(), shown)], &mut effects).unwrap();
        self.apply(effects);
    }

    /// The SSRC of a slot.
    pub fn slot_ssrc(&mut self, key: PersonKey, mid: &str) -> u32 {
        let server = self.person(key).session.pair().0;
        server.negotiated.line(mid).unwrap().local.unwrap().ssrc
    }

    /// Agrees on the session's lines as they are now.
    pub(super) fn negotiate(&mut self, key: PersonKey) {
        let (next_key, opaque, picture) = (self.next_key, self.opaque, self.picture);
        let music = self.music;
        let now = self.now.at;
        let person = self.person(key);
        let (server, client) = person.session.pair();
        let sends = client.negotiated.lines.iter().filter(|l| l.direction == Direction::Send);
        let published: Vec<Published> = sends
            .enumerate()
            .map(|(i, line)| Published {
                mid: line.mid.clone(),
                name: if line.codec.kind() == Kind::Video { picture.into() } else { String::new() },
                key: TrackKey(next_key + i as u64),
                opaque,
                music,
                layers: line.layers.iter().map(|layer| layer.rid.clone()).zip(SIZES).collect(),
            })
            .collect();
        let kinds: Vec<Kind> = published
            .iter()
            .map(|p| client.negotiated.line(&p.mid).unwrap().codec.kind())
            .collect();
        let mut effects = Effects::default();
        let keys = self.room.negotiated(key, &server.negotiated, &published, &mut effects).unwrap();
        let tracks: Vec<(String, String)> = published
            .iter()
            .zip(&keys)
            .map(|(track, key)| (track.mid.clone(), format!("t-{}", key.0)))
            .collect();
        let person = self.person(key);
        person.tracks = keys.into_iter().zip(kinds).collect();
        person.media.agreed(&client.negotiated, &tracks, now);
        self.next_key += 10;
        self.apply(effects);
    }
}
