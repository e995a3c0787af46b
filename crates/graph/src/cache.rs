//! A bounded, counted cache of compiled programs. Keys are compared whole, never by hash alone.

use openmps_runtime::fork;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// Keeps the `limit` entries used last.
#[derive(Debug)]
pub struct Cache<K, V> {
    limit: usize,
    entries: RwLock<HashMap<K, Entry<V>>>,
    clock: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

#[derive(Debug)]
struct Entry<V> {
    value: Arc<V>,
    last_use: AtomicU64,
}

/// What a cache has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Entries held now.
    pub entries: usize,
    /// The most entries it holds.
    pub limit: usize,
    /// Look-ups that found their entry.
    pub hits: u64,
    /// Look-ups that had to compile.
    pub misses: u64,
    /// Entries given up for others.
    pub evictions: u64,
}

impl<K: Eq + Hash + Clone, V> Cache<K, V> {
    /// An empty cache of at most `limit` entries.
    pub fn new(limit: usize) -> Cache<K, V> {
        let counter = || AtomicU64::new(0);
        Cache {
            limit: limit.max(1),
            entries: RwLock::default(),
            clock: counter(),
            hits: counter(),
            misses: counter(),
            evictions: counter(),
        }
    }

    /// The entry for `key`, made by `make` when there is none. Two threads may both make it; the first one stays.
    pub fn get_or_make<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let _section = fork::section();
        let now = self.clock.fetch_add(1, Relaxed);
        if let Some(entry) = self.entries.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            entry.last_use.store(now, Relaxed);
            self.hits.fetch_add(1, Relaxed);
            return Ok(Arc::clone(&entry.value));
        }
        self.misses.fetch_add(1, Relaxed);
        let made = Arc::new(make()?);
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.limit && !entries.contains_key(key) {
            let oldest =
                entries.iter().min_by_key(|(_, entry)| entry.last_use.load(Relaxed)).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                entries.remove(&oldest);
                self.evictions.fetch_add(1, Relaxed);
            }
        }
        let entry = entries.entry(key.clone()).or_insert(Entry { value: made, last_use: AtomicU64::new(now) });
        Ok(Arc::clone(&entry.value))
    }

    /// What it has done so far.
    pub fn statistics(&self) -> CacheStatistics {
        CacheStatistics {
            entries: self.entries.read().unwrap_or_else(PoisonError::into_inner).len(),
            limit: self.limit,
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_used_longest_ago_goes_first() {
        let cache: Cache<u32, u32> = Cache::new(2);
        let get = |key: u32| *cache.get_or_make(&key, || Ok::<_, ()>(key * 10)).unwrap();
        assert_eq!((get(1), get(2), get(1), get(3)), (10, 20, 10, 30));
        let statistics = cache.statistics();
        assert_eq!((statistics.entries, statistics.hits, statistics.misses, statistics.evictions), (2, 1, 3, 1));
        get(1);
        assert_eq!(cache.statistics().hits, 2, "1 was used after 2, so it is still there");
    }

    #[test]
    fn an_entry_that_cannot_be_made_is_not_kept() {
        let cache: Cache<u32, u32> = Cache::new(2);
        assert_eq!(cache.get_or_make(&1, || Err("no")), Err("no"));
        assert_eq!(cache.statistics().entries, 0);
    }
}
