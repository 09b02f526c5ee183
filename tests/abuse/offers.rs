//! Offers and junk datagrams do not hold up the offers of others, and leave nothing over.

use crate::peer::{Peer, meet, run};
use crate::target::{Server, Socket, eventually};
use rtp::negotiated::Kind;
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{JoinHandle, scope, sleep, spawn};
use std::time::{Duration, Instant};
use transport::{IceDtls, OfferLine, Shared, VideoFormat};

/// Sockets that offer all the time.
const HOSTILE: usize = 20;
/// A victim's joins whose median counts.
const JOINS: usize = 21;
/// What a busy machine adds to a call of some milliseconds.
const FLOOR: Duration = Duration::from_millis(20);

/// An offer with so many slots, filled up to so many bytes with lines that mean nothing.
pub(super) fn sdp(audio: usize, video: usize, bytes: usize) -> String {
    let shared = Shared::new().unwrap();
    let local = "127.0.0.1:9".parse().unwrap();
    let mut client =
        IceDtls::client(&shared, Some(VideoFormat::Vp8), local, Instant::now()).unwrap();
    let line = |kind| OfferLine { kind, send: false, layers: &[] };
    let lines: Vec<OfferLine> = std::iter::repeat_n(line(Kind::Audio), audio)
        .chain(std::iter::repeat_n(line(Kind::Video), video))
        .collect();
    let mut sdp = client.offer(&lines, false).unwrap().sdp;
    while sdp.len() < bytes {
        sdp.push_str("a=x-nothing:nothing at all, said at some length in a line of its own\r\n");
    }
    sdp
}

fn join(server: &Server, room: &str, name: &str) -> Socket {
    let mut socket = Socket::connect(server);
    socket.ask("room.join", json!({ "room": room, "name": name }));
    socket
}

fn offer(sdp: &str) -> Value {
    json!({ "sdp": sdp, "tracks": [] })
}

/// How long joining and a first offer take: the median.
fn join_and_offer(server: &Server, sdp: &str) -> Duration {
    let mut took: Vec<Duration> = (0..JOINS)
        .map(|_| {
            let begin = Instant::now();
            let mut socket = join(server, "victims", "victim");
            socket.ask("room.offer", offer(sdp));
            let took = begin.elapsed();
            socket.ask("room.leave", json!({}));
            took
        })
        .collect();
    took.sort_unstable();
    took[JOINS / 2]
}

/// Sockets that offer until they are dropped.
struct Hostile {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    taken: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    /// Each offers 30 to 40 times a second; half of them more lines than anybody may have.
    fn begin(server: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let most = Arc::new(sdp(16, 64, 150_000));
        let too_many = Arc::new(sdp(24, 96, 150_000));
        let threads = (0..HOSTILE)
            .map(|nth| {
                let mut socket = join(server, "hostile", "hostile");
                let sdp = if nth % 2 == 0 { most.clone() } else { too_many.clone() };
                let (stop, asked, taken) = (stop.clone(), asked.clone(), taken.clone());
                spawn(move || {
                    let data = offer(&sdp);
                    while !stop.load(Relaxed) {
                        let answer = socket.call("room.offer", data.clone());
                        asked.fetch_add(1, Relaxed);
                        taken.fetch_add(u64::from(answer.is_ok()), Relaxed);
                        sleep(Duration::from_millis(25));
                    }
                })
            })
            .collect();
        Self { stop, asked, taken, threads }
    }

    /// Ends it; how many of their offers were taken.
    fn end(mut self) -> u64 {
        self.stop.store(true, Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        self.taken.load(Relaxed)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

#[test]
fn a_victims_offer_beside_twenty_hostile_sockets_takes_at_most_twice_as_long() {
    let server = Server::start("{}");
    let own = sdp(4, 4, 0);
    join_and_offer(&server, &own);
    let alone = join_and_offer(&server, &own);
    let hostile = Hostile::begin(&server);
    // What may be offered at once is used up first.
    eventually("what may be offered at once", || {
        (hostile.asked.load(Relaxed) >= 40 * HOSTILE as u64).then_some(())
    });
    let (begin, cpu) = (Instant::now(), server.cpu());
    let beside = join_and_offer(&server, &own);
    let busy = (server.cpu() - cpu).as_secs_f64() / begin.elapsed().as_secs_f64();
    let taken = hostile.end();
    println!("alone {alone:?}, beside {beside:?}, {busy:.2} of a core, {taken} hostile ones taken");
    assert!(taken >= HOSTILE as u64 / 2, "an offer that is allowed was refused");
    assert!(beside <= 2 * alone + FLOOR, "alone {alone:?}, beside hostile sockets {beside:?}");
}

/// Junk that looks like STUN, and junk that looks like DTLS.
pub(super) fn junk_of_strangers() -> [Vec<u8>; 2] {
    let stun = [
        &[0, 1, 0, 24, 0x21, 0x12, 0xA4, 0x42][..],
        &[7; 12],
        &[0, 6, 0, 20],
        b"nobodynobodynobo:you",
    ];
    [stun.concat(), [&[22, 254, 253][..], &[0; 60]].concat()]
}

/// Sends junk that looks like STUN or DTLS until `stop`, at most 80 000 datagrams a second.
fn junk(from: &[UdpSocket], server: &Server, stop: &AtomicBool) {
    let [stun, dtls] = junk_of_strangers();
    while !stop.load(Relaxed) {
        for nth in 0..80 {
            let junk = if nth % 4 == 0 { &stun } else { &dtls };
            // What the kernel does not take is lost, as on any path.
            let _ = from[nth % from.len()].send_to(junk, server.media);
        }
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn junk_and_offers_leave_no_transport_over_and_hold_up_no_handshake() {
    let server = Server::start("{}");
    // One of them sends junk from an address that is known to be theirs.
    let (mut ada, ada_seat) = Peer::join(&server, "call", "ada", 1);
    let (mut min, min_seat) = Peer::join(&server, "call", "min", 2);
    meet(&mut [&mut ada, &mut min]);
    let strangers = (0..2).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    let from: Vec<UdpSocket> = strangers.chain([ada.own_socket()]).collect();
    let mut refused = Vec::new();
    let stop = AtomicBool::new(false);
    let own = sdp(4, 4, 0);
    scope(|scope| {
        scope.spawn(|| junk(&from, &server, &stop));
        let hostile = Hostile::begin(&server);
        for nth in 0..60 {
            let mut socket = join(&server, "victims", "victim");
            refused.extend(socket.call("room.offer", offer(&own)).err());
            if nth % 2 == 0 {
                socket.ask("room.leave", json!({}));
            } else {
                // It leaves while its second offer is under way.
                let again = json!({ "event": "room.offer", "data": offer(&own), "cid": 100 });
                socket.send(&again.to_string());
                socket.send(&json!({ "event": "room.leave", "data": {}, "cid": 101 }).to_string());
                while socket.packet().is_ok_and(|packet| packet["rid"] != 101) {}
            }
        }
        // A handshake of somebody new gets through meanwhile.
        let (mut eve, mut eve_seat) = Peer::join(&server, "call", "eve", 3);
        run(&mut [&mut ada, &mut min, &mut eve], "a handshake beside junk", |peers| {
            !peers[2].heard.is_empty()
        });
        eve_seat.socket.ask("room.leave", json!({}));
        stop.store(true, Relaxed);
        hostile.end();
    });
    // Hostile sockets are lost without a word, their people after a while.
    for mut seat in [ada_seat, min_seat] {
        seat.socket.ask("room.leave", json!({}));
    }
    let people = || server.metric("moim_participants");
    let left = eventually("everybody but the hostile has left", || {
        (people() <= HOSTILE as f64).then(people)
    });
    eventually("no transport of who has left", || {
        (server.metric("moim_transports") <= left).then_some(())
    });
    assert!(refused.is_empty(), "{} offers of victims, {}", refused.len(), refused[0]);
}
