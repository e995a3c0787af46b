//! An allocator that counts: how much is in use, how much was at the most, and no more than a limit.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Beyond this an allocation fails, which ends the process; the watch has written the case long before.
const LIMIT: usize = 3 << 30;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes in use.
pub fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

/// The most bytes that were in use.
pub fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// The system's allocator, counted.
pub struct Counting;

// SAFETY: every call is passed on to the system's allocator, or fails as an allocator may.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        if now > LIMIT {
            IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise; the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}
