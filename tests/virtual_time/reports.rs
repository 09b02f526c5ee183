//! How often people are told how their media fares (RTCP).

use super::world::{LAN, Made, World};
use engine::room::Topology;
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
