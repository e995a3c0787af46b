//! The allocator's state and its decisions, under one lock.

use super::cache::{Cache, order_of};
use super::heap::{HeapSource, Region};
use super::pool::{Block, GRANULE, Owner, Place, Pool, Use};
use super::statistics::MemoryStatistics;
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::ops::Range;

/// A heap that many requests share.
pub(super) const HEAP: usize = 64 << 20;
/// Other heaps are multiples of this, and pages are given up in such parts.
const ROUNDING: usize = 64 << 10;
/// Unused heaps that were made for one request stay below this share of the limit: odd sizes would pile up otherwise.
const UNUSED_SHARE: usize = 8;

/// Everything that the allocator's lock guards.
pub(super) struct State {
    device: usize,
    source: Box<dyn HeapSource>,
    pool: Pool,
    cache: Cache,
    statistics: MemoryStatistics,
    limit: usize,
}

impl State {
    pub fn new(device: usize, source: Box<dyn HeapSource>, limit: usize) -> State {
        let statistics = MemoryStatistics::default();
        State { device, source, pool: Pool::default(), cache: Cache::default(), statistics, limit }
    }

    pub fn allocate(&mut self, bytes: usize, owner: Owner) -> Result<usize> {
        let address = bytes.max(1).checked_next_multiple_of(GRANULE).and_then(|asked| {
            let asked = asked / GRANULE;
            let place = self.find(asked, owner)?;
            self.statistics.count_allocation(asked * GRANULE);
            self.pool.address(place)
        });
        address.ok_or_else(|| self.out_of_memory(bytes))
    }

    pub fn free(&mut self, address: usize, owner: Owner) -> Result<()> {
        let Some((place, block, offset)) = self.pool.around(address) else {
            return Err(self.not_allocated(address, "it lies in no heap"));
        };
        let Use::Used(asked) = block.used else {
            return Err(self.not_allocated(address, "it was freed already or never allocated"));
        };
        if offset != 0 {
            return Err(self.not_allocated(address, "it is not the beginning of its buffer"));
        }
        self.statistics.count_free(asked * GRANULE);
        if let Some(order) = order_of(block.granules) {
            self.pool.mark(place, Block { used: Use::Cached, ..block });
            self.cache.push(owner, order, place);
        } else {
            self.pool.give(place, owner);
            if block.granules * GRANULE > HEAP / 2 {
                self.shed();
            }
        }
        Ok(())
    }

    pub fn resolve(&mut self, address: usize, bytes: usize) -> Result<(usize, usize)> {
        let unknown = Error::UnknownAddress { device: self.device, address, bytes };
        let Some(block) = self.block(address) else { return Err(unknown) };
        if bytes <= block.end - address { Ok((block.start, address - block.start)) } else { Err(unknown) }
    }

    /// The addresses of the buffer around an address.
    pub fn block(&mut self, address: usize) -> Option<Range<usize>> {
        let (_, block, offset) = self.pool.around(address)?;
        let Use::Used(asked) = block.used else { return None };
        let start = address - offset;
        (offset < asked * GRANULE).then(|| start..start + asked * GRANULE)
    }

    pub fn statistics(&self) -> MemoryStatistics {
        MemoryStatistics { cached: self.held(), ..self.statistics }
    }

    pub fn statistics_mut(&mut self) -> &mut MemoryStatistics {
        &mut self.statistics
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    pub fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Gives cached blocks back to their heaps, unused heaps to the system, and the pages of free blocks as well.
    pub fn empty_cache(&mut self) {
        self.flush();
        for unused in self.pool.unused() {
            self.release(unused.heap);
        }
        for Region { address, bytes } in self.pool.free() {
            let (begin, end) = (address.next_multiple_of(ROUNDING), (address + bytes) / ROUNDING * ROUNDING);
            if begin < end {
                self.source.discard(Region { address: begin, bytes: end - begin });
            }
        }
    }

    /// A block for a request of so many granules, marked as used.
    #[inline]
    fn find(&mut self, asked: usize, owner: Owner) -> Option<Place> {
        let order = order_of(asked);
        let granules = order.map_or(asked, |order| 1 << order);
        if let Some(place) = order.and_then(|order| self.cache.pop(owner, order)) {
            self.statistics.cache_hits += 1;
            self.pool.mark(place, Block { used: Use::Used(asked), granules });
            return Some(place);
        }
        if owner != Owner::Anyone
            && let Some(place) = self.pool.take(owner, granules, asked)
        {
            self.statistics.cache_hits += 1;
            return Some(place);
        }
        self.statistics.cache_misses += 1;
        self.find_further(granules, asked)
    }

    /// A block of anyone's; of a new heap when there is none and the limit allows one, a small one at the limit's end.
    fn find_further(&mut self, granules: usize, asked: usize) -> Option<Place> {
        if let Some(place) = self.pool.take(Owner::Anyone, granules, asked) {
            return Some(place);
        }
        // A heap's worth of freed blocks may join to what is asked for: look before growing.
        if self.held() >= HEAP {
            self.flush();
            if let Some(place) = self.pool.take(Owner::Anyone, granules, asked) {
                return Some(place);
            }
        }
        let bytes = granules.checked_mul(GRANULE)?;
        // What would use a shared heap up gets one that fits.
        let heap = if bytes > HEAP / 2 { bytes.checked_next_multiple_of(ROUNDING)? } else { HEAP };
        if !self.reserve(heap) {
            self.empty_cache();
            let room = self.limit.saturating_sub(self.statistics.reserved) / ROUNDING * ROUNDING;
            // Where it fails, there may be room all the same, in what was joined just now.
            let _grown = room >= bytes && self.reserve(heap.min(room));
        }
        self.pool.take(Owner::Anyone, granules, asked)
    }

    /// Bytes in freed blocks that do not serve every request.
    fn held(&self) -> usize {
        self.cache.bytes() + self.pool.bytes_of_queues()
    }

    /// Adds a heap, where the limit allows it.
    fn reserve(&mut self, bytes: usize) -> bool {
        let within = self.statistics.reserved.checked_add(bytes).is_some_and(|reserved| reserved <= self.limit);
        let Some(region) = within.then(|| self.source.reserve(bytes)).flatten() else { return false };
        self.statistics.count_heap(bytes);
        self.pool.add(region);
        true
    }

    fn release(&mut self, heap: u32) {
        let Some(region) = self.pool.remove(heap) else { return };
        self.statistics.count_released_heap(region.bytes);
        self.source.release(region);
    }

    /// Makes all that was freed anyone's, once no command uses it any more.
    fn flush(&mut self) {
        self.finish_queues();
        self.statistics.flush_count += 1;
        for place in self.cache.drain() {
            self.pool.give(place, Owner::Anyone);
        }
        self.pool.give_to_anyone();
    }

    /// Waits for the queues that freed something.
    fn finish_queues(&self) {
        let queues: BTreeSet<u64> = self.pool.queues().into_iter().chain(self.cache.queues()).collect();
        queues.into_iter().for_each(|queue| self.source.finish(queue));
    }

    /// Releases the longest unused of the heaps made for one request, while they take more than their share.
    fn shed(&mut self) {
        let mut unused = self.pool.unused();
        unused.retain(|heap| heap.bytes != HEAP);
        let mut bytes: usize = unused.iter().map(|heap| heap.bytes).sum();
        for heap in unused {
            if bytes <= self.limit / UNUSED_SHARE {
                break;
            }
            if let Owner::Queue(queue) = heap.owner {
                self.source.finish(queue);
            }
            bytes -= heap.bytes;
            self.release(heap.heap);
        }
    }

    fn out_of_memory(&mut self, requested: usize) -> Error {
        self.statistics.out_of_memory_count += 1;
        let MemoryStatistics { allocated, reserved, .. } = self.statistics;
        Error::OutOfMemory { device: self.device, requested, allocated, reserved, limit: self.limit }
    }

    fn not_allocated(&self, address: usize, why: &'static str) -> Error {
        Error::NotAllocated { device: self.device, address, why }
    }
}

impl Drop for State {
    /// Returns the heaps; buffers hold their device, so none is in use by one.
    fn drop(&mut self) {
        self.finish_queues();
        for region in self.pool.drain() {
            self.source.release(region);
        }
    }
}
