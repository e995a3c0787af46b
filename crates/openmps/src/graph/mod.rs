//! Graphs of operators that are built once, compiled once and run often: `MPSGraph`.
//!
//! Shapes and element types are checked when an operation is added. [`Graph::compile`] drops what no result needs and plans
//! where values between steps share memory; compiled graphs are kept in a bounded cache whose keys are compared whole.
//!
//! ```
//! use openmps::{DataType, Device, Graph, TensorData};
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x", &[2, 3], DataType::F32)?;
//! let weight = graph.constant(&[3, 2], &[1.0f32, 0.0, 0.0, 1.0, 1.0, 1.0])?;
//! let y = graph.matmul(x, weight)?;
//! let y = graph.softmax(y, -1)?;
//!
//! let device = Device::get(0)?;
//! let executable = graph.compile(&device, &[y])?;
//! let feed = TensorData::from_slice(&device, &[2, 3], &[1.0f32, 1.0, 0.0, 2.0, 0.0, 0.0])?;
//! let results = executable.run(&device.queue(), &[("x", &feed)])?;
//! assert_eq!(results[0].read::<f32>()?[..2], [0.5, 0.5]);
//! # Ok::<(), openmps::Error>(())
//! ```

mod bindings;
mod cache;
mod data;
mod executable;
mod fuse;
mod gradients;
mod memory;
mod methods;
mod named;
mod operands;
mod passes;
mod plan;
mod profile;
mod stored;
mod training;

pub use cache::{ExecutableCache, cache_statistics, clear_cache};
pub use data::TensorData;
pub use executable::Executable;
pub use profile::{Ceilings, MemorySummary, StepSummary};
pub use stored::StoredTensor;
pub use training::{Assignment, GraphOptimizer};

use crate::data_type::{Element, bytes_of};
use crate::device::Device;
use crate::error::{Error, Result};
use openmps_graph::view::shape_of;
use openmps_graph::{Meta, Operator};
use openmps_tile::DType;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A value in a [`Graph`]: `MPSGraphTensor`.
///
/// ```
/// use openmps::{DataType, Graph};
/// let mut graph = Graph::new();
/// let x = graph.placeholder("x", &[4], DataType::F32)?;
/// assert_eq!(graph.shape(x)?, [4]);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    graph: u64,
    index: usize,
}

/// Where a value comes from.
#[derive(Clone, Debug)]
enum Source {
    Placeholder(String),
    Constant(Arc<[u8]>),
    /// Memory that is there already and does not change.
    Data(TensorData),
    /// What is read when something needs it.
    Stored(StoredTensor),
    /// Memory that is there already and that runs change.
    Variable(TensorData),
    /// What an operator makes of constants: one of its outputs.
    Folded(Arc<passes::Folded>, usize),
    /// An output of a step.
    Step(usize),
    /// The elements of another value under another shape.
    Reshape(usize),
}

#[derive(Clone, Debug)]
struct Value {
    meta: Meta,
    source: Source,
}

impl Value {
    /// Whether others may have its memory: what a run is fed, a tensor or a variable that the graph's user holds.
    fn is_shared(&self) -> bool {
        matches!(self.source, Source::Placeholder(_) | Source::Data(_) | Source::Variable(_))
    }

    /// Whether it is the same in every run.
    fn is_constant(&self) -> bool {
        matches!(self.source, Source::Constant(_) | Source::Data(_) | Source::Stored(_) | Source::Folded(..))
    }
}

/// One operator with the values that it reads and writes.
#[derive(Clone, Debug)]
struct Step {
    operator: Arc<dyn Operator>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

/// What [`Graph::compile_with`] does to a graph: `MPSGraphOptimizationLevel`.
///
/// ```
/// assert_eq!(openmps::OptimizationLevel::default(), openmps::OptimizationLevel::Level1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OptimizationLevel {
    /// One kernel for each operation.
    Level0,
    /// What depends on constants alone is computed once; factors, addends, residuals and activations behind convolutions and products
    /// with constant weights are part of these; products around a softmax are attention; chains of formulas of single elements, with
    /// a reduction at the end, are one kernel.
    #[default]
    Level1,
}

/// A graph under construction: `MPSGraph`. See the [module](self).
///
/// A clone goes its own way: the values of before are values of both, those that are added later of one of them.
///
/// ```
/// use openmps::{Error, Graph};
/// let mut graph = Graph::new();
/// let x = graph.constant(&[2], &[1.0f32, 2.0])?;
/// let mut clone = graph.clone();
/// let (y, z) = (graph.add(x, x)?, clone.multiply(x, x)?);
/// assert!(matches!(graph.shape(z), Err(Error::ForeignTensor { .. })));
/// assert!(matches!(clone.shape(y), Err(Error::ForeignTensor { .. })));
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Debug)]
pub struct Graph {
    id: u64,
    /// The graphs that it was cloned from, and how many of its values each of them had.
    origins: Vec<(u64, usize)>,
    values: Vec<Value>,
    steps: Vec<Step>,
}

impl Clone for Graph {
    fn clone(&self) -> Graph {
        let mut origins = self.origins.clone();
        origins.push((self.id, self.values.len()));
        Graph { origins, values: self.values.clone(), steps: self.steps.clone(), ..Graph::new() }
    }
}

impl Default for Graph {
    fn default() -> Self {
        Graph::new()
    }
}

impl Graph {
    /// An empty graph.
    ///
    /// ```
    /// let graph = openmps::Graph::new();
    /// # let _ = graph;
    /// ```
    pub fn new() -> Graph {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Graph { id, origins: Vec::new(), values: Vec::new(), steps: Vec::new() }
    }

    /// A value that every run is given: `placeholderWithShape:dataType:name:`.
    ///
    /// ```
    /// use openmps::{DataType, Graph};
    /// let mut graph = Graph::new();
    /// graph.placeholder("x", &[4, 5], DataType::F16)?;
    /// assert!(graph.placeholder("x", &[1], DataType::F32).is_err(), "names are unique");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn placeholder(&mut self, name: &str, shape: &[usize], data_type: DType) -> Result<Tensor> {
        let taken = |value: &Value| matches!(&value.source, Source::Placeholder(other) if other == name);
        if self.values.iter().any(taken) {
            return Err(Error::Feed { name: name.to_owned(), what: "another one has this name" });
        }
        let meta = Meta { dtype: data_type, shape: shape_of(shape)? };
        Ok(self.push(meta, Source::Placeholder(name.to_owned())))
    }

    /// A value that is the same in every run: `constantWithData:shape:dataType:`.
    ///
    /// ```
    /// use openmps::{Error, Graph};
    /// let error = Graph::new().constant(&[3], &[1.0f32, 2.0]).unwrap_err();
    /// assert!(matches!(error, Error::Shape { .. }));
    /// ```
    pub fn constant<T: Element>(&mut self, shape: &[usize], values: &[T]) -> Result<Tensor> {
        let meta = Meta { dtype: T::DATA_TYPE, shape: shape_of(shape)? };
        if meta.shape.iter().product::<usize>() != values.len() {
            let (got, expected) = (format!("{} values", values.len()), format!("as many as {shape:?} has"));
            return Err(Error::Shape { operation: "constant", what: "the slice", got, expected });
        }
        Ok(self.push(meta, Source::Constant(bytes_of(values).into())))
    }

    /// A value that lies in memory already and that nobody changes from now on: a weight that several graphs share. Unlike
    /// [`Graph::constant`] it copies nothing, and the graph runs on the device of this memory only.
    ///
    /// ```
    /// use openmps::{Device, Graph, TensorData};
    /// let (device, mut graph) = (Device::get(0)?, Graph::new());
    /// let weight = TensorData::from_slice(&device, &[2], &[2.0f32, 3.0])?;
    /// let x = graph.data(&weight);
    /// let y = graph.multiply(x, x)?;
    /// assert_eq!(graph.compile(&device, &[y])?.run(&device.queue(), &[])?[0].read::<f32>()?, [4.0, 9.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn data(&mut self, tensor: &TensorData) -> Tensor {
        self.push(tensor.meta.clone(), Source::Data(tensor.clone()))
    }

    /// A value that is the same in every run and is read when a compiled graph needs it: a weight in a file. See [`StoredTensor`].
    ///
    /// ```
    /// use openmps::graph::StoredTensor;
    /// use openmps::{DataType, Device, Graph};
    /// let weight = StoredTensor::new(&Device::get(0)?, &[4, 2], DataType::F32, || Ok(vec![0; 32]))?;
    /// let mut graph = Graph::new();
    /// let weight = graph.stored(&weight);
    /// assert_eq!(graph.shape(weight)?, [4, 2]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn stored(&mut self, tensor: &StoredTensor) -> Tensor {
        self.push(tensor.meta().clone(), Source::Stored(tensor.clone()))
    }

    /// Any operator of [`crate::operators`]: its outputs, or what its rule says against the inputs.
    ///
    /// ```
    /// use openmps::operators::operators::flip::Flip;
    /// use openmps::{DataType, Graph};
    /// let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[4], DataType::F32)?;
    /// let y = graph.operator(Flip { axes: vec![0] }, &[x])?[0];
    /// assert!(graph.operator(Flip { axes: vec![1] }, &[x]).is_err());
    /// # let _ = y;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn operator(&mut self, operator: impl Operator + 'static, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.shared_operator(Arc::new(operator), inputs)
    }

    fn shared_operator(&mut self, operator: Arc<dyn Operator>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let outputs = self.push_step(operator, self.indices(inputs)?)?;
        Ok(outputs.into_iter().map(|index| Tensor { graph: self.id, index }).collect())
    }

    /// Adds a step; the values that it computes.
    fn push_step(&mut self, operator: Arc<dyn Operator>, inputs: Vec<usize>) -> openmps_graph::Result<Vec<usize>> {
        let metas: Vec<Meta> = inputs.iter().map(|&index| self.values[index].meta.clone()).collect();
        openmps_graph::layout::expect_computed(&*operator, &metas)?;
        let outputs = operator.infer(&metas)?;
        // What no memory could hold is refused now rather than when the graph runs.
        outputs.iter().try_for_each(|meta| meta.bytes().map(drop))?;
        let step = self.steps.len();
        let outputs: Vec<usize> = outputs.into_iter().map(|meta| self.push(meta, Source::Step(step)).index).collect();
        self.steps.push(Step { operator, inputs, outputs: outputs.clone() });
        Ok(outputs)
    }

    /// The elements in the same order under another shape: `reshapeTensor:withShape:`.
    ///
    /// ```
    /// use openmps::{DataType, Graph};
    /// let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[2, 6], DataType::F32)?;
    /// let y = graph.reshape(x, &[3, 4])?;
    /// assert_eq!(graph.shape(y)?, [3, 4]);
    /// assert!(graph.reshape(x, &[5]).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn reshape(&mut self, x: Tensor, shape: &[usize]) -> Result<Tensor> {
        let from = self.index(x)?;
        let meta = Meta { dtype: self.values[from].meta.dtype, shape: shape_of(shape)? };
        let old = &self.values[from].meta.shape;
        if old.iter().product::<usize>() != shape.iter().product::<usize>() {
            let (got, expected) = (format!("{shape:?}"), format!("as many elements as {old:?}"));
            return Err(Error::Shape { operation: "reshape", what: "the new shape", got, expected });
        }
        Ok(self.push(meta, Source::Reshape(from)))
    }

    /// The shape of a value.
    ///
    /// ```
    /// use openmps::{DataType, Graph};
    /// let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[2, 6], DataType::F32)?;
    /// assert!(Graph::new().shape(x).is_err(), "of another graph");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn shape(&self, x: Tensor) -> Result<&[usize]> {
        Ok(&self.values[self.index(x)?].meta.shape)
    }

    /// The element type of a value.
    ///
    /// ```
    /// use openmps::{DataType, Graph};
    /// let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[2], DataType::I32)?;
    /// assert_eq!(graph.data_type(x)?, DataType::I32);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn data_type(&self, x: Tensor) -> Result<DType> {
        Ok(self.values[self.index(x)?].meta.dtype)
    }

    /// The graph compiled for these results, from the cache where an equal one was compiled before: `compileWithDevice:feeds:...`.
    ///
    /// ```
    /// use openmps::{DataType, Device, Graph};
    /// use std::sync::Arc;
    /// let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[2, 6], DataType::F32)?;
    /// let y = graph.softmax(x, 1)?;
    /// let device = Device::get(0)?;
    /// assert!(Arc::ptr_eq(&graph.compile(&device, &[y])?, &graph.compile(&device, &[y])?));
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn compile(&self, device: &Device, results: &[Tensor]) -> Result<Arc<Executable>> {
        self.compile_with(device, results, OptimizationLevel::Level1)
    }

    /// The same at a level of optimization: `MPSGraphCompilationDescriptor`'s `optimizationLevel`.
    ///
    /// ```
    /// use openmps::{DataType, Device, Graph, OptimizationLevel, TensorData};
    /// let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[2], DataType::F32)?;
    /// let y = graph.add(x, x)?;
    /// let y = graph.multiply(y, x)?;
    /// let device = Device::get(0)?;
    /// let feed = TensorData::from_slice(&device, &[2], &[2.0f32, 3.0])?;
    /// for level in [OptimizationLevel::Level0, OptimizationLevel::Level1] {
    ///     let results = graph.compile_with(&device, &[y], level)?.run(&device.queue(), &[("x", &feed)])?;
    ///     assert_eq!(results[0].read::<f32>()?, [8.0, 18.0]);
    /// }
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn compile_with(
        &self,
        device: &Device,
        results: &[Tensor],
        level: OptimizationLevel,
    ) -> Result<Arc<Executable>> {
        cache::SHARED.compile(self, device, results, level)
    }

    fn indices(&self, tensors: &[Tensor]) -> Result<Vec<usize>> {
        tensors.iter().map(|&tensor| self.index(tensor)).collect()
    }

    fn push(&mut self, meta: Meta, source: Source) -> Tensor {
        self.values.push(Value { meta, source });
        Tensor { graph: self.id, index: self.values.len() - 1 }
    }

    fn index(&self, tensor: Tensor) -> Result<usize> {
        let Tensor { graph, index } = tensor;
        let of_origin = |&(origin, values): &(u64, usize)| graph == origin && index < values;
        if graph == self.id || self.origins.iter().any(of_origin) {
            return Ok(index);
        }
        Err(Error::ForeignTensor { index })
    }

    fn meta(&self, tensor: Tensor) -> Result<&Meta> {
        Ok(&self.values[self.index(tensor)?].meta)
    }
}
