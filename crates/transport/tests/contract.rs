//! The contract of the key tap, which gates every version bump of str0m: order of events, equal
//! keys on both sides, nothing that looks like media, ICE restart, growth of the pool, bad offers.

use rtp::negotiated::{Codec, Direction, Kind, Line, Negotiated};
use rtp::srtp::{Opener, Sealer};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use transport::{Event, IceDtls, OfferLine, Output, Shared, TransportError, VideoFormat};

struct World {
    now: Instant,
    client: IceDtls,
    server: IceDtls,
    /// (to the server?, source, destination, bytes)
    wire: VecDeque<(bool, SocketAddr, SocketAddr, Vec<u8>)>,
    client_events: Vec<Event>,
    server_events: Vec<Event>,
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

const SEND_BOTH_AND_4_SLOTS: [OfferLine; 6] = [
    OfferLine { kind: Kind::Audio, send: true, layers: &[] },
    OfferLine { kind: Kind::Video, send: true, layers: &[] },
    OfferLine { kind: Kind::Audio, send: false, layers: &[] },
    OfferLine { kind: Kind::Audio, send: false, layers: &[] },
    OfferLine { kind: Kind::Video, send: false, layers: &[] },
    OfferLine { kind: Kind::Video, send: false, layers: &[] },
];

impl World {
    fn new(video: VideoFormat) -> Self {
        let shared = Shared::new().unwrap();
        let now = Instant::now();
        Self {
            now,
            client: IceDtls::client(&shared, Some(video), address(1000), now).unwrap(),
            server: IceDtls::server(&shared, Some(video), &[address(2000)], now).unwrap(),
            wire: VecDeque::new(),
            client_events: Vec::new(),
            server_events: Vec::new(),
        }
    }

    fn negotiate(
        &mut self,
        lines: &[OfferLine],
        restart: bool,
    ) -> (Negotiated, Negotiated, String) {
        let offer = self.client.offer(lines, restart).unwrap();
        let (answer, server_side) = self.server.accept_offer(&offer.sdp).unwrap();
        let client_side = self.client.accept_answer(&answer).unwrap();
        (client_side, server_side, answer)
    }

    fn drain(&mut self, server: bool) -> Instant {
        loop {
            let peer = if server { &mut self.server } else { &mut self.client };
            match peer.poll().unwrap() {
                Output::Transmit { source, destination, data } => {
                    let destination = destination.socket;
                    self.wire.push_back((!server, source, destination, data));
                }
                Output::Event(event) if server => self.server_events.push(event),
                Output::Event(event) => self.client_events.push(event),
                Output::Wait(at) => return at,
            }
        }
    }

    /// Runs for a span of virtual time.
    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let next = self.drain(false).min(self.drain(true));
            if let Some((to_server, source, destination, data)) = self.wire.pop_front() {
                let peer = if to_server { &mut self.server } else { &mut self.client };
                peer.handle_datagram(self.now, source, destination, &data).unwrap();
                continue;
            }
            self.now = next.max(self.now + Duration::from_millis(1)).min(end);
            self.client.handle_timeout(self.now).unwrap();
            self.server.handle_timeout(self.now).unwrap();
        }
    }
}

fn keys(events: &[Event]) -> (rtp::srtp::KeyPair, SocketAddr) {
    match events {
        [Event::Connected { keys, remote, .. }] => (keys.clone(), remote.socket),
        other => panic!("expected one Connected, got {other:?}"),
    }
}

#[test]
fn both_sides_connect_with_the_same_keys_and_nothing_like_media_leaves() {
    let mut world = World::new(VideoFormat::Vp8);
    let (client_side, server_side, _) = world.negotiate(&SEND_BOTH_AND_4_SLOTS, false);
    world.run(Duration::from_secs(20));
    let (client_keys, server_address) = keys(&world.client_events);
    let (server_keys, client_address) = keys(&world.server_events);
    assert_eq!((server_address, client_address), (address(2000), address(1000)));
    assert_eq!((world.client.media_leaks(), world.server.media_leaks()), (0, 0));

    // A packet sealed by each side opens at the other.
    let ids = client_side.lines[0].local.unwrap();
    let mut packet = vec![0x80, 111, 0, 1, 0, 0, 0, 9];
    packet.extend(ids.ssrc.to_be_bytes());
    packet.extend(b"hello");
    let (plain_len, mut sealed) = (packet.len(), packet.clone());
    sealed.resize(100, 0);
    for (from, to) in [(&client_keys, &server_keys), (&server_keys, &client_keys)] {
        let mut buffer = sealed.clone();
        let mut sealer = Sealer::new(&from.local);
        let mut stream = sealer.stream(ids.ssrc).unwrap();
        let len = sealer.seal_rtp(&mut stream, &mut buffer, 12, plain_len).unwrap();
        let mut out = [0; 100];
        let opened = Opener::new(&to.remote).open_rtp(&buffer[..len], &mut out).unwrap();
        assert_eq!(&out[..opened.len], &packet[..]);
    }

    // Both sides read the same agreement, mirrored.
    assert_eq!(client_side.lines.len(), 6);
    for (mine, theirs) in client_side.lines.iter().zip(&server_side.lines) {
        assert_eq!(mine.mid, theirs.mid);
        assert_eq!((mine.local, mine.remote), (theirs.remote, theirs.local));
        assert_eq!(mine.payload_type, theirs.payload_type);
        assert_eq!(mine.extensions, theirs.extensions);
        assert_ne!(mine.direction, theirs.direction);
        assert!(mine.reduced_size && theirs.reduced_size);
    }
    let video_slot = &server_side.lines[4];
    assert_eq!(video_slot.direction, Direction::Send);
    assert_eq!(video_slot.codec, Codec::Vp8);
    assert!(video_slot.nack && video_slot.rtx_payload_type.is_some());
    assert!(video_slot.local.unwrap().rtx.is_some());
    assert!(server_side.lines[0].extensions.audio_level.is_some());
    // Feedback is given on published pictures, and on all that is sent to the client, but not on published sound.
    let feedback: Vec<bool> = server_side.lines.iter().map(|line| line.transport_cc).collect();
    assert_eq!(feedback, [false, true, true, true, true, true]);
    assert!(server_side.lines[1].remote.unwrap().rtx.is_some());
}

#[test]
fn who_gives_no_transport_wide_feedback_may_say_what_their_path_carries() {
    for feedback in [true, false] {
        let mut world = World::new(VideoFormat::Vp8);
        let mut offer = world.client.offer(&SEND_BOTH_AND_4_SLOTS, false).unwrap().sdp;
        if !feedback {
            let lines = offer.split_inclusive('\n');
            offer = lines.filter(|line| !line.contains("transport-cc")).collect();
        }
        assert!(offer.contains(" goog-remb"));
        let (answer, server_side) = world.server.accept_offer(&offer).unwrap();
        assert!(answer.contains(" goog-remb"));
        assert_eq!(answer.contains(" transport-cc"), feedback);
        // Published sound comes without.
        assert!(server_side.lines[1..].iter().all(|line| line.transport_cc == feedback));
    }
}

#[test]
fn rtcp_of_reduced_size_is_not_answered_to_who_did_not_offer_it() {
    let mut world = World::new(VideoFormat::Vp8);
    let offer = world.client.offer(&SEND_BOTH_AND_4_SLOTS, false).unwrap().sdp;
    let offer = offer.replace("a=rtcp-rsize\r\n", "");
    let (answer, server_side) = world.server.accept_offer(&offer).unwrap();
    assert!(!answer.contains("a=rtcp-rsize"));
    assert!(server_side.lines.iter().all(|line| !line.reduced_size));
}

#[test]
fn h264_is_agreed_where_the_room_speaks_it() {
    let mut world = World::new(VideoFormat::H264);
    let (_, server_side, answer) = world.negotiate(&SEND_BOTH_AND_4_SLOTS, false);
    assert_eq!(server_side.lines[1].codec, Codec::H264);
    assert!(answer.contains("packetization-mode=1"));
    assert!(!answer.contains("VP8"));
}

#[test]
fn vp9_and_av1_are_agreed_where_the_room_speaks_them() {
    let mut world = World::new(VideoFormat::Vp9);
    let (_, server_side, answer) = world.negotiate(&SEND_BOTH_AND_4_SLOTS, false);
    assert_eq!(server_side.lines[1].codec, Codec::Vp9);
    assert!(answer.contains("profile-id=0") && !answer.contains("profile-id=2"));
    assert_eq!(server_side.lines[1].extensions.dependency, None);
    let mut world = World::new(VideoFormat::Av1);
    let (client_side, server_side, answer) = world.negotiate(&SEND_BOTH_AND_4_SLOTS, false);
    assert!(answer.contains("a=extmap-allow-mixed"), "structures need the two-byte form");
    for line in server_side.lines.iter().chain(&client_side.lines) {
        let video = line.codec.kind() == Kind::Video;
        assert_eq!(line.codec, if video { Codec::Av1 } else { Codec::Opus });
        assert_eq!(line.extensions.dependency, video.then_some(12), "{}", line.mid);
        assert_eq!(line.rtx_payload_type.is_some(), video);
    }
}

#[test]
fn layers_are_agreed_where_they_are_offered() {
    let mut world = World::new(VideoFormat::Vp8);
    let line = OfferLine { kind: Kind::Video, send: true, layers: &["q", "h", "f"] };
    let (client_side, server_side, _) = world.negotiate(&[line], false);
    let (ours, theirs) = (&client_side.lines[0], &server_side.lines[0]);
    let rids = |line: &Line| line.layers.iter().map(|layer| layer.rid.clone()).collect::<Vec<_>>();
    assert_eq!(rids(theirs), ["q", "h", "f"]);
    assert_eq!(rids(ours), rids(theirs));
    assert!(theirs.extensions.rid.is_some() && theirs.extensions.repaired_rid.is_some());
    let ssrcs: std::collections::BTreeSet<u32> =
        ours.layers.iter().filter_map(|layer| Some(layer.ids?.ssrc)).collect();
    assert_eq!((ssrcs.len(), theirs.remote), (3, None), "packets tell the server which is which");
    assert!(ours.layers.iter().all(|layer| layer.ids.is_some_and(|ids| ids.rtx.is_some())));
}

#[test]
fn red_is_agreed_where_it_is_offered_and_named_first_where_the_offer_does() {
    for first in [true, false] {
        let mut world = World::new(VideoFormat::Vp8);
        let offer = world.client.offer(&SEND_BOTH_AND_4_SLOTS, false).unwrap();
        // Clients of the library name RED after Opus, browsers may name it before.
        let (after, before) = (" 111 63\r\n", " 63 111\r\n");
        assert!(offer.sdp.contains(after), "{}", offer.sdp);
        let offer = if first { offer.sdp.replace(after, before) } else { offer.sdp };
        let (answer, server_side) = world.server.accept_offer(&offer).unwrap();
        for line in &server_side.lines {
            let audio = line.codec == Codec::Opus;
            assert_eq!(line.red_payload_type, audio.then_some(63), "{answer}");
            assert_eq!(line.payload_type == 111, audio, "{answer}");
            assert_eq!(line.red_first, audio && first, "{answer}");
        }
        let formats = if first { " 63 111" } else { " 111 63" };
        let audio: Vec<&str> = answer.lines().filter(|line| line.starts_with("m=audio")).collect();
        assert_eq!(audio.len(), 3);
        assert!(audio.iter().all(|line| line.ends_with(formats)), "{audio:?}");
        assert!(answer.contains("a=rtpmap:63 red/48000/2") && answer.contains("a=fmtp:63 111/111"));
    }
    let mut world = World::new(VideoFormat::Vp8);
    let (client_side, server_side, answer) = world.negotiate(&SEND_BOTH_AND_4_SLOTS, false);
    let agreed = |side: &Negotiated| {
        let reds = side.lines.iter().filter(|line| line.codec == Codec::Opus);
        reds.map(|line| (line.red_payload_type, line.red_first)).collect::<Vec<_>>()
    };
    let own = agreed(&server_side);
    assert!(own.len() == 3 && own.iter().all(|red| matches!(red, (Some(_), false))), "{answer}");
    assert_eq!(agreed(&client_side), own, "clients of the library agree on it too");
}

#[test]
fn the_pool_grows_and_ice_restarts_without_new_keys() {
    let mut world = World::new(VideoFormat::Vp8);
    let (_, before, _) = world.negotiate(&SEND_BOTH_AND_4_SLOTS, false);
    world.run(Duration::from_secs(5));
    let old_fragment = world.server.local_ufrag();
    let grow = [OfferLine { kind: Kind::Video, send: false, layers: &[] }; 8];
    let (_, grown, _) = world.negotiate(&grow, false);
    assert_eq!(grown.lines.len(), 14);
    assert_eq!(grown.lines[..6], before.lines[..], "what was agreed stays");
    world.negotiate(&[], true);
    assert_ne!(world.server.local_ufrag(), old_fragment, "a restart has new credentials");
    world.run(Duration::from_secs(20));
    assert_eq!(world.server_events.len(), 1, "{:?}", world.server_events);
}

#[test]
fn silence_is_reported_and_ends_when_packets_come_again() {
    let mut world = World::new(VideoFormat::Vp8);
    world.negotiate(&SEND_BOTH_AND_4_SLOTS, false);
    world.run(Duration::from_secs(2));
    // The client falls silent: only the server's clock goes on.
    for _ in 0..60 {
        world.now += Duration::from_secs(1);
        world.server.handle_timeout(world.now).unwrap();
        world.drain(true);
        world.wire.clear();
    }
    assert!(
        matches!(world.server_events.last(), Some(Event::Disconnected)),
        "{:?}",
        world.server_events
    );
}

#[test]
fn bad_offers_are_refused_with_a_reason_and_a_good_one_still_works() {
    let mut world = World::new(VideoFormat::Vp8);
    for bad in ["", "v=0", "hello", "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=audio"] {
        let refused = world.server.accept_offer(bad);
        assert!(matches!(refused, Err(TransportError::Sdp(_))), "{bad:?}: {refused:?}");
    }
    let long = "a".repeat(transport::MAX_SDP_BYTES + 1);
    assert!(matches!(world.server.accept_offer(&long), Err(TransportError::SdpTooLarge(_))));
    let lines = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n".repeat(transport::MAX_SDP_LINES + 1);
    assert!(matches!(world.server.accept_offer(&lines), Err(TransportError::SdpTooLarge(_))));
    world.negotiate(&SEND_BOTH_AND_4_SLOTS, false);
    world.run(Duration::from_secs(3));
    keys(&world.server_events);
}

/// Numbers of packets that nobody tells of would look like losses: where one is agreed on, so is the other.
#[test]
fn lines_of_later_offers_have_feedback_where_their_packets_are_numbered() {
    let (shared, now) = (Shared::new().unwrap(), Instant::now());
    let mut client = IceDtls::client(&shared, Some(VideoFormat::Vp8), address(1000), now).unwrap();
    let mut server =
        IceDtls::server(&shared, Some(VideoFormat::Vp8), &[address(2000)], now).unwrap();
    let mut lines = SEND_BOTH_AND_4_SLOTS.to_vec();
    for _ in 0..3 {
        let offer = client.offer(&lines, false).unwrap();
        let (answer, negotiated) = server.accept_offer(&offer.sdp).unwrap();
        client.accept_answer(&answer).unwrap();
        for line in &negotiated.lines {
            let numbered = line.extensions.transport_sequence.is_some();
            assert_eq!(numbered, line.transport_cc, "line {} of {answer}", line.mid);
        }
        lines = vec![OfferLine { kind: Kind::Audio, send: false, layers: &[] }];
    }
}

/// The first lines are of a codec that the room does not take: the others live, and have the candidates.
#[test]
fn a_line_without_a_common_codec_is_rejected_alone() {
    let (shared, now) = (Shared::new().unwrap(), Instant::now());
    let client = || IceDtls::client(&shared, Some(VideoFormat::Vp8), address(1000), now).unwrap();
    let video = OfferLine { kind: Kind::Video, send: true, layers: &[] };
    let audio = OfferLine { kind: Kind::Audio, send: true, layers: &[] };
    let offer = client().offer(&[video, audio], false).unwrap();
    let odd = offer.sdp.replace("VP8/90000", "theora/90000");
    let mut server =
        IceDtls::server(&shared, Some(VideoFormat::Vp8), &[address(2000)], now).unwrap();
    let (answer, negotiated) = server.accept_offer(&odd).unwrap();
    assert_eq!(transport::rejected(&answer), offer.mids[..1]);
    let lines: Vec<&str> = answer.split("m=").skip(1).collect();
    assert!(lines[0].starts_with("video 0 ") && !lines[0].contains("a=candidate:"), "{answer}");
    assert!(lines[1].starts_with("audio 9 ") && lines[1].contains("a=candidate:"), "{answer}");
    let mids: Vec<&str> = negotiated.lines.iter().map(|line| line.mid.as_str()).collect();
    assert_eq!(mids, [offer.mids[1].as_str()]);
}

/// Nothing here uses data channels: the line for them is rejected alone, and none opens.
#[test]
fn a_line_for_data_channels_is_rejected_alone() {
    let (shared, now) = (Shared::new().unwrap(), Instant::now());
    let mut client = IceDtls::client(&shared, Some(VideoFormat::Vp8), address(1000), now).unwrap();
    let audio = OfferLine { kind: Kind::Audio, send: true, layers: &[] };
    let offer = client.offer(&[audio], false).unwrap();
    let of_session = |start: &str| {
        let found = offer.sdp.lines().find(|line| line.starts_with(start));
        format!("{}\r\n", found.expect(start))
    };
    let data = format!(
        "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n{}{}{}a=setup:actpass\r\n\
         a=mid:data\r\na=sctp-port:5000\r\na=max-message-size:262144\r\n",
        of_session("a=ice-ufrag:"),
        of_session("a=ice-pwd:"),
        of_session("a=fingerprint:"),
    );
    let grouped = offer.sdp.replace("a=group:BUNDLE", "a=group:BUNDLE data");
    let begins = grouped.find("m=").unwrap();
    for sdp in
        [format!("{grouped}{data}"), format!("{}{data}{}", &grouped[..begins], &grouped[begins..])]
    {
        let mut server =
            IceDtls::server(&shared, Some(VideoFormat::Vp8), &[address(2000)], now).unwrap();
        let (answer, negotiated) = server.accept_offer(&sdp).unwrap();
        assert_eq!(transport::rejected(&answer), ["data"], "{answer}");
        let rejected = "m=application 0 UDP/DTLS/SCTP webrtc-datachannel\r\n";
        assert!(answer.contains(rejected) && !answer.contains("sctp"), "{answer}");
        let group = answer.lines().find(|line| line.starts_with("a=group:BUNDLE")).unwrap();
        assert!(!group.contains("data"), "{answer}");
        assert_eq!(negotiated.lines.len(), 1);
        assert!(answer.contains("m=audio 9 ") && answer.contains("a=candidate:"), "{answer}");
    }
}

/// A lite server learns where its clients are by their checks: what candidates they name costs it nothing, and does not pile up.
#[test]
fn candidates_of_offers_cost_a_server_nothing() {
    let mut world = World::new(VideoFormat::Vp8);
    let offer = world.client.offer(&SEND_BOTH_AND_4_SLOTS, false).unwrap();
    let many: String = (0..2000)
        .map(|nth| {
            let address = format!("10.0.{}.{}", nth / 250, nth % 250 + 1);
            format!("a=candidate:{nth} 1 udp 2122252543 {address} 50000 typ host\r\n")
        })
        .collect();
    let hostile = format!("{}{many}", offer.sdp);
    let begin = Instant::now();
    for _ in 0..5 {
        world.server.accept_offer(&hostile).unwrap();
    }
    let (answer, _) = world.server.accept_offer(&hostile).unwrap();
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
    world.client.accept_answer(&answer).unwrap();
    world.run(Duration::from_secs(3));
    keys(&world.server_events);
    let sent = world.wire.iter().filter(|(to_server, ..)| !to_server).count();
    assert!(sent < 10, "{sent} datagrams to addresses that nobody checked from");
}

#[test]
fn mutated_offers_never_panic_out() {
    let shared = Shared::new().unwrap();
    let now = Instant::now();
    let mut client = IceDtls::client(&shared, Some(VideoFormat::Vp8), address(1000), now).unwrap();
    let offer = client.offer(&SEND_BOTH_AND_4_SLOTS, false).unwrap().sdp;
    let mut seed = 7u64;
    let mut next = move |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..300 {
        let mut bytes = offer.clone().into_bytes();
        for _ in 0..1 + next(6) {
            // A cut may have left nothing.
            let at = next(bytes.len().max(1));
            match next(3) {
                _ if bytes.is_empty() => {}
                0 => bytes[at] = b' ' + next(90) as u8,
                1 => drop(bytes.drain(at..(at + next(40)).min(bytes.len()))),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let Ok(mutated) = String::from_utf8(bytes) else { continue };
        let mut server =
            IceDtls::server(&shared, Some(VideoFormat::Vp8), &[address(2000)], now).unwrap();
        match server.accept_offer(&mutated) {
            Ok(_) => taken += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");
}

/// A mesh: full ICE on both sides, both ways on each line, the answerer's candidates by themselves.
#[test]
fn two_equals_connect_with_candidates_that_trickle() {
    let mut world = World::new(VideoFormat::Vp8);
    let shared = Shared::new().unwrap();
    let equal = IceDtls::client(&shared, Some(VideoFormat::Vp8), address(2000), world.now).unwrap();
    world.server = equal;
    let kinds = [Kind::Audio, Kind::Video];
    let offer = world.client.offer_both_ways(&kinds).unwrap();
    assert_eq!(offer.mids.len(), 2);
    let without_candidates = |sdp: &str| -> String {
        let lines = sdp.lines().filter(|line| !line.starts_with("a=candidate:"));
        lines.map(|line| format!("{line}\r\n")).collect()
    };
    let (answer, callee) = world.server.accept_offer(&without_candidates(&offer.sdp)).unwrap();
    let caller = world.client.accept_answer(&without_candidates(&answer)).unwrap();
    for (mine, theirs) in caller.lines.iter().zip(&callee.lines) {
        assert_eq!((mine.direction, theirs.direction), (Direction::Both, Direction::Both));
        assert!(mine.local.is_some() && mine.remote.is_some());
        assert_eq!((mine.local, mine.remote), (theirs.remote, theirs.local));
    }
    world.run(Duration::from_secs(2));
    assert!(world.client_events.is_empty(), "nobody knows where the other is");

    let hidden = "candidate:1 1 udp 2122252543 3f2a9c1e.local 50000 typ host";
    let tcp = "candidate:2 1 tcp 1518280447 127.0.0.1 9 typ host tcptype active";
    for refused in [hidden, tcp, "", "candidate:"] {
        assert!(world.client.add_candidate(refused).is_err(), "{refused}");
    }
    let candidate = "candidate:1 1 udp 2122252543 127.0.0.1 2000 typ host generation 0";
    assert_eq!(world.client.add_candidate(candidate), Ok(address(2000)));
    world.run(Duration::from_secs(20));
    let (client_keys, server_address) = keys(&world.client_events);
    let (server_keys, client_address) = keys(&world.server_events);
    assert_eq!((server_address, client_address), (address(2000), address(1000)));
    assert_eq!(client_keys.local.profile(), server_keys.remote.profile());
    let ssrc = caller.lines[0].local.unwrap().ssrc;
    let mut packet = vec![0x80, 111, 0, 1, 0, 0, 0, 9];
    packet.extend(ssrc.to_be_bytes());
    let plain_len = packet.len();
    packet.resize(100, 0);
    let mut sealer = Sealer::new(&client_keys.local);
    let mut stream = sealer.stream(ssrc).unwrap();
    let len = sealer.seal_rtp(&mut stream, &mut packet, 12, plain_len).unwrap();
    assert!(Opener::new(&server_keys.remote).open_rtp(&packet[..len], &mut [0; 100]).is_ok());
}

#[test]
fn an_offer_that_names_two_lines_alike_is_refused() {
    let mut world = World::new(VideoFormat::Vp8);
    let offer = world.client.offer(&SEND_BOTH_AND_4_SLOTS, false).unwrap();
    let alike = |of: usize, to: usize| {
        let mid = |at: usize| format!("a=mid:{}\r\n", offer.mids[at]);
        offer.sdp.replace(&mid(of), &mid(to))
    };
    for (of, to) in [(1, 0), (5, 4), (3, 0)] {
        let refused = world.server.accept_offer(&alike(of, to));
        assert!(
            matches!(&refused, Err(TransportError::Sdp(why)) if why.contains(&offer.mids[to])),
            "{refused:?}"
        );
    }
    let (answer, _) = world.server.accept_offer(&offer.sdp).unwrap();
    let (of, to) = (&offer.mids[1], &offer.mids[0]);
    let alike = answer.replace(&format!("a=mid:{of}\r\n"), &format!("a=mid:{to}\r\n"));
    assert!(matches!(world.client.accept_answer(&alike), Err(TransportError::Sdp(_))));
}
