//! Where a packet counts its pictures, which goes on without a gap whatever flows through a slot.

use super::packet::Opened;
use super::rewrite::Rewritten;
use rtp::negotiated::Codec;
use rtp::{ParseError, RtpHeader};

/// What counts the pictures of a packet.
#[derive(Clone, Copy)]
pub(super) enum Pictures<'a> {
    /// Nothing that can be read.
    Uncounted,
    /// The payload may carry the picture ids of VP8.
    Vp8,
    /// The payload may carry the picture ids of VP9.
    Vp9,
    /// This dependency descriptor does. It goes on to receivers who agreed on it.
    Dependency(&'a [u8]),
}

impl<'a> Pictures<'a> {
    /// Those of a packet with this codec.
    #[inline]
    pub(super) fn of(opened: &Opened, plain: &'a [u8], codec: Codec) -> Self {
        match codec {
            Codec::Vp8 if !opened.opaque => Self::Vp8,
            Codec::Vp9 if !opened.opaque => Self::Vp9,
            Codec::Av1 => match opened.dependency {
                Some((from, to)) => Self::Dependency(&plain[from.into()..to.into()]),
                None => Self::Uncounted,
            },
            Codec::Opus | Codec::Vp8 | Codec::H264 | Codec::Vp9 => Self::Uncounted,
        }
    }

    /// Adds the header extension that counts them to the first `count`, if there is one and the receiver has an id for it.
    /// Returns how many there are then.
    #[inline]
    pub(super) fn place(
        self,
        id: Option<u8>,
        extensions: &mut [(u8, &'a [u8])],
        count: usize,
    ) -> usize {
        if let Self::Dependency(value) = self
            && let Some((id, place)) = id.zip(extensions.get_mut(count))
        {
            *place = (id, value);
            return count + 1;
        }
        count
    }

    /// Counts them anew in a packet that was just written, whose header and payload begin so. A descriptor that cannot be
    /// read goes on as it is.
    #[inline]
    pub(super) fn rewrite(
        self,
        packet: &mut [u8],
        (header_len, body): (usize, usize),
        id: Option<u8>,
        out: Rewritten,
    ) {
        let Rewritten { picture_id, tl0, .. } = out;
        let _ = match self {
            Self::Uncounted => Ok(()),
            Self::Vp8 => rtp::vp8::rewrite_in_place(&mut packet[body..], picture_id, tl0),
            Self::Vp9 => rtp::vp9::rewrite_in_place(&mut packet[body..], picture_id, tl0),
            Self::Dependency(_) => renumber(&mut packet[..header_len], id, picture_id),
        };
    }
}

/// Gives the dependency descriptor in a header its frame number.
fn renumber(header: &mut [u8], id: Option<u8>, number: Option<u16>) -> Result<(), ParseError> {
    let (Some(id), Some(number)) = (id, number) else { return Ok(()) };
    match RtpHeader::parse(header)?.locate_extension(header, id) {
        Some(at) => rtp::dependency::set_frame_number(&mut header[at], number),
        None => Ok(()),
    }
}
