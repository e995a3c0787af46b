//! The allocator's state and its decisions, under one lock.

use super::address_map::AddressMap;
use super::buddy::{self, Buddy, HEAP, ORDERS, SMALLEST, Use};
use super::cache::{Cache, CachedBlock, OwnHeap};
use super::heap::{HeapSource, Region};
use super::statistics::MemoryStatistics;
use crate::error::{Error, Result};
use std::ops::Range;

/// A request above this would use a shared heap up, so it gets a heap that fits.
const LARGEST_SHARED: usize = HEAP / 2;
/// The smallest shared heap, for the last part of the limit.
const SMALLEST_HEAP: usize = 1 << 20;
/// Heaps of their own are rounded up to this.
const OWN_ROUNDING: usize = 64 << 10;
/// Free blocks of this order and above lose their physical memory when the cache is emptied.
const DISCARD_ORDER: usize = (OWN_ROUNDING / SMALLEST).trailing_zeros() as usize;
/// Cached heaps of their own stay below this share of the limit: odd sizes would pile up otherwise.
const OWN_CACHE_SHARE: usize = 8;

/// What a heap is cut into.
enum Blocks {
    Shared(Box<Buddy>),
    Own { used: Use, bytes: usize },
}

struct Heap {
    region: Region,
    blocks: Blocks,
}

/// Everything that the allocator's lock guards.
pub(super) struct State {
    device: usize,
    source: Box<dyn HeapSource>,
    heaps: Vec<Option<Heap>>,
    /// Indices of shared heaps in `heaps`.
    shared: Vec<u32>,
    map: AddressMap,
    cache: Cache,
    statistics: MemoryStatistics,
    limit: usize,
}

impl State {
    pub fn new(device: usize, source: Box<dyn HeapSource>, limit: usize) -> State {
        State {
            device,
            source,
            heaps: Vec::new(),
            shared: Vec::new(),
            map: AddressMap::new(),
            cache: Cache::default(),
            statistics: MemoryStatistics::default(),
            limit,
        }
    }

    pub fn allocate(&mut self, bytes: usize, queue: u64) -> Result<usize> {
        let address = match bytes.max(1).checked_next_multiple_of(SMALLEST) {
            Some(rounded) if rounded <= LARGEST_SHARED => self.allocate_block(rounded, queue),
            Some(rounded) => self.allocate_own(rounded, queue),
            None => None,
        };
        address.ok_or_else(|| self.out_of_memory(bytes))
    }

    pub fn free(&mut self, address: usize, queue: u64) -> Result<()> {
        let Some((heap, offset)) = self.map.find(address) else {
            return Err(self.not_allocated(address, "it lies in no heap"));
        };
        match self.heaps[heap as usize].as_mut().map(|heap| &mut heap.blocks) {
            Some(Blocks::Shared(buddy)) => {
                let first = (offset / SMALLEST) as u32;
                match buddy.at(first) {
                    Some(block) if block.used == Use::Used && offset % SMALLEST == 0 => {
                        buddy.mark(first, Use::Cached, block.order, 0);
                        self.cache.push(queue, block.order, CachedBlock { heap, first });
                        self.statistics.count_free(block.granules * SMALLEST);
                        Ok(())
                    }
                    _ => {
                        let used = buddy.around(first).is_some_and(|(_, block)| block.used == Use::Used);
                        Err(self.not_allocated(address, why_not(used)))
                    }
                }
            }
            Some(Blocks::Own { used, bytes }) if *used == Use::Used && offset == 0 => {
                *used = Use::Cached;
                self.statistics.count_free(*bytes);
                self.keep_own(heap, queue);
                Ok(())
            }
            Some(Blocks::Own { used, .. }) => {
                let used = *used == Use::Used;
                Err(self.not_allocated(address, why_not(used)))
            }
            None => Err(self.not_allocated(address, "it lies in no heap")),
        }
    }

    pub fn resolve(&mut self, address: usize, bytes: usize) -> Result<(usize, usize)> {
        let unknown = Error::UnknownAddress { device: self.device, address, bytes };
        let Some(block) = self.block(address) else { return Err(unknown) };
        if bytes <= block.end - address { Ok((block.start, address - block.start)) } else { Err(unknown) }
    }

    /// The addresses of the buffer around an address.
    pub fn block(&mut self, address: usize) -> Option<Range<usize>> {
        let (heap, offset) = self.map.find(address)?;
        let (begin, length) = match &self.heaps[heap as usize].as_ref()?.blocks {
            Blocks::Shared(buddy) => match buddy.around((offset / SMALLEST) as u32)? {
                (first, block) if block.used == Use::Used => (first as usize * SMALLEST, block.granules * SMALLEST),
                _ => return None,
            },
            Blocks::Own { used: Use::Used, bytes } => (0, *bytes),
            Blocks::Own { .. } => return None,
        };
        let start = address - (offset - begin);
        (offset - begin < length).then(|| start..start + length)
    }

    pub fn statistics(&self) -> MemoryStatistics {
        MemoryStatistics { cached: self.cache.bytes(), ..self.statistics }
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
        self.flush_blocks();
        for own in self.cache.drain_own() {
            self.release(own.heap);
        }
        self.release_unused();
        for &index in &self.shared {
            let Some(Heap { region, blocks: Blocks::Shared(buddy) }) = &self.heaps[index as usize] else { continue };
            for (first, order) in buddy.free_blocks(DISCARD_ORDER) {
                let address = region.address + first as usize * SMALLEST;
                self.source.discard(Region { address, bytes: SMALLEST << order });
            }
        }
    }

    #[inline]
    fn allocate_block(&mut self, bytes: usize, queue: u64) -> Option<usize> {
        let granules = bytes / SMALLEST;
        let order = buddy::order_of(granules);
        let place = match self.cache.pop(queue, order) {
            Some(place) => {
                self.statistics.cache_hits += 1;
                place
            }
            None => {
                self.statistics.cache_misses += 1;
                match self.find_block(order) {
                    Some(place) => place,
                    None => return self.reserve_own(bytes),
                }
            }
        };
        let Some(Heap { region, blocks: Blocks::Shared(buddy) }) = &mut self.heaps[place.heap as usize] else {
            return None;
        };
        buddy.mark(place.first, Use::Used, order, granules);
        self.statistics.count_allocation(bytes);
        Some(region.address + place.first as usize * SMALLEST)
    }

    /// A block from the heaps; a new heap when there is none and the limit allows it, a small one at the limit's end.
    fn find_block(&mut self, order: usize) -> Option<CachedBlock> {
        if let Some(place) = self.take_block(order) {
            return Some(place);
        }
        // A heap's worth of cached blocks of other sizes may join to what is asked for: look before growing.
        if self.cache.block_bytes() >= HEAP {
            self.flush_blocks();
            if let Some(place) = self.take_block(order) {
                return Some(place);
            }
        }
        if self.reserve_shared(HEAP) {
            return self.take_block(order);
        }
        self.empty_cache();
        if let Some(place) = self.take_block(order) {
            return Some(place);
        }
        let room = self.limit.saturating_sub(self.statistics.reserved).min(HEAP);
        let heap = room.checked_ilog2().map_or(0, |bits| 1 << bits);
        let serves = heap >= SMALLEST_HEAP && heap >= SMALLEST << order;
        if serves && self.reserve_shared(heap) { self.take_block(order) } else { None }
    }

    fn take_block(&mut self, order: usize) -> Option<CachedBlock> {
        debug_assert!(order < ORDERS);
        self.shared.iter().find_map(|&index| match &mut self.heaps[index as usize] {
            Some(Heap { blocks: Blocks::Shared(buddy), .. }) => {
                buddy.take(order).map(|first| CachedBlock { heap: index, first })
            }
            _ => None,
        })
    }

    fn allocate_own(&mut self, bytes: usize, queue: u64) -> Option<usize> {
        let Some(own) = self.cache.pop_own(queue, bytes) else {
            self.statistics.cache_misses += 1;
            return self.reserve_own(bytes);
        };
        self.statistics.cache_hits += 1;
        self.statistics.count_allocation(bytes);
        let heap = self.heaps[own.heap as usize].as_mut()?;
        heap.blocks = Blocks::Own { used: Use::Used, bytes };
        Some(heap.region.address)
    }

    /// A new heap for one request, which the limit allows as it is or after emptying the cache.
    fn reserve_own(&mut self, bytes: usize) -> Option<usize> {
        let rounded = bytes.checked_next_multiple_of(OWN_ROUNDING)?;
        let region = match self.reserve(rounded) {
            Some(region) => region,
            None => {
                self.empty_cache();
                self.reserve(rounded)?
            }
        };
        self.add_heap(Heap { region, blocks: Blocks::Own { used: Use::Used, bytes } });
        self.statistics.count_allocation(bytes);
        Some(region.address)
    }

    fn reserve_shared(&mut self, bytes: usize) -> bool {
        let Some(region) = self.reserve(bytes) else { return false };
        let buddy = Buddy::new(buddy::order_of(bytes / SMALLEST));
        let index = self.add_heap(Heap { region, blocks: Blocks::Shared(Box::new(buddy)) });
        self.shared.push(index);
        true
    }

    fn reserve(&mut self, bytes: usize) -> Option<Region> {
        if self.statistics.reserved.checked_add(bytes)? > self.limit {
            return None;
        }
        let region = self.source.reserve(bytes)?;
        self.statistics.count_heap(bytes);
        Some(region)
    }

    fn add_heap(&mut self, heap: Heap) -> u32 {
        let region = heap.region;
        let index = self.heaps.iter().position(Option::is_none).unwrap_or_else(|| {
            self.heaps.push(None);
            self.heaps.len() - 1
        });
        self.heaps[index] = Some(heap);
        self.map.insert(region, index as u32);
        index as u32
    }

    fn release(&mut self, index: u32) {
        let Some(heap) = self.heaps[index as usize].take() else { return };
        self.map.remove(heap.region);
        self.statistics.count_released_heap(heap.region.bytes);
        self.source.release(heap.region);
    }

    fn release_unused(&mut self) {
        for index in std::mem::take(&mut self.shared) {
            match &self.heaps[index as usize] {
                Some(Heap { blocks: Blocks::Shared(buddy), .. }) if !buddy.is_unused() => self.shared.push(index),
                _ => self.release(index),
            }
        }
    }

    /// Joins every cached block with the free blocks of its heap, once no command uses it any more.
    fn flush_blocks(&mut self) {
        for queue in self.cache.queues() {
            self.source.finish(queue);
        }
        self.statistics.flush_count += 1;
        for (place, order) in self.cache.drain_blocks() {
            if let Some(Heap { blocks: Blocks::Shared(buddy), .. }) = &mut self.heaps[place.heap as usize] {
                buddy.give(place.first, order);
            }
        }
    }

    fn keep_own(&mut self, index: u32, queue: u64) {
        let Some(heap) = &self.heaps[index as usize] else { return };
        self.cache.push_own(queue, OwnHeap { heap: index, bytes: heap.region.bytes });
        while let Some(own) = self.cache.pop_oldest_own(queue, self.limit / OWN_CACHE_SHARE) {
            self.source.finish(queue);
            self.release(own.heap);
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
        for queue in self.cache.queues() {
            self.source.finish(queue);
        }
        for heap in self.heaps.drain(..).flatten() {
            self.source.release(heap.region);
        }
    }
}

fn why_not(inside_a_buffer: bool) -> &'static str {
    if inside_a_buffer { "it is not the beginning of its buffer" } else { "it was freed already or never allocated" }
}
