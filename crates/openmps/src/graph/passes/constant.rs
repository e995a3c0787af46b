//! What depends on constants alone is computed once, and not before somebody reads it: a weight that goes into another form is never kept as it was.

use super::Rewriter;
use crate::device::Device;
use crate::error::Result;
use crate::graph::executable::Executable;
use crate::graph::plan::Goals;
use crate::graph::{Graph, OptimizationLevel, Source, StoredTensor, Tensor, TensorData, Value};
use openmps_graph::{DType, Meta, Operator};
use openmps_runtime::Identity;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// An operator whose inputs are constants.
#[derive(Debug)]
pub(in crate::graph) struct Folded {
    key: FoldedKey,
    device: Device,
    operator: Arc<dyn Operator>,
    inputs: Vec<Value>,
    /// Its results, once somebody has wanted to keep them.
    pub(in crate::graph) kept: OnceLock<Vec<TensorData>>,
}

/// What it is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::graph) struct FoldedKey {
    device: Identity,
    /// The operator with its attributes.
    text: String,
    inputs: Vec<Constant>,
}

impl Folded {
    /// The results, computed by the first who asks and kept from then on.
    pub(in crate::graph) fn tensors(&self) -> Result<&[TensorData]> {
        if self.kept.get().is_none() {
            let tensors = self.computed()?;
            // Two threads may both have computed them; the first one's stay.
            let _ = self.kept.set(tensors);
        }
        Ok(self.kept.get().map_or(&[], |tensors| &tensors[..]))
    }

    /// The results, for the caller alone.
    fn computed(&self) -> Result<Vec<TensorData>> {
        let mut graph = Graph::new();
        let results = self.build(&mut graph)?;
        let (goals, level) = (Goals::of(&graph, &results, &[])?, OptimizationLevel::Level0);
        Executable::new(&graph, &self.device, goals, level, None)?.run(&self.device.queue(), &[])
    }

    /// Adds the operator to a graph, and all that its inputs are made of and nobody has kept.
    fn build(&self, graph: &mut Graph) -> Result<Vec<Tensor>> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for Value { meta, source } in &self.inputs {
            inputs.push(match source {
                Source::Folded(of, output) if of.kept.get().is_none() => {
                    let result = of.build(graph)?[*output];
                    graph.reshape(result, &meta.shape)?
                }
                _ => graph.push(meta.clone(), source.clone()),
            });
        }
        graph.shared_operator(Arc::clone(&self.operator), &inputs)
    }
}

/// The numbers of a float32 constant, which need not be kept.
pub(in crate::graph) fn numbers(value: &Value) -> Result<Vec<f32>> {
    match &value.source {
        Source::Constant(bytes) => Ok(floats(bytes)),
        Source::Stored(stored) => Ok(floats(&stored.bytes()?)),
        Source::Data(tensor) => tensor.read(),
        Source::Folded(of, output) => match of.kept.get() {
            Some(tensors) => tensors[*output].read(),
            None => of.computed()?[*output].read(),
        },
        Source::Placeholder(_) | Source::Variable(_) | Source::Step(_) | Source::Reshape(_) => Ok(Vec::new()),
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]])).collect()
}

/// A constant as part of a key: bytes are compared, memory is the same or another. A key keeps its memory alive, so that no other
/// constant can come to lie there; of what was folded, that of the constants that it is made of.
#[derive(Clone, Debug)]
pub(in crate::graph) struct Constant(Content, DType, Vec<usize>);

#[derive(Clone, Debug)]
enum Content {
    Bytes(Arc<[u8]>),
    Tensor(TensorData),
    Stored(StoredTensor),
    Folded(FoldedKey, usize),
}

impl Constant {
    /// The constant that a value is.
    pub(in crate::graph) fn of(value: &Value) -> Option<Constant> {
        let content = match &value.source {
            Source::Constant(bytes) => Content::Bytes(Arc::clone(bytes)),
            Source::Data(tensor) => Content::Tensor(tensor.clone()),
            Source::Stored(stored) => Content::Stored(stored.clone()),
            Source::Folded(of, output) => Content::Folded(of.key.clone(), *output),
            _ => return None,
        };
        Some(Constant(content, value.meta.dtype, value.meta.shape.to_vec()))
    }

    /// Memory that does not change its place.
    pub(in crate::graph) fn of_memory(tensor: &TensorData) -> Constant {
        Constant(Content::Tensor(tensor.clone()), tensor.meta.dtype, tensor.meta.shape.to_vec())
    }
}

impl PartialEq for Constant {
    fn eq(&self, other: &Constant) -> bool {
        let same = match (&self.0, &other.0) {
            (Content::Bytes(a), Content::Bytes(b)) => a == b,
            (Content::Tensor(a), Content::Tensor(b)) => a.buffer.is_same(&b.buffer) && a.offset == b.offset,
            (Content::Stored(a), Content::Stored(b)) => a.identity() == b.identity(),
            (Content::Folded(a, i), Content::Folded(b, j)) => i == j && a == b,
            _ => false,
        };
        same && (self.1, &self.2) == (other.1, &other.2)
    }
}

impl Eq for Constant {}

impl Hash for Constant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Content::Bytes(bytes) => bytes.hash(state),
            Content::Tensor(tensor) => (tensor.buffer.order(), tensor.offset).hash(state),
            Content::Stored(stored) => stored.identity().hash(state),
            Content::Folded(key, output) => (key, output).hash(state),
        }
        self.2.hash(state);
    }
}

/// Operators whose result is another one in every run.
const RANDOM: &[&str] = &["random", "bernoulli", "dropout"];

/// Bytes of a folded result at most, unless it is no larger than what it is made of: a constant that is spread over a large tensor is
/// better made anew than kept.
const LARGEST: usize = 1 << 16;

impl Rewriter<'_> {
    /// The outputs of an operator whose inputs are all constants, as constants.
    pub(super) fn fold(
        &mut self,
        operator: &Arc<dyn Operator>,
        inputs: &[usize],
        uses: &[usize],
    ) -> Result<Option<Vec<usize>>> {
        let constants: Option<Vec<Constant>> = inputs.iter().map(|&input| Constant::of(&self.values[input])).collect();
        let Some(constants) = constants.filter(|_| !RANDOM.contains(&operator.name())) else { return Ok(None) };
        let metas: Vec<Meta> = inputs.iter().map(|&input| self.values[input].meta.clone()).collect();
        let bytes = |metas: &[Meta]| -> Result<usize> {
            metas.iter().try_fold(0, |sum: usize, meta| Ok(sum.saturating_add(meta.bytes()?)))
        };
        let made = operator.infer(&metas)?;
        if bytes(&made)? > bytes(&metas)?.max(LARGEST) {
            return Ok(None);
        }
        let text = format!("{} {operator:?}", operator.name());
        let key = FoldedKey { device: self.device.runtime().identity(), text, inputs: constants };
        let folded = self.folded.get_or_make(&key, || {
            let (key, device, operator) = (key.clone(), self.device.clone(), Arc::clone(operator));
            let inputs = inputs.iter().map(|&input| self.values[input].clone()).collect();
            Ok::<_, crate::Error>(Folded { key, device, operator, inputs, kept: OnceLock::new() })
        })?;
        let outputs = made.into_iter().zip(uses).enumerate().map(|(output, (meta, &uses))| {
            self.push(Value { meta, source: Source::Folded(Arc::clone(&folded), output) }, uses)
        });
        Ok(Some(outputs.collect()))
    }

    pub(super) fn is_constant(&self, value: usize) -> bool {
        self.values[value].is_constant()
    }

    /// The number that a float32 constant of one element is.
    pub(super) fn number(&self, value: usize) -> Result<Option<f32>> {
        let Value { meta, source } = &self.values[value];
        if meta.dtype != DType::F32 || meta.shape.iter().product::<usize>() != 1 {
            return Ok(None);
        }
        Ok(match source {
            Source::Constant(bytes) => <[u8; 4]>::try_from(&bytes[..]).ok().map(f32::from_ne_bytes),
            Source::Data(tensor) => tensor.read::<f32>()?.first().copied(),
            Source::Stored(stored) => floats(&stored.bytes()?).first().copied(),
            Source::Folded(of, output) => of.tensors()?[*output].read::<f32>()?.first().copied(),
            _ => None,
        })
    }
}
