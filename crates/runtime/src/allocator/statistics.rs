//! What an allocator counts.

/// The figures of one device's memory. Sizes are bytes; `allocated` counts each request rounded up to 256 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// In buffers now.
    pub allocated: usize,
    /// In heaps taken from the system now, used or not.
    pub reserved: usize,
    /// In freed blocks that do not serve every request: small ones kept for the next of their size, and those of a queue.
    pub cached: usize,
    /// The highest `allocated` since the start or the last reset.
    pub peak_allocated: usize,
    /// The highest `reserved` since the start or the last reset.
    pub peak_reserved: usize,
    /// Allocations that succeeded.
    pub allocation_count: u64,
    /// Buffers freed.
    pub free_count: u64,
    /// Heaps taken from the system now.
    pub heap_count: usize,
    /// Allocations that one of these served.
    pub cache_hits: u64,
    /// Allocations that had to look further.
    pub cache_misses: u64,
    /// Times that all of these were made free for every request.
    pub flush_count: u64,
    /// Allocations refused.
    pub out_of_memory_count: u64,
}

impl MemoryStatistics {
    pub(super) fn count_allocation(&mut self, bytes: usize) {
        self.allocated += bytes;
        self.allocation_count += 1;
        self.peak_allocated = self.peak_allocated.max(self.allocated);
    }

    pub(super) fn count_free(&mut self, bytes: usize) {
        self.allocated -= bytes;
        self.free_count += 1;
    }

    pub(super) fn count_heap(&mut self, bytes: usize) {
        self.reserved += bytes;
        self.heap_count += 1;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }

    pub(super) fn count_released_heap(&mut self, bytes: usize) {
        self.reserved -= bytes;
        self.heap_count -= 1;
    }

    pub(crate) fn reset_peak_allocated(&mut self) {
        self.peak_allocated = self.allocated;
    }

    pub(crate) fn reset_peak_reserved(&mut self) {
        self.peak_reserved = self.reserved;
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.allocation_count = 0;
        self.free_count = 0;
        self.cache_hits = 0;
        self.cache_misses = 0;
        self.flush_count = 0;
        self.out_of_memory_count = 0;
    }
}
