//! Grey pictures that bots show where only the sizes of frames are known. A decoder shows them.

pub(super) mod h264;
pub(super) mod vp8;

/// Macroblocks of a row or column.
fn blocks(pixels: u16) -> usize {
    usize::from(pixels).div_ceil(16)
}
