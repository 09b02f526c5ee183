//! Rooms of many over real sockets: of an audience the number is told, and in the end everybody knows the same.

use crate::raw::{self, Raw};
use crate::target::{Server, Socket, eventually};
use crate::virtual_time::Random;
use rtp::header::HeaderWriter;
use rtp::negotiated::Kind;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;
use wire::Event;
use wire::event::Speaker;
use wire::room::{Joined, PeoplePage, Resumed};

const ROOM: &str = "hall";
const ROSTER: usize = 4;
const PEOPLE: usize = 24;

/// A participant, with what they know of the room.
struct Member {
    socket: Socket,
    me: String,
    seen: u64,
    count: u32,
    known: BTreeSet<String>,
    hand: bool,
    /// When they came, how often they took their place up again, and how often they were told the number of people.
    since: Instant,
    resumed: usize,
    told: usize,
}

fn session(nth: usize) -> String {
    format!("session-{nth}")
}

impl Member {
    fn join(server: &Server, nth: usize) -> Self {
        let mut socket = Socket::connect(server);
        let join = json!({ "room": ROOM, "name": "x", "session": session(nth),
            "preset": "audio_room" });
        let joined = socket.call_patiently("room.join", &join).unwrap();
        let joined: Joined = serde_json::from_value(joined).unwrap();
        Self {
            socket,
            me: joined.participant,
            seen: joined.epoch,
            count: joined.count,
            known: joined.participants.into_iter().map(|one| one.id).collect(),
            hand: false,
            since: Instant::now(),
            resumed: 0,
            told: 0,
        }
    }

    /// Loses the socket and takes the place up with another.
    fn resume(&mut self, server: &Server, nth: usize) {
        self.listen();
        self.socket = Socket::connect(server);
        let resume = json!({ "room": ROOM, "participant": self.me, "session": session(nth),
            "seen": self.seen });
        let resumed = self.socket.call_patiently("room.resume", &resume).unwrap();
        let resumed: Resumed = serde_json::from_value(resumed).unwrap();
        resumed.events.iter().for_each(|envelope| self.take(&envelope.event));
        self.seen = resumed.epoch;
        self.resumed += 1;
        self.listen();
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::ParticipantJoined { participant, count, .. } => {
                self.count = *count;
                if participant.id != self.me {
                    self.known.insert(participant.id.clone());
                }
            }
            Event::ParticipantLeft { participant, count, .. } => {
                self.count = *count;
                assert!(self.known.remove(participant), "{participant} left, whom nobody knew");
            }
            Event::ParticipantChanged { participant } => {
                assert!(participant.id == self.me || self.known.contains(&participant.id));
            }
            Event::People { count, .. } => {
                self.count = *count;
                self.told += 1;
            }
            _ => {}
        }
    }

    /// Takes all that was told until now.
    fn listen(&mut self) {
        for envelope in self.socket.envelopes() {
            self.seen = envelope.epoch;
            self.take(&envelope.event);
        }
    }
}

/// Everybody in the room, read page by page.
fn all_pages(socket: &mut Socket) -> BTreeSet<String> {
    let (mut all, mut after) = (BTreeSet::new(), Value::Null);
    loop {
        let asked = match &after {
            Value::Null => json!({ "limit": 7 }),
            after => json!({ "limit": 7, "after": after }),
        };
        let page = socket.call_patiently("room.people", &asked).unwrap();
        let page: PeoplePage = serde_json::from_value(page).unwrap();
        assert!(page.people.len() <= 7);
        let Some(last) = page.people.last() else { return all };
        after = json!(last.id);
        all.extend(page.people.iter().map(|one| one.id.clone()));
    }
}

#[test]
fn in_the_end_everybody_knows_how_many_are_there_and_the_same_people_by_name() {
    let server = Server::start(&format!("{{ roster: {ROSTER}, requests_per_second: 1000 }}"));
    for seed in 1..=3 {
        let mut random = Random(seed);
        let mut members: Vec<Option<Member>> = (0..PEOPLE).map(|_| None).collect();
        // One stays, so that the room does.
        members[0] = Some(Member::join(&server, 0));
        for step in 0..150 {
            // Until half of it the room fills, then it empties.
            let comes = random.below(4) < if step < 75 { 3 } else { 1 };
            let nth = 1 + random.below(PEOPLE as u64 - 1) as usize;
            match (&mut members[nth], random.below(4)) {
                (place @ None, _) if comes => *place = Some(Member::join(&server, nth)),
                (Some(member), 0) => member.resume(&server, nth),
                (Some(member), 1) => {
                    member.hand = !member.hand;
                    let hand = json!({ "raised": member.hand });
                    member.socket.call_patiently("room.hand", &hand).unwrap();
                }
                (place @ Some(_), _) if !comes => {
                    let mut member = place.take().unwrap();
                    member.socket.call_patiently("room.leave", &json!({})).unwrap();
                }
                _ => {}
            }
            if random.below(10) == 0 {
                agree(&mut members, seed);
            }
        }
        agree(&mut members, seed);
        for mut member in members.into_iter().flatten() {
            member.socket.call_patiently("room.leave", &json!({})).unwrap();
        }
    }
}

/// Waits until everybody knows the same.
fn agree(members: &mut [Option<Member>], seed: u64) {
    let mut here: Vec<&mut Member> = members.iter_mut().flatten().collect();
    let ids: BTreeSet<String> = here.iter().map(|member| member.me.clone()).collect();
    let what = format!("seed {seed}: {} people agree", here.len());
    eventually(&what, || {
        here.iter_mut().for_each(|member| member.listen());
        here.iter().all(|member| member.count as usize == ids.len()).then_some(())
    });
    let known = |member: &Member| {
        let mut known = member.known.clone();
        assert!(!known.contains(&member.me), "{} is told of themselves", member.me);
        known.insert(member.me.clone());
        known
    };
    // Nobody is told of themselves.
    let by_name: BTreeSet<String> = here.iter().flat_map(|member| member.known.clone()).collect();
    for member in &here {
        let mut others = by_name.clone();
        others.insert(member.me.clone());
        assert_eq!(known(member), others, "seed {seed}: what {} knows", member.me);
        assert!(member.hand <= by_name.contains(&member.me) || here.len() == 1);
        let most = 2 + member.resumed + (member.since.elapsed().as_millis() / 500) as usize;
        assert!(member.told <= most, "seed {seed}: told {} times, {most} at most", member.told);
    }
    assert!(by_name.is_subset(&ids), "seed {seed}: {by_name:?} of {ids:?}");
    if here.len() <= ROSTER {
        assert_eq!(by_name.len().max(1), ids.len(), "seed {seed}: few are all known by name");
    }
    assert_eq!(all_pages(&mut here[0].socket), ids, "seed {seed}: page by page");
}

#[test]
fn who_speaks_in_an_audience_is_told_with_their_name() {
    let server = Server::start("{ roster: 1 }");
    let mut watcher = Socket::connect(&server);
    watcher.ask("room.join", json!({ "room": ROOM, "name": "Ada", "preset": "audio_room" }));
    let (mut speaker, mut socket) =
        Raw::join(&server, ([127, 0, 0, 1], ROOM), &[Kind::Audio], (1, 0));
    raw::connect(&mut [&mut speaker]);
    let line = speaker.line(Kind::Audio).clone();
    let level = line.extensions.audio_level.unwrap();
    let mut sequence = 0_u16;
    let told: Vec<Speaker> = eventually("somebody speaks", || {
        let header = HeaderWriter {
            payload_type: line.payload_type,
            sequence,
            timestamp: 960 * u32::from(sequence),
            ssrc: line.local.unwrap().ssrc,
            extensions: &[(level, &[0x80 | 20])],
            ..HeaderWriter::default()
        };
        speaker.send_rtp(&header, &[0xF8, 0xFF, 0xFE]);
        sequence += 1;
        speaker.step();
        watcher.events().into_iter().find_map(|event| match event {
            Event::ActiveSpeakers { speakers } if !speakers.is_empty() => Some(speakers),
            Event::ParticipantJoined { .. } | Event::TrackAdded { .. } => panic!("{event:?}"),
            _ => None,
        })
    });
    assert_eq!(told[0].name.as_deref(), Some("raw"));
    // Once they are known by name, it is told no more.
    socket.ask("room.hand", json!({ "raised": true }));
    let joined = watcher.events().into_iter().find_map(|event| match event {
        Event::ParticipantJoined { participant, count: 2, from_audience: true } => {
            Some(participant)
        }
        _ => None,
    });
    let joined = joined.expect("their hand is told");
    assert!(joined.hand && joined.tracks.len() == 1, "{joined:?}");
}
