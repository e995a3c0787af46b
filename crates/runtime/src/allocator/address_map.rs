//! From any address inside a heap to the heap.

use super::heap::Region;
use std::collections::BTreeMap;

/// The heaps by address. Blocks inside a heap are the heap's own business.
#[derive(Default)]
pub(crate) struct AddressMap {
    heaps: BTreeMap<usize, (Region, u32)>,
    /// The last answer: consecutive calls mostly concern one heap.
    last: (Region, u32),
}

impl AddressMap {
    /// Adds a heap.
    pub fn insert(&mut self, region: Region, heap: u32) {
        self.heaps.insert(region.address, (region, heap));
    }

    /// Removes a heap.
    pub fn remove(&mut self, region: Region) {
        self.heaps.remove(&region.address);
        self.last = Default::default();
    }

    /// The heap around an address, and the address's offset in it.
    #[inline]
    pub fn find(&mut self, address: usize) -> Option<(u32, usize)> {
        let (region, heap) = self.last;
        let offset = address.wrapping_sub(region.address);
        if offset < region.bytes {
            return Some((heap, offset));
        }
        let (_, &(region, heap)) = self.heaps.range(..=address).next_back()?;
        let offset = address - region.address;
        (offset < region.bytes).then(|| {
            self.last = (region, heap);
            (heap, offset)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interior_addresses_find_their_heap_and_gaps_find_none() {
        let mut map = AddressMap::default();
        let (low, high) = (Region { address: 1000, bytes: 100 }, Region { address: 2000, bytes: 50 });
        map.insert(low, 7);
        map.insert(high, 9);
        assert_eq!(map.find(1099), Some((7, 99)));
        assert_eq!(map.find(2000), Some((9, 0)));
        assert_eq!([map.find(999), map.find(1100), map.find(2050), map.find(0)], [None; 4]);
        assert_eq!(map.find(1000), Some((7, 0)));
        map.remove(low);
        assert_eq!(map.find(1000), None);
    }
}
