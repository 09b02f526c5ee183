//! AV1 in RTP (RTP Payload Format For AV1, Alliance for Open Media): the aggregation header. Layers and references of a
//! frame stand in a header extension, see [`crate::dependency`].

use crate::error::ParseError;

/// The aggregation header, the first byte of a payload (§4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggregation {
    /// The payload begins with the rest of an OBU of the packet before (Z).
    pub continues: bool,
    /// The last OBU goes on in the packet after (Y).
    pub continued: bool,
    /// How many OBU elements the payload has, 1..=3. None: each one tells its length.
    pub elements: Option<u8>,
    /// The first packet of a coded video sequence (N): a keyframe begins.
    pub starts_sequence: bool,
}

impl Aggregation {
    /// Reads the header at the start of an RTP payload.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] for an empty payload; [`ParseError::BadValue`] if a sequence starts with the rest of an
    /// OBU, which cannot be.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let first = *payload.first().ok_or(ParseError::TooShort)?;
        let (continues, starts_sequence) = (first & 0x80 != 0, first & 0x08 != 0);
        if continues && starts_sequence {
            return Err(ParseError::BadValue);
        }
        let elements = Some(first >> 4 & 3).filter(|count| *count > 0);
        Ok(Self { continues, continued: first & 0x40 != 0, elements, starts_sequence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_bit_of_the_aggregation_header() {
        let read = |first| Aggregation::parse(&[first]);
        let none = Aggregation {
            continues: false,
            continued: false,
            elements: None,
            starts_sequence: false,
        };
        assert_eq!(read(0x00), Ok(none));
        assert_eq!(read(0x07), Ok(none), "reserved bits");
        assert_eq!(read(0x80), Ok(Aggregation { continues: true, ..none }));
        assert_eq!(read(0x40), Ok(Aggregation { continued: true, ..none }));
        assert_eq!(read(0x08), Ok(Aggregation { starts_sequence: true, ..none }));
        for elements in 1..4 {
            assert_eq!(read(elements << 4), Ok(Aggregation { elements: Some(elements), ..none }));
        }
        assert_eq!(read(0x88), Err(ParseError::BadValue));
        assert_eq!(Aggregation::parse(&[]), Err(ParseError::TooShort));
    }
}
