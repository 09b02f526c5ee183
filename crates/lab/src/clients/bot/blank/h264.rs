//! A grey picture in H.264 (ITU-T H.264, constrained baseline), of almost any number of bytes. To make it larger, more of its
//! macroblocks are written out sample by sample.

use super::blocks;

/// First bytes of a slice's unit. They differ each time that it is sent, see [`numbered`].
pub(in super::super) const NUMBERED: usize = 4;
/// Bytes of a macroblock that is written out. `mb_type` and zeros fill two bytes, and 384 samples follow.
const WRITTEN: usize = 2 + 384;
/// Bits of a macroblock that is predicted, in a slice between keyframes.
const PREDICTED_BITS: usize = 11;
/// Bits of a frame's number in the headers of slices.
const FRAME_NUMBER_BITS: u32 = 8;
/// The largest picture of level 3.1, in macroblocks.
const LEVEL_31: usize = 3600;

/// Bits of a NAL unit. None of what is written here has two bytes of zeros in a row, which would have to be escaped.
struct Bits {
    out: Vec<u8>,
    /// Bits of the last byte that are free.
    free: u32,
}

impl Bits {
    fn unit(header: u8) -> Self {
        Self { out: vec![header], free: 0 }
    }

    fn put(&mut self, bits: u32, value: u32) {
        for bit in (0..bits).rev() {
            if self.free == 0 {
                self.out.push(0);
                self.free = 8;
            }
            self.free -= 1;
            if let Some(last) = self.out.last_mut() {
                *last |= ((value >> bit & 1) as u8) << self.free;
            }
        }
    }

    /// ue(v) of §9.1.
    fn number(&mut self, value: u32) {
        let bits = (value + 1).ilog2();
        self.put(bits, 0);
        self.put(bits + 1, value + 1);
    }

    fn align(&mut self) {
        self.free = 0;
    }

    fn finish(mut self) -> Vec<u8> {
        self.put(1, 1);
        self.out
    }
}

/// Sequence and picture parameter set (§7.3.2.1, §7.3.2.2) of pictures of this size, as one payload (STAP-A, RFC 6184 §5.7.1).
pub(in super::super) fn parameter_sets(width: u16, height: u16) -> Vec<u8> {
    let (across, down) = (blocks(width), blocks(height));
    let mut sequence = Bits::unit(0x67);
    sequence.put(8, 66);
    sequence.put(8, 0xE0);
    sequence.put(8, if across * down <= LEVEL_31 { 31 } else { 40 });
    sequence.number(0);
    sequence.number(FRAME_NUMBER_BITS - 4);
    sequence.number(2); // pictures are shown in the order in which they come
    sequence.number(1);
    sequence.put(1, 0);
    sequence.number(across as u32 - 1);
    sequence.number(down as u32 - 1);
    sequence.put(2, 0b11);
    let over = |blocks: usize, pixels: u16| (blocks * 16 - usize::from(pixels)) as u32 / 2;
    let (right, bottom) = (over(across, width), over(down, height));
    let cut = right + bottom > 0;
    sequence.put(1, u32::from(cut));
    if cut {
        for side in [0, right, 0, bottom] {
            sequence.number(side);
        }
    }
    sequence.put(1, 0);
    let mut picture = Bits::unit(0x68);
    picture.number(0);
    picture.number(0);
    picture.put(2, 0);
    (0..3).for_each(|_| picture.number(0));
    picture.put(3, 0);
    (0..3).for_each(|_| picture.number(0));
    picture.put(3, 0b100); // slices say how they are filtered
    let mut payload = vec![0x78];
    for unit in [sequence.finish(), picture.finish()] {
        payload.extend((unit.len() as u16).to_be_bytes());
        payload.extend(unit);
    }
    payload
}

/// The slice of a picture while it is written.
struct Slice {
    bits: Bits,
    across: usize,
    /// Macroblocks that are written out, which are the first ones.
    written: usize,
}

impl Slice {
    fn write_out(&mut self, mb_type: u32) {
        self.bits.number(mb_type);
        self.bits.align();
        self.bits.out.extend([0x80; 384]);
    }

    /// A macroblock that is the mean of its neighbours, without coefficients. How "none" is said depends on how many coefficients
    /// the neighbours have (§9.2.1); one that is written out counts as 16.
    fn predict(&mut self, at: usize, mb_type: u32) {
        self.bits.number(mb_type);
        self.bits.put(2, 0b11);
        let is_written = |block: Option<usize>| block.is_some_and(|block| block < self.written);
        let left = at.checked_sub(1).filter(|_| !at.is_multiple_of(self.across));
        match is_written(left) || is_written(at.checked_sub(self.across)) {
            false => self.bits.put(1, 1),
            true => self.bits.put(6, 0b00_0011),
        }
    }
}

/// A keyframe's slice, an IDR picture (§7.3.2.8) of about so many bytes. It takes a byte a macroblock at least.
pub(in super::super) fn keyframe(width: u16, height: u16, bytes: usize) -> Vec<u8> {
    let (across, all) = (blocks(width), blocks(width) * blocks(height));
    // The row below those that are written out takes 5 bits more each.
    let more = bytes.saturating_sub(all + 10 + across * 5 / 8);
    let written = ((more + WRITTEN / 2) / (WRITTEN - 1)).clamp(1, all);
    let mut bits = Bits::unit(0x65);
    bits.number(0);
    bits.number(7);
    bits.number(0);
    bits.put(FRAME_NUMBER_BITS, 0);
    bits.number(1); // idr_pic_id, see `numbered`
    bits.put(2, 0);
    bits.number(0);
    bits.number(1); // nothing is filtered
    let mut slice = Slice { bits, across, written };
    (0..written).for_each(|_| slice.write_out(25));
    (written..all).for_each(|at| slice.predict(at, 3));
    slice.bits.finish()
}

/// The slice of a frame that repeats the one before it, of about so many bytes.
pub(in super::super) fn delta(width: u16, height: u16, bytes: usize) -> Vec<u8> {
    let (across, all) = (blocks(width), blocks(width) * blocks(height));
    let more = bytes.saturating_sub(8);
    let written = (more / WRITTEN).min(all);
    let predicted = ((more - written * WRITTEN) * 8 / PREDICTED_BITS).min(all - written);
    let mut bits = Bits::unit(0x61);
    bits.number(0);
    bits.number(5);
    bits.number(0);
    bits.put(FRAME_NUMBER_BITS, 0);
    bits.put(3, 0);
    bits.number(0);
    bits.number(1);
    let mut slice = Slice { bits, across, written };
    for _ in 0..written {
        slice.bits.number(0);
        slice.write_out(5 + 25);
    }
    for at in written..written + predicted {
        slice.bits.number(0);
        slice.predict(at, 5 + 3);
    }
    let rest = all - written - predicted;
    if rest > 0 {
        slice.bits.number(rest as u32);
    }
    slice.bits.finish()
}

/// The first bytes of a slice when it is sent. They hold its number since the last keyframe. Those of a keyframe tell odd ones
/// from even ones, since two in a row must differ (§7.4.3).
pub(in super::super) fn numbered(unit: &[u8], keyframes: u64, since: u8) -> [u8; NUMBERED] {
    let mut first = [0; NUMBERED];
    for (to, from) in first.iter_mut().zip(unit) {
        *to = *from;
    }
    match first[0] & 0x1F {
        5 => first[3] |= if keyframes % 2 == 1 { 0x10 } else { 0 },
        _ => {
            first[1] |= since >> 7;
            first[2] |= since << 1;
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_about_the_bytes_that_are_asked_for() {
        for (width, height) in [(640, 360), (1280, 720), (1920, 1080)] {
            assert_eq!(rtp::h264::size(&parameter_sets(width, height)), Some((width, height)));
            for bytes in [1, 15, 101, 500, 4000, 23_190, 114_407, 233_456] {
                let delta = delta(width, height, bytes);
                let off = delta.len().abs_diff(bytes);
                assert!(off <= 12 + bytes / 50, "{bytes} bytes: {} are", delta.len());
                let keyframe = keyframe(width, height, bytes);
                let least = blocks(width) * blocks(height) + 400;
                let off = keyframe.len().abs_diff(bytes.max(least));
                assert!(off < 200, "{bytes} bytes: {} are", keyframe.len());
                for unit in [delta, keyframe] {
                    assert!(unit.len() > NUMBERED);
                    assert!(unit.windows(2).all(|pair| pair != [0, 0]), "to be escaped");
                }
            }
        }
    }
}
