//! Compiled kernels and graphs, kept in memory up to a limit. On disk kernels are kept by the device itself (`Metal::save_pipelines`), which is
//! told when.

use crate::cache::{Cache, CacheStatistics};
use crate::error::Result;
use crate::graph::Graph;
use crate::interface::{Metal, PipelineKey, PipelineLimits};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many pipelines are kept unless `OPENMPS_PIPELINE_LIMIT` says otherwise.
pub const LIMIT: usize = 1024;
/// How many compiled graphs are kept unless `OPENMPS_GRAPH_LIMIT` says otherwise. One holds some hundreds of kilobytes of Apple's.
pub const GRAPH_LIMIT: usize = 256;

/// Graphs that are remembered as seen once.
const SEEN: usize = 4096;
/// New pipelines are written to disk when they are more than one in so many of those that were: writing takes as long as there are pipelines.
const SAVED_FOR_EACH_NEW: u64 = 8;

/// Where one value is, or is being made.
type Slot<V> = Arc<Mutex<Option<V>>>;

/// Compiled things by their keys. Compiling takes long, so only those who want the same wait for each other.
struct Compiled<K, V> {
    cache: Mutex<Cache<K, Slot<V>>>,
}

impl<K: Eq + Hash + Clone, V: Clone> Compiled<K, V> {
    fn new(limit: usize) -> Compiled<K, V> {
        Compiled { cache: Mutex::new(Cache::new(limit)) }
    }

    fn get(&self, key: &K, make: impl FnOnce() -> Result<V>) -> Result<V> {
        let slot = self.cache().get_or_try(key, || Ok::<_, crate::Error>(Slot::default()))?;
        let mut value = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &*value {
            return Ok(value.clone());
        }
        let made = make().inspect_err(|_| self.cache().remove(key))?;
        *value = Some(made.clone());
        Ok(made)
    }

    fn cache(&self) -> MutexGuard<'_, Cache<K, Slot<V>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pipelines of one device.
pub struct Pipelines<M: Metal> {
    compiled: Compiled<PipelineKey, (M::Pipeline, PipelineLimits)>,
    made: AtomicU64,
    /// How many of those are on disk.
    saved: Mutex<u64>,
}

impl<M: Metal> Pipelines<M> {
    /// An empty cache for `limit` pipelines.
    pub fn new(limit: usize) -> Pipelines<M> {
        Pipelines { compiled: Compiled::new(limit), made: AtomicU64::new(0), saved: Mutex::new(0) }
    }

    /// The pipeline of a key and what it allows, compiled where it is not there yet. Two threads that want the same one compile it once.
    pub fn get(&self, metal: &M, key: &PipelineKey) -> Result<(M::Pipeline, PipelineLimits)> {
        self.compiled.get(key, || {
            metal.autorelease_pool(|| {
                let pipeline = metal.pipeline(key)?;
                let limits = metal.pipeline_limits(&pipeline);
                self.made.fetch_add(1, Ordering::Relaxed);
                Ok((pipeline, limits))
            })
        })
    }

    /// Has the device write the new pipelines to disk, where they are enough. To be called when somebody has waited anyway: a device of a
    /// program's lives to the program's end, and is not dropped even then.
    pub fn save_if_due(&self, metal: &M) {
        let made = self.made.load(Ordering::Relaxed);
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let new = made - *saved;
        if new == 0 || new * SAVED_FOR_EACH_NEW < *saved {
            return;
        }
        if let Err(error) = metal.autorelease_pool(|| metal.save_pipelines()) {
            tracing::warn!("compiled pipelines are not kept for the next process: {error}");
        }
        // Not tried again for these where it failed.
        *saved = made;
    }

    /// Hits, misses, evictions and entries.
    pub fn statistics(&self) -> CacheStatistics {
        self.compiled.cache().statistics()
    }
}

/// The compiled graphs of one device, by the whole graph.
pub struct Executables<M: Metal> {
    compiled: Compiled<Graph, M::Executable>,
    /// The run in which a graph came first, by its hash.
    seen: Mutex<Cache<u64, u64>>,
}

impl<M: Metal> Executables<M> {
    /// An empty cache for `limit` graphs.
    pub fn new(limit: usize) -> Executables<M> {
        Executables { compiled: Compiled::new(limit), seen: Mutex::new(Cache::new(SEEN)) }
    }

    /// Whether a graph is worth its compilation, which takes longer than many runs of own kernels: it came in an earlier run already, a run being
    /// what lies between two times that somebody waited. So what has another shape in each run, as attention over keys that grow by one a token,
    /// is not compiled, however many layers have that shape. Two graphs of one hash are compiled a run too early.
    pub fn is_worth_compiling(&self, graph: &Graph, run: u64) -> bool {
        let mut hasher = DefaultHasher::new();
        graph.hash(&mut hasher);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get_or_try(&hasher.finish(), || Ok::<_, std::convert::Infallible>(run)).is_ok_and(|first| first < run)
    }

    /// The compiled form of a graph, made where it is not there yet.
    pub fn get(&self, metal: &M, graph: &Graph) -> Result<M::Executable> {
        self.compiled.get(graph, || metal.autorelease_pool(|| metal.executable(graph)))
    }

    /// Hits, misses, evictions and entries.
    pub fn statistics(&self) -> CacheStatistics {
        self.compiled.cache().statistics()
    }
}
