//! VP8 in RTP (RFC 7741): the payload descriptor read, rewritten and made.

use crate::error::ParseError;
use crate::picture_ids::PictureIds;

/// Length of the descriptor that [`packetize`] makes.
pub const DESCRIPTOR_LEN: usize = 6;

/// The payload descriptor (RFC 7741 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// No other frame refers to this one.
    pub non_reference: bool,
    /// A partition starts here.
    pub start: bool,
    /// Which partition.
    pub partition: u8,
    /// Picture id, 7 or 15 bits.
    pub picture_id: Option<u16>,
    /// The picture id has 15 bits.
    pub picture_id_long: bool,
    /// Number of the base layer's frame.
    pub tl0_picture_index: Option<u8>,
    /// Temporal layer.
    pub temporal_id: Option<u8>,
    /// This frame depends on the base layer alone; a receiver can switch up here.
    pub layer_sync: bool,
    /// Length of the descriptor.
    pub header_len: usize,
    /// The first packet of a keyframe.
    pub keyframe: bool,
}

/// Where the parts of a descriptor are.
struct Layout {
    ids: PictureIds,
    temporal: Option<usize>,
    len: usize,
}

fn layout(payload: &[u8]) -> Result<Layout, ParseError> {
    let byte = |at: usize| payload.get(at).copied().ok_or(ParseError::TooShort);
    let mut layout = Layout { ids: PictureIds::default(), temporal: None, len: 1 };
    if byte(0)? & 0x80 == 0 {
        return Ok(layout);
    }
    let flags = byte(1)?;
    layout.len = 2;
    if flags & 0x80 != 0 {
        layout.ids.picture_id = Some(layout.len);
        layout.ids.long = byte(layout.len)? & 0x80 != 0;
        layout.len += if layout.ids.long { 2 } else { 1 };
    }
    if flags & 0x40 != 0 {
        layout.ids.tl0 = Some(layout.len);
        layout.len += 1;
    }
    if flags & 0x30 != 0 {
        layout.temporal = Some(layout.len).filter(|_| flags & 0x20 != 0);
        layout.len += 1;
    }
    byte(layout.len - 1)?;
    Ok(layout)
}

impl Descriptor {
    /// Reads the descriptor at the start of an RTP payload.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] where the payload ends within the descriptor.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let layout = layout(payload)?;
        let first = payload[0];
        let (start, partition) = (first & 0x10 != 0, first & 0x07);
        // The lowest bit of the frame tag is clear in a keyframe (RFC 6386 §9.1).
        let tag = payload.get(layout.len);
        Ok(Self {
            non_reference: first & 0x20 != 0,
            start,
            partition,
            picture_id: layout.ids.picture_id(payload),
            picture_id_long: layout.ids.long,
            tl0_picture_index: layout.ids.tl0.map(|at| payload[at]),
            temporal_id: layout.temporal.map(|at| payload[at] >> 6),
            layer_sync: layout.temporal.is_some_and(|at| payload[at] & 0x20 != 0),
            header_len: layout.len,
            keyframe: start && partition == 0 && tag.is_some_and(|tag| tag & 1 == 0),
        })
    }
}

/// Writes a new picture id and TL0PICIDX where the descriptor has them, in their widths: a
/// picture id of 7 bits takes the low 7 bits.
///
/// # Errors
/// [`ParseError::TooShort`] where the payload ends within the descriptor; it is unchanged then.
pub fn rewrite_in_place(
    payload: &mut [u8],
    picture_id: Option<u16>,
    tl0_picture_index: Option<u8>,
) -> Result<(), ParseError> {
    layout(payload)?.ids.rewrite(payload, picture_id, tl0_picture_index);
    Ok(())
}

/// One RTP payload of a frame: descriptor and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The payload descriptor.
    pub descriptor: [u8; DESCRIPTOR_LEN],
    /// The part of the frame.
    pub data: &'a [u8],
    /// The frame ends here: the packet takes the marker.
    pub last: bool,
}

impl Chunk<'_> {
    /// Length of the payload.
    pub fn len(&self) -> usize {
        DESCRIPTOR_LEN + self.data.len()
    }

    /// A chunk is never empty.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the payload at the start of `out`; returns its length, or None where it does not
    /// fit.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.len())?;
        out[..DESCRIPTOR_LEN].copy_from_slice(&self.descriptor);
        out[DESCRIPTOR_LEN..].copy_from_slice(self.data);
        Some(self.len())
    }
}

/// Cuts a frame of one temporal layer into payloads of at most `mtu` bytes, all of about one
/// size. The picture id has 15 bits. An `mtu` that holds no data is taken as one that holds 1 byte.
pub fn packetize(
    frame: &[u8],
    mtu: usize,
    picture_id: u16,
    tl0_picture_index: u8,
) -> impl Iterator<Item = Chunk<'_>> {
    let room = mtu.saturating_sub(DESCRIPTOR_LEN).max(1);
    let count = frame.len().div_ceil(room).max(1);
    let size = frame.len().div_ceil(count).max(1);
    let [high, low] = picture_id.to_be_bytes();
    let count = frame.len().div_ceil(size);
    frame.chunks(size).enumerate().map(move |(i, data)| {
        let first = if i == 0 { 0x90 } else { 0x80 };
        // I, L and T: TL0PICIDX asks for the temporal layer's byte (RFC 7741 §4.2).
        let descriptor = [first, 0xE0, 0x80 | high, low, tl0_picture_index, 0];
        Chunk { descriptor, data, last: i + 1 == count }
    })
}

/// The start of a VP8 frame (RFC 6386 §9.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// A keyframe.
    pub keyframe: bool,
    /// Width and height in pixels, told by keyframes.
    pub size: Option<(u16, u16)>,
}

/// Reads the start of a frame (what follows the descriptor of its first packet).
///
/// # Errors
/// [`ParseError::TooShort`]; [`ParseError::BadValue`] for a keyframe without its start code.
pub fn frame_header(frame: &[u8]) -> Result<FrameHeader, ParseError> {
    let tag: &[u8; 3] = frame.first_chunk().ok_or(ParseError::TooShort)?;
    if tag[0] & 1 != 0 {
        return Ok(FrameHeader { keyframe: false, size: None });
    }
    let key: &[u8; 10] = frame.first_chunk().ok_or(ParseError::TooShort)?;
    if key[3..6] != [0x9D, 0x01, 0x2A] {
        return Err(ParseError::BadValue);
    }
    let side = |at| u16::from_le_bytes([key[at], key[at + 1]]) & 0x3FFF;
    Ok(FrameHeader { keyframe: true, size: Some((side(6), side(8))) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, hex};

    #[test]
    fn reads_descriptors_of_every_width() {
        let d = Descriptor::parse(&hex("10 00")).unwrap();
        assert!(d.start && d.keyframe && d.partition == 0 && d.header_len == 1);
        assert_eq!((d.picture_id, d.tl0_picture_index, d.temporal_id), (None, None, None));
        assert!(!Descriptor::parse(&hex("10 01")).unwrap().keyframe);
        assert!(!Descriptor::parse(&hex("11 00")).unwrap().keyframe);
        assert!(!Descriptor::parse(&hex("00 00")).unwrap().keyframe);
        assert!(!Descriptor::parse(&hex("10")).unwrap().keyframe);
        let d = Descriptor::parse(&hex("b0 80 11 01")).unwrap();
        assert_eq!((d.picture_id, d.picture_id_long, d.header_len), (Some(0x11), false, 3));
        assert!(d.non_reference && !d.keyframe);
        let d = Descriptor::parse(&hex("90 80 92 34 00")).unwrap();
        assert_eq!((d.picture_id, d.picture_id_long, d.header_len), (Some(0x1234), true, 4));
        assert!(d.keyframe);
        let d = Descriptor::parse(&hex("90 e0 92 34 56 a0 01")).unwrap();
        assert_eq!((d.tl0_picture_index, d.temporal_id, d.header_len), (Some(0x56), Some(2), 6));
        assert!(d.layer_sync);
        // KEYIDX alone takes the byte, too, and tells no layer.
        let d = Descriptor::parse(&hex("90 10 05 00")).unwrap();
        assert_eq!((d.temporal_id, d.header_len, d.keyframe), (None, 3, true));
        for cut in ["", "90", "90 80", "90 80 92", "90 e0 92 34", "90 e0 92 34 56", "90 10"] {
            assert_eq!(Descriptor::parse(&hex(cut)), Err(ParseError::TooShort), "{cut}");
        }
    }

    #[test]
    fn rewrites_in_the_width_that_is_there() {
        let mut payload = hex("90 e0 92 34 56 a0 01");
        rewrite_in_place(&mut payload, Some(0x7FFE), Some(9)).unwrap();
        assert_eq!(payload, hex("90 e0 ff fe 09 a0 01"));
        rewrite_in_place(&mut payload, None, Some(10)).unwrap();
        assert_eq!(payload, hex("90 e0 ff fe 0a a0 01"));
        let mut payload = hex("90 80 11 01");
        rewrite_in_place(&mut payload, Some(0x1FF), Some(9)).unwrap();
        assert_eq!(payload, hex("90 80 7f 01"));
        let mut payload = hex("10 01 02");
        rewrite_in_place(&mut payload, Some(5), Some(9)).unwrap();
        assert_eq!(payload, hex("10 01 02"));
        assert!(rewrite_in_place(&mut hex("90 80"), Some(5), None).is_err());
    }

    #[test]
    fn packets_of_a_frame_join_to_the_frame() {
        let mut frame = hex("10 02 00 9d 01 2a 00 05 d0 02");
        frame.resize(5000, 7);
        let mut joined = Vec::new();
        let chunks: Vec<_> = packetize(&frame, 1200, 0x7ABC, 5).collect();
        assert_eq!(chunks.len(), 5);
        for (i, chunk) in chunks.iter().enumerate() {
            let mut out = [0; 1200];
            let len = chunk.write(&mut out).unwrap();
            let d = Descriptor::parse(&out[..len]).unwrap();
            assert_eq!((d.picture_id, d.tl0_picture_index), (Some(0x7ABC), Some(5)));
            assert_eq!((d.temporal_id, d.header_len), (Some(0), DESCRIPTOR_LEN));
            assert_eq!((d.start, d.keyframe, chunk.last), (i == 0, i == 0, i == 4));
            joined.extend_from_slice(&out[d.header_len..len]);
            assert_eq!(chunk.write(&mut out[..len - 1]), None);
        }
        assert_eq!(joined, frame);
        let header = frame_header(&joined).unwrap();
        assert_eq!(header, FrameHeader { keyframe: true, size: Some((1280, 720)) });
        assert_eq!(packetize(&[1, 2], 0, 0, 0).count(), 2);
        assert_eq!(packetize(&[], 1200, 0, 0).count(), 0);
        assert!(!frame_header(&[1, 0, 0]).unwrap().keyframe);
        assert_eq!(frame_header(&[0; 10]), Err(ParseError::BadValue));
        assert_eq!(frame_header(&[0; 9]), Err(ParseError::TooShort));
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = Random::new(3);
        let mut buf = [0; 12];
        for _ in 0..100_000 {
            let len = random.below(12) as usize;
            random.bytes(&mut buf[..len]);
            let read = Descriptor::parse(&buf[..len]);
            let rewritten = rewrite_in_place(&mut buf[..len], Some(77), Some(3));
            assert_eq!(read.is_ok(), rewritten.is_ok());
            if let Ok(before) = read {
                let after = Descriptor::parse(&buf[..len]).unwrap();
                assert_eq!(after.picture_id, before.picture_id.map(|_| 77));
                assert_eq!(after.tl0_picture_index, before.tl0_picture_index.map(|_| 3));
                assert_eq!(
                    (after.header_len, after.keyframe),
                    (before.header_len, before.keyframe)
                );
            }
            let _ = frame_header(&buf[..len]);
        }
    }
}
