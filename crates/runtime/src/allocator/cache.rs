//! Small freed blocks kept for the next request of their size, by queue: a queue runs its commands in order, so it may reuse at once what it
//! has just freed, while another queue may not.

use super::pool::{GRANULE, Owner, Place};

/// Requests up to this are rounded up to a power of two, so that one freed block serves the next.
const LARGEST: usize = 64 << 10;
/// Sizes of small blocks: order `o` is `GRANULE << o` bytes.
const ORDERS: usize = (LARGEST / GRANULE).trailing_zeros() as usize + 1;

/// The order of the smallest block that holds so many granules; `None` where it is not a small one.
pub(super) fn order_of(granules: usize) -> Option<usize> {
    (granules <= LARGEST / GRANULE).then(|| granules.next_power_of_two().trailing_zeros() as usize)
}

/// What one owner has freed.
struct Bins {
    owner: Owner,
    blocks: [Vec<Place>; ORDERS],
}

/// Small blocks that were freed and not yet given back to the heaps.
#[derive(Default)]
pub(super) struct Cache {
    /// Few queues free memory, so a list is searched faster than a map.
    bins: Vec<Bins>,
    bytes: usize,
}

impl Cache {
    /// A block of the order that this owner freed, the youngest first (its memory is still in the CPU's caches).
    #[inline]
    pub fn pop(&mut self, owner: Owner, order: usize) -> Option<Place> {
        let bins = self.bins.iter_mut().find(|bins| bins.owner == owner)?;
        let place = bins.blocks[order].pop()?;
        self.bytes -= GRANULE << order;
        Some(place)
    }

    /// Keeps a freed block.
    #[inline]
    pub fn push(&mut self, owner: Owner, order: usize, place: Place) {
        let index = self.bins.iter().position(|bins| bins.owner == owner).unwrap_or_else(|| {
            self.bins.push(Bins { owner, blocks: std::array::from_fn(|_| Vec::new()) });
            self.bins.len() - 1
        });
        self.bins[index].blocks[order].push(place);
        self.bytes += GRANULE << order;
    }

    /// Bytes in all cached blocks.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The queues that have something cached.
    pub fn queues(&self) -> impl Iterator<Item = u64> {
        let holding = self.bins.iter().filter(|bins| bins.blocks.iter().any(|blocks| !blocks.is_empty()));
        holding.filter_map(|bins| match bins.owner {
            Owner::Queue(queue) => Some(queue),
            Owner::Anyone => None,
        })
    }

    /// Takes out every cached block, and forgets the queues.
    pub fn drain(&mut self) -> Vec<Place> {
        std::mem::take(self).bins.into_iter().flat_map(|bins| bins.blocks).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_gets_back_only_what_it_freed() {
        let mut cache = Cache::default();
        let place = Place { heap: 0, first: 8 };
        let [one, two] = [1, 2].map(Owner::Queue);
        cache.push(one, 3, place);
        assert_eq!((cache.pop(two, 3), cache.pop(one, 2)), (None, None));
        assert_eq!((cache.bytes(), cache.queues().collect::<Vec<_>>()), (GRANULE << 3, vec![1]));
        assert_eq!(cache.pop(one, 3), Some(place));
        assert_eq!((cache.bytes(), cache.queues().count()), (0, 0));
        cache.push(two, 0, place);
        assert_eq!((cache.drain(), cache.bytes()), (vec![place], 0));
    }

    #[test]
    fn small_sizes_have_an_order() {
        assert_eq!([1, 2, 3, 256, 257].map(order_of), [Some(0), Some(1), Some(2), Some(8), None]);
    }
}
