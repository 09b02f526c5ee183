//! Receivers of media by TCP who read slowly, or not at all. What waits for them is bounded, and what is dropped is counted.
//! Others lose nothing, and who reads again is served again.

use crate::by_tcp::Reader;
use crate::peer::{Peer, run};
use crate::raw::Raw;
use crate::target::{Server, Socket};
use rtp::HeaderWriter;
use rtp::negotiated::Kind;
use std::time::{Duration, Instant};

/// Receivers who do not read.
const READERS: usize = 4;
/// So many bytes may wait for one of them in the server: sound and pictures, and what is handed to the kernel next.
const WAITS: f64 = ((64 + 256 + 128) << 10) as f64;
/// Memory that all of them may cost.
const MORE: u64 = 16 << 20;
/// What the test's own publisher of sound sends: 250 packets a second.
const TURN: Duration = Duration::from_millis(4);
const SOUND: usize = 600;

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
        let joined = (0..READERS).map(|nth| {
            let from = [127, 0, 0, 66 + nth as u8];
            let mut signaling = Socket::connect_from(from, &server);
            (Reader::join(&mut signaling, from, "call", None), signaling)
        });
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
    server.metric_of_all("moim_tcp_waiting_bytes")
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
