//! RTCP (RFC 3550 §6, RFC 4585 §6, RFC 5104 §4.3.1): compound packets read without allocation,
//! and builders that append to a buffer.

use crate::error::ParseError;
use crate::ntp::Ntp;

mod build;
pub use build::*;

/// Packet types.
pub mod packet_type {
    /// Sender report
    pub const SR: u8 = 200;
    /// Receiver report
    pub const RR: u8 = 201;
    /// Source description
    pub const SDES: u8 = 202;
    /// Goodbye
    pub const BYE: u8 = 203;
    /// Transport-layer feedback: NACK (1), transport-wide feedback (15)
    pub const RTPFB: u8 = 205;
    /// Payload-specific feedback: PLI (1), FIR (4), REMB (15)
    pub const PSFB: u8 = 206;
}

/// Most report blocks, or sources of a BYE, in one packet: the count has five bits.
pub const MAX_COUNT: usize = 31;

/// What a sender says about itself (RFC 3550 §6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderInfo {
    /// Wall clock of this report.
    pub ntp: Ntp,
    /// The same instant in the stream's timestamp units.
    pub rtp_timestamp: u32,
    /// Packets sent.
    pub packet_count: u32,
    /// Payload bytes sent.
    pub octet_count: u32,
}

/// What a receiver says about one source (RFC 3550 §6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportBlock {
    /// The source that is reported on.
    pub ssrc: u32,
    /// Loss since the last report in 1/256.
    pub fraction_lost: u8,
    /// Packets lost in all, 24 bits signed.
    pub cumulative_lost: i32,
    /// Extended highest sequence number.
    pub highest_sequence: u32,
    /// Interarrival jitter in timestamp units.
    pub jitter: u32,
    /// Middle 32 bits of the last sender report's NTP time; 0 where there was none.
    pub last_sr: u32,
    /// Time since that report in 1/65536 s.
    pub delay_since_last_sr: u32,
}

impl ReportBlock {
    const LEN: usize = 24;

    fn read(b: &[u8; Self::LEN]) -> Self {
        let lost = u32_at(b, 4) << 8;
        Self {
            ssrc: u32_at(b, 0),
            fraction_lost: b[4],
            cumulative_lost: (lost as i32) >> 8,
            highest_sequence: u32_at(b, 8),
            jitter: u32_at(b, 12),
            last_sr: u32_at(b, 16),
            delay_since_last_sr: u32_at(b, 20),
        }
    }
}

/// Sender report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderReport<'a> {
    /// The sender.
    pub ssrc: u32,
    /// About the sender's own stream.
    pub info: SenderInfo,
    blocks: &'a [[u8; ReportBlock::LEN]],
}

impl<'a> SenderReport<'a> {
    /// The report blocks.
    pub fn blocks(&self) -> impl Iterator<Item = ReportBlock> + use<'a> {
        self.blocks.iter().map(ReportBlock::read)
    }
}

/// Receiver report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverReport<'a> {
    /// Who reports.
    pub ssrc: u32,
    blocks: &'a [[u8; ReportBlock::LEN]],
}

impl<'a> ReceiverReport<'a> {
    /// The report blocks.
    pub fn blocks(&self) -> impl Iterator<Item = ReportBlock> + use<'a> {
        self.blocks.iter().map(ReportBlock::read)
    }
}

/// Goodbye.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bye<'a> {
    ssrcs: &'a [[u8; 4]],
}

impl<'a> Bye<'a> {
    /// The sources that leave.
    pub fn ssrcs(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.ssrcs.iter().copied().map(u32::from_be_bytes)
    }
}

/// Generic NACK (RFC 4585 §6.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nack<'a> {
    /// Who asks.
    pub sender: u32,
    /// The stream that lost packets.
    pub media: u32,
    items: &'a [[u8; 4]],
}

impl<'a> Nack<'a> {
    /// How many sequence numbers it names, without going through them.
    pub fn count(&self) -> usize {
        let named = |[_, _, b, c]: &[u8; 4]| 1 + (b.count_ones() + c.count_ones()) as usize;
        self.items.iter().map(named).sum()
    }

    /// The lost sequence numbers. One item of 4 bytes names up to 17 of them.
    pub fn lost(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.items.iter().flat_map(|[p, q, b, c]| {
            let first = u16::from_be_bytes([*p, *q]);
            let mask = u16::from_be_bytes([*b, *c]);
            let rest = (0..16).filter(move |bit| mask & (1 << bit) != 0);
            std::iter::once(first).chain(rest.map(move |bit| first.wrapping_add(bit + 1)))
        })
    }
}

/// Full intra request (RFC 5104 §4.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fir<'a> {
    /// Who asks.
    pub sender: u32,
    items: &'a [[u8; 8]],
}

impl<'a> Fir<'a> {
    /// The streams asked for a keyframe, each with the number of the request.
    pub fn requests(&self) -> impl Iterator<Item = (u32, u8)> + use<'a> {
        self.items.iter().map(|item| (u32_at(item, 0), item[4]))
    }
}

/// Receiver estimated maximum bitrate (draft-alvestrand-rmcat-remb-03 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remb<'a> {
    /// Who estimates.
    pub sender: u32,
    /// The estimate; it saturates.
    pub bitrate_bps: u64,
    ssrcs: &'a [[u8; 4]],
}

impl<'a> Remb<'a> {
    /// The streams that share the estimate.
    pub fn ssrcs(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.ssrcs.iter().copied().map(u32::from_be_bytes)
    }
}

/// One packet of a compound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Sender report
    SenderReport(SenderReport<'a>),
    /// Receiver report
    ReceiverReport(ReceiverReport<'a>),
    /// Source description: its chunks, unread
    Sdes(&'a [u8]),
    /// Goodbye
    Bye(Bye<'a>),
    /// Generic NACK
    Nack(Nack<'a>),
    /// Picture loss indication (RFC 4585 §6.3.1)
    Pli {
        /// Who asks.
        sender: u32,
        /// The stream asked for a keyframe.
        media: u32,
    },
    /// Full intra request
    Fir(Fir<'a>),
    /// Transport-wide feedback; [`crate::twcc::Feedback::parse`] reads it
    TransportFeedback {
        /// Who reports.
        sender: u32,
        /// Any stream of the transport.
        media: u32,
        /// The feedback control information.
        fci: &'a [u8],
    },
    /// Receiver estimated maximum bitrate
    Remb(Remb<'a>),
    /// A type that is not read here
    Other {
        /// The packet type.
        packet_type: u8,
        /// The count or format field.
        count: u8,
        /// What follows the first 4 bytes, without padding.
        body: &'a [u8],
    },
}

/// Reads a compound packet (RFC 3550 §6.1); a single packet is one, too (RFC 5506).
pub fn parse(compound: &[u8]) -> Compound<'_> {
    Compound { rest: compound }
}

/// Iterates over the packets of a compound; it ends after the first error.
#[derive(Debug, Clone)]
pub struct Compound<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Compound<'a> {
    type Item = Result<Packet<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let split = split_first(self.rest);
        self.rest = split.map_or(&[], |(_, rest)| rest);
        Some(split.and_then(|(packet, _)| read(packet)))
    }
}

/// Cuts the first packet, by its length field, from what follows.
fn split_first(bytes: &[u8]) -> Result<(&[u8], &[u8]), ParseError> {
    let head: &[u8; 4] = bytes.first_chunk().ok_or(ParseError::TooShort)?;
    if head[0] >> 6 != 2 {
        return Err(ParseError::BadVersion);
    }
    let len = (usize::from(u16::from_be_bytes([head[2], head[3]])) + 1) * 4;
    bytes.split_at_checked(len).ok_or(ParseError::BadLength)
}

fn read(packet: &[u8]) -> Result<Packet<'_>, ParseError> {
    let (head, mut body) = packet.split_at_checked(4).ok_or(ParseError::TooShort)?;
    if head[0] & 0x20 != 0 {
        let count = usize::from(*body.last().ok_or(ParseError::BadPadding)?);
        let len = body.len().checked_sub(count).filter(|_| count > 0);
        body = &body[..len.ok_or(ParseError::BadPadding)?];
    }
    let (count, packet_type) = (head[0] & 0x1F, head[1]);
    match (packet_type, count) {
        (packet_type::SR, _) => {
            let (fixed, rest) = body.split_first_chunk::<24>().ok_or(ParseError::TooShort)?;
            let info = SenderInfo {
                ntp: Ntp((u64::from(u32_at(fixed, 4)) << 32) | u64::from(u32_at(fixed, 8))),
                rtp_timestamp: u32_at(fixed, 12),
                packet_count: u32_at(fixed, 16),
                octet_count: u32_at(fixed, 20),
            };
            let blocks = chunks(rest, count)?;
            Ok(Packet::SenderReport(SenderReport { ssrc: u32_at(fixed, 0), info, blocks }))
        }
        (packet_type::RR, _) => {
            let (ssrc, rest) = body.split_first_chunk().ok_or(ParseError::TooShort)?;
            let blocks = chunks(rest, count)?;
            Ok(Packet::ReceiverReport(ReceiverReport { ssrc: u32::from_be_bytes(*ssrc), blocks }))
        }
        (packet_type::SDES, _) => Ok(Packet::Sdes(body)),
        (packet_type::BYE, _) => Ok(Packet::Bye(Bye { ssrcs: chunks(body, count)? })),
        (packet_type::RTPFB | packet_type::PSFB, _) => read_feedback(packet_type, count, body),
        _ => Ok(Packet::Other { packet_type, count, body }),
    }
}

/// Feedback messages (RFC 4585 §6.1).
fn read_feedback(packet_type: u8, count: u8, body: &[u8]) -> Result<Packet<'_>, ParseError> {
    let (ssrcs, fci) = body.split_first_chunk::<8>().ok_or(ParseError::TooShort)?;
    let (sender, media) = (u32_at(ssrcs, 0), u32_at(ssrcs, 4));
    match (packet_type, count) {
        (packet_type::RTPFB, 1) => {
            Ok(Packet::Nack(Nack { sender, media, items: exact(fci.as_chunks())? }))
        }
        (packet_type::RTPFB, 15) => Ok(Packet::TransportFeedback { sender, media, fci }),
        (packet_type::PSFB, 1) => Ok(Packet::Pli { sender, media }),
        (packet_type::PSFB, 4) => Ok(Packet::Fir(Fir { sender, items: exact(fci.as_chunks())? })),
        (packet_type::PSFB, 15) if fci.starts_with(b"REMB") => {
            let (fixed, rest) = fci.split_first_chunk::<8>().ok_or(ParseError::TooShort)?;
            let [count, high, middle, low] = [fixed[4], fixed[5], fixed[6], fixed[7]];
            let mantissa = u128::from(u32::from_be_bytes([0, high & 3, middle, low]));
            let bitrate_bps = u64::try_from(mantissa << (high >> 2)).unwrap_or(u64::MAX);
            Ok(Packet::Remb(Remb { sender, bitrate_bps, ssrcs: chunks(rest, count)? }))
        }
        _ => Ok(Packet::Other { packet_type, count, body }),
    }
}

/// The first `count` items of `N` bytes; what follows them (profile extensions) is left out.
fn chunks<const N: usize>(bytes: &[u8], count: u8) -> Result<&[[u8; N]], ParseError> {
    bytes.as_chunks().0.get(..usize::from(count)).ok_or(ParseError::BadLength)
}

fn exact<'a, T>((items, rest): (&'a [T], &[u8])) -> Result<&'a [T], ParseError> {
    if items.is_empty() || !rest.is_empty() {
        return Err(ParseError::BadLength);
    }
    Ok(items)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests;
