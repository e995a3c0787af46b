//! Freed blocks kept for the next request of their size, by queue: a queue runs its commands in order, so it may
//! reuse at once what it has just freed, while another queue may not.

use super::buddy::{ORDERS, SMALLEST};
use std::collections::VecDeque;

/// A cached block of a shared heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachedBlock {
    pub heap: u32,
    pub first: u32,
}

/// A cached heap of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnHeap {
    pub heap: u32,
    pub bytes: usize,
}

/// What one queue has freed.
struct Bins {
    queue: u64,
    blocks: [Vec<CachedBlock>; ORDERS],
    /// Oldest first.
    own: VecDeque<OwnHeap>,
    own_bytes: usize,
}

/// Everything that was freed and not yet given back to the heaps.
#[derive(Default)]
pub(crate) struct Cache {
    /// Few queues free memory, so a list is searched faster than a map.
    queues: Vec<Bins>,
    block_bytes: usize,
}

/// A cached heap serves a request that uses at least this share of it: 8 of 9 parts.
fn serves(heap: usize, bytes: usize) -> bool {
    heap >= bytes && heap - bytes <= bytes / 8
}

impl Cache {
    /// A block of the order that this queue freed, the youngest first (its memory is still in the CPU's caches).
    #[inline]
    pub fn pop(&mut self, queue: u64, order: usize) -> Option<CachedBlock> {
        let bins = self.queues.iter_mut().find(|bins| bins.queue == queue)?;
        let place = bins.blocks[order].pop()?;
        self.block_bytes -= SMALLEST << order;
        Some(place)
    }

    /// Keeps a freed block.
    #[inline]
    pub fn push(&mut self, queue: u64, order: usize, place: CachedBlock) {
        self.bins(queue).blocks[order].push(place);
        self.block_bytes += SMALLEST << order;
    }

    /// The smallest cached heap of this queue that serves the request without much waste.
    pub fn pop_own(&mut self, queue: u64, bytes: usize) -> Option<OwnHeap> {
        let bins = self.queues.iter_mut().find(|bins| bins.queue == queue)?;
        let fitting = bins.own.iter().enumerate().filter(|(_, own)| serves(own.bytes, bytes));
        let (index, _) = fitting.min_by_key(|(_, own)| own.bytes)?;
        let own = bins.own.remove(index)?;
        bins.own_bytes -= own.bytes;
        Some(own)
    }

    /// Keeps a freed heap.
    pub fn push_own(&mut self, queue: u64, own: OwnHeap) {
        let bins = self.bins(queue);
        bins.own.push_back(own);
        bins.own_bytes += own.bytes;
    }

    /// The oldest cached heap of this queue, when all of them together exceed `most` bytes.
    pub fn pop_oldest_own(&mut self, queue: u64, most: usize) -> Option<OwnHeap> {
        let bins = self.queues.iter_mut().find(|bins| bins.queue == queue && bins.own_bytes > most)?;
        let own = bins.own.pop_front()?;
        bins.own_bytes -= own.bytes;
        Some(own)
    }

    /// Bytes in cached blocks of shared heaps.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Bytes in all cached blocks and heaps.
    pub fn bytes(&self) -> usize {
        self.block_bytes + self.queues.iter().map(|bins| bins.own_bytes).sum::<usize>()
    }

    /// The queues that have something cached.
    pub fn queues(&self) -> Vec<u64> {
        let holds = |bins: &&Bins| !bins.own.is_empty() || bins.blocks.iter().any(|blocks| !blocks.is_empty());
        self.queues.iter().filter(holds).map(|bins| bins.queue).collect()
    }

    /// Takes out every cached block of a shared heap: (place, order).
    pub fn drain_blocks(&mut self) -> Vec<(CachedBlock, usize)> {
        self.block_bytes = 0;
        let bins = self.queues.iter_mut().flat_map(|bins| bins.blocks.iter_mut().enumerate());
        bins.flat_map(|(order, blocks)| blocks.drain(..).map(move |place| (place, order))).collect()
    }

    /// Takes out every cached heap, and forgets the queues: call `drain_blocks` first.
    pub fn drain_own(&mut self) -> Vec<OwnHeap> {
        debug_assert_eq!(self.block_bytes, 0);
        std::mem::take(&mut self.queues).into_iter().flat_map(|bins| bins.own).collect()
    }

    #[inline]
    fn bins(&mut self, queue: u64) -> &mut Bins {
        let index = self.queues.iter().position(|bins| bins.queue == queue).unwrap_or_else(|| {
            let blocks = std::array::from_fn(|_| Vec::new());
            self.queues.push(Bins { queue, blocks, own: VecDeque::new(), own_bytes: 0 });
            self.queues.len() - 1
        });
        &mut self.queues[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_gets_back_only_what_it_freed() {
        let mut cache = Cache::default();
        let place = CachedBlock { heap: 0, first: 8 };
        cache.push(1, 3, place);
        assert_eq!(cache.pop(2, 3), None);
        assert_eq!(cache.pop(1, 2), None);
        assert_eq!(cache.bytes(), SMALLEST << 3);
        assert_eq!(cache.pop(1, 3), Some(place));
        assert_eq!((cache.bytes(), cache.queues()), (0, vec![]));
    }

    #[test]
    fn a_heap_serves_the_tightest_request_and_the_oldest_leaves_first() {
        let mut cache = Cache::default();
        for (heap, bytes) in [(0, 1000), (1, 1100), (2, 5000)] {
            cache.push_own(0, OwnHeap { heap, bytes });
        }
        assert_eq!(cache.pop_own(0, 500), None, "half of a heap would be wasted");
        assert_eq!(cache.pop_own(0, 990).map(|own| own.heap), Some(0));
        assert_eq!(cache.pop_oldest_own(0, 6100), None);
        assert_eq!(cache.pop_oldest_own(0, 6000).map(|own| own.heap), Some(1));
        assert_eq!(cache.drain_own().len(), 1);
    }
}
