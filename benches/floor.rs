//! The floor of forwarding: what it costs to open each packet of one publisher once and to seal and send a
//! copy of it to each of N destinations, with no more than that. No rooms, no reports, no histories: what
//! `make bench-sfu` holds the server against. It sends as the server would send at its best: from one
//! thread, a destination's packets of a batch as one message (GSO), with the cipher of most browsers.
//!
//! `floor serve PORT SUBSCRIBERS SECONDS` forwards what comes to 127.0.0.1:PORT, and after two seconds
//! counts for so long; `floor load PORT SECONDS BURSTS_PER_SECOND SIZES` sends bursts of packets of these many
//! bytes (`[[1168]]`: each burst of one; a list of lists is sent in turn) to it and takes the copies, at one address
//! of 127.9.0.0/16 each. Each prints a line of JSON.
//!
//! `floor mix PORT PEOPLE SECONDS both|in|out|read` and `floor mix-load` with the same are the floor of a mixed room and its
//! people: `floor/mix.rs`.

#[path = "floor/mix.rs"]
mod mix;

use net::{Events, PollFd, Poller, RecvBatch, SendBatch, SocketOptions, UdpBatchSocket};
use rtp::RtpHeader;
use rtp::header::{FIXED_LEN, HeaderWriter};
use rtp::srtp::{MasterKey, Opener, Profile, SealStream, Sealer};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Where the copies are taken.
const PORT_OF_COPIES: u16 = 7999;
/// What is left out at the beginning.
const WARM_UP: Duration = Duration::from_secs(2);
const PUBLISHER: u32 = 1;
const PAYLOAD_TYPE: u8 = 96;
const TAG: usize = 16;

fn key(of: u32) -> MasterKey {
    let mut key = [7; 32];
    key[..4].copy_from_slice(&of.to_be_bytes());
    MasterKey::new(Profile::AeadAes256Gcm, &key, &[3; 12]).expect("the profile's lengths")
}

fn address(subscriber: u32) -> SocketAddr {
    let [_, _, high, low] = (subscriber + 1).to_be_bytes();
    SocketAddr::from(([127, 9, high, low], PORT_OF_COPIES))
}

struct Subscriber {
    address: SocketAddr,
    sealer: Sealer,
    stream: SealStream,
}

/// Packets of a batch, opened: where each lies in the arena.
struct Opened {
    sequence: u16,
    marker: bool,
    timestamp: u32,
    payload: std::ops::Range<usize>,
}

fn serve(port: u16, subscribers: u32, seconds: u64) {
    let _ = net::thread::set_current_thread_prompt(-10, Duration::from_micros(100));
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let socket = UdpBatchSocket::bind(local, SocketOptions::default()).expect("a free port");
    let mut opener = Opener::new(&key(0));
    let mut people: Vec<Subscriber> = (0..subscribers)
        .map(|number| {
            let mut sealer = Sealer::new(&key(number + 1));
            let stream = sealer.stream(100 + number).expect("a new SSRC");
            Subscriber { address: address(number), sealer, stream }
        })
        .collect();
    let mut reading = RecvBatch::new(32);
    let mut sending = SendBatch::new(512);
    let mut arena = vec![0; 64 * 2048];
    let mut opened: Vec<Opened> = Vec::with_capacity(64);
    let (begin, mut from) = (Instant::now(), None);
    let mut sent = 0;
    while begin.elapsed() < WARM_UP + Duration::from_secs(seconds) {
        if from.is_none() && begin.elapsed() >= WARM_UP {
            from = Some((net::thread::thread_cpu_time(), sent));
        }
        let _ = net::wait(&mut [PollFd::readable(&socket)], Some(Duration::from_millis(100)));
        if socket.recv(&mut reading).unwrap_or(0) == 0 {
            continue;
        }
        opened.clear();
        for (at, datagram) in reading.datagrams().enumerate().take(64) {
            let place = &mut arena[at * 2048..][..2048];
            let Ok(packet) = opener.open_rtp(datagram.data, place) else { continue };
            let RtpHeader { sequence, marker, timestamp, header_len, .. } = packet.header;
            let payload = at * 2048 + header_len..at * 2048 + packet.len;
            opened.push(Opened { sequence, marker, timestamp, payload });
        }
        for person in &mut people {
            for packet in &opened {
                if sending.is_full() {
                    sent += sending.flush(&socket).sent;
                }
                forward(person, packet, &arena, &mut sending);
            }
        }
        sent += sending.flush(&socket).sent;
    }
    let (cpu, before) = from.expect("it ran on");
    let cpu_us = (net::thread::thread_cpu_time() - cpu).as_micros();
    println!("{{\"cpu_us\":{cpu_us},\"sent\":{}}}", sent - before);
}

fn forward(person: &mut Subscriber, packet: &Opened, arena: &[u8], sending: &mut SendBatch) {
    let Some(mut slot) = sending.slot(person.address) else { return };
    let writer = HeaderWriter {
        marker: packet.marker,
        payload_type: PAYLOAD_TYPE,
        sequence: packet.sequence,
        timestamp: packet.timestamp,
        ssrc: person.stream.ssrc(),
        extensions: &[],
    };
    let Ok(header_len) = writer.write(&mut slot) else { return };
    let len = header_len + packet.payload.len();
    slot[header_len..len].copy_from_slice(&arena[packet.payload.clone()]);
    if let Ok(sealed) = person.sealer.seal_rtp(&mut person.stream, &mut slot, header_len, len) {
        slot.commit(sealed);
    }
}

/// Takes copies until told to end.
fn take(ended: &AtomicBool, taken: &AtomicU64) {
    let _ = net::thread::set_current_thread_prompt(-10, Duration::from_micros(100));
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT_OF_COPIES));
    let (recv_buffer, packet_info) = (16 << 20, true);
    let options = SocketOptions { recv_buffer, packet_info, ..SocketOptions::default() };
    let socket = UdpBatchSocket::bind(any, options).expect("a free port");
    let mut batch = RecvBatch::new(64);
    // As bots do it: a turn of a millisecond, and then as soon as something comes, which costs the sender a
    // wake-up.
    let (poller, mut events) = (Poller::new().expect("epoll"), Events::with_capacity(8));
    poller.add(&socket, 1).expect("a place in it");
    while !ended.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
        let _ = poller.wait(&mut events, Some(Duration::from_millis(20)));
        loop {
            let count = socket.recv(&mut batch).unwrap_or(0);
            taken.fetch_add(count as u64, Ordering::Relaxed);
            if !batch.is_full() {
                break;
            }
        }
    }
}

fn load(port: u16, seconds: u64, bursts_per_second: u32, bursts: &[Vec<usize>]) {
    let (ended, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let taker = {
        let (ended, taken) = (ended.clone(), taken.clone());
        std::thread::spawn(move || take(&ended, &taken))
    };
    let local = SocketAddr::from((IpAddr::from(Ipv4Addr::LOCALHOST), 0));
    let socket = UdpBatchSocket::bind(local, SocketOptions::default()).expect("a port");
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut sealer = Sealer::new(&key(0));
    let mut stream = sealer.stream(PUBLISHER).expect("a new SSRC");
    let mut sending = SendBatch::new(64);
    let (begin, mut sent) = (Instant::now(), 0_u64);
    let period = Duration::from_secs(1) / bursts_per_second;
    let mut next = begin;
    for burst in bursts.iter().cycle() {
        if begin.elapsed() >= WARM_UP + Duration::from_secs(seconds + 1) {
            break;
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += period;
        for (of, bytes) in burst.iter().enumerate() {
            let Some(mut slot) = sending.slot(server) else { break };
            let writer = HeaderWriter {
                marker: of + 1 == burst.len(),
                payload_type: PAYLOAD_TYPE,
                sequence: sent as u16,
                timestamp: begin.elapsed().as_micros() as u32,
                ssrc: PUBLISHER,
                extensions: &[],
            };
            writer.write(&mut slot).expect("room for a header");
            let len = sealer.seal_rtp(&mut stream, &mut slot, FIXED_LEN, bytes - TAG);
            slot.commit(len.expect("indices that follow each other"));
            sent += 1;
        }
        sending.flush(&socket);
    }
    std::thread::sleep(Duration::from_millis(200));
    ended.store(true, Ordering::Release);
    taker.join().expect("the taker ends");
    println!("{{\"sent\":{sent},\"taken\":{}}}", taken.load(Ordering::Relaxed));
}

fn main() {
    // `cargo bench` adds --bench.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let numbers: Vec<u64> = arguments.iter().filter_map(|text| text.parse().ok()).collect();
    match (arguments.first().map(String::as_str), numbers.as_slice()) {
        (Some("serve"), &[port, subscribers, seconds]) => {
            serve(port as u16, subscribers as u32, seconds);
        }
        (Some("load"), &[port, seconds, per_second]) => {
            let sizes = arguments.get(4).map(|text| serde_json::from_str::<Vec<Vec<usize>>>(text));
            let Some(Ok(sizes)) = sizes else {
                eprintln!("SIZES are lists of bytes, such as [[1168]]");
                std::process::exit(2);
            };
            load(port as u16, seconds, per_second as u32, &sizes);
        }
        (Some(what @ ("mix" | "mix-load")), &[port, people, seconds]) => {
            let Some(ways) = arguments.get(4).and_then(|word| mix::Ways::named(word)) else {
                eprintln!("say both, in, out or read");
                std::process::exit(2);
            };
            let run = if what == "mix" { mix::serve } else { mix::load };
            run(port as u16, people as u32, seconds, ways);
        }
        _ => {
            eprintln!(
                "floor serve PORT SUBSCRIBERS SECONDS | floor load PORT SECONDS BURSTS_PER_SECOND SIZES | \
                 floor mix PORT PEOPLE SECONDS both|in|out|read | floor mix-load PORT PEOPLE SECONDS both|in|out|read"
            );
            std::process::exit(2);
        }
    }
}
