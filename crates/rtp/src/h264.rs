//! H.264 in RTP (RFC 6184): where a keyframe starts, of what size its pictures are, and how a NAL unit becomes packets.

use crate::bits::Bits;
use crate::error::ParseError;

const IDR: u8 = 5;
const SPS: u8 = 7;
const STAP_A: u8 = 24;
const FU_A: u8 = 28;

/// What of a keyframe a packet brings, so that a decoder may begin with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyframeStart {
    /// The first slice of an IDR picture (`first_mb_in_slice` is 0, ITU-T H.264 §7.3.3). Where parameter sets came before
    /// it in the same picture, the keyframe began with them.
    FirstSlice,
    /// A sequence parameter set, which comes before the slices of its picture.
    ParameterSet,
}

/// What of a keyframe's start an RTP payload brings: as a single NAL unit (§5.6), in an aggregation (§5.7.1), or in the
/// first fragment of one (§5.8). None for any other packet, further slices of an IDR picture among them.
pub fn keyframe_start(payload: &[u8]) -> Option<KeyframeStart> {
    match payload {
        [first, rest @ ..] if first & 0x1F == STAP_A => aggregated(rest).filter_map(start).max(),
        [first, header, rest @ ..] if first & 0x1F == FU_A => {
            (header & 0x80 != 0).then(|| start_of(*header, rest)).flatten()
        }
        unit => start(unit),
    }
}

fn start(unit: &[u8]) -> Option<KeyframeStart> {
    let (header, body) = unit.split_first()?;
    start_of(*header, body)
}

fn start_of(nal_header: u8, body: &[u8]) -> Option<KeyframeStart> {
    match nal_header & 0x1F {
        SPS => Some(KeyframeStart::ParameterSet),
        // ue(v) of 0 is a single bit that is set.
        IDR => body.first().filter(|first| **first & 0x80 != 0).map(|_| KeyframeStart::FirstSlice),
        _ => None,
    }
}

/// The NAL units of a STAP-A; a malformed tail ends it.
fn aggregated(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, tail) = rest.split_first_chunk()?;
        let (unit, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        rest = tail;
        Some(unit)
    })
}

/// Bytes in front of a fragment's data.
pub const FRAGMENT_HEADER_LEN: usize = 2;

/// One RTP payload of a NAL unit: a header in front of a fragment (FU-A, §5.8), or nothing in front of a whole unit (§5.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// FU indicator and FU header; None in front of a whole unit, which begins with its own header.
    pub header: Option<[u8; FRAGMENT_HEADER_LEN]>,
    /// The unit, or a part of what follows its header.
    pub data: &'a [u8],
    /// The unit ends here.
    pub last: bool,
}

/// Cuts a NAL unit into payloads of at most `mtu` bytes, all of about one size. An `mtu` that holds no data is taken as one that
/// holds 1 byte.
pub fn packetize(unit: &[u8], mtu: usize) -> impl Iterator<Item = Chunk<'_>> {
    let is_whole = unit.len() <= mtu.max(1);
    let (header, body) = match (is_whole, unit.split_first()) {
        (false, Some((header, body))) => (Some(*header), body),
        _ => (None, unit),
    };
    let room = mtu.saturating_sub(FRAGMENT_HEADER_LEN).max(1);
    let count = if is_whole { 1 } else { body.len().div_ceil(room) };
    let size = body.len().div_ceil(count.max(1)).max(1);
    let count = body.len().div_ceil(size);
    body.chunks(size).enumerate().map(move |(nth, data)| {
        let (first, last) = (nth == 0, nth + 1 == count);
        let of = |header: u8| {
            let ends = if first { 0x80 } else { 0 } | if last { 0x40 } else { 0 };
            [header & 0xE0 | FU_A, ends | header & 0x1F]
        };
        Chunk { header: header.map(of), data, last }
    })
}

/// Whether a payload begins the slices of a picture: the first one of them, or what comes before it.
pub fn is_picture_start(payload: &[u8]) -> bool {
    let begins = |header: u8, body: &[u8]| match header & 0x1F {
        // `first_mb_in_slice` is 0.
        1..=5 => body.first().is_some_and(|first| first & 0x80 != 0),
        // Supplemental information, parameter sets and delimiters (§7.4.1.2.3).
        6..=9 => true,
        _ => false,
    };
    match payload {
        [first, rest @ ..] if first & 0x1F == STAP_A => {
            let unit = aggregated(rest).find(|unit| !unit.is_empty());
            unit.is_some_and(|unit| begins(unit[0], &unit[1..]))
        }
        [first, header, rest @ ..] if first & 0x1F == FU_A => {
            header & 0x80 != 0 && begins(*header, rest)
        }
        [header, body @ ..] => begins(*header, body),
        [] => false,
    }
}

/// Width and height in pixels that a payload's sequence parameter set tells (ITU-T H.264 §7.3.2.1.1), if a whole one is in it.
/// None, too, for sets with scaling lists.
pub fn size(payload: &[u8]) -> Option<(u16, u16)> {
    let set = match payload {
        [first, rest @ ..] if first & 0x1F == STAP_A => {
            aggregated(rest).find(|unit| unit.first().is_some_and(|first| first & 0x1F == SPS))?
        }
        [first, ..] if first & 0x1F == SPS => payload,
        _ => return None,
    };
    set_size(&unescaped(set.get(1..)?)).ok()
}

/// The same of a set behind its header.
fn set_size(set: &[u8]) -> Result<(u16, u16), ParseError> {
    let mut bits = Bits::new(set);
    let profile = bits.read(8)?;
    bits.read(16)?;
    bits.exp_golomb()?;
    let mut crop_unit = (2, 2);
    if [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135].contains(&profile) {
        let chroma = bits.exp_golomb()?;
        if chroma == 3 {
            bits.read(1)?;
        }
        let units = [(1, 1), (2, 2), (2, 1), (1, 1)];
        crop_unit = *units.get(chroma as usize).ok_or(ParseError::BadValue)?;
        for _ in 0..2 {
            bits.exp_golomb()?;
        }
        bits.read(1)?;
        if bits.read(1)? == 1 {
            return Err(ParseError::BadValue);
        }
    }
    bits.exp_golomb()?;
    match bits.exp_golomb()? {
        0 => drop(bits.exp_golomb()?),
        1 => {
            bits.read(1)?;
            for _ in 0..2 {
                bits.exp_golomb()?;
            }
            for _ in 0..bits.exp_golomb()?.min(255) {
                bits.exp_golomb()?;
            }
        }
        _ => {}
    }
    bits.exp_golomb()?;
    bits.read(1)?;
    let (across, down) = (bits.exp_golomb()?, bits.exp_golomb()?);
    let fields = 2 - bits.read(1)?;
    bits.read(fields)?;
    let mut cut = [0; 4];
    if bits.flag()? {
        for side in &mut cut {
            *side = bits.exp_golomb()?;
        }
    }
    let side = |blocks: u32, fields: u32, cut: [u32; 2], unit: u32| {
        let whole = (u64::from(blocks) + 1) * u64::from(16 * fields);
        let cut = (u64::from(cut[0]) + u64::from(cut[1])) * u64::from(unit * fields);
        whole.checked_sub(cut).and_then(|side| u16::try_from(side).ok()).ok_or(ParseError::BadValue)
    };
    let width = side(across, 1, [cut[0], cut[1]], crop_unit.0)?;
    Ok((width, side(down, fields, [cut[2], cut[3]], crop_unit.1)?))
}

/// A NAL unit's body without the bytes that keep it from having two of zeros in a row (§7.4.1).
fn unescaped(body: &[u8]) -> Vec<u8> {
    let escapes = |at: usize| body[..=at].ends_with(&[0, 0, 3]);
    (0..body.len()).filter(|at| !escapes(*at)).map(|at| body[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, hex};

    #[test]
    fn finds_keyframes_in_every_form() {
        let (set, slice) = (Some(KeyframeStart::ParameterSet), Some(KeyframeStart::FirstSlice));
        for (payload, expected) in [
            ("67 42", set),                      // SPS
            ("65 88", slice),                    // IDR, its first slice
            ("65 48", None),                     // IDR, a later slice
            ("65", None),                        // IDR without a slice's header
            ("41 9a", None),                     // non-IDR slice
            ("68 ce", None),                     // PPS alone
            ("78 0002 67 42 0002 68 ce", set),   // STAP-A: SPS, PPS
            ("78 0002 67 42 0002 65 88", set),   // STAP-A: SPS, IDR
            ("78 0002 09 10 0002 65 88", slice), // STAP-A: delimiter, IDR
            ("78 0002 65 48 0002 65 28", None),  // STAP-A: later slices
            ("78 0002 41 9a 0002 41 9a", None),  // STAP-A: slices
            ("78 0009 67 42", None),             // STAP-A cut short
            ("78 0000 0002 67 42", set),         // STAP-A with an empty unit
            ("7c 85 88", slice),                 // FU-A: first of an IDR's first slice
            ("7c 85 48", None),                  // FU-A: first of a later slice
            ("7c 87 42", set),                   // FU-A: first of an SPS
            ("7c 05 88", None),                  // FU-A: in the middle of one
            ("7c 81 9a", None),                  // FU-A: first of a slice
            ("7c", None),
            ("78", None),
            ("", None),
        ] {
            assert_eq!(keyframe_start(&hex(payload)), expected, "{payload}");
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = Random::new(8);
        let mut buf = [0; 40];
        let (mut found, mut sizes) = (0, 0);
        for _ in 0..100_000 {
            let len = random.below(40) as usize;
            random.bytes(&mut buf[..len]);
            found += usize::from(keyframe_start(&buf[..len]).is_some());
            sizes += usize::from(size(&buf[..len]).is_some());
            is_picture_start(&buf[..len]);
        }
        assert!(found > 100 && sizes > 10, "{found} {sizes}");
    }

    #[test]
    fn sets_tell_the_size() {
        for (set, expected) in [
            // OpenH264 in Chromium, 640×480 and 1280×720; x264, high profile with bytes escaped, 1920×1080.
            ("67 42 c0 1e 8c 8d 40 50 1e d0 0f 08 84 6a", Some((640, 480))),
            ("67 42 c0 1f 8c 8d 40 28 02 dd 80 78 44 23 50", Some((1280, 720))),
            (
                "67 64 00 28 ac d9 40 78 02 27 e5 c0 44 00 00 03 00 04 00 00 03 00 f0 3c 60 c6 58",
                Some((1920, 1080)),
            ),
            ("67 42 c0 1f 8c", None),
            ("65 88", None),
            ("", None),
        ] {
            assert_eq!(size(&hex(set)), expected, "{set}");
        }
    }

    #[test]
    fn a_unit_is_cut_into_payloads_that_are_its_fragments() {
        let mut unit = vec![0x65, 0x88];
        unit.extend((0..5000).map(|at| at as u8));
        for mtu in [0, 3, 100, 1140, 5001, 5002, 9000] {
            let chunks: Vec<_> = packetize(&unit, mtu).collect();
            let whole = unit.len() <= mtu;
            let header: Vec<u8> =
                chunks[0].header.iter().map(|h| h[0] & 0xE0 | h[1] & 0x1F).collect();
            let data = chunks.iter().flat_map(|chunk| chunk.data).copied();
            assert_eq!(header.into_iter().chain(data).collect::<Vec<_>>(), unit, "{mtu}");
            assert_eq!((chunks.len() == 1, chunks.iter().filter(|c| c.last).count()), (whole, 1));
            for (nth, Chunk { header, data, last }) in chunks.iter().enumerate() {
                assert!(*last == (nth + 1 == chunks.len()));
                let payload = [header.map_or(vec![], Vec::from), data.to_vec()].concat();
                assert!(payload.len() <= mtu.max(3), "{} of {mtu}", payload.len());
                let start = keyframe_start(&payload);
                assert_eq!(start, (nth == 0).then_some(KeyframeStart::FirstSlice));
                assert_eq!(is_picture_start(&payload), nth == 0);
                assert_eq!(header.is_some_and(|h| h[1] & 0x40 != 0), *last && !whole);
            }
        }
    }

    #[test]
    fn pictures_start_with_their_first_slice_or_what_is_before_it() {
        for (payload, expected) in [
            ("41 9a", true),
            ("41 5a", false),
            ("67 42", true),
            ("06 05", true),
            ("7c 81 9a", true),
            ("7c 01 9a", false),
            ("7c 81 5a", false),
            ("78 0002 67 42 0002 68 ce", true),
            ("78 0002 41 5a", false),
            ("0c ff", false),
            ("7c", false),
            ("", false),
        ] {
            assert_eq!(is_picture_start(&hex(payload)), expected, "{payload}");
        }
    }
}
