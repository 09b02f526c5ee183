//! STUN without integrity moves nobody and learns no address.

use crate::peer::{Peer, run};
use crate::target::{Server, eventually};
use std::net::UdpSocket;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::Duration;
use wire::room::MediaKind;

/// A connectivity check that names `receiver`, without integrity.
fn forged(receiver: &str, nth: u8) -> Vec<u8> {
    let mut username = format!("{receiver}:abcd");
    username.push_str(&"x".repeat(username.len().next_multiple_of(4) - username.len()));
    let len = username.len() as u8;
    let mut check = vec![0, 1, 0, 4 + len + 8 + 4, 0x21, 0x12, 0xA4, 0x42];
    check.extend([nth; 12]);
    check.extend([0, 6, 0, len]);
    check.extend(username.as_bytes());
    check.extend([0, 0x24, 0, 4, 0x7F, 0xFF, 0xFF, 0xFF]);
    check.extend([0, 0x25, 0, 0]);
    check
}

/// Ada gets into a call while checks that name these `receivers` come from `sockets`.
fn ada_connects(server: &Server, forge: impl Fn(&Peer, [String; 2]) -> Forged) {
    let (mut eve, eve_seat) = Peer::join(server, "call", "eve", 1);
    let (mut ada, ada_seat) = Peer::join(server, "call", "ada", 2);
    let Forged { sockets, receivers } = forge(&ada, [eve_seat.ufrag, ada_seat.ufrag]);
    let (ports, stop) = (server.media_of_all(), AtomicBool::new(false));
    scope(|scope| {
        scope.spawn(|| {
            let mut nth = 0u8;
            while !stop.load(Relaxed) {
                nth = nth.wrapping_add(1);
                for (socket, receiver) in
                    sockets.iter().flat_map(|s| receivers.iter().map(move |r| (s, r)))
                {
                    // What the kernel does not take is lost, as on any path.
                    for port in &ports {
                        let _ = socket.send_to(&forged(receiver, nth), port);
                    }
                }
                sleep(Duration::from_millis(1));
            }
        });
        let result = catch_unwind(AssertUnwindSafe(|| {
            run(&mut [&mut eve, &mut ada], "sound and pictures beside forged checks", |peers| {
                let kinds = [MediaKind::Audio, MediaKind::Video];
                peers.iter().all(|peer| kinds.iter().all(|kind| peer.heard_of(*kind).count() > 0))
            });
        }));
        stop.store(true, Relaxed);
        result.unwrap_or_else(|panic| resume_unwind(panic));
    });
    eventually("forged checks by their reason", || {
        (server.dropped("in", "check_not_authentic") > 0).then_some(())
    });
}

fn strangers() -> impl Iterator<Item = UdpSocket> {
    (0..20).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
}

/// What is forged: from where, and which user fragments it names.
struct Forged {
    sockets: Vec<UdpSocket>,
    receivers: Vec<String>,
}

#[test]
fn forged_checks_from_a_victims_address_do_not_stop_its_handshake() {
    let server = Server::start("{}");
    ada_connects(&server, |ada, [eve, _]| Forged {
        // As if ada's address were forged: what comes from there, and from many others, names eve's transport.
        sockets: [ada.own_socket()].into_iter().chain(strangers()).collect(),
        receivers: vec![eve],
    });
}

#[test]
fn forged_checks_from_many_addresses_do_not_evict_a_victims() {
    let server = Server::start("{}");
    ada_connects(&server, |_, [_, ada]| Forged {
        sockets: strangers().collect(),
        receivers: vec![ada],
    });
}
