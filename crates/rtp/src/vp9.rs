//! VP9 in RTP (RFC 9628): the payload descriptor, read and changed in place.

use crate::error::ParseError;
use crate::picture_ids::PictureIds;

/// The most spatial layers of a picture (N_S has 3 bits).
pub const MOST_SPATIAL: usize = 8;
/// The most pictures that a picture names as its references (RFC 9628 §4.2).
pub const MOST_REFERENCES: usize = 3;

/// Which layer a packet's frame is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    /// Temporal layer, 0 being the base.
    pub temporal_id: u8,
    /// A receiver may switch up to this temporal layer here (U).
    pub switching_up: bool,
    /// Spatial layer, 0 being the base.
    pub spatial_id: u8,
    /// The frame needs the frame of the spatial layer below in the same picture (D).
    pub inter_layer: bool,
}

/// What a stream is made of (the scalability structure, RFC 9628 §4.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Structure {
    /// How many spatial layers there are, 1..=[`MOST_SPATIAL`].
    pub spatial_layers: u8,
    /// Width and height of each in pixels, if they are told; those past `spatial_layers` are (0, 0).
    pub sizes: Option<[(u16, u16); MOST_SPATIAL]>,
    /// How many pictures the described group has, if one is.
    pub pictures: Option<u8>,
}

/// A payload descriptor (RFC 9628 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Picture id, of 7 or 15 bits.
    pub picture_id: Option<u16>,
    /// The picture id has 15 bits.
    pub picture_id_long: bool,
    /// The frame needs earlier pictures (P).
    pub inter_picture: bool,
    /// References are told by packets themselves, not by the scalability structure (F).
    pub flexible: bool,
    /// The first packet of a frame: of one spatial layer of a picture (B).
    pub start: bool,
    /// The last packet of a frame (E).
    pub end: bool,
    /// No frame of a higher spatial layer needs this frame (Z).
    pub non_reference: bool,
    /// Its layer, if the stream tells layers.
    pub layer: Option<Layer>,
    /// Counts the pictures of the lowest temporal layer. None in flexible mode.
    pub tl0_picture_index: Option<u8>,
    references: [u8; MOST_REFERENCES],
    reference_count: u8,
    /// The scalability structure, if the packet carries it.
    pub structure: Option<Structure>,
    /// Length of the descriptor.
    pub header_len: usize,
    /// The first packet of a keyframe: of its lowest spatial layer.
    pub keyframe: bool,
}

/// Where the parts of a descriptor are.
struct Layout {
    ids: PictureIds,
    layer: Option<usize>,
    /// Where the references or the structure begin.
    rest: usize,
}

fn byte(payload: &[u8], at: usize) -> Result<u8, ParseError> {
    payload.get(at).copied().ok_or(ParseError::TooShort)
}

fn layout(payload: &[u8]) -> Result<Layout, ParseError> {
    let flags = byte(payload, 0)?;
    let mut layout = Layout { ids: PictureIds::default(), layer: None, rest: 1 };
    if flags & 0x80 != 0 {
        layout.ids.picture_id = Some(layout.rest);
        layout.ids.long = byte(payload, layout.rest)? & 0x80 != 0;
        layout.rest += if layout.ids.long { 2 } else { 1 };
    }
    if flags & 0x20 != 0 {
        layout.layer = Some(layout.rest);
        layout.rest += 1;
        if flags & 0x10 == 0 {
            layout.ids.tl0 = Some(layout.rest);
            layout.rest += 1;
        }
    }
    byte(payload, layout.rest - 1)?;
    Ok(layout)
}

/// The references of a frame in flexible mode (P_DIFF), and where they end.
fn references(
    payload: &[u8],
    mut at: usize,
) -> Result<([u8; MOST_REFERENCES], u8, usize), ParseError> {
    let mut references = [0; MOST_REFERENCES];
    for (count, reference) in (1..).zip(&mut references) {
        let next = byte(payload, at)?;
        at += 1;
        *reference = next >> 1;
        if next & 1 == 0 {
            return Ok((references, count, at));
        }
    }
    Err(ParseError::BadValue)
}

/// The scalability structure, and where it ends.
fn structure(payload: &[u8], mut at: usize) -> Result<(Structure, usize), ParseError> {
    let head = byte(payload, at)?;
    at += 1;
    let spatial_layers = (head >> 5) + 1;
    let mut sizes = None;
    if head & 0x10 != 0 {
        let mut each = [(0, 0); MOST_SPATIAL];
        for size in each.iter_mut().take(usize::from(spatial_layers)) {
            let four = payload.get(at..).and_then(<[u8]>::first_chunk);
            let [a, b, c, d] = *four.ok_or(ParseError::TooShort)?;
            *size = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            at += 4;
        }
        sizes = Some(each);
    }
    let mut pictures = None;
    if head & 0x08 != 0 {
        let count = byte(payload, at)?;
        at += 1;
        for _ in 0..count {
            at += 1 + usize::from(byte(payload, at)? >> 2 & 3);
        }
        pictures = Some(count);
    }
    byte(payload, at - 1)?;
    Ok((Structure { spatial_layers, sizes, pictures }, at))
}

/// Whether a frame that begins with this byte is a keyframe (VP9 bitstream specification §6.2).
fn is_keyframe(first: u8) -> bool {
    let marker = first >> 6 == 2;
    // Profile 3 has a reserved bit before `show_existing_frame` and `frame_type`.
    let bits = if first & 0x30 == 0x30 { first >> 1 } else { first >> 2 };
    marker && bits & 3 == 0
}

impl Descriptor {
    /// Reads the descriptor at the start of an RTP payload.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] where the payload ends within the descriptor; [`ParseError::BadValue`] for more than
    /// [`MOST_REFERENCES`] references.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let layout = layout(payload)?;
        let first = payload[0];
        let (inter_picture, flexible) = (first & 0x40 != 0, first & 0x10 != 0);
        let mut header_len = layout.rest;
        let (mut differences, mut reference_count) = ([0; MOST_REFERENCES], 0);
        if inter_picture && flexible {
            (differences, reference_count, header_len) = references(payload, header_len)?;
        }
        let mut told = None;
        if first & 0x02 != 0 {
            let (structure, end) = structure(payload, header_len)?;
            (told, header_len) = (Some(structure), end);
        }
        let layer = layout.layer.map(|at| Layer {
            temporal_id: payload[at] >> 5,
            switching_up: payload[at] & 0x10 != 0,
            spatial_id: payload[at] >> 1 & 7,
            inter_layer: payload[at] & 1 != 0,
        });
        let start = first & 0x08 != 0;
        let base = layer.is_none_or(|layer| layer.spatial_id == 0);
        let frame = payload.get(header_len).copied();
        Ok(Self {
            picture_id: layout.ids.picture_id(payload),
            picture_id_long: layout.ids.long,
            inter_picture,
            flexible,
            start,
            end: first & 0x04 != 0,
            non_reference: first & 0x01 != 0,
            layer,
            tl0_picture_index: layout.ids.tl0.map(|at| payload[at]),
            references: differences,
            reference_count,
            structure: told,
            header_len,
            keyframe: start && base && !inter_picture && frame.is_some_and(is_keyframe),
        })
    }

    /// How many pictures back each reference lies (P_DIFF). Empty outside flexible mode.
    pub fn references(&self) -> &[u8] {
        &self.references[..usize::from(self.reference_count)]
    }
}

/// Writes a new picture id and TL0PICIDX where the descriptor has them, in their widths: a
/// picture id of 7 or 15 bits takes as many of the low bits.
///
/// # Errors
/// [`ParseError::TooShort`] where the payload ends within them; it is unchanged then.
pub fn rewrite_in_place(
    payload: &mut [u8],
    picture_id: Option<u16>,
    tl0_picture_index: Option<u8>,
) -> Result<(), ParseError> {
    layout(payload)?.ids.rewrite(payload, picture_id, tl0_picture_index);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, hex};

    #[test]
    fn reads_descriptors_of_every_form() {
        // No picture id, no layers: the first packet of a keyframe.
        let d = Descriptor::parse(&hex("08 82")).unwrap();
        assert!(d.start && !d.end && d.keyframe && !d.inter_picture && !d.flexible);
        assert_eq!(
            (d.picture_id, d.layer, d.tl0_picture_index, d.header_len),
            (None, None, None, 1)
        );
        let d = Descriptor::parse(&hex("8d 11 82")).unwrap();
        assert_eq!((d.picture_id, d.picture_id_long, d.header_len), (Some(0x11), false, 2));
        assert!(d.end && d.non_reference && d.keyframe);
        // 15 bits, layers, TL0PICIDX: temporal layer 2, up-switch, spatial layer 1, inter-layer.
        let d = Descriptor::parse(&hex("e8 92 34 53 56 82")).unwrap();
        assert_eq!((d.picture_id, d.picture_id_long, d.header_len), (Some(0x1234), true, 5));
        let layer = Layer { temporal_id: 2, switching_up: true, spatial_id: 1, inter_layer: true };
        assert_eq!((d.layer, d.tl0_picture_index), (Some(layer), Some(0x56)));
        assert!(d.inter_picture && !d.keyframe && d.references().is_empty());
        // Flexible: no TL0PICIDX, two references.
        let d = Descriptor::parse(&hex("f0 05 24 03 04 82")).unwrap();
        let layer =
            Layer { temporal_id: 1, switching_up: false, spatial_id: 2, inter_layer: false };
        assert_eq!((d.layer, d.tl0_picture_index, d.header_len), (Some(layer), None, 5));
        assert_eq!((d.references(), d.flexible, d.start), (&[1, 2][..], true, false));
        let d = Descriptor::parse(&hex("50 03 05 06")).unwrap();
        assert_eq!((d.references(), d.header_len), (&[1, 2, 3][..], 4));
        // Flexible without prediction has no references.
        assert_eq!(Descriptor::parse(&hex("10 82")).unwrap().header_len, 1);
        assert_eq!(Descriptor::parse(&hex("50 03 05 07 08")), Err(ParseError::BadValue));
        for cut in ["", "80", "80 92", "a8 11", "a8 11 00", "b8 11", "50", "50 03", "02"] {
            assert_eq!(Descriptor::parse(&hex(cut)), Err(ParseError::TooShort), "{cut}");
        }
    }

    #[test]
    fn a_keyframe_starts_in_the_lowest_layer_with_a_frame_that_says_so() {
        let keyframe = |payload: &str| Descriptor::parse(&hex(payload)).unwrap().keyframe;
        assert!(keyframe("a8 11 00 05 82"));
        assert!(!keyframe("a0 11 00 05 82"), "not its first packet");
        assert!(!keyframe("a8 11 02 05 82"), "a higher spatial layer");
        assert!(!keyframe("e8 11 00 05 82"), "it needs an earlier picture");
        assert!(!keyframe("a8 11 00 05 86"), "no keyframe by its own header");
        assert!(!keyframe("a8 11 00 05 8a"), "an existing frame is shown");
        assert!(!keyframe("a8 11 00 05 42"), "no frame");
        assert!(!keyframe("a8 11 00 05"), "nothing of the frame");
        assert!(keyframe("a8 11 00 05 b0") && !keyframe("a8 11 00 05 b2"), "profile 3");
        assert!(!keyframe("a8 11 00 05 b4"), "profile 3, an existing frame");
    }

    #[test]
    fn reads_the_scalability_structure() {
        // Two spatial layers with sizes; a group of two pictures, the second with one reference.
        let whole = hex("0a 38 0140 00b4 0280 0168 02 00 24 01 82");
        let d = Descriptor::parse(&whole).unwrap();
        let structure = d.structure.unwrap();
        let sizes = structure.sizes.unwrap();
        assert_eq!((structure.spatial_layers, structure.pictures), (2, Some(2)));
        assert_eq!(sizes[..3], [(320, 180), (640, 360), (0, 0)]);
        assert_eq!((d.header_len, d.keyframe), (whole.len() - 1, true));
        for cut in 1..whole.len() - 1 {
            assert_eq!(Descriptor::parse(&whole[..cut]), Err(ParseError::TooShort), "{cut}");
        }
        let d = Descriptor::parse(&hex("0a e0 82")).unwrap();
        let bare = Structure { spatial_layers: 8, sizes: None, pictures: None };
        assert_eq!((d.structure, d.header_len), (Some(bare), 2));
        // It comes after the references.
        let d = Descriptor::parse(&hex("52 04 00 82")).unwrap();
        assert_eq!((d.references(), d.structure.unwrap().spatial_layers), (&[2][..], 1));
    }

    #[test]
    fn rewrites_in_the_width_that_is_there() {
        let rewritten = |payload: &str, id, index| {
            let mut payload = hex(payload);
            rewrite_in_place(&mut payload, id, index).map(|()| payload)
        };
        assert_eq!(
            rewritten("e8 92 34 53 56 82", Some(0x7FFE), Some(9)),
            Ok(hex("e8 ff fe 53 09 82"))
        );
        assert_eq!(
            rewritten("e8 92 34 53 56 82", Some(0x8001), None),
            Ok(hex("e8 80 01 53 56 82"))
        );
        assert_eq!(rewritten("88 11 82", Some(0x1FF), Some(9)), Ok(hex("88 7f 82")));
        assert_eq!(rewritten("b8 11 02 82", Some(3), Some(9)), Ok(hex("b8 03 02 82")), "flexible");
        assert_eq!(rewritten("28 02 05 82", Some(3), Some(9)), Ok(hex("28 02 09 82")));
        assert_eq!(rewritten("08 82", Some(3), Some(9)), Ok(hex("08 82")));
        assert_eq!(rewritten("80 92", Some(3), None), Err(ParseError::TooShort));
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = Random::new(9);
        let mut buf = [0; 60];
        let (mut read, mut structures) = (0, 0);
        for _ in 0..100_000 {
            let len = random.below(60) as usize;
            random.bytes(&mut buf[..len]);
            let Ok(before) = Descriptor::parse(&buf[..len]) else { continue };
            read += 1;
            structures += usize::from(before.structure.is_some());
            assert!(before.header_len <= len);
            rewrite_in_place(&mut buf[..len], Some(77), Some(3)).unwrap();
            let after = Descriptor::parse(&buf[..len]).unwrap();
            let wanted = Descriptor {
                picture_id: before.picture_id.map(|_| 77),
                tl0_picture_index: before.tl0_picture_index.map(|_| 3),
                ..before
            };
            assert_eq!(after, wanted);
        }
        assert!(read > 10_000 && structures > 1_000);
    }
}
