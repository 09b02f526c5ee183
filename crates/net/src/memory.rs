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

/// Gives memory back to the system that is free in this process, if that is so many bytes or more. Says whether it did.
///
/// glibc keeps small blocks that were freed. After a burst of connections that was the half of what a server held. It takes about a
/// millisecond for 10 MiB. With another C library nothing happens. Source: malloc_trim(3), mallinfo(3).
pub fn give_back_free(least_bytes: usize) -> bool {
    sys::free_bytes() >= least_bytes && sys::trim()
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
        assert!(give_back_free(16 << 20), "{} bytes are free", sys::free_bytes());
        let after = resident_bytes();
        assert!(after + (16 << 20) < before, "{before} bytes before, {after} after");
        assert!(!give_back_free(usize::MAX));
        assert_eq!(blocks.len(), 1000);
    }
}
