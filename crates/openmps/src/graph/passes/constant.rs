//! What depends on constants alone is computed once, and not before somebody reads it: a weight that goes into another form is never kept as it was.

use super::Rewriter;
use super::folded_key::{Constant, FoldedKey};
use crate::device::Device;
use crate::error::Result;
use crate::graph::executable::Executable;
use crate::graph::plan::Goals;
use crate::graph::{Graph, OptimizationLevel, Source, Tensor, TensorData, Value};
use openmps_graph::{DType, Meta, Operator};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::{fmt, ptr};

/// An operator whose inputs are constants.
pub(in crate::graph) struct Folded {
    pub(super) key: FoldedKey,
    device: Device,
    operator: Arc<dyn Operator>,
    inputs: Vec<Value>,
    /// Its results, once somebody has wanted to keep them.
    pub(in crate::graph) kept: OnceLock<Vec<TensorData>>,
}

impl fmt::Debug for Folded {
    /// Without what its inputs are made of, which may be named very often.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Folded({:?})", self.key)
    }
}

impl Drop for Folded {
    /// One after the other: a chain of operators may be longer than the stack is deep.
    fn drop(&mut self) {
        let mut open = std::mem::take(&mut self.inputs);
        while let Some(Value { source, .. }) = open.pop() {
            if let Source::Folded(of, _) = source
                && let Some(mut of) = Arc::into_inner(of)
            {
                open.append(&mut of.inputs);
            }
        }
    }
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

    /// Adds the operator to a graph, and all that its inputs are made of and nobody has kept: each of them once, inputs first.
    fn build(&self, graph: &mut Graph) -> Result<Vec<Tensor>> {
        let mut made: Made = HashMap::new();
        let mut open = vec![self];
        while let Some(&of) = open.last() {
            let before = open.len();
            open.extend(of.inputs.iter().filter_map(unkept).filter(|input| !made.contains_key(&ptr::from_ref(*input))));
            if open.len() > before {
                continue;
            }
            open.pop();
            if !made.contains_key(&ptr::from_ref(of)) {
                let results = of.add_to(graph, &made)?;
                made.insert(ptr::from_ref(of), results);
            }
        }
        Ok(made.remove(&ptr::from_ref(self)).unwrap_or_default())
    }

    /// Adds the operator to a graph that has what its inputs are made of.
    fn add_to(&self, graph: &mut Graph, made: &Made) -> Result<Vec<Tensor>> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for Value { meta, source } in &self.inputs {
            let result = match source {
                Source::Folded(of, output) => made.get(&Arc::as_ptr(of)).map(|results| results[*output]),
                _ => None,
            };
            inputs.push(match result {
                Some(result) => graph.reshape(result, &meta.shape)?,
                None => graph.push(meta.clone(), source.clone()),
            });
        }
        graph.shared_operator(Arc::clone(&self.operator), &inputs)
    }
}

/// The results of operators that a graph has, by the operator.
type Made = HashMap<*const Folded, Vec<Tensor>>;

/// What a constant is folded from, where nobody has kept it.
fn unkept(value: &Value) -> Option<&Folded> {
    match &value.source {
        Source::Folded(of, _) if of.kept.get().is_none() => Some(of),
        _ => None,
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

/// Operators whose result is another one in every run.
const RANDOM: &[&str] = &["random", "bernoulli", "dropout"];

/// Bytes of a folded result at most, unless it is no larger than what it is made of: a constant that is spread over a large tensor is
/// better made anew than kept.
const LARGEST: usize = 1 << 16;

/// So much larger a result may be that is made of integers of 8 bits: quantised weights that become numbers would else become these in every run.
const OF_BYTES: usize = 4;

/// Bytes that a result of such inputs may have to be kept.
fn most_bytes(inputs: &[Meta]) -> Result<usize> {
    let mut most = 0_usize;
    for input in inputs {
        let factor = if matches!(input.dtype, DType::U8 | DType::I8) { OF_BYTES } else { 1 };
        most = most.saturating_add(input.bytes()?.saturating_mul(factor));
    }
    Ok(most.max(LARGEST))
}

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
        let made = operator.infer(&metas)?;
        let mut bytes = 0_usize;
        for meta in &made {
            bytes = bytes.saturating_add(meta.bytes()?);
        }
        if bytes > most_bytes(&metas)? {
            return Ok(None);
        }
        let text = format!("{} {operator:?}", operator.name());
        let key = FoldedKey::new(self.device.runtime().identity(), text, constants);
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
