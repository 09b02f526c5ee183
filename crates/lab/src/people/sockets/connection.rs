//! One client connection: TCP, upgrade, handshake, then frames. It never blocks.

use super::frame::{self, Frame, Packet};
use crate::base::words;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Most bytes that may wait for a server that does not read: further pings are not made.
const MAX_OUT: usize = 256 << 10;
/// Bytes that wait for a server that does not read, although it asks for more than pings.
const MAX_ASKED: usize = 2 * MAX_OUT;
/// Bytes of one frame.
const MAX_IN: usize = 2 << 20;
/// Bytes of an answer to the upgrade.
const MAX_HEAD: usize = 64 << 10;
/// Reads in a row: other connections, and the end of the load, have their turn.
const READS: usize = 16;
/// The message: an event with an object, as in the study.
const PING: &[u8] = br#"{"event":"ping","data":{"from":"lab"}}"#;
const HANDSHAKE: &[u8] = br##"{"event":"#handshake","data":{"authToken":null},"cid":1}"##;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Upgrading,
    Handshaking,
    Live,
}

/// What a connection tells the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The handshake was answered.
    Live,
    /// A ping was answered, with the server's count.
    Pong(u64),
    /// Something else came.
    Other,
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With this code.
    Code(u16),
    /// Without one, or before it was up.
    Lost(String),
}

/// A client connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    state: State,
    /// What came and is not whole yet.
    rest: Vec<u8>,
    out: Vec<u8>,
    written: usize,
    /// Whether the poller was asked to tell when it can be written.
    pub wants_write: bool,
    random: u32,
}

/// A TCP connection that is not up yet; nobody waits for it.
fn begin(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

impl Connection {
    /// Begins to connect; the request for the upgrade waits until TCP is up.
    ///
    /// # Errors
    /// Nothing can be begun: no socket or port is free, or there is no way to the address.
    pub fn open(address: SocketAddr, host: &str, seed: u32) -> io::Result<Self> {
        let stream = begin(address)?;
        stream.set_nodelay(true)?;
        // The key only has to be 16 bytes in base64 (RFC 6455 section 4.1).
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: bW9pbSBsYWIgc29ja2V0cw==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            wire::frame::SOCKET_PATH
        );
        Ok(Self {
            stream,
            state: State::Upgrading,
            rest: Vec::new(),
            out: request.into_bytes(),
            written: 0,
            wants_write: false,
            random: seed | 1,
        })
    }

    /// For the poller.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether TCP came up, as far as is known.
    pub fn came_up(&self) -> bool {
        self.state != State::Upgrading || self.written > 0 || self.out.is_empty()
    }

    /// Whether the handshake was answered.
    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// A mask (xorshift): it need not be secret here, only vary.
    fn mask(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
    }

    /// Puts up to `count` pings behind what waits. Returns how many had room.
    pub fn ping(&mut self, count: u64) -> u64 {
        for made in 0..count {
            if self.out.len() - self.written > MAX_OUT {
                return made;
            }
            let mask = self.mask();
            frame::text(&mut self.out, PING, mask);
        }
        count
    }

    /// Puts the end behind what waits.
    pub fn close(&mut self) {
        let mask = self.mask();
        frame::close(&mut self.out, mask);
    }

    /// Writes what waits. Says whether something still waits.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn flush(&mut self) -> Result<bool, Ended> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(Ended::Lost("nothing can be written".into())),
                Ok(n) => self.written += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Ended::Lost(error.kind().to_string())),
            }
        }
        self.out.clear();
        self.written = 0;
        if !self.is_live() {
            self.out.shrink_to(256);
        }
        Ok(false)
    }

    /// Reads what is there, with `buffer` as the place to read into.
    ///
    /// # Errors
    /// The connection ended.
    pub fn read(&mut self, buffer: &mut [u8], mut tell: impl FnMut(Told)) -> Result<(), Ended> {
        for _ in 0..READS {
            let n = match self.stream.read(buffer) {
                Ok(0) => return Err(Ended::Lost("closed without a code".into())),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Ended::Lost(error.kind().to_string())),
            };
            if self.rest.is_empty() {
                let used = self.take(&buffer[..n], &mut tell)?;
                self.rest.extend_from_slice(&buffer[used..n]);
            } else {
                let mut rest = std::mem::take(&mut self.rest);
                rest.extend_from_slice(&buffer[..n]);
                let used = self.take(&rest, &mut tell)?;
                rest.drain(..used);
                if !rest.is_empty() {
                    self.rest = rest;
                }
            }
            let (most, what) = match self.state {
                State::Upgrading => (MAX_HEAD, "an answer to the upgrade without end"),
                _ => (MAX_IN, "a frame without end"),
            };
            if self.rest.len() > most {
                return Err(Ended::Lost(what.into()));
            }
            if self.out.len() - self.written > MAX_OUT
                && self.flush()?
                && self.out.len() - self.written > MAX_ASKED
            {
                return Err(Ended::Lost(
                    "the server asks for answers that it does not read".into(),
                ));
            }
            if n < buffer.len() {
                return Ok(());
            }
        }
        // The poller tells again of what is left.
        Ok(())
    }

    /// Takes all that is whole in `bytes`. Returns how many bytes that was.
    fn take(&mut self, bytes: &[u8], tell: &mut impl FnMut(Told)) -> Result<usize, Ended> {
        let mut used = 0;
        if self.state == State::Upgrading {
            let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                return Ok(0);
            };
            if !bytes.starts_with(b"HTTP/1.1 101") {
                let status = String::from_utf8_lossy(&bytes[..end]);
                let line = words(status.lines().next().unwrap_or_default());
                return Err(Ended::Lost(format!("no upgrade: {line}")));
            }
            used = end + 4;
            self.state = State::Handshaking;
            let mask = self.mask();
            frame::text(&mut self.out, HANDSHAKE, mask);
        }
        loop {
            let next = frame::next(&bytes[used..]);
            let Some((frame, length)) = next.map_err(|_| Ended::Lost("a bad frame".into()))? else {
                return Ok(used);
            };
            used += length;
            match frame {
                Frame::Text(b"") => {
                    let mask = self.mask();
                    frame::text(&mut self.out, b"", mask);
                }
                Frame::Text(text) if self.state == State::Handshaking => {
                    let answer: serde_json::Value =
                        serde_json::from_slice(text).unwrap_or_default();
                    if answer["rid"] != 1 || answer.get("error").is_some() {
                        return Err(Ended::Lost("the handshake was refused".into()));
                    }
                    self.state = State::Live;
                    tell(Told::Live);
                }
                Frame::Text(text) => frame::packets(text, |packet| {
                    tell(match packet {
                        Packet::Pong(count) => Told::Pong(count),
                        Packet::Other => Told::Other,
                    });
                }),
                Frame::Ping(payload) => {
                    let mask = self.mask();
                    frame::pong(&mut self.out, payload, mask);
                }
                Frame::Close(code) => return Err(Ended::Code(code)),
                Frame::Other => {}
            }
        }
    }
}
