//! The caches of compiled graphs, with what their constants were folded to.

use super::executable::Executable;
use super::passes::{self, Folded, FoldedKey};
use super::plan::{Goals, PreparedKey, needed_steps};
use super::{Assignment, Graph, OptimizationLevel, Source, Step, Tensor};
use crate::device::Device;
use crate::error::Result;
use openmps_graph::cache::{Cache, CacheStatistics};
use openmps_graph::prepared::Prepared;
use openmps_runtime::{Identity, fork};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// Compiled graphs that the shared cache keeps.
const LIMIT: usize = 128;

/// Folded constants, and those in a form of their own, for each compiled graph that a cache may keep.
const FOLDED: usize = 64;

/// The cache of [`Graph::compile`].
pub(super) static SHARED: LazyLock<ExecutableCache> = LazyLock::new(|| ExecutableCache::new(LIMIT));

/// Compiled graphs by what they compute, at most as many as it was made for; those used last stay. What was computed of constants alone
/// is kept beside them, and so is the form in which kernels read weights: graphs of one network for several shapes share one copy of both.
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
///
/// Constants live as long as the cache keeps a graph of them, also when every [`Graph`] with them is gone: [`ExecutableCache::clear`] lets go of them.
#[derive(Debug)]
pub struct ExecutableCache {
    limit: usize,
    /// Others after each [`ExecutableCache::clear`].
    caches: RwLock<Arc<Caches>>,
}

#[derive(Debug)]
struct Caches {
    executables: Cache<Key, Executable>,
    folded: Cache<FoldedKey, Folded>,
    prepared: Cache<PreparedKey, Prepared>,
}

/// What a compiled graph is found by, compared whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    device: Identity,
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

/// Empties the cache of [`Graph::compile`], as [`ExecutableCache::clear`] does: the constants of graphs that are gone take no memory from then on.
///
/// ```
/// use openmps::{Device, Graph};
/// let (device, mut graph) = (Device::get(0)?, Graph::new());
/// let x = graph.constant(&[2], &[1.0f32, 2.0])?;
/// graph.compile(&device, &[x])?;
/// drop(graph);
/// openmps::graph::clear_cache();
/// assert_eq!(openmps::graph::cache_statistics().entries, 0);
/// # Ok::<(), openmps::Error>(())
/// ```
pub fn clear_cache() {
    SHARED.clear();
}

impl ExecutableCache {
    /// An empty cache of at most `limit` compiled graphs.
    ///
    /// ```
    /// assert_eq!(openmps::graph::ExecutableCache::new(8).statistics().limit, 8);
    /// ```
    pub fn new(limit: usize) -> ExecutableCache {
        ExecutableCache { limit, caches: RwLock::new(Arc::new(Caches::new(limit))) }
    }

    /// Forgets every compiled graph, with what was computed of its constants and the forms in which kernels read them. Their memory returns
    /// when nobody else holds it: who has an [`Executable`] may run it as before. The statistics begin anew.
    ///
    /// ```
    /// # use openmps::{DataType, Device, Graph, OptimizationLevel};
    /// # let (device, mut graph) = (Device::get(0)?, Graph::new());
    /// let x = graph.constant(&[2], &[1.0f32, 2.0])?;
    /// let cache = openmps::graph::ExecutableCache::new(8);
    /// let executable = cache.compile(&graph, &device, &[x], OptimizationLevel::Level1)?;
    /// cache.clear();
    /// assert_eq!(cache.statistics().entries, 0);
    /// assert_eq!(executable.run(&device.queue(), &[])?[0].read::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn clear(&self) {
        let empty = Arc::new(Caches::new(self.limit));
        let full = {
            let _section = fork::section();
            std::mem::replace(&mut *self.caches.write().unwrap_or_else(PoisonError::into_inner), empty)
        };
        // Not before others may use the new ones: there may be much to give back.
        drop(full);
    }

    fn caches(&self) -> Arc<Caches> {
        let _section = fork::section();
        Arc::clone(&self.caches.read().unwrap_or_else(PoisonError::into_inner))
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
        let caches = self.caches();
        caches.executables.get_or_make(&key, || caches.make(graph, device, goals, level))
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
        self.caches().make(graph, device, Goals::of(graph, results, &[])?, level)
    }

    /// What the cache of compiled graphs has done since it was made or emptied.
    ///
    /// ```
    /// assert_eq!(openmps::graph::ExecutableCache::new(8).statistics().hits, 0);
    /// ```
    pub fn statistics(&self) -> CacheStatistics {
        self.caches().executables.statistics()
    }
}

impl Caches {
    fn new(limit: usize) -> Caches {
        let constants = limit.saturating_mul(FOLDED);
        Caches { executables: Cache::new(limit), folded: Cache::new(constants), prepared: Cache::new(constants) }
    }

    fn make(&self, graph: &Graph, device: &Device, goals: Goals, level: OptimizationLevel) -> Result<Executable> {
        match level {
            OptimizationLevel::Level0 => Executable::new(graph, device, goals, level, None),
            OptimizationLevel::Level1 => {
                let (graph, values) = passes::run(graph, device, &goals.values, &self.folded)?;
                Executable::new(&graph, device, goals.renamed(values), level, Some(&self.prepared))
            }
        }
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
            Source::Constant(_) | Source::Data(_) | Source::Stored(_) | Source::Folded(..) => {
                constants.extend(passes::Constant::of(value))
            }
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
    Key { device: device.runtime().identity(), text, constants }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorData;
    use openmps_graph::operators::convolution::Convolution;
    use openmps_graph::operators::linear::Linear;
    use openmps_tile::DType;

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + 13) % 1021) as f32 / 512.0 - 1.0).collect()
    }

    /// The weights of [`network`]: of a 1x1, a 3x3 and a strided convolution, of a layer and of a transposed one.
    const WEIGHTS: [&[usize]; 5] = [&[24, 20, 1, 1], &[20, 24, 3, 3], &[30, 20, 3, 3], &[360, 70], &[50, 70]];
    const NAMES: [&str; 5] = ["w0", "w1", "w2", "w3", "w4"];

    /// Convolutions and linear layers; a factor for each channel follows the first one where it is not in the weight.
    fn network(graph: &mut Graph, batch: usize, weights: &[Tensor], factors: Option<&[f32]>) -> Tensor {
        let step = |graph: &mut Graph, operator: Convolution, x, i: usize| {
            graph.operator(operator, &[x, weights[i]]).unwrap()[0]
        };
        let x = graph.placeholder("x", &[batch, 20, 24, 64], DType::F32).unwrap();
        let mut y = step(graph, Convolution::default(), x, 0);
        if let Some(factors) = factors {
            let factors = graph.constant(&[1, 24, 1, 1], factors).unwrap();
            y = graph.multiply(y, factors).unwrap();
        }
        let padded = Convolution { paddings: vec![1, 1], ..Convolution::default() };
        let y = step(graph, padded.clone(), y, 1);
        let y = step(graph, Convolution { strides: [2, 2], ..padded }, y, 2);
        let y = graph.reshape(y, &[batch * 32, 360]).unwrap();
        let y = graph.operator(Linear::default(), &[y, weights[3]]).unwrap()[0];
        graph.operator(Linear { transpose_weight: true, ..Linear::default() }, &[y, weights[4]]).unwrap()[0]
    }

    /// Weights that are the same in every run go once into the order in which kernels read them, to the same bits: one copy for all shapes, and none of
    /// what they were folded to beside it.
    #[test]
    fn constant_weights_are_packed_once() {
        let (device, cache) = (Device::get(0).unwrap(), ExecutableCache::new(4));
        let factors = numbers(24);
        let given = WEIGHTS.map(|shape| numbers(shape.iter().product()));
        let tensors = [0, 1, 2, 3, 4].map(|i| TensorData::from_slice(&device, WEIGHTS[i], &given[i]).unwrap());
        let folded: Vec<f32> = given[0].iter().enumerate().map(|(i, weight)| weight * factors[i / 20]).collect();
        let folded = TensorData::from_slice(&device, WEIGHTS[0], &folded).unwrap();
        let compiled = [3, 5].map(|batch| {
            let mut graph = Graph::new();
            let weights = tensors.each_ref().map(|tensor| graph.data(tensor));
            let result = network(&mut graph, batch, &weights, Some(&factors));
            let packed = cache.compile_anew(&graph, &device, &[result], OptimizationLevel::Level1).unwrap();
            let feed = TensorData::from_slice(&device, &[batch, 20, 24, 64], &numbers(batch * 20 * 24 * 64)).unwrap();
            let got = packed.run(&device.queue(), &[("x", &feed)]).unwrap()[0].read::<f32>().unwrap();

            let mut graph = Graph::new();
            let weights = [0, 1, 2, 3, 4].map(|i| graph.placeholder(NAMES[i], WEIGHTS[i], DType::F32).unwrap());
            let result = network(&mut graph, batch, &weights, None);
            let fed = cache.compile_anew(&graph, &device, &[result], OptimizationLevel::Level1).unwrap();
            let mut feeds: Vec<(&str, &TensorData)> = NAMES.into_iter().zip(&tensors).collect();
            feeds[0].1 = &folded;
            feeds.push(("x", &feed));
            let want = fed.run(&device.queue(), &feeds).unwrap()[0].read::<f32>().unwrap();
            assert!(fed.plan.packed().is_empty());
            assert_eq!(got, want);
            packed
        });
        let [packed, others] = [0, 1].map(|i| compiled[i].plan.packed());
        assert_eq!(packed.len(), WEIGHTS.len());
        assert!(packed.iter().zip(&others).all(|(a, b)| Arc::ptr_eq(a, b)), "shapes share them");
        let plan = &compiled[0].plan;
        assert!(plan.constants.iter().all(Option::is_none), "nobody reads them as they were");
        let was_kept = |value: &super::super::Value| match &value.source {
            Source::Folded(of, _) => of.kept.get().is_some(),
            _ => false,
        };
        assert!(!plan.values.iter().any(was_kept), "what was folded is not kept beside");
        let memory = compiled[0].memory();
        let bytes: u64 = packed.iter().map(|packed| packed.bytes() as u64).sum();
        assert_eq!((memory.packed, memory.constants), (bytes, bytes));
        assert!(bytes >= 4 * given.iter().map(Vec::len).sum::<usize>() as u64);
    }
}
