//! The allocator of a device: blocks of any length, cut from large heaps and joined again when they are freed.
//!
//! A request is served by the first of these that can: a small block of its size, or any memory, that its queue freed (`cache`, `pool`); free
//! memory of a heap; a new heap. A request above half a heap gets a heap that fits. What would exceed the limit first empties the cache, and
//! only then fails. Where freed memory is in use by nobody (the CPU's), it belongs to no queue, but for small blocks kept for their size.

mod address_map;
mod cache;
pub(crate) mod heap;
mod pool;
mod state;
mod statistics;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::trace;
use heap::HeapSource;
use pool::Owner;
use state::State;
pub use statistics::MemoryStatistics;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The allocator of one device; every call may come from any thread.
pub(crate) struct Allocator {
    device: usize,
    /// Whether freed blocks belong to their queue; otherwise they are anyone's.
    ordered: bool,
    state: Mutex<State>,
}

impl Allocator {
    /// An allocator that takes heaps from `source` up to `limit` bytes.
    pub fn new(device: usize, source: Box<dyn HeapSource>, limit: usize) -> Allocator {
        let ordered = source.ordered_by_queue();
        Allocator { device, ordered, state: Mutex::new(State::new(device, source, limit)) }
    }

    /// The address of a new buffer, aligned to 256 bytes, for use on a queue. The contents are undefined.
    pub fn allocate(&self, bytes: usize, queue: u64) -> Result<usize> {
        let mut state = self.lock();
        let address = state.allocate(bytes, self.owner(queue));
        self.trace_memory(state);
        address
    }

    /// Takes a buffer back; commands submitted to the queue before may still use it.
    pub fn free(&self, address: usize, queue: u64) -> Result<()> {
        let mut state = self.lock();
        let freed = state.free(address, self.owner(queue));
        self.trace_memory(state);
        freed
    }

    /// The buffer around `bytes` bytes at an address: (its first address, the offset).
    pub fn resolve(&self, address: usize, bytes: usize) -> Result<(usize, usize)> {
        self.lock().resolve(address, bytes)
    }

    /// The addresses of the buffer around an address.
    pub fn block(&self, address: usize) -> Option<Range<usize>> {
        self.lock().block(address)
    }

    /// The figures of this moment.
    pub fn statistics(&self) -> MemoryStatistics {
        self.lock().statistics()
    }

    /// Applies a change to the counters.
    pub fn reset(&self, change: impl FnOnce(&mut MemoryStatistics)) {
        change(self.lock().statistics_mut());
    }

    /// Gives everything unused back to the system.
    pub fn empty_cache(&self) {
        let mut state = self.lock();
        state.empty_cache();
        self.trace_memory(state);
    }

    /// The most bytes that heaps may take together.
    pub fn limit(&self) -> usize {
        self.lock().limit()
    }

    /// Changes the limit; what is allocated already stays.
    pub fn set_limit(&self, bytes: usize) {
        self.lock().set_limit(bytes);
    }

    /// Keeps everybody out until what this gives is dropped.
    pub fn hold(&self) -> impl Sized + '_ {
        self.lock()
    }

    fn owner(&self, queue: u64) -> Owner {
        if self.ordered { Owner::Queue(queue) } else { Owner::Anyone }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under the lock, so a poisoned one still holds a whole state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trace_memory(&self, state: MutexGuard<'_, State>) {
        if trace::is_on() {
            let now = state.statistics();
            drop(state);
            trace::memory(self.device, now.allocated, now.reserved);
        }
    }
}
