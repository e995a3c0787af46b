//! The caches of compiled graphs, with what their constants were folded to.

use super::executable::{Executable, Goals, needed_steps};
use super::passes::{self, Folded, FoldedKey};
use super::{Assignment, Graph, OptimizationLevel, Source, Step, Tensor};
use crate::error::Result;
use openmps_graph::cache::{Cache, CacheStatistics};
use openmps_runtime::Device;
use std::sync::{Arc, LazyLock};

/// Compiled graphs that the shared cache keeps.
const LIMIT: usize = 128;

/// Folded constants for each compiled graph that a cache may keep.
const FOLDED: usize = 64;

/// The cache of [`Graph::compile`].
pub(super) static SHARED: LazyLock<ExecutableCache> = LazyLock::new(|| ExecutableCache::new(LIMIT));

/// Compiled graphs by what they compute, at most as many as it was made for; those used last stay. What was computed of constants alone
/// is kept beside them, so that graphs of one network for several shapes share one copy of their folded weights.
///
/// ```
/// use openmps::graph::ExecutableCache;
/// use openmps::{DataType, Device, Graph, OptimizationLevel};
/// let (device, mut graph) = (Device::get(0)?, Graph::new());
/// let x = graph.placeholder("x", &[2], DataType::F32)?;
/// let y = graph.add(x, x)?;
/// let cache = ExecutableCache::new(8);
/// cache.compile(&graph, &device, &[y], OptimizationLevel::Level1)?;
/// cache.compile(&graph, &device, &[y], OptimizationLevel::Level1)?;
/// assert_eq!((cache.statistics().hits, cache.statistics().misses), (1, 1));
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Debug)]
pub struct ExecutableCache {
    executables: Cache<Key, Executable>,
    folded: Cache<FoldedKey, Folded>,
}

/// What a compiled graph is found by, compared whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    device: String,
    /// Operators with their attributes, inputs, shapes and element types.
    text: String,
    constants: Vec<passes::Constant>,
}

/// How many compiled graphs the shared cache keeps, and how often one was found.
///
/// ```
/// let statistics = openmps::graph::cache_statistics();
/// assert!(statistics.entries <= statistics.limit);
/// ```
pub fn cache_statistics() -> CacheStatistics {
    SHARED.statistics()
}

impl ExecutableCache {
    /// An empty cache of at most `limit` compiled graphs.
    ///
    /// ```
    /// assert_eq!(openmps::graph::ExecutableCache::new(8).statistics().limit, 8);
    /// ```
    pub fn new(limit: usize) -> ExecutableCache {
        ExecutableCache { executables: Cache::new(limit), folded: Cache::new(limit.saturating_mul(FOLDED)) }
    }

    /// The graph compiled for these results, from this cache where an equal one was compiled before.
    ///
    /// ```
    /// # use openmps::{DataType, Device, Graph, OptimizationLevel};
    /// # let (device, mut graph) = (Device::get(0)?, Graph::new());
    /// let x = graph.constant(&[2], &[1.0f32, 2.0])?;
    /// let cache = openmps::graph::ExecutableCache::new(8);
    /// let executable = cache.compile(&graph, &device, &[x], OptimizationLevel::Level1)?;
    /// assert_eq!(executable.run(&device.queue(), &[])?[0].read::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn compile(
        &self,
        graph: &Graph,
        device: &Device,
        results: &[Tensor],
        level: OptimizationLevel,
    ) -> Result<Arc<Executable>> {
        self.compile_training(graph, device, results, &[], level)
    }

    /// The same with assignments at the end of each run.
    pub(super) fn compile_training(
        &self,
        graph: &Graph,
        device: &Device,
        results: &[Tensor],
        assignments: &[Assignment],
        level: OptimizationLevel,
    ) -> Result<Arc<Executable>> {
        let goals = Goals::of(graph, results, assignments)?;
        let key = key(graph, device, &goals, level);
        self.executables.get_or_make(&key, || self.make(graph, device, goals, level))
    }

    /// The graph compiled for these results and kept by nobody but the caller; what its constants are folded to is kept here.
    ///
    /// ```
    /// # use openmps::{DataType, Device, Graph, OptimizationLevel};
    /// # let (device, mut graph) = (Device::get(0)?, Graph::new());
    /// let x = graph.constant(&[2], &[1.0f32, 2.0])?;
    /// let cache = openmps::graph::ExecutableCache::new(8);
    /// cache.compile_anew(&graph, &device, &[x], OptimizationLevel::Level1)?;
    /// assert_eq!(cache.statistics().entries, 0);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn compile_anew(
        &self,
        graph: &Graph,
        device: &Device,
        results: &[Tensor],
        level: OptimizationLevel,
    ) -> Result<Executable> {
        self.make(graph, device, Goals::of(graph, results, &[])?, level)
    }

    fn make(&self, graph: &Graph, device: &Device, goals: Goals, level: OptimizationLevel) -> Result<Executable> {
        match level {
            OptimizationLevel::Level0 => Executable::new(graph, device, goals, level),
            OptimizationLevel::Level1 => {
                let (graph, values) = passes::run(graph, device, &goals.values, &self.folded)?;
                Executable::new(&graph, device, goals.renamed(values), level)
            }
        }
    }

    /// What the cache of compiled graphs has done so far.
    ///
    /// ```
    /// assert_eq!(openmps::graph::ExecutableCache::new(8).statistics().hits, 0);
    /// ```
    pub fn statistics(&self) -> CacheStatistics {
        self.executables.statistics()
    }
}

fn key(graph: &Graph, device: &Device, goals: &Goals, level: OptimizationLevel) -> Key {
    use std::fmt::Write;
    let mut text = format!("{level:?} {goals:?}");
    let mut constants = Vec::new();
    for (index, value) in graph.values.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, ";{index}={:?}{:?}", value.meta.dtype, value.meta.shape);
        match &value.source {
            Source::Constant(_) | Source::Data(_) => constants.extend(passes::Constant::of(value)),
            Source::Variable(tensor) => {
                text.push_str(" variable");
                constants.push(passes::Constant::of_memory(tensor));
            }
            Source::Placeholder(name) => drop(write!(text, " {name:?}")),
            Source::Step(step) => drop(write!(text, " step {step}")),
            Source::Reshape(from) => drop(write!(text, " of {from}")),
        }
    }
    for step in needed_steps(graph, &goals.values) {
        let Step { operator, inputs, outputs } = &graph.steps[step];
        let _ = write!(text, ";{} {operator:?} {inputs:?} {outputs:?}", operator.name());
    }
    Key { device: format!("{device:?}"), text, constants }
}
