//! The packets of a clip's frames.

use super::blank::h264::{NUMBERED, numbered};
use super::clip::Clip;
use rtp::negotiated::Codec;
use rtp::{h264, vp8};

/// Most bytes that a payload has in front of a clip's own. In VP8 that is the descriptor. In H.264 it is a fragment's header, and
/// what differs each time that a slice is sent.
pub(super) const HEAD: usize = 6;
const _: () = assert!(vp8::DESCRIPTOR_LEN <= HEAD);
const _: () = assert!(h264::FRAGMENT_HEADER_LEN + NUMBERED <= HEAD);

/// What a stream's frames are numbered by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    pub(super) picture_id: u16,
    pub(super) tl0_picture_index: u8,
    /// Keyframes begun, in all.
    pub(super) keyframes: u64,
    /// Frames since the last one, modulo 256.
    pub(super) since_keyframe: u8,
}

impl Ids {
    /// Another frame begins.
    pub(super) fn next(&mut self, keyframe: bool) {
        self.picture_id = (self.picture_id + 1) & 0x7FFF;
        self.tl0_picture_index = self.tl0_picture_index.wrapping_add(1);
        self.keyframes += u64::from(keyframe);
        self.since_keyframe = if keyframe { 0 } else { self.since_keyframe.wrapping_add(1) };
    }
}

/// Where a packet's payload is: a piece of a clip's frame, and what stands in front of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) timestamp: u32,
    pub(super) last: bool,
    head: [u8; HEAD],
    head_len: u8,
    len: u16,
    pub(super) frame: u32,
    from: u32,
}

impl Piece {
    /// The payload's two parts.
    pub(super) fn payload<'a>(&'a self, clip: &'a Clip) -> (&'a [u8], &'a [u8]) {
        let from = self.from as usize;
        let data = &clip.frame(self.frame as usize).data[from..from + usize::from(self.len)];
        (&self.head[..usize::from(self.head_len)], data)
    }
}

/// The pieces of a frame of the clip, by its number, in order.
pub(super) fn cut(
    clip: &Clip,
    frame: usize,
    ids: Ids,
    timestamp: u32,
) -> impl Iterator<Item = Piece> {
    let (vp8, h264) = match clip.codec {
        Codec::H264 => (None, Some(cut_h264(clip, frame, ids, timestamp))),
        _ => (Some(cut_vp8(clip, frame, ids, timestamp)), None),
    };
    vp8.into_iter().flatten().chain(h264.into_iter().flatten())
}

fn piece(timestamp: u32, frame: usize, from: usize, head: &[u8], data: &[u8], last: bool) -> Piece {
    let mut piece = Piece {
        timestamp,
        last,
        head: [0; HEAD],
        head_len: head.len() as u8,
        len: data.len() as u16,
        frame: frame as u32,
        from: from as u32,
    };
    piece.head[..head.len()].copy_from_slice(head);
    piece
}

fn cut_vp8(clip: &Clip, frame: usize, ids: Ids, timestamp: u32) -> impl Iterator<Item = Piece> {
    let Ids { picture_id, tl0_picture_index, .. } = ids;
    let data = &clip.frame(frame).data;
    let mut from = 0;
    vp8::packetize(data, clip.max_payload, picture_id, tl0_picture_index).map(move |chunk| {
        let begins = from;
        from += chunk.data.len();
        piece(timestamp, frame, begins, &chunk.descriptor, chunk.data, chunk.last)
    })
}

/// Parameter sets in front of keyframes, then a slice. Its first bytes have its number.
fn cut_h264(clip: &Clip, frame: usize, ids: Ids, timestamp: u32) -> impl Iterator<Item = Piece> {
    let slice = clip.frame(frame);
    let sets = clip.sets_number().filter(|_| slice.keyframe);
    let sets = sets.map(|sets| piece(timestamp, sets, 0, &[], &clip.frame(sets).data, false));
    let first = numbered(&slice.data, ids.keyframes, ids.since_keyframe);
    let mut from = 0;
    let pieces = h264::packetize(&slice.data, clip.max_payload).map(move |chunk| {
        // A fragment begins behind the unit's header.
        let begins = if from == 0 && chunk.header.is_some() { 1 } else { from };
        from = begins + chunk.data.len();
        let number = first.get(begins..).unwrap_or_default();
        let mut head = [0; HEAD];
        let header = chunk.header.as_ref().map_or(&[][..], |header| &header[..]);
        let head_len = header.len() + number.len();
        head[..header.len()].copy_from_slice(header);
        head[header.len()..head_len].copy_from_slice(number);
        let data = &chunk.data[number.len()..];
        piece(timestamp, frame, begins + number.len(), &head[..head_len], data, chunk.last)
    });
    sets.into_iter().chain(pieces)
}
