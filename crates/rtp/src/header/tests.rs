use super::*;
use crate::testing::{Random, hex};

fn writer<'a>(extensions: &'a [(u8, &'a [u8])]) -> HeaderWriter<'a> {
    HeaderWriter {
        marker: true,
        payload_type: 111,
        sequence: 0x1234,
        timestamp: 0x89AB_CDEF,
        ssrc: 0x0102_0304,
        extensions,
    }
}

fn written(extensions: &[(u8, &[u8])]) -> Vec<u8> {
    let writer = writer(extensions);
    let mut out = vec![0xEE; writer.len()];
    assert_eq!(writer.write(&mut out), Ok(out.len()));
    out
}

#[test]
fn tells_protocols_apart() {
    let kinds = [
        (0, Kind::Stun),
        (3, Kind::Stun),
        (4, Kind::Other),
        (20, Kind::Dtls),
        (63, Kind::Dtls),
        (64, Kind::ChannelData),
        (79, Kind::ChannelData),
        (80, Kind::Other),
        (127, Kind::Other),
        (128, Kind::SrtpOrSrtcp),
        (191, Kind::SrtpOrSrtcp),
        (192, Kind::Other),
    ];
    for (byte, kind) in kinds {
        assert_eq!(classify(byte), kind, "{byte}");
    }
    assert!(is_rtcp(192) && is_rtcp(200) && is_rtcp(223));
    assert!(!is_rtcp(191) && !is_rtcp(224) && !is_rtcp(96) && !is_rtcp(0x80 | 111));
}

#[test]
fn reads_fixed_fields_csrcs_and_padding() {
    let packet =
        hex("b2 ef 1234 89abcdef 01020304 aaaaaaaa bbbbbbbb bede 0001 10ff2200 0a0b0c 000002");
    let header = RtpHeader::parse(&packet).unwrap();
    assert!(header.marker && header.padding);
    assert_eq!((header.payload_type, header.sequence), (111, 0x1234));
    assert_eq!((header.timestamp, header.ssrc), (0x89AB_CDEF, 0x0102_0304));
    assert_eq!((header.csrc_count, header.header_len), (2, 28));
    assert_eq!(header.extension_profile, Some(ONE_BYTE_PROFILE));
    assert_eq!(header.payload_range(&packet), Ok(28..32));
    assert_eq!(header.find_extension(&packet, 1), Some(&[0xFF][..]));
    // Length 3 of id 2 does not fit any more.
    assert_eq!(header.find_extension(&packet, 2), None);
    let mut bad = packet.clone();
    for count in [0, 7, 255] {
        *bad.last_mut().unwrap() = count;
        assert_eq!(header.payload_range(&bad), Err(ParseError::BadPadding));
    }
    *bad.last_mut().unwrap() = 6;
    assert_eq!(header.payload_range(&bad), Ok(28..28));
    assert_eq!(header.payload_range(&packet[..20]), Err(ParseError::TooShort));
    for len in 0..28 {
        assert_eq!(RtpHeader::parse(&packet[..len]), Err(ParseError::TooShort));
    }
    let mut bad = packet;
    bad[0] = 0x72;
    assert_eq!(RtpHeader::parse(&bad), Err(ParseError::BadVersion));
}

#[test]
fn writes_the_one_byte_form() {
    let packet = written(&[(1, &[0x85]), (14, b"0123456789abcdef")]);
    let expected = "90 ef 1234 89abcdef 01020304 bede 0005
        10 85 ef 30313233343536373839616263646566 00";
    assert_eq!(packet, hex(expected));
    let header = RtpHeader::parse(&packet).unwrap();
    assert_eq!(header.header_len, packet.len());
    let read: Vec<_> = header.extensions(&packet).collect();
    assert_eq!(read, [(1, &[0x85][..]), (14, b"0123456789abcdef")]);
    assert_eq!(written(&[]), hex("80 ef 1234 89abcdef 01020304"));
}

#[test]
fn writes_the_two_byte_form_where_one_does_not_do() {
    let cases: [&[(u8, &[u8])]; 3] =
        [&[(1, &[]), (2, &[9])], &[(1, &[7; 17])], &[(15, &[1, 2]), (3, &[5])]];
    for extensions in cases {
        let packet = written(extensions);
        let header = RtpHeader::parse(&packet).unwrap();
        assert_eq!(header.extension_profile, Some(TWO_BYTE_PROFILE));
        assert_eq!(header.extensions(&packet).collect::<Vec<_>>(), extensions);
        assert_eq!(packet.len() % 4, 0);
    }
}

#[test]
fn what_cannot_be_written_is_refused() {
    let mut out = [0; 2000];
    assert_eq!(writer(&[(0, &[1])]).write(&mut out), Err(WriteError::BadExtension));
    assert_eq!(writer(&[(1, &[0; 256])]).write(&mut out), Err(WriteError::BadExtension));
    assert_eq!(writer(&[]).write(&mut out[..11]), Err(WriteError::BufferTooSmall));
    assert_eq!(writer(&[(1, &[1])]).write(&mut out[..19]), Err(WriteError::BufferTooSmall));
}

#[test]
fn extensions_of_other_profiles_and_reserved_ids_are_passed_over() {
    let packet = hex("90 6f 0001 00000000 00000001 1234 0001 10ff0000");
    let header = RtpHeader::parse(&packet).unwrap();
    assert_eq!(header.extension_profile, Some(0x1234));
    assert_eq!(header.extensions(&packet).count(), 0);
    assert_eq!(header.header_len, 20);
    // Id 15 stops the reading; padding between is skipped; two-byte with other application bits.
    let packet = hex("90 6f 0001 00000000 00000001 bede 0002 000010aa f0bb20cc");
    let header = RtpHeader::parse(&packet).unwrap();
    assert_eq!(header.extensions(&packet).collect::<Vec<_>>(), [(1, &[0xAA][..])]);
    let packet = hex("90 6f 0001 00000000 00000001 1005 0002 000f02aabb 100000");
    let header = RtpHeader::parse(&packet).unwrap();
    let read: Vec<_> = header.extensions(&packet).collect();
    assert_eq!(read, [(15, &[0xAA, 0xBB][..]), (16, &[])]);
}

#[test]
fn sets_fields_in_place() {
    let mut packet = written(&[(1, &[0x85])]);
    set_sequence(&mut packet, 7).unwrap();
    set_timestamp(&mut packet, 8).unwrap();
    set_ssrc(&mut packet, 9).unwrap();
    set_payload_type(&mut packet, 0xFF).unwrap();
    set_marker(&mut packet, false).unwrap();
    let header = RtpHeader::parse(&packet).unwrap();
    assert_eq!((header.sequence, header.timestamp, header.ssrc), (7, 8, 9));
    assert_eq!((header.payload_type, header.marker), (127, false));
    set_marker(&mut packet, true).unwrap();
    set_payload_type(&mut packet, 0).unwrap();
    let header = RtpHeader::parse(&packet).unwrap();
    assert_eq!((header.payload_type, header.marker), (0, true));
    assert_eq!(set_ssrc(&mut packet[..11], 1), Err(WriteError::NotAPacket));
    assert_eq!(set_marker(&mut [], true), Err(WriteError::NotAPacket));
}

#[test]
fn padding_grows_and_is_left_out_of_the_payload() {
    let mut buf = written(&[]);
    buf.extend([1, 2, 3]);
    buf.extend([0xEE; 300]);
    assert_eq!(add_padding(&mut buf, 15, 0), Ok(15));
    assert_eq!(buf[0] & 0x20, 0);
    assert_eq!(add_padding(&mut buf, 15, 1), Ok(16));
    assert_eq!(add_padding(&mut buf, 16, 7), Ok(23));
    let header = RtpHeader::parse(&buf[..23]).unwrap();
    assert_eq!(header.payload_range(&buf[..23]), Ok(12..15));
    assert_eq!(buf[15..23], [0, 0, 0, 0, 0, 0, 0, 8]);
    assert_eq!(add_padding(&mut buf, 23, 255), Err(WriteError::TooMany));
    assert_eq!(add_padding(&mut buf[..25], 23, 3), Err(WriteError::BufferTooSmall));
    assert_eq!(add_padding(&mut buf, 1000, 3), Err(WriteError::BufferTooSmall));
    assert_eq!(add_padding(&mut [0; 20], 20, 3), Err(WriteError::NotAPacket));
}

#[test]
fn reads_and_makes_extension_values() {
    let level = AudioLevel { voice: true, level_dbov: 30 };
    assert_eq!(level.to_byte(), 0x9E);
    assert_eq!(AudioLevel::parse(&[0x9E]), Some(level));
    assert_eq!(AudioLevel { voice: false, level_dbov: 200 }.to_byte(), 127);
    assert_eq!(AudioLevel::parse(&[]), None);
    assert_eq!(transport_sequence(&[1, 2]), Some(0x0102));
    assert_eq!(transport_sequence(&[1]), None);
    // 1 s is 2^18 units; the value wraps after 64 s.
    assert_eq!(abs_send_time(Duration::from_millis(1500)), [0x06, 0, 0]);
    assert_eq!(abs_send_time(Duration::from_millis(64_500)), [0x02, 0, 0]);
    assert_eq!(parse_abs_send_time(&[0x06, 0, 1]), Some(0x06_0001));
    assert_eq!(parse_abs_send_time(&[0, 0]), None);
    assert_eq!(parse_abs_capture_time(&[0, 0, 0, 1, 0, 0, 0, 2, 9]), Some((1 << 32) | 2));
    assert_eq!(text(b"mid1\0"), Some("mid1"));
    assert_eq!((text(b"\xFF"), text(b"")), (None, None));
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random::new(77);
    let mut buf = [0; 120];
    let (mut parsed, mut found) = (0, 0);
    for _ in 0..100_000 {
        let len = random.below(120) as usize;
        random.bytes(&mut buf[..len]);
        if len >= 16 && random.below(2) == 0 {
            buf[0] = 0x90 | (buf[0] & 0x20);
            let profile = if random.below(2) == 0 { ONE_BYTE_PROFILE } else { TWO_BYTE_PROFILE };
            buf[12..14].copy_from_slice(&profile.to_be_bytes());
            buf[14] = 0;
            buf[15] %= 20;
        }
        let Ok(header) = RtpHeader::parse(&buf[..len]) else { continue };
        parsed += 1;
        assert!(header.header_len <= len);
        found += header.extensions(&buf[..len]).count();
        // A shorter buffer than the one that was parsed must do no harm, either.
        found += header.extensions(&buf[..len / 2]).count();
        if let Ok(payload) = header.payload_range(&buf[..len]) {
            assert!(payload.start <= payload.end && payload.end <= len);
        }
        let mut out = [0; 200];
        let stream = crate::rtx::RtxStream { ssrc: 1, payload_type: 2, sequence: 3 };
        if let Ok(len) = crate::rtx::wrap(&buf[..len], stream, &mut out) {
            assert!(crate::rtx::unwrap(&mut out, len, 1, 2).is_ok());
        }
        let _ = crate::rtx::unwrap(&mut buf, len, 1, 2);
    }
    assert!(parsed > 10_000 && found > 10_000);
}

#[test]
fn an_extension_is_located_in_both_forms() {
    let long: &[u8] = &[7; 40];
    for extensions in
        [&[(1, &[9][..]), (12, &[1, 2, 3])][..], &[(1, &[9][..]), (12, long)], &[(20, &[5; 17])]]
    {
        let packet = written(extensions);
        let header = RtpHeader::parse(&packet).unwrap();
        for (id, value) in extensions {
            let at = header.locate_extension(&packet, *id).unwrap();
            assert_eq!(&&packet[at], value);
            assert_eq!(header.find_extension(&packet, *id), Some(*value));
        }
        assert_eq!(header.locate_extension(&packet, 13), None);
    }
    let (short, two_byte) = (written(&[(14, &[1; 16])]), written(&[(14, &[1; 17])]));
    assert_eq!(RtpHeader::parse(&short).unwrap().extension_profile, Some(ONE_BYTE_PROFILE));
    assert_eq!(RtpHeader::parse(&two_byte).unwrap().extension_profile, Some(TWO_BYTE_PROFILE));
}
