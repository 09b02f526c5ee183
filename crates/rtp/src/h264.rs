//! H.264 in RTP (RFC 6184): where a keyframe starts.

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
        let mut found = 0;
        for _ in 0..100_000 {
            let len = random.below(40) as usize;
            random.bytes(&mut buf[..len]);
            found += usize::from(keyframe_start(&buf[..len]).is_some());
        }
        assert!(found > 100);
    }
}
