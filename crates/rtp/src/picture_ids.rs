//! Where a payload descriptor counts its pictures: VP8 (RFC 7741 §4.2) and VP9 (RFC 9628 §4.2) write it alike.

/// Offsets of the picture id and of TL0PICIDX in a payload that is long enough for both.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PictureIds {
    pub picture_id: Option<usize>,
    /// The picture id has 15 bits, not 7.
    pub long: bool,
    pub tl0: Option<usize>,
}

impl PictureIds {
    /// The picture id.
    pub fn picture_id(&self, payload: &[u8]) -> Option<u16> {
        self.picture_id.map(|at| match self.long {
            true => u16::from_be_bytes([payload[at] & 0x7F, payload[at + 1]]),
            false => u16::from(payload[at] & 0x7F),
        })
    }

    /// Writes others where there are some, in their widths: a picture id takes the low bits.
    pub fn rewrite(&self, payload: &mut [u8], picture_id: Option<u16>, tl0: Option<u8>) {
        if let (Some(at), Some(id)) = (self.picture_id, picture_id) {
            let [high, low] = id.to_be_bytes();
            match self.long {
                true => payload[at..at + 2].copy_from_slice(&[0x80 | high, low]),
                false => payload[at] = low & 0x7F,
            }
        }
        if let (Some(at), Some(index)) = (self.tl0, tl0) {
            payload[at] = index;
        }
    }
}
