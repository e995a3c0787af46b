//! Compiled kernels and graphs, kept in memory up to a limit. On disk kernels are kept by the device itself (`Metal::save_pipelines`).

use crate::cache::{Cache, CacheStatistics};
use crate::error::Result;
use crate::graph::Graph;
use crate::interface::{Metal, PipelineKey, PipelineLimits};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many pipelines are kept unless `OPENMPS_PIPELINE_LIMIT` says otherwise.
pub const LIMIT: usize = 1024;
/// How many compiled graphs are kept unless `OPENMPS_GRAPH_LIMIT` says otherwise. One holds some hundreds of kilobytes of Apple's.
pub const GRAPH_LIMIT: usize = 256;

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
}

impl<M: Metal> Pipelines<M> {
    /// An empty cache for `limit` pipelines.
    pub fn new(limit: usize) -> Pipelines<M> {
        Pipelines { compiled: Compiled::new(limit) }
    }

    /// The pipeline of a key and what it allows, compiled where it is not there yet. Two threads that want the same one compile it once.
    pub fn get(&self, metal: &M, key: &PipelineKey) -> Result<(M::Pipeline, PipelineLimits)> {
        self.compiled.get(key, || {
            metal.autorelease_pool(|| {
                let pipeline = metal.pipeline(key)?;
                let limits = metal.pipeline_limits(&pipeline);
                Ok((pipeline, limits))
            })
        })
    }

    /// Hits, misses, evictions and entries.
    pub fn statistics(&self) -> CacheStatistics {
        self.compiled.cache().statistics()
    }
}

/// The compiled graphs of one device, by the whole graph.
pub struct Executables<M: Metal> {
    compiled: Compiled<Graph, M::Executable>,
}

impl<M: Metal> Executables<M> {
    /// An empty cache for `limit` graphs.
    pub fn new(limit: usize) -> Executables<M> {
        Executables { compiled: Compiled::new(limit) }
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
