//! What nobody has in a slot costs nothing upstream, and is there again as soon as somebody wants it.

use super::world::{LAN, Made, World};
use engine::room::Topology;
use engine::{PersonKey, TrackKey};
use rtp::header;
use rtp::negotiated::{Direction, Kind};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Packets that each stream (by SSRC) sent to the server.
type Sent = Rc<RefCell<BTreeMap<u32, u64>>>;

fn sent(world: &mut World) -> Sent {
    let sent = Sent::default();
    let counted = sent.clone();
    world.eats = Box::new(move |to_server, _, bytes| {
        if to_server && !header::is_rtcp(bytes[1]) {
            let ssrc = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
            *counted.borrow_mut().entry(ssrc).or_default() += 1;
        }
        false
    });
    sent
}

/// What a person sends of a kind: its SSRC and its track.
fn stream(world: &mut World, key: PersonKey, kind: Kind) -> (u32, TrackKey) {
    let lines = world.client(key).negotiated.lines;
    let mut sending = lines.iter().filter(|line| line.direction == Direction::Send);
    let line = sending.find(|line| line.codec.kind() == kind).expect("he sends it");
    let ssrc = line.local.expect("it has an SSRC").ssrc;
    let tracks = &world.person(key).tracks;
    (ssrc, tracks.iter().find(|(_, of)| *of == kind).expect("it is published").0)
}

#[test]
fn a_picture_that_nobody_has_in_a_slot_is_not_sent_and_comes_back_at_once() {
    for shards in [1, 2] {
        let made = Made { audio: Topology::Sfu, video: Topology::Sfu, shards };
        let mut world = World::with_slots(22, LAN, made, (4, 2));
        let alone = world.join(true);
        let sent = sent(&mut world);
        let (own, _) = stream(&mut world, alone, Kind::Video);
        let (voice, _) = stream(&mut world, alone, Kind::Audio);
        world.run(Duration::from_secs(2));
        assert_eq!(sent.borrow().get(&own), None, "nobody is here to see him");
        assert!(sent.borrow()[&voice] > 90, "sound goes on: levels are needed");
        let mut people = vec![alone];
        people.extend((0..4).map(|_| world.join_silent(true)));
        world.run(Duration::from_secs(4));
        let pictures: Vec<_> =
            people.iter().map(|key| stream(&mut world, *key, Kind::Video)).collect();
        // Everybody has the first two of the others, so that the last two are seen by nobody.
        sent.borrow_mut().clear();
        world.run(Duration::from_secs(2));
        for (place, (ssrc, _)) in pictures.iter().enumerate() {
            let packets = sent.borrow().get(ssrc).copied().unwrap_or_default();
            assert_eq!(packets > 60, place < 3, "{place} sent {packets} packets");
            assert_eq!(packets == 0, place >= 3, "{place} sent {packets} packets");
        }
        let viewer = people[0];
        let mid = {
            let mut slots = world.room.person(viewer).unwrap().slot_contents(Kind::Video);
            slots.next().unwrap().0.to_owned()
        };
        let (ssrc, wanted) = pictures[4];
        world.want(viewer, &mid, wanted);
        world.run(Duration::from_millis(30));
        assert!(sent.borrow().contains_key(&ssrc), "it is sent again at once");
        world.run(Duration::from_secs(6));
        world.assert_invariants(22);
        let id = format!("t-{}", wanted.0);
        let name = world.person(viewer).name.clone();
        let rows = world.samples.iter().filter(|record| record.person == name);
        let rows: Vec<_> =
            rows.flat_map(|r| &r.sample.received).filter(|row| row.track == id).collect();
        let frames = rows.last().and_then(|row| row.frames_per_second);
        assert!(frames.is_some_and(|fps| fps > 19.0), "{rows:?}");
        assert!(rows.iter().all(|row| row.freezes == Some(0)), "{rows:?}");
        // Seen by nobody any more it rests again.
        world.want(viewer, &mid, pictures[1].1);
        world.run(Duration::from_secs(1));
        sent.borrow_mut().clear();
        world.run(Duration::from_secs(1));
        assert_eq!(sent.borrow().get(&ssrc), None);
        assert!(sent.borrow()[&pictures[1].0] > 20);
    }
}
