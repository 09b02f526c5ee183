//! Receivers of media by TCP who read slowly, or not at all. What waits for them is bounded, and what is dropped is counted.
//! Others lose nothing, and who reads again is served again.

use crate::peer::{Peer, run};
use crate::raw::Raw;
use crate::target::{Server, Socket};
use net::framing::{self, Decoder};
use rtp::HeaderWriter;
use rtp::negotiated::Kind;
use rtp::rtcp;
use rtp::srtp::Sealer;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use transport::{Event, IceDtls, OfferLine, Output, Shared, VideoFormat};

/// Receivers who do not read.
const READERS: usize = 4;
/// So many bytes may wait for one of them in the server: sound and pictures, and what is handed to the kernel next.
const WAITS: f64 = ((64 + 256 + 128) << 10) as f64;
/// Memory that all of them may cost.
const MORE: u64 = 16 << 20;
/// What the test's own publisher of sound sends: 250 packets a second.
const TURN: Duration = Duration::from_millis(4);
const SOUND: usize = 600;

/// A participant by TCP who reads as much as the test says.
struct Reader {
    stream: TcpStream,
    decoder: Decoder,
    transport: IceDtls,
    timeout: Instant,
    peer: SocketAddr,
    local: SocketAddr,
    sealer: Option<Sealer>,
    /// Packets and bytes that came.
    media: u64,
    bytes: u64,
    ended: bool,
}

/// Connects with a window as small as the system lets it be.
fn connect_narrow(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    })
}

impl Reader {
    /// Joins, with two slots of sound and one of pictures.
    fn join(server: &Server, from: [u8; 4], room: &str) -> (Self, Socket) {
        let mut signaling = Socket::connect_from(from, server);
        signaling.ask("room.join", json!({ "room": room, "name": "slow" }));
        let (shared, now) = (Shared::new().unwrap(), Instant::now());
        let mut transport = IceDtls::client_on_tcp(&shared, Some(VideoFormat::Vp8), now).unwrap();
        let slot = |kind| OfferLine { kind, send: false, layers: &[] };
        let lines = [slot(Kind::Audio), slot(Kind::Audio), slot(Kind::Video)];
        let offer = transport.offer(&lines, false).unwrap();
        let answer = signaling.ask("room.offer", json!({ "sdp": offer.sdp, "tracks": [] }));
        transport.accept_answer(answer["sdp"].as_str().unwrap()).unwrap();
        // Its connections of media come where its datagrams do.
        let stream = connect_narrow(from, server.media);
        stream.set_nonblocking(true).unwrap();
        let local = stream.local_addr().unwrap();
        transport.connects_from(local).unwrap();
        let reader = Self {
            stream,
            decoder: Decoder::new(2048),
            transport,
            timeout: now,
            peer: server.media,
            local,
            sealer: None,
            media: 0,
            bytes: 0,
            ended: false,
        };
        (reader, signaling)
    }

    fn write(&mut self, packet: &[u8]) {
        let mut framed = Vec::new();
        framing::encode(packet, &mut framed).unwrap();
        // It sends little: the kernel has room for it.
        self.ended |= self.stream.write_all(&framed).is_err();
    }

    fn poll(&mut self) {
        loop {
            match self.transport.poll().unwrap() {
                Output::Transmit { data, .. } => self.write(&data),
                Output::Event(Event::Connected { keys, .. }) => {
                    self.sealer = Some(Sealer::new(&keys.local));
                }
                Output::Event(_) => {}
                Output::Wait(at) => return self.timeout = at,
            }
        }
    }

    /// Does what ICE and DTLS want, and reads up to so many bytes.
    fn step(&mut self, most: usize) {
        let mut left = most;
        while left > 0 && !self.ended {
            let spare = self.decoder.spare();
            let room = spare.len().min(left);
            match self.stream.read(&mut spare[..room]) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    self.decoder.advance(count);
                    left -= count;
                    self.bytes += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.ended = true,
            }
            while let Some(packet) = self.decoder.next_frame().unwrap() {
                if matches!(packet[0], 128..=191) {
                    self.media += 1;
                    continue;
                }
                let (packet, now) = (packet.to_vec(), Instant::now());
                let from = rtp::TransportAddress::tcp(self.peer);
                self.transport.handle_datagram(now, from, self.local, &packet).unwrap();
                self.poll();
            }
        }
        if Instant::now() >= self.timeout {
            self.transport.handle_timeout(Instant::now()).unwrap();
            self.poll();
        }
    }

    /// Shows that it is there.
    fn report(&mut self) {
        let Some(sealer) = &mut self.sealer else { return };
        let mut compound = Vec::new();
        rtcp::receiver_report(&mut compound, 7, &[]);
        let len = compound.len();
        compound.resize(len + 64, 0);
        let sealed = sealer.seal_rtcp(&mut compound, len).unwrap();
        self.write(&compound[..sealed]);
    }
}

/// Who sends and who receives.
struct Call {
    server: Server,
    publisher: Peer,
    loud: Raw,
    honest: Raw,
    readers: Vec<Reader>,
    due: Instant,
    sent: u16,
    _sockets: Vec<Socket>,
}

impl Call {
    fn begin() -> Self {
        let server = Server::start("{}");
        let (publisher, seat) = Peer::join(&server, "call", "ada", 1);
        let (loud, first) = Raw::join(&server, ([127, 0, 0, 3], "call"), &[Kind::Audio], (0, 0));
        let (honest, second) = Raw::join(&server, ([127, 0, 0, 2], "call"), &[], (2, 1));
        let joined =
            (0..READERS).map(|nth| Reader::join(&server, [127, 0, 0, 66 + nth as u8], "call"));
        let (readers, mut sockets): (Vec<Reader>, Vec<Socket>) = joined.unzip();
        sockets.extend([first, second, seat.socket]);
        let (due, sent) = (Instant::now(), 0);
        Self { server, publisher, loud, honest, readers, due, sent, _sockets: sockets }
    }

    /// Lets it go on until `done`; readers read up to so many bytes in a millisecond.
    fn go(
        &mut self,
        what: &str,
        most: usize,
        mut done: impl FnMut(&Server, &Raw, &[Reader]) -> bool,
    ) {
        let Self { server, publisher, loud, honest, readers, due, sent, .. } = self;
        let (mut look, mut over) = (Instant::now(), false);
        run(&mut [publisher], what, |_| {
            loud.step();
            honest.step();
            readers.iter_mut().for_each(|reader| reader.step(most));
            let now = Instant::now();
            if loud.is_connected() && *due <= now {
                *due = (*due + TURN).max(now);
                let line = loud.line(Kind::Audio);
                let (payload_type, ssrc) = (line.payload_type, line.local.unwrap().ssrc);
                let timestamp = u32::from(*sent) * 192;
                let header = HeaderWriter {
                    payload_type,
                    sequence: *sent,
                    timestamp,
                    ssrc,
                    ..HeaderWriter::default()
                };
                loud.send_rtp(&header, &[0xFC; SOUND]);
                *sent = sent.wrapping_add(1);
            }
            if look <= now {
                look = now + Duration::from_millis(100);
                readers.iter_mut().for_each(Reader::report);
                over = done(server, honest, readers);
            }
            over
        });
    }
}

/// What waits for all connections of media.
fn waiting(server: &Server) -> f64 {
    server.metric("moim_tcp_waiting_bytes{thread=\"media-0\"}")
}

#[test]
fn who_does_not_read_costs_bounded_memory_and_takes_nothing_from_others() {
    let mut call = Call::begin();
    call.go("media for all", usize::MAX, |_, honest, readers| {
        honest.streams.len() >= 3 && readers.iter().all(|reader| reader.media > 100)
    });
    let (before, came) = (call.server.resident_bytes(), call.honest.bytes());
    // Nobody reads: pictures wait first, then sound.
    let mut most = 0.0_f64;
    call.go("drops of both kinds", 0, |server, _, _| {
        most = most.max(waiting(server));
        let behind = server.dropped("out", "connection_behind");
        behind > 200 && most > READERS as f64 * 150_000.0
    });
    eprintln!("at most {most} bytes waited for {READERS}");
    assert!(most <= READERS as f64 * WAITS, "{most} bytes wait");
    let more = call.server.resident_bytes().saturating_sub(before);
    assert!(more <= MORE, "{} KiB more", more >> 10);
    // Then they read, slowly.
    let bytes: Vec<u64> = call.readers.iter().map(|reader| reader.bytes).collect();
    call.go("something for slow readers", 8, |server, _, readers| {
        most = most.max(waiting(server));
        readers.iter().zip(&bytes).all(|(reader, before)| reader.bytes > before + 4000)
    });
    assert!(most <= READERS as f64 * WAITS, "{most} bytes wait");
    // Who reads again is served again, and nothing is behind.
    let media: Vec<u64> = call.readers.iter().map(|reader| reader.media).collect();
    call.go("media for all again", usize::MAX, |server, _, readers| {
        let served = readers.iter().zip(&media).all(|(reader, before)| reader.media > before + 500);
        served && waiting(server) < 64_000.0
    });
    assert!(call.readers.iter().all(|reader| !reader.ended), "connections live on");
    let lost: u64 = call.honest.streams.values().map(|stream| stream.gaps()).sum();
    assert_eq!(lost, 0, "the honest receiver loses");
    assert!(call.honest.bytes() > came + 200_000, "something flows");
}
