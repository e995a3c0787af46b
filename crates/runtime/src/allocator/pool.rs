//! Heaps cut into blocks of any length, and which of these are free.
//!
//! A request takes the shortest free block that holds it (the lowest address among equals) and leaves the rest free; a block that is given back
//! joins its free neighbours. So memory that was used once is used again before fresh pages are touched, and nothing is rounded up.

use super::address_map::AddressMap;
use super::heap::Region;
use std::collections::{BTreeMap, BTreeSet};

/// The unit of a block's length, and the alignment of every block.
pub(crate) const GRANULE: usize = 256;

/// Who may use a free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// Any queue: no command uses it any more.
    Anyone,
    /// The queue that freed it, whose commands run in order.
    Queue(u64),
}

/// Where a block begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub heap: u32,
    /// The first granule.
    pub first: usize,
}

/// What a block is to the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// In no one's hands, ready to be cut or joined.
    Free(Owner),
    /// Handed out, for a request of so many granules.
    Used(usize),
    /// Given back, and kept whole for the next request of its size.
    Cached,
}

/// A block as its heap knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub used: Use,
    /// The length.
    pub granules: usize,
}

/// A free block as it is searched: by owner, then by length, then by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Free {
    owner: Owner,
    granules: usize,
    place: Place,
}

struct Heap {
    region: Region,
    /// By first granule; they cover the heap.
    blocks: BTreeMap<usize, Block>,
    /// When a block was last given back, in the count of these.
    given: u64,
}

/// A heap in which nothing is handed out or cached.
pub(super) struct Unused {
    pub heap: u32,
    pub bytes: usize,
    /// Who may use its only block.
    pub owner: Owner,
    given: u64,
}

/// The heaps of a device.
#[derive(Default)]
pub(super) struct Pool {
    heaps: Vec<Option<Heap>>,
    map: AddressMap,
    free: BTreeSet<Free>,
    /// Granules in free blocks of queues.
    of_queues: usize,
    given: u64,
}

impl Pool {
    /// Adds a heap, all of it free.
    pub fn add(&mut self, region: Region) {
        let index = self.heaps.iter().position(Option::is_none).unwrap_or_else(|| {
            self.heaps.push(None);
            self.heaps.len() - 1
        });
        self.map.insert(region, index as u32);
        self.heaps[index] = Some(Heap { region, blocks: BTreeMap::new(), given: self.given });
        let place = Place { heap: index as u32, first: 0 };
        self.insert_free(Free { owner: Owner::Anyone, granules: region.bytes / GRANULE, place });
    }

    /// Takes out a heap, which must be unused.
    pub fn remove(&mut self, heap: u32) -> Option<Region> {
        self.remove_free(Place { heap, first: 0 });
        let heap = self.heaps[heap as usize].take()?;
        self.map.remove(heap.region);
        Some(heap.region)
    }

    /// Takes all heaps out, whatever they are used for.
    pub fn drain(&mut self) -> impl Iterator<Item = Region> {
        std::mem::take(self).heaps.into_iter().flatten().map(|heap| heap.region)
    }

    /// Cuts a block from a free one of this owner, and marks it as used for a request of so many granules.
    pub fn take(&mut self, owner: Owner, granules: usize, asked: usize) -> Option<Place> {
        let least = Free { owner, granules, place: Place { heap: 0, first: 0 } };
        let found = *self.free.range(least..).next().filter(|free| free.owner == owner)?;
        self.remove_free(found.place);
        if found.granules > granules {
            let rest = Place { first: found.place.first + granules, ..found.place };
            self.insert_free(Free { owner, granules: found.granules - granules, place: rest });
        }
        self.mark(found.place, Block { used: Use::Used(asked), granules });
        Some(found.place)
    }

    /// Gives a block back, which joins its neighbours as far as they are free for the same owner.
    pub fn give(&mut self, place: Place, owner: Owner) {
        let heap = self.heaps[place.heap as usize].as_mut();
        if let Some(block) = heap.and_then(|heap| heap.blocks.remove(&place.first)) {
            self.join(Free { owner, granules: block.granules, place });
        }
    }

    /// Makes the free blocks of queues anyone's, once no command uses them any more.
    pub fn give_to_anyone(&mut self) {
        let of_queues = Free { owner: Owner::Queue(0), granules: 0, place: Place { heap: 0, first: 0 } };
        while let Some(&Free { place, .. }) = self.free.range(of_queues..).next() {
            let granules = self.remove_free(place);
            self.join(Free { owner: Owner::Anyone, granules, place });
        }
    }

    /// Adds a free block that nothing knows of, and joins it.
    fn join(&mut self, mut free: Free) {
        let Place { heap: index, first } = free.place;
        let Some(heap) = self.heaps[index as usize].as_mut() else { return };
        self.given += 1;
        heap.given = self.given;
        let joins = |&(_, block): &(&usize, &Block)| block.used == Use::Free(free.owner);
        let before = heap.blocks.range(..first).next_back().filter(joins);
        let after = heap.blocks.get_key_value(&(first + free.granules)).filter(joins);
        for neighbour in [before, after].map(|found| found.map(|(&first, _)| first)).into_iter().flatten() {
            free.granules += self.remove_free(Place { heap: index, first: neighbour });
            free.place.first = free.place.first.min(neighbour);
        }
        self.insert_free(free);
    }

    /// Writes what a block is used for.
    pub fn mark(&mut self, place: Place, block: Block) {
        if let Some(heap) = self.heaps[place.heap as usize].as_mut() {
            heap.blocks.insert(place.first, block);
        }
    }

    /// The address at which a block begins.
    pub fn address(&self, place: Place) -> Option<usize> {
        let heap = self.heaps[place.heap as usize].as_ref()?;
        Some(heap.region.address + place.first * GRANULE)
    }

    /// The block around an address, with its place and the offset in it; `None` outside of all heaps.
    pub fn around(&mut self, address: usize) -> Option<(Place, Block, usize)> {
        let (heap, offset) = self.map.find(address)?;
        let blocks = &self.heaps[heap as usize].as_ref()?.blocks;
        let (&first, &block) = blocks.range(..=offset / GRANULE).next_back()?;
        Some((Place { heap, first }, block, offset - first * GRANULE))
    }

    /// The queues that have free blocks of their own.
    pub fn queues(&self) -> BTreeSet<u64> {
        let of_queue = |free: &Free| match free.owner {
            Owner::Queue(queue) => Some(queue),
            Owner::Anyone => None,
        };
        self.free.iter().filter_map(of_queue).collect()
    }

    /// Bytes in free blocks of queues.
    pub fn bytes_of_queues(&self) -> usize {
        self.of_queues * GRANULE
    }

    /// The heaps in which nothing is handed out or cached, the longest unused first.
    pub fn unused(&self) -> Vec<Unused> {
        let heaps = self.heaps.iter().enumerate().filter_map(|(index, heap)| Some((index, heap.as_ref()?)));
        let unused = heaps.filter_map(|(index, Heap { region, blocks, given })| match blocks.get(&0)?.used {
            Use::Free(owner) if blocks.len() == 1 => {
                Some(Unused { heap: index as u32, bytes: region.bytes, owner, given: *given })
            }
            _ => None,
        });
        let mut unused: Vec<_> = unused.collect();
        unused.sort_by_key(|heap| heap.given);
        unused
    }

    /// The addresses of the blocks that anyone may use.
    pub fn free(&self) -> impl Iterator<Item = Region> {
        let of_anyone = self.free.iter().take_while(|free| free.owner == Owner::Anyone);
        of_anyone.filter_map(|free| Some(Region { address: self.address(free.place)?, bytes: free.granules * GRANULE }))
    }

    fn insert_free(&mut self, free: Free) {
        self.mark(free.place, Block { used: Use::Free(free.owner), granules: free.granules });
        if free.owner != Owner::Anyone {
            self.of_queues += free.granules;
        }
        self.free.insert(free);
    }

    /// Takes a free block out of everything that knows it; its length.
    fn remove_free(&mut self, place: Place) -> usize {
        let heap = self.heaps[place.heap as usize].as_mut();
        let Some(Block { used: Use::Free(owner), granules }) = heap.and_then(|heap| heap.blocks.remove(&place.first))
        else {
            return 0;
        };
        if owner != Owner::Anyone {
            self.of_queues -= granules;
        }
        self.free.remove(&Free { owner, granules, place });
        granules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: usize = 1 << 20;

    fn pool() -> Pool {
        let mut pool = Pool::default();
        pool.add(Region { address: HEAP, bytes: HEAP });
        // The next one follows at once in memory, and is another heap all the same.
        pool.add(Region { address: 2 * HEAP, bytes: HEAP });
        pool
    }

    /// A block that is used as a whole.
    fn taken(pool: &mut Pool, owner: Owner, granules: usize) -> Option<Place> {
        pool.take(owner, granules, granules)
    }

    fn free(pool: &Pool) -> Vec<(usize, usize)> {
        pool.free().map(|free| (free.address, free.bytes)).collect()
    }

    #[test]
    fn the_shortest_block_that_holds_a_request_is_cut() {
        let mut pool = pool();
        let places = [3, 5, 4, 7].map(|granules| taken(&mut pool, Owner::Anyone, granules).expect("a block"));
        assert_eq!(places.map(|place| (place.heap, place.first)), [(0, 0), (0, 3), (0, 8), (0, 12)]);
        pool.give(places[0], Owner::Anyone);
        pool.give(places[2], Owner::Anyone);
        let shortest = taken(&mut pool, Owner::Anyone, 2).expect("a block");
        assert_eq!((shortest, taken(&mut pool, Owner::Anyone, 4)), (places[0], Some(places[2])));
        assert_eq!(taken(&mut pool, Owner::Anyone, HEAP / GRANULE + 1), None);
    }

    #[test]
    fn neighbours_join_within_their_heap() {
        let mut pool = pool();
        let whole = HEAP / GRANULE;
        let places =
            [whole / 2, whole / 2, whole].map(|granules| taken(&mut pool, Owner::Anyone, granules).expect("a block"));
        assert_eq!(free(&pool), []);
        places.iter().for_each(|&place| pool.give(place, Owner::Anyone));
        assert_eq!(free(&pool), [(HEAP, HEAP), (2 * HEAP, HEAP)]);
        assert_eq!(pool.unused().len(), 2);
    }

    #[test]
    fn a_queue_has_what_it_gave_back_until_it_is_anyones() {
        let mut pool = pool();
        let [one, two] = [8, 8].map(|granules| taken(&mut pool, Owner::Anyone, granules).expect("a block"));
        pool.give(one, Owner::Queue(7));
        pool.give(two, Owner::Queue(9));
        assert_eq!((pool.bytes_of_queues(), pool.queues()), (16 * GRANULE, BTreeSet::from([7, 9])));
        assert_eq!(taken(&mut pool, Owner::Queue(7), 9), None, "neighbours of two queues do not join");
        assert_eq!(taken(&mut pool, Owner::Queue(7), 8), Some(one));
        pool.give(one, Owner::Queue(7));
        pool.give_to_anyone();
        assert_eq!((pool.bytes_of_queues(), free(&pool)), (0, vec![(HEAP, HEAP), (2 * HEAP, HEAP)]));
    }

    #[test]
    fn the_block_around_an_address_is_found() {
        let mut pool = pool();
        let place = taken(&mut pool, Owner::Anyone, 5).expect("a block");
        pool.mark(place, Block { used: Use::Used(3), granules: 5 });
        let block = Block { used: Use::Used(3), granules: 5 };
        assert_eq!(pool.around(HEAP + 700), Some((place, block, 700)));
        assert_eq!(pool.around(HEAP + 5 * GRANULE).map(|(_, block, _)| block.used), Some(Use::Free(Owner::Anyone)));
        assert_eq!(pool.around(HEAP - 1), None);
    }
}
