//! Redundant audio (RED, RFC 2198): a packet of sound with copies of those before it.

use crate::error::ParseError;
use std::ops::Range;

/// Set in the header of each block but the last, the primary one.
const FOLLOWS: u8 = 0x80;
/// Length of the header of a block that another follows.
const HEADER_LEN: usize = 4;
/// What one redundant block adds to a payload beside its bytes: its header, and that of the primary block.
pub const OVERHEAD: usize = HEADER_LEN + 1;
/// The longest payload that is repeated, in bytes. The header of a block tells lengths to 1023.
pub const MOST_BYTES: usize = 480;
/// A redundant block is less than so many units of the timestamp older than its packet.
const MOST_OFFSET: u32 = 1 << 14;
/// Most redundant blocks that are read of a payload.
const MOST_BLOCKS: usize = 4;

/// Where the primary block of a RED payload is: what the packet would be without redundancy.
///
/// # Errors
/// [`ParseError::TooShort`] where the headers or the redundant blocks do not fit.
pub fn primary(payload: &[u8]) -> Result<Range<usize>, ParseError> {
    let mut at = 0;
    let mut redundant = 0;
    loop {
        match header(payload, at)? {
            Some((_, len)) => {
                redundant += len;
                at += HEADER_LEN;
            }
            None => {
                let begin = at + 1 + redundant;
                let fits = begin <= payload.len();
                return if fits { Ok(begin..payload.len()) } else { Err(ParseError::TooShort) };
            }
        }
    }
}

/// Timestamp offset and length of the redundant block whose header begins at `at`; None at that of the primary block.
fn header(payload: &[u8], at: usize) -> Result<Option<(u32, usize)>, ParseError> {
    match payload.get(at..).unwrap_or_default() {
        [first, ..] if first & FOLLOWS == 0 => Ok(None),
        // Seven bits of payload type, 14 of timestamp offset, 10 of length.
        [_, second, third, fourth, ..] => {
            let bits = u32::from_be_bytes([0, *second, *third, *fourth]);
            Ok(Some((bits >> 10, (bits & 0x3FF) as usize)))
        }
        _ => Err(ParseError::TooShort),
    }
}

/// A packet of before that a payload repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// How many packets before the one that carries it.
    pub packets_back: u64,
    /// How much older its timestamp is.
    pub offset: u32,
    /// Where its bytes are in the payload.
    pub bytes: Range<usize>,
}

/// The packets of before that a RED payload repeats, the oldest first. Empty if the payload cannot be read, or if it repeats
/// more than anybody sends.
pub fn redundant(payload: &[u8]) -> impl Iterator<Item = Block> + use<> {
    let mut blocks = [const { None }; MOST_BLOCKS];
    let mut count = 0;
    while let Ok(Some((offset, len))) = header(payload, count * HEADER_LEN) {
        if count == MOST_BLOCKS {
            return blocks.into_iter().take(0).flatten();
        }
        blocks[count] = Some(Block { packets_back: 0, offset, bytes: 0..len });
        count += 1;
    }
    let mut at = count * HEADER_LEN + 1;
    for (nth, block) in blocks.iter_mut().flatten().enumerate() {
        block.packets_back = (count - nth) as u64;
        block.bytes = at..at + block.bytes.len();
        at = block.bytes.end;
    }
    let readable = if primary(payload).is_ok() { count } else { 0 };
    blocks.into_iter().take(readable).flatten()
}

/// The last packet of a stream, which the next one repeats.
#[derive(Debug)]
pub struct Previous {
    sequence: u16,
    timestamp: u32,
    len: usize,
    bytes: [u8; MOST_BYTES],
}

impl Default for Previous {
    fn default() -> Self {
        Self { sequence: 0, timestamp: 0, len: 0, bytes: [0; MOST_BYTES] }
    }
}

impl Previous {
    /// What stands before the payload of the packet that comes right after this one: the headers of both blocks, and this
    /// packet's bytes. None if there is nothing to repeat: the packet is not the next one, or much later.
    #[inline]
    pub fn before(
        &self,
        payload_type: u8,
        sequence: u16,
        timestamp: u32,
    ) -> Option<([u8; OVERHEAD], &[u8])> {
        let offset = timestamp.wrapping_sub(self.timestamp);
        let next = self.len > 0 && sequence == self.sequence.wrapping_add(1);
        if !next || !(1..MOST_OFFSET).contains(&offset) {
            return None;
        }
        let [_, second, third, fourth] = (offset << 10 | self.len as u32).to_be_bytes();
        let payload_type = payload_type & !FOLLOWS;
        let headers = [FOLLOWS | payload_type, second, third, fourth, payload_type];
        Some((headers, &self.bytes[..self.len]))
    }

    /// This packet is the last one now, unless it is late. Nothing is repeated of one that is long.
    #[inline]
    pub fn keep(&mut self, sequence: u16, timestamp: u32, payload: &[u8]) {
        if self.len > 0 && sequence.wrapping_sub(self.sequence) > u16::MAX / 2 {
            return;
        }
        (self.sequence, self.timestamp, self.len) = (sequence, timestamp, 0);
        if let Some(place) = self.bytes.get_mut(..payload.len()) {
            place.copy_from_slice(payload);
            self.len = payload.len();
        }
    }
}

/// Which of the last 64 packets of a stream came, by numbers that do not wrap.
#[derive(Debug, Clone, Copy, Default)]
pub struct Came {
    newest: Option<u64>,
    /// Bit N: the number N before the newest one.
    bits: u64,
}

impl Came {
    /// A packet came. Says whether it is the first with this number. One that is older than all that is known counts as the
    /// first.
    #[inline]
    pub fn take(&mut self, number: u64) -> bool {
        let Some(newest) = self.newest else {
            // What was before the first packet is not missed.
            (self.newest, self.bits) = (Some(number), u64::MAX);
            return true;
        };
        if number > newest {
            self.newest = Some(number);
            self.bits = u32::try_from(number - newest)
                .ok()
                .and_then(|by| self.bits.checked_shl(by))
                .unwrap_or(0)
                | 1;
            return true;
        }
        let Some(bit) = Self::bit(newest, number) else { return true };
        let first = self.bits & bit == 0;
        self.bits |= bit;
        first
    }

    /// Whether a number before the newest one is known to be missing.
    fn misses(&self, number: u64) -> bool {
        let bit = self
            .newest
            .filter(|newest| number < *newest)
            .and_then(|newest| Self::bit(newest, number));
        bit.is_some_and(|bit| self.bits & bit == 0)
    }

    /// Whether a number has not come, before the newest one or after it. Nothing is lacking before the first one.
    pub fn lacks(&self, number: u64) -> bool {
        self.newest.is_some_and(|newest| number > newest) || self.misses(number)
    }

    fn bit(newest: u64, number: u64) -> Option<u64> {
        let back = u32::try_from(newest - number).ok()?;
        1_u64.checked_shl(back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two redundant blocks of 3 and 300 bytes, offsets 1920 and 960, and a primary one of 4 bytes.
    fn two_levels() -> Vec<u8> {
        let block =
            |offset: u32, len: u32| (0x80 << 24 | 111 << 24 | offset << 10 | len).to_be_bytes();
        let mut payload = [block(1920, 3), block(960, 300)].concat();
        payload.push(111);
        payload.extend([1; 3]);
        payload.extend([2; 300]);
        payload.extend([3; 4]);
        payload
    }

    #[test]
    fn the_primary_block_is_the_last() {
        let payload = two_levels();
        assert_eq!(payload[primary(&payload).unwrap()], [3; 4]);
        assert_eq!(primary(&[111, 9, 9]), Ok(1..3), "no redundancy");
        assert_eq!(primary(&[111]), Ok(1..1), "nothing in it");
        for end in 0..payload.len() - 4 {
            assert_eq!(primary(&payload[..end]), Err(ParseError::TooShort), "{end}");
        }
    }

    #[test]
    fn redundant_blocks_are_those_before_and_nothing_that_cannot_be_read() {
        let payload = two_levels();
        let found: Vec<Block> = redundant(&payload).collect();
        let told: Vec<_> = found.iter().map(|block| (block.packets_back, block.offset)).collect();
        assert_eq!(told, [(2, 1920), (1, 960)]);
        assert_eq!(payload[found[0].bytes.clone()], [1; 3]);
        assert_eq!(payload[found[1].bytes.clone()], [2; 300]);
        for end in 0..payload.len() - 4 {
            assert_eq!(redundant(&payload[..end]).count(), 0, "{end}");
        }
        assert_eq!(redundant(&[111, 1, 2]).count(), 0);
        assert_eq!(redundant(&[0x80 | 111; 4000]).count(), 0);
    }

    #[test]
    fn a_packet_repeats_the_one_before_and_no_other() {
        let mut previous = Previous::default();
        assert_eq!(previous.before(111, 1, 960), None, "nothing was kept");
        previous.keep(65_535, u32::MAX - 100, &[7; 90]);
        let (headers, bytes) = previous.before(96, 0, 859).unwrap();
        let payload = [&headers, bytes, &[8; 50]].concat();
        assert_eq!(payload[primary(&payload).unwrap()], [8; 50]);
        let block = redundant(&payload).next().unwrap();
        assert_eq!((block.packets_back, block.offset), (1, 960));
        assert_eq!(payload[block.bytes], [7; 90]);
        assert_eq!((payload[0], payload[4]), (0x80 | 96, 96));
        assert_eq!(previous.before(96, 1, 859), None, "one between them is lost");
        assert_eq!(previous.before(96, 0, u32::MAX - 100), None, "no older");
        assert_eq!(
            previous.before(96, 0, (u32::MAX - 100).wrapping_add(MOST_OFFSET)),
            None,
            "too old"
        );
        previous.keep(65_534, u32::MAX - 1060, &[7; 90]);
        assert!(previous.before(96, 0, 859).is_some(), "a late one changes nothing");
        previous.keep(0, 859, &[7; MOST_BYTES + 1]);
        assert_eq!(previous.before(96, 1, 1819), None, "too long");
    }

    #[test]
    fn what_came_is_known_for_64_packets() {
        let mut came = Came::default();
        assert!(came.take(100) && !came.misses(99), "nothing is missed before the first");
        assert!(came.take(103) && came.misses(101) && came.misses(102) && !came.misses(100));
        assert!(!came.misses(103) && !came.misses(104) && came.lacks(104) && !came.lacks(103));
        assert!(came.take(102) && !came.take(102) && !came.misses(102));
        assert!(came.take(166) && came.misses(165) && !came.misses(102) && !came.misses(101));
        assert!(came.take(1) && came.take(1), "too old to be known");
        assert!(came.take(u64::MAX - 1) && came.misses(u64::MAX - 2));
    }
}
