//! Gradients of a value by others, in reverse mode: the operators' own gradients, recorded into the same graph.

use super::{Graph, Source, Tensor, Value};
use crate::error::{Error, Result};
use openmps_graph::gradient::{Backward, Node, Recorder};
use openmps_graph::operators::elementwise::{Binary, Call, Elementwise};
use openmps_graph::operators::full::Full;
use openmps_graph::{Meta, Operator};
use openmps_tile::Number;
use std::sync::Arc;

/// A graph as gradients are recorded into it. Its nodes are numbers of this graph's values, which nobody outside can make up.
struct Recording<'g>(&'g mut Graph);

impl Recorder for Recording<'_> {
    fn meta(&self, node: Node) -> Meta {
        self.0.values[node.0].meta.clone()
    }

    fn record(&mut self, operator: Arc<dyn Operator>, inputs: &[Node]) -> openmps_graph::Result<Vec<Node>> {
        let outputs = self.0.push_step(operator, inputs.iter().map(|node| node.0).collect())?;
        Ok(outputs.into_iter().map(Node).collect())
    }

    fn reshape(&mut self, x: Node, dims: &[usize]) -> openmps_graph::Result<Node> {
        let meta = Meta { dtype: self.0.values[x.0].meta.dtype, shape: openmps_graph::view::shape_of(dims)? };
        Ok(Node(self.0.push(meta, Source::Reshape(x.0)).index))
    }
}

impl Graph {
    /// The gradients of a value, summed up where it has several elements, by others: `gradientForPrimaryTensor:withTensors:name:`. They are
    /// values of the same graph, of which gradients may be taken in turn. By a value that it does not depend on the gradient is zero.
    ///
    /// ```
    /// use openmps::{Device, Graph};
    /// let mut graph = Graph::new();
    /// let x = graph.constant(&[2], &[3.0f32, 4.0])?;
    /// let cubes = graph.multiply(x, x)?;
    /// let cubes = graph.multiply(cubes, x)?;
    /// let first = graph.gradients(cubes, &[x])?[0];
    /// let second = graph.gradients(first, &[x])?[0];
    /// let device = Device::get(0)?;
    /// let results = graph.compile(&device, &[first, second])?.run(&device.queue(), &[])?;
    /// assert_eq!(results[0].read::<f32>()?, [27.0, 48.0]);
    /// assert_eq!(results[1].read::<f32>()?, [18.0, 24.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn gradients(&mut self, of: Tensor, by: &[Tensor]) -> Result<Vec<Tensor>> {
        let (of, by) = (self.index(of)?, self.indices(by)?);
        for &index in by.iter().chain([&of]) {
            let got = self.values[index].meta.dtype;
            if !got.is_float() {
                return Err(Error::DataType {
                    operation: "gradients",
                    what: "a value",
                    got,
                    expected: "floats".into(),
                });
            }
        }
        let depends = self.dependents(&by, of);
        let mut gradients: Vec<Option<usize>> = vec![None; of + 1];
        gradients[of] = Some(self.full_like(of, 1.0)?);
        for index in (0..=of).rev().filter(|&index| depends[index]) {
            match self.values[index].source {
                Source::Reshape(from) => {
                    if let Some(gradient) = gradients[index] {
                        let meta = self.values[from].meta.clone();
                        let reshaped = self.push(meta, Source::Reshape(gradient)).index;
                        self.accumulate(&mut gradients[from], reshaped)?;
                    }
                }
                // The last one that is come to of a step's outputs: whatever reads one of them stands behind all of them.
                Source::Step(step) if self.steps[step].outputs[0] == index => {
                    self.step_back(step, &depends, &mut gradients)?;
                }
                _ => {}
            }
        }
        let found = |&index: &usize| match gradients.get(index).copied().flatten() {
            Some(gradient) => Ok(Tensor { graph: self.id, index: gradient }),
            None => Ok(Tensor { graph: self.id, index: self.full_like(index, 0.0)? }),
        };
        by.iter().map(found).collect()
    }

    /// By value up to `of`: whether it is one of `by` or computed from one.
    fn dependents(&self, by: &[usize], of: usize) -> Vec<bool> {
        let mut depends = vec![false; of + 1];
        for index in 0..=of {
            let Value { meta, source } = &self.values[index];
            let computed = match source {
                Source::Reshape(from) => depends[*from],
                Source::Step(step) => self.steps[*step].inputs.iter().any(|&input| depends[input]),
                _ => false,
            };
            depends[index] = by.contains(&index) || computed && meta.dtype.is_float();
        }
        depends
    }

    /// Adds the gradients of a step's inputs to what they have already.
    fn step_back(&mut self, step: usize, depends: &[bool], gradients: &mut [Option<usize>]) -> Result<()> {
        let step = self.steps[step].clone();
        let node = |&index: &usize| Node(index);
        let upstream: Vec<Option<Node>> =
            step.outputs.iter().map(|&output| gradients.get(output).copied().flatten().map(Node)).collect();
        if upstream.iter().all(Option::is_none) {
            return Ok(());
        }
        let wanted: Vec<bool> = step.inputs.iter().map(|&input| depends[input]).collect();
        let found = step.operator.gradient(&mut Backward {
            recorder: &mut Recording(self),
            inputs: &step.inputs.iter().map(node).collect::<Vec<_>>(),
            outputs: &step.outputs.iter().map(node).collect::<Vec<_>>(),
            upstream: &upstream,
            wanted: &wanted,
        })?;
        for ((&input, gradient), _) in step.inputs.iter().zip(found).zip(wanted).filter(|(_, wanted)| *wanted) {
            if let Some(gradient) = gradient {
                self.accumulate(&mut gradients[input], gradient.0)?;
            }
        }
        Ok(())
    }

    fn accumulate(&mut self, sum: &mut Option<usize>, gradient: usize) -> Result<()> {
        let add = Call::new(Elementwise::Binary(Binary::Add));
        *sum = match *sum {
            None => Some(gradient),
            Some(sum) => Some(self.push_step(Arc::new(add), vec![sum, gradient])?[0]),
        };
        Ok(())
    }

    fn full_like(&mut self, index: usize, number: f64) -> Result<usize> {
        let Meta { dtype, shape } = self.values[index].meta.clone();
        Ok(self.push_step(Arc::new(Full { dims: shape, dtype, value: Number::Float(number) }), Vec::new())?[0])
    }
}
