//! All attacks at once, for a minute where nothing else runs: a call beside them goes on, others get in, and memory comes
//! back.

use super::amplification::{ATTACKS, Attack, FLOOD, TURN, noise};
use super::bodies::Http2;
use super::budgets::{joins, publications};
use super::connections::{self, For, Heard, RESIDENCE_S, late, residence};
use super::is_quiet;
use super::memory::{Raw as Frames, frame, head};
use super::offers::{junk_of_strangers, sdp};
use crate::peer::{Peer, Seat, run, run_for};
use crate::raw::{Raw, connect};
use crate::target::{PATIENCE, Server, Socket, eventually};
use rtp::negotiated::Kind;
use serde_json::{Value, json};
use std::io::Write;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread::{Scope, scope, sleep};
use std::time::{Duration, Instant};

/// How long the attacks go on.
const QUIET_S: u64 = 60;
const BUSY_S: u64 = 4;
/// The share of a core that they may cost beyond receiving their datagrams.
const SHARE: f64 = 0.25;
/// How long a newcomer may wait for the answer to joining and to a first offer, for 19 of 20.
const PROMPT: Duration = Duration::from_millis(200);
/// So much more memory may be held when they are over, and so long after.
const MORE: u64 = 32 << 20;
const AFTER: Duration = Duration::from_secs(60);
/// Datagrams a second of strangers.
const JUNK: u32 = 20_000;

/// What all attackers do now.
const NOTHING: u8 = 0;
const NOISE: u8 = 1;
const ATTACK: u8 = 2;
const END: u8 = 3;

/// A room in which a participant for each attack sends what they like.
struct Attacked {
    publisher: Peer,
    hostile: Vec<Raw>,
    _seats: (Seat, Vec<Socket>),
}

impl Attacked {
    fn begin(server: &Server) -> Self {
        let (mut publisher, seat) = Peer::join(server, "attacked", "ada", 1);
        let own = [Kind::Audio, Kind::Video];
        let joined = (0..ATTACKS.len())
            .map(|nth| Raw::join(server, ([127, 0, 0, 80 + nth as u8], "attacked"), &own, (2, 1)));
        let (mut hostile, sockets): (Vec<Raw>, Vec<Socket>) = joined.unzip();
        run(&mut [&mut publisher], "pictures of the publisher", |_| {
            hostile.iter_mut().for_each(Raw::step);
            hostile.iter().all(|raw| raw.streams.len() >= 2)
        });
        connect(&mut hostile.iter_mut().collect::<Vec<_>>());
        Self { publisher, hostile, _seats: (seat, sockets) }
    }

    /// Does what `now` says until that is the end. Says what share of the attack's turns found time.
    fn go(mut self, now: &AtomicU8) -> f64 {
        const MANY: usize = ATTACKS.len();
        let (mut begun, mut attacks) = (None, 0);
        let (mut nth, mut due) = (0, Instant::now());
        run_for(20 * PATIENCE, &mut [&mut self.publisher], "the attacks", |_| {
            self.hostile.iter_mut().for_each(Raw::step);
            if due <= Instant::now() {
                // Each has a phase of its own, as on a machine of its own. Where this machine gave no time, turns are left out.
                due = (due + TURN / MANY as u32).max(Instant::now());
                let (turn, raw) = ((nth / MANY) as u16, &mut self.hostile[nth % MANY]);
                let Attack { turn: attack, flood, .. } = ATTACKS[nth % MANY];
                match now.load(Relaxed) {
                    NOISE if flood => noise(raw, turn, FLOOD),
                    ATTACK => {
                        begun.get_or_insert_with(Instant::now);
                        attack(raw, turn, FLOOD);
                        attacks += 1;
                    }
                    _ => {}
                }
                nth += 1;
            }
            now.load(Relaxed) == END
        });
        let due = begun.map_or(0.0, |begun| begun.elapsed().div_duration_f64(TURN) * MANY as f64);
        f64::from(attacks) / due
    }
}

/// Calls `act` again and again with a pause, as long as the attack goes on.
fn again<'scope>(
    scope: &'scope Scope<'scope, '_>,
    now: &'scope AtomicU8,
    pause_ms: u64,
    mut act: impl FnMut() + Send + 'scope,
) {
    scope.spawn(move || {
        while now.load(Relaxed) != END {
            if now.load(Relaxed) == ATTACK {
                act();
            }
            sleep(Duration::from_millis(pause_ms));
        }
    });
}

/// A socket that sends what it likes, does not care for answers, and comes back where it is closed.
struct Blind<'a> {
    server: &'a Server,
    from: [u8; 4],
    socket: Option<Frames>,
    nth: usize,
}

impl<'a> Blind<'a> {
    fn new(server: &'a Server, last: u8) -> Self {
        Self { server, from: [127, 0, 0, last], socket: None, nth: 0 }
    }

    fn send(&mut self, of: impl FnOnce(usize) -> Vec<u8>) {
        self.nth += 1;
        self.socket =
            self.socket.take().and_then(|mut socket| (!socket.is_closed()).then_some(socket));
        if self.socket.is_none() {
            self.socket = Frames::try_connect_as(self.server, self.from, None).ok();
        }
        let Some(socket) = &mut self.socket else { return };
        socket.0.tcp().set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        // A part of a frame makes the rest one that makes no sense: the server closes it then.
        let _ = socket.write(&of(self.nth));
    }
}

fn text(packet: &Value) -> Vec<u8> {
    frame(1, packet.to_string().as_bytes())
}

/// A join, and from then on offers.
fn offers(sdp: &str, nth: usize) -> Vec<u8> {
    let join = json!({ "room": "offers", "name": "Mal" });
    let mut out = text(&json!({ "event": "room.join", "data": join, "cid": 2 * nth }));
    let offer = json!({ "sdp": sdp, "tracks": [] });
    out.extend(text(&json!({ "event": "room.offer", "data": offer, "cid": 2 * nth + 1 })));
    out
}

/// Begins all that comes by signaling and HTTP, each from an address of its own.
fn by_signaling<'scope>(
    scope: &'scope Scope<'scope, '_>,
    server: &'scope Server,
    now: &'scope AtomicU8,
) {
    for (last, flood) in [(60, joins as fn(usize) -> Value), (61, publications)] {
        let mut blind = Blind::new(server, last);
        again(scope, now, 2, move || {
            blind.send(|nth| (0..8).flat_map(|more| text(&flood(8 * nth + more))).collect());
        });
    }
    let long = sdp(16, 64, 150_000);
    let mut candidates = sdp(1, 1, 0);
    for nth in 0..2000 {
        let port = 1024 + nth;
        candidates += &format!("a=candidate:{nth} 1 udp 1 127.0.0.1 {port} typ host\r\n");
    }
    for (last, sdp) in [(62, long), (63, candidates)] {
        let mut blinds: Vec<_> = (0..5).map(|_| Blind::new(server, last)).collect();
        again(scope, now, 25, move || {
            blinds.iter_mut().for_each(|blind| blind.send(|nth| offers(&sdp, nth)));
        });
    }
    let mut begun = head(1, 1 << 20);
    begun.resize(200 << 10, b' ');
    again(scope, now, 2000, move || {
        let mut blinds: Vec<_> = (0..40).map(|_| Blind::new(server, 64)).collect();
        blinds.iter_mut().for_each(|blind| blind.send(|_| begun.clone()));
        sleep(Duration::from_secs(1));
    });
    let half = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ";
    for (last, what, data) in [(65, For::Requests, &half[..]), (66, For::Media, b"\x00\x04junk")] {
        again(scope, now, 100, move || {
            let held = (0..600).filter_map(|_| {
                let mut stream = connections::begin([127, 0, 0, last], server, what).ok()?;
                stream.write_all(data).ok().map(|()| stream)
            });
            let held: Vec<_> = held.collect();
            sleep(Duration::from_secs(1));
            drop(held);
        });
    }
    again(scope, now, 100, move || {
        let mut clients: Vec<_> = (0..5).map(|_| Http2::connect(server, [127, 0, 0, 67])).collect();
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            for client in clients.iter_mut().filter(|client| !client.ended) {
                client.begin("/v1/rooms", None);
                for _ in 0..4 {
                    client.send();
                }
                client.read();
            }
        }
    });
    again(scope, now, 1000, move || {
        let mut blinds: Vec<_> = (0..120).map(|_| Blind::new(server, 68)).collect();
        for (room, blind) in blinds.iter_mut().enumerate() {
            let join = json!({ "room": format!("seat-{room}"), "name": "x" });
            blind.send(|_| text(&json!({ "event": "room.join", "data": join, "cid": 2 })));
        }
        sleep(Duration::from_secs(1));
    });
    again(scope, now, 10, move || {
        let _ = server.get_from([127, 0, 0, 69], "/v1/rooms");
    });
}

/// Datagrams of strangers that look like STUN and DTLS; noise instead where that is to be sent.
fn by_strangers(server: &Server, now: &AtomicU8) {
    let socket = UdpSocket::bind("127.0.0.70:0").unwrap();
    let [stun, dtls] = junk_of_strangers();
    loop {
        for nth in 0..JUNK / 500 {
            let junk = match (now.load(Relaxed), nth % 4) {
                (END, _) => return,
                (NOTHING, _) => break,
                (NOISE, _) => &[0xFF; 60][..],
                (_, 0) => &stun,
                _ => &dtls,
            };
            // What the kernel does not take is lost, as on any path.
            let _ = socket.send_to(junk, server.media);
        }
        sleep(Duration::from_millis(2));
    }
}

/// How long newcomers wait for joining and for their first offer, one each 300 ms, for so long.
fn newcomers(server: &Server, time: Duration) -> Vec<Duration> {
    let (begin, sdp, mut took) = (Instant::now(), sdp(4, 4, 0), Vec::new());
    while begin.elapsed() < time {
        let since = Instant::now();
        let mut socket = Socket::connect_from([127, 0, 0, 2], server);
        socket.ask("room.join", json!({ "room": "honest", "name": "Ann" }));
        socket.ask("room.offer", json!({ "sdp": sdp, "tracks": [] }));
        took.push(since.elapsed());
        socket.ask("room.leave", json!({}));
        sleep(Duration::from_millis(300));
    }
    took.sort_unstable();
    took
}

/// The server's share of a core while `act` goes on.
fn share_of<T>(server: &Server, act: impl FnOnce() -> T) -> (f64, T) {
    let (cpu, begin) = (server.cpu(), Instant::now());
    let result = act();
    ((server.cpu() - cpu).as_secs_f64() / begin.elapsed().as_secs_f64(), result)
}

/// What all attacks together cost, and what they made others wait.
struct Figures {
    extra: f64,
    took: Vec<Duration>,
    late: f64,
    lost: u64,
    grown: u64,
}

fn suffer(server: &Server, time: Duration) -> Figures {
    let now = AtomicU8::new(NOTHING);
    let attacked = Attacked::begin(server);
    // Some memory is held for good once such people were there. The attack does not hold that.
    newcomers(server, Duration::from_millis(500));
    let before = server.resident_bytes();
    let call = connections::Call::begin(server);
    let figures = scope(|scope| {
        let attackers = scope.spawn(|| attacked.go(&now));
        scope.spawn(|| by_strangers(server, &now));
        by_signaling(scope, server, &now);
        now.store(NOISE, Relaxed);
        let calm_since = Instant::now();
        let (calm, _) = share_of(server, || newcomers(server, time / 4));
        let (since, at_begin) = (Instant::now(), residence(server, RESIDENCE_S));
        now.store(ATTACK, Relaxed);
        let (under, took) = share_of(server, || newcomers(server, time));
        eprintln!("{:.1} % of a core with noise, {:.1} % attacked", 100.0 * calm, 100.0 * under);
        let (end, in_server) = (Instant::now(), late(at_begin, residence(server, RESIDENCE_S)));
        let heard = call.hang_up();
        now.store(END, Relaxed);
        let most = Duration::from_secs_f64(RESIDENCE_S);
        let [calm_late, late] =
            [(calm_since, since), (since, end)].map(|(from, to)| heard.late(from, to, most));
        let Heard { came, lost, .. } = heard;
        eprintln!(
            "{came} packets of sound came, {lost} were lost; from ear to ear {:.2} % late with noise, {:.2} % attacked",
            100.0 * calm_late,
            100.0 * late
        );
        eprintln!(
            "{:.2} % of all sound was late in the server, with the attackers' own",
            100.0 * in_server
        );
        let sent = attackers.join().unwrap();
        eprintln!("attackers in the room had time for {:.0} % of their turns", 100.0 * sent);
        assert!(came > 100, "{came} packets of sound came");
        Figures { extra: under - calm, took, late, lost, grown: 0 }
    });
    let grown = || server.resident_bytes().saturating_sub(before);
    let (at_the_end, over) = (grown(), Instant::now());
    while grown() > MORE && over.elapsed() < AFTER {
        sleep(Duration::from_secs(1));
    }
    eprintln!(
        "{} KiB more at the end, {} KiB {:.0?} after it",
        at_the_end >> 10,
        grown() >> 10,
        over.elapsed()
    );
    Figures { grown: grown(), ..figures }
}

#[test]
fn all_attacks_at_once_leave_a_call_whole_and_let_others_in() {
    let server = Server::with("");
    let time = Duration::from_secs(if is_quiet() { QUIET_S } else { BUSY_S });
    let Figures { extra, took, late, lost, grown } = suffer(&server, time);
    let most = took[took.len() * 19 / 20];
    eprintln!(
        "{:.1} % of a core beyond receiving; {} newcomers: median {:.0?}, 19 of 20 within {most:.0?}, worst {:.0?}",
        100.0 * extra,
        took.len(),
        took[took.len() / 2],
        took[took.len() - 1]
    );
    assert!(grown <= MORE, "{grown} bytes are held when all is over");
    eventually("health", || {
        server.get_from([127, 0, 0, 2], "/healthz").ok()?.ends_with("ok\n").then_some(())
    });
    if is_quiet() {
        assert!(extra <= SHARE, "{:.1} % of a core", 100.0 * extra);
        assert!(most <= PROMPT, "19 of 20 newcomers wait {most:?}");
        assert_eq!(lost, 0, "packets of sound were lost");
        assert!(late <= 0.01, "{:.2} % of the call's sound took longer", 100.0 * late);
    }
    let refused = |place, reason| {
        assert!(
            server.dropped(place, reason) > 0,
            "{place}: {reason}: the attack reached its bound"
        );
    };
    refused("in", "sender_share");
    refused("in", "feedback_share");
    refused("out", "resend_budget");
    refused("http", "too_many_of_address");
}
