//! A call goes on where the way of its packets changes.

use crate::peer::{Peer, meet, run, run_for};
use crate::raw::{Raw, connect};
use crate::target::{PATIENCE, Server, eventually};
use rtp::negotiated::Kind;
use rtp::rtcp;
use std::time::{Duration, Instant};
use wire::room::MediaKind;
use wire::{Event, MediaFault};

/// How many frames of each kind two peers got of each other.
fn counts(peers: &[&mut Peer]) -> [[usize; 2]; 2] {
    let kinds = [MediaKind::Audio, MediaKind::Video];
    [0, 1].map(|at| kinds.map(|kind| peers[at].heard_of(kind).count()))
}

/// Runs two peers until each has got two more seconds of sound and pictures.
fn go_on(peers: &mut [&mut Peer; 2], what: &str) {
    let before = counts(peers);
    run(peers, what, |peers| {
        let now = counts(peers);
        let enough =
            |at: usize| now[at][0] >= before[at][0] + 100 && now[at][1] >= before[at][1] + 40;
        enough(0) && enough(1)
    });
}

#[test]
fn a_call_goes_on_when_an_address_changes() {
    let server = Server::start("{}");
    let (mut ada, _seat) = Peer::join(&server, "paths", "ada", 1);
    let (mut min, _other) = Peer::join(&server, "paths", "min", 2);
    meet(&mut [&mut ada, &mut min]);
    let [old, new] = ada.rebind();
    go_on(&mut [&mut ada, &mut min], "media from and to the new address");
    assert_ne!(old, new);
    assert!(server.log().contains("media moved"), "{}", server.log());
    for reason in ["replayed", "authentication_failed", "malformed"] {
        assert_eq!(server.dropped("in", reason), 0, "{reason}");
    }
}

#[test]
fn a_call_goes_on_through_an_ice_restart() {
    let server = Server::start("{}");
    let (mut ada, mut seat) = Peer::join(&server, "paths", "ada", 1);
    let (mut min, _other) = Peer::join(&server, "paths", "min", 2);
    meet(&mut [&mut ada, &mut min]);
    ada.restart_ice(&mut seat);
    go_on(&mut [&mut ada, &mut min], "media after the restart");
    // On another path at once, as after a change of network.
    ada.restart_ice(&mut seat);
    ada.rebind();
    go_on(&mut [&mut ada, &mut min], "media on another path");
    for reason in ["replayed", "authentication_failed", "malformed"] {
        assert_eq!(server.dropped("in", reason), 0, "{reason}: the keys stayed");
    }
}

/// A NAT gives a participant another port. Their client does not know, and sends reports, but no checks.
#[test]
fn media_follows_a_port_that_changes_without_a_check() {
    let server = Server::start("{}");
    let (mut publisher, _seat) = Peer::join(&server, "call", "ada", 1);
    let (mut raw, _socket) = Raw::join(&server, ([127, 0, 0, 68], "call"), &[Kind::Audio], (2, 1));
    run(&mut [&mut publisher], "pictures of the publisher", |_| {
        raw.step();
        raw.streams.len() >= 2
    });
    connect(&mut [&mut raw]);
    for nth in 1..=3 {
        raw.change_port();
        let (bytes, changed) = (raw.bytes(), Instant::now());
        let mut compound = Vec::new();
        rtcp::receiver_report(&mut compound, 7, &[]);
        rtcp::sdes_cname(&mut compound, 7, "somebody");
        let mut due = changed + Duration::from_millis(500);
        run_for(PATIENCE, &mut [&mut publisher], "media at the new port", |_| {
            raw.step_without_checks();
            if Instant::now() >= due {
                raw.send_rtcp(&compound);
                due += Duration::from_secs(1);
            }
            raw.bytes() > bytes + 20_000
        });
        eprintln!("port {nth}: media after {:?}", changed.elapsed());
        let moved = || server.metric_of_all("moim_media_moved_total") == f64::from(nth);
        eventually("it is counted", || moved().then_some(()));
    }
}

/// One client never checks a candidate, as behind a firewall. Another one checks, and begins no handshake. A third one sleeps meanwhile.
#[test]
fn media_that_does_not_come_up_is_told_and_may_still_come_up() {
    let server = Server::start("{}");
    let join = |last: u8| Raw::join(&server, ([127, 0, 0, last], "late"), &[Kind::Audio], (0, 0));
    let (mut behind, mut its_socket) = join(71);
    let (idle, mut other_socket) = join(72);
    let (mut sleeper, mut third_socket) = join(73);
    connect(&mut [&mut sleeper]);
    let begin = Instant::now();
    let (mut nth, mut told) = (0_u8, [None, None]);
    while told.contains(&None) && begin.elapsed() < PATIENCE {
        nth = nth.wrapping_add(1);
        idle.send_check([nth; 12]);
        for (socket, told) in [&mut its_socket, &mut other_socket].into_iter().zip(&mut told) {
            let mut causes = socket.events().into_iter().filter_map(|event| match event {
                Event::MediaFailed { cause, .. } => Some(cause),
                _ => None,
            });
            *told = told.or(causes.next_back());
        }
        third_socket.events();
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(told, [Some(MediaFault::Unreachable), Some(MediaFault::Unfinished)]);
    assert!(begin.elapsed() > Duration::from_secs(14), "not before it is late");
    let counted =
        |cause: &str| server.metric(&format!("moim_media_failed_total{{cause=\"{cause}\"}}"));
    assert_eq!([counted("unreachable"), counted("unfinished")], [1.0, 1.0]);
    assert!(server.log().contains("media is not up yet"), "{}", server.log());
    connect(&mut [&mut behind]);
    eventually("the sleeper to be missed", || server.log().contains("media lost").then_some(()));
    eventually("the sleeper to be back", || {
        sleeper.step();
        server.log().contains("media is back").then_some(())
    });
}
