//! Redundant audio (RED, RFC 2198): a packet of sound with copies of those before it.

use crate::error::ParseError;
use std::ops::Range;

/// Set in the header of each block but the last, the primary one.
const FOLLOWS: u8 = 0x80;
/// Length of the header of a block that another follows.
const HEADER_LEN: usize = 4;

/// Where the primary block of a RED payload is: what the packet would be without redundancy.
///
/// # Errors
/// [`ParseError::TooShort`] where the headers or the redundant blocks do not fit.
pub fn primary(payload: &[u8]) -> Result<Range<usize>, ParseError> {
    let mut at = 0;
    let mut redundant = 0;
    loop {
        let rest = payload.get(at..).unwrap_or_default();
        match rest {
            [first, ..] if first & FOLLOWS == 0 => {
                let begin = at + 1 + redundant;
                return match begin <= payload.len() {
                    true => Ok(begin..payload.len()),
                    false => Err(ParseError::TooShort),
                };
            }
            // Seven bits of payload type, 14 of timestamp offset, 10 of length.
            [_, _, third, fourth, ..] => {
                redundant += usize::from(u16::from_be_bytes([third & 0x03, *fourth]));
                at += HEADER_LEN;
            }
            _ => return Err(ParseError::TooShort),
        }
    }
}

/// Gives all blocks another payload type, 0..=127: receivers number codecs by themselves. What is no
/// RED payload stays as far as it cannot be read.
pub fn relabel(payload: &mut [u8], payload_type: u8) {
    let mut at = 0;
    while let Some(first) = payload.get_mut(at) {
        let follows = *first & FOLLOWS;
        *first = follows | (payload_type & !FOLLOWS);
        if follows == 0 {
            return;
        }
        at += HEADER_LEN;
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
    fn every_block_takes_the_receivers_payload_type() {
        let (before, mut payload) = (two_levels(), two_levels());
        relabel(&mut payload, 96);
        assert_eq!((payload[0], payload[4], payload[8]), (0x80 | 96, 0x80 | 96, 96));
        relabel(&mut payload, 111);
        assert_eq!(payload, before);
        let mut cut = before[..6].to_vec();
        relabel(&mut cut, 96);
        assert_eq!(cut[4], 0x80 | 96);
        relabel(&mut [], 96);
    }
}
