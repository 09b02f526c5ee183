//! Readers that keep state from packet to packet.

use net::framing::{self, Decoder};
use rtp::nack::{MAX_DUE, MAX_MISSING, NackGenerator};
use rtp::report::ReceiveStream;
use rtp::rtcp::{self, Packet};
use rtp::twcc::{Feedback, FeedbackBuilder};
use std::time::{Duration, Instant};

/// RFC 4571: however a stream is cut, the same packets come out, then the same error. The first two bytes say how
/// long a packet may be and how much comes at once.
pub fn framing(data: &[u8]) {
    let [max, step, stream @ ..] = data else { return };
    let (max, step) = (1 + usize::from(*max) * 8, 1 + usize::from(*step));
    let whole = taken(stream, max, usize::MAX);
    assert_eq!(taken(stream, max, step), whole);
    let (packets, _) = &whole;
    let mut again = Vec::new();
    for packet in packets {
        assert!(!packet.is_empty() && packet.len() <= max);
        framing::encode(packet, &mut again).expect("it came in a frame");
    }
    assert!(again.len() <= stream.len());
    assert_eq!(taken(&again, max, step), (packets.clone(), false));
}

/// The packets of a stream, and whether it ended by an error.
fn taken(stream: &[u8], max: usize, step: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut decoder, mut rest, mut packets) = (Decoder::new(max), stream, Vec::new());
    while !rest.is_empty() {
        let spare = decoder.spare();
        let count = step.min(rest.len()).min(spare.len());
        assert!(count > 0, "there is always room for the next bytes");
        spare[..count].copy_from_slice(&rest[..count]);
        decoder.advance(count);
        rest = &rest[count..];
        loop {
            match decoder.next_frame() {
                Ok(Some(packet)) => packets.push(packet.to_vec()),
                Ok(None) => break,
                Err(_) => {
                    assert!(decoder.next_frame().is_err(), "the error stays");
                    return (packets, true);
                }
            }
        }
    }
    (packets, false)
}

/// What is kept of a stream: sequence numbers, timestamps and times in any order stay within every bound. Four bytes a
/// packet: its number, the low byte of its timestamp's step, milliseconds since the last.
pub fn sequences(data: &[u8]) {
    let begin = Instant::now();
    let (mut nack, mut stream, mut builder) =
        (NackGenerator::new(), ReceiveStream::new(1, 48_000), FeedbackBuilder::new());
    let (mut at, mut timestamp, mut due) = (0, 0u32, Vec::new());
    for packet in data.as_chunks::<4>().0 {
        let sequence = u16::from_be_bytes([packet[0], packet[1]]);
        at += u64::from(packet[3]);
        timestamp = timestamp.wrapping_add(u32::from(packet[2]) << 24 | 960);
        let now = begin + Duration::from_millis(at);
        nack.set_rtt(Duration::from_millis(u64::from(packet[2]) * 8));
        nack.push(sequence, now);
        assert!(nack.missing_count() <= MAX_MISSING);
        due.clear();
        nack.due(now, &mut due);
        assert!(due.len() <= MAX_DUE && due.len() <= nack.missing_count());
        if packet[2] == 7 {
            nack.clear_before(sequence);
        }
        // Arrivals of a batch are not always in order.
        stream.push(
            sequence,
            timestamp,
            100,
            now - Duration::from_millis(u64::from(packet[2]).min(at)),
        );
        builder.record(sequence, now);
        if packet[3] > 200 {
            let block = stream.report_block(now).unwrap_or_default();
            assert!((-0x80_0000..=0x7F_FFFF).contains(&block.cumulative_lost));
            let interval = stream.interval();
            assert!(interval.lost <= interval.expected);
            told(&mut builder);
        }
    }
    told(&mut builder);
}

/// Feedback is built until nothing is left, and each packet of it fits a datagram and can be read.
fn told(builder: &mut FeedbackBuilder) {
    let mut out = Vec::new();
    for _ in 0..100 {
        out.clear();
        if !builder.build(1, 2, &mut out) {
            return;
        }
        assert!(out.len() < 1300, "{} bytes", out.len());
        let Some(Ok(Packet::TransportFeedback { fci, .. })) = rtcp::parse(&out).next() else {
            panic!("no feedback: {out:?}")
        };
        let read = Feedback::parse(fci).expect("what is built can be read");
        assert_eq!(read.packets().count(), usize::from(read.status_count));
    }
    panic!("feedback without end");
}
