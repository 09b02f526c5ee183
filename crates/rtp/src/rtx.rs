//! Retransmission payloads (RFC 4588 §4): the original sequence number before the payload.

use crate::error::{ParseError, WriteError};
use crate::header::{RtpHeader, set_payload_type, set_sequence, set_ssrc};

/// Bytes that the original sequence number adds.
pub const OVERHEAD: usize = 2;

/// What the retransmission stream calls itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtxStream {
    /// SSRC of the retransmission stream.
    pub ssrc: u32,
    /// Its payload type for the original's codec.
    pub payload_type: u8,
    /// Its own next sequence number.
    pub sequence: u16,
}

/// Writes the retransmission of the plaintext `packet` into `out`; returns its length. Header
/// extensions stay as they are, padding is left out.
///
/// # Errors
/// [`WriteError::NotAPacket`], [`WriteError::BufferTooSmall`].
pub fn wrap(packet: &[u8], stream: RtxStream, out: &mut [u8]) -> Result<usize, WriteError> {
    let header = RtpHeader::parse(packet).map_err(|_| WriteError::NotAPacket)?;
    let payload = header.payload_range(packet).map_err(|_| WriteError::NotAPacket)?;
    let len = payload.end + OVERHEAD;
    let out = out.get_mut(..len).ok_or(WriteError::BufferTooSmall)?;
    let (head, rest) = out.split_at_mut(header.header_len);
    head.copy_from_slice(&packet[..header.header_len]);
    rest[..OVERHEAD].copy_from_slice(&header.sequence.to_be_bytes());
    rest[OVERHEAD..].copy_from_slice(&packet[payload]);
    head[0] &= !0x20;
    set_ssrc(head, stream.ssrc)?;
    set_payload_type(head, stream.payload_type)?;
    set_sequence(head, stream.sequence)?;
    Ok(len)
}

/// Turns the plaintext retransmission `buf[..len]` back into the original, in place: its SSRC,
/// payload type and sequence number. Returns its length without padding; None for a packet that
/// carries nothing (a bandwidth probe).
///
/// # Errors
/// Those of [`RtpHeader::parse`] and [`RtpHeader::payload_range`], and [`ParseError::TooShort`]
/// for a payload of one byte.
pub fn unwrap(
    buf: &mut [u8],
    len: usize,
    ssrc: u32,
    payload_type: u8,
) -> Result<Option<usize>, ParseError> {
    let packet = buf.get_mut(..len).ok_or(ParseError::TooShort)?;
    let header = RtpHeader::parse(packet)?;
    let payload = header.payload_range(packet)?;
    if payload.is_empty() {
        return Ok(None);
    }
    let original: &[u8; OVERHEAD] =
        packet[payload.clone()].first_chunk().ok_or(ParseError::TooShort)?;
    let original = u16::from_be_bytes(*original);
    let (start, end) = (payload.start, payload.end);
    packet.copy_within(start + OVERHEAD..end, start);
    packet[0] &= !0x20;
    let set = set_ssrc(packet, ssrc)
        .and_then(|()| set_payload_type(packet, payload_type))
        .and_then(|()| set_sequence(packet, original));
    set.map_err(|_| ParseError::TooShort)?;
    Ok(Some(end - OVERHEAD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{HeaderWriter, add_padding};

    #[test]
    fn makes_the_round_trip() {
        let writer = HeaderWriter {
            marker: true,
            payload_type: 96,
            sequence: 65_535,
            timestamp: 9,
            ssrc: 1,
            extensions: &[(4, b"mid")],
        };
        let mut packet = vec![0; 100];
        let header_len = writer.write(&mut packet).unwrap();
        let len = header_len + 20;
        packet[header_len..len].copy_from_slice(&[7; 20]);
        let original = packet[..len].to_vec();
        let padded = add_padding(&mut packet, len, 5).unwrap();
        let mut out = [0; 100];
        let stream = RtxStream { ssrc: 2, payload_type: 97, sequence: 3 };
        let rtx_len = wrap(&packet[..padded], stream, &mut out).unwrap();
        assert_eq!(rtx_len, len + OVERHEAD);
        let header = RtpHeader::parse(&out[..rtx_len]).unwrap();
        assert_eq!((header.ssrc, header.payload_type, header.sequence), (2, 97, 3));
        assert!(header.marker && !header.padding);
        assert_eq!(header.find_extension(&out, 4), Some(&b"mid"[..]));
        let rtx_len = add_padding(&mut out, rtx_len, 4).unwrap();
        assert_eq!(unwrap(&mut out, rtx_len, 1, 96), Ok(Some(len)));
        assert_eq!(out[..len], original);
        assert_eq!(wrap(&original, stream, &mut [0; 40]), Err(WriteError::BufferTooSmall));
    }

    #[test]
    fn probes_carry_nothing() {
        let mut buf = [0; 40];
        let len = HeaderWriter::default().write(&mut buf).unwrap();
        assert_eq!(unwrap(&mut buf, len, 1, 96), Ok(None));
        let padded = add_padding(&mut buf, len, 20).unwrap();
        assert_eq!(unwrap(&mut buf, padded, 1, 96), Ok(None));
        assert_eq!(unwrap(&mut [0x80; 13], 13, 1, 96), Err(ParseError::TooShort));
        assert_eq!(unwrap(&mut [0x80; 13], 14, 1, 96), Err(ParseError::TooShort));
    }
}
