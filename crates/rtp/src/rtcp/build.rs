//! Builders: each appends whole packets to `out`, which then is a compound.

use super::{MAX_COUNT, ReportBlock, SenderInfo, packet_type};

/// Most items of one NACK packet: 1 KiB, so that a compound fits a datagram.
const MAX_NACK_ITEMS: usize = 256;

/// Appends a sender report. Blocks over 31 follow in receiver reports (RFC 3550 §6.1).
pub fn sender_report(out: &mut Vec<u8>, ssrc: u32, info: &SenderInfo, blocks: &[ReportBlock]) {
    let (first, more) = blocks.split_at(blocks.len().min(MAX_COUNT));
    packet(out, packet_type::SR, first.len(), |out| {
        put(out, ssrc);
        out.extend(info.ntp.0.to_be_bytes());
        put(out, info.rtp_timestamp);
        put(out, info.packet_count);
        put(out, info.octet_count);
        first.iter().for_each(|block| put_block(out, block));
    });
    if !more.is_empty() {
        receiver_report(out, ssrc, more);
    }
}

/// Appends a receiver report, or several where there are over 31 blocks. Without blocks it is the
/// empty report that a compound may begin with.
pub fn receiver_report(out: &mut Vec<u8>, ssrc: u32, blocks: &[ReportBlock]) {
    let (first, more) = blocks.split_at(blocks.len().min(MAX_COUNT));
    packet(out, packet_type::RR, first.len(), |out| {
        put(out, ssrc);
        first.iter().for_each(|block| put_block(out, block));
    });
    if !more.is_empty() {
        receiver_report(out, ssrc, more);
    }
}

/// Appends a source description with a CNAME (RFC 3550 §6.5.1), cut to 255 bytes.
pub fn sdes_cname(out: &mut Vec<u8>, ssrc: u32, cname: &str) {
    let cname = &cname.as_bytes()[..cname.len().min(255)];
    packet(out, packet_type::SDES, 1, |out| {
        put(out, ssrc);
        out.push(1);
        out.push(cname.len() as u8);
        out.extend_from_slice(cname);
        out.push(0); // the end of the chunk; padding makes it whole words
    });
}

/// Appends a goodbye; several packets where there are over 31 sources.
pub fn bye(out: &mut Vec<u8>, ssrcs: &[u32]) {
    for some in ssrcs.chunks(MAX_COUNT) {
        packet(out, packet_type::BYE, some.len(), |out| {
            some.iter().for_each(|ssrc| put(out, *ssrc));
        });
    }
}

/// Appends generic NACKs for `lost`, which should ascend (numbers wrap). Nothing for nothing.
pub fn nack(out: &mut Vec<u8>, sender: u32, media: u32, lost: impl IntoIterator<Item = u16>) {
    let mut lost = lost.into_iter().peekable();
    while lost.peek().is_some() {
        packet(out, packet_type::RTPFB, 1, |out| {
            put(out, sender);
            put(out, media);
            for _ in 0..MAX_NACK_ITEMS {
                let Some(first) = lost.next() else { break };
                let mut mask = 0_u16;
                let bit = |next: u16| next.wrapping_sub(first).wrapping_sub(1);
                while let Some(next) = lost.next_if(|next| bit(*next) < 16 || *next == first) {
                    mask |= 1_u16.checked_shl(u32::from(bit(next))).unwrap_or(0);
                }
                out.extend(first.to_be_bytes());
                out.extend(mask.to_be_bytes());
            }
        });
    }
}

/// Appends a picture loss indication.
pub fn pli(out: &mut Vec<u8>, sender: u32, media: u32) {
    packet(out, packet_type::PSFB, 1, |out| {
        put(out, sender);
        put(out, media);
    });
}

/// Appends a full intra request; `request` counts up with each new one.
pub fn fir(out: &mut Vec<u8>, sender: u32, media: u32, request: u8) {
    packet(out, packet_type::PSFB, 4, |out| {
        put(out, sender);
        put(out, 0);
        put(out, media);
        out.extend([request, 0, 0, 0]);
    });
}

/// Appends a receiver estimated maximum bitrate for at most 255 streams.
pub fn remb(out: &mut Vec<u8>, sender: u32, bitrate_bps: u64, ssrcs: &[u32]) {
    let ssrcs = &ssrcs[..ssrcs.len().min(255)];
    // 18 bits of mantissa, 6 of exponent.
    let exponent = (64 - bitrate_bps.leading_zeros()).saturating_sub(18);
    let [_, high, middle, low] = ((bitrate_bps >> exponent) as u32).to_be_bytes();
    packet(out, packet_type::PSFB, 15, |out| {
        put(out, sender);
        put(out, 0);
        out.extend(b"REMB");
        out.extend([ssrcs.len() as u8, ((exponent as u8) << 2) | high, middle, low]);
        ssrcs.iter().for_each(|ssrc| put(out, *ssrc));
    });
}

/// Appends a packet: head, body, zeros up to a whole word, and the length field.
pub(crate) fn packet(
    out: &mut Vec<u8>,
    packet_type: u8,
    count: usize,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend([0x80 | count as u8, packet_type, 0, 0]);
    body(out);
    out.resize(start + (out.len() - start).next_multiple_of(4), 0);
    let words = ((out.len() - start) / 4 - 1) as u16;
    out[start + 2..start + 4].copy_from_slice(&words.to_be_bytes());
}

pub(crate) fn put(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_be_bytes());
}

fn put_block(out: &mut Vec<u8>, block: &ReportBlock) {
    put(out, block.ssrc);
    // The field is 24 bits signed: it holds at the ends instead of wrapping (RFC 3550 A.3).
    let lost = block.cumulative_lost.clamp(-0x80_0000, 0x7F_FFFF);
    put(out, (u32::from(block.fraction_lost) << 24) | (lost as u32 & 0xFF_FFFF));
    put(out, block.highest_sequence);
    put(out, block.jitter);
    put(out, block.last_sr);
    put(out, block.delay_since_last_sr);
}
