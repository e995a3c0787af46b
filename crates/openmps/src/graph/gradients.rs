//! Gradients of a value by others, in reverse mode: the operators' own gradients, recorded into the same graph.

use super::{Graph, Source, Tensor};
use crate::error::{Error, Result};
use openmps_graph::gradient::{Node, Recorder};
use openmps_graph::operators::full::Full;
use openmps_graph::reverse::{self, Origin, Record};
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

    fn record_reshape(&mut self, x: Node, dims: &[usize]) -> openmps_graph::Result<Node> {
        let meta = Meta { dtype: self.0.values[x.0].meta.dtype, shape: openmps_graph::view::shape_of(dims)? };
        Ok(Node(self.0.push(meta, Source::Reshape(x.0)).index))
    }
}

impl Record for Recording<'_> {
    fn origin(&self, value: Node) -> Origin {
        match self.0.values[value.0].source {
            Source::Reshape(from) => Origin::Reshaped(Node(from)),
            Source::Step(step) => {
                let super::Step { operator, inputs, outputs } = self.0.steps[step].clone();
                let nodes = |values: Vec<usize>| values.into_iter().map(Node).collect();
                Origin::Step(reverse::Step { operator, inputs: nodes(inputs), outputs: nodes(outputs) })
            }
            _ => Origin::Given,
        }
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
        let weight = Node(self.full_like(of, 1.0)?);
        let nodes: Vec<Node> = by.iter().copied().map(Node).collect();
        let found = reverse::gradients(&mut Recording(self), &[(Node(of), weight)], &nodes)?;
        let tensor = |(gradient, index): (Option<Node>, usize)| match gradient {
            Some(gradient) => Ok(Tensor { graph: self.id, index: gradient.0 }),
            None => Ok(Tensor { graph: self.id, index: self.full_like(index, 0.0)? }),
        };
        found.into_iter().zip(by).map(tensor).collect()
    }

    fn full_like(&mut self, index: usize, number: f64) -> Result<usize> {
        let Meta { dtype, shape } = self.values[index].meta.clone();
        Ok(self.push_step(Arc::new(Full { dims: shape, dtype, value: Number::Float(number) }), Vec::new())?[0])
    }
}
