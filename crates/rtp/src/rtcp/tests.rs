use super::*;
use crate::testing::{Random, hex};

fn one(bytes: &[u8]) -> Packet<'_> {
    let mut packets = parse(bytes);
    let packet = packets.next().unwrap().unwrap();
    assert_eq!(packets.next(), None);
    packet
}

fn block(ssrc: u32) -> ReportBlock {
    ReportBlock {
        ssrc,
        fraction_lost: 25,
        cumulative_lost: -3,
        highest_sequence: 0x0001_F00D,
        jitter: 96,
        last_sr: 0x1234_5678,
        delay_since_last_sr: 65536,
    }
}

#[test]
fn reads_the_sender_report_of_rfc7714_17() {
    let bytes = hex("81c8000c 4d617273 4e545031 4e545032 52545020 0000042a 0000e930
        4c756e61 deadbeef deadbeef deadbeef deadbeef deadbeef");
    let Packet::SenderReport(report) = one(&bytes) else { panic!("not a sender report") };
    assert_eq!(report.ssrc, u32::from_be_bytes(*b"Mars"));
    assert_eq!(report.info.ntp, Ntp(u64::from_be_bytes(*b"NTP1NTP2")));
    assert_eq!(report.info.rtp_timestamp, u32::from_be_bytes(*b"RTP "));
    assert_eq!((report.info.packet_count, report.info.octet_count), (0x42a, 0xe930));
    let block = report.blocks().next().unwrap();
    assert_eq!(block.ssrc, u32::from_be_bytes(*b"Luna"));
    assert_eq!((block.fraction_lost, block.cumulative_lost), (0xde, 0xadbeef - 0x100_0000));
}

#[test]
fn a_compound_makes_the_round_trip() {
    let mut out = Vec::new();
    let info = SenderInfo { ntp: Ntp(5 << 40), rtp_timestamp: 7, packet_count: 8, octet_count: 9 };
    sender_report(&mut out, 1, &info, &[block(2), block(3)]);
    receiver_report(&mut out, 1, &[]);
    sdes_cname(&mut out, 1, "moim");
    nack(&mut out, 1, 2, [65534, 65535, 0, 14, 15, 16, 100]);
    pli(&mut out, 1, 4);
    fir(&mut out, 1, 5, 6);
    remb(&mut out, 1, 4_700_000, &[2, 3]);
    bye(&mut out, &[1, 2]);
    let packets: Vec<_> = parse(&out).collect::<Result<_, _>>().unwrap();
    assert_eq!(packets.len(), 8);
    let Packet::SenderReport(sr) = packets[0] else { panic!() };
    assert_eq!((sr.ssrc, sr.info), (1, info));
    assert_eq!(sr.blocks().collect::<Vec<_>>(), [block(2), block(3)]);
    let Packet::ReceiverReport(rr) = packets[1] else { panic!() };
    assert_eq!((rr.ssrc, rr.blocks().count()), (1, 0));
    assert_eq!(packets[2], Packet::Sdes(b"\0\0\0\x01\x01\x04moim\0\0"));
    let Packet::Nack(nack) = packets[3] else { panic!() };
    assert_eq!((nack.sender, nack.media, nack.items.len()), (1, 2, 3));
    assert_eq!(nack.lost().collect::<Vec<_>>(), [65534, 65535, 0, 14, 15, 16, 100]);
    assert_eq!(packets[4], Packet::Pli { sender: 1, media: 4 });
    let Packet::Fir(fir) = packets[5] else { panic!() };
    assert_eq!(fir.requests().collect::<Vec<_>>(), [(5, 6)]);
    let Packet::Remb(remb) = packets[6] else { panic!() };
    // 18 bits of mantissa keep the estimate to within 1/2^17.
    assert!(remb.bitrate_bps <= 4_700_000 && remb.bitrate_bps > 4_699_900);
    assert_eq!(remb.ssrcs().collect::<Vec<_>>(), [2, 3]);
    let Packet::Bye(bye) = packets[7] else { panic!() };
    assert_eq!(bye.ssrcs().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn more_blocks_than_a_packet_counts_take_several() {
    let blocks: Vec<_> = (0..70).map(block).collect();
    let mut out = Vec::new();
    sender_report(&mut out, 1, &SenderInfo::default(), &blocks);
    let mut read = Vec::new();
    let mut lens = Vec::new();
    for packet in parse(&out) {
        let before = read.len();
        match packet.unwrap() {
            Packet::SenderReport(report) => read.extend(report.blocks()),
            Packet::ReceiverReport(report) => read.extend(report.blocks()),
            other => panic!("{other:?}"),
        }
        lens.push(read.len() - before);
    }
    assert_eq!(lens, [31, 31, 8]);
    assert_eq!(read, blocks);
    let mut out = Vec::new();
    bye(&mut out, &[7; 40]);
    assert_eq!(parse(&out).count(), 2);
}

#[test]
fn nacks_of_random_losses_make_the_round_trip() {
    let mut random = Random::new(5);
    for _ in 0..500 {
        let mut sequence = random.next() as u16;
        let lost: Vec<u16> = (0..random.below(600))
            .map(|_| {
                sequence = sequence.wrapping_add(1 + random.below(30) as u16);
                sequence
            })
            .collect();
        let mut out = Vec::new();
        nack(&mut out, 1, 2, lost.iter().copied());
        let mut read = Vec::new();
        for packet in parse(&out) {
            let Packet::Nack(nack) = packet.unwrap() else { panic!() };
            read.extend(nack.lost());
        }
        assert_eq!(read, lost);
    }
    let mut out = Vec::new();
    nack(&mut out, 1, 2, []);
    assert!(out.is_empty());
    nack(&mut out, 1, 2, [5, 5, 4]);
    let Packet::Nack(nack) = one(&out) else { panic!() };
    assert_eq!(nack.lost().collect::<Vec<_>>(), [5, 4]);
}

#[test]
fn malformed_packets_are_errors() {
    let error = |digits| parse(&hex(digits)).find_map(Result::err);
    assert_eq!(error("80"), Some(ParseError::TooShort));
    assert_eq!(error("40c90001 00000001"), Some(ParseError::BadVersion));
    assert_eq!(error("80c90002 00000001"), Some(ParseError::BadLength));
    assert_eq!(error("81c90001 00000001"), Some(ParseError::BadLength));
    assert_eq!(error("80c80001 00000001"), Some(ParseError::TooShort));
    assert_eq!(error("a0c90001 00000000"), Some(ParseError::BadPadding));
    assert_eq!(error("a0c90001 00000005"), Some(ParseError::BadPadding));
    assert_eq!(error("81cd0002 00000001 00000002"), Some(ParseError::BadLength));
    assert_eq!(error("81ce0001 00000001"), Some(ParseError::TooShort));
    // An error ends the compound, what was before it stays.
    let bytes = hex("80c90001 00000001 00c90001 00000001 80c90001 00000001");
    let packets: Vec<_> = parse(&bytes).collect();
    assert_eq!(packets.len(), 2);
    assert!(packets[0].is_ok() && packets[1].is_err());
    // Padding is no part of the body, types we do not know pass.
    let Packet::Other { packet_type: 204, count: 3, body: [1, 2, 3, 4] } =
        one(&hex("a3cc0002 01020304 00000004"))
    else {
        panic!()
    };
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random::new(99);
    let mut buf = [0; 160];
    let mut read = 0_usize;
    for _ in 0..100_000 {
        let len = random.below(160) as usize;
        random.bytes(&mut buf[..len]);
        // Steer half of them past the first checks.
        if len > 8 && random.below(2) == 0 {
            buf[0] = 0x80 | (buf[0] & 0x3F);
            buf[1] = 200 + (buf[1] & 7);
            buf[2] = 0;
            buf[3] %= 40;
            if buf[1] == 206 && buf[0] & 0x1F == 15 && len > 16 {
                buf[12..16].copy_from_slice(b"REMB");
            }
        }
        for packet in parse(&buf[..len]).flatten() {
            read += match packet {
                Packet::SenderReport(p) => p.blocks().count(),
                Packet::ReceiverReport(p) => p.blocks().count(),
                Packet::Bye(p) => p.ssrcs().count(),
                Packet::Nack(p) => p.lost().count(),
                Packet::Fir(p) => p.requests().count(),
                Packet::Remb(p) => p.ssrcs().count(),
                Packet::TransportFeedback { fci, .. } => {
                    crate::twcc::Feedback::parse(fci).map_or(0, |f| f.packets().count())
                }
                _ => 1,
            };
        }
    }
    assert!(read > 10_000);
}
