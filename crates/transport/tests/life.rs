//! When a transport is gone and when it is back: only a nominated pair carries consent (RFC 7675). Whoever looks for
//! a pair has none yet.

use rtp::negotiated::Kind;
use rtp::stun::{self, USE_CANDIDATE};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use transport::{Event, IceDtls, OfferLine, Output, Shared};

const AUDIO: OfferLine = OfferLine { kind: Kind::Audio, send: true, layers: &[] };

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn nominates(data: &[u8]) -> bool {
    stun::attributes(data).any(|(kind, _)| kind == USE_CANDIDATE)
}

/// What of the client's datagrams reaches the server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Open,
    /// All but checks that nominate.
    NoNomination,
    Cut,
}

/// A client and a server's side that are connected.
struct Call {
    now: Instant,
    client: IceDtls,
    server: IceDtls,
    way: Way,
    /// Checks of the client that nominate nothing.
    checks: Vec<Vec<u8>>,
    events: Vec<&'static str>,
}

impl Call {
    fn connected() -> Self {
        let (shared, now) = (Shared::new().expect("a certificate"), Instant::now());
        let client = IceDtls::client(&shared, None, address(1000), now).expect("a client");
        let server = IceDtls::server(&shared, None, &[address(2000)], now).expect("a server");
        let (way, checks, events) = (Way::Open, Vec::new(), Vec::new());
        let mut call = Self { now, client, server, way, checks, events };
        let offer = call.client.offer(&[AUDIO], false).expect("an offer").sdp;
        call.negotiate(&offer);
        call.run(3);
        assert_eq!(call.told(), ["connected"]);
        call
    }

    fn negotiate(&mut self, offer: &str) {
        let (answer, _) = self.server.accept_offer(offer).expect("an answer");
        self.client.accept_answer(&answer).expect("agreed");
    }

    /// The offer of an ICE restart.
    fn restart(&mut self) -> String {
        self.client.offer(&[], true).expect("an offer").sdp
    }

    /// The client is on the network again, gave its pairs up long ago, and restarts.
    fn comes_back(&mut self) {
        self.way = Way::Open;
        let offer = self.restart();
        self.negotiate(&offer);
        self.run(5);
        assert_eq!(self.told(), ["back"]);
    }

    /// What the server's side was told since the last call.
    fn told(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.events)
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.now += Duration::from_millis(50);
            self.client.handle_timeout(self.now).expect("alive");
            self.server.handle_timeout(self.now).expect("alive");
            self.exchange();
        }
    }

    fn exchange(&mut self) {
        let mut wire = VecDeque::new();
        loop {
            for to_server in [true, false] {
                let peer = if to_server { &mut self.client } else { &mut self.server };
                loop {
                    match peer.poll().expect("alive") {
                        Output::Transmit { data, .. } => wire.push_back((to_server, data)),
                        Output::Event(event) if !to_server => self.events.push(match event {
                            Event::Connected { .. } => "connected",
                            Event::Remote(_) => "moved",
                            Event::Disconnected => "gone",
                            Event::Reconnected => "back",
                        }),
                        Output::Event(_) => {}
                        Output::Wait(_) => break,
                    }
                }
            }
            let Some((to_server, data)) = wire.pop_front() else { return };
            if to_server && stun::is_request(&data) && !nominates(&data) {
                self.checks.push(data.clone());
            }
            let passes = match self.way {
                Way::Open => true,
                Way::NoNomination => !nominates(&data),
                Way::Cut => false,
            };
            let now = self.now;
            if to_server && passes {
                self.server.handle_datagram(now, address(1000), address(2000), &data).unwrap();
            } else if !to_server {
                self.client.handle_datagram(now, address(2000), address(1000), &data).unwrap();
            }
        }
    }

    /// An authentic check of the client comes from an address of theirs that they have not nominated.
    fn check_from_elsewhere(&mut self) {
        let check = self.checks.first().expect("a check without a nomination").clone();
        self.server.handle_datagram(self.now, address(1001), address(2000), &check).unwrap();
    }
}

#[test]
fn a_restart_of_whoever_is_gone_brings_them_back_only_with_its_nomination() {
    let mut call = Call::connected();
    call.way = Way::Cut;
    call.run(20);
    assert_eq!(call.told(), ["gone"]);
    let offer = call.restart();
    call.negotiate(&offer);
    call.run(5);
    assert_eq!(call.told(), [""; 0], "nothing of theirs came: an offer is no consent");
    call.way = Way::NoNomination;
    call.run(5);
    assert_eq!(call.told(), [""; 0], "they check pairs and have chosen none");
    call.way = Way::Open;
    call.run(5);
    assert_eq!(call.told(), ["back"]);
}

#[test]
fn a_check_alone_brings_nobody_back() {
    let mut call = Call::connected();
    call.way = Way::Cut;
    call.run(20);
    assert_eq!(call.told(), ["gone"]);
    for _ in 0..5 {
        call.check_from_elsewhere();
        call.run(1);
    }
    assert_eq!(call.told(), [""; 0]);
    call.comes_back();
}

#[test]
fn who_lets_the_nominated_pair_die_is_gone_although_another_is_checked() {
    let mut call = Call::connected();
    call.way = Way::Cut;
    for _ in 0..20 {
        call.check_from_elsewhere();
        call.run(1);
    }
    assert_eq!(call.told(), ["gone"], "nothing may be sent to an address that is silent");
    call.comes_back();
}

#[test]
fn a_restart_interrupts_nothing_unless_nobody_follows_it() {
    for trickles in [false, true] {
        let mut call = Call::connected();
        let offer = call.restart();
        assert_ne!(offer, without_candidates(&offer));
        call.negotiate(&if trickles { without_candidates(&offer) } else { offer });
        call.run(20);
        assert_eq!(call.told(), [""; 0], "the old pair carries media until the new one does");
        let offer = call.restart();
        call.way = Way::Cut;
        call.negotiate(&if trickles { without_candidates(&offer) } else { offer });
        call.run(14);
        assert_eq!(call.told(), [""; 0]);
        call.run(6);
        assert_eq!(call.told(), ["gone"], "candidates in the offer: {}", !trickles);
        call.run(60);
        assert_eq!(call.told(), [""; 0], "once");
        call.comes_back();
    }
}

/// As browsers offer: candidates come later, or are discovered.
fn without_candidates(offer: &str) -> String {
    let lines = offer.lines().filter(|line| !line.starts_with("a=candidate"));
    lines.flat_map(|line| [line, "\r\n"]).collect()
}
