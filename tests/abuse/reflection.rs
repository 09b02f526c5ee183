//! Nobody is flooded by what a participant says of an address: media goes where somebody answered.

use crate::peer::{Peer, run, run_for};
use crate::raw::{Raw, connect};
use crate::target::{PATIENCE, Server, eventually};
use rtp::negotiated::Kind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// How long the attack goes on.
const ATTACK: Duration = Duration::from_secs(4);

/// The priority of a host candidate.
const PRIORITY: u32 = 0x7EFF_FFFF;

/// A participant nominates the address of somebody who never asked for anything, with checks of all kinds.
#[test]
fn an_address_that_never_answers_gets_three_times_what_came_from_there() {
    let server = Server::start("{}");
    let (mut publisher, _seat) = Peer::join(&server, "call", "ada", 1);
    let own = [Kind::Audio, Kind::Video];
    let (mut hostile, _socket) = Raw::join(&server, ([127, 0, 0, 66], "call"), &own, (2, 1));
    run(&mut [&mut publisher], "pictures of the publisher", |_| {
        hostile.step();
        hostile.streams.len() >= 2
    });
    connect(&mut [&mut hostile]);
    // The attacker forges this one as the source of checks.
    let victim = UdpSocket::bind("127.0.0.67:0").unwrap();
    victim.set_nonblocking(true).unwrap();
    let (before, begin) = (hostile.bytes(), Instant::now());
    let (mut came, mut went, mut media, mut nth) = (0, 0, 0, 0u32);
    run_for(PATIENCE, &mut [&mut publisher], "the attack", |_| {
        hostile.step();
        let due = begin.elapsed().as_millis() as u32 / 50;
        while nth < due {
            nth += 1;
            let mut id = [9; 12];
            id[..4].copy_from_slice(&nth.to_be_bytes());
            let check = hostile.check(id, PRIORITY, nth % 3 > 0);
            came += victim.send_to(&check, hostile.remote()).unwrap();
        }
        let mut datagram = [0; 2048];
        while let Ok(len) = victim.recv(&mut datagram) {
            went += len;
            media += usize::from(datagram[0] >= 128);
        }
        begin.elapsed() >= ATTACK
    });
    eprintln!("{came} bytes of checks, {went} bytes went there");
    assert_eq!(media, 0, "packets of media to an address that never answered");
    assert!(went <= 3 * came, "{went} bytes for {came}");
    assert!(hostile.bytes() > before + 50_000, "who answered still gets all");
    let asked = || server.metric_of_all("moim_media_challenges_total") > 0.0;
    eventually("challenges", || asked().then_some(()));
}
