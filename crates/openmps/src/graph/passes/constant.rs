//! What depends on constants alone is computed once.

use super::Rewriter;
use crate::error::Result;
use crate::graph::executable::{Executable, Goals};
use crate::graph::{Graph, OptimizationLevel, Source, TensorData, Value};
use openmps_graph::{DType, Meta, Operator};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The results of an operator whose inputs were constants.
pub(in crate::graph) type Folded = Vec<TensorData>;

/// What they are found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::graph) struct FoldedKey {
    device: String,
    /// The operator with its attributes.
    text: String,
    inputs: Vec<Constant>,
}

/// A constant as part of a key: bytes are compared, memory is the same or another. A key keeps its memory alive, so that no other
/// constant can come to lie there.
#[derive(Clone, Debug)]
pub(in crate::graph) struct Constant(TensorOrBytes, DType, Vec<usize>);

#[derive(Clone, Debug)]
enum TensorOrBytes {
    Bytes(Arc<[u8]>),
    Tensor(TensorData),
}

impl Constant {
    /// The constant that a value is.
    pub(in crate::graph) fn of(value: &Value) -> Option<Constant> {
        let content = match &value.source {
            Source::Constant(bytes) => TensorOrBytes::Bytes(Arc::clone(bytes)),
            Source::Data(tensor) => TensorOrBytes::Tensor(tensor.clone()),
            _ => return None,
        };
        Some(Constant(content, value.meta.dtype, value.meta.shape.to_vec()))
    }

    /// Memory that does not change its place.
    pub(in crate::graph) fn of_memory(tensor: &TensorData) -> Constant {
        Constant(TensorOrBytes::Tensor(tensor.clone()), tensor.meta.dtype, tensor.meta.shape.to_vec())
    }
}

impl PartialEq for Constant {
    fn eq(&self, other: &Constant) -> bool {
        let same = match (&self.0, &other.0) {
            (TensorOrBytes::Bytes(a), TensorOrBytes::Bytes(b)) => a == b,
            (TensorOrBytes::Tensor(a), TensorOrBytes::Tensor(b)) => a.buffer.is_same(&b.buffer) && a.offset == b.offset,
            _ => false,
        };
        same && (self.1, &self.2) == (other.1, &other.2)
    }
}

impl Eq for Constant {}

impl Hash for Constant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            TensorOrBytes::Bytes(bytes) => bytes.hash(state),
            TensorOrBytes::Tensor(tensor) => (tensor.buffer.order(), tensor.offset).hash(state),
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
        let bytes = |metas: &[Meta]| metas.iter().try_fold(0, |sum: usize, meta| Ok(sum.saturating_add(meta.bytes()?)));
        let made: openmps_graph::Result<usize> = bytes(&operator.infer(&metas)?);
        let given: openmps_graph::Result<usize> = bytes(&metas);
        if made? > given?.max(LARGEST) {
            return Ok(None);
        }
        let text = format!("{} {operator:?}", operator.name());
        let key = FoldedKey { device: format!("{:?}", self.device), text, inputs: constants };
        let folded = self.folded.get_or_make(&key, || self.evaluate(operator, inputs))?;
        let outputs = folded.iter().zip(uses).map(|(tensor, &uses)| {
            let value = Value { meta: tensor.meta.clone(), source: Source::Data(tensor.clone()) };
            self.push(value, uses)
        });
        Ok(Some(outputs.collect()))
    }

    fn evaluate(&self, operator: &Arc<dyn Operator>, inputs: &[usize]) -> Result<Folded> {
        let mut graph = Graph::new();
        let copy = |&input: &usize| graph.push(self.values[input].meta.clone(), self.values[input].source.clone());
        let inputs: Vec<_> = inputs.iter().map(copy).collect();
        let results = graph.shared_operator(Arc::clone(operator), &inputs)?;
        let executable =
            Executable::new(&graph, self.device, Goals::of(&graph, &results, &[])?, OptimizationLevel::Level0)?;
        executable.run(&self.device.queue(), &[])
    }

    pub(super) fn is_constant(&self, value: usize) -> bool {
        matches!(self.values[value].source, Source::Constant(_) | Source::Data(_))
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
            _ => None,
        })
    }
}
