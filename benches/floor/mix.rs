//! The floor of a mixed room: each 20 ms one packet of sound is received from each person and opened, and one
//! packet of the mix is sealed and sent to each, from one thread, with no more than that. No rooms, no ranks, no
//! decoding, no encoding, no reports: what `make bench-mcu` holds the server against.

use super::{PORT_OF_COPIES, TAG, WARM_UP, address, key};
use foldhash::HashMap;
use net::{PollFd, RecvBatch, SendBatch, SocketOptions, UdpBatchSocket};
use rtp::header::{FIXED_LEN, HeaderWriter};
use rtp::srtp::{Opener, SealStream, Sealer};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_millis(20);
/// A datagram of a person: some bytes of silence, its header extensions, and what SRTP adds.
const VOICE_BYTES: usize = 64;
/// Opus in a packet of the mix, at 32 kbit/s.
const MIX_BYTES: usize = 80;
const PAYLOAD_TYPE: u8 = 111;

/// What is done of both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ways {
    Both,
    /// Nothing is sent to people.
    In,
    /// Nor is anything opened: packets are only read from the kernel.
    Read,
    /// Nothing comes from people.
    Out,
}

impl Ways {
    /// By its word.
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "both" => Some(Self::Both),
            "in" => Some(Self::In),
            "read" => Some(Self::Read),
            "out" => Some(Self::Out),
            _ => None,
        }
    }
}

/// An RTP packet of `payload`, sealed into `slot`; its length.
fn seal(
    (sealer, stream): (&mut Sealer, &mut SealStream),
    sequence: u16,
    payload: &[u8],
    slot: &mut [u8],
) -> Option<usize> {
    let writer = HeaderWriter {
        marker: false,
        payload_type: PAYLOAD_TYPE,
        sequence,
        timestamp: u32::from(sequence).wrapping_mul(960),
        ssrc: stream.ssrc(),
        extensions: &[],
    };
    let header_len = writer.write(slot).ok()?;
    let len = header_len + payload.len();
    slot[header_len..len].copy_from_slice(payload);
    sealer.seal_rtp(stream, slot, header_len, len).ok()
}

/// Keys of what a person sends, and of what is sent to them.
fn sealing(number: u32, to_person: bool) -> (Sealer, SealStream) {
    let mut sealer = Sealer::new(&key(2 * number + u32::from(to_person)));
    let stream = sealer.stream(1000 + number).expect("a new SSRC");
    (sealer, stream)
}

struct Person {
    address: SocketAddr,
    opener: Opener,
    mix: (Sealer, SealStream),
}

/// Serves 127.0.0.1:`port`, and after the warm-up counts for so many seconds.
pub fn serve(port: u16, people: u32, seconds: u64, ways: Ways) {
    let _ = net::thread::set_current_thread_prompt(-10, Duration::from_micros(100));
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let socket = UdpBatchSocket::bind(local, SocketOptions::default()).expect("a free port");
    let mut everyone: Vec<Person> = (0..people)
        .map(|number| Person {
            address: address(number),
            opener: Opener::new(&key(2 * number)),
            mix: sealing(number, true),
        })
        .collect();
    let mut by_address: HashMap<SocketAddr, usize> = HashMap::default();
    by_address.extend(everyone.iter().enumerate().map(|(index, one)| (one.address, index)));
    let (mut reading, mut sending) = (RecvBatch::new(64), SendBatch::new(512));
    let (mut plain, payload) = ([0; 2048], [0x5a; MIX_BYTES]);
    let (begin, mut from) = (Instant::now(), None);
    let (mut sent, mut opened, mut tick) = (0, 0_u64, 0_u32);
    while begin.elapsed() < WARM_UP + Duration::from_secs(seconds) {
        if from.is_none() && begin.elapsed() >= WARM_UP {
            from = Some((net::thread::thread_cpu_time(), sent, opened));
        }
        let due = begin + PERIOD * (tick + 1);
        let wait = due.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            tick += 1;
            if matches!(ways, Ways::Both | Ways::Out) {
                sent += send_all(&mut everyone, tick as u16, &payload, &mut sending, &socket);
            }
            continue;
        }
        let _ = net::wait(&mut [PollFd::readable(&socket)], Some(wait));
        while socket.recv(&mut reading).unwrap_or(0) > 0 {
            for datagram in reading.datagrams() {
                if ways == Ways::Read {
                    opened += 1;
                    continue;
                }
                let Some(index) = by_address.get(&datagram.src) else { continue };
                let opener = &mut everyone[*index].opener;
                opened += u64::from(opener.open_rtp(datagram.data, &mut plain).is_ok());
            }
            if !reading.is_full() {
                break;
            }
        }
    }
    let (cpu, sent_before, opened_before) = from.expect("it ran on");
    let cpu_us = (net::thread::thread_cpu_time() - cpu).as_micros();
    let (sent, opened) = (sent - sent_before, opened - opened_before);
    println!("{{\"cpu_us\":{cpu_us},\"sent\":{sent},\"opened\":{opened}}}");
}

/// The mix of a tick to everyone; how many left.
fn send_all(
    everyone: &mut [Person],
    sequence: u16,
    payload: &[u8],
    sending: &mut SendBatch,
    socket: &UdpBatchSocket,
) -> u64 {
    let mut sent = 0;
    for person in everyone {
        if sending.is_full() {
            sent += sending.flush(socket).sent;
        }
        let Some(mut slot) = sending.slot(person.address) else { continue };
        let (sealer, stream) = &mut person.mix;
        if let Some(len) = seal((sealer, stream), sequence, payload, &mut slot) {
            slot.commit(len);
        }
    }
    sent + sending.flush(socket).sent
}

/// The people: each at an address of their own, one after the other within 20 ms. They send to 127.0.0.1:`port` and
/// take what comes, in turns of a millisecond as bots do.
pub fn load(port: u16, people: u32, seconds: u64, ways: Ways) {
    let _ = net::thread::set_current_thread_prompt(-10, Duration::from_micros(100));
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT_OF_COPIES));
    let (recv_buffer, packet_info) = (16 << 20, true);
    let options = SocketOptions { recv_buffer, packet_info, ..SocketOptions::default() };
    let socket = UdpBatchSocket::bind(any, options).expect("a free port");
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut voices: Vec<_> = (0..people).map(|number| sealing(number, false)).collect();
    let (mut reading, mut sending) = (RecvBatch::new(64), SendBatch::new(512));
    let payload = [0x11; VOICE_BYTES - FIXED_LEN - TAG];
    let (mut sent, mut taken, mut next) = (0, 0_u64, 0_u64);
    let begin = Instant::now();
    while begin.elapsed() < WARM_UP + Duration::from_secs(seconds + 1) {
        std::thread::sleep(Duration::from_millis(1));
        let passed = begin.elapsed().as_nanos() * u128::from(people) / PERIOD.as_nanos();
        while ways != Ways::Out && u128::from(next) < passed {
            let (number, sequence) = (next % u64::from(people), next / u64::from(people));
            next += 1;
            if sending.is_full() {
                sent += sending.flush(&socket).sent;
            }
            let IpAddr::V4(own) = address(number as u32).ip() else { continue };
            let Some(mut slot) = sending.slot_from(Some(own), server) else { continue };
            let (sealer, stream) = &mut voices[number as usize];
            if let Some(len) = seal((sealer, stream), sequence as u16, &payload, &mut slot) {
                slot.commit(len);
            }
        }
        sent += sending.flush(&socket).sent;
        while let Ok(count @ 1..) = socket.recv(&mut reading) {
            taken += count as u64;
            if !reading.is_full() {
                break;
            }
        }
    }
    println!("{{\"sent\":{sent},\"taken\":{taken}}}");
}
