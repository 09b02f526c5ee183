//! Bits of what codecs describe.

use crate::error::ParseError;

/// Reads bits, the highest of a byte first.
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    /// Bits read so far.
    pub(crate) at: usize,
}

impl<'a> Bits<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn flag(&mut self) -> Result<bool, ParseError> {
        Ok(self.read(1)? == 1)
    }

    /// A number of so many bits, at most 32: `f(n)`.
    pub(crate) fn read(&mut self, count: u32) -> Result<u32, ParseError> {
        let mut number = 0;
        for _ in 0..count {
            let byte = *self.bytes.get(self.at / 8).ok_or(ParseError::TooShort)?;
            number = number << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Ok(number)
    }

    /// A number below `limit`, which is at least 1: `ns(n)` of AV1.
    pub(crate) fn non_symmetric(&mut self, limit: u32) -> Result<u32, ParseError> {
        let width = 32 - limit.leading_zeros();
        let short = (1 << width) - limit;
        let number = self.read(width - 1)?;
        if number < short {
            return Ok(number);
        }
        Ok((number << 1) - short + self.read(1)?)
    }

    /// A number in an Exp-Golomb code, `ue(v)` of ITU-T H.264 §9.1.
    pub(crate) fn exp_golomb(&mut self) -> Result<u32, ParseError> {
        let mut zeros = 0;
        while self.read(1)? == 0 {
            zeros += 1;
            if zeros > 31 {
                return Err(ParseError::BadValue);
            }
        }
        Ok((1 << zeros) - 1 + self.read(zeros)?)
    }
}
