//! Grey pictures that bots show where only the sizes of frames are known. A decoder shows them.

pub(super) mod h264;
pub(super) mod vp8;
