//! What becomes of memory that is not needed any more.

use crate::sys;

/// Blocks of so many bytes and more go back to the system when they are freed.
const LARGE_BYTES: i32 = 64 << 10;

/// From now on large blocks of this process go back to the system as soon as they are freed.
///
/// By itself, glibc's allocator keeps such blocks in its heaps once a few came and went: its `M_MMAP_THRESHOLD` grows. What a
/// burst of long messages took then stays taken. With another C library nothing happens. Source: mallopt(3).
pub fn give_back_large_blocks() {
    sys::set_mmap_threshold(LARGE_BYTES);
}
