//! Handshakes of clients that are not made with the library: ICE and DTLS by hand, in both roles, over paths that carry little.

use dimpl::{Config, Dtls, Output as DtlsOutput};
use rtp::stun::{self, Check, Password, Role};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::{Event, IceDtls, Output, Shared, VideoFormat};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2000);
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1000);
const FINGERPRINT: &str = "a=fingerprint:sha-256 ";
/// What a client of another library offers.
const OFFER: &str = include_str!("offers/pion.sdp");

fn value<'a>(sdp: &'a str, start: &str) -> &'a str {
    sdp.lines().find_map(|line| line.strip_prefix(start)).expect("it is there")
}

/// A client that takes a role and sends no datagram longer than its path takes, of which some are lost. Says how long its longest was
/// once both sides are up.
fn shakes_hands(role: &str, mtu: usize, lost: impl Fn(usize) -> bool) -> usize {
    let begin = Instant::now();
    let certificate = dimpl::certificate::generate_self_signed_certificate().unwrap();
    let own = certificate.fingerprint_str();
    let offer = OFFER
        .replace(value(OFFER, FINGERPRINT), &own)
        .replace("a=setup:actpass", &format!("a=setup:{role}"));
    let shared = Shared::new().unwrap();
    let mut server = IceDtls::server(&shared, Some(VideoFormat::Vp8), &[SERVER], begin).unwrap();
    let (answer, _) = server.accept_offer(&offer).unwrap();
    let theirs = if role == "active" { "passive" } else { "active" };
    assert_eq!(value(&answer, "a=setup:"), theirs);
    let username = format!("{}:{}", value(&answer, "a=ice-ufrag:"), value(&offer, "a=ice-ufrag:"));
    let password = Password::new(value(&answer, "a=ice-pwd:"));
    let config = Arc::new(Config::builder().mtu(mtu).build().unwrap());
    let mut client = Dtls::new_12(config, certificate, begin);
    client.set_active(role == "active");
    let (mut now, end) = (begin, begin + Duration::from_secs(15));
    let (mut up, mut longest, mut sent, mut checked) = ([false; 2], 0, 0, 0_u8);
    while up != [true; 2] {
        assert!(now < end, "{role}, {mtu}: it does not come up: {up:?}");
        if (now - begin).as_millis() >= 100 * u128::from(checked) {
            checked += 1;
            let role = Role::Controlling { nominates: true };
            let id = [checked; 12];
            let check = Check { username: &username, id, priority: 1, role, tie_breaker: [7; 8] };
            let mut bytes = [0; 300];
            let len = check.write(&password, &mut bytes).unwrap();
            server.handle_datagram(now, CLIENT, SERVER, &bytes[..len]).unwrap();
        }
        let mut to_client = Vec::new();
        loop {
            match server.poll().unwrap() {
                Output::Transmit { data, .. } => to_client.push(data),
                Output::Event(event) => up[1] |= matches!(event, Event::Connected { .. }),
                Output::Wait(_) => break,
            }
        }
        for data in to_client.iter().filter(|data| !stun::is_success(data) && data[0] >= 20) {
            client.handle_packet(data).unwrap();
        }
        let mut to_server = Vec::new();
        loop {
            match client.poll_output(&mut [0; 4096]) {
                DtlsOutput::Packet(data) => to_server.push(data.to_vec()),
                DtlsOutput::Connected => up[0] = true,
                DtlsOutput::Timeout(_) => break,
                _ => {}
            }
        }
        for data in to_server {
            sent += 1;
            longest = longest.max(data.len());
            if !lost(sent) {
                server.handle_datagram(now, CLIENT, SERVER, &data).unwrap();
            }
        }
        now += Duration::from_millis(20);
        server.handle_timeout(now).unwrap();
        client.handle_timeout(now).unwrap();
    }
    longest
}

#[test]
fn handshakes_come_to_an_end_in_both_roles_over_short_datagrams() {
    for role in ["active", "passive"] {
        for mtu in [150, 300, 1200] {
            let longest = shakes_hands(role, mtu, |_| false);
            assert!(longest <= mtu, "{role}: {longest} bytes");
            // Datagrams are lost one by one, and two together.
            for nth in 1..8 {
                shakes_hands(role, mtu, |sent| sent == nth);
            }
            shakes_hands(role, mtu, |sent| (2..4).contains(&sent));
        }
    }
}
