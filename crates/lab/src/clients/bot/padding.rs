//! When a packet of sound was said, written into the padding of Opus (RFC 6716 §3.2.5): a decoder skips it, and a server that
//! forwards sound hands it on. It is for servers that do not take the header extension abs-capture-time.

/// In the table-of-contents byte: which kind of packet it is. 0: one frame; 3: a count of frames, and padding.
const CODE: u8 = 0b11;
/// One frame of constant bitrate, with padding.
const ONE_PADDED: u8 = 0b0100_0001;
const MAGIC: [u8; 4] = *b"moim";
const MARK_LEN: usize = MAGIC.len() + size_of::<u64>();
/// What comes before the frame: the table of contents, the count of frames, the length of the padding.
const HEAD_LEN: usize = 3;

/// The packet with a mark: an NTP timestamp (RFC 5905). None where it is no packet of one frame.
pub(super) fn marked(opus: &[u8], ntp: u64) -> Option<Vec<u8>> {
    let (&contents, frame) = opus.split_first().filter(|(contents, _)| *contents & CODE == 0)?;
    let mut packet = Vec::with_capacity(HEAD_LEN + frame.len() + MARK_LEN);
    packet.extend([contents | CODE, ONE_PADDED, MARK_LEN as u8]);
    packet.extend(frame);
    packet.extend(MAGIC);
    packet.extend(ntp.to_be_bytes());
    Some(packet)
}

/// The mark in a packet, if it has one.
pub(super) fn mark_in(opus: &[u8]) -> Option<u64> {
    let (head, rest) = opus.split_first_chunk::<HEAD_LEN>()?;
    let [contents, frames, padding] = *head;
    if contents & CODE != CODE || frames != ONE_PADDED || usize::from(padding) != MARK_LEN {
        return None;
    }
    let (rest, ntp) = rest.split_last_chunk::<8>()?;
    rest.ends_with(&MAGIC).then_some(u64::from_be_bytes(*ntp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::bot::fixtures::Fixtures;
    use audio::Channels;
    use audio::opus::{Decoder, MAX_PACKET_SAMPLES};

    #[test]
    fn a_mark_is_found_again_and_nothing_else_is_one() {
        let opus = [0x78, 1, 2, 3];
        let packet = marked(&opus, 0x0123_4567_89AB_CDEF).expect("one frame");
        assert_eq!(packet.len(), opus.len() + 14);
        assert_eq!(mark_in(&packet), Some(0x0123_4567_89AB_CDEF));
        assert_eq!(mark_in(&opus), None);
        (0..packet.len()).for_each(|len| assert_eq!(mark_in(&packet[..len]), None, "cut at {len}"));
        let mut other = packet.clone();
        other[opus.len() + 2] ^= 1;
        assert_eq!(mark_in(&other), None, "the padding of somebody else");
        assert_eq!(marked(&packet, 1), None, "it is no packet of one frame any more");
        assert_eq!(marked(&[], 1), None);
    }

    #[test]
    fn a_decoder_hears_the_same() {
        let voice = Fixtures::embedded().expect("fixtures").voice(0);
        let decoder = || Decoder::new(Channels::Mono).expect("a decoder");
        let (mut plain, mut padded) = (decoder(), decoder());
        let mut heard = [[0.0; MAX_PACKET_SAMPLES]; 2];
        for opus in voice.packets.iter().take(100) {
            let packet = marked(&opus.data, 7).expect("packets of one frame");
            let len = plain.decode(Some(&opus.data), &mut heard[0]).expect("sound");
            assert_eq!(padded.decode(Some(&packet), &mut heard[1]), Ok(len));
            assert_eq!(heard[0][..len], heard[1][..len]);
        }
    }
}
