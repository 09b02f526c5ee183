//! Why a packet could not be read or written.

use std::fmt;

/// Why bytes are not the packet they were taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseError {
    /// The bytes end before the structure does.
    TooShort,
    /// The version field is not 2.
    BadVersion,
    /// A length field disagrees with the bytes at hand.
    BadLength,
    /// The padding count is 0 or longer than the packet.
    BadPadding,
    /// A field holds a value that the format does not allow.
    BadValue,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "packet is too short",
            Self::BadVersion => "version is not 2",
            Self::BadLength => "length field disagrees with the packet",
            Self::BadPadding => "padding count is not valid",
            Self::BadValue => "field holds a value that is not allowed",
        })
    }
}

impl std::error::Error for ParseError {}

/// Why a packet could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteError {
    /// The buffer cannot hold what is to be written.
    BufferTooSmall,
    /// A header extension has id 0 or a value longer than 255 bytes.
    BadExtension,
    /// More items than the format can count, or more padding than 255 bytes.
    TooMany,
    /// The bytes to change are not a packet.
    NotAPacket,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BufferTooSmall => "buffer is too small",
            Self::BadExtension => "header extension id or length is not allowed",
            Self::TooMany => "more items than the format can count",
            Self::NotAPacket => "bytes are not a packet",
        })
    }
}

impl std::error::Error for WriteError {}
