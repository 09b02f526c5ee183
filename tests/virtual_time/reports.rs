//! How often people are told how their media fares (RTCP).

use super::world::{LAN, Made, World};
use engine::drops::InDrop;
use engine::room::Topology;
use rtp::report::Ntp;
use rtp::rtcp::{self, SenderInfo};
use rtp::srtp::Sealer;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const SECONDS: u64 = 20;

#[test]
fn who_publishes_has_reports_each_second_and_who_only_listens_every_five() {
    let made = Made { audio: Topology::Sfu, video: Topology::None, shards: 1 };
    let mut world = World::with_slots(5, LAN, made, (4, 0));
    let counted: Rc<RefCell<BTreeMap<(SocketAddr, bool), u64>>> = Rc::default();
    let counts = counted.clone();
    world.eats = Box::new(move |to_server, person, bytes| {
        if [SENDER_REPORT, RECEIVER_REPORT].contains(&bytes[1]) {
            *counts.borrow_mut().entry((person, to_server)).or_default() += 1;
        }
        false
    });
    world.join(false);
    world.join_listening();
    world.run(Duration::from_secs(5));
    counted.borrow_mut().clear();
    world.run(Duration::from_secs(SECONDS));

    let counted = counted.borrow();
    let all: Vec<u64> = counted.values().copied().collect();
    let [to_one, from_one, to_other, from_other] = all[..] else { panic!("{counted:?}") };
    for (often, seldom) in [(to_one, to_other), (from_one, from_other)] {
        assert!((SECONDS - 2..=SECONDS + 2).contains(&often), "{counted:?}");
        assert!((SECONDS / 5 - 1..=SECONDS / 5 + 1).contains(&seldom), "{counted:?}");
    }
}

#[test]
fn a_flood_of_sender_reports_reaches_other_shards_fifty_times_a_second_at_most() {
    let made = Made { audio: Topology::Sfu, video: Topology::None, shards: 2 };
    let mut world = World::with_slots(6, LAN, made, (4, 0));
    let listener = world.join(false);
    let hostile = world.join_silent(false);
    world.run(Duration::from_secs(2));
    let shard = world.person(listener).shard;
    assert_ne!(shard, world.person(hostile).shard);
    let client = world.client(hostile);
    let ssrc = client.negotiated.lines[0].local.unwrap().ssrc;
    let mut sealer = Sealer::new(&client.keys.local);
    let mut compound = Vec::new();
    while compound.len() < 1100 {
        let ntp = Ntp::from_unix(Duration::from_secs(1_700_000_000));
        let info = SenderInfo { ntp, rtp_timestamp: 1, packet_count: 1, octet_count: 1 };
        rtcp::sender_report(&mut compound, ssrc, &info, &[]);
    }
    let before = world.handed_over(3);
    for _ in 0..200 {
        let mut buffer = compound.clone();
        buffer.resize(compound.len() + 64, 0);
        let len = sealer.seal_rtcp(&mut buffer, compound.len()).unwrap();
        buffer.truncate(len);
        world.send(hostile, buffer);
        world.run(Duration::from_millis(5));
    }
    // Voices and wishes for keyframes use the same lane.
    let crossed = world.handed_over(3) - before;
    assert!((5..=75).contains(&crossed), "{crossed} messages to another shard in a second");
    let refused = |shard: &engine::Shard| shard.stats().in_drops.get(InDrop::ReportTooSoon);
    assert!(world.shards.iter().map(refused).sum::<u64>() > 7000, "each refusal is counted");
}
