//! The RTP header (RFC 3550 §5.1) and its extensions (RFC 8285): read, written, changed in place.

use crate::error::{ParseError, WriteError};
use std::ops::Range;
use std::time::Duration;

/// Length of an RTP header without CSRCs and extensions.
pub const FIXED_LEN: usize = 12;
/// Profile of one-byte header extensions (RFC 8285 §4.2).
pub const ONE_BYTE_PROFILE: u16 = 0xBEDE;
/// Profile of two-byte header extensions, application bits 0 (RFC 8285 §4.3).
pub const TWO_BYTE_PROFILE: u16 = 0x1000;

/// What a datagram holds, told by its first byte (RFC 7983 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 0..=3
    Stun,
    /// 20..=63
    Dtls,
    /// 64..=79: TURN ChannelData
    ChannelData,
    /// 128..=191; [`is_rtcp`] tells the two apart
    SrtpOrSrtcp,
    /// Anything else
    Other,
}

/// Tells what a datagram holds by its first byte (RFC 7983 §7).
#[inline]
pub fn classify(first_byte: u8) -> Kind {
    match first_byte {
        0..=3 => Kind::Stun,
        20..=63 => Kind::Dtls,
        64..=79 => Kind::ChannelData,
        128..=191 => Kind::SrtpOrSrtcp,
        _ => Kind::Other,
    }
}

/// Whether the second byte of an RTP or RTCP packet says RTCP (RFC 5761 §4).
#[inline]
pub fn is_rtcp(second_byte: u8) -> bool {
    (192..=223).contains(&second_byte)
}

/// A parsed RTP header. It holds offsets, not bytes, so it outlives the buffer it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpHeader {
    /// Marker bit.
    pub marker: bool,
    /// Payload type, 0..=127.
    pub payload_type: u8,
    /// Sequence number.
    pub sequence: u16,
    /// Timestamp in units of the codec's clock.
    pub timestamp: u32,
    /// Synchronisation source.
    pub ssrc: u32,
    /// Number of contributing sources, 0..=15.
    pub csrc_count: u8,
    /// The padding bit; the count stands in the last byte of the (decrypted) packet.
    pub padding: bool,
    /// Length of the header with CSRCs and extensions: the offset of the payload.
    pub header_len: usize,
    /// The extension's profile, where there is an extension.
    pub extension_profile: Option<u16>,
    extension_start: usize,
}

impl RtpHeader {
    /// Reads the header of an RTP packet, encrypted or not: the payload is not looked at.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::BadVersion`].
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        let fixed: &[u8; FIXED_LEN] = packet.first_chunk().ok_or(ParseError::TooShort)?;
        if fixed[0] >> 6 != 2 {
            return Err(ParseError::BadVersion);
        }
        let csrc_count = fixed[0] & 0x0F;
        let mut header_len = FIXED_LEN + usize::from(csrc_count) * 4;
        let mut extension_profile = None;
        let mut extension_start = header_len;
        if fixed[0] & 0x10 != 0 {
            let word: &[u8; 4] = packet
                .get(header_len..)
                .and_then(<[u8]>::first_chunk)
                .ok_or(ParseError::TooShort)?;
            extension_profile = Some(u16::from_be_bytes([word[0], word[1]]));
            extension_start = header_len + 4;
            let words = usize::from(u16::from_be_bytes([word[2], word[3]]));
            header_len = extension_start + words * 4;
        }
        if header_len > packet.len() {
            return Err(ParseError::TooShort);
        }
        Ok(Self {
            marker: fixed[1] & 0x80 != 0,
            payload_type: fixed[1] & 0x7F,
            sequence: u16::from_be_bytes([fixed[2], fixed[3]]),
            timestamp: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            ssrc: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
            csrc_count,
            padding: fixed[0] & 0x20 != 0,
            header_len,
            extension_profile,
            extension_start,
        })
    }

    /// Where the payload of the plaintext `packet` is, without its padding (RFC 3550 §5.1).
    ///
    /// # Errors
    /// [`ParseError::BadPadding`], [`ParseError::TooShort`].
    #[inline]
    pub fn payload_range(&self, packet: &[u8]) -> Result<Range<usize>, ParseError> {
        let mut end = packet.len();
        if self.header_len > end {
            return Err(ParseError::TooShort);
        }
        if self.padding {
            let count = usize::from(packet[end - 1]);
            if count == 0 || count > end - self.header_len {
                return Err(ParseError::BadPadding);
            }
            end -= count;
        }
        Ok(self.header_len..end)
    }

    /// The header extensions of `packet` as (id, value); none for other profiles than RFC 8285's.
    #[inline]
    pub fn extensions<'a>(&self, packet: &'a [u8]) -> Extensions<'a> {
        let two_byte = match self.extension_profile {
            Some(ONE_BYTE_PROFILE) => false,
            Some(profile) if profile & 0xFFF0 == TWO_BYTE_PROFILE => true,
            _ => return Extensions { rest: &[], two_byte: false },
        };
        let rest = packet.get(self.extension_start..self.header_len).unwrap_or(&[]);
        Extensions { rest, two_byte }
    }

    /// The value of the header extension `id`, where `packet` carries it.
    #[inline]
    pub fn find_extension<'a>(&self, packet: &'a [u8], id: u8) -> Option<&'a [u8]> {
        self.extensions(packet).find(|(found, _)| *found == id).map(|(_, value)| value)
    }

    /// Where the value of the header extension `id` is in `packet`, where it carries it.
    pub fn locate_extension(&self, packet: &[u8], id: u8) -> Option<Range<usize>> {
        let mut extensions = self.extensions(packet);
        let (_, value) = extensions.find(|(found, _)| *found == id)?;
        let end = self.header_len - extensions.rest.len();
        Some(end - value.len()..end)
    }
}

/// Iterates over header extensions (RFC 8285 §4.2, §4.3). A malformed tail ends it.
#[derive(Debug, Clone)]
pub struct Extensions<'a> {
    rest: &'a [u8],
    two_byte: bool,
}

impl<'a> Iterator for Extensions<'a> {
    type Item = (u8, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&first, tail) = self.rest.split_first()?;
            if first == 0 {
                self.rest = tail; // one byte of padding
                continue;
            }
            let (id, len, tail) = if self.two_byte {
                let (&len, tail) = tail.split_first()?;
                (first, usize::from(len), tail)
            } else {
                (first >> 4, usize::from(first & 0x0F) + 1, tail)
            };
            // Id 15 stops processing; id 0 with a length is not allowed (RFC 8285 §4.2).
            if (!self.two_byte && (id == 15 || id == 0)) || len > tail.len() {
                self.rest = &[];
                return None;
            }
            let (value, tail) = tail.split_at(len);
            self.rest = tail;
            return Some((id, value));
        }
    }
}

/// Writes an RTP header with a chosen set of extensions.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeaderWriter<'a> {
    /// Marker bit.
    pub marker: bool,
    /// Payload type, 0..=127.
    pub payload_type: u8,
    /// Sequence number.
    pub sequence: u16,
    /// Timestamp.
    pub timestamp: u32,
    /// Synchronisation source.
    pub ssrc: u32,
    /// Header extensions, (id, value). Ids 1..=255, values up to 255 bytes. The one-byte form is
    /// used unless a value is empty or longer than 16 bytes, or an id is over 14 (RFC 8285 §4.1.2).
    pub extensions: &'a [(u8, &'a [u8])],
}

impl HeaderWriter<'_> {
    /// The length that [`HeaderWriter::write`] will need.
    #[inline]
    pub fn len(&self) -> usize {
        if self.extensions.is_empty() {
            return FIXED_LEN;
        }
        let each = if self.two_byte() { 2 } else { 1 };
        let bytes: usize = self.extensions.iter().map(|(_, value)| each + value.len()).sum();
        FIXED_LEN + 4 + bytes.next_multiple_of(4)
    }

    /// A header is never empty.
    pub fn is_empty(&self) -> bool {
        false
    }

    fn two_byte(&self) -> bool {
        self.extensions.iter().any(|(id, value)| *id > 14 || value.is_empty() || value.len() > 16)
    }

    /// Writes the header at the start of `out`; returns its length.
    ///
    /// # Errors
    /// [`WriteError::BadExtension`], [`WriteError::BufferTooSmall`].
    #[inline]
    pub fn write(&self, out: &mut [u8]) -> Result<usize, WriteError> {
        let len = self.len();
        let out = out.get_mut(..len).ok_or(WriteError::BufferTooSmall)?;
        out[0] = 0x80;
        out[1] = (u8::from(self.marker) << 7) | (self.payload_type & 0x7F);
        out[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        out[4..8].copy_from_slice(&self.timestamp.to_be_bytes());
        out[8..12].copy_from_slice(&self.ssrc.to_be_bytes());
        if self.extensions.is_empty() {
            return Ok(len);
        }
        let words = (len - FIXED_LEN - 4) / 4;
        let words = u16::try_from(words).map_err(|_| WriteError::BadExtension)?;
        let two_byte = self.two_byte();
        let profile = if two_byte { TWO_BYTE_PROFILE } else { ONE_BYTE_PROFILE };
        out[0] |= 0x10;
        out[12..14].copy_from_slice(&profile.to_be_bytes());
        out[14..16].copy_from_slice(&words.to_be_bytes());
        let mut at = 16;
        for (id, value) in self.extensions {
            let size = u8::try_from(value.len()).map_err(|_| WriteError::BadExtension)?;
            if *id == 0 {
                return Err(WriteError::BadExtension);
            }
            if two_byte {
                out[at..at + 2].copy_from_slice(&[*id, size]);
                at += 2;
            } else {
                out[at] = (*id << 4) | (size - 1);
                at += 1;
            }
            out[at..at + value.len()].copy_from_slice(value);
            at += value.len();
        }
        out[at..].fill(0);
        Ok(len)
    }
}

fn field<const N: usize>(packet: &mut [u8], at: usize) -> Result<&mut [u8; N], WriteError> {
    if packet.len() < FIXED_LEN {
        return Err(WriteError::NotAPacket);
    }
    packet[at..].first_chunk_mut().ok_or(WriteError::NotAPacket)
}

/// Sets the sequence number in place.
///
/// # Errors
/// [`WriteError::NotAPacket`] where there is no room for a header.
#[inline]
pub fn set_sequence(packet: &mut [u8], sequence: u16) -> Result<(), WriteError> {
    *field(packet, 2)? = sequence.to_be_bytes();
    Ok(())
}

/// Sets the timestamp in place.
///
/// # Errors
/// [`WriteError::NotAPacket`] where there is no room for a header.
#[inline]
pub fn set_timestamp(packet: &mut [u8], timestamp: u32) -> Result<(), WriteError> {
    *field(packet, 4)? = timestamp.to_be_bytes();
    Ok(())
}

/// The SSRC of an RTP packet, as it stands in the clear. None if it is too short for a header.
#[inline]
pub fn ssrc(packet: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*packet.get(8..FIXED_LEN)?.first_chunk()?))
}

/// Sets the SSRC in place.
///
/// # Errors
/// [`WriteError::NotAPacket`] where there is no room for a header.
#[inline]
pub fn set_ssrc(packet: &mut [u8], ssrc: u32) -> Result<(), WriteError> {
    *field(packet, 8)? = ssrc.to_be_bytes();
    Ok(())
}

/// Sets the payload type (its low 7 bits) in place; the marker stays.
///
/// # Errors
/// [`WriteError::NotAPacket`] where there is no room for a header.
#[inline]
pub fn set_payload_type(packet: &mut [u8], payload_type: u8) -> Result<(), WriteError> {
    let [byte] = field(packet, 1)?;
    *byte = (*byte & 0x80) | (payload_type & 0x7F);
    Ok(())
}

/// Sets the marker bit in place; the payload type stays.
///
/// # Errors
/// [`WriteError::NotAPacket`] where there is no room for a header.
#[inline]
pub fn set_marker(packet: &mut [u8], marker: bool) -> Result<(), WriteError> {
    let [byte] = field(packet, 1)?;
    *byte = (*byte & 0x7F) | (u8::from(marker) << 7);
    Ok(())
}

/// Adds `count` bytes of RTP padding to the plaintext packet `buf[..len]` (RFC 3550 §5.1) and
/// returns the new length. Padding that is there already grows.
///
/// # Errors
/// [`WriteError::NotAPacket`], [`WriteError::BufferTooSmall`], and [`WriteError::TooMany`] where
/// all padding together is over 255 bytes.
pub fn add_padding(buf: &mut [u8], len: usize, count: u8) -> Result<usize, WriteError> {
    if count == 0 {
        return Ok(len);
    }
    let packet = buf.get(..len).ok_or(WriteError::BufferTooSmall)?;
    let header = RtpHeader::parse(packet).map_err(|_| WriteError::NotAPacket)?;
    let payload = header.payload_range(packet).map_err(|_| WriteError::NotAPacket)?;
    let total = len - payload.end + usize::from(count);
    let total = u8::try_from(total).map_err(|_| WriteError::TooMany)?;
    let end = len + usize::from(count);
    buf.get_mut(payload.end..end).ok_or(WriteError::BufferTooSmall)?.fill(0);
    buf[0] |= 0x20;
    buf[end - 1] = total;
    Ok(end)
}

/// Client-to-mixer audio level (RFC 6464 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AudioLevel {
    /// The encoder believes that the packet holds voice.
    pub voice: bool,
    /// Level in −dBov: 0 is the loudest, 127 is silence.
    pub level_dbov: u8,
}

impl AudioLevel {
    /// Reads the value of the extension.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let byte = *value.first()?;
        Some(Self { voice: byte & 0x80 != 0, level_dbov: byte & 0x7F })
    }

    /// The value of the extension; a level over 127 is silence.
    pub fn to_byte(self) -> u8 {
        (u8::from(self.voice) << 7) | self.level_dbov.min(127)
    }
}

/// Reads a transport-wide sequence number
/// (draft-holmer-rmcat-transport-wide-cc-extensions-01 §2).
pub fn transport_sequence(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// Reads `abs-send-time`: 24 bits, 6.18 fixed point seconds.
pub fn parse_abs_send_time(value: &[u8]) -> Option<u32> {
    let [a, b, c] = *value.first_chunk()?;
    Some(u32::from_be_bytes([0, a, b, c]))
}

/// The value of `abs-send-time` at a time since any fixed epoch; it wraps every 64 s.
pub fn abs_send_time(since_epoch: Duration) -> [u8; 3] {
    let seconds = (since_epoch.as_secs() % 64) as u32;
    let fraction = (u64::from(since_epoch.subsec_nanos()) << 18) / 1_000_000_000;
    let [_, a, b, c] = ((seconds << 18) | fraction as u32).to_be_bytes();
    [a, b, c]
}

/// The value of `abs-capture-time` at an NTP time (32.32), without a clock offset.
pub fn abs_capture_time(ntp: u64) -> [u8; 8] {
    ntp.to_be_bytes()
}

/// Reads the capture time of `abs-capture-time`: NTP 32.32, the first 8 bytes of the value.
pub fn parse_abs_capture_time(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Reads a `mid` or `rid` (RFC 9143 §15, RFC 8852 §3), without trailing zeros.
pub fn text(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?.trim_end_matches('\0');
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
