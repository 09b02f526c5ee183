//! ICE, DTLS and SDP: the library behind `transport` reads these bytes, and ends nothing but that transport.

use net::framing::Decoder;
use rtp::negotiated::Kind;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use transport::{Event, IceDtls, OfferLine, Output, Shared, TransportError, VideoFormat};

/// What both sides of a test share; making a certificate costs more than most inputs.
fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| Shared::new().expect("a certificate"))
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn client(now: Instant) -> IceDtls {
    IceDtls::client(shared(), Some(VideoFormat::Vp8), address(1000), now).expect("a client")
}

fn server(now: Instant) -> IceDtls {
    IceDtls::server(shared(), Some(VideoFormat::Vp8), &[address(2000)], now).expect("a server")
}

const LINES: [OfferLine; 3] = [
    OfferLine { kind: Kind::Audio, send: true, layers: &[] },
    OfferLine { kind: Kind::Video, send: true, layers: &[] },
    OfferLine { kind: Kind::Video, send: false, layers: &[] },
];

/// Both sides after offer and answer.
fn pair(now: Instant) -> (IceDtls, IceDtls) {
    let (mut client, mut server) = (client(now), server(now));
    let offer = client.offer(&LINES, false).expect("an offer");
    let (answer, _) = server.accept_offer(&offer.sdp).expect("our own offer");
    client.accept_answer(&answer).expect("our own answer");
    (client, server)
}

/// One datagram: its source, destination and bytes.
type Datagram = (SocketAddr, SocketAddr, Vec<u8>);

/// Takes what a side wants to send; None where it ended. Says when it wants to be woken.
fn drain(
    peer: &mut IceDtls,
    sent: &mut VecDeque<Datagram>,
    connected: &mut bool,
) -> Result<Instant, TransportError> {
    for _ in 0..10_000 {
        match peer.poll()? {
            Output::Transmit { source, destination, data } => {
                sent.push_back((source, destination.socket, data));
            }
            Output::Event(event) => *connected |= matches!(event, Event::Connected { .. }),
            Output::Wait(at) => return Ok(at),
        }
    }
    panic!("a transport that never waits");
}

/// Datagrams of a stranger (framed as on TCP), 10 ms apart: a server's transport answers with bounded bytes, sends
/// nothing like media and hands out no keys.
pub fn datagrams(data: &[u8]) {
    let mut now = Instant::now();
    let (_, mut server) = pair(now);
    let (mut sent, mut connected) = (VecDeque::new(), false);
    let mut decoder = Decoder::new(4096);
    let mut rest = data;
    'stream: while !rest.is_empty() {
        let spare = decoder.spare();
        let count = rest.len().min(spare.len());
        spare[..count].copy_from_slice(&rest[..count]);
        decoder.advance(count);
        rest = &rest[count..];
        while let Ok(Some(datagram)) = decoder.next_frame() {
            now += Duration::from_millis(10);
            if matches!(
                server.handle_datagram(now, address(1000), address(2000), datagram),
                Err(TransportError::Failed(_))
            ) {
                break 'stream;
            }
            if drain(&mut server, &mut sent, &mut connected).is_err() {
                break 'stream;
            }
        }
        if count == 0 {
            break;
        }
    }
    assert!(!connected, "nobody has keys without a handshake");
    assert_eq!(server.media_leaks(), 0);
    let bytes: usize = sent.iter().map(|(_, _, data)| data.len()).sum();
    assert!(bytes <= 16_384 + 3 * data.len(), "{} bytes drew {bytes}", data.len());
}

/// A handshake in which datagrams of the client are bent on their way: each three bytes of the input say which one
/// (modulo 16), where and how. The other side survives; without a bend both connect.
pub fn handshake(data: &[u8]) {
    let begin = Instant::now();
    let (mut now, end) = (begin, begin + Duration::from_secs(3));
    let (mut client, mut server) = pair(now);
    let (mut to_server, mut to_client) = (VecDeque::new(), VecDeque::new());
    let (mut client_up, mut server_up, mut number) = (false, false, 0u8);
    while now < end && !(client_up && server_up) {
        let next = (
            drain(&mut client, &mut to_server, &mut client_up),
            drain(&mut server, &mut to_client, &mut server_up),
        );
        let (Ok(first), Ok(second)) = next else { break };
        let handled = if let Some((source, destination, mut datagram)) = to_server.pop_front() {
            bend(&mut datagram, data, number);
            number = number.saturating_add(1);
            server.handle_datagram(now, source, destination, &datagram)
        } else if let Some((source, destination, datagram)) = to_client.pop_front() {
            client.handle_datagram(now, source, destination, &datagram)
        } else {
            now = first.min(second).max(now + Duration::from_millis(1));
            client.handle_timeout(now).and_then(|()| server.handle_timeout(now))
        };
        if matches!(handled, Err(TransportError::Failed(_))) {
            break;
        }
    }
    assert_eq!((client.media_leaks(), server.media_leaks()), (0, 0));
    assert!(!data.is_empty() || (client_up && server_up), "an honest handshake connects");
}

fn bend(datagram: &mut Vec<u8>, script: &[u8], number: u8) {
    for [which, at, how] in script.as_chunks::<3>().0 {
        if which % 16 != number || datagram.is_empty() {
            continue;
        }
        let place = usize::from(*at) % datagram.len();
        match which >> 4 {
            0..8 => datagram[place] ^= how,
            8..10 => datagram.truncate(place),
            10..12 => datagram.insert(place, *how),
            12 => drop(datagram.remove(place)),
            13 => datagram.extend_from_within(place..),
            _ => datagram[place] = *how,
        }
    }
}

/// An offer of a stranger: it is answered line by line or refused, and the transport stays usable. What begins with
/// `candidate:` is taken for a trickled candidate.
pub fn sdp(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let now = Instant::now();
    if text.starts_with("candidate:") {
        let (mut client, _) = pair(now);
        let _ = client.add_candidate(&text);
        return;
    }
    let mut server = server(now);
    let Ok((answer, negotiated)) = server.accept_offer(&text) else { return };
    let lines = |sdp: &str| sdp.lines().filter(|line| line.starts_with("m=")).count();
    assert!(negotiated.lines.len() <= lines(&answer));
    assert!(answer.len() <= 8192 + 2048 * lines(&answer), "{} bytes", answer.len());
    let (mut sent, mut connected) = (VecDeque::new(), false);
    let _ = drain(&mut server, &mut sent, &mut connected);
    assert!(sent.is_empty() && !connected, "an offer sends nothing");
}

/// What is read from an offer and its answer, two texts with a NUL between them.
pub fn answer(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (offer, answer) = text.split_once('\0').unwrap_or((&text, &text));
    let lines = answer.lines().filter(|line| line.starts_with("m=")).count();
    let (ours, theirs) =
        (transport::negotiated(offer, answer, true), transport::negotiated(offer, answer, false));
    assert!(ours.lines.len() <= lines && ours.lines.len() == theirs.lines.len());
    for (ours, theirs) in ours.lines.iter().zip(&theirs.lines) {
        assert_eq!((ours.local, ours.remote), (theirs.remote, theirs.local));
        assert_eq!((&ours.mid, ours.payload_type), (&theirs.mid, theirs.payload_type));
    }
    let preferred = transport::as_preferred(offer, answer.to_owned());
    // A payload type that stands twice in an m-line stands there once afterwards.
    assert!(preferred.len() <= answer.len(), "words change places, none is added");
    assert!(answer.split_whitespace().all(|word| preferred.contains(word)), "none is lost");
    assert_eq!(transport::as_preferred(offer, preferred.clone()), preferred);
}
