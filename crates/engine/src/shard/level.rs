//! Gives the packets of a picture one length by RTP padding (RFC 3550 §5.1). They differ by a few bytes (libwebrtc makes
//! its last ones one byte longer), but the kernel cuts a message only into datagrams of one length (UDP_SEGMENT).

use crate::drops::OutDrop;
use crate::limits::{LEVELLED_BYTES, QUEUED_PACKETS};

/// Bytes of padding of each packet of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Padding([u8; QUEUED_PACKETS]);

impl Padding {
    /// No padding.
    pub(super) const NONE: Self = Self([0; QUEUED_PACKETS]);

    /// The padding of packets whose payloads have these lengths, in bytes. Those after the first 64 get none.
    pub(super) fn of(lens: impl Iterator<Item = usize>) -> Self {
        let (mut all, mut count) = ([0; QUEUED_PACKETS], 0);
        for (place, len) in all.iter_mut().zip(lens) {
            *place = len;
            count += 1;
        }
        let mut padding = Self::NONE;
        let mut from = 0;
        while from < count {
            let (mut least, mut most, mut end) = (all[from], all[from], from);
            for len in &all[from..count] {
                let (low, high) = (least.min(*len), most.max(*len));
                if high - low > LEVELLED_BYTES {
                    break;
                }
                (least, most, end) = (low, high, end + 1);
            }
            for (padding, len) in padding.0[from..end].iter_mut().zip(&all[from..end]) {
                *padding = (most - len) as u8;
            }
            from = end;
        }
        padding
    }

    /// Of the `nth` packet.
    #[inline]
    pub(super) fn get(&self, nth: usize) -> u8 {
        self.0.get(nth).copied().unwrap_or(0)
    }
}

/// Pads a packet that ends at `end` with so many bytes; returns its new end.
#[inline]
pub(super) fn pad(packet: &mut [u8], end: usize, padding: u8) -> Result<usize, OutDrop> {
    if padding == 0 {
        return Ok(end);
    }
    let new = end + usize::from(padding);
    let bytes = packet.get_mut(end..new).ok_or(OutDrop::TooLong)?;
    bytes.fill(0);
    bytes[usize::from(padding) - 1] = padding;
    packet[0] |= 0x20;
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(lens: &[usize]) -> Vec<usize> {
        let padding = Padding::of(lens.iter().copied());
        lens.iter().enumerate().map(|(nth, len)| len + usize::from(padding.get(nth))).collect()
    }

    #[test]
    fn neighbours_that_differ_little_become_alike_and_others_stay() {
        assert_eq!(padded(&[1000, 1000, 1001]), [1001; 3]);
        assert_eq!(padded(&[1001, 1000, 1000, 300]), [1001, 1001, 1001, 300]);
        assert_eq!(padded(&[500, 508, 509]), [508, 508, 509], "too far from the first");
        assert_eq!(padded(&[7]), [7]);
        assert_eq!(padded(&[]), [0; 0]);
        let many = vec![10; QUEUED_PACKETS + 3];
        assert_eq!(padded(&many), many);
    }

    #[test]
    fn padding_says_its_length_in_its_last_byte() {
        let mut packet = [0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 5, 6, 9, 9, 9, 9];
        assert_eq!(pad(&mut packet, 14, 3).unwrap(), 17);
        let header = rtp::RtpHeader::parse(&packet[..17]).unwrap();
        assert_eq!(header.payload_range(&packet[..17]), Ok(12..14));
        assert_eq!(pad(&mut packet, 17, 2), Err(OutDrop::TooLong));
    }
}
