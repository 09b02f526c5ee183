use super::cipher::{Cipher, cm_iv, ctr};
use super::*;
use crate::header::HeaderWriter;
use crate::testing::{Random, hex};
use aws_lc_rs::cipher::{AES_128, EncryptingKey, UnboundCipherKey};

const PROFILES: [Profile; 3] =
    [Profile::AeadAes256Gcm, Profile::AeadAes128Gcm, Profile::Aes128CmHmacSha1_80];

fn pair(profile: Profile) -> (Sealer, Opener) {
    let bytes: Vec<u8> = (0..profile.exporter_len()).map(|i| i as u8).collect();
    let client = KeyPair::from_exporter(profile, &bytes, true).unwrap();
    let server = KeyPair::from_exporter(profile, &bytes, false).unwrap();
    assert_eq!(client.local, server.remote);
    assert_eq!(client.remote, server.local);
    (Sealer::new(&client.local), Opener::new(&server.remote))
}

fn rtp(ssrc: u32, sequence: u16) -> (Vec<u8>, usize) {
    let writer = HeaderWriter {
        payload_type: 96,
        sequence,
        ssrc,
        extensions: &[(1, &[7]), (3, &[1, 2])],
        ..HeaderWriter::default()
    };
    let mut packet = vec![0; writer.len()];
    writer.write(&mut packet).unwrap();
    let header_len = packet.len();
    packet.extend((0..50).map(|i| i ^ sequence as u8));
    (packet, header_len)
}

fn seal(sealer: &Sealer, stream: &mut SealStream, sequence: u16) -> Result<Vec<u8>, SrtpError> {
    let (mut packet, header_len) = rtp(stream.ssrc(), sequence);
    let len = packet.len();
    packet.resize(len + 16, 0);
    let end = sealer.seal_rtp(stream, &mut packet, header_len, len)?;
    packet.truncate(end);
    Ok(packet)
}

fn open(opener: &mut Opener, packet: &[u8]) -> Result<(Vec<u8>, u64), SrtpError> {
    let mut out = vec![0; packet.len()];
    let opened = opener.open_rtp(packet, &mut out)?;
    out.truncate(opened.len);
    Ok((out, opened.index))
}

fn seal_rtcp(sealer: &mut Sealer, packet: &[u8]) -> Vec<u8> {
    let mut buf = packet.to_vec();
    buf.resize(packet.len() + 20, 0);
    let end = sealer.seal_rtcp(&mut buf, packet.len()).unwrap();
    buf.truncate(end);
    buf
}

fn open_rtcp(opener: &mut Opener, packet: &[u8]) -> Result<Vec<u8>, SrtpError> {
    let mut out = vec![0; packet.len()];
    let len = opener.open_rtcp(packet, &mut out)?;
    out.truncate(len);
    Ok(out)
}

#[test]
fn derives_the_keys_of_rfc3711_b3() {
    let key = hex("E1F97A0D3E018BE0D64FA32C06DE4139");
    let salt = hex("0EC675AD498AFEEBB6960B3AABE6");
    let master = MasterKey::new(Profile::Aes128CmHmacSha1_80, &key, &salt).unwrap();
    let derive = |label, len| {
        let mut out = vec![0xFF; len];
        master.derive(label, &mut out);
        out
    };
    assert_eq!(derive(0, 16), hex("C61E7A93744F39EE10734AFE3FF7A087"));
    assert_eq!(derive(2, 14), hex("30CBBC08863D8C85D49DB34A9AE1"));
    let auth = hex("CEBE321F6FF7716B6FD4AB49AF256A156D38BAA4 8F0A0ACF3C34E2359E6CDBCE");
    assert_eq!(derive(1, 32), auth);
}

#[test]
fn derives_256_bit_keys_of_rfc6188_7_4() {
    let key = hex("f0f04914b513f2763a1b1fa130f10e2998f6f6e43e4309d1e622a0e332b9f1b6");
    let salt = hex("3b04803de51ee7c96423ab5b78d2");
    // The vector has a salt of 112 bits, which no GCM profile has: set past the constructor.
    let mut master = MasterKey::new(Profile::AeadAes256Gcm, &key, &salt[..12]).unwrap();
    master.set_full_salt(&salt);
    let mut out = [0; 32];
    master.derive(0, &mut out);
    assert_eq!(
        out.to_vec(),
        hex("5ba1064e30ec51613cad926c5a28ef731ec7fb397f70a960653caf06554cd8c4")
    );
}

#[test]
fn makes_the_keystream_of_rfc3711_b2() {
    let key = hex("2B7E151628AED2A6ABF7158809CF4F3C");
    let salt: [u8; 14] = hex("F0F1F2F3F4F5F6F7F8F9FAFBFCFD").try_into().unwrap();
    let key = EncryptingKey::ctr(UnboundCipherKey::new(&AES_128, &key).unwrap()).unwrap();
    let mut stream = [0; 48];
    ctr(&key, cm_iv(&salt, 0, 0), &mut stream);
    let expected = "E03EAD0935C95E80E166B16DD92B4EB4 D23513162B02D0F72A43A2FE4A5F97AB
        41E95B3BB0A2E8DD477901E4FCA894C0";
    assert_eq!(stream.to_vec(), hex(expected));
}

/// Session keys of RFC 7714 §16 and §17: they are given as such, not derived.
fn rfc7714(profile: Profile) -> Cipher {
    let key: Vec<u8> = (0..profile.key_len()).map(|i| i as u8).collect();
    Cipher::new(profile, &key, &[], &hex("517569642070726f2071756f"))
}

const RFC7714_RTP: &str = "8040f17b8041f8d35501a0b247616c6c696120657374206f6d6e697320646976
    69736120696e207061727465732074726573";
const RFC7714_RTCP: &str = "81c8000d4d6172734e5450314e545032525450200000042a0000e9304c756e61
    deadbeefdeadbeefdeadbeefdeadbeefdeadbeef";

#[test]
fn seals_and_opens_the_rtp_of_rfc7714_16() {
    let vectors = [
        (
            Profile::AeadAes128Gcm,
            "8040f17b8041f8d35501a0b2f24de3a3fb34de6cacba861c9d7e4bcabe633bd50d294e6f42a5f47a51
            c7d19b36de3adf8833899d7f27beb16a9152cf765ee4390cce",
        ),
        (
            Profile::AeadAes256Gcm,
            "8040f17b8041f8d35501a0b232b1de78a822fe12ef9f78fa332e33aab18012389a58e2f3b50b2a0276
            ffae0f1ba63799b87b7aa3db36dfffd6b0f9bb7878d7a76c13",
        ),
    ];
    for (profile, sealed) in vectors {
        let mut sealer = Sealer::of(rfc7714(profile), rfc7714(profile));
        let mut stream = sealer.stream(0x5501_a0b2).unwrap();
        let mut packet = hex(RFC7714_RTP);
        let len = packet.len();
        packet.resize(len + 16, 0);
        let end = sealer.seal_rtp(&mut stream, &mut packet, 12, len).unwrap();
        assert_eq!(packet[..end], hex(sealed));
        let mut opener = Opener::of(rfc7714(profile), rfc7714(profile));
        assert_eq!(open(&mut opener, &hex(sealed)).unwrap(), (hex(RFC7714_RTP), 0xf17b));
    }
}

#[test]
fn seals_and_opens_the_rtcp_of_rfc7714_17() {
    let vectors = [
        (
            Profile::AeadAes128Gcm,
            "81c8000d4d61727363e94885dcdab67ca727d7662f6b7e997ff5c0f76c06f32dc676a5f1730d6fda4c
            e09b4686303ded0bb9275bc84aa45896cf4d2fc5abf87245d9eade800005d4",
        ),
        (
            Profile::AeadAes256Gcm,
            "81c8000d4d617273d50ae4d1f5ce5d304ba297e47d470c282c3ece5dbffe0a50a2eaa5c1110555be84
            15f658c61de0476f1b6fad1d1eb30c4446839f57ff6f6cb26ac3be800005d4",
        ),
    ];
    for (profile, sealed) in vectors {
        let mut sealer = Sealer::of(rfc7714(profile), rfc7714(profile));
        sealer.set_next_rtcp_index(0x5d4);
        assert_eq!(seal_rtcp(&mut sealer, &hex(RFC7714_RTCP)), hex(sealed));
        let mut opener = Opener::of(rfc7714(profile), rfc7714(profile));
        assert_eq!(open_rtcp(&mut opener, &hex(sealed)).unwrap(), hex(RFC7714_RTCP));
    }
}

/// The reference vector of libsrtp's own test driver.
#[test]
fn seals_and_opens_counter_mode_as_libsrtp_does() {
    let key = hex("e1f97a0d3e018be0d64fa32c06de4139");
    let salt = hex("0ec675ad498afeebb6960b3aabe6");
    let master = MasterKey::new(Profile::Aes128CmHmacSha1_80, &key, &salt).unwrap();
    let plain = hex("800f1234decafbadcafebabeabababababababababababababababab");
    let sealed =
        hex("800f1234decafbadcafebabe4e55dc4ce79978d88ca4d215949d2402b78d6acc99ea179b8dbb");
    let mut sealer = Sealer::new(&master);
    let mut stream = sealer.stream(0xcafe_babe).unwrap();
    let mut packet = plain.clone();
    packet.resize(plain.len() + 10, 0);
    let end = sealer.seal_rtp(&mut stream, &mut packet, 12, plain.len()).unwrap();
    assert_eq!(packet[..end], sealed);
    assert_eq!(open(&mut Opener::new(&master), &sealed).unwrap(), (plain, 0x1234));
}

#[test]
fn every_profile_makes_the_round_trip() {
    for profile in PROFILES {
        let (mut sealer, mut opener) = pair(profile);
        let mut stream = sealer.stream(9).unwrap();
        for sequence in [0, 1, 3, 2, 700] {
            let sealed = seal(&sealer, &mut stream, sequence).unwrap();
            let plain = rtp(9, sequence).0;
            assert_eq!(sealed.len(), plain.len() + profile.rtp_tag_len());
            assert_ne!(sealed[plain.len() - 40..plain.len()], plain[plain.len() - 40..]);
            assert_eq!(open(&mut opener, &sealed).unwrap(), (plain, u64::from(sequence)));
        }
        for _ in 0..3 {
            let sealed = seal_rtcp(&mut sealer, &hex(RFC7714_RTCP));
            assert_eq!(sealed.len(), hex(RFC7714_RTCP).len() + profile.rtcp_overhead());
            assert_eq!(open_rtcp(&mut opener, &sealed).unwrap(), hex(RFC7714_RTCP));
            assert_eq!(open_rtcp(&mut opener, &sealed), Err(SrtpError::Replayed));
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_refused_and_makes_no_state() {
    for profile in PROFILES {
        let (mut sealer, mut opener) = pair(profile);
        let mut stream = sealer.stream(0x0102_0304).unwrap();
        let sealed = seal(&sealer, &mut stream, 100).unwrap();
        let control = seal_rtcp(&mut sealer, &hex(RFC7714_RTCP));
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&mut opener, &damaged).is_err(), "{profile:?}, bit {bit}");
        }
        for bit in 0..control.len() * 8 {
            let mut damaged = control.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(open_rtcp(&mut opener, &damaged).is_err(), "{profile:?}, RTCP bit {bit}");
        }
        assert_eq!(opener.stream_count(), 0);
        assert!(open(&mut opener, &sealed).is_ok());
        assert!(open_rtcp(&mut opener, &control).is_ok());
    }
}

#[test]
fn short_packets_and_buffers_are_refused() {
    for profile in PROFILES {
        let (mut sealer, mut opener) = pair(profile);
        let mut stream = sealer.stream(1).unwrap();
        let sealed = seal(&sealer, &mut stream, 0).unwrap();
        let control = seal_rtcp(&mut sealer, &hex(RFC7714_RTCP));
        for len in 0..sealed.len() {
            assert!(open(&mut opener, &sealed[..len]).is_err());
        }
        for len in 0..control.len() {
            assert!(open_rtcp(&mut opener, &control[..len]).is_err());
        }
        let mut small = vec![0; sealed.len() - profile.rtp_tag_len() - 1];
        assert_eq!(opener.open_rtp(&sealed, &mut small), Err(SrtpError::BufferTooSmall));
        let (mut packet, header_len) = rtp(1, 1);
        let len = packet.len();
        packet.resize(len + profile.rtp_tag_len() - 1, 0);
        let result = sealer.seal_rtp(&mut stream, &mut packet, header_len, len);
        assert_eq!(result, Err(SrtpError::BufferTooSmall));
        assert_eq!(sealer.seal_rtp(&mut stream, &mut packet, 11, len), Err(SrtpError::TooShort));
        assert_eq!(sealer.seal_rtp(&mut stream, &mut packet, 12, 11), Err(SrtpError::TooShort));
        assert_eq!(sealer.seal_rtcp(&mut [0x80; 40], 7), Err(SrtpError::TooShort));
        // None of the refusals took the index.
        assert!(seal(&sealer, &mut stream, 1).is_ok());
    }
}

#[test]
fn rollover_is_followed_with_reordering_around_it() {
    for profile in PROFILES {
        let (mut sealer, mut opener) = pair(profile);
        let mut stream = sealer.stream(1).unwrap();
        let mut held = Vec::new();
        let mut random = Random::new(3);
        let start = 65_000_u64;
        for index in start..start + 3 * 65_536 {
            let sealed = seal(&sealer, &mut stream, index as u16).unwrap();
            held.push((index, sealed));
            if held.len() > 60 {
                let at = random.below(held.len() as u64) as usize;
                let (index, sealed) = held.swap_remove(at);
                // The hold is shorter than the window, but chance may keep one for longer.
                match open(&mut opener, &sealed) {
                    Ok((_, opened)) => assert_eq!(opened, index),
                    Err(error) => assert_eq!(error, SrtpError::TooOld),
                }
            }
        }
        assert_eq!(stream.highest_index(), Some(start + 3 * 65_536 - 1));
    }
}

#[test]
fn packets_noted_by_their_header_count_as_if_opened() {
    let (mut sealer, mut opener) = pair(Profile::AeadAes256Gcm);
    let mut stream = sealer.stream(1).unwrap();
    let first = seal(&sealer, &mut stream, 65_000).unwrap();
    assert_eq!(opener.note_rtp(&first), Ok(None), "the first of a source has to be opened");
    open(&mut opener, &first).unwrap();
    // Two rollovers without opening anything.
    let mut last = None;
    for index in 65_001..65_000 + 2 * 65_536_u64 {
        let sealed = seal(&sealer, &mut stream, index as u16).unwrap();
        let noted = opener.note_rtp(&sealed).unwrap().unwrap();
        assert_eq!((noted.index, noted.len), (index, sealed.len() - 16));
        assert_eq!(noted.header.sequence, index as u16);
        last = Some(sealed);
    }
    assert_eq!(opener.note_rtp(&last.unwrap()), Err(SrtpError::Replayed));
    let next = seal(&sealer, &mut stream, (65_000 + 2 * 65_536_u64) as u16).unwrap();
    assert_eq!(open(&mut opener, &next).unwrap().1, 65_000 + 2 * 65_536);
    assert!(opener.note_rtp(&first[..20]).is_err());
}

#[test]
fn late_packets_from_before_the_wrap_are_opened_once() {
    let (mut sealer, mut opener) = pair(Profile::AeadAes128Gcm);
    let mut stream = sealer.stream(1).unwrap();
    let a = seal(&sealer, &mut stream, 65_534).unwrap();
    let c = seal(&sealer, &mut stream, 0).unwrap();
    let b = seal(&sealer, &mut stream, 65_535).unwrap();
    assert_eq!(stream.highest_index(), Some(65_536));
    assert_eq!(open(&mut opener, &a).unwrap().1, 65_534);
    assert_eq!(open(&mut opener, &c).unwrap().1, 65_536);
    assert_eq!(open(&mut opener, &b).unwrap().1, 65_535);
    for packet in [&a, &b, &c] {
        assert_eq!(open(&mut opener, packet), Err(SrtpError::Replayed));
    }
}

#[test]
fn a_source_whose_packets_before_the_wrap_are_lost_is_opened() {
    for profile in PROFILES {
        let (mut sealer, mut opener) = pair(profile);
        let mut stream = sealer.stream(1).unwrap();
        let lost = [65_534, 65_535].map(|sequence| seal(&sealer, &mut stream, sequence).unwrap());
        for sequence in 0..3 {
            let sealed = seal(&sealer, &mut stream, sequence).unwrap();
            assert!(opener.authenticates(&sealed, &mut [0; 1500]), "nothing of it is remembered");
            assert!(!opener.knows_source(&sealed) || sequence > 0);
            assert_eq!(open(&mut opener, &sealed).unwrap().1, 65_536 + u64::from(sequence));
            assert!(opener.knows_source(&sealed));
            assert!(!opener.authenticates(&sealed, &mut [0; 1500]), "it was opened before");
        }
        // They come late.
        assert_eq!(open(&mut opener, &lost[1]).unwrap().1, 65_535);
        let mut forged = seal(&sealer, &mut stream, 3).unwrap();
        let last = forged.len() - 1;
        forged[last] ^= 1;
        assert!(!opener.authenticates(&forged, &mut [0; 1500]));
    }
}

#[test]
fn what_lies_before_the_window_is_too_old() {
    let (mut sealer, mut opener) = pair(Profile::AeadAes128Gcm);
    let mut stream = sealer.stream(1).unwrap();
    let packets: Vec<_> =
        (0..=WINDOW as u16).map(|s| seal(&sealer, &mut stream, s).unwrap()).collect();
    open(&mut opener, packets.last().unwrap()).unwrap();
    assert_eq!(open(&mut opener, &packets[0]), Err(SrtpError::TooOld));
    assert!(open(&mut opener, &packets[1]).is_ok());
}

#[test]
fn no_index_is_sealed_twice() {
    for profile in PROFILES {
        let (mut sealer, _) = pair(profile);
        let mut stream = sealer.stream(1).unwrap();
        assert_eq!(sealer.stream(1).unwrap_err(), SrtpError::StreamExists);
        seal(&sealer, &mut stream, 5).unwrap();
        assert_eq!(seal(&sealer, &mut stream, 5), Err(SrtpError::IndexReused));
        assert_eq!(seal(&sealer, &mut stream, 65_535), Err(SrtpError::IndexReused));
        seal(&sealer, &mut stream, 4).unwrap();
        assert_eq!(seal(&sealer, &mut stream, 4), Err(SrtpError::IndexReused));
        seal(&sealer, &mut stream, 5 + WINDOW as u16).unwrap();
        assert_eq!(seal(&sealer, &mut stream, 3), Err(SrtpError::IndexReused));
        let (mut packet, header_len) = rtp(2, 6);
        let len = packet.len();
        packet.resize(len + 16, 0);
        let result = sealer.seal_rtp(&mut stream, &mut packet, header_len, len);
        assert_eq!(result, Err(SrtpError::WrongSsrc));
        sealer.set_next_rtcp_index(1 << 31);
        let mut control = hex(RFC7714_RTCP);
        let len = control.len();
        control.resize(len + 20, 0);
        assert_eq!(sealer.seal_rtcp(&mut control, len), Err(SrtpError::IndexExhausted));
    }
}

#[test]
fn random_sequences_never_take_an_index_twice() {
    let (mut sealer, _) = pair(Profile::AeadAes128Gcm);
    let mut stream = sealer.stream(1).unwrap();
    let mut random = Random::new(11);
    let mut nonces = std::collections::HashSet::new();
    let mut refused = 0;
    let mut base = 100_u16;
    for _ in 0..20_000 {
        base = base.wrapping_add(random.below(3) as u16);
        let sequence =
            base.wrapping_add(random.below(50) as u16).wrapping_sub(random.below(2000) as u16);
        match seal(&sealer, &mut stream, sequence) {
            // One plaintext a sequence, so a nonce used twice shows as one packet sealed twice.
            Ok(sealed) => assert!(nonces.insert(sealed)),
            Err(error) => {
                assert_eq!(error, SrtpError::IndexReused);
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && nonces.len() > 1000);
}

#[test]
fn streams_are_bounded_and_each_source_counts_its_own_rtcp_index() {
    let (mut sealer, mut opener) = pair(Profile::AeadAes128Gcm);
    for ssrc in 0..MAX_STREAMS as u32 {
        let mut stream = sealer.stream(ssrc).unwrap();
        open(&mut opener, &seal(&sealer, &mut stream, 1).unwrap()).unwrap();
    }
    assert_eq!(sealer.stream(u32::MAX).unwrap_err(), SrtpError::TooManyStreams);
    let (mut other, _) = pair(Profile::AeadAes128Gcm);
    let mut stream = other.stream(u32::MAX).unwrap();
    let sealed = seal(&other, &mut stream, 1).unwrap();
    assert_eq!(open(&mut opener, &sealed), Err(SrtpError::TooManyStreams));
    assert_eq!(opener.stream_count(), MAX_STREAMS);
    // Two sources, both at SRTCP index 0.
    for ssrc in [1_u32, 2] {
        let (mut sealer, _) = pair(Profile::AeadAes128Gcm);
        let mut packet = vec![0x80, 201, 0, 1];
        packet.extend(ssrc.to_be_bytes());
        assert_eq!(open_rtcp(&mut opener, &seal_rtcp(&mut sealer, &packet)).unwrap(), packet);
    }
}

#[test]
fn rtcp_in_the_clear_is_refused() {
    // RFC 7714 §17.3: authenticated, E bit clear.
    let mut packet = hex(RFC7714_RTCP);
    packet.extend(hex("841dd9683dd78ec92ae58790125f62b3 000005d4"));
    let cipher = || rfc7714(Profile::AeadAes128Gcm);
    let mut opener = Opener::of(cipher(), cipher());
    assert_eq!(open_rtcp(&mut opener, &packet), Err(SrtpError::NotEncrypted));
}

#[test]
fn keys_have_their_lengths_and_stay_out_of_logs() {
    for profile in PROFILES {
        assert_eq!(Profile::from_dtls_id(profile.dtls_id()), Some(profile));
        let short = vec![0x5A; profile.exporter_len() - 1];
        assert_eq!(KeyPair::from_exporter(profile, &short, true), Err(SrtpError::BadKeyLength));
        let key = vec![0x5A; profile.key_len()];
        let salt = vec![0x5A; profile.salt_len()];
        assert!(MasterKey::new(profile, &key[1..], &salt).is_err());
        let shown = format!("{:?}", MasterKey::new(profile, &key, &salt).unwrap());
        assert!(!shown.contains("90") && !shown.to_lowercase().contains("5a"));
    }
    assert_eq!(Profile::from_dtls_id(2), None);
}

#[test]
fn random_bytes_are_refused_quietly() {
    let mut random = Random::new(42);
    let mut buf = [0; 200];
    let mut out = [0; 200];
    for profile in PROFILES {
        let (_, mut opener) = pair(profile);
        for round in 0..100_000 {
            let len = random.below(200) as usize;
            random.bytes(&mut buf[..len]);
            if round % 2 == 0 && len > 0 {
                buf[0] = 0x80 | (buf[0] & 0x3F);
            }
            assert!(opener.open_rtp(&buf[..len], &mut out).is_err());
            assert!(opener.open_rtcp(&buf[..len], &mut out).is_err());
        }
        assert_eq!(opener.stream_count(), 0);
    }
}
