//! H.264 in RTP (RFC 6184): where a keyframe starts.

const IDR: u8 = 5;
const SPS: u8 = 7;
const STAP_A: u8 = 24;
const FU_A: u8 = 28;

/// Whether an RTP payload starts a keyframe: an SPS or an IDR slice as a single NAL unit (§5.6),
/// in an aggregation (§5.7.1), or in the first fragment of one (§5.8).
pub fn is_keyframe_start(payload: &[u8]) -> bool {
    match payload {
        [first, rest @ ..] if first & 0x1F == STAP_A => aggregated(rest).any(starts),
        [first, header, ..] if first & 0x1F == FU_A => header & 0x80 != 0 && starts(*header),
        [first, ..] => starts(*first),
        [] => false,
    }
}

fn starts(nal_header: u8) -> bool {
    matches!(nal_header & 0x1F, IDR | SPS)
}

/// The first bytes of the NAL units of a STAP-A; a malformed tail ends it.
fn aggregated(mut rest: &[u8]) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let (len, tail) = rest.split_first_chunk()?;
        let (unit, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        rest = tail;
        unit.first().copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, hex};

    #[test]
    fn finds_keyframes_in_every_form() {
        for (payload, expected) in [
            ("67 42", true),                     // SPS
            ("65 88", true),                     // IDR
            ("41 9a", false),                    // non-IDR slice
            ("68 ce", false),                    // PPS alone
            ("78 0002 67 42 0002 68 ce", true),  // STAP-A: SPS, PPS
            ("78 0002 09 10 0002 65 88", true),  // STAP-A: delimiter, IDR
            ("78 0002 41 9a 0002 41 9a", false), // STAP-A: slices
            ("78 0009 67 42", false),            // STAP-A cut short
            ("78 0000 0002 67 42", false),       // STAP-A with an empty unit
            ("7c 85 88", true),                  // FU-A: first of an IDR
            ("7c 05 88", false),                 // FU-A: in the middle of one
            ("7c 81 9a", false),                 // FU-A: first of a slice
            ("7c", false),
            ("78", false),
            ("", false),
        ] {
            assert_eq!(is_keyframe_start(&hex(payload)), expected, "{payload}");
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
            found += usize::from(is_keyframe_start(&buf[..len]));
        }
        assert!(found > 100);
    }
}
