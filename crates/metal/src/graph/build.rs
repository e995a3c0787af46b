//! Builds a graph one operation at a time; each is refused at once when its shapes or types do not fit.

use super::shape;
use super::{Graph, Node, Operation, Tensor, TensorType};
use crate::error::{Error, Result};
use openmps_tile::DType;

/// Element types that MPSGraph computes in on an Apple GPU. There is no float64.
const TYPES: &[DType] =
    &[DType::Bool, DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32];
/// Axes of a tensor at most (`MPSNDArray`).
const RANK: usize = 16;

/// A graph in the making.
#[derive(Default)]
pub struct Builder {
    inputs: Vec<TensorType>,
    nodes: Vec<Node>,
    /// Inputs and nodes are numbered in one row, so no input may come after a node.
    closed: bool,
}

impl Builder {
    /// An empty graph.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// A further input. All inputs come before the first operation.
    pub fn input(&mut self, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        let why = if self.closed {
            Some("inputs come before operations".to_string())
        } else if shape.contains(&0) {
            Some(format!("MPSGraph has no empty tensors such as {shape:?}"))
        } else if shape.len() > RANK {
            Some(format!("{} axes are more than {RANK}", shape.len()))
        } else {
            None
        };
        if let Some(why) = why {
            return Err(Error::Shape { operation: "input", why });
        }
        check_type("input", dtype)?;
        self.inputs.push(TensorType { dtype, shape: shape.to_vec() });
        Ok(Tensor(self.inputs.len() - 1))
    }

    /// A further operation.
    pub fn add(&mut self, operation: Operation, inputs: &[Tensor]) -> Result<Tensor> {
        let count = self.inputs.len() + self.nodes.len();
        if let Some(unknown) = inputs.iter().find(|tensor| tensor.0 >= count) {
            let why = format!("tensor {} is not there yet; there are {count}", unknown.0);
            return Err(Error::Shape { operation: operation.name(), why });
        }
        let types: Vec<&TensorType> = inputs.iter().map(|&tensor| self.type_of(tensor)).collect();
        let result = shape::infer(&operation, &types)?;
        check_type(operation.name(), result.dtype)?;
        self.closed = true;
        self.nodes.push(Node { operation, inputs: inputs.to_vec(), result });
        Ok(Tensor(count))
    }

    /// A tensor's type.
    pub fn type_of(&self, tensor: Tensor) -> &TensorType {
        match self.inputs.get(tensor.0) {
            Some(input) => input,
            None => &self.nodes[tensor.0 - self.inputs.len()].result,
        }
    }

    /// The graph with these results, one at least, none of them an input: MPSGraph returns inputs as the same memory.
    pub fn finish(self, outputs: &[Tensor]) -> Result<Graph> {
        let inputs = self.inputs.len();
        let computed = |tensor: &Tensor| (inputs..inputs + self.nodes.len()).contains(&tensor.0);
        if outputs.is_empty() || !outputs.iter().all(computed) {
            return Err(Error::Shape {
                operation: "graph",
                why: "each result must be computed, and there must be one".into(),
            });
        }
        Ok(Graph { inputs: self.inputs, nodes: self.nodes, outputs: outputs.to_vec() })
    }
}

fn check_type(operation: &'static str, dtype: DType) -> Result<()> {
    if TYPES.contains(&dtype) { Ok(()) } else { Err(Error::Type { operation, dtype, engine: "MPSGraph" }) }
}
