//! A bounded, counted cache of compiled programs that threads share. Keys are compared whole, never by hash alone.

use openmps_runtime::{fork, metal};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use metal::CacheStatistics;

/// Keeps the `limit` entries used last.
pub struct Cache<K, V>(Mutex<metal::Cache<K, Arc<V>>>);

impl<K: Eq + Hash + Clone, V> Cache<K, V> {
    /// An empty cache of at most `limit` entries, one at least.
    pub fn new(limit: usize) -> Cache<K, V> {
        Cache(Mutex::new(metal::Cache::new(limit)))
    }

    /// The entry for `key`, made by `make` when there is none. Two threads may both make it; the first one stays.
    pub fn get_or_make<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let _section = fork::section();
        if let Some(found) = self.entries().get(key) {
            return Ok(found);
        }
        let made = Arc::new(make()?);
        Ok(self.entries().keep(key, made))
    }

    /// What it has done so far.
    pub fn statistics(&self) -> CacheStatistics {
        self.entries().statistics()
    }

    fn entries(&self) -> MutexGuard<'_, metal::Cache<K, Arc<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Clone, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Cache({:?})", self.statistics())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_two_that_are_made_stays() {
        let cache: Cache<u32, u32> = Cache::new(2);
        let inner = cache.get_or_make(&1, || Ok::<_, ()>(*cache.get_or_make(&1, || Ok::<_, ()>(10)).unwrap() + 1));
        assert_eq!(inner.as_deref(), Ok(&10));
        let statistics = cache.statistics();
        assert_eq!((statistics.entries, statistics.hits, statistics.misses, statistics.limit), (1, 0, 2, 2));
    }

    #[test]
    fn an_entry_that_cannot_be_made_is_not_kept() {
        let cache: Cache<u32, u32> = Cache::new(2);
        assert_eq!(cache.get_or_make(&1, || Err("no")), Err("no"));
        assert_eq!(cache.statistics().entries, 0);
    }
}
