//! What is done to a graph before it is planned: one walk in which every step may be folded, or taken in by the step that feeds it.
//!
//! The walk builds a second graph. Each step of the first is added to it with its inputs translated; [`Rewriter::add`] sees what feeds it
//! and may change that instead. A step that takes in another one moves to the end, where everything that it now reads exists.

mod attention;
mod constant;
mod epilogue;
mod folded_key;

pub(super) use constant::{Folded, numbers};
pub(super) use folded_key::{Constant, FoldedKey};

use super::plan::needed_steps;
use super::{Graph, Source, Step, Value};
use crate::device::Device;
use crate::error::Result;
use openmps_graph::cache::Cache;
use openmps_graph::{Meta, Operator};
use std::any::Any;
use std::sync::Arc;

/// The graph after all passes, and what the results are called there.
pub(super) fn run(
    graph: &Graph,
    device: &Device,
    results: &[usize],
    folded: &Cache<FoldedKey, Folded>,
) -> Result<(Graph, Vec<usize>)> {
    let needed = needed_steps(graph, results);
    let mut rewriter = Rewriter::new(graph, device, &needed, results, folded);
    for step in needed {
        rewriter.step(&graph.steps[step])?;
    }
    let results = results.iter().map(|&result| rewriter.translate(result)).collect();
    Ok((rewriter.finish(), results))
}

/// A graph on the way to another.
struct Rewriter<'a> {
    old: &'a Graph,
    device: &'a Device,
    folded: &'a Cache<FoldedKey, Folded>,
    values: Vec<Value>,
    /// None where another step took one in.
    steps: Vec<Option<Step>>,
    /// By old value: what it is called now.
    names: Vec<Option<usize>>,
    /// By old value: steps, reshapes and results that read it.
    readers: Vec<usize>,
    /// By new value: the same. Nothing that is read more than once disappears.
    uses: Vec<usize>,
}

impl<'a> Rewriter<'a> {
    fn new(
        old: &'a Graph,
        device: &'a Device,
        needed: &[usize],
        results: &[usize],
        folded: &'a Cache<FoldedKey, Folded>,
    ) -> Self {
        let mut readers = vec![0; old.values.len()];
        results.iter().for_each(|&result| readers[result] += 1);
        for &step in needed {
            old.steps[step].inputs.iter().for_each(|&input| readers[input] += 1);
        }
        // From the last on: a reshape that nobody reads reads nothing.
        for (index, value) in old.values.iter().enumerate().rev() {
            if let Source::Reshape(from) = value.source
                && readers[index] > 0
            {
                readers[from] += 1;
            }
        }
        let names = vec![None; old.values.len()];
        Rewriter { old, device, folded, values: Vec::new(), steps: Vec::new(), names, readers, uses: Vec::new() }
    }

    /// What an old value is called now.
    fn translate(&mut self, old: usize) -> usize {
        if let Some(name) = self.names[old] {
            return name;
        }
        let Value { meta, source } = &self.old.values[old];
        let name = match *source {
            Source::Reshape(from) => {
                let from = self.translate(from);
                self.reshaped(from, meta.clone(), self.readers[old])
            }
            _ => self.push(Value { meta: meta.clone(), source: source.clone() }, self.readers[old]),
        };
        self.names[old] = Some(name);
        name
    }

    /// The elements of a value under another shape, which `uses` places read.
    fn reshaped(&mut self, from: usize, meta: Meta, uses: usize) -> usize {
        if self.values[from].meta == meta {
            // The reshape's own read is none.
            self.uses[from] = (self.uses[from] + uses).saturating_sub(1);
            return from;
        }
        let source = match &self.values[from].source {
            Source::Constant(bytes) => Source::Constant(Arc::clone(bytes)),
            Source::Data(tensor) => Source::Data(super::TensorData { meta: meta.clone(), ..tensor.clone() }),
            Source::Stored(tensor) => Source::Stored(tensor.clone()),
            Source::Folded(of, output) => Source::Folded(Arc::clone(of), *output),
            Source::Reshape(root) => {
                let root = *root;
                self.uses[root] += 1;
                Source::Reshape(root)
            }
            Source::Placeholder(_) | Source::Variable(_) | Source::Step(_) => Source::Reshape(from),
        };
        self.push(Value { meta, source }, uses)
    }

    /// Adds an old step, or does what comes to the same.
    fn step(&mut self, step: &Step) -> Result<()> {
        let inputs: Vec<usize> = step.inputs.iter().map(|&input| self.translate(input)).collect();
        let uses: Vec<usize> = step.outputs.iter().map(|&output| self.readers[output]).collect();
        let outputs = self.add(Arc::clone(&step.operator), inputs, uses)?;
        step.outputs.iter().zip(outputs).for_each(|(&old, new)| self.names[old] = Some(new));
        Ok(())
    }

    /// Adds a step whose outputs are read so often; its outputs.
    fn add(&mut self, operator: Arc<dyn Operator>, inputs: Vec<usize>, uses: Vec<usize>) -> Result<Vec<usize>> {
        if let Some(outputs) = self.fold(&operator, &inputs, &uses)? {
            return Ok(outputs);
        }
        if let [uses] = uses[..]
            && let Some(output) = self.rewritten(&operator, &inputs, uses)?
        {
            return Ok(vec![output]);
        }
        self.append(operator, inputs, &uses)
    }

    /// The one output of an operator that other steps can do the work of.
    fn rewritten(&mut self, operator: &Arc<dyn Operator>, inputs: &[usize], uses: usize) -> Result<Option<usize>> {
        if let Some(output) = self.attention(operator, inputs, uses)? {
            return Ok(Some(output));
        }
        if let Some(output) = self.linear(operator, inputs, uses)? {
            return Ok(Some(output));
        }
        self.absorbed(operator, inputs, uses)
    }

    /// Adds a step as it is.
    fn append(&mut self, operator: Arc<dyn Operator>, inputs: Vec<usize>, uses: &[usize]) -> Result<Vec<usize>> {
        let metas: Vec<Meta> = inputs.iter().map(|&input| self.values[input].meta.clone()).collect();
        let metas = operator.infer(&metas)?;
        let step = self.steps.len();
        let outputs: Vec<usize> = metas
            .into_iter()
            .zip(uses)
            .map(|(meta, &uses)| self.push(Value { meta, source: Source::Step(step) }, uses))
            .collect();
        self.steps.push(Some(Step { operator, inputs, outputs: outputs.clone() }));
        Ok(outputs)
    }

    /// A step of this pass's own making, with one output that is read once.
    fn compute(&mut self, operator: impl Operator, inputs: &[usize]) -> Result<usize> {
        for &input in inputs {
            self.uses[input] += 1;
        }
        Ok(self.add(Arc::new(operator), inputs.to_vec(), vec![1])?[0])
    }

    fn push(&mut self, value: Value, uses: usize) -> usize {
        self.values.push(value);
        self.uses.push(uses);
        self.values.len() - 1
    }

    fn shape(&self, value: usize) -> &[usize] {
        &self.values[value].meta.shape
    }

    /// The step that makes a value which is read once, where its operator is of this type.
    fn producer<T: Operator>(&self, value: usize) -> Option<(usize, &T)> {
        let Source::Step(step) = self.values[value].source else { return None };
        let made_by = self.steps[step].as_ref().filter(|_| self.uses[value] == 1)?;
        Some((step, downcast::<T>(&made_by.operator)?))
    }

    /// Takes a step away whose only output's only reader does its work from now on; its inputs.
    fn remove(&mut self, step: usize) -> Vec<usize> {
        self.steps[step].take().map_or_else(Vec::new, |step| step.inputs)
    }

    /// The new graph.
    fn finish(self) -> Graph {
        let mut values = self.values;
        let mut steps: Vec<Step> = Vec::with_capacity(self.steps.len());
        for step in self.steps.into_iter().flatten() {
            step.outputs.iter().for_each(|&output| values[output].source = Source::Step(steps.len()));
            steps.push(step);
        }
        Graph { values, steps, ..Graph::new() }
    }
}

/// The operator, where it is of this type.
fn downcast<T: Operator>(operator: &Arc<dyn Operator>) -> Option<&T> {
    let operator: &dyn Any = &**operator;
    operator.downcast_ref()
}
