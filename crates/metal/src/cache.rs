//! A bounded cache of compiled things: the whole key is compared, the least recently used goes first, and everything is counted.

use std::collections::HashMap;
use std::hash::Hash;

/// What a cache has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Questions that it could answer.
    pub hits: u64,
    /// Questions that it could not.
    pub misses: u64,
    /// Entries that made room for others.
    pub evictions: u64,
    /// Entries now.
    pub entries: usize,
    /// The most entries that there may be.
    pub limit: usize,
}

struct Entry<V> {
    value: V,
    used: u64,
}

/// At most `limit` values by their keys.
pub struct Cache<K, V> {
    entries: HashMap<K, Entry<V>>,
    limit: usize,
    clock: u64,
    statistics: CacheStatistics,
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    /// An empty cache for `limit` values, one at least.
    pub fn new(limit: usize) -> Cache<K, V> {
        Cache { entries: HashMap::new(), limit: limit.max(1), clock: 0, statistics: CacheStatistics::default() }
    }

    /// The value of a key, if it is there.
    pub fn get(&mut self, key: &K) -> Option<V> {
        self.clock += 1;
        let Some(entry) = self.entries.get_mut(key) else {
            self.statistics.misses += 1;
            return None;
        };
        entry.used = self.clock;
        self.statistics.hits += 1;
        Some(entry.value.clone())
    }

    /// Keeps the value of a key, unless another one was kept meanwhile; what is kept.
    pub fn keep(&mut self, key: &K, value: V) -> V {
        if let Some(entry) = self.entries.get(key) {
            return entry.value.clone();
        }
        self.make_room();
        self.entries.insert(key.clone(), Entry { value: value.clone(), used: self.clock });
        value
    }

    /// The value of a key; made, and kept, when it is not there. An error is not kept.
    pub fn get_or_try<E>(&mut self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        match self.get(key) {
            Some(value) => Ok(value),
            None => Ok(self.keep(key, make()?)),
        }
    }

    /// What it has done so far.
    pub fn statistics(&self) -> CacheStatistics {
        CacheStatistics { entries: self.entries.len(), limit: self.limit, ..self.statistics }
    }

    /// Forgets one value.
    pub fn remove(&mut self, key: &K) {
        self.entries.remove(key);
    }

    /// Forgets every value.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// A walk over all entries: what is evicted was compiled, which took a thousand times as long.
    fn make_room(&mut self) {
        while self.entries.len() >= self.limit {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.entries.remove(&oldest);
            self.statistics.evictions += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_the_least_recently_used_goes_first() {
        let mut cache: Cache<u32, u32> = Cache::new(2);
        let mut made = Vec::new();
        for key in [1, 2, 1, 3, 1, 2] {
            let value = cache.get_or_try::<()>(&key, || {
                made.push(key);
                Ok(key * 10)
            });
            assert_eq!(value, Ok(key * 10));
        }
        assert_eq!(made, [1, 2, 3, 2]);
        assert_eq!(cache.statistics(), CacheStatistics { hits: 2, misses: 4, evictions: 2, entries: 2, limit: 2 });
        cache.clear();
        assert_eq!(cache.statistics().entries, 0);
    }

    #[test]
    fn errors_are_not_kept() {
        let mut cache: Cache<u32, u32> = Cache::new(0);
        assert_eq!(cache.get_or_try(&1, || Err("no")), Err("no"));
        assert_eq!(cache.get_or_try::<()>(&1, || Ok(5)), Ok(5));
        assert_eq!(cache.statistics().entries, 1);
    }

    #[test]
    fn keys_with_the_same_hash_are_told_apart() {
        #[derive(Clone, PartialEq, Eq)]
        struct Same(u32);
        impl Hash for Same {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                state.write_u8(0);
            }
        }
        let mut cache = Cache::new(8);
        for key in 0..4 {
            assert_eq!(cache.get_or_try::<()>(&Same(key), || Ok(key)), Ok(key));
        }
        assert_eq!(cache.get_or_try::<()>(&Same(2), || Ok(99)), Ok(2));
    }
}
