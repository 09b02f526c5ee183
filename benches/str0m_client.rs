//! What a plain client costs: str0m's own ICE, DTLS, SRTP, RTP and RTCP, one socket a participant,
//! one thread for all, against a `moim serve` of its own. People are in rooms of three, say 50
//! packets of Opus a second and hear two others: what `make bench-bots` compares moim's bots with.
//!
//! `cargo bench --profile release --bench str0m_client -- CLIENTS SECONDS` prints one line of JSON:
//! CPU time of the thread in µs, datagrams sent and received in the span that counts.

#[path = "../tests/target.rs"]
#[allow(dead_code, reason = "written for the tests, of which this needs a part")]
mod target;

use lab::bot::fixtures::{Fixtures, Voice};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use str0m::change::SdpAnswer;
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc};
use target::{Server, Socket};
use wire::room::{self, Answer, Join, MediaKind as Kind, Offer, OfferedTrack, Preset};

const PACKET: Duration = Duration::from_millis(20);
/// Slots of sound, as many as a bot of moim asks for.
const SLOTS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);

struct Client {
    rtc: Rtc,
    socket: UdpSocket,
    address: SocketAddr,
    mid: Mid,
    voice: Arc<Voice>,
    connected: bool,
    timeout: Instant,
    next_packet: Instant,
    packets: u64,
    armed: Instant,
}

#[derive(Default)]
struct Counts {
    sent: u64,
    received: u64,
    heard: u64,
}

impl Client {
    /// One that has joined; its socket to the server is kept open.
    fn join(server: &Server, number: u32, voice: Arc<Voice>) -> (Self, Socket) {
        let now = Instant::now();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let mut rtc = Rtc::builder()
            .set_crypto_provider(Arc::new(str0m::crypto::from_feature_flags()))
            .clear_codecs()
            .enable_opus(true, false)
            .build(now);
        rtc.add_local_candidate(Candidate::host(address, "udp").unwrap());
        let mut api = rtc.sdp_api();
        let mid = api.add_media(MediaKind::Audio, Direction::SendOnly, None, None, None);
        for _ in 0..SLOTS {
            api.add_media(MediaKind::Audio, Direction::RecvOnly, None, None, None);
        }
        let (offer, pending) = api.apply().unwrap();
        let mut signaling = Socket::connect(server);
        let session = Some(format!("client-{number}"));
        let join = Join {
            room: format!("room-{}", number / 3),
            name: format!("client-{number}"),
            session: session.clone(),
            preset: Some(Preset::SmallCall),
            ..Join::default()
        };
        signaling.ask(room::JOIN, json!(join));
        let tracks = vec![OfferedTrack {
            mid: mid.to_string(),
            kind: Kind::Audio,
            name: "microphone".into(),
            opaque: false,
            content_hint: wire::room::ContentHint::Speech,
            layers: Vec::new(),
        }];
        let offer = Offer { sdp: offer.to_sdp_string(), tracks, session };
        let answer = signaling.ask(room::OFFER, json!(offer));
        let answer: Answer = serde_json::from_value(answer).unwrap();
        let answer = SdpAnswer::from_sdp_string(&answer.sdp).unwrap();
        rtc.sdp_api().accept_answer(pending, answer).unwrap();
        let client = Self {
            rtc,
            socket,
            address,
            mid,
            voice,
            connected: false,
            timeout: now,
            next_packet: now + PACKET * (number % 20) / 20,
            packets: 0,
            armed: now,
        };
        (client, signaling)
    }

    fn receive(&mut self, counts: &mut Counts) {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            counts.received += 1;
            let receive = Receive::new(Protocol::Udp, from, self.address, &buffer[..len]).unwrap();
            self.input(Input::Receive(Instant::now(), receive), counts);
        }
    }

    fn due(&mut self, now: Instant, counts: &mut Counts) {
        if now >= self.timeout {
            self.input(Input::Timeout(now), counts);
        }
        while self.connected && self.next_packet <= now {
            let packet = &self.voice.packets[self.packets as usize % self.voice.packets.len()];
            let time = MediaTime::new(self.packets * 960, Frequency::FORTY_EIGHT_KHZ);
            let writer = self.rtc.writer(self.mid).unwrap();
            let writer = writer.audio_level(-(packet.level_dbov as i8), true);
            let payload_type = writer.payload_params().next().unwrap().pt();
            writer.write(payload_type, self.next_packet, time, packet.data.as_slice()).unwrap();
            self.packets += 1;
            self.next_packet += PACKET;
            self.input(Input::Timeout(now), counts);
        }
    }

    fn next(&self) -> Instant {
        if self.connected { self.timeout.min(self.next_packet) } else { self.timeout }
    }

    fn input(&mut self, input: Input<'_>, counts: &mut Counts) {
        self.rtc.handle_input(input).unwrap();
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(at) => {
                    self.timeout = at;
                    return;
                }
                Output::Transmit(transmit) => {
                    counts.sent += 1;
                    let sent = self.socket.send_to(&transmit.contents, transmit.destination);
                    sent.unwrap();
                }
                Output::Event(Event::Connected) => {
                    self.connected = true;
                    self.next_packet = self.next_packet.max(Instant::now());
                }
                Output::Event(Event::MediaData(_)) => counts.heard += 1,
                Output::Event(_) => {}
            }
        }
    }
}

/// Runs all clients until `done` or `until`.
fn run(
    clients: &mut [Client],
    poller: &net::Poller,
    counts: &mut Counts,
    until: Instant,
    mut done: impl FnMut(&[Client]) -> bool,
) {
    let mut events = net::Events::with_capacity(256);
    let mut deadlines: BTreeSet<(Instant, usize)> =
        clients.iter().enumerate().map(|(at, client)| (client.armed, at)).collect();
    let arm = |clients: &mut [Client], deadlines: &mut BTreeSet<(Instant, usize)>, at: usize| {
        let next = clients[at].next();
        deadlines.remove(&(clients[at].armed, at));
        clients[at].armed = next;
        deadlines.insert((next, at));
    };
    while Instant::now() < until && !done(clients) {
        let next = deadlines.first().map_or(until, |(at, _)| *at).min(until);
        poller.wait(&mut events, Some(next.saturating_duration_since(Instant::now()))).unwrap();
        for event in events.iter() {
            let at = event.token as usize;
            clients[at].receive(counts);
            arm(clients, &mut deadlines, at);
        }
        let now = Instant::now();
        while let Some((_, at)) = deadlines.first().copied().filter(|(at, _)| *at <= now) {
            clients[at].due(now, counts);
            arm(clients, &mut deadlines, at);
        }
    }
}

fn main() {
    let numbers: Vec<u32> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let [count, seconds] = numbers[..] else {
        // `cargo test --benches` and clippy build it; run without figures it does nothing.
        println!("str0m_client CLIENTS SECONDS");
        return;
    };
    // As the lab does: the server, which inherits its CPU, and its load have one each.
    let apart = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    let pin = |cpu: usize| apart.then(|| net::thread::pin_current_thread(&[cpu]).unwrap());
    pin(0);
    let server = Server::start("{ rooms: 2000 }");
    pin(1);
    let fixtures = Fixtures::embedded().unwrap();
    let mut sockets = Vec::new();
    let mut clients: Vec<Client> = (0..count)
        .map(|number| {
            let (client, socket) = Client::join(&server, number, fixtures.voice(number));
            sockets.push(socket);
            client
        })
        .collect();
    let poller = net::Poller::new().unwrap();
    for (at, client) in clients.iter().enumerate() {
        poller.add(&client.socket, at as u64).unwrap();
    }
    let mut counts = Counts::default();
    let until = Instant::now() + PATIENCE;
    run(&mut clients, &poller, &mut counts, until, |all| all.iter().all(|one| one.connected));
    assert!(clients.iter().all(|client| client.connected), "all are connected");
    run(&mut clients, &poller, &mut counts, Instant::now() + Duration::from_secs(3), |_| false);
    let (mut counts, cpu) = (Counts::default(), net::thread::thread_cpu_time());
    let begin = Instant::now();
    let end = begin + Duration::from_secs(u64::from(seconds));
    run(&mut clients, &poller, &mut counts, end, |_| false);
    let cpu_us = (net::thread::thread_cpu_time() - cpu).as_micros() as u64;
    let Counts { sent, received, heard } = counts;
    let wall_ms = begin.elapsed().as_millis() as u64;
    println!(
        "{}",
        json!({ "clients": count, "wall_ms": wall_ms, "cpu_us": cpu_us, "sent": sent, "received": received, "heard": heard })
    );
}
