//! What reaches a transport from the network and is not the other side's.

use super::*;
use std::sync::Arc;
use std::time::Duration;
use str0m::crypto::Sha1HmacProvider;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A client, and a server's side made with `theirs`, that have agreed on a line.
fn pair(theirs: &Shared, now: Instant) -> (IceDtls, IceDtls) {
    let ours = Shared::new().expect("a certificate");
    let mut client = IceDtls::client(&ours, None, address(1), now).expect("a client");
    let mut server = IceDtls::server(theirs, None, &[address(2)], now).expect("a server");
    let line = OfferLine { kind: Kind::Audio, send: true, layers: &[] };
    let offer = client.offer(&[line], false).expect("an offer");
    let (answer, _) = server.accept_offer(&offer.sdp).expect("an answer");
    client.accept_answer(&answer).expect("agreed");
    (client, server)
}

/// Runs both for a span; `come` stands where datagrams come to the server.
fn run(
    (client, server): (&mut IceDtls, &mut IceDtls),
    begin: Instant,
    mut come: impl FnMut(&mut IceDtls, Instant, &[u8]),
) {
    let mut now = begin;
    while now < begin + Duration::from_secs(3) {
        now += Duration::from_millis(10);
        client.handle_timeout(now).expect("alive");
        server.handle_timeout(now).expect("alive");
        while let Output::Transmit { data, .. } = client.poll().expect("alive") {
            come(server, now, &data);
            while let Output::Transmit { data, .. } = server.poll().expect("alive") {
                client.handle_datagram(now, address(2), address(1), &data).expect("taken");
            }
        }
    }
}

#[test]
fn forged_nominations_do_not_push_out_an_authentic_one() {
    let now = Instant::now();
    let (mut client, mut server) = pair(&Shared::new().expect("a certificate"), now);
    run((&mut client, &mut server), now, |server, now, data| {
        server.handle_datagram(now, address(1), address(2), data).expect("taken");
        // Before the answer leaves: the same with other transactions, which the integrity does not fit.
        for nth in 1..=255 {
            let mut forged = data.to_vec();
            if is_stun(data) {
                forged[8] ^= nth;
                let _ = server.handle_datagram(now, address(3), address(2), &forged);
            }
        }
    });
    assert!(server.responder().is_some(), "no nomination was seen");
    assert_eq!(server.nominations.current(), Some(address(1).into()));
}

/// Stands for whatever may panic in the library.
#[derive(Debug)]
struct Panics;

impl Sha1HmacProvider for Panics {
    fn sha1_hmac(&self, _: &[u8], _: &[&[u8]]) -> [u8; 20] {
        panic!("on purpose");
    }
}

#[test]
fn a_panic_of_the_library_ends_that_transport_alone() {
    let now = Instant::now();
    let good = Shared::new().expect("a certificate");
    let mut provider = (*good.provider).clone();
    provider.sha1_hmac_provider = &Panics;
    let bad = Shared { provider: Arc::new(provider), ..good.clone() };
    let ((mut client, mut server), mut other) = (pair(&bad, now), pair(&good, now));
    let mut at = now;
    let check = loop {
        client.handle_timeout(at).expect("alive");
        match client.poll().expect("alive") {
            Output::Transmit { data, .. } => break data,
            Output::Wait(next) => at = next,
            Output::Event(_) => {}
        }
    };
    let panicked = Some(TransportError::Panicked);
    assert_eq!(server.handle_datagram(at, address(1), address(2), &check).err(), panicked);
    assert_eq!(server.handle_timeout(at).err(), panicked, "it is not touched again");
    assert_eq!(server.poll().err(), panicked);
    assert_eq!(server.accept_offer("v=0\r\n").err().map(|_| ()), Some(()));
    run((&mut other.0, &mut other.1), now, |server, now, data| {
        server.handle_datagram(now, address(1), address(2), data).expect("taken");
    });
    assert!(other.1.responder().is_some(), "the other one connects");
}
