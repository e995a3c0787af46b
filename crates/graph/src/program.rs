//! Compiled tile programs of this crate's own kernels, kept in one bounded cache.

use crate::cache::{Cache, CacheStatistics};
use crate::error::{Error, Result};
use crate::operators::elementwise::form::{DTypes, Layout};
use crate::queue::Queue;
use openmps_runtime::Pipeline;
use openmps_tile::{DType, Kernel, Number};
use std::sync::{Arc, LazyLock};

/// What a kernel depends on; everything else is an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// An elementwise operator: name, input types, output type, layout.
    Elementwise(&'static str, DTypes, DType, Layout),
    /// Formulas in one kernel: their text, the reduction at the end, element types, the layout, and the numbers that the builder depends on.
    Chain {
        /// Operators and what they read.
        chain: Arc<str>,
        /// The reduction's name; empty for none.
        reduction: &'static str,
        /// Element types.
        dtypes: Vec<DType>,
        /// The layout of a chain without a reduction.
        layout: Option<Layout>,
        /// Whatever else.
        numbers: Vec<usize>,
    },
    /// Another operator: name, element types, and the numbers that its builder depends on.
    Other(&'static str, Vec<DType>, Vec<usize>),
}

static CACHE: LazyLock<Cache<Key, Pipeline>> =
    LazyLock::new(|| Cache::new(openmps_settings::CACHE_LIMIT.get().unwrap_or(2048)));

/// The pipeline for a key, built when the cache has none.
pub fn get(operator: &'static str, key: &Key, build: impl FnOnce() -> Kernel) -> Result<Arc<Pipeline>> {
    CACHE.get_or_make(key, || compile(operator, build()))
}

/// Verifies a kernel; the device compiles it when it first runs it.
pub fn compile(operator: &'static str, kernel: Kernel) -> Result<Pipeline> {
    Pipeline::new(kernel).map_err(|source| Error::Unverified { operator, source })
}

/// Launches a kernel.
///
/// # Safety
/// As [`Queue::dispatch`]: what the kernel reads and writes under these arguments lives until the queue's commands have ended.
pub(crate) unsafe fn launch(
    queue: &Queue,
    operator: &'static str,
    pipeline: &Pipeline,
    grid: [usize; 3],
    arguments: &[u64],
) -> Result<()> {
    // SAFETY: passed on to the caller.
    unsafe { queue.dispatch(operator, pipeline, grid, arguments) }.map_err(|source| Error::Device { operator, source })
}

/// A number as a kernel's argument of the compute type; integers travel as 64 bits.
pub(crate) fn scalar_bits(number: Number, compute: DType) -> u64 {
    let float = match number {
        Number::Integer(value) => value as f64,
        Number::Float(value) => value,
    };
    match (compute, number) {
        (DType::F64, _) => float.to_bits(),
        (DType::F32, _) => u64::from((float as f32).to_bits()),
        (_, Number::Integer(value)) => value as u64,
        (_, Number::Float(value)) => value as i64 as u64,
    }
}

/// What the cache of compiled programs has done so far.
pub fn statistics() -> CacheStatistics {
    CACHE.statistics()
}
