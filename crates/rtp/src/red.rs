//! Redundant audio (RED, RFC 2198): a packet of sound with copies of those before it.

use crate::error::ParseError;
use std::ops::Range;

/// Set in the header of each block but the last, the primary one.
const FOLLOWS: u8 = 0x80;
/// Length of the header of a block that another follows.
const HEADER_LEN: usize = 4;
/// The longest payload that is repeated, in bytes, and the most bytes of two copies. The header of a block tells lengths to 1023.
pub const MOST_BYTES: usize = 480;
/// How many packets before the one that carries it a second copy is. Losses come in runs: it is not right before the first.
const OLDER: u16 = 3;
/// Most copies in a packet that is made here.
pub const MOST_COPIES: usize = 2;
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
    /// How many packets before the one that carries it: the newest block is the packet before, and time tells of the others.
    pub packets_back: u64,
    /// How much older its timestamp is.
    pub offset: u32,
    /// Where its bytes are in the payload.
    pub bytes: Range<usize>,
}

/// The packets of before that a RED payload repeats, the oldest first. Empty if the payload cannot be read, or if it repeats
/// more than anybody sends. Packets that do not all last as long as the newest block are left out.
pub fn redundant(payload: &[u8]) -> impl Iterator<Item = Block> + use<> {
    let mut blocks = [const { None }; MOST_BLOCKS];
    let (mut count, mut newest) = (0, 0);
    while let Ok(Some((offset, len))) = header(payload, count * HEADER_LEN) {
        let Some(place) = blocks.get_mut(count) else { break };
        *place = Some(Block { packets_back: 0, offset, bytes: 0..len });
        (count, newest) = (count + 1, offset);
    }
    let mut at = count * HEADER_LEN + 1;
    for block in blocks.iter_mut().flatten() {
        block.bytes = at..at + block.bytes.len();
        at = block.bytes.end;
        let whole = newest > 0 && block.offset.is_multiple_of(newest);
        block.packets_back = if whole { u64::from(block.offset / newest) } else { 0 };
    }
    let few = !matches!(header(payload, count * HEADER_LEN), Ok(Some(_)));
    let readable = if few && primary(payload).is_ok() { count } else { 0 };
    blocks.into_iter().take(readable).flatten().filter(|block| block.packets_back > 0)
}

/// A packet of sound that later ones may repeat.
#[derive(Debug, Clone, Copy)]
struct Kept {
    sequence: u16,
    timestamp: u32,
    len: usize,
    bytes: [u8; MOST_BYTES],
}

/// The last packets of a stream, which the next one repeats: the one before it, and an older one if so many copies are
/// wanted.
#[derive(Debug)]
pub struct Recent {
    copies: usize,
    /// By sequence number.
    kept: [Kept; OLDER as usize + 1],
}

/// What stands before the payload of a packet: the headers of all blocks, and the copies, the oldest first.
#[derive(Debug, Default)]
pub struct Copies<'a> {
    headers: [u8; MOST_COPIES * HEADER_LEN + 1],
    headers_len: usize,
    bytes: [&'a [u8]; MOST_COPIES],
}

impl<'a> Copies<'a> {
    fn push(&mut self, kept: &'a Kept, payload_type: u8, offset: u32) {
        let place = self.headers_len / HEADER_LEN;
        let mut header = (offset << 10 | kept.len as u32).to_be_bytes();
        header[0] = FOLLOWS | payload_type;
        self.headers[self.headers_len..][..HEADER_LEN].copy_from_slice(&header);
        self.headers_len += HEADER_LEN;
        self.bytes[place] = &kept.bytes[..kept.len];
    }

    /// What stands before the payload, in order.
    pub fn parts(&self) -> [&[u8]; 1 + MOST_COPIES] {
        [&self.headers[..self.headers_len], self.bytes[0], self.bytes[1]]
    }
}

impl Recent {
    /// Nothing is there to be repeated yet. Each packet repeats so many, one or two.
    pub fn new(copies: usize) -> Self {
        let none = Kept { sequence: 0, timestamp: 0, len: 0, bytes: [0; MOST_BYTES] };
        Self { copies, kept: [none; OLDER as usize + 1] }
    }

    /// Each packet of a stream repeats so many from now on. What is kept goes with the last copy.
    pub fn repeat(recent: &mut Option<Box<Self>>, copies: usize) {
        match recent {
            _ if copies == 0 => *recent = None,
            Some(recent) => recent.copies = copies,
            None => *recent = Some(Box::new(Self::new(copies))),
        }
    }

    /// A packet so many before this one, and how much older it is.
    fn back(&self, by: u16, sequence: u16, timestamp: u32) -> Option<(&Kept, u32)> {
        let wanted = sequence.wrapping_sub(by);
        let kept = &self.kept[usize::from(wanted) % self.kept.len()];
        let offset = timestamp.wrapping_sub(kept.timestamp);
        let fits = (1..MOST_OFFSET).contains(&offset);
        (kept.len > 0 && kept.sequence == wanted && fits).then_some((kept, offset))
    }

    /// What stands before the payload of a packet. None if there is nothing to repeat: the packet before it is not known, or
    /// much older.
    #[inline]
    pub fn before(&self, payload_type: u8, sequence: u16, timestamp: u32) -> Option<Copies<'_>> {
        let (last, offset) = self.back(1, sequence, timestamp)?;
        let payload_type = payload_type & !FOLLOWS;
        let mut copies = Copies::default();
        // Receivers count packets by time: what lies between must have lasted as long as the last one.
        let counted = |(older, by): &(&Kept, u32)| {
            older.len + last.len <= MOST_BYTES && *by == offset * u32::from(OLDER)
        };
        let older = self.back(OLDER, sequence, timestamp).filter(counted);
        if let Some((older, by)) = older.filter(|_| self.copies > 1) {
            copies.push(older, payload_type, by);
        }
        copies.push(last, payload_type, offset);
        copies.headers[copies.headers_len] = payload_type;
        copies.headers_len += 1;
        Some(copies)
    }

    /// A packet left: later ones repeat it, unless it is late or long.
    #[inline]
    pub fn keep(&mut self, sequence: u16, timestamp: u32, payload: &[u8]) {
        let place = usize::from(sequence) % self.kept.len();
        let kept = &mut self.kept[place];
        if kept.len > 0 && sequence.wrapping_sub(kept.sequence) > u16::MAX / 2 {
            return;
        }
        (kept.sequence, kept.timestamp, kept.len) = (sequence, timestamp, 0);
        if let Some(place) = kept.bytes.get_mut(..payload.len()) {
            place.copy_from_slice(payload);
            kept.len = payload.len();
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

    /// The payload of a packet that carries these copies.
    fn payload(copies: &Copies<'_>, opus: &[u8]) -> Vec<u8> {
        [&copies.parts().concat(), opus].concat()
    }

    #[test]
    fn a_packet_repeats_the_one_before_and_no_other() {
        let mut recent = Recent::new(1);
        assert!(recent.before(111, 1, 960).is_none(), "nothing was kept");
        recent.keep(65_535, u32::MAX - 100, &[7; 90]);
        let payload = payload(&recent.before(96, 0, 859).unwrap(), &[8; 50]);
        assert_eq!(payload[primary(&payload).unwrap()], [8; 50]);
        let block = redundant(&payload).next().unwrap();
        assert_eq!((block.packets_back, block.offset), (1, 960));
        assert_eq!(payload[block.bytes], [7; 90]);
        assert_eq!((payload[0], payload[4]), (0x80 | 96, 96));
        assert!(recent.before(96, 1, 859).is_none(), "one between them is lost");
        assert!(recent.before(96, 0, u32::MAX - 100).is_none(), "no older");
        let old = (u32::MAX - 100).wrapping_add(MOST_OFFSET);
        assert!(recent.before(96, 0, old).is_none(), "too old");
        recent.keep(65_534, u32::MAX - 1060, &[7; 90]);
        assert!(recent.before(96, 0, 859).is_some(), "a late one changes nothing");
        recent.keep(0, 859, &[7; MOST_BYTES + 1]);
        assert!(recent.before(96, 1, 1819).is_none(), "too long");
    }

    /// (packets back, first byte of the copy) of what packet `n` repeats; packet N is of N, and `ticks` long.
    fn repeats(recent: &Recent, n: u16, ticks: u32) -> Vec<(u64, u8)> {
        let Some(copies) = recent.before(111, n, u32::from(n) * ticks) else { return Vec::new() };
        let payload = payload(&copies, &[255]);
        redundant(&payload).map(|block| (block.packets_back, payload[block.bytes][0])).collect()
    }

    #[test]
    fn two_copies_are_the_packet_before_and_the_third_before() {
        let mut recent = Recent::new(2);
        for n in 1..=4_u16 {
            recent.keep(n, u32::from(n) * 960, &[n as u8; 90]);
        }
        assert_eq!(repeats(&recent, 5, 960), [(3, 2), (1, 4)]);
        recent.copies = 1;
        assert_eq!(repeats(&recent, 5, 960), [(1, 4)]);
        recent.copies = 2;
        // The fifth is overtaken by the sixth.
        recent.keep(6, 6 * 960, &[6; 90]);
        assert_eq!(repeats(&recent, 5, 960), [(1, 4)], "the sixth has the place of the second");
        recent.keep(5, 5 * 960, &[5; 90]);
        assert_eq!(repeats(&recent, 7, 960), [(3, 4), (1, 6)]);
        recent.keep(7, 7 * 960, &[7; 400]);
        assert_eq!(repeats(&recent, 8, 960), [(1, 7)], "together too long");
        recent.keep(8, 7 * 960 + 480, &[8; 90]);
        let copies = recent.before(111, 9, 8 * 960).unwrap();
        assert_eq!(
            copies.headers_len, 5,
            "who counts by time would take the sixth for an older one"
        );
    }

    #[test]
    fn a_block_that_time_tells_nothing_of_is_left_out() {
        let block = |offset: u32, len: u32| (0xEF00_0000 | offset << 10 | len).to_be_bytes();
        let payload = [&block(1500, 1)[..], &block(960, 1), &[111, 1, 2, 3]].concat();
        let found: Vec<Block> = redundant(&payload).collect();
        assert_eq!(found, [Block { packets_back: 1, offset: 960, bytes: 10..11 }]);
        let payload = [&block(960, 1)[..], &block(0, 1), &[111, 1, 2, 3]].concat();
        assert_eq!(redundant(&payload).count(), 0, "no time between");
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
