//! Half requests and idle connections of one address: everybody else gets in.

use crate::raw::{NUMBERED, Raw, Stream, connect};
use crate::target::{AtEnd, FREE_PORTS, Server, Socket, Wire, connect_from, eventually};
use rtp::HeaderWriter;
use rtp::negotiated::Kind;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{JoinHandle, scope, sleep, spawn};
use std::time::{Duration, Instant};

/// Where the attack comes from; everybody else has another address.
const HOSTILE: [u8; 4] = [127, 0, 0, 66];
/// Connections of the attack.
const CONNECTIONS: usize = 1000;
/// How long others may wait for `/healthz` and for a join meanwhile, as the median of [`LOOKS`].
const PROMPT: Duration = Duration::from_millis(200);
const LOOKS: usize = 9;
/// How long a packet of sound may be in the server, for 99 of 100.
pub(super) const RESIDENCE_S: f64 = 0.005;
/// From one packet of sound to the next.
const PACKET: Duration = Duration::from_millis(20);

/// What a connection is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum For {
    Media,
    Requests,
    /// Requests, and its bytes are those of TLS itself.
    Handshake,
}

pub(super) fn begin(from: [u8; 4], server: &Server, what: For) -> std::io::Result<Box<dyn Wire>> {
    match what {
        For::Media => Ok(Box::new(connect_from(from, server.media)?)),
        For::Requests => server.wire_from(from),
        For::Handshake => Ok(Box::new(connect_from(from, server.http)?)),
    }
}

/// Who connects and sends this, and no more.
fn hold(server: &Server, what: For, data: &[u8]) -> Vec<Box<dyn Wire>> {
    let held = (0..CONNECTIONS).filter_map(|_| {
        let mut stream = begin(HOSTILE, server, what).ok()?;
        // One that is refused may be closed already.
        let _ = stream.write_all(data);
        Some(stream)
    });
    held.collect()
}

/// Whether the server has closed it.
fn is_closed(wire: &dyn Wire) -> bool {
    let mut stream = wire.tcp();
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0; 512]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

fn median(mut look: impl FnMut(usize)) -> Duration {
    let mut took: Vec<Duration> = (0..LOOKS)
        .map(|index| {
            let begin = Instant::now();
            look(index);
            begin.elapsed()
        })
        .collect();
    took.sort();
    took[LOOKS / 2]
}

fn healthy(server: &Server) {
    let answer = server.get_from([127, 0, 0, 1], "/healthz").unwrap();
    assert!(answer.ends_with("ok\n"), "{answer}");
}

/// How many packets of sound were in the server for at most so long, and for any time.
pub(super) fn residence(server: &Server, most_s: f64) -> (f64, f64) {
    let metrics = server.metrics();
    let sum = |beginning: &str, part: &str| {
        let lines = metrics.lines().filter(|l| l.starts_with(beginning) && l.contains(part));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum::<f64>()
    };
    let bucket = sum("moim_audio_residence_seconds_bucket", &format!("le=\"{most_s}\""));
    (bucket, sum("moim_audio_residence_seconds_count", ""))
}

/// Which share of the sound was too long in the server from one reading of [`residence`] to another.
pub(super) fn late(from: (f64, f64), to: (f64, f64)) -> f64 {
    1.0 - (to.0 - from.0) / (to.1 - from.1)
}

/// A call of two who send sound and hear each other, each from an address of their own.
pub(super) struct Call {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Heard>,
}

/// What the two of a call heard.
pub(super) struct Heard {
    /// How many packets came, and how many did not.
    pub came: usize,
    pub lost: u64,
    /// Of each that came: when it was sent, and how long it took to who heard it, with up to 2 ms until these looked.
    took: Vec<(Instant, Duration)>,
}

impl Heard {
    /// Which share of what was sent from one moment to another took longer than this.
    pub(super) fn late(&self, from: Instant, to: Instant, most: Duration) -> f64 {
        let within: Vec<_> =
            self.took.iter().filter(|(sent, _)| (from..to).contains(sent)).collect();
        let late = within.iter().filter(|(_, took)| *took > most).count();
        late as f64 / within.len() as f64
    }
}

impl Call {
    pub(super) fn begin(server: &Server) -> Self {
        let join = |last| Raw::join(server, ([127, 0, 0, last], "call"), &[Kind::Audio], (1, 0));
        let mut people = [join(10), join(11)];
        let [(one, _), (other, _)] = &mut people;
        connect(&mut [one, other]);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = spawn(move || {
            // It measures, so it does not wait for a CPU behind attackers. Where that is not allowed, it waits.
            let _ = net::thread::set_current_thread_prompt(-10, Duration::from_micros(100));
            let [(one, first), (other, second)] = people;
            let stays = stopped.clone();
            let sockets = spawn(move || {
                // They answer the server's pings, and its answers may take long.
                let mut sockets = [first, second];
                while !stays.load(Relaxed) {
                    sockets.iter_mut().for_each(|socket| drop(socket.ask("ping", Value::Null)));
                    sleep(Duration::from_millis(500));
                }
            });
            let (begin, mut sent, mut people) = (Instant::now(), Vec::new(), [one, other]);
            while !stopped.load(Relaxed) {
                while begin.elapsed() >= PACKET * sent.len() as u32 {
                    let said = sent.len() as u32;
                    sent.push(Instant::now());
                    people.iter_mut().for_each(|raw| say(raw, said));
                }
                people.iter_mut().for_each(Raw::step);
                sleep(Duration::from_millis(2));
            }
            sockets.join().unwrap();
            let streams = || people.iter().flat_map(|raw| raw.streams.values());
            let heard = streams().flat_map(|stream| &stream.heard);
            Heard {
                came: streams().map(|stream| stream.numbers.len()).sum(),
                lost: streams().map(Stream::gaps).sum(),
                took: heard
                    .map(|(nth, at)| (sent[*nth as usize], *at - sent[*nth as usize]))
                    .collect(),
            }
        });
        Self { stop, thread }
    }

    /// Ends it; returns which share of its packets was in the server for too long since `before`, when [`residence`] was
    /// read.
    fn end(self, server: &Server, before: (f64, f64)) -> f64 {
        let late = late(before, residence(server, RESIDENCE_S));
        let Heard { came, lost, .. } = self.hang_up();
        eprintln!("{came} packets of sound came, {lost} were lost, {:.3} % late", 100.0 * late);
        assert!(came > 500, "{came} packets of sound came");
        assert_eq!(lost, 0, "of {came} packets of sound");
        late
    }

    /// Ends it, whatever they heard.
    pub(super) fn hang_up(self) -> Heard {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

/// Plays a round again, twice at most, in which more than one of 100 packets was late: other tests run on the same CPUs, and
/// an attack that delays packets does so each time.
fn seldom_late(round: impl Fn() -> f64) {
    let late: Vec<f64> = (0..3).map(|_| round()).take_while(|late| *late > 0.01).collect();
    assert!(late.len() < 3, "{late:?} of the packets of sound were longer in the server");
}

/// A packet of sound.
fn say(raw: &mut Raw, nth: u32) {
    let line = raw.line(Kind::Audio);
    let header = HeaderWriter {
        payload_type: line.payload_type,
        sequence: nth as u16,
        timestamp: nth * 960,
        ssrc: line.local.unwrap().ssrc,
        ..HeaderWriter::default()
    };
    raw.send_rtp(&header, &[&NUMBERED[..], &nth.to_be_bytes()].concat());
}

/// Holds connections of one address in several ways, beside a call; returns which share of its packets was late.
fn besiege(server: &Server, attacks: &[(For, &[u8])]) -> f64 {
    let call = Call::begin(server);
    let before = residence(server, RESIDENCE_S);
    for (attack, (what, data)) in attacks.iter().enumerate() {
        let held = hold(server, *what, data);
        let health = median(|_| healthy(server));
        let join = median(|index| {
            let mut socket = Socket::connect_from([127, 0, 0, 2], server);
            let name = json!({ "room": format!("r{attack}-{index}"), "name": "Ann" });
            socket.ask("room.join", name);
        });
        eprintln!("attack {attack}: /healthz {health:?}, a join {join:?}");
        assert!(health <= PROMPT, "/healthz took {health:?}");
        assert!(join <= PROMPT, "a join took {join:?}");
        let mut media_of_another = connect_from([127, 0, 0, 2], server.media).unwrap();
        media_of_another.write_all(b"\x00\x01").unwrap();
        assert!(!is_closed(&media_of_another), "media TCP takes others");
        let place = if matches!(what, For::Media) { "tcp" } else { "http" };
        assert!(server.dropped(place, "too_many_of_address") > 0, "one address has a bound");
        eventually("the end of every hostile connection", || {
            held.iter().all(|wire| is_closed(&**wire)).then_some(())
        });
    }
    assert!(server.dropped("http", "too_slow") > 0);
    call.end(server, before)
}

#[test]
fn half_requests_of_one_address_keep_nobody_out_and_are_closed() {
    let half = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ";
    seldom_late(|| {
        let server = Server::with("");
        let late = besiege(
            &server,
            &[(For::Requests, half), (For::Requests, b""), (For::Media, b"\x00\x04junk")],
        );
        assert!(server.dropped("tcp", "silent_connection") > 0);
        late
    });
}

#[test]
fn half_handshakes_of_one_address_keep_nobody_out_and_are_closed() {
    // The beginning of a ClientHello.
    let hello = b"\x16\x03\x01\x02\x00\x01\x00";
    seldom_late(|| {
        besiege(&Server::with_tls(""), &[(For::Handshake, hello), (For::Handshake, b"")])
    });
}

#[test]
fn who_connects_again_and_again_with_tls_costs_little_and_keeps_nobody_out() {
    const THREADS: u64 = 4;
    let server = Server::with_tls("limits: { connections_per_address: 100 }\n");
    let (ended, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    scope(|scope| {
        let _end = AtEnd(|| ended.store(true, Relaxed));
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !ended.load(Relaxed) {
                    let answer = server.get_from(HOSTILE, "/healthz").unwrap_or_default();
                    answered.fetch_add(u64::from(answer.ends_with("ok\n")), Relaxed);
                }
            });
        }
        // As many come at once as an address may have.
        eventually("all that may come at once", || (answered.load(Relaxed) > 100).then_some(()));
        let (cpu, begin, before) = (server.cpu(), Instant::now(), answered.load(Relaxed));
        sleep(Duration::from_secs(3));
        let share = (server.cpu() - cpu).as_secs_f64() / begin.elapsed().as_secs_f64();
        let a_second = (answered.load(Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
        eprintln!("{a_second:.0} handshakes a second take {:.2} % of a core", 100.0 * share);
        assert!((5.0..=15.0).contains(&a_second), "{a_second} of 10 handshakes a second");
        assert!(share <= 0.03, "{:.2} % of a core", 100.0 * share);
        let others = median(|_| {
            let answer = server.get_from([127, 0, 0, 2], "/healthz").unwrap();
            assert!(answer.ends_with("ok\n"), "{answer}");
        });
        assert!(others < PROMPT, "others wait for {others:?}");
    });
}

#[test]
fn where_few_files_may_be_open_one_address_does_not_take_all_places() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("moim.yaml");
    let admin = "admin: { bind: \"127.0.0.1:0\" }\n";
    std::fs::write(&config, format!("{FREE_PORTS}{admin}")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256 && exec \"$0\" serve --config \"$1\""]);
    command.arg(env!("CARGO_BIN_EXE_moim")).arg(&config);
    let server = Server::launch(command, directory);
    let held = hold(&server, For::Requests, b"");
    let newcomer = server.get_from([127, 0, 0, 2], "/").unwrap_or_default();
    assert!(newcomer.contains(" 200 "), "somebody else gets in: {newcomer:?}");
    assert!(server.dropped("http", "too_many_of_address") > 0, "one address has a bound");
    let told = server.log().matches("raise the limit (ulimit -n").count();
    assert_eq!(told, 1, "that files are few is told once: {}", server.log());
    drop(held);
}

#[test]
fn connections_of_many_addresses_take_neither_health_nor_a_call() {
    seldom_late(many_addresses);
}

fn many_addresses() -> f64 {
    // Besides sockets there are places for 2048 other connections.
    let server = Server::start("{ sockets: 64 }");
    let call = Call::begin(&server);
    let before = residence(&server, RESIDENCE_S);
    let mut held = Vec::new();
    let begin = Instant::now();
    let mut addresses = (0..u16::MAX).map(u16::to_be_bytes).map(|[high, low]| [127, 1, high, low]);
    let mut hold = |count| {
        let come = addresses.by_ref().take(count);
        held.extend(come.filter_map(|address| connect_from(address, server.http).ok()));
    };
    hold(2200);
    assert!(begin.elapsed() < Duration::from_secs(10), "the first are there when the last come");
    let newcomer = [127, 0, 0, 3];
    eventually("the last place taken", || {
        // A connection that was there before the attack may have given its place back meanwhile.
        let answer = server.get_from(newcomer, "/console").unwrap_or_default();
        let taken = answer.is_empty() || answer.contains(" 503 ");
        hold(1);
        taken.then_some(())
    });
    eventually("an answer of /healthz", || {
        // The reserve is full as well until its time is over.
        let answer = server.get_from(newcomer, "/healthz").ok()?;
        answer.ends_with("ok\n").then_some(())
    });
    let still = held.iter().filter(|stream| !is_closed(*stream)).count();
    assert!(still > 2000, "{still} connections are still held");
    eventually("places for newcomers", || {
        let answer = server.get_from(newcomer, "/console").ok()?;
        answer.contains(" 200 ").then_some(())
    });
    assert!(server.dropped("http", "too_many_connections") > 0);
    call.end(&server, before)
}
