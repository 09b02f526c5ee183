//! Loads against servers in miniature.

use super::load::Load;
use crate::record::SocketsSummary;
use crate::scenario::SocketGroup;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

fn group(connections: u32, arrival_per_second: f64, rate_per_second: f64) -> SocketGroup {
    SocketGroup { connections, arrival_per_second, rate_per_second, batch_ms: 5, chromium: 0 }
}

/// A load on these addresses for so long.
fn load(addresses: Vec<SocketAddr>, group: SocketGroup, length: Duration) -> SocketsSummary {
    let load = Load::start(0, addresses, "localhost".into(), group, length, &[]).expect("started");
    thread::sleep(length);
    load.finish().0
}

/// A free port of the loopback, on which nobody listens.
fn closed() -> SocketAddr {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    free.local_addr().expect("an address")
}

/// A frame of the server, not masked (RFC 6455, section 5.2).
fn frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, u8::try_from(text.len()).expect("short")];
    frame.extend(text.as_bytes());
    frame
}

/// A connection that takes the upgrade and the handshake, and answers no pings.
fn greet(mut stream: TcpStream) {
    let mut bytes = [0; 2048];
    let mut read = 0;
    while !bytes[..read].windows(4).any(|four| four == b"\r\n\r\n") {
        read += stream.read(&mut bytes[read..]).expect("a request");
    }
    let upgrade =
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    stream.write_all(upgrade).expect("written");
    let _handshake = stream.read(&mut bytes).expect("a handshake");
    stream.write_all(&frame("{\"rid\":1,\"data\":{}}")).expect("written");
    while stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
}

/// A server that greets everybody.
fn polite() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || greet(stream));
        }
    });
    address
}

#[test]
fn what_is_never_answered_did_not_come_up() {
    // The kernel takes the connections; nobody reads them.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let address = listener.local_addr().expect("an address");
    let seen = load(vec![address], group(5, 50.0, 1.0), Duration::from_secs(2));
    assert_eq!((seen.connected, seen.live), (0, 0));
    let why = "the handshake was not answered until the end";
    assert_eq!(seen.failed, [(why.to_owned(), 5)].into());
    assert_eq!(
        seen.seconds.iter().map(|second| second.lost).sum::<u64>(),
        0,
        "it could still come"
    );
}

#[test]
fn a_server_that_accepts_slowly_holds_up_nobody_else() {
    let slow = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&slow, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("bound");
    listen(&slow, 0).expect("listens");
    let slow = TcpListener::from(slow);
    let address = slow.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in slow.incoming().flatten() {
            thread::spawn(move || greet(stream));
            thread::sleep(Duration::from_millis(250));
        }
    });
    let seen = load(vec![address], group(60, 30.0, 0.0), Duration::from_secs(5));
    let tried = u64::from(seen.connected) + seen.failed.values().sum::<u64>();
    assert_eq!(tried, 60, "all began when they were due: {seen:?}");
    assert!(seen.connected >= 4, "{seen:?}");
    let slowest = seen.connect.expect("some came up").max_ms;
    assert!(slowest > 200.0, "{slowest} ms from when it was due");
}

#[test]
fn each_address_of_a_name_is_tried() {
    let seen = load(vec![closed(), polite()], group(20, 100.0, 0.0), Duration::from_secs(2));
    assert_eq!((seen.connected, seen.live, seen.failed.len()), (20, 20, 0), "{seen:?}");
    let seen = load(vec![closed(), closed()], group(3, 100.0, 0.0), Duration::from_secs(1));
    assert_eq!(seen.failed.values().sum::<u64>(), 3, "{seen:?}");
}

#[test]
fn who_pings_and_is_never_answered_is_counted() {
    let seen = load(vec![polite()], group(4, 100.0, 5.0), Duration::from_secs(4));
    assert_eq!((seen.connected, seen.unanswered), (4, 4), "{seen:?}");
}
