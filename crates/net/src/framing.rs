//! RFC 4571: packets on a stream, each after its length in two bytes, big-endian. No IO here.

use std::fmt;

/// Bytes before each packet.
pub const HEADER_LEN: usize = 2;

/// A packet that cannot be framed, or a frame that cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The packet is longer than allowed. In a received stream the place of the next frame is
    /// then unknown: close the connection.
    TooLong {
        /// Bytes of the packet.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::TooLong { len, max } = self;
        write!(f, "a frame of {len} bytes where at most {max} are allowed")
    }
}

impl std::error::Error for FrameError {}

/// Appends `packet` with its length to `out`.
///
/// # Errors
/// [`FrameError::TooLong`] for more than 65535 bytes; `out` is then as before.
pub fn encode(packet: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
    let len = u16::try_from(packet.len())
        .map_err(|_| FrameError::TooLong { len: packet.len(), max: usize::from(u16::MAX) })?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(packet);
    Ok(())
}

/// Takes packets out of a stream. Its memory is fixed: the longest frame, twice.
///
/// Read into [`spare`](Self::spare), say how much by [`advance`](Self::advance), then take frames
/// until [`next_frame`](Self::next_frame) has no more.
#[derive(Debug)]
pub struct Decoder {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    max: usize,
}

impl Decoder {
    /// A decoder for packets of at most `max` bytes (at least 1, at most 65535).
    pub fn new(max: usize) -> Self {
        let max = max.clamp(1, usize::from(u16::MAX));
        let buffer = vec![0; 2 * (HEADER_LEN + max)].into_boxed_slice();
        Self { buffer, start: 0, end: 0, max }
    }

    /// Where the next bytes of the stream go. Never empty once `next_frame` has returned `None`.
    pub fn spare(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < HEADER_LEN + self.max {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Says that `count` bytes were written at the front of [`spare`](Self::spare).
    ///
    /// # Panics
    /// `count` is more than there was room for: a fault of the caller.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.buffer.len() - self.end, "{count} bytes do not fit");
        self.end += count;
    }

    /// What has come and is of no packet yet; after an error it begins with the frame that cannot be taken.
    pub fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The next whole packet, if it has come; null packets (length 0) are passed over.
    ///
    /// # Errors
    /// [`FrameError::TooLong`], again at every later call.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        while let [high, low, rest @ ..] = &self.buffer[self.start..self.end] {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            if len > self.max {
                return Err(FrameError::TooLong { len, max: self.max });
            }
            if rest.len() < len {
                break;
            }
            let at = self.start + HEADER_LEN;
            self.start = at + len;
            if len > 0 {
                return Ok(Some(&self.buffer[at..at + len]));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `stream` in pieces of `step` bytes; returns the packets until the end or an error.
    fn decode(stream: &[u8], step: usize, max: usize) -> Result<Vec<Vec<u8>>, FrameError> {
        let (mut decoder, mut rest, mut packets) = (Decoder::new(max), stream, Vec::new());
        while !rest.is_empty() {
            let spare = decoder.spare();
            let count = step.min(rest.len()).min(spare.len());
            assert!(count > 0, "no room");
            spare[..count].copy_from_slice(&rest[..count]);
            decoder.advance(count);
            rest = &rest[count..];
            while let Some(packet) = decoder.next_frame()? {
                packets.push(packet.to_vec());
            }
        }
        Ok(packets)
    }

    #[test]
    fn packets_come_out_as_they_went_in_however_the_stream_is_cut() {
        let packets: Vec<Vec<u8>> =
            (1..200usize).map(|n| (0..n * 7 % 300 + 1).map(|i| (i * n) as u8).collect()).collect();
        let mut stream = Vec::new();
        for packet in &packets {
            encode(packet, &mut stream).unwrap();
            encode(&[], &mut stream).unwrap();
        }
        for step in [1, 2, 3, 7, 299, 302, 603, 5000] {
            assert_eq!(decode(&stream, step, 300).unwrap(), packets, "step {step}");
        }
    }

    #[test]
    fn a_length_over_the_bound_is_an_error_that_stays() {
        let mut stream = vec![0, 1, 42];
        stream.extend([0x01, 0x2d, 1, 2, 3]); // 301
        let error = FrameError::TooLong { len: 301, max: 300 };
        assert_eq!(decode(&stream, 1, 300), Err(error));
        assert!(error.to_string().contains("301"));
        let mut decoder = Decoder::new(300);
        decoder.spare()[..stream.len()].copy_from_slice(&stream);
        decoder.advance(stream.len());
        assert_eq!(decoder.next_frame(), Ok(Some(&[42][..])));
        assert_eq!(decoder.pending(), [0x01, 0x2d, 1, 2, 3]);
        assert_eq!(decoder.next_frame(), Err(error));
        assert_eq!(decoder.next_frame(), Err(error));
    }

    #[test]
    fn an_unfinished_frame_gives_nothing() {
        assert_eq!(decode(&[0], 1, 9), Ok(vec![]));
        assert_eq!(decode(&[0, 3, 1, 2], 4, 9), Ok(vec![]));
    }

    #[test]
    fn the_longest_packet_is_65535_bytes() {
        let mut stream = Vec::new();
        encode(&[7; 65535], &mut stream).unwrap();
        assert_eq!(decode(&stream, 1000, usize::MAX).unwrap(), [vec![7; 65535]]);
        let error = FrameError::TooLong { len: 65536, max: 65535 };
        assert_eq!(encode(&[7; 65536], &mut stream), Err(error));
        assert_eq!(stream.len(), 65537);
    }
}
