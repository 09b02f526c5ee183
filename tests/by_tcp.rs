//! A receiver of media by TCP (RFC 6544), who reads as fast as the test likes.

use crate::raw::candidate;
use crate::target::Socket;
use net::framing::{self, Decoder};
use rtp::negotiated::Kind;
use rtp::rtcp;
use rtp::srtp::Sealer;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;
use tokio::net::TcpSocket;
use transport::{Event, IceDtls, OfferLine, Output, Shared, VideoFormat};

/// A participant by TCP who reads as much as the test says.
pub struct Reader {
    stream: TcpStream,
    decoder: Decoder,
    transport: IceDtls,
    timeout: Instant,
    peer: SocketAddr,
    local: SocketAddr,
    sealer: Option<Sealer>,
    /// Packets of media that came.
    pub media: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Whether the server closed its connection.
    pub ended: bool,
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
    /// Joins a room from an address of this machine, with two slots of sound and one of pictures. Its media connects to the address
    /// that the server names, or to a `proxy` that leads there.
    pub fn join(
        signaling: &mut Socket,
        from: [u8; 4],
        room: &str,
        proxy: Option<SocketAddr>,
    ) -> Self {
        signaling.ask("room.join", json!({ "room": room, "name": "by TCP" }));
        let (shared, now) = (Shared::new().unwrap(), Instant::now());
        let mut transport = IceDtls::client_on_tcp(&shared, Some(VideoFormat::Vp8), now).unwrap();
        let slot = |kind| OfferLine { kind, send: false, layers: &[] };
        let lines = [slot(Kind::Audio), slot(Kind::Audio), slot(Kind::Video)];
        let offer = transport.offer(&lines, false).unwrap();
        let answer = signaling.ask("room.offer", json!({ "sdp": offer.sdp, "tracks": [] }));
        let answer = answer["sdp"].as_str().unwrap();
        transport.accept_answer(answer).unwrap();
        let peer = candidate(answer, "tcp");
        let stream = connect_narrow(from, proxy.unwrap_or(peer));
        stream.set_nonblocking(true).unwrap();
        let local = stream.local_addr().unwrap();
        transport.connects_from(local).unwrap();
        Self {
            stream,
            decoder: Decoder::new(2048),
            transport,
            timeout: now,
            peer,
            local,
            sealer: None,
            media: 0,
            bytes: 0,
            ended: false,
        }
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
    pub fn step(&mut self, most: usize) {
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
    pub fn report(&mut self) {
        let Some(sealer) = &mut self.sealer else { return };
        let mut compound = Vec::new();
        rtcp::receiver_report(&mut compound, 7, &[]);
        let len = compound.len();
        compound.resize(len + 64, 0);
        let sealed = sealer.seal_rtcp(&mut compound, len).unwrap();
        self.write(&compound[..sealed]);
    }
}
