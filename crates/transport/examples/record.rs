//! Records the packets of a browser's picture for the parsers' tests: `record vp9|av1 FILE PACKETS`.
//!
//! It reads an offer up to an empty line from its input, writes the answer and an empty line to its output, and takes
//! media on 127.0.0.1. `web/e2e/record.mjs` drives it with Chromium.
//!
//! The file begins with the id of the dependency descriptor, 0 if none was agreed. Then it has, packet after packet: the
//! length of what is kept, the length of the whole packet (2 bytes each, the high one first), and what is kept, in the
//! clear: the RTP header with its extensions and the first 64 bytes of the payload.

use rtp::RtpHeader;
use rtp::header::is_rtcp;
use rtp::negotiated::{Kind, Negotiated};
use rtp::srtp::{KeyPair, Opener};
use std::error::Error;
use std::io::{BufRead, Write};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use transport::{Event, IceDtls, Output, Shared, VideoFormat};

/// How much of a payload is kept: more than any descriptor has.
const PAYLOAD_BYTES: usize = 64;
/// A browser that sends too little is given up after that.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [codec, path, packets] = arguments.as_slice() else {
        return Err("write: record vp9|av1 FILE PACKETS".into());
    };
    let format = match codec.as_str() {
        "vp9" => VideoFormat::Vp9,
        "av1" => VideoFormat::Av1,
        other => return Err(format!("{other} is not recorded").into()),
    };
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let mut transport =
        IceDtls::server(&Shared::new()?, Some(format), &[socket.local_addr()?], Instant::now())?;
    let mut offer = String::new();
    for line in std::io::stdin().lock().lines() {
        match line?.trim_end() {
            "" => break,
            line => offer.extend([line, "\r\n"]),
        }
    }
    let (answer, negotiated) = transport.accept_offer(&offer)?;
    println!("{answer}");
    std::io::stdout().flush()?;
    let recorded = record(&socket, &mut transport, &negotiated, packets.parse()?)?;
    std::fs::write(path, recorded)?;
    Ok(())
}

/// The first packets of the first video line.
fn record(
    socket: &UdpSocket,
    transport: &mut IceDtls,
    negotiated: &Negotiated,
    packets: usize,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let video = |codec: rtp::negotiated::Codec| codec.kind() == Kind::Video;
    let line = negotiated.lines.iter().find(|line| video(line.codec)).ok_or("no video")?;
    let (local, began) = (socket.local_addr()?, Instant::now());
    let mut recorded = vec![line.extensions.dependency.unwrap_or_default()];
    let (mut opener, mut count) = (None, 0);
    let (mut datagram, mut plain) = ([0; 2048], [0; 2048]);
    let mut wait = poll(socket, transport, &mut opener)?;
    while count < packets {
        if began.elapsed() > PATIENCE {
            return Err(format!("only {count} packets came").into());
        }
        let left = wait.saturating_duration_since(Instant::now());
        socket.set_read_timeout(Some(left.clamp(Duration::from_millis(1), PATIENCE)))?;
        let Ok((len, from)) = socket.recv_from(&mut datagram) else {
            transport.handle_timeout(Instant::now())?;
            wait = poll(socket, transport, &mut opener)?;
            continue;
        };
        let datagram = &datagram[..len];
        match (datagram, &mut opener) {
            ([128..=191, second, ..], _) if is_rtcp(*second) => {}
            ([128..=191, ..], Some(opener)) => {
                let opened = opener.open_rtp(datagram, &mut plain)?;
                if opened.header.payload_type == line.payload_type {
                    keep(&mut recorded, &opened.header, &plain[..opened.len]);
                    count += 1;
                }
            }
            ([128..=191, ..], None) => {}
            _ => {
                transport.handle_datagram(Instant::now(), from, local, datagram)?;
                wait = poll(socket, transport, &mut opener)?;
            }
        }
    }
    Ok(recorded)
}

fn keep(recorded: &mut Vec<u8>, header: &RtpHeader, plain: &[u8]) {
    let kept = plain.len().min(header.header_len + PAYLOAD_BYTES);
    for len in [kept, plain.len()] {
        recorded.extend((len as u16).to_be_bytes());
    }
    recorded.extend(&plain[..kept]);
}

/// Sends what ICE and DTLS want, takes the keys; returns when they are to be asked again.
fn poll(
    socket: &UdpSocket,
    transport: &mut IceDtls,
    opener: &mut Option<Opener>,
) -> Result<Instant, Box<dyn Error>> {
    loop {
        match transport.poll()? {
            Output::Transmit { destination, data, .. } => {
                socket.send_to(&data, destination.socket)?;
            }
            Output::Event(Event::Connected { keys: KeyPair { remote, .. }, .. }) => {
                *opener = Some(Opener::new(&remote));
            }
            Output::Event(_) => {}
            Output::Wait(at) => return Ok(at),
        }
    }
}
