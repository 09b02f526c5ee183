//! Readers of single packets.

use rtp::header::{self, AudioLevel, RtpHeader};
use rtp::rtcp::{self, Packet};
use rtp::rtx::{self, RtxStream};
use rtp::srtp::{KeyPair, Opener, Profile, Sealer, SrtpError};
use rtp::stun::{self, Responder};
use rtp::{HeaderWriter, TransportAddress, dependency, h264, red, twcc, vp8, vp9};
use std::net::SocketAddr;

/// Longest packet that is built here, in bytes.
const ROOM: usize = 4096;

/// STUN: attributes lie within the message, and an answer fits where it is written.
pub fn stun(data: &[u8]) {
    let taken: usize = stun::attributes(data).map(|(_, value)| 4 + value.len()).sum();
    assert!(taken <= data.len(), "attributes of {taken} bytes in {}", data.len());
    if let Some(fragment) = stun::receiver(data) {
        assert!(fragment.len() <= data.len() && !fragment.contains(':'));
    }
    let responder = Responder::new("evtj", "VOkJxbRl1RmTxUk/WvJxBt");
    for source in ["192.0.2.1:32853", "[2001:db8::1]:9"] {
        let source = TransportAddress::from(source.parse::<SocketAddr>().expect("an address"));
        let mut out = [0; 128];
        let Some(len) = responder.answer(data, source, &mut out) else { continue };
        assert_eq!(stun::attributes(&out[..len]).count(), 3, "address, integrity, fingerprint");
        assert_eq!(out[8..20], data[8..20], "the answer has the request's transaction");
        for short in 0..len {
            assert_eq!(responder.answer(data, source, &mut out[..short]), None);
        }
    }
}

/// RTP headers: what is read can be written and reads the same; padding and retransmission make the round trip.
pub fn rtp(data: &[u8]) {
    let Some(first) = data.first() else { return };
    let _ = (header::classify(*first), data.get(1).map(|second| header::is_rtcp(*second)));
    let Ok(read) = RtpHeader::parse(data) else { return };
    assert!(read.header_len >= 12 && read.header_len <= data.len());
    let extensions: Vec<(u8, &[u8])> = read.extensions(data).collect();
    for (id, value) in &extensions {
        assert!(*id > 0 && value.len() <= 255);
        let first = extensions.iter().find(|(known, _)| known == id).map(|(_, value)| *value);
        assert_eq!(read.find_extension(data, *id), first);
        values(value);
    }
    write_again(&read, &extensions);
    if let Ok(payload) = read.payload_range(data) {
        assert!(payload.start == read.header_len && payload.end <= data.len());
        retransmitted(data, &read);
        padded(data, payload.len());
    }
    let mut restored = data.to_vec();
    let _ = rtx::unwrap(&mut restored, data.len(), 1, 2)
        .map(|len| len.map(|len| assert!(len < data.len())));
}

fn values(value: &[u8]) {
    if let Some(level) = AudioLevel::parse(value) {
        assert_eq!(level.to_byte(), value[0]);
    }
    assert_eq!(header::parse_abs_send_time(value).is_some(), value.len() >= 3);
    assert_eq!(header::parse_abs_capture_time(value).is_some(), value.len() >= 8);
    assert_eq!(header::transport_sequence(value).is_some(), value.len() >= 2);
    assert!(header::text(value).is_none_or(|text| !text.is_empty() && text.len() <= value.len()));
}

fn write_again(read: &RtpHeader, extensions: &[(u8, &[u8])]) {
    let writer = HeaderWriter {
        marker: read.marker,
        payload_type: read.payload_type,
        sequence: read.sequence,
        timestamp: read.timestamp,
        ssrc: read.ssrc,
        extensions,
    };
    let mut out = [0; ROOM];
    let len = writer.write(&mut out).expect("what was read can be written");
    assert_eq!(len, writer.len());
    assert!(
        writer.write(&mut [0; ROOM][..len - 1]).is_err(),
        "nothing is written where it does not fit"
    );
    let again = RtpHeader::parse(&out[..len]).expect("what was written can be read");
    assert_eq!(
        (again.marker, again.payload_type, again.sequence, again.timestamp, again.ssrc),
        (read.marker, read.payload_type, read.sequence, read.timestamp, read.ssrc)
    );
    assert_eq!(again.header_len, len);
    assert_eq!(again.extensions(&out[..len]).collect::<Vec<_>>(), extensions);
}

/// Sent again and taken back, a packet is what it was, without its padding.
fn retransmitted(data: &[u8], read: &RtpHeader) {
    let mut out = [0; ROOM];
    let stream = RtxStream { ssrc: 7, payload_type: 97, sequence: 3 };
    let len = rtx::wrap(data, stream, &mut out).expect("a whole packet");
    let payload = read.payload_range(data).expect("it was read before");
    assert_eq!(len, payload.end + rtx::OVERHEAD);
    let back = rtx::unwrap(&mut out, len, read.ssrc, read.payload_type).expect("our own packet");
    assert_eq!(back, Some(payload.end));
    let mut original = data[..payload.end].to_vec();
    original[0] &= !0x20;
    assert_eq!(out[..payload.end], original);
}

fn padded(data: &[u8], payload_len: usize) {
    let count = data[data.len() - 1];
    let mut out = [0; ROOM];
    out[..data.len()].copy_from_slice(data);
    if let Ok(len) = header::add_padding(&mut out, data.len(), count) {
        assert_eq!(len, data.len() + usize::from(count));
        let grown = RtpHeader::parse(&out[..len]).expect("it stays a packet");
        assert_eq!(
            grown.payload_range(&out[..len]).expect("its padding is right").len(),
            payload_len
        );
    }
}

/// SRTP and SRTCP: what a stranger sends is refused, what is sealed opens once and as it was.
pub fn srtp(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let profiles = [Profile::AeadAes256Gcm, Profile::AeadAes128Gcm, Profile::Aes128CmHmacSha1_80];
    let profile = profiles[usize::from(*choice) % profiles.len()];
    let secret: Vec<u8> = (0..profile.exporter_len() as u8).collect();
    let ours = KeyPair::from_exporter(profile, &secret, true).expect("enough bytes");
    let theirs = KeyPair::from_exporter(profile, &secret, false).expect("enough bytes");
    let mut opener = Opener::new(&theirs.remote);
    let mut out = [0; ROOM];
    assert!(opener.open_rtp(data, &mut out).is_err() && opener.open_rtcp(data, &mut out).is_err());
    assert_eq!(opener.stream_count(), 0, "only authenticated packets make state");
    let mut sealer = Sealer::new(&ours.local);
    let mut sealed = [0; ROOM];
    sealed[..data.len()].copy_from_slice(data);
    if let Ok(header) = RtpHeader::parse(data) {
        let mut stream = sealer.stream(header.ssrc).expect("the first of its SSRC");
        let len = sealer
            .seal_rtp(&mut stream, &mut sealed, header.header_len, data.len())
            .expect("there is room");
        let opened = opener.open_rtp(&sealed[..len], &mut out).expect("it was sealed for us");
        assert_eq!(out[..opened.len], *data);
        assert_eq!(opener.open_rtp(&sealed[..len], &mut out).err(), Some(SrtpError::Replayed));
    }
    sealed[..data.len()].copy_from_slice(data);
    if let Ok(len) = sealer.seal_rtcp(&mut sealed, data.len()) {
        let opened = opener.open_rtcp(&sealed[..len], &mut out).expect("it was sealed for us");
        assert_eq!(out[..opened], *data);
        assert!(opener.open_rtcp(&sealed[..len], &mut out).is_err(), "it opens once");
    }
}

/// Most numbers that one NACK item of 4 bytes names.
const NACK_NUMBERS: usize = 17;

/// RTCP: what is told is bounded by the bytes that tell it, and what is built from it reads the same.
pub fn rtcp(data: &[u8]) {
    let mut packets = 0;
    for packet in rtcp::parse(data) {
        packets += 1;
        let Ok(packet) = packet else { continue };
        let items = match packet {
            Packet::SenderReport(report) => report.blocks().count(),
            Packet::ReceiverReport(report) => {
                let blocks: Vec<_> = report.blocks().collect();
                let mut out = Vec::new();
                rtcp::receiver_report(&mut out, report.ssrc, &blocks);
                let Some(Ok(Packet::ReceiverReport(again))) = rtcp::parse(&out).next() else {
                    panic!("no receiver report: {out:?}")
                };
                assert!(again.ssrc == report.ssrc && again.blocks().eq(blocks.iter().copied()));
                blocks.len()
            }
            Packet::Bye(bye) => bye.ssrcs().count(),
            Packet::Nack(nack) => {
                let lost: Vec<u16> = nack.lost().collect();
                assert!(lost.len() <= data.len() / 4 * NACK_NUMBERS);
                let mut out = Vec::new();
                rtcp::nack(&mut out, nack.sender, nack.media, lost.iter().copied());
                let again = rtcp::parse(&out).map(|packet| match packet {
                    Ok(Packet::Nack(nack)) => nack.lost().collect::<Vec<u16>>(),
                    other => panic!("{other:?}"),
                });
                let mut again = again.flatten().collect::<Vec<_>>();
                let mut lost = lost;
                for list in [&mut again, &mut lost] {
                    list.sort_unstable();
                    list.dedup();
                }
                assert_eq!(again, lost, "the same numbers are asked for");
                0
            }
            Packet::Fir(fir) => fir.requests().count(),
            Packet::Remb(remb) => {
                let ssrcs: Vec<u32> = remb.ssrcs().collect();
                let mut out = Vec::new();
                rtcp::remb(&mut out, remb.sender, remb.bitrate_bps, &ssrcs);
                let Some(Ok(Packet::Remb(again))) = rtcp::parse(&out).next() else {
                    panic!("no estimate: {out:?}")
                };
                assert!(
                    again.bitrate_bps <= remb.bitrate_bps
                        && again.ssrcs().eq(ssrcs.iter().copied())
                );
                ssrcs.len()
            }
            Packet::TransportFeedback { fci, .. } => {
                feedback(fci);
                0
            }
            Packet::Sdes(_) | Packet::Pli { .. } | Packet::Other { .. } => 0,
        };
        assert!(items * 4 <= data.len(), "{items} items in {} bytes", data.len());
    }
    assert!(packets <= data.len().div_ceil(4));
    feedback(data);
}

fn feedback(fci: &[u8]) {
    let Ok(read) = twcc::Feedback::parse(fci) else { return };
    let told: Vec<_> = read.packets().collect();
    assert_eq!(told.len(), usize::from(read.status_count));
    let arrived = told.iter().filter(|(_, arrival)| arrival.is_some()).count();
    assert!(arrived <= fci.len(), "each arrival takes a byte or two");
    // Where somebody looks, the same is read. A long run elsewhere costs nothing.
    let first = read.base_sequence.wrapping_add(u16::from(read.feedback_count) << 8);
    for count in [0, 1, 256, 16_384] {
        let within = |number: u16| usize::from(number.wrapping_sub(first)) < count;
        let looked: Vec<_> = read.packets_within(first, count).collect();
        assert!(looked.len() <= count + 7 * fci.len(), "{} numbers", looked.len());
        let of_use = |told: &&(u16, Option<i64>)| told.1.is_some() || within(told.0);
        assert!(looked.iter().filter(of_use).eq(told.iter().filter(of_use)));
    }
}

/// RED: the blocks follow each other within the payload, the primary one last; what is repeated is read as it was.
pub fn red(data: &[u8]) {
    let primary = red::primary(data);
    let mut end = 0;
    for block in red::redundant(data) {
        assert!(block.bytes.start >= end && block.packets_back > 0);
        end = block.bytes.end;
    }
    if let Ok(range) = &primary {
        assert!(
            range.start > 0 && range.end == data.len() && (end..=data.len()).contains(&range.start)
        );
    }
    let mut recent = red::Recent::new(2);
    recent.keep(1, 0, data);
    recent.keep(3, 1920, b"last");
    if let Some(copies) = recent.before(96, 4, 2880) {
        let payload = [&copies.parts().concat()[..], b"next"].concat();
        let mut blocks = red::redundant(&payload);
        if (1..=red::MOST_BYTES - 4).contains(&data.len()) {
            let older = blocks.next().expect("there are two");
            assert_eq!((&payload[older.bytes], older.packets_back, older.offset), (data, 3, 2880));
        }
        let last = blocks.next().expect("there is one");
        assert_eq!((&payload[last.bytes], last.packets_back, last.offset), (&b"last"[..], 1, 960));
        assert_eq!(&payload[red::primary(&payload).expect("it is RED")], b"next");
    }
}

/// VP8: a rewrite changes what it is told to and nothing else.
pub fn vp8(data: &[u8]) {
    let _ = vp8::frame_header(data);
    let read = vp8::Descriptor::parse(data);
    for (id, index) in [(Some(0x7FFE), Some(9)), (None, Some(3)), (Some(5), None), (None, None)] {
        let mut payload = data.to_vec();
        let rewritten = vp8::rewrite_in_place(&mut payload, id, index);
        let Ok(before) = read else {
            assert!(rewritten.is_err() && payload == data);
            continue;
        };
        rewritten.expect("what can be read can be rewritten");
        let after = vp8::Descriptor::parse(&payload).expect("it stays a descriptor");
        let mask = if before.picture_id_long { 0x7FFF } else { 0x7F };
        let wanted = vp8::Descriptor {
            picture_id: before.picture_id.map(|old| id.unwrap_or(old) & mask),
            tl0_picture_index: before.tl0_picture_index.map(|old| index.unwrap_or(old)),
            ..before
        };
        assert_eq!(after, wanted);
        assert!(before.header_len <= data.len() && before.header_len <= 6);
        assert_eq!(payload[before.header_len..], data[before.header_len..], "the frame stays");
    }
    let (mtu, joined) =
        (1 + data.len() / 3, vp8::packetize(data, 40, 7, 8).map(|chunk| chunk.data));
    assert_eq!(joined.collect::<Vec<_>>().concat(), data);
    assert!(
        vp8::packetize(data, mtu, 7, 8)
            .all(|chunk| chunk.len() <= mtu.max(vp8::DESCRIPTOR_LEN + 1))
    );
}

/// VP9: a rewrite changes what it is told to and nothing else.
pub fn vp9(data: &[u8]) {
    let Ok(before) = vp9::Descriptor::parse(data) else { return };
    assert!(before.header_len <= data.len());
    for (id, index) in [(Some(0x7FFE), Some(9)), (None, Some(3)), (Some(5), None), (None, None)] {
        let mut payload = data.to_vec();
        vp9::rewrite_in_place(&mut payload, id, index).expect("what can be read can be rewritten");
        let after = vp9::Descriptor::parse(&payload).expect("it stays a descriptor");
        let mask = if before.picture_id_long { 0x7FFF } else { 0x7F };
        let mut wanted = before;
        wanted.picture_id = before.picture_id.map(|old| id.unwrap_or(old) & mask);
        wanted.tl0_picture_index = before.tl0_picture_index.map(|old| index.unwrap_or(old));
        assert_eq!(after, wanted);
        assert_eq!(payload[before.header_len..], data[before.header_len..], "the frame stays");
    }
}

/// Dependency descriptors of one stream, each with its length before it: what cannot be read leaves the structure as it
/// was, and another frame number changes nothing else.
pub fn dependency(data: &[u8]) {
    let (mut structure, mut rest) = (dependency::Structure::default(), data);
    while let Some((value, tail)) =
        rest.split_first().and_then(|(len, tail)| tail.split_at_checked(usize::from(*len)))
    {
        rest = tail;
        let before = structure.clone();
        let Ok(read) = dependency::Descriptor::parse(value, &mut structure) else {
            assert_eq!(structure, before);
            continue;
        };
        assert!(read.head.has_structure || structure == before);
        assert_eq!(Ok(read.head), dependency::Head::parse(value));
        assert!(structure.templates().iter().any(|it| it.spatial_id == read.frame.spatial_id));
        assert_eq!(read.frame.indications().count(), usize::from(structure.targets()));
        assert!((0..structure.targets()).all(|target| {
            structure
                .layer_of(target)
                .is_none_or(|(spatial, _)| spatial < structure.spatial_layers())
        }));
        let mut value = value.to_vec();
        dependency::set_frame_number(&mut value, 0x8001).expect("it has a number");
        let mut again = before;
        let mut wanted = read;
        wanted.head.frame_number = 0x8001;
        assert_eq!(dependency::Descriptor::parse(&value, &mut again), Ok(wanted));
        assert_eq!(again, structure);
    }
}

/// H.264: a keyframe starts in a single unit as it starts in an aggregation of it alone.
pub fn h264(data: &[u8]) {
    let starts = h264::keyframe_start(data);
    let kind = data.first().map_or(0, |first| first & 0x1F);
    if let (1..=23, Ok(len)) = (kind, u16::try_from(data.len())) {
        let aggregated = [&[24], &len.to_be_bytes()[..], data].concat();
        assert_eq!(h264::keyframe_start(&aggregated), starts);
        let fragment = [&[28, 0x80 | kind], &data[1..]].concat();
        assert_eq!(h264::keyframe_start(&fragment), starts);
        let middle = [&[28, kind], &data[1..]].concat();
        assert_eq!(h264::keyframe_start(&middle), None);
    }
}
