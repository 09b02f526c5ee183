//! A grey picture in VP8, which bots show where only the sizes of frames are known. It takes so few bytes that most recorded
//! frames have room for it. A decoder shows it, and passes over the bytes that follow.

use super::blocks;

/// The coder of RFC 6386 §7.3: bits, each with the probability of a zero in 256ths.
struct Coder {
    out: Vec<u8>,
    bottom: u32,
    range: u32,
    /// Bits until the next byte is whole.
    left: u32,
}

impl Coder {
    fn new() -> Self {
        Self { out: Vec::new(), bottom: 0, range: 255, left: 24 }
    }

    fn put(&mut self, probability: u8, bit: bool) {
        let split = 1 + (((self.range - 1) * u32::from(probability)) >> 8);
        if bit {
            let (bottom, carries) = self.bottom.overflowing_add(split);
            debug_assert!(!carries, "the bottom has a bit to spare");
            self.bottom = bottom;
            self.range -= split;
        } else {
            self.range = split;
        }
        while self.range < 128 {
            self.range <<= 1;
            self.shift();
        }
    }

    fn shift(&mut self) {
        if self.bottom & 1 << 31 != 0 {
            // A carry goes into what has left.
            for byte in self.out.iter_mut().rev() {
                *byte = byte.wrapping_add(1);
                if *byte != 0 {
                    break;
                }
            }
        }
        self.bottom <<= 1;
        self.left -= 1;
        if self.left == 0 {
            self.out.push((self.bottom >> 24) as u8);
            self.bottom &= 0x00FF_FFFF;
            self.left = 8;
        }
    }

    /// A number of so many bits, each as likely as not.
    fn number(&mut self, bits: u32, value: u32) {
        (0..bits).rev().for_each(|bit| self.put(128, value >> bit & 1 == 1));
    }

    fn flag(&mut self, flag: bool) {
        self.number(1, u32::from(flag));
    }

    /// The 1056 flags of §13.4, none set: all probabilities of coefficients stay as they are. From where both kinds of
    /// frames come to them, together they leave the range and the shifts below.
    fn coefficients_stay(&mut self) {
        const RANGE: u32 = 193;
        const SHIFTS: u32 = 14;
        debug_assert_eq!(self.range, 128, "the flags before are zeros, or even odds");
        self.range = RANGE;
        (0..SHIFTS).for_each(|_| self.shift());
    }

    fn finish(mut self) -> Vec<u8> {
        (0..32).for_each(|_| self.shift());
        self.out
    }
}

/// What both kinds of frames begin with (§9.3 to §9.6): one segment, no loop filter, one partition, the finest quantizer.
fn begin(keyframe: bool) -> Coder {
    let mut coder = Coder::new();
    // Keyframes begin with the colour space and how values are clamped.
    let bits = if keyframe { 2 } else { 0 };
    // Segmentation; the filter's type, level and sharpness, and its adjustments; partitions; quantizers.
    coder.number(bits + 1, 0);
    coder.number(1 + 6 + 3 + 1, 0);
    coder.number(2, 0);
    coder.number(7 + 5, 0);
    coder
}

/// A keyframe of a grey picture: all blocks are what their neighbours are, without coefficients.
pub(in super::super) fn keyframe(width: u16, height: u16) -> Vec<u8> {
    let mut coder = begin(true);
    coder.flag(true); // probabilities stay for later frames
    coder.coefficients_stay();
    coder.flag(true); // blocks may have no coefficients…
    coder.number(8, 1); // …and hardly any has some
    for _ in 0..blocks(width) * blocks(height) {
        coder.put(1, true);
        // DC_PRED in the tree of §11.2, then for the colours.
        coder.put(145, true);
        coder.put(156, false);
        coder.put(163, false);
        coder.put(142, false);
    }
    let [width, height] = [width, height].map(u16::to_le_bytes);
    let start = [0x9D, 0x01, 0x2A, width[0], width[1], height[0], height[1]];
    frame(true, &start, &coder.finish())
}

/// A frame that repeats the one before it.
pub(in super::super) fn delta(width: u16, height: u16) -> Vec<u8> {
    /// Probabilities that those of motion stay (§17.2), of rows, then of columns.
    const MOTION: [[u8; 19]; 2] = [
        [
            237, 246, 253, 253, 254, 254, 254, 254, 254, 254, 254, 254, 254, 254, 250, 250, 252,
            254, 254,
        ],
        [
            231, 243, 245, 253, 254, 254, 254, 254, 254, 254, 254, 254, 254, 254, 251, 251, 254,
            254, 254,
        ],
    ];
    let mut coder = begin(false);
    // No refresh of the golden frame or the other one, no copies to them, no signs.
    coder.number(1 + 1 + 2 + 2 + 1 + 1, 0);
    coder.flag(true); // probabilities stay for later frames
    coder.flag(true); // it is the last frame from now on
    coder.coefficients_stay();
    coder.flag(true);
    coder.number(8, 1);
    coder.number(8, 1); // hardly any block is coded by itself,
    coder.number(8, 255); // nearly all are of the last frame,
    coder.number(8, 128); // and how likely the golden one is does not matter
    coder.number(2, 0); // modes keep their probabilities
    MOTION.iter().flatten().for_each(|probability| coder.put(*probability, false));
    for row in 0..blocks(height) {
        for column in 0..blocks(width) {
            coder.put(1, true); // no coefficients
            coder.put(1, true); // of another frame
            coder.put(255, false); // the last one
            coder.put(no_motion(row > 0, column > 0), false);
        }
    }
    frame(false, &[], &coder.finish())
}

/// How likely a block does not move (§18.3), by whether its neighbours above and to the left are within the picture: they
/// do not move either.
fn no_motion(above: bool, left: bool) -> u8 {
    match (above, left) {
        (false, false) => 7,
        (true, false) | (false, true) => 135,
        (true, true) => 234,
    }
}

/// The frame's tag (§9.1), what a keyframe has behind it, and the first partition. The second begins where that ends, and has
/// nothing in it.
fn frame(keyframe: bool, start: &[u8], partition: &[u8]) -> Vec<u8> {
    const SHOWN: u32 = 1 << 4;
    let tag = (partition.len() as u32) << 5 | SHOWN | u32::from(!keyframe);
    [&tag.to_le_bytes()[..3], start, partition, &[0; 2]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_say_their_size_and_stay_small() {
        for (width, height) in [(1280, 720), (1920, 1080), (2, 2)] {
            let key = keyframe(width, height);
            let head = rtp::vp8::frame_header(&key).unwrap();
            assert_eq!((head.keyframe, head.size), (true, Some((width, height))));
            assert!(key.len() < 5000, "{} bytes", key.len());
            let delta = delta(width, height);
            assert!(!rtp::vp8::frame_header(&delta).unwrap().keyframe);
            assert!(delta.len() < 250, "{} bytes", delta.len());
        }
    }

    #[test]
    fn a_coder_carries_into_what_has_left() {
        let mut coder = Coder::new();
        (0..200).for_each(|at| coder.put(200, at % 3 != 0));
        let out = coder.finish();
        let mut reader = Reader { data: &out, value: 0, range: 255, at: 0 };
        assert!((0..200).all(|at| reader.get(200) == (at % 3 != 0)));
    }

    /// Reads what a [`Coder`] wrote, bit by bit.
    struct Reader<'a> {
        data: &'a [u8],
        value: u32,
        range: u32,
        at: usize,
    }

    impl Reader<'_> {
        fn next_bit(&mut self) -> u32 {
            let byte = self.data.get(self.at / 8).copied().unwrap_or(0);
            let bit = byte >> (7 - self.at % 8) & 1;
            self.at += 1;
            u32::from(bit)
        }

        fn get(&mut self, probability: u8) -> bool {
            while self.at < 8 {
                self.value = self.value << 1 | self.next_bit();
            }
            let split = 1 + (((self.range - 1) * u32::from(probability)) >> 8);
            let bit = self.value >= split;
            if bit {
                self.value -= split;
                self.range -= split;
            } else {
                self.range = split;
            }
            while self.range < 128 {
                self.range <<= 1;
                self.value = self.value << 1 | self.next_bit();
            }
            bit
        }
    }
}
