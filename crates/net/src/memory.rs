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

/// Bytes that were freed in this process and that its allocator keeps: 0 with another C library than glibc. It takes some
/// microseconds. Source: mallinfo(3).
pub fn free_bytes() -> usize {
    sys::free_bytes()
}

/// Gives free memory back to the system. Says whether there was any.
///
/// glibc keeps small blocks that were freed. After a burst of connections that was the half of what a server held. It takes about a
/// millisecond for 10 MiB. With another C library nothing happens. Source: malloc_trim(3).
pub fn give_back_free() -> bool {
    sys::trim()
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    fn resident_bytes() -> u64 {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    #[test]
    fn what_small_blocks_took_is_given_back() {
        // Every hundredth stays, so that the heap does not shrink by itself.
        let mut blocks: Vec<Vec<u8>> = (0..100_000).map(|_| vec![1; 500]).collect();
        let mut nth = 0;
        blocks.retain(|_| {
            nth += 1;
            nth % 100 == 0
        });
        let before = resident_bytes();
        assert!(free_bytes() >= 16 << 20, "{} bytes are free", free_bytes());
        assert!(give_back_free());
        let after = resident_bytes();
        assert!(after + (16 << 20) < before, "{before} bytes before, {after} after");
        assert_eq!(blocks.len(), 1000);
    }
}
