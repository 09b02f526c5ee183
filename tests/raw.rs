//! A participant whose every media packet is the test's own: a library does ICE and DTLS, the test
//! seals what it likes, and counts what comes.

use crate::target::{PATIENCE, Server, Socket};
use rtp::header::{HeaderWriter, is_rtcp};
use rtp::negotiated::{Direction, Kind, Line, Negotiated, StreamIds};
use rtp::srtp::{KeyPair, Opener, SealStream, Sealer};
use rtp::stun::{Check, Password, Role};
use rtp::vp8;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;
use transport::{Event, IceDtls, Lacks, OfferLine, Output, Shared, VideoFormat};
use wire::room::{Answer, MediaKind, OfferedTrack};

/// Sound whose number follows. To Opus it is one frame.
pub const NUMBERED: [u8; 3] = [0xF8, 0xFF, 0xFE];

/// What came of a stream.
#[derive(Debug, Default, Clone)]
pub struct Stream {
    /// Its sequence numbers, in order of arrival.
    pub numbers: Vec<u16>,
    /// How many of them were the last of their frame.
    pub frames: usize,
    /// Bytes of its datagrams.
    pub bytes: u64,
    /// Of packets of sound whose payload ends with their number, as tests send it: that number, and when they were read.
    pub heard: Vec<(u32, Instant)>,
    /// Bytes of each picture's frames, by timestamp.
    by_frame: BTreeMap<u32, usize>,
}

impl Stream {
    /// Numbers between the first and the last that never came; none may come out of order.
    pub fn gaps(&self) -> u64 {
        let steps = self.numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
        steps.map(|step| u64::from(step.wrapping_sub(1))).sum()
    }

    /// How many frames came of which so many bytes arrived.
    pub fn frames_of(&self, bytes: usize) -> usize {
        self.by_frame.values().filter(|came| **came >= bytes).count()
    }
}

struct Keys {
    sealer: Sealer,
    opener: Opener,
    remote: SocketAddr,
    /// What it sends, by SSRC.
    streams: BTreeMap<u32, SealStream>,
}

/// The media of a participant.
pub struct Raw {
    socket: UdpSocket,
    local: SocketAddr,
    transport: IceDtls,
    timeout: Instant,
    negotiated: Negotiated,
    keys: Option<Keys>,
    /// Whose checks it sends: `theirs:ours`, and the server's password.
    username: String,
    password: String,
    /// Where the answer says that the server is.
    server: SocketAddr,
    /// What came, by SSRC.
    pub streams: BTreeMap<u32, Stream>,
}

/// The address of the first candidate of this protocol in an answer.
pub fn candidate(sdp: &str, protocol: &str) -> SocketAddr {
    let mut lines = sdp.lines().filter(|line| line.starts_with("a=candidate:"));
    let line = lines.find(|line| line.contains(&format!(" {protocol} ")));
    let words: Vec<&str> = line.expect("a candidate").split(' ').collect();
    format!("{}:{}", words[4], words[5]).parse().expect("an address")
}

impl Raw {
    /// Joins a room from an address of this machine, with a line for each kind that it sends and so
    /// many slots of audio and video.
    pub fn join(
        server: &Server,
        place: ([u8; 4], &str),
        sends: &[Kind],
        slots: (usize, usize),
    ) -> (Self, Socket) {
        Self::join_lacking(server, place, sends, slots, Lacks::default())
    }

    /// The same without what it lacks.
    pub fn join_lacking(
        server: &Server,
        place: ([u8; 4], &str),
        sends: &[Kind],
        slots: (usize, usize),
        lacks: Lacks,
    ) -> (Self, Socket) {
        let mut signaling = Socket::connect_from(place.0, server);
        (Self::enter(&mut signaling, place, sends, slots, lacks), signaling)
    }

    /// The same over a socket that is there.
    pub fn enter(
        signaling: &mut Socket,
        (source, room): ([u8; 4], &str),
        sends: &[Kind],
        (audio, video): (usize, usize),
        lacks: Lacks,
    ) -> Self {
        signaling.ask("room.join", json!({ "room": room, "name": "raw" }));
        let socket = UdpSocket::bind(SocketAddr::from((source, 0))).unwrap();
        socket.set_nonblocking(true).unwrap();
        let local = socket.local_addr().unwrap();
        let (shared, now) = (Shared::new().unwrap().lacking(lacks), Instant::now());
        let mut transport = IceDtls::client(&shared, Some(VideoFormat::Vp8), local, now).unwrap();
        let slot = |kind| OfferLine { kind, send: false, layers: &[] };
        let own = sends.iter().map(|kind| OfferLine { kind: *kind, send: true, layers: &[] });
        let lines: Vec<OfferLine> = own
            .chain(std::iter::repeat_n(slot(Kind::Audio), audio))
            .chain(std::iter::repeat_n(slot(Kind::Video), video))
            .collect();
        let offer = transport.offer(&lines, false).unwrap();
        let tracks = offer.mids.iter().zip(sends).map(|(mid, kind)| OfferedTrack {
            mid: mid.clone(),
            kind: if *kind == Kind::Audio { MediaKind::Audio } else { MediaKind::Video },
            name: String::new(),
            opaque: false,
            content_hint: wire::room::ContentHint::Speech,
            layers: Vec::new(),
        });
        let tracks: Vec<OfferedTrack> = tracks.collect();
        let answer = signaling.ask("room.offer", json!({ "sdp": offer.sdp, "tracks": tracks }));
        let answer: Answer = serde_json::from_value(answer).unwrap();
        let negotiated = transport.accept_answer(&answer.sdp).unwrap();
        let of = |sdp: &str, name: &str| {
            let line = sdp.lines().find_map(|line| line.strip_prefix(name));
            line.expect("ICE credentials").to_owned()
        };
        let server = candidate(&answer.sdp, "udp");
        let ufrags = [&answer.sdp, &offer.sdp].map(|sdp| of(sdp, "a=ice-ufrag:"));
        Self {
            socket,
            local,
            transport,
            timeout: now,
            negotiated,
            keys: None,
            username: ufrags.join(":"),
            password: of(&answer.sdp, "a=ice-pwd:"),
            server,
            streams: BTreeMap::new(),
        }
    }

    /// Takes what came, and does what ICE and DTLS want.
    pub fn step(&mut self) {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            let datagram = &buffer[..len];
            match datagram[0] {
                128..=191 if !is_rtcp(datagram[1]) => self.count(datagram),
                128..=191 => {}
                _ => {
                    let now = Instant::now();
                    self.transport.handle_datagram(now, from, self.local, datagram).unwrap();
                    self.poll();
                }
            }
        }
        if Instant::now() >= self.timeout {
            self.transport.handle_timeout(Instant::now()).unwrap();
            self.poll();
        }
    }

    fn count(&mut self, datagram: &[u8]) {
        let keys = self.keys.as_mut().expect("it is connected");
        let mut plain = [0; 2048];
        let opened = keys.opener.open_rtp(datagram, &mut plain).expect("the server seals for it");
        let header = opened.header;
        let payload = &plain[header.payload_range(&plain[..opened.len]).expect("a packet")];
        // Of sound and of what is sent again nothing is left out.
        let descriptor =
            vp8::Descriptor::parse(payload).map_or(0, |descriptor| descriptor.header_len);
        let stream = self.streams.entry(header.ssrc).or_default();
        stream.numbers.push(header.sequence);
        if let Some(number) = payload.strip_prefix(&NUMBERED) {
            let number = number.try_into().map(u32::from_be_bytes);
            stream.heard.extend(number.map(|number| (number, Instant::now())));
        }
        stream.bytes += datagram.len() as u64;
        *stream.by_frame.entry(header.timestamp).or_default() += payload.len() - descriptor;
        stream.frames += usize::from(header.marker);
    }

    fn poll(&mut self) {
        loop {
            match self.transport.poll().unwrap() {
                Output::Transmit { destination, data, .. } => {
                    // What the kernel does not take is lost, as on any path.
                    let _ = self.socket.send_to(&data, destination.socket);
                }
                Output::Event(Event::Connected {
                    keys: KeyPair { local, remote: theirs },
                    remote,
                    ..
                }) => {
                    let (sealer, opener) = (Sealer::new(&local), Opener::new(&theirs));
                    let (remote, streams) = (remote.socket, BTreeMap::new());
                    self.keys = Some(Keys { sealer, opener, remote, streams });
                }
                Output::Event(_) => {}
                Output::Wait(at) => {
                    self.timeout = at;
                    return;
                }
            }
        }
    }

    /// A check with its credentials, which may nominate the pair.
    pub fn check(&self, id: [u8; 12], priority: u32, nominates: bool) -> Vec<u8> {
        let (username, role) = (&self.username[..], Role::Controlling { nominates });
        let check = Check { username, id, priority, role, tie_breaker: [0; 8] };
        let mut out = [0; 200];
        let len = check.write(&Password::new(&self.password), &mut out).expect("it fits");
        out[..len].to_vec()
    }

    /// Where the server's media comes from.
    pub fn remote(&self) -> SocketAddr {
        self.keys.as_ref().expect("it is connected").remote
    }

    /// Where it is.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// A NAT gives it another port from now on. The old one is nobody's.
    pub fn change_port(&mut self) {
        self.socket = UdpSocket::bind(SocketAddr::from((self.local.ip(), 0))).unwrap();
        self.socket.set_nonblocking(true).unwrap();
    }

    /// Takes what came, and answers checks; no check of its own leaves.
    pub fn step_without_checks(&mut self) {
        self.timeout = Instant::now() + PATIENCE;
        self.step();
    }

    /// Whether it has keys.
    pub fn is_connected(&self) -> bool {
        self.keys.is_some()
    }

    /// The first line of a kind that it sends on.
    pub fn line(&self, kind: Kind) -> &Line {
        let sends = |line: &&Line| line.direction == Direction::Send && line.codec.kind() == kind;
        self.negotiated.lines.iter().find(sends).expect("it offered one")
    }

    /// The streams of its slots of a kind.
    pub fn slots(&self, kind: Kind) -> impl Iterator<Item = StreamIds> {
        let lines = self.negotiated.lines.iter().filter(move |line| line.codec.kind() == kind);
        lines.filter_map(|line| line.remote.filter(|_| line.direction == Direction::Receive))
    }

    /// Bytes of media that came so far.
    pub fn bytes(&self) -> u64 {
        self.streams.values().map(|stream| stream.bytes).sum()
    }

    /// Seals a compound and sends it.
    pub fn send_rtcp(&mut self, compound: &[u8]) {
        let sealed = self.sealed(compound);
        self.send_as_it_is(&sealed);
    }

    fn sealed(&mut self, compound: &[u8]) -> Vec<u8> {
        let keys = self.keys.as_mut().expect("it is connected");
        let mut buffer = compound.to_vec();
        buffer.resize(compound.len() + 64, 0);
        let len = keys.sealer.seal_rtcp(&mut buffer, compound.len()).unwrap();
        buffer.truncate(len);
        buffer
    }

    /// Sends a check that nominates nothing to where the server says that it is.
    pub fn send_check(&self, id: [u8; 12]) {
        let _ = self.socket.send_to(&self.check(id, 1, false), self.server);
    }

    /// Sends a sealed control packet whose first byte makes it nothing. It costs its sender and the system as much.
    pub fn send_spoiled(&mut self, compound: &[u8]) {
        let mut sealed = self.sealed(compound);
        sealed[0] = 0xFF;
        self.send_as_it_is(&sealed);
    }

    /// Sends a datagram that nobody sealed.
    pub fn send_as_it_is(&self, datagram: &[u8]) {
        let remote = self.keys.as_ref().expect("it is connected").remote;
        // What the kernel does not take is lost, as on any path.
        let _ = self.socket.send_to(datagram, remote);
    }

    /// Seals a packet and sends it.
    pub fn send_rtp(&mut self, header: &HeaderWriter<'_>, payload: &[u8]) {
        let Keys { sealer, remote, streams, .. } = self.keys.as_mut().expect("it is connected");
        let stream = streams.entry(header.ssrc);
        let stream = stream.or_insert_with(|| sealer.stream(header.ssrc).unwrap());
        let mut buffer = [0; 1500];
        let header_len = header.write(&mut buffer).unwrap();
        let len = header_len + payload.len();
        buffer[header_len..len].copy_from_slice(payload);
        let len = sealer.seal_rtp(stream, &mut buffer, header_len, len).unwrap();
        let _ = self.socket.send_to(&buffer[..len], *remote);
    }
}

/// Steps participants until all are connected.
pub fn connect(all: &mut [&mut Raw]) {
    let begin = Instant::now();
    while !all.iter().all(|raw| raw.is_connected()) {
        assert!(begin.elapsed() < PATIENCE, "a handshake");
        all.iter_mut().for_each(|raw| raw.step());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
