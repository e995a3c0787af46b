//! Compiled kernels, kept in memory up to a limit. On disk they are kept by the device itself (`Metal::save_pipelines`).

use crate::cache::{Cache, CacheStatistics};
use crate::error::Result;
use crate::seam::{Metal, PipelineKey, PipelineLimits};
use std::sync::{Mutex, PoisonError};

/// How many pipelines are kept unless `OPENMPS_PIPELINE_LIMIT` says otherwise.
pub const LIMIT: usize = 1024;

/// The pipelines of one device.
pub struct Pipelines<M: Metal> {
    cache: Mutex<Cache<PipelineKey, (M::Pipeline, PipelineLimits)>>,
}

impl<M: Metal> Pipelines<M> {
    /// An empty cache for `limit` pipelines.
    pub fn new(limit: usize) -> Pipelines<M> {
        Pipelines { cache: Mutex::new(Cache::new(limit)) }
    }

    /// The pipeline of a key and what it allows, compiled where it is not there yet. Two threads that want the same one compile it once.
    pub fn get(&self, metal: &M, key: &PipelineKey) -> Result<(M::Pipeline, PipelineLimits)> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get_or_try(key, || {
            metal.autorelease_pool(|| {
                let pipeline = metal.pipeline(key)?;
                let limits = metal.pipeline_limits(&pipeline);
                Ok((pipeline, limits))
            })
        })
    }

    /// Hits, misses, evictions and entries.
    pub fn statistics(&self) -> CacheStatistics {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).statistics()
    }
}
