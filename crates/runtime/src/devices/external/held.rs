//! External devices that are held from one operator to the next. A device holds its owner's queue and pools of memory, and a static is never
//! dropped: so there is a bound.

use super::{Device, ExternalDevice, ExternalGpu};
use openmps_metal::Cache;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// How many are held. A program has one; one that makes devices by the request does not keep all of their memory alive.
const HELD: usize = 4;

/// The devices that were used last, by the owner's own key.
pub struct HeldDevices<K, E: ExternalGpu>(Mutex<Cache<K, Arc<ExternalDevice<E>>>>);

impl<K: Eq + Hash + Clone, E: ExternalGpu> Default for HeldDevices<K, E> {
    fn default() -> HeldDevices<K, E> {
        HeldDevices(Mutex::new(Cache::new(HELD)))
    }
}

impl<K: Eq + Hash + Clone, E: ExternalGpu> HeldDevices<K, E> {
    /// The device of a key; made where it is not held, of an index, which stands for the compiled forms of a kernel, and the owner's GPU.
    pub fn get_or_try<F>(
        &self,
        key: &K,
        make: impl FnOnce() -> Result<(usize, E), F>,
    ) -> Result<Arc<ExternalDevice<E>>, F> {
        let mut devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        devices.get_or_try(key, || make().map(|(index, gpu)| Arc::new(Device::external(index, gpu))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openmps_metal::arguments::{Kernel, Table};
    use openmps_metal::interface::{Grid, Properties};
    use std::convert::Infallible;

    /// A GPU of which only what it holds is asked.
    struct Owned {
        properties: Properties,
        _pool: Arc<()>,
    }

    // SAFETY: nothing is allocated and nothing launched.
    unsafe impl ExternalGpu for Owned {
        type Buffer = ();

        fn properties(&self) -> &Properties {
            &self.properties
        }

        fn allocate(&self, bytes: usize) -> openmps_metal::Result<()> {
            Err(openmps_metal::Error::OutOfMemory { bytes, limit: 0 })
        }

        unsafe fn launch(&self, _kernel: &Kernel, _table: &Table<()>, _grid: Grid) -> openmps_metal::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_fifth_device_drops_the_one_that_was_used_longest_ago() {
        let (held, pools) = (HeldDevices::default(), [0; 5].map(|_| Arc::new(())));
        let get = |number: usize| {
            let owned = || Owned { properties: openmps_metal::recorder::properties(), _pool: pools[number].clone() };
            held.get_or_try(&number, || Ok::<_, Infallible>((number, owned()))).unwrap()
        };
        let alive = || [0, 1, 2, 3, 4].map(|number| Arc::strong_count(&pools[number]) > 1);
        let first = get(0);
        (1..4).for_each(|number| drop(get(number)));
        assert_eq!(alive(), [true, true, true, true, false]);
        assert!(Arc::ptr_eq(&first, &get(0)), "one that is held is not made again");
        drop(first);
        // Of the four the second was used longest ago.
        drop(get(4));
        assert_eq!(alive(), [true, false, true, true, true]);
    }

    #[test]
    fn a_device_that_cannot_be_made_drops_none() {
        let (held, pool) = (HeldDevices::default(), Arc::new(()));
        let owned = Owned { properties: openmps_metal::recorder::properties(), _pool: pool.clone() };
        drop(held.get_or_try(&0, || Ok::<_, &str>((0, owned))).unwrap());
        for number in 1..9 {
            assert!(held.get_or_try(&number, || Err("no GPU")).is_err());
        }
        assert_eq!(Arc::strong_count(&pool), 2);
    }
}
