//! Buddy blocks inside one heap: powers of two of the smallest block, halved on demand, joined when both halves are free.

use std::collections::BTreeSet;

/// The smallest block, and the alignment of every block.
pub(crate) const SMALLEST: usize = 256;
/// A shared heap, where the limit leaves room for one.
pub(crate) const HEAP: usize = 64 << 20;
/// Orders of blocks in the largest shared heap: order `o` is `SMALLEST << o` bytes.
pub(crate) const ORDERS: usize = (HEAP / SMALLEST).trailing_zeros() as usize + 1;

/// What a block is to the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// In no one's hands and ready to be split or joined.
    Free,
    /// Handed out.
    Used,
    /// Given back, and kept whole for the next request of its size.
    Cached,
}

/// A block as the table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub used: Use,
    pub order: usize,
    /// Granules (of `SMALLEST` bytes) that were asked for; a block may be larger.
    pub granules: usize,
}

/// The blocks of one heap, named by the index of their first granule.
///
/// A table with one word a granule answers both "what begins here" and "what lies around here" without a search
/// tree; it is zeroed lazily by the system, so a heap with few blocks costs few pages.
pub(crate) struct Buddy {
    table: Vec<u32>,
    /// Free blocks by order. Sorted, so that low addresses fill first and the heap's end stays whole.
    free: [BTreeSet<u32>; ORDERS],
    /// Bit `o` is set when `free[o]` holds a block.
    orders_free: u32,
    /// The order of the whole heap.
    top: usize,
}

/// The order of the smallest block that holds so many granules.
pub(crate) fn order_of(granules: usize) -> usize {
    granules.next_power_of_two().trailing_zeros() as usize
}

const GRANULES_BITS: u32 = 20;
const ORDER_BITS: u32 = 5;

fn pack(block: Block) -> u32 {
    let used = match block.used {
        Use::Free => 1,
        Use::Used => 2,
        Use::Cached => 3,
    };
    used << (GRANULES_BITS + ORDER_BITS) | (block.order as u32) << GRANULES_BITS | block.granules as u32
}

fn unpack(word: u32) -> Option<Block> {
    let used = match word >> (GRANULES_BITS + ORDER_BITS) {
        0 => return None,
        1 => Use::Free,
        2 => Use::Used,
        _ => Use::Cached,
    };
    let order = word >> GRANULES_BITS & ((1 << ORDER_BITS) - 1);
    Some(Block { used, order: order as usize, granules: (word & ((1 << GRANULES_BITS) - 1)) as usize })
}

impl Buddy {
    /// A heap of `SMALLEST << top` bytes with one free block.
    pub fn new(top: usize) -> Buddy {
        let table = vec![0; 1 << top];
        let free = std::array::from_fn(|_| BTreeSet::new());
        let mut buddy = Buddy { table, free, orders_free: 0, top };
        buddy.insert_free(0, top);
        buddy
    }

    /// Takes a free block of the order, splitting a larger one where needed. The caller marks it.
    pub fn take(&mut self, order: usize) -> Option<u32> {
        let fitting = self.orders_free >> order << order;
        if fitting == 0 {
            return None;
        }
        let mut from = fitting.trailing_zeros() as usize;
        let first = *self.free[from].first()?;
        self.remove_free(first, from);
        while from > order {
            from -= 1;
            self.insert_free(first + (1 << from), from);
        }
        Some(first)
    }

    /// Gives a block back and joins it with its buddies as far as they are free.
    pub fn give(&mut self, first: u32, order: usize) {
        let (mut first, mut order) = (first, order);
        while order < self.top {
            let buddy = first ^ (1 << order);
            if !self.free[order].contains(&buddy) {
                break;
            }
            self.remove_free(buddy, order);
            self.table[first as usize] = 0;
            first = first.min(buddy);
            order += 1;
        }
        self.insert_free(first, order);
    }

    /// Writes what a block that `take` gave is used for.
    pub fn mark(&mut self, first: u32, used: Use, order: usize, granules: usize) {
        self.table[first as usize] = pack(Block { used, order, granules });
    }

    /// The block that begins at this granule.
    pub fn at(&self, first: u32) -> Option<Block> {
        unpack(self.table[first as usize])
    }

    /// The block around this granule and its first granule.
    pub fn around(&self, granule: u32) -> Option<(u32, Block)> {
        (0..=self.top).find_map(|order| {
            let first = granule >> order << order;
            let block = self.at(first)?;
            // A block further left that ends before the granule is no answer.
            (granule >> block.order << block.order == first).then_some((first, block))
        })
    }

    /// Whether nothing is handed out or cached.
    pub fn is_unused(&self) -> bool {
        self.orders_free >> self.top == 1
    }

    /// The free blocks of an order and above: (first granule, order).
    pub fn free_blocks(&self, from_order: usize) -> impl Iterator<Item = (u32, usize)> {
        (from_order..=self.top).flat_map(|order| self.free[order].iter().map(move |&first| (first, order)))
    }

    fn insert_free(&mut self, first: u32, order: usize) {
        self.free[order].insert(first);
        self.orders_free |= 1 << order;
        self.mark(first, Use::Free, order, 0);
    }

    fn remove_free(&mut self, first: u32, order: usize) {
        self.free[order].remove(&first);
        if self.free[order].is_empty() {
            self.orders_free &= !(1 << order);
        }
        self.table[first as usize] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_split_and_join() {
        let mut buddy = Buddy::new(ORDERS - 1);
        let first = buddy.take(0).expect("a block");
        let second = buddy.take(0).expect("a block");
        let large = buddy.take(ORDERS - 2).expect("half of the heap");
        assert_eq!((first, second, large), (0, 1, 1 << (ORDERS - 2)));
        assert_eq!(buddy.take(ORDERS - 2), None);
        buddy.give(large, ORDERS - 2);
        buddy.give(first, 0);
        assert!(!buddy.is_unused());
        buddy.give(second, 0);
        assert!(buddy.is_unused());
        assert_eq!(buddy.table.iter().filter(|&&word| word != 0).count(), 1);
    }

    #[test]
    fn a_small_heap_gives_all_of_itself_and_no_more() {
        let mut buddy = Buddy::new(2);
        let blocks: Vec<_> = std::iter::from_fn(|| buddy.take(0)).collect();
        assert_eq!(blocks, [0, 1, 2, 3]);
        blocks.iter().for_each(|&block| buddy.give(block, 0));
        assert!(buddy.is_unused());
        assert_eq!((buddy.take(3), buddy.take(2)), (None, Some(0)));
    }

    #[test]
    fn the_block_around_an_interior_granule_is_found() {
        let mut buddy = Buddy::new(ORDERS - 1);
        let small = buddy.take(0).expect("a block");
        buddy.mark(small, Use::Used, 0, 1);
        let block = buddy.take(3).expect("a block");
        buddy.mark(block, Use::Used, 3, 5);
        assert_eq!(buddy.around(block + 7), Some((block, Block { used: Use::Used, order: 3, granules: 5 })));
        assert_eq!(buddy.around(small), Some((small, Block { used: Use::Used, order: 0, granules: 1 })));
        assert_eq!(buddy.around(small + 1).map(|(_, block)| block.used), Some(Use::Free));
    }

    #[test]
    fn the_largest_block_packs() {
        let block = Block { used: Use::Cached, order: ORDERS - 1, granules: HEAP / SMALLEST };
        assert_eq!(unpack(pack(block)), Some(block));
        assert_eq!(order_of(1), 0);
        assert_eq!(order_of(HEAP / SMALLEST), ORDERS - 1);
    }
}
